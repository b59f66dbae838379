//! The softmax of one tile of scores, relative to the largest score so far.

use std::ops::Range;
use std::slice::from_ref;

use super::super::functions::exp;
use super::super::simd::{Kernel, LANES, sum_lanes};
use super::blocks::Sight;

/// Turns scores into exponentials relative to the largest score so far, and rescales what earlier steps summed up.
pub(super) struct Softmax<'a> {
    /// `[queries * group, count]`, row `i * group + g` of query `i`.
    pub(super) scores: &'a mut [f32],
    /// Scores in a row.
    pub(super) count: usize,
    /// Rows of a query.
    pub(super) group: usize,
    /// The key row of the first score of a row.
    pub(super) start: usize,
    /// What each query sees.
    pub(super) sight: Sight<'a>,
    /// The largest score so far, one a row.
    pub(super) largest: &'a mut [f32],
    /// The sum of exponentials so far, one a row.
    pub(super) totals: &'a mut [f32],
    /// The weighted sums of values so far, `[queries * group, dim]`.
    pub(super) sums: &'a mut [f32],
    /// Elements of a value.
    pub(super) dim: usize,
}

impl Kernel for Softmax<'_> {
    type Output = ();
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let lines =
            self.scores.chunks_exact_mut(self.count).zip(self.sums.chunks_exact_mut(self.dim));
        let state = self.largest.iter_mut().zip(self.totals);
        for (row, ((line, sums), (largest, total))) in lines.zip(state).enumerate() {
            let query = row / self.group;
            let prefix;
            let visible: &[Range<usize>] = match self.sight {
                Sight::Prefix { first } => {
                    prefix = 0..first + query;
                    from_ref(&prefix)
                }
                Sight::Rows { keys, first } => {
                    let ranges = keys.row(first + query);
                    let before = ranges.partition_point(|range| range.end <= self.start);
                    let ranges = &ranges[before..];
                    let tile_end = self.start + self.count;
                    &ranges[..ranges.partition_point(|range| range.start < tile_end)]
                }
            };
            // within the row of scores
            let clip = |range: &Range<usize>| {
                let place = |key: usize| key.saturating_sub(self.start).min(self.count);
                place(range.start)..place(range.end)
            };

            let mut highest = *largest;
            let mut hidden = 0;
            let mut sees = false;
            for range in visible {
                let range = clip(range);
                line[hidden..range.start].fill(0.0);
                hidden = range.end;
                sees |= !range.is_empty();
                highest = highest.max(highest_of(&line[range]));
            }
            line[hidden..].fill(0.0);
            if !sees {
                continue;
            }
            let correction = exp::<FUSED>(*largest - highest);
            *largest = highest;
            *total *= correction;
            for range in visible {
                *total += exponentials::<FUSED>(&mut line[clip(range)], highest);
            }
            for value in sums {
                *value *= correction;
            }
        }
    }
}

/// The largest score, NaN apart.
#[inline(always)]
fn highest_of(line: &[f32]) -> f32 {
    let (steps, rest) = line.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for step in steps {
        for lane in 0..LANES {
            lanes[lane] = if step[lane] > lanes[lane] { step[lane] } else { lanes[lane] };
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |highest, &score| highest.max(score))
}

/// Turns scores into exponentials relative to `highest`; their sum.
#[inline(always)]
fn exponentials<const FUSED: bool>(line: &mut [f32], highest: f32) -> f32 {
    let (steps, rest) = line.as_chunks_mut::<LANES>();
    let mut lanes = [0.0; LANES];
    for step in steps {
        for lane in 0..LANES {
            step[lane] = exp::<FUSED>(step[lane] - highest);
            lanes[lane] += step[lane];
        }
    }
    let mut sum = sum_lanes(lanes);
    for score in rest {
        *score = exp::<FUSED>(*score - highest);
        sum += *score;
    }
    sum
}
