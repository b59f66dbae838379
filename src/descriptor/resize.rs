//! `[image.resize]`: size policies and their parameters.

use schemars::JsonSchema;
use serde::Deserialize;

use super::slot::{Choice, Count, Flag, Member, Number};
use crate::media::Filter;

impl Member for Filter {
    const KIND: &'static str = "filter";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("bilinear", "Triangle, antialiased.", Self::Bilinear),
        ("bicubic", "Keys' cubic with a = −1/2, antialiased.", Self::Bicubic),
        ("lanczos", "Lanczos with three lobes, antialiased.", Self::Lanczos),
        ("plain", "Bilinear in floats, not antialiased.", Self::Plain),
    ];
}

impl Member for Whole {
    const KIND: &'static str = "whole view";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("none", "There is no view of the whole picture.", Self::None),
        ("first", "It stands before the tiles, always.", Self::First),
        ("last_if_many", "It stands after the tiles, unless there is only one.", Self::LastIfMany),
    ];
}

/// Whether a view of the whole picture goes with its tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whole {
    /// None does.
    None,
    /// Before the tiles, always.
    First,
    /// After the tiles, unless there is only one.
    LastIfMany,
}

/// The names of the layouts of a resize kind: what strips, floors, requirements and position rules may read.
pub fn layout_names(kind: &str) -> Option<&'static [&'static str]> {
    KINDS.iter().find(|(name, _)| *name == kind).map(|(_, names)| *names)
}

/// The names of the layouts of all kinds.
pub(super) fn any_layout() -> Vec<&'static str> {
    let mut names = Vec::new();
    for name in KINDS.iter().flat_map(|(_, names)| names.iter()) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    names
}

/// Every resize kind with the names of its layouts.
pub const KINDS: [(&str, &[&str]); 9] = [
    ("crop", &PLAIN),
    ("area", &PLAIN),
    ("fit", &PLAIN),
    ("patch_budget", &PLAIN),
    ("pinpoints", &PINPOINTS),
    ("closest_ratio", &CLOSEST_RATIO),
    ("ceil_grid", &CEIL_GRID),
    ("least_upscale", &LEAST_UPSCALE),
    ("pan_and_scan", &PAN_AND_SCAN),
];

/// Rows and columns of cells; the picture's width and height in pixels.
pub const PLAIN: [&str; 4] = ["rows", "cols", "width", "height"];
/// Cells that are left of the tiles; tiles down and across; views; cells of the whole view; the canvas in pixels.
pub const PINPOINTS: [&str; 9] = [
    "rows",
    "cols",
    "grid_rows",
    "grid_cols",
    "tiles",
    "base_rows",
    "base_cols",
    "width",
    "height",
];
/// Tiles down and across; views; whether one of them is a thumbnail (1 or 0); the canvas in pixels.
pub const CLOSEST_RATIO: [&str; 6] = ["rows", "cols", "tiles", "thumb", "width", "height"];
/// Tiles down and across, both 0 where the picture is one view; views; the canvas in pixels.
pub const CEIL_GRID: [&str; 5] = ["rows", "cols", "tiles", "width", "height"];
/// Merged cells of the tiles; tiles down and across, and in all; views; merged cells of the whole view; the canvas in pixels.
pub const LEAST_UPSCALE: [&str; 10] = [
    "rows",
    "cols",
    "grid_rows",
    "grid_cols",
    "tiles",
    "views",
    "base_rows",
    "base_cols",
    "width",
    "height",
];
/// Cells of a view; crops; views; a view in pixels.
pub const PAN_AND_SCAN: [&str; 6] = ["rows", "cols", "crops", "tiles", "width", "height"];

/// A resize policy.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("x-kind" = "resize kind"))]
pub enum Resize {
    /// One fixed size: resize (shortest edge, or to a height and width), then cut or pad around the centre.
    Crop(CropParameters),
    /// Both sides to multiples of a step, keeping the aspect ratio, the area within bounds.
    Area(AreaParameters),
    /// Shrunk until both sides are within limits, then both up to whole cells.
    Fit(FitParameters),
    /// Scaled up or down to as many cells as a budget allows, both sides floored to whole cells.
    PatchBudget(PatchBudgetParameters),
    /// Tiles of the canvas, out of a list, that wastes least; what was padded is cut off again. A view of the whole first.
    Pinpoints(PinpointsParameters),
    /// Tiles in the grid whose ratio is closest to the picture's; a thumbnail after several.
    ClosestRatio(ClosestRatioParameters),
    /// The long side to a length, then both sides up to whole tiles; a view of the whole after several.
    CeilGrid(CeilGridParameters),
    /// Tiles, which may overlap, in the grid that enlarges least.
    LeastUpscale(LeastUpscaleParameters),
    /// One view of fixed size; long pictures give crops along their long side besides.
    PanAndScan(PanAndScanParameters),
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
    /// Whether pictures with a side below the step are enlarged until both have it, before anything else.
    pub enlarge: Option<Flag>,
    /// The interpolation.
    pub filter: Choice<Filter>,
}

