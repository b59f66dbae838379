//! Products with weight matrices, and what follows them in the same pass.

use super::dots::dots;
use super::functions;
use super::product::{View, product};
use super::storage::{Tensor, mismatch, zeros};
use super::weight::{Brain, Element, Half, Single, Weight};
use super::workers::{Tile, Workers, ranges, tiles, with_scratch};
use crate::backend::Epilogue;
use crate::error::Result;
use crate::tensor::Dtype;

/// Rows of `x` per task.
const BLOCK: usize = 256;
/// Outputs per task.
const PANEL: usize = 64;
/// Inputs per product. With [`PANEL`] it bounds how many weights a thread widens at a time: 128 KiB.
const DEPTH: usize = 512;
/// Weights per task of a single row.
const DIRECT_WEIGHTS: usize = 1 << 16;
/// The most outputs per task of a single row.
const DIRECT_OUTPUTS: usize = 1 << 10;

/// `residual + activation(x Wᵀ + bias)`.
///
/// With one row each output is one dot product; with more rows, tiles of the output are matrix products over panels of
/// the weights, widened panel by panel where they are not f32.
pub(super) fn linear(
    workers: &Workers,
    x: &Tensor,
    weight: &Weight,
    epilogue: &Epilogue<'_, Tensor>,
) -> Result<Tensor> {
    let (rows, inputs, outputs) = (x.rows(), x.width(), weight.outputs());
    if inputs != weight.inputs() {
        return Err(mismatch(format!(
            "rows of `{}` do not fit a weight of the shape `{}`",
            x.describe(),
            weight.describe()
        )));
    }
    if let Some(bias) = epilogue.bias {
        bias.expect("the bias", 1, outputs)?;
    }
    if let Some(residual) = epilogue.residual {
        residual.expect("the residual", rows, outputs)?;
    }
    let mut out = zeros(rows, outputs)?;
    let work = out.len().saturating_mul(inputs);
    if rows == 1 {
        let panel = (DIRECT_WEIGHTS / inputs.max(1)).clamp(1, DIRECT_OUTPUTS);
        workers.each(out.chunks_mut(panel).enumerate().collect(), work, |(index, out)| {
            direct_piece(x, weight, epilogue, index * panel, out);
        });
    } else {
        let blocks = ranges(rows, BLOCK);
        let tiles = tiles(&mut out, outputs, &blocks, PANEL);
        workers.each(tiles, work, |tile| {
            let first_row = blocks[tile.block].start;
            product_tile(x, weight, epilogue, tile, first_row);
        });
    }
    Tensor::new(out, rows, outputs)
}

/// Computes for a single row the outputs from `column` on, as dot products.
fn direct_piece(
    x: &Tensor,
    weight: &Weight,
    epilogue: &Epilogue<'_, Tensor>,
    column: usize,
    out: &mut [f32],
) {
    let (x, weights) = (x.row(0), weight.row_bytes(column..column + out.len()));
    match weight.dtype() {
        Dtype::F32 => dots::<Single>(x, Single::elements(weights), out),
        Dtype::F16 => dots::<Half>(x, Half::elements(weights), out),
        Dtype::Bf16 => dots::<Brain>(x, Brain::elements(weights), out),
    }
    add_bias(out, epilogue, column);
    if let Some(activation) = epilogue.activation {
        functions::activate(activation, out);
    }
    add_residual(out, epilogue, 0, column);
}

