//! The softmax of a tile of scores whose columns are queries.

use super::super::functions::exp;
use super::super::simd::Kernel;

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
