//! From one decoded picture to the pictures that a vision tower takes, in the reference's order and bit for bit.
//!
//! | function | reference |
//! | --- | --- |
//! | [`tiles`] with [`Fit::Inside`] | `MllamaImageProcessor` |
//! | [`tiles`] with [`Fit::Stretch`] | `Cohere2VisionImageProcessor` |
//! | [`tiles`] with [`Fit::Stretch`] and [`Filter::Plain`] | `Molmo2ImageProcessor` |
//! | [`budgeted`] | `Gemma4ImageProcessor` |
//!
//! All padding is black bytes and comes before normalisation. Where the reference fills up to the most tiles, or patch
//! rows up to the budget, it does so after normalisation with 0.0; that concerns the batch, not a view.

use crate::error::{Error, ErrorKind, Result};
use crate::layout::least_upscale::Whole;
use crate::layout::{ImageSize, LeastUpscale, PatchBudget};
use crate::media::{Filter, Rgb8, crop, pad, resize};

/// How a picture comes onto the canvas of its tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// It is stretched over the whole canvas.
    Stretch,
    /// It keeps its proportions in the upper left corner, the rest is black.
    Inside,
}

/// The tiles of `image` row by row, and the view of the whole where `policy` has one.
///
/// Each is a square of the policy's tile.
pub(super) fn tiles(
    policy: &LeastUpscale,
    image: &Rgb8,
    fit: Fit,
    filter: Filter,
) -> Result<Vec<Rgb8>> {
    let size = ImageSize { width: image.width(), height: image.height() };
    let canvas_size = policy.canvas(size).map_err(refused)?;
    let canvas = match fit {
        Fit::Stretch => resized(image, canvas_size, filter)?,
        Fit::Inside => {
            let fitted = policy.fitted(size).map_err(refused)?;
            // the fitted size never exceeds the canvas
            let right = canvas_size.width.saturating_sub(fitted.width);
            let below = canvas_size.height.saturating_sub(fitted.height);
            pad(&resized(image, fitted, filter)?, [0, 0, right, below], [0; 3])?
        }
    };
    let side = policy.tile();
    let mut views = policy
        .corners(size)
        .map_err(refused)?
        .into_iter()
        .map(|(x, y)| crop(&canvas, x, y, side, side))
        .collect::<Result<Vec<_>>>()?;
    let whole = || resized(image, ImageSize { width: side, height: side }, filter);
    match policy.whole() {
        Whole::First => views.insert(0, whole()?),
        Whole::LastIfMany if views.len() > 1 => views.push(whole()?),
        Whole::LastIfMany | Whole::None => {}
    }
    Ok(views)
}

/// `image` at the size that `policy` gives it.
pub(super) fn budgeted(policy: &PatchBudget, image: &Rgb8, filter: Filter) -> Result<Rgb8> {
    let size = ImageSize { width: image.width(), height: image.height() };
    resized(image, policy.resized(size).map_err(refused)?, filter)
}

fn resized(image: &Rgb8, size: ImageSize, filter: Filter) -> Result<Rgb8> {
    resize(image, size.width, size.height, filter)
}

/// The error for a size that the policy refuses.
fn refused(reason: String) -> Error {
    Error::new(ErrorKind::Media, reason)
}

#[cfg(test)]
mod tests;
