//! Antialiased resizing of bytes, bit for bit as the reference's kernel.
//!
//! The rule is that of torchvision's `resize(..., antialias=True)` on uint8 tensors, which is torch's
//! `upsample_*2d_aa` kernel (`UpSampleKernelAVXAntialias.h`), itself derived from Pillow's `Resample.c`:
//!
//! 1. The two axes are resampled one after the other, columns (along x) first. An axis that keeps its size is skipped.
//! 2. Weights are computed in f64 and normalised to sum 1. Shrinking widens the filter by the scale, enlarging does not.
//! 3. They become integers that just fit 16 bits: the number of fraction bits follows from the largest weight of the
//!    whole axis, at most 22. Rounding is half away from zero, and nothing makes the integers sum to one again.
//! 4. A sum is rounded by adding half and shifting, then clamped to a byte, also between the axes.
//!
//! Pillow differs in 3 (always 22 bits), and torch below AVX2 goes through f32 for the bilinear filter.

use std::fmt;
use std::str::FromStr;

use rayon::prelude::*;

use super::image::{Rgb8, byte_length, reserved};
use super::plain::resize_plain;
use crate::error::{Error, ErrorKind, Result};

/// The longest side that is resized from or to; beyond it the tables of weights would fill the memory.
const MAX_SIDE: u32 = 1 << 22;

/// The most pixels that one pass may write: 3 GiB of bytes.
const MAX_AREA: u64 = 1 << 30;

/// Rows shorter than this many bytes are handed to threads in groups.
const BYTES_PER_JOB: usize = 1 << 14;

/// The filter by which an output pixel weighs its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Filter {
    /// A triangle of radius 1.
    Bilinear,
    /// Keys' cubic of radius 2 with a = -1/2.
    Bicubic,
    /// sinc(x) sinc(x/3), radius 3.
    Lanczos,
    /// No filter: bilinear in floats between the two nearest pixels, so that shrinking skips pixels.
    Plain,
}

impl Filter {
    /// All filters.
    pub const ALL: [Self; 4] = [Self::Bilinear, Self::Bicubic, Self::Lanczos, Self::Plain];

    /// The filter that a preprocessor file means by the integer `code`, one of Pillow's `Image.Resampling`.
    ///
    /// Fails for codes that no supported kernel answers to: nearest, box and Hamming.
    pub fn from_code(code: i64) -> Result<Self> {
        let name = match code {
            1 => return Ok(Self::Lanczos),
            2 => return Ok(Self::Bilinear),
            3 => return Ok(Self::Bicubic),
            0 => " (nearest)",
            4 => " (box)",
            5 => " (Hamming)",
            _ => "",
        };
        Err(Error::new(
            ErrorKind::Media,
            format!(
                "resampling filter `{code}`{name} is not supported; `1` (lanczos), `2` (bilinear) and `3` (bicubic) are"
            ),
        ))
    }

    /// The name in descriptors and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bilinear => "bilinear",
            Self::Bicubic => "bicubic",
            Self::Lanczos => "lanczos",
            Self::Plain => "plain",
        }
    }

    /// The kernel of an antialiased filter.
    fn kernel(self) -> Option<Kernel> {
        match self {
            Self::Bilinear => Some(Kernel::Bilinear),
            Self::Bicubic => Some(Kernel::Bicubic),
            Self::Lanczos => Some(Kernel::Lanczos),
            Self::Plain => None,
        }
    }
}

/// The kernel of an antialiased filter.
#[derive(Debug, Clone, Copy)]
enum Kernel {
    Bilinear,
    Bicubic,
    Lanczos,
}

