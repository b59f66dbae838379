//! The size policy `patch_budget`: as many cells as a budget allows, in the image's own proportions.
//!
//! This is `get_aspect_ratio_preserving_size` of the reference (`models/gemma4/image_processing_gemma4.py`). A *cell* is a
//! square of pooled patches, one token of the prompt; its side in pixels is the *unit*, patch · pool. Both sides are
//! scaled by the same factor, up or down, so that the area would be exactly the budget, and floored to whole units.
//!
//! # What surprises
//!
//! * **Small images grow.** The factor knows no upper limit: one pixel becomes a square of the whole budget.
//! * **The number of tokens varies.** It is rows · columns, not the budget; a square of the budget 280 has 16² = 256.
//!   Only the patch rows are padded up to the budget, with zeros and positions of -1, see [`PatchBudget::padded_rows`].
//! * **A thin image costs the most.** If the long side is more than budget times the short one, the short side would
//!   vanish. It becomes one cell and the other the whole budget, so each budget is reached exactly. The proportions are
//!   lost: 65535×1 and 281×1 become the same.
//! * **Doubles decide the exact factorisations.** If sides of a · k and b · k pixels should become a by b cells, a · b
//!   being the budget, both quotients are whole numbers but for rounding, and some multiples k lose a row, a column or
//!   both. With a budget of one cell some squares lose everything, and are refused.
//!
//! # Why [`PatchBudget::maximum`] is exact
//!
//! Let N be the budget in cells. Transposing the image transposes the grid, as both sides are computed alike, so let
//! ρ = long / short ≥ 1, a be the cells of the short side and b those of the long one. Real arithmetic gives
//! a = ⌊√(N/ρ)⌋ and b = ⌊√(N·ρ)⌋, or (1, N) if ρ > N.
//!
//! *Doubles.* Quotient, root, product and division by the unit put a side off by at most 3.5 · 2⁻⁵³ (relative), and
//! integers up to 2⁵³ are exact. The square of a side in cells is N · s / t with s and t the sides of the image; unless
//! it is k², it differs from k² by at least 1 / (k² · t) (relative). For the two k around it, k² · t ≤ 4N · 65 535 is
//! at most 2³⁰. So real arithmetic and doubles agree but for a *tie*, N · s = k² · t, where the floor is k or k − 1. In
//! the thin branch the quotient of the sides is at least N, in doubles too, so the long side is N cells. And so the
//! reference's last check, for more cells than the budget, never fails.
//!
//! *Between ties* (a, b) with a ≤ b is reached if ρ lies above b²/N and N/(a+1)² and below N/a² and (b+1)²/N, and is 1
//! or more. There is such a ρ exactly if ab < N < (a+1)(b+1). The interval is then wider than 2/N of its lower end, or
//! begins with 1, so it holds a fraction whose numerator is at most 1.5 N + 2: a real image. The simplest fraction is
//! the witness.
//!
//! *At a tie* of one side alone, k and k − 1 are also reached on either side of it. Both sides are tied exactly if
//! N = ab and ρ = b/a; then (a, b), (a, b−1), (a−1, b) or (a−1, b−1) comes out, and only the first and last are not
//! reached elsewhere. All multiples of b/a up to 65 535 px are tried for them.
//!
//! That and (1, N) is the whole domain, some N + √N grids and their transposes, and all of it is evaluated. If the
//! formula rises, only the grids that no other exceeds are: for each a the greatest b.

use super::{Formula, ImageSize, LONGEST_SIDE, Layout, Maximum, SizePolicy};
use crate::descriptor::expression::ExpressionError;

/// A budget of cells beyond this would pad each image to gigabytes; up to here the proof holds.
const MOST_CELLS: u32 = 4096;
/// Beyond this unit no image would have a cell of its own size.
const LARGEST_UNIT: u32 = 1 << 17;
/// Integers up to here are doubles.
const EXACT: u64 = 1 << 53;

use crate::descriptor::resize::PLAIN as NAMES;

/// The policy's parameters, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchBudget {
    patch: u32,
    pool: u32,
    most: u32,
    /// The longest side that `maximum` considers; a field so that tests can search small worlds exhaustively. The proof
    /// needs at least 1.5 · `most` + 2.
    longest: u32,
}

