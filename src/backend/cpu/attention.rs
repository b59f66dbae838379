//! Attention with a running softmax: scores exist for one tile of queries and keys at a time.

use std::ops::Range;

use super::functions::exp;
use super::product::{View, product};
use super::simd::{Kernel, LANES, dispatch, sum_lanes};
use super::storage::{Tensor, mismatch, zeros};
use super::workers::{Tile, Workers, ranges, tiles, with_scratch};
use crate::backend::{Attention, Mask};
use crate::error::Result;

/// Rows of a tile of scores: queries times the query heads that share a key head.
const QUERY_ROWS: usize = 64;
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

/// Consecutive queries, and the keys that at least one of them sees.
struct Block {
    queries: Range<usize>,
    keys: Range<usize>,
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

    let geometry = Geometry { attention, group: heads / kv_heads, width: q.width() };
    let blocks = blocks(q.rows(), kv.rows, attention.mask, (QUERY_ROWS / geometry.group).max(1))?;
    let mut out = zeros(q.rows(), q.width())?;
    let queries: Vec<_> = blocks.iter().map(|block| block.queries.clone()).collect();
    let seen = blocks.iter().map(|block| block.keys.len().saturating_mul(block.queries.len()));
    let work = seen.fold(0, usize::saturating_add).saturating_mul(2 * q.width());
    let tiles = tiles(&mut out, q.width(), &queries, geometry.group * head_dim);
    workers.each(tiles, work, |tile| attend(q, kv, &geometry, &blocks[tile.block], tile));
    Tensor::new(out, q.rows(), q.width())
}

/// Cuts the queries into blocks of `size` that share a mask.
fn blocks(queries: usize, keys: usize, mask: Mask<'_>, size: usize) -> Result<Vec<Block>> {
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
                let keys = begin..begin + length;
                blocks.extend(ranges(length, size).into_iter().map(|part| Block {
                    queries: begin + part.start..begin + part.end,
                    keys: keys.clone(),
                }));
                begin += length;
            }
            Ok(blocks)
        }
        Mask::Causal { start } => {
            if start.checked_add(queries).is_none_or(|end| end > keys) {
                return Err(mismatch(format!(
                    "`{queries}` queries from key row `{start}` are beyond the `{keys}` keys"
                )));
            }
            let block = |queries: Range<usize>| Block { keys: 0..start + queries.end, queries };
            Ok(ranges(queries, size).into_iter().map(block).collect())
        }
    }
}

/// Computes one tile: the query heads of one key head, for one block of queries.
fn attend(q: &Tensor, kv: KeysValues<'_>, geometry: &Geometry<'_>, block: &Block, tile: Tile<'_>) {
    let Geometry { attention, group, width } = *geometry;
    let dim = attention.head_dim;
    let rows = block.queries.len() * group;
    let step = KEYS.min(block.keys.len());
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

        let reach = match attention.mask {
            Mask::Segments(_) => block.keys.end,
            Mask::Causal { start } => start + block.queries.start + 1,
        };
        for start in block.keys.clone().step_by(KEYS) {
            let count = KEYS.min(block.keys.end - start);
            let first = start * kv.width + tile.panel * dim;
            let keys = View::rows(&kv.keys[first..], kv.width);
            let values = View::rows(&kv.values[first..], kv.width);
            let scores = &mut scores[..rows * count];
            product(scores, (rows, count, dim), View::rows(queries, dim), keys.transposed(), false);
            dispatch(Softmax { scores, count, group, start, reach, largest, totals, sums, dim });
            product(sums, (rows, dim, count), View::rows(scores, count), values, true);
        }

        let results = sums.chunks_exact(group * dim).zip(totals.chunks_exact(group));
        for (out, (sums, totals)) in tile.rows.into_iter().zip(results) {
            for ((out, sums), total) in
                out.chunks_exact_mut(dim).zip(sums.chunks_exact(dim)).zip(totals)
            {
                for (out, &sum) in out.iter_mut().zip(sums) {
                    *out = sum / total;
                }
            }
        }
    });
}

/// Turns scores into exponentials relative to the largest score so far, and rescales what earlier steps summed up.
struct Softmax<'a> {
    /// `[queries * group, count]`.
    scores: &'a mut [f32],
    count: usize,
    group: usize,
    /// The key row of the first score of a row.
    start: usize,
    /// The first query sees the key rows before this one; each further query sees one more, if there is one.
    reach: usize,
    /// The largest score so far, one a row.
    largest: &'a mut [f32],
    /// The sum of exponentials so far, one a row.
    totals: &'a mut [f32],
    /// The weighted sums of values so far, `[queries * group, dim]`.
    sums: &'a mut [f32],
    dim: usize,
}

