//! `spec score`: likelihoods against what the reference implementation recorded, and sessions.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "common/device.rs"]
mod device;
#[path = "common/formula.rs"]
mod formula;
#[path = "common/session.rs"]
mod session;

use std::fs;
use std::path::{Path, PathBuf};

use formula::{Options, goldens, materialise};
use serde_json::{Value, json};
use session::{Session, assert_session};
use vlm_spec::backend::Backend;
use vlm_spec::backend::cpu::Cpu;
use vlm_spec::checkpoint::Checkpoint;
use vlm_spec::model::{Model, Timings};
use vlm_spec::plan::Plan;
use vlm_spec::preprocess::Media;
use vlm_spec::progress::{Observer, Progress, interrupted};
use vlm_spec::prompt::{Conversation, Request};
use vlm_spec::score::{Score, without_media};
use vlm_spec::{ErrorKind, Result};

/// On each log-probability, in nats. Logits reach 27 and differ by up to 3e-5 between the reference's own attention
/// implementations; a likelihood differs by at most twice as much. On the CPU as on a device the largest difference is below 2e-5.
const TOLERANCE: f64 = 1e-4;

/// A folder of goldens with weights, on a backend.
fn load_on<B: Backend>(name: &str, backend: B) -> Model<B> {
    let kind = Path::new(env!("CARGO_TARGET_TMPDIR")).join("score").join(backend.name());
    let folder = kind.join(name);
    let _ = fs::remove_dir_all(&folder);
    materialise(&goldens().join(name), &folder, &Options::default()).unwrap();
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let plan = Plan::resolve(&checkpoint.find_family().unwrap(), &checkpoint).unwrap();
    Model::load(&plan, backend).unwrap()
}

fn load(name: &str) -> Model<Cpu> {
    load_on(name, cpu())
}

fn cpu() -> Cpu {
    Cpu::new(Some(2)).unwrap()
}

fn score<B: Backend>(model: &Model<B>, messages: &Value, continuation: &str) -> Score {
    let conversation = Conversation::from_json(&messages.to_string()).unwrap();
    let files: Vec<PathBuf> = conversation
        .images
        .iter()
        .map(|name| goldens().join("images").join(name.as_ref().unwrap()))
        .collect();
    let pictures = model.media(&files, &[]).unwrap();
    let request = Request::Messages(&conversation.messages);
    model.score(request, &pictures, continuation, &(), &mut Timings::default()).unwrap()
}

/// Every golden folder with a `score.json` (`tests/scripts/make_scores.py`): the same tokens, and each as likely.
fn hold_likelihoods<B: Backend>(open: impl Fn() -> B) {
    let mut folders = 0;
    for entry in fs::read_dir(goldens()).unwrap() {
        let folder = entry.unwrap().path();
        let Ok(text) = fs::read_to_string(folder.join("score.json")) else { continue };
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let recorded: Value = serde_json::from_str(&text).unwrap();
        let continuation = recorded["continuation"].as_str().unwrap();
        let model = load_on(&name, open());
        let cases = recorded["cases"].as_array().unwrap();
        assert!(cases.len() > 1, "{name}");
        let mut worst = 0.0_f64;
        for case in cases {
            let what = format!("{name}: {}", case["name"]);
            let found = score(&model, &case["messages"], continuation);
            let ids: Vec<u32> = found.tokens.iter().map(|token| token.id).collect();
            assert_eq!(json!(ids), recorded["tokens"], "{what}");
            assert_eq!(json!(found.prompt_tokens), case["prompt_tokens"], "{what}");
            let wanted = case["log_probabilities"].as_array().unwrap();
            assert_eq!(wanted.len(), ids.len(), "{what}");
            for (token, wanted) in found.tokens.iter().zip(wanted) {
                let difference = (token.log_probability - wanted.as_f64().unwrap()).abs();
                assert!(difference <= TOLERANCE, "{what}: {token:?}, recorded {wanted}");
                worst = worst.max(difference);
            }
            let pieces: String = found.tokens.iter().map(|token| token.text.as_str()).collect();
            assert_eq!(pieces.trim_start(), continuation, "{what}");
            assert_eq!(found.characters, continuation.chars().count());
        }
        println!("{name}: {} prompts, largest difference {worst:.1e}", cases.len());
        folders += 1;
    }
    assert!(folders >= 6, "only {folders} folders have a score.json");
}

