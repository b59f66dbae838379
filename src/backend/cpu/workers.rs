//! Threads, and how work is cut for them.
//!
//! Work is cut by its shape alone and every piece is computed by one thread in one order, so no result depends on the
//! number of threads or on which thread runs first.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Mutex;

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::pool::User;
use crate::error::{Error, ErrorKind, Result};

/// Below this many scalar operations, waking other threads costs more than it saves.
const SMALL_WORK: usize = 1 << 16;

/// Elements per piece of an elementwise operation.
const CHUNK: usize = 1 << 13;

/// A pool of threads.
pub(super) struct Workers {
    pool: ThreadPool,
    /// Memory for operands that all threads read.
    shared: Mutex<Vec<f32>>,
    /// Keeps the memory of tensors for the next ones.
    _memory: User,
}

/// The part of a row-major output that one task writes: some rows, and of each the same columns.
pub(super) struct Tile<'a> {
    /// Which range of rows, counted from 0.
    pub(super) block: usize,
    /// Which panel of columns, counted from 0.
    pub(super) panel: usize,
    /// The piece of each row.
    pub(super) rows: Vec<&'a mut [f32]>,
}

impl Workers {
    /// `threads` threads, at least one.
    pub(super) fn new(threads: usize) -> Result<Self> {
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|index| format!("cpu-{index}"))
            .build()
            .map_err(|error| {
                Error::new(ErrorKind::Backend, format!("cannot start `{threads}` threads"))
                    .with_source(error)
            })?;
        Ok(Self { pool, shared: Mutex::default(), _memory: User::new() })
    }

    /// The number of threads.
    pub(super) fn count(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Lends scratch memory that several threads may read, `length` elements with arbitrary contents. It is kept for the
    /// next call, so `length` must be bounded.
    pub(super) fn lend<R>(&self, length: usize, task: impl FnOnce(&mut [f32]) -> R) -> R {
        let mut own = Vec::new();
        // another call that runs at the same time has its own
        let mut shared = self.shared.try_lock();
        let memory = shared.as_deref_mut().unwrap_or(&mut own);
        if memory.len() < length {
            memory.resize(length, 0.0);
        }
        task(&mut memory[..length])
    }

    /// Runs `task` on every item. `work` estimates the scalar operations of all items together; little work stays on
    /// the calling thread.
    pub(super) fn each<T: Send>(&self, items: Vec<T>, work: usize, task: impl Fn(T) + Send + Sync) {
        if self.count() == 1 || items.len() < 2 || work < SMALL_WORK {
            items.into_iter().for_each(task);
        } else {
            self.pool.install(|| items.into_par_iter().with_max_len(1).for_each(task));
        }
    }

    /// Runs `task` on consecutive pieces of `out`, each with the index of its first element. Pieces are whole multiples
    /// of `unit` elements; `work` is per element.
    pub(super) fn pieces(
        &self,
        out: &mut [f32],
        unit: usize,
        work: usize,
        task: impl Fn(usize, &mut [f32]) + Send + Sync,
    ) {
        let unit = unit.max(1);
        let size = (CHUNK / unit).max(1) * unit;
        let total = out.len().saturating_mul(work);
        let pieces = out.chunks_mut(size).enumerate().collect();
        self.each(pieces, total, |(index, piece)| task(index * size, piece));
    }
}

/// Cuts a row-major `[rows, width]` output into tiles: `blocks` are consecutive ranges of rows that cover all of them,
/// panels are `panel` columns wide, the last perhaps less.
pub(super) fn tiles<'a>(
    out: &'a mut [f32],
    width: usize,
    blocks: &[Range<usize>],
    panel: usize,
) -> Vec<Tile<'a>> {
    if out.is_empty() {
        return Vec::new(); // also where the width is 0
    }
    let panels = width.div_ceil(panel);
    let mut tiles = Vec::with_capacity(blocks.len() * panels);
    let mut lines = out.chunks_exact_mut(width);
    for (block, range) in blocks.iter().enumerate() {
        let first = tiles.len();
        tiles.extend((0..panels).map(|panel| Tile {
            block,
            panel,
            rows: Vec::with_capacity(range.len()),
        }));
        for line in lines.by_ref().take(range.len()) {
            for (tile, piece) in tiles[first..].iter_mut().zip(line.chunks_mut(panel)) {
                tile.rows.push(piece);
            }
        }
    }
    tiles
}

/// `0..rows` cut into ranges of `size`, the last perhaps shorter.
pub(super) fn ranges(rows: usize, size: usize) -> Vec<Range<usize>> {
    (0..rows)
        .step_by(size.max(1))
        .map(|start| start..rows.min(start.saturating_add(size.max(1))))
        .collect()
}

thread_local! {
    static SCRATCH: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Lends this thread's scratch memory, `length` elements with arbitrary contents. It is kept for the next call, so
/// `length` must be bounded.
pub(super) fn with_scratch<R>(length: usize, task: impl FnOnce(&mut [f32]) -> R) -> R {
    // taken out while in use: a nested call would find an empty vector and allocate its own
    let mut scratch = SCRATCH.take();
    if scratch.len() < length {
        scratch.resize(length, 0.0);
    }
    let result = task(&mut scratch[..length]);
    SCRATCH.set(scratch);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_all_rows() {
        assert_eq!(ranges(0, 4), Vec::<Range<usize>>::new());
        assert_eq!(ranges(9, 4), vec![0..4, 4..8, 8..9]);
        assert_eq!(ranges(2, usize::MAX).first(), Some(&(0..2)));
    }

    #[test]
    fn tiles_cover_every_element_once() {
        let mut out = vec![0.0; 5 * 7];
        for tile in tiles(&mut out, 7, &ranges(5, 2), 3) {
            for (row, piece) in tile.rows.into_iter().enumerate() {
                for (column, value) in piece.iter_mut().enumerate() {
                    *value += ((tile.block * 2 + row) * 7 + tile.panel * 3 + column) as f32;
                }
            }
        }
        let expected: Vec<f32> = (0..35).map(|index| index as f32).collect();
        assert_eq!(out, expected);
        assert!(tiles(&mut [], 0, &ranges(5, 2), 3).is_empty());
    }

    #[test]
    fn pieces_are_whole_units_on_any_number_of_threads() {
        for threads in [1, 2, 3] {
            let workers = Workers::new(threads).unwrap();
            let mut out = vec![0.0; 3 * 40_000];
            workers.pieces(&mut out, 3, 1, |start, piece| {
                assert_eq!((start % 3, piece.len() % 3), (0, 0));
                for (offset, value) in piece.iter_mut().enumerate() {
                    *value = (start + offset) as f32;
                }
            });
            assert!(
                out.iter()
                    .enumerate()
                    .all(|(index, &value)| value.to_bits() == (index as f32).to_bits())
            );
        }
    }

    #[test]
    fn scratch_may_be_nested() {
        with_scratch(4, |outer| {
            outer.fill(1.0);
            with_scratch(8, |inner| inner.fill(2.0));
            assert_eq!(outer, [1.0; 4]);
        });
    }
}
