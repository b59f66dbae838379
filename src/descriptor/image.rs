//! `[image]`: from a picture's size to prompt tokens.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::resize::Resize;
use super::slot::{Count, Flag, Number};
use super::tower::{Connector, Features, Tower};

/// Everything about pictures.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Image {
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
    /// Patches of the tower over the layout, where they are not the same for every picture: what the tower's cost depends on.
    #[schemars(extend("x-layout" = true))]
    pub patches: Option<Count>,
    /// Rows that the decoder's cross-attention sees of one picture, over the layout, where pictures enter that way.
    #[schemars(extend("x-layout" = true))]
    pub states: Option<Count>,
    /// What holds instead where a prompt has more than one picture.
    pub several: Option<Several>,
    /// The encoder. Left out, together with `features` and `connector`, where `[[tensors.inventory]]` below `tower` lists
    /// its tensors: they are checked, and nothing of it is interpreted.
    pub tower: Option<Tower>,
    /// What of the encoder's states is used.
    pub features: Option<Features>,
    /// From encoder states to rows of the decoder.
    pub connector: Option<Connector>,
}

pub(super) fn bare_frame() -> String {
    "*".to_owned()
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

/// What holds instead where a prompt has more than one picture.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Several {
    /// How a picture becomes the pixels of the tower.
    pub resize: Resize,
    /// The token slots that one marker expands to.
    #[schemars(extend("x-reads" = "strip"))]
    pub strip: String,
}

/// What pictures and clips have in common.
#[derive(Debug, Clone, Copy)]
pub struct Tables<'a> {
    /// The token that stands for one item.
    pub marker: &'a str,
    /// The token under encoder rows.
    pub fill: &'a str,
    /// What the chat template puts around the marker.
    pub frame: &'a str,
    /// Tokens that the texts of `frame` may add.
    pub seam: u32,
    /// The token slots that one marker expands to.
    pub strip: &'a str,
    /// Texts by name.
    pub literals: &'a IndexMap<String, String>,
    /// Patches over the layout.
    pub patches: Option<&'a Count>,
    /// Rows that cross-attention sees, over the layout.
    pub states: Option<&'a Count>,
}

impl Image {
    /// What pictures have in common with clips.
    pub fn tables(&self) -> Tables<'_> {
        Tables {
            marker: &self.marker,
            fill: self.fill.as_deref().unwrap_or(&self.marker),
            frame: &self.frame,
            seam: self.seam,
            strip: &self.strip,
            literals: &self.literals,
            patches: self.patches.as_ref(),
            states: self.states.as_ref(),
        }
    }
}
