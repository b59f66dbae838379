//! The embedding plan of a prompt: token ids, and which of them are rows of which media item.

use std::path::Path;

use crate::checkpoint::tokenizer::{Tokenizer, TokenizerFiles};
use crate::descriptor::prompt::{FirstPlace, Prompt as Rules};
use crate::descriptor::strip::{Indices, Slot};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::plan::{MediaPlan, Modality, Plan};
use crate::prompt::expand::{Filled, Laid, Queue, Seen, Strip, lay};
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
    /// The first token that its strip takes part in; a literal at its edge may have merged with the text beside it.
    pub start: usize,
    /// Tokens that its strip takes part in.
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
    rules: Rules,
    markers: Vec<Marker>,
}

/// The tokens of one modality.
struct Marker {
    modality: Modality,
    /// What people and templates write.
    text: String,
    fill: String,
    fill_id: u32,
    /// The texts of the tokens that strips use, by name.
    tokens: Vec<(String, String)>,
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
        let rules = family.prompt.clone();
        let pipeline = rules.pipeline(files.class());
        let tokenizer = Tokenizer::load_with(folder, &known, pipeline)?;
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
            let text = id(tables.marker)?.0;
            let (fill, fill_id) = id(tables.fill)?;
            let mut tokens = Vec::new();
            for name in budget.strip_tokens() {
                let text = text_of(&name);
                // a text with an index is looked up when the index is known
                if !text.contains('{') {
                    id(&name)?;
                }
                tokens.push((name, text));
            }
            let modality = budget.modality;
            markers.push(Marker { modality, text, fill, fill_id, tokens });
        }
        let template = ChatTemplate::find_beside(folder, rules.template.as_deref())?;
        Ok(Self { tokenizer, files, template, rules, markers })
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Expands the markers of a request, one for each of `items`, and tokenises it.
    ///
    /// # Errors
    /// [`ErrorKind::Placeholders`] if there are more or fewer markers than items, or more than a prompt takes; the error names
    /// both numbers.
    pub fn make(&self, request: Request<'_>, items: &[Item], plan: &Plan) -> Result<Prompt> {
        if let Some(most) = self.rules.most.filter(|most| items.len() > *most as usize) {
            let message =
                format!("a prompt of this family takes {most} items, not {}", items.len());
            return Err(Error::new(ErrorKind::Placeholders, message));
        }
        match request {
            Request::Messages(messages) => {
                let text = self.render(messages)?;
                let bos = self.files.special("bos_token");
                let adds = !self.places_bos() && adds_special_tokens(&text, bos.as_deref());
                self.expand(&self.begin(text), items, plan, false, adds)
            }
            Request::Raw(text) => {
                let sentinels = self.tokenizer.sentinels();
                sentinels.refuse_in(text)?;
                let text = sentinels.replace_markers(text);
                self.expand(&self.begin(text), items, plan, true, !self.places_bos())
            }
        }
    }

    /// `text` with the token that the family's processor class puts there.
    fn begin(&self, text: String) -> String {
        let first = self.rules.first.iter().find_map(|token| self.files.special(token.name()));
        let Some(first) = first else { return text };
        let at = match self.rules.first_at {
            FirstPlace::Front if text.starts_with(&first) => return text,
            FirstPlace::BehindMarkers if text.contains(&first) => return text,
            FirstPlace::Front => 0,
            FirstPlace::BehindMarkers => {
                let marks = self.markers.iter().map(|marker| self.tokenizer.mark(&marker.text));
                let marks: Vec<&str> = marks.filter(|mark| !mark.is_empty()).collect();
                let mut rest = text.as_str();
                while let Some(after) = marks.iter().find_map(|mark| rest.strip_prefix(mark)) {
                    rest = after;
                }
                text.len() - rest.len()
            }
        };
        let (before, behind) = text.split_at(at);
        format!("{before}{first}{behind}")
    }

    fn render(&self, messages: &[Message]) -> Result<String> {
        let special = self.files.special_tokens();
        match (&self.template, &self.rules.raw) {
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
        let layout = self.rules.raw.as_ref().filter(|_| self.template.is_none());
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

    /// Puts a strip in place of every marker, and tokenises. In a raw text, a strip that is already expanded is left alone.
    fn expand(
        &self,
        text: &str,
        items: &[Item],
        plan: &Plan,
        raw: bool,
        add_special: bool,
    ) -> Result<Prompt> {
        let mut queues = Vec::new();
        let mut modalities = Vec::new();
        for marker in &self.markers {
            let own: Vec<&Item> =
                items.iter().filter(|item| item.modality == marker.modality).collect();
            let Some(Ok(media)) = plan.media(marker.modality) else { continue };
            let strips = own.iter().map(|item| self.strip(marker, media, own.len(), item));
            queues.push(Queue {
                marker: self.tokenizer.mark(&marker.text),
                fill: self.tokenizer.mark(&marker.fill),
                fill_id: marker.fill_id,
                strips: strips.collect::<Result<_>>()?,
            });
            modalities.push(marker);
        }
        let known = |item: &Item| modalities.iter().any(|marker| marker.modality == item.modality);
        if let Some(item) = items.iter().find(|item| !known(item)) {
            let message = format!("this family takes no {}", plural(item.modality));
            return Err(Error::new(ErrorKind::Placeholders, message));
        }
        let fits = |laid: &Laid<'_>| {
            laid.seen.iter().zip(&queues).all(|(seen, queue)| seen.markers == queue.strips.len())
        };
        let sentinels = self.tokenizer.sentinels();
        let mut laid = lay(text, &queues, sentinels, raw);
        // as many bare markers side by side as the first item has tokens are not its strip if every item has one
        if raw && !fits(&laid) {
            let bare = lay(text, &queues, sentinels, false);
            if fits(&bare) {
                laid = bare;
            }
        }
        for ((seen, queue), marker) in laid.seen.iter().zip(&queues).zip(modalities) {
            if seen.markers != queue.strips.len() {
                return Err(self.mismatch(seen, queue, marker, raw));
            }
        }
        if raw && let Some(stray) = laid.stray.first() {
            let message = format!("the prompt has `{stray}`, for which no media item can be given");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        laid.tokenise(&self.tokenizer, add_special)
    }

    fn mismatch(&self, seen: &Seen, queue: &Queue<'_>, marker: &Marker, raw: bool) -> Error {
        let (markers, items) = (seen.markers, queue.strips.len());
        let what = match marker.modality {
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
            marker.text,
            plural(items, what)
        );
        let error = Error::new(ErrorKind::Placeholders, message);
        match queue.tokens(seen.placed.saturating_sub(1), &self.tokenizer) {
            Some(tokens) if raw && markers > items && tokens > 1 => error.with_hint(format!(
                "{what} {} takes {tokens} tokens; only a strip of exactly these counts as expanded already",
                seen.placed.max(1),
            )),
            // only a template can have lost or doubled a marker here
            _ if !raw && self.template.is_some() => error
                .with_hint(format!("the chat template does not write one marker for each {what}")),
            _ => error,
        }
    }

    /// The strip of one item in a prompt of `items` items.
    fn strip<'a>(
        &self,
        marker: &Marker,
        media: &MediaPlan,
        items: usize,
        item: &'a Item,
    ) -> Result<Strip<'a>> {
        let failed = |message: String| Error::new(ErrorKind::Descriptor, message);
        let mut strip = Strip::new(item);
        let expanded = media.expand(media.shape(items), &item.layout);
        for slot in expanded.map_err(|error| failed(error.message))? {
            match slot {
                Slot::Row => strip.push(Filled::Row),
                Slot::Vector(name) => strip.push(Filled::Vector(name)),
                Slot::Token(name, indices) => {
                    let found = marker.tokens.iter().find(|(token, _)| *token == name);
                    let (_, text) =
                        found.ok_or_else(|| failed(format!("there is no token `{name}`")))?;
                    let text = with_indices(text, &indices);
                    if text == marker.fill {
                        strip.push(Filled::Token);
                    } else {
                        strip.push_text(self.tokenizer.mark(&text));
                    }
                }
                Slot::Literal(name) => {
                    let text = media.literals.get(&name);
                    let text =
                        text.ok_or_else(|| failed(format!("there is no literal `{name}`")))?;
                    strip.push_text(text);
                }
            }
        }
        Ok(strip)
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