#[test]
fn likelihoods_equal_the_reference() {
    hold_likelihoods(cpu);
}

#[cfg(feature = "wgpu")]
#[test]
fn likelihoods_equal_the_reference_on_a_device() {
    if device::wgpu().is_some() {
        hold_likelihoods(|| device::wgpu().unwrap());
    }
}

/// Taking the media out of messages gives the prompt that the reference has without them.
#[test]
fn prompts_without_media_equal_the_reference() {
    let model = load("qwen2vl");
    let text = fs::read_to_string(goldens().join("qwen2vl/score.json")).unwrap();
    let recorded: Value = serde_json::from_str(&text).unwrap();
    let cases = recorded["cases"].as_array().unwrap();
    let mut compared = 0;
    for pair in cases.windows(2) {
        let bare = format!("{}, without media", pair[0]["name"].as_str().unwrap());
        if pair[1]["name"] != bare.as_str() {
            continue;
        }
        let conversation = Conversation::from_json(&pair[0]["messages"].to_string()).unwrap();
        let messages = without_media(&conversation.messages);
        let request = Request::Messages(&messages);
        let found =
            model.score(request, &Media::default(), "x", &(), &mut Timings::default()).unwrap();
        assert_eq!(json!(found.prompt_tokens), pair[1]["prompt_tokens"]);
        compared += 1;
    }
    assert!(compared >= 3, "only {compared} prompts");
}

#[test]
fn likelihoods_do_not_depend_on_what_follows() {
    hold_parts(&load("llava"));
}

#[cfg(feature = "wgpu")]
#[test]
fn likelihoods_do_not_depend_on_what_follows_on_a_device() {
    if let Some(device) = device::wgpu() {
        hold_parts(&load_on("llava_full", device));
    }
}

/// The likelihood of a text is that of its beginning, and of the rest behind it: a long one in several parts of logits, a
/// part at a time, and the first token alone.
fn hold_parts<B: Backend>(model: &Model<B>) {
    let messages = json!([{"role": "user", "content": "What is this?"}]);
    let long = "The cat sat on the mat, and the dog on 17 cats. ".repeat(20);
    let all = score(model, &messages, &long);
    assert!(all.tokens.len() > 300);
    for length in [1, 2, 40, 700] {
        let part = score(model, &messages, &long[..length]);
        // the last token may be another one where the text is cut
        for (ours, whole) in part.tokens.iter().zip(&all.tokens).take_while(|(a, b)| a.id == b.id) {
            // other blocks of rows in a product, other orders of summation
            let difference = (ours.log_probability - whole.log_probability).abs();
            assert!(difference < TOLERANCE, "{ours:?} {whole:?}");
        }
    }
    // greedy text is the likeliest at every step, so no other first token beats it
    let greedy = score(model, &messages, &long).tokens[0].log_probability;
    assert!(greedy <= 0.0);
}

/// Stops at the observer's word, between any two stages.
#[test]
fn an_observer_can_stop_a_score() {
    struct Stop(fn(Progress) -> bool);
    impl Observer for Stop {
        fn progress(&self, progress: Progress) -> Result<()> {
            if (self.0)(progress) { Err(interrupted()) } else { Ok(()) }
        }
    }
    let model = load("llava");
    let stops: [fn(Progress) -> bool; 4] = [
        |at| matches!(at, Progress::Encoding { .. }),
        |at| matches!(at, Progress::Prefill { .. }),
        |at| matches!(at, Progress::Decoding { done: 0, .. }),
        |at| matches!(at, Progress::Decoding { done: 1.., .. }),
    ];
    for stop in stops {
        let error = model
            .score(
                Request::Raw("abc"),
                &Media::default(),
                "def",
                &Stop(stop),
                &mut Timings::default(),
            )
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
    }
}

