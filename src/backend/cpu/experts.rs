//! Rows that go to different experts of a mixture.

use super::elementwise::blend;
use super::linear::linear;
use super::rows::{concat, gather, rows};
use super::storage::{Tensor, mismatch, reserve};
use super::tiled::Units;
use super::weight::Weight;
use super::workers::Workers;
use crate::backend::{Activation, Epilogue, RouterScores, Routing};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::HostTensor;

/// Matrices of one shape and dtype, one for each expert; each is read where its file has it.
pub struct Stack {
    matrices: Vec<Weight>,
}

impl Stack {
    pub(super) fn new(
        count: usize,
        part: &mut dyn FnMut(usize) -> Result<HostTensor>,
    ) -> Result<Self> {
        let mut matrices: Vec<Weight> = Vec::with_capacity(count);
        for expert in 0..count {
            let matrix = Weight::new(&part(expert)?)?;
            if let Some(first) = matrices.first()
                && (first.outputs(), first.inputs(), first.dtype())
                    != (matrix.outputs(), matrix.inputs(), matrix.dtype())
            {
                let (first, other) = (first.describe(), matrix.describe());
                return Err(mismatch(format!("experts of `{first}` and `{other}`")));
            }
            matrices.push(matrix);
        }
        Ok(Self { matrices })
    }
}

/// Which experts every row goes to. Pair `row * top + i` is the row's i-th expert, in the order of experts.
pub struct Routes {
    top: usize,
    /// The weight of each pair.
    weights: Vec<f32>,
    /// The pairs in the order of experts, then of rows.
    order: Vec<u32>,
    /// Where each pair stands in `order`.
    places: Vec<u32>,
    /// Where the pairs of each expert begin in `order`, and their number at the end.
    starts: Vec<usize>,
}

/// Chooses experts by logits `[rows, experts]`.
///
/// As `Qwen3VLMoeTextTopKRouter.forward` and `Llama4Router.forward`.
pub(super) fn route(logits: &Tensor, routing: &Routing) -> Result<Routes> {
    let (rows, experts, top) = (logits.rows(), logits.width(), routing.top);
    if top == 0 || top > experts {
        return Err(mismatch(format!("`{top}` of `{experts}` experts cannot be chosen")));
    }
    let pairs = rows
        .checked_mul(top)
        .filter(|pairs| u32::try_from(*pairs).is_ok())
        .ok_or_else(|| mismatch(format!("`{rows}` rows are too many for `{top}` experts each")))?;
    let (mut chosen, mut weights) = (Vec::with_capacity(pairs), Vec::with_capacity(pairs));
    for row in 0..rows {
        for (expert, weight) in choose(logits.row(row), routing)? {
            chosen.push(expert);
            weights.push(weight);
        }
    }
    let mut order: Vec<u32> = (0..pairs as u32).collect();
    order.sort_by_key(|pair| chosen[*pair as usize]); // stable: rows stay in order
    let mut places = vec![0; pairs];
    let mut starts = vec![0; experts + 1];
    for (place, pair) in order.iter().enumerate() {
        places[*pair as usize] = place as u32;
        starts[chosen[*pair as usize] + 1] += 1;
    }
    for expert in 0..experts {
        starts[expert + 1] += starts[expert];
    }
    Ok(Routes { top, weights, order, places, starts })
}

/// The experts of one row with their weights, in the order of experts.
fn choose(logits: &[f32], routing: &Routing) -> Result<Vec<(usize, f32)>> {
    if logits.iter().any(|logit| logit.is_nan()) {
        let message = "the model produced values that are not numbers";
        return Err(Error::new(ErrorKind::Weights, message));
    }
    let mut ranked: Vec<(usize, f32)> = logits.iter().copied().enumerate().collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    let largest = ranked.first().map_or(0.0, |(_, logit)| *logit);
    let total: f32 = logits.iter().map(|logit| (logit - largest).exp()).sum();
    ranked.truncate(routing.top);
    for (_, weight) in &mut ranked {
        *weight = match routing.scores {
            RouterScores::Softmax => (*weight - largest).exp() / total,
            RouterScores::Sigmoid => 1.0 / (1.0 + (-*weight).exp()),
        };
    }
    if routing.renormalise {
        let sum: f32 = ranked.iter().map(|(_, weight)| weight).sum();
        for (_, weight) in &mut ranked {
            *weight /= sum;
        }
    }
    for (_, weight) in &mut ranked {
        *weight *= routing.scale;
    }
    ranked.sort_by_key(|(expert, _)| *expert);
    Ok(ranked)
}

/// Every row once for each of its experts, in the order of experts.
pub(super) fn spread(
    workers: &Workers,
    x: &Tensor,
    routes: &Routes,
    weighted: bool,
) -> Result<Tensor> {
    let index: Vec<u32> = routes.order.iter().map(|pair| pair / routes.top as u32).collect();
    if index.len() != x.rows().saturating_mul(routes.top) {
        return Err(mismatch(format!(
            "`{}` has not the rows of routes for `{}`",
            x.describe(),
            index.len() / routes.top
        )));
    }
    if !weighted {
        return gather(workers, x, &index);
    }
    let weights: Vec<f32> =
        routes.order.iter().map(|pair| routes.weights[*pair as usize]).collect();
    blend(workers, x, &index, &weights, 1)
}

