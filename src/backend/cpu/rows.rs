//! Operations that move whole rows or columns.

use super::storage::{Tensor, mismatch, reserve, unwritten};
use super::weight::Weight;
use super::workers::Workers;
use crate::error::Result;

/// Scalar operations per copied element, roughly.
const WORK: usize = 1;

/// An error unless every index is less than `rows`; `what` names what is indexed.
pub(super) fn check_indices(index: &[u32], rows: usize, what: &str) -> Result<()> {
    match index.iter().find(|&&row| row as usize >= rows) {
        Some(row) => Err(mismatch(format!("index `{row}` is beyond the `{rows}` rows of {what}"))),
        None => Ok(()),
    }
}

/// Rows `ids` of a weight matrix as f32.
pub(super) fn embed(workers: &Workers, table: &Weight, ids: &[u32]) -> Result<Tensor> {
    check_indices(ids, table.outputs(), "the table")?;
    let width = table.inputs();
    let mut out = unwritten(ids.len(), width)?;
    workers.pieces(&mut out, width, WORK, |start, piece| {
        for (out, &id) in piece.chunks_exact_mut(width).zip(&ids[start / width..]) {
            let row = id as usize;
            table.widen(row..row + 1, 0..width, out);
        }
    });
    Tensor::new(out, ids.len(), width)
}

/// Rows `index` of a tensor.
pub(super) fn gather(workers: &Workers, x: &Tensor, index: &[u32]) -> Result<Tensor> {
    check_indices(index, x.rows(), "the tensor")?;
    let width = x.width();
    let mut out = unwritten(index.len(), width)?;
    workers.pieces(&mut out, width, WORK, |start, piece| {
        for (out, &row) in piece.chunks_exact_mut(width).zip(&index[start / width..]) {
            out.copy_from_slice(x.row(row as usize));
        }
    });
    Tensor::new(out, index.len(), width)
}

/// `x` with row `index[i]` replaced by row `i` of `rows`; copies `x` only if it is shared.
pub(super) fn scatter(mut x: Tensor, rows: &Tensor, index: &[u32]) -> Result<Tensor> {
    rows.expect("the tensor of new rows", index.len(), x.width())?;
    check_indices(index, x.rows(), "the tensor")?;
    let mut sorted = index.to_vec();
    sorted.sort_unstable();
    if let Some((twice, _)) =
        sorted.iter().zip(&sorted[1.min(sorted.len())..]).find(|(row, next)| row == next)
    {
        return Err(mismatch(format!("row `{twice}` is to be replaced twice")));
    }
    let width = x.width();
    if !index.is_empty() && width > 0 {
        let values = x.values_mut();
        for (source, &row) in index.iter().enumerate() {
            values[row as usize * width..][..width].copy_from_slice(rows.row(source));
        }
    }
    Ok(x)
}

/// Columns `start..start + width` of every row.
pub(super) fn columns(workers: &Workers, x: &Tensor, start: usize, width: usize) -> Result<Tensor> {
    if start.checked_add(width).is_none_or(|end| end > x.width()) {
        return Err(mismatch(format!(
            "`{width}` columns from column `{start}` are beyond the width of `{}`",
            x.describe()
        )));
    }
    let mut out = unwritten(x.rows(), width)?;
    workers.pieces(&mut out, width, WORK, |first, piece| {
        for (offset, out) in piece.chunks_exact_mut(width).enumerate() {
            out.copy_from_slice(&x.row(first / width + offset)[start..start + width]);
        }
    });
    Tensor::new(out, x.rows(), width)
}

/// Tensors one below the other.
pub(super) fn concat(parts: &[&Tensor]) -> Result<Tensor> {
    let Some(first) = parts.first() else {
        return Err(mismatch("there is nothing to concatenate"));
    };
    let width = first.width();
    let mut rows = 0_usize;
    for part in parts {
        if part.width() != width {
            return Err(mismatch(format!(
                "cannot concatenate `{}` and `{}`: their widths differ",
                first.describe(),
                part.describe()
            )));
        }
        rows = rows
            .checked_add(part.rows())
            .ok_or_else(|| mismatch(format!("too many rows after `{}`", part.describe())))?;
    }
    let mut out = reserve(rows, width)?;
    for part in parts {
        out.extend_from_slice(part.values());
    }
    Tensor::new(out, rows, width)
}