impl Kernel {
    /// How far the filter reaches, in samples of the coarser grid.
    fn radius(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    /// The weight at distance `x`, in the order of operations of the reference.
    fn weight(self, x: f64) -> f64 {
        let distance = x.abs();
        match self {
            Self::Bilinear => (1.0 - distance).max(0.0),
            Self::Bicubic => {
                const A: f64 = -0.5;
                let x = distance;
                if x < 1.0 {
                    ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
                } else if x < 2.0 {
                    ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A
                } else {
                    0.0
                }
            }
            Self::Lanczos if distance < 3.0 => sinc(x) * sinc(x / 3.0),
            Self::Lanczos => 0.0,
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Filter {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|filter| filter.name() == name).ok_or_else(|| {
            Error::new(
                ErrorKind::Media,
                format!(
                    "`{name}` is not a resampling filter; `bilinear`, `bicubic` and `lanczos` are"
                ),
            )
        })
    }
}

/// sin(pi x) / (pi x).
fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * std::f64::consts::PI;
    x.sin() / x
}

/// `image` at `width` by `height` pixels.
///
/// Fails if a side is 0 or beyond 4 194 304, if either pass would write more than 2^30 pixels, or if memory does not
/// suffice.
pub fn resize(image: &Rgb8, width: u32, height: u32, filter: Filter) -> Result<Rgb8> {
    let longest = [image.width(), image.height(), width, height].into_iter().max().unwrap_or(0);
    let between = u64::from(image.height()) * u64::from(width);
    let after = u64::from(height) * u64::from(width);
    if width == 0 || height == 0 || longest > MAX_SIDE || between.max(after) > MAX_AREA {
        let reason = if width == 0 || height == 0 { "empty" } else { "too large" };
        return Err(Error::new(
            ErrorKind::Media,
            format!(
                "cannot resize `{}x{}` pixels to `{width}x{height}`: {reason}",
                image.width(),
                image.height()
            ),
        ));
    }
    let Some(kernel) = filter.kernel() else { return resize_plain(image, width, height) };
    let columns =
        if width == image.width() { None } else { Some(along_rows(image, width, kernel)?) };
    let source = columns.as_ref().unwrap_or(image);
    if height == image.height() {
        return Ok(columns.unwrap_or_else(|| image.clone()));
    }
    along_columns(source, height, kernel)
}

/// The weights of one axis.
#[derive(Debug)]
struct Taps {
    /// First source index and number of weights of every output index.
    ranges: Vec<(u32, u32)>,
    /// `span` weights for every output index; those behind its number are 0.
    weights: Vec<i16>,
    span: usize,
    /// Fraction bits of the weights.
    bits: u32,
}

impl Taps {
    /// The weights that make `to` samples of `from`.
    fn new(from: u32, to: u32, filter: Kernel) -> Self {
        let scale = f64::from(from) / f64::from(to);
        let stretch = scale.max(1.0);
        let reach = filter.radius() * stretch;
        let narrow = 1.0 / stretch;
        let centre = |index: u32| scale * (f64::from(index) + 0.5);

        let ranges: Vec<(u32, u32)> = (0..to)
            .map(|index| {
                // the casts truncate towards zero, as the reference's do, and stop at 0
                let first = (centre(index) - reach + 0.5) as u32;
                let end = ((centre(index) + reach + 0.5) as u32).min(from);
                (first, end.saturating_sub(first))
            })
            .collect();
        let span = ranges.iter().map(|range| range.1).max().unwrap_or(0) as usize;

        let mut exact = vec![0.0; ranges.len() * span];
        let mut largest = 0.0_f64;
        for ((index, (first, count)), row) in
            (0..to).zip(&ranges).zip(exact.chunks_exact_mut(span.max(1)))
        {
            let row = &mut row[..*count as usize];
            let mut sum = 0.0;
            for (source, weight) in (*first..).zip(row.iter_mut()) {
                *weight = filter.weight((f64::from(source) - centre(index) + 0.5) * narrow);
                sum += *weight;
            }
            for weight in row {
                if sum != 0.0 {
                    *weight /= sum;
                }
                largest = largest.max(*weight);
            }
        }

        let fits = |bits: u32| 0.5 + largest * f64::from(1_u32 << bits) < 32768.0;
        let bits = (0..22).find(|bits| !fits(bits + 1)).unwrap_or(22);
        let one = f64::from(1_u32 << bits);
        let weights = exact
            .into_iter()
            .map(|weight| (weight * one + if weight < 0.0 { -0.5 } else { 0.5 }) as i16)
            .collect();
        Self { ranges, weights, span, bits }
    }

    /// First source index and weights of every output index.
    fn rows(&self) -> impl Iterator<Item = (usize, &[i16])> {
        self.ranges
            .iter()
            .zip(self.weights.chunks_exact(self.span.max(1)))
            .map(|(&(first, count), weights)| (first as usize, &weights[..count as usize]))
    }

    /// The same for output index `index`.
    fn row(&self, index: usize) -> (usize, &[i16]) {
        let (first, count) = self.ranges[index];
        let from = index * self.span;
        (first as usize, &self.weights[from..from + count as usize])
    }

    /// Half a unit, which every sum starts with.
    fn half(&self) -> i32 {
        // zero bits are out of reach: the largest weight would have to exceed 2^14
        1 << self.bits.saturating_sub(1)
    }

