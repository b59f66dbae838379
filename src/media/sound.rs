//! How long a sound file is, from its headers and packets; no sound is decoded.
//!
//! The reference loads files with libsndfile (`transformers.audio_utils.load_audio`), so what that reads is the measure:
//!
//! * **WAV** (RIFF, RF64) with one width for all samples is measured here: as many frames as its data chunk says and the file
//!   holds. Recorders that were cut off, and programs that write into pipes, leave a length that is not true; the length of
//!   RIFF itself and the `fact` chunk of such files mean nothing.
//! * **FLAC and Ogg Vorbis** say so themselves, or their packets are counted.
//! * **MP3** has its packets counted, always: without a Xing tag there is only a guess from the first ones, and with one the
//!   file may still be cut off. What the encoder put before and behind is taken off where a LAME tag tells how much.
//!
//! # What surprises
//!
//! * Variable-rate MP3 without a Xing tag is cut by libsndfile at a guess of its length; here it keeps all of its packets.
//! * FLAC that is cut off is as long as it says it is; libsndfile fails only when it reads as far.

use std::fs::File;
use std::io::{BufReader, ErrorKind as IoKind, Read, Seek, SeekFrom};
use std::path::Path;

use symphonia::core::codecs::CodecParameters;
use symphonia::core::codecs::audio::well_known::{CODEC_ID_MP3, CODEC_ID_OPUS};
use symphonia::core::errors::Error as SymphoniaError;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
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

/// The length of a WAV, FLAC, MP3 or Ogg Vorbis file.
///
/// # Errors
/// [`ErrorKind::Media`] if the file cannot be read or is no such file.
pub fn clip_length(file: &Path) -> Result<ClipLength> {
    let name = file.display();
    let failed = |what: &str| Error::new(ErrorKind::Media, format!("`{name}` {what}"));
    let mut source =
        File::open(file).map_err(|error| failed("cannot be opened").with_source(error))?;
    let unreadable = |error| failed("cannot be read").with_source(error);
    match wave(&mut source).map_err(unreadable)? {
        Wave::Plain(length) => return Ok(length),
        Wave::Damaged => return Err(failed("is a WAV file that is damaged")),
        Wave::Other => {}
    }
    source.rewind().map_err(unreadable)?;
    let stream = MediaSourceStream::new(Box::new(source), MediaSourceStreamOptions::default());
    let mut format = symphonia::default::get_probe()
        .probe(&Hint::new(), stream, FormatOptions::default(), MetadataOptions::default())
        .map_err(|error| {
            failed("is no WAV, FLAC, MP3 or Ogg file that is understood").with_source(error)
        })?;
    let track = format.default_track(TrackType::Audio).ok_or_else(|| failed("holds no sound"))?;
    let (id, known, delay) = (track.id, track.num_frames, track.delay);
    let (codec, rate) = match &track.codec_params {
        Some(CodecParameters::Audio(parameters)) => {
            (Some(parameters.codec), parameters.sample_rate)
        }
        _ => (None, None),
    };
    if codec == Some(CODEC_ID_OPUS) {
        return Err(failed("holds Opus sound, which is not understood"));
    }
    let rate = rate
        .filter(|rate| *rate > 0)
        .ok_or_else(|| failed("does not say how many samples a second has"))?;
    let mut packets = |whole| {
        packet_samples(&mut *format, id, whole)
            .map_err(|error| failed("is damaged").with_source(error))
    };
    let samples = match (known, delay) {
        (Some(known), Some(delay)) if codec == Some(CODEC_ID_MP3) => {
            packets(true)?.saturating_sub(delay.into()).min(known)
        }
        // without a LAME tag nothing is taken off, and without a Xing tag nothing is known
        _ if codec == Some(CODEC_ID_MP3) => packets(true)?,
        (Some(known), _) => known,
        (None, _) => packets(false)?,
    };
    Ok(ClipLength { samples, rate })
}

/// The samples of all packets of a track; if `whole`, also those that a player would drop.
fn packet_samples(
    format: &mut dyn FormatReader,
    track: u32,
    whole: bool,
) -> Result<u64, SymphoniaError> {
    let mut samples = 0_u64;
    loop {
        match format.next_packet() {
            Ok(Some(packet)) if packet.track_id == track => {
                samples = samples.saturating_add(packet.dur.get());
                if whole {
                    samples = samples.saturating_add(packet.trim_start.get());
                    samples = samples.saturating_add(packet.trim_end.get());
                }
            }
            Ok(Some(_)) => {}
            Ok(None) => return Ok(samples),
            Err(SymphoniaError::IoError(error)) if error.kind() == IoKind::UnexpectedEof => {
                return Ok(samples);
            }
            Err(error) => return Err(error),
        }
    }
}