/// Parameters of `fit`. Layout: `rows`, `cols` (cells of the result), `width`, `height` (its pixels).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FitParameters {
    /// The largest height, in pixels.
    pub height: Count,
    /// The largest width, in pixels.
    pub width: Count,
    /// Pixels per cell.
    pub cell: Count,
    /// The interpolation.
    pub filter: Choice<Filter>,
}

/// Parameters of `patch_budget`. Layout: `rows`, `cols` (cells of the result), `width`, `height` (its pixels).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchBudgetParameters {
    /// Pixels per patch.
    pub patch: Count,
    /// Patches per side of a cell.
    pub pool: Count,
    /// The most cells.
    pub most: Count,
    /// The interpolation.
    pub filter: Choice<Filter>,
}

/// Parameters of `pinpoints`. Layout: `rows`, `cols` (cells that are left), `grid_rows`, `grid_cols` (tiles), `tiles` (views, the
/// whole one among them), `base_rows`, `base_cols` (cells of the whole view), `width`, `height` (the canvas in pixels).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PinpointsParameters {
    /// The canvases, each `[height, width]` in pixels, by the name of a config value.
    #[schemars(extend("x-reads" = "value"))]
    pub list: String,
    /// Pixels per side of a tile.
    pub tile: Count,
    /// Pixels per cell.
    pub cell: Count,
    /// Whether rows or columns of cells that hold padding alone are cut off.
    pub crop: Flag,
    /// Whether every view is resized once more.
    pub resize: Flag,
    /// The shortest edge that views are resized to; 0 where `height` and `width` hold. The whole view always is, to a square.
    pub shortest: Count,
    /// The height that views are resized to where `shortest` is 0.
    pub height: Count,
    /// The width that views are resized to where `shortest` is 0.
    pub width: Count,
    /// Whether the centre of every view is cut out.
    pub cut: Flag,
    /// The height cut out.
    pub cut_height: Count,
    /// The width cut out.
    pub cut_width: Count,
    /// More cells than this many tiles have (and a tenth per side) are scaled down to so many; 0 or left out, never.
    pub shrink_over: Option<Count>,
    /// The interpolation.
    pub filter: Choice<Filter>,
}

/// Parameters of `closest_ratio`. Layout: `rows`, `cols` (tiles), `tiles` (views), `thumb` (1 if one of them is a thumbnail),
/// `width`, `height` (the canvas in pixels).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClosestRatioParameters {
    /// Pixels per column of tiles.
    pub tile_width: Count,
    /// Pixels per row of tiles.
    pub tile_height: Count,
    /// The fewest tiles.
    pub least: Count,
    /// The most tiles.
    pub most: Count,
    /// Whether several tiles are followed by a view of the whole.
    pub thumb: Flag,
    /// Whether pictures are cut into tiles at all.
    pub cut: Flag,
    /// The interpolation.
    pub filter: Choice<Filter>,
}

/// Parameters of `ceil_grid`. Layout: `rows`, `cols` (tiles; both 0 where there is one view), `tiles` (views), `width`, `height`
/// (the canvas in pixels).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CeilGridParameters {
    /// The long side after resizing, in pixels.
    pub longest: Count,
    /// Pixels per side of a tile.
    pub tile: Count,
    /// Whether pictures are cut into tiles at all.
    pub split: Flag,
    /// The interpolation.
    pub filter: Choice<Filter>,
}

/// Parameters of `least_upscale`. Layout: `rows`, `cols` (merged cells of all tiles), `grid_rows`, `grid_cols` (tiles down and
/// across), `tiles` (their product), `views` (tiles and whole view), `base_rows`, `base_cols` (merged cells of one tile),
/// `width`, `height` (the canvas in pixels).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeastUpscaleParameters {
    /// Pixels per side of a tile.
    pub tile: Count,
    /// The most tiles.
    pub most: Count,
    /// Pixels per cell; left out, a tile is one cell.
    pub cell: Option<Count>,
    /// Cells at the beginning and at the end of a tile that its neighbours have as well, by the name of a config value; left
    /// out, none.
    #[schemars(extend("x-reads" = "value"))]
    pub margins: Option<String>,
    /// Cells that are merged, down and across, by the name of a config value; left out, 1 and 1.
    #[schemars(extend("x-reads" = "value"))]
    pub pool: Option<String>,
    /// Whether a view of the whole picture goes with the tiles.
    pub whole: Choice<Whole>,
    /// Whether the picture keeps its proportions in a corner of the canvas; otherwise it is stretched.
    pub inside: Flag,
    /// The interpolation.
    pub filter: Choice<Filter>,
}

/// Parameters of `pan_and_scan`. Layout: `rows`, `cols` (cells of a view), `crops`, `tiles` (crops and the view of the whole),
/// `width`, `height` (a view in pixels).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PanAndScanParameters {
    /// The height of a view, in pixels.
    pub height: Count,
    /// The width of a view, in pixels.
    pub width: Count,
    /// Pixels per cell.
    pub cell: Count,
    /// Whether long pictures give crops.
    pub scan: Flag,
    /// No crop is shorter, in pixels.
    pub min_crop: Count,
    /// The most crops.
    pub max_crops: Count,
    /// Pictures whose ratio of sides is below this give none.
    pub ratio: Number,
    /// The interpolation.
    pub filter: Choice<Filter>,
}
