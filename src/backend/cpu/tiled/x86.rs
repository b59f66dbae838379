//! The inner loops for x86-64: one tile of a product in registers.
//!
//! Words are 32 bits: an f32, or two bf16 that follow each other in the depth. Every loop multiplies a word of the left
//! operand, copied to all lanes, by a register of the right one, and adds in f32.

use std::arch::x86_64::{
    __m512, __m512bh, _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps,
    _mm256_permute2f128_ps, _mm256_setzero_ps, _mm256_shuffle_ps, _mm256_storeu_ps,
    _mm256_unpackhi_ps, _mm256_unpacklo_ps, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_loadu_ps,
    _mm512_set1_ps, _mm512_setzero_ps, _mm512_shuffle_f32x4, _mm512_shuffle_ps, _mm512_storeu_ps,
    _mm512_unpackhi_ps, _mm512_unpacklo_ps,
};

/// One tile: where its operands are. Element `(row, k)` of the left one is `left[row / 4 * quad + k * step + row % 4]`,
/// row `k` of the right one begins at `right[k * columns]`, row `row` of the result at `out[row * columns]`, where
/// `columns` is the width of a tile.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) left: *const f32,
    pub(super) quad: usize,
    pub(super) step: usize,
    pub(super) right: *const f32,
    pub(super) depth: usize,
    pub(super) out: *mut f32,
    /// Whether the product is added to what `out` holds.
    pub(super) accumulate: bool,
}

macro_rules! tile {
    (
        $(#[$doc:meta])*
        $name:ident, $features:literal, $register:ty, $lanes:literal x $vectors:literal,
        $zero:ident, $load:ident, $store:ident, |$word:ident| $spread:expr,
        |$sum:ident, $left:ident, $right:ident| $step:expr
    ) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// All elements that [`Place`] describes for `ROWS` rows, at most 12 and a multiple of 4, can be read and
        /// those of the result written.
        #[target_feature(enable = $features)]
        #[allow(clippy::needless_range_loop, reason = "loops of constant length, unrolled into registers")]
        pub(super) unsafe fn $name<const ROWS: usize>(place: Place) {
            const COLUMNS: usize = $lanes * $vectors;
            let Place { mut right, depth, out, .. } = place;
            let mut sums = [[$zero(); $vectors]; ROWS];
            let quad = |index: usize| place.left.wrapping_add(index * place.quad);
            let mut quads = [quad(0), quad(1), quad(2)];
            // SAFETY: the caller promises that these elements exist.
            unsafe {
                if place.accumulate {
                    for row in 0..ROWS {
                        for vector in 0..$vectors {
                            sums[row][vector] = $load(out.add(row * COLUMNS + vector * $lanes));
                        }
                    }
                }
                for _ in 0..depth {
                    let mut columns = [$zero(); $vectors];
                    for vector in 0..$vectors {
                        columns[vector] = $load(right.add(vector * $lanes));
                    }
                    for row in 0..ROWS {
                        let $word = quads[row / 4].add(row % 4);
                        let $left = $spread;
                        for vector in 0..$vectors {
                            let ($sum, $right) = (sums[row][vector], columns[vector]);
                            sums[row][vector] = $step;
                        }
                    }
                    right = right.add(COLUMNS);
                    quads = quads.map(|quad| quad.wrapping_add(place.step));
                }
                for row in 0..ROWS {
                    for vector in 0..$vectors {
                        $store(out.add(row * COLUMNS + vector * $lanes), sums[row][vector]);
                    }
                }
            }
        }
    };
}

tile! {
    /// A tile of f32 with 512-bit registers, 32 columns wide.
    single_512, "avx512f", __m512, 16 x 2,
    _mm512_setzero_ps, _mm512_loadu_ps, _mm512_storeu_ps, |word| _mm512_set1_ps(*word),
    |sum, left, right| _mm512_fmadd_ps(left, right, sum)
}

tile! {
    /// A tile of pairs of bf16 with 512-bit registers, 32 columns wide.
    brain_512, "avx512f,avx512bf16", __m512, 16 x 2,
    _mm512_setzero_ps, _mm512_loadu_ps, _mm512_storeu_ps, |word| _mm512_set1_ps(*word),
    |sum, left, right| _mm512_dpbf16_ps(sum, pairs(left), pairs(right))
}

