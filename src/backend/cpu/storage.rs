//! Activations in memory.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};

/// An f32 activation `[rows, width]`, row-major. Cloning shares the values.
#[derive(Debug, Clone)]
pub struct Tensor {
    values: Arc<Vec<f32>>,
    rows: usize,
    width: usize,
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
        Ok(Self { values: Arc::new(values), rows, width })
    }

    /// All values, row-major.
    pub(super) fn values(&self) -> &[f32] {
        &self.values
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
        &self.values[index * self.width..][..self.width]
    }

    /// All values for writing; copied first if another tensor shares them.
    pub(super) fn values_mut(&mut self) -> &mut [f32] {
        let values: &mut Vec<f32> = Arc::make_mut(&mut self.values);
        values
    }

    /// The same values under another shape.
    pub(super) fn reshape(self, rows: usize, width: usize) -> Result<Self> {
        if rows.checked_mul(width) != Some(self.values.len()) {
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

/// An empty vector with room for `rows * width` values, or an error if memory does not suffice.
pub(super) fn reserve(rows: usize, width: usize) -> Result<Vec<f32>> {
    let too_large = || mismatch(format!("no memory for a tensor of the shape `[{rows}, {width}]`"));
    let length = rows.checked_mul(width).ok_or_else(too_large)?;
    let mut values = Vec::new();
    values.try_reserve_exact(length).map_err(|error| too_large().with_source(error))?;
    Ok(values)
}

/// A copy of all values, or an error if memory does not suffice.
pub(super) fn copy(x: &Tensor) -> Result<Vec<f32>> {
    let mut values = reserve(x.rows, x.width)?;
    values.extend_from_slice(x.values());
    Ok(values)
}

/// `rows * width` zeros, or an error if memory does not suffice.
pub(super) fn zeros(rows: usize, width: usize) -> Result<Vec<f32>> {
    let mut values = reserve(rows, width)?;
    values.resize(rows * width, 0.0); // `reserve` has checked the product
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
            assert_eq!(zeros(rows, width).unwrap_err().kind(), ErrorKind::Backend);
        }
        assert_eq!(zeros(usize::MAX, 0).unwrap().len(), 0);
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