/// `activation(x Wᵀ + bias)` with the matrix of each row's expert.
pub(super) fn linear_each(
    workers: &Workers,
    units: Units,
    x: &Tensor,
    stack: &Stack,
    routes: &Routes,
    bias: Option<&Tensor>,
    activation: Option<Activation>,
) -> Result<Tensor> {
    let outputs = stack.matrices.first().map_or(0, Weight::outputs);
    let inputs = stack.matrices.first().map_or(x.width(), Weight::inputs);
    x.expect("the tensor of spread rows", routes.order.len(), inputs)?;
    if routes.starts.len() != stack.matrices.len() + 1 {
        return Err(mismatch(format!(
            "routes to `{}` experts do not fit `{}` matrices",
            routes.starts.len() - 1,
            stack.matrices.len()
        )));
    }
    if let Some(bias) = bias {
        bias.expect("the biases of experts", stack.matrices.len(), outputs)?;
    }
    let mut parts = Vec::new();
    for (expert, (weight, range)) in stack.matrices.iter().zip(routes.starts.windows(2)).enumerate()
    {
        let count = range[1] - range[0];
        if count > 0 {
            let own = rows(x, range[0], count)?;
            let bias = bias.map(|bias| rows(bias, expert, 1)).transpose()?;
            let epilogue = Epilogue { bias: bias.as_ref(), activation, then: None };
            parts.push(linear(workers, units, &own, weight, &epilogue)?);
        }
    }
    match parts.as_slice() {
        [] => Tensor::new(reserve(0, outputs)?, 0, outputs),
        _ => concat(&parts.iter().collect::<Vec<_>>()),
    }
}

/// What belongs to each row, summed.
pub(super) fn collect(
    workers: &Workers,
    x: &Tensor,
    routes: &Routes,
    weighted: bool,
) -> Result<Tensor> {
    x.expect("the tensor of spread rows", routes.order.len(), x.width())?;
    let ones;
    let weights = if weighted {
        &routes.weights
    } else {
        ones = vec![1.0; routes.places.len()];
        &ones
    };
    blend(workers, x, &routes.places, weights, routes.top)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, host_weight, tensor};
    use super::*;
    use crate::tensor::Dtype;

    const SOFTMAX: Routing =
        Routing { top: 2, scores: RouterScores::Softmax, renormalise: false, scale: 1.0 };

    #[test]
    fn the_largest_are_chosen_and_weighted() {
        let logits = [0.0, 2.0_f32.ln(), 3.0_f32.ln(), 2.0_f32.ln()]; // a softmax of 1/8, 2/8, 3/8, 2/8
        let chosen = |routing: Routing| choose(&logits, &routing).unwrap();
        let close = |found: Vec<(usize, f32)>, expected: &[(usize, f32)]| {
            assert_eq!(found.len(), expected.len());
            for ((expert, weight), (other, value)) in found.iter().zip(expected) {
                // a few roundings of numbers of at most 1.5
                assert!(expert == other && (weight - value).abs() < 5e-7, "{found:?}");
            }
        };
        // the first of two equals, in the order of experts
        close(chosen(SOFTMAX), &[(1, 0.25), (2, 0.375)]);
        close(chosen(Routing { renormalise: true, ..SOFTMAX }), &[(1, 0.4), (2, 0.6)]);
        close(chosen(Routing { scale: 4.0, top: 1, ..SOFTMAX }), &[(2, 1.5)]);
        let sigmoid = Routing { scores: RouterScores::Sigmoid, top: 3, ..SOFTMAX };
        close(chosen(sigmoid), &[(1, 2.0 / 3.0), (2, 0.75), (3, 2.0 / 3.0)]);
        assert!(choose(&[0.0, f32::NAN], &SOFTMAX).is_err());
    }

    /// Each row by itself, through the matrices of its experts one after the other.
    #[test]
    fn rows_meet_the_matrices_of_their_experts() {
        let workers = Workers::new(2).unwrap();
        let units = Units::best(crate::backend::cpu::Precision::F32);
        let (rows, experts, inputs, outputs) = (60, 4, 9, 5);
        let matrix = |expert: usize| host_weight(Dtype::Bf16, outputs, inputs, 0, expert as u64);
        let stack = Stack::new(experts, &mut |expert| Ok(matrix(expert))).unwrap();
        let (x, logits) = (tensor(rows, inputs, 8), tensor(rows, experts, 9));
        let routes = route(&logits, &SOFTMAX).unwrap();
        let spread = spread(&workers, &x, &routes, false).unwrap();
        let made = linear_each(&workers, units, &spread, &stack, &routes, None, None).unwrap();
        let found = collect(&workers, &made, &routes, true).unwrap();
        let mut expected = vec![0.0; rows * outputs];
        for row in 0..rows {
            for (expert, weight) in choose(logits.row(row), &SOFTMAX).unwrap() {
                let values = matrix(expert).to_f32();
                for (out, line) in values.chunks(inputs).enumerate() {
                    let pairs = line.iter().zip(x.row(row));
                    let sum: f64 = pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                    expected[row * outputs + out] += f64::from(weight) * sum;
                }
            }
        }
        // sums of nine products in f32
        assert_close(&found, &expected, 2e-6, "mixture");
    }
}
