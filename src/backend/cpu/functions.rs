//! Elementwise functions, written without branches so that they vectorise.

use super::simd::{Kernel, dispatch, fused};
use super::storage::mismatch;
use crate::backend::Activation;
use crate::error::Result;

/// `e^x`, within 2 units in the last place. Below -87.33, where the result would not be a normal number, it is 0;
/// above 88.37 it stays at `e^88.37`, about 2.4e38. NaN stays NaN.
///
/// The method and the polynomial are those of `expf` in Cephes (S. L. Moshier, 1989).
#[inline(always)]
pub(super) fn exp<const FUSED: bool>(x: f32) -> f32 {
    const LOWEST: f32 = -87.336_54;
    const HIGHEST: f32 = 88.376_26;
    // adding this number rounds to an integer and leaves it in the low bits
    const ROUNDER: f32 = 12_582_912.0;
    // the natural logarithm of 2 in two parts, of which the first has few bits: its multiples are exact
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;

    let high = if x > HIGHEST { HIGHEST } else { x };
    let clamped = if high < LOWEST { LOWEST } else { high };
    let shifted = fused::<FUSED>(clamped, std::f32::consts::LOG2_E, ROUNDER);
    let power = shifted - ROUNDER;
    let rest = fused::<FUSED>(power, -LN_2_LOW, fused::<FUSED>(power, -LN_2_HIGH, clamped));
    let mut series = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_66, 0.5] {
        series = fused::<FUSED>(series, rest, coefficient);
    }
    let mantissa = fused::<FUSED>(series * rest, rest, rest) + 1.0;
    let exponent = shifted.to_bits().wrapping_sub(ROUNDER.to_bits()).wrapping_add(127) << 23;
    let value = mantissa * f32::from_bits(exponent);
    if x < LOWEST { 0.0 } else { value }
}

/// The hyperbolic tangent, within 3 units in the last place. NaN stays NaN.
///
/// The method and the polynomial are those of `tanhf` in Cephes (S. L. Moshier, 1989): where `x` is small, `1` minus
/// something would lose its digits.
#[inline(always)]
pub(super) fn tanh<const FUSED: bool>(x: f32) -> f32 {
    let square = x * x;
    let mut series = -5.704_988_7e-3;
    for coefficient in [2.063_909e-2, -5.373_971_6e-2, 0.133_314_42, -0.333_332_8] {
        series = fused::<FUSED>(series, square, coefficient);
    }
    let near = fused::<FUSED>(series * square, x, x);
    let far = 1.0 - 2.0 / (exp::<FUSED>(2.0 * x.abs()) + 1.0);
    let value = if x.abs() < 0.625 { near } else { far };
    value.copysign(x)
}

/// An error unless `cap` is a positive number, as a soft cap must be.
pub(super) fn check_cap(cap: f32) -> Result<()> {
    if cap > 0.0 && cap.is_finite() {
        return Ok(());
    }
    Err(mismatch(format!("a soft cap must be a positive number, not `{cap}`")))
}

/// Bends values towards the bounds `-cap` and `cap`: `cap * tanh(x / cap)`.
pub(super) fn softcap(cap: f32, values: &mut [f32]) {
    dispatch(Softcap { cap, values });
}

struct Softcap<'a> {
    cap: f32,
    values: &'a mut [f32],
}

impl Kernel for Softcap<'_> {
    type Output = ();
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        for value in self.values {
            *value = self.cap * tanh::<FUSED>(*value / self.cap);
        }
    }
}

/// The error function, within 2e-9 of the true value relative to it, and exactly ±1 beyond ±4 (erf 4 = 1 - 1.5e-8,
/// which is 1 in f32).
///
/// `z P(z²) / Q(z²)` with `P`, `Q` of degree 6, fitted to erf on `[0, 4]` for the least relative error (rational least
/// squares on Chebyshev nodes, reweighted towards a minimax fit; 60 digits). A test compares it with the series.
#[inline(always)]
fn erf(z: f64) -> f64 {
    const P: [f64; 7] = [
        -4.483_698_033_461_367e-8,
        -2.882_035_384_560_269e-7,
        3.057_665_030_265_209_5e-4,
        2.956_089_138_306_801_5e-3,
        5.093_878_524_378_789e-2,
        1.669_047_948_672_602e-1,
        1.128_379_168_145_755_6,
    ];
    const Q: [f64; 7] = [
        -6.200_292_817_073_839e-7,
        4.100_226_198_391_513e-5,
        1.039_888_358_558_206_4e-3,
        1.349_156_879_027_182e-2,
        1.055_593_557_679_209_2e-1,
        4.812_488_953_396_038e-1,
        1.0,
    ];
    let high = if z > 4.0 { 4.0 } else { z };
    let clamped = if high < -4.0 { -4.0 } else { high };
    let square = clamped * clamped;
    let (mut above, mut below) = (0.0, 0.0);
    for index in 0..7 {
        above = above * square + P[index];
        below = below * square + Q[index];
    }
    let inside = clamped * above / below;
    if z.abs() >= 4.0 { z.signum() } else { inside }
}

