//! The embedding plan of a prompt: token ids, and which of them are rows of which media item.

use std::path::Path;

use crate::checkpoint::tokenizer::{Tokenizer, TokenizerFiles};
use crate::descriptor::strip::Slot;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::plan::{MediaPlan, Plan};
use crate::prompt::message::{Content, Message, MessageContent};
use crate::prompt::template::ChatTemplate;
use crate::prompt::user_text::{adds_special_tokens, render_marked};

/// One media item of a prompt, in the order of the markers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// What the size policy made of it.
    pub layout: Layout,
}

/// What a prompt is made from.
#[derive(Debug, Clone, Copy)]
pub enum Request<'a> {
    /// Messages, laid out by the checkpoint's chat template. What they say is text: a typed marker is no marker.
    Messages(&'a [Message]),
    /// A text in which markers are markers; no template.
    Raw(&'a str),
}

/// Where one item's strip lies in the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The item's number, from 0.
    pub item: usize,
    /// Its layout.
    pub layout: Layout,
    /// The first token of its strip.
    pub start: usize,
    /// Tokens of its strip.
    pub length: usize,
    /// The tokens, counted from the prompt's beginning, that are encoder rows; in order.
    pub rows: Vec<usize>,
}

/// A prompt ready to be embedded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// Token ids; fill tokens under encoder rows.
    pub ids: Vec<u32>,
    /// The strips, in order.
    pub spans: Vec<Span>,
}

/// Makes prompts for one checkpoint: tokenizer, template and token ids, read once.
pub struct PromptMaker {
    tokenizer: Tokenizer,
    files: TokenizerFiles,
    template: Option<ChatTemplate>,
    raw_layout: Option<String>,
    marker: Option<Marker>,
    /// The ids of all tokens that stand for media.
    media: Vec<u32>,
}

/// The tokens of one modality.
struct Marker {
    text: String,
    id: u32,
    fill: u32,
    tokens: Vec<(String, u32)>,
    literals: Vec<(String, Vec<u32>)>,
}

