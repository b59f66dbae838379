//! Matrix products in tiles that stay in registers, for machines with wide units.
//!
//! Operands are packed into the order in which the inner loop reads them (K. Goto, R. van de Geijn, "Anatomy of
//! high-performance matrix multiplication", 2008): the left one in quads of rows, whose words are copied to all lanes
//! one by one, the right one in panels as wide as a tile. A word is an f32, or two bf16 that follow each other in the
//! depth, in the bits of an f32. Every element of a result is summed up in the order of the depth, whatever tile it
//! lies in; so no bit depends on how rows and columns are cut.

#[cfg(target_arch = "x86_64")]
mod dots;
mod linear;
mod pack;
#[cfg(target_arch = "x86_64")]
mod round_512;
mod softmax;
#[cfg(target_arch = "x86_64")]
mod softmax_512;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::Precision;
use super::simd::dispatch;
use super::weight::{Brain, Element, Half, Single};
use crate::tensor::Dtype;

pub(super) use linear::linear;
pub(super) use pack::left;

/// Rows that are packed together.
pub(super) const QUAD: usize = 4;

/// The arithmetic that a product uses. A value says that this machine has the instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// f32 in 512-bit registers.
    #[cfg(target_arch = "x86_64")]
    Single512,
    /// f32 in 256-bit registers.
    #[cfg(target_arch = "x86_64")]
    Single256,
    /// Pairs of bf16 in 512-bit registers.
    #[cfg(target_arch = "x86_64")]
    Brain512,
}

/// The units that products use, chosen once per backend. Without a unit the portable path takes its place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Units {
    /// For products of f32.
    pub(super) single: Option<Unit>,
    /// For products with weights and activations in bf16; only where they are to be rounded to it.
    pub(super) brain: Option<Unit>,
}

impl Units {
    /// The best of this machine.
    pub(super) fn best(precision: Precision) -> Self {
        let single = Unit::singles().first().copied();
        let brain = match precision {
            Precision::F32 => None,
            Precision::Bf16 => Unit::brains().first().copied(),
        };
        Self { single, brain }
    }

    /// None, and every unit of this machine by itself: all paths that a test can take here.
    #[cfg(test)]
    pub(super) fn every() -> Vec<Self> {
        let mut found = vec![Self::default()];
        found.extend(
            Unit::singles().into_iter().map(|unit| Self { single: Some(unit), brain: None }),
        );
        found.extend(
            Unit::brains().into_iter().map(|unit| Self { single: None, brain: Some(unit) }),
        );
        found
    }

    /// The unit for a product with weights of this type.
    pub(super) fn of(self, dtype: Dtype) -> Option<Unit> {
        self.brain.filter(|_| dtype == Dtype::Bf16).or(self.single)
    }
}

/// The left operand of a tile: element `(row, k)` is `words[row / 4 * quad + k * step + row % 4]`.
#[derive(Clone, Copy)]
pub(super) struct Left<'a> {
    pub(super) words: &'a [f32],
    pub(super) quad: usize,
    pub(super) step: usize,
}

