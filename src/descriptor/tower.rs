//! `[image.tower]`, `[image.features]`, `[image.connector]`: from pixels to rows of the decoder.

use schemars::JsonSchema;
use serde::Deserialize;

use super::block::Norm;
use super::slot::{Choice, Count, Flag, Member, Number};
use crate::backend::{Activation, NormKind};

/// The encoder.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tower {
    /// The patch embedding.
    pub patch: Patch,
    /// A learned row before all patches.
    pub class: Option<ClassRow>,
    /// A learned row added per position.
    pub position: Option<PositionTable>,
    /// A norm before the first block.
    pub enter: Option<Norm>,
    /// The stack, by its name in `[stacks]`.
    #[schemars(extend("x-reads" = "stack"))]
    pub stack: String,
}

/// A patch embedding: a convolution whose stride is its kernel, stored `[width, channels, (frames,) size, size]`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// Pixels per side.
    pub size: Count,
    /// Depth of the kernel; a still picture is repeated that often. Left out: the kernel has no such axis.
    pub frames: Option<Count>,
    /// Patches are emitted in blocks of this many per side, row-major inside and outside. Left out, 1: plain raster order.
    pub block: Option<Count>,
    /// Whether there is a bias.
    pub bias: Flag,
    /// The tensor's name below the tower's root.
    pub name: String,
}

/// A learned row before all patches.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassRow {
    /// The tensor's full name below the tower's root; nothing is appended.
    pub parameter: String,
}

/// A table with one row per position, the class row's first.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PositionTable {
    /// Rows of the table.
    pub rows: Count,
    /// The tensor's name below the tower's root.
    pub name: String,
}

/// What of the encoder's states is used.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Features {
    /// Which states: after how many blocks; negative counts from the end, −1 being the last. A list (or the name of a
    /// config value holding one) is concatenated on channels.
    pub taps: Count,
    /// How many leading rows of every picture are dropped; left out, none.
    pub drop: Option<Count>,
}

/// From encoder states to rows of the decoder.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Connector {
    /// The steps, in order.
    pub ops: Vec<ConnectorOp>,
    /// How its rows enter the decoder.
    pub splice: Choice<Splice>,
}

/// How media rows enter the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Splice {
    /// They stand in place of the fill tokens' embeddings.
    Replace,
}

impl Member for Splice {
    const KIND: &'static str = "splice";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] =
        &[("replace", "Rows stand in place of the fill tokens' embeddings.", Self::Replace)];
}

/// One step of a connector.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("x-kind" = "connector op"))]
pub enum ConnectorOp {
    /// A linear map `[rows, in]` → `[rows, out]`; the tensor is `[out, in]`.
    Linear {
        /// Elements per row afterwards.
        out: Count,
        /// Whether there is a bias.
        bias: Flag,
        /// The tensor's name below the connector's root.
        name: String,
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
        name: String,
    },
    /// Space to depth: `side`² neighbouring patches become one row, `[rows, width]` → `[rows / side², width · side²]`,
    /// in the order (row, column, channel).
    Merge {
        /// Patches per side.
        side: Count,
    },
}
