//! Operations on every element, and sums of weighted rows.

use super::functions::{self, check_cap};
use super::rows::check_indices;
use super::simd::{Kernel, dispatch};
use super::storage::{Tensor, copy, mismatch, unwritten};
use super::workers::Workers;
use crate::backend::Activation;
use crate::error::Result;

/// Scalar operations per element of a sum or product, roughly.
const WORK: usize = 1;

/// Scalar operations that a function takes, roughly.
const FUNCTION_WORK: usize = 16;

/// `a + b`; a `b` of one row is added to every row.
pub(super) fn add(workers: &Workers, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    combine::<false>(workers, a, b)
}

/// `a * b`, elementwise; a `b` of one row multiplies every row, a `b` of one column every column.
pub(super) fn multiply(workers: &Workers, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if (b.rows(), b.width()) == (a.rows(), 1) && a.width() != 1 {
        let index: Vec<u32> = (0..a.rows() as u32).collect();
        return blend(workers, a, &index, b.values(), 1);
    }
    combine::<true>(workers, a, b)
}

fn combine<const PRODUCT: bool>(workers: &Workers, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let repeated = b.rows() == 1 && a.rows() != 1;
    if b.width() != a.width() || (b.rows() != a.rows() && !repeated) {
        let (a, b) = (a.describe(), b.describe());
        return Err(mismatch(if PRODUCT {
            format!("cannot multiply `{a}` by `{b}`")
        } else {
            format!("cannot add `{b}` to `{a}`")
        }));
    }
    let mut out = copy(a)?;
    let unit = if repeated { a.width() } else { 1 };
    workers.pieces(&mut out, unit, WORK, |start, piece| {
        if repeated {
            for line in piece.chunks_exact_mut(unit) {
                dispatch(Combine::<PRODUCT> { out: line, other: b.row(0) });
            }
        } else {
            let other = &b.values()[start..start + piece.len()];
            dispatch(Combine::<PRODUCT> { out: piece, other });
        }
    });
    Tensor::new(out, a.rows(), a.width())
}

/// A function of every element.
pub(super) fn activate(workers: &Workers, x: &Tensor, activation: Activation) -> Result<Tensor> {
    let mut out = copy(x)?;
    workers.pieces(&mut out, 1, FUNCTION_WORK, |_, piece| functions::activate(activation, piece));
    Tensor::new(out, x.rows(), x.width())
}

/// `activation(gate) * up`, elementwise.
pub(super) fn gated(
    workers: &Workers,
    gate: &Tensor,
    up: &Tensor,
    activation: Activation,
) -> Result<Tensor> {
    if (gate.rows(), gate.width()) != (up.rows(), up.width()) {
        return Err(mismatch(format!(
            "the gate `{}` and what it scales `{}` have different shapes",
            gate.describe(),
            up.describe()
        )));
    }
    let mut out = copy(gate)?;
    workers.pieces(&mut out, 1, FUNCTION_WORK, |start, piece| {
        functions::activate(activation, piece);
        let other = &up.values()[start..start + piece.len()];
        dispatch(Combine::<true> { out: piece, other });
    });
    Tensor::new(out, gate.rows(), gate.width())
}

/// `x * factor`.
pub(super) fn scale(workers: &Workers, x: &Tensor, factor: f32) -> Result<Tensor> {
    let mut out = copy(x)?;
    workers.pieces(&mut out, 1, WORK, |_, piece| {
        for value in piece {
            *value *= factor;
        }
    });
    Tensor::new(out, x.rows(), x.width())
}

/// `cap * tanh(x / cap)`, elementwise.
pub(super) fn softcap(workers: &Workers, x: &Tensor, cap: f32) -> Result<Tensor> {
    check_cap(cap)?;
    let mut out = copy(x)?;
    workers.pieces(&mut out, 1, FUNCTION_WORK, |_, piece| functions::softcap(cap, piece));
    Tensor::new(out, x.rows(), x.width())
}

