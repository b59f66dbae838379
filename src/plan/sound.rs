//! What clips become before a tower reads them, bound to one checkpoint.

use super::Plan;
use crate::descriptor::slot::{Count, Number};
use crate::layout::Policy;
use crate::media::{LogMel, MelSettings};
use crate::problem::Problem;

impl Plan {
    /// What makes mel bands of a clip's samples.
    ///
    /// # Errors
    /// The problem of a value that is missing or of another type, of settings that make no finite values, or of a family that
    /// does not say what its tower reads.
    pub fn log_mel(&self) -> Result<LogMel, Problem> {
        let audio = self.descriptor.family.audio.as_ref();
        let audio =
            audio.ok_or_else(|| Problem::error("key-missing", "this family takes no clips"))?;
        let mel = audio.mel.as_ref().ok_or_else(|| {
            Problem::error(
                "key-missing",
                "the family file does not say what the tower reads of a clip",
            )
            .at(self.descriptor.place("audio"))
        })?;
        let refused = |message: String| {
            Problem::error("sound-settings", message).at(self.descriptor.place("audio.mel"))
        };
        let number = |number: &Number| self.values.number(number);
        let optional = |slot: Option<&Number>| slot.map_or(Ok(0.0), number);
        let count = |what: &str, count: &Count| {
            let size = self.values.size(what, count, 1)?;
            u32::try_from(size).map_err(|_| refused(format!("{what} is {size}")))
        };
        let dither = optional(mel.dither.as_ref())?;
        if dither != 0.0 {
            return Err(refused(format!(
                "noise of {dither} is added at random, which nothing repeats"
            )));
        }
        LogMel::new(MelSettings {
            rate: count("the rate", &audio.clip.rate)?,
            length: count("the length of clips", &mel.length)?,
            silence: optional(mel.silence.as_ref())? as f32,
            window: count("the window", &mel.window)?,
            hop: count("the hop", &audio.clip.hop)?,
            bands: count("the number of bands", &mel.bands)?,
            high: count("the highest frequency", &mel.high)?,
            floor: number(&mel.floor)?,
            range: number(&mel.range)?,
            shift: number(&mel.shift)?,
            scale: number(&mel.scale)?,
        })
        .map_err(refused)
    }

    /// Samples per second of the clips that the model takes; `None` where that is not known.
    pub fn sample_rate(&self) -> Option<u32> {
        match &self.audio.as_ref()?.as_ref().ok()?.shape.policy {
            Policy::Clip(clip) => Some(clip.rate()),
            _ => None,
        }
    }
}
