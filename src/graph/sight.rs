//! Which rows of a decoder see which, beyond what lies before them.

use std::iter::once;
use std::ops::Range;

use crate::backend::{KeyRanges, Mask};
use crate::descriptor::block::MaskRule;
use crate::plan::graph::AttentionPlan;

/// What of a prompt decides who sees whom.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prospect {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Runs of tokens that are encoder rows: ascending, none touching the next.
    pub runs: Vec<Range<usize>>,
    /// The strips of all items, markers included: ascending.
    pub strips: Vec<Range<usize>>,
    /// The states that attention over media reads, item by item in the order of their markers.
    pub states: Vec<SeenStates>,
    /// All states, also those of black tiles.
    pub all_states: usize,
}

/// The states of one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenStates {
    /// The token that stands for the item.
    pub marker: usize,
    /// Its states.
    pub rows: Range<usize>,
}

/// A mask that a decoder's layers share.
pub(super) enum Seen {
    Causal(usize),
    Ranges(KeyRanges),
}

impl Seen {
    pub(super) fn mask(&self) -> Mask<'_> {
        match self {
            Self::Causal(start) => Mask::Causal { start: *start },
            Self::Ranges(ranges) => Mask::Ranges(ranges),
        }
    }
}

impl Prospect {
    /// Joins runs that touch.
    pub fn joined(runs: impl IntoIterator<Item = Range<usize>>) -> Vec<Range<usize>> {
        let mut joined: Vec<Range<usize>> = Vec::new();
        for run in runs.into_iter().filter(|run| !run.is_empty()) {
            match joined.last_mut() {
                Some(last) if last.end == run.start => last.end = run.end,
                _ => joined.push(run),
            }
        }
        joined
    }

    /// What `count` rows that stand at `start` see of the rows so far, under the mask of `plan`.
    pub(super) fn of(&self, plan: &AttentionPlan, start: usize, count: usize) -> Seen {
        let end = start + count;
        let window = plan.window.filter(|window| *window < end);
        let cut = |row: usize| window.map_or(0, |window| (row + 1).saturating_sub(window));
        let plain = match plan.mask {
            MaskRule::MediaRuns => self.runs.is_empty() || start >= self.prompt,
            MaskRule::MediaAll => self.strips.is_empty() || start >= self.prompt,
            MaskRule::Prefix => start >= self.prompt,
            _ => true,
        };
        if plain && window.is_none() {
            return Seen::Causal(start);
        }
        let mut seen = KeyRanges::new();
        for row in start..end {
            match plan.mask {
                MaskRule::MediaRuns => {
                    let run = self.runs.iter().find(|run| run.contains(&row));
                    let last = run.map_or(row + 1, |run| run.end.max(row + 1));
                    seen.push(once(cut(row)..last.min(end)));
                }
                MaskRule::MediaAll if self.strips.iter().any(|strip| strip.contains(&row)) => {
                    let later = self.strips.iter().map(|strip| strip.start.max(row + 1)..strip.end);
                    let later = later.filter(|range| !range.is_empty());
                    seen.push(once(cut(row)..row + 1).chain(later));
                }
                // the reference's window does not cut what a prompt's rows see of each other
                MaskRule::Prefix if row < self.prompt => seen.push(once(0..self.prompt.min(end))),
                _ => seen.push(once(cut(row)..row + 1)),
            }
        }
        Seen::Ranges(seen)
    }

    /// What `count` rows that stand at `start` see of the media states, and which of them see none of their own: these look
    /// at all states, and their mlp leaves them as they are.
    ///
    /// As `get_cross_attention_token_mask` of `processing_mllama.py` and `_prepare_cross_attention_mask` of
    /// `modeling_mllama.py`: an item is seen from its marker to the next; items whose markers touch are seen together.
    /// Generated rows see what the prompt's last row sees.
    pub(super) fn of_states(&self, start: usize, count: usize) -> (KeyRanges, Vec<u32>) {
        let mut ends = vec![usize::MAX; self.states.len()];
        for index in (0..self.states.len().saturating_sub(1)).rev() {
            let (Some(own), Some(next)) = (self.states.get(index), self.states.get(index + 1))
            else {
                continue;
            };
            let touches = own.marker + 1 == next.marker;
            let end = if touches { ends.get(index + 1).copied() } else { Some(next.marker) };
            if let (Some(slot), Some(end)) = (ends.get_mut(index), end) {
                *slot = end;
            }
        }
        let (mut seen, mut passing) = (KeyRanges::new(), Vec::new());
        for place in start..start + count {
            let row = place.min(self.prompt.saturating_sub(1));
            let items = self.states.iter().zip(&ends);
            let items = items.filter(|(item, end)| item.marker <= row && row < **end);
            let ranges: Vec<_> = items.map(|(item, _)| item.rows.clone()).collect();
            if ranges.is_empty() {
                seen.push(once(0..self.all_states));
                passing.push((place - start) as u32);
            } else {
                seen.push(ranges);
            }
        }
        (seen, passing)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init)]

    use super::*;

    #[test]
    fn states_are_seen_up_to_the_next_marker() {
        let item = |marker, rows| SeenStates { marker, rows };
        let prospect = Prospect {
            prompt: 9,
            states: vec![item(1, 0..4), item(4, 6..8), item(5, 12..18)],
            all_states: 18,
            ..Prospect::default()
        };
        let (seen, passing) = prospect.of_states(0, 10);
        assert_eq!(passing, [0]);
        assert_eq!(seen.row(0), [0..18]);
        assert!((1..4).all(|row| seen.row(row) == [0..4]));
        assert_eq!(seen.row(4), [6..8]);
        assert!((5..10).all(|row| seen.row(row) == [6..8, 12..18]));
    }

    #[test]
    fn touching_runs_are_one() {
        assert_eq!(Prospect::joined([0..2, 2..2, 2..5, 6..7]), [0..5, 6..7]);
    }
}