/// Sums of `count` weighted rows each, added in the order of the indices.
pub(super) fn blend(
    workers: &Workers,
    x: &Tensor,
    index: &[u32],
    weights: &[f32],
    count: usize,
) -> Result<Tensor> {
    if count == 0 || !index.len().is_multiple_of(count) || weights.len() != index.len() {
        return Err(mismatch(format!(
            "`{}` rows with `{}` weights do not make sums of `{count}`",
            index.len(),
            weights.len()
        )));
    }
    check_indices(index, x.rows(), "the tensor")?;
    let (rows, width) = (index.len() / count, x.width());
    let mut out = unwritten(rows, width)?;
    workers.pieces(&mut out, width, 2 * count, |start, piece| {
        let first = start / width * count;
        let terms = index[first..].chunks_exact(count).zip(weights[first..].chunks_exact(count));
        for (line, (index, weights)) in piece.chunks_exact_mut(width).zip(terms) {
            for (term, (&row, &weight)) in index.iter().zip(weights).enumerate() {
                let begins = term == 0;
                dispatch(Weigh { out: line, row: x.row(row as usize), weight, begins });
            }
        }
    });
    Tensor::new(out, rows, width)
}

/// `out * other` or `out + other`.
struct Combine<'a, const PRODUCT: bool> {
    out: &'a mut [f32],
    other: &'a [f32],
}

impl<const PRODUCT: bool> Kernel for Combine<'_, PRODUCT> {
    type Output = ();
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        for (out, &other) in self.out.iter_mut().zip(self.other) {
            *out = if PRODUCT { *out * other } else { *out + other };
        }
    }
}

/// `out + weight * row`, or `weight * row` if it is the first term. Rounded after the product and after the sum on any
/// machine, as elementwise operations one after the other would be.
struct Weigh<'a> {
    out: &'a mut [f32],
    row: &'a [f32],
    weight: f32,
    begins: bool,
}

