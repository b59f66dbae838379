//! Weight matrices in the dtype of the checkpoint, and how their elements become f32.

use std::ops::Range;

use crate::error::Result;
use crate::tensor::{Dtype, HostTensor};

use super::simd::{Kernel, dispatch};
use super::storage::mismatch;

/// A weight matrix `[outputs, inputs]`. The bytes are those of the checkpoint and need not be aligned.
#[derive(Debug)]
pub struct Weight {
    tensor: HostTensor,
    outputs: usize,
    inputs: usize,
}

/// An element type of weights, as little-endian bytes. Arrays of bytes have no alignment, so any address will do.
pub(super) trait Element: Send + Sync {
    /// The bytes of one element.
    type Bytes: Copy + Send + Sync;

    /// Cuts bytes into elements.
    fn elements(bytes: &[u8]) -> &[Self::Bytes];

    /// The exact value.
    fn widen(bytes: Self::Bytes) -> f32;
}

/// [`Dtype::F32`].
pub(super) struct Single;
/// [`Dtype::F16`].
pub(super) struct Half;
/// [`Dtype::Bf16`].
pub(super) struct Brain;

impl Element for Single {
    type Bytes = [u8; 4];
    #[inline(always)]
    fn elements(bytes: &[u8]) -> &[[u8; 4]] {
        bytes.as_chunks().0
    }
    #[inline(always)]
    fn widen(bytes: [u8; 4]) -> f32 {
        f32::from_le_bytes(bytes)
    }
}

impl Element for Half {
    type Bytes = [u8; 2];
    #[inline(always)]
    fn elements(bytes: &[u8]) -> &[[u8; 2]] {
        bytes.as_chunks().0
    }
    // Integer arithmetic instead of the conversion instruction, because it vectorises in any loop and on any machine:
    // the 15 bits below the sign, moved to the place of an f32's exponent and mantissa, are the value times 2^-112;
    // that holds for subnormal numbers too. Infinities and NaNs are the exponents that would exceed 15.
    #[inline(always)]
    fn widen(bytes: [u8; 2]) -> f32 {
        const SCALE: f32 = f32::from_bits((127 + 112) << 23);
        let bits = u32::from(u16::from_le_bytes(bytes));
        let magnitude = (bits & 0x7fff) << 13;
        let finite = (f32::from_bits(magnitude) * SCALE).to_bits();
        let special = magnitude | 0x7f80_0000;
        let chosen = if magnitude < 0x7c00 << 13 { finite } else { special };
        f32::from_bits(chosen | (bits & 0x8000) << 16)
    }
}

impl Element for Brain {
    type Bytes = [u8; 2];
    #[inline(always)]
    fn elements(bytes: &[u8]) -> &[[u8; 2]] {
        bytes.as_chunks().0
    }
    #[inline(always)]
    fn widen(bytes: [u8; 2]) -> f32 {
        f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
    }
}

impl Weight {
    /// A matrix of two axes, `[outputs, inputs]`; shares the bytes.
    pub(super) fn new(tensor: &HostTensor) -> Result<Self> {
        let &[outputs, inputs] = tensor.shape.as_slice() else {
            return Err(mismatch(format!(
                "a weight needs two axes, found the shape `{:?}`",
                tensor.shape
            )));
        };
        let size = outputs
            .checked_mul(inputs)
            .and_then(|elements| elements.checked_mul(tensor.dtype.size()));
        if size != Some(tensor.data.len()) {
            return Err(mismatch(format!(
                "a `{:?}` weight of the shape `[{outputs}, {inputs}]` cannot have `{}` bytes",
                tensor.dtype,
                tensor.data.len()
            )));
        }
        Ok(Self { tensor: tensor.clone(), outputs, inputs })
    }

    /// The number of rows.
    pub(super) fn outputs(&self) -> usize {
        self.outputs
    }

    /// The number of elements in a row.
    pub(super) fn inputs(&self) -> usize {
        self.inputs
    }

    /// The element type.
    pub(super) fn dtype(&self) -> Dtype {
        self.tensor.dtype
    }

    /// The shape for a message, `[outputs, inputs]`.
    pub(super) fn describe(&self) -> String {
        format!("[{}, {}]", self.outputs, self.inputs)
    }

    /// The bytes of rows `range`, which must lie within the matrix.
    pub(super) fn row_bytes(&self, range: Range<usize>) -> &[u8] {
        let stride = self.inputs * self.tensor.dtype.size();
        &self.tensor.data[range.start * stride..range.end * stride]
    }

    /// The whole matrix as f32 values, if it is stored so and aligned.
    pub(super) fn in_place(&self) -> Option<&[f32]> {
        if self.tensor.dtype != Dtype::F32 || cfg!(target_endian = "big") {
            return None;
        }
        // SAFETY: every pattern of 32 bits is a valid f32, and the bytes are borrowed as long as the result.
        let (before, values, after) = unsafe { self.tensor.data.align_to::<f32>() };
        (before.is_empty() && after.is_empty()).then_some(values)
    }

    /// Writes columns `columns` of rows `rows` as f32 to `out`, row-major without gaps. Both ranges must lie within the
    /// matrix and `out` must have as many elements.
    pub(super) fn widen(&self, rows: Range<usize>, columns: Range<usize>, out: &mut [f32]) {
        let stride = columns.len();
        self.widen_to(rows, columns, out, stride);
    }

