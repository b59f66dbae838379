//! Products with weight matrices, and what follows them in the same pass.

use super::dots::dots;
use super::functions;
use super::product::{View, product};
use super::storage::{Tensor, mismatch, unwritten};
use super::tiled::{self, Unit, Units};
use super::weight::{Brain, Element, Half, Single, Weight};
use super::workers::{Tile, Workers, ranges, tiles, with_scratch};
use crate::backend::{Epilogue, Then};
use crate::error::Result;
use crate::tensor::Dtype;

/// The most rows that are computed one by one: their weights are read from memory once, and then from the cache.
const DIRECT_ROWS: usize = 12;
/// The fewest rows in f32 for which weights are packed for tiles in registers; in bf16 that pays for all others.
const TILED_ROWS: usize = 24;
/// Rows of `x` per task.
const BLOCK: usize = 256;
/// Outputs per task.
const PANEL: usize = 64;
/// Inputs per product. With [`PANEL`] it bounds how many weights a thread widens at a time: 128 KiB.
const DEPTH: usize = 512;
/// Weights per task of a single row.
const DIRECT_WEIGHTS: usize = 1 << 16;
/// The most outputs per task of a single row, a few more apart.
const DIRECT_OUTPUTS: usize = 1 << 10;

/// `activation(x Wᵀ + bias)`, then a sum or a product with other rows.
///
/// With few rows each output is one dot product; with more rows, tiles of the output are matrix products over panels of
/// the weights, packed for tiles in registers where the processor has a kernel for them, else widened panel by panel.
pub(super) fn linear(
    workers: &Workers,
    units: Units,
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
    if let Some(then) = epilogue.then {
        then.rows().expect("what a product meets", rows, outputs)?;
    }
    let mut out = unwritten(rows, outputs)?;
    let work = out.len().saturating_mul(inputs);
    if rows <= DIRECT_ROWS {
        let panel = (DIRECT_WEIGHTS / inputs.max(1)).clamp(1, DIRECT_OUTPUTS).next_multiple_of(4);
        let tiles = tiles(&mut out, outputs, &ranges(rows, DIRECT_ROWS), panel);
        workers.each(tiles, work, |tile| {
            for (row, out) in tile.rows.into_iter().enumerate() {
                direct_piece(units, x, weight, epilogue, row, tile.panel * panel, out);
            }
        });
    } else if let Some(unit) = tiling(units, weight.dtype(), rows).filter(|_| inputs > 0) {
        tiled::linear(workers, unit, x, weight, &mut out, |line, row, column| {
            add_bias(line, epilogue, column);
            if let Some(activation) = epilogue.activation {
                functions::activate(activation, line);
            }
            finish(line, epilogue, row, column);
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

/// The kernels for tiles in registers, if rows are as many as they want.
fn tiling(units: Units, dtype: Dtype, rows: usize) -> Option<Unit> {
    let brain = dtype == Dtype::Bf16 && units.brain.is_some();
    units.of(dtype).filter(|_| brain || rows >= TILED_ROWS)
}

/// Computes for one row the outputs from `column` on, as dot products.
fn direct_piece(
    units: Units,
    x: &Tensor,
    weight: &Weight,
    epilogue: &Epilogue<'_, Tensor>,
    row: usize,
    column: usize,
    out: &mut [f32],
) {
    let (x, weights) = (x.row(row), weight.row_bytes(column..column + out.len()));
    match (units.of(weight.dtype()), weight.dtype()) {
        (Some(unit), dtype) => unit.dots(x, dtype, weights, out),
        (None, Dtype::F32) => dots::<Single>(x, Single::elements(weights), out),
        (None, Dtype::F16) => dots::<Half>(x, Half::elements(weights), out),
        (None, Dtype::Bf16) => dots::<Brain>(x, Brain::elements(weights), out),
    }
    add_bias(out, epilogue, column);
    if let Some(activation) = epilogue.activation {
        functions::activate(activation, out);
    }
    finish(out, epilogue, row, column);
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
            finish(out, epilogue, first_row + row, column);
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

/// Adds to `line` what is to be added in row `row`, columns from `column`, or multiplies by it.
fn finish(line: &mut [f32], epilogue: &Epilogue<'_, Tensor>, row: usize, column: usize) {
    match epilogue.then {
        Some(Then::Add(rows)) => {
            for (value, &other) in line.iter_mut().zip(&rows.row(row)[column..]) {
                *value += other;
            }
        }
        Some(Then::Multiply(rows)) => {
            for (value, &other) in line.iter_mut().zip(&rows.row(row)[column..]) {
                *value *= other;
            }
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::Precision;
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

    fn plain(workers: &Workers, units: Units, x: &Tensor, weight: &HostTensor) -> Tensor {
        linear(workers, units, x, &Weight::new(weight).unwrap(), &Epilogue::default()).unwrap()
    }

    /// What a product in bf16 multiplies: activations are rounded where the weights are bf16 and rows are many.
    fn rounded(units: Units, x: &Tensor, dtype: Dtype) -> Tensor {
        if units.brain.is_none() || dtype != Dtype::Bf16 || x.rows() <= DIRECT_ROWS {
            return x.clone();
        }
        let values = x.values().iter().map(|&x| half::bf16::from_f32(x).to_f32()).collect();
        Tensor::new(values, x.rows(), x.width()).unwrap()
    }

    /// Compares a product on every path of this machine with f64.
    fn agree(dtype: Dtype, rows: usize, inputs: usize, outputs: usize) {
        agree_within(TOLERANCE, dtype, rows, inputs, outputs);
    }

    fn agree_within(tolerance: f64, dtype: Dtype, rows: usize, inputs: usize, outputs: usize) {
        let x = tensor(rows, inputs, 1);
        let weight = host_weight(dtype, outputs, inputs, 0, 2);
        for units in Units::every() {
            let found = on_any_threads(|workers| plain(workers, units, &x, &weight));
            let expected = reference(&rounded(units, &x, dtype), &weight);
            let what = format!("{dtype:?} {rows} x {inputs} x {outputs} with {units:?}");
            assert_close(&found, &expected, tolerance, &what);
        }
    }

    #[test]
    fn products_match_f64_for_every_dtype_and_shape() {
        for dtype in DTYPES {
            for rows in ROWS {
                for inputs in WIDTHS {
                    for outputs in [1, 33, 257] {
                        agree(dtype, rows, inputs, outputs);
                    }
                }
            }
        }
    }

    #[test]
    fn products_match_f64_beyond_every_block() {
        for (rows, inputs, outputs) in
            [(BLOCK + 9, 33, PANEL + 7), (17, 2 * DEPTH + 9, 70), (1, 1100, 1030), (29, 1201, 140)]
        {
            for dtype in DTYPES {
                agree(dtype, rows, inputs, outputs);
            }
        }
    }

    /// Rows that no first-level cache holds. Sums of 6200 such products stay below 256: one addition rounds by 2^-17 at most.
    #[test]
    fn a_long_row_matches_f64() {
        for dtype in DTYPES {
            agree_within(1e-4, dtype, 1, 6200, 39);
        }
    }

    /// Cut into parts of 516 and 520 rows, and into several tasks.
    #[test]
    fn products_match_f64_beyond_the_rows_packed_at_a_time() {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            agree(dtype, 1036, 9, 150);
        }
    }

    #[test]
    fn neither_dtype_nor_alignment_changes_a_bit() {
        for (rows, inputs, outputs) in [(1, 257, 33), (3, 257, 33), (130, 600, 70)] {
            let x = tensor(rows, inputs, 1);
            for (dtype, units) in DTYPES
                .into_iter()
                .flat_map(|dtype| Units::every().into_iter().map(move |u| (dtype, u)))
            {
                let weight = host_weight(dtype, outputs, inputs, 0, 2);
                let wide = HostTensor::from_f32(vec![outputs, inputs], &weight.to_f32());
                let expected = bits(&on_any_threads(|workers| plain(workers, units, &x, &weight)));
                if units.brain.is_none() {
                    let found = on_any_threads(|workers| plain(workers, units, &x, &wide));
                    assert_eq!(bits(&found), expected, "{dtype:?} with {units:?}");
                }
                for offset in 0..4 {
                    let weight = host_weight(dtype, outputs, inputs, offset, 2);
                    let found = on_any_threads(|workers| plain(workers, units, &x, &weight));
                    assert_eq!(bits(&found), expected, "{dtype:?} at {offset} with {units:?}");
                }
            }
        }
    }

    #[test]
    fn a_row_in_tiles_has_the_same_bits_in_any_company() {
        let weight = host_weight(Dtype::Bf16, 300, 700, 0, 2);
        let all = tensor(400, 700, 1);
        for units in Units::every().into_iter().filter(|units| *units != Units::default()) {
            let whole = on_any_threads(|workers| plain(workers, units, &all, &weight));
            let part = Tensor::new(all.values()[371 * 700..].to_vec(), 29, 700).unwrap();
            let part = on_any_threads(|workers| plain(workers, units, &part, &weight));
            assert_eq!(bits(&part), bits(&whole)[371 * 300..], "{units:?}");
        }
    }

    #[test]
    fn the_epilogue_adds_activates_and_adds_or_multiplies() {
        for (rows, outputs) in [(1, 33), (2, 257), (17, 72), (130, 7)] {
            let (x, weight) = (tensor(rows, 33, 1), host_weight(Dtype::Bf16, outputs, 33, 1, 2));
            let (bias, other) = (tensor(1, outputs, 3), tensor(rows, outputs, 4));
            for activation in ACTIVATIONS.map(Some).into_iter().chain([None]) {
                for (bias, then) in [
                    (None, None),
                    (Some(&bias), None),
                    (None, Some(Then::Add(&other))),
                    (Some(&bias), Some(Then::Add(&other))),
                    (Some(&bias), Some(Then::Multiply(&other))),
                ] {
                    for units in Units::every() {
                        let product = reference(&rounded(units, &x, Dtype::Bf16), &weight);
                        let found = on_any_threads(|workers| {
                            let epilogue = Epilogue { bias, activation, then };
                            linear(workers, units, &x, &Weight::new(&weight).unwrap(), &epilogue)
                                .unwrap()
                        });
                        let expected: Vec<_> = (0..rows * outputs)
                            .map(|index| {
                                let bias = bias
                                    .map_or(0.0, |bias| f64::from(bias.values()[index % outputs]));
                                let sum = product[index] + bias;
                                let value = activation
                                    .map_or(sum, |activation| testing::activation(activation, sum));
                                let other = f64::from(other.values()[index]);
                                match then {
                                    None => value,
                                    Some(Then::Add(_)) => value + other,
                                    Some(Then::Multiply(_)) => value * other,
                                }
                            })
                            .collect();
                        assert_close(
                            &found,
                            &expected,
                            TOLERANCE,
                            &format!("{rows} x {outputs} {activation:?} with {units:?}"),
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn empty_extents_are_no_special_case() {
        for rows in [0, 1, 3, 17, 40] {
            for (inputs, outputs) in [(0, 5), (5, 0), (0, 0)] {
                let weight = Weight::new(&host_weight(Dtype::F32, outputs, inputs, 0, 1)).unwrap();
                let bias = tensor(1, outputs, 3);
                let found = on_any_threads(|workers| {
                    let epilogue = Epilogue { bias: Some(&bias), ..Epilogue::default() };
                    linear(
                        workers,
                        Units::best(Precision::Bf16),
                        &tensor(rows, inputs, 1),
                        &weight,
                        &epilogue,
                    )
                    .unwrap()
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
        let error =
            linear(&workers, Units::default(), &tensor(2, 4, 1), &weight, &Epilogue::default())
                .unwrap_err();
        assert_eq!(error.message(), "rows of `[2, 4]` do not fit a weight of the shape `[5, 3]`");
        let (x, narrow, short) = (tensor(2, 3, 1), tensor(1, 4, 1), tensor(1, 5, 1));
        let epilogue = Epilogue { bias: Some(&narrow), ..Epilogue::default() };
        let error = linear(&workers, Units::default(), &x, &weight, &epilogue).unwrap_err();
        assert_eq!(error.message(), "the bias has the shape `[1, 4]`, expected `[1, 5]`");
        let epilogue = Epilogue { then: Some(Then::Add(&short)), ..Epilogue::default() };
        let error = linear(&workers, Units::default(), &x, &weight, &epilogue).unwrap_err();
        assert_eq!(
            error.message(),
            "what a product meets has the shape `[1, 5]`, expected `[2, 5]`"
        );
    }
}
