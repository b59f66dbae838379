//! A connector's steps with every width known.

use super::{AttentionPlan, MlpPlan, NormPlan, Resolver, StackPlan};
use crate::backend::{Activation, NormKind};
use crate::descriptor::block::{KeySource, MaskRule, NormWeight, Stored, ValueSource};
use crate::descriptor::tower::{AttendNames, ConnectorOp, MergeOrder, MlpNames};
use crate::problem::Problem;

/// One step of a connector. Names are full below the connector's root, without `.weight` and `.bias` unless said.
#[derive(Debug, Clone, PartialEq)]
pub enum OpPlan {
    /// A linear map.
    Linear {
        /// Elements per row before.
        input: usize,
        /// Elements per row after.
        out: usize,
        /// The bias tensor's full name, if there is one.
        bias: Option<String>,
        /// The matrix's full name.
        weight: String,
        /// How it is stored.
        order: Stored,
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
        /// The order of the elements.
        order: MergeOrder,
    },
    /// The average of squares of patches.
    Pool {
        /// Patches per side.
        side: usize,
    },
    /// The average of consecutive rows.
    Average {
        /// Rows that become one.
        count: usize,
    },
    /// A convolution with stride = kernel.
    Conv {
        /// Patches per side.
        side: usize,
        /// Elements per row before.
        input: usize,
        /// Elements per row after.
        out: usize,
        /// Whether there is a bias.
        bias: bool,
        /// The tensor's name.
        name: String,
    },
    /// A gated linear unit.
    Glu {
        /// Whether the gate is the second half.
        second: bool,
        /// The function.
        act: Activation,
        /// Elements per row after.
        width: usize,
    },
    /// Rows times a number.
    Scale(f32),
    /// An mlp.
    Mlp {
        /// The mlp.
        mlp: MlpPlan,
        /// Elements per row before.
        input: usize,
        /// Elements per row after.
        out: usize,
        /// The tensors' names.
        names: MlpNamesPlan,
    },
    /// Attention of the mean of a square of patches over these patches.
    Attend {
        /// Patches per side.
        side: usize,
        /// The attention; keys are as wide as the rows before.
        attention: Box<AttentionPlan>,
        /// Elements per row after.
        out: usize,
        /// Names of query, key, value and output.
        names: [String; 4],
    },
    /// Learned queries through a stack.
    Query {
        /// How many.
        count: usize,
        /// Their full name.
        parameter: String,
        /// Axes of size 1 in front.
        ones: usize,
        /// The norm of the queries.
        enter: Option<NormPlan>,
        /// The stack.
        stack: StackPlan,
    },
}

/// Tensor names of an mlp.
#[derive(Debug, Clone, PartialEq)]
pub struct MlpNamesPlan {
    /// The gate projection.
    pub gate: Option<String>,
    /// The first projection, or both in one tensor.
    pub up: String,
    /// The second projection.
    pub down: String,
}

/// States of earlier blocks for the decoder's first blocks.
#[derive(Debug, Clone, PartialEq)]
pub struct DeepStackPlan {
    /// After how many blocks each state is taken.
    pub taps: Vec<usize>,
    /// The steps of every state.
    pub ops: Vec<Vec<OpPlan>>,
}

