//! Tables that the host computes: the order of patches, merges, windows.

/// `(row, column)` of every patch of a `rows × cols` grid in the order in which patches are emitted: raster order, or
/// blocks of `block × block` patches, row-major inside and outside (`Qwen2VLImageProcessor.patchify`).
///
/// Both sides must be multiples of `block`.
pub(super) fn patch_order(rows: usize, cols: usize, block: usize) -> Vec<(u32, u32)> {
    let mut order = Vec::with_capacity(rows * cols);
    for outer_row in 0..rows / block {
        for outer_col in 0..cols / block {
            for row in 0..block {
                for col in 0..block {
                    order
                        .push(((outer_row * block + row) as u32, (outer_col * block + col) as u32));
                }
            }
        }
    }
    order
}

/// For a merge of `side × side` patches: which emitted patches make up each merged row, in the order (row, column).
pub(super) fn merge_order(rows: usize, cols: usize, block: usize, side: usize) -> Vec<u32> {
    let mut emitted = vec![0_u32; rows * cols];
    for (index, (row, col)) in patch_order(rows, cols, block).into_iter().enumerate() {
        emitted[row as usize * cols + col as usize] = index as u32;
    }
    patch_order(rows, cols, side)
        .into_iter()
        .map(|(row, col)| emitted[row as usize * cols + col as usize])
        .collect()
}

/// The order of patches in which those of one square of `window` × `window` patches stand together, squares row by row,
/// patches of a square in the order in which they are emitted; and how many patches each square has.
///
/// As `get_vision_window_index` of `vision_utils.py` for windows of whole blocks; squares at the far edges are smaller.
pub(super) fn window_order(
    rows: usize,
    cols: usize,
    block: usize,
    window: usize,
) -> (Vec<u32>, Vec<usize>) {
    let window = window.max(1);
    let across = cols.div_ceil(window);
    let mut squares = vec![Vec::new(); rows.div_ceil(window) * across];
    for (index, (row, col)) in patch_order(rows, cols, block).into_iter().enumerate() {
        let square = row as usize / window * across + col as usize / window;
        if let Some(square) = squares.get_mut(square) {
            square.push(index as u32);
        }
    }
    let lengths = squares.iter().map(Vec::len).collect();
    (squares.into_iter().flatten().collect(), lengths)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn blocks_are_row_major_inside_and_outside() {
        assert_eq!(
            patch_order(2, 4, 2),
            [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3)]
        );
        assert_eq!(patch_order(2, 2, 1), [(0, 0), (0, 1), (1, 0), (1, 1)]);
    }

    #[test]
    fn merging_gathers_neighbours() {
        // emitted in blocks of the merged size: already in order
        assert_eq!(merge_order(4, 2, 2, 2), [0, 1, 2, 3, 4, 5, 6, 7]);
        // emitted in raster order
        assert_eq!(merge_order(2, 4, 1, 2), [0, 1, 4, 5, 2, 3, 6, 7]);
    }

    #[test]
    fn windows_keep_blocks_together() {
        // 4 × 6 patches in blocks of 2, windows of 4: one full, one of half the width
        let (order, lengths) = window_order(4, 6, 2, 4);
        assert_eq!(lengths, [16, 8]);
        let places = patch_order(4, 6, 2);
        let second: Vec<_> = order[16..].iter().map(|index| places[*index as usize]).collect();
        assert_eq!(second, [(0, 4), (0, 5), (1, 4), (1, 5), (2, 4), (2, 5), (3, 4), (3, 5)]);
        assert!(order[..4] == [0, 1, 2, 3] && order[4..8] == [4, 5, 6, 7] && order[8] == 12);
    }
}
