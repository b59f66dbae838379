//! Products of many rows with a weight matrix.

use super::super::storage::Tensor;
use super::super::weight::Weight;
use super::super::workers::{Tile, Workers, ranges, tiles, with_scratch};
use super::pack::{left, panel, panel_words, stage_words};
use super::{Left, QUAD, Unit};

/// The most rows whose left operand is packed at a time.
const ROWS: usize = 1024;
/// Rows of a task are a multiple of this, so that the largest tiles fill them.
const TILE_ROWS: usize = 12;
/// Panels per task. With [`DEPTH`] words of f32 they take half of a second-level cache of half a megabyte.
const PANELS: usize = 4;
/// The most words of the depth that a task packs at a time. Longer sums in one register would lose digits.
const DEPTH: usize = 384;
/// The fewest rows of a task, where there are enough of them: packing a panel takes as long as some rows.
const TASK_ROWS: usize = 192;
/// Tasks per thread, so that threads end at about the same time.
const TASKS: usize = 6;

/// `out = x Wᵀ` with `finish` called for each piece of a row when it is complete, with its row and first column.
pub(in super::super) fn linear(
    workers: &Workers,
    unit: Unit,
    x: &Tensor,
    weight: &Weight,
    out: &mut [f32],
    finish: impl Fn(&mut [f32], usize, usize) + Send + Sync,
) {
    let (rows, outputs) = (x.rows(), weight.outputs());
    let words = unit.words(x.width());
    if rows == 0 || outputs == 0 || words == 0 {
        return;
    }
    let width = PANELS * unit.columns();
    let count = rows.div_ceil(ROWS);
    let size = rows.div_ceil(count).next_multiple_of(TILE_ROWS);
    let work = size.saturating_mul(words);
    workers.lend(size * words, |packed| {
        for part in ranges(rows, size) {
            let pieces = packed.chunks_exact_mut(TILE_ROWS * words);
            let pieces = part.clone().step_by(TILE_ROWS).zip(pieces).collect();
            workers.each(pieces, work, |(first, piece)| {
                let row = |row: usize| (first + row < part.end).then(|| x.row(first + row));
                left(unit, words, row, piece);
            });
            let packed = &*packed;
            let tasks = (TASKS * workers.count()).div_ceil(outputs.div_ceil(width));
            let tasks = tasks.clamp(1, (part.len() / TASK_ROWS).max(1));
            let blocks = ranges(part.len(), part.len().div_ceil(tasks).next_multiple_of(TILE_ROWS));
            let out = &mut out[part.start * outputs..part.end * outputs];
            let tiles = tiles(out, outputs, &blocks, width);
            workers.each(tiles, work.saturating_mul(outputs), |tile| {
                let first = blocks[tile.block].start;
                let left = &packed[first * words..];
                product(unit, left, weight, tile, |line, row, column| {
                    finish(line, part.start + first + row, column);
                });
            });
        }
    });
}

/// Computes a tile of the output from the packed rows.
fn product(
    unit: Unit,
    left: &[f32],
    weight: &Weight,
    mut tile: Tile<'_>,
    finish: impl Fn(&mut [f32], usize, usize),
) {
    let columns = unit.columns();
    let words = unit.words(weight.inputs());
    let column = tile.panel * PANELS * columns;
    let count = tile.rows.first().map_or(0, |row| row.len());
    let depths = ranges(words, words.div_ceil(words.div_ceil(DEPTH)));
    let longest = depths.first().map_or(0, ExactSizeIterator::len);
    let size = panel_words(unit, longest);
    with_scratch(PANELS * size + TILE_ROWS * columns + stage_words(unit), |scratch| {
        let (panels, scratch) = scratch.split_at_mut(PANELS * size);
        let (sums, stage) = scratch.split_at_mut(TILE_ROWS * columns);
        for depth in &depths {
            for (start, out) in (0..count).step_by(columns).zip(panels.chunks_exact_mut(size)) {
                let outputs = column + start..column + count.min(start + columns);
                panel(unit, weight, outputs, depth.clone(), stage, out);
            }
            let last = depth.end == words;
            for (index, lines) in tile.rows.chunks_mut(TILE_ROWS).enumerate() {
                let first = index * TILE_ROWS;
                let words = &left[first * words + depth.start * QUAD..];
                let left = Left { words, quad: QUAD * unit.words(weight.inputs()), step: QUAD };
                let quads = lines.len().div_ceil(QUAD);
                for (start, right) in (0..count).step_by(columns).zip(panels.chunks_exact(size)) {
                    unit.multiply(left, (quads, depth.len()), right, sums, false);
                    let end = count.min(start + columns);
                    for (line, sums) in lines.iter_mut().zip(sums.chunks_exact(columns)) {
                        let line = &mut line[start..end];
                        if depth.start == 0 {
                            line.copy_from_slice(&sums[..line.len()]);
                        } else {
                            for (value, sum) in line.iter_mut().zip(sums) {
                                *value += sum;
                            }
                        }
                    }
                }
                if last {
                    for (row, line) in lines.iter_mut().enumerate() {
                        finish(line, first + row, column);
                    }
                }
            }
        }
    });
}