impl Kernel for Softmax<'_> {
    type Output = ();
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let lines =
            self.scores.chunks_exact_mut(self.count).zip(self.sums.chunks_exact_mut(self.dim));
        let state = self.largest.iter_mut().zip(self.totals);
        for (row, ((line, sums), (largest, total))) in lines.zip(state).enumerate() {
            let visible =
                (self.reach + row / self.group).saturating_sub(self.start).min(self.count);
            let (line, hidden) = line.split_at_mut(visible);
            hidden.fill(0.0);
            if line.is_empty() {
                continue;
            }
            let highest = highest(line).max(*largest);
            let correction = exp::<FUSED>(*largest - highest);
            *largest = highest;

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
            *total = *total * correction + sum;
            for value in sums {
                *value *= correction;
            }
        }
    }
}

/// The largest score, NaN apart.
#[inline(always)]
fn highest(line: &[f32]) -> f32 {
    let (steps, rest) = line.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for step in steps {
        for lane in 0..LANES {
            lanes[lane] = if step[lane] > lanes[lane] { step[lane] } else { lanes[lane] };
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |highest, &score| highest.max(score))
}

#[cfg(test)]
mod tests {
    use super::super::cache::Cache;
    use super::super::testing::{assert_close, on_any_threads, tensor};
    use super::*;

    /// Weights add up to 1 and values are below 1, so an error of a score matters as it is: scores below 16 from up to
    /// 130 terms are within 1e-5, exponentials and sums within 1e-6.
    const TOLERANCE: f64 = 1e-5;

    fn view<'a>(k: &'a Tensor, v: &'a Tensor) -> KeysValues<'a> {
        KeysValues { keys: k.values(), values: v.values(), rows: k.rows(), width: k.width() }
    }

    /// Attention as it is defined, in f64. `sees` says whether a query sees a key.
    fn reference(
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        geometry: &Attention<'_>,
        sees: impl Fn(usize, usize) -> bool,
    ) -> Vec<f64> {
        let dim = geometry.head_dim;
        let mut out = vec![0.0; q.rows() * q.width()];
        for query in 0..q.rows() {
            for head in 0..geometry.heads {
                let kv_head = head / (geometry.heads / geometry.kv_heads);
                let keys: Vec<usize> = (0..k.rows()).filter(|&key| sees(query, key)).collect();
                let scores: Vec<f64> = keys
                    .iter()
                    .map(|&key| {
                        let q = &q.row(query)[head * dim..][..dim];
                        let k = &k.row(key)[kv_head * dim..][..dim];
                        let dot: f64 =
                            q.iter().zip(k).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum();
                        dot * f64::from(geometry.scale)
                    })
                    .collect();
                let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
                for (&key, score) in keys.iter().zip(scores) {
                    for element in 0..dim {
                        out[query * q.width() + head * dim + element] += (score - largest).exp()
                            / total
                            * f64::from(v.row(key)[kv_head * dim + element]);
                    }
                }
            }
        }
        out
    }

    const HEADS: [(usize, usize, usize); 8] = [
        (1, 1, 1),
        (2, 2, 8),
        (4, 2, 16),
        (3, 1, 72),
        (2, 2, 80),
        (2, 1, 128),
        (1, 1, 7),
        (70, 1, 3),
    ];

    #[test]
    fn causal_rows_match_f64() {
        for (heads, kv_heads, head_dim) in HEADS {
            for (start, queries, unseen) in [
                (0, 1, 0),
                (0, 5, 0),
                (4, 1, 0),
                (3, 2, 2),
                (0, 130, 0),
                (16, 17, 1),
                (300, 3, 0),
                (250, 70, 3),
            ] {
                let q = tensor(queries, heads * head_dim, 1);
                let rows = start + queries + unseen;
                let (k, v) =
                    (tensor(rows, kv_heads * head_dim, 2), tensor(rows, kv_heads * head_dim, 3));
                let geometry = Attention {
                    heads,
                    kv_heads,
                    head_dim,
                    scale: 0.7,
                    mask: Mask::Causal { start },
                };
                let found = on_any_threads(|workers| {
                    attention(workers, &q, view(&k, &v), &geometry).unwrap()
                });
                let expected = reference(&q, &k, &v, &geometry, |query, key| key <= start + query);
                let what = format!("{heads}/{kv_heads} x {head_dim}: {queries} from {start}");
                assert_close(&found, &expected, TOLERANCE, &what);
            }
        }
    }

    #[test]
    fn segments_match_f64() {
        let cuts: [&[usize]; 7] =
            [&[1], &[5], &[0, 2, 0], &[1, 1, 3], &[17, 0, 130, 1], &[300], &[64, 256, 9]];
        for (heads, kv_heads, head_dim) in HEADS {
            for lengths in cuts {
                let rows = lengths.iter().sum();
                let q = tensor(rows, heads * head_dim, 1);
                let (k, v) =
                    (tensor(rows, kv_heads * head_dim, 2), tensor(rows, kv_heads * head_dim, 3));
                let mask = Mask::Segments(lengths);
                let geometry = Attention { heads, kv_heads, head_dim, scale: 0.7, mask };
                let found = on_any_threads(|workers| {
                    attention(workers, &q, view(&k, &v), &geometry).unwrap()
                });
                let ends: Vec<usize> = lengths
                    .iter()
                    .scan(0, |end, &length| {
                        *end += length;
                        Some(*end)
                    })
                    .collect();
                let segment = |row: usize| ends.iter().position(|&end| row < end);
                let expected =
                    reference(&q, &k, &v, &geometry, |query, key| segment(query) == segment(key));
                assert_close(
                    &found,
                    &expected,
                    TOLERANCE,
                    &format!("{heads}/{kv_heads} x {head_dim}: {lengths:?}"),
                );
            }
        }
    }

    #[test]
    fn scores_far_apart_do_not_overflow() {
        let (q, k, v) = (tensor(9, 16, 1), tensor(600, 16, 2), tensor(600, 16, 3));
        let geometry = Attention {
            heads: 2,
            kv_heads: 2,
            head_dim: 8,
            scale: 300.0,
            mask: Mask::Causal { start: 591 },
        };
        let found =
            on_any_threads(|workers| attention(workers, &q, view(&k, &v), &geometry).unwrap());
        let expected = reference(&q, &k, &v, &geometry, |query, key| key <= 591 + query);
        // scores reach 1000 and are rounded by up to 3e-5, a few times
        assert_close(&found, &expected, 5e-4, "large scores");
    }

    #[test]
    fn a_cache_gives_the_bits_of_its_rows() {
        let (q, k, v) = (tensor(3, 24, 1), tensor(40, 12, 2), tensor(40, 12, 3));
        let mut cache = Cache::new(50, 12).unwrap();
        cache.append(&k, &v).unwrap();
        let geometry = Attention {
            heads: 6,
            kv_heads: 3,
            head_dim: 4,
            scale: 1.0,
            mask: Mask::Causal { start: 37 },
        };
        let direct =
            on_any_threads(|workers| attention(workers, &q, view(&k, &v), &geometry).unwrap());
        let kv = KeysValues {
            keys: cache.keys(),
            values: cache.values(),
            rows: cache.rows(),
            width: cache.width(),
        };
        let cached = on_any_threads(|workers| attention(workers, &q, kv, &geometry).unwrap());
        assert_eq!(direct.values(), cached.values());
    }

    #[test]
    fn nan_is_not_hidden() {
        let (mut q, k, v) = (tensor(2, 8, 1), tensor(2, 8, 2), tensor(2, 8, 3));
        q.values_mut()[0] = f32::NAN;
        let geometry = Attention {
            heads: 1,
            kv_heads: 1,
            head_dim: 8,
            scale: 1.0,
            mask: Mask::Segments(&[2]),
        };
        let found =
            on_any_threads(|workers| attention(workers, &q, view(&k, &v), &geometry).unwrap());
        assert!(found.row(0).iter().all(|value| value.is_nan()));
        assert!(found.row(1).iter().all(|value| value.is_finite()));
    }

    #[test]
    fn no_queries_and_misfits() {
        let workers = Workers::new(2).unwrap();
        let (k, v) = (tensor(5, 6, 2), tensor(5, 6, 3));
        let call = |rows: usize, width: usize, (heads, kv_heads, head_dim), mask| {
            let geometry = Attention { heads, kv_heads, head_dim, scale: 1.0, mask };
            attention(&workers, &tensor(rows, width, 1), view(&k, &v), &geometry)
        };
        let causal = |start| Mask::Causal { start };
        assert_eq!(call(0, 12, (4, 2, 3), causal(5)).unwrap().describe(), "[0, 12]");
        for (rows, width, heads, mask) in [
            (2, 12, (4, 2, 3), causal(4)),
            (2, 12, (4, 2, 3), causal(usize::MAX)),
            (0, 12, (4, 2, 3), causal(6)),
            (2, 11, (4, 2, 3), causal(0)),
            (2, 12, (4, 3, 2), causal(0)),
            (2, 12, (4, 4, 3), causal(0)),
            (2, 12, (0, 2, 3), causal(0)),
            (2, 12, (4, 0, 3), causal(0)),
            (2, 12, (4, 2, 0), causal(0)),
            (2, 12, (usize::MAX, 1, 6), causal(0)),
            (5, 12, (4, 2, 3), Mask::Segments(&[4])),
            (5, 12, (4, 2, 3), Mask::Segments(&[4, 2])),
            (5, 12, (4, 2, 3), Mask::Segments(&[usize::MAX, 6])),
            (4, 12, (4, 2, 3), Mask::Segments(&[4])),
        ] {
            let error = call(rows, width, heads, mask).unwrap_err();
            assert_eq!(error.kind(), crate::error::ErrorKind::Backend, "{mask:?}");
        }
        let error = call(2, 12, (4, 2, 3), causal(4)).unwrap_err();
        assert_eq!(error.message(), "`2` queries from key row `4` are beyond the `5` keys");
    }
}
