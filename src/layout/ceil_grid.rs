//! The size policy `ceil_grid`: the longest edge becomes a fixed length, both sides are rounded up to whole tiles.
//!
//! This is what `Idefics3ImageProcessor` of the reference (`models/idefics3/image_processing_idefics3.py`; the class in
//! `models/smolvlm` is the same) does in three steps, each a resize of the one before:
//!
//! 1. `get_resize_output_image_size`: the longest edge becomes `longest`, also where that enlarges; the other side
//!    follows, truncated, and one more if that is odd. Sides above 4096 px are then shrunk to 4096 px alike, without
//!    the step to an even number.
//! 2. `resize_for_vision_encoder`: the longest edge is rounded up to whole tiles, the other side follows that length,
//!    truncated, and is rounded up to whole tiles as well.
//! 3. `split_images`: if that is more than one tile, it is cut, row after row, and a view of the whole, resized from
//!    step 2 to one tile, comes last. If it is one tile, that tile is the only view and the processor reports 0 rows
//!    and 0 columns.
//!
//! Without splitting, step 1 is followed by a resize to one tile.
//!
//! # What surprises
//!
//! * **Every image costs the same along its longest edge.** A picture of 1×1 px is enlarged to the full grid. So the most
//!   tiles belong to squares.
//! * **An odd `longest` turns squares.** The other side of a square is `longest`, which is odd, so it becomes one more:
//!   the image is then higher than wide. If `longest` is also whole tiles, that one pixel costs a row *and* a column:
//!   365 px in tiles of 365 px give 2×2 tiles and not one, 1095 px give 4×4 and not 3×3.
//! * **The side that follows is stretched twice.** Where `longest` is not whole tiles, step 2 enlarges the shorter side
//!   too before it rounds: 1000×700 px in tiles of 364 px are 3 rows, not ⌈700 / 364⌉ = 2. The reference's own counter
//!   (`get_number_of_image_patches`) says 2 here; the pixels are what counts.
//! * **Doubles decide, and once they refuse.** A side is divided by the ratio in images at least as wide as high, and
//!   multiplied by it in others. An image more than `longest` times as high as wide becomes 1 px wide; if `longest` is whole
//!   tiles and `longest * (1.0 / longest)` is less than 1 in doubles (49, 98, 103 …), that pixel vanishes in step 2, where
//!   nothing raises a side to 1 any more, and the reference fails.
//! * **Nothing beyond 4096 px.** A larger `longest` still decides how coarsely the other side is rounded.
//!
//! # Why [`SizePolicy::maximum`] is exact
//!
//! The layout depends on the image's ratio alone (as a double), so all squares have one layout, and 1×1 px stands for
//! them. Let an image be wider than high, x = height / width; the higher ones are alike with their sides exchanged, and with
//! products instead of quotients.
//!
//! *Monotone.* Step 1 gives the width E = min(`longest`, 4096). Every operation on the height (division by the ratio,
//! truncation, the step to an even number, the lower limit of 1, rounding up) preserves order, roundings of doubles
//! included. So the number of columns is fixed and the rows never fall as x grows. The images 65 535 × h px with h from 1 to
//! 65 534 begin at the least x of all and end at the greatest below 1. Therefore: every image has the
//! rows of some h, or else lies between h and h + 1 and has a number of rows that neither has.
//!
//! *No number is skipped.* The height of step 1 is constant while `longest`·x runs through two whole numbers, that is, on
//! intervals of x of length 2 / `longest`, the first and the last of 1 / `longest`. Up to 4096 px the rows
//! are a function of that height, so each number of rows that occurs at all does so on at least 1 / 4096 of x, far
//! more than the 1 / 65 535 between two h and the 2⁻⁵⁰ by which doubles may move an end. Above 4096 px the
//! heights after shrinking follow: each that occurs does so on one such interval, which is 2 / 16 384 at least up to
//! 16 384 px, or on all that fall between two whole numbers, which is 1 / 4096 − 2 / `longest` ≥ 1 / 8192 above.
//! Intervals cut off at an end of the range contain that end, which is an h.
//!
//! So bisection over h finds every grid that occurs, at most 2049 for each orientation, and all are asked. The
//! witness of a grid is the smallest image whose ratio lies between those of its first and its last h.

