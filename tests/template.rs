//! Chat templates against the reference: recorded renderings of published templates and of single language features.
//!
//! The expected texts are what the reference's `render_jinja_template` returns.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::Value;
use vlm_spec::checkpoint::tokenizer::{Sentinels, Tokenizer};
use vlm_spec::error::ErrorKind;
use vlm_spec::prompt::message::{Content, Conversation, Message};
use vlm_spec::prompt::template::ChatTemplate;
use vlm_spec::prompt::user_text::render_marked;

#[derive(Deserialize)]
struct Recorded {
    source: String,
    template: String,
    special: IndexMap<String, String>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    messages: Value,
    generation: bool,
    text: Option<String>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Features {
    messages: Value,
    special: IndexMap<String, String>,
    #[serde(rename = "features")]
    list: Vec<Feature>,
}

#[derive(Deserialize)]
struct Feature {
    name: String,
    template: String,
    text: Option<String>,
    error: Option<String>,
}

/// The published templates, each with a marker that it writes.
const PUBLISHED: [(&str, &str); 3] =
    [("llava", "<image>"), ("llava_jinja", "<image>"), ("qwen2_vl", "<|image_pad|>")];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn recorded(name: &str) -> (ChatTemplate, Recorded) {
    let path = fixtures().join("templates").join(name).with_extension("json");
    let recorded: Recorded = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    (ChatTemplate::new(recorded.template.as_str(), recorded.source.as_str()), recorded)
}

fn messages(json: &Value) -> Vec<Message> {
    Conversation::from_json(&json.to_string()).unwrap().messages
}

#[test]
fn published_templates_render_as_in_the_reference() {
    for (name, marker) in PUBLISHED {
        let (template, recorded) = recorded(name);
        let sentinels = Sentinels::new(&[marker.to_string()]).unwrap();
        for Case { name: case, messages: json, generation, text, error } in &recorded.cases {
            let messages = messages(json);
            let rendered = template.render(&messages, *generation, &recorded.special);
            assert_eq!(
                rendered.as_ref().ok(),
                text.as_ref(),
                "{name}: {case}: {error:?}, {rendered:?}"
            );
            let marked =
                render_marked(&template, &messages, *generation, &recorded.special, &sentinels);
            let expected = text.as_ref().map(|text| sentinels.replace_markers(text));
            assert_eq!(marked.ok(), expected, "{name}: {case}, marked");
        }
    }
}

#[test]
fn language_features_are_those_of_the_reference() {
    let path = fixtures().join("templates/features.json");
    let features: Features = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let messages = messages(&features.messages);
    let mut wrong = Vec::new();
    for Feature { name, template, text, error } in &features.list {
        let rendered =
            ChatTemplate::new(template.as_str(), "test").render(&messages, true, &features.special);
        if rendered.as_ref().ok() != text.as_ref() {
            wrong.push(format!("{name}:\n  expected {text:?} {error:?}\n  found    {rendered:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_a_template_raises_is_the_error() {
    let template = ChatTemplate::new(
        "{{ raise_exception('roles must ' ~ 'alternate') }}",
        "chat_template.jinja",
    );
    let error = template.render(&[], true, &IndexMap::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tokenizer);
    let expected =
        "the chat template in `chat_template.jinja` refuses the messages: roles must alternate";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn user_text_is_text() {
    for (name, marker) in PUBLISHED {
        let (template, recorded) = recorded(name);
        let sentinels = Sentinels::new(&[marker.to_string()]).unwrap();
        let typed = format!(
            "Is {marker} a marker? {{{{ 7 * 7 }}}} {{% if %}} \u{10FE50}\u{10FE51} \u{10FFFD}"
        );
        let content = vec![Content::Image, Content::Text(typed.clone())];
        let rendered = render_marked(
            &template,
            &[Message::new("user", content)],
            true,
            &recorded.special,
            &sentinels,
        )
        .unwrap();
        assert_eq!(rendered.matches(sentinels.mark(marker)).count(), 1, "{name}: {rendered:?}");
        assert!(rendered.contains(&typed), "{name}: {rendered:?}");
        let sentinel = sentinels.mark(marker).to_string();
        let message = Message::new("user", vec![Content::Text(sentinel)]);
        let error =
            render_marked(&template, &[message], true, &recorded.special, &sentinels).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Placeholders);
    }
}

#[test]
fn a_typed_marker_costs_its_text_and_a_real_one_is_one_token() {
    for (name, marker) in [("llava", "<image>"), ("qwen2_vl", "<|image_pad|>")] {
        let (template, recorded) = recorded(name);
        let directory = fixtures().join("tokenizer").join(name);
        let tokenizer = Tokenizer::load(&directory, &[marker.to_string()]).unwrap();
        let id = tokenizer.token_to_id(marker).unwrap();
        let content =
            vec![Content::Text(format!("typed {marker}")), Content::Image, Content::Image];
        let prompt = [Message::new("user", content)];
        let text =
            render_marked(&template, &prompt, true, &recorded.special, tokenizer.sentinels())
                .unwrap();
        let ids = tokenizer.encode(&text, true).unwrap();
        assert_eq!(ids.iter().filter(|found| **found == id).count(), 2, "{name}");
        assert!(
            tokenizer.decode(&ids, true).unwrap().contains(marker),
            "{name}: the typed one is still there"
        );
    }
}

#[test]
fn the_template_is_found_where_the_reference_finds_it() {
    let directory = std::env::temp_dir().join(format!("vlm-spec-template-{}", std::process::id()));
    fs::create_dir_all(directory.join("additional_chat_templates")).unwrap();
    let write = |file: &str, text: &str| fs::write(directory.join(file), text).unwrap();
    let found = || {
        let template =
            ChatTemplate::find(&directory).map_err(|error| error.message().to_string())?;
        Ok(template.map(|template| format!("{} {}", template.text(), template.source())))
    };
    let is = |text: &str| Ok::<_, String>(Some(text.to_string()));

    assert_eq!(found(), Ok(None));
    write("tokenizer_config.json", r#"{"chat_template": "A"}"#);
    assert_eq!(found(), is("A tokenizer_config.json: chat_template"));
    write("tokenizer_config.json", r#"{"chat_template": [{"name": "tool_use", "template": "T"}]}"#);
    let none = "none of the chat templates in `tokenizer_config.json: chat_template` is the default: `tool_use`";
    assert_eq!(found(), Err(none.to_string()));
    write(
        "tokenizer_config.json",
        r#"{"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "B"}]}"#,
    );
    assert_eq!(found(), is("B tokenizer_config.json: chat_template"));
    write("additional_chat_templates/rag.jinja", "R");
    assert_eq!(
        found(),
        Err("none of the chat templates in `additional_chat_templates` is the default: `rag`"
            .to_string())
    );
    write("chat_template.jinja", "C");
    assert_eq!(found(), is("C chat_template.jinja"));
    write("chat_template.json", r#"{"chat_template": "D"}"#);
    assert_eq!(
        found(),
        Err("`chat_template.json` and `additional_chat_templates/rag.jinja` contradict each other"
            .to_string())
    );
    fs::remove_dir_all(directory.join("additional_chat_templates")).unwrap();
    assert_eq!(found(), is("D chat_template.json: chat_template"));
    write("processor_config.json", r#"{"chat_template": null}"#);
    assert_eq!(found(), is("D chat_template.json: chat_template"));
    write("processor_config.json", r#"{"chat_template": "E"}"#);
    assert_eq!(found(), is("E processor_config.json: chat_template"));
    write("processor_config.json", "{");
    assert_eq!(found(), Err("`processor_config.json` is not well-formed JSON".to_string()));
    fs::remove_dir_all(directory).unwrap();
}