/// `x σ(slope x)`.
#[inline(always)]
fn swish<const FUSED: bool>(x: f32, slope: f32) -> f32 {
    x / (1.0 + exp::<FUSED>(-slope * x))
}

/// One value.
#[inline(always)]
fn apply<const FUSED: bool>(activation: Activation, x: f32) -> f32 {
    match activation {
        // in f64: where x is negative, 1 + erf loses digits that f32 cannot spare
        Activation::Gelu => {
            let x = f64::from(x);
            (0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))) as f32
        }
        // (1 + tanh u) / 2 = σ(2 u)
        Activation::GeluTanh => {
            const FACTOR: f32 = 1.595_769_2; // 2 √(2/π)
            let inner = FACTOR * fused::<FUSED>(0.044_715 * x * x, x, x);
            x / (1.0 + exp::<FUSED>(-inner))
        }
        Activation::QuickGelu => swish::<FUSED>(x, 1.702),
        Activation::Silu => swish::<FUSED>(x, 1.0),
        // not `max`, which would turn NaN into 0
        Activation::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        Activation::Sigmoid => 1.0 / (1.0 + exp::<FUSED>(-x)),
        Activation::Tanh => tanh::<FUSED>(x),
    }
}

/// Applies a function to every value.
pub(super) fn activate(activation: Activation, values: &mut [f32]) {
    dispatch(Activate { activation, values });
}

struct Activate<'a> {
    activation: Activation,
    values: &'a mut [f32],
}

