//! The size policy `area`: both sides become multiples of a step and the area is moved between two limits.
//!
//! This is `smart_resize` of the reference (`models/qwen2_vl/image_processing_qwen2_vl.py`; `num_frames` as in
//! `models/glm4v/image_processing_glm4v.py`) and the exact answer to "how many cells can one image cost?".
//! A *cell* is one step × step square of the resized image.
//!
//! # What surprises
//!
//! * **Half to even.** Sides are first rounded to the nearest multiple of the step, a tie to the even one: 70 px at
//!   step 28 are 2 cells, 42 px are 2, 98 px are 4.
//! * **Rounding to zero.** A side below half a step rounds to 0 and takes the area with it; the image then counts
//!   as too small and is enlarged. Only where the lower limit is 0 does a zero survive, and there is no such image.
//! * **The area is tested before the clamp.** A shrunk side is at least one cell, but only after the factor was
//!   chosen; the other side keeps its length. So a thin image exceeds the upper limit: with a limit of 6 cells,
//!   3103×16 costs 34.
//! * **Three branches.** *Kept* if the rounded area lies within the limits, *shrunk* (sides floored) if above,
//!   *grown* (sides ceiled) if below. The upper limit is asked first, and the result is not asked again: growing
//!   may end above the upper limit, and where the limits contradict each other (lower above upper) both still act.
//! * **`most / step²` is no bound, in either direction.** It is too low for thin images (clamp) and for narrow
//!   limits (ceil: with both limits at 256 cells, 200×1 costs 454), and too high where no admissible image has as
//!   many cells.
//!
//! # Why [`Area::largest`] is exact
//!
//! Let N = most / (frames · step²) and M = least / (frames · step²), in cells and not rounded; r(x) is x / step
//! rounded half to even; images are `short × long`. The reference treats both sides alike and every branch is
//! monotone, so `short ≤ long` gives a grid of `rows ≤ columns` and turning the image turns the grid: one
//! orientation is enough. With ρ = long / short in 1 ..= aspect, real arithmetic would give
//!
//! | branch | taken if | rows | columns |
//! |---|---|---|---|
//! | shrunk | r(short)·r(long) > ⌊N⌋ | max(1, ⌊√(N/ρ)⌋) | max(1, ⌊√(N·ρ)⌋) |
//! | grown | r(short)·r(long) ≤ ⌊N⌋ and < M | ⌈√(M/ρ)⌉ | ⌈√(M·ρ)⌉ |
//! | kept | otherwise | r(short) | r(long) |
//!
//! *Bounds.* For given rows a every branch bounds the columns: kept by ⌊N⌋/a and by the longest side that the
//! aspect allows; shrunk by N/a (if a > 1, since then a ≤ √(N/ρ)) and by √(N·ρ); grown by ⌈M/(a−1)⌉ (since
//! a−1 < √(M/ρ)) and by ⌈√(M·ρ)⌉. They are taken with a relative slack far above the rounding errors of doubles.
//!
//! *Search.* A heap starts with the bound of every a and yields grids by falling cells. A grid that no image
//! reaches is replaced by the one with a column less. So every grid that any image reaches is asked before all
//! smaller ones, and the first one reached is the maximum. (Rows whose bound is below what a few likely images
//! cost are left out.) Whether a grid is reached is decided branch by branch:
//!
//! * *Kept*: r takes each value on an interval of sides, in integers. The squarest pair of the two intervals has
//!   the least aspect, so if that is refused, all are.
//! * *Grown*: the grid fixes an interval of ρ, and the image must be small. In an interval of ratios one
//!   fraction has both the least numerator and the least denominator (Stern and Brocot), and r is monotone: if that
//!   image is too large to be grown, or has too long a side, so have all others.
//! * *Shrunk*: likewise, but the image must be large. Multiples of the simplest fraction usually suffice; else all
//!   long sides are tried from the longest on, each with the largest short side below the interval's lower end. Both
//!   fall, so the first such pair inside the interval is the largest of all.
//!
//! *Limits in the wrong order* make the grown images few and their grids sparse among many candidates. While they are
//! few, they are all tried, and the search is for the other branches.
//!
//! *Doubles.* Each of `side / beta / step` and `side * beta / step` carries at most 3.5 roundings of 2⁻⁵³, so as a
//! condition on ρ it is off by less than 2⁻⁵⁰ (relative). An interval's ends are therefore cut by 2⁻⁴⁴: inside, real
//! arithmetic and doubles agree. What lies within 2⁻⁴³ of an end is tried. Two different ratios of sides up to
//! 65 535 differ by more than 2⁻³² (relative), so that is one reduced fraction per end at most, and all its
//! multiples are put through the reference's own arithmetic: exact ties may fall either way, and do. For the same
//! reason the quotient that is compared with the aspect limit, and the one that is rounded half to even, fall on
//! the side where the exact one falls, and integers decide them.
//!
//! *Witness.* Every grid that is reported was obtained from its witness by [`Area::resized`]'s arithmetic. Should
//! limits be so absurd (lower far above upper) that the search exceeds its budget, the heap's head is a
//! sound bound and `exact` is false.

use std::collections::BinaryHeap;
use std::error::Error as StdError;
use std::fmt;

use super::rounding::{half_even, half_even_quotient, isqrt};
use crate::error::{Error, ErrorKind, Result};