impl Resolver<'_> {
    pub(super) fn connector(
        &mut self,
        key: &str,
        ops: &[ConnectorOp],
        mut width: usize,
    ) -> Option<(Vec<OpPlan>, usize)> {
        let mut planned = Vec::new();
        for (index, op) in ops.iter().enumerate() {
            let known = self.problems.len();
            planned.extend(self.op(&format!("{key}.{index}"), op, &mut width));
            if self.problems.len() > known {
                return None;
            }
        }
        Some((planned, width))
    }

    /// `None` where the step is not there, or where it is wrong and a problem is kept.
    fn op(&mut self, key: &str, op: &ConnectorOp, width: &mut usize) -> Option<OpPlan> {
        let input = *width;
        Some(match op {
            ConnectorOp::Linear { out, bias, name, parameter, order, when } => {
                if !self.flag_or(&format!("{key}.when"), when.as_ref(), true)? {
                    return None;
                }
                let out = self.size(&format!("{key}.out"), "the output width", out, 1)?;
                let bias = self.flag(&format!("{key}.bias"), bias)?;
                let weight = self.stored(key, name.as_ref(), parameter.as_ref())?;
                let order =
                    self.choice_or(&format!("{key}.order"), order.as_ref(), Stored::OutIn)?;
                *width = out;
                let bias = match (bias, name) {
                    (true, Some(name)) => Some(format!("{name}.bias")),
                    (true, None) => {
                        let problem = Problem::error("value-form", "a bare parameter has no bias");
                        return self.keep(&format!("{key}.bias"), Err(problem));
                    }
                    (false, _) => None,
                };
                OpPlan::Linear { input, out, bias, weight, order }
            }
            ConnectorOp::Activation { kind } => {
                let kind = self.values.choice(kind);
                OpPlan::Activation(self.keep(&format!("{key}.kind"), kind)?)
            }
            ConnectorOp::Norm { kind, eps, name, bias, weight, when } => {
                if !self.flag_or(&format!("{key}.when"), when.as_ref(), true)? {
                    return None;
                }
                let kind = self.values.choice(kind);
                let kind = self.keep(&format!("{key}.kind"), kind)?;
                let eps = self.values.number(eps);
                let eps = self.keep(&format!("{key}.eps"), eps)? as f32;
                let weight =
                    self.choice_or(&format!("{key}.weight"), weight.as_ref(), NormWeight::Stored)?;
                let usual = kind == NormKind::Layer && weight != NormWeight::None;
                let bias = self.flag_or(&format!("{key}.bias"), bias.as_ref(), usual)?;
                if (bias || weight != NormWeight::None) && name.is_none() {
                    let problem = Problem::error("key-missing", "a norm with a weight has a name")
                        .expected_found("`name`", "nothing");
                    return self.keep(&format!("{key}.name"), Err(problem));
                }
                let name = name.clone().unwrap_or_default();
                OpPlan::Norm { norm: NormPlan { kind, eps, weight, bias, name }, width: input }
            }
            ConnectorOp::Merge { side, order } => {
                let side = self.size(&format!("{key}.side"), "the merged side", side, 1)?;
                let order =
                    self.choice_or(&format!("{key}.order"), order.as_ref(), MergeOrder::Patch)?;
                *width = self.product(key, "merged width", &[side, side, input])?;
                OpPlan::Merge { side, order }
            }
            ConnectorOp::Pool { side } => OpPlan::Pool {
                side: self.size(&format!("{key}.side"), "the pooled side", side, 1)?,
            },
            ConnectorOp::Average { count } => OpPlan::Average {
                count: self.size(
                    &format!("{key}.count"),
                    "the number of averaged rows",
                    count,
                    1,
                )?,
            },
            ConnectorOp::Conv { side, out, bias, name } => {
                let side = self.size(&format!("{key}.side"), "the kernel's side", side, 1)?;
                let out = self.size(&format!("{key}.out"), "the output width", out, 1)?;
                let bias = self.flag(&format!("{key}.bias"), bias)?;
                *width = out;
                OpPlan::Conv { side, input, out, bias, name: name.clone() }
            }
            ConnectorOp::Glu { gate, act } => {
                let gate = self.size(&format!("{key}.gate"), "the gate's half", gate, 0)?;
                let act = self.values.choice(act);
                let act = self.keep(&format!("{key}.act"), act)?;
                if gate > 1 || !input.is_multiple_of(2) {
                    let problem = Problem::error(
                        "value-bound",
                        format!("rows of {input} are not cut in two with half {gate} as the gate"),
                    )
                    .expected_found("an even width, and half 0 or 1", format!("{input}, {gate}"));
                    return self.keep(&format!("{key}.gate"), Err(problem));
                }
                *width = input / 2;
                OpPlan::Glu { second: gate == 1, act, width: input / 2 }
            }
            ConnectorOp::Scale { by } => {
                let by = self.values.number(by);
                OpPlan::Scale(self.keep(&format!("{key}.by"), by)? as f32)
            }
            ConnectorOp::Mlp { kind, hidden, out, act, bias, names, fused } => {
                let kind = self.values.choice(kind);
                let kind = self.keep(&format!("{key}.kind"), kind)?;
                let hidden = self.size(&format!("{key}.hidden"), "the mlp's width", hidden, 1)?;
                let out = self.size(&format!("{key}.out"), "the output width", out, 1)?;
                let act = self.values.choice(act);
                let act = self.keep(&format!("{key}.act"), act)?;
                let bias = self.flag(&format!("{key}.bias"), bias)?;
                let fused = self.fused(key, fused.as_ref());
                *width = out;
                let mlp = MlpPlan { kind, hidden, act, bias, fused, experts: None };
                if mlp.slots().contains(&"gate") && names.gate.is_none() {
                    let problem = Problem::error("key-missing", "a gated mlp names its gate")
                        .expected_found("`gate`", "nothing");
                    return self.keep(&format!("{key}.names.gate"), Err(problem));
                }
                let MlpNames { gate, up, down } = names.clone();
                OpPlan::Mlp { mlp, input, out, names: MlpNamesPlan { gate, up, down } }
            }
            ConnectorOp::Attend { side, heads, kv_heads, head_dim, out, bias, names } => {
                let side = self.size(&format!("{key}.side"), "the pooled side", side, 1)?;
                let heads = self.size(&format!("{key}.heads"), "the number of heads", heads, 1)?;
                let kv_heads = self.size_or(
                    &format!("{key}.kv_heads"),
                    "the number of key heads",
                    kv_heads.as_ref(),
                    1,
                    heads,
                )?;
                let head_dim =
                    self.size(&format!("{key}.head_dim"), "the size of a head", head_dim, 1)?;
                let out = self.size(&format!("{key}.out"), "the output width", out, 1)?;
                let bias = self.flag(&format!("{key}.bias"), bias)?;
                *width = out;
                let AttendNames { q, k, v, o } = names.clone();
                let attention = AttentionPlan {
                    heads,
                    kv_heads,
                    head_dim,
                    scale: (1.0 / (head_dim as f64).sqrt()) as f32,
                    softcap: None,
                    bias: [bias; 4],
                    fused: false,
                    rope: None,
                    mask: MaskRule::PerMedia,
                    window: None,
                    over: KeySource::Media,
                    values: ValueSource::Own,
                    gated: false,
                    key_width: input,
                    qk_norm: None,
                    v_norm: None,
                };
                OpPlan::Attend { side, attention: Box::new(attention), out, names: [q, k, v, o] }
            }
            ConnectorOp::Query { count, parameter, ones, enter, stack } => {
                let count =
                    self.size(&format!("{key}.count"), "the number of queries", count, 1)?;
                let enter = self.optional_norm(&format!("{key}.enter"), enter.as_ref());
                let stack = self.stack(stack, Some(input))?;
                *width = stack.width;
                let (parameter, ones) = (parameter.clone(), *ones as usize);
                OpPlan::Query { count, parameter, ones, enter, stack }
            }
        })
    }
}
