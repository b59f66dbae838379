//! The size policy `least_upscale`: tiles of one size, as many of them as make the image grow least.
//!
//! A *grid* is `rows × columns` tiles, at most so many in all. The rule is that of `get_optimal_tiled_canvas` in
//! `models/mllama/image_processing_mllama.py` and in `models/cohere2_vision/image_processing_cohere2_vision.py`, and of
//! `select_tiling` with `compute_crop_geometry` in `models/molmo2/image_processing_molmo2.py`: a grid's *scale* is the
//! lesser of `grid side / image side`; of all grids the one with the least scale from 1 on is taken, or the one with the
//! greatest scale if all are below 1. Tiles may overlap by a margin. Then the grid covers the image less one margin, and
//! the *window*, a tile less the margin, takes the place of the tile.
//!
//! # What surprises
//!
//! * **The orders, the tie rules and the floats are all one.** The reference lists the grids by rows, by area and rows, or
//!   by area and columns, breaks ties by the least area or by the first in the list, and compares in f64 or in f32. All
//!   of that gives the same grid (below), so there are no parameters for it.
//! * **Coverage is a ceiling.** If `⌈height / tile⌉ · ⌈width / tile⌉` tiles are allowed, that is the grid.
//! * **Less than a margin is one tile.** An image with a side shorter than the margin, 112 px in the published setting,
//!   gets one tile, however long the other side is: its scales are negative. A side of just the margin costs no tiles
//!   but one row: its scale is infinite.
//! * **A small image does not fill its canvas.** Where the image is fitted inside, each side first becomes at least a
//!   tile and at most the canvas; see [`LeastUpscale::fitted`].
//! * **Cells are pooled over the whole canvas**, so the margins count once and an odd cell is rounded up once, not per
//!   tile.
//!
//! # Why one rule is enough
//!
//! Let h and w be the sides of the image less the margin, and t the window. The scale of (r, c) is the lesser of r·t/h and
//! c·t/w.
//!
//! *Floats.* r·t and c·t are at most 128 · 65 535, so they and the sides are exact in f32. Two quotients that differ do so
//! by at least 1 / (r·w) or 1 / (c·h) of the greater one, or 1/r or 1/c along one axis: by more than 2⁻²³, as long as
//! a side times the most tiles is below 2²³. So they do not round to the same f32, and equal ones do round alike: f32,
//! f64 and integers agree on the order of all scales and on which are at least 1.
//!
//! *Order and ties.* Let G be the allowed grids with a scale of at least s. If (r, c) and (r′, c′) are in G, so is
//! (min(r, r′), min(c, c′)), for it has no more tiles. So, unless G is empty, the least r and the least c of G are a
//! grid of G, and every other one has more tiles.
//!
//! * *Covered*: let s = 1. That grid has the least scale of G, since scales rise with r and c; among equals it alone has
//!   the least area. So it is taken under each order and tie rule.
//! * *Not covered*: let s be the greatest scale. Then G is the set of grids that have it, and again one grid alone has
//!   the least area. It comes first in each list that is sorted by area.
//!
//! The greatest scale is that of one of the pairs (r, ⌊most / r⌋). With a negative side no scale reaches 1, and the
//! greatest is that of (1, 1), the first of its equals. With a side of 0 only the other one counts.
//!
//! # Domain, and why [`LeastUpscale::maximum`] is exact
//!
//! Let L be the rows of the longest side, ⌈(65 535 − margin) / window⌉ but at least 1. An image reaches (r, c) exactly
//! if r ≤ L, c ≤ L and r · c is allowed:
//!
//! * *Reached*: a side of `r · window + margin`, but at most 65 535 px, needs r rows and no fewer; with c likewise, the
//!   grid is covered. That image is the witness; its size is that of the canvas unless the canvas is too large.
//! * *No more*: L rows have a scale of at least 1 for every image, and the least r in both cases above is the least for
//!   some scale of at most 1.
//!
//! All these grids, at most 645, are evaluated.

use super::{Formula, ImageSize, LONGEST_SIDE, Layout, Maximum, SizePolicy};
use crate::descriptor::expression::ExpressionError;

/// The reference lists all pairs of rows and columns up to the limit for each image. Up to here the proof holds.
const MOST_TILES: u32 = 128;
/// A side times the most tiles is less than this.
const EXACT: u64 = 1 << 23;

use crate::descriptor::resize::LEAST_UPSCALE as NAMES;

pub use crate::descriptor::resize::Whole;

