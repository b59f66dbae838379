//! Operations that move rows and columns.

use super::elements::each;
use super::kernel::{ELEMENT_THREADS, Kernel, folded};
use super::memory::Memory;
use super::stream::{Dispatch, Stream};
use super::tensor::{Cache, Tensor, mismatch};
use crate::error::Result;

/// A block of a matrix: `rows` rows of `width` columns from element `from` on, rows being `stride` elements apart.
struct Block<'a> {
    memory: &'a Memory,
    from: usize,
    stride: usize,
    rows: usize,
    width: usize,
}

/// Copies a block to element `to` on, where rows are `stride` elements apart.
fn copy(
    stream: &Stream,
    block: &Block<'_>,
    output: &Memory,
    to: usize,
    stride: usize,
) -> Result<()> {
    let count = block.rows * block.width;
    let mut numbers = [count, block.width, block.from, block.stride, to, stride];
    let aligned = numbers.iter().all(|number| number % 4 == 0);
    if aligned {
        numbers = numbers.map(|number| number / 4);
    }
    stream.dispatch(&Dispatch {
        kernel: Kernel::Copy { aligned },
        output,
        inputs: &[block.memory],
        parameters: &numbers.map(|number| number as u32),
        groups: folded(numbers[0].div_ceil(ELEMENT_THREADS)),
        work: count as u64,
    })
}

/// Columns `start..start + width` of every row.
pub(super) fn columns(stream: &Stream, x: &Tensor, start: usize, width: usize) -> Result<Tensor> {
    if start.checked_add(width).is_none_or(|end| end > x.width()) {
        return Err(mismatch(format!(
            "`{width}` columns from column `{start}` are beyond the columns of `{}`",
            x.describe()
        )));
    }
    let out = Tensor::new(stream, x.rows(), width)?;
    let block = Block { memory: x.memory(), from: start, stride: x.width(), rows: x.rows(), width };
    copy(stream, &block, out.memory(), 0, width)?;
    Ok(out)
}

/// Rows `start..start + count`.
pub(super) fn rows(stream: &Stream, x: &Tensor, start: usize, count: usize) -> Result<Tensor> {
    if start.checked_add(count).is_none_or(|end| end > x.rows()) {
        return Err(mismatch(format!(
            "`{count}` rows from row `{start}` are beyond the rows of `{}`",
            x.describe()
        )));
    }
    let width = x.width();
    let out = Tensor::new(stream, count, width)?;
    let block =
        Block { memory: x.memory(), from: start * width, stride: width, rows: count, width };
    copy(stream, &block, out.memory(), 0, width)?;
    Ok(out)
}

/// `parts` one below the other.
pub(super) fn concat(stream: &Stream, parts: &[&Tensor]) -> Result<Tensor> {
    let Some(first) = parts.first() else {
        return Err(mismatch("there is nothing to put together".to_owned()));
    };
    let width = first.width();
    if let Some(other) = parts.iter().find(|part| part.width() != width) {
        return Err(mismatch(format!(
            "`{}` and `{}` have rows of other widths",
            first.describe(),
            other.describe()
        )));
    }
    let out = Tensor::new(stream, parts.iter().map(|part| part.rows()).sum(), width)?;
    let mut to = 0;
    for part in parts {
        let block =
            Block { memory: part.memory(), from: 0, stride: width, rows: part.rows(), width };
        copy(stream, &block, out.memory(), to, width)?;
        to += part.count();
    }
    Ok(out)
}

/// Appends rows to a cache.
pub(super) fn append(stream: &Stream, cache: &mut Cache, k: &Tensor, v: &Tensor) -> Result<()> {
    let count = k.rows();
    k.expect("the tensor of keys", count, cache.width)?;
    v.expect("the tensor of values", count, cache.width)?;
    if cache.rows + count > cache.capacity {
        return Err(mismatch(format!(
            "a cache of `{}` rows holds `{}` and cannot take `{count}` more",
            cache.capacity, cache.rows
        )));
    }
    let (to, width) = (cache.rows * cache.width, cache.width);
    for (from, into) in [(k, &cache.keys), (v, &cache.values)] {
        let block = Block { memory: from.memory(), from: 0, stride: width, rows: count, width };
        copy(stream, &block, into, to, width)?;
    }
    cache.rows += count;
    Ok(())
}