impl Kernel for Weigh<'_> {
    type Output = ();
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let terms = self.out.iter_mut().zip(self.row);
        if self.begins {
            terms.for_each(|(out, &value)| *out = self.weight * value);
        } else {
            terms.for_each(|(out, &value)| *out += self.weight * value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{
        self, ACTIVATIONS, ROWS, WIDTHS, assert_close, map, on_any_threads, tensor,
    };
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn functions_match_f64() {
        for activation in ACTIVATIONS {
            for rows in ROWS {
                for width in WIDTHS {
                    let (gate, up) = (tensor(rows, width, 1), tensor(rows, width, 2));
                    let found =
                        on_any_threads(|workers| activate(workers, &gate, activation).unwrap());
                    let expected = map(&gate, |_, _, x| testing::activation(activation, x));
                    assert_close(&found, &expected, 2e-7, "a few roundings of numbers below 1");
                    let found =
                        on_any_threads(|workers| gated(workers, &gate, &up, activation).unwrap());
                    let expected = map(&gate, |row, column, x| {
                        testing::activation(activation, x) * f64::from(up.row(row)[column])
                    });
                    assert_close(&found, &expected, 3e-7, "one rounding more");
                }
            }
        }
    }

    #[test]
    fn sums_products_and_caps_match_f64() {
        for rows in ROWS {
            for width in WIDTHS {
                let (x, y, line) =
                    (tensor(rows, width, 1), tensor(rows, width, 2), tensor(1, width, 3));
                let other = |row: usize, column: usize| f64::from(y.row(row)[column]);
                let repeated = |column: usize| f64::from(line.values()[column]);
                let what = "one rounding of a number below 2";
                let found = on_any_threads(|workers| add(workers, &x, &y).unwrap());
                assert_close(&found, &map(&x, |row, at, x| x + other(row, at)), 6e-8, what);
                let found = on_any_threads(|workers| add(workers, &x, &line).unwrap());
                assert_close(&found, &map(&x, |_, at, x| x + repeated(at)), 6e-8, what);
                let what = "one rounding of a number below 1";
                let found = on_any_threads(|workers| multiply(workers, &x, &y).unwrap());
                assert_close(&found, &map(&x, |row, at, x| x * other(row, at)), 3e-8, what);
                let found = on_any_threads(|workers| multiply(workers, &x, &line).unwrap());
                assert_close(&found, &map(&x, |_, at, x| x * repeated(at)), 3e-8, what);
                let found = on_any_threads(|workers| scale(workers, &x, -0.7).unwrap());
                let factor = f64::from(-0.7_f32);
                assert_close(&found, &map(&x, |_, _, x| x * factor), 3e-8, what);
                let found = on_any_threads(|workers| softcap(workers, &x, 0.3).unwrap());
                let cap = f64::from(0.3_f32);
                let expected = map(&x, |_, _, x| cap * (x / cap).tanh());
                assert_close(&found, &expected, 1.5e-7, "a few roundings of numbers below 0.3");
            }
        }
    }

    #[test]
    fn blends_match_f64_and_add_in_order() {
        for rows in ROWS {
            for width in WIDTHS {
                for count in [1, 2, 4, 9] {
                    let x = tensor(rows, width, 1);
                    let index: Vec<u32> = (0..7 * count).map(|at| (at * 5 % rows) as u32).collect();
                    let weights = testing::values(index.len(), 2);
                    let found = on_any_threads(|workers| {
                        blend(workers, &x, &index, &weights, count).unwrap()
                    });
                    let term = |row: usize, j: usize, column: usize| {
                        let at = row * count + j;
                        (weights[at], x.row(index[at] as usize)[column])
                    };
                    let wide = |(weight, x): (f32, f32)| f64::from(weight) * f64::from(x);
                    let expected = map(&found, |row, column, _| {
                        (0..count).map(|j| wide(term(row, j, column))).sum()
                    });
                    // up to 9 terms below 1, each rounded twice, of sums below 8
                    assert_close(&found, &expected, 2e-6, &format!("{rows} x {width}, {count}"));
                    for row in 0..7 {
                        for column in 0..width {
                            let products = (0..count).map(|j| term(row, j, column));
                            let sum = products.map(|(weight, x)| weight * x).reduce(|a, b| a + b);
                            assert_eq!(found.row(row)[column].to_bits(), sum.unwrap().to_bits());
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn empty_tensors_pass_through() {
        let workers = Workers::new(2).unwrap();
        let (none, thin) = (tensor(0, 3, 1), tensor(3, 0, 1));
        for operation in [add, multiply] {
            let found = operation(&workers, &none, &tensor(1, 3, 1)).unwrap();
            assert_eq!(found.describe(), "[0, 3]");
            let found = operation(&workers, &thin, &tensor(1, 0, 1)).unwrap();
            assert_eq!(found.describe(), "[3, 0]");
        }
        assert_eq!(scale(&workers, &none, 2.0).unwrap().describe(), "[0, 3]");
        assert_eq!(softcap(&workers, &thin, 2.0).unwrap().describe(), "[3, 0]");
        assert_eq!(blend(&workers, &none, &[], &[], 4).unwrap().describe(), "[0, 3]");
        assert_eq!(blend(&workers, &thin, &[2, 0], &[1.0; 2], 1).unwrap().describe(), "[2, 0]");
    }

    #[test]
    fn misfits_are_errors() {
        let workers = Workers::new(1).unwrap();
        let x = tensor(3, 4, 1);
        let errors = [
            add(&workers, &x, &tensor(2, 4, 1)).unwrap_err(),
            add(&workers, &x, &tensor(3, 5, 1)).unwrap_err(),
            add(&workers, &tensor(1, 4, 1), &x).unwrap_err(),
            multiply(&workers, &x, &tensor(2, 4, 1)).unwrap_err(),
            multiply(&workers, &x, &tensor(3, 5, 1)).unwrap_err(),
            multiply(&workers, &tensor(1, 4, 1), &x).unwrap_err(),
            gated(&workers, &x, &tensor(4, 3, 1), Activation::Silu).unwrap_err(),
            softcap(&workers, &x, 0.0).unwrap_err(),
            blend(&workers, &x, &[0, 3], &[1.0; 2], 1).unwrap_err(),
            blend(&workers, &x, &[0, 1, 2], &[1.0; 3], 2).unwrap_err(),
            blend(&workers, &x, &[0, 1], &[1.0; 3], 2).unwrap_err(),
            blend(&workers, &x, &[], &[], 0).unwrap_err(),
        ];
        assert!(errors.iter().all(|error| error.kind() == ErrorKind::Backend));
        assert_eq!(errors[1].message(), "cannot add `[3, 5]` to `[3, 4]`");
        assert_eq!(errors[4].message(), "cannot multiply `[3, 4]` by `[3, 5]`");
        assert_eq!(errors[8].message(), "index `3` is beyond the `3` rows of the tensor");
        assert_eq!(errors[9].message(), "`3` rows with `3` weights do not make sums of `2`");
    }
}