/// Computes a tile of [`PANEL`] outputs as matrix products.
fn product_tile(
    x: &Tensor,
    weight: &Weight,
    epilogue: &Epilogue<'_, Tensor>,
    tile: Tile<'_>,
    first_row: usize,
) {
    let rows = tile.rows.len();
    let count = tile.rows.first().map_or(0, |row| row.len());
    let inputs = x.width();
    let column = tile.panel * PANEL;
    let aligned = weight.in_place();
    with_scratch(rows * count + PANEL * DEPTH, |scratch| {
        let (sums, widened) = scratch.split_at_mut(rows * count);
        if inputs == 0 {
            sums.fill(0.0);
        }
        // all dtypes are cut alike, so a bf16 weight gives the bits of its f32 copy
        for depth in ranges(inputs, DEPTH) {
            let x = View::rows(&x.values()[first_row * inputs + depth.start..], inputs);
            let weights = if let Some(values) = aligned {
                View::rows(&values[column * inputs + depth.start..], inputs)
            } else {
                weight.widen(column..column + count, depth.clone(), widened);
                View::rows(widened, depth.len())
            };
            product(sums, (rows, count, depth.len()), x, weights.transposed(), depth.start > 0);
        }
        for line in sums.chunks_exact_mut(count) {
            add_bias(line, epilogue, column);
        }
        if let Some(activation) = epilogue.activation {
            functions::activate(activation, sums);
        }
        for (row, (out, line)) in tile.rows.into_iter().zip(sums.chunks_exact(count)).enumerate() {
            out.copy_from_slice(line);
            add_residual(out, epilogue, first_row + row, column);
        }
    });
}

/// Adds to `line` the bias of the columns from `column`.
fn add_bias(line: &mut [f32], epilogue: &Epilogue<'_, Tensor>, column: usize) {
    if let Some(bias) = epilogue.bias {
        for (value, &bias) in line.iter_mut().zip(&bias.row(0)[column..]) {
            *value += bias;
        }
    }
}