impl Kernel for Activate<'_> {
    type Output = ();
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        // one loop a function: a choice inside the loop would keep it from vectorising
        macro_rules! all {
            ($activation:expr) => {
                for value in self.values {
                    *value = apply::<FUSED>($activation, *value);
                }
            };
        }
        match self.activation {
            Activation::Gelu => all!(Activation::Gelu),
            Activation::GeluTanh => all!(Activation::GeluTanh),
            Activation::QuickGelu => all!(Activation::QuickGelu),
            Activation::Silu => all!(Activation::Silu),
            Activation::Relu => all!(Activation::Relu),
            Activation::Sigmoid => all!(Activation::Sigmoid),
            Activation::Tanh => all!(Activation::Tanh),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, ACTIVATIONS};
    use super::*;

    /// Values of both signs, densest near 0, and their images.
    fn inputs() -> Vec<f32> {
        let mut inputs: Vec<f32> =
            (0..=40_000).map(|step| (step as f32 - 20_000.0) / 1_000.0).collect();
        inputs.extend((0..120).flat_map(|power| {
            let small = 2f32.powi(-power) * 1.37;
            [small, -small]
        }));
        inputs
    }

    #[test]
    fn erf_is_within_2e_9_of_the_series() {
        for step in 1..=40_000 {
            let z = f64::from(step) / 10_000.0;
            let expected = testing::erf(z);
            // at 4 the function steps to 1, which is off by 1.5e-8
            let tolerance = if step == 40_000 { 2e-8 } else { 2e-9 };
            assert!(
                (erf(z) / expected - 1.0).abs() < tolerance,
                "erf({z}) is {}, expected {expected}",
                erf(z)
            );
            assert_eq!(erf(-z).to_bits(), (-erf(z)).to_bits());
        }
        assert_eq!(erf(0.0).to_bits(), 0f64.to_bits());
        assert_eq!(
            (erf(1e9).to_bits(), erf(f64::NEG_INFINITY).to_bits()),
            (1f64.to_bits(), (-1f64).to_bits())
        );
        assert!(erf(f64::NAN).is_nan());
    }

    #[test]
    fn exp_is_within_2_units_in_the_last_place() {
        for step in -87_000..=88_300 {
            let x = step as f32 / 1_000.0;
            let expected = f64::from(x).exp();
            for found in [exp::<true>(x), exp::<false>(x)] {
                // 2 units in the last place are at most 2^-22 of the value
                assert!((f64::from(found) / expected - 1.0).abs() < 2.4e-7, "exp({x}) is {found}");
            }
        }
        for (x, expected) in [(0.0, 1.0), (-88.0, 0.0), (f32::NEG_INFINITY, 0.0), (-1e30, 0.0)] {
            assert_eq!(exp::<true>(x).to_bits(), f32::to_bits(expected), "exp({x})");
            assert_eq!(exp::<false>(x).to_bits(), f32::to_bits(expected), "exp({x})");
        }
        assert!(exp::<true>(f32::INFINITY) > 2e38);
        assert!(exp::<true>(f32::NAN).is_nan());
    }

    #[test]
    fn tanh_is_within_3_units_in_the_last_place() {
        for x in inputs() {
            let expected = f64::from(x).tanh();
            for found in [tanh::<true>(x), tanh::<false>(x)] {
                // 3 units in the last place are at most 3 * 2^-23 of the value, more where it is subnormal
                let tolerance = 3.6e-7 * expected.abs() + 3.0 * f64::from(f32::from_bits(1));
                assert!((f64::from(found) - expected).abs() <= tolerance, "tanh({x}) is {found}");
            }
        }
        for (x, expected) in
            [(0.0, 0.0), (-0.0, -0.0), (1e9, 1.0), (f32::INFINITY, 1.0), (f32::NEG_INFINITY, -1.0)]
        {
            assert_eq!(tanh::<true>(x).to_bits(), f32::to_bits(expected), "tanh({x})");
        }
        assert!(tanh::<true>(f32::NAN).is_nan());
    }

    #[test]
    fn soft_caps_match_f64() {
        for cap in [1e-3, 0.7, 30.0, 50.0, 1e6] {
            let mut found = inputs();
            softcap(cap, &mut found);
            for (x, found) in inputs().into_iter().zip(found) {
                let wide = f64::from(cap);
                let expected = wide * (f64::from(x) / wide).tanh();
                // those of the function, and a rounding before and after it
                let error = (f64::from(found) - expected).abs();
                let tolerance =
                    5e-7 * expected.abs() + wide.max(1.0) * f64::from(f32::MIN_POSITIVE);
                assert!(error <= tolerance, "{x} capped at {cap} is {found}, not {expected}");
            }
        }
        for cap in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert_eq!(check_cap(cap).unwrap_err().kind(), crate::error::ErrorKind::Backend);
        }
        assert!(check_cap(f32::MIN_POSITIVE).is_ok());
    }

    #[test]
    fn activations_match_f64() {
        for activation in ACTIVATIONS {
            let inputs = inputs();
            let mut outputs = inputs.clone();
            activate(activation, &mut outputs);
            for (&x, &found) in inputs.iter().zip(&outputs) {
                let expected = testing::activation(activation, f64::from(x));
                // a few roundings of the value; plus, of the gates, an exponent that is rounded relative to itself:
                // the gate times its argument is less than 1 where that matters
                let tolerance = 4e-7 * expected.abs() + 1e-7 * f64::from(x.abs()).min(1.0);
                let error = (f64::from(found) - expected).abs();
                assert!(error <= tolerance, "{activation:?}({x}) is {found}, expected {expected}");
            }
        }
    }

    #[test]
    fn activations_keep_nan_and_vanish_far_below_zero() {
        for activation in ACTIVATIONS {
            let mut values = [f32::NAN, -1e4, 1e4, -0.0];
            activate(activation, &mut values);
            assert!(values[0].is_nan(), "{activation:?}");
            let below = if activation == Activation::Tanh { -1.0 } else { 0.0 };
            assert!((values[1] - below).abs() < 1e-30, "{activation:?}: {}", values[1]);
            let (at_zero, far) = match activation {
                Activation::Sigmoid => (0.5, 1.0),
                Activation::Tanh => (0.0, 1.0),
                _ => (0.0, 1e4),
            };
            assert_eq!(values[2].to_bits(), f32::to_bits(far), "{activation:?}");
            assert!((values[3] - at_zero).abs() < f32::MIN_POSITIVE, "{activation:?}");
        }
    }
}