/// Rows `start..start + count`.
pub(super) fn rows(x: &Tensor, start: usize, count: usize) -> Result<Tensor> {
    if start.checked_add(count).is_none_or(|end| end > x.rows()) {
        return Err(mismatch(format!(
            "`{count}` rows from row `{start}` are beyond the rows of `{}`",
            x.describe()
        )));
    }
    let mut out = reserve(count, x.width())?;
    out.extend_from_slice(&x.values()[start * x.width()..][..count * x.width()]);
    Tensor::new(out, count, x.width())
}

/// The column of the largest element of every row; `None` for a row with something that is not a number.
pub(super) fn largest(x: &Tensor) -> Result<Vec<Option<u32>>> {
    if x.width() == 0 {
        return Err(mismatch("empty rows have no largest element".to_owned()));
    }
    let of_row = |row: &[f32]| {
        let mut best = 0;
        for (column, value) in row.iter().enumerate() {
            if value.is_nan() {
                return None;
            }
            if *value > row[best] {
                best = column;
            }
        }
        Some(best as u32)
    };
    Ok(x.values().chunks_exact(x.width()).map(of_row).collect())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{DTYPES, ROWS, WIDTHS, host_weight, on_any_threads, tensor};
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn the_first_of_the_largest_is_found_and_what_is_no_number_is_told() {
        let values = vec![0.0, 3.0, 3.0, -1.0, f32::NAN, 9.0, f32::NEG_INFINITY, -7.0, -8.0];
        let x = Tensor::new(values, 3, 3).unwrap();
        assert_eq!(largest(&x).unwrap(), [Some(1), None, Some(1)]);
        assert!(largest(&Tensor::new(vec![], 3, 0).unwrap()).is_err());
        assert!(largest(&Tensor::new(vec![], 0, 3).unwrap()).unwrap().is_empty());
    }

    #[test]
    fn embed_converts_rows_exactly() {
        for dtype in DTYPES {
            for width in WIDTHS {
                for offset in [0, 1] {
                    let host = host_weight(dtype, 9, width, offset, 1);
                    let (all, table) = (host.to_f32(), Weight::new(&host).unwrap());
                    let ids = [8, 0, 3, 3, 1];
                    let found = on_any_threads(|workers| embed(workers, &table, &ids).unwrap());
                    for (row, &id) in ids.iter().enumerate() {
                        assert_eq!(
                            *found.row(row),
                            all[id as usize * width..][..width],
                            "{dtype:?} x {width}"
                        );
                    }
                    let error = embed(&Workers::new(1).unwrap(), &table, &[0, 9]).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Backend);
                    assert_eq!(error.message(), "index `9` is beyond the `9` rows of the table");
                }
            }
        }
    }

    #[test]
    fn gather_and_scatter_move_rows() {
        for rows in ROWS {
            for width in WIDTHS {
                let x = tensor(rows, width, 1);
                let reversed: Vec<u32> = (0..rows as u32).rev().chain([0, 0]).collect();
                let found = on_any_threads(|workers| gather(workers, &x, &reversed).unwrap());
                for (row, &source) in reversed.iter().enumerate() {
                    assert_eq!(found.row(row), x.row(source as usize));
                }
                let index = &reversed[..rows.div_ceil(2)];
                let new = tensor(index.len(), width, 2);
                let found = scatter(x.clone(), &new, index).unwrap();
                for row in 0..rows {
                    let source = index.iter().position(|&at| at as usize == row);
                    assert_eq!(found.row(row), source.map_or(x.row(row), |source| new.row(source)));
                }
            }
        }
    }

    #[test]
    fn scatter_reuses_what_it_owns() {
        let x = tensor(5, 3, 1);
        let place = x.values().as_ptr();
        let found = scatter(x, &tensor(1, 3, 2), &[4]).unwrap();
        assert_eq!(found.values().as_ptr(), place);
    }

    #[test]
    fn columns_rows_and_concat_move_elements() {
        for rows in ROWS {
            for width in WIDTHS {
                let (x, y, line) =
                    (tensor(rows, width, 1), tensor(rows, width, 2), tensor(1, width, 3));
                let (start, count) = (width / 3, width / 2);
                let found = on_any_threads(|workers| columns(workers, &x, start, count).unwrap());
                let joined = concat(&[&x, &line, &y]).unwrap();
                assert_eq!((joined.rows(), joined.row(rows)), (2 * rows + 1, line.row(0)));
                for row in 0..rows {
                    assert_eq!(*found.row(row), x.row(row)[start..start + count]);
                    assert_eq!(
                        (joined.row(row), joined.row(rows + 1 + row)),
                        (x.row(row), y.row(row))
                    );
                }
                let (start, count) = (rows / 3, rows - rows / 3);
                let found = super::rows(&x, start, count).unwrap();
                assert_eq!((found.rows(), found.width()), (count, width));
                assert_eq!(*found.values(), x.values()[start * width..]);
            }
        }
    }

    #[test]
    fn empty_tensors_pass_through() {
        let workers = Workers::new(2).unwrap();
        let (none, thin) = (tensor(0, 3, 1), tensor(3, 0, 1));
        assert_eq!(gather(&workers, &none, &[]).unwrap().describe(), "[0, 3]");
        assert_eq!(gather(&workers, &thin, &[2, 2]).unwrap().describe(), "[2, 0]");
        assert_eq!(scatter(none.clone(), &none, &[]).unwrap().describe(), "[0, 3]");
        assert_eq!(scatter(thin.clone(), &tensor(1, 0, 1), &[2]).unwrap().describe(), "[3, 0]");
        assert_eq!(columns(&workers, &none, 1, 2).unwrap().describe(), "[0, 2]");
        assert_eq!(columns(&workers, &tensor(2, 3, 1), 3, 0).unwrap().describe(), "[2, 0]");
        assert_eq!(concat(&[&none, &none]).unwrap().describe(), "[0, 3]");
        assert_eq!(rows(&none, 0, 0).unwrap().describe(), "[0, 3]");
        assert_eq!(rows(&thin, 1, 2).unwrap().describe(), "[2, 0]");
        assert_eq!(rows(&tensor(2, 3, 1), 2, 0).unwrap().describe(), "[0, 3]");
    }

    #[test]
    fn misfits_are_errors() {
        let workers = Workers::new(1).unwrap();
        let x = tensor(3, 4, 1);
        let errors = [
            gather(&workers, &x, &[0, 3]).unwrap_err(),
            scatter(x.clone(), &tensor(2, 4, 1), &[0]).unwrap_err(),
            scatter(x.clone(), &tensor(1, 5, 1), &[0]).unwrap_err(),
            scatter(x.clone(), &tensor(1, 4, 1), &[3]).unwrap_err(),
            scatter(x.clone(), &tensor(2, 4, 1), &[1, 1]).unwrap_err(),
            columns(&workers, &x, 2, 3).unwrap_err(),
            columns(&workers, &x, usize::MAX, 2).unwrap_err(),
            concat(&[]).unwrap_err(),
            concat(&[&x, &tensor(3, 5, 1)]).unwrap_err(),
            rows(&x, 2, 2).unwrap_err(),
            rows(&x, usize::MAX, 2).unwrap_err(),
        ];
        assert!(errors.iter().all(|error| error.kind() == ErrorKind::Backend));
        assert_eq!(errors[4].message(), "row `1` is to be replaced twice");
        assert_eq!(
            errors[5].message(),
            "`3` columns from column `2` are beyond the width of `[3, 4]`"
        );
        assert_eq!(errors[9].message(), "`2` rows from row `2` are beyond the rows of `[3, 4]`");
    }
}
