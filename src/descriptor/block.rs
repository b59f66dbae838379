//! Transformer stacks: norm, attention, mlp and the tensor names of one block.

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Map, json};

use super::slot::{Choice, Count, Flag, Member, Number};
use crate::backend::{Activation, NormKind, Pairing};

impl Member for Activation {
    const KIND: &'static str = "activation";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("gelu", "x Φ(x) with the exact error function.", Self::Gelu),
        ("gelu_tanh", "The tanh approximation of gelu.", Self::GeluTanh),
        ("gelu_pytorch_tanh", "Another name of gelu_tanh in config files.", Self::GeluTanh),
        ("quick_gelu", "x σ(1.702 x).", Self::QuickGelu),
        ("silu", "x σ(x).", Self::Silu),
        ("relu", "max(x, 0).", Self::Relu),
    ];
}

impl Member for NormKind {
    const KIND: &'static str = "norm kind";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("layer", "(x − mean) / √(var + eps) · weight + bias.", Self::Layer),
        ("rms", "x / √(mean(x²) + eps) · weight.", Self::Rms),
    ];
}

impl Member for Pairing {
    const KIND: &'static str = "pairing";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("half", "Element i is rotated with i + dim / 2.", Self::Half),
        ("interleaved", "Element 2 i is rotated with 2 i + 1.", Self::Interleaved),
    ];
}

/// A norm and its parameters.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Norm {
    /// The kind.
    pub kind: Choice<NormKind>,
    /// Added to the variance or mean square.
    pub eps: Number,
    /// The tensor's name below its component's root; inside a stack the slot names `norm1`, `norm2` stand instead.
    pub name: Option<String>,
    /// Whether there is a bias tensor. Left out: a layer norm has one, an rms norm has none.
    pub bias: Option<Flag>,
}

/// Where the norms of a block stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// x + f(norm(x)), for attention and for the mlp.
    Pre,
}

impl Member for Placement {
    const KIND: &'static str = "placement";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] =
        &[("pre", "x + f(norm(x)), for attention and for the mlp.", Self::Pre)];
}

/// Who sees whom inside a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaskRule {
    /// Every row sees every row of its own media item (of its own tile where an item is tiled), and no other.
    PerMedia,
    /// Row j sees rows 0..=j.
    Causal,
}

impl Member for MaskRule {
    const KIND: &'static str = "mask";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        (
            "per_media",
            "Rows see all rows of their own media item or tile, and no other.",
            Self::PerMedia,
        ),
        ("causal", "Row j sees rows 0..=j.", Self::Causal),
    ];
}

/// Self-attention.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Query heads.
    pub heads: Count,
    /// Key and value heads; left out, as many as query heads.
    pub kv_heads: Option<Count>,
    /// Elements per head; left out, width / heads.
    pub head_dim: Option<Count>,
    /// Which projections have a bias: all (`true`), none (`false`), or a list of `q`, `k`, `v`, `o`.
    pub bias: Biases,
    /// Whether query, key and value are rows of one tensor, named by the slot `qkv`, in that order.
    #[serde(default)]
    pub fused: bool,
    /// The rotary embedding, by its name in `[rope]`; left out, none.
    #[schemars(extend("x-reads" = "rope"))]
    pub rope: Option<String>,
    /// Who sees whom.
    pub mask: Choice<MaskRule>,
    /// How many rows back a row of a causal stack sees, itself included; 0 or left out, all. A sequence that is longer is
    /// refused: a window that cuts rows off is not spoken yet.
    pub window: Option<Count>,
    /// Factor on the scores; left out, 1 / √head_dim.
    pub scale: Option<Number>,
}

/// Which projections of an attention have a bias.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(title = "true, false, a condition, or an array of `q`, `k`, `v`, `o`")]
pub enum Biases {
    /// All or none.
    All(Flag),
    /// These.
    Some(Vec<Projection>),
}

