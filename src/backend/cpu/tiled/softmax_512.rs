//! The softmax of a tile of scores whose columns are 32 queries, in registers of AVX-512.

use std::arch::x86_64::{
    __m512, _CMP_GT_OQ, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT, _mm512_add_ps,
    _mm512_cmp_ps_mask, _mm512_fmadd_ps, _mm512_fmsub_ps, _mm512_loadu_ps, _mm512_max_ps,
    _mm512_mul_ps, _mm512_roundscale_ps, _mm512_scalef_ps, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_storeu_ps, _mm512_storeu_si512, _mm512_sub_ps,
};
use std::f32::consts::{LN_2, LOG2_E};

use super::round_512::pairs;

const LANES: usize = 16;
const COLUMNS: usize = 2 * LANES;
/// Two to this power is 0 in f32. Powers below it, -∞ with them, are brought up to it.
const LOWEST: f32 = -200.0;

/// `2^x` for `x` from [`LOWEST`] to 0, within 2 units in the last place. NaN stays NaN.
///
/// The polynomial is that of `exp2f` in Cephes (S. L. Moshier, 1989).
#[inline]
#[target_feature(enable = "avx512f")]
fn power(x: __m512) -> __m512 {
    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    // returns its second operand where one is NaN
    let x = _mm512_max_ps(_mm512_set1_ps(LOWEST), x);
    let whole = _mm512_roundscale_ps::<NEAREST>(x);
    let rest = _mm512_sub_ps(x, whole);
    let mut series = _mm512_set1_ps(1.535_336_2e-4);
    for coefficient in [1.339_887_4e-3, 9.618_437e-3, 5.550_332_5e-2, 0.240_226_48, LN_2, 1.0] {
        series = _mm512_fmadd_ps(series, rest, _mm512_set1_ps(coefficient));
    }
    _mm512_scalef_ps(series, whole)
}

/// Turns scores, a row of 32 columns for each key, into exponentials relative to the largest score of their column so
/// far, and rescales `totals` and `sums`, which earlier steps summed up. `largest` is kept times log2 e.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn single(
    scores: &mut [f32],
    largest: &mut [f32],
    totals: &mut [f32],
    sums: &mut [f32],
) {
    let (keys, [largest], [totals]) = (
        scores.as_chunks_mut::<COLUMNS>().0,
        largest.as_chunks_mut::<COLUMNS>().0,
        totals.as_chunks_mut::<COLUMNS>().0,
    ) else {
        return;
    };
    for half in 0..2 {
        let shift = begin(keys, largest, totals, sums, half);
        let mut added = _mm512_setzero_ps();
        for key in &mut *keys {
            let key = &mut key.as_chunks_mut::<LANES>().0[half];
            let value = power(_mm512_fmsub_ps(load(key), _mm512_set1_ps(LOG2_E), shift));
            store(key, value);
            added = _mm512_add_ps(added, value);
        }
        let totals = &mut totals.as_chunks_mut::<LANES>().0[half];
        store(totals, _mm512_add_ps(load(totals), added));
    }
}

/// The same, but the exponentials of neighbouring keys go to `out` as pairs of bf16, in rows of 32; a last one alone is
/// paired with 0.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) fn brain(
    scores: &[f32],
    largest: &mut [f32],
    totals: &mut [f32],
    sums: &mut [f32],
    out: &mut [f32],
) {
    let (keys, [largest], [totals]) = (
        scores.as_chunks::<COLUMNS>().0,
        largest.as_chunks_mut::<COLUMNS>().0,
        totals.as_chunks_mut::<COLUMNS>().0,
    ) else {
        return;
    };
    for half in 0..2 {
        let shift = begin(keys, largest, totals, sums, half);
        let mut added = [_mm512_setzero_ps(); 2];
        for (pair, out) in keys.chunks(2).zip(out.as_chunks_mut::<COLUMNS>().0) {
            let mut values = [_mm512_setzero_ps(); 2];
            for (key, value) in pair.iter().zip(&mut values) {
                let key = load(&key.as_chunks::<LANES>().0[half]);
                *value = power(_mm512_fmsub_ps(key, _mm512_set1_ps(LOG2_E), shift));
            }
            for (added, value) in added.iter_mut().zip(values) {
                *added = _mm512_add_ps(*added, value);
            }
            let words = pairs(values[0], values[1]);
            let out = &mut out.as_chunks_mut::<LANES>().0[half];
            // SAFETY: the array has 16 words.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), words) };
        }
        let totals = &mut totals.as_chunks_mut::<LANES>().0[half];
        store(totals, _mm512_add_ps(load(totals), _mm512_add_ps(added[0], added[1])));
    }
}

/// Finds the largest scores of half of the columns and rescales what depends on them. Returns what to subtract from
/// scores times log2 e.
#[inline]
#[target_feature(enable = "avx512f")]
fn begin(
    keys: &[[f32; COLUMNS]],
    largest: &mut [f32; COLUMNS],
    totals: &mut [f32; COLUMNS],
    sums: &mut [f32],
    half: usize,
) -> __m512 {
    let mut highest = [_mm512_set1_ps(f32::NEG_INFINITY); 4];
    for keys in keys.chunks(4) {
        for (key, highest) in keys.iter().zip(&mut highest) {
            // NaN apart: the second operand is returned where one is NaN
            *highest = _mm512_max_ps(load(&key.as_chunks::<LANES>().0[half]), *highest);
        }
    }
    let highest =
        _mm512_max_ps(_mm512_max_ps(highest[0], highest[1]), _mm512_max_ps(highest[2], highest[3]));
    let largest = &mut largest.as_chunks_mut::<LANES>().0[half];
    let before = load(largest);
    // a query that has seen no key yet stands at the least number: its exponentials are 0, not NaN
    let highest = _mm512_max_ps(highest, _mm512_set1_ps(f32::MIN / 4.0));
    let highest = _mm512_max_ps(_mm512_mul_ps(highest, _mm512_set1_ps(LOG2_E)), before);
    store(largest, highest);
    if _mm512_cmp_ps_mask::<_CMP_GT_OQ>(highest, before) != 0 {
        let correction = power(_mm512_sub_ps(before, highest));
        let totals = &mut totals.as_chunks_mut::<LANES>().0[half];
        store(totals, _mm512_mul_ps(load(totals), correction));
        for sums in sums.as_chunks_mut::<COLUMNS>().0 {
            let sums = &mut sums.as_chunks_mut::<LANES>().0[half];
            store(sums, _mm512_mul_ps(load(sums), correction));
        }
    }
    highest
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(values: &[f32; LANES]) -> __m512 {
    // SAFETY: the array has 16 elements.
    unsafe { _mm512_loadu_ps(values.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(values: &mut [f32; LANES], register: __m512) {
    // SAFETY: the array has 16 elements.
    unsafe { _mm512_storeu_ps(values.as_mut_ptr(), register) }
}
