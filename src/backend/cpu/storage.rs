//! Activations in memory.

use std::sync::Arc;

use super::pool;
use crate::error::{Error, ErrorKind, Result};

/// An f32 activation `[rows, width]`, row-major. Cloning shares the values.
#[derive(Debug, Clone)]
pub struct Tensor {
    values: Arc<Values>,
    rows: usize,
    width: usize,
}

/// Values whose memory is used again when nobody needs them any more.
#[derive(Debug, Clone)]
struct Values(Vec<f32>);

impl Drop for Values {
    fn drop(&mut self) {
        pool::give(std::mem::take(&mut self.0));
    }
}

impl Tensor {
    /// A tensor of these values; their number must be `rows * width`.
    pub(super) fn new(values: Vec<f32>, rows: usize, width: usize) -> Result<Self> {
        if rows.checked_mul(width) != Some(values.len()) {
            return Err(mismatch(format!(
                "`{}` values do not fill the shape `[{rows}, {width}]`",
                values.len()
            )));
        }
        Ok(Self { values: Arc::new(Values(values)), rows, width })
    }

    /// All values, row-major.
    pub(super) fn values(&self) -> &[f32] {
        &self.values.0
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The number of values in a row.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// One row; `index` must be less than [`Tensor::rows`].
    pub(super) fn row(&self, index: usize) -> &[f32] {
        &self.values.0[index * self.width..][..self.width]
    }

    /// All values for writing; copied first if another tensor shares them.
    pub(super) fn values_mut(&mut self) -> &mut [f32] {
        &mut Arc::make_mut(&mut self.values).0
    }

    /// The same values under another shape.
    pub(super) fn reshape(self, rows: usize, width: usize) -> Result<Self> {
        if rows.checked_mul(width) != Some(self.values.0.len()) {
            return Err(mismatch(format!(
                "cannot reshape `{}` to `[{rows}, {width}]`",
                self.describe()
            )));
        }
        Ok(Self { values: self.values, rows, width })
    }

    /// The shape for a message, `[rows, width]`.
    pub(super) fn describe(&self) -> String {
        format!("[{}, {}]", self.rows, self.width)
    }

    /// An error unless the shape is `[rows, width]`; `what` names the tensor.
    pub(super) fn expect(&self, what: &str, rows: usize, width: usize) -> Result<()> {
        if (self.rows, self.width) == (rows, width) {
            return Ok(());
        }
        Err(mismatch(format!(
            "{what} has the shape `{}`, expected `[{rows}, {width}]`",
            self.describe()
        )))
    }
}

/// The error of arguments that do not fit each other.
pub(super) fn mismatch(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Backend, message)
}

/// Memory with room for `rows * width` values, which may hold others; and how many these are.
fn take(rows: usize, width: usize) -> Result<(Vec<f32>, usize)> {
    let too_large = || mismatch(format!("no memory for a tensor of the shape `[{rows}, {width}]`"));
    let length = rows.checked_mul(width).ok_or_else(too_large)?;
    let values = pool::take(length).map_err(|error| too_large().with_source(error))?;
    Ok((values, length))
}

/// An empty vector with room for `rows * width` values, or an error if memory does not suffice.
pub(super) fn reserve(rows: usize, width: usize) -> Result<Vec<f32>> {
    let (mut values, _) = take(rows, width)?;
    values.clear();
    Ok(values)
}

/// `rows * width` values of which the caller writes every one; until then they are anything. An error if memory does not
/// suffice.
pub(super) fn unwritten(rows: usize, width: usize) -> Result<Vec<f32>> {
    let (mut values, length) = take(rows, width)?;
    values.resize(length, 0.0); // what it holds stays
    if cfg!(debug_assertions) {
        values.fill(f32::NAN); // so that tests see what nobody wrote
    }
    Ok(values)
}

/// A copy of all values, or an error if memory does not suffice.
pub(super) fn copy(x: &Tensor) -> Result<Vec<f32>> {
    let mut values = reserve(x.rows, x.width)?;
    values.extend_from_slice(x.values());
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_must_fill_the_shape() {
        assert!(Tensor::new(vec![0.0; 6], 2, 3).is_ok());
        let error = Tensor::new(vec![0.0; 5], 2, 3).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Backend);
        assert_eq!(error.message(), "`5` values do not fill the shape `[2, 3]`");
        assert!(Tensor::new(vec![], usize::MAX, 2).is_err());
        let tensor = Tensor::new(vec![0.0; 6], 2, 3).unwrap();
        assert_eq!(
            tensor.clone().reshape(4, 2).unwrap_err().message(),
            "cannot reshape `[2, 3]` to `[4, 2]`"
        );
        assert_eq!(tensor.reshape(6, 1).unwrap().describe(), "[6, 1]");
    }

    #[test]
    fn impossible_sizes_are_errors() {
        for (rows, width) in [(usize::MAX, 2), (usize::MAX / 4, 1), (1 << 45, 1 << 10)] {
            assert_eq!(unwritten(rows, width).unwrap_err().kind(), ErrorKind::Backend);
        }
        assert_eq!(unwritten(usize::MAX, 0).unwrap().len(), 0);
    }

    #[test]
    fn writing_leaves_clones_alone() {
        let mut tensor = Tensor::new(vec![1.0, 2.0], 1, 2).unwrap();
        let place = tensor.values().as_ptr();
        tensor.values_mut()[0] = 3.0;
        assert_eq!(tensor.values().as_ptr(), place, "unshared values are reused");
        let clone = tensor.clone();
        tensor.values_mut()[0] = 4.0;
        assert_eq!((clone.values()[0], tensor.values()[0]), (3.0, 4.0));
    }
}