/// One projection of an attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-kind" = "projection"))]
pub enum Projection {
    /// Queries.
    Q,
    /// Keys.
    K,
    /// Values.
    V,
    /// Output.
    O,
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

/// The feed-forward half of a block.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mlp {
    /// The shape.
    pub kind: Choice<MlpKind>,
    /// Inner width.
    pub hidden: Count,
    /// The activation.
    pub act: Choice<Activation>,
    /// Whether its projections have biases.
    pub bias: Flag,
}

/// A stack of equal blocks.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// How many blocks.
    pub layers: Count,
    /// Elements per row.
    pub width: Count,
    /// Where the norms stand.
    pub placement: Choice<Placement>,
    /// Both norms.
    pub norm: Norm,
    /// The attention.
    pub attention: Attention,
    /// The feed-forward half.
    pub mlp: Mlp,
    /// Tensor names by slot, relative to `block`, which holds `{i}`: `norm1`, `norm2`, `q`, `k`, `v` (or `qkv`), `o`,
    /// `gate`, `up`, `down`. `.weight` and `.bias` are appended.
    #[schemars(schema_with = "slot_names")]
    pub names: IndexMap<String, String>,
}

/// The tensor slots of a block: name and meaning.
pub const TENSOR_SLOTS: [(&str, &str); 11] = [
    ("block", "The prefix of block `{i}`, below the component's root."),
    ("norm1", "The norm of the attention."),
    ("norm2", "The norm of the mlp."),
    ("q", "The query projection."),
    ("k", "The key projection."),
    ("v", "The value projection."),
    ("qkv", "Query, key and value as rows of one tensor."),
    ("o", "The output projection of the attention."),
    ("gate", "The gate projection of a gated mlp."),
    ("up", "The first projection of the mlp."),
    ("down", "The second projection of the mlp."),
];

fn slot_names(_: &mut SchemaGenerator) -> Schema {
    let slot = |(name, meaning): &(&str, &str)| {
        let mut schema = json!({ "type": "string", "description": meaning });
        if *name == "block" {
            schema["x-reads"] = "block".into();
        }
        ((*name).to_owned(), schema)
    };
    let properties: Map<_, _> = TENSOR_SLOTS.iter().map(slot).collect();
    json_schema!({ "type": "object", "additionalProperties": false, "properties": properties, "required": ["block"] })
}

/// What one rotary axis counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-kind" = "axis"))]
pub enum RopeAxis {
    /// The position in the sequence (or the first of several position axes).
    Time,
    /// The row of a patch in its picture, or the second position axis.
    Row,
    /// The column of a patch, or the third position axis.
    Col,
}

/// A change of the rotary frequencies for longer contexts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeScaling {
    /// None.
    None,
    /// All frequencies divided by `factor`.
    Linear,
}

impl Member for RopeScaling {
    const KIND: &'static str = "rope scaling";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("none", "Frequencies as they are.", Self::None),
        ("linear", "All frequencies divided by `factor`.", Self::Linear),
    ];
}

/// A rotary embedding. Frequency j of an axis with a ladder over d elements is theta^(−2 j / d).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rope {
    /// What is counted; left out, the position in the sequence. With several axes and no `sections`, the rotated
    /// elements are split evenly and each axis has its own full ladder.
    pub axes: Option<Vec<RopeAxis>>,
    /// Rotated elements per head; left out, all.
    pub dim: Option<Count>,
    /// The base.
    pub theta: Number,
    /// A change of the frequencies.
    pub scaling: Option<Choice<RopeScaling>>,
    /// The factor of `scaling`.
    pub factor: Option<Number>,
    /// Which elements form a pair.
    pub pairing: Choice<Pairing>,
    /// One ladder shared by the axes, cut into consecutive sections of these many frequencies, one per axis.
    #[schemars(extend("x-reads" = "value"))]
    pub sections: Option<String>,
}
