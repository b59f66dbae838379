//! A conversation: messages with typed content, as the command line makes them or a JSON file states them.

use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind, Result};

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Who speaks: `user`, `assistant`, `system`, or what else the template knows.
    pub role: String,
    /// What is said.
    pub content: MessageContent,
    /// Other keys that a template may read, such as `reasoning_content`.
    pub other: Map<String, Value>,
}

/// The content of a message. Templates can tell a text from a list with one text, so both are kept apart.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageContent {
    /// A text.
    Text(String),
    /// A list of typed items.
    Parts(Vec<Content>),
}

/// One item of a message's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// `{"type": "text", "text": …}`.
    Text(String),
    /// `{"type": "image"}`.
    Image,
    /// `{"type": "audio"}`.
    Audio,
}

/// Messages, and the files that their items refer to, in the order of the items.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// The messages.
    pub messages: Vec<Message>,
    /// One entry an image; `None` where the item names no file.
    pub images: Vec<Option<String>>,
    /// One entry a clip; `None` where the item names no file.
    pub audio: Vec<Option<String>>,
}

impl Message {
    /// A message with typed content and nothing else.
    pub fn new(role: impl Into<String>, content: Vec<Content>) -> Self {
        Self { role: role.into(), content: MessageContent::Parts(content), other: Map::new() }
    }

    /// A message whose content is a text.
    pub fn text(role: impl Into<String>, text: impl Into<String>) -> Self {
        Self { role: role.into(), content: MessageContent::Text(text.into()), other: Map::new() }
    }

    /// The message as a template sees it; every text that a user may have written goes through `change`.
    ///
    /// Reasoning is visible under each name that templates read it by, as in the reference's `_alias_reasoning_fields`.
    pub(super) fn to_json(&self, change: &impl Fn(&str) -> String) -> Value {
        let mut json = Map::new();
        let reasoning = ["reasoning_content", "thinking", "reasoning"]
            .iter()
            .find_map(|name| self.other.get(*name));
        if let Some(reasoning) = reasoning {
            json.insert("thinking".into(), change_strings(reasoning, change));
        }
        json.insert("role".into(), self.role.as_str().into());
        let content = match &self.content {
            MessageContent::Text(text) => change(text).into(),
            MessageContent::Parts(parts) => parts.iter().map(|part| part.to_json(change)).collect(),
        };
        json.insert("content".into(), content);
        json.extend(
            self.other.iter().map(|(key, value)| (key.clone(), change_strings(value, change))),
        );
        if let Some(reasoning) = reasoning {
            json.insert("reasoning_content".into(), change_strings(reasoning, change));
        }
        Value::Object(json)
    }

    /// All texts that a user may have written.
    pub(super) fn texts(&self) -> Vec<&str> {
        let mut texts = Vec::new();
        match &self.content {
            MessageContent::Text(text) => texts.push(text.as_str()),
            MessageContent::Parts(parts) => {
                texts.extend(parts.iter().filter_map(|part| match part {
                    Content::Text(text) => Some(text.as_str()),
                    Content::Image | Content::Audio => None,
                }));
            }
        }
        self.other.values().for_each(|value| collect_strings(value, &mut texts));
        texts
    }
}

impl Content {
    fn to_json(&self, change: &impl Fn(&str) -> String) -> Value {
        match self {
            Self::Text(text) => serde_json::json!({"type": "text", "text": change(text)}),
            Self::Image => serde_json::json!({"type": "image"}),
            Self::Audio => serde_json::json!({"type": "audio"}),
        }
    }
}

impl Conversation {
    /// Reads a list of messages, each with a `role` and a `content` that is a text or a list of typed items.
    ///
    /// Items are `{"type": "text", "text": …}`, `{"type": "image"}` and `{"type": "audio"}`. The latter two may name a
    /// file under `path`, `url`, or their own type (`image_url` is understood as well). Keys that are `null` are absent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] naming the message and key, [`ErrorKind::Unsupported`] for a video.
    pub fn from_json(text: &str) -> Result<Self> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text); // some editors put one in front
        let json: Value = serde_json::from_str(text).map_err(|error| {
            Error::new(ErrorKind::Usage, "the messages are not well-formed JSON").with_source(error)
        })?;
        let Value::Array(list) = json else {
            let message = format!("expected a list of messages, found {}", kind_of(&json));
            return Err(Error::new(ErrorKind::Usage, message));
        };
        if list.is_empty() {
            return Err(Error::new(ErrorKind::Usage, "there are no messages"));
        }
        let mut conversation = Self::default();
        for (index, message) in list.into_iter().enumerate() {
            let at = format!("messages[{index}]");
            let Value::Object(mut message) = message else {
                return Err(wrong(&at, "an object", &message));
            };
            message.retain(|_, value| !value.is_null());
            let role = match message.shift_remove("role") {
                Some(Value::String(role)) => role,
                other => {
                    return Err(wrong(&format!("{at}.role"), "a text", &other.unwrap_or_default()));
                }
            };
            let content = match message.shift_remove("content") {
                Some(Value::String(text)) => MessageContent::Text(text),
                Some(Value::Array(items)) => {
                    let mut parts = Vec::with_capacity(items.len());
                    for (item_index, item) in items.into_iter().enumerate() {
                        parts
                            .push(conversation.item(&format!("{at}.content[{item_index}]"), item)?);
                    }
                    MessageContent::Parts(parts)
                }
                other => {
                    let expected = "a text or a list of typed items";
                    return Err(wrong(
                        &format!("{at}.content"),
                        expected,
                        &other.unwrap_or_default(),
                    ));
                }
            };
            conversation.messages.push(Message { role, content, other: message });
        }
        Ok(conversation)
    }

    fn item(&mut self, at: &str, item: Value) -> Result<Content> {
        let Value::Object(mut item) = item else {
            return Err(wrong(at, "an object", &item));
        };
        item.retain(|_, value| !value.is_null());
        let kind = match item.shift_remove("type") {
            Some(Value::String(kind)) => kind,
            other => {
                return Err(wrong(&format!("{at}.type"), "a text", &other.unwrap_or_default()));
            }
        };
        let content = match kind.as_str() {
            "text" => match item.shift_remove("text") {
                Some(Value::String(text)) => Content::Text(text),
                other => {
                    return Err(wrong(&format!("{at}.text"), "a text", &other.unwrap_or_default()));
                }
            },
            "image" | "image_url" => {
                let file = file_reference(at, &mut item, &["path", "url", "image", "image_url"])?;
                self.images.push(file);
                Content::Image
            }
            "audio" => {
                let file = file_reference(at, &mut item, &["path", "url", "audio"])?;
                self.audio.push(file);
                Content::Audio
            }
            "video" => {
                let message = format!("`{at}` is a video, which is not supported");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            other => {
                let message =
                    format!("`{at}.type` is `{other}`; expected `text`, `image` or `audio`");
                return Err(Error::new(ErrorKind::Usage, message));
            }
        };
        match item.keys().next() {
            Some(key) => Err(Error::new(
                ErrorKind::Usage,
                format!("`{at}.{key}` is not understood in a `{kind}` item"),
            )),
            None => Ok(content),
        }
    }
}

