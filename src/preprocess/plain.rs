//! One view: the whole picture resized, or its centre.

use crate::error::{Error, ErrorKind, Result};
use crate::layout::crop::ResizeTo;
use crate::layout::{Crop, ImageSize, Layout};
use crate::media::{Filter, Rgb8, center_crop, pad_to_square, resize};

/// The sides of the picture that a layout speaks of, in pixels.
fn sides(layout: &Layout) -> (u32, u32) {
    (layout.get("width").unwrap_or(0), layout.get("height").unwrap_or(0))
}

/// The picture resized to the layout's size, the aspect ratio ignored.
pub(super) fn resized(image: &Rgb8, layout: &Layout, filter: Filter) -> Result<Rgb8> {
    let (width, height) = sides(layout);
    resize(image, width, height, filter)
}

/// The picture padded, resized and cut as `crop` says.
pub(super) fn cropped(
    mut image: Rgb8,
    mut size: ImageSize,
    crop: &Crop,
    layout: &Layout,
    filter: Filter,
    mean: [f64; 3],
) -> Result<Rgb8> {
    if crop.pad_square {
        // `pad_to_square(background_color=int(255 * mean))`
        image = pad_to_square(&image, mean.map(|mean| (mean * 255.0) as u8))?;
        size = ImageSize { width: image.width(), height: image.height() };
    }
    if let Some(to) = crop.resize {
        image = resize_to(&image, to, size, filter)?;
    }
    let (width, height) = sides(layout);
    if crop.cut { center_crop(&image, width, height) } else { Ok(image) }
}

fn resize_to(image: &Rgb8, to: ResizeTo, size: ImageSize, filter: Filter) -> Result<Rgb8> {
    let target = to.target(size).ok_or_else(|| {
        Error::new(
            ErrorKind::Media,
            format!("a picture of {size} is too thin: its long side would overflow"),
        )
    })?;
    resize(image, target.width, target.height, filter)
}
