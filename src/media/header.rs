//! Format and size of a picture file, without decoding it.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::Path;

use exif::{In, Reader as ExifReader, Tag};

use super::container::{self, Fault, Outside};
use crate::error::{Error, ErrorKind, Result};

/// The most pixels a file may announce: the limit at which Pillow refuses to open it
/// (`Image.DecompressionBombError`, twice `Image.MAX_IMAGE_PIXELS`).
pub const MAX_PIXELS: u64 = 178_956_970;

/// The formats that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ImageFormat {
    /// Portable Network Graphics, also animated.
    Png,
    /// JPEG, baseline and progressive.
    Jpeg,
    /// Graphics Interchange Format, also animated.
    Gif,
    /// WebP, lossy, lossless and animated.
    WebP,
}

impl ImageFormat {
    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
            Self::Gif => "GIF",
            Self::WebP => "WebP",
        }
    }

    /// The format that a file with these first bytes has.
    fn of(start: &[u8]) -> Option<Self> {
        match start {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => Some(Self::Png),
            [0xFF, 0xD8, 0xFF, ..] => Some(Self::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::WebP),
            _ => None,
        }
    }
}

impl fmt::Display for ImageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a picture file says before its pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageHeader {
    /// The format, from the first bytes of the file, never from its name.
    pub format: ImageFormat,
    /// Width in pixels of the upright picture.
    pub width: u32,
    /// Height in pixels of the upright picture.
    pub height: u32,
    /// The EXIF orientation, 1 to 8; 1 where the file has none. 5 to 8 exchange the stored width and height.
    pub orientation: u8,
    /// Whether PNG or WebP announces several frames; GIF does not announce them.
    pub(super) animated: bool,
}

impl ImageHeader {
    /// Width and height as stored, before any rotation.
    pub fn stored(&self) -> (u32, u32) {
        if self.orientation >= 5 { (self.height, self.width) } else { (self.width, self.height) }
    }
}

/// The header of the picture at `path`.
///
/// EXIF orientation counts for JPEG, PNG (`eXIf`) and WebP (`EXIF`), as `PIL.ImageOps.exif_transpose` applies it;
/// orientations in XMP do not. For GIF the size is the logical screen. No pixel is decoded, so a file whose pixels are
/// damaged or missing still has a header.
///
/// Fails if the file cannot be read, is none of the four formats, is cut off within its header, has a side of 0, or
/// announces more than [`MAX_PIXELS`].
pub fn image_header(path: &Path) -> Result<ImageHeader> {
    read_header(&mut open(path)?, path)
}

/// Width and height of the upright picture at `path`: [`image_header`] in short.
pub fn image_size(path: &Path) -> Result<(u32, u32)> {
    let header = image_header(path)?;
    Ok((header.width, header.height))
}

/// Opens the file at `path`.
pub(super) fn open(path: &Path) -> Result<BufReader<File>> {
    File::open(path)
        .map(BufReader::new)
        .map_err(|error| refuse(path, "cannot be opened").with_source(error))
}

/// The error that says `what` about the file at `path`.
pub(super) fn refuse(path: &Path, what: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Media, format!("`{}` {what}", path.display()))
}

/// Reads the header from the start of `reader`; `path` is for messages.
pub(super) fn read_header<R: BufRead + Seek>(reader: &mut R, path: &Path) -> Result<ImageHeader> {
    let unreadable = |error| refuse(path, "cannot be read").with_source(error);
    let mut start = Vec::new();
    reader.by_ref().take(12).read_to_end(&mut start).map_err(unreadable)?;
    reader.rewind().map_err(unreadable)?;
    if start.is_empty() {
        return Err(refuse(path, "is empty"));
    }
    let Some(format) = ImageFormat::of(&start) else {
        return Err(refuse(path, "is not a PNG, JPEG, GIF or WebP file"));
    };
    let outside = match format {
        ImageFormat::Png => container::png(reader),
        ImageFormat::Jpeg => container::jpeg(reader),
        ImageFormat::Gif => container::gif(reader),
        ImageFormat::WebP => container::webp(reader),
    };
    let Outside { mut width, mut height, exif, animated } =
        outside.map_err(|fault| match fault {
            Fault::CutOff => refuse(path, format!("is cut off within its {format} header")),
            Fault::Broken(reason) => {
                refuse(path, format!("is not a valid {format} file: {reason}"))
            }
            Fault::Io(error) => unreadable(error),
        })?;
    if width == 0 || height == 0 {
        return Err(refuse(path, format!("has an empty picture of `{width}x{height}` pixels")));
    }
    let pixels = u64::from(width) * u64::from(height);
    if pixels > MAX_PIXELS {
        return Err(refuse(
            path,
            format!(
                "announces `{width}x{height}` pixels, `{pixels}` in all; the limit is `{MAX_PIXELS}`"
            ),
        ));
    }
    let orientation = exif.map_or(1, orientation);
    if orientation >= 5 {
        (width, height) = (height, width);
    }
    Ok(ImageHeader { format, width, height, orientation, animated })
}

/// The orientation in an EXIF block, 1 if there is none that makes sense.
fn orientation(block: Vec<u8>) -> u8 {
    let mut reader = ExifReader::new();
    // a damaged field elsewhere must not hide the orientation
    reader.continue_on_error(true);
    reader
        .read_raw(block)
        .or_else(|error| error.distill_partial_result(|_| ()))
        .ok()
        .and_then(|exif| exif.get_field(Tag::Orientation, In::PRIMARY)?.value.get_uint(0))
        .and_then(|value| u8::try_from(value).ok())
        .filter(|value| (1..=8).contains(value))
        .unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn header(bytes: &[u8]) -> Result<ImageHeader> {
        read_header(&mut Cursor::new(bytes), Path::new("x"))
    }

    #[test]
    fn every_prefix_is_refused_or_sized() {
        let mut png = b"\x89PNG\r\n\x1A\n\0\0\0\x0DIHDR\0\0\0\x02\0\0\0\x03\x08\x02\0\0\0".to_vec();
        png.extend([0; 4]);
        for end in 0..24 {
            assert!(header(&png[..end]).is_err(), "{end}");
        }
        let whole = header(&png).unwrap();
        assert_eq!((whole.width, whole.height, whole.format), (2, 3, ImageFormat::Png));
    }

    #[test]
    fn messages() {
        let message = |bytes: &[u8]| header(bytes).unwrap_err().to_string();
        assert_eq!(message(b""), "`x` is empty");
        assert_eq!(message(b"BM and so on"), "`x` is not a PNG, JPEG, GIF or WebP file");
        assert_eq!(message(b"GIF89a\x05"), "`x` is cut off within its GIF header");
        assert_eq!(message(b"GIF89a\0\0\x05\0"), "`x` has an empty picture of `0x5` pixels");
        assert_eq!(
            message(b"RIFF\0\0\0\0WEBPJUNK\0\0\0\0"),
            "`x` is not a valid WebP file: its first chunk is not a frame or a header"
        );
        assert_eq!(
            message(b"\xFF\xD8\xFF\xD9"),
            "`x` is not a valid JPEG file: it has no frame header"
        );
        assert_eq!(
            message(b"\x89PNG\r\n\x1A\n\0\0\0\x0DIHDR\0\0\x9C\x40\0\0\x9C\x40"),
            "`x` announces `40000x40000` pixels, `1600000000` in all; the limit is `178956970`"
        );
    }
}
