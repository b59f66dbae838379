//! RIFF and RF64 WAVE files whose samples all have one width: where they lie, how many there are, and what they are as floats.

use std::io::{BufReader, ErrorKind as IoKind, Read, Seek, SeekFrom};

use super::ClipLength;

/// `WAVE_FORMAT_PCM`, `_IEEE_FLOAT`, `_ALAW` and `_MULAW`: encodings without blocks.
const PLAIN: [u16; 4] = [1, 3, 6, 7];
/// `WAVE_FORMAT_EXTENSIBLE`: the tag stands at the beginning of a GUID.
const EXTENSIBLE: u16 = 0xFFFE;
/// A length that stands in a `ds64` chunk, or was never filled in.
const ELSEWHERE: u32 = u32::MAX;
/// Channels that libsndfile takes at most.
const MOST_CHANNELS: u16 = 1024;

/// What a file is as a RIFF or RF64 WAVE file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wave {
    /// One with plain samples.
    Plain(Plain),
    /// One that lacks its data or says what cannot be.
    Damaged,
    /// Something else, or one whose samples are packed in blocks.
    Other,
}

/// The samples of a WAVE file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plain {
    /// How many samples each channel has.
    pub(super) length: ClipLength,
    /// Where they begin, in bytes from the beginning of the file.
    start: u64,
    encoding: Encoding,
    channels: u16,
}

/// How one sample of one channel is written, little endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// Unsigned, 128 is silence.
    Byte,
    /// Signed, so many bytes: 2 to 4.
    Signed(u8),
    Single,
    Double,
    ALaw,
    MuLaw,
}

impl Encoding {
    fn new(tag: u16, bits: u16) -> Option<Self> {
        // as in libsndfile the width of a sample follows from its bits, not from the block
        match (tag, bits.div_ceil(8)) {
            (1, 1) => Some(Self::Byte),
            (1, width @ 2..=4) => Some(Self::Signed(width as u8)),
            (3, 4) => Some(Self::Single),
            (3, 8) => Some(Self::Double),
            (6, 1) => Some(Self::ALaw),
            (7, 1) => Some(Self::MuLaw),
            _ => None,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Byte | Self::ALaw | Self::MuLaw => 1,
            Self::Signed(width) => width.into(),
            Self::Single => 4,
            Self::Double => 8,
        }
    }

    /// The float of a sample, as `soundfile` reads it with `dtype="float32"`: integers divided by their range.
    fn float(self, bytes: &[u8]) -> f32 {
        match (self, bytes) {
            (Self::Byte, &[byte]) => (f32::from(byte) - 128.0) / 128.0,
            (Self::Signed(_), &[a, b]) => f32::from(i16::from_le_bytes([a, b])) / 32_768.0,
            // the value fills the upper bytes, so that one divisor serves both widths
            (Self::Signed(_), &[a, b, c]) => whole(i32::from_le_bytes([0, a, b, c])),
            (Self::Signed(_), &[a, b, c, d]) => whole(i32::from_le_bytes([a, b, c, d])),
            (Self::Single, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
            (Self::Double, &[a, b, c, d, e, f, g, h]) => {
                f64::from_le_bytes([a, b, c, d, e, f, g, h]) as f32
            }
            (Self::ALaw, &[byte]) => f32::from(a_law(byte)) / 32_768.0,
            (Self::MuLaw, &[byte]) => f32::from(mu_law(byte)) / 32_768.0,
            _ => 0.0, // `bytes` are always as many as `Encoding::bytes` says
        }
    }
}

fn whole(value: i32) -> f32 {
    value as f32 / 2_147_483_648.0
}

/// G.711, A-law, as 16 bits.
fn a_law(byte: u8) -> i16 {
    let byte = byte ^ 0x55;
    let (segment, step) = (byte >> 4 & 7, i16::from(byte & 15) << 4);
    let size = match segment {
        0 => step + 8,
        _ => (step + 0x108) << (segment - 1),
    };
    if byte & 0x80 == 0 { -size } else { size }
}

/// G.711, mu-law, as 16 bits.
fn mu_law(byte: u8) -> i16 {
    let byte = !byte;
    let size = (((i16::from(byte & 15) << 3) + 0x84) << (byte >> 4 & 7)) - 0x84;
    if byte & 0x80 == 0 { size } else { -size }
}

impl Plain {
    /// The first `most` samples, the mean of all channels; as many as the file holds.
    pub(super) fn read(
        &self,
        file: &mut (impl Read + Seek),
        most: u64,
    ) -> std::io::Result<Vec<f32>> {
        file.seek(SeekFrom::Start(self.start))?;
        let mut file = BufReader::new(file);
        let width = self.encoding.bytes();
        let mut frame = vec![0; width * usize::from(self.channels)];
        let mut mono = Vec::new();
        for _ in 0..most.min(self.length.samples) {
            match file.read_exact(&mut frame) {
                Ok(()) => {}
                Err(error) if error.kind() == IoKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
            let sum: f32 = frame.chunks_exact(width).map(|bytes| self.encoding.float(bytes)).sum();
            mono.push(sum / f32::from(self.channels));
        }
        Ok(mono)
    }
}

/// Reads the chunks of a WAVE file up to its data.
pub(super) fn wave(file: &mut (impl Read + Seek)) -> std::io::Result<Wave> {
    let end = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    let mut file = BufReader::new(file);
    let Some([r, i, f, x, _, _, _, _, b'W', b'A', b'V', b'E']) = array(&mut file)? else {
        return Ok(Wave::Other);
    };
    if ![*b"RIFF", *b"RF64"].contains(&[r, i, f, x]) {
        return Ok(Wave::Other);
    }
    let (mut format, mut long) = (None, None);
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
                format = plain_format(tag, &first);
            }
            b"data" => {
                let Some((encoding, channels, rate)) = format else { break };
                let start = file.stream_position()?;
                let stated = match long {
                    Some(long) if length == ELSEWHERE => long,
                    _ => u64::from(length),
                };
                let frame = encoding.bytes() as u64 * u64::from(channels);
                let samples = stated.min(end.saturating_sub(start)) / frame;
                let length = ClipLength { samples, rate };
                return Ok(Wave::Plain(Plain { length, start, encoding, channels }));
            }
            _ => {}
        }
        file.seek_relative(rest)?;
    }
    Ok(Wave::Damaged)
}

/// Encoding, channels and rate of a `fmt ` chunk; `None` if libsndfile would refuse them.
fn plain_format(tag: u16, chunk: &[u8; 16]) -> Option<(Encoding, u16, u32)> {
    let channels = u16::from_le_bytes([chunk[2], chunk[3]]);
    let rate = u32::from_le_bytes([chunk[4], chunk[5], chunk[6], chunk[7]]);
    let bits = u16::from_le_bytes([chunk[14], chunk[15]]);
    let encoding = Encoding::new(tag, bits)?;
    (channels > 0 && channels <= MOST_CHANNELS && rate > 0).then_some((encoding, channels, rate))
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
    use std::io::Cursor;

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
            Wave::Plain(plain) => Some(plain.length.samples),
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
                let Wave::Plain(plain) = read(&bytes) else { panic!("{tag} {bits} {channels}") };
                assert_eq!(plain.length, length, "{tag} {bits} {channels}");
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
}