/// Takes the one file that an item names.
fn file_reference(
    at: &str,
    item: &mut Map<String, Value>,
    keys: &[&str],
) -> Result<Option<String>> {
    let mut file = None;
    for key in keys {
        let value = match item.shift_remove(*key) {
            None => continue,
            // the form {"image_url": {"url": …}}
            Some(Value::Object(mut object)) if *key == "image_url" => {
                object.shift_remove("url").unwrap_or_default()
            }
            Some(value) => value,
        };
        let Value::String(value) = value else {
            return Err(wrong(&format!("{at}.{key}"), "the path of a file", &value));
        };
        if value.starts_with("data:") || value.contains("://") {
            let message = format!("`{at}.{key}` is not the path of a file; nothing is downloaded");
            return Err(Error::new(ErrorKind::Usage, message));
        }
        if file.replace(value).is_some() {
            return Err(Error::new(ErrorKind::Usage, format!("`{at}` names more than one file")));
        }
    }
    Ok(file)
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn wrong(at: &str, expected: &str, found: &Value) -> Error {
    let found = kind_of(found);
    Error::new(ErrorKind::Usage, format!("expected `{at}` to be {expected}, found {found}"))
}

fn change_strings(value: &Value, change: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => change(text).into(),
        Value::Array(items) => items.iter().map(|item| change_strings(item, change)).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), change_strings(value, change)))
            .collect::<Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

fn collect_strings<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect_strings(item, texts)),
        Value::Object(map) => map.values().for_each(|value| collect_strings(value, texts)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_keeps_its_files_in_order() {
        let conversation = Conversation::from_json(
            r#"[{"role": "system", "content": "be brief", "name": null},
                {"role": "user", "content": [{"type": "image", "path": "a.png"}, {"type": "text", "text": "and"},
                    {"type": "image_url", "image_url": {"url": "b.png"}}, {"type": "image"},
                    {"type": "audio", "audio": "c.wav"}]}]"#,
        )
        .unwrap();
        assert_eq!(conversation.images, [Some("a.png".into()), Some("b.png".into()), None]);
        assert_eq!(conversation.audio, [Some("c.wav".to_string())]);
        assert_eq!(conversation.messages[0], Message::text("system", "be brief"));
        let parts = vec![
            Content::Image,
            Content::Text("and".into()),
            Content::Image,
            Content::Image,
            Content::Audio,
        ];
        assert_eq!(conversation.messages[1], Message::new("user", parts));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let message = |json: &str| Conversation::from_json(json).unwrap_err().message().to_string();
        assert_eq!(message("{}"), "expected a list of messages, found an object");
        assert_eq!(
            message(r#"[{"content": ""}]"#),
            "expected `messages[0].role` to be a text, found nothing"
        );
        assert_eq!(
            message(r#"[{"role": "user", "content": 1}]"#),
            "expected `messages[0].content` to be a text or a list of typed items, found a number"
        );
        let item = |item: &str| message(&format!(r#"[{{"role": "user", "content": [{item}]}}]"#));
        assert_eq!(
            item(r#"{"type": "video"}"#),
            "`messages[0].content[0]` is a video, which is not supported"
        );
        assert_eq!(
            item(r#"{"type": "smell"}"#),
            "`messages[0].content[0].type` is `smell`; expected `text`, `image` or `audio`"
        );
        assert_eq!(
            item(r#"{"type": "text", "text": "", "path": ""}"#),
            "`messages[0].content[0].path` is not understood in a `text` item"
        );
        assert_eq!(
            item(r#"{"type": "image", "path": "a", "url": "b"}"#),
            "`messages[0].content[0]` names more than one file"
        );
        assert_eq!(
            item(r#"{"type": "image", "url": "https://x"}"#),
            "`messages[0].content[0].url` is not the path of a file; nothing is downloaded"
        );
    }
}
