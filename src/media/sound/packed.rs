//! Sound in packets: FLAC, MP3, Ogg Vorbis, and WAV with blocks of packed samples.

use std::fs::File;
use std::io::ErrorKind as IoKind;
use std::path::Path;

use symphonia::core::codecs::CodecParameters;
use symphonia::core::codecs::audio::well_known::{CODEC_ID_MP3, CODEC_ID_OPUS};
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoderOptions};
use symphonia::core::errors::Error as SymphoniaError;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::{MediaSourceStream, MediaSourceStreamOptions};
use symphonia::core::meta::MetadataOptions;
use symphonia::core::packet::Packet;

use super::{ClipLength, failed};
use crate::error::Result;

/// A file of packets, at its first one.
pub(super) struct Packed {
    format: Box<dyn FormatReader>,
    track: u32,
    codec: AudioCodecParameters,
    rate: u32,
    /// Samples that the file says it has.
    known: Option<u64>,
    /// Samples that an encoder put in front, where it says so.
    delay: Option<u32>,
}

impl Packed {
    /// Reads the headers of a file.
    pub(super) fn new(source: File, file: &Path) -> Result<Self> {
        let failed = |what: &str| failed(file, what);
        let stream = MediaSourceStream::new(Box::new(source), MediaSourceStreamOptions::default());
        let format = symphonia::default::get_probe()
            .probe(&Hint::new(), stream, FormatOptions::default(), MetadataOptions::default())
            .map_err(|error| {
                failed("is no WAV, FLAC, MP3 or Ogg file that is understood").with_source(error)
            })?;
        let track =
            format.default_track(TrackType::Audio).ok_or_else(|| failed("holds no sound"))?;
        let (id, known, delay) = (track.id, track.num_frames, track.delay);
        let Some(CodecParameters::Audio(codec)) = track.codec_params.clone() else {
            return Err(failed("does not say how many samples a second has"));
        };
        if codec.codec == CODEC_ID_OPUS {
            return Err(failed("holds Opus sound, which is not understood"));
        }
        let rate = codec
            .sample_rate
            .filter(|rate| *rate > 0)
            .ok_or_else(|| failed("does not say how many samples a second has"))?;
        Ok(Self { format, track: id, codec, rate, known, delay })
    }

    /// Whether packets are counted and decoded as they are, and what an encoder added is taken off here: a file that is cut
    /// off does not hold all that its tag speaks of.
    fn whole(&self) -> bool {
        self.codec.codec == CODEC_ID_MP3
    }

    /// Samples to take off in front, and how many to keep at most.
    fn kept(&self) -> (u64, u64) {
        match (self.known, self.delay) {
            (Some(known), Some(delay)) if self.whole() => (delay.into(), known),
            // without a LAME tag nothing is taken off, and without a Xing tag nothing is known
            _ if self.whole() => (0, u64::MAX),
            (known, _) => (0, known.unwrap_or(u64::MAX)),
        }
    }

    /// How long the sound is. Reads all packets where nothing else tells.
    pub(super) fn length(&mut self, file: &Path) -> Result<ClipLength> {
        let (whole, rate) = (self.whole(), self.rate);
        let (front, most) = self.kept();
        let samples = match self.known {
            Some(known) if !whole => known,
            _ => {
                let mut samples = 0_u64;
                while let Some(packet) = self.next(file)? {
                    let held = if whole { layer_3(&packet.data) } else { packet.dur.get() };
                    samples = samples.saturating_add(held);
                }
                samples.saturating_sub(front).min(most)
            }
        };
        Ok(ClipLength { samples, rate })
    }

    /// The next packet of the track; `None` at the end, also where that is too early.
    fn next(&mut self, file: &Path) -> Result<Option<Packet>> {
        loop {
            match self.format.next_packet() {
                Ok(Some(packet)) if packet.track_id == self.track => return Ok(Some(packet)),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(SymphoniaError::IoError(error)) if error.kind() == IoKind::UnexpectedEof => {
                    return Ok(None);
                }
                Err(error) => return Err(failed(file, "is damaged").with_source(error)),
            }
        }
    }

    /// The first `most` samples, the mean of all channels; fewer where packets end before.
    pub(super) fn read(mut self, file: &Path, rate: u32, most: u64) -> Result<Vec<f32>> {
        let options = AudioDecoderOptions::default().gapless(!self.whole());
        let mut decoder = symphonia::default::get_codecs()
            .make_audio_decoder(&self.codec, &options)
            .map_err(|error| {
                failed(file, "holds sound in a form that is not understood").with_source(error)
            })?;
        let (mut skip, known) = self.kept();
        let most = usize::try_from(most.min(known))
            .map_err(|_| failed(file, "does not fit into memory"))?;
        let (mut mono, mut frames) = (Vec::new(), Vec::<f32>::new());
        while mono.len() < most {
            let Some(packet) = self.next(file)? else { break };
            let decoded = decoder
                .decode(&packet)
                .map_err(|error| failed(file, "is damaged").with_source(error))?;
            let channels = decoded.num_planes();
            if decoded.spec().rate() != rate {
                return Err(failed(file, "changes its rate on the way"));
            }
            if decoded.is_empty() || channels == 0 {
                continue;
            }
            decoded.copy_to_vec_interleaved(&mut frames);
            let skipped = usize::try_from(skip).unwrap_or(usize::MAX).min(decoded.frames());
            skip -= skipped as u64;
            let means = frames
                .chunks_exact(channels)
                .skip(skipped)
                .take(most - mono.len())
                .map(|frame| frame.iter().sum::<f32>() / channels as f32);
            mono.extend(means);
        }
        Ok(mono)
    }
}

/// Samples of one frame of MPEG layer 3, by the version in its header. What the demuxer says of a packet leaves out what lies
/// behind the length that it guessed from the first ones.
fn layer_3(frame: &[u8]) -> u64 {
    match frame.get(1) {
        Some(byte) if byte & 0x18 == 0x18 => 1152,
        _ => 576,
    }
}
