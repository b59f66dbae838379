//! Images that are enlarged before their size is computed.
//!
//! An image with a side below the step u is replaced by one whose sides are multiplied by u / short and truncated:
//! `smart_resize` of `models/glm4v/image_processing_glm4v.py`. All that follows sees the enlarged sides σ ≤ λ alone.
//!
//! # Which of them matter
//!
//! The product short · (u / short) is u or, in doubles, just less, so σ is u or u − 1. λ may go beyond 65 535 px, but
//! the aspect limit is asked of λ / σ, so λ is at most aspect · u.
//!
//! * *σ = u and λ up to the longest side*: the image u × λ is not enlarged and becomes the same. Nothing is added.
//! * *Kept*: σ is one cell, so the cost is r(λ), and for each short side the longest image that is kept costs most.
//!   With σ = u that is so for a short side of 1 px before all others, for its λ is any number of whole cells.
//! * *Shrunk*: σ stays one cell. Let F be the frames, then β² = F·σ·λ / most, and F · r(λ) · u² is above `most`, so
//!   (σ/u/β)² < σ/u · (1 + u/2λ), which is below 2 (u is at least 3 if σ = u − 1). The other side is
//!   √(λ · most / (F·σ)) / u cells, floored, so again the longest image costs most; with σ = u that has a short side
//!   of 1 px.
//! * *Grown*: with ρ = λ / σ and M as in `area`, there are ⌈√(M/ρ)⌉ rows and ⌈√(Mρ)⌉ columns. For each short side the
//!   longest image of as many rows costs most, so those are tried, from the longest of all on, until
//!   (√(M/ρ) + 1)(√(Mρ) + 1), which rises with ρ, is no more than the best.
//!
//! "Longest" means the same in doubles: two λ are below 2²⁶ and differ by at least 1, so all that rises or falls with λ
//! in real arithmetic does so in doubles.
//!
//! So it is enough to look at a short side of 1 px, at those where σ = u − 1 (none for the steps 28 and 32, one for 48),
//! and, where λ can exceed the longest side, at the grown images of all others that do.
//!
//! Should limits be so absurd that too many images would be tried, that bound is the answer, and `exact` is false.

use super::{Area, Error, ErrorKind, Extreme, Result, SLACK, half_even_quotient};

/// Beyond this step there are so many short sides that they would take long to look through.
const LARGEST_STEP: u32 = 1 << 10;
/// So many grown images are tried.
const TRIES: u32 = 1 << 12;

impl Area {
    /// The same policy, but images with a side below the step are enlarged until it is as long, before anything is
    /// computed from their size.
    ///
    /// Refuses a step beyond 1024.
    pub fn enlarging(self) -> Result<Self> {
        if self.step > LARGEST_STEP {
            return Err(Error::new(
                ErrorKind::NoNumber,
                format!(
                    "the step must be at most {LARGEST_STEP} where smaller images are enlarged to it, got `{}`",
                    self.step
                ),
            ));
        }
        // the area of an enlarged image is at most 65 535 · step², a double with any number of frames
        Ok(Self { enlarge: true, ..self })
    }

    /// The width and height that the reference computes with.
    pub(super) fn computed(&self, width: u32, height: u32) -> (u64, u64) {
        let short = width.min(height);
        if !self.enlarge || short >= self.step {
            return (u64::from(width), u64::from(height));
        }
        let scale = f64::from(self.step) / f64::from(short);
        let scaled = |side: u32| (f64::from(side) * scale) as u64;
        (scaled(width), scaled(height))
    }