impl PromptMaker {
    /// Reads tokenizer and template of the plan's checkpoint.
    ///
    /// # Errors
    /// [`ErrorKind::Tokenizer`] if there is no usable tokenizer, or a marker is not one of its tokens.
    pub fn open(plan: &Plan) -> Result<Self> {
        let folder: &Path = &plan.folder;
        let family = &plan.descriptor.family;
        // frame tokens may be typed; every other named token stands for media
        let frame: Vec<&String> = match &plan.image {
            Some(Ok(media)) => media.frame.before.iter().chain(&media.frame.after).collect(),
            _ => Vec::new(),
        };
        let protected: Vec<String> = family
            .tokens
            .iter()
            .filter(|(name, _)| !frame.contains(name))
            .map(|(_, token)| token.text.clone())
            .collect();
        let files = TokenizerFiles::read(folder)?;
        let known: Vec<String> =
            protected.into_iter().filter(|text| files.token_id(text).is_some()).collect();
        let tokenizer = Tokenizer::load(folder, &known)?;
        let marker = match (&family.image, &plan.image) {
            (Some(media), Some(Ok(budget))) => {
                let id = |name: &str| {
                    let text = family.tokens.get(name).map_or("", |token| token.text.as_str());
                    tokenizer.token_to_id(text).map(|id| (text.to_owned(), id)).ok_or_else(|| {
                        let message = format!("the token `{text}` is not in the tokenizer");
                        Error::new(ErrorKind::Tokenizer, message)
                    })
                };
                let (text, marker_id) = id(&media.marker)?;
                let fill = id(media.fill.as_ref().unwrap_or(&media.marker))?.1;
                let tokens =
                    budget.strip.tokens().into_iter().map(|name| Ok((name.clone(), id(&name)?.1)));
                let literals = budget.strip.literals().into_iter().map(|name| {
                    let text = media.literals.get(&name).map_or("", String::as_str);
                    Ok((name, tokenizer.encode(text, false)?))
                });
                Some(Marker {
                    text,
                    id: marker_id,
                    fill,
                    tokens: tokens.collect::<Result<_>>()?,
                    literals: literals.collect::<Result<_>>()?,
                })
            }
            _ => None,
        };
        let template = ChatTemplate::find(folder)?;
        let raw_layout = family.prompt.as_ref().map(|prompt| prompt.raw.clone());
        let media = known.iter().filter_map(|text| tokenizer.token_to_id(text)).collect();
        Ok(Self { tokenizer, files, template, raw_layout, marker, media })
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Tokenises a request and expands its markers, one for each of `items`.
    ///
    /// # Errors
    /// [`ErrorKind::Placeholders`] if there are more or fewer markers than items; the error names both numbers.
    pub fn make(
        &self,
        request: Request<'_>,
        items: &[Item],
        media: Option<&MediaPlan>,
    ) -> Result<Prompt> {
        match request {
            Request::Messages(messages) => {
                let text = self.render(messages)?;
                let bos = self.files.special("bos_token");
                let ids =
                    self.tokenizer.encode(&text, adds_special_tokens(&text, bos.as_deref()))?;
                self.expand(&ids, items, media, false)
            }
            Request::Raw(text) => {
                let sentinels = self.tokenizer.sentinels();
                sentinels.refuse_in(text)?;
                let ids = self.tokenizer.encode(&sentinels.replace_markers(text), true)?;
                self.expand(&ids, items, media, true)
            }
        }
    }

    fn render(&self, messages: &[Message]) -> Result<String> {
        let special = self.files.special_tokens();
        match (&self.template, &self.raw_layout) {
            (Some(template), _) => {
                render_marked(template, messages, true, &special, self.tokenizer.sentinels())
            }
            (None, Some(layout)) => self.lay_out(layout, messages),
            (None, None) => {
                Err(Error::new(ErrorKind::Tokenizer, "the checkpoint has no chat template")
                    .with_hint(
                        "write the whole prompt yourself, markers included, and pass `--raw`",
                    ))
            }
        }
    }

    /// The family's own layout of one user message, for checkpoints without a template.
    fn lay_out(&self, layout: &str, messages: &[Message]) -> Result<String> {
        let [message] = messages else {
            let message = format!("this family's prompts hold one message, not {}", messages.len());
            return Err(Error::new(ErrorKind::Tokenizer, message));
        };
        let (mut markers, mut text) = (String::new(), String::new());
        let marker = self.marker.as_ref().map_or("", |marker| marker.text.as_str());
        match &message.content {
            MessageContent::Text(part) => text.push_str(part),
            MessageContent::Parts(parts) => {
                for part in parts {
                    match part {
                        Content::Text(part) => text.push_str(part),
                        Content::Image | Content::Audio => {
                            markers.push_str(self.tokenizer.mark(marker));
                        }
                    }
                }
            }
        }
        let sentinels = self.tokenizer.sentinels();
        sentinels.refuse_in(&text)?;
        let bos = self.files.special("bos_token").unwrap_or_default();
        Ok(layout.replace("{media}", &markers).replace("{bos}", &bos).replace("{text}", &text))
    }

    /// Puts a strip in place of every marker. In a raw text, a strip that is already expanded is left alone.
    fn expand(
        &self,
        ids: &[u32],
        items: &[Item],
        media: Option<&MediaPlan>,
        raw: bool,
    ) -> Result<Prompt> {
        let (Some(marker), Some(media)) = (&self.marker, media) else {
            if items.is_empty() {
                return Ok(Prompt { ids: ids.to_vec(), spans: Vec::new() });
            }
            return Err(Error::new(ErrorKind::Placeholders, "this family takes no images"));
        };
        let strips: Vec<Strip> = items
            .iter()
            .map(|item| Ok(Strip { item, slots: Self::slots(marker, media, &item.layout)? }))
            .collect::<Result<_>>()?;
        let mut found = put_strips(ids, marker.id, &strips, raw);
        // as many bare markers side by side as the first item has tokens are not its strip if every item has one
        if raw && found.markers != items.len() {
            let bare = put_strips(ids, marker.id, &strips, false);
            if bare.markers == items.len() {
                found = bare;
            }
        }
        if found.markers != items.len() {
            return Err(self.mismatch(marker, &found, &strips, raw));
        }
        if raw && let Some(id) = found.stray.iter().find(|id| self.media.contains(id)) {
            let text = self.tokenizer.id_to_token(*id).unwrap_or_default();
            let message = format!("the prompt has `{text}`, for which no media item can be given");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(found.prompt)
    }

    fn mismatch(
        &self,
        marker: &Marker,
        found: &Expanded,
        strips: &[Strip<'_>],
        raw: bool,
    ) -> Error {
        let (markers, items) = (found.markers, strips.len());
        let plural = |count: usize, word: &str| {
            format!("{count} {word}{}", if count == 1 { "" } else { "s" })
        };
        let which = if markers > items {
            format!("marker {} has no image", items + 1)
        } else {
            format!("image {} has no marker", markers + 1)
        };
        let already = match found.already {
            0 => String::new(),
            count => format!(" ({count} expanded already)"),
        };
        let message = format!(
            "the prompt has {} `{}`{already} for {}: {which}",
            plural(markers, "marker"),
            marker.text,
            plural(items, "image")
        );
        let error = Error::new(ErrorKind::Placeholders, message);
        match strips.get(found.prompt.spans.len().saturating_sub(1)) {
            Some(strip) if raw && markers > items && strip.slots.len() > 1 => error.with_hint(format!(
                "image {} takes {} tokens; only a strip of exactly these counts as expanded already",
                found.prompt.spans.len().max(1),
                strip.slots.len()
            )),
            // only a template can have lost or doubled a marker here
            _ if !raw && self.template.is_some() => {
                error.with_hint("the chat template does not write one marker for each image")
            }
            _ => error,
        }
    }

    /// The ids of one strip, and which of them are encoder rows.
    fn slots(marker: &Marker, media: &MediaPlan, layout: &Layout) -> Result<Vec<(u32, bool)>> {
        let failed = |message: String| Error::new(ErrorKind::Descriptor, message);
        let mut slots = Vec::new();
        for slot in media.expand(layout).map_err(|error| failed(error.message))? {
            match slot {
                Slot::Row => slots.push((marker.fill, true)),
                Slot::Vector(_) => slots.push((marker.fill, false)),
                Slot::Token(name) => {
                    let found = marker.tokens.iter().find(|(token, _)| *token == name);
                    let (_, id) =
                        found.ok_or_else(|| failed(format!("there is no token `{name}`")))?;
                    slots.push((*id, false));
                }
                Slot::Literal(name) => {
                    let found = marker.literals.iter().find(|(literal, _)| *literal == name);
                    let (_, ids) =
                        found.ok_or_else(|| failed(format!("there is no literal `{name}`")))?;
                    slots.extend(ids.iter().map(|id| (*id, false)));
                }
            }
        }
        Ok(slots)
    }
}

/// One item with the ids of its strip, and which of them are encoder rows.
struct Strip<'a> {
    item: &'a Item,
    slots: Vec<(u32, bool)>,
}

/// What became of a tokenised prompt.
struct Expanded {
    prompt: Prompt,
    /// Markers and strips seen, whether or not there was an item for them.
    markers: usize,
    /// How many of them stood there expanded.
    already: usize,
    /// The ids outside strips.
    stray: Vec<u32>,
}

/// Puts the strips in place of the markers in order. With `lenient`, a strip that stands there already counts as one
/// marker.
fn put_strips(ids: &[u32], marker: u32, strips: &[Strip<'_>], lenient: bool) -> Expanded {
    let prompt = Prompt { ids: Vec::with_capacity(ids.len()), spans: Vec::new() };
    let mut expanded = Expanded { prompt, markers: 0, already: 0, stray: Vec::new() };
    let mut rest = ids;
    while let Some((&first, after)) = rest.split_first() {
        let strip = strips.get(expanded.prompt.spans.len());
        let length = strip.map_or(0, |strip| strip.slots.len());
        let stands = |strip: &Strip<'_>| {
            rest.get(..length)
                .is_some_and(|found| found.iter().eq(strip.slots.iter().map(|(id, _)| id)))
        };
        if lenient && length > 1 && strip.is_some_and(stands) {
            rest = rest.get(length..).unwrap_or_default();
            expanded.already += 1;
        } else {
            rest = after;
            if first != marker {
                expanded.prompt.ids.push(first);
                expanded.stray.push(first);
                continue;
            }
        }
        expanded.markers += 1;
        match strip {
            Some(strip) => push_span(&mut expanded.prompt, strip.item, &strip.slots),
            None => expanded.prompt.ids.push(first),
        }
    }
    expanded
}

fn push_span(prompt: &mut Prompt, item: &Item, slots: &[(u32, bool)]) {
    let start = prompt.ids.len();
    let rows = slots
        .iter()
        .enumerate()
        .filter(|(_, (_, row))| *row)
        .map(|(index, _)| start + index)
        .collect();
    prompt.ids.extend(slots.iter().map(|(id, _)| *id));
    prompt.spans.push(Span {
        item: prompt.spans.len(),
        layout: item.layout,
        start,
        length: slots.len(),
        rows,
    });
}
