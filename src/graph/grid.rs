//! Rows of tiles on one canvas: cut where the picture's padding was, and shrunk.

use super::interpolate::{self, Kernel};
use crate::backend::Backend;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::arrangement::Canvas;

/// Rows of `views` views, of which the first shows the whole picture and the others lie on a canvas: those of the whole, then
/// those of the canvas, row by row, without its borders; where the layout says so, shrunk.
///
/// As `pack_image_features` of `LlavaNextModel` and `LlavaOnevisionModel`.
pub(super) fn arrange<B: Backend>(
    backend: &B,
    x: &B::Tensor,
    views: usize,
    canvas: &Canvas,
) -> Result<B::Tensor> {
    let (count, _) = backend.shape(x);
    let each = count / views.max(1);
    let (tile_rows, tile_cols) = (canvas.tile_rows as usize, canvas.tile_cols as usize);
    let grid = &canvas.grid;
    let (rows, cols) = (grid.canvas_rows as usize, grid.canvas_cols as usize);
    let (high, wide) = (rows / tile_rows.max(1), cols / tile_cols.max(1));
    if views != 1 + tile_rows * tile_cols || each != high * wide || each == 0 {
        let message = format!(
            "{views} views of {each} rows are no canvas of {tile_rows}x{tile_cols} tiles of {high}x{wide} cells"
        );
        return Err(Error::new(ErrorKind::Media, message));
    }
    let mut index = Vec::new();
    let (top, left) = (grid.top as usize, grid.left as usize);
    for row in top..top + grid.kept_rows as usize {
        for col in left..left + grid.kept_cols as usize {
            let tile = 1 + row / high * tile_cols + col / wide;
            index.push((tile * each + row % high * wide + col % wide) as u32);
        }
    }
    let whole = 0..each as u32;
    if (grid.rows, grid.cols) == (grid.kept_rows, grid.kept_cols) {
        return backend.gather(x, &whole.chain(index).collect::<Vec<_>>());
    }
    let kept = backend.gather(x, &index)?;
    let places: Vec<(u32, u32)> =
        (0..grid.rows).flat_map(|row| (0..grid.cols).map(move |col| (row, col))).collect();
    let (index, weights, count) = interpolate::grid(
        Kernel::Linear,
        &places,
        (grid.rows as usize, grid.cols as usize),
        (grid.kept_rows as usize, grid.kept_cols as usize),
        0,
    );
    let shrunk = backend.blend(&kept, &index, &weights, count)?;
    backend.concat(&[&backend.rows(x, 0, each)?, &shrunk])
}
