//! `[image.resize]`: size policies and their parameters.

use schemars::JsonSchema;
use serde::Deserialize;

use super::slot::{Choice, Count, Flag, Member};
use crate::media::Filter;

impl Member for Filter {
    const KIND: &'static str = "filter";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("bilinear", "Triangle, antialiased.", Self::Bilinear),
        ("bicubic", "Keys' cubic with a = −1/2, antialiased.", Self::Bicubic),
        ("lanczos", "Lanczos with three lobes, antialiased.", Self::Lanczos),
    ];
}

/// The names of the layouts of a resize kind: what strips, floors, requirements and position rules may read.
pub fn layout_names(kind: &str) -> Option<&'static [&'static str]> {
    KINDS.iter().find(|(name, _)| *name == kind).map(|(_, names)| *names)
}

/// Every resize kind with the names of its layouts.
pub const KINDS: [(&str, &[&str]); 2] = [("crop", &PLAIN), ("area", &PLAIN)];

/// Rows and columns of cells; the picture's width and height in pixels.
pub const PLAIN: [&str; 4] = ["rows", "cols", "width", "height"];

/// A resize policy.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("x-kind" = "resize kind"))]
pub enum Resize {
    /// One fixed size: resize (shortest edge, or to a height and width), then cut or pad around the centre.
    Crop(CropParameters),
    /// Both sides to multiples of a step, keeping the aspect ratio, the area within bounds.
    Area(AreaParameters),
}

/// Parameters of `crop`. Layout: `rows`, `cols` (cells of the result), `width`, `height` (its pixels).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CropParameters {
    /// Whether pictures are padded to a square with the mean colour first.
    pub pad_square: Option<Flag>,
    /// Whether pictures are resized.
    pub resize: Flag,
    /// The shortest edge after resizing; 0 where `height` and `width` hold.
    pub shortest: Count,
    /// The height after resizing where `shortest` is 0.
    pub height: Count,
    /// The width after resizing where `shortest` is 0.
    pub width: Count,
    /// Whether the centre is cut out (smaller pictures are padded with black).
    pub crop: Flag,
    /// The height cut out.
    pub crop_height: Count,
    /// The width cut out.
    pub crop_width: Count,
    /// Pixels per cell.
    pub cell: Count,
    /// The interpolation.
    pub filter: Choice<Filter>,
}

/// Parameters of `area`. Layout: `rows`, `cols` (steps of the result), `width`, `height` (its pixels).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AreaParameters {
    /// Both sides become multiples of this many pixels.
    pub step: Count,
    /// The smallest area, in pixels.
    pub least: Count,
    /// The largest area, in pixels.
    pub most: Count,
    /// The largest ratio of the sides; a longer picture is refused.
    pub aspect: Count,
    /// Factor on the area before it is compared; left out, 1.
    pub frames: Option<Count>,
    /// The interpolation.
    pub filter: Choice<Filter>,
}