/// What a `fmt ` chunk says of samples that all have the same width.
#[derive(Debug, Clone, Copy)]
struct Frames {
    /// Bytes of one sample of every channel.
    bytes: u64,
    rate: u32,
}

/// `WAVE_FORMAT_PCM`, `_IEEE_FLOAT`, `_ALAW` and `_MULAW`: encodings without blocks.
const PLAIN: [u16; 4] = [1, 3, 6, 7];
/// `WAVE_FORMAT_EXTENSIBLE`: the tag stands at the beginning of a GUID.
const EXTENSIBLE: u16 = 0xFFFE;
/// A length that stands in a `ds64` chunk, or was never filled in.
const ELSEWHERE: u32 = u32::MAX;

/// What a file is as a RIFF or RF64 WAVE file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wave {
    /// One with plain samples, so many.
    Plain(ClipLength),
    /// One that lacks its data or says what cannot be.
    Damaged,
    /// Something else, or one whose samples are packed in blocks.
    Other,
}

/// Reads the chunks of a WAVE file up to its data.
fn wave(file: &mut (impl Read + Seek)) -> std::io::Result<Wave> {
    let end = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    let mut file = BufReader::new(file);
    let Some([r, i, f, x, _, _, _, _, b'W', b'A', b'V', b'E']) = array(&mut file)? else {
        return Ok(Wave::Other);
    };
    if ![*b"RIFF", *b"RF64"].contains(&[r, i, f, x]) {
        return Ok(Wave::Other);
    }
    let (mut frames, mut long) = (None, None);
    while let Some([a, b, c, d, e, f, g, h]) = array(&mut file)? {
        let length = u32::from_le_bytes([e, f, g, h]);
        let mut rest = i64::from(length) + i64::from(length & 1);
        match &[a, b, c, d] {
            b"ds64" if length >= 16 => {
                let Some([_, _, _, _, _, _, _, _, size @ ..]) = array::<16>(&mut file)? else {
                    break;
                };
                long = Some(u64::from_le_bytes(size));
                rest -= 16;
            }
            b"fmt " if length >= 16 => {
                let Some(first) = array::<16>(&mut file)? else { break };
                rest -= 16;
                let mut tag = u16::from_le_bytes([first[0], first[1]]);
                if tag == EXTENSIBLE && length >= 40 {
                    let Some(more) = array::<24>(&mut file)? else { break };
                    rest -= 24;
                    tag = u16::from_le_bytes([more[8], more[9]]);
                }
                if !PLAIN.contains(&tag) {
                    return Ok(Wave::Other);
                }
                frames = plain_frames(&first);
            }
            b"data" => {
                let Some(Frames { bytes, rate }) = frames else { break };
                let start = file.stream_position()?;
                let stated = match long {
                    Some(long) if length == ELSEWHERE => long,
                    _ => u64::from(length),
                };
                let samples = stated.min(end.saturating_sub(start)) / bytes;
                return Ok(Wave::Plain(ClipLength { samples, rate }));
            }
            _ => {}
        }
        file.seek_relative(rest)?;
    }
    Ok(Wave::Damaged)
}

/// The frames of a `fmt ` chunk: as in libsndfile the width of a sample follows from its bits, not from the block.
fn plain_frames(chunk: &[u8; 16]) -> Option<Frames> {
    let channels = u16::from_le_bytes([chunk[2], chunk[3]]);
    let rate = u32::from_le_bytes([chunk[4], chunk[5], chunk[6], chunk[7]]);
    let bits = u16::from_le_bytes([chunk[14], chunk[15]]);
    let bytes = u64::from(channels) * u64::from(bits.div_ceil(8));
    (bytes > 0 && rate > 0).then_some(Frames { bytes, rate })
}

