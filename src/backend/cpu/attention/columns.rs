//! The softmax of a tile of scores whose columns are queries.

use std::ops::Range;

use super::super::functions::exp;
use super::super::simd::Kernel;
use super::super::tiled::round;
use super::blocks::Sight;

/// Turns scores into exponentials relative to the largest score so far, and rescales what earlier steps summed up.
pub(super) struct Columns<'a, const COLUMNS: usize> {
    /// A row for each key.
    pub(super) scores: &'a mut [f32],
    /// The largest score so far, one a column.
    pub(super) largest: &'a mut [f32],
    /// The sum of exponentials so far, one a column.
    pub(super) totals: &'a mut [f32],
    /// The weighted sums of values so far, a row for each element of a value.
    pub(super) sums: &'a mut [f32],
}

impl<const COLUMNS: usize> Kernel for Columns<'_, COLUMNS> {
    type Output = ();
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let keys = self.scores.as_chunks_mut::<COLUMNS>().0;
        let ([largest], [totals]) =
            (self.largest.as_chunks_mut::<COLUMNS>().0, self.totals.as_chunks_mut::<COLUMNS>().0)
        else {
            return;
        };
        let mut highest = *largest;
        for key in &*keys {
            for lane in 0..COLUMNS {
                // NaN apart
                highest[lane] = if key[lane] > highest[lane] { key[lane] } else { highest[lane] };
            }
        }
        let mut correction = [0.0; COLUMNS];
        let mut shift = [0.0; COLUMNS];
        let mut grown = false;
        for lane in 0..COLUMNS {
            // a query that has seen no key yet: all its exponentials are 0, not NaN
            let none = highest[lane] == f32::NEG_INFINITY;
            shift[lane] = if none { 0.0 } else { highest[lane] };
            correction[lane] = exp::<FUSED>(largest[lane] - shift[lane]);
            grown |= largest[lane] < highest[lane];
        }
        *largest = highest;
        let mut added = [0.0; COLUMNS];
        for key in keys {
            for lane in 0..COLUMNS {
                let value = exp::<FUSED>(key[lane] - shift[lane]);
                key[lane] = value;
                added[lane] += value;
            }
        }
        if !grown {
            for lane in 0..COLUMNS {
                totals[lane] += added[lane];
            }
            return;
        }
        for lane in 0..COLUMNS {
            totals[lane] = totals[lane] * correction[lane] + added[lane];
        }
        for element in self.sums.as_chunks_mut::<COLUMNS>().0 {
            for lane in 0..COLUMNS {
                element[lane] *= correction[lane];
            }
        }
    }
}

/// Rows of neighbouring keys as pairs of bf16; a last one alone is paired with 0.
pub(super) struct Pairs<'a> {
    /// A row for each key.
    pub(super) scores: &'a [f32],
    /// Elements of a row.
    pub(super) columns: usize,
    /// A row for each pair.
    pub(super) out: &'a mut [f32],
}

impl Kernel for Pairs<'_> {
    type Output = ();
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let columns = self.columns;
        let pairs = self.scores.chunks_exact(2 * columns);
        let rest = pairs.remainder();
        for (pair, out) in pairs.zip(self.out.chunks_exact_mut(columns)) {
            let (first, second) = pair.split_at(columns);
            for ((out, &first), &second) in out.iter_mut().zip(first).zip(second) {
                *out = f32::from_bits(round(first) | round(second) << 16);
            }
        }
        let done = self.scores.len() / (2 * columns) * columns;
        for (out, &first) in self.out[done..].iter_mut().zip(rest) {
            *out = f32::from_bits(round(first));
        }
    }
}

/// Sets to -∞ the scores of keys from `start` on that the queries of rows `lanes`, `group` rows a query, do not see.
pub(super) fn hide(
    sight: Sight<'_>,
    lanes: Range<usize>,
    group: usize,
    start: usize,
    scores: &mut [f32],
    columns: usize,
) {
    let count = scores.len() / columns;
    match sight {
        Sight::Prefix { first } => {
            // the first of the lanes sees the fewest keys
            let seen = (first + lanes.start / group).saturating_sub(start);
            for key in seen..count {
                // those of the queries before this one
                let hidden = ((start + key + 1).saturating_sub(first) * group)
                    .clamp(lanes.start, lanes.end)
                    - lanes.start;
                scores[key * columns..][..hidden].fill(f32::NEG_INFINITY);
            }
        }
        Sight::Rows { keys, first } => {
            for (lane, row) in lanes.enumerate() {
                let mut hidden = 0;
                let mut cover = |range: Range<usize>| {
                    for score in scores[range.start * columns + lane..]
                        .iter_mut()
                        .step_by(columns)
                        .take(range.len())
                    {
                        *score = f32::NEG_INFINITY;
                    }
                };
                for range in keys.row(first + row / group) {
                    let place = |key: usize| key.saturating_sub(start).min(count);
                    let range = place(range.start)..place(range.end);
                    if hidden < range.start {
                        cover(hidden..range.start);
                    }
                    hidden = hidden.max(range.end);
                }
                if hidden < count {
                    cover(hidden..count);
                }
            }
        }
    }
}
