//! The embedding plan of a prompt: token ids, and which of them are rows of which media item.

use std::path::Path;

use crate::checkpoint::tokenizer::{Tokenizer, TokenizerFiles};
use crate::descriptor::strip::{Indices, Slot};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::plan::{MediaPlan, Modality, Plan};
use crate::prompt::message::{Content, Message, MessageContent};
use crate::prompt::template::ChatTemplate;
use crate::prompt::user_text::{adds_special_tokens, render_marked};

/// One media item of a prompt; the items of each modality in the order of its markers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its modality.
    pub modality: Modality,
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
    /// The item's modality.
    pub modality: Modality,
    /// The item's number among those of its modality, from 0.
    pub item: usize,
    /// Its layout.
    pub layout: Layout,
    /// The first token of its strip.
    pub start: usize,
    /// Tokens of its strip.
    pub length: usize,
    /// The tokens, counted from the prompt's beginning, that are encoder rows; in order.
    pub rows: Vec<usize>,
    /// The tokens that are learned vectors, with their names; in order.
    pub vectors: Vec<(usize, String)>,
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
    markers: Vec<Marker>,
    /// The ids of all tokens that stand for media.
    media: Vec<u32>,
}

/// The tokens of one modality.
struct Marker {
    modality: Modality,
    text: String,
    id: u32,
    fill: u32,
    /// The texts of the tokens that strips use, by name.
    tokens: Vec<(String, String)>,
    literals: Vec<(String, Vec<u32>)>,
}

