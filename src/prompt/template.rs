//! Chat templates: where a checkpoint keeps its own, and what it renders to.
//!
//! Templates are Jinja programs, rendered with the settings of the reference's `_cached_compile_jinja_template`. What a
//! template sees is `messages`, `add_generation_prompt`, the named special tokens, and `tools` and `documents`, both none.

mod functions;
mod tags;

use std::fs;
use std::io;
use std::path::Path;

use indexmap::IndexMap;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, UndefinedBehavior, Value};
use minijinja_contrib::pycompat;
use serde_json::Value as Json;

use crate::error::{Error, ErrorKind, Result};
use crate::prompt::message::Message;

/// The folder of named templates beside the default one.
const FOLDER: &str = "additional_chat_templates";
const JINJA: &str = "chat_template.jinja";
const LEGACY: &str = "chat_template.json";
const PROCESSOR: &str = "processor_config.json";
const TOKENIZER: &str = "tokenizer_config.json";

/// The chat template of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatTemplate {
    text: String,
    source: String,
}

impl ChatTemplate {
    /// A template from its text; `source` says where it is from.
    pub fn new(text: impl Into<String>, source: impl Into<String>) -> Self {
        Self { text: text.into(), source: source.into() }
    }

    /// Finds the template that the reference's processor would use for the checkpoint in `directory`.
    ///
    /// The order is that of `ProcessorMixin.get_processor_dict`, and then of the tokenizer:
    ///
    /// 1. `chat_template` of `processor_config.json`;
    /// 2. `chat_template.json`, which wins over a `chat_template.jinja` beside it;
    /// 3. `chat_template.jinja`, or `default.jinja` among the named ones;
    /// 4. `chat_template` of `tokenizer_config.json`: a text, or a list of named templates with a `default`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Tokenizer`] if one of the files cannot be read or understood, or there are only named templates and
    /// none is the default. As in the reference, `chat_template.json` beside named templates is an error.
    pub fn find(directory: &Path) -> Result<Option<Self>> {
        Self::find_beside(directory, None)
    }

    /// The same where the family's processor brings a template of its own: it stands in for files of the processor that are
    /// not there, and goes before the tokenizer's.
    ///
    /// # Errors
    ///
    /// As [`ChatTemplate::find`].
    pub fn find_beside(directory: &Path, own: Option<&str>) -> Result<Option<Self>> {
        if let Some(template) = from_key(directory, PROCESSOR)? {
            return Ok(Some(template));
        }
        let named = named_files(directory)?;
        if let Some(template) = from_key(directory, LEGACY)? {
            if let Some(name) = named.first() {
                let message =
                    format!("`{LEGACY}` and `{FOLDER}/{name}.jinja` contradict each other");
                return Err(Error::new(ErrorKind::Tokenizer, message));
            }
            return Ok(Some(template));
        }
        if let Some(text) = read(directory, JINJA)? {
            return Ok(Some(Self::new(text, JINJA)));
        }
        if named.iter().any(|name| name == "default") {
            let file = format!("{FOLDER}/default.jinja");
            return Ok(read(directory, &file)?.map(|text| Self::new(text, file)));
        }
        if !named.is_empty() {
            return Err(no_default(FOLDER, &named));
        }
        match own {
            Some(text) => Ok(Some(Self::new(text.to_owned(), "the family's own template"))),
            None => from_key(directory, TOKENIZER),
        }
    }

