//! Stacks of equal blocks: norms, attention with its rotary embedding, mlp.

use super::Resolver;
use crate::backend::{Activation, NormKind, Pairing};
use crate::descriptor::block::{
    Biases, MaskRule, MlpKind, Placement, Projection, RopeAxis, RopeScaling, Stack,
};
use crate::descriptor::slot::Count;
use crate::problem::Problem;

/// More layers than any model has; every layer's tensors are listed by name.
const MOST_LAYERS: usize = 4096;

/// A norm.
#[derive(Debug, Clone, PartialEq)]
pub struct NormPlan {
    /// The kind.
    pub kind: NormKind,
    /// Added to the variance or mean square.
    pub eps: f32,
    /// Whether there is a bias tensor.
    pub bias: bool,
    /// The tensor's name below its component.
    pub name: String,
}

/// A rotary embedding.
#[derive(Debug, Clone, PartialEq)]
pub struct RopePlan {
    /// What each axis counts.
    pub axes: Vec<RopeAxis>,
    /// Rotated elements per head.
    pub dim: usize,
    /// The base.
    pub theta: f64,
    /// All frequencies are divided by this.
    pub divide: f64,
    /// Which elements form a pair.
    pub pairing: Pairing,
    /// Frequencies per axis where the axes share one ladder; empty where each has its own.
    pub sections: Vec<usize>,
}

/// Self-attention.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionPlan {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// Biases of query, key, value, output.
    pub bias: [bool; 4],
    /// Whether query, key and value are one tensor.
    pub fused: bool,
    /// The rotary embedding.
    pub rope: Option<RopePlan>,
    /// Who sees whom.
    pub mask: MaskRule,
    /// The longest sequence in which every row sees all rows before it; `None`: any.
    pub window: Option<usize>,
}

/// The feed-forward half.
#[derive(Debug, Clone, PartialEq)]
pub struct MlpPlan {
    /// The shape.
    pub kind: MlpKind,
    /// Inner width.
    pub hidden: usize,
    /// The activation.
    pub act: Activation,
    /// Whether its projections have biases.
    pub bias: bool,
}

/// A stack of equal blocks.
#[derive(Debug, Clone, PartialEq)]
pub struct StackPlan {
    /// Blocks.
    pub layers: usize,
    /// Elements per row.
    pub width: usize,
    /// Where the norms stand.
    pub placement: Placement,
    /// Both norms; the name is unused.
    pub norm: NormPlan,
    /// The attention.
    pub attention: AttentionPlan,
    /// The feed-forward half.
    pub mlp: MlpPlan,
    /// Tensor names by slot, without the block's prefix.
    pub names: indexmap::IndexMap<String, String>,
    /// The key path of the stack in the family file.
    pub key: String,
}

impl StackPlan {
    /// The name of a slot's tensor in block `index`.
    pub fn name(&self, index: usize, slot: &str) -> Option<String> {
        let block = self.names.get("block")?.replace("{i}", &index.to_string());
        Some(format!("{block}.{}", self.names.get(slot)?))
    }
}

