//! A safe face for the matrix product of the `gemm` crate, on the calling thread.

use gemm::Parallelism;

/// A matrix inside a slice: element `(i, j)` is `values[i * row_stride + j * column_stride]`.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    values: &'a [f32],
    row_stride: usize,
    column_stride: usize,
}

impl<'a> View<'a> {
    /// A row-major matrix whose rows begin `stride` elements apart.
    pub(super) fn rows(values: &'a [f32], stride: usize) -> Self {
        Self { values, row_stride: stride, column_stride: 1 }
    }

    /// The transpose.
    pub(super) fn transposed(self) -> Self {
        Self { row_stride: self.column_stride, column_stride: self.row_stride, ..self }
    }

    /// Whether a matrix of this extent lies within the slice.
    fn holds(self, rows: usize, columns: usize) -> bool {
        let last = |count: usize, stride: usize| (count - 1).checked_mul(stride);
        rows == 0
            || columns == 0
            || last(rows, self.row_stride)
                .zip(last(columns, self.column_stride))
                .and_then(|(down, right)| down.checked_add(right))
                .is_some_and(|last| last < self.values.len())
    }
}

/// The most rows that are cut into tiles of [`TILE`] where both operands are contiguous along the depth.
const FEW_ROWS: usize = 96;
/// The most elements of a product that `gemm` computes straight from operands that are contiguous along the depth. It
/// packs the operands of larger products, which costs more than the product itself where rows are few.
const TILE: usize = 256;
/// Rows of such a tile.
const TILE_ROWS: usize = 16;

/// `out = a b`, or `out += a b` if `accumulate`: `a` is `[rows, depth]`, `b` is `[depth, columns]`, `out` is row-major
/// `[rows, columns]` without gaps.
///
/// # Panics
/// If an operand is smaller than that; callers compute these extents from checked shapes.
pub(super) fn product(
    out: &mut [f32],
    (rows, columns, depth): (usize, usize, usize),
    a: View<'_>,
    b: View<'_>,
    accumulate: bool,
) {
    assert!(
        rows.checked_mul(columns).is_some_and(|length| length <= out.len()),
        "the output holds the product"
    );
    assert!(a.holds(rows, depth) && b.holds(depth, columns), "the operands hold their extents");
    let contiguous = a.column_stride == 1 && b.row_stride == 1;
    let (tile_rows, tile_columns) = if rows <= FEW_ROWS && contiguous {
        let tile_rows = rows.clamp(1, TILE_ROWS);
        (tile_rows, TILE / tile_rows)
    } else {
        (rows.max(1), columns.max(1))
    };
    for row in (0..rows).step_by(tile_rows) {
        for column in (0..columns).step_by(tile_columns) {
            // SAFETY: the asserts above show that every element which `gemm` reads through `a` and `b` or writes
            // through `out` lies within its slice, and the tile lies within these extents (lengths of slices fit
            // `isize`, hence all strides in use do; pointers to elements that are not there, where the depth is 0, are
            // never read). `out` is borrowed mutably, so it overlaps neither operand.
            unsafe {
                gemm::gemm(
                    tile_rows.min(rows - row),
                    tile_columns.min(columns - column),
                    depth,
                    out.as_mut_ptr().add(row * columns + column),
                    1,
                    columns as isize,
                    accumulate,
                    a.values.as_ptr().wrapping_add(row * a.row_stride),
                    a.column_stride as isize,
                    a.row_stride as isize,
                    b.values.as_ptr().wrapping_add(column * b.column_stride),
                    b.column_stride as isize,
                    b.row_stride as isize,
                    1.0,
                    1.0,
                    false,
                    false,
                    false,
                    Parallelism::None,
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::values;
    use super::*;

    #[test]
    fn products_match_f64_in_every_layout() {
        for (rows, columns, depth) in [
            (1, 1, 1),
            (2, 3, 2),
            (1, 300, 7),
            (3, 100, 40),
            (16, 17, 72),
            (17, 33, 257),
            (130, 5, 33),
            (5, 7, 0),
        ] {
            let (a, b) = (values(rows * (depth + 3), 1), values((columns + 2) * (depth + 2), 2));
            for transposed in [false, true] {
                for accumulate in [false, true] {
                    let mut out = vec![0.5; rows * columns];
                    let view = if transposed {
                        View::rows(&b, depth + 2).transposed()
                    } else {
                        View::rows(&b, columns + 2)
                    };
                    let extents = (rows, columns, depth);
                    product(&mut out, extents, View::rows(&a, depth + 3), view, accumulate);
                    for (index, &found) in out.iter().enumerate() {
                        let (row, column) = (index / columns, index % columns);
                        let mut expected = if accumulate { 0.5 } else { 0.0 };
                        for k in 0..depth {
                            let at = if transposed {
                                column * (depth + 2) + k
                            } else {
                                k * (columns + 2) + column
                            };
                            expected += f64::from(a[row * (depth + 3) + k]) * f64::from(b[at]);
                        }
                        // sums of up to 257 products of magnitude 1 stay below 16; each addition rounds by at most
                        // 2^-21 and roundings cancel
                        assert!(
                            (f64::from(found) - expected).abs() < 1e-5,
                            "{extents:?} at {index}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "the operands hold their extents")]
    fn too_small_operands_are_refused() {
        product(
            &mut [0.0; 4],
            (2, 2, 2),
            View::rows(&[0.0; 4], 3),
            View::rows(&[0.0; 4], 2),
            false,
        );
    }
}
