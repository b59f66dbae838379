//! The computation of one family on one checkpoint, every size known: what `graph` runs and what `check` expects of the
//! weights.

use super::values::Values;
use crate::backend::{Activation, NormKind, Pairing};
use crate::descriptor::Descriptor;
use crate::descriptor::block::{
    Biases, MaskRule, MlpKind, Norm, Placement, Projection, RopeAxis, RopeScaling, Stack,
};
use crate::descriptor::family::Positions;
use crate::descriptor::image::{ConnectorOp, Media, Splice};
use crate::descriptor::slot::{Count, Flag};
use crate::problem::{Place, Problem, Problems};

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

/// A patch embedding.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchPlan {
    /// Pixels per side.
    pub size: usize,
    /// Depth of the kernel; `None` if it has no such axis.
    pub frames: Option<usize>,
    /// Patches per side of the blocks that they are emitted in; 1 for raster order.
    pub block: usize,
    /// Whether there is a bias.
    pub bias: bool,
    /// The tensor's name.
    pub name: String,
}

/// An encoder with its connector.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderPlan {
    /// The patch embedding.
    pub patch: PatchPlan,
    /// The class row's tensor.
    pub class: Option<String>,
    /// Rows and name of the position table.
    pub position: Option<(usize, String)>,
    /// The norm before the first block.
    pub enter: Option<NormPlan>,
    /// The stack.
    pub stack: StackPlan,
    /// After how many blocks each tap is taken, in the order of concatenation.
    pub taps: Vec<usize>,
    /// Leading rows dropped.
    pub drop: usize,
    /// The connector's steps.
    pub ops: Vec<OpPlan>,
    /// How its rows enter the decoder.
    pub splice: Splice,
}

impl EncoderPlan {
    /// How many blocks are run: up to the deepest tap.
    pub fn depth(&self) -> usize {
        self.taps.iter().copied().max().unwrap_or(0)
    }

    /// Elements per row that the connector receives.
    pub fn feature_width(&self) -> usize {
        self.stack.width * self.taps.len()
    }
}

/// One step of a connector.
#[derive(Debug, Clone, PartialEq)]
pub enum OpPlan {
    /// A linear map.
    Linear {
        /// Elements per row before.
        input: usize,
        /// Elements per row after.
        out: usize,
        /// Whether there is a bias.
        bias: bool,
        /// The tensor's name.
        name: String,
    },
    /// An elementwise function.
    Activation(Activation),
    /// A norm.
    Norm {
        /// The norm.
        norm: NormPlan,
        /// Elements per row.
        width: usize,
    },
    /// Space to depth.
    Merge {
        /// Patches per side.
        side: usize,
    },
}

