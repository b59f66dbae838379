//! Inputs and comparisons for the tests of this backend.

use std::sync::OnceLock;

use super::storage::Tensor;
use super::workers::Workers;
use crate::backend::Activation;
use crate::tensor::{Dtype, HostTensor, SharedBytes};

/// Extents that are multiples of nothing, on both sides of the sizes at which kernels change.
pub(super) const ROWS: [usize; 7] = [1, 2, 3, 5, 13, 25, 130];
/// The same for widths.
pub(super) const WIDTHS: [usize; 5] = [1, 7, 33, 72, 257];
/// All activations.
pub(super) const ACTIVATIONS: [Activation; 7] = [
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::QuickGelu,
    Activation::Silu,
    Activation::Relu,
    Activation::Sigmoid,
    Activation::Tanh,
];
/// All element types.
pub(super) const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

/// `count` values between -1 and 1 that depend on `seed` alone (the mixer of splitmix64).
pub(super) fn values(count: usize, seed: u64) -> Vec<f32> {
    let value = |index: usize| {
        let mut bits = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ seed.wrapping_mul(0xd1b5_4a32_d192_ed03);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        (bits >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    (0..count).map(value).collect()
}

/// A tensor of [`values`].
pub(super) fn tensor(rows: usize, width: usize, seed: u64) -> Tensor {
    Tensor::new(values(rows * width, seed), rows, width).unwrap()
}

/// A weight of [`values`] rounded to `dtype`, whose bytes begin `offset` bytes after an aligned address (in a buffer
/// that the allocator aligns).
pub(super) fn host_weight(
    dtype: Dtype,
    outputs: usize,
    inputs: usize,
    offset: usize,
    seed: u64,
) -> HostTensor {
    let mut bytes = vec![0; offset];
    for value in values(outputs * inputs, seed) {
        match dtype {
            Dtype::F32 => bytes.extend(value.to_le_bytes()),
            Dtype::F16 => bytes.extend(half::f16::from_f32(value).to_le_bytes()),
            Dtype::Bf16 => bytes.extend(half::bf16::from_f32(value).to_le_bytes()),
        }
    }
    let length = bytes.len();
    let data = SharedBytes::from_vec(bytes).slice(offset..length).unwrap();
    HostTensor { dtype, shape: vec![outputs, inputs], data }
}

/// Runs `compute` with 1, 2 and 3 threads, demands equal bits, and returns the result.
pub(super) fn on_any_threads(compute: impl Fn(&Workers) -> Tensor) -> Tensor {
    static WORKERS: OnceLock<[Workers; 3]> = OnceLock::new();
    let workers = WORKERS.get_or_init(|| [1, 2, 3].map(|threads| Workers::new(threads).unwrap()));
    let [first, second, third] = workers.each_ref().map(compute);
    assert_eq!(bits(&first), bits(&second), "two threads");
    assert_eq!(bits(&first), bits(&third), "three threads");
    first
}

/// The bits of all values.
pub(super) fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.values().iter().map(|value| value.to_bits()).collect()
}

/// Demands that every value is within `tolerance` of what f64 gives.
pub(super) fn assert_close(found: &Tensor, expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.values().len(), expected.len(), "{what}");
    for (index, (&found, &expected)) in found.values().iter().zip(expected).enumerate() {
        let error = (f64::from(found) - expected).abs();
        // written so that NaN fails
        assert!(
            error <= tolerance,
            "{what}: element {index} is {found}, expected {expected}, off by {error:e}"
        );
    }
}

/// `f` of the 64-bit values of a tensor at row and column, row-major.
pub(super) fn map(x: &Tensor, f: impl Fn(usize, usize, f64) -> f64) -> Vec<f64> {
    let width = x.width();
    x.values()
        .iter()
        .enumerate()
        .map(|(index, &x)| f(index / width, index % width, f64::from(x)))
        .collect()
}

/// The error function in f64, from its series of positive terms; accurate to 1e-15 up to 6.
pub(super) fn erf(z: f64) -> f64 {
    let square = 2.0 * z * z;
    let (mut term, mut sum, mut odd) = (z, z, 3.0);
    while term.abs() > 1e-18 * sum.abs() {
        term *= square / odd;
        sum += term;
        odd += 2.0;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-z * z).exp() * sum
}

/// An activation in f64.
pub(super) fn activation(activation: Activation, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match activation {
        Activation::Gelu if x.abs() > 8.0 => x.max(0.0),
        Activation::Gelu => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::QuickGelu => x * sigmoid(1.702 * x),
        Activation::Silu => x * sigmoid(x),
        Activation::Relu => x.max(0.0),
        Activation::Sigmoid => sigmoid(x),
        Activation::Tanh => x.tanh(),
    }
}
