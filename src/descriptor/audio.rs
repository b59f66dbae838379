//! `[audio]`: from a clip's length to prompt tokens.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::image::{Tables, bare_frame};
use super::slot::{Count, Flag, Number};
use super::tower::{Connector, Features, Tower};

/// Everything about clips of sound.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Audio {
    /// Whether a checkpoint takes sound at all; left out, it does. Where it does not, it has neither budget nor tower for it.
    pub when: Option<Flag>,
    /// The token that stands for one clip in a rendered prompt, by its name in `[tokens]`.
    #[schemars(extend("x-reads" = "token"))]
    pub marker: String,
    /// The token under a clip's encoder rows; left out, the marker.
    #[schemars(extend("x-reads" = "token"))]
    pub fill: Option<String>,
    /// What the chat template puts around the marker: `<token>`, `"text"`, and `*` for the marker.
    #[serde(default = "bare_frame")]
    #[schemars(extend("x-reads" = "frame"))]
    pub frame: String,
    /// Tokens that the texts of `frame` may add by splitting their neighbours; counted where the framing is not measured.
    #[serde(default)]
    pub seam: u32,
    /// How a clip becomes frames, and frames become rows; it decides the layout.
    pub clip: Clip,
    /// What the tower reads of a clip; left out, clips are counted and not run.
    pub mel: Option<Mel>,
    /// The token slots that one marker expands to.
    #[schemars(extend("x-reads" = "strip"))]
    pub strip: String,
    /// Texts that a strip uses, by name.
    #[serde(default)]
    pub literals: IndexMap<String, String>,
    /// The encoder. Left out, together with `features` and `connector`, where `[[tensors.inventory]]` below `audio_tower` lists
    /// its tensors: they are checked, and nothing of it is interpreted.
    pub tower: Option<Tower>,
    /// What of the encoder's states is used.
    pub features: Option<Features>,
    /// From encoder states to rows of the decoder.
    pub connector: Option<Connector>,
}

impl Audio {
    /// What clips have in common with pictures.
    pub fn tables(&self) -> Tables<'_> {
        Tables {
            marker: &self.marker,
            fill: self.fill.as_deref().unwrap_or(&self.marker),
            frame: &self.frame,
            seam: self.seam,
            strip: &self.strip,
            literals: &self.literals,
            patches: None,
            states: None,
        }
    }
}

/// The names of a clip's layout: samples kept, frames that hold sound, rows after the steps.
pub const CLIP: [&str; 3] = ["samples", "frames", "rows"];

/// From samples to frames to rows. Layout: `samples` (kept), `frames` (that hold sound), `rows` (after the steps).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Clip {
    /// Samples per second that the model takes; a file at another rate is resampled.
    pub rate: Count,
    /// Samples that are kept of a longer clip.
    pub limit: Count,
    /// Silent samples put in front; left out, none.
    pub lead: Option<Count>,
    /// Samples from one frame to the next.
    pub hop: Count,
    /// A frame counts if this many samples from its beginning are all of the clip; left out, 1.
    pub span: Option<Count>,
    /// What shortens the sequence of frames, in order: convolutions and pooling.
    #[serde(default)]
    pub steps: Vec<Step>,
}

/// One step over a sequence of n: ⌊(n + 2 · padding − kernel) / stride⌋ + 1 remain.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ClipStep")]
pub struct Step {
    /// Positions that are read at a time.
    pub kernel: Count,
    /// Positions from one to the next.
    pub stride: Count,
    /// Positions added at both ends; left out, none.
    pub padding: Option<Count>,
}

/// Energies in mel bands: (log10(energy) + `shift`) / `scale`. Frames are centred on every `clip.hop`-th sample, weighted by a
/// periodic Hann window; bands are triangles of equal area, equally wide on Slaney's mel scale, from 0 Hz on.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mel {
    /// Samples that every clip is cut or padded to.
    pub length: Count,
    /// What it is padded with; left out, 0.
    pub silence: Option<Number>,
    /// The amplitude of noise that the processor adds; with any but 0, clips are counted and not run. Left out, none.
    pub dither: Option<Number>,
    /// Samples of a frame, and of its Fourier transform.
    pub window: Count,
    /// Bands of a frame.
    pub bands: Count,
    /// The highest frequency of the last band, in Hz.
    pub high: Count,
    /// Energies below count as so much.
    pub floor: Number,
    /// Decades below the largest energy of a clip that are kept; what is less is raised to that.
    pub range: Number,
    /// What is added to the logarithm.
    pub shift: Number,
    /// What then divides it.
    pub scale: Number,
}
