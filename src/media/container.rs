//! The outside of picture files: sizes, EXIF and completeness, read from markers and chunks without decoding a pixel.

use std::io::{self, BufRead, ErrorKind as IoErrorKind, Seek};

/// EXIF blocks beyond this many bytes are ignored; JPEG cannot hold more than 64 KiB.
const MAX_EXIF: u64 = 1 << 24;

/// What the outside of a file says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outside {
    /// Stored width in pixels, before any EXIF rotation.
    pub(super) width: u32,
    /// Stored height in pixels.
    pub(super) height: u32,
    /// The EXIF block, from its byte order mark on.
    pub(super) exif: Option<Vec<u8>>,
    /// Whether the file holds more than one frame (PNG and WebP only).
    pub(super) animated: bool,
}

/// Why the outside of a file could not be read.
#[derive(Debug)]
pub(super) enum Fault {
    /// The file ends before the size is known.
    CutOff,
    /// The bytes contradict the format, in words.
    Broken(&'static str),
    /// The system refused.
    Io(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        if error.kind() == IoErrorKind::UnexpectedEof { Self::CutOff } else { Self::Io(error) }
    }
}

type Walk = Result<Outside, Fault>;

/// The size of a PNG file, its `eXIf` chunk wherever it stands, and whether `acTL` announces several frames.
pub(super) fn png<R: BufRead + Seek>(reader: &mut R) -> Walk {
    reader.seek_relative(8)?;
    let (length, kind) = png_chunk(reader)?;
    if &kind != b"IHDR" || length != 13 {
        return Err(Fault::Broken("its first chunk is not a header"));
    }
    let mut outside = Outside {
        width: u32::from_be_bytes(take(reader)?),
        height: u32::from_be_bytes(take(reader)?),
        ..Outside::default()
    };
    reader.seek_relative(5 + 4)?;
    // a file that is cut off further behind still has a size
    while let Ok((length, kind)) = png_chunk(reader) {
        let rest = match &kind {
            b"IEND" => break,
            b"eXIf" if u64::from(length) <= MAX_EXIF => {
                outside.exif = bytes(reader, length as usize).ok();
                0
            }
            b"acTL" if length >= 4 => {
                outside.animated = take(reader).is_ok_and(|frames| u32::from_be_bytes(frames) > 1);
                i64::from(length) - 4
            }
            _ => i64::from(length),
        };
        reader.seek_relative(rest + 4)?;
    }
    Ok(outside)
}

fn png_chunk<R: BufRead>(reader: &mut R) -> Result<(u32, [u8; 4]), Fault> {
    Ok((u32::from_be_bytes(take(reader)?), take(reader)?))
}

/// Whether a PNG file reaches its end chunk; behind the pixels an orientation may still follow.
pub(super) fn png_is_whole(data: &[u8]) -> bool {
    let mut rest = data.get(8..).unwrap_or_default();
    while let Some((&[l3, l2, l1, l0, kind @ ..], _)) = rest.split_first_chunk::<8>() {
        if &kind == b"IEND" {
            return true;
        }
        let length = u64::from(u32::from_be_bytes([l3, l2, l1, l0])) + 12;
        rest = usize::try_from(length).ok().and_then(|end| rest.get(end..)).unwrap_or_default();
    }
    false
}

/// The size of a JPEG file from its frame header, and its first EXIF segment.
pub(super) fn jpeg<R: BufRead + Seek>(reader: &mut R) -> Walk {
    reader.seek_relative(2)?;
    let mut outside = Outside::default();
    let mut framed = false;
    loop {
        let marker = match jpeg_marker(reader) {
            // the size is what counts here; decoding finds the end missing
            Err(Fault::CutOff) if framed => return Ok(outside),
            marker => marker?,
        };
        match marker {
            0x01 | 0xD0..=0xD8 => continue,
            0xD9 | 0xDA if framed => return Ok(outside),
            0xD9 | 0xDA => return Err(Fault::Broken("it has no frame header")),
            _ => {}
        }
        let length = match take(reader) {
            Err(Fault::CutOff) if framed => return Ok(outside),
            length => i64::from(u16::from_be_bytes(length?)) - 2,
        };
        if length < 0 {
            return Err(Fault::Broken("a segment has no length"));
        }
        match marker {
            // every start of frame, but not DHT, JPG and DAC, which lie between
            0xC0..=0xCF if !matches!(marker, 0xC4 | 0xC8 | 0xCC) => {
                let [_, h1, h0, w1, w0] = take(reader)?;
                outside.height = u32::from(u16::from_be_bytes([h1, h0]));
                outside.width = u32::from(u16::from_be_bytes([w1, w0]));
                framed = true;
                reader.seek_relative((length - 5).max(0))?;
            }
            0xE1 if outside.exif.is_none() => {
                let segment = bytes(reader, length as usize)?;
                outside.exif = segment.strip_prefix(b"Exif\0\0").map(<[u8]>::to_vec);
            }
            _ => reader.seek_relative(length)?,
        }
    }
}

/// The next marker's second byte; bytes before it are skipped, as libjpeg does.
fn jpeg_marker<R: BufRead>(reader: &mut R) -> Result<u8, Fault> {
    let mut after_ff = false;
    loop {
        let [byte] = take(reader)?;
        match byte {
            0xFF => after_ff = true,
            0 => after_ff = false,
            _ if after_ff => return Ok(byte),
            _ => {}
        }
    }
}

/// Whether the end marker follows the pixels of a JPEG file: without it some are missing.
pub(super) fn jpeg_is_whole(data: &[u8]) -> bool {
    let mut rest = data.get(2..).unwrap_or_default();
    loop {
        // in entropy-coded data FF is followed by 0 or a restart marker
        let Some(at) = rest.windows(2).position(|pair| {
            pair[0] == 0xFF && !matches!(pair[1], 0x00 | 0x01 | 0xD0..=0xD8 | 0xFF)
        }) else {
            return false;
        };
        if rest[at + 1] == 0xD9 {
            return true;
        }
        let Some(&[high, low]) = rest.get(at + 2..at + 4) else { return false };
        let length = usize::from(u16::from_be_bytes([high, low]));
        rest = rest.get(at + 2 + length..).unwrap_or_default();
    }
}

/// The logical screen of a GIF file.
pub(super) fn gif<R: BufRead + Seek>(reader: &mut R) -> Walk {
    reader.seek_relative(6)?;
    let width = u32::from(u16::from_le_bytes(take(reader)?));
    let height = u32::from(u16::from_le_bytes(take(reader)?));
    Ok(Outside { width, height, ..Outside::default() })
}

/// What the blocks of a GIF file say.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GifFrames {
    /// There is no frame.
    None,
    /// The file ends within the first frame.
    CutOff,
    /// One frame, and whatever follows it is not a frame.
    One,
    /// A second frame begins.
    Several,
}

