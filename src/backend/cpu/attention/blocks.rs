//! How queries are cut into blocks, and which keys the rows of a block see.

use std::iter::once;
use std::ops::Range;

use super::super::storage::mismatch;
use super::super::workers::ranges;
use crate::backend::{KeyRanges, Mask};
use crate::error::Result;

/// Keys that no query of a block sees, between keys that one does: up to so many are computed all the same, as a tile
/// of its own for what follows would cost more.
const GAP: usize = 32;

/// Consecutive queries, and the keys that at least one of them sees.
pub(super) struct Block<'a> {
    /// The queries.
    pub(super) queries: Range<usize>,
    /// Ascending and disjoint. What lies outside is neither read nor computed.
    pub(super) spans: Vec<Range<usize>>,
    /// What each of the queries sees.
    pub(super) sight: Sight<'a>,
}

/// What the queries of a block see, counted from its first.
#[derive(Clone, Copy)]
pub(super) enum Sight<'a> {
    /// Query `i` sees those keys of the spans that lie before `first + i`.
    Prefix { first: usize },
    /// Query `i` sees the keys of row `first + i`.
    Rows { keys: &'a KeyRanges, first: usize },
}

impl<'a> Block<'a> {
    /// How many scores a head computes.
    pub(super) fn scores(&self) -> usize {
        let keys = self.spans.iter().map(ExactSizeIterator::len).fold(0, usize::saturating_add);
        keys.saturating_mul(self.queries.len())
    }

    /// The length of the longest span.
    pub(super) fn longest(&self) -> usize {
        self.spans.iter().map(ExactSizeIterator::len).max().unwrap_or(0)
    }

    /// What some rows see.
    fn of_rows(keys: &'a KeyRanges, queries: Range<usize>) -> Self {
        let mut all: Vec<_> = queries.clone().flat_map(|query| keys.row(query)).cloned().collect();
        all.sort_unstable_by_key(|range| range.start);
        let mut spans: Vec<Range<usize>> = Vec::new();
        for range in all {
            match spans.last_mut() {
                Some(last) if range.start <= last.end.saturating_add(GAP) => {
                    last.end = last.end.max(range.end);
                }
                _ => spans.push(range),
            }
        }
        let sight = Sight::Rows { keys, first: queries.start };
        Self { queries, spans, sight }
    }
}

/// Cuts the queries into blocks of at most `size` that share a mask.
pub(super) fn blocks(
    queries: usize,
    keys: usize,
    mask: Mask<'_>,
    size: usize,
) -> Result<Vec<Block<'_>>> {
    match mask {
        Mask::Segments(lengths) => {
            let total = lengths.iter().try_fold(0_usize, |sum, &length| sum.checked_add(length));
            if total != Some(queries) || queries != keys {
                let total =
                    total.map_or_else(|| "more than fits".to_owned(), |total| total.to_string());
                return Err(mismatch(format!(
                    "segments of `{total}` rows do not cover `{queries}` queries and `{keys}` keys"
                )));
            }
            let mut blocks = Vec::new();
            let mut begin = 0;
            for &length in lengths {
                let end = begin + length;
                blocks.extend(ranges(length, size).into_iter().map(|part| Block {
                    queries: begin + part.start..begin + part.end,
                    spans: once(begin..end).collect(),
                    sight: Sight::Prefix { first: end },
                }));
                begin = end;
            }
            Ok(blocks)
        }
        Mask::Causal { start } => {
            if start.checked_add(queries).is_none_or(|end| end > keys) {
                return Err(mismatch(format!(
                    "`{queries}` queries from key row `{start}` are beyond the `{keys}` keys"
                )));
            }
            let block = |queries: Range<usize>| Block {
                spans: once(0..start + queries.end).collect(),
                sight: Sight::Prefix { first: start + queries.start + 1 },
                queries,
            };
            Ok(ranges(queries, size).into_iter().map(block).collect())
        }
        Mask::Ranges(visible) => {
            if visible.rows() != queries {
                return Err(mismatch(format!(
                    "visible keys of `{}` rows do not fit `{queries}` queries",
                    visible.rows()
                )));
            }
            if visible.reach() > keys {
                return Err(mismatch(format!(
                    "a query is to see key row `{}`, which is beyond the `{keys}` keys",
                    visible.reach() - 1
                )));
            }
            let block = |queries| Block::of_rows(visible, queries);
            Ok(ranges(queries, size).into_iter().map(block).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_no_query_of_a_block_sees_are_left_out() {
        let mut visible = KeyRanges::new();
        for query in 0..1000_usize {
            visible.push(once(query.saturating_sub(99)..query + 1));
        }
        let blocks = blocks(1000, 1000, Mask::Ranges(&visible), 64).unwrap();
        for block in &blocks {
            let expected = block.queries.start.saturating_sub(99)..block.queries.end;
            assert_eq!(block.spans, [expected]);
            assert_eq!(block.scores(), block.longest() * block.queries.len());
        }
    }

    #[test]
    fn near_spans_are_one_and_far_spans_are_not() {
        let mut visible = KeyRanges::new();
        visible.push([40..50, 300..310]);
        visible.push([0..10, 50 + GAP..90, 400..410]);
        visible.push([]);
        let found = blocks(3, 500, Mask::Ranges(&visible), 2).unwrap();
        assert_eq!(found[0].spans, [0..90, 300..310, 400..410]);
        assert_eq!((found[0].scores(), found[0].longest()), (220, 90));
        assert_eq!((found[1].spans.len(), found[1].scores(), found[1].longest()), (0, 0, 0));
    }
}
