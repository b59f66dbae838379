//! The size policy `area`: both sides become multiples of a step and the area is moved between two limits.
//!
//! This is `smart_resize` of the reference (`models/qwen2_vl/image_processing_qwen2_vl.py`; `num_frames`, and enlarging
//! what is smaller than a step, as in `models/glm4v/image_processing_glm4v.py`) and the exact answer to "how many cells
//! can one image cost?". A *cell* is one step × step square of the resized image.
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
//! * **Enlarged for the computation only.** Where the reference enlarges an image with a side below the step, it takes
//!   the enlarged sides in place of the real ones from then on, the aspect limit included: truncated, so the short side
//!   may miss the step by a pixel. The picture itself is resized once, from its own size.
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
//! *Enlarging* leaves the search to the images with both sides of a step or more, and adds few others; see `enlarged`.
//!
//! *Witness.* Every grid that is reported was obtained from its witness by [`Area::resized`]'s arithmetic. Should
//! limits be so absurd (lower far above upper) that the search exceeds its budget, the heap's head is a
//! sound bound and `exact` is false.

mod cone;
mod enlarged;
mod maximum;

use std::collections::BinaryHeap;
use std::error::Error as StdError;
use std::fmt;

use self::cone::{Cone, SQUARE};
use super::rounding::{half_even, half_even_quotient, isqrt};
use super::witness::simplest_between;
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
    /// Whether an image with a side below the step is enlarged first.
    enlarge: bool,
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
        let enlarge = false;
        Ok(Self { step, least, most, aspect, frames, enlarge, longest: LONGEST_SIDE })
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
        if width == 0 || height == 0 {
            return Err(AreaRefusal::Empty);
        }
        let (width, height) = self.computed(width, height);
        if !self.is_admissible(width.min(height), width.max(height)) {
            return Err(AreaRefusal::Elongated { aspect: self.aspect });
        }
        let frames = u64::from(self.frames);
        let pixels = width.checked_mul(height).and_then(|pixels| pixels.checked_mul(frames));
        let pixels = pixels.filter(|&pixels| pixels <= EXACT).ok_or(AreaRefusal::TooLarge)?;

        let step = f64::from(self.step);
        let rounded = |side: u64| half_even(side as f64 / step) as u64;
        let (columns, rows) = (rounded(width), rounded(height));
        // a side at most doubles by rounding, so the rounded area is below 2^55
        let area = frames * (columns * u64::from(self.step)) * (rows * u64::from(self.step));
        let (columns, rows) = if area > self.most {
            let beta = (pixels as f64 / self.most as f64).sqrt();
            let floored = |side: u64| ((side as f64 / beta / step).floor() as u64).max(1);
            (floored(width), floored(height))
        } else if area < self.least {
            let beta = (self.least as f64 / pixels as f64).sqrt();
            let ceiled = |side: u64| (side as f64 * beta / step).ceil() as u64;
            (ceiled(width), ceiled(height))
        } else {
            (columns, rows)
        };
        if columns == 0 || rows == 0 { Err(AreaRefusal::Vanishing) } else { Ok((columns, rows)) }
    }

    /// Whether the reference's quotient of these sides is within the aspect limit.
    fn is_admissible(&self, short: u64, long: u64) -> bool {
        long as f64 / short as f64 <= f64::from(self.aspect)
    }

    /// The most cells that any image with sides of 1 to 65 535 px can cost, with a witness; `None` if every image is
    /// refused.
    ///
    /// Of several grids with that many cells the squarest is taken that some image reaches. Its witness is in
    /// landscape and the same on every call: the image that has this very size already, or one that is rounded to
    /// it; else one that is grown to it, the smallest if none is enlarged first; else one that is shrunk to it. An
    /// image that is enlarged first is the witness only where no other costs as much.
    pub fn largest(&self) -> Option<Extreme> {
        if self.enlarge {
            let ordinary = if self.step <= self.longest { self.largest_ordinary() } else { None };
            self.largest_enlarged(ordinary)
        } else {
            self.largest_ordinary()
        }
    }

    /// The same among the images that are not enlarged.
    fn largest_ordinary(&self) -> Option<Extreme> {
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
    /// The least length of a side.
    shortest: u32,
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
            shortest: if area.enlarge { area.step } else { 1 },
            upper: area.most as f64 / unit as f64,
            kept: area.most / unit,
            shrunk: None,
            lower: area.least as f64 / unit as f64,
            grown: None,
        };
        // the longest side must be paired with this many rows to be too large, and others with more
        let rows = (search.kept + 1).div_ceil(search.cells(area.longest).max(1));
        let short = search.lowest(rows).max(u64::from(search.shortest));
        if search.cells(area.longest) > 0 && short <= u64::from(area.longest) {
            let ratio = f64::from(area.longest) / short as f64;
            search.shrunk = Some(ratio.min(f64::from(search.ratio_limit())));
        }
        let least_cells = search.cells(search.shortest) * search.cells(search.shortest);
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
        let inner = self.simplest(cone.inner).filter(is_grown).and_then(|image| {
            let times = self.shortest.div_ceil(image.short);
            let multiple = self.multiples(image).nth(times as usize - 1).filter(is_grown);
            // the smallest of all is no larger than a multiple
            multiple.or_else(|| self.smallest_within(cone.inner, image.short * times, is_grown))
        });
        inner.or_else(|| {
            let edges = cone.edges.into_iter().filter_map(|edge| self.simplest(edge));
            edges
                .flat_map(|image| self.multiples(image).take_while(is_grown))
                .filter(|image| image.short >= self.shortest)
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
        let long_enough = self.shortest.div_ceil(image.short);
        self.multiples(image).skip(large.max(long_enough) as usize - 1)
    }

    /// The simplest image with a ratio in the closed interval: no other has a shorter side, either way.
    fn simplest(&self, (low, high): (u128, u128)) -> Option<Image> {
        if low > high {
            return None;
        }
        let (long, short) = simplest_between((low, SQUARE), (high, SQUARE));
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
                let found = image.short >= self.shortest && self.is_shrunk(image);
                return found.then_some(image);
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

    /// The smallest image with a ratio in the closed interval and sides that are long enough, if it is small: with each
    /// longer short side, up to `last`, the long one is no shorter.
    fn smallest_within(
        &self,
        (low, high): (u128, u128),
        last: u32,
        is_small: impl Fn(&Image) -> bool,
    ) -> Option<Image> {
        (self.shortest..last)
            .map(|short| (short, (u128::from(short) * low).div_ceil(SQUARE)))
            .take_while(|&(_, long)| long <= u128::from(self.area.longest))
            .map(|(short, long)| Image { short, long: long as u32 })
            .take_while(is_small)
            .find(|image| u128::from(image.long) * SQUARE <= u128::from(image.short) * high)
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
        let (short, thin) = (self.shortest, longest.div_ceil(ratio).max(self.shortest));
        let long = short.saturating_mul(ratio).min(longest);
        let likely = [(short, short), (short, long), (longest, longest), (thin, longest)];
        dearest(likely.into_iter().filter_map(|(short, long)| self.cost(Image { short, long })))
    }

    /// All images that are grown, if they are few.
    fn few_grown(&self) -> Option<impl Iterator<Item = Image> + use<>> {
        let limit = self.grown?;
        let longest = u64::from(self.area.longest);
        let mut ranges = Vec::new();
        let mut count = 0;
        for short in self.shortest..=self.area.longest {
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

#[cfg(test)]
mod tests;