#[test]
fn sessions() {
    let mut session = Session::new("score");
    session
        .say(r#"score qwen2vl --image a.png "What is this?" --continuation "A cat.""#)
        .say(r#"score qwen2vl "What is this?" --continuation "A cat.""#)
        .say(r#"score qwen2vl --raw "What is" --continuation " this""#)
        .say(r#"score qwen2vl --raw --image a.png "<|image_pad|> is" --continuation " this""#)
        .say(r#"score qwen2vl --raw --image a.png "<|image_pad|> is" --continuation " this" -q"#)
        .say(r#"score llava --image a.png "{image} What is this?" --continuation "-1""#)
        .say(r#"score llava "What is this?" --continuation """#)
        .say(r#"score llava "What is this?""#)
        .say(r#"score llava --image no.png "What is this?" --continuation x"#)
        .say(r#"score llava --audio a.wav "What is this?" --continuation x"#);
    assert_session!("score", session);
}

#[test]
fn json_is_one_document() {
    let session = Session::new("score_json");
    let text = "A cat sat.";
    let (status, stdout, stderr) = session.spec(&[
        "score",
        "qwen2vl",
        "--image",
        "a.png",
        "What is this?",
        "--continuation",
        text,
        "--json",
        "-v",
    ]);
    assert_eq!(status, 0, "{stderr}");
    assert!(stderr.contains("prefill") && stderr.contains("peak memory"), "{stderr}");
    let document: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(document["characters"], 10);
    for score in [&document, &document["without_media"]] {
        let tokens = score["tokens"].as_array().unwrap();
        let nats: f64 = tokens.iter().map(|token| token["log_probability"].as_f64().unwrap()).sum();
        let bits = score["bits"].as_f64().unwrap();
        assert!((bits + nats / std::f64::consts::LN_2).abs() < 1e-9 * bits); // rounding of f64
        let close =
            |found: &Value, expected: f64| (found.as_f64().unwrap() - expected).abs() < 1e-9;
        assert!(close(&score["bits_per_character"], bits / 10.0));
        assert!(close(&score["bits_per_token"], bits / tokens.len() as f64));
        let pieces: String = tokens.iter().map(|token| token["text"].as_str().unwrap()).collect();
        assert_eq!(pieces, text);
        assert!(tokens.iter().all(|token| token["id"].is_u64()));
    }
    let (with, without) = (&document["prompt_tokens"], &document["without_media"]["prompt_tokens"]);
    assert_eq!(with.as_u64().unwrap() - without.as_u64().unwrap(), 8); // 6 rows in a frame of 2
}

/// A marker in the continuation is text, as in a prompt; the characters that stand for one are refused.
#[test]
fn typed_markers_are_text() {
    let session = Session::new("score_typed");
    let ids = |text: &str| {
        let stdout = session.stdout(&["score", "qwen2vl", "Hi", "--continuation", text, "--json"]);
        let document: Value = serde_json::from_str(&stdout).unwrap();
        let tokens = document["tokens"].as_array().unwrap();
        tokens.iter().map(|token| token["id"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert!(ids("a<|image_pad|>b").len() > 5 && !ids("a<|image_pad|>b").contains(&332));
    // a token that stands for no media keeps its meaning
    assert_eq!(ids("a<|im_end|>").len(), 2);
    let sentinel = "x\u{10FE50}\u{10FE51}\u{10FE50}y";
    let (status, stdout, stderr) =
        session.spec(&["score", "qwen2vl", "Hi", "--continuation", sentinel]);
    assert_eq!((status, stdout.as_str()), (2, ""));
    assert!(stderr.starts_with("error: the text holds the private-use characters"), "{stderr}");
}