use super::witness::{preferred, simplest_between};
use super::{Formula, ImageSize, LONGEST_SIDE, Layout, Maximum, SizePolicy};
use crate::descriptor::expression::ExpressionError;

use crate::descriptor::resize::CEIL_GRID as NAMES;
/// The reference's absolute maximum of a side before it is rounded up to whole tiles.
const CAP: u64 = 4096;

/// The parameters, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CeilGrid {
    longest: u32,
    tile: u32,
    split: bool,
}

/// A size on its way; sides may be one more than 32 bits hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sides {
    width: u64,
    height: u64,
}

impl Sides {
    fn ratio(self) -> f64 {
        self.width as f64 / self.height as f64
    }

    /// With the longer side, the width of a square, of another length, and the other side following it, truncated.
    fn with_longest(self, length: u64) -> Self {
        let ratio = self.ratio();
        if self.width >= self.height {
            Self { width: length, height: (length as f64 / ratio) as u64 }
        } else {
            Self { width: (length as f64 * ratio) as u64, height: length }
        }
    }

    fn at_least_one(self) -> Self {
        Self { width: self.width.max(1), height: self.height.max(1) }
    }

    fn size(self) -> ImageSize {
        // sides are at most 4096 px, rounded up to a tile of at most 65 535 px
        ImageSize { width: self.width as u32, height: self.height as u32 }
    }
}

impl CeilGrid {
    /// The policy that resizes the longest edge to `longest` and, with `split`, cuts into tiles of `tile` × `tile` px.
    ///
    /// Refuses a longest edge or a tile below 2 px (the reference's kernel fails on views of one pixel) and a tile above
    /// 65 535 px.
    pub fn new(longest: u32, tile: u32, split: bool) -> Result<Self, String> {
        if longest < 2 {
            return Err(format!("the longest edge must be at least 2 px, got `{longest}`"));
        }
        if !(2..=LONGEST_SIDE).contains(&tile) {
            return Err(format!("a tile must have sides of 2 to {LONGEST_SIDE} px, got `{tile}`"));
        }
        Ok(Self { longest, tile, split })
    }

    /// The side of a tile, and of every view.
    pub fn tile(&self) -> u32 {
        self.tile
    }

    /// The size of the first resize, whose longest edge is `longest` or 4096 px.
    ///
    /// Both sides of the image are at least 1.
    pub fn fitted(&self, size: ImageSize) -> ImageSize {
        self.fit(size).size()
    }

    /// The size of the second resize: whole tiles, or one tile where images are not split.
    ///
    /// Both sides of the image are at least 1. The error is the refusal that [`SizePolicy::layout`] reports.
    pub fn canvas(&self, size: ImageSize) -> Result<ImageSize, String> {
        if !self.split {
            return Ok(ImageSize { width: self.tile, height: self.tile });
        }
        let tile = u64::from(self.tile);
        let whole = |side: u64| side.div_ceil(tile) * tile;
        let fitted = self.fit(size);
        let stretched = fitted.with_longest(whole(fitted.width.max(fitted.height)));
        let canvas = Sides { width: whole(stretched.width), height: whole(stretched.height) };
        if canvas.width == 0 || canvas.height == 0 {
            return Err("the image is so thin that the reference rounds a side to zero".to_owned());
        }
        Ok(canvas.size())
    }

