//! The computation of one family on one checkpoint, every size known: what `graph` runs and what `check` expects of the
//! weights.

mod decoder;
mod encoder;
mod stack;

use super::values::Values;
use crate::backend::NormKind;
use crate::descriptor::Descriptor;
use crate::descriptor::block::Norm;
use crate::descriptor::family::Positions;
use crate::descriptor::slot::{Count, Flag};
use crate::problem::{Place, Problem, Problems};

pub use self::decoder::DecoderPlan;
pub use self::encoder::{EncoderPlan, OpPlan, PatchPlan};
pub use self::stack::{AttentionPlan, MlpPlan, NormPlan, RopePlan, StackPlan};

/// The whole computation.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphPlan {
    /// The image encoder.
    pub image: Option<EncoderPlan>,
    /// The decoder.
    pub decoder: DecoderPlan,
    /// How positions are counted.
    pub positions: PositionRule,
}

/// How positions are counted.
#[derive(Debug, Clone, PartialEq)]
pub enum PositionRule {
    /// One axis.
    Sequential {
        /// The first position.
        start: i64,
    },
    /// Three axes.
    Mrope {
        /// How far an item moves the cursor, over its layout.
        advance: Count,
    },
}

impl PositionRule {
    /// How many axes positions have.
    pub fn axes(&self) -> usize {
        match self {
            Self::Sequential { .. } => 1,
            Self::Mrope { .. } => 3,
        }
    }
}

impl GraphPlan {
    /// Resolves every size of the computation; all problems are reported at once.
    pub fn resolve(descriptor: &Descriptor, values: &Values) -> Result<Self, Problems> {
        let mut resolver = Resolver { descriptor, values, problems: Problems::default() };
        let family = &descriptor.family;
        let decoder = resolver.decoder();
        let image = match &family.image {
            Some(media) => resolver
                .encoder(media, decoder.as_ref().map_or(0, |decoder| decoder.stack.width))
                .map(Some),
            None => Some(None),
        };
        let positions = match &family.positions {
            Positions::Sequential { start } => PositionRule::Sequential { start: *start },
            Positions::Mrope { advance } => PositionRule::Mrope { advance: advance.clone() },
        };
        match (image, decoder) {
            (Some(image), Some(decoder)) if resolver.problems.is_empty() => {
                Ok(Self { image, decoder, positions })
            }
            _ => Err(resolver.problems),
        }
    }
}

struct Resolver<'a> {
    descriptor: &'a Descriptor,
    values: &'a Values,
    problems: Problems,
}

impl Resolver<'_> {
    pub(super) fn keep<T>(&mut self, key: &str, result: Result<T, Problem>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(problem) => {
                let problem = if problem.place == Place::default() {
                    problem.at(self.descriptor.place(key))
                } else {
                    problem
                };
                self.problems.push_new(problem);
                None
            }
        }
    }

    pub(super) fn size(
        &mut self,
        key: &str,
        what: &str,
        count: &Count,
        least: i64,
    ) -> Option<usize> {
        let size = self.values.size(what, count, least).and_then(|size| {
            // shapes are multiplied with each other; beyond this no checkpoint has a tensor
            if size > 1 << 31 {
                return Err(Problem::error("value-bound", format!("{what} is {size}, too large")));
            }
            Ok(size)
        });
        self.keep(key, size)
    }

    pub(super) fn flag(&mut self, key: &str, flag: &Flag) -> Option<bool> {
        let flag = self.values.flag(flag);
        self.keep(key, flag)
    }

    pub(super) fn norm(&mut self, key: &str, norm: &Norm) -> Option<NormPlan> {
        let kind = self.values.choice(&norm.kind);
        let kind = self.keep(&format!("{key}.kind"), kind)?;
        let eps = self.values.number(&norm.eps);
        let eps = self.keep(&format!("{key}.eps"), eps)? as f32;
        let bias = match &norm.bias {
            Some(flag) => self.flag(&format!("{key}.bias"), flag)?,
            None => kind == NormKind::Layer,
        };
        Some(NormPlan { kind, eps, bias, name: norm.name.clone().unwrap_or_default() })
    }
}