/// The next `N` bytes; `None` where the file ends before.
fn array<const N: usize>(file: &mut impl Read) -> std::io::Result<Option<[u8; N]>> {
    let mut bytes = [0; N];
    match file.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if error.kind() == IoKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Cursor;
    use std::path::PathBuf;

    use super::*;

    fn chunk(name: &[u8], length: u32, content: &[u8]) -> Vec<u8> {
        [name, &length.to_le_bytes()[..], content].concat()
    }

    /// A `fmt ` chunk; blocks are left at 0, as nothing reads them.
    fn fmt(tag: u16, channels: u16, rate: u32, bits: u16) -> Vec<u8> {
        let mut content = [tag.to_le_bytes(), channels.to_le_bytes()].concat();
        content.extend(rate.to_le_bytes());
        content.extend([0; 6]);
        content.extend(bits.to_le_bytes());
        chunk(b"fmt ", 16, &content)
    }

    fn made(kind: &[u8], chunks: &[Vec<u8>]) -> Vec<u8> {
        // the length of RIFF itself is often wrong, and not read
        [kind, &[9, 9, 9, 9][..], b"WAVE", &chunks.concat()].concat()
    }

    fn read(bytes: &[u8]) -> Wave {
        wave(&mut Cursor::new(bytes)).unwrap()
    }

    fn samples(bytes: &[u8]) -> Option<u64> {
        match read(bytes) {
            Wave::Plain(length) => Some(length.samples),
            _ => None,
        }
    }

    #[test]
    fn plain_samples_are_measured() {
        for (tag, bits, width) in [
            (1, 8, 1),
            (1, 12, 2),
            (1, 16, 2),
            (1, 20, 3),
            (1, 24, 3),
            (1, 32, 4),
            (3, 32, 4),
            (3, 64, 8),
            (6, 8, 1),
            (7, 8, 1),
        ] {
            for channels in [1, 2, 6] {
                let frame = width * u32::from(channels);
                let data = chunk(b"data", 10 * frame, &vec![0; 10 * frame as usize]);
                let bytes = made(b"RIFF", &[fmt(tag, channels, 44_100, bits), data]);
                let length = ClipLength { samples: 10, rate: 44_100 };
                assert_eq!(read(&bytes), Wave::Plain(length), "{tag} {bits} {channels}");
            }
        }
    }

    #[test]
    fn the_file_ends_what_a_header_does_not() {
        let head = made(b"RIFF", &[fmt(1, 2, 16_000, 16), chunk(b"data", 400, &[])]);
        for (held, expected) in [(0, 0), (3, 0), (4, 1), (399, 99), (400, 100), (500, 100)] {
            assert_eq!(samples(&[&head[..], &vec![0; held]].concat()), Some(expected), "{held}");
        }
        let piped = made(b"RIFF", &[fmt(1, 1, 16_000, 16), chunk(b"data", u32::MAX, &[0; 1001])]);
        assert_eq!(samples(&piped), Some(500));
        let never_filled_in =
            made(b"RIFF", &[fmt(1, 1, 16_000, 16), chunk(b"data", 0, &[0; 1000])]);
        assert_eq!(samples(&never_filled_in), Some(0));
    }

    #[test]
    fn chunks_around_the_data_do_not_count() {
        let odd = chunk(b"LIST", 5, b"INFOx\0");
        let fact = chunk(b"fact", 4, &[7, 0, 0, 0]);
        let data = chunk(b"data", 7, &[0; 8]);
        let file = made(
            b"RIFF",
            &[chunk(b"JUNK", 2, &[0; 2]), odd.clone(), fmt(1, 1, 8000, 8), fact, data.clone(), odd],
        );
        assert_eq!(samples(&file), Some(7));
        assert_eq!(read(&made(b"RIFF", std::slice::from_ref(&data))), Wave::Damaged);
        // other encodings pack samples in blocks, which are left to another reader
        assert_eq!(read(&made(b"RIFF", &[fmt(0x11, 1, 8000, 4), data.clone()])), Wave::Other);
        for broken in [fmt(1, 0, 8000, 8), fmt(1, 1, 0, 8), fmt(1, 1, 8000, 0)] {
            assert_eq!(read(&made(b"RIFF", &[broken, data.clone()])), Wave::Damaged);
        }
    }

    #[test]
    fn extensible_and_long_files() {
        let mut content = fmt(EXTENSIBLE, 2, 48_000, 24)[8..].to_vec();
        content.extend([22, 0, 20, 0, 3, 0, 0, 0, 1, 0]);
        content.extend(b"\0\0\0\0\x10\0\x80\0\0\xAA\0\x38\x9B\x71");
        let data = chunk(b"data", 60, &[0; 60]);
        assert_eq!(samples(&made(b"RIFF", &[chunk(b"fmt ", 40, &content), data])), Some(10));
        let mut sizes = vec![0; 28];
        sizes[8] = 40;
        let long =
            [chunk(b"ds64", 28, &sizes), fmt(1, 1, 16_000, 16), chunk(b"data", u32::MAX, &[0; 90])];
        assert_eq!(samples(&made(b"RF64", &long)), Some(20));
    }

    #[test]
    fn no_beginning_of_a_file_panics() {
        let file = made(
            b"RIFF",
            &[fmt(1, 1, 8000, 8), chunk(b"LIST", u32::MAX, &[0; 3]), chunk(b"data", 1, &[0])],
        );
        for end in 0..file.len() {
            assert_eq!(samples(&file[..end]), None, "{end}");
        }
    }

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
