//! Host tensors as a checkpoint stores them: a dtype, a shape, and bytes that are usually memory-mapped.

use std::ops::{Deref, Range};
use std::sync::Arc;

use memmap2::Mmap;

/// The element types that weights may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of a single-precision float.
    Bf16,
}

impl Dtype {
    /// Bytes per element.
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// Bytes that many tensors may share: a range of a memory-mapped file, or of a buffer.
///
/// The start need not be aligned to anything.
#[derive(Clone)]
pub struct SharedBytes {
    owner: Owner,
    range: Range<usize>,
}

#[derive(Clone)]
enum Owner {
    Map(Arc<Mmap>),
    Buffer(Arc<Vec<u8>>),
}

impl SharedBytes {
    /// A range of a mapped file; `None` if it does not lie within the file.
    pub fn from_map(map: Arc<Mmap>, range: Range<usize>) -> Option<Self> {
        map.get(range.clone())?;
        Some(Self { owner: Owner::Map(map), range })
    }

    /// A whole buffer.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self { owner: Owner::Buffer(Arc::new(bytes)), range }
    }

    /// A part of these bytes; `None` if `range` does not lie within them.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        self.get(range.clone())?;
        let start = self.range.start;
        Some(Self { owner: self.owner.clone(), range: start + range.start..start + range.end })
    }
}

impl Deref for SharedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.owner {
            Owner::Map(map) => map,
            Owner::Buffer(buffer) => buffer,
        };
        &all[self.range.clone()] // both constructors have checked the range
    }
}

impl std::fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedBytes({} bytes)", self.len())
    }
}

/// A dense row-major tensor on the host. `data` holds exactly `shape.product() * dtype.size()` little-endian bytes.
#[derive(Debug, Clone)]
pub struct HostTensor {
    /// The element type.
    pub dtype: Dtype,
    /// Extents, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// The elements.
    pub data: SharedBytes,
}

impl HostTensor {
    /// A tensor of f32 values.
    pub fn from_f32(shape: Vec<usize>, values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { dtype: Dtype::F32, shape, data: SharedBytes::from_vec(bytes) }
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// All elements, converted to f32. Meant for small tensors: it copies.
    pub fn to_f32(&self) -> Vec<f32> {
        let bytes: &[u8] = &self.data;
        match self.dtype {
            Dtype::F32 => bytes
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect(),
            Dtype::F16 => bytes
                .chunks_exact(2)
                .map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect(),
            Dtype::Bf16 => bytes
                .chunks_exact(2)
                .map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect(),
        }
    }

    /// Rows `range` of the outermost axis, sharing the bytes; `None` if out of range or a scalar.
    pub fn rows(&self, range: Range<usize>) -> Option<Self> {
        let (&outer, inner) = self.shape.split_first()?;
        if range.start > range.end || range.end > outer {
            return None;
        }
        let row_bytes = inner.iter().product::<usize>() * self.dtype.size();
        let mut shape = self.shape.clone();
        shape[0] = range.len();
        let data = self.data.slice(range.start * row_bytes..range.end * row_bytes)?;
        Some(Self { dtype: self.dtype, shape, data })
    }

    /// The same bytes under another shape with as many elements; `None` if the counts differ.
    pub fn reshape(&self, shape: Vec<usize>) -> Option<Self> {
        if shape.iter().product::<usize>() != self.elements() {
            return None;
        }
        Some(Self { dtype: self.dtype, shape, data: self.data.clone() })
    }
}
