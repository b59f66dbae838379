//! The most that one item can cost, and what given items cost: from config files alone.

mod guard;

pub use self::guard::{CapacityTooSmall, ensure_image_context_capacity, image_context_floor};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{ImageSize, Layout};
use crate::plan::{Framing, Input, MediaPlan, Modality, Plan};
use crate::problem::{Problem, Problems};
use crate::prompt::{framing, literal_tokens};

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
    /// An image that reaches the expansion.
    pub witness: ImageSize,
    /// The most encoder rows of one item.
    pub embeds: u64,
    /// An image that reaches the embeds.
    pub embeds_witness: ImageSize,
    /// The formula of the family file.
    pub formula: String,
    /// What it was computed from.
    pub inputs: Vec<Input>,
}

/// What one given item costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// Encoder rows.
    pub embeds: u64,
    /// Tokens in place of the marker.
    pub expansion: u64,
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

/// The token lengths of a plan's literals.
fn literals(plan: &Plan, media: &MediaPlan) -> (impl Fn(&str) -> u64, bool) {
    let used = media.strip.literals();
    let lengths: Vec<(String, u64, bool)> = used
        .into_iter()
        .map(|name| {
            let text = media.literals.get(&name).map_or("", String::as_str);
            let (tokens, exact) = literal_tokens(&plan.folder, text);
            (name, tokens, exact)
        })
        .collect();
    let exact = lengths.iter().all(|(.., exact)| *exact);
    let length = move |wanted: &str| {
        lengths.iter().find(|(name, ..)| name == wanted).map_or(0, |(_, tokens, _)| *tokens)
    };
    (length, exact)
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
    fn media(&self, modality: Modality) -> Result<&MediaPlan> {
        match (modality, &self.image) {
            (Modality::Image, Some(Ok(media))) => Ok(media),
            (Modality::Image, Some(Err(problems))) => Err(no_number(problems.clone())),
            _ => {
                let message = format!("family `{}` takes no {}", self.family(), modality.name());
                Err(Error::new(ErrorKind::NoNumber, message))
            }
        }
    }

    /// The modalities that the family takes.
    pub fn modalities(&self) -> Vec<Modality> {
        self.image.iter().map(|_| Modality::Image).collect()
    }

    /// Tokens around one marker.
    pub fn framing(&self, media: &MediaPlan) -> Framing {
        *self.framing.get_or_init(|| framing(&self.descriptor, media, &self.folder))
    }

    /// The floor of one modality.
    ///
    /// # Errors
    /// [`ErrorKind::NoNumber`] with the reason if a value that it depends on is missing, contradictory or not understood.
    pub fn floor(&self, modality: Modality) -> Result<Floor> {
        let media = self.media(modality)?;
        let (literal, literals_exact) = literals(self, media);
        let failed = |error: crate::descriptor::expression::ExpressionError| {
            let problem = Problem::error("expression", error.message)
                .at(self.descriptor.place("floor.image"));
            no_number(problem.into())
        };
        let refused =
            || Error::new(ErrorKind::NoNumber, "every picture is refused by these settings");
        let expansion = media.largest_expansion(&literal).map_err(failed)?.ok_or_else(refused)?;
        let embeds = media.largest_embeds().map_err(failed)?.ok_or_else(refused)?;
        let tokens =
            u64::try_from(expansion.value).ok().filter(|tokens| *tokens >= 1).ok_or_else(|| {
                let problem = Problem::error("value-bound", "the floor is not positive")
                    .at(self.descriptor.place("floor.image"))
                    .expected_found("at least 1", expansion.value.to_string());
                no_number(problem.into())
            })?;
        // two independent statements of one number: the formula, and the strip run forward
        let forward = media
            .cost(expansion.witness, &literal)
            .map_err(|message| Error::new(ErrorKind::NoNumber, message))?;
        if expansion.exact && forward.expansion != tokens {
            let problem = Problem::error(
                "strip-length",
                "the strip's length differs from the formula under `[floor]`",
            )
            .at(self.descriptor.place("floor.image"))
            .expected_found(
                format!("`{}` = {tokens}", media.formula.text()),
                format!(
                    "{} slots of `{}` for {}",
                    forward.expansion,
                    media.strip.text(),
                    expansion.witness
                ),
            );
            return Err(no_number(problem.into()));
        }
        let framing = self.framing(media);
        let floor = tokens.checked_add(framing.tokens).ok_or_else(refused)?;
        Ok(Floor {
            modality,
            floor,
            expansion: tokens,
            framing: framing.tokens,
            exact: expansion.exact && embeds.exact && literals_exact,
            framing_exact: framing.exact,
            witness: expansion.witness,
            embeds: u64::try_from(embeds.value).unwrap_or(0),
            embeds_witness: embeds.witness,
            formula: media.formula.text().to_owned(),
            inputs: media.inputs.clone(),
        })
    }

    /// What an image of this size costs.
    ///
    /// # Errors
    /// [`ErrorKind::NoNumber`] as for [`Plan::floor`]; [`ErrorKind::Media`] if the reference refuses such an image.
    pub fn count(&self, size: &ImageSize) -> Result<Count> {
        let size = *size;
        let media = self.media(Modality::Image)?;
        let (literal, _) = literals(self, media);
        let cost = media.cost(size, literal).map_err(|message| {
            Error::new(ErrorKind::Media, format!("a picture of {size} is refused: {message}"))
        })?;
        let framing = self.framing(media);
        Ok(Count {
            embeds: cost.embeds,
            expansion: cost.expansion,
            framing: framing.tokens,
            layout: cost.layout,
        })
    }
}
