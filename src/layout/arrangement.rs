//! How the views of one picture belong together: what an encoder must know besides the views.

use super::pinpoints::FeatureGrid;
use super::{ImageSize, Policy};

/// How the cells of a picture's views become its rows. By default they follow each other view by view.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arrangement {
    /// A view of the whole comes first; the cells of all other views lie on one canvas.
    pub canvas: Option<Canvas>,
    /// Which cells are merged.
    pub pooled: Option<Pooled>,
    /// Which of all arrangements of tiles this one is, from 1 on.
    pub number: Option<u32>,
}

/// A canvas of tiles of which a part is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canvas {
    /// Tiles down.
    pub tile_rows: u32,
    /// Tiles across.
    pub tile_cols: u32,
    /// What becomes of its cells.
    pub grid: FeatureGrid,
}

/// Cells that are merged, `count` for each row; `None` stands for a cell beyond the edge. Cells are numbered view by view, row
/// by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pooled {
    /// Cells of a row.
    pub count: usize,
    /// Their numbers.
    pub cells: Vec<Option<u32>>,
}

impl Policy {
    /// How the views of a picture of this size belong together; the error is a sentence.
    pub fn arrangement(&self, size: ImageSize) -> Result<Arrangement, String> {
        Ok(match self {
            Self::Pinpoints { policy, .. } => {
                let (canvas, tile) = (policy.canvas(size)?, policy.tile().max(1));
                let canvas = Canvas {
                    tile_rows: canvas.height / tile,
                    tile_cols: canvas.width / tile,
                    grid: policy.feature_grid(size)?,
                };
                Arrangement { canvas: Some(canvas), ..Arrangement::default() }
            }
            Self::LeastUpscale { policy, .. } => {
                let pooled = match policy.merged() {
                    None => None,
                    Some(count) => Some(Pooled { count, cells: policy.pooling(size)? }),
                };
                let number = Some(policy.arrangement(size)?);
                Arrangement { pooled, number, canvas: None }
            }
            _ => Arrangement::default(),
        })
    }
}
