//! Picture files to upright RGB bytes.

use std::io::{Cursor, ErrorKind as IoErrorKind, Read, Seek};
use std::path::Path;

use image::codecs::gif::GifDecoder;
use image::codecs::jpeg::JpegDecoder;
use image::codecs::png::PngDecoder;
use image::codecs::webp::WebPDecoder;
use image::error::{LimitError, LimitErrorKind};
use image::{ColorType, ImageDecoder, ImageError, ImageResult, Limits};

use super::container::{self, GifFrames};
use super::geometry::upright;
use super::header::{ImageFormat, MAX_PIXELS, open, read_header, refuse};
use super::image::Rgb8;
use crate::error::{Error, Result};

/// What a decoder may allocate: four samples of 16 bits for every pixel, and as much again to work in.
const MAX_BYTES: u64 = 2 * 8 * MAX_PIXELS;

/// A decoded picture, and what a person should know about how it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedImage {
    /// The upright picture.
    pub image: Rgb8,
    /// Sentences such as "first frame of an animation", lower case, without a final period.
    pub notes: Vec<String>,
}

/// Loads the picture at `path` as upright RGB bytes.
///
/// | in the file | in the picture |
/// | --- | --- |
/// | EXIF orientation 2 to 8 | applied, as `PIL.ImageOps.exif_transpose` |
/// | gray | replicated |
/// | alpha, transparent palette or colour | composited on white, as `transformers.image_transforms.convert_to_rgb` |
/// | 16 bits | the high byte, also for gray, where Pillow clips at 255; a note says so |
/// | CMYK and YCCK JPEG | as Pillow: taken as inverted (Adobe), `K - C * K / 255` rounded, no ICC profile |
/// | several frames | the first; a note says so |
/// | GIF frame smaller than its screen | white around it, where Pillow may paint the first colour |
///
/// PNG, GIF and WebP (lossy too) otherwise equal Pillow bit for bit. JPEG does not, since decoders round the transform and the
/// enlargement of chroma differently: by at most 3 levels without chroma subsampling, 5 with it, 1 for gray and CMYK.
///
/// Besides the errors of [`image_header`](super::image_header) it fails if the file is cut off before the end of the
/// (first) picture, is damaged, or uses a variant that cannot be decoded (arithmetic-coded or 12-bit JPEG).
pub fn load_image(path: &Path) -> Result<LoadedImage> {
    let mut file = open(path)?;
    // refuses what is no picture before the rest is read
    read_header(&mut file, path)?;
    let mut data = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut data))
        .map_err(|error| refuse(path, "cannot be read").with_source(error))?;
    decode_image(&data, path)
}

/// [`load_image`] for the bytes of a file; `path` names them in messages and is not opened.
pub fn decode_image(data: &[u8], path: &Path) -> Result<LoadedImage> {
    let header = read_header(&mut Cursor::new(data), path)?;
    let mut animated = header.animated;
    let whole = match header.format {
        ImageFormat::Png => container::png_is_whole(data),
        ImageFormat::Jpeg => container::jpeg_is_whole(data),
        ImageFormat::WebP => container::webp_is_whole(data),
        ImageFormat::Gif => {
            let frames = container::gif_frames(data);
            if frames == GifFrames::None {
                return Err(refuse(path, "is a GIF file without a picture"));
            }
            animated = frames == GifFrames::Several;
            frames != GifFrames::CutOff
        }
    };
    if !whole {
        return Err(cut_off(path, header.format));
    }
    let samples = match header.format {
        ImageFormat::Png => {
            PngDecoder::with_limits(Cursor::new(data), limits()).and_then(Samples::read)
        }
        ImageFormat::Jpeg => JpegDecoder::new(Cursor::new(data)).and_then(Samples::read),
        ImageFormat::Gif => GifDecoder::new(Cursor::new(data)).and_then(Samples::read),
        ImageFormat::WebP => WebPDecoder::new(Cursor::new(data)).and_then(Samples::read),
    };
    let samples = samples.map_err(|error| match &error {
        ImageError::IoError(io) if io.kind() == IoErrorKind::UnexpectedEof => {
            cut_off(path, header.format)
        }
        _ => refuse(path, format!("cannot be decoded as {}", header.format)).with_source(error),
    })?;
    let (width, height) = header.stored();
    if (samples.width, samples.height) != (width, height) {
        return Err(refuse(
            path,
            format!(
                "announces `{width}x{height}` pixels but holds `{}x{}`",
                samples.width, samples.height
            ),
        ));
    }
    let mut notes = Vec::new();
    if animated {
        notes.push("first frame of an animation".to_owned());
    }
    if samples.color.bytes_per_pixel() > samples.color.channel_count() {
        notes.push("16-bit samples reduced to their high byte".to_owned());
    }
    let (bytes, transparent) = samples.into_rgb();
    if transparent {
        notes.push("transparent parts composited on white".to_owned());
    }
    let image = upright(Rgb8::new(width, height, bytes)?, header.orientation)?;
    Ok(LoadedImage { image, notes })
}