/// The longest side of an image that a floor accounts for.
const LONGEST_SIDE: u32 = 65_535;
/// Integers up to here are doubles.
const EXACT: u64 = 1 << 53;
/// Beyond this step no image would have a cell of its own.
const LARGEST_STEP: u32 = 1 << 17;
/// More frames than this could push `frames · width · height` beyond [`EXACT`].
const MOST_FRAMES: u32 = 1 << 16;
/// 256 times the largest image; no side grows beyond 32 bits.
const LARGEST_LEAST: u64 = 1 << 40;
/// Relative slack of bounds computed in doubles.
const SLACK: f64 = 1.0 + 1.0 / (1_u64 << 40) as f64;
/// Ratios are integers in units of 2^-60.
const RATIO_BITS: u32 = 60;
/// The ratio of a square.
const SQUARE: u128 = 1 << RATIO_BITS;
/// So many images are tried one by one rather than searched.
const FEW_IMAGES: u32 = 1 << 18;
/// How many grids [`Area::largest`] may find unreachable before it settles for a bound.
const ATTEMPTS: usize = 1 << 14;

/// The policy's parameters, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    step: u32,
    least: u64,
    most: u64,
    aspect: u32,
    frames: u32,
    /// The longest side that `largest` considers; a field so that tests can search small worlds exhaustively.
    longest: u32,
}

/// Why an image has no size under [`Area`].
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AreaRefusal {
    /// A side is zero; the reference divides by it.
    Empty,
    /// The long side is more than `aspect` times the short one.
    Elongated {
        /// The largest ratio allowed.
        aspect: u32,
    },
    /// A side rounds to zero and no lower limit enlarges it; the reference fails when it resizes to that.
    Vanishing,
    /// The sides are too large for the reference's doubles to be followed exactly, or for 32 bits.
    TooLarge,
}

impl fmt::Display for AreaRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a side is zero"),
            Self::Elongated { aspect } => {
                write!(f, "the long side is more than {aspect} times the short one")
            }
            Self::Vanishing => {
                f.write_str("a side is rounded to zero, and no lower limit enlarges it")
            }
            Self::TooLarge => f.write_str("the sides are too large"),
        }
    }
}

impl StdError for AreaRefusal {}

/// The most cells that one image can cost, and an image that costs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extreme {
    /// Cells of the resized image: width / step × height / step.
    pub cells: u64,
    /// The witness: its width, never less than its height.
    pub width: u32,
    /// The witness: its height.
    pub height: u32,
    /// Whether the witness costs exactly `cells`; otherwise no image costs more, and the witness comes near.
    pub exact: bool,
}

impl Area {
    /// The policy that resizes to multiples of `step` with an area of `least` to `most` pixels.
    ///
    /// `aspect` is the largest ratio of the sides; `frames` multiplies the area wherever it is compared with a limit
    /// (1 where the reference has no such factor). Limits that contradict each other are not refused: the reference
    /// accepts them.
    pub fn new(step: u32, least: u64, most: u64, aspect: u32, frames: u32) -> Result<Self> {
        let refuse = |message: String| Err(Error::new(ErrorKind::NoNumber, message));
        if step == 0 || step > LARGEST_STEP {
            return refuse(format!(
                "the step of the size must be 1 to {LARGEST_STEP}, got `{step}`"
            ));
        }
        if least > LARGEST_LEAST {
            return refuse(format!(
                "the least area must be at most {LARGEST_LEAST}, got `{least}`"
            ));
        }
        if most == 0 || most > EXACT {
            return refuse(format!("the largest area must be 1 to {EXACT}, got `{most}`"));
        }
        if aspect == 0 {
            return refuse("the aspect limit must be at least 1, got `0`".to_owned());
        }
        if frames == 0 || frames > MOST_FRAMES {
            return refuse(format!(
                "the frames of an image must be 1 to {MOST_FRAMES}, got `{frames}`"
            ));
        }
        Ok(Self { step, least, most, aspect, frames, longest: LONGEST_SIDE })
    }

    /// Pixels per side of a cell.
    pub fn step(&self) -> u32 {
        self.step
    }

    /// The size `(width, height)` that the reference gives an image: multiples of the step, at least one each.
    pub fn resized(&self, width: u32, height: u32) -> Result<(u32, u32), AreaRefusal> {
        let (columns, rows) = self.grid(width, height)?;
        let side = |cells: u64| {
            let side = cells.checked_mul(u64::from(self.step)).ok_or(AreaRefusal::TooLarge)?;
            u32::try_from(side).map_err(|_| AreaRefusal::TooLarge)
        };
        Ok((side(columns)?, side(rows)?))
    }

    /// The resized image in cells, `(columns, rows)`, in the reference's order of operations.
    fn grid(&self, width: u32, height: u32) -> Result<(u64, u64), AreaRefusal> {
        let (long, short) = (width.max(height), width.min(height));
        if short == 0 {
            return Err(AreaRefusal::Empty);
        }
        if f64::from(long) / f64::from(short) > f64::from(self.aspect) {
            return Err(AreaRefusal::Elongated { aspect: self.aspect });
        }
        let frames = u64::from(self.frames);
        let pixels = (u64::from(width) * u64::from(height)).checked_mul(frames);
        let pixels = pixels.filter(|&pixels| pixels <= EXACT).ok_or(AreaRefusal::TooLarge)?;

        let step = f64::from(self.step);
        let rounded = |side: u32| half_even(f64::from(side) / step) as u64;
        let (columns, rows) = (rounded(width), rounded(height));
        // a side at most doubles by rounding, so the rounded area is below 2^55
        let area = frames * (columns * u64::from(self.step)) * (rows * u64::from(self.step));
        let (columns, rows) = if area > self.most {
            let beta = (pixels as f64 / self.most as f64).sqrt();
            let floored = |side: u32| ((f64::from(side) / beta / step).floor() as u64).max(1);
            (floored(width), floored(height))
        } else if area < self.least {
            let beta = (self.least as f64 / pixels as f64).sqrt();
            let ceiled = |side: u32| (f64::from(side) * beta / step).ceil() as u64;
            (ceiled(width), ceiled(height))
        } else {
            (columns, rows)
        };
        if columns == 0 || rows == 0 { Err(AreaRefusal::Vanishing) } else { Ok((columns, rows)) }
    }

