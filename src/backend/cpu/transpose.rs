//! Transposes of the matrices that lie in rows.

use super::storage::{Tensor, mismatch, unwritten};
use super::workers::Workers;
use crate::error::Result;

/// Scalar operations per element, roughly: reading is strided.
const WORK: usize = 4;
/// Neighbouring lines of the result are written together, so that what one cache line holds is read at once.
const LINES: usize = 16;

/// Every row, read as a row-major matrix `[rows, columns]`, transposed.
pub(super) fn transpose(
    workers: &Workers,
    x: &Tensor,
    rows: usize,
    columns: usize,
) -> Result<Tensor> {
    if rows.checked_mul(columns) != Some(x.width()) {
        return Err(mismatch(format!(
            "rows of `{}` are no matrices of the shape `[{rows}, {columns}]`",
            x.describe()
        )));
    }
    let mut out = unwritten(x.rows(), x.width())?;
    // a line of the result is a column of a matrix
    workers.pieces(&mut out, rows.saturating_mul(LINES), WORK, |start, piece| {
        let first = start / rows;
        for (group, lines) in piece.chunks_mut(rows * LINES).enumerate() {
            let sources: [&[f32]; LINES] = std::array::from_fn(|line| {
                let line = first + group * LINES + line;
                let matrix = line / columns;
                if matrix < x.rows() { &x.row(matrix)[line % columns..] } else { &[] }
            });
            for step in (0..rows).step_by(LINES) {
                for (line, source) in lines.chunks_exact_mut(rows).zip(sources) {
                    let line = &mut line[step..rows.min(step + LINES)];
                    for (out, &value) in
                        line.iter_mut().zip(source[step * columns..].iter().step_by(columns))
                    {
                        *out = value;
                    }
                }
            }
        }
    });
    Tensor::new(out, x.rows(), x.width())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{on_any_threads, tensor};
    use super::*;

    #[test]
    fn every_element_finds_its_place_and_the_way_back() {
        for count in [0, 1, 2, 5] {
            for (rows, columns) in [
                (1, 1),
                (1, 40),
                (40, 1),
                (2, 3),
                (16, 16),
                (17, 33),
                (80, 300),
                (300, 80),
                (9000, 3),
                (3, 9000),
            ] {
                let x = tensor(count, rows * columns, 1);
                let found =
                    on_any_threads(|workers| transpose(workers, &x, rows, columns).unwrap());
                for matrix in 0..count {
                    for row in 0..rows {
                        for column in 0..columns {
                            assert_eq!(
                                found.row(matrix)[column * rows + row].to_bits(),
                                x.row(matrix)[row * columns + column].to_bits(),
                                "{rows} x {columns}"
                            );
                        }
                    }
                }
                let back =
                    on_any_threads(|workers| transpose(workers, &found, columns, rows).unwrap());
                assert_eq!(back.values(), x.values());
            }
        }
    }

    #[test]
    fn empty_matrices_and_misfits() {
        let workers = Workers::new(1).unwrap();
        let thin = tensor(3, 0, 1);
        assert_eq!(transpose(&workers, &thin, 0, 7).unwrap().describe(), "[3, 0]");
        assert_eq!(transpose(&workers, &thin, 7, 0).unwrap().describe(), "[3, 0]");
        let x = tensor(3, 4, 1);
        for (rows, columns) in [(2, 3), (0, 4), (usize::MAX, 4)] {
            assert!(transpose(&workers, &x, rows, columns).is_err());
        }
        let error = transpose(&workers, &x, 3, 1).unwrap_err();
        assert_eq!(error.message(), "rows of `[3, 4]` are no matrices of the shape `[3, 1]`");
    }
}