fn cut_off(path: &Path, format: ImageFormat) -> Error {
    refuse(path, format!("is cut off: the {format} data ends before the picture does"))
}

fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_BYTES);
    limits
}

/// Samples as a decoder gave them.
struct Samples {
    width: u32,
    height: u32,
    color: ColorType,
    data: Vec<u8>,
}

impl Samples {
    /// Runs `decoder` within the limits.
    fn read<D: ImageDecoder>(mut decoder: D) -> ImageResult<Self> {
        decoder.set_limits(limits())?;
        let (width, height) = decoder.dimensions();
        let color = decoder.color_type();
        let length = decoder.total_bytes();
        // a header was read before, but a decoder may see another picture in the file
        let length = usize::try_from(length).ok().filter(|_| length <= MAX_BYTES);
        let mut data = Vec::new();
        let room = length.filter(|length| data.try_reserve_exact(*length).is_ok());
        let Some(length) = room else {
            return Err(ImageError::Limits(LimitError::from_kind(
                LimitErrorKind::InsufficientMemory,
            )));
        };
        data.resize(length, 0);
        decoder.read_image(&mut data)?;
        Ok(Self { width, height, color, data })
    }

    /// RGB bytes, and whether anything was transparent.
    fn into_rgb(self) -> (Vec<u8>, bool) {
        let mut samples = self.data;
        if self.color.bytes_per_pixel() > self.color.channel_count() {
            samples = samples
                .chunks_exact(2)
                .map(|pair| u16::from_ne_bytes([pair[0], pair[1]]).to_be_bytes()[0])
                .collect();
        }
        if self.color.has_alpha() {
            on_white(&samples, usize::from(self.color.channel_count()))
        } else if self.color.has_color() {
            (samples, false)
        } else {
            (samples.into_iter().flat_map(|value| [value; 3]).collect(), false)
        }
    }
}

/// RGB bytes of pixels of `channels` samples, the last of which is alpha, on white; and whether anything shows through.
fn on_white(samples: &[u8], channels: usize) -> (Vec<u8>, bool) {
    let mut out = Vec::with_capacity(samples.len() / channels * 3);
    let mut transparent = false;
    for pixel in samples.chunks_exact(channels) {
        if let [colour @ .., alpha] = pixel {
            transparent |= *alpha < 255;
            match colour {
                [red, green, blue] => {
                    out.extend([red, green, blue].map(|v| over_white(*v, *alpha)));
                }
                _ => out.extend(colour.iter().flat_map(|gray| [over_white(*gray, *alpha); 3])),
            }
        }
    }
    (out, transparent)
}

/// `value` seen through `alpha` on white, in the fixed point of Pillow's `AlphaComposite.c`.
fn over_white(value: u8, alpha: u8) -> u8 {
    let (value, alpha) = (u32::from(value), u32::from(alpha));
    let sum = 128 * (value * alpha + 255 * (255 - alpha)) + (128 << 7);
    ((((sum >> 8) + sum) >> 8) >> 7) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_shows_through() {
        for value in 0..=255 {
            assert_eq!(over_white(value, 0), 255);
            assert_eq!(over_white(value, 255), value);
            assert_eq!(over_white(255, value), 255);
        }
        assert_eq!(over_white(0, 128), 127);
        assert_eq!(on_white(&[0, 128, 7, 255], 2), (vec![127, 127, 127, 7, 7, 7], true));
        assert_eq!(on_white(&[1, 2, 3, 255], 4), (vec![1, 2, 3], false));
    }
}