/// The language model.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderPlan {
    /// Rows of the embedding table.
    pub embed_rows: usize,
    /// The table's name.
    pub embed_name: String,
    /// Factor on token embeddings.
    pub embed_scale: f32,
    /// The stack.
    pub stack: StackPlan,
    /// The norm after the last block.
    pub leave: NormPlan,
    /// Rows of the output projection.
    pub head_rows: usize,
    /// Whether the embedding table stands in for a missing head.
    pub tied: bool,
}

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
    fn keep<T>(&mut self, key: &str, result: Result<T, Problem>) -> Option<T> {
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

    fn flag(&mut self, key: &str, flag: &Flag) -> Option<bool> {
        let flag = self.values.flag(flag);
        self.keep(key, flag)
    }

    fn norm(&mut self, key: &str, norm: &Norm) -> Option<NormPlan> {
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

    fn rope(&mut self, name: &str, head_dim: usize) -> Option<RopePlan> {
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

    fn stack(&mut self, name: &str) -> Option<StackPlan> {
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

    fn attention(&mut self, key: &str, stack: &Stack, width: usize) -> Option<AttentionPlan> {
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

    fn decoder(&mut self) -> Option<DecoderPlan> {
        let decoder = &self.descriptor.family.decoder;
        let stack = self.stack(&decoder.stack);
        let embed_rows =
            self.size("decoder.embed.rows", "the number of embedding rows", &decoder.embed.rows, 1);
        let embed_scale = match &decoder.embed.scale {
            Some(number) => {
                let scale = self.values.number(number);
                self.keep("decoder.embed.scale", scale).map(|scale| scale as f32)
            }
            None => Some(1.0),
        };
        let leave = self.norm("decoder.leave", &decoder.leave);
        let head_rows =
            self.size("decoder.head.rows", "the size of the vocabulary", &decoder.head.rows, 1);
        let tied = self.flag("decoder.head.tied", &decoder.head.tied);
        Some(DecoderPlan {
            embed_rows: embed_rows?,
            embed_name: decoder.embed.name.clone(),
            embed_scale: embed_scale?,
            stack: stack?,
            leave: leave?,
            head_rows: head_rows?,
            tied: tied?,
        })
    }

    fn encoder(&mut self, media: &Media, hidden: usize) -> Option<EncoderPlan> {
        let tower = &media.tower;
        let stack = self.stack(&tower.stack);
        let size = self.size("image.tower.patch.size", "the patch size", &tower.patch.size, 1);
        let frames = match &tower.patch.frames {
            Some(count) => {
                self.size("image.tower.patch.frames", "the number of frames", count, 1).map(Some)
            }
            None => Some(None),
        };
        let block = match &tower.patch.block {
            Some(count) => self.size("image.tower.patch.block", "the patch block", count, 1),
            None => Some(1),
        };
        let bias = self.flag("image.tower.patch.bias", &tower.patch.bias);
        let position = match &tower.position {
            Some(table) => self
                .size("image.tower.position.rows", "the number of positions", &table.rows, 1)
                .map(|rows| Some((rows, table.name.clone()))),
            None => Some(None),
        };
        let enter = match &tower.enter {
            Some(norm) => self.norm("image.tower.enter", norm).map(Some),
            None => Some(None),
        };
        let drop = match &media.features.drop {
            Some(count) => self.size("image.features.drop", "the number of dropped rows", count, 0),
            None => Some(0),
        };
        let splice = self.values.choice(&media.connector.splice);
        let splice = self.keep("image.connector.splice", splice);
        let stack = stack?;
        let taps = self.values.integers(&media.features.taps);
        let taps = self.keep("image.features.taps", taps)?;
        let mut depths = Vec::new();
        for tap in &taps {
            let states = stack.layers as i64 + 1;
            let index = if *tap < 0 { tap + states } else { *tap };
            if taps.is_empty() || index < 0 || index >= states {
                let problem = Problem::error(
                    "tap-range",
                    format!("there is no state {tap} of a tower of {} blocks", stack.layers),
                )
                .expected_found(format!("{} to {}", -states, states - 1), tap.to_string());
                return self.keep("image.features.taps", Err(problem));
            }
            depths.push(usize::try_from(index).unwrap_or(0));
        }
        let feature_width = stack.width * depths.len();
        let (ops, width) = self.connector(&media.connector.ops, feature_width)?;
        if hidden != 0 && width != hidden {
            let problem = Problem::error(
                "connector-width",
                "the connector's rows are not as wide as the decoder's",
            )
            .expected_found(format!("{hidden} elements"), format!("{width}"));
            return self.keep("image.connector.ops", Err(problem));
        }
        let patch = PatchPlan {
            size: size?,
            frames: frames?,
            block: block?,
            bias: bias?,
            name: tower.patch.name.clone(),
        };
        Some(EncoderPlan {
            patch,
            class: tower.class.as_ref().map(|class| class.parameter.clone()),
            position: position?,
            enter: enter?,
            stack,
            taps: depths,
            drop: drop?,
            ops,
            splice: splice?,
        })
    }

    fn connector(&mut self, ops: &[ConnectorOp], mut width: usize) -> Option<(Vec<OpPlan>, usize)> {
        let mut planned = Vec::new();
        for (index, op) in ops.iter().enumerate() {
            let key = format!("image.connector.ops.{index}");
            planned.push(match op {
                ConnectorOp::Linear { out, bias, name } => {
                    let out = self.size(&format!("{key}.out"), "the output width", out, 1)?;
                    let bias = self.flag(&format!("{key}.bias"), bias)?;
                    let input = std::mem::replace(&mut width, out);
                    OpPlan::Linear { input, out, bias, name: name.clone() }
                }
                ConnectorOp::Activation { kind } => {
                    let kind = self.values.choice(kind);
                    OpPlan::Activation(self.keep(&format!("{key}.kind"), kind)?)
                }
                ConnectorOp::Norm { kind, eps, name } => {
                    let kind = self.values.choice(kind);
                    let kind = self.keep(&format!("{key}.kind"), kind)?;
                    let eps = self.values.number(eps);
                    let eps = self.keep(&format!("{key}.eps"), eps)? as f32;
                    let bias = kind == NormKind::Layer;
                    OpPlan::Norm { norm: NormPlan { kind, eps, bias, name: name.clone() }, width }
                }
                ConnectorOp::Merge { side } => {
                    let side = self.size(&format!("{key}.side"), "the merged side", side, 1)?;
                    let wider = side.checked_mul(side).and_then(|cells| cells.checked_mul(width));
                    width = match wider {
                        Some(wider) => wider,
                        None => {
                            let problem =
                                Problem::error("value-bound", "the merged width overflows");
                            return self.keep(&key, Err(problem));
                        }
                    };
                    OpPlan::Merge { side }
                }
            });
        }
        Some((planned, width))
    }
}
