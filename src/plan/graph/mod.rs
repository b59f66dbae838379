//! The computation of one family on one checkpoint, every size known: what `graph` runs and what `check` expects of the
//! weights.

mod attention;
mod connector;
mod decoder;
mod encoder;
mod inventory;
mod mlp;
mod norm;
mod rope;
mod stack;

use super::values::Values;
use crate::descriptor::block::Norm;
use crate::descriptor::family::{Family, Positions, Root};
use crate::descriptor::slot::{Choice, Count, Flag, Member, Number};
use crate::descriptor::tower::{Connector, Features, Splice, Tower};
use crate::descriptor::{Descriptor, Node};
use crate::problem::{Place, Problem, Problems};

pub use self::attention::{AttentionPlan, HeadNormPlan};
pub use self::connector::{DeepStackPlan, OpPlan};
pub use self::decoder::{DecoderPlan, PartRowsPlan, PositionRowsPlan};
pub use self::encoder::{
    ClassPlan, EncoderPlan, FrameConvPlan, PatchPlan, PositionPlan, TilesPlan,
};
pub use self::inventory::InventoryPlan;
pub use self::mlp::{ExpertsPlan, MlpPlan};
pub use self::norm::NormPlan;
pub use self::rope::{RopePlan, ScalingPlan};
pub use self::stack::{BlockPlan, LayerInputsPlan, StackPlan};

/// The whole computation.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphPlan {
    /// The image encoder.
    pub image: Option<EncoderPlan>,
    /// The audio encoder.
    pub audio: Option<EncoderPlan>,
    /// The decoder.
    pub decoder: DecoderPlan,
    /// How positions are counted.
    pub positions: PositionRule,
    /// Modules that are not interpreted.
    pub inventory: Vec<InventoryPlan>,
    /// Where tensors may be found.
    pub roots: Vec<Root>,
    /// Patterns of stored tensors that nothing reads.
    pub ignore: Vec<String>,
    /// The form of the weights, as an index of the descriptor's layouts; `None` is the family as it is written.
    pub layout: Option<usize>,
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
    ///
    /// # Errors
    /// Every config value that is missing or does not fit, with the key that reads it.
    pub fn resolve(descriptor: &Descriptor, values: &Values) -> Result<Self, Problems> {
        Self::resolve_one(&descriptor.family, descriptor.source(), None, values)
    }

    /// The computation in every form in which weights are stored, the family's own first.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn resolve_all(descriptor: &Descriptor, values: &Values) -> Result<Vec<Self>, Problems> {
        let mut plans = vec![Self::resolve(descriptor, values)?];
        for (index, layout) in descriptor.layouts.iter().enumerate() {
            plans.push(Self::resolve_one(&layout.family, layout.source(), Some(index), values)?);
        }
        Ok(plans)
    }

    fn resolve_one(
        family: &Family,
        source: &Node,
        layout: Option<usize>,
        values: &Values,
    ) -> Result<Self, Problems> {
        let mut resolver = Resolver { family, source, values, problems: Problems::default() };
        // attention over media reads what a connector makes, which is as wide as the decoder
        let connectors = family.image.iter().filter_map(|media| media.connector.as_ref());
        let connectors =
            connectors.chain(family.audio.iter().filter_map(|media| media.connector.as_ref()));
        let crosses = connectors
            .map(|connector| values.choice(&connector.splice))
            .any(|splice| splice == Ok(Splice::Cross));
        let decoder = resolver.decoder(crosses);
        let hidden = decoder.as_ref().map_or(0, |decoder| decoder.stack.width);
        let mut encoder = |modality, parts: Option<(&Tower, &Features, &Connector)>| match parts {
            Some((tower, features, connector)) => {
                resolver.encoder(modality, tower, features, connector, hidden).map(Some)
            }
            // no such modality, or its encoder is described by an inventory
            None => Some(None),
        };
        let image = family.image.as_ref().and_then(|media| {
            Some((media.tower.as_ref()?, media.features.as_ref()?, media.connector.as_ref()?))
        });
        let image = encoder("image", image);
        let audio = family.audio.as_ref().and_then(|media| {
            Some((media.tower.as_ref()?, media.features.as_ref()?, media.connector.as_ref()?))
        });
        let audio = encoder("audio", audio);
        let inventory = resolver.inventory();
        let positions = match &family.positions {
            Positions::Sequential { start } => PositionRule::Sequential { start: *start },
            Positions::Mrope { advance } => PositionRule::Mrope { advance: advance.clone() },
        };
        match (image, audio, decoder) {
            (Some(image), Some(audio), Some(decoder)) if resolver.problems.is_empty() => Ok(Self {
                image,
                audio,
                decoder,
                positions,
                inventory,
                roots: family.tensors.roots.clone(),
                ignore: family.tensors.ignore.clone(),
                layout,
            }),
            _ => Err(resolver.problems),
        }
    }
}

