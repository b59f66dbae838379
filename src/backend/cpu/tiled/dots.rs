//! Dot products of one row with rows of a weight matrix, as in decoding: every weight is read once, in its dtype, and
//! widened in registers.

use std::arch::x86_64::{
    __m256, __m512, _mm_add_ps, _mm_cvtss_f32, _mm_loadu_si128, _mm_movehl_ps, _mm_shuffle_ps,
    _mm256_add_ps, _mm256_castps256_ps128, _mm256_castsi256_ps, _mm256_cvtepu16_epi32,
    _mm256_cvtph_ps, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256,
    _mm256_setzero_ps, _mm256_slli_epi32, _mm512_add_ps, _mm512_castsi512_ps,
    _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_reduce_add_ps,
    _mm512_setzero_ps, _mm512_slli_epi32,
};

/// [`Dtype::F32`](crate::tensor::Dtype::F32), as a constant of a loop.
pub(super) const SINGLE: u8 = 0;
/// [`Dtype::F16`](crate::tensor::Dtype::F16).
pub(super) const HALF: u8 = 1;
/// [`Dtype::Bf16`](crate::tensor::Dtype::Bf16).
pub(super) const BRAIN: u8 = 2;

/// Elements of `x` above which they no longer stay in a first-level cache beside the weights. Then some weight rows are
/// multiplied together, so that `x` is read once for all of them; otherwise one long run of weights reads faster.
const LONG: usize = 6144;
/// How many rows those are.
const ROWS: usize = 4;
/// Registers of sums per row, so that additions do not wait for each other.
const REGISTERS: usize = 4;

/// Bytes of an element.
const fn size(dtype: u8) -> usize {
    if dtype == SINGLE { 4 } else { 2 }
}

/// 16 elements from any address as f32.
///
/// # Safety
/// The elements can be read.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn widen_512<const DTYPE: u8>(bytes: *const u8) -> __m512 {
    // SAFETY: the caller promises that the elements can be read, and these loads need no alignment.
    unsafe {
        match DTYPE {
            SINGLE => _mm512_loadu_ps(bytes.cast()),
            HALF => _mm512_cvtph_ps(_mm256_loadu_si256(bytes.cast())),
            _ => {
                let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(bytes.cast()));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
            }
        }
    }
}

/// 8 elements from any address as f32.
///
/// # Safety
/// The elements can be read.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn widen_256<const DTYPE: u8>(bytes: *const u8) -> __m256 {
    // SAFETY: the caller promises that the elements can be read, and these loads need no alignment.
    unsafe {
        match DTYPE {
            SINGLE => _mm256_loadu_ps(bytes.cast()),
            HALF => _mm256_cvtph_ps(_mm_loadu_si128(bytes.cast())),
            _ => {
                let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(bytes.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn reduce_512(sums: __m512) -> f32 {
    _mm512_reduce_add_ps(sums)
}

#[inline]
#[target_feature(enable = "avx2")]
fn reduce_256(sums: __m256) -> f32 {
    let four = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps::<1>(sums));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ps(two, _mm_shuffle_ps::<1>(two, two)))
}

macro_rules! dots {
    (
        $(#[$doc:meta])*
        $name:ident, $group:ident, $features:literal, $lanes:literal,
        $zero:ident, $load:ident, $add:ident, $step:ident, $widen:ident, $reduce:ident
    ) => {
        $(#[$doc])*
        ///
        /// # Panics
        /// If `weights` does not hold a row of as many elements as `x` has for each element of `out`.
        #[target_feature(enable = $features)]
        pub(super) fn $name<const DTYPE: u8>(
            x: &[f32],
            weights: &[u8],
            out: &mut [f32],
            widen: impl Fn(&[u8]) -> f32,
        ) {
            let stride = x.len() * size(DTYPE);
            assert!(
                out.len().checked_mul(stride).is_some_and(|length| length <= weights.len()),
                "the weights hold their rows"
            );
            let rows = if x.len() > LONG { ROWS } else { 1 };
            for (index, out) in out.chunks_mut(rows).enumerate() {
                let weights = &weights[index * rows * stride..];
                if let Ok(out) = <&mut [f32; ROWS]>::try_from(&mut *out) {
                    // SAFETY: the assertion shows that there are as many rows as `out` has elements.
                    unsafe { $group::<DTYPE, ROWS>(x, weights, out, &widen) };
                    continue;
                }
                for (row, out) in out.iter_mut().enumerate() {
                    let mut one = [0.0];
                    // SAFETY: as above.
                    unsafe { $group::<DTYPE, 1>(x, &weights[row * stride..], &mut one, &widen) };
                    *out = one[0];
                }
            }
        }

        /// `COUNT` dot products, each added up in the same order whatever their number.
        ///
        /// # Safety
        /// `weights` holds `COUNT` rows of as many elements as `x` has.
        #[inline]
        #[target_feature(enable = $features)]
        #[allow(clippy::needless_range_loop, reason = "loops of constant length, unrolled into registers")]
        unsafe fn $group<const DTYPE: u8, const COUNT: usize>(
            x: &[f32],
            weights: &[u8],
            out: &mut [f32; COUNT],
            widen: impl Fn(&[u8]) -> f32,
        ) {
            const STEP: usize = REGISTERS * $lanes;
            let (size, length) = (size(DTYPE), x.len());
            let whole = length / STEP * STEP;
            let mut sums = [[$zero(); REGISTERS]; COUNT];
            let (x_start, start) = (x.as_ptr(), weights.as_ptr());
            for at in (0..whole).step_by(STEP) {
                // SAFETY: `at + STEP` is at most the length of `x` and of the rows, which the caller promises.
                unsafe {
                    for row in 0..COUNT {
                        for register in 0..REGISTERS {
                            let at = at + register * $lanes;
                            let weights = $widen::<DTYPE>(start.add((row * length + at) * size));
                            let x = $load(x_start.add(at));
                            sums[row][register] = $step(x, weights, sums[row][register]);
                        }
                    }
                }
            }
            for row in 0..COUNT {
                let [a, b, c, d] = sums[row];
                let mut sum = $reduce($add($add(a, b), $add(c, d)));
                let rest = &weights[(row * length + whole) * size..(row + 1) * length * size];
                for (x, weight) in x[whole..].iter().zip(rest.chunks_exact(size)) {
                    sum = x.mul_add(widen(weight), sum);
                }
                out[row] = sum;
            }
        }
    };
}

dots! {
    /// `out[j] = x · w[j]` for consecutive weight rows `w`, given as bytes; `widen` makes an f32 of one element.
    dots_512, group_512, "avx512f,fma", 16, _mm512_setzero_ps, _mm512_loadu_ps, _mm512_add_ps, _mm512_fmadd_ps,
    widen_512, reduce_512
}

dots! {
    /// The same in 256-bit registers.
    dots_256, group_256, "avx2,fma,f16c", 8, _mm256_setzero_ps, _mm256_loadu_ps, _mm256_add_ps, _mm256_fmadd_ps,
    widen_256, reduce_256
}