impl Unit {
    /// Every unit of this machine for products of f32, the best first.
    pub(super) fn singles() -> Vec<Self> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("fma")
            {
                found.push(Self(Kind::Single512));
            }
            if is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
            {
                found.push(Self(Kind::Single256));
            }
        }
        found
    }

    /// Every unit of this machine for products of bf16, the best first.
    pub(super) fn brains() -> Vec<Self> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512bf16")
            && is_x86_feature_detected!("fma")
        {
            found.push(Self(Kind::Brain512));
        }
        found
    }

    /// Columns of a tile.
    pub(super) fn columns(self) -> usize {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Single512 | Kind::Brain512 => 32,
            #[cfg(target_arch = "x86_64")]
            Kind::Single256 => 24,
        }
    }

    /// Lines and words that [`Unit::transpose`] takes.
    fn square(self) -> usize {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Single512 | Kind::Brain512 => 16,
            #[cfg(target_arch = "x86_64")]
            Kind::Single256 => 8,
        }
    }

    /// Whether a word is two bf16.
    pub(super) fn takes_pairs(self) -> bool {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Brain512 => true,
            #[cfg(target_arch = "x86_64")]
            Kind::Single512 | Kind::Single256 => false,
        }
    }

    /// How many words `elements` along the depth take.
    pub(super) fn words(self, elements: usize) -> usize {
        if self.takes_pairs() { elements.div_ceil(2) } else { elements }
    }

    /// `out = left right`, or `out += left right` if `accumulate`, for `quads` quads of rows: `right` is
    /// `[depth, columns]` and `out` `[4 quads, columns]`, where `columns` is [`Unit::columns`], both without gaps.
    ///
    /// # Panics
    /// If an operand is smaller than that; callers compute these extents from checked shapes.
    pub(super) fn multiply(
        self,
        left: Left<'_>,
        (quads, depth): (usize, usize),
        right: &[f32],
        out: &mut [f32],
        accumulate: bool,
    ) {
        let columns = self.columns();
        assert!(
            right.len() / columns >= depth && out.len() / (columns * QUAD) >= quads,
            "right operand and result hold their extents"
        );
        let far = |count: usize, stride: usize| count.saturating_sub(1).checked_mul(stride);
        let end = far(quads, left.quad)
            .zip(far(depth, left.step))
            .and_then(|(down, right)| down.checked_add(right)?.checked_add(QUAD));
        assert!(
            depth == 0 || quads == 0 || end.is_some_and(|end| end <= left.words.len()),
            "the left operand holds its extent"
        );
        #[cfg(target_arch = "x86_64")]
        {
            let mut place = x86::Place {
                left: left.words.as_ptr(),
                quad: left.quad,
                step: left.step,
                right: right.as_ptr(),
                depth,
                out: out.as_mut_ptr(),
                accumulate,
            };
            let mut rest = quads;
            while rest > 0 {
                // SAFETY: a value of this type says that the machine has the instructions. The assertions above show
                // that all elements of `quads` quads lie within their slices, and the tile takes `taken` of the
                // `rest` that are left. `out` is borrowed mutably, so it overlaps neither operand.
                let taken = unsafe {
                    match (self.0, rest) {
                        (Kind::Single512, 3..) => (x86::single_512::<12>(place), 3).1,
                        (Kind::Single512, _) => (x86::single_512::<4>(place), 1).1,
                        (Kind::Brain512, 3..) => (x86::brain_512::<12>(place), 3).1,
                        (Kind::Brain512, _) => (x86::brain_512::<4>(place), 1).1,
                        (Kind::Single256, _) => (x86::single_256::<4>(place), 1).1,
                    }
                };
                place.left = place.left.wrapping_add(taken * left.quad);
                place.out = place.out.wrapping_add(taken * QUAD * columns);
                rest -= taken;
            }
        }
    }

    /// `out[j] = x · w[j]` for consecutive rows `w` of a weight matrix, given as bytes. Nothing is rounded but sums, and
    /// elements of any type give the bits of their f32 copies.
    ///
    /// # Panics
    /// If there are fewer rows than elements of `out`.
    pub(super) fn dots(self, x: &[f32], dtype: Dtype, weights: &[u8], out: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        {
            let single = |bytes: &[u8]| Single::widen(Single::elements(bytes)[0]);
            let half = |bytes: &[u8]| Half::widen(Half::elements(bytes)[0]);
            let brain = |bytes: &[u8]| Brain::widen(Brain::elements(bytes)[0]);
            // SAFETY: a value of this type says that the machine has the instructions.
            unsafe {
                match (self.0, dtype) {
                    (Kind::Single256, Dtype::F32) => {
                        dots::dots_256::<{ dots::SINGLE }>(x, weights, out, single);
                    }
                    (Kind::Single256, Dtype::F16) => {
                        dots::dots_256::<{ dots::HALF }>(x, weights, out, half);
                    }
                    (Kind::Single256, Dtype::Bf16) => {
                        dots::dots_256::<{ dots::BRAIN }>(x, weights, out, brain);
                    }
                    (Kind::Single512 | Kind::Brain512, Dtype::F32) => {
                        dots::dots_512::<{ dots::SINGLE }>(x, weights, out, single);
                    }
                    (Kind::Single512 | Kind::Brain512, Dtype::F16) => {
                        dots::dots_512::<{ dots::HALF }>(x, weights, out, half);
                    }
                    (Kind::Single512 | Kind::Brain512, Dtype::Bf16) => {
                        dots::dots_512::<{ dots::BRAIN }>(x, weights, out, brain);
                    }
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        match self.0 {}
    }

    /// Neighbours of a line as a unit that [takes pairs](Unit::takes_pairs) wants them: rounded, the first in the low bits;
    /// a last one alone is paired with 0. For other units there is nothing to round, and `out` stays as it is.
    fn round_line(self, line: &[f32], out: &mut [f32]) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this kind says that the machine has AVX-512 with bf16.
            Kind::Brain512 => unsafe { round_512::line(line, out) },
            #[cfg(target_arch = "x86_64")]
            Kind::Single512 | Kind::Single256 => {}
        }
    }

    /// A row of a left operand whose rows run along the columns: the elements of `first`, or for a unit that takes pairs
    /// those of two rows together, zeros where there is no second.
    ///
    /// # Panics
    /// If the lengths differ.
    pub(super) fn round_rows(self, first: &[f32], second: Option<&[f32]>, out: &mut [f32]) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this kind says that the machine has AVX-512 with bf16.
            Kind::Brain512 => unsafe { round_512::rows(first, second, out) },
            #[cfg(target_arch = "x86_64")]
            Kind::Single512 | Kind::Single256 => out[..first.len()].copy_from_slice(first),
        }
    }

    /// The softmax of a tile of transposed scores, a row for each key: they become exponentials relative to the largest
    /// score of their column so far, and `totals` and `sums` (a row for each element of a value), which earlier steps
    /// summed up, are rescaled. `largest` begins at -∞ and its scale is the unit's own. Returns the exponentials as a
    /// right operand; for a unit that takes pairs it lies in `pairs`.
    pub(super) fn softmax<'a>(
        self,
        scores: &'a mut [f32],
        (largest, totals): (&mut [f32], &mut [f32]),
        sums: &mut [f32],
        pairs: &'a mut [f32],
    ) -> &'a [f32] {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Single512 => {
                // SAFETY: this kind says that the machine has AVX-512.
                unsafe { softmax_512::single(scores, largest, totals, sums) };
                scores
            }
            #[cfg(target_arch = "x86_64")]
            Kind::Brain512 => {
                // SAFETY: this kind says that the machine has AVX-512 with bf16.
                unsafe { softmax_512::brain(scores, largest, totals, sums, pairs) };
                pairs
            }
            #[cfg(target_arch = "x86_64")]
            Kind::Single256 => {
                dispatch(softmax::Columns::<24> { scores, largest, totals, sums });
                scores
            }
        }
    }

    /// Transposes the square of [`Unit::square`] lines that begin `length` words apart from `lines[0]`; line `i` of the
    /// result begins at `out[i * stride]`.
    ///
    /// # Panics
    /// If a slice is too short.
    fn transpose(self, lines: &[f32], length: usize, out: &mut [f32], stride: usize) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Single512 | Kind::Brain512 => {
                let lines = pack::square::<16>(lines, length);
                // SAFETY: both kinds say that the machine has AVX-512.
                unsafe { x86::transpose_512(lines, out, stride) }
            }
            #[cfg(target_arch = "x86_64")]
            Kind::Single256 => {
                let lines = pack::square::<8>(lines, length);
                // SAFETY: this kind says that the machine has AVX2.
                unsafe { x86::transpose_256(lines, out, stride) }
            }
        }
    }
}
