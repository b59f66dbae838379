//! The most that one item can cost, and what given items cost: from config files alone.

mod guard;

pub use self::guard::{CapacityTooSmall, ensure_image_context_capacity, image_context_floor};
use crate::checkpoint::tokenizer::TokenizerFiles;
use crate::descriptor::expression::ExpressionError;
use crate::descriptor::strip::{Slot, StripLength};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{Layout, Maximum, MediaSize};
use crate::plan::{Framing, Input, MediaPlan, Modality, Plan, Shape};
use crate::problem::{Problem, Problems};
use crate::prompt::{framing, literal_tokens, with_indices};

/// The largest expansion of one item over all admissible inputs, plus framing.
#[derive(Debug, Clone, PartialEq)]
pub struct Floor {
    /// The modality.
    pub modality: Modality,
    /// Expansion and framing together, in tokens.
    pub floor: u64,
    /// The largest expansion, in tokens.
    pub expansion: u64,
    /// Tokens that the chat template adds around the marker.
    pub framing: u64,
    /// Whether the witness has exactly this expansion, and so do the embeds; otherwise they are sound upper bounds.
    pub exact: bool,
    /// The same of the framing.
    pub framing_exact: bool,
    /// An item that reaches the expansion.
    pub witness: MediaSize,
    /// The most rows that one item splices in: of the encoder, and learned vectors between them.
    pub embeds: u64,
    /// An item that reaches the embeds; `None` where nothing is spliced in.
    pub embeds_witness: Option<MediaSize>,
    /// The most patches that the tower computes for one item, with an item that reaches them; `None` where it is the same
    /// for all.
    pub patches: Option<(u64, MediaSize)>,
    /// The most rows of one item that cross-attention sees; `None` where items do not enter that way.
    pub states: Option<u64>,
    /// The formula of the family file.
    pub formula: String,
    /// What it was computed from.
    pub inputs: Vec<Input>,
}

/// What one given item costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// Rows that are spliced in.
    pub embeds: u64,
    /// Tokens in place of the marker.
    pub expansion: u64,
    /// Patches of the tower, where they are not the same for every item.
    pub patches: Option<u64>,
    /// Rows that cross-attention sees, where the item enters that way.
    pub states: Option<u64>,
    /// Tokens around it.
    pub framing: u64,
    /// What the policy made of it.
    pub layout: Layout,
}

impl Count {
    /// Expansion and framing together.
    pub fn tokens(&self) -> u64 {
        self.expansion + self.framing
    }
}

/// The token length of one literal.
struct Literal {
    name: String,
    tokens: u64,
    exact: bool,
}

/// The token lengths of a plan's literals.
struct Literals(Vec<Literal>);

impl Literals {
    fn of(plan: &Plan, media: &MediaPlan) -> Self {
        let names = media.strip_literals();
        let text_of = |name: &String| media.literals.get(name).map_or("", String::as_str);
        let texts: Vec<_> = names.iter().map(text_of).collect();
        let lengths = if texts.is_empty() {
            Vec::new()
        } else {
            let rules = &plan.descriptor.family.prompt;
            literal_tokens(rules, plan.tokenizer_files(), &plan.folder, &texts)
        };
        let measured = names.into_iter().zip(lengths).map(|(name, (tokens, exact))| Literal {
            name,
            tokens,
            exact,
        });
        Self(measured.collect())
    }

    fn tokens(&self, name: &str) -> u64 {
        self.0.iter().find(|literal| literal.name == name).map_or(0, |literal| literal.tokens)
    }

    /// Whether the lengths of all literals that occur in a strip are exact.
    fn exact_in(&self, strip: &StripLength) -> bool {
        let occurs = |name: &str| strip.literals.get(name).is_some_and(|count| *count > 0);
        self.0.iter().all(|literal| literal.exact || !occurs(&literal.name))
    }
}