    /// The file that it is from, with the key where there is one.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Renders `messages`; `special_tokens` are the variables `bos_token`, `eos_token` and so on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Tokenizer`] with the text that the template raised, or with the place and reason if it cannot be
    /// rendered.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        special_tokens: &IndexMap<String, String>,
    ) -> Result<String> {
        self.render_changed(messages, add_generation_prompt, special_tokens, &str::to_string)
    }

    /// The same with every text of the messages passed through `change` first.
    pub(super) fn render_changed(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        special_tokens: &IndexMap<String, String>,
        change: &impl Fn(&str) -> String,
    ) -> Result<String> {
        let mut context: IndexMap<&str, Value> = special_tokens
            .iter()
            .map(|(name, text)| (name.as_str(), Value::from(text.as_str())))
            .collect();
        let messages: Json = messages.iter().map(|message| message.to_json(change)).collect();
        context.insert("messages", Value::from(Serde(messages)));
        context.insert("add_generation_prompt", add_generation_prompt.into());
        context.insert("tools", ().into());
        context.insert("documents", ().into());
        let environment = environment().map_err(|error| self.failed(&error))?;
        let source = tags::replace_generation_tags(&self.text);
        environment
            .render_named_str(&self.source, &source, Value::from_pairs(context))
            .map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &minijinja::Error) -> Error {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(current) = cause {
            if let Some(raised) = current.downcast_ref::<functions::Raised>() {
                let message = format!(
                    "the chat template in `{}` refuses the messages: {raised}",
                    self.source
                );
                return Error::new(ErrorKind::Tokenizer, message);
            }
            cause = current.source();
        }
        let message = format!("the chat template in `{}` cannot be rendered: {error}", self.source);
        Error::new(ErrorKind::Tokenizer, message)
    }
}

fn environment() -> std::result::Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(pycompat::unknown_method_callback);
    environment.add_function("raise_exception", functions::raise_exception);
    environment.add_function("strftime_now", functions::strftime_now);
    environment
        .add_filter("tojson", |value: &Value, options: Kwargs| functions::tojson(value, &options));
    Ok(environment)
}

/// The key `chat_template` of a JSON file: a text, a list of named templates, or an object of them.
fn from_key(directory: &Path, file: &str) -> Result<Option<ChatTemplate>> {
    let Some(text) = read(directory, file)? else { return Ok(None) };
    let not_understood =
        |reason: &str| Error::new(ErrorKind::Tokenizer, format!("`{file}` {reason}"));
    let json: Json = serde_json::from_str(&text)
        .map_err(|error| not_understood("is not well-formed JSON").with_source(error))?;
    let Some(value) = json.get("chat_template").filter(|value| !value.is_null()) else {
        return if file == LEGACY {
            Err(not_understood("has no key `chat_template`"))
        } else {
            Ok(None)
        };
    };
    let source = format!("{file}: chat_template");
    let mut named: IndexMap<&str, &Json> = IndexMap::new();
    match value {
        Json::String(text) => return Ok(Some(ChatTemplate::new(text, source))),
        Json::Object(map) => named.extend(map.iter().map(|(name, text)| (name.as_str(), text))),
        Json::Array(list) => named.extend(
            list.iter()
                .filter_map(|entry| Some((entry.get("name")?.as_str()?, entry.get("template")?))),
        ),
        _ => {}
    }
    match named.get("default") {
        Some(Json::String(text)) => Ok(Some(ChatTemplate::new(text, source))),
        Some(_) => Err(not_understood("has a default chat template that is not a text")),
        None if named.is_empty() => {
            Err(not_understood("has a chat template that is neither a text nor a list"))
        }
        None => {
            Err(no_default(&source, &named.keys().map(ToString::to_string).collect::<Vec<_>>()))
        }
    }
}

fn no_default(source: &str, names: &[String]) -> Error {
    let message = format!(
        "none of the chat templates in `{source}` is the default: `{}`",
        names.join("`, `")
    );
    Error::new(ErrorKind::Tokenizer, message)
}

fn read(directory: &Path, file: &str) -> Result<Option<String>> {
    match fs::read_to_string(directory.join(file)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            Err(Error::new(ErrorKind::Tokenizer, format!("cannot read `{file}`"))
                .with_source(error))
        }
    }
}

/// The names of the templates in the folder of named ones, sorted.
fn named_files(directory: &Path) -> Result<Vec<String>> {
    let unreadable = |error: io::Error| {
        Error::new(ErrorKind::Tokenizer, format!("cannot read `{FOLDER}`")).with_source(error)
    };
    let entries = match fs::read_dir(directory.join(FOLDER)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(unreadable)?.file_name();
        if let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".jinja")) {
            names.push(name.to_string());
        }
    }
    names.sort();
    Ok(names)
}