/// Adds to `line` the residual of row `row`, columns from `column`.
fn add_residual(line: &mut [f32], epilogue: &Epilogue<'_, Tensor>, row: usize, column: usize) {
    if let Some(residual) = epilogue.residual {
        for (value, &residual) in line.iter_mut().zip(&residual.row(row)[column..]) {
            *value += residual;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{
        self, ACTIVATIONS, DTYPES, ROWS, WIDTHS, assert_close, bits, host_weight, on_any_threads,
        tensor,
    };
    use super::*;
    use crate::tensor::HostTensor;

    /// Sums of up to about 1000 products of numbers between -1 and 1 stay below 32, so that one addition rounds by at
    /// most 2^-20; the roundings of a sum are as often up as down.
    const TOLERANCE: f64 = 2e-5;

    fn reference(x: &Tensor, weight: &HostTensor) -> Vec<f64> {
        let weight = weight.to_f32();
        let mut out = Vec::new();
        for row in 0..x.rows() {
            for line in weight.chunks_exact(x.width()) {
                out.push(
                    x.row(row).iter().zip(line).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum(),
                );
            }
        }
        out
    }

    fn plain(workers: &Workers, x: &Tensor, weight: &HostTensor) -> Tensor {
        linear(workers, x, &Weight::new(weight).unwrap(), &Epilogue::default()).unwrap()
    }

    #[test]
    fn products_match_f64_for_every_dtype_and_shape() {
        for dtype in DTYPES {
            for rows in ROWS {
                for inputs in WIDTHS {
                    for outputs in [1, 33, 257] {
                        let x = tensor(rows, inputs, 1);
                        let weight = host_weight(dtype, outputs, inputs, 0, 2);
                        let found = on_any_threads(|workers| plain(workers, &x, &weight));
                        let what = format!("{dtype:?} {rows} x {inputs} x {outputs}");
                        assert_close(&found, &reference(&x, &weight), TOLERANCE, &what);
                    }
                }
            }
        }
    }

    #[test]
    fn products_match_f64_beyond_every_block() {
        for (rows, inputs, outputs) in
            [(BLOCK + 9, 33, PANEL + 7), (17, 2 * DEPTH + 9, 70), (1, 1100, 1030)]
        {
            for dtype in DTYPES {
                let x = tensor(rows, inputs, 1);
                let weight = host_weight(dtype, outputs, inputs, 0, 2);
                let found = on_any_threads(|workers| plain(workers, &x, &weight));
                let what = format!("{dtype:?} {rows} x {inputs} x {outputs}");
                assert_close(&found, &reference(&x, &weight), TOLERANCE, &what);
            }
        }
    }

    #[test]
    fn neither_dtype_nor_alignment_changes_a_bit() {
        for (rows, inputs, outputs) in [(1, 257, 33), (3, 257, 33), (130, 600, 70)] {
            let x = tensor(rows, inputs, 1);
            for dtype in DTYPES {
                let weight = host_weight(dtype, outputs, inputs, 0, 2);
                let wide = HostTensor::from_f32(vec![outputs, inputs], &weight.to_f32());
                let expected = bits(&on_any_threads(|workers| plain(workers, &x, &wide)));
                for offset in 0..4 {
                    let weight = host_weight(dtype, outputs, inputs, offset, 2);
                    let found = on_any_threads(|workers| plain(workers, &x, &weight));
                    assert_eq!(bits(&found), expected, "{dtype:?} at {offset}");
                }
            }
        }
    }

    #[test]
    fn the_epilogue_adds_activates_and_adds() {
        for (rows, outputs) in [(1, 33), (2, 257), (17, 72), (130, 7)] {
            let (x, weight) = (tensor(rows, 33, 1), host_weight(Dtype::Bf16, outputs, 33, 1, 2));
            let (bias, residual) = (tensor(1, outputs, 3), tensor(rows, outputs, 4));
            let product = reference(&x, &weight);
            for activation in ACTIVATIONS.map(Some).into_iter().chain([None]) {
                for (bias, residual) in [
                    (None, None),
                    (Some(&bias), None),
                    (None, Some(&residual)),
                    (Some(&bias), Some(&residual)),
                ] {
                    let found = on_any_threads(|workers| {
                        let epilogue = Epilogue { bias, activation, residual };
                        linear(workers, &x, &Weight::new(&weight).unwrap(), &epilogue).unwrap()
                    });
                    let expected: Vec<_> = (0..rows * outputs)
                        .map(|index| {
                            let bias =
                                bias.map_or(0.0, |bias| f64::from(bias.values()[index % outputs]));
                            let sum = product[index] + bias;
                            activation
                                .map_or(sum, |activation| testing::activation(activation, sum))
                                + residual
                                    .map_or(0.0, |residual| f64::from(residual.values()[index]))
                        })
                        .collect();
                    assert_close(
                        &found,
                        &expected,
                        TOLERANCE,
                        &format!("{rows} x {outputs} {activation:?}"),
                    );
                }
            }
        }
    }

    #[test]
    fn empty_extents_are_no_special_case() {
        for rows in [0, 1, 3, 17] {
            for (inputs, outputs) in [(0, 5), (5, 0), (0, 0)] {
                let weight = Weight::new(&host_weight(Dtype::F32, outputs, inputs, 0, 1)).unwrap();
                let bias = tensor(1, outputs, 3);
                let found = on_any_threads(|workers| {
                    let epilogue = Epilogue { bias: Some(&bias), ..Epilogue::default() };
                    linear(workers, &tensor(rows, inputs, 1), &weight, &epilogue).unwrap()
                });
                let expected: Vec<_> =
                    (0..rows).flat_map(|_| bias.values().iter().copied()).collect();
                assert_eq!(found.values(), expected);
            }
        }
    }

    #[test]
    fn misfits_are_errors_that_name_the_shapes() {
        let workers = Workers::new(1).unwrap();
        let weight = Weight::new(&host_weight(Dtype::F32, 5, 3, 0, 1)).unwrap();
        let error = linear(&workers, &tensor(2, 4, 1), &weight, &Epilogue::default()).unwrap_err();
        assert_eq!(error.message(), "rows of `[2, 4]` do not fit a weight of the shape `[5, 3]`");
        let (x, narrow, short) = (tensor(2, 3, 1), tensor(1, 4, 1), tensor(1, 5, 1));
        let epilogue = Epilogue { bias: Some(&narrow), ..Epilogue::default() };
        let error = linear(&workers, &x, &weight, &epilogue).unwrap_err();
        assert_eq!(error.message(), "the bias has the shape `[1, 4]`, expected `[1, 5]`");
        let epilogue = Epilogue { residual: Some(&short), ..Epilogue::default() };
        let error = linear(&workers, &x, &weight, &epilogue).unwrap_err();
        assert_eq!(error.message(), "the residual has the shape `[1, 5]`, expected `[2, 5]`");
    }
}