    /// The byte of a sum.
    fn byte(&self, sum: i32) -> u8 {
        (sum >> self.bits).clamp(0, 255) as u8
    }
}

/// Resamples every row of `image` to `width` pixels.
fn along_rows(image: &Rgb8, width: u32, filter: Kernel) -> Result<Rgb8> {
    let taps = Taps::new(image.width(), width, filter);
    let mut data = zeroed(width, image.height())?;
    let stride = 3 * width as usize;
    data.par_chunks_exact_mut(stride)
        .zip(image.data().par_chunks_exact(image.stride()))
        .with_min_len(1 + BYTES_PER_JOB / stride)
        .for_each(|(out, source)| {
            for (pixel, (first, weights)) in out.chunks_exact_mut(3).zip(taps.rows()) {
                let mut sum = [taps.half(); 3];
                let from = &source[3 * first..3 * (first + weights.len())];
                for (weight, colour) in weights.iter().zip(from.chunks_exact(3)) {
                    for (sum, byte) in sum.iter_mut().zip(colour) {
                        *sum += i32::from(*weight) * i32::from(*byte);
                    }
                }
                for (byte, sum) in pixel.iter_mut().zip(sum) {
                    *byte = taps.byte(sum);
                }
            }
        });
    Ok(Rgb8::from_parts(width, image.height(), data))
}

/// Resamples every column of `image` to `height` pixels.
fn along_columns(image: &Rgb8, height: u32, filter: Kernel) -> Result<Rgb8> {
    let taps = Taps::new(image.height(), height, filter);
    let mut data = zeroed(image.width(), height)?;
    let stride = image.stride();
    data.par_chunks_exact_mut(stride)
        .enumerate()
        .with_min_len(1 + BYTES_PER_JOB / stride)
        .for_each_init(
            || vec![0_i32; stride],
            |sums, (index, out)| {
                let (first, weights) = taps.row(index);
                sums.fill(taps.half());
                let rows = image.data()[first * stride..].chunks_exact(stride);
                for (weight, row) in weights.iter().zip(rows) {
                    let weight = i32::from(*weight);
                    for (sum, byte) in sums.iter_mut().zip(row) {
                        *sum += weight * i32::from(*byte);
                    }
                }
                for (byte, sum) in out.iter_mut().zip(sums.iter()) {
                    *byte = taps.byte(*sum);
                }
            },
        );
    Ok(Rgb8::from_parts(image.width(), height, data))
}

/// The bytes of a black picture.
fn zeroed(width: u32, height: u32) -> Result<Vec<u8>> {
    let length = byte_length(width, height)?;
    let mut data = reserved(length, width, height)?;
    data.resize(length, 0);
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fraction_bits_follow_the_largest_weight() {
        for filter in [Kernel::Bilinear, Kernel::Bicubic, Kernel::Lanczos] {
            assert_eq!(Taps::new(10, 37, filter).bits, 14, "{filter:?}");
        }
        assert_eq!(Taps::new(100, 60, Kernel::Bilinear).bits, 15);
        assert_eq!(Taps::new(100, 20, Kernel::Bilinear).bits, 17);
        assert_eq!(Taps::new(16000, 100, Kernel::Bilinear).bits, 22);
    }

    #[test]
    fn flat_pictures_stay_flat() {
        let image = Rgb8::filled(641, 33, [3, 128, 255]).unwrap();
        for filter in Filter::ALL {
            for (width, height) in [(1, 1), (640, 33), (7, 100), (2000, 2), (641, 33)] {
                let out = resize(&image, width, height, filter).unwrap();
                assert_eq!(out, Rgb8::filled(width, height, [3, 128, 255]).unwrap(), "{filter}");
            }
        }
    }

    #[test]
    fn sizes_are_checked() {
        let image = Rgb8::filled(2, 3, [0; 3]).unwrap();
        for (width, height) in
            [(0, 1), (1, 0), (MAX_SIDE + 1, 1), (1 << 20, 1 << 11), (u32::MAX, u32::MAX)]
        {
            assert!(resize(&image, width, height, Filter::Bicubic).is_err(), "{width}x{height}");
        }
    }

    #[test]
    fn filters_have_names_and_codes() {
        for filter in Filter::ALL {
            assert_eq!(filter.name().parse::<Filter>().unwrap(), filter);
        }
        assert_eq!(Filter::from_code(2).unwrap(), Filter::Bilinear);
        assert_eq!(Filter::from_code(3).unwrap(), Filter::Bicubic);
        assert_eq!(Filter::from_code(1).unwrap(), Filter::Lanczos);
        for code in [-1, 0, 4, 5, 6, i64::MAX] {
            assert!(Filter::from_code(code).is_err());
        }
        assert!("nearest".parse::<Filter>().is_err());
    }
}