/// A resized image in cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Grid {
    rows: u32,
    cols: u32,
}

impl PatchBudget {
    /// The policy that gives an image at most `most` cells of `pool` by `pool` patches of `patch` px a side.
    ///
    /// Refuses numbers that are zero, and cells and budgets beyond reason.
    pub fn new(patch: u32, pool: u32, most: u32) -> Result<Self, String> {
        let unit = patch.checked_mul(pool).filter(|unit| *unit <= LARGEST_UNIT);
        if patch == 0 || pool == 0 || unit.is_none() {
            return Err(format!(
                "{pool} patches of {patch} px must be 1 to {LARGEST_UNIT} px together"
            ));
        }
        if most == 0 || most > MOST_CELLS {
            return Err(format!("the budget must be 1 to {MOST_CELLS} cells, got {most}"));
        }
        Ok(Self { patch, pool, most, longest: LONGEST_SIDE })
    }

    /// Pixels per side of a cell.
    pub fn unit(&self) -> u32 {
        self.patch * self.pool
    }

    /// Pixels per side of a patch.
    pub fn patch(&self) -> u32 {
        self.patch
    }

    /// The rows that the patches of each image are padded to: zeros after normalisation, at positions of -1.
    pub fn padded_rows(&self) -> u64 {
        u64::from(self.most) * u64::from(self.pool) * u64::from(self.pool)
    }

    /// The size that an image is resized to: whole cells, at least one each way.
    pub fn resized(&self, size: ImageSize) -> Result<ImageSize, String> {
        let grid = self.grid(size)?;
        Ok(ImageSize { width: grid.cols * self.unit(), height: grid.rows * self.unit() })
    }

    /// The grid of an image, in the reference's order of operations.
    fn grid(&self, size: ImageSize) -> Result<Grid, String> {
        let (height, width) = (f64::from(size.height), f64::from(size.width));
        let pixels = u64::from(size.height) * u64::from(size.width);
        if pixels == 0 {
            return Err("a side is zero".to_owned());
        }
        if pixels > EXACT {
            return Err("the sides are too large".to_owned());
        }
        let unit = u64::from(self.unit());
        let target = u64::from(self.most) * unit * unit;
        let factor = (target as f64 / pixels as f64).sqrt();
        let cells = |side: f64| (factor * side / unit as f64).floor() as u32;
        let thin = |long: f64, short: f64| ((long / short).floor() as u32).min(self.most);
        let grid = match (cells(height), cells(width)) {
            (0, 0) => return Err("both sides are rounded to zero".to_owned()),
            (0, _) => Grid { rows: 1, cols: thin(width, height) },
            (_, 0) => Grid { rows: thin(height, width), cols: 1 },
            (rows, cols) => Grid { rows, cols },
        };
        if u64::from(grid.rows) * u64::from(grid.cols) > u64::from(self.most) {
            return Err("the size exceeds the budget of patches".to_owned());
        }
        Ok(grid)
    }

    fn layout_of(&self, grid: Grid) -> Layout {
        let (width, height) = (grid.cols * self.unit(), grid.rows * self.unit());
        Layout::new(&NAMES, [grid.rows, grid.cols, width, height])
    }

    /// The grids of images that are no higher than wide, each with an image; if `greatest`, only those that no other
    /// exceeds.
    fn grids(&self, greatest: bool) -> Vec<(Grid, ImageSize)> {
        let most = self.most;
        // the thinnest; if the budget is one cell, any that is no square
        let thin = ImageSize { width: most + 1, height: 1 };
        let mut grids = vec![(Grid { rows: 1, cols: most }, thin)];
        for rows in 1..=most.isqrt() {
            let widest = most / rows;
            let fewest = if greatest { widest.saturating_sub(1) } else { most / (rows + 1) };
            let between = (fewest.max(rows)..=widest)
                .filter(|cols| rows * cols < most && (rows + 1) * (cols + 1) > most)
                .map(|cols| (Grid { rows, cols }, self.between(rows, cols)));
            grids.extend(between);
            if rows * widest == most {
                self.tied(rows, widest, greatest, &mut grids);
            }
        }
        grids
    }