/// Counts the frames of a GIF file as far as that matters.
pub(super) fn gif_frames(data: &[u8]) -> GifFrames {
    let table = |flags: u8| if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) };
    let mut framed = false;
    let mut at = 13 + data.get(10).map_or(0, |flags| table(*flags));
    loop {
        let in_frame = match data.get(at) {
            Some(0x21) => false,
            Some(0x2C) if framed => return GifFrames::Several,
            Some(0x2C) => true,
            _ => return if framed { GifFrames::One } else { GifFrames::None },
        };
        at += if in_frame {
            let Some(&flags) = data.get(at + 9) else { return GifFrames::CutOff };
            10 + table(flags) + 1
        } else {
            2
        };
        // sub-blocks, each behind its length, up to one of length 0
        loop {
            match data.get(at) {
                Some(0) => break,
                Some(length) => at += 1 + usize::from(*length),
                None if framed => return GifFrames::One,
                None => return GifFrames::CutOff,
            }
        }
        framed |= in_frame;
        at += 1;
    }
}

/// The canvas of a WebP file, its `EXIF` chunk, and whether it holds several frames.
pub(super) fn webp<R: BufRead + Seek>(reader: &mut R) -> Walk {
    reader.seek_relative(12)?;
    let (kind, length) = webp_chunk(reader)?;
    let mut outside = Outside::default();
    match &kind {
        b"VP8 " => {
            let [_, _, _, 0x9D, 0x01, 0x2A, w0, w1, h0, h1] = take(reader)? else {
                return Err(Fault::Broken("its frame has no start code"));
            };
            outside.width = u32::from(u16::from_le_bytes([w0, w1]) & 0x3FFF);
            outside.height = u32::from(u16::from_le_bytes([h0, h1]) & 0x3FFF);
            return Ok(outside);
        }
        b"VP8L" => {
            let [0x2F, a, b, c, d] = take(reader)? else {
                return Err(Fault::Broken("its frame has no signature"));
            };
            let sides = u32::from_le_bytes([a, b, c, d]);
            outside.width = (sides & 0x3FFF) + 1;
            outside.height = (sides >> 14 & 0x3FFF) + 1;
            return Ok(outside);
        }
        b"VP8X" if length >= 10 => {}
        _ => return Err(Fault::Broken("its first chunk is not a frame or a header")),
    }
    let [flags, _, _, _, w0, w1, w2, h0, h1, h2] = take(reader)?;
    outside.width = u32::from_le_bytes([w0, w1, w2, 0]) + 1;
    outside.height = u32::from_le_bytes([h0, h1, h2, 0]) + 1;
    reader.seek_relative(padded(length) - 10)?;
    let mut frames = 0;
    // a file that is cut off further behind still has a size
    while let Ok((kind, length)) = webp_chunk(reader) {
        match &kind {
            b"EXIF" if u64::from(length) <= MAX_EXIF => {
                let Ok(block) = bytes(reader, length as usize) else { break };
                // some writers keep the prefix that only JPEG needs
                outside.exif = Some(block.strip_prefix(b"Exif\0\0").unwrap_or(&block).to_vec());
                reader.seek_relative(padded(length) - i64::from(length))?;
            }
            _ => {
                frames += u32::from(&kind == b"ANMF");
                reader.seek_relative(padded(length))?;
            }
        }
    }
    outside.animated = flags & 2 != 0 && frames > 1;
    Ok(outside)
}

