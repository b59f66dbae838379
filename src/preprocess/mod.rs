//! From a file to what the tower receives, as the reference processor makes it.

mod canvas;
mod clip;
mod grids;
mod plain;
mod tiles;

use std::path::Path;

pub use self::clip::{Clip, preprocess_clip};

use crate::error::{Error, ErrorKind, Result};
use crate::layout::{Arrangement, ImageSize, Layout, MediaSize, Policy};
use crate::media::{Filter, Planes, Rgb8, load_image};
use crate::plan::{Plan, Shape};
use crate::problem::Problem;

/// A picture ready for the tower.
#[derive(Debug, Clone)]
pub struct Picture {
    /// Its size as decoded, orientation applied.
    pub size: ImageSize,
    /// What the size policy made of it.
    pub layout: Layout,
    /// How its views belong together.
    pub arrangement: Arrangement,
    /// Normalised values `[3, height, width]` of every view (tile), in the processor's order; all of one size.
    pub views: Vec<Planes>,
    /// What was noticed while decoding.
    pub notes: Vec<String>,
}

/// The media of one prompt; those of each modality in the order of their markers.
#[derive(Debug, Clone, Default)]
pub struct Media {
    /// Pictures.
    pub pictures: Vec<Picture>,
    /// Clips of sound.
    pub clips: Vec<Clip>,
}

impl Media {
    /// How many items there are.
    pub fn len(&self) -> usize {
        self.pictures.len() + self.clips.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Decodes a picture that is one of `pictures` of its prompt, and makes it what the reference processor makes of it.
///
/// # Errors
/// [`ErrorKind::Media`] if the file cannot be read or the reference refuses its size; [`ErrorKind::NoNumber`] for config
/// values.
pub fn preprocess(plan: &Plan, file: &Path, pictures: usize) -> Result<Picture> {
    let media = match &plan.image {
        Some(Ok(media)) => media,
        Some(Err(problems)) => {
            let first = problems.iter().next().map(|problem| problem.message.clone());
            let error = Error::new(ErrorKind::NoNumber, first.unwrap_or_default());
            return Err(error.with_problems(problems.clone()));
        }
        None => {
            let message = format!("family `{}` takes no images", plan.family());
            return Err(Error::new(ErrorKind::Media, message));
        }
    };
    let loaded = load_image(file)?;
    let size = ImageSize { width: loaded.image.width(), height: loaded.image.height() };
    let name = file.display();
    let shape = media.shape(pictures);
    let layout = shape.policy.layout(MediaSize::Image(size)).map_err(|reason| {
        Error::new(ErrorKind::Media, format!("`{name}` ({size}) is refused: {reason}"))
    })?;
    let arrangement = shape.policy.arrangement(size).map_err(|reason| {
        Error::new(ErrorKind::Media, format!("`{name}` ({size}) is refused: {reason}"))
    })?;
    let config = |problem: Problem| {
        Error::new(ErrorKind::NoNumber, problem.message.clone()).with_problems(problem.into())
    };
    let (normaliser, mean) = plan.normaliser().map_err(config)?;
    let views = views(loaded.image, size, shape, &layout, mean)?;
    let views = views.iter().map(|view| normaliser.apply(view)).collect();
    Ok(Picture { size, layout, arrangement, views, notes: loaded.notes })
}

/// The views of a picture as bytes, in the processor's order. `mean` is the mean colour, from 0 to 1 per channel.
pub fn views(
    image: Rgb8,
    size: ImageSize,
    shape: &Shape,
    layout: &Layout,
    mean: [f64; 3],
) -> Result<Vec<Rgb8>> {
    let filter = shape.filter.unwrap_or(Filter::Bicubic);
    match &shape.policy {
        Policy::Area(_) => plain::resized(&image, layout, filter).map(|view| vec![view]),
        Policy::Crop(crop) => {
            plain::cropped(image, size, crop, layout, filter, mean).map(|view| vec![view])
        }
        Policy::Fit(_) => plain::resized(&image, layout, filter).map(|view| vec![view]),
        Policy::PatchBudget(budget) => {
            tiles::budgeted(budget, &image, filter).map(|view| vec![view])
        }
        Policy::Pinpoints { policy, steps } => canvas::pinpoints(policy, steps, filter, &image),
        Policy::ClosestRatio(grid) => grids::closest_ratio(&image, grid, filter),
        Policy::CeilGrid(grid) => grids::ceil_grid(&image, grid, filter),
        Policy::LeastUpscale { policy, inside } => {
            let fit = if *inside { tiles::Fit::Inside } else { tiles::Fit::Stretch };
            tiles::tiles(policy, &image, fit, filter)
        }
        Policy::PanAndScan(scan) => grids::pan_and_scan(&image, scan, filter),
        Policy::Clip(_) => Err(Error::new(ErrorKind::Media, "a picture is no clip")),
    }
}
