//! The product of one row with a weight matrix, as in decoding: every weight is read once, in its dtype, and widened in
//! registers.

use super::simd::{Kernel, LANES, dispatch, fused, sum_lanes};
use super::weight::Element;

/// Elements per step: two registers of lanes, so that consecutive additions do not wait for each other.
const STEP: usize = 2 * LANES;

/// `out[j] = x · w[j]` for consecutive weight rows `w`, given as the elements of all of them.
pub(super) fn dots<E: Element>(x: &[f32], weights: &[E::Bytes], out: &mut [f32]) {
    dispatch(Dots::<E> { x, weights, out });
}

struct Dots<'a, E: Element> {
    x: &'a [f32],
    weights: &'a [E::Bytes],
    out: &'a mut [f32],
}

impl<E: Element> Kernel for Dots<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        if self.x.is_empty() {
            self.out.fill(0.0);
            return;
        }
        let (x_steps, x_rest) = self.x.as_chunks::<STEP>();
        for (out, weights) in self.out.iter_mut().zip(self.weights.chunks_exact(self.x.len())) {
            let (steps, rest) = weights.as_chunks::<STEP>();
            let mut sums = [0.0; STEP];
            for (x, step) in x_steps.iter().zip(steps) {
                for lane in 0..STEP {
                    sums[lane] = fused::<FUSED>(x[lane], E::widen(step[lane]), sums[lane]);
                }
            }
            let mut lanes = [0.0; LANES];
            for lane in 0..LANES {
                lanes[lane] = sums[lane] + sums[LANES + lane];
            }
            let mut sum = sum_lanes(lanes);
            for (&x, &weight) in x_rest.iter().zip(rest) {
                sum = fused::<FUSED>(x, E::widen(weight), sum);
            }
            *out = sum;
        }
    }
}
