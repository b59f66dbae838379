//! Cutting and padding of byte pictures, with the reference's offsets.

use super::image::Rgb8;
use crate::error::{Error, ErrorKind, Result};

/// The part of `image` that is `width` by `height` pixels and begins at column `x` of row `y`.
///
/// Fails if the part is empty or reaches outside.
pub fn crop(image: &Rgb8, x: u32, y: u32, width: u32, height: u32) -> Result<Rgb8> {
    let fits = |from: u32, length: u32, whole: u32| {
        length > 0 && from.checked_add(length).is_some_and(|end| end <= whole)
    };
    if !fits(x, width, image.width()) || !fits(y, height, image.height()) {
        return Err(Error::new(
            ErrorKind::Media,
            format!(
                "cannot cut `{width}x{height}` pixels at `({x}, {y})` from `{}x{}`",
                image.width(),
                image.height()
            ),
        ));
    }
    let mut out = Rgb8::filled(width, height, [0; 3])?;
    let from = 3 * x as usize;
    for (row, source) in out.rows_mut().zip(image.rows().skip(y as usize)) {
        row.copy_from_slice(&source[from..from + row.len()]);
    }
    Ok(out)
}

/// `image` with borders of `colour`.
///
/// `[left, top, right, bottom]` are widths in pixels, in the order of torchvision's `pad`. Fails if the result is too
/// large.
pub fn pad(image: &Rgb8, [left, top, right, bottom]: [u32; 4], colour: [u8; 3]) -> Result<Rgb8> {
    let grown = |side: u32, before: u32, after: u32| {
        side.checked_add(before).and_then(|sum| sum.checked_add(after)).ok_or_else(|| {
            Error::new(
                ErrorKind::Media,
                format!(
                    "padding a side of `{side}` pixels by `{before}` and `{after}` is too much"
                ),
            )
        })
    };
    let width = grown(image.width(), left, right)?;
    let height = grown(image.height(), top, bottom)?;
    let mut out = Rgb8::filled(width, height, colour)?;
    let from = 3 * left as usize;
    for (row, source) in out.rows_mut().skip(top as usize).zip(image.rows()) {
        row[from..from + source.len()].copy_from_slice(source);
    }
    Ok(out)
}

/// The middle `width` by `height` pixels of `image`, padded with black where the image is smaller.
///
/// As `TorchvisionBackend.center_crop`: with n pixels and c wanted, a smaller side gets `(c - n) / 2` black pixels
/// before and the rest after; a larger one is cut at `(n - c) / 2`. All divisions round down. Fails for a side of 0.
pub fn center_crop(image: &Rgb8, width: u32, height: u32) -> Result<Rgb8> {
    let borders = |side: u32, wanted: u32| {
        let missing = wanted.saturating_sub(side);
        (missing / 2, missing - missing / 2)
    };
    let (left, right) = borders(image.width(), width);
    let (top, bottom) = borders(image.height(), height);
    let padded;
    let whole = if [left, top, right, bottom] == [0; 4] {
        image
    } else {
        padded = pad(image, [left, top, right, bottom], [0; 3])?;
        &padded
    };
    // after padding no side is smaller than wanted, so these do not saturate
    let x = whole.width().saturating_sub(width) / 2;
    let y = whole.height().saturating_sub(height) / 2;
    crop(whole, x, y, width, height)
}

/// `image` in the middle of a square of its longer side, the rest in `colour`.
///
/// As `LlavaImageProcessor.pad_to_square`: an odd pixel goes to the right or the bottom. The reference takes
/// `trunc(255 * mean)` of each channel as the colour.
pub fn pad_to_square(image: &Rgb8, colour: [u8; 3]) -> Result<Rgb8> {
    let side = image.width().max(image.height());
    let (across, down) = (side - image.width(), side - image.height());
    pad(image, [across / 2, down / 2, across - across / 2, down - down / 2], colour)
}

