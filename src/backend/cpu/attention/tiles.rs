//! Attention for many queries, in tiles that stay in registers.
//!
//! Scores are computed transposed, a row for each key with the queries side by side. What the softmax takes over keys is
//! then taken lane by lane, and its result is already the right operand of the product with the values.

use super::super::functions::softcap;
use super::super::storage::Tensor;
use super::super::tiled::{Left, QUAD, Unit, left};
use super::super::workers::{Tile, with_scratch};
use super::blocks::{Block, Sight};
use super::hidden::hide;
use super::{Geometry, KeysValues};

/// Keys of a step: a multiple of the rows of the largest tile, so that scores of 32 queries stay in a first-level cache.
const KEYS: usize = 144;
/// Tiles of queries per task. Packing keys takes a small part of what so many queries do with them.
const TILES: usize = 32;

/// Rows of a task: queries times the query heads that share a key head.
pub(super) fn task_rows(unit: Unit) -> usize {
    TILES * unit.columns()
}

/// Computes one tile of the output: the query heads of one key head, for one block of queries.
pub(super) fn attend(
    unit: Unit,
    q: &Tensor,
    kv: KeysValues<'_>,
    geometry: &Geometry<'_>,
    block: &Block<'_>,
    tile: Tile<'_>,
) {
    let Geometry { attention, group, width } = *geometry;
    let (dim, columns) = (attention.head_dim, unit.columns());
    let (words, padded) = (unit.words(dim), dim.next_multiple_of(QUAD));
    let rows = block.queries.len() * group;
    let count = rows.div_ceil(columns);
    let keys = KEYS.min(block.longest().next_multiple_of(QUAD));
    let sizes = [
        count * words * columns,
        count * padded * columns,
        2 * count * columns,
        keys * words,
        unit.words(keys) * padded,
        keys * columns,
        if unit.takes_pairs() { unit.words(keys) * columns } else { 0 },
    ];
    with_scratch(sizes.iter().sum(), |mut scratch| {
        let [queries, sums, state, key_words, value_words, scores, pairs] = sizes.map(|size| {
            let (part, rest) = std::mem::take(&mut scratch).split_at_mut(size);
            scratch = rest;
            part
        });
        let (largest, totals) = state.split_at_mut(count * columns);
        largest.fill(f32::NEG_INFINITY);
        totals.fill(0.0);
        sums.fill(0.0);
        value_words.fill(0.0);
        // the heads of a group lie side by side, hence row `i * group + g` is head `g` of query `i`
        let head = |row: usize| {
            let query = block.queries.start + row / group;
            &q.values()[query * width + (tile.panel * group + row % group) * dim..][..dim]
        };
        pack_queries(unit, attention.scale, rows, head, queries);

        for span in &block.spans {
            for start in span.clone().step_by(KEYS) {
                let taken = KEYS.min(span.end - start);
                let line = |all, key| {
                    let all: &[f32] = all;
                    &all[(start + key) * kv.width + tile.panel * dim..][..dim]
                };
                let key = |key: usize| (key < taken).then(|| line(kv.keys, key));
                left(unit, words, key, &mut key_words[..taken.next_multiple_of(QUAD) * words]);
                let together = if unit.takes_pairs() { 2 } else { 1 };
                let steps = (0..taken).step_by(together).zip(value_words.chunks_exact_mut(padded));
                for (key, out) in steps {
                    let second =
                        (together == 2 && key + 1 < taken).then(|| line(kv.values, key + 1));
                    unit.round_rows(line(kv.values, key), second, out);
                }
                for part in 0..count {
                    let lanes = part * columns..rows.min((part + 1) * columns);
                    let seen = hide_from(block.sight, lanes.end, group, start, taken);
                    if seen == 0 {
                        continue;
                    }
                    let part = part * columns..(part + 1) * columns;
                    let right = &queries[part.start * words..part.end * words];
                    let left = Left { words: key_words, quad: QUAD * words, step: QUAD };
                    unit.multiply(left, (seen.div_ceil(QUAD), words), right, scores, false);
                    let scores = &mut scores[..seen * columns];
                    if let Some(cap) = attention.softcap {
                        softcap(cap, scores);
                    }
                    hide(block.sight, lanes, group, start, scores, columns);
                    let sums = &mut sums[part.start * padded..part.end * padded];
                    let state = (&mut largest[part.clone()], &mut totals[part]);
                    let right = unit.softmax(scores, state, sums, pairs);
                    let left = Left { words: value_words, quad: QUAD, step: padded };
                    unit.multiply(left, (padded / QUAD, unit.words(seen)), right, sums, true);
                }
            }
        }

        for (query, out) in tile.rows.into_iter().enumerate() {
            for (head, out) in out.chunks_exact_mut(dim).enumerate() {
                let row = query * group + head;
                let (part, lane) = (row / columns, row % columns);
                let total = totals[row];
                // a row that sees no key has no sums; otherwise the largest score alone adds 1
                if total != 0.0 {
                    let sums = &sums[part * columns * padded..];
                    for (out, sums) in out.iter_mut().zip(sums.chunks_exact(columns)) {
                        *out = sums[lane] / total;
                    }
                }
            }
        }
    });
}

/// How many of the `taken` keys from `start` on have to be computed for the rows before `end`: all up to the last one
/// that any of them sees, where that is cheap to tell.
fn hide_from(sight: Sight<'_>, end: usize, group: usize, start: usize, taken: usize) -> usize {
    match sight {
        Sight::Prefix { first } => (first + (end - 1) / group).saturating_sub(start).min(taken),
        Sight::Rows { .. } => taken,
    }
}

/// The queries as right operands: for each tile the words of the depth in rows, a column for each query.
fn pack_queries<'a>(
    unit: Unit,
    scale: f32,
    rows: usize,
    head: impl Fn(usize) -> &'a [f32],
    out: &mut [f32],
) {
    let columns = unit.columns();
    let words = out.len() / rows.div_ceil(columns) / columns;
    out.fill(0.0);
    for row in 0..rows {
        let out = &mut out[row / columns * columns * words + row % columns..];
        let line = head(row);
        if unit.takes_pairs() {
            for (pair, out) in line.chunks(2).zip(out.iter_mut().step_by(columns)) {
                let scaled = [pair[0] * scale, pair.get(1).map_or(0.0, |value| value * scale)];
                unit.round_rows(&scaled[..1], Some(&scaled[1..]), std::slice::from_mut(out));
            }
        } else {
            for (value, out) in line.iter().zip(out.iter_mut().step_by(columns)) {
                *out = value * scale;
            }
        }
    }
}