    /// The most cells that any image with sides of 1 to 65 535 px can cost, with a witness; `None` if every image is
    /// refused.
    ///
    /// Of several grids with that many cells the squarest is taken that some image reaches. Its witness is in
    /// landscape and the same on every call: the image that has this very size already, or one that is rounded to
    /// it; else the smallest that is grown to it; else one that is shrunk to it.
    pub fn largest(&self) -> Option<Extreme> {
        let mut search = Search::new(self);
        let mut best = search.likely();
        if self.least > self.most {
            // the candidates for growing may lie far above the grids that the few small images reach
            if let Some(images) = search.few_grown() {
                best =
                    dearest(best.into_iter().chain(images.filter_map(|image| search.cost(image))));
                search.grown = None;
            }
        }
        let enough = best.map_or(0, |best| best.cells);
        let mut open: BinaryHeap<Grid> = (1..=search.rows_bound())
            .filter_map(|rows| Grid::new(rows, search.columns_bound(rows)))
            .filter(|grid| grid.cells >= enough)
            .collect();
        let mut attempts = 0;
        while let Some(grid) = open.pop() {
            match search.image_of(grid) {
                Reach::Image(image) => {
                    return Some(Extreme {
                        cells: grid.cells,
                        width: image.long,
                        height: image.short,
                        exact: true,
                    });
                }
                Reach::Never if attempts < ATTEMPTS => {
                    attempts += 1;
                    open.extend(Grid::new(grid.rows, grid.columns - 1));
                }
                Reach::Never | Reach::Unknown => {
                    return best.map(|best| Extreme { cells: grid.cells, exact: false, ..best });
                }
            }
        }
        best
    }
}

/// A resized image in cells, `1 <= rows <= columns`; ordered by cells, among equals by squareness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Grid {
    cells: u64,
    rows: u64,
    columns: u64,
}

impl Grid {
    /// The grid, unless it has fewer columns than rows.
    fn new(rows: u64, columns: u64) -> Option<Self> {
        (columns >= rows).then_some(Self { cells: rows * columns, rows, columns })
    }
}

/// An image in pixels, `1 <= short <= long`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Image {
    short: u32,
    long: u32,
}

/// Whether an image reaches a grid.
enum Reach {
    Image(Image),
    Never,
    /// An image that ought to reach it does not: the module's proof has a hole, so the grid is only a bound.
    Unknown,
}

/// One search for the largest grid: the policy and what follows from it.
struct Search<'a> {
    area: &'a Area,
    /// N: the upper limit in cells.
    upper: f64,
    /// ⌊N⌋: more rounded cells than this are shrunk.
    kept: u64,
    /// No image with a larger ratio is shrunk; `None` if none is at all.
    shrunk: Option<f64>,
    /// M: the lower limit in cells.
    lower: f64,
    /// At most this many rounded cells are grown; `None` if no image is.
    grown: Option<u64>,
}

impl<'a> Search<'a> {
    fn new(area: &'a Area) -> Self {
        let unit = u64::from(area.frames) * u64::from(area.step) * u64::from(area.step);
        let mut search = Self {
            area,
            upper: area.most as f64 / unit as f64,
            kept: area.most / unit,
            shrunk: None,
            lower: area.least as f64 / unit as f64,
            grown: None,
        };
        // the longest side must be paired with this many rows to be too large, and others with more
        let rows = (search.kept + 1).div_ceil(search.cells(area.longest).max(1));
        let short = search.lowest(rows);
        if search.cells(area.longest) > 0 && short <= u64::from(area.longest) {
            let ratio = f64::from(area.longest) / short.max(1) as f64;
            search.shrunk = Some(ratio.min(f64::from(search.ratio_limit())));
        }
        let least_cells = search.cells(1) * search.cells(1);
        search.grown = area
            .least
            .checked_sub(1)
            .map(|below| (below / unit).min(search.kept))
            .filter(|&grown| grown >= least_cells);
        search
    }

    /// r: a side in cells, rounded as in the first step of the reference.
    fn cells(&self, side: u32) -> u64 {
        half_even_quotient(u64::from(side), u64::from(self.area.step))
    }

    /// The least side with r(side) >= cells.
    fn lowest(&self, cells: u64) -> u64 {
        let tie = (2 * cells).saturating_sub(1) * u64::from(self.area.step);
        // a tie goes to the even one
        if cells.is_multiple_of(2) { tie.div_ceil(2) } else { tie / 2 + 1 }
    }

    /// The greatest side with r(side) <= cells.
    fn highest(&self, cells: u64) -> u64 {
        self.lowest(cells + 1) - 1
    }

    /// The largest ratio that two sides can have.
    fn ratio_limit(&self) -> u32 {
        self.area.aspect.min(self.area.longest)
    }

    /// No image has more rows, the lesser number of cells, than this.
    fn rows_bound(&self) -> u64 {
        let kept = isqrt(self.kept).min(self.cells(self.area.longest));
        let shrunk = self.shrunk.map_or(0, |_| ((self.upper.sqrt() * SLACK) as u64).max(1));
        let grown = self.grown.map_or(0, |_| (self.lower.sqrt() * SLACK).ceil() as u64);
        kept.max(shrunk).max(grown)
    }

