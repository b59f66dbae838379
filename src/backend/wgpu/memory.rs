//! Buffers on the device: where they come from, and where they go when nobody needs them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ::wgpu::{Buffer, BufferDescriptor, BufferUsages, Device, ErrorFilter};

use crate::error::{Error, ErrorKind, Result};

/// Bytes of unused buffers that are kept for later. More would hold memory that a later stage needs.
const KEPT_BYTES: u64 = 256 << 20;
/// Sizes are multiples of this, which shaders with vectors of four need.
const GRAIN: u64 = 256;

/// A buffer that goes back to its pool when the last tensor that uses it is gone.
///
/// That is sound although the device may not have read it yet: whatever uses it next is recorded behind all that used
/// it before, and one queue runs everything in the order of recording.
pub(super) struct Memory {
    buffer: Option<Buffer>,
    pool: Arc<Mutex<Free>>,
}

impl Memory {
    /// The buffer.
    pub(super) fn buffer(&self) -> Result<&Buffer> {
        self.buffer.as_ref().ok_or_else(|| Error::new(ErrorKind::Backend, "a buffer is gone"))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.lock().unwrap_or_else(PoisonError::into_inner).keep(buffer);
        }
    }
}

/// Buffers that nobody uses, by size.
#[derive(Default)]
struct Free {
    by_size: HashMap<u64, Vec<Buffer>>,
    bytes: u64,
}

impl Free {
    fn keep(&mut self, buffer: Buffer) {
        if self.bytes + buffer.size() <= KEPT_BYTES {
            self.bytes += buffer.size();
            self.by_size.entry(buffer.size()).or_default().push(buffer);
        }
    }

    fn take(&mut self, size: u64) -> Option<Buffer> {
        let buffer = self.by_size.get_mut(&size)?.pop()?;
        self.bytes -= size;
        Some(buffer)
    }
}

/// Hands out buffers.
pub(super) struct Pool {
    device: Device,
    /// Bytes of one buffer that a shader can see at once.
    most: u64,
    free: Arc<Mutex<Free>>,
}

impl Pool {
    pub(super) fn new(device: Device, most: u64) -> Self {
        Self { device, most, free: Arc::default() }
    }

    /// Bytes of a buffer, at most.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// A buffer with any content for at least `bytes` bytes.
    ///
    /// # Errors
    /// `Backend` if the device cannot bind so much at once, or has no memory for it.
    pub(super) fn take(&self, bytes: u64) -> Result<Memory> {
        let size = self.size(bytes)?;
        let kept = self.free.lock().unwrap_or_else(PoisonError::into_inner).take(size);
        let buffer = match kept {
            Some(buffer) => buffer,
            None => self.create(size, false)?,
        };
        Ok(Memory { buffer: Some(buffer), pool: self.free.clone() })
    }

    /// A new buffer of which `write` fills the first `bytes` bytes.
    pub(super) fn filled(&self, bytes: u64, write: impl FnOnce(&mut Filler<'_>)) -> Result<Memory> {
        let buffer = self.create(self.size(bytes)?, true)?;
        {
            let mut view = buffer.get_mapped_range_mut(..).map_err(|reason| {
                Error::new(ErrorKind::Backend, "the device gives no memory to write to")
                    .with_source(reason.to_string())
            })?;
            let mut filler = Filler { view: &mut view, place: 0 };
            write(&mut filler);
        }
        buffer.unmap();
        Ok(Memory { buffer: Some(buffer), pool: self.free.clone() })
    }

    /// Forgets unused buffers.
    pub(super) fn clear(&self) {
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) = Free::default();
    }

    /// The size of a buffer for `bytes` bytes: few different ones, so that buffers are used again.
    fn size(&self, bytes: u64) -> Result<u64> {
        if bytes > self.most {
            return Err(Error::new(
                ErrorKind::Backend,
                format!(
                    "a tensor of {bytes} bytes is larger than what the device sees at once ({} bytes)",
                    self.most
                ),
            ));
        }
        // an eighth of the next power of two below
        let step = (bytes.max(1).next_power_of_two() / 16).max(GRAIN);
        Ok((bytes.max(1).div_ceil(step) * step).min(self.most))
    }

    fn create(&self, size: u64, mapped_at_creation: bool) -> Result<Buffer> {
        let create = || {
            let scope = self.device.push_error_scope(ErrorFilter::OutOfMemory);
            let buffer = self.device.create_buffer(&BufferDescriptor {
                label: None,
                size,
                usage: BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST,
                mapped_at_creation,
            });
            match pollster::block_on(scope.pop()) {
                None => Ok(buffer),
                Some(_) => Err(Error::new(
                    ErrorKind::Backend,
                    format!("the device has no memory for another {size} bytes"),
                )
                .with_hint("a smaller picture or fewer tokens need less; `--backend cpu` uses the machine's memory")),
            }
        };
        create().or_else(|_| {
            // what is kept for later may be what is missing now
            self.clear();
            create()
        })
    }
}

/// Writes bytes into a new buffer, from its beginning on.
pub(super) struct Filler<'a> {
    view: &'a mut ::wgpu::BufferViewMut,
    place: usize,
}

impl Filler<'_> {
    /// The next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let end = self.place + bytes.len();
        if end <= self.view.len() {
            self.view.slice(self.place..end).copy_from_slice(bytes);
        }
        self.place = end;
    }

    /// `count` bytes of zero; a new buffer holds nothing else.
    pub(super) fn skip(&mut self, count: usize) {
        self.place += count;
    }
}
