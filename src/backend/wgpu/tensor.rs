//! Activations, and keys and values of a layer, on the device.

use std::sync::Arc;

use super::memory::Memory;
use super::stream::Stream;
use crate::error::{Error, ErrorKind, Result};

/// An f32 activation `[rows, width]`, row-major. Clones share the values.
#[derive(Clone)]
pub struct Tensor {
    memory: Arc<Memory>,
    rows: usize,
    width: usize,
}

impl Tensor {
    /// A tensor whose values are still to be written.
    pub(super) fn new(stream: &Stream, rows: usize, width: usize) -> Result<Self> {
        let memory = Arc::new(stream.pool.take(bytes_of(rows, width)?)?);
        Ok(Self { memory, rows, width })
    }

    /// A tensor of host values, row-major.
    pub(super) fn upload(
        stream: &Stream,
        values: &[f32],
        rows: usize,
        width: usize,
    ) -> Result<Self> {
        if rows.checked_mul(width) != Some(values.len()) {
            return Err(mismatch(format!(
                "a tensor of the shape `[{rows}, {width}]` cannot hold `{}` values",
                values.len()
            )));
        }
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let memory = stream.filled(bytes.len() as u64, |to| to.push(bytes))?;
        Ok(Self { memory: Arc::new(memory), rows, width })
    }

    /// Where the values are.
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Elements per row.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Elements; they fit into a buffer, so they can be counted in 32 bits.
    pub(super) fn count(&self) -> usize {
        self.rows * self.width
    }

    /// Bytes of the elements.
    pub(super) fn bytes(&self) -> u64 {
        4 * self.count() as u64
    }

    /// Whether no other tensor shares the values.
    pub(super) fn alone(&mut self) -> bool {
        Arc::get_mut(&mut self.memory).is_some()
    }

    /// The same values under another shape.
    pub(super) fn reshape(self, rows: usize, width: usize) -> Result<Self> {
        if rows.checked_mul(width) != Some(self.count()) {
            return Err(mismatch(format!(
                "cannot reshape `{}` to `[{rows}, {width}]`",
                self.describe()
            )));
        }
        Ok(Self { memory: self.memory, rows, width })
    }

    /// The shape for a message, `[rows, width]`.
    pub(super) fn describe(&self) -> String {
        format!("[{}, {}]", self.rows, self.width)
    }

    /// An error that names `what` unless the shape is `[rows, width]`.
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

/// Keys and values of one layer, growing row by row.
pub struct Cache {
    pub(super) keys: Memory,
    pub(super) values: Memory,
    pub(super) rows: usize,
    pub(super) capacity: usize,
    pub(super) width: usize,
}

impl Cache {
    pub(super) fn new(stream: &Stream, capacity: usize, width: usize) -> Result<Self> {
        let bytes = bytes_of(capacity, width)?;
        let (keys, values) = (stream.pool.take(bytes)?, stream.pool.take(bytes)?);
        Ok(Self { keys, values, rows: 0, capacity, width })
    }
}

/// Bytes of f32 values.
fn bytes_of(rows: usize, width: usize) -> Result<u64> {
    rows.checked_mul(width)
        .and_then(|count| count.checked_mul(4))
        .map(|bytes| bytes as u64)
        .ok_or_else(|| mismatch(format!("a tensor of the shape `[{rows}, {width}]` is too large")))
}

/// Shapes that do not fit.
pub(super) fn mismatch(message: String) -> Error {
    Error::new(ErrorKind::Backend, message)
}