    /// No image with so many rows has more columns than this; 0 if none has so many rows.
    fn columns_bound(&self, rows: u64) -> u64 {
        let (area, count) = (self.area, rows as f64);
        let longest = u64::from(area.longest);
        let kept = {
            let short = self.highest(rows).min(longest);
            let long = (short * u64::from(self.ratio_limit())).min(longest);
            let columns = self.cells(long as u32).min(self.kept / rows);
            if self.is_kept(rows, columns) { columns } else { 0 }
        };
        let shrunk = self.shrunk.map_or(0, |ratio| {
            let by_ratio = (self.upper * ratio).sqrt() * SLACK;
            if rows > 1 {
                by_ratio.min(self.upper / count * SLACK) as u64
            } else if self.upper / ratio > 4.0 * SLACK {
                // even the thinnest image has two rows
                0
            } else {
                (by_ratio as u64).max(1)
            }
        });
        let grown = self.grown.map_or(0, |grown| {
            // at step 1 no side rounds to 0, so a thin image is not small
            let limit = u64::from(self.ratio_limit());
            let ratio = if area.step == 1 { limit.min(grown) } else { limit };
            let by_ratio = (self.lower * ratio as f64).sqrt();
            let by_rows = if rows > 1 { self.lower / (count - 1.0) } else { f64::INFINITY };
            (by_ratio.min(by_rows) * SLACK).ceil() as u64
        });
        kept.max(shrunk).max(grown)
    }

    /// Whether an image of this rounded size is kept.
    fn is_kept(&self, rows: u64, columns: u64) -> bool {
        let step = u128::from(self.area.step);
        let area =
            u128::from(rows) * u128::from(columns) * step * step * u128::from(self.area.frames);
        area <= u128::from(self.area.most) && area >= u128::from(self.area.least)
    }

    /// Whether [`Area::resized`] takes the image to the grid.
    fn reaches(&self, image: Image, grid: Grid) -> bool {
        self.area.grid(image.long, image.short) == Ok((grid.columns, grid.rows))
    }

    /// An image that becomes this grid.
    fn image_of(&self, grid: Grid) -> Reach {
        // the image that ought to reach the grid, and whether it does
        let image = self.kept(grid).or_else(|| self.grown(grid)).or_else(|| self.shrunk(grid));
        match image {
            Some(image) if self.reaches(image, grid) => Reach::Image(image),
            Some(_) => Reach::Unknown,
            None => Reach::Never,
        }
    }

    /// An image that is kept at this grid.
    fn kept(&self, grid: Grid) -> Option<Image> {
        if !self.is_kept(grid.rows, grid.columns) {
            return None;
        }
        let (longest, step) = (u64::from(self.area.longest), u64::from(self.area.step));
        let squarest = (self.highest(grid.rows), self.lowest(grid.columns));
        let image = |short: u64, long: u64| {
            let admissible = long <= short * u64::from(self.area.aspect);
            admissible.then_some(Image { short: short as u32, long: long as u32 })
        };
        if squarest.1 > longest {
            return None;
        }
        // the size itself, or the longest side that rounds to it
        image((grid.rows * step).min(longest), (grid.columns * step).min(longest))
            .or_else(|| image(squarest.0.min(longest), squarest.1.max(1)))
    }

    /// An image that is grown to this grid.
    fn grown(&self, grid: Grid) -> Option<Image> {
        let limit = self.grown?;
        let (rows, columns) = (grid.rows as f64, grid.columns as f64);
        let (fewer_rows, fewer_columns) = (rows - 1.0, columns - 1.0);
        let low = (self.lower / (rows * rows)).max(fewer_columns * fewer_columns / self.lower);
        let high = (self.lower / (fewer_rows * fewer_rows)).min(columns * columns / self.lower);
        let cone = Cone::new(low, high, self.ratio_limit());
        let is_grown = |image: &Image| self.cells(image.short) * self.cells(image.long) <= limit;
        let inner = self.simplest(cone.inner).filter(is_grown);
        inner.or_else(|| {
            let edges = cone.edges.into_iter().filter_map(|edge| self.simplest(edge));
            edges
                .flat_map(|image| self.multiples(image).take_while(is_grown))
                .find(|&image| self.reaches(image, grid))
        })
    }

    /// An image that is shrunk to this grid.
    fn shrunk(&self, grid: Grid) -> Option<Image> {
        self.shrunk?;
        let (rows, columns) = (grid.rows as f64, grid.columns as f64);
        let (more_rows, more_columns) = (rows + 1.0, columns + 1.0);
        let mut low = self.upper / (more_rows * more_rows);
        let mut high = more_columns * more_columns / self.upper;
        // one cell may also come from less than one
        if grid.rows > 1 {
            high = high.min(self.upper / (rows * rows));
        }
        if grid.columns > 1 {
            low = low.max(columns * columns / self.upper);
        }
        let cone = Cone::new(low, high, self.ratio_limit());
        let inner = self.simplest(cone.inner).and_then(|image| {
            // the smallest multiple that is too large, or any other image
            self.shrunk_multiples(image).next().or_else(|| self.largest_within(cone.inner))
        });
        inner.or_else(|| {
            let edges = cone.edges.into_iter().filter_map(|edge| self.simplest(edge));
            edges
                .flat_map(|image| self.shrunk_multiples(image))
                .find(|&image| self.reaches(image, grid))
        })
    }

