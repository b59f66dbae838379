//! Sound files: how long they are, from headers and packets alone; and their samples, one channel at the rate of a model.
//!
//! The reference loads files with libsndfile and resamples with soxr (`transformers.audio_utils._load_audio_soundfile`), so
//! what these make is the measure:
//!
//! * **WAV** (RIFF, RF64) with one width for all samples is read here: as many frames as its data chunk says and the file
//!   holds. Recorders that were cut off, and programs that write into pipes, leave a length that is not true; the length of
//!   RIFF itself and the `fact` chunk of such files mean nothing.
//! * **FLAC and Ogg Vorbis** say how long they are, or their packets are counted.
//! * **MP3** has its packets counted, always: without a Xing tag there is only a guess from the first ones, and with one the
//!   file may still be cut off. What the encoder put before and behind is taken off where a LAME tag tells how much.
//!
//! Samples of WAV and FLAC equal libsndfile's bit for bit, those of MP3 and Vorbis up to the rounding of decoders. Channels
//! are averaged in f32.
//!
//! # What surprises
//!
//! * Variable-rate MP3 without a Xing tag is cut by libsndfile at a guess of its length; here it keeps all of its packets.
//! * FLAC that is cut off is as long as it says it is; loading fails as it does in libsndfile, when it reads as far.
//! * A clip is never read further than its first `most` samples need, so a long file costs no memory.

mod packed;
mod resample;
mod wave;

use std::fs::File;
use std::io::Seek;
use std::path::Path;

use self::packed::Packed;
use self::resample::Resampler;
use self::wave::{Wave, wave};
use crate::error::{Error, ErrorKind, Result};

/// Samples per second of a file, at most: twice what any format in use has.
const MOST_RATE: u32 = 3_072_000;

/// The length of a clip at its own rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClipLength {
    /// Samples of each channel.
    pub samples: u64,
    /// Samples per second.
    pub rate: u32,
}

impl ClipLength {
    /// Samples after resampling to `rate`: ⌈samples · rate / own rate⌉, as the reference's loader cuts or pads to.
    pub fn at(self, rate: u32) -> u64 {
        let scaled = u128::from(self.samples) * u128::from(rate);
        u64::try_from(scaled.div_ceil(u128::from(self.rate.max(1)))).unwrap_or(u64::MAX)
    }
}

/// The beginning of a clip, all channels in one, at the rate asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Sound {
    /// The first samples, from -1 to 1; lossy files may go beyond.
    pub samples: Vec<f32>,
    /// Samples of the whole clip at that rate, as [`ClipLength::at`] counts them.
    pub length: u64,
}

/// A file that is understood.
enum Opened {
    Plain(File, wave::Plain),
    Packed(Packed),
}

impl Opened {
    fn new(file: &Path) -> Result<Self> {
        let mut source = File::open(file)
            .map_err(|error| failed(file, "cannot be opened").with_source(error))?;
        let unreadable = |error| failed(file, "cannot be read").with_source(error);
        match wave(&mut source).map_err(unreadable)? {
            Wave::Plain(plain) => return Ok(Self::Plain(source, plain)),
            Wave::Damaged => return Err(failed(file, "is a WAV file that is damaged")),
            Wave::Other => {}
        }
        source.rewind().map_err(unreadable)?;
        Packed::new(source, file).map(Self::Packed)
    }

    /// The length; packets may have to be read for it, so that nothing is left to decode.
    fn length(&mut self, file: &Path) -> Result<ClipLength> {
        let length = match self {
            Self::Plain(_, plain) => plain.length,
            Self::Packed(packed) => packed.length(file)?,
        };
        if length.rate > MOST_RATE {
            let rate = length.rate;
            return Err(failed(file, &format!("has {rate} samples a second, at most {MOST_RATE}")));
        }
        Ok(length)
    }

    /// The first `most` samples of a clip of so many; fewer where the file ends before.
    fn read(self, file: &Path, length: ClipLength, most: u64) -> Result<Vec<f32>> {
        match self {
            Self::Plain(mut source, plain) => plain
                .read(&mut source, most)
                .map_err(|error| failed(file, "cannot be read").with_source(error)),
            Self::Packed(packed) => packed.read(file, length.rate, most),
        }
    }
}

fn failed(file: &Path, what: &str) -> Error {
    Error::new(ErrorKind::Media, format!("`{}` {what}", file.display()))
}

/// The length of a WAV, FLAC, MP3 or Ogg Vorbis file.
///
/// # Errors
/// [`ErrorKind::Media`] if the file cannot be read or is no such file.
pub fn clip_length(file: &Path) -> Result<ClipLength> {
    Opened::new(file)?.length(file)
}

/// The first `most` samples of a file at `rate` samples per second, and the length of all of it.
///
/// The filter of another rate is that of `soxr`'s `HQ` setting; see the source for how near.
///
/// # Errors
/// [`ErrorKind::Media`] if the file cannot be read, is no sound that is understood, ends before its length, or has samples
/// that are no numbers.
pub fn load_sound(file: &Path, rate: u32, most: u64) -> Result<Sound> {
    let mut opened = Opened::new(file)?;
    let length = opened.length(file)?;
    if let Opened::Packed(_) = opened {
        opened = Opened::new(file)?;
    }
    let resampler = Resampler::new(length.rate, rate)
        .ok_or_else(|| failed(file, &format!("cannot be resampled to a rate of {rate}")))?;
    let kept = length.at(rate).min(most);
    let needed = resampler.needed(kept).min(length.samples);
    let samples = opened.read(file, length, needed)?;
    if (samples.len() as u64) < needed {
        let held = samples.len();
        return Err(failed(file, &format!("ends after {held} of its {} samples", length.samples)));
    }
    if !samples.iter().all(|sample| sample.is_finite()) {
        return Err(failed(file, "has samples that are not finite"));
    }
    let kept = usize::try_from(kept).map_err(|_| failed(file, "does not fit into memory"))?;
    Ok(Sound {
        samples: resampler.resample(samples, length.samples, kept),
        length: length.at(rate),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// Files that libsndfile 1.2.2 wrote; their names end in the samples that it reads.
    #[test]
    fn other_formats() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sound");
        let mut files = 0;
        for entry in fs::read_dir(&folder).unwrap() {
            let file = entry.unwrap().path();
            let stem = file.file_stem().unwrap().to_str().unwrap();
            let Some((name, expected)) = stem.rsplit_once('_') else { continue };
            files += 1;
            match expected.parse::<u64>() {
                Ok(expected) => {
                    let length = clip_length(&file).unwrap();
                    assert_eq!((length.samples, length.rate), (expected, 8000), "{name}");
                }
                Err(_) => assert!(clip_length(&file).is_err(), "{name}"),
            }
        }
        assert_eq!(files, 8);
    }

    #[test]
    fn resampled_lengths_are_rounded_up() {
        let at = |samples, rate, to| ClipLength { samples, rate }.at(to);
        assert_eq!(at(44_100, 44_100, 16_000), 16_000);
        assert_eq!(at(44_101, 44_100, 16_000), 16_001);
        assert_eq!(at(1, 48_000, 16_000), 1);
        assert_eq!(at(0, 48_000, 16_000), 0);
        assert_eq!(at(240_396, 16_000, 16_000), 240_396);
        assert_eq!(at(u64::MAX, 1, 16_000), u64::MAX);
    }
}