    /// The simplest image, no higher than wide, that doubles and real arithmetic give this grid.
    fn between(&self, rows: u32, cols: u32) -> ImageSize {
        let [most, rows, cols] = [self.most, rows, cols].map(u64::from);
        let square = |side: u64| side * side;
        if square(cols) < most && square(rows + 1) > most {
            return ImageSize { width: 1, height: 1 };
        }
        let low = greater((square(cols), most), (most, square(rows + 1)));
        let high = lesser((most, square(rows)), (square(cols + 1), most));
        let (width, height) = simplest_between(greater(low, (1, 1)), high);
        ImageSize { width: width as u32, height: height as u32 }
    }

    /// What the images become whose sides are as `rows` to `cols`, the product of which is the budget.
    fn tied(&self, rows: u32, cols: u32, greatest: bool, grids: &mut Vec<(Grid, ImageSize)>) {
        let common = common_divisor(rows, cols);
        let (width, height) = (cols / common, rows / common);
        let (mut whole, mut less) = (false, greatest);
        for times in 1..=self.longest / width {
            if whole && less {
                break;
            }
            let image = ImageSize { width: width * times, height: height * times };
            let Ok(grid) = self.grid(image) else { continue };
            if !whole && grid == (Grid { rows, cols }) {
                whole = true;
                grids.push((grid, image));
            }
            if !less && grid.rows < rows && grid.cols < cols {
                less = true;
                grids.push((grid, image));
            }
        }
    }
}

impl SizePolicy for PatchBudget {
    fn names(&self) -> &'static [&'static str] {
        &NAMES
    }

    /// `rows`, `cols`: cells, each a token; `width`, `height`: the resized image in px.
    fn layout(&self, size: ImageSize) -> Result<Layout, String> {
        Ok(self.layout_of(self.grid(size)?))
    }

    /// Exact; see the module. Of equal values the squarest witness is taken, then the smallest, then landscape.
    fn maximum(&self, formula: &Formula<'_>) -> Result<Option<Maximum>, ExpressionError> {
        let mut best = None::<Maximum>;
        for (grid, image) in self.grids(formula.rises()) {
            let turned = Grid { rows: grid.cols, cols: grid.rows };
            let portrait = ImageSize { width: image.height, height: image.width };
            for (grid, witness) in [(grid, image), (turned, portrait)] {
                let value = formula.at(&self.layout_of(grid))?;
                let better = best.is_none_or(|best| {
                    value > best.value || value == best.value && is_squarer(witness, best.witness)
                });
                if better {
                    best = Some(Maximum { value, witness, exact: true });
                }
            }
        }
        Ok(best)
    }

    fn samples(&self) -> Vec<Layout> {
        let turned = |grid: Grid| [grid, Grid { rows: grid.cols, cols: grid.rows }];
        let all = self.grids(false).into_iter().flat_map(|(grid, _)| turned(grid));
        all.map(|grid| self.layout_of(grid)).collect()
    }

    fn budget_kind(&self) -> &'static str {
        "dynamic"
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

/// The greater of two fractions.
fn greater(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    if one.0 * other.1 >= other.0 * one.1 { one } else { other }
}

/// The lesser of two fractions.
fn lesser(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    if one.0 * other.1 <= other.0 * one.1 { one } else { other }
}

/// The greatest common divisor.
fn common_divisor(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

/// The fraction with the least numerator, and at once the least denominator, between `low` and `high`, which are
/// fractions too, and not equal to either. The denominator of `high` may be 0, for no upper end.
fn simplest_between(low: (u64, u64), high: (u64, u64)) -> (u64, u64) {
    let whole = low.0 / low.1;
    if (whole + 1) * high.1 < high.0 {
        return (whole + 1, 1);
    }
    // the same whole part: the reciprocals of the rests, whose order is reversed
    let rest = |(above, below): (u64, u64)| (below, above - whole * below);
    let (numerator, denominator) = simplest_between(rest(high), rest(low));
    (whole * numerator + denominator, numerator)
}

#[cfg(test)]
mod tests;
