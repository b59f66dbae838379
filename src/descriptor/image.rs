//! `[image]`: from a picture's size to prompt tokens.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::slot::{Choice, Count, Flag, Member, Number};
use super::tower::{Connector, Features, Tower};
use crate::media::Filter;

impl Member for Filter {
    const KIND: &'static str = "filter";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("bilinear", "Triangle, antialiased.", Self::Bilinear),
        ("bicubic", "Keys' cubic with a = −1/2, antialiased.", Self::Bicubic),
        ("lanczos", "Lanczos with three lobes, antialiased.", Self::Lanczos),
    ];
}

/// Everything about one modality.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Media {
    /// The token that stands for one item in a rendered prompt, by its name in `[tokens]`.
    #[schemars(extend("x-reads" = "token"))]
    pub marker: String,
    /// The token under an item's encoder rows; left out, the marker.
    #[schemars(extend("x-reads" = "token"))]
    pub fill: Option<String>,
    /// What the chat template puts around the marker: `<token>`, `"text"`, and `*` for the marker.
    #[serde(default = "bare_frame")]
    #[schemars(extend("x-reads" = "frame"))]
    pub frame: String,
    /// Tokens that the texts of `frame` may add by splitting their neighbours; counted where the framing is not measured.
    #[serde(default)]
    pub seam: u32,
    /// How a picture becomes the pixels of the tower; it decides the layout.
    pub resize: Resize,
    /// From bytes to floats.
    pub pixels: Pixels,
    /// The token slots that one marker expands to.
    #[schemars(extend("x-reads" = "strip"))]
    pub strip: String,
    /// Texts that a strip uses, by name.
    #[serde(default)]
    pub literals: IndexMap<String, String>,
    /// The encoder.
    pub tower: Tower,
    /// What of the encoder's states is used.
    pub features: Features,
    /// From encoder states to rows of the decoder.
    pub connector: Connector,
}

/// The names of a layout that strips, floors, requirements and position rules may read: what every resize policy returns.
pub const LAYOUT_NAMES: [&str; 4] = ["rows", "cols", "width", "height"];

fn bare_frame() -> String {
    "*".to_owned()
}

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

/// From bytes to floats.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pixels {
    /// Whether bytes are multiplied by `factor`.
    pub rescale: Flag,
    /// The factor, usually 1 / 255.
    pub factor: Number,
    /// Whether mean and deviation are applied.
    pub normalise: Flag,
    /// The mean per channel, by the name of a config value.
    #[schemars(extend("x-reads" = "value"))]
    pub mean: String,
    /// The deviation per channel, by the name of a config value.
    #[schemars(extend("x-reads" = "value"))]
    pub std: String,
}