/// Rows `index` of `x`.
pub(super) fn gather(stream: &Stream, x: &Tensor, index: &[u32]) -> Result<Tensor> {
    check_index(x, index)?;
    let out = Tensor::new(stream, index.len(), x.width())?;
    if out.count() > 0 {
        let table = stream.table(index)?;
        each(stream, Kernel::Gather, &out, &[x.memory(), &table], &[x.width() as u32])?;
    }
    Ok(out)
}

/// Weighted sums of `count` rows each.
pub(super) fn blend(
    stream: &Stream,
    x: &Tensor,
    index: &[u32],
    weights: &[f32],
    count: usize,
) -> Result<Tensor> {
    if count == 0 || !index.len().is_multiple_of(count) || weights.len() != index.len() {
        return Err(mismatch(format!(
            "`{}` rows with `{}` weights are not sums of `{count}`",
            index.len(),
            weights.len()
        )));
    }
    check_index(x, index)?;
    let out = Tensor::new(stream, index.len() / count, x.width())?;
    if out.count() > 0 {
        let bits: Vec<u32> = weights.iter().map(|weight| weight.to_bits()).collect();
        let (table, shares) = (stream.table(index)?, stream.table(&bits)?);
        let parameters = [x.width() as u32, count as u32];
        each(stream, Kernel::Blend, &out, &[x.memory(), &table, &shares], &parameters)?;
    }
    Ok(out)
}

/// `x` with row `index[i]` replaced by row `i` of `rows`.
pub(super) fn scatter(
    stream: &Stream,
    mut x: Tensor,
    rows: &Tensor,
    index: &[u32],
) -> Result<Tensor> {
    rows.expect("the tensor of new rows", index.len(), x.width())?;
    check_index(&x, index)?;
    if !x.alone() {
        x = self::rows(stream, &x, 0, x.rows())?;
    }
    if rows.count() > 0 {
        let table = stream.table(index)?;
        stream.dispatch(&Dispatch {
            kernel: Kernel::Scatter,
            output: x.memory(),
            inputs: &[rows.memory(), &table],
            parameters: &[rows.count() as u32, x.width() as u32],
            groups: folded(rows.count().div_ceil(ELEMENT_THREADS)),
            work: rows.count() as u64,
        })?;
    }
    Ok(x)
}

/// Every row, read as a matrix `[rows, columns]`, transposed.
pub(super) fn transpose(
    stream: &Stream,
    x: &Tensor,
    rows: usize,
    columns: usize,
) -> Result<Tensor> {
    if rows.checked_mul(columns) != Some(x.width()) {
        return Err(mismatch(format!(
            "rows of `{}` are not matrices of `[{rows}, {columns}]`",
            x.describe()
        )));
    }
    let out = Tensor::new(stream, x.rows(), x.width())?;
    each(stream, Kernel::Transpose, &out, &[x.memory()], &[rows as u32, columns as u32])?;
    Ok(out)
}

/// The column of the largest element of every row; `None` for a row with something that is not a number.
pub(super) fn largest(stream: &Stream, x: &Tensor) -> Result<Vec<Option<u32>>> {
    if x.width() == 0 {
        return Err(mismatch("empty rows have no largest element".to_owned()));
    }
    let out = Tensor::new(stream, x.rows(), 1)?;
    stream.dispatch(&Dispatch {
        kernel: Kernel::Largest,
        output: out.memory(),
        inputs: &[x.memory()],
        parameters: &[x.width() as u32, x.rows() as u32],
        groups: folded(x.rows()),
        work: x.count() as u64,
    })?;
    let bytes = stream.read(out.memory(), out.bytes())?;
    let columns: Vec<u32> = bytemuck::pod_collect_to_vec(&bytes);
    Ok(columns
        .into_iter()
        .map(|column| Some(column).filter(|column| *column != u32::MAX))
        .collect())
}

fn check_index(x: &Tensor, index: &[u32]) -> Result<()> {
    match index.iter().find(|row| **row as usize >= x.rows()) {
        Some(outside) => {
            Err(mismatch(format!("row `{outside}` is beyond the rows of `{}`", x.describe())))
        }
        None => Ok(()),
    }
}
