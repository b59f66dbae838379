//! Attention: projections, norms of heads, masks.

use schemars::JsonSchema;
use serde::Deserialize;

use super::norm::NormWeight;
use crate::backend::NormKind;
use crate::descriptor::slot::{Choice, Count, Flag, Member, Number};

/// Who sees whom inside a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaskRule {
    /// Every row sees every row of its own media item (of its own tile where an item is tiled), and no other.
    PerMedia,
    /// Every row sees the rows of its own square of `window` × `window` patches.
    PerWindow,
    /// Every row sees all rows of its item over all of its tiles; a pair of two padding rows is hidden.
    PadPairs,
    /// Row j sees rows 0..=j.
    Causal,
    /// Causal, and rows of one contiguous run of media see each other.
    MediaRuns,
    /// Causal, and all tokens of the strips of a prompt see each other.
    MediaAll,
    /// All rows of the prompt see each other; generated rows are causal.
    Prefix,
    /// Rows see the states of the last item whose marker stands at or before them.
    LastMedia,
}

impl Member for MaskRule {
    const KIND: &'static str = "mask";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        (
            "per_media",
            "Rows see all rows of their own media item or tile, and no other.",
            Self::PerMedia,
        ),
        (
            "per_window",
            "Rows see the rows of their own square of `window` × `window` patches; squares at the far edges are smaller.",
            Self::PerWindow,
        ),
        (
            "pad_pairs",
            "Rows see all rows of their item over all of its tiles; a pair of two padding rows is hidden.",
            Self::PadPairs,
        ),
        ("causal", "Row j sees rows 0..=j.", Self::Causal),
        (
            "media_runs",
            "Causal, and rows of one contiguous run of media rows see each other; a `window` cuts both.",
            Self::MediaRuns,
        ),
        (
            "media_all",
            "Causal, and all tokens of the strips of a prompt see each other.",
            Self::MediaAll,
        ),
        (
            "prefix",
            "All rows of the prompt see each other; generated rows are causal.",
            Self::Prefix,
        ),
        (
            "last_media",
            "Over media: rows see the states of the last item whose marker stands at or before them (items whose markers touch share their rows); rows that see none pass their mlp by.",
            Self::LastMedia,
        ),
    ];
}

/// Where keys and values come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySource {
    /// From the rows themselves.
    Rows,
    /// From the media states that the stack is given.
    Media,
    /// Those of an earlier layer.
    Earlier,
}

impl Member for KeySource {
    const KIND: &'static str = "key source";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("rows", "From the rows themselves.", Self::Rows),
        (
            "media",
            "From media states: the connector's rows in a decoder, the encoder's rows in a query transformer.",
            Self::Media,
        ),
        (
            "earlier",
            "Those of the last layer before it that makes its own and has the same mask, window and heads; nothing is projected.",
            Self::Earlier,
        ),
    ];
}

/// What values are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueSource {
    /// A projection of their own.
    Own,
    /// The keys.
    Keys,
}

impl Member for ValueSource {
    const KIND: &'static str = "value source";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("own", "A projection of their own.", Self::Own),
        ("keys", "The keys before norm and rotation; no value projection is stored.", Self::Keys),
    ];
}

/// Over what a norm of queries and keys goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormReach {
    /// Over each head.
    Head,
    /// Over all heads at once.
    Full,
}

impl Member for NormReach {
    const KIND: &'static str = "norm reach";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("head", "Over each head; the weight has as many elements as a head.", Self::Head),
        ("full", "Over all heads at once; the weight is as wide as the projection.", Self::Full),
    ];
}

/// A norm of queries, keys or values.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeadNorm {
    /// The kind.
    pub kind: Choice<NormKind>,
    /// Added to the variance or mean square.
    pub eps: Number,
    /// What it multiplies by; left out, the stored vector.
    pub weight: Option<Choice<NormWeight>>,
    /// Over what it goes; left out, each head.
    pub over: Option<Choice<NormReach>>,
    /// Whether queries and keys are rotated before it; left out, after it.
    pub after_rope: Option<Flag>,
    /// Whether it is there at all; left out, it is.
    pub when: Option<Flag>,
}

