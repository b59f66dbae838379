//! The size policy `closest_ratio`: the grid of tiles whose ratio of columns to rows is nearest to the image's.
//!
//! This is `get_optimal_tiled_canvas` over `get_all_supported_aspect_ratios` of the reference
//! (`models/got_ocr2/image_processing_got_ocr2.py`), called by `GotOcr2ImageProcessor.crop_image_to_patches`. The image
//! is resized to the grid's canvas without regard to its own ratio and cut into tiles, row after row. A thumbnail, the
//! original image resized to one tile, follows if there is more than one tile.
//!
//! # What surprises
//!
//! * **Only ratios count.** An image of 4×3 px becomes as many tiles as one of 4000×3000 px: no tile is too small.
//! * **Tiles count as squares.** The ratio compared is columns / rows, whatever shape a tile has, so the canvas of a
//!   grid need not be an image that chooses it. Nor need it with square tiles: among grids of one ratio the area
//!   decides, and an image of 3×3 tiles is given 4×4 of them where those are allowed.
//! * **Differences are plain.** width / height − columns / rows in doubles, so wide and tall images are not treated
//!   alike: between 1×1 and 1×2 an image changes at a ratio of 3/4, between 1×1 and 2×1 at 3/2.
//! * **Ties are the rule.** 1×1 and 2×2 always tie. Grids are asked by rising tiles, then by rising columns, and a later
//!   one wins a tie if the image has more than half the pixels of that grid's canvas.
//! * **An empty range is one tile.** Where no number of tiles is allowed (the least above the most) the reference does
//!   not fail: every image becomes one tile.
//! * **The thumbnail counts.** One tile is one view, two tiles are three.
//!
//! # Why [`SizePolicy::maximum`] is exact
//!
//! Every image gets a grid of the list, so the largest value over the grids that some image gets is the maximum. They
//! are asked by falling value; the first that is reached decides. Let a grid be `k` times the reduced fraction p / q,
//! let t be the pixels of a tile, `longest` the longest side.
//!
//! *Images of the ratio itself.* m·p × m·q px differ from p / q by exactly 0: both quotients are the double nearest to one
//! number, and no other ratio of the list has that double, since different ratios of sides up to 512 differ by more than
//! 2^-18. So the multiples of p / q tie. The k-th wins over smaller ones if 2m² > t·k², or without condition if it is the
//! smallest in the list; it loses to the next if 2m² > t·(k+1)². The least m with 2m² > t·k² is at most
//! k·√(t/2) + 1, and that is at most (k+1)·√(t/2) because t ≥ 2; for the smallest multiple m = 1 does, as 2 ≤ t·4.
//! Hence, while m·max(p, q) ≤ `longest`, the grid is reached, and m·p × m·q px is the witness.
//!
//! *Others.* With tiles of more than some thousand pixels a side m may be too large. Then images of other ratios are
//! searched. Images that differ least from p / q have ratios between the means of it and its neighbours. Let p / q be at
//! least 1 (else rows and columns change places): the longer side runs down from `longest`; each of its values leaves
//! the other side an interval by ratio and one by pixels. The ends of the interval by ratio are computed in doubles whose
//! relative error is below 2^-50, so each is off by at most one pixel; at an end itself two ratios may tie, which takes one
//! pixel more. Where the two intervals meet, the four largest sides are asked: they include the largest side that gets the
//! grid, if any does. An image does if in doubles it differs less from p / q than from the two neighbours (differences in
//! doubles fall and rise as the ratios do, so no other ratio is nearer); where it differs as much, the whole list is asked.
//! The search ends where even a side beyond the interval has too few pixels. Should it ask too often, the grid counts as
//! reached for the bound and `exact` is false.

use std::cmp::Ordering;

use super::witness::preferred;
use super::{Formula, ImageSize, LONGEST_SIDE, Layout, Maximum, SizePolicy};
use crate::descriptor::expression::ExpressionError;

use crate::descriptor::resize::CLOSEST_RATIO as NAMES;
/// The reference compares most² grids for every new size; beyond this it takes seconds, and no formula could be
/// evaluated on all of them in time.
const MOST_TILES: u32 = 512;
/// Relative slack of ends computed in doubles.
const SLACK: f64 = 1.0 + 1.0 / (1_u64 << 40) as f64;
/// How many images one search for a grid may try.
const ATTEMPTS: u32 = 1 << 12;

/// The parameters, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosestRatio {
    tile: ImageSize,
    thumbnail: bool,
    /// The grids in the order in which the reference asks them; none if there is nothing to choose.
    grids: Vec<Grid>,
    /// The longest side that `maximum` considers; a field so that tests can search small worlds exhaustively.
    longest: u32,
}

/// Tiles beside and above one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Grid {
    cols: u32,
    rows: u32,
}

impl Grid {
    const ONE: Self = Self { cols: 1, rows: 1 };

    fn tiles(self) -> u32 {
        self.cols * self.rows
    }

    fn ratio(self) -> f64 {
        f64::from(self.cols) / f64::from(self.rows)
    }

