//! From encoder states to rows of the decoder: a list of steps.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::backend::{Activation, NormKind};
use crate::descriptor::block::{Half, MlpKind, Norm, NormWeight, Stored};
use crate::descriptor::slot::{Choice, Count, Flag, Member, Number};

/// From encoder states to rows of the decoder.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Connector {
    /// The steps, in order.
    pub ops: Vec<ConnectorOp>,
    /// How its rows enter the decoder.
    pub splice: Choice<Splice>,
    /// Learned rows that a strip puts between encoder rows, by the name that follows `~`.
    #[serde(default)]
    pub vectors: IndexMap<String, Vector>,
    /// States of earlier blocks that are added to the decoder's rows behind its first blocks.
    pub deepstack: Option<DeepStack>,
}

/// A learned row, as wide as the connector's rows.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Vector {
    /// The tensor's full name below the connector's root; nothing is appended.
    pub parameter: String,
    /// Whether it is stored; left out, it is.
    pub when: Option<Flag>,
}

/// How media rows enter the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Splice {
    /// They stand in place of the fill tokens' embeddings.
    Replace,
    /// They are added to the fill tokens' embeddings.
    Add,
    /// They are the keys and values of attention over media.
    Cross,
}

impl Member for Splice {
    const KIND: &'static str = "splice";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("replace", "Rows stand in place of the fill tokens' embeddings.", Self::Replace),
        ("add", "Rows are added to the fill tokens' embeddings.", Self::Add),
        ("cross", "Rows are keys and values of the decoder's attention over media.", Self::Cross),
    ];
}

/// In which order the elements of merged patches lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeOrder {
    /// (row, column, channel).
    Patch,
    /// (channel, row, column).
    Channel,
}

impl Member for MergeOrder {
    const KIND: &'static str = "merge order";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("patch", "Patch after patch: (row, column, channel).", Self::Patch),
        ("channel", "Channel after channel: (channel, row, column).", Self::Channel),
    ];
}

/// States of earlier blocks, each through steps of its own, added to the media rows of the decoder behind block 0, 1, …
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeepStack {
    /// The blocks whose states are taken, 0 being the first: an integer or the name of a config value that lists them.
    pub blocks: Count,
    /// The steps of state `{k}`, which stands in their names.
    pub ops: Vec<ConnectorOp>,
}

/// Tensor names of a pooling attention.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttendNames {
    /// The query projection.
    pub q: String,
    /// The key projection.
    pub k: String,
    /// The value projection.
    pub v: String,
    /// The output projection.
    pub o: String,
}

/// Tensor names of an mlp.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MlpNames {
    /// The gate projection of a gated mlp.
    pub gate: Option<String>,
    /// The first projection.
    pub up: String,
    /// The second projection.
    pub down: String,
}