/// The numbered tokens of one strip that are no entries of the tokenizer's list: of the token `name`, or of all.
pub fn missing_numbers(
    plan: &Plan,
    media: &MediaPlan,
    shape: &Shape,
    layout: &Layout,
    files: &TokenizerFiles,
    name: Option<&str>,
) -> Vec<String> {
    let tokens = &plan.descriptor.family.tokens;
    let numbered = |token: &String| {
        name.is_none_or(|name| name == token)
            && tokens.get(token).is_some_and(|token| token.text.contains('{'))
    };
    let mut missing = Vec::new();
    if !shape.strip.tokens().iter().any(numbered) {
        return missing;
    }
    for slot in media.expand(shape, layout).unwrap_or_default() {
        if let Slot::Token(token, indices) = slot
            && numbered(&token)
        {
            let text = tokens.get(&token).map_or("", |token| &token.text);
            let text = with_indices(text, &indices);
            if files.token_id(&text).is_none() && !missing.contains(&text) {
                missing.push(text);
            }
        }
    }
    missing
}

fn no_number(problems: Problems) -> Error {
    let first = problems.iter().next().map_or_else(|| "nothing is known".to_owned(), reason);
    Error::new(ErrorKind::NoNumber, first).with_problems(problems)
}

/// A problem as one line.
pub fn reason(problem: &Problem) -> String {
    match (&problem.expected, &problem.found) {
        (Some(expected), Some(found)) => {
            format!("{} (expected {expected}, found {found})", problem.message)
        }
        _ => problem.message.clone(),
    }
}

impl Plan {
    fn budget(&self, modality: Modality) -> Result<&MediaPlan> {
        match self.media(modality) {
            Some(Ok(media)) => Ok(media),
            Some(Err(problems)) => Err(no_number(problems.clone())),
            None => {
                let message = format!("family `{}` takes no {}", self.family(), modality.name());
                Err(Error::new(ErrorKind::NoNumber, message))
            }
        }
    }

    /// Numbered tokens count one each, so a tokenizer must have them.
    fn numbers(&self, media: &MediaPlan, shape: &Shape, layout: &Layout) -> Result<()> {
        let numbered = |name: &String| {
            self.descriptor.family.tokens.get(name).is_some_and(|token| token.text.contains('{'))
        };
        if !shape.strip.tokens().iter().any(numbered) {
            return Ok(());
        }
        let Some(files) = self.tokenizer_files().filter(|files| files.lists_tokens()) else {
            return Ok(());
        };
        match missing_numbers(self, media, shape, layout, files, None).first() {
            Some(first) => Err(Error::new(
                ErrorKind::NoNumber,
                format!("the tokenizer has no token `{first}`, which a picture can need"),
            )),
            None => Ok(()),
        }
    }

    /// The modalities that the family takes.
    pub fn modalities(&self) -> Vec<Modality> {
        Modality::ALL.into_iter().filter(|modality| self.media(*modality).is_some()).collect()
    }

    /// Tokens around one marker.
    pub fn framing(&self, media: &MediaPlan) -> Framing {
        let [image, audio] = &self.framing;
        let known = match media.modality {
            Modality::Image => image,
            Modality::Audio => audio,
        };
        *known
            .get_or_init(|| framing(&self.descriptor, media, self.tokenizer_files(), &self.folder))
    }

