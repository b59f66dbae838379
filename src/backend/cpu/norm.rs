//! Norms over rows.

use super::simd::{Kernel, LANES, dispatch};
use super::storage::{Tensor, unwritten};
use super::workers::Workers;
use crate::backend::{Norm, NormKind};
use crate::error::Result;

/// Scalar operations per element, roughly.
const WORK: usize = 8;

/// `normalised(x) * (offset + weight) + bias` for every row. Sums and the arithmetic of each element are in f64, so
/// only the result is rounded to f32.
pub(super) fn norm(workers: &Workers, x: &Tensor, norm: &Norm<'_, Tensor>) -> Result<Tensor> {
    let (rows, width) = (x.rows(), x.width());
    if let Some(weight) = norm.weight {
        weight.expect("the weight of a norm", 1, width)?;
    }
    if let Some(bias) = norm.bias {
        bias.expect("the bias of a norm", 1, width)?;
    }
    let mut out = unwritten(rows, width)?;
    workers.pieces(&mut out, width, WORK, |start, piece| {
        let x = &x.values()[start..start + piece.len()];
        for (x, out) in x.chunks_exact(width).zip(piece.chunks_exact_mut(width)) {
            dispatch(NormRow {
                kind: norm.kind,
                eps: f64::from(norm.eps),
                offset: f64::from(norm.offset),
                weight: norm.weight.map(|weight| weight.row(0)),
                bias: norm.bias.map(|bias| bias.row(0)),
                x,
                out,
            });
        }
    });
    Tensor::new(out, rows, width)
}

struct NormRow<'a> {
    kind: NormKind,
    eps: f64,
    offset: f64,
    weight: Option<&'a [f32]>,
    bias: Option<&'a [f32]>,
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for NormRow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let count = self.x.len() as f64;
        let mean = match self.kind {
            NormKind::Layer => sum(self.x, |x| x) / count,
            NormKind::Rms => 0.0,
        };
        let variance = sum(self.x, |x| (x - mean) * (x - mean)) / count;
        let factor = 1.0 / (variance + self.eps).sqrt();
        match self.weight {
            Some(weight) => {
                for ((out, &x), &weight) in self.out.iter_mut().zip(self.x).zip(weight) {
                    *out =
                        ((f64::from(x) - mean) * factor * (self.offset + f64::from(weight))) as f32;
                }
            }
            None => {
                for (out, &x) in self.out.iter_mut().zip(self.x) {
                    *out = ((f64::from(x) - mean) * factor) as f32;
                }
            }
        }
        if let Some(bias) = self.bias {
            for (out, &bias) in self.out.iter_mut().zip(bias) {
                *out += bias;
            }
        }
    }
}

/// The sum of `term` over a row, in lanes of f64.
#[inline(always)]
fn sum(row: &[f32], term: impl Fn(f64) -> f64) -> f64 {
    let (steps, rest) = row.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for step in steps {
        for lane in 0..LANES {
            lanes[lane] += term(f64::from(step[lane]));
        }
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|&x| term(f64::from(x))).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ROWS, WIDTHS, assert_close, on_any_threads, tensor};
    use super::*;

    fn reference(x: &Tensor, norm: &Norm<'_, Tensor>) -> Vec<f64> {
        let width = x.width() as f64;
        let mut out = Vec::new();
        for row in 0..x.rows() {
            let row: Vec<f64> = x.row(row).iter().map(|&x| f64::from(x)).collect();
            let mean =
                if norm.kind == NormKind::Layer { row.iter().sum::<f64>() / width } else { 0.0 };
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width;
            for (column, x) in row.iter().enumerate() {
                let factor = norm.weight.map_or(1.0, |weight| {
                    f64::from(norm.offset) + f64::from(weight.values()[column])
                });
                let bias = norm.bias.map_or(0.0, |bias| f64::from(bias.values()[column]));
                out.push((x - mean) / (variance + f64::from(norm.eps)).sqrt() * factor + bias);
            }
        }
        out
    }

    #[test]
    fn rows_match_f64() {
        for kind in [NormKind::Layer, NormKind::Rms] {
            for rows in ROWS {
                for width in WIDTHS {
                    let (x, weight, bias) =
                        (tensor(rows, width, 1), tensor(1, width, 2), tensor(1, width, 3));
                    for (weight, offset, bias) in [
                        (None, 1.0, None),
                        (Some(&weight), 0.0, None),
                        (Some(&weight), 1.0, Some(&bias)),
                        (None, 0.0, Some(&bias)),
                    ] {
                        let call = Norm { kind, weight, offset, bias, eps: 1e-6 };
                        let found = on_any_threads(|workers| norm(workers, &x, &call).unwrap());
                        // two roundings of a result below 16
                        assert_close(
                            &found,
                            &reference(&x, &call),
                            2e-6,
                            &format!("{kind:?} {rows} x {width}"),
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_large_mean_costs_no_digits() {
        let values = tensor(3, 257, 1).values().iter().map(|x| x + 4096.0).collect();
        let x = Tensor::new(values, 3, 257).unwrap();
        let call = Norm { kind: NormKind::Layer, weight: None, offset: 0.0, bias: None, eps: 1e-6 };
        let found = on_any_threads(|workers| norm(workers, &x, &call).unwrap());
        assert_close(&found, &reference(&x, &call), 2e-7, "rounding of a result below 2");
    }

    #[test]
    fn empty_tensors_and_misfits() {
        let workers = Workers::new(1).unwrap();
        let x = tensor(3, 4, 1);
        let call =
            |weight, bias| Norm { kind: NormKind::Rms, weight, offset: 0.0, bias, eps: 1e-6 };
        let wrong = tensor(1, 5, 1);
        let error = norm(&workers, &x, &call(Some(&wrong), None)).unwrap_err();
        assert_eq!(
            error.message(),
            "the weight of a norm has the shape `[1, 5]`, expected `[1, 4]`"
        );
        assert!(norm(&workers, &x, &call(None, Some(&wrong))).is_err());
        for (rows, width) in [(0, 4), (3, 0)] {
            let found = norm(&workers, &tensor(rows, width, 1), &call(None, None)).unwrap();
            assert_eq!((found.rows(), found.width()), (rows, width));
        }
    }
}
