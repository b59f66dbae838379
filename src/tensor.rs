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
    ///
    /// A part of a matrix `[out, in]` is a matrix, one entry of a stack of matrices `[n, out, in]` becomes one by
    /// [`HostTensor::reshape`]: neither copies, so what is memory-mapped stays so.
    pub fn rows(&self, range: Range<usize>) -> Option<Self> {
        let (&outer, inner) = self.shape.split_first()?;
        if range.start > range.end || range.end > outer {
            return None;
        }
        let row_bytes = extent(inner)?.checked_mul(self.dtype.size())?;
        let mut shape = self.shape.clone();
        shape[0] = range.len();
        let place = |row: usize| row.checked_mul(row_bytes);
        let data = self.data.slice(place(range.start)?..place(range.end)?)?;
        Some(Self { dtype: self.dtype, shape, data })
    }

    /// The same bytes under another shape with as many elements; `None` if the counts differ.
    pub fn reshape(&self, shape: Vec<usize>) -> Option<Self> {
        if extent(&shape)? != self.elements() {
            return None;
        }
        Some(Self { dtype: self.dtype, shape, data: self.data.clone() })
    }

    /// A copy with its axes in another order: axis `i` of the result is axis `axes[i]` of this tensor. `None` if `axes` does
    /// not name every axis once.
    pub fn permuted(&self, axes: &[usize]) -> Option<Self> {
        let mut seen = vec![false; self.shape.len()];
        for axis in axes {
            *seen.get_mut(*axis)? = true;
        }
        if axes.len() != self.shape.len() || seen.contains(&false) {
            return None;
        }
        let mut strides = vec![1_usize; self.shape.len()];
        for axis in (1..self.shape.len()).rev() {
            strides[axis - 1] = strides[axis] * self.shape[axis];
        }
        let shape: Vec<usize> = axes.iter().map(|axis| self.shape[*axis]).collect();
        let steps: Vec<usize> = axes.iter().map(|axis| strides[*axis]).collect();
        let size = self.dtype.size();
        let bytes: &[u8] = &self.data;
        let mut data = Vec::with_capacity(bytes.len());
        let mut place = vec![0_usize; shape.len()];
        for _ in 0..self.elements() {
            let at: usize = place.iter().zip(&steps).map(|(index, step)| index * step).sum();
            data.extend_from_slice(bytes.get(at * size..(at + 1) * size)?);
            for axis in (0..shape.len()).rev() {
                place[axis] += 1;
                if place[axis] < shape[axis] {
                    break;
                }
                place[axis] = 0;
            }
        }
        Some(Self { dtype: self.dtype, shape, data: SharedBytes::from_vec(data) })
    }
}

/// The number of elements of a shape; `None` if it does not fit.
fn extent(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A file of `bytes`, mapped.
    fn mapped(bytes: &[u8]) -> Arc<Mmap> {
        let mut file = tempfile();
        file.write_all(bytes).unwrap();
        // SAFETY: the file has no name by which anybody could change it.
        Arc::new(unsafe { Mmap::map(&file) }.unwrap())
    }

    /// An open file that is already removed.
    fn tempfile() -> std::fs::File {
        let name =
            format!("vlm-spec-tensor-{}-{:?}", std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(name);
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    #[test]
    fn parts_of_a_mapped_tensor_stay_in_the_map() {
        let bytes: Vec<u8> = (0..7 + 4 * 6 * 5 * 2).map(|byte| byte as u8).collect();
        let map = mapped(&bytes);
        let place = map.as_ptr() as usize;
        let data = SharedBytes::from_map(map, 7..bytes.len()).unwrap();
        let stack = HostTensor { dtype: Dtype::Bf16, shape: vec![4, 6, 5], data };
        let expert = stack.rows(2..3).unwrap().reshape(vec![6, 5]).unwrap();
        let part = expert.rows(3..6).unwrap();
        assert_eq!(
            (expert.shape.as_slice(), part.shape.as_slice()),
            ([6, 5].as_slice(), [3, 5].as_slice())
        );
        assert_eq!(expert.data.as_ptr() as usize, place + 7 + 2 * 60);
        assert_eq!(part.data.as_ptr() as usize, place + 7 + 2 * 60 + 3 * 10);
        assert_eq!(*part.data, bytes[7 + 150..][..30]);
        assert_eq!(part.to_f32(), stack.to_f32()[75..90]);
    }

    #[test]
    fn parts_that_are_not_there_are_none() {
        let tensor = HostTensor::from_f32(vec![3, 2], &[1.0; 6]);
        assert_eq!(tensor.rows(3..3).unwrap().shape, [0, 2]);
        #[allow(clippy::reversed_empty_ranges)]
        for range in [2..4, 2..1, 4..4, usize::MAX..usize::MAX] {
            assert!(tensor.rows(range).is_none());
        }
        assert!(HostTensor::from_f32(vec![], &[1.0]).rows(0..0).is_none());
        for shape in [vec![5], vec![], vec![usize::MAX, 2, 3], vec![1 << 40, 1 << 40]] {
            assert!(tensor.reshape(shape).is_none());
        }
        let huge = HostTensor {
            dtype: Dtype::F32,
            shape: vec![0, usize::MAX, 2],
            data: SharedBytes::from_vec(vec![]),
        };
        assert!(huge.rows(0..0).is_none());
        assert_eq!(tensor.reshape(vec![2, 1, 3]).unwrap().to_f32(), [1.0; 6]);
    }

    #[test]
    fn axes_are_put_into_another_order() {
        let values: Vec<f32> = (0..24_u8).map(f32::from).collect();
        let tensor = HostTensor::from_f32(vec![2, 3, 4], &values);
        let moved = tensor.permuted(&[2, 0, 1]).expect("three axes");
        assert_eq!(moved.shape, [4, 2, 3]);
        // element (c, a, b) was (a, b, c)
        assert_eq!(moved.to_f32()[..7], [0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 1.0]);
        assert!(tensor.permuted(&[0, 1]).is_none() && tensor.permuted(&[0, 1, 1]).is_none());
        assert!(tensor.permuted(&[0, 1, 3]).is_none());
    }
}