/// Attention.
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
    /// The rotary embedding, by its name in `[rope]`; left out or `none`, none.
    #[schemars(extend("x-reads" = "rope"))]
    pub rope: Option<String>,
    /// Who sees whom.
    pub mask: Choice<MaskRule>,
    /// How many rows back a row of a causal stack sees, itself included, or the side of a `per_window` square in patches; 0 or
    /// left out, all.
    pub window: Option<Count>,
    /// Factor on the scores; left out, 1 / √head_dim.
    pub scale: Option<Number>,
    /// Where keys and values come from; left out, the rows themselves.
    pub over: Option<Choice<KeySource>>,
    /// What values are made of; left out, a projection of their own.
    pub values: Option<Choice<ValueSource>>,
    /// Whether the query projection gives every head as many elements more, whose sigmoid multiplies what the head gives;
    /// left out, not.
    pub gated: Option<Flag>,
    /// A norm of queries and keys, by the slots `q_norm` and `k_norm`.
    pub qk_norm: Option<HeadNorm>,
    /// A norm of values, by the slot `v_norm`.
    pub v_norm: Option<HeadNorm>,
    /// Scores s become c · tanh(s / c); 0 or left out, they stay.
    pub softcap: Option<Number>,
}

/// What a kind of layer changes of the stack's attention; what is left out stays.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttentionChange {
    /// Query heads.
    pub heads: Option<Count>,
    /// Key and value heads.
    pub kv_heads: Option<Count>,
    /// Elements per head.
    pub head_dim: Option<Count>,
    /// Which projections have a bias.
    pub bias: Option<Biases>,
    /// The rotary embedding, by its name in `[rope]`; `none` for none.
    #[schemars(extend("x-reads" = "rope"))]
    pub rope: Option<String>,
    /// Who sees whom.
    pub mask: Option<Choice<MaskRule>>,
    /// How many rows back a row sees, or the side of a window in patches.
    pub window: Option<Count>,
    /// Factor on the scores.
    pub scale: Option<Number>,
    /// Where keys and values come from.
    pub over: Option<Choice<KeySource>>,
    /// What values are made of.
    pub values: Option<Choice<ValueSource>>,
    /// A norm of queries and keys.
    pub qk_norm: Option<HeadNorm>,
}

impl Attention {
    /// The same with a kind's changes.
    #[must_use]
    pub fn changed(&self, change: &AttentionChange) -> Self {
        fn or<T: Clone>(new: Option<&T>, old: Option<&T>) -> Option<T> {
            new.or(old).cloned()
        }
        Self {
            heads: change.heads.clone().unwrap_or_else(|| self.heads.clone()),
            kv_heads: or(change.kv_heads.as_ref(), self.kv_heads.as_ref()),
            head_dim: or(change.head_dim.as_ref(), self.head_dim.as_ref()),
            bias: change.bias.clone().unwrap_or_else(|| self.bias.clone()),
            rope: or(change.rope.as_ref(), self.rope.as_ref()),
            mask: change.mask.clone().unwrap_or_else(|| self.mask.clone()),
            window: or(change.window.as_ref(), self.window.as_ref()),
            scale: or(change.scale.as_ref(), self.scale.as_ref()),
            over: or(change.over.as_ref(), self.over.as_ref()),
            values: or(change.values.as_ref(), self.values.as_ref()),
            gated: self.gated.clone(),
            qk_norm: or(change.qk_norm.as_ref(), self.qk_norm.as_ref()),
            fused: self.fused,
            v_norm: self.v_norm.clone(),
            softcap: self.softcap.clone(),
        }
    }
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
    /// These on a condition.
    When(BiasesWhen),
}

/// Biases on a condition.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BiasesWhen {
    /// Which projections have one on the condition.
    pub of: Vec<Projection>,
    /// The condition.
    pub when: Flag,
    /// Which have one in any case; left out, none.
    #[serde(default)]
    pub always: Vec<Projection>,
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
