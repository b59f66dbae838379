//! The size policy `fit`: a picture is shrunk into a box if it exceeds it, and its sides become whole cells.
//!
//! This is `get_resize_output_image_size` and `_num_image_tokens` of the reference
//! (`models/pixtral/image_processing_pixtral.py`), with `PixtralProcessor.replace_image_token` on top:
//!
//! 1. r = max(h / most_height, w / most_width). If r > 1, the sides become ⌊h / r⌋ and ⌊w / r⌋; smaller pictures keep
//!    theirs, none is enlarged.
//! 2. Each side is rounded *up* to a multiple of the cell.
//!
//! # What surprises
//!
//! * **The sides may exceed the limit**, by up to a cell less one: it is kept before rounding up. 1024 at cell 28 gives
//!   37 cells, 1036 px.
//! * **The floor sees doubles.** h / (h / limit) may fall short of the limit, and its floor is then one less: with the
//!   limit 1540, a side of 1547 px becomes 1539. Where a cell begins at the limit, that costs a row.
//! * **A side may vanish.** 1025×1 px at the limit 1024 has r > 1 and ⌊1 / r⌋ = 0: the reference fails (its count
//!   alone, without the picture, is 0).
//! * **The cell is the processor's**, `patch_size · spatial_merge_size`; the image processor's own `patch_size` is
//!   overruled in a prompt.
//!
//! # Domain, and why [`SizePolicy::maximum`] is exact
//!
//! A picture of at most the limits is not shrunk (a quotient of at most 1 is no more than 1 as a double, either), so
//! each size up to the limits, and up to the longest side, is a picture of its own that stays as it is. A shrunk one
//! exceeds neither its former sides nor the limits: r is at least the double h / limit, so h / r is below limit + 1.
//! (h / r is at most the limit but for two roundings of 2^-53, and the limit is below 2^31.) Hence with
//! R = ⌈min(most_height, 65 535) / cell⌉ and C alike, the grids are exactly all of 1..=R × 1..=C.
//!
//! A rising formula is largest at R × C. Other polynomials are bounded over boxes of grids
//! (`bound`); where the search exceeds its budget, the result is a bound and not `exact`. Formulas that
//! are no polynomials are evaluated on every grid, and refused where there are too many. Of the pictures of one grid
//! that are not shrunk, the witness is the squarest and among those the smallest.

use super::bound::{self, Leaf, Region};
use super::{Formula, ImageSize, LONGEST_SIDE, Layout, Maximum, SizePolicy};
use crate::descriptor::expression::ExpressionError;

/// Limits and cells beyond this are refused: sides must stay below 32 bits after rounding up.
const LARGEST: u32 = 1 << 31;
/// A domain of at most so many layouts is sampled in full.
const SAMPLED_IN_FULL: u32 = 10_000;
/// Otherwise so many rows, and columns, are taken besides the first and last.
const SAMPLED_SIDES: u32 = 40;

use crate::descriptor::resize::PLAIN as NAMES;

/// The policy's parameters, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    most_height: u32,
    most_width: u32,
    cell: u32,
    /// The longest side of an image; a field so that tests can search small worlds exhaustively.
    longest: u32,
}

impl Fit {
    /// The policy that fits pictures into `most_height` by `most_width` pixels and rounds up to cells of `cell` pixels;
    /// the error is a sentence.
    ///
    /// A single limit for the longest edge is both.
    pub fn new(most_height: u32, most_width: u32, cell: u32) -> Result<Self, String> {
        for (what, value) in [("height", most_height), ("width", most_width)] {
            if value == 0 || value > LARGEST {
                return Err(format!("the largest {what} must be 1 to {LARGEST} px, got {value}"));
            }
        }
        if cell == 0 || cell > LARGEST {
            return Err(format!("a cell must be 1 to {LARGEST} px, got {cell}"));
        }
        Ok(Self { most_height, most_width, cell, longest: LONGEST_SIDE })
    }

    /// Pixels per side of a cell.
    pub fn cell(&self) -> u32 {
        self.cell
    }

    /// The size that the picture is resized to: multiples of the cell.
    ///
    /// Refused are an empty picture, one of which a side vanishes, and one with sides beyond 32 bits.
    pub fn resized(&self, size: ImageSize) -> Result<ImageSize, String> {
        if size.width == 0 || size.height == 0 {
            return Err("a side is zero".to_owned());
        }
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        let ratio = (height / f64::from(self.most_height)).max(width / f64::from(self.most_width));
        let (width, height) = if ratio > 1.0 {
            ((width / ratio).floor() as u32, (height / ratio).floor() as u32)
        } else {
            (size.width, size.height)
        };
        if width == 0 || height == 0 {
            return Err(format!("a side vanishes: the picture would become {width}x{height} px"));
        }
        let whole = |side: u32| {
            side.checked_next_multiple_of(self.cell).ok_or("the sides are too large".to_owned())
        };
        Ok(ImageSize { width: whole(width)?, height: whole(height)? })
    }