    /// The grid as a multiple of a reduced one.
    fn reduced(self) -> (u32, Self) {
        let (mut one, mut other) = (self.cols, self.rows);
        while other > 0 {
            (one, other) = (other, one % other);
        }
        (one, Self { cols: self.cols / one, rows: self.rows / one })
    }
}

/// Whether an image gets a grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Image(ImageSize),
    Never,
    /// The search was given up.
    Unknown,
}

impl ClosestRatio {
    /// The policy that cuts images into `least` to `most` tiles of the size `tile`.
    ///
    /// `thumbnail` tells whether one more view shows the whole image where there are several tiles; without `cut` every
    /// image is one tile and the numbers do not matter. Refuses a tile without pixels, one of a single pixel (the
    /// reference's kernel fails on it), sides above 65 535 px, and more than 512 tiles.
    pub fn new(
        tile: ImageSize,
        least: u32,
        most: u32,
        thumbnail: bool,
        cut: bool,
    ) -> Result<Self, String> {
        let (short, long) = (tile.width.min(tile.height), tile.width.max(tile.height));
        if short == 0 || !(2..=LONGEST_SIDE).contains(&long) {
            return Err(format!(
                "a tile must have sides of 1 to {LONGEST_SIDE} px and more than one pixel, got `{tile}`"
            ));
        }
        if cut && most > MOST_TILES {
            return Err(format!(
                "an image can be cut into at most {MOST_TILES} tiles, got `{most}`"
            ));
        }
        let most = if cut { most } else { 0 };
        let mut grids = Vec::new();
        for cols in 1..=most {
            for rows in 1..=most / cols {
                let grid = Grid { cols, rows };
                if grid.tiles() >= least {
                    grids.push(grid);
                }
            }
        }
        // stable: among equal numbers of tiles fewer columns come first
        grids.sort_by_key(|grid| grid.tiles());
        Ok(Self { tile, thumbnail, grids, longest: LONGEST_SIDE })
    }

    /// The size of one tile, and of the thumbnail.
    pub fn tile(&self) -> ImageSize {
        self.tile
    }

    /// Whether a thumbnail follows several tiles.
    pub fn thumbnail(&self) -> bool {
        self.thumbnail
    }

    /// Tiles beside one another and above one another: `(columns, rows)`.
    ///
    /// Both sides of the image are at least 1.
    pub fn grid(&self, size: ImageSize) -> (u32, u32) {
        let grid = self.chosen(size);
        (grid.cols, grid.rows)
    }

    /// The size that the image is resized to before it is cut.
    pub fn canvas(&self, size: ImageSize) -> ImageSize {
        self.canvas_of(self.chosen(size))
    }

    /// The grid in the reference's order of operations.
    fn chosen(&self, size: ImageSize) -> Grid {
        let ratio = f64::from(size.width) / f64::from(size.height);
        let doubled = 2 * u128::from(size.width) * u128::from(size.height);
        let mut best = Grid::ONE;
        let mut least = f64::INFINITY;
        for grid in &self.grids {
            let difference = (ratio - grid.ratio()).abs();
            if difference < least {
                (best, least) = (*grid, difference);
            } else if difference.total_cmp(&least).is_eq()
                && doubled > u128::from(self.pixels(*grid))
            {
                best = *grid;
            }
        }
        best
    }

    fn canvas_of(&self, grid: Grid) -> ImageSize {
        // at most 512 tiles of at most 65 535 px
        ImageSize { width: self.tile.width * grid.cols, height: self.tile.height * grid.rows }
    }

    /// Pixels of a grid's canvas, below 2^41.
    fn pixels(&self, grid: Grid) -> u64 {
        u64::from(self.tile.width) * u64::from(self.tile.height) * u64::from(grid.tiles())
    }

    fn layout_of(&self, grid: Grid) -> Layout {
        let thumb = u32::from(self.thumbnail && grid != Grid::ONE);
        let canvas = self.canvas_of(grid);
        Layout::new(
            &NAMES,
            [grid.rows, grid.cols, grid.tiles() + thumb, thumb, canvas.width, canvas.height],
        )
    }

    /// The grids that an image may get.
    fn domain(&self) -> &[Grid] {
        if self.grids.is_empty() { &[Grid::ONE] } else { &self.grids }
    }

    /// The next multiple of the same ratio in the list, upwards or downwards.
    fn beside(&self, factor: u32, reduced: Grid) -> Option<Grid> {
        let grid = Grid { cols: reduced.cols * factor, rows: reduced.rows * factor };
        let listed = |end: Option<&Grid>| end.map_or(0, |grid| grid.tiles());
        let range = listed(self.grids.first())..=listed(self.grids.last());
        range.contains(&grid.tiles()).then_some(grid)
    }