fn webp_chunk<R: BufRead>(reader: &mut R) -> Result<([u8; 4], u32), Fault> {
    Ok((take(reader)?, u32::from_le_bytes(take(reader)?)))
}

/// The bytes that a chunk of `length` bytes takes up.
fn padded(length: u32) -> i64 {
    i64::from(length) + i64::from(length & 1)
}

/// Whether a WebP file is as long as its first bytes say.
pub(super) fn webp_is_whole(data: &[u8]) -> bool {
    let stated = data.get(4..8).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
    stated.is_some_and(|length| data.len() as u64 >= 8 + u64::from(u32::from_le_bytes(length)))
}

/// The next `N` bytes.
fn take<const N: usize>(reader: &mut impl BufRead) -> Result<[u8; N], Fault> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The next `length` bytes.
fn bytes(reader: &mut impl BufRead, length: usize) -> Result<Vec<u8>, Fault> {
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn a_thumbnail_does_not_end_a_jpeg() {
        let mut data = b"\xFF\xD8\xFF\xE1\0\x06\xFF\xD8\xFF\xD9".to_vec();
        data.extend(b"\xFF\xDA\0\x03\0pixels\xFF\0more\xFF\xD3pixels");
        assert!(!jpeg_is_whole(&data));
        data.extend(b"\xFF\xD9");
        assert!(jpeg_is_whole(&data));
        for end in 0..data.len() {
            assert!(!jpeg_is_whole(&data[..end]), "{end}");
        }
    }

    #[test]
    fn every_frame_header_but_no_table_has_a_size() {
        for marker in 0xC0..=0xCF_u8 {
            let data = [0xFF, 0xD8, 0xFF, marker, 0, 8, 8, 0, 7, 0, 9, 1, 0xFF, 0xDA];
            let size = jpeg(&mut Cursor::new(data)).map(|outside| (outside.width, outside.height));
            match marker {
                0xC4 | 0xC8 | 0xCC => assert!(size.is_err(), "{marker:x}"),
                _ => assert_eq!(size.unwrap(), (9, 7), "{marker:x}"),
            }
        }
    }

    #[test]
    fn gif_frames_are_counted_up_to_two() {
        let screen = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xFF\xFF\xFF";
        let comment = b"\x21\xFE\x02hi\0";
        let frame = b"\x2C\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0";
        let count = |parts: &[&[u8]]| gif_frames(&parts.concat());
        assert_eq!(count(&[screen, b";"]), GifFrames::None);
        assert_eq!(count(&[screen, comment]), GifFrames::None);
        assert_eq!(count(&[screen, &comment[..4]]), GifFrames::CutOff);
        assert_eq!(count(&[screen, comment, frame, b";"]), GifFrames::One);
        assert_eq!(count(&[screen, frame, comment]), GifFrames::One);
        assert_eq!(count(&[screen, frame, &comment[..3]]), GifFrames::One);
        assert_eq!(count(&[screen, frame, comment, &frame[..1]]), GifFrames::Several);
        for end in 1..frame.len() {
            assert_eq!(count(&[screen, &frame[..end]]), GifFrames::CutOff, "{end}");
        }
        for end in 0..screen.len() {
            assert_eq!(gif_frames(&screen[..end]), GifFrames::None);
        }
    }

    #[test]
    fn chunks_may_claim_any_length() {
        let png_start = b"\x89PNG\r\n\x1A\n\0\0\0\x0DIHDR\0\0\0\x02\0\0\0\x03\x08\x02\0\0\0crc.";
        let mut data = png_start.to_vec();
        data.extend(b"\xFF\xFF\xFF\xFFeXIf");
        assert!(png(&mut Cursor::new(&data)).is_ok());
        assert!(!png_is_whole(&data));
        let data = b"RIFF\xFF\xFF\xFF\xFFWEBPVP8X\xFF\xFF\xFF\xFF\x02\0\0\0\x01\0\0\x02\0\0";
        let outside = webp(&mut Cursor::new(data)).unwrap();
        assert_eq!((outside.width, outside.height, outside.animated), (2, 3, false));
        assert!(!webp_is_whole(data));
    }
}