    /// The most rows and columns.
    fn corner(&self) -> (u32, u32) {
        let cells = |limit: u32| limit.min(self.longest).div_ceil(self.cell);
        (cells(self.most_height), cells(self.most_width))
    }

    /// The layout of so many rows and columns, at most those of the corner.
    fn layout_of(&self, rows: u32, cols: u32) -> Layout {
        // at most a cell more than a side that a picture can have
        let side = |cells: u32| cells.saturating_mul(self.cell);
        Layout::new(&NAMES, [rows, cols, side(cols), side(rows)])
    }

    /// The squarest picture of so many cells that is not shrunk, and the smallest of those.
    fn witness(&self, rows: u32, cols: u32) -> ImageSize {
        let sides = |cells: u32, limit: u32| {
            let last = cells.saturating_mul(self.cell).min(limit).min(self.longest);
            ((cells - 1) * self.cell + 1, last)
        };
        let (heights, widths) = (sides(rows, self.most_height), sides(cols, self.most_width));
        let (height, width) = if heights.1 < widths.0 {
            (heights.1, widths.0)
        } else if widths.1 < heights.0 {
            (heights.0, widths.1)
        } else {
            let side = heights.0.max(widths.0);
            (side, side)
        };
        ImageSize { width, height }
    }
}

impl SizePolicy for Fit {
    fn names(&self) -> &'static [&'static str] {
        &NAMES
    }

    fn layout(&self, size: ImageSize) -> Result<Layout, String> {
        let ImageSize { width, height } = self.resized(size)?;
        Ok(Layout::new(&NAMES, [height / self.cell, width / self.cell, width, height]))
    }

    fn maximum(&self, formula: &Formula<'_>) -> Result<Option<Maximum>, ExpressionError> {
        let (last_row, last_col) = self.corner();
        let all = Grids { policy: self, rows: (1, last_row), cols: (1, last_col) };
        bound::maximum(formula, vec![all], |place: std::convert::Infallible| match place {})
    }

    fn samples(&self) -> Vec<Layout> {
        let (rows, cols) = self.corner();
        let all = rows.saturating_mul(cols) <= SAMPLED_IN_FULL;
        let some = |last: u32| {
            let every = if all { 1 } else { last.div_ceil(SAMPLED_SIDES) };
            (1..last).step_by(every as usize).chain([last])
        };
        some(rows).flat_map(|row| some(cols).map(move |col| self.layout_of(row, col))).collect()
    }

    fn budget_kind(&self) -> &'static str {
        if self.corner() == (1, 1) { "fixed" } else { "dynamic" }
    }
}

/// A box of grids: first and last rows and columns.
#[derive(Debug, Clone, Copy)]
struct Grids<'a> {
    policy: &'a Fit,
    rows: (u32, u32),
    cols: (u32, u32),
}

impl Region for Grids<'_> {
    type Place = std::convert::Infallible;

    fn count(&self) -> u64 {
        let length = |(first, last): (u32, u32)| u64::from(last - first) + 1;
        length(self.rows) * length(self.cols)
    }

    fn corners(&self) -> (Layout, Layout) {
        let layout = |rows, cols| self.policy.layout_of(rows, cols);
        (layout(self.rows.0, self.cols.0), layout(self.rows.1, self.cols.1))
    }

    fn split(self, rising: bool) -> (Vec<Leaf<Self::Place>>, Vec<Self>) {
        let middle = |(first, last): (u32, u32)| first + (last - first) / 2;
        let (row, col) = if rising {
            (self.rows.1, self.cols.1)
        } else {
            (middle(self.rows), middle(self.cols))
        };
        let parts = |(first, last): (u32, u32), at: u32| {
            [(first < at).then(|| (first, at - 1)), (at < last).then(|| (at + 1, last))]
        };
        let mut rest = Vec::with_capacity(4);
        // the longer side is halved
        if self.rows.1 - self.rows.0 >= self.cols.1 - self.cols.0 {
            rest.extend(
                parts(self.rows, row).into_iter().flatten().map(|rows| Self { rows, ..self }),
            );
            let line = Self { rows: (row, row), ..self };
            rest.extend(
                parts(self.cols, col).into_iter().flatten().map(|cols| Self { cols, ..line }),
            );
        } else {
            rest.extend(
                parts(self.cols, col).into_iter().flatten().map(|cols| Self { cols, ..self }),
            );
            let line = Self { cols: (col, col), ..self };
            rest.extend(
                parts(self.rows, row).into_iter().flatten().map(|rows| Self { rows, ..line }),
            );
        }
        let leaf = Leaf {
            layout: self.policy.layout_of(row, col),
            witness: Ok(self.policy.witness(row, col)),
        };
        (vec![leaf], rest)
    }
}

#[cfg(test)]
mod tests;