/// `image` as the EXIF `orientation` (1 to 8, others count as 1) says it should be seen.
///
/// As `PIL.ImageOps.exif_transpose`.
pub(super) fn upright(image: Rgb8, orientation: u8) -> Result<Rgb8> {
    let (width, height) = (image.width() as usize, image.height() as usize);
    let (last_x, last_y) = (width - 1, height - 1);
    // where the pixel of column x in row y comes from
    let source: fn(usize, usize, usize, usize) -> (usize, usize) = match orientation {
        2 => |x, y, last_x, _| (last_x - x, y),
        3 => |x, y, last_x, last_y| (last_x - x, last_y - y),
        4 => |x, y, _, last_y| (x, last_y - y),
        5 => |x, y, _, _| (y, x),
        6 => |x, y, _, last_y| (y, last_y - x),
        7 => |x, y, last_x, last_y| (last_x - y, last_y - x),
        8 => |x, y, last_x, _| (last_x - y, x),
        _ => return Ok(image),
    };
    let mut out = if orientation >= 5 {
        Rgb8::filled(image.height(), image.width(), [0; 3])?
    } else {
        Rgb8::filled(image.width(), image.height(), [0; 3])?
    };
    for (y, row) in out.rows_mut().enumerate() {
        for (x, pixel) in row.chunks_exact_mut(3).enumerate() {
            let (from_x, from_y) = source(x, y, last_x, last_y);
            let from = 3 * (from_y * width + from_x);
            pixel.copy_from_slice(&image.data()[from..from + 3]);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture whose red is the column and green the row.
    fn picture(width: u32, height: u32) -> Rgb8 {
        let pixels = (0..height).flat_map(|y| (0..width).flat_map(move |x| [x as u8, y as u8, 9]));
        Rgb8::new(width, height, pixels.collect()).unwrap()
    }

    #[test]
    fn crops_stay_inside() {
        let part = crop(&picture(4, 3), 1, 2, 2, 1).unwrap();
        assert_eq!(part.data(), &[1, 2, 9, 2, 2, 9]);
        for (x, y, width, height) in
            [(3, 0, 2, 1), (0, 0, 0, 1), (0, 3, 1, 1), (u32::MAX, 0, 2, 1), (0, 0, 1, 4)]
        {
            assert!(crop(&picture(4, 3), x, y, width, height).is_err());
        }
    }

    #[test]
    fn center_crop_pads_less_before_than_after() {
        // 2 -> 5 columns: 1 before, 2 after; 5 -> 2 rows: from row 1
        let out = center_crop(&picture(2, 5), 5, 2).unwrap();
        assert_eq!((out.width(), out.height()), (5, 2));
        assert_eq!(out.pixel(0, 0), Some([0, 0, 0]));
        assert_eq!(out.pixel(1, 0), Some([0, 1, 9]));
        assert_eq!(out.pixel(2, 1), Some([1, 2, 9]));
        assert_eq!(out.pixel(3, 0), Some([0, 0, 0]));
        assert!(center_crop(&picture(2, 5), 0, 2).is_err());
    }

    #[test]
    fn orientations() {
        // the corners of 0 1 2 / 3 4 5 (column + 3 * row) after each turn, row by row
        let image = Rgb8::new(3, 2, (0..6).flat_map(|n| [n; 3]).collect()).unwrap();
        let turned = |orientation| {
            let out = upright(image.clone(), orientation).unwrap();
            (out.width(), out.data().iter().step_by(3).copied().collect::<Vec<u8>>())
        };
        assert_eq!(turned(1), (3, vec![0, 1, 2, 3, 4, 5]));
        assert_eq!(turned(2), (3, vec![2, 1, 0, 5, 4, 3]));
        assert_eq!(turned(3), (3, vec![5, 4, 3, 2, 1, 0]));
        assert_eq!(turned(4), (3, vec![3, 4, 5, 0, 1, 2]));
        assert_eq!(turned(5), (2, vec![0, 3, 1, 4, 2, 5]));
        assert_eq!(turned(6), (2, vec![3, 0, 4, 1, 5, 2]));
        assert_eq!(turned(7), (2, vec![5, 2, 4, 1, 3, 0]));
        assert_eq!(turned(8), (2, vec![2, 5, 1, 4, 0, 3]));
    }

    #[test]
    fn squares_put_the_odd_pixel_behind() {
        let out = pad_to_square(&picture(4, 1), [7, 8, 9]).unwrap();
        assert_eq!((out.width(), out.height()), (4, 4));
        assert_eq!(out.pixel(0, 0), Some([7, 8, 9]));
        assert_eq!(out.pixel(3, 1), Some([3, 0, 9]));
        assert_eq!(out.pixel(3, 3), Some([7, 8, 9]));
        assert!(pad(&picture(1, 1), [u32::MAX, 0, 0, 0], [0; 3]).is_err());
    }
}
