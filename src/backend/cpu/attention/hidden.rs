//! Scores that a mask hides.

use std::ops::Range;

use super::blocks::Sight;

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
