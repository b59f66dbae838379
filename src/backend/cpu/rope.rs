//! Rotary position embedding from tables of angles.

use super::simd::{Kernel, dispatch};
use super::storage::{Tensor, mismatch, reserve};
use super::workers::Workers;
use crate::backend::Pairing;
use crate::error::Result;

/// Scalar operations per element, roughly.
const WORK: usize = 4;

/// Rotates the first `2 * cos.width()` elements of each head of `x`.
pub(super) fn rope(
    workers: &Workers,
    x: &Tensor,
    heads: usize,
    cos: &Tensor,
    sin: &Tensor,
    pairing: Pairing,
) -> Result<Tensor> {
    let (rows, width, pairs) = (x.rows(), x.width(), cos.width());
    if heads == 0 || width % heads != 0 {
        return Err(mismatch(format!(
            "rows of `{}` do not divide into `{heads}` heads",
            x.describe()
        )));
    }
    let head = width / heads;
    cos.expect("the table of cosines", rows, pairs)?;
    sin.expect("the table of sines", rows, pairs)?;
    if pairs > head / 2 {
        return Err(mismatch(format!(
            "`{pairs}` pairs do not fit into a head of `{head}` elements"
        )));
    }
    let mut out = reserve(rows, width)?;
    out.extend_from_slice(x.values());
    workers.pieces(&mut out, width, WORK, |start, piece| {
        for (index, line) in piece.chunks_exact_mut(width).enumerate() {
            let row = start / width + index;
            dispatch(Rotate { line, head, cos: cos.row(row), sin: sin.row(row), pairing });
        }
    });
    Tensor::new(out, rows, width)
}

struct Rotate<'a> {
    line: &'a mut [f32],
    head: usize,
    cos: &'a [f32],
    sin: &'a [f32],
    pairing: Pairing,
}

impl Kernel for Rotate<'_> {
    type Output = ();
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let pairs = self.cos.len();
        for head in self.line.chunks_exact_mut(self.head) {
            let angles = self.cos.iter().zip(self.sin);
            let rotated = &mut head[..2 * pairs];
            match self.pairing {
                Pairing::Half => {
                    let (first, second) = rotated.split_at_mut(pairs);
                    for ((a, b), (&cos, &sin)) in first.iter_mut().zip(second).zip(angles) {
                        (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                    }
                }
                Pairing::Interleaved => {
                    for ([a, b], (&cos, &sin)) in
                        rotated.as_chunks_mut::<2>().0.iter_mut().zip(angles)
                    {
                        (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ROWS, assert_close, map, on_any_threads, tensor};
    use super::*;

    #[test]
    fn heads_match_f64() {
        for rows in ROWS {
            for (heads, head, pairs) in
                [(1, 2, 1), (3, 8, 4), (3, 8, 1), (2, 72, 36), (5, 33, 16), (1, 7, 0), (2, 80, 20)]
            {
                let x = tensor(rows, heads * head, 1);
                let (cos, sin) = (tensor(rows, pairs, 2), tensor(rows, pairs, 3));
                for pairing in [Pairing::Half, Pairing::Interleaved] {
                    let found = on_any_threads(|workers| {
                        rope(workers, &x, heads, &cos, &sin, pairing).unwrap()
                    });
                    let expected = map(&x, |row, column, value| {
                        let (first, element) = (column / head * head, column % head);
                        if element >= 2 * pairs {
                            return value;
                        }
                        let (pair, other, sign) = match pairing {
                            Pairing::Half if element < pairs => (element, element + pairs, -1.0),
                            Pairing::Half => (element - pairs, element - pairs, 1.0),
                            Pairing::Interleaved if element % 2 == 0 => {
                                (element / 2, element + 1, -1.0)
                            }
                            Pairing::Interleaved => (element / 2, element - 1, 1.0),
                        };
                        value * f64::from(cos.row(row)[pair])
                            + sign
                                * f64::from(x.row(row)[first + other])
                                * f64::from(sin.row(row)[pair])
                    });
                    // three roundings of numbers below 2
                    assert_close(
                        &found,
                        &expected,
                        2e-7,
                        &format!("{pairing:?} {rows} x {heads} x {head}, {pairs}"),
                    );
                }
            }
        }
    }

    #[test]
    fn misfits_are_errors() {
        let workers = Workers::new(1).unwrap();
        let x = tensor(3, 12, 1);
        let call =
            |heads, cos: &Tensor, sin: &Tensor| rope(&workers, &x, heads, cos, sin, Pairing::Half);
        let table = tensor(3, 3, 1);
        assert!(call(2, &table, &table).is_ok());
        let error = call(5, &table, &table).unwrap_err();
        assert_eq!(error.message(), "rows of `[3, 12]` do not divide into `5` heads");
        assert!(call(0, &table, &table).is_err());
        let error = call(3, &table, &table).unwrap_err();
        assert_eq!(error.message(), "`3` pairs do not fit into a head of `4` elements");
        let short = tensor(2, 3, 1);
        assert!(call(2, &short, &table).is_err());
        let error = call(2, &table, &short).unwrap_err();
        assert_eq!(error.message(), "the table of sines has the shape `[2, 3]`, expected `[3, 3]`");
        let empty = tensor(0, 12, 1);
        let none = tensor(0, 3, 1);
        assert_eq!(rope(&workers, &empty, 2, &none, &none, Pairing::Half).unwrap().rows(), 0);
    }
}