/// One step of a connector.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("x-kind" = "connector op"))]
pub enum ConnectorOp {
    /// A linear map `[rows, in]` → `[rows, out]`.
    Linear {
        /// Elements per row afterwards.
        out: Count,
        /// Whether there is a bias.
        bias: Flag,
        /// The tensor's name below the connector's root; `.weight` is appended.
        name: Option<String>,
        /// Its full name instead; nothing is appended.
        parameter: Option<String>,
        /// How the matrix is stored; left out, `[out, in]`.
        order: Option<Choice<Stored>>,
        /// Whether the step is there at all; left out, it is.
        when: Option<Flag>,
    },
    /// An elementwise function; the shape stays.
    Activation {
        /// Which.
        kind: Choice<Activation>,
    },
    /// A norm over each row; the shape stays.
    Norm {
        /// The kind.
        kind: Choice<NormKind>,
        /// Added to the variance or mean square.
        eps: Number,
        /// The tensor's name below the connector's root.
        name: Option<String>,
        /// Whether there is a bias; left out, a layer norm has one.
        bias: Option<Flag>,
        /// What it multiplies by; left out, the stored vector.
        weight: Option<Choice<NormWeight>>,
        /// Whether the step is there at all; left out, it is.
        when: Option<Flag>,
    },
    /// Space to depth: `side`² neighbouring patches become one row, `[rows, width]` → `[rows / side², width · side²]`,
    /// in the order (row, column, channel) or another.
    Merge {
        /// Patches per side.
        side: Count,
        /// The order of the elements; left out, patch after patch.
        order: Option<Choice<MergeOrder>>,
    },
    /// The average of `side`² neighbouring patches, `[rows, width]` → `[rows / side², width]`.
    Pool {
        /// Patches per side.
        side: Count,
    },
    /// The average of `count` consecutive rows, `[rows, width]` → `[rows / count, width]`.
    Average {
        /// Rows that become one.
        count: Count,
    },
    /// A convolution over the grid with stride = kernel, `[rows, in]` → `[rows / side², out]`, stored `[out, in, side, side]`.
    Conv {
        /// Patches per side.
        side: Count,
        /// Elements per row afterwards.
        out: Count,
        /// Whether there is a bias.
        bias: Flag,
        /// The tensor's name below the connector's root.
        name: String,
    },
    /// A gated linear unit: a row is cut in two halves, `[rows, width]` → `[rows, width / 2]`, act(gate) · other.
    Glu {
        /// The half that goes through the activation: 0 the first, 1 the second.
        gate: Count,
        /// The function.
        act: Choice<Activation>,
    },
    /// Rows times a number; the shape stays.
    Scale {
        /// The factor.
        by: Number,
    },
    /// An mlp `[rows, in]` → `[rows, out]`.
    Mlp {
        /// The shape.
        kind: Choice<MlpKind>,
        /// Inner width.
        hidden: Count,
        /// Elements per row afterwards.
        out: Count,
        /// The function.
        act: Choice<Activation>,
        /// Whether its projections have biases.
        bias: Flag,
        /// The tensors' names below the connector's root.
        names: MlpNames,
        /// The two first projections of a gated mlp as rows of the tensor `up`, in this order.
        fused: Option<Vec<Half>>,
    },
    /// Attention of one query, the mean of a square of `side`² patches, over these patches: `[rows, in]` → `[rows / side², out]`.
    /// Patches beyond the edge are not seen and do not count.
    Attend {
        /// Patches per side.
        side: Count,
        /// Heads of the query.
        heads: Count,
        /// Heads of keys and values; left out, as many.
        kv_heads: Option<Count>,
        /// Elements per head.
        head_dim: Count,
        /// Elements per row afterwards.
        out: Count,
        /// Whether the projections have biases.
        bias: Flag,
        /// The tensors' names below the connector's root.
        names: AttendNames,
    },
    /// Learned queries go through a stack whose `media` keys are the rows so far: `[rows, in]` → `[count, width of the stack]`.
    Query {
        /// How many queries.
        count: Count,
        /// The queries' full name below the connector's root; nothing is appended.
        parameter: String,
        /// Axes of size 1 in front; left out, none.
        #[serde(default)]
        ones: u32,
        /// A norm of the queries before the first block.
        enter: Option<Norm>,
        /// The stack, by its name in `[stacks]`.
        #[schemars(extend("x-reads" = "stack"))]
        stack: String,
    },
}

impl ConnectorOp {
    /// The same with `number` in place of `{k}` in every tensor name.
    #[must_use]
    pub fn numbered(&self, number: &str) -> Self {
        let fill = |text: &mut String| *text = text.replace("{k}", number);
        let mut op = self.clone();
        match &mut op {
            Self::Linear { name, parameter, .. } => {
                name.iter_mut().chain(parameter).for_each(fill);
            }
            Self::Norm { name, .. } => name.iter_mut().for_each(fill),
            Self::Conv { name, .. } | Self::Query { parameter: name, .. } => fill(name),
            Self::Mlp { names, .. } => {
                names.gate.iter_mut().chain([&mut names.up, &mut names.down]).for_each(fill);
            }
            Self::Attend { names, .. } => {
                [&mut names.q, &mut names.k, &mut names.v, &mut names.o].into_iter().for_each(fill);
            }
            Self::Activation { .. }
            | Self::Merge { .. }
            | Self::Pool { .. }
            | Self::Average { .. }
            | Self::Glu { .. }
            | Self::Scale { .. } => {}
        }
        op
    }
}
