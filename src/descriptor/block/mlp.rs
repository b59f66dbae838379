//! The feed-forward half of a block: plain, gated, or a mixture of experts.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::backend::Activation;
use crate::descriptor::slot::{Choice, Count, Flag, Member, Number};

impl Member for Activation {
    const KIND: &'static str = "activation";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("gelu", "x Φ(x) with the exact error function.", Self::Gelu),
        ("gelu_tanh", "The tanh approximation of gelu.", Self::GeluTanh),
        ("gelu_pytorch_tanh", "Another name of gelu_tanh in config files.", Self::GeluTanh),
        ("gelu_new", "Another name of gelu_tanh in config files.", Self::GeluTanh),
        ("quick_gelu", "x σ(1.702 x).", Self::QuickGelu),
        ("silu", "x σ(x).", Self::Silu),
        ("relu", "max(x, 0).", Self::Relu),
    ];
}

/// The shape of an mlp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MlpKind {
    /// down(act(up(x))).
    Plain,
    /// down(act(gate(x)) · up(x)).
    Gated,
}

impl Member for MlpKind {
    const KIND: &'static str = "mlp kind";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("plain", "down(act(up(x))).", Self::Plain),
        ("gated", "down(act(gate(x)) · up(x)).", Self::Gated),
    ];
}

/// One of the two first projections of a gated mlp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-kind" = "half"))]
pub enum Half {
    /// The one that goes through the activation.
    Gate,
    /// The other.
    Up,
}

/// How a matrix is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// `[out, in]`.
    OutIn,
    /// `[in, out]`.
    InOut,
}

impl Member for Stored {
    const KIND: &'static str = "matrix order";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("out_in", "`[out, in]`, as linear maps usually are.", Self::OutIn),
        ("in_out", "`[in, out]`.", Self::InOut),
    ];
}

/// How a router's logits become weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scores {
    /// Softmax over all experts, then the largest.
    Softmax,
    /// The largest, each through a sigmoid.
    Sigmoid,
}

impl Member for Scores {
    const KIND: &'static str = "router score";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("softmax", "Softmax over all experts; the largest are taken.", Self::Softmax),
        (
            "sigmoid",
            "The largest logits are taken, each through a sigmoid; the experts' inputs are scaled by them.",
            Self::Sigmoid,
        ),
    ];
}

/// The feed-forward half of a block.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mlp {
    /// The shape.
    pub kind: Choice<MlpKind>,
    /// Inner width; of every expert where there are experts.
    pub hidden: Count,
    /// The activation.
    pub act: Choice<Activation>,
    /// Whether its projections have biases.
    pub bias: Flag,
    /// The two first projections of a gated mlp as rows of one tensor, named by the slot `gate_up`, in this order; empty or
    /// left out, two tensors.
    pub fused: Option<Vec<Half>>,
    /// Many mlps of which a router picks some for every row; their tensors take the same slots.
    pub experts: Option<Experts>,
}

/// A mixture of experts.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// How many there are.
    pub count: Count,
    /// How many a row goes through.
    pub top: Count,
    /// How the router's logits become weights.
    pub score: Choice<Scores>,
    /// Whether the weights of the chosen are divided by their sum; left out, they are not.
    pub renormalise: Option<Flag>,
    /// Factor on the weights; left out, 1.
    pub scale: Option<Number>,
    /// Whether all experts lie in one tensor (`[experts, …]`, no suffix appended); else names hold `{e}`.
    pub stacked: bool,
    /// How the matrices of stacked experts are stored; left out, `[out, in]`.
    pub order: Option<Choice<Stored>>,
    /// An expert that every row goes through, by the slots `shared_gate`, `shared_up`, `shared_down`.
    pub shared: Option<SharedExpert>,
}

/// An expert that every row goes through.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SharedExpert {
    /// Its inner width.
    pub hidden: Count,
    /// Whether its output is multiplied by the sigmoid of a map to one number, by the slot `shared_router`; left out, not.
    pub gated: Option<Flag>,
}