    /// Whether an image is too large to be kept.
    fn is_shrunk(&self, image: Image) -> bool {
        self.cells(image.short) * self.cells(image.long) > self.kept
    }

    /// The image and its multiples, as far as sides go.
    fn multiples(&self, image: Image) -> impl Iterator<Item = Image> + use<> {
        let count = self.area.longest / image.long;
        (1..=count).map(move |times| Image { short: image.short * times, long: image.long * times })
    }

    /// Those multiples of the image that are shrunk, the smallest first.
    fn shrunk_multiples(&self, image: Image) -> impl Iterator<Item = Image> + use<> {
        let times = |times: u32| Image { short: image.short * times, long: image.long * times };
        let (mut small, mut large) = (0, self.area.longest / image.long + 1);
        // `small` times is not shrunk, `large` times is or has too long a side
        while large - small > 1 {
            let middle = small + (large - small) / 2;
            if self.is_shrunk(times(middle)) { large = middle } else { small = middle }
        }
        self.multiples(image).skip(large as usize - 1)
    }

    /// The simplest image with a ratio in the closed interval: no other has a shorter side, either way.
    fn simplest(&self, (low, high): (u128, u128)) -> Option<Image> {
        if low > high {
            return None;
        }
        let (long, short) = simplest_fraction((low, SQUARE), (high, SQUARE));
        let long = u32::try_from(long).ok().filter(|&long| long <= self.area.longest)?;
        Some(Image { short: u32::try_from(short).ok()?, long })
    }

    /// An image with a ratio in the closed interval that is shrunk, whatever its sides.
    fn largest_within(&self, (low, high): (u128, u128)) -> Option<Image> {
        let mut long = self.area.longest;
        // invariant: rest = long · 2^60 − short · low, 0 <= rest < low
        let mut short = u128::from(long) * SQUARE / low;
        let mut rest = u128::from(long) * SQUARE % low;
        while long > 0 && short > 0 {
            if rest <= short * (high - low) {
                let image = Image { short: short as u32, long };
                // all that follow are smaller
                return self.is_shrunk(image).then_some(image);
            }
            long -= 1;
            // low is at least one square, so one step back is enough
            if rest < SQUARE {
                short -= 1;
                rest += low;
            }
            rest -= SQUARE;
        }
        None
    }

    /// What an image costs.
    fn cost(&self, Image { short, long }: Image) -> Option<Extreme> {
        let (columns, rows) = self.area.grid(long, short).ok()?;
        Some(Extreme { cells: columns * rows, width: long, height: short, exact: true })
    }

    /// The best of some images that are likely to cost much: no smaller grid needs to be looked at.
    ///
    /// `None` only if no image is admissible: the largest square is, unless every side rounds to zero, and then either
    /// every image is grown or every image vanishes, the smallest among them.
    fn likely(&self) -> Option<Extreme> {
        let longest = self.area.longest;
        let ratio = self.ratio_limit();
        let likely = [(1, 1), (1, ratio), (longest, longest), (longest.div_ceil(ratio), longest)];
        dearest(likely.into_iter().filter_map(|(short, long)| self.cost(Image { short, long })))
    }

    /// All images that are grown, if they are few.
    fn few_grown(&self) -> Option<impl Iterator<Item = Image> + use<>> {
        let limit = self.grown?;
        let longest = u64::from(self.area.longest);
        let mut ranges = Vec::new();
        let mut count = 0;
        for short in 1..=self.area.longest {
            let rows = self.cells(short);
            if rows * rows > limit {
                break;
            }
            let small = limit.checked_div(rows).map_or(longest, |columns| self.highest(columns));
            let long =
                small.min(u64::from(short) * u64::from(self.area.aspect)).min(longest) as u32;
            count += long - short + 1;
            if count > FEW_IMAGES {
                return None;
            }
            ranges.push((short, long));
        }
        let images =
            |(short, end): (u32, u32)| (short..=end).map(move |long| Image { short, long });
        Some(ranges.into_iter().flat_map(images))
    }
}

/// The first of those that cost most.
fn dearest(costs: impl Iterator<Item = Extreme>) -> Option<Extreme> {
    costs.reduce(|best, next| if next.cells > best.cells { next } else { best })
}

/// An interval of ratios, at least 1, in units of 2^-60.
struct Cone {
    /// Here doubles and real numbers agree.
    inner: (u128, u128),
    /// Here they may not.
    edges: [(u128, u128); 2],
}

impl Cone {
    /// The ratios from `low` to `high`, ends uncertain, and from 1 to `limit`, ends included.
    fn new(low: f64, high: f64, limit: u32) -> Self {
        // the ends are doubles off by a few 2^-53; none beyond 2^17 matters
        let fixed = |ratio: f64| (ratio.min(f64::from(1 << 17)) * SQUARE as f64) as u128;
        let margin = |edge: u128| (edge >> 44) + 1;
        let limit = u128::from(limit) * SQUARE;
        let (low, high) = (fixed(low), fixed(high));
        let around = |edge: u128| {
            let start = edge.saturating_sub(2 * margin(edge));
            (start.max(SQUARE), (edge + 2 * margin(edge)).min(limit))
        };
        Self {
            inner: ((low + margin(low)).max(SQUARE), high.saturating_sub(margin(high)).min(limit)),
            edges: [around(low), around(high)],
        }
    }
}

