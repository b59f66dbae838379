//! A family bound to one checkpoint: every integer known.

pub mod graph;
mod lookup;
mod media;
mod policy;
mod sound;
pub mod tensors;
pub mod values;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::checkpoint::Checkpoint;
use crate::checkpoint::tokenizer::TokenizerFiles;
use crate::descriptor::expression::Expression;
use crate::descriptor::{Descriptor, Pick, RawDescriptor};
use crate::error::{Error, ErrorKind, Result};
use crate::media::Normaliser;
use crate::problem::{Problem, Problems};

pub use self::media::{
    Cost, Frame, Framing, Input, MediaPlan, Shape, concerned, requirement_failed,
};
pub use self::values::{Overrides, Resolved, Values, parse_override};

/// A kind of media.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Modality {
    /// Still pictures.
    Image,
    /// Sound.
    Audio,
}

impl Modality {
    /// All of them, in the order in which they are printed.
    pub const ALL: [Self; 2] = [Self::Image, Self::Audio];

    /// The word in family files and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Audio => "audio",
        }
    }
}

/// A family on a checkpoint. The budget of each modality stands on its own: what is not understood of one thing does not
/// hurt another.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The typed family, parts picked by this checkpoint.
    pub descriptor: Descriptor,
    /// Every config value with its source, or why there is none.
    pub values: Values,
    /// What pictures cost; `None` where the family takes none.
    pub image: Option<Result<MediaPlan, Problems>>,
    /// What clips cost; `None` where the family takes none.
    pub audio: Option<Result<MediaPlan, Problems>>,
    /// The checkpoint's folder.
    pub folder: PathBuf,
    pub(crate) framing: [OnceLock<Framing>; 2],
    tokenizer: OnceLock<Option<Arc<TokenizerFiles>>>,
}

impl Plan {
    /// Binds `descriptor` to `checkpoint`.
    ///
    /// # Errors
    /// Where a part cannot be picked, the family file has problems, or an override names no value. A missing or
    /// contradictory config value is no error here: it is one of whatever reads it.
    pub fn resolve(
        descriptor: &impl AsRef<RawDescriptor>,
        checkpoint: &Checkpoint,
    ) -> Result<Self> {
        Self::resolve_with(descriptor, checkpoint, &Overrides::new())
    }

    /// The same with some preprocessing values set by the caller.
    pub fn resolve_with(
        descriptor: &impl AsRef<RawDescriptor>,
        checkpoint: &Checkpoint,
        overrides: &Overrides,
    ) -> Result<Self> {
        let raw = descriptor.as_ref();
        let mut parts = Vec::new();
        let mut problems = Problems::default();
        for pick in raw.picks() {
            match choose(pick, checkpoint) {
                Ok(part) => parts.push(part),
                Err(problem) => {
                    problems.push(problem.at(raw.place(&format!("{}.use", pick.mount))));
                }
            }
        }
        if !problems.is_empty() {
            let first =
                problems.iter().next().map(|problem| problem.message.clone()).unwrap_or_default();
            return Err(Error::new(ErrorKind::NoNumber, first).with_problems(problems));
        }
        let descriptor = raw.describe(&parts)?;
        let values = Values::resolve(&descriptor, checkpoint.files(), overrides)?;
        let image = MediaPlan::resolve(&descriptor, Modality::Image, &values);
        let audio = MediaPlan::resolve(&descriptor, Modality::Audio, &values);
        Ok(Self {
            descriptor,
            values,
            image,
            audio,
            folder: checkpoint.folder().to_owned(),
            framing: [OnceLock::new(), OnceLock::new()],
            tokenizer: OnceLock::new(),
        })
    }

    /// The requirements over config values that do not hold. Those on media were held when their budget was resolved.
    pub fn unmet_requirements(&self) -> Problems {
        let mut problems = Problems::default();
        for (sentence, text) in &self.descriptor.family.require {
            let Ok(expression) = Expression::parse(text) else { continue };
            if concerned(&self.descriptor, &expression).is_some() {
                continue;
            }
            match self.values.condition(text, &BTreeMap::new()) {
                Ok(true) => {}
                Ok(false) => {
                    let place = self.descriptor.place(&format!("require.{sentence}"));
                    problems
                        .push_new(requirement_failed(sentence, text, &self.values, None).at(place));
                }
                Err(problem) => problems.push_new(problem),
            }
        }
        problems
    }

    /// The table that turns bytes of a picture into values, and the mean colour per channel.
    ///
    /// # Errors
    /// The problem of a value that is missing, of another type, or that makes values which are not finite.
    pub fn normaliser(&self) -> Result<(Normaliser, [f64; 3]), Problem> {
        let Some(settings) = self.descriptor.family.image.as_ref().map(|image| &image.pixels)
        else {
            return Err(Problem::error("key-missing", "this family takes no images"));
        };
        let values = &self.values;
        let channels = |name: &str| {
            let numbers = values.numbers(name, 3)?;
            Ok::<_, Problem>([numbers[0], numbers[1], numbers[2]]) // `numbers` has checked the length
        };
        let mean = channels(&settings.mean)?;
        let rescale = values.flag(&settings.rescale)?;
        let factor = values.number(&settings.factor)?;
        let normalise = if values.flag(&settings.normalise)? {
            Some((mean, channels(&settings.std)?))
        } else {
            None
        };
        let normaliser = Normaliser::new(rescale.then_some(factor), normalise)
            .map_err(|error| Problem::error("pixel-settings", error.message().to_owned()))?;
        Ok((normaliser, mean))
    }

    /// What items of a modality cost; `None` where the family takes none.
    pub fn media(&self, modality: Modality) -> Option<&Result<MediaPlan, Problems>> {
        match modality {
            Modality::Image => self.image.as_ref(),
            Modality::Audio => self.audio.as_ref(),
        }
    }

    /// The small files of the checkpoint's tokenizer, read once; `None` if they cannot be.
    pub fn tokenizer_files(&self) -> Option<&TokenizerFiles> {
        self.tokenizer
            .get_or_init(|| TokenizerFiles::read(&self.folder).ok().map(Arc::new))
            .as_deref()
    }

    /// The family's name.
    pub fn family(&self) -> &str {
        &self.descriptor.name
    }
}

fn choose(pick: &Pick, checkpoint: &Checkpoint) -> Result<String, Problem> {
    let Some(path) = &pick.path else {
        return pick
            .parts
            .values()
            .next()
            .cloned()
            .ok_or_else(|| Problem::error("key-missing", "no part is named"));
    };
    let config = checkpoint.config();
    match config.get(path) {
        Some(value) => {
            let word = value.as_str().unwrap_or_default();
            pick.parts.get(word).cloned().ok_or_else(|| {
                let known: Vec<_> = pick.parts.keys().map(String::as_str).collect();
                let found = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                Problem::error(
                    "config-variant",
                    format!("`{}` is `{found}`, which is not understood", config.label(path)),
                )
                .expected_found(format!("one of `{}`", known.join("`, `")), format!("`{found}`"))
            })
        }
        None => pick.otherwise.clone().ok_or_else(|| {
            Problem::error("config-missing", format!("nothing states `{}`", config.label(path)))
        }),
    }
}
