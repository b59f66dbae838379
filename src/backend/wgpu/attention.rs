//! Attention, with masks turned into what a shader reads.

use std::sync::Arc;

use super::elements::each;
use super::kernel::{ATTENTION_KEYS, ATTENTION_ROWS, Kernel, LONGEST_HEAD};
use super::memory::Memory;
use super::stream::{Dispatch, Stream};
use super::tensor::{Tensor, mismatch};
use crate::backend::{Attention, KeyRanges, Mask};
use crate::error::Result;

/// Query rows that are few: each gets workgroups of its own.
const FEW_ROWS: usize = 15;
/// Workgroups that keep a device busy, about; where there are fewer, the keys of few rows are divided among more.
const BUSY_GROUPS: usize = 256;

/// Keys and values `[rows, width]`.
pub(super) struct KeysValues<'a> {
    pub(super) keys: &'a Memory,
    pub(super) values: &'a Memory,
    pub(super) rows: usize,
    pub(super) width: usize,
}

/// Who sees whom, as `shaders/parts/sight.wgsl` reads it.
struct Sight {
    kind: u32,
    start: u32,
    /// Per row and per range, where the kind needs them.
    tables: Option<(Arc<Memory>, Arc<Memory>)>,
    /// Pairs of rows and keys, about, to know the work.
    pairs: u64,
}

pub(super) fn attention(
    stream: &Stream,
    q: &Tensor,
    kv: &KeysValues<'_>,
    attention: &Attention<'_>,
) -> Result<Tensor> {
    let Attention { heads, kv_heads, head_dim, scale, softcap, mask } = *attention;
    if kv_heads == 0 || heads == 0 || heads % kv_heads != 0 {
        return Err(mismatch(format!("`{heads}` query heads cannot share `{kv_heads}` key heads")));
    }
    if heads.checked_mul(head_dim) != Some(q.width()) || kv_heads * head_dim != kv.width {
        return Err(mismatch(format!(
            "rows of `{}` and `{}` elements are not `{heads}` and `{kv_heads}` heads of `{head_dim}`",
            q.width(),
            kv.width
        )));
    }
    if head_dim == 0 || head_dim > LONGEST_HEAD {
        return Err(mismatch(format!(
            "heads of `{head_dim}` elements; at most {LONGEST_HEAD} are known here"
        )));
    }
    if softcap.is_some_and(|cap| !(cap > 0.0 && cap.is_finite())) {
        return Err(mismatch(format!("a soft cap must be a positive number, not `{softcap:?}`")));
    }
    let rows = q.rows();
    let out = Tensor::new(stream, rows, q.width())?;
    let sight = sight(stream, mask, rows, kv.rows)?;
    if out.count() == 0 {
        return Ok(out);
    }
    let aligned = head_dim % 4 == 0;
    let (kernel, groups) = if rows <= FEW_ROWS {
        let parts = (kv.rows / ATTENTION_KEYS).min(BUSY_GROUPS / (rows * heads)).max(1);
        (Kernel::AttentionRow { head: head_dim, aligned }, [rows, heads, parts])
    } else {
        let kernel = Kernel::Attention { head: head_dim, aligned };
        (kernel, [rows.div_ceil(ATTENTION_ROWS), heads, 1])
    };
    let parts = groups[2];
    // sums of the parts, with the largest score and the sum of weights of each
    let found = match parts {
        1 => out.clone(),
        _ => Tensor::new(stream, rows * heads * parts, head_dim + 2)?,
    };
    let (sights, ranges) = match &sight.tables {
        Some((sights, ranges)) => (&**sights, &**ranges),
        None => (kv.keys, kv.keys), // not read
    };
    stream.dispatch(&Dispatch {
        kernel,
        output: found.memory(),
        inputs: &[q.memory(), kv.keys, kv.values, sights, ranges],
        parameters: &[
            rows as u32,
            kv.rows as u32,
            heads as u32,
            (heads / kv_heads) as u32,
            sight.kind,
            sight.start,
            scale.to_bits(),
            softcap.unwrap_or(0.0).to_bits(),
            parts as u32,
        ],
        groups,
        work: sight.pairs * 2 * q.width() as u64,
    })?;
    if parts > 1 {
        let kernel = Kernel::AttentionJoin { head: head_dim };
        each(stream, kernel, &out, &[found.memory()], &[parts as u32])?;
    }
    Ok(out)
}

fn sight(stream: &Stream, mask: Mask<'_>, rows: usize, keys: usize) -> Result<Sight> {
    let all = (rows * keys) as u64;
    match mask {
        Mask::Causal { start } => {
            if start.checked_add(rows).is_none_or(|end| end > keys) {
                return Err(mismatch(format!(
                    "`{rows}` query rows from row `{start}` on, but there are `{keys}` key rows"
                )));
            }
            Ok(Sight { kind: 1, start: start as u32, tables: None, pairs: all / 2 })
        }
        Mask::Segments(lengths) => {
            if lengths.iter().sum::<usize>() != rows || rows != keys {
                return Err(mismatch(format!(
                    "segments of `{}` rows in all, for `{rows}` query rows and `{keys}` key rows",
                    lengths.iter().sum::<usize>()
                )));
            }
            if lengths.len() <= 1 {
                return Ok(Sight { kind: 0, start: 0, tables: None, pairs: all });
            }
            let mut sights = Vec::with_capacity(4 * rows);
            let (mut start, mut pairs) = (0, 0);
            for &length in lengths {
                let row = [start as u32, (start + length) as u32, 0, 0];
                (0..length).for_each(|_| sights.extend(row));
                start += length;
                pairs += (length * length) as u64;
            }
            tabled(stream, &sights, &[], pairs)
        }
        Mask::Ranges(ranges) => {
            if ranges.rows() != rows || ranges.reach() > keys {
                return Err(mismatch(format!(
                    "visible keys of `{}` rows up to key `{}`, for `{rows}` query rows and `{keys}` key rows",
                    ranges.rows(),
                    ranges.reach()
                )));
            }
            let (sights, pieces, pairs) = listed(ranges);
            tabled(stream, &sights, &pieces, pairs)
        }
    }
}

/// Rows with their first key, one more than their last, and where their ranges are in the list, which comes next.
fn listed(ranges: &KeyRanges) -> (Vec<u32>, Vec<u32>, u64) {
    let (mut sights, mut pieces, mut pairs) = (Vec::new(), Vec::<u32>::new(), 0);
    for row in 0..ranges.rows() {
        let seen = ranges.row(row);
        let first = seen.first().map_or(0, |range| range.start);
        let last = seen.last().map_or(0, |range| range.end);
        let from = pieces.len() / 2;
        if seen.len() > 1 {
            pieces.extend(seen.iter().flat_map(|range| [range.start as u32, range.end as u32]));
        }
        sights.extend([first as u32, last as u32, from as u32, (pieces.len() / 2) as u32]);
        pairs += (last - first) as u64;
    }
    (sights, pieces, pairs)
}

fn tabled(stream: &Stream, sights: &[u32], pieces: &[u32], pairs: u64) -> Result<Sight> {
    let tables = (stream.table(sights)?, stream.table(pieces)?);
    Ok(Sight { kind: 2, start: 0, tables: Some(tables), pairs })
}