/// The policy's parameters, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeastUpscale {
    tile: u32,
    most: u32,
    cell: u32,
    margins: [u32; 2],
    pool: [u32; 2],
    whole: Whole,
    /// The longest side that `maximum` considers; a field so that tests can search small worlds exhaustively.
    longest: u32,
}

/// Rows and columns of tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Grid {
    rows: u32,
    cols: u32,
}

impl LeastUpscale {
    /// The policy that cuts an image into at most `most` square tiles of `tile` px.
    ///
    /// A tile is made of square cells of `cell` px. Two neighbouring tiles share `margins[0] + margins[1]` of them:
    /// the right one gives up its first `margins[0]`, the left one its last `margins[1]`; alike for rows. The cells
    /// that remain of all tiles form one grid, and so do those of one whole tile; both are merged by `pool[0]` rows
    /// and `pool[1]` columns.
    ///
    /// Where tiles alone are counted, `cell` is `tile`, the margins are 0 and the pools 1; then `rows` and `cols` are
    /// tiles. Refuses what the reference cannot run with: nothing to tile, tiles that are not whole cells, windows
    /// that are empty; and limits beyond reason.
    pub fn new(
        tile: u32,
        most: u32,
        cell: u32,
        margins: [u32; 2],
        pool: [u32; 2],
        whole: Whole,
    ) -> Result<Self, String> {
        if tile == 0 || tile > LONGEST_SIDE {
            return Err(format!("the side of a tile must be 1 to {LONGEST_SIDE} px, got {tile}"));
        }
        if most == 0 || most > MOST_TILES {
            return Err(format!("the most tiles must be 1 to {MOST_TILES}, got {most}"));
        }
        if cell == 0 || !tile.is_multiple_of(cell) {
            return Err(format!("a tile of {tile} px is not made of whole cells of {cell} px"));
        }
        let cells = tile / cell;
        if margins[0].checked_add(margins[1]).is_none_or(|margin| margin >= cells) {
            return Err(format!(
                "margins of {} and {} cells leave nothing of a tile of {cells}",
                margins[0], margins[1]
            ));
        }
        if pool.iter().any(|pool| *pool == 0 || *pool > cells) {
            return Err(format!(
                "{} by {} cells of a tile of {cells} by {cells} cannot be merged",
                pool[0], pool[1]
            ));
        }
        Ok(Self { tile, most, cell, margins, pool, whole, longest: LONGEST_SIDE })
    }

    /// Pixels per side of a tile.
    pub fn tile(&self) -> u32 {
        self.tile
    }

    /// The most tiles, not counting the view of the whole image. The reference may fill up to that many with zeros.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Whether there is a view of the whole image, and where.
    pub fn whole(&self) -> Whole {
        self.whole
    }

    /// Pixels that two neighbouring tiles share.
    pub fn margin(&self) -> u32 {
        (self.margins[0] + self.margins[1]) * self.cell
    }

    /// Pixels from one tile to the next.
    pub fn window(&self) -> u32 {
        self.tile - self.margin()
    }

    /// The size of all tiles together.
    pub fn canvas(&self, size: ImageSize) -> Result<ImageSize, String> {
        Ok(self.canvas_of(self.grid(size)?))
    }

    /// The size of an image that keeps its proportions on the canvas; the rest, right and below, is padded.
    ///
    /// As `get_image_size_fit_to_canvas` of `models/mllama/image_processing_mllama.py`: what limits is the canvas, but
    /// for an image smaller than a tile the tile, and no side is 0.
    pub fn fitted(&self, size: ImageSize) -> Result<ImageSize, String> {
        let canvas = self.canvas(size)?;
        let wide = size.width.clamp(self.tile, canvas.width);
        let high = size.height.clamp(self.tile, canvas.height);
        let scale_wide = f64::from(wide) / f64::from(size.width);
        let scale_high = f64::from(high) / f64::from(size.height);
        // a double beyond 32 bits saturates, and the canvas is smaller
        let scaled = |side: u32, scale: f64, most: u32| {
            ((f64::from(side) * scale).floor() as u32).max(1).min(most)
        };
        Ok(if scale_wide < scale_high {
            ImageSize { width: wide, height: scaled(size.height, scale_wide, high) }
        } else {
            ImageSize { width: scaled(size.width, scale_high, wide), height: high }
        })
    }

