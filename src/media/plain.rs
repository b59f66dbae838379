//! Plain bilinear resizing of bytes through floats, without antialiasing, bit for bit as the reference's kernel.
//!
//! The rule is that of torch's `upsample_bilinear2d` on f32 planes (`UpSampleKernel.cpp`, three channels), between a
//! conversion from bytes and one back: `resize_and_normalize_image` of `models/molmo2/image_processing_molmo2.py`.
//!
//! 1. Every number is an f32. A sample lies at `scale · (i + 1/2) − 1/2` of the source, at least 0, in one fused
//!    operation, and weighs its two neighbours by distance. There is no filter, so shrinking skips pixels.
//! 2. The four products of two weights are rounded before they meet a pixel; three of the four sums are fused.
//! 3. The sum is rounded half to even and clamped to a byte.
//!
//! Without fused operations a few bytes in ten thousand fall to the other side of a half.

use rayon::prelude::*;

use super::image::Rgb8;
use crate::error::{Error, ErrorKind, Result};

/// The longest side that is resized from or to: a position beyond would be no f32.
const MAX_SIDE: u32 = 1 << 22;

/// The most pixels that may be written: 3 GiB of bytes.
const MAX_AREA: u64 = 1 << 30;

/// Two neighbours of an output sample along one axis, and their weights.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Neighbours {
    at: [usize; 2],
    weights: [f32; 2],
}

/// The neighbours of each of `to` samples among `from`.
fn neighbours(from: u32, to: u32) -> Vec<Neighbours> {
    let scale = from as f32 / to as f32;
    let last = from.saturating_sub(1) as usize;
    (0..to)
        .map(|index| {
            let place = scale.mul_add(index as f32 + 0.5, -0.5).max(0.0);
            let first = (place as usize).min(last);
            let second = (place - first as f32).clamp(0.0, 1.0);
            Neighbours { at: [first, (first + 1).min(last)], weights: [1.0 - second, second] }
        })
        .collect()
}

/// `image` at `width` by `height` pixels, each between the four pixels around it.
///
/// Fails if a side is 0 or beyond 4 194 304, if more than 2^30 pixels would be written, or if memory does not suffice.
pub(super) fn resize_plain(image: &Rgb8, width: u32, height: u32) -> Result<Rgb8> {
    let longest = [image.width(), image.height(), width, height].into_iter().max().unwrap_or(0);
    if width == 0
        || height == 0
        || longest > MAX_SIDE
        || u64::from(width) * u64::from(height) > MAX_AREA
    {
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
    if (width, height) == (image.width(), image.height()) {
        return Ok(image.clone());
    }
    let columns = neighbours(image.width(), width);
    let rows = neighbours(image.height(), height);
    let mut out = Rgb8::filled(width, height, [0; 3])?;
    let lines: Vec<_> = out.rows_mut().zip(&rows).collect();
    let stride = image.stride();
    lines.into_par_iter().for_each(|(line, row)| {
        let [above, below] = row.at.map(|at| &image.data()[at * stride..(at + 1) * stride]);
        let [up, down] = row.weights;
        for (pixel, column) in line.chunks_exact_mut(3).zip(&columns) {
            let [left, right] = column.at.map(|at| 3 * at);
            let [near, far] = column.weights;
            for (channel, byte) in pixel.iter_mut().enumerate() {
                let value = |line: &[u8], at: usize| f32::from(line[at + channel]);
                let mut sum = (up * far) * value(above, right);
                sum = (up * near).mul_add(value(above, left), sum);
                sum = (down * near).mul_add(value(below, left), sum);
                sum = (down * far).mul_add(value(below, right), sum);
                // the cast saturates, as the reference's clamp does
                *byte = sum.round_ties_even() as u8;
            }
        }
    });
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_to_even() {
        // between 0 and 1, and between 1 and 2, lie 0.5 and 1.5
        let image = Rgb8::new(4, 1, [0, 1, 1, 2].iter().flat_map(|byte| [*byte; 3]).collect());
        let half = resize_plain(&image.unwrap(), 2, 1).unwrap();
        assert_eq!(half.data(), &[0, 0, 0, 2, 2, 2]);
    }

    #[test]
    fn shrinking_skips_pixels() {
        let mut data = vec![0; 30];
        data[15..18].fill(200);
        let image = Rgb8::new(10, 1, data).unwrap();
        // the only sample lies between pixels 4 and 5
        assert_eq!(resize_plain(&image, 1, 1).unwrap().data(), &[100; 3]);
        // two samples lie at 2 and 7
        assert_eq!(resize_plain(&image, 2, 1).unwrap().data(), &[0; 6]);
    }

    #[test]
    fn flat_pictures_stay_flat() {
        let image = Rgb8::filled(641, 33, [3, 128, 255]).unwrap();
        for (width, height) in [(1, 1), (640, 33), (7, 100), (2000, 2), (641, 33)] {
            let out = resize_plain(&image, width, height).unwrap();
            assert_eq!(out, Rgb8::filled(width, height, [3, 128, 255]).unwrap());
        }
    }

    #[test]
    fn sizes_are_checked() {
        let image = Rgb8::filled(2, 3, [0; 3]).unwrap();
        for (width, height) in [(0, 1), (1, 0), (MAX_SIDE + 1, 1), (1 << 20, 1 << 11)] {
            assert!(resize_plain(&image, width, height).is_err(), "{width}x{height}");
        }
    }
}
