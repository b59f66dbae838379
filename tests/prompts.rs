//! Prompts against the reference: the ids that its processors make of random conversations, for every family and for the
//! published tokenizers, all of them equal.
//!
//! `tests/scripts/make_prompts.py` recorded them; with `--many` it writes more, which are compared where `PROMPTS` names that
//! file.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use vlm_spec::checkpoint::Checkpoint;
use vlm_spec::error::ErrorKind;
use vlm_spec::layout::{ImageSize, MediaSize};
use vlm_spec::plan::{Modality, Overrides, Plan};
use vlm_spec::prompt::{Content, Conversation, Item, Message, Prompt, PromptMaker, Request};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn reference() -> serde_json::Map<String, Value> {
    let kept = fixtures().join("prompts/reference.json");
    let path = std::env::var_os("PROMPTS").map_or(kept, PathBuf::from);
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// A checkpoint with what makes its prompts.
struct Subject {
    plan: Plan,
    maker: PromptMaker,
}

impl Subject {
    fn open(folder: &str, set: &Value) -> Self {
        let checkpoint = Checkpoint::open(fixtures().join(folder)).unwrap();
        let mut overrides = Overrides::default();
        for (key, value) in set.as_object().into_iter().flatten() {
            overrides.insert(key.clone(), value.clone());
        }
        let family = checkpoint.find_family().unwrap();
        let plan = Plan::resolve_with(&family, &checkpoint, &overrides).unwrap();
        let maker = PromptMaker::open(&plan).unwrap();
        Self { plan, maker }
    }

    fn witness(name: &str) -> Self {
        Self::open(&format!("witness/{name}"), &Value::Null)
    }

    fn items(&self, modality: Modality, sizes: &[MediaSize]) -> Vec<Item> {
        let layout = |size: &MediaSize| {
            let media = self.plan.media(modality).unwrap().as_ref().unwrap();
            media.shape(sizes.len()).policy.layout(*size).unwrap()
        };
        sizes.iter().map(|size| Item { modality, layout: layout(size) }).collect()
    }

    fn pictures(&self, sizes: &[(u32, u32)]) -> Vec<Item> {
        let size = |&(width, height): &(u32, u32)| MediaSize::Image(ImageSize { width, height });
        self.items(Modality::Image, &sizes.iter().map(size).collect::<Vec<_>>())
    }

    fn clips(&self, lengths: &[u64]) -> Vec<Item> {
        let sizes: Vec<_> = lengths.iter().map(|samples| MediaSize::Samples(*samples)).collect();
        self.items(Modality::Audio, &sizes)
    }

    fn case_items(&self, case: &Value) -> Vec<Item> {
        let side = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
        let list = |key: &str| case[key].as_array().cloned().unwrap_or_default();
        let pictures: Vec<_> =
            list("image").iter().map(|size| (side(&size[0]), side(&size[1]))).collect();
        let clips: Vec<_> = list("audio").iter().map(|samples| samples.as_u64().unwrap()).collect();
        [self.pictures(&pictures), self.clips(&clips)].concat()
    }

    fn spelled(&self, ids: &[u32]) -> Vec<String> {
        let tokenizer = self.maker.tokenizer();
        ids.iter().map(|id| tokenizer.id_to_token(*id).unwrap_or_else(|| id.to_string())).collect()
    }

    /// Rows, vectors and spans are where the strips are.
    fn spans_are_sound(&self, prompt: &Prompt, name: &str) {
        let mut behind = 0;
        for span in &prompt.spans {
            let media = self.plan.media(span.modality).unwrap().as_ref().unwrap();
            let several = prompt.spans.iter().filter(|other| other.modality == span.modality);
            let length = media.strip_length(media.shape(several.count()), &span.layout).unwrap();
            assert_eq!(span.rows.len() as u64, length.rows, "{name}");
            assert_eq!(span.vectors.len() as u64, length.vectors, "{name}");
            let taken = span.rows.iter().chain(span.vectors.iter().map(|(at, _)| at));
            let within = |at: &usize| (span.start..span.start + span.length).contains(at);
            assert!(taken.copied().all(|at| within(&at)), "{name}: {span:?}");
            // the last token of one and the first of the next can be one
            assert!(span.start + 1 >= behind, "{name}: {span:?}");
            behind = span.start + span.length;
            assert!(behind <= prompt.ids.len(), "{name}");
        }
    }
}

/// Ids, of which `[id, n]` stands for n in a row.
fn written_out(ids: &Value) -> Vec<u32> {
    let id = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
    let run = |value: &Value| match value.as_array() {
        Some(pair) => vec![id(&pair[0]); id(&pair[1]) as usize],
        None => vec![id(value)],
    };
    ids.as_array().unwrap().iter().flat_map(run).collect()
}

#[test]
fn ids_are_those_of_the_reference() {
    let mut wrong = Vec::new();
    for (name, recorded) in reference() {
        let subject = Subject::open(recorded["folder"].as_str().unwrap(), &recorded["set"]);
        let cases = recorded["cases"].as_array().unwrap();
        assert!(cases.len() >= 12, "{name}");
        for case in cases {
            let conversation = Conversation::from_json(&case["messages"].to_string()).unwrap();
            let items = subject.case_items(case);
            let request = Request::Messages(&conversation.messages);
            let messages = &case["messages"];
            match subject.maker.make(request, &items, &subject.plan) {
                Ok(_) if !case["refused"].is_null() => {
                    wrong.push(format!("{name}: the reference refuses {messages}"));
                }
                Err(error) if case["refused"].is_null() => {
                    wrong.push(format!("{name}: {error}: {messages}"));
                }
                Err(_) => {}
                Ok(prompt) => {
                    subject.spans_are_sound(&prompt, &name);
                    let expected = written_out(&case["ids"]);
                    if prompt.ids != expected {
                        let at = prompt.ids.iter().zip(&expected).take_while(|(a, b)| a == b);
                        let at = at.count().saturating_sub(3);
                        let from = |ids: &[u32]| {
                            subject.spelled(&ids[at..ids.len().min(at + 10)]).join(" ")
                        };
                        let (found, expected) = (from(&prompt.ids), from(&expected));
                        wrong.push(format!("{name}: {found} for {expected}: {messages}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Every folder of witnesses is there, and the tokenizers that are published with the fixtures.
#[test]
fn every_family_is_recorded() {
    let recorded = reference();
    let witnesses = fs::read(fixtures().join("witness/reference.json")).unwrap();
    let witnesses: Value = serde_json::from_slice(&witnesses).unwrap();
    for name in witnesses.as_object().unwrap().keys() {
        assert!(recorded.contains_key(name), "{name}");
    }
    assert!(recorded.len() > witnesses.as_object().unwrap().len());
}

#[test]
fn literals_at_the_edges_of_a_strip_merge_with_the_text_beside_them() {
    let subject = Subject::witness("gemma3");
    let items = subject.pictures(&[(64, 48)]);
    let around = |content: Vec<Content>| {
        let messages = [Message::new("user", content)];
        let prompt =
            subject.maker.make(Request::Messages(&messages), &items, &subject.plan).unwrap();
        let [span] = prompt.spans.as_slice() else { panic!("{:?}", prompt.spans) };
        let spelled = subject.spelled(&prompt.ids[span.start..span.start + span.length]);
        let first = spelled.iter().position(|token| token == "<start_of_image>").unwrap();
        let last = spelled.iter().position(|token| token == "<end_of_image>").unwrap();
        (spelled[..first].join(" "), spelled[last + 1..].join(" "))
    };
    let text = || Content::Text("b".to_owned());
    let two = "\n\n".to_owned();
    assert_eq!(around(vec![text(), Content::Image, text()]), (two.clone(), two.clone()));
    // the template's break is in the first token that the strip takes part in
    assert_eq!(around(vec![Content::Image, text()]), ("\n\n \n".to_owned(), two));
}

#[test]
fn a_prompt_takes_no_more_items_than_the_processor_lays_out() {
    for name in ["blip2", "instructblip"] {
        let subject = Subject::witness(name);
        let messages = |count: usize| {
            let content = [vec![Content::Image; count], vec![Content::Text("x".into())]].concat();
            [Message::new("user", content)]
        };
        let make = |count: usize| {
            let items = subject.pictures(&vec![(64, 48); count]);
            subject.maker.make(Request::Messages(&messages(count)), &items, &subject.plan)
        };
        assert!(make(0).is_ok() && make(1).is_ok());
        let error = make(2).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Placeholders);
        assert_eq!(error.message(), "a prompt of this family takes 1 items, not 2");
    }
}

#[test]
fn the_first_token_is_put_in_front_once() {
    let subject = Subject::witness("molmo2");
    let ids = |text: &str| subject.maker.make(Request::Raw(text), &[], &subject.plan).unwrap().ids;
    let config = fs::read(fixtures().join("witness/molmo2/tokenizer_config.json")).unwrap();
    let config: Value = serde_json::from_slice(&config).unwrap();
    let first = config["bos_token"].as_str().unwrap();
    let id = subject.maker.tokenizer().token_to_id(first).unwrap();
    assert_eq!(ids("x")[0], id);
    assert_eq!(ids("x"), ids(&format!("{first}x")));
}

/// A run of fill tokens is tokenised as one, however long it is.
#[test]
fn tens_of_thousands_of_rows_are_quick() {
    let subject = Subject::witness("qwen2vl");
    let items = subject.pictures(&[(3584, 3584); 4]);
    let content = [vec![Content::Image; 4], vec![Content::Text("x".into())]].concat();
    let messages = [Message::new("user", content)];
    let start = Instant::now();
    let prompt = subject.maker.make(Request::Messages(&messages), &items, &subject.plan).unwrap();
    let took = start.elapsed();
    assert_eq!(prompt.spans.iter().map(|span| span.rows.len()).sum::<usize>(), 4 * 16_384);
    // a few hundredths of a second; this only tells apart what grows with the square of the rows
    assert!(took < Duration::from_secs(5), "{took:?}");
}
