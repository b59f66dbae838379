//! Learned positions of an encoder.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::descriptor::slot::{Choice, Count, Member};

/// What happens where a picture has another grid than the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableResize {
    /// It is refused.
    None,
    /// Linear interpolation, corners on corners.
    Bilinear,
    /// Cubic interpolation (a = −3/4), half-pixel centres.
    Bicubic,
    /// Antialiased linear interpolation, half-pixel centres.
    Antialias,
    /// The nearest bucket.
    Nearest,
}

impl Member for TableResize {
    const KIND: &'static str = "table resize";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("none", "A picture must have the table's own grid.", Self::None),
        (
            "bilinear",
            "Linear interpolation with corners on corners: row r of n reads r · (side − 1) / (n − 1).",
            Self::Bilinear,
        ),
        (
            "bicubic",
            "Keys' cubic with a = −3/4 and half-pixel centres, rows beyond the border repeated.",
            Self::Bicubic,
        ),
        ("antialias", "Antialiased linear interpolation with half-pixel centres.", Self::Antialias),
        ("nearest", "Row r of n reads the bucket of r / n among `side` equal ones.", Self::Nearest),
    ];
}

/// A table with one row per position; where there is a class row, the first is its own.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PositionTable {
    /// Rows of the table.
    pub rows: Count,
    /// The tensor's name below the tower's root; `.weight` is appended.
    pub name: Option<String>,
    /// Its full name instead; nothing is appended.
    pub parameter: Option<String>,
    /// Axes of size 1 in front; left out, none.
    #[serde(default)]
    pub ones: u32,
    /// How many tables lie in the tensor, one behind the other: a patch takes the row of its column from the first, of its
    /// row from the second, and adds them up. Left out: one table over all positions, without such an axis.
    pub axes: Option<Count>,
    /// What happens where a picture has another grid; left out, it is refused.
    pub resize: Option<Choice<TableResize>>,
}

/// Learned rows of tiles, chosen by the arrangement of tiles. All are multiplied by the tanh of a learned number.
///
/// Tensors below `table`: `gate` `[1]`, `tile_embedding.weight` `[arrangements + 1, tiles · rows · width]`, beside the position
/// table, which is multiplied by 1 − tanh(gate). Below `before` and `after`: `gate` `[1]` and `embedding.weight`
/// `[arrangements + 1, tiles · width]`, added to every row of a tile before the class row, and between the two stacks.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TilePositions {
    /// How many arrangements of tiles there are; row 0 of every table stands for no tile.
    pub arrangements: Count,
    /// The most tiles of a picture; it is filled up to so many with black ones, which hide nothing but each other.
    pub most: Count,
    /// The rows of a tile are filled up with zeros to a multiple of this, in front of the first block; left out, 1.
    pub align: Option<Count>,
    /// The prefix of the gate and the table of rows per tile and position.
    pub table: String,
    /// The prefix of what is added to patches.
    pub before: String,
    /// The prefix of what is added behind `leave`.
    pub after: String,
}