    /// Step 1, in the reference's order of operations.
    fn fit(&self, size: ImageSize) -> Sides {
        let sides = Sides { width: u64::from(size.width), height: u64::from(size.height) };
        let mut fitted = sides.with_longest(u64::from(self.longest));
        if sides.width >= sides.height {
            fitted.height += fitted.height % 2;
        } else {
            fitted.width += fitted.width % 2;
        }
        let fitted = fitted.at_least_one();
        if fitted.width.max(fitted.height) > CAP {
            fitted.with_longest(CAP).at_least_one()
        } else {
            fitted
        }
    }

    fn layout_of(&self, canvas: ImageSize) -> Layout {
        let (rows, cols) = (canvas.height / self.tile, canvas.width / self.tile);
        let values = if rows == 1 && cols == 1 {
            [0, 0, 1, canvas.width, canvas.height]
        } else {
            [rows, cols, rows * cols + 1, canvas.width, canvas.height]
        };
        Layout::new(&NAMES, values)
    }

    /// Every layout that occurs, with its witness; one layout may come several times.
    fn domain(&self) -> Vec<(Layout, ImageSize)> {
        let square = ImageSize { width: 1, height: 1 };
        let mut found = Vec::new();
        let mut add = |witness: ImageSize| {
            found.extend(self.canvas(witness).ok().map(|canvas| (self.layout_of(canvas), witness)));
        };
        add(square);
        if !self.split {
            return found;
        }
        let image = |wide: bool, long: u32, short: u32| {
            if wide {
                ImageSize { width: long, height: short }
            } else {
                ImageSize { width: short, height: long }
            }
        };
        for wide in [true, false] {
            let canvas = |short: u32| self.canvas(image(wide, LONGEST_SIDE, short)).ok();
            let mut first = 1;
            while first < LONGEST_SIDE {
                let here = canvas(first);
                // the last side with the same canvas lies in low ..= high
                let (mut low, mut high) = (first, LONGEST_SIDE - 1);
                let mut step = 1;
                while low + step < high {
                    if canvas(low + step) == here {
                        low += step;
                        step *= 2;
                    } else {
                        high = low + step - 1;
                    }
                }
                while low < high {
                    let middle = low.midpoint(high + 1);
                    if canvas(middle) == here {
                        low = middle;
                    } else {
                        high = middle - 1;
                    }
                }
                let ratio = |short: u32| (u128::from(short), u128::from(LONGEST_SIDE));
                let (short, long) = simplest_between(ratio(first), ratio(low));
                add(image(wide, long as u32, short as u32));
                first = low + 1;
            }
        }
        found
    }
}

impl SizePolicy for CeilGrid {
    fn names(&self) -> &'static [&'static str] {
        &NAMES
    }

    fn layout(&self, size: ImageSize) -> Result<Layout, String> {
        if size.width == 0 || size.height == 0 {
            return Err("a side is zero".to_owned());
        }
        self.canvas(size).map(|canvas| self.layout_of(canvas))
    }

    fn maximum(&self, formula: &Formula<'_>) -> Result<Option<Maximum>, ExpressionError> {
        let mut best: Option<Maximum> = None;
        for (layout, witness) in self.domain() {
            let value = formula.at(&layout)?;
            let next = Maximum { value, witness, exact: true };
            best = Some(match best {
                Some(best) if best.value > value => best,
                Some(best) if best.value == value => {
                    Maximum { witness: preferred(best.witness, witness), ..best }
                }
                _ => next,
            });
        }
        Ok(best)
    }

    fn samples(&self) -> Vec<Layout> {
        let mut layouts: Vec<Layout> = Vec::new();
        for (layout, _) in self.domain() {
            // equal layouts follow one another, apart from that of the squares
            if layouts.last() != Some(&layout) && layouts.first() != Some(&layout) {
                layouts.push(layout);
            }
        }
        layouts
    }

    fn budget_kind(&self) -> &'static str {
        if self.samples().len() > 1 { "per tile" } else { "fixed" }
    }
}

#[cfg(test)]
mod tests;