struct Resolver<'a> {
    family: &'a Family,
    source: &'a Node,
    values: &'a Values,
    problems: Problems,
}

impl Resolver<'_> {
    fn keep<T>(&mut self, key: &str, result: Result<T, Problem>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(problem) => {
                let problem = if problem.place == Place::default() {
                    problem.at(self.source.place(key))
                } else {
                    problem
                };
                self.problems.push_new(problem);
                None
            }
        }
    }

    fn size(&mut self, key: &str, what: &str, count: &Count, least: i64) -> Option<usize> {
        let size = self.values.size(what, count, least).and_then(|size| {
            // shapes are multiplied with each other; beyond this no checkpoint has a tensor
            if size > 1 << 31 {
                return Err(Problem::error("value-bound", format!("{what} is {size}, too large")));
            }
            Ok(size)
        });
        self.keep(key, size)
    }

    fn size_or(
        &mut self,
        key: &str,
        what: &str,
        count: Option<&Count>,
        least: i64,
        or: usize,
    ) -> Option<usize> {
        match count {
            Some(count) => self.size(key, what, count, least),
            None => Some(or),
        }
    }

    /// A product of sizes, refused where it overflows.
    fn product(&mut self, key: &str, what: &str, sizes: &[usize]) -> Option<usize> {
        let product = sizes.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
        let product =
            product.ok_or_else(|| Problem::error("value-bound", format!("the {what} overflows")));
        self.keep(key, product)
    }

    fn flag(&mut self, key: &str, flag: &Flag) -> Option<bool> {
        let flag = self.values.flag(flag);
        self.keep(key, flag)
    }

    fn flag_or(&mut self, key: &str, flag: Option<&Flag>, or: bool) -> Option<bool> {
        match flag {
            Some(flag) => self.flag(key, flag),
            None => Some(or),
        }
    }

    fn choice_or<M: Member>(&mut self, key: &str, choice: Option<&Choice<M>>, or: M) -> Option<M> {
        match choice {
            Some(choice) => {
                let member = self.values.choice(choice);
                self.keep(key, member)
            }
            None => Some(or),
        }
    }

    /// `None` where it is left out, or where it is wrong and a problem is kept.
    fn optional_number(&mut self, key: &str, number: Option<&Number>) -> Option<f32> {
        let number = self.values.number(number?);
        self.keep(key, number).map(|number| number as f32)
    }

    /// `None` where it is left out, or where it is wrong and a problem is kept.
    fn optional_norm(&mut self, key: &str, norm: Option<&Norm>) -> Option<NormPlan> {
        self.norm(key, norm?)
    }

    /// A tensor's full name below its component: `name` with `.weight` behind it, or `parameter` as it is.
    fn stored(
        &mut self,
        key: &str,
        name: Option<&String>,
        parameter: Option<&String>,
    ) -> Option<String> {
        match (name, parameter) {
            // a part may give the one and the family the other
            (_, Some(parameter)) => Some(parameter.clone()),
            (Some(name), None) => Some(format!("{name}.weight")),
            (None, None) => {
                let problem = Problem::error("key-missing", "a tensor has no name")
                    .expected_found("`name` or `parameter`", "neither");
                self.keep(&format!("{key}.name"), Err(problem))
            }
        }
    }
}