    /// An image that gets the grid, which is one of the list.
    fn witness(&self, grid: Grid, ratios: &[f64]) -> Reach {
        let (factor, reduced) = grid.reduced();
        let smallest = self.grids.is_empty() || self.beside(factor - 1, reduced).is_none();
        let times = if smallest {
            1
        } else {
            let tile = self.pixels(Grid::ONE);
            (tile * u64::from(factor) * u64::from(factor) / 2).isqrt() + 1
        };
        let side = |cells: u32| times * u64::from(cells);
        if side(reduced.cols.max(reduced.rows)) <= u64::from(self.longest) {
            return Reach::Image(ImageSize {
                width: side(reduced.cols) as u32,
                height: side(reduced.rows) as u32,
            });
        }
        let above = if smallest { 0 } else { self.pixels(grid) };
        let upto = self.beside(factor + 1, reduced).map_or(u64::MAX, |next| self.pixels(next));
        self.search(grid, (above, upto), ratios)
    }

    /// An image that gets the grid and of whose pixels twice the number is above `above` and at most `upto`.
    fn search(&self, grid: Grid, (above, upto): (u64, u64), ratios: &[f64]) -> Reach {
        let ratio = grid.ratio();
        let at = ratios.partition_point(|other| *other < ratio);
        let neighbours = (ratios[..at].last().copied(), ratios.get(at + 1).copied());
        let mean = |other: Option<f64>| other.map(|other| ratio.midpoint(other));
        let (low, high) = (mean(neighbours.0), mean(neighbours.1));
        // width / height, or height / width, of the image lies between these
        let wide = grid.cols >= grid.rows;
        let (low, high) = if wide {
            (low.unwrap_or(0.0), high.unwrap_or(f64::INFINITY))
        } else {
            (high.map_or(0.0, f64::recip), low.map_or(f64::INFINITY, f64::recip))
        };
        let longest = u64::from(self.longest);
        let mut attempts = 0;
        for long in (1..=longest).rev() {
            let widest = (long as f64 / low * SLACK).min(longest as f64);
            if 2.0 * long as f64 * widest * SLACK <= above as f64 {
                break;
            }
            let from = ((long as f64 / high) as u64).max(above / (2 * long) + 1);
            let to = (widest as u64 + 1).min(upto / (2 * long)).min(longest);
            for short in (from..=to).rev().take(4) {
                let (long, short) = (long as u32, short as u32);
                let size = if wide {
                    ImageSize { width: long, height: short }
                } else {
                    ImageSize { width: short, height: long }
                };
                let image = f64::from(size.width) / f64::from(size.height);
                let difference = (image - ratio).abs();
                let nearest = [neighbours.0, neighbours.1]
                    .into_iter()
                    .flatten()
                    .map(|other| difference.total_cmp(&(image - other).abs()))
                    .max();
                // its pixels suit the grid; where the ratio ties with another one, the whole list decides
                if match nearest {
                    None | Some(Ordering::Less) => true,
                    Some(Ordering::Equal) => self.chosen(size) == grid,
                    Some(Ordering::Greater) => false,
                } {
                    return Reach::Image(size);
                }
                attempts += 1;
                if attempts == ATTEMPTS {
                    return Reach::Unknown;
                }
            }
        }
        Reach::Never
    }

    /// The different ratios of the list, rising.
    fn ratios(&self) -> Vec<f64> {
        let mut ratios: Vec<f64> = self.grids.iter().map(|grid| grid.ratio()).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.dedup_by(|one, other| one.total_cmp(other).is_eq());
        ratios
    }
}

impl SizePolicy for ClosestRatio {
    fn names(&self) -> &'static [&'static str] {
        &NAMES
    }

    fn layout(&self, size: ImageSize) -> Result<Layout, String> {
        if size.width == 0 || size.height == 0 {
            return Err("a side is zero".to_owned());
        }
        Ok(self.layout_of(self.chosen(size)))
    }

    fn maximum(&self, formula: &Formula<'_>) -> Result<Option<Maximum>, ExpressionError> {
        let mut values = Vec::new();
        for grid in self.domain() {
            values.push((formula.at(&self.layout_of(*grid))?, *grid));
        }
        values.sort_by_key(|(value, _)| std::cmp::Reverse(*value));
        let ratios = self.ratios();
        let mut bound = None;
        for same in values.chunk_by(|one, other| one.0 == other.0) {
            let mut best = None;
            for (value, grid) in same {
                match self.witness(*grid, &ratios) {
                    Reach::Image(image) => {
                        best = Some(best.map_or(image, |best| preferred(best, image)));
                    }
                    Reach::Never => {}
                    Reach::Unknown => bound = bound.or(Some(*value)),
                }
            }
            if let (Some(witness), Some((value, _))) = (best, same.first()) {
                let most = bound.unwrap_or(*value);
                return Ok(Some(Maximum { value: most, witness, exact: most == *value }));
            }
        }
        Ok(None)
    }

    fn samples(&self) -> Vec<Layout> {
        let ratios = self.ratios();
        let reached = |grid: &&Grid| self.witness(**grid, &ratios) != Reach::Never;
        self.domain().iter().filter(reached).map(|grid| self.layout_of(*grid)).collect()
    }

    fn budget_kind(&self) -> &'static str {
        if self.grids.len() > 1 { "per tile" } else { "fixed" }
    }
}

#[cfg(test)]
mod tests;