/// What stands in one slot.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Filled {
    /// A token of the strip.
    Token,
    /// An encoder row.
    Row,
    /// A learned vector, by name.
    Vector(String),
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
        let budgets =
            || Modality::ALL.into_iter().filter_map(|modality| plan.media(modality)?.as_ref().ok());
        let frame: Vec<&String> = budgets()
            .flat_map(|media| media.frame.before.iter().chain(&media.frame.after))
            .collect();
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
        let mut markers = Vec::new();
        for budget in budgets() {
            let found = family.media().find(|(name, _)| *name == budget.modality.name());
            let Some((_, tables)) = found else { continue };
            let text_of = |name: &str| {
                family.tokens.get(name).map(|token| token.text.clone()).unwrap_or_default()
            };
            let id = |name: &str| {
                let text = text_of(name);
                tokenizer.token_to_id(&text).map(|id| (text.clone(), id)).ok_or_else(|| {
                    let message = format!("the token `{text}` is not in the tokenizer");
                    Error::new(ErrorKind::Tokenizer, message)
                })
            };
            let (text, marker_id) = id(tables.marker)?;
            let fill = id(tables.fill)?.1;
            let mut tokens = Vec::new();
            for name in budget.strip_tokens() {
                let text = text_of(&name);
                // a text with an index is looked up when the index is known
                if !text.contains('{') {
                    id(&name)?;
                }
                tokens.push((name, text));
            }
            let mut literals = Vec::new();
            for name in budget.strip_literals() {
                let text = budget.literals.get(&name).map_or("", String::as_str);
                literals.push((name, tokenizer.encode(text, false)?));
            }
            let modality = budget.modality;
            markers.push(Marker { modality, text, id: marker_id, fill, tokens, literals });
        }
        let own = family.prompt.as_ref().and_then(|prompt| prompt.template.as_deref());
        let template = ChatTemplate::find_beside(folder, own)?;
        let raw_layout = family.prompt.as_ref().and_then(|prompt| prompt.raw.clone());
        let media = known.iter().filter_map(|text| tokenizer.token_to_id(text)).collect();
        Ok(Self { tokenizer, files, template, raw_layout, markers, media })
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Tokenises a request and expands its markers, one for each of `items`.
    ///
    /// # Errors
    /// [`ErrorKind::Placeholders`] if there are more or fewer markers than items; the error names both numbers.
    pub fn make(&self, request: Request<'_>, items: &[Item], plan: &Plan) -> Result<Prompt> {
        match request {
            Request::Messages(messages) => {
                let text = self.render(messages)?;
                let bos = self.files.special("bos_token");
                let adds = !self.places_bos() && adds_special_tokens(&text, bos.as_deref());
                let ids = self.tokenizer.encode(&text, adds)?;
                self.expand(&ids, items, plan, false)
            }
            Request::Raw(text) => {
                let sentinels = self.tokenizer.sentinels();
                sentinels.refuse_in(text)?;
                let ids = self.tokenizer.encode(&sentinels.replace_markers(text), true)?;
                self.expand(&ids, items, plan, true)
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

    /// Whether the family's own layout is used and says where the first token stands; it may stand behind the pictures.
    fn places_bos(&self) -> bool {
        let layout = self.raw_layout.as_ref().filter(|_| self.template.is_none());
        layout.is_some_and(|layout| layout.contains("{bos}"))
    }

    /// The family's own layout of one user message, for checkpoints without a template.
    fn lay_out(&self, layout: &str, messages: &[Message]) -> Result<String> {
        let [message] = messages else {
            let message = format!("this family's prompts hold one message, not {}", messages.len());
            return Err(Error::new(ErrorKind::Tokenizer, message));
        };
        let (mut markers, mut text) = (String::new(), String::new());
        let marker = |modality| {
            let marker = self.markers.iter().find(|marker| marker.modality == modality);
            marker.map_or("", |marker| marker.text.as_str())
        };
        match &message.content {
            MessageContent::Text(part) => text.push_str(part),
            MessageContent::Parts(parts) => {
                for part in parts {
                    match part {
                        Content::Text(part) => text.push_str(part),
                        Content::Image => {
                            markers.push_str(self.tokenizer.mark(marker(Modality::Image)));
                        }
                        Content::Audio => {
                            markers.push_str(self.tokenizer.mark(marker(Modality::Audio)));
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
    fn expand(&self, ids: &[u32], items: &[Item], plan: &Plan, raw: bool) -> Result<Prompt> {
        let mut queues = Vec::new();
        for marker in &self.markers {
            let own: Vec<&Item> =
                items.iter().filter(|item| item.modality == marker.modality).collect();
            let Some(Ok(media)) = plan.media(marker.modality) else { continue };
            let strips = own.iter().map(|item| {
                Ok(Strip { item, slots: self.slots(marker, media, own.len(), &item.layout)? })
            });
            queues.push(Queue { marker, strips: strips.collect::<Result<_>>()? });
        }
        let known = |item: &Item| queues.iter().any(|queue| queue.marker.modality == item.modality);
        if let Some(item) = items.iter().find(|item| !known(item)) {
            let message = format!("this family takes no {}", plural(item.modality));
            return Err(Error::new(ErrorKind::Placeholders, message));
        }
        let fits = |found: &Expanded| {
            found.queues.iter().zip(&queues).all(|(seen, queue)| seen.markers == queue.strips.len())
        };
        let mut found = put_strips(ids, &queues, raw);
        // as many bare markers side by side as the first item has tokens are not its strip if every item has one
        if raw && !fits(&found) {
            let bare = put_strips(ids, &queues, false);
            if fits(&bare) {
                found = bare;
            }
        }
        for (seen, queue) in found.queues.iter().zip(&queues) {
            if seen.markers != queue.strips.len() {
                return Err(self.mismatch(seen, queue, raw));
            }
        }
        if raw && let Some(id) = found.stray.iter().find(|id| self.media.contains(id)) {
            let text = self.tokenizer.id_to_token(*id).unwrap_or_default();
            let message = format!("the prompt has `{text}`, for which no media item can be given");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(found.prompt)
    }

    fn mismatch(&self, seen: &Seen, queue: &Queue<'_>, raw: bool) -> Error {
        let (markers, items) = (seen.markers, queue.strips.len());
        let what = match queue.marker.modality {
            Modality::Image => "image",
            Modality::Audio => "clip",
        };
        let plural = |count: usize, word: &str| {
            format!("{count} {word}{}", if count == 1 { "" } else { "s" })
        };
        let which = if markers > items {
            format!("marker {} has no {what}", items + 1)
        } else {
            format!("{what} {} has no marker", markers + 1)
        };
        let already = match seen.already {
            0 => String::new(),
            count => format!(" ({count} expanded already)"),
        };
        let message = format!(
            "the prompt has {} `{}`{already} for {}: {which}",
            plural(markers, "marker"),
            queue.marker.text,
            plural(items, what)
        );
        let error = Error::new(ErrorKind::Placeholders, message);
        match queue.strips.get(seen.placed.saturating_sub(1)) {
            Some(strip) if raw && markers > items && strip.slots.len() > 1 => error.with_hint(format!(
                "{what} {} takes {} tokens; only a strip of exactly these counts as expanded already",
                seen.placed.max(1),
                strip.slots.len()
            )),
            // only a template can have lost or doubled a marker here
            _ if !raw && self.template.is_some() => error
                .with_hint(format!("the chat template does not write one marker for each {what}")),
            _ => error,
        }
    }

    /// The ids of one strip in a prompt of `items` items, and what stands there.
    fn slots(
        &self,
        marker: &Marker,
        media: &MediaPlan,
        items: usize,
        layout: &Layout,
    ) -> Result<Vec<(u32, Filled)>> {
        let failed = |message: String| Error::new(ErrorKind::Descriptor, message);
        let mut slots = Vec::new();
        let expanded = media.expand(media.shape(items), layout);
        for slot in expanded.map_err(|error| failed(error.message))? {
            match slot {
                Slot::Row => slots.push((marker.fill, Filled::Row)),
                Slot::Vector(name) => slots.push((marker.fill, Filled::Vector(name))),
                Slot::Token(name, indices) => {
                    let found = marker.tokens.iter().find(|(token, _)| *token == name);
                    let (_, text) =
                        found.ok_or_else(|| failed(format!("there is no token `{name}`")))?;
                    let text = with_indices(text, &indices);
                    match self.tokenizer.token_to_id(&text) {
                        Some(id) => slots.push((id, Filled::Token)),
                        None => slots.extend(
                            self.tokenizer
                                .encode(&text, false)?
                                .into_iter()
                                .map(|id| (id, Filled::Token)),
                        ),
                    }
                }
                Slot::Literal(name) => {
                    let found = marker.literals.iter().find(|(literal, _)| *literal == name);
                    let (_, ids) =
                        found.ok_or_else(|| failed(format!("there is no literal `{name}`")))?;
                    slots.extend(ids.iter().map(|id| (*id, Filled::Token)));
                }
            }
        }
        Ok(slots)
    }
}

/// A text with the numbers of the repetitions around it.
pub fn with_indices(text: &str, indices: &Indices) -> String {
    let mut text = text.to_owned();
    for (name, number) in indices {
        text = text.replace(&format!("{{{name}}}"), &number.to_string());
    }
    text
}

fn plural(modality: Modality) -> &'static str {
    match modality {
        Modality::Image => "images",
        Modality::Audio => "audio",
    }
}

/// One item with the ids of its strip, and what stands there.
struct Strip<'a> {
    item: &'a Item,
    slots: Vec<(u32, Filled)>,
}

/// The strips of one modality, in order.
struct Queue<'a> {
    marker: &'a Marker,
    strips: Vec<Strip<'a>>,
}

/// What was seen of one modality.
#[derive(Default)]
struct Seen {
    /// Markers and strips, whether or not there was an item for them.
    markers: usize,
    /// Strips that were put.
    placed: usize,
    /// How many of them stood there expanded.
    already: usize,
}

/// What became of a tokenised prompt.
struct Expanded {
    prompt: Prompt,
    queues: Vec<Seen>,
    /// The ids outside strips.
    stray: Vec<u32>,
}

/// Puts the strips in place of the markers in order. With `lenient`, a strip that stands there already counts as one
/// marker.
fn put_strips(ids: &[u32], queues: &[Queue<'_>], lenient: bool) -> Expanded {
    let prompt = Prompt { ids: Vec::with_capacity(ids.len()), spans: Vec::new() };
    let seen = queues.iter().map(|_| Seen::default()).collect();
    let mut expanded = Expanded { prompt, queues: seen, stray: Vec::new() };
    let mut rest = ids;
    'next: while let Some((&first, after)) = rest.split_first() {
        for (seen, queue) in expanded.queues.iter_mut().zip(queues) {
            let strip = queue.strips.get(seen.placed);
            let length = strip.map_or(0, |strip| strip.slots.len());
            let stands = |strip: &Strip<'_>| {
                rest.get(..length)
                    .is_some_and(|found| found.iter().eq(strip.slots.iter().map(|(id, _)| id)))
            };
            if lenient && length > 1 && strip.is_some_and(stands) {
                rest = rest.get(length..).unwrap_or_default();
                seen.already += 1;
            } else if first == queue.marker.id {
                rest = after;
            } else {
                continue;
            }
            seen.markers += 1;
            match strip {
                Some(strip) => {
                    push_span(&mut expanded.prompt, seen.placed, strip);
                    seen.placed += 1;
                }
                None => expanded.prompt.ids.push(first),
            }
            continue 'next;
        }
        rest = after;
        expanded.prompt.ids.push(first);
        expanded.stray.push(first);
    }
    expanded
}

fn push_span(prompt: &mut Prompt, number: usize, strip: &Strip<'_>) {
    let start = prompt.ids.len();
    let mut span = Span {
        modality: strip.item.modality,
        item: number,
        layout: strip.item.layout,
        start,
        length: strip.slots.len(),
        rows: Vec::new(),
        vectors: Vec::new(),
    };
    for (index, (id, filled)) in strip.slots.iter().enumerate() {
        prompt.ids.push(*id);
        match filled {
            Filled::Row => span.rows.push(start + index),
            Filled::Vector(name) => span.vectors.push((start + index, name.clone())),
            Filled::Token => {}
        }
    }
    prompt.spans.push(span);
}
