//! Rounding to pairs of bf16 with AVX-512.

use std::arch::x86_64::{
    __m512, __m512i, _mm512_cvtne2ps_pbh, _mm512_loadu_ps, _mm512_permutexvar_epi16,
    _mm512_set_epi16, _mm512_setzero_ps, _mm512_storeu_si512,
};

use super::pack::round;

/// Words of a register.
const LANES: usize = 16;

/// `low` and `high` rounded, lane by lane the one in the low and the other in the high bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) fn pairs(low: __m512, high: __m512) -> __m512i {
    // 16-bit places of `low` are 0 to 15, those of `high` 16 to 31
    let alternate = _mm512_set_epi16(
        31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4,
        19, 3, 18, 2, 17, 1, 16, 0,
    );
    // SAFETY: both are 512 bits of which every pattern is valid.
    let halves: __m512i = unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(high, low)) };
    _mm512_permutexvar_epi16(alternate, halves)
}

/// Neighbours of a line as pairs, the first in the low bits; a last one alone is paired with 0.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) fn line(line: &[f32], out: &mut [f32]) {
    let (steps, rest) = line.as_chunks::<{ 2 * LANES }>();
    let (whole, end) = out.split_at_mut(steps.len() * LANES);
    for (step, out) in steps.iter().zip(whole.as_chunks_mut::<LANES>().0) {
        // SAFETY: a step has two registers of elements, `out` one; the conversion keeps their order.
        unsafe {
            let low = _mm512_loadu_ps(step.as_ptr());
            let high = _mm512_loadu_ps(step.as_ptr().add(LANES));
            let words: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
            _mm512_storeu_si512(out.as_mut_ptr().cast(), words);
        }
    }
    for (pair, out) in rest.chunks(2).zip(end) {
        *out = f32::from_bits(round(pair[0]) | pair.get(1).map_or(0, |x| round(*x)) << 16);
    }
}

/// Elements of two rows as pairs, those of the first in the low bits; zeros where there is no second row.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) fn rows(first: &[f32], second: Option<&[f32]>, out: &mut [f32]) {
    assert!(
        out.len() >= first.len() && second.is_none_or(|second| second.len() == first.len()),
        "the rows have one length"
    );
    let whole = first.len() / LANES * LANES;
    for start in (0..whole).step_by(LANES) {
        // SAFETY: the assertion shows that all three slices have the elements from `start` to `whole`.
        unsafe {
            let low = _mm512_loadu_ps(first.as_ptr().add(start));
            let high = match second {
                Some(second) => _mm512_loadu_ps(second.as_ptr().add(start)),
                None => _mm512_setzero_ps(),
            };
            _mm512_storeu_si512(out.as_mut_ptr().add(start).cast(), pairs(low, high));
        }
    }
    for index in whole..first.len() {
        let high = second.map_or(0, |second| round(second[index]));
        out[index] = f32::from_bits(round(first[index]) | high << 16);
    }
}
