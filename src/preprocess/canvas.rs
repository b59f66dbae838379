//! The views of [`Pinpoints`]: from decoded bytes to tiles, bit for bit as the reference.
//!
//! `_get_image_patches` and `_preprocess` of `LlavaNextImageProcessor` and `LlavaOnevisionImageProcessor`: the image
//! itself resized to a square (its aspect ratio is lost), then the tiles of the fitted and padded image, row by row.
//! Then every view goes through the plain steps of the file once more, resizing and cutting the centre. In published
//! files those change nothing, since `size`, `crop_size` and the tile agree.
//!
//! All of this is done on bytes, so padding is black before it is normalised. After that, the views of one image are
//! padded with views of 0.0 to the most views of an image in the call; the model drops them again.

use crate::error::{Error, ErrorKind, Result};
use crate::layout::crop::ResizeTo;
use crate::layout::{ImageSize, Pinpoints, ViewSteps};
use crate::media::{Filter, Rgb8, center_crop, crop, pad, resize};

/// The steps that every view goes through.
fn finish(steps: &ViewSteps, filter: Filter, mut view: Rgb8) -> Result<Rgb8> {
    if steps.resize {
        let size = ImageSize { width: view.width(), height: view.height() };
        let target = steps.size.target(size).ok_or_else(|| {
            Error::new(ErrorKind::Media, format!("a view of `{size}` px cannot be resized"))
        })?;
        view = resize(&view, target.width, target.height, filter)?;
    }
    match steps.crop {
        Some(size) => center_crop(&view, size.width, size.height),
        None => Ok(view),
    }
}

/// The views of an image that is alone in its prompt: the whole, then the tiles row by row.
///
/// Fails where [`Pinpoints::canvas`] refuses the size, if the views are no squares of the policy's tile, and for sizes
/// that are too large to resize.
pub(super) fn pinpoints(
    policy: &Pinpoints,
    steps: &ViewSteps,
    filter: Filter,
    image: &Rgb8,
) -> Result<Vec<Rgb8>> {
    let tile = policy.tile();
    let media = |message| Error::new(ErrorKind::Media, message);
    steps.check(tile).map_err(media)?;
    let size = ImageSize { width: image.width(), height: image.height() };
    let fitted = policy.fitted(size).map_err(media)?;
    let borders = policy.borders(size).map_err(media)?;
    let fitted = resize(image, fitted.width, fitted.height, filter)?;
    let canvas = pad(&fitted, borders, [0; 3])?;

    let whole = match steps.size {
        ResizeTo::Fixed { height, width } => resize(image, width, height, filter)?,
        ResizeTo::Shortest(edge) => resize(image, edge, edge, filter)?,
    };
    let mut views = vec![finish(steps, filter, whole)?];
    for top in (0..canvas.height()).step_by(tile as usize) {
        for left in (0..canvas.width()).step_by(tile as usize) {
            views.push(finish(steps, filter, crop(&canvas, left, top, tile, tile)?)?);
        }
    }
    Ok(views)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::pad_to_square;

    /// The pictures of `tests/scripts/pinpoints_views.py`: noise, or the formula of the stored goldens.
    fn picture(width: u32, height: u32, seed: u32) -> Rgb8 {
        let pixel = |x: u32, y: u32| {
            let colour = if seed.is_multiple_of(2) {
                [
                    (5 * x).wrapping_add(3 * y).wrapping_add(40 * seed),
                    x.wrapping_mul(y).wrapping_add(7 * seed),
                    255_u32.wrapping_sub(2 * x).wrapping_sub(9 * y),
                ]
            } else {
                [0, 1, 2].map(|channel| {
                    let n = ((y * width + x) * 3 + channel).wrapping_mul(2_654_435_761);
                    let n = n.wrapping_add(seed.wrapping_mul(40_503));
                    let n = (n ^ (n >> 15)).wrapping_mul(2_246_822_519);
                    n ^ (n >> 13)
                })
            };
            colour.map(|value| value as u8)
        };
        let pixels = (0..height).flat_map(|y| (0..width).flat_map(move |x| pixel(x, y)));
        Rgb8::new(width, height, pixels.collect()).unwrap()
    }

    fn fnv<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> String {
        let hash = bytes.into_iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3)
        });
        format!("{hash:016x}")
    }

    /// Each line of the fixture: what the processor made of one picture.
    #[test]
    fn equal_the_reference() {
        let table = include_str!("../../tests/fixtures/layout/pinpoints_views.txt");
        let mut cases = 0;
        for line in table.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u32>().unwrap();
            let (width, height, seed) = (number(0), number(1), number(2));
            let (tile, height_to, width_to, crop) = (number(3), number(4), number(5), number(6));
            let pinpoints: Vec<u32> =
                words[8].split(',').map(|side| side.parse().unwrap()).collect();
            let steps = ViewSteps {
                size: if width_to == 0 {
                    ResizeTo::Shortest(height_to)
                } else {
                    ResizeTo::Fixed { height: height_to, width: width_to }
                },
                resize: words[7] != "once",
                crop: (crop > 0).then_some(ImageSize { width: crop, height: crop }),
            };
            let filter = if seed % 3 == 0 { Filter::Bilinear } else { Filter::Bicubic };
            let image = picture(width, height, seed);
            let views = if words[7] == "square" {
                steps.check(tile).unwrap();
                let square = pad_to_square(&image, [122, 116, 104]).unwrap();
                vec![finish(&steps, filter, square).unwrap()]
            } else {
                let list: Vec<_> = pinpoints.chunks(2).map(|pair| (pair[0], pair[1])).collect();
                let policy = Pinpoints::new(&list, tile, 1, true, 0).unwrap();
                super::pinpoints(&policy, &steps, filter, &image).unwrap()
            };
            assert_eq!(views.len().to_string(), words[9], "{line}");
            assert!(views.iter().all(|view| (view.width(), view.height()) == (tile, tile)));
            assert_eq!(fnv(views.iter().flat_map(Rgb8::data)), words[10], "{line}");
            cases += 1;
        }
        assert_eq!(cases, 240);
    }

    #[test]
    fn views_that_are_no_tiles_are_refused() {
        let steps = |size, resize, crop: u32| ViewSteps {
            size,
            resize,
            crop: (crop > 0).then_some(ImageSize { width: crop, height: crop }),
        };
        let square = ResizeTo::Fixed { height: 8, width: 8 };
        let wide = ResizeTo::Fixed { height: 8, width: 9 };
        assert!(steps(square, true, 0).check(8).is_ok());
        assert!(steps(ResizeTo::Shortest(6), true, 8).check(8).is_ok());
        assert!(steps(ResizeTo::Shortest(6), true, 0).check(8).is_err());
        assert!(steps(wide, true, 0).check(8).is_err());
        assert!(steps(wide, true, 8).check(8).is_ok());
        // the first view alone would be of another size
        assert!(steps(wide, false, 0).check(8).is_err());
        let policy = Pinpoints::new(&[(16, 8), (9, 9)], 8, 2, true, 0).unwrap();
        let image = picture(9, 9, 1);
        assert!(
            super::pinpoints(&policy, &steps(square, true, 0), Filter::Bicubic, &image).is_err()
        );
        let image = picture(9, 12, 1);
        assert_eq!(
            super::pinpoints(&policy, &steps(square, true, 0), Filter::Bicubic, &image)
                .unwrap()
                .len(),
            3
        );
    }
}
