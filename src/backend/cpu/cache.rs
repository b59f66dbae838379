//! Keys and values that grow row by row.

use super::storage::{Tensor, mismatch, reserve};
use crate::error::Result;

/// Keys and values of one layer. All memory is reserved at creation, so appending never moves rows.
#[derive(Debug)]
pub struct Cache {
    keys: Vec<f32>,
    values: Vec<f32>,
    rows: usize,
    capacity: usize,
    width: usize,
}

impl Cache {
    /// An empty cache for `capacity` rows of `width` elements.
    pub(super) fn new(capacity: usize, width: usize) -> Result<Self> {
        let (keys, values) = (reserve(capacity, width)?, reserve(capacity, width)?);
        Ok(Self { keys, values, rows: 0, capacity, width })
    }

    /// The number of rows held.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The number of elements in a row of keys, and of values.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// All keys, row-major.
    pub(super) fn keys(&self) -> &[f32] {
        &self.keys
    }

    /// All values, row-major.
    pub(super) fn values(&self) -> &[f32] {
        &self.values
    }

    /// Appends rows, or leaves the cache as it was.
    pub(super) fn append(&mut self, k: &Tensor, v: &Tensor) -> Result<()> {
        k.expect("the tensor of keys", k.rows(), self.width)?;
        v.expect("the tensor of values", k.rows(), self.width)?;
        let free = self.capacity - self.rows;
        if k.rows() > free {
            return Err(mismatch(format!(
                "cannot append `{}` rows to a cache that holds `{}` of `{}` rows",
                k.rows(),
                self.rows,
                self.capacity
            )));
        }
        self.keys.extend_from_slice(k.values());
        self.values.extend_from_slice(v.values());
        self.rows += k.rows();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::tensor;
    use super::*;

    #[test]
    fn rows_are_appended_up_to_the_capacity() {
        let mut cache = Cache::new(5, 3).unwrap();
        let (k, v) = (tensor(2, 3, 1), tensor(2, 3, 2));
        cache.append(&k, &v).unwrap();
        cache.append(&v, &k).unwrap();
        assert_eq!(cache.rows(), 4);
        let error = cache.append(&k, &v).unwrap_err();
        assert_eq!(error.message(), "cannot append `2` rows to a cache that holds `4` of `5` rows");
        assert_eq!(
            (cache.rows(), cache.keys().len(), cache.values().len()),
            (4, 12, 12),
            "nothing was appended"
        );
        cache.append(&tensor(1, 3, 3), &tensor(1, 3, 4)).unwrap();
        cache.append(&tensor(0, 3, 3), &tensor(0, 3, 4)).unwrap();
        assert_eq!(cache.keys()[..6], *k.values());
        assert_eq!(cache.keys()[6..12], *v.values());
        assert_eq!(cache.values()[..6], *v.values());
    }

    #[test]
    fn misfits_are_errors() {
        assert!(Cache::new(usize::MAX, 2).is_err());
        let mut cache = Cache::new(5, 3).unwrap();
        assert!(cache.append(&tensor(2, 4, 1), &tensor(2, 4, 1)).is_err());
        assert!(cache.append(&tensor(2, 3, 1), &tensor(1, 3, 1)).is_err());
        assert_eq!(cache.rows(), 0);
    }
}