impl Resolver<'_> {
    pub(super) fn rope(&mut self, name: &str, head_dim: usize) -> Option<RopePlan> {
        let rope = self.descriptor.family.rope.get(name)?;
        let key = format!("rope.{name}");
        let axes = rope.axes.clone().unwrap_or_else(|| vec![RopeAxis::Time]);
        let dim = match &rope.dim {
            Some(dim) => self.size(&format!("{key}.dim"), "the rotated size", dim, 2)?,
            None => head_dim,
        };
        let theta = self.values.number(&rope.theta);
        let theta = self.keep(&format!("{key}.theta"), theta)?;
        let scaling = match &rope.scaling {
            Some(choice) => {
                let scaling = self.values.choice(choice);
                self.keep(&format!("{key}.scaling"), scaling)?
            }
            None => RopeScaling::None,
        };
        let divide = match (scaling, &rope.factor) {
            (RopeScaling::None, _) => 1.0,
            (RopeScaling::Linear, Some(factor)) => {
                let factor = self.values.number(factor);
                self.keep(&format!("{key}.factor"), factor)?
            }
            (RopeScaling::Linear, None) => {
                let missing = Problem::error("key-missing", "linear scaling needs a `factor`");
                return self.keep(&format!("{key}.factor"), Err(missing));
            }
        };
        let pairing = self.values.choice(&rope.pairing);
        let pairing = self.keep(&format!("{key}.pairing"), pairing)?;
        let sections = match &rope.sections {
            Some(name) => {
                let sections = self.values.integers(&Count::Expression(name.clone()));
                let sections = self.keep(&format!("{key}.sections"), sections)?;
                let sizes: Vec<usize> =
                    sections.iter().filter_map(|size| usize::try_from(*size).ok()).collect();
                let fits = sizes.len() == sections.len()
                    && sizes.len() == axes.len()
                    && sizes.iter().sum::<usize>() * 2 == dim;
                if !fits {
                    let problem = Problem::error(
                        "rope-sections",
                        format!("the sections of `{name}` do not fill half of a head"),
                    )
                    .expected_found(
                        format!("{} counts that add up to {}", axes.len(), dim / 2),
                        format!("{sections:?}"),
                    );
                    return self.keep(&format!("{key}.sections"), Err(problem));
                }
                sizes
            }
            None => Vec::new(),
        };
        let even = 2 * if sections.is_empty() { axes.len() } else { 1 };
        if !dim.is_multiple_of(even) || dim > head_dim || theta <= 0.0 || divide <= 0.0 {
            let problem = Problem::error(
                "rope-size",
                format!("rope `{name}` does not fit heads of {head_dim} elements"),
            )
            .expected_found(
                format!("a multiple of {even}, at most {head_dim}, positive theta and factor"),
                format!("{dim} elements, theta {theta}, factor {divide}"),
            );
            return self.keep(&key, Err(problem));
        }
        Some(RopePlan { axes, dim, theta, divide, pairing, sections })
    }

    pub(super) fn stack(&mut self, name: &str) -> Option<StackPlan> {
        let stack: &Stack = self.descriptor.family.stacks.get(name)?;
        let key = format!("stacks.{name}");
        let layers = self.size(&format!("{key}.layers"), "the number of layers", &stack.layers, 1);
        if let Some(layers) = layers
            && layers > MOST_LAYERS
        {
            let problem =
                Problem::error("value-bound", format!("the number of layers is {layers}"))
                    .expected_found(format!("at most {MOST_LAYERS}"), layers.to_string());
            return self.keep(&format!("{key}.layers"), Err(problem));
        }
        let width = self.size(&format!("{key}.width"), "the width", &stack.width, 1);
        let placement = self.values.choice(&stack.placement);
        let placement = self.keep(&format!("{key}.placement"), placement);
        let norm = self.norm(&format!("{key}.norm"), &stack.norm);
        let attention = width.and_then(|width| self.attention(&key, stack, width));
        let mlp_key = format!("{key}.mlp");
        let kind = self.values.choice(&stack.mlp.kind);
        let kind = self.keep(&format!("{mlp_key}.kind"), kind);
        let hidden =
            self.size(&format!("{mlp_key}.hidden"), "the mlp's width", &stack.mlp.hidden, 1);
        let act = self.values.choice(&stack.mlp.act);
        let act = self.keep(&format!("{mlp_key}.act"), act);
        let bias = self.flag(&format!("{mlp_key}.bias"), &stack.mlp.bias);
        let mlp = MlpPlan { kind: kind?, hidden: hidden?, act: act?, bias: bias? };
        let attention = attention?;
        let mut slots = vec!["block", "norm1", "norm2", "o", "up", "down"];
        slots.extend(if attention.fused { &["qkv"][..] } else { &["q", "k", "v"][..] });
        if mlp.kind == MlpKind::Gated {
            slots.push("gate");
        }
        for slot in slots {
            if !stack.names.contains_key(slot) {
                let problem =
                    Problem::error("key-missing", format!("tensor slot `{slot}` has no name"))
                        .expected_found(format!("`{slot}`"), "nothing");
                self.keep::<()>(&format!("{key}.names.{slot}"), Err(problem));
            }
        }
        Some(StackPlan {
            layers: layers?,
            width: width?,
            placement: placement?,
            norm: norm?,
            attention,
            mlp,
            names: stack.names.clone(),
            key,
        })
    }

    pub(super) fn attention(
        &mut self,
        key: &str,
        stack: &Stack,
        width: usize,
    ) -> Option<AttentionPlan> {
        let attention = &stack.attention;
        let key = format!("{key}.attention");
        let heads =
            self.size(&format!("{key}.heads"), "the number of heads", &attention.heads, 1)?;
        let kv_heads = match &attention.kv_heads {
            Some(count) => {
                self.size(&format!("{key}.kv_heads"), "the number of key heads", count, 1)?
            }
            None => heads,
        };
        let head_dim = match &attention.head_dim {
            Some(count) => self.size(&format!("{key}.head_dim"), "the size of a head", count, 1)?,
            None if width.is_multiple_of(heads) => width / heads,
            None => {
                let problem = Problem::error(
                    "head-size",
                    format!("{heads} heads do not divide a width of {width}"),
                );
                return self.keep(&format!("{key}.heads"), Err(problem));
            }
        };
        if heads % kv_heads != 0 {
            let problem = Problem::error(
                "head-groups",
                format!("{kv_heads} key heads do not divide {heads} query heads"),
            );
            return self.keep(&format!("{key}.kv_heads"), Err(problem));
        }
        let scale = match &attention.scale {
            Some(number) => {
                let scale = self.values.number(number);
                self.keep(&format!("{key}.scale"), scale)? as f32
            }
            None => (1.0 / (head_dim as f64).sqrt()) as f32,
        };
        let bias = match &attention.bias {
            Biases::All(flag) => [self.flag(&format!("{key}.bias"), flag)?; 4],
            Biases::Some(projections) => {
                [Projection::Q, Projection::K, Projection::V, Projection::O]
                    .map(|one| projections.contains(&one))
            }
        };
        let mask = self.values.choice(&attention.mask);
        let mask = self.keep(&format!("{key}.mask"), mask)?;
        let window = match &attention.window {
            Some(count) => match self.size(&format!("{key}.window"), "the window", count, 0)? {
                0 => None,
                window => Some(window),
            },
            None => None,
        };
        let rope = match &attention.rope {
            Some(name) => Some(self.rope(name, head_dim)?),
            None => None,
        };
        Some(AttentionPlan {
            heads,
            kv_heads,
            head_dim,
            scale,
            bias,
            fused: attention.fused,
            rope,
            mask,
            window,
        })
    }
}