    /// The floor of one modality.
    ///
    /// # Errors
    /// [`ErrorKind::NoNumber`] with the reason if a value that it depends on is missing, contradictory or not understood.
    pub fn floor(&self, modality: Modality) -> Result<Floor> {
        let media = self.budget(modality)?;
        let literals = Literals::of(self, media);
        let literal = |name: &str| literals.tokens(name);
        let key = format!("floor.{}", modality.name());
        let failed = |error: ExpressionError| {
            no_number(
                Problem::error("expression", error.message).at(self.descriptor.place(&key)).into(),
            )
        };
        let refused = || {
            let what = match modality {
                Modality::Image => "every picture is refused by these settings",
                Modality::Audio => "every clip is refused by these settings",
            };
            Error::new(ErrorKind::NoNumber, what)
        };
        let number = |maximum: &Maximum<MediaSize>| u64::try_from(maximum.value).unwrap_or(0);
        let alone = media.largest_expansion(literal).map_err(failed)?.ok_or_else(refused)?;
        let embeds = media.largest_embeds().map_err(failed)?.ok_or_else(refused)?;
        let patches = media.largest_patches().map_err(failed)?;
        let states = media.largest_states().map_err(failed)?;
        let tokens =
            u64::try_from(alone.value).ok().filter(|tokens| *tokens >= 1).ok_or_else(|| {
                let problem = Problem::error("value-bound", "the floor is not positive")
                    .at(self.descriptor.place(&key))
                    .expected_found("at least 1", alone.value.to_string());
                no_number(problem.into())
            })?;
        // two independent statements of one number: the formula, and the strip run forward
        let forward = media
            .cost(alone.witness, 1, literal)
            .map_err(|message| Error::new(ErrorKind::NoNumber, message))?;
        if alone.exact && forward.expansion != tokens {
            let problem = Problem::error(
                "strip-length",
                "the strip's length differs from the formula under `[floor]`",
            )
            .at(self.descriptor.place(&key))
            .expected_found(
                format!("`{}` = {tokens}", media.formula.text()),
                format!(
                    "{} slots of `{}` for {}",
                    forward.expansion,
                    media.shape.strip.text(),
                    alone.witness
                ),
            );
            return Err(no_number(problem.into()));
        }
        // an item among others must not cost more than the floor says
        let among = media.largest_among_several(literal).map_err(failed)?;
        let expansion = among.filter(|among| among.value > alone.value).unwrap_or(alone);
        let tokens = number(&expansion);
        let framing = self.framing(media);
        let floor = tokens.checked_add(framing.tokens).ok_or_else(refused)?;
        let shape = media.shape(if expansion == alone { 1 } else { 2 });
        let layout = shape.policy.layout(expansion.witness).ok();
        if let Some(layout) = &layout {
            self.numbers(media, shape, layout)?;
        }
        let strip = layout.and_then(|layout| media.strip_length(shape, &layout).ok());
        let literals_exact = strip.is_some_and(|strip| literals.exact_in(&strip));
        let exact = expansion.exact
            && embeds.exact
            && literals_exact
            && [&patches, &states].into_iter().flatten().all(|maximum| maximum.exact);
        Ok(Floor {
            modality,
            floor,
            expansion: tokens,
            framing: framing.tokens,
            exact,
            framing_exact: framing.exact,
            witness: expansion.witness,
            embeds: number(&embeds),
            embeds_witness: (embeds.value > 0).then_some(embeds.witness),
            patches: patches.map(|maximum| (number(&maximum), maximum.witness)),
            states: states.map(|maximum| number(&maximum)),
            formula: media.formula.text().to_owned(),
            inputs: media.inputs.clone(),
        })
    }

    /// What an item of this size costs, alone in its prompt.
    ///
    /// # Errors
    /// [`ErrorKind::NoNumber`] as for [`Plan::floor`]; [`ErrorKind::Media`] if the reference refuses such an image.
    pub fn count(&self, size: impl Into<MediaSize>) -> Result<Count> {
        self.count_among(size, 1)
    }

    /// What an item of this size costs in a prompt of `items` items of its modality.
    ///
    /// # Errors
    /// As [`Plan::count`].
    pub fn count_among(&self, size: impl Into<MediaSize>, items: usize) -> Result<Count> {
        let size = size.into();
        let (modality, what) = match size {
            MediaSize::Image(_) => (Modality::Image, "picture"),
            MediaSize::Samples(_) => (Modality::Audio, "clip"),
        };
        let media = self.budget(modality)?;
        let literals = Literals::of(self, media);
        let literal = |name: &str| literals.tokens(name);
        let cost = media.cost(size, items, literal).map_err(|message| {
            Error::new(ErrorKind::Media, format!("a {what} of {size} is refused: {message}"))
        })?;
        self.numbers(media, media.shape(items), &cost.layout)?;
        let framing = self.framing(media);
        Ok(Count {
            embeds: cost.embeds,
            expansion: cost.expansion,
            patches: cost.patches,
            states: cost.states,
            framing: framing.tokens,
            layout: cost.layout,
        })
    }
}