tile! {
    /// A tile of f32 with 256-bit registers, 24 columns wide.
    single_256, "avx2,fma", __m256, 8 x 3,
    _mm256_setzero_ps, _mm256_loadu_ps, _mm256_storeu_ps, |word| _mm256_broadcast_ss(&*word),
    |sum, left, right| _mm256_fmadd_ps(left, right, sum)
}

/// The same bits as pairs of bf16.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn pairs(words: __m512) -> __m512bh {
    // SAFETY: both are 512 bits of which every pattern is valid.
    unsafe { std::mem::transmute(words) }
}

/// Transposes 16 lines of 16 words; line `i` of the result begins at `out[i * stride]`, which must hold all of them.
#[target_feature(enable = "avx512f")]
pub(super) fn transpose_512(lines: [&[f32; 16]; 16], out: &mut [f32], stride: usize) {
    assert!(stride >= 16 && out.len() >= 15 * stride + 16, "the lines fit");
    // SAFETY: each line has the 16 words that are read.
    let r = lines.map(|line| unsafe { _mm512_loadu_ps(line.as_ptr()) });
    let mut s = r;
    for i in (0..16).step_by(2) {
        s[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    // t[4 g + j]: in each 128-bit part p the words 4 p + j of lines 4 g..4 g + 4
    let mut t = s;
    for i in (0..16).step_by(4) {
        t[i] = _mm512_shuffle_ps::<0x44>(s[i], s[i + 2]);
        t[i + 1] = _mm512_shuffle_ps::<0xee>(s[i], s[i + 2]);
        t[i + 2] = _mm512_shuffle_ps::<0x44>(s[i + 1], s[i + 3]);
        t[i + 3] = _mm512_shuffle_ps::<0xee>(s[i + 1], s[i + 3]);
    }
    for j in 0..4 {
        let low = _mm512_shuffle_f32x4::<0x44>(t[j], t[4 + j]); // parts 0, 1 of both
        let high = _mm512_shuffle_f32x4::<0xee>(t[j], t[4 + j]); // parts 2, 3
        let low_2 = _mm512_shuffle_f32x4::<0x44>(t[8 + j], t[12 + j]);
        let high_2 = _mm512_shuffle_f32x4::<0xee>(t[8 + j], t[12 + j]);
        let lines = [
            _mm512_shuffle_f32x4::<0x88>(low, low_2),
            _mm512_shuffle_f32x4::<0xdd>(low, low_2),
            _mm512_shuffle_f32x4::<0x88>(high, high_2),
            _mm512_shuffle_f32x4::<0xdd>(high, high_2),
        ];
        for (part, line) in lines.into_iter().enumerate() {
            // SAFETY: the assertion above covers the last line, `4 * 3 + 3`.
            unsafe { _mm512_storeu_ps(out.as_mut_ptr().add((4 * part + j) * stride), line) };
        }
    }
}

/// Transposes 8 lines of 8 words; line `i` of the result begins at `out[i * stride]`, which must
/// hold all of them.
#[target_feature(enable = "avx2")]
pub(super) fn transpose_256(lines: [&[f32; 8]; 8], out: &mut [f32], stride: usize) {
    assert!(stride >= 8 && out.len() >= 7 * stride + 8, "the lines fit");
    // SAFETY: each line has the 8 words that are read.
    let r = lines.map(|line| unsafe { _mm256_loadu_ps(line.as_ptr()) });
    let mut s = r;
    for i in (0..8).step_by(2) {
        s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    let mut t = s;
    for i in (0..8).step_by(4) {
        t[i] = _mm256_shuffle_ps::<0x44>(s[i], s[i + 2]);
        t[i + 1] = _mm256_shuffle_ps::<0xee>(s[i], s[i + 2]);
        t[i + 2] = _mm256_shuffle_ps::<0x44>(s[i + 1], s[i + 3]);
        t[i + 3] = _mm256_shuffle_ps::<0xee>(s[i + 1], s[i + 3]);
    }
    for j in 0..4 {
        let low = _mm256_permute2f128_ps::<0x20>(t[j], t[4 + j]);
        let high = _mm256_permute2f128_ps::<0x31>(t[j], t[4 + j]);
        // SAFETY: the assertion above covers the last line, 7.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr().add(j * stride), low);
            _mm256_storeu_ps(out.as_mut_ptr().add((4 + j) * stride), high);
        }
    }
}
