//! What `run`, `trace` and `score` are asked: messages or a raw prompt, and the files of its media.

use std::fs;
use std::path::{Path, PathBuf};

use vlm_spec::error::{Error, ErrorKind, Result};
use vlm_spec::prompt::{Content, Conversation, Message, Request, place_media};

use super::arguments::Input;

/// A prompt and the media files of its items; those of each modality in the order of its items.
pub(super) struct Asked {
    /// Empty for a raw prompt.
    pub(super) messages: Vec<Message>,
    /// A prompt without a template.
    pub(super) raw: Option<String>,
    pub(super) images: Vec<PathBuf>,
    pub(super) clips: Vec<PathBuf>,
}

impl Asked {
    /// What the command line says.
    pub(super) fn read(input: &Input) -> Result<Self> {
        if let Some(file) = &input.messages {
            return Self::from_file(file, &input.images, &input.audio);
        }
        let prompt = input.prompt.as_deref().unwrap_or_default();
        let (images, clips) = (input.images.clone(), input.audio.clone());
        if input.raw {
            return Ok(Self { messages: Vec::new(), raw: Some(prompt.to_owned()), images, clips });
        }
        let mut messages = Vec::new();
        if let Some(system) = &input.system {
            messages.push(Message::new("system", vec![Content::Text(system.clone())]));
        }
        messages.push(Message::new("user", place_media(prompt, images.len(), clips.len())?));
        Ok(Self { messages, raw: None, images, clips })
    }

    /// A conversation file. Media are named in it, relative to its folder, or come from the command line in order.
    fn from_file(file: &Path, images: &[PathBuf], clips: &[PathBuf]) -> Result<Self> {
        let text = fs::read_to_string(file).map_err(|error| {
            Error::new(ErrorKind::Usage, format!("cannot read `{}`", file.display()))
                .with_source(error)
        })?;
        let conversation = Conversation::from_json(&text)?;
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        Ok(Self {
            images: files(folder, &conversation.images, images, "image")?,
            clips: files(folder, &conversation.audio, clips, "audio")?,
            messages: conversation.messages,
            raw: None,
        })
    }

    /// Whether there are pictures or clips.
    pub(super) fn has_media(&self) -> bool {
        !self.images.is_empty() || !self.clips.is_empty()
    }

    /// The request.
    pub(super) fn request(&self) -> Request<'_> {
        match &self.raw {
            Some(text) => Request::Raw(text),
            None => Request::Messages(&self.messages),
        }
    }
}

/// The files of one kind of media: those that the messages name, and those of the command line for the rest.
fn files(
    folder: &Path,
    named: &[Option<String>],
    given: &[PathBuf],
    kind: &str,
) -> Result<Vec<PathBuf>> {
    let mut rest = given.iter();
    let mut files = Vec::with_capacity(named.len());
    for (index, name) in named.iter().enumerate() {
        match name {
            Some(name) => files.push(folder.join(name)),
            None => match rest.next() {
                Some(file) => files.push(file.clone()),
                None => {
                    let message = format!(
                        "{kind} {} of the messages names no file, and no `--{kind}` is left for it",
                        index + 1
                    );
                    return Err(Error::new(ErrorKind::Placeholders, message));
                }
            },
        }
    }
    let left = rest.count();
    if left > 0 {
        let verb = if left == 1 { "has" } else { "have" };
        let message = format!("{left} of `--{kind}` {verb} no item in the messages");
        return Err(Error::new(ErrorKind::Placeholders, message));
    }
    Ok(files)
}