/// The fraction with the least numerator, and at once the least denominator, in the closed interval from `low` to
/// `high`, both at least 0 and given as fractions.
fn simplest_fraction(low: (u128, u128), high: (u128, u128)) -> (u128, u128) {
    let whole = low.0 / low.1;
    let rest = low.0 % low.1;
    if rest == 0 {
        return (whole, 1);
    }
    if whole < high.0 / high.1 {
        return (whole + 1, 1);
    }
    // the same whole part: the reciprocals of the rests, whose order is reversed
    let (numerator, denominator) = simplest_fraction((high.1, high.0 % high.1), (low.1, rest));
    (whole * numerator + denominator, numerator)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: u64 = 28 * 28;

    fn area(step: u32, least: u64, most: u64) -> Area {
        Area::new(step, least, most, 200, 1).unwrap()
    }

    /// SplitMix64, scaled.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((u128::from(z ^ (z >> 31)) * u128::from(sides)) >> 64) as u64
        }

        /// Of any magnitude up to so many bits, at least 1.
        fn magnitude(&mut self, bits: u64) -> u64 {
            let bits = 1 + self.roll(bits);
            1 + self.roll(1 << bits)
        }

        /// Limits, steps and all, with contradictions and ties among them.
        fn policy(&mut self, steps: u64, bits: u64, aspects: u64) -> Area {
            let step = self.magnitude(steps).min(1 << steps) as u32;
            let frames = 1 + self.roll(6) / 4;
            let unit = frames * u64::from(step) * u64::from(step);
            let mut most = self.magnitude(bits);
            if self.roll(3) == 0 {
                // whole cells, or one off
                most = ((most / unit).max(1) * unit + self.roll(3)).saturating_sub(1).max(1);
            }
            let least = match self.roll(8) {
                0 => 0,
                1 => most,
                2 => self.magnitude(bits + 2),
                3 => most.saturating_sub(self.roll(unit)),
                4 => (most / unit) * unit,
                _ => self.roll(most + 1),
            };
            let aspect = match self.roll(4) {
                0 => 1 + self.roll(6),
                1 => 1 + self.roll(aspects),
                _ => 200,
            };
            Area::new(step, least, most, aspect as u32, frames as u32).unwrap()
        }
    }

    /// The sizes of `tests/scripts/area_sweep.py`.
    struct Sizes {
        dice: Dice,
        area: Area,
    }

    impl Sizes {
        fn pair(&mut self, kind: usize) -> (u64, u64) {
            let dice = &mut self.dice;
            let (step, frames) = (u64::from(self.area.step), u64::from(self.area.frames));
            match kind {
                0 => return (1 + dice.roll(65_535), 1 + dice.roll(65_535)),
                1 => return (1 + dice.roll(6 * step), 1 + dice.roll(6 * step)),
                2 => {
                    let (one, two) = (1 + dice.roll(16), 1 + dice.roll(16));
                    return (1 + dice.roll(1 << one), 1 + dice.roll(1 << two));
                }
                3 => {
                    let short = 1 + dice.roll(327);
                    return (short, 200 * short + dice.roll(5) - 2);
                }
                4 => {
                    let (one, two) = (dice.roll(1 + 4000 / step), dice.roll(1 + 4000 / step));
                    let one = ((2 * one + 1) * step / 2 + dice.roll(3)).saturating_sub(1);
                    return (one, ((2 * two + 1) * step / 2 + dice.roll(3)).saturating_sub(1));
                }
                _ => {}
            }
            let limit = if dice.roll(2) == 0 { self.area.least } else { self.area.most };
            if kind < 7 {
                let bits = 4 + dice.roll(13);
                let long = 1 + dice.roll(1 << bits);
                return (long, (limit / (frames * long) + dice.roll(3)).saturating_sub(1));
            }
            let rows = 1 + dice.roll(40);
            let columns = limit / (frames * step * step * rows);
            let times = 1 + dice.roll(16 * step);
            (rows * times, columns * times)
        }

        fn draw(&mut self, index: usize) -> (u32, u32) {
            let (mut one, mut two) = self.pair(index % 8);
            if self.dice.roll(2) == 1 {
                (one, two) = (two, one);
            }
            let least = if self.area.frames > 1 { self.area.step } else { 1 };
            let side = |side: u64| side.clamp(u64::from(least), 65_535) as u32;
            (side(one), side(two))
        }
    }

    #[test]
    fn forward_cases() {
        let usual = area(28, 3136, 1280 * CELL);
        for (policy, height, width, resized) in [
            (usual, 70, 70, (56, 56)),
            (usual, 1, 1, (56, 56)),
            (usual, 14, 14, (56, 56)),
            (usual, 42, 42, (56, 56)),
            (usual, 257, 27, (252, 28)),
            (usual, 1, 200, (28, 812)),
            (usual, 14, 1400, (28, 560)),
            (usual, 768, 1024, (756, 1036)),
            (area(28, 3136, 20 * CELL), 31, 639, (28, 560)),
        ] {
            assert_eq!(
                policy.resized(width, height),
                Ok((resized.1, resized.0)),
                "{height}x{width}"
            );
            assert_eq!(policy.resized(height, width), Ok(resized), "{width}x{height}");
        }
        assert_eq!(usual.grid(1024, 768).map(|(columns, rows)| columns * rows), Ok(999));
        let wide = area(28, 3136, 16_384 * CELL);
        assert_eq!(wide.grid(10_000, 12_000).map(|(columns, rows)| columns * rows), Ok(16_240));
    }

    #[test]
    fn refusals() {
        let usual = area(28, 3136, 1280 * CELL);
        assert_eq!(usual.resized(0, 5), Err(AreaRefusal::Empty));
        assert_eq!(usual.resized(201, 1), Err(AreaRefusal::Elongated { aspect: 200 }));
        assert_eq!(usual.resized(65_535, 327), Err(AreaRefusal::Elongated { aspect: 200 }));
        assert!(usual.resized(65_400, 327).is_ok());
        assert_eq!(usual.resized(u32::MAX, u32::MAX), Err(AreaRefusal::TooLarge));
        // without a lower limit a zero survives the rounding
        assert_eq!(area(28, 0, 1280 * CELL).resized(14, 100), Err(AreaRefusal::Vanishing));
        assert_eq!(area(28, 1, 1280 * CELL).resized(14, 100), Ok((28, 28)));
        for (step, least, most, aspect, frames) in [
            (0, 1, 1, 1, 1),
            (u32::MAX, 1, 1, 1, 1),
            (1, u64::MAX, 1, 1, 1),
            (1, 1, 0, 1, 1),
            (1, 1, u64::MAX, 1, 1),
            (1, 1, 1, 0, 1),
            (1, 1, 1, 1, 0),
            (1, 1, 1, 1, u32::MAX),
        ] {
            let error = Area::new(step, least, most, aspect, frames).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoNumber);
        }
    }

    #[test]
    fn the_corners_of_the_parameters_do_not_overflow() {
        for step in [1, LARGEST_STEP] {
            for least in [0, 1, LARGEST_LEAST] {
                for most in [1, EXACT] {
                    for aspect in [1, u32::MAX] {
                        for frames in [1, MOST_FRAMES] {
                            let policy = Area::new(step, least, most, aspect, frames).unwrap();
                            let largest = policy.largest();
                            if let Some(largest) = largest {
                                assert_attained(&policy, largest);
                            }
                            for (width, height) in
                                [(1, 1), (65_535, 1), (1, 65_535), (65_535, 65_535)]
                            {
                                match policy.grid(width, height) {
                                    Ok((columns, rows)) => {
                                        assert!(largest.unwrap().cells >= columns * rows);
                                        assert!(policy.resized(width, height).is_ok());
                                    }
                                    Err(refusal) => assert_ne!(refusal, AreaRefusal::TooLarge),
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn equals_the_reference() {
        let table = include_str!("../../tests/fixtures/layout/area.txt");
        let mut settings = 0;
        for part in table.split("setting ").skip(1) {
            let mut lines = part.lines();
            let setting: Vec<u64> =
                lines.next().unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
            let (step, frames) = (setting[0] as u32, setting[3] as u32);
            let area = Area::new(step, setting[1], setting[2], 200, frames).unwrap();
            let mut sizes = Sizes { dice: Dice(settings), area };
            settings += 1;
            let answers = (0..8192).map(|index| {
                let (width, height) = sizes.draw(index);
                let answer = match area.resized(width, height) {
                    Ok(size) => size,
                    Err(AreaRefusal::Elongated { .. }) => (0, 0),
                    Err(refusal) => {
                        assert_eq!(refusal, AreaRefusal::Vanishing);
                        (0, 1)
                    }
                };
                (width, height, answer.0, answer.1)
            });
            let answers: Vec<_> = answers.collect();
            for answer in &answers[..128] {
                let (width, height, columns, rows) = answer;
                let found = format!("{width} {height} {columns} {rows}");
                assert_eq!(Some(found.as_str()), lines.next(), "{area:?}");
            }
            let mut hashes = lines.flat_map(|line| line.split(' '));
            for block in answers.chunks(64) {
                let sides = block.iter().flat_map(|answer| [answer.2, answer.3]);
                let hash = sides
                    .flat_map(u32::to_le_bytes)
                    .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
                        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
                    });
                assert_eq!(
                    Some(format!("{hash:016x}").as_str()),
                    hashes.next(),
                    "{area:?} {block:?}"
                );
            }
            assert_eq!(hashes.next(), None);
        }
        assert_eq!(settings, 19);
    }

    fn assert_attained(policy: &Area, largest: Extreme) {
        assert!(largest.exact, "{policy:?} {largest:?}");
        assert!(largest.height <= largest.width && largest.width <= policy.longest);
        let grid = policy.grid(largest.width, largest.height);
        assert_eq!(
            grid.map(|(columns, rows)| columns * rows),
            Ok(largest.cells),
            "{policy:?} {largest:?}"
        );
    }

    #[test]
    fn published_limits() {
        for (policy, cells, witness) in [
            (area(28, 3136, 12_845_056), 16_384, Some((3584, 3584))),
            (area(28, 3136, 1_003_520), 1280, Some((1120, 896))),
            (area(32, 65_536, 16_777_216), 16_384, Some((4096, 4096))),
            (area(28, 3136, 6 * CELL), 34, None),
            (area(28, 256 * CELL, 256 * CELL), 454, Some((200, 1))),
            (area(28, 4 * CELL, 64 * CELL), 113, None),
            (Area::new(28, 112 * 112, 9_633_792, 200, 2).unwrap(), 6144, Some((2688, 1792))),
        ] {
            let largest = policy.largest().unwrap();
            assert_eq!(largest.cells, cells, "{policy:?}");
            assert_attained(&policy, largest);
            if let Some((width, height)) = witness {
                assert_eq!((largest.width, largest.height), (width, height), "{policy:?}");
            }
            assert_eq!(policy.largest(), Some(largest));
        }
    }

    #[test]
    fn no_image_no_answer() {
        // every side rounds to zero, and nothing enlarges it
        assert_eq!(area(LARGEST_STEP, 0, 1).largest(), None);
        assert_eq!(area(LARGEST_STEP, 1, 1).largest().map(|largest| largest.cells), Some(1));
    }

    fn assert_exact(policy: &Area) {
        let mut most = None;
        for short in 1..=policy.longest {
            for long in short..=policy.longest {
                match policy.grid(long, short) {
                    Ok((columns, rows)) => most = most.max(Some(columns * rows)),
                    Err(AreaRefusal::Elongated { .. }) => break,
                    Err(_) => {}
                }
            }
        }
        let largest = policy.largest();
        assert_eq!(largest.map(|largest| largest.cells), most, "{policy:?} {largest:?}");
        if let Some(largest) = largest {
            assert_attained(policy, largest);
        }
    }

    #[test]
    fn exact_in_small_worlds() {
        let mut dice = Dice(7);
        for _ in 0..12_000 {
            let longest = dice.magnitude(7) as u32;
            assert_exact(&Area { longest, ..dice.policy(6, 17, 60) });
        }
        for _ in 0..60 {
            let longest = 300 + dice.roll(300) as u32;
            assert_exact(&Area { longest, ..dice.policy(5, 20, 300) });
        }
    }

    #[test]
    fn exact_for_every_small_limit() {
        for step in [1, 2, 3, 4, 5, 8, 28] {
            for cells in 1..=48 {
                let unit = u64::from(step * step);
                // both limits the same, a little off, and the range that a default gives
                for most in [cells * unit, cells * unit + 1, (cells * unit - 1).max(1)] {
                    for least in [0, 1, unit, most, most - 1, most + unit] {
                        let longest = if step == 28 { 100 } else { 60 };
                        assert_exact(&Area { longest, ..area(step, least, most) });
                    }
                }
            }
        }
    }

    #[test]
    fn ties_at_the_aspect_limit() {
        // √(cells · aspect) is whole, and doubles decide for each multiple of the thinnest image where it falls
        for aspect in [2, 3, 5, 8] {
            for root in 1..=9 {
                for step in [1, 2, 3, 5, 7, 11] {
                    let unit = u64::from(step * step);
                    let most = root * root * unit * if aspect == 8 { 2 } else { u64::from(aspect) };
                    for least in [0, most] {
                        let policy = Area::new(step, least, most, aspect, 1).unwrap();
                        assert_exact(&Area { longest: 160, ..policy });
                    }
                }
            }
        }
    }

    #[test]
    fn a_long_side_rounded_down_beside_a_short_one_rounded_up() {
        // as many cells in a row as no multiple of the step reaches within the aspect limit, and no divisor
        let policy = area(28, 3136, 293 * CELL);
        let largest = policy.largest().unwrap();
        assert_attained(&policy, largest);
        assert_eq!((largest.cells, largest.height), (293, 41));
        let policy = Area::new(28, 1, 5 * CELL, 4, 1).unwrap();
        assert_exact(&Area { longest: 170, ..policy });
    }

    #[test]
    fn limits_in_the_wrong_order_are_exact_too() {
        for (step, least, most, aspect) in
            [(2, 33_660_197_072, 4, 5), (1, 1 << 30, 198, 37_965), (4, 1 << 39, 16, 4)]
        {
            let policy = Area::new(step, least, most, aspect, 1).unwrap();
            assert_attained(&policy, policy.largest().unwrap());
            assert_exact(&Area { longest: 150, ..policy });
        }
    }

    #[test]
    fn contradictory_limits_grow_beyond_the_upper_one() {
        // images of up to one cell are kept below the upper limit, and grown to the lower one
        let policy = area(28, 100 * CELL, CELL);
        assert_eq!(policy.resized(28, 28), Ok((280, 280)));
        assert_eq!(policy.resized(56, 56), Ok((28, 28)));
        let largest = policy.largest().unwrap();
        assert_attained(&policy, largest);
        assert!(largest.cells >= 100);
    }

    #[test]
    fn nothing_exceeds_the_largest() {
        let mut dice = Dice(3);
        for _ in 0..400 {
            let area = dice.policy(6, 33, 65_535);
            let largest = area.largest().unwrap();
            assert_attained(&area, largest);
            let mut sizes = Sizes { dice: Dice(dice.roll(1 << 40)), area };
            for index in 0..1000 {
                let (width, height) = sizes.draw(index);
                if let Ok((columns, rows)) = area.grid(width, height) {
                    assert!(
                        columns * rows <= largest.cells,
                        "{area:?} {width}x{height} {largest:?}"
                    );
                }
            }
            // around the witness and at the aspect limit
            for _ in 0..400 {
                let near = |side: u32, dice: &mut Dice| {
                    (side + dice.roll(7) as u32).saturating_sub(3).clamp(1, 65_535)
                };
                let (mut width, height) =
                    (near(largest.width, &mut dice), near(largest.height, &mut dice));
                if dice.roll(2) == 0 {
                    width = height.saturating_mul(area.aspect).clamp(1, 65_535);
                }
                if let Ok((columns, rows)) = area.grid(width, height) {
                    assert!(
                        columns * rows <= largest.cells,
                        "{area:?} {width}x{height} {largest:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn simplest_fractions() {
        for (low, high, simplest) in [
            ((1, 3), (1, 2), (1, 2)),
            ((3, 7), (4, 9), (3, 7)),
            ((314, 100), (315, 100), (22, 7)),
            ((5, 1), (9, 1), (5, 1)),
            ((51, 10), (91, 10), (6, 1)),
        ] {
            assert_eq!(simplest_fraction(low, high), simplest);
        }
    }
}
