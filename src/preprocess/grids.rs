//! Tilings in pixels: the views that the reference's processors make of one picture, in their order.
//!
//! Every view of a picture has one size, so nothing is padded after normalisation as long as a call holds one picture.
//! (With several, the reference's Idefics3 class pads the *number* of views, with planes of 0.0.)

use crate::error::{Error, ErrorKind, Result};
use crate::layout::{CeilGrid, ClosestRatio, ImageSize, PanAndScan};
use crate::media::{Filter, Rgb8, crop, resize};

/// The views of [`ClosestRatio`]: the tiles of the picture resized to the canvas, then the picture resized to one tile.
///
/// As `GotOcr2ImageProcessor.crop_image_to_patches`; its second resize finds every view at its size already. Fails where
/// the canvas does not fit into memory.
pub(super) fn closest_ratio(
    picture: &Rgb8,
    policy: &ClosestRatio,
    filter: Filter,
) -> Result<Vec<Rgb8>> {
    let (size, tile) = (size_of(picture), policy.tile());
    let mut views = tiles(&resized(picture, policy.canvas(size), filter)?, tile)?;
    if policy.thumbnail() && views.len() > 1 {
        views.push(resized(picture, tile, filter)?);
    }
    Ok(views)
}

/// The views of [`CeilGrid`]: the tiles of the twice resized picture, then that one resized to one tile.
///
/// As `Idefics3ImageProcessor`: every resize starts from the bytes of the one before. Fails where the reference refuses
/// the size, or where a resized picture does not fit into memory.
pub(super) fn ceil_grid(picture: &Rgb8, policy: &CeilGrid, filter: Filter) -> Result<Vec<Rgb8>> {
    let size = size_of(picture);
    let canvas = policy.canvas(size).map_err(refused)?;
    let fitted = resized(picture, policy.fitted(size), filter)?;
    let stretched = resized(&fitted, canvas, filter)?;
    let tile = ImageSize { width: policy.tile(), height: policy.tile() };
    if canvas == tile {
        return Ok(vec![stretched]);
    }
    let mut views = tiles(&stretched, tile)?;
    views.push(resized(&stretched, tile, filter)?);
    Ok(views)
}

/// The views of [`PanAndScan`]: the picture and its crops, each resized by itself.
///
/// As `Gemma3ImageProcessor`. Fails where the reference refuses the size.
pub(super) fn pan_and_scan(
    picture: &Rgb8,
    policy: &PanAndScan,
    filter: Filter,
) -> Result<Vec<Rgb8>> {
    let mut views = vec![resized(picture, policy.view(), filter)?];
    for part in policy.crops(size_of(picture)).map_err(refused)? {
        let part = crop(picture, part.x, part.y, part.size.width, part.size.height)?;
        views.push(resized(&part, policy.view(), filter)?);
    }
    Ok(views)
}

fn refused(reason: String) -> Error {
    Error::new(ErrorKind::Media, reason)
}

fn size_of(picture: &Rgb8) -> ImageSize {
    ImageSize { width: picture.width(), height: picture.height() }
}

fn resized(picture: &Rgb8, size: ImageSize, filter: Filter) -> Result<Rgb8> {
    resize(picture, size.width, size.height, filter)
}

/// The tiles of a picture, row after row; its sides are whole tiles.
fn tiles(picture: &Rgb8, tile: ImageSize) -> Result<Vec<Rgb8>> {
    let mut views = Vec::new();
    for y in (0..picture.height()).step_by(tile.height as usize) {
        for x in (0..picture.width()).step_by(tile.width as usize) {
            views.push(crop(picture, x, y, tile.width, tile.height)?);
        }
    }
    Ok(views)
}

#[cfg(test)]
mod tests;