    /// The same with lines of `out` that begin `stride` elements apart; what lies between them stays as it is.
    pub(super) fn widen_to(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        out: &mut [f32],
        stride: usize,
    ) {
        if columns.is_empty() {
            return;
        }
        let size = self.tensor.dtype.size();
        let lines = self.row_bytes(rows).chunks_exact(self.inputs * size);
        for (line, out) in lines.zip(out.chunks_mut(stride)) {
            let line = &line[columns.start * size..columns.end * size];
            match self.tensor.dtype {
                Dtype::F32 => dispatch(Widen::<Single> { elements: Single::elements(line), out }),
                Dtype::F16 => dispatch(Widen::<Half> { elements: Half::elements(line), out }),
                Dtype::Bf16 => dispatch(Widen::<Brain> { elements: Brain::elements(line), out }),
            }
        }
    }

    /// Writes pairs `pairs` of rows `rows` of a bf16 matrix to `out`, lines `stride` words apart: columns `2 i` and
    /// `2 i + 1` in the low and high bits of a word, 0 for a column beyond the last.
    pub(super) fn pairs(
        &self,
        rows: Range<usize>,
        pairs: Range<usize>,
        out: &mut [f32],
        stride: usize,
    ) {
        if pairs.is_empty() {
            return;
        }
        for (line, out) in
            self.row_bytes(rows).chunks_exact(2 * self.inputs).zip(out.chunks_mut(stride))
        {
            let line = &line[4 * pairs.start..line.len().min(4 * pairs.end)];
            let (words, rest) = line.as_chunks::<4>();
            for (out, word) in out.iter_mut().zip(words) {
                *out = f32::from_bits(u32::from_le_bytes(*word));
            }
            if let (Some(out), &[low, high]) = (out.get_mut(words.len()), rest) {
                *out = f32::from_bits(u32::from(u16::from_le_bytes([low, high])));
            }
        }
    }
}

struct Widen<'a, E: Element> {
    elements: &'a [E::Bytes],
    out: &'a mut [f32],
}

impl<E: Element> Kernel for Widen<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        for (out, &bytes) in self.out.iter_mut().zip(self.elements) {
            *out = E::widen(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{DTYPES, host_weight};
    use super::*;
    use crate::tensor::SharedBytes;

    #[test]
    fn every_half_and_brain_float_widens_exactly() {
        for bits in 0..=u16::MAX {
            for (found, expected) in [
                (Half::widen(bits.to_le_bytes()), half::f16::from_bits(bits).to_f32()),
                (Brain::widen(bits.to_le_bytes()), half::bf16::from_bits(bits).to_f32()),
            ] {
                if expected.is_nan() {
                    assert!(found.is_nan(), "{bits:#x}");
                } else {
                    assert_eq!(found.to_bits(), expected.to_bits(), "{bits:#x}");
                }
            }
        }
    }

    #[test]
    fn any_part_widens_from_any_address() {
        for dtype in DTYPES {
            for offset in 0..5 {
                let tensor = host_weight(dtype, 9, 35, offset, 1);
                let all = tensor.to_f32();
                let weight = Weight::new(&tensor).unwrap();
                let mut out = vec![0.0; 4 * 19];
                weight.widen(3..7, 11..30, &mut out);
                for (row, line) in out.chunks(19).enumerate() {
                    assert_eq!(*line, all[(3 + row) * 35 + 11..][..19], "{dtype:?} at {offset}");
                }
                if let Some(values) = weight.in_place() {
                    assert_eq!((dtype, values), (Dtype::F32, all.as_slice()));
                    assert!(offset % 4 == 0);
                }
            }
        }
        let aligned = Weight::new(&host_weight(Dtype::F32, 3, 5, 0, 1)).unwrap();
        assert!(aligned.in_place().is_some(), "aligned f32 weights are not copied");
    }

    #[test]
    fn a_weight_shares_the_bytes_of_its_tensor_and_of_its_rows() {
        for dtype in DTYPES {
            let tensor = host_weight(dtype, 9, 8, 4, 1);
            let whole = Weight::new(&tensor).unwrap();
            let part = Weight::new(&tensor.rows(2..7).unwrap()).unwrap();
            assert_eq!(whole.row_bytes(0..9).as_ptr(), tensor.data.as_ptr());
            assert_eq!(part.row_bytes(0..5).as_ptr(), whole.row_bytes(2..7).as_ptr());
            assert_eq!(part.describe(), "[5, 8]");
            if let Some(values) = part.in_place() {
                assert_eq!(values.as_ptr().cast(), whole.row_bytes(2..7).as_ptr());
            }
        }
    }

    #[test]
    fn misfits_are_errors() {
        let bytes = SharedBytes::from_vec(vec![0; 24]);
        for (dtype, shape) in [
            (Dtype::F32, vec![6]),
            (Dtype::F32, vec![1, 2, 3]),
            (Dtype::F32, vec![2, 4]),
            (Dtype::F16, vec![2, 3]),
            (Dtype::Bf16, vec![usize::MAX, 2]),
        ] {
            let tensor = HostTensor { dtype, shape, data: bytes.clone() };
            assert_eq!(Weight::new(&tensor).unwrap_err().kind(), crate::error::ErrorKind::Backend);
        }
        let tensor = HostTensor { dtype: Dtype::F32, shape: vec![2, 3], data: bytes };
        assert_eq!(Weight::new(&tensor).unwrap().describe(), "[2, 3]");
    }
}
