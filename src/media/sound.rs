//! How long a sound file is, without decoding it where its header tells.

use std::fs::File;
use std::path::Path;

use symphonia::core::codecs::CodecParameters;
use symphonia::core::errors::Error as SymphoniaError;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, TrackType};
use symphonia::core::io::{MediaSourceStream, MediaSourceStreamOptions};
use symphonia::core::meta::MetadataOptions;

use crate::error::{Error, ErrorKind, Result};

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

/// The length of a WAV, FLAC, MP3 or Ogg file. Where the header does not tell, its packets are counted.
///
/// # Errors
/// [`ErrorKind::Media`] if the file cannot be read or is no such file.
pub fn clip_length(file: &Path) -> Result<ClipLength> {
    let name = file.display();
    let failed = |what: &str| Error::new(ErrorKind::Media, format!("`{name}` {what}"));
    let source = File::open(file).map_err(|error| failed("cannot be opened").with_source(error))?;
    let stream = MediaSourceStream::new(Box::new(source), MediaSourceStreamOptions::default());
    let mut format = symphonia::default::get_probe()
        .probe(&Hint::new(), stream, FormatOptions::default(), MetadataOptions::default())
        .map_err(|error| {
            failed("is no WAV, FLAC, MP3 or Ogg file that is understood").with_source(error)
        })?;
    let track = format.default_track(TrackType::Audio).ok_or_else(|| failed("holds no sound"))?;
    let (id, known) = (track.id, track.num_frames);
    let rate = match &track.codec_params {
        Some(CodecParameters::Audio(parameters)) => parameters.sample_rate,
        _ => None,
    };
    let rate = rate
        .filter(|rate| *rate > 0)
        .ok_or_else(|| failed("does not say how many samples a second has"))?;
    if let Some(samples) = known {
        return Ok(ClipLength { samples, rate });
    }
    let mut samples = 0_u64;
    loop {
        match format.next_packet() {
            Ok(Some(packet)) if packet.track_id == id => {
                samples = samples.saturating_add(packet.dur.get());
            }
            Ok(Some(_)) => {}
            Ok(None) => return Ok(ClipLength { samples, rate }),
            Err(SymphoniaError::IoError(error))
                if error.kind() == std::io::ErrorKind::UnexpectedEof =>
            {
                return Ok(ClipLength { samples, rate });
            }
            Err(error) => return Err(failed("is damaged").with_source(error)),
        }
    }
}