    /// Where on the canvas the tiles begin, `(x, y)` in px, row by row.
    pub fn corners(&self, size: ImageSize) -> Result<Vec<(u32, u32)>, String> {
        let grid = self.grid(size)?;
        let window = self.window();
        let row = |row: u32| (0..grid.cols).map(move |col| (col * window, row * window));
        Ok((0..grid.rows).flat_map(row).collect())
    }

    /// The number of an image's grid in the list of all grids, by rows and then by columns, from 1 on.
    ///
    /// As `convert_aspect_ratios_to_ids` of `models/mllama/image_processing_mllama.py`, where 0 means no image.
    pub fn arrangement(&self, size: ImageSize) -> Result<u32, String> {
        let grid = self.grid(size)?;
        Ok((1..grid.rows).map(|rows| self.most / rows).sum::<u32>() + grid.cols)
    }

    /// How many cells become one row; `None` where tiles alone are counted.
    pub fn merged(&self) -> Option<usize> {
        (self.cell < self.tile).then(|| self.pool[0] as usize * self.pool[1] as usize)
    }

    /// Which cells are merged, `pool[0] · pool[1]` for each place; `None` stands for a cell beyond the edge.
    ///
    /// First come the `base_rows · base_cols` places of the view of the whole image, then the `rows · cols` of the
    /// tiles, both row by row. Cells are numbered view by view, in a view row by row; the whole view is the first. As
    /// `arange_for_pooling` with `_build_overlapping_crops` of `models/molmo2/image_processing_molmo2.py`, where `None`
    /// is -1; what is missing to a multiple of the pool is missing on both sides, the odd cell below or to the right.
    pub fn pooling(&self, size: ImageSize) -> Result<Vec<Option<u32>>, String> {
        let grid = self.grid(size)?;
        let cells = self.tile / self.cell;
        let mut places = Vec::new();
        self.pool_into(&mut places, [cells, cells], |row, col| row * cells + col);
        let [left, right] = self.margins;
        let step = cells - left - right;
        // a cell of the canvas lies in the tile whose share it is, the first and last shares being longer
        let share = |at: u32, count: u32| (at.saturating_sub(left) / step).min(count - 1);
        let canvas = [grid.rows, grid.cols].map(|count| count * step + left + right);
        self.pool_into(&mut places, canvas, |row, col| {
            let (tile_row, tile_col) = (share(row, grid.rows), share(col, grid.cols));
            let tile = 1 + tile_row * grid.cols + tile_col;
            let inside = (row - tile_row * step) * cells + col - tile_col * step;
            tile * cells * cells + inside
        });
        Ok(places)
    }

    fn pool_into(
        &self,
        places: &mut Vec<Option<u32>>,
        [rows, cols]: [u32; 2],
        number: impl Fn(u32, u32) -> u32,
    ) {
        let [pool_rows, pool_cols] = self.pool;
        let before = |count: u32, pool: u32| (count.next_multiple_of(pool) - count) / 2;
        let (above, left) = (before(rows, pool_rows), before(cols, pool_cols));
        for place_row in 0..rows.div_ceil(pool_rows) {
            for place_col in 0..cols.div_ceil(pool_cols) {
                for row in place_row * pool_rows..(place_row + 1) * pool_rows {
                    for col in place_col * pool_cols..(place_col + 1) * pool_cols {
                        let row = row.checked_sub(above).filter(|row| *row < rows);
                        let col = col.checked_sub(left).filter(|col| *col < cols);
                        places.push(row.zip(col).map(|(row, col)| number(row, col)));
                    }
                }
            }
        }
    }

    /// The tiles that cover a side, which is given less the margin.
    fn covering(&self, side: u32) -> u32 {
        side.div_ceil(self.window()).max(1)
    }

    /// The grid of an image.
    fn grid(&self, size: ImageSize) -> Result<Grid, String> {
        let most = self.most;
        if size.width == 0 || size.height == 0 {
            return Err("a side is zero".to_owned());
        }
        let longest = u64::from(size.width.max(size.height));
        if longest * u64::from(most) >= EXACT {
            return Err(format!("with {most} tiles a side of {longest} px is too long"));
        }
        let inner = |side: u32| side.checked_sub(self.margin());
        let (Some(height), Some(width)) = (inner(size.height), inner(size.width)) else {
            return Ok(Grid { rows: 1, cols: 1 });
        };
        let (rows, cols) = (self.covering(height), self.covering(width));
        if height == 0 || width == 0 {
            return Ok(Grid { rows: rows.min(most), cols: cols.min(most) });
        }
        if u64::from(rows) * u64::from(cols) <= u64::from(most) {
            return Ok(Grid { rows, cols });
        }
        // scales over window / (height · width)
        let (high, wide) = (u64::from(height), u64::from(width));
        let scales =
            (1..=most).map(|rows| (u64::from(rows) * wide).min(u64::from(most / rows) * high));
        let greatest = scales.fold(0, u64::max);
        let fewest = |other: u64| greatest.div_ceil(other) as u32;
        Ok(Grid { rows: fewest(wide), cols: fewest(high) })
    }

