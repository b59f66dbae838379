//! `[image.tower]`, `[image.features]`, `[image.connector]`, and their `[audio…]` kin: from pixels or frames to rows of the
//! decoder.

mod connector;
mod position;

use schemars::JsonSchema;
use serde::Deserialize;

pub use self::connector::{
    AttendNames, Connector, ConnectorOp, DeepStack, MergeOrder, MlpNames, Splice, Vector,
};
pub use self::position::{PositionTable, TableResize, TilePositions};
use super::block::Norm;
use super::slot::{Choice, Count, Flag, Member};
use crate::backend::Activation;

/// The encoder.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tower {
    /// The patch embedding of a picture.
    pub patch: Option<Patch>,
    /// Convolutions over time in front of the blocks, in order.
    pub frames: Option<Vec<FrameConv>>,
    /// A learned row before or after all patches.
    pub class: Option<ClassRow>,
    /// A learned row added per position.
    pub position: Option<PositionTable>,
    /// Learned rows added per tile, chosen by the arrangement of tiles.
    pub tiles: Option<TilePositions>,
    /// A norm before the first block.
    pub enter: Option<Norm>,
    /// The stack, by its name in `[stacks]`.
    #[schemars(extend("x-reads" = "stack"))]
    pub stack: String,
    /// Rows are averaged in groups of this many after the blocks and before `leave`; left out, not.
    pub average: Option<Count>,
    /// A norm after the last block. Taps are read before it.
    pub leave: Option<Norm>,
    /// A second stack behind `leave`, by its name in `[stacks]`.
    #[schemars(extend("x-reads" = "stack"))]
    pub then: Option<String>,
}

/// How a patch embedding is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchForm {
    /// A convolution.
    Conv,
    /// A linear map over (row, column, channel).
    Linear,
    /// A linear map over (channel, row, column).
    LinearChannels,
}

impl Member for PatchForm {
    const KIND: &'static str = "patch form";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        (
            "conv",
            "A convolution whose stride is its kernel, stored `[width, channels, (frames,) size, size]`.",
            Self::Conv,
        ),
        (
            "linear",
            "A linear map `[width, size · size · channels]` over (row, column, channel).",
            Self::Linear,
        ),
        (
            "linear_channels",
            "A linear map `[width, channels · size · size]` over (channel, row, column).",
            Self::LinearChannels,
        ),
    ];
}

/// A patch embedding.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// Pixels per side.
    pub size: Count,
    /// How it is stored; left out, as a convolution.
    pub form: Option<Choice<PatchForm>>,
    /// Depth of the kernel; a still picture is repeated that often. Left out: the kernel has no such axis.
    pub frames: Option<Count>,
    /// Patches are emitted in blocks of this many per side, row-major inside and outside. Left out, 1: plain raster order.
    pub block: Option<Count>,
    /// Whether there is a bias.
    pub bias: Flag,
    /// Whether pixels x, from 0 to 1, enter as 2 x − 1; left out, as they are.
    pub spread: Option<Flag>,
    /// The tensor's name below the tower's root.
    pub name: String,
    /// A norm of patch rows, before positions are added.
    pub norm: Option<Norm>,
}

/// A convolution over time, `[out, in, kernel]`: `len` frames become `div_floor(len + 2 pad − kernel, stride) + 1`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FrameConv {
    /// Channels of a frame before; left out, those that the convolution before it gives.
    pub input: Option<Count>,
    /// Channels of a frame afterwards; left out, the stack's width.
    pub out: Option<Count>,
    /// Frames that one output sees.
    pub kernel: Count,
    /// Frames from one output to the next.
    pub stride: Count,
    /// Zero frames at either end.
    pub pad: Count,
    /// Whether there is a bias.
    pub bias: Flag,
    /// The function behind it.
    pub act: Choice<Activation>,
    /// The tensor's name below the tower's root.
    pub name: String,
}

/// Where a class row stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassPlace {
    /// Before all patches.
    First,
    /// After all patches.
    Last,
}

impl Member for ClassPlace {
    const KIND: &'static str = "class place";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("first", "Before all patches.", Self::First),
        ("last", "After all patches.", Self::Last),
    ];
}

/// A learned row before or after all patches.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassRow {
    /// The tensor's full name below the tower's root; nothing is appended.
    pub parameter: String,
    /// Axes of size 1 in front of its elements; left out, none.
    #[serde(default)]
    pub ones: u32,
    /// Where it stands; left out, first.
    pub at: Option<Choice<ClassPlace>>,
}

/// How tapped states lie side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concat {
    /// One state after the other.
    Channel,
    /// Element by element.
    Interleaved,
}

impl Member for Concat {
    const KIND: &'static str = "concatenation";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        (
            "channel",
            "One state after the other: element e of state s stands at s · width + e.",
            Self::Channel,
        ),
        (
            "interleaved",
            "Element by element: element e of state s stands at e · states + s. A `final` state stays whole.",
            Self::Interleaved,
        ),
    ];
}

/// What a tap counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TapCount {
    /// States.
    States,
    /// Blocks.
    Blocks,
}

impl Member for TapCount {
    const KIND: &'static str = "tap count";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        (
            "states",
            "States: tap t is read after t blocks, 0 before the first; −1 is the last of layers + 1 states.",
            Self::States,
        ),
        (
            "blocks",
            "Blocks: tap t is what block t gives, 0 being the first; −1 is the last of as many as there are layers.",
            Self::Blocks,
        ),
    ];
}

/// Whether the very last state is used besides the taps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalState {
    /// No.
    No,
    /// In front of the taps.
    First,
}

impl Member for FinalState {
    const KIND: &'static str = "final state";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("no", "Only the taps are used.", Self::No),
        ("first", "What the tower gives at its end stands in front of the taps.", Self::First),
    ];
}

/// What of the encoder's states is used.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Features {
    /// Which states: after how many blocks; negative counts from the end, −1 being the last. A list (or the name of a
    /// config value holding one) is concatenated on channels.
    pub taps: Count,
    /// What a tap counts; left out, states.
    pub count: Option<Choice<TapCount>>,
    /// How several states lie side by side; left out, one after the other.
    pub concat: Option<Choice<Concat>>,
    /// Whether the tower's last state is used besides the taps; left out, not.
    #[serde(rename = "final")]
    pub last: Option<Choice<FinalState>>,
    /// Whether the tower's `leave` is applied to what is read; left out, not.
    pub norm: Option<Flag>,
    /// How many leading rows of every picture are dropped; left out, none.
    pub drop: Option<Count>,
}