    /// The best of all images, given the best of those that are not enlarged.
    pub(super) fn largest_enlarged(&self, mut best: Option<Extreme>) -> Option<Extreme> {
        let (step, longest) = (u64::from(self.step), u64::from(self.longest));
        let can_exceed = step * u64::from(self.aspect.min(self.longest)) > longest;
        let rows: Vec<Row<'_>> = (1..self.step.min(self.longest.saturating_add(1)))
            .map(|short| Row { area: self, short, missed: self.computed(short, short).0 < step })
            .filter(|row| row.missed || row.short == 1 || can_exceed)
            .collect();
        for row in rows.iter().filter(|row| row.missed || row.short == 1) {
            let Some(top) = row.top() else { continue };
            let kept = row.last(|long| row.is_within(long, self.most));
            for long in [kept, Some(top)].into_iter().flatten() {
                better(&mut best, row.cost(long.min(top)));
            }
        }
        let Some(below) = self.least.checked_sub(1) else { return best };
        let mut tries = 0;
        for row in rows {
            let grown = row.last(|long| row.is_within(long, below.min(self.most)));
            let mut next = grown.zip(row.top()).map(|(grown, top)| grown.min(top));
            while let Some(long) = next {
                let (sigma, lambda) = self.computed(row.short, long);
                // as an image that is not enlarged
                let known = !row.missed && lambda <= longest;
                let bound = self.grown_bound(lambda as f64 / sigma as f64);
                if known || best.is_some_and(|best| bound <= best.cells) {
                    break;
                }
                if tries == TRIES {
                    let cells = self.grown_bound(f64::from(self.aspect.min(self.longest)) + 1.0);
                    let best = best.or_else(|| row.cost(long));
                    return best.map(|best| Extreme {
                        cells: best.cells.max(cells),
                        exact: false,
                        ..best
                    });
                }
                tries += 1;
                better(&mut best, row.cost(long));
                let rows = row.rows(long);
                next = row.last(|long| row.rows(long) > rows);
            }
        }
        best
    }

    /// No image of this ratio is grown to more cells.
    fn grown_bound(&self, ratio: f64) -> u64 {
        let unit = f64::from(self.frames) * f64::from(self.step) * f64::from(self.step);
        let (cells, root) = (self.least as f64 / unit, ratio.sqrt());
        ((cells + cells.sqrt() * (root + 1.0 / root) + 1.0) * SLACK) as u64
    }
}

/// The images of one short side, below the step.
struct Row<'a> {
    area: &'a Area,
    short: u32,
    /// Whether the enlarged short side is a pixel less than the step.
    missed: bool,
}

impl Row<'_> {
    /// The last long side that, as all shorter ones, is `fit`.
    fn last(&self, fit: impl Fn(u32) -> bool) -> Option<u32> {
        let (mut low, mut high) = (self.short, self.area.longest + 1);
        while low < high {
            let middle = low.midpoint(high);
            if fit(middle) { low = middle + 1 } else { high = middle }
        }
        (low > self.short).then(|| low - 1)
    }

    /// The last long side within the aspect limit.
    fn top(&self) -> Option<u32> {
        self.last(|long| {
            let (short, long) = self.area.computed(self.short, long);
            self.area.is_admissible(short, long)
        })
    }

    /// Whether the rounded area is at most this.
    fn is_within(&self, long: u32, limit: u64) -> bool {
        let (short, long) = self.area.computed(self.short, long);
        let step = u64::from(self.area.step);
        let cells = half_even_quotient(short, step) * half_even_quotient(long, step);
        u128::from(cells) * u128::from(step * step) * u128::from(self.area.frames)
            <= u128::from(limit)
    }

    /// The rows of a grown image; of one that is not grown, which is longer, none.
    fn rows(&self, long: u32) -> u64 {
        let is_grown = self
            .area
            .least
            .checked_sub(1)
            .is_some_and(|below| self.is_within(long, below.min(self.area.most)));
        self.area.grid(long, self.short).ok().filter(|_| is_grown).map_or(0, |(_, rows)| rows)
    }

    /// What one of them costs.
    fn cost(&self, long: u32) -> Option<Extreme> {
        let (columns, rows) = self.area.grid(long, self.short).ok()?;
        Some(Extreme { cells: columns * rows, width: long, height: self.short, exact: true })
    }
}

/// Takes what costs more, or as much and is exact.
fn better(best: &mut Option<Extreme>, next: Option<Extreme>) {
    let gain = |next: &Extreme| {
        best.is_none_or(|best| (next.cells, next.exact) > (best.cells, best.exact))
    };
    if let Some(next) = next.filter(gain) {
        *best = Some(next);
    }
}
