//! Attention with a running softmax: scores exist for one tile of queries and keys at a time.

mod blocks;
mod hidden;
mod softmax;
#[cfg(test)]
mod tests;
mod tiles;

use super::functions::{check_cap, softcap};
use super::product::{View, product};
use super::simd::dispatch;
use super::storage::{Tensor, mismatch, unwritten};
use super::tiled::Units;
use super::workers::{Tile, Workers, tiles as cut, with_scratch};
use crate::backend::Attention;
use crate::error::Result;
use blocks::{Block, blocks};
use softmax::Softmax;

/// Rows of a tile of scores: queries times the query heads that share a key head.
const QUERY_ROWS: usize = 64;
/// The fewest rows, counted in the same way, that fill the tiles of wide units.
const TILED_ROWS: usize = 16;
/// Columns of a tile of scores.
const KEYS: usize = 256;

/// Keys and values, `[rows, width]` each, row-major.
#[derive(Clone, Copy)]
pub(super) struct KeysValues<'a> {
    /// The keys.
    pub(super) keys: &'a [f32],
    /// The values.
    pub(super) values: &'a [f32],
    /// The number of rows of either.
    pub(super) rows: usize,
    /// The number of elements in a row of either.
    pub(super) width: usize,
}

/// The numbers that every tile needs.
struct Geometry<'a> {
    attention: &'a Attention<'a>,
    /// Query heads per key head.
    group: usize,
    /// Elements of a row of queries.
    width: usize,
}

/// Attention of `q` over `kv`.
///
/// A task computes one block of queries for one key head, together with all query heads that read it, so that keys
/// are read once for the whole group. It walks over the keys in steps; after each step the sum of exponentials and the
/// weighted sum of values are relative to the largest score so far (M. Milakov, N. Gimelshein, arXiv:1805.02867).
pub(super) fn attention(
    workers: &Workers,
    units: Units,
    q: &Tensor,
    kv: KeysValues<'_>,
    attention: &Attention<'_>,
) -> Result<Tensor> {
    let Attention { heads, kv_heads, head_dim, .. } = *attention;
    if head_dim == 0 || kv_heads == 0 || heads == 0 || heads % kv_heads != 0 {
        return Err(mismatch(format!(
            "attention with `{heads}` heads, `{kv_heads}` key heads and `{head_dim}` elements per head is not possible"
        )));
    }
    let expect_width = |what: &str, width: usize, heads: usize| {
        if heads.checked_mul(head_dim) == Some(width) {
            return Ok(());
        }
        Err(mismatch(format!(
            "{what} have rows of `{width}`, expected `{heads}` heads of `{head_dim}`"
        )))
    };
    expect_width("the queries", q.width(), heads)?;
    expect_width("the keys", kv.width, kv_heads)?;
    attention.softcap.map_or(Ok(()), check_cap)?;

    let geometry = Geometry { attention, group: heads / kv_heads, width: q.width() };
    let many = q.rows().saturating_mul(geometry.group) >= TILED_ROWS;
    let unit = units.brain.or(units.single).filter(|_| many);
    let rows = unit.map_or(QUERY_ROWS, tiles::task_rows);
    let blocks = blocks(q.rows(), kv.rows, attention.mask, (rows / geometry.group).max(1))?;
    let mut out = unwritten(q.rows(), q.width())?;
    out.fill(0.0); // rows that see nothing are in no block
    let queries: Vec<_> = blocks.iter().map(|block| block.queries.clone()).collect();
    let scores = blocks.iter().map(Block::scores).fold(0, usize::saturating_add);
    let work = scores.saturating_mul(2 * q.width());
    let mut parts = cut(&mut out, q.width(), &queries, geometry.group * head_dim);
    // blocks that read the same keys one after the other
    parts.sort_by_key(|tile| tile.panel);
    workers.each(parts, work, |tile| {
        let block = &blocks[tile.block];
        match unit {
            Some(unit) => tiles::attend(unit, q, kv, &geometry, block, tile),
            None => attend(q, kv, &geometry, block, tile),
        }
    });
    Tensor::new(out, q.rows(), q.width())
}

/// Computes one tile: the query heads of one key head, for one block of queries.
fn attend(
    q: &Tensor,
    kv: KeysValues<'_>,
    geometry: &Geometry<'_>,
    block: &Block<'_>,
    tile: Tile<'_>,
) {
    let Geometry { attention, group, width } = *geometry;
    let dim = attention.head_dim;
    let rows = block.queries.len() * group;
    let step = KEYS.min(block.longest());
    with_scratch(rows * (2 * dim + step + 2), |scratch| {
        let (queries, scratch) = scratch.split_at_mut(rows * dim);
        let (sums, scratch) = scratch.split_at_mut(rows * dim);
        let (largest, scratch) = scratch.split_at_mut(rows);
        let (totals, scores) = scratch.split_at_mut(rows);
        sums.fill(0.0);
        largest.fill(f32::NEG_INFINITY);
        totals.fill(0.0);

        // the heads of a group lie side by side, hence row `i * group + g` is head `g` of query `i`
        let lines = q.values()[block.queries.start * width..].chunks(width);
        for (line, scaled) in lines.zip(queries.chunks_exact_mut(group * dim)) {
            let heads = &line[tile.panel * group * dim..][..group * dim];
            for (scaled, &value) in scaled.iter_mut().zip(heads) {
                *scaled = value * attention.scale;
            }
        }

        let steps = block.spans.iter().flat_map(|span| {
            span.clone().step_by(KEYS).map(|start| (start, KEYS.min(span.end - start)))
        });
        for (start, count) in steps {
            let first = start * kv.width + tile.panel * dim;
            let keys = View::rows(&kv.keys[first..], kv.width);
            let values = View::rows(&kv.values[first..], kv.width);
            let scores = &mut scores[..rows * count];
            product(scores, (rows, count, dim), View::rows(queries, dim), keys.transposed(), false);
            if let Some(cap) = attention.softcap {
                softcap(cap, scores);
            }
            let sight = block.sight;
            dispatch(Softmax { scores, count, group, start, sight, largest, totals, sums, dim });
            product(sums, (rows, dim, count), View::rows(scores, count), values, true);
        }

        let results = sums.chunks_exact(group * dim).zip(totals.chunks_exact(group));
        for (out, (sums, totals)) in tile.rows.into_iter().zip(results) {
            for ((out, sums), total) in
                out.chunks_exact_mut(dim).zip(sums.chunks_exact(dim)).zip(totals)
            {
                // a row that sees no key has no sums; otherwise the largest score alone adds 1
                if *total != 0.0 {
                    for (out, &sum) in out.iter_mut().zip(sums) {
                        *out = sum / total;
                    }
                }
            }
        }
    });
}