    fn canvas_of(&self, grid: Grid) -> ImageSize {
        let side = |count: u32| count * self.window() + self.margin();
        ImageSize { width: side(grid.cols), height: side(grid.rows) }
    }

    fn layout_of(&self, grid: Grid) -> Layout {
        let canvas = self.canvas_of(grid);
        let pooled = |side: u32, pool: u32| (side / self.cell).div_ceil(pool);
        let tiles = grid.rows * grid.cols;
        let whole = match self.whole {
            Whole::None => false,
            Whole::First => true,
            Whole::LastIfMany => tiles > 1,
        };
        Layout::new(
            &NAMES,
            [
                pooled(canvas.height, self.pool[0]),
                pooled(canvas.width, self.pool[1]),
                grid.rows,
                grid.cols,
                tiles,
                tiles + u32::from(whole),
                pooled(self.tile, self.pool[0]),
                pooled(self.tile, self.pool[1]),
                canvas.width,
                canvas.height,
            ],
        )
    }

    /// The most rows, and at once the most columns, that any image has.
    fn most_rows(&self) -> u32 {
        let longest = self.longest.checked_sub(self.margin());
        longest.map_or(1, |side| self.covering(side)).min(self.most)
    }

    /// All grids that images reach, by rows and columns.
    fn grids(&self) -> impl Iterator<Item = Grid> + use<> {
        let (limit, most) = (self.most_rows(), self.most);
        (1..=limit)
            .flat_map(move |rows| (1..=limit.min(most / rows)).map(move |cols| Grid { rows, cols }))
    }

    /// The image that is just the canvas, but no side longer than an image's.
    fn witness(&self, grid: Grid) -> ImageSize {
        let canvas = self.canvas_of(grid);
        ImageSize { width: canvas.width.min(self.longest), height: canvas.height.min(self.longest) }
    }
}

impl SizePolicy for LeastUpscale {
    fn names(&self) -> &'static [&'static str] {
        &NAMES
    }

    /// `rows`, `cols`: merged cells of all tiles; `grid_rows`, `grid_cols`, `tiles`: the grid; `views`: tiles, and the
    /// whole if there is one; `base_rows`, `base_cols`: merged cells of one tile; `width`, `height`: the canvas in px.
    fn layout(&self, size: ImageSize) -> Result<Layout, String> {
        Ok(self.layout_of(self.grid(size)?))
    }

    /// Exact; see the module. Of equal values the squarest witness is taken, then the smallest, then landscape.
    fn maximum(&self, formula: &Formula<'_>) -> Result<Option<Maximum>, ExpressionError> {
        let mut best = None::<Maximum>;
        for grid in self.grids() {
            let value = formula.at(&self.layout_of(grid))?;
            let witness = self.witness(grid);
            let better = best.is_none_or(|best| {
                value > best.value || value == best.value && is_squarer(witness, best.witness)
            });
            if better {
                best = Some(Maximum { value, witness, exact: true });
            }
        }
        Ok(best)
    }

    fn samples(&self) -> Vec<Layout> {
        self.grids().map(|grid| self.layout_of(grid)).collect()
    }

    fn budget_kind(&self) -> &'static str {
        if self.most_rows() == 1 { "fixed" } else { "per tile" }
    }
}

/// Whether the first image is nearer to a square; if neither is, whether it is smaller; if neither is, whether it
/// alone is a landscape.
fn is_squarer(one: ImageSize, other: ImageSize) -> bool {
    let sides = |size: ImageSize| {
        let (long, short) = (size.width.max(size.height), size.width.min(size.height));
        (u64::from(long), u64::from(short))
    };
    let ((long, short), (other_long, other_short)) = (sides(one), sides(other));
    (long * other_short)
        .cmp(&(other_long * short))
        .then((long * short).cmp(&(other_long * other_short)))
        .then(other.width.cmp(&one.width))
        .is_lt()
}

#[cfg(test)]
mod tests;
