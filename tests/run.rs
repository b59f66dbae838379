//! Sessions with `spec run` and `spec trace`: every kind of input that a stranger could feed, good and bad.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "common/formula.rs"]
mod formula;
#[path = "common/session.rs"]
mod session;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::process::Stdio;

use safetensors::SafeTensors;
use serde_json::{Value, json};
use session::{Session, assert_session};
use vlm_spec::checkpoint::Checkpoint;
use vlm_spec::layout::{ImageSize, MediaSize};
use vlm_spec::plan::{Modality, Plan};
use vlm_spec::prompt::{Content, Item, Message, PromptMaker, Request};

const MARKER: &str = "<|image_pad|>";

#[test]
fn prompts_and_pictures() {
    let mut session = Session::new("prompts");
    session
        .say(r#"run llava "Describe the image." -n 4"#)
        .say(r#"run llava --image a.png "What is this?" -n 4"#)
        .say(r#"run qwen2vl --image a.png --image a.png "Compare {image} with {image}." -n 4"#)
        .say(r#"run qwen2vl --image a.png "Compare {image} with {image}." -n 4"#)
        .say(r#"run qwen2vl --image a.png --image a.png "Compare {image}." -n 4"#)
        .say(r#"run qwen2vl "no {audio} here" -n 4"#)
        .say(r#"run qwen2vl --audio a.wav "Listen." -n 4"#)
        .say(r#"run qwen2vl --system "Be brief." "Hi" -n 4"#)
        .say(r#"run qwen2vl "" -n 4"#)
        .say(r#"run qwen2vl --raw "" -n 4"#)
        .say(r#"run qwen2vl "Hi" -n 0"#)
        .say(r#"run llava "naïve café, 日本語 🙂" -n 4"#);
    assert_session!("run_prompts", session);
}

#[test]
fn raw_markers_and_pictures_must_be_as_many() {
    let mut session = Session::new("raw");
    session
        .say(r#"run qwen2vl --raw --image a.png "a <|image_pad|> b <|image_pad|>" -n 4"#)
        .say(r#"run qwen2vl --raw --image a.png --image a.png "a <|image_pad|> b" -n 4"#)
        .say(r#"run qwen2vl --raw "a <|image_pad|> b" -n 4"#)
        .say(r#"run qwen2vl --raw --image a.png "a b" -n 4"#)
        .say(r#"run qwen2vl --raw "a <|video_pad|> b" -n 4"#)
        .say(r#"run llava --raw --image a.png "a" -n 4"#);
    // a strip of another length is none, a strip and a marker are two
    for count in [5, 7] {
        session.say(&format!(r#"run qwen2vl --raw --image a.png "{}" -n 4"#, MARKER.repeat(count)));
    }
    assert_session!("run_raw", session);
    let ids = |images: usize, prompt: &str| {
        let mut arguments = vec!["qwen2vl", "--raw", prompt];
        arguments.extend(["--image", "a.png"].repeat(images));
        session.ids(&arguments)
    };
    let one = ids(1, &format!("x{MARKER}y"));
    assert_eq!(one, [87, 332, 332, 332, 332, 332, 332, 88]);
    assert_eq!(ids(1, &format!("x{}y", MARKER.repeat(6))), one, "an expanded strip is left alone");
    let two = ids(2, &format!("x{MARKER}{MARKER}y"));
    assert_eq!(two.len(), 14);
    for markers in [7, 12] {
        assert_eq!(ids(2, &format!("x{}y", MARKER.repeat(markers))), two);
    }
    // six markers side by side are a strip for one picture, and six markers for six
    assert_eq!(ids(6, &format!("x{}y", MARKER.repeat(6))).len(), 38);
}

#[test]
fn typed_markers_are_text() {
    let session = Session::new("typed");
    for (checkpoint, marker, id) in [("qwen2vl", MARKER, 332), ("llava", "<image>", 399)] {
        let count = |ids: &[i64]| ids.iter().filter(|found| **found == id).count();
        let typed = format!("a {marker} b{marker}");
        assert_eq!(count(&session.ids(&[checkpoint, &typed])), 0);
        let alone = count(&session.ids(&[checkpoint, "--image", "a.png", "a"]));
        assert_eq!(count(&session.ids(&[checkpoint, "--image", "a.png", &typed])), alone);
        let messages = json!([{"role": "user", "content": [{"type": "image", "path": "a.png"}, {"type": "text", "text": typed}]}]);
        fs::write(session.path("m.json"), messages.to_string()).unwrap();
        let from_file = session.ids(&[checkpoint, "--messages", "m.json"]);
        assert_eq!(from_file, session.ids(&[checkpoint, "--image", "a.png", &typed]));
        // what the tokenizer makes of the same characters where no marker can arise
        let plain = session.ids(&[checkpoint, &format!("{}~{}", &marker[..2], &marker[2..])]);
        let tilde: Vec<_> = session.ids(&[checkpoint, marker]);
        assert!(tilde.len() < plain.len() + 3 && count(&plain) == 0, "{tilde:?} {plain:?}");
    }
    // another video marker is text as well; tokens that stand for no media keep their meaning
    let ids = session.ids(&["qwen2vl", "a<|video_pad|>b<|vision_start|>c<|im_end|>"]);
    assert!(!ids.contains(&333));
    assert_eq!(ids.iter().filter(|id| **id == 329).count(), 1);
    assert_eq!(ids.iter().filter(|id| **id == 322).count(), 3);
    for raw in [&["--raw"][..], &[]] {
        let arguments = [&["run", "qwen2vl", "x\u{10FE50}\u{10FE51}\u{10FE50}y"], raw].concat();
        let (status, _, stderr) = session.spec(&arguments);
        assert_eq!(status, 2);
        assert_eq!(
            stderr,
            "error: the text holds the private-use characters U+10FE50 U+10FE51 U+10FE50 that stand for `<|image_pad|>` here\n\
             hint: remove them from the text\n"
        );
    }
}

#[test]
fn braces_around_a_placeholder_are_the_word() {
    let session = Session::new("braces");
    assert_eq!(
        session.ids(&["llava", "say {{image}}"]).len(),
        session.ids(&["llava", "say [image]"]).len()
    );
    let placed = session.ids(&["qwen2vl", "--image", "a.png", "{image}What?"]);
    assert_eq!(placed, session.ids(&["qwen2vl", "--image", "a.png", "What?"]));
    assert_ne!(placed, session.ids(&["qwen2vl", "--image", "a.png", "What?{image}"]));
}

#[test]
fn conversations_from_files() {
    let mut session = Session::new("messages");
    let text = json!({"type": "text", "text": "what?"});
    fs::create_dir(session.path("chat")).unwrap();
    fs::copy(session.path("a.png"), session.path("chat/b.png")).unwrap();
    let user = |content: Value| json!([{"role": "user", "content": content}]).to_string();
    let files: [(&str, String); 18] = [
        ("text.json", user(json!("hello"))),
        ("typed.json", user(json!([{"type": "image", "path": "b.png"}, text]))),
        ("open.json", user(json!([{"type": "image"}, text]))),
        ("video.json", user(json!([{"type": "video", "path": "a.mp4"}]))),
        ("audio.json", user(json!([{"type": "audio", "path": "a.wav"}]))),
        ("url.json", user(json!([{"type": "image", "url": "https://example.com/a.png"}]))),
        ("gone.json", user(json!([{"type": "image", "path": "gone.png"}]))),
        ("kind.json", user(json!([{"type": "smell"}]))),
        ("item.json", user(json!(["hello"]))),
        ("key.json", user(json!([{"type": "text", "text": "a", "txt": "b"}]))),
        ("number.json", user(json!(3))),
        ("null.json", user(Value::Null)),
        ("role.json", json!([{"content": "x"}]).to_string()),
        ("none.json", "[]".to_owned()),
        ("object.json", json!({"messages": []}).to_string()),
        ("cut.json", "[{\"role\": ".to_owned()),
        ("empty.json", String::new()),
        ("mark.json", format!("\u{feff}{}", user(json!("hello")))),
    ];
    for (name, content) in &files {
        fs::write(session.path("chat").join(name), content).unwrap();
        session.say(&format!("run qwen2vl --messages chat/{name} -n 2"));
    }
    session
        .say("run qwen2vl --messages chat/open.json --image a.png -n 2")
        .say("run qwen2vl --messages chat/typed.json --image a.png -n 2")
        .say("run qwen2vl --messages no.json -n 2")
        .say("run qwen2vl --messages chat -n 2");
    assert_session!("run_messages", session);
}

#[test]
fn settings() {
    let mut session = Session::new("settings");
    session
        .say("run llava hi --temperature=-1")
        .say("run llava hi --temperature nan")
        .say("run llava hi --top-p 0")
        .say("run llava hi --top-p 1.5")
        .say("run llava hi --threads 0")
        .say("run llava hi --threads 1000000000")
        .say("run llava hi --backend tpu")
        .say("run llava hi -n 18446744073709551615")
        .say("run llava hi -n 1000000000000000")
        .say("run llava hi --raw --system x")
        .say("run llava")
        .say("run llava hi -q -n 4")
        .say("run llava hi --backend auto -n 4")
        .say("run llava hi --device 0")
        .say("run llava hi --backend wgpu")
        .say("run llava hi --backend wgpu --precision bf16")
        .say("run llava hi -q -n 4 --precision f32")
        .say("trace llava hi --backend wgpu --device 3 --out t.safetensors")
        .say("score llava hi --continuation x --backend auto --device nvidia");
    assert_session!("run_settings", session);
    let sampled = |seed: &str| {
        session.stdout(&["run", "llava", "hi", "--temperature", "2", "--seed", seed, "-n", "20"])
    };
    assert_eq!(sampled("5"), sampled("5"));
    assert_ne!(sampled("5"), sampled("6"));
    let greedy = session.stdout(&["run", "llava", "hi", "-n", "30"]);
    for threads in ["1", "2", "7"] {
        assert_eq!(
            session.stdout(&["run", "llava", "hi", "-n", "30", "--threads", threads]),
            greedy
        );
    }
    fs::copy(formula::goldens().join("images/96x40_0.png"), session.path("wide.png")).unwrap();
    // a text that ends by itself ends early whatever is allowed
    let long = session.stdout(&[
        "run",
        "llava",
        "--image",
        "wide.png",
        "What is this?",
        "-n",
        "100000",
        "--json",
    ]);
    let long: Value = serde_json::from_str(&long).unwrap();
    let tokens = long["tokens"].as_array().unwrap();
    assert!(tokens.len() < 10 && *tokens.last().unwrap() == 2, "{} tokens", tokens.len());
    assert_eq!(long["finish"], "end");
}

#[test]
fn json_is_one_document() {
    let session = Session::new("json");
    let (status, stdout, stderr) =
        session.spec(&["run", "llava", "--image", "a.png", "hi", "-n", "3", "--json"]);
    assert_eq!((status, stderr.as_str()), (0, ""));
    let document: Value = serde_json::from_str(&stdout).unwrap();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        keys(&document),
        [
            "family",
            "text",
            "tokens",
            "finish",
            "prompt_tokens",
            "backend",
            "device",
            "precision",
            "timings_ms",
            "peak_rss_bytes",
        ]
    );
    assert_eq!(
        keys(&document["timings_ms"]),
        ["load", "preprocess", "encode", "prefill", "decode"]
    );
    assert_eq!((&document["family"], &document["backend"]), (&json!("llava"), &json!("cpu")));
    let plain = session.stdout(&["run", "llava", "--image", "a.png", "hi", "-n", "3"]);
    assert_eq!(format!("{}\n", document["text"].as_str().unwrap()), plain);
    assert_eq!(document["tokens"].as_array().unwrap().len(), 3);
    assert_eq!(document["finish"], "limit");
    assert_eq!(document["prompt_tokens"], session.ids(&["llava", "--image", "a.png", "hi"]).len());
    // timings go to stderr
    let (_, stdout, stderr) = session.spec(&["run", "llava", "hi", "-n", "3", "--json", "-v"]);
    assert!(serde_json::from_str::<Value>(&stdout).is_ok());
    for word in
        ["load", "preprocess", "encode", "prefill", "decode", "prompt tokens", "peak memory"]
    {
        assert!(stderr.contains(word), "{word} in {stderr}");
    }
}

#[test]
fn precision_follows_the_weights() {
    let session = Session::new("precision");
    let folder = session.path("rounded");
    let options = formula::Options { dtype: safetensors::Dtype::BF16, ..Default::default() };
    formula::materialise(&formula::goldens().join("llava"), &folder, &options).unwrap();
    let taken = |arguments: &[&str]| {
        let arguments = [&["run"], arguments, &["hi", "-n", "1", "--json"]].concat();
        let document: Value = serde_json::from_str(&session.stdout(&arguments)).unwrap();
        document["precision"].as_str().unwrap().to_owned()
    };
    // where the processor multiplies bf16 it does so when asked, whatever the weights
    let able = taken(&["llava", "--precision", "bf16", "-q"]);
    assert_eq!(taken(&["rounded"]), able);
    assert_eq!(taken(&["rounded", "--backend", "auto", "-q"]), able);
    assert_eq!(taken(&["rounded", "--precision", "f32"]), "f32");
    assert_eq!(taken(&["llava"]), "f32");
    #[cfg(target_arch = "x86_64")]
    assert_eq!(able == "bf16", is_x86_feature_detected!("avx512bf16"));
}

#[test]
fn text_streams_and_a_closed_reader_ends_the_run() {
    let session = Session::new("stream");
    let mut child = session
        .command(&["run", "llava", "hi", "-n", "50000", "--temperature", "9"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 1];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap(); // and the pipe is closed
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), String::from_utf8(output.stderr).unwrap()),
        (Some(0), String::new())
    );
    #[cfg(target_os = "linux")]
    {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output =
            session.command(&["run", "llava", "hi", "-n", "4"]).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            stderr,
            "error: cannot write to stdout: No space left on device (os error 28)\n"
        );
    }
}

/// Ctrl-C. Where it is ignored on entry, as in a script's background, it stays ignored.
#[cfg(target_os = "linux")]
mod interrupts {
    use std::io::{BufRead, BufReader};
    use std::process::Child;
    use std::time::{Duration, Instant};

    use super::*;

    fn press(child: &Child) {
        let id = child.id().to_string();
        let status = std::process::Command::new("kill").args(["-INT", &id]).status().unwrap();
        assert!(status.success());
    }

    /// Whether whoever started the tests ignores the signal.
    fn ignored() -> bool {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & 2 != 0
    }

    /// Starts a long text; returns the run when its first character is there, and that.
    fn start(session: &Session, arguments: &[&str]) -> (Child, u8) {
        let long = ["run", "llava", "hi", "-n", "50000", "--temperature", "9"];
        let mut child = session
            .command(&[&long, arguments].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 1];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        (child, first[0])
    }

    #[test]
    fn the_first_ends_the_text_after_a_token() {
        let session = Session::new("interrupt");
        let (child, first) = start(&session, &["-v"]);
        press(&child);
        if ignored() {
            return assert_goes_on(child);
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        let stderr = String::from_utf8(output.stderr).unwrap();
        let lines: Vec<_> = stderr.lines().collect();
        assert_eq!(lines[0], "interrupted", "{stderr}");
        assert!(lines[1].contains("load:") && stderr.contains("decode:"), "{stderr}");
        // the beginning of the text of the same seed, and a line's end
        assert_eq!(*output.stdout.last().unwrap(), b'\n');
        let mut text = vec![first];
        text.extend_from_slice(&output.stdout[..output.stdout.len() - 1]);
        let made = stderr.split(" generated").next().unwrap().rsplit(' ').next().unwrap();
        assert!(made.parse::<usize>().unwrap() < 50_000);
        let arguments = ["run", "llava", "hi", "-n", made, "--temperature", "9"];
        assert_eq!(session.stdout(&arguments).as_bytes(), [&text[..], b"\n"].concat());
    }

    fn assert_goes_on(mut child: Child) {
        std::thread::sleep(Duration::from_millis(300));
        assert!(child.try_wait().unwrap().is_none(), "the signal was ignored on entry");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn with_json_the_document_is_printed() {
        let session = Session::new("interrupt_json");
        // the prompt takes milliseconds, the text would take minutes: no token ends it
        session.edit("llava/generation_config.json", |config| config["eos_token_id"] = json!([]));
        let mut child = session
            .command(&["run", "llava", "hi", "--json", "-n", "1000000", "--temperature", "9"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_secs(2));
        if ignored() {
            return assert_goes_on(child);
        }
        press(&child);
        let mut stdout = String::new();
        child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        let document: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(document["finish"], "stopped");
        let tokens = document["tokens"].as_array().unwrap().len();
        assert!((1..100_000).contains(&tokens), "{tokens} tokens");
    }

    /// A run whose decoder is at work on a prompt of about so many tokens.
    fn waiting(session: &Session, tokens: usize, arguments: &[&str]) -> Child {
        let prompt = "\u{1F642}".repeat(tokens / 4); // four bytes, each a token
        let mut child = session
            .command(&[&["run", "llava", &prompt], arguments].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("note: the prompt has "), "{line}");
        assert!(line.contains(" tokens, but the decoder was made for 4096 "), "{line}");
        child
    }

    #[test]
    fn the_second_ends_a_stage_at_once() {
        let session = Session::new("interrupt_twice");
        // minutes of work, of which the first block is long under way when the key is pressed
        let mut child = waiting(&session, 120_000, &[]);
        std::thread::sleep(Duration::from_secs(1));
        if ignored() {
            return assert_goes_on(child);
        }
        press(&child);
        std::thread::sleep(Duration::from_millis(300));
        assert!(child.try_wait().unwrap().is_none(), "the first waits for the end of the block");
        let start = Instant::now();
        press(&child);
        let output = child.wait_with_output().unwrap();
        assert!(start.elapsed() < Duration::from_secs(10));
        assert_eq!(
            (output.status.code(), output.stdout.len(), output.stderr.len()),
            (Some(130), 0, 0)
        );
    }
}

#[test]
fn a_sequence_beyond_the_context_is_noted() {
    let session = Session::new("context");
    session.edit("llava/config.json", |config| {
        config["text_config"]["max_position_embeddings"] = json!(20);
    });
    let run = |prompt: &str, more: &[&str]| {
        session.spec(&[&["run", "llava", "--raw", prompt], more].concat())
    };
    let (status, _, stderr) = run("ab", &["-n", "4"]);
    assert_eq!((status, stderr.as_str()), (0, ""));
    let (status, _, stderr) = run("ab", &["-n", "40", "--temperature", "9"]);
    assert_eq!(status, 0);
    assert!(stderr.starts_with("note: prompt and text have "), "{stderr}");
    let long = "a b ".repeat(20);
    let (status, _, stderr) = run(&long, &["-n", "4"]);
    assert_eq!(status, 0);
    assert!(stderr.starts_with("note: the prompt has "), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "once: {stderr}");
    assert_eq!(run(&long, &["-n", "4", "-q"]).2, "");
}

#[test]
fn pictures_that_cannot_be_used() {
    let mut session = Session::new("bad_pictures");
    let bad = [
        "empty.jpg",
        "text.png",
        "cut.png",
        "cut.jpg",
        "cut.gif",
        "cut.webp",
        "huge.png",
        "zero.png",
        "frameless.gif",
    ];
    for name in bad {
        session.picture(name);
        session.say(&format!("run llava --image {name} hi -n 2"));
    }
    session
        .say("run llava --image no.png hi -n 2")
        .say("run llava --image llava hi -n 2")
        .say("run llava --image a.png --image no.png hi -n 2");
    let thin = image::RgbImage::from_pixel(1, 500, image::Rgb([9, 99, 199]));
    thin.save(session.path("thin.png")).unwrap();
    session.say("run llava --image thin.png hi -n 2").say("run qwen2vl --image thin.png hi -n 2");
    assert_session!("run_bad_pictures", session);
}

#[test]
fn pictures_of_every_kind() {
    let mut session = Session::new("pictures");
    let kinds = [
        "dot.png",
        "gray.png",
        "rgba.png",
        "palette_alpha.png",
        "gray_16_bits.png",
        "cmyk.jpg",
        "animated.gif",
        "animated.webp",
        "animated.png",
        "exif_6.jpg",
    ];
    for name in kinds {
        session.picture(name);
        session
            .say(&format!("run llava --image {name} hi -n 1"))
            .say(&format!("run qwen2vl --image {name} hi -n 1"));
    }
    session.say("run qwen2vl --image animated.gif hi -n 1 -q");
    assert_session!("run_pictures", session);
    // twice the same, and many
    let arguments: Vec<_> = [&["qwen2vl", "hi"][..], &["--image", "a.png"].repeat(20)].concat();
    let ids = session.ids(&arguments);
    assert_eq!(ids.iter().filter(|id| **id == 332).count(), 20 * 6);
}

#[test]
fn a_picture_on_its_side_equals_the_turned_one() {
    let session = Session::new("upright");
    for number in 1..=8 {
        let name = format!("exif_{number}.png");
        session.picture(&name);
        let upright = vlm_spec::media::load_image(&session.path(&name)).unwrap().image;
        let (width, height) = (upright.width(), upright.height());
        let turned = image::RgbImage::from_raw(width, height, upright.data().to_vec()).unwrap();
        turned.save(session.path("turned.png")).unwrap();
        let pixels = |checkpoint: &str, file: &str| {
            let bytes = session.trace(&[checkpoint, "--image", file, "hi"]);
            let tensors = SafeTensors::deserialize(&bytes).unwrap();
            let pixels = tensors.tensor("image.0.pixels").unwrap();
            (pixels.shape().to_vec(), pixels.data().to_vec())
        };
        for checkpoint in ["llava", "qwen2vl"] {
            assert!(
                pixels(checkpoint, &name) == pixels(checkpoint, "turned.png"),
                "{checkpoint} {name}"
            );
        }
    }
}

#[test]
fn a_trace_is_a_safetensors_file() {
    let mut session = Session::new("trace");
    session
        .say("trace qwen2vl --image a.png hi --out t.safetensors -n 3")
        .say("trace llava --image a.png hi --out l.safetensors -n 3")
        .say("trace llava hi --out t.json.safetensors -n 0 --json")
        .say("trace llava hi --out no/t.safetensors")
        .say("trace llava hi --out qwen2vl")
        .say("trace llava hi --out llava/model.safetensors")
        .say("trace llava hi --out qwen2vl/../llava/config.json")
        .say("trace llava hi")
        .say("run llava hi -n 2");
    assert_session!("run_trace", session);
    let bytes = fs::read(session.path("t.safetensors")).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let metadata: BTreeMap<_, _> = metadata.metadata().clone().unwrap().into_iter().collect();
    let expected = [("family", "qwen2vl"), ("version", env!("CARGO_PKG_VERSION"))];
    assert_eq!(metadata, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    // an old file is replaced as a whole, and nothing is left beside it
    fs::write(session.path("old.safetensors"), vec![7; 1 << 20]).unwrap();
    session.stdout(&[
        "trace",
        "qwen2vl",
        "--image",
        "a.png",
        "hi",
        "-n",
        "3",
        "--out",
        "old.safetensors",
    ]);
    let old = fs::read(session.path("old.safetensors")).unwrap();
    let (old, new) =
        (SafeTensors::deserialize(&old).unwrap(), SafeTensors::deserialize(&bytes).unwrap());
    assert!(new.iter().all(|(name, tensor)| old.tensor(name).unwrap() == tensor));
    let mut names: Vec<_> = fs::read_dir(&session.folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected = [
        "a.png",
        "l.safetensors",
        "llava",
        "old.safetensors",
        "qwen2vl",
        "t.json.safetensors",
        "t.safetensors",
    ];
    assert_eq!(names, expected);
}

#[test]
fn the_checkpoint_by_any_path() {
    let session = Session::new("paths");
    let expected = session.stdout(&["run", "llava", "hi", "-n", "4"]);
    #[cfg(unix)]
    std::os::unix::fs::symlink("llava", session.path("link")).unwrap();
    let absolute = session.path("llava");
    let mut paths = vec!["llava/", "./llava", "qwen2vl/../llava", absolute.to_str().unwrap()];
    paths.extend(cfg!(unix).then_some("link"));
    for path in paths {
        assert_eq!(session.stdout(&["run", path, "hi", "-n", "4"]), expected, "{path}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn file_names_need_not_be_text() {
    use std::os::unix::ffi::OsStrExt;
    let session = Session::new("names");
    let name = std::ffi::OsStr::from_bytes(b"\xff.png");
    fs::copy(session.path("a.png"), session.folder.join(name)).unwrap();
    let run = |image: &std::ffi::OsStr| {
        session.command(&["run", "llava", "hi", "-n", "4", "--image"]).arg(image).output().unwrap()
    };
    assert_eq!(run(name).stdout, run("a.png".as_ref()).stdout);
    assert!(run(name).status.success());
    let output = session.command(&["run", "llava"]).arg(name).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// Attention over such a prompt takes hours, so only its tokens are made; the tokenizer must not be what takes long.
#[test]
fn a_prompt_of_a_megabyte_is_tokenised() {
    let session = Session::new("megabyte");
    for family in ["llava", "qwen2vl"] {
        let checkpoint = Checkpoint::open(session.path(family)).unwrap();
        let plan = Plan::resolve(&checkpoint.find_family().unwrap(), &checkpoint).unwrap();
        let maker = PromptMaker::open(&plan).unwrap();
        let media = plan.image.as_ref().unwrap().as_ref().unwrap();
        let size = MediaSize::Image(ImageSize { width: 900, height: 700 });
        let layout = media.shape.policy.layout(size).unwrap();
        let item = Item { modality: Modality::Image, layout };
        for piece in
            ["The quick brown fox, 12 times. ", "a", " ", "<image><|image_pad|>", "日本語🙂\n"]
        {
            let text = Content::Text(piece.repeat((1 << 20) / piece.len()));
            let messages = [Message::new("user", vec![Content::Image, text])];
            let prompt = maker
                .make(Request::Messages(&messages), std::slice::from_ref(&item), &plan)
                .unwrap();
            assert_eq!(prompt.spans.len(), 1);
            assert!(prompt.ids.len() > 10_000, "{family} {piece:?}: {} tokens", prompt.ids.len());
        }
    }
}
