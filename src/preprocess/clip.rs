//! From a sound file to the mel bands that a tower receives.

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::layout::{Layout, MediaSize};
use crate::media::load_sound;
use crate::plan::Plan;
use crate::problem::Problem;

/// A clip ready for the tower.
#[derive(Debug, Clone, PartialEq)]
pub struct Clip {
    /// What the policy made of it, as it is counted.
    pub layout: Layout,
    /// Values `[bins, frames]`, row after row, as the reference's `input_features`.
    pub mel: Vec<f32>,
    /// Mel bands.
    pub bins: usize,
    /// Frames, silence at the end included.
    pub frames: usize,
    /// Frames from the first on that hold sound: those under the reference's attention mask.
    pub valid: usize,
}

/// Decodes a clip that is one of `clips` of its prompt, and makes it what the reference processor makes of it.
///
/// A clip longer than the processor's window is cut there, and a shorter one is padded with silence, empty ones too.
///
/// # Errors
/// [`ErrorKind::Media`] if the file cannot be read or the family takes no clips; [`ErrorKind::NoNumber`] for config values.
pub fn preprocess_clip(plan: &Plan, file: &Path, clips: usize) -> Result<Clip> {
    let media = match &plan.audio {
        Some(Ok(media)) => media,
        Some(Err(problems)) => {
            let first = problems.iter().next().map(|problem| problem.message.clone());
            let error = Error::new(ErrorKind::NoNumber, first.unwrap_or_default());
            return Err(error.with_problems(problems.clone()));
        }
        None => {
            let message = format!("family `{}` takes no clips of sound", plan.family());
            return Err(Error::new(ErrorKind::Media, message));
        }
    };
    let config = |problem: Problem| {
        Error::new(ErrorKind::NoNumber, problem.message.clone()).with_problems(problem.into())
    };
    let log_mel = plan.log_mel().map_err(config)?;
    let sound = load_sound(file, log_mel.rate(), log_mel.length().into())?;
    let layout = media.shape(clips).policy.layout(MediaSize::Samples(sound.length));
    let layout = layout.map_err(|reason| {
        Error::new(ErrorKind::Media, format!("`{}` is refused: {reason}", file.display()))
    })?;
    let mel = log_mel.apply(&sound.samples);
    let valid = layout.get("frames").unwrap_or(0) as usize;
    Ok(Clip {
        layout,
        valid: valid.min(mel.frames),
        mel: mel.values,
        bins: mel.bands,
        frames: mel.frames,
    })
}
