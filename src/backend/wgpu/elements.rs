//! Operations with a thread per element, and the norm of rows.

use super::kernel::{ELEMENT_THREADS, Kernel, folded};
use super::memory::Memory;
use super::stream::{Dispatch, Stream};
use super::tensor::{Tensor, mismatch};
use crate::backend::{Activation, Norm, NormKind, Pairing};
use crate::error::Result;

/// What an activation is called in shaders.
pub(super) fn number(activation: Activation) -> u32 {
    match activation {
        Activation::Gelu => 1,
        Activation::GeluTanh => 2,
        Activation::QuickGelu => 3,
        Activation::Silu => 4,
        Activation::Relu => 5,
        Activation::Sigmoid => 6,
        Activation::Tanh => 7,
    }
}

/// Runs a kernel that writes every element of `output`; `parameters` follow the number of elements.
pub(super) fn each(
    stream: &Stream,
    kernel: Kernel,
    output: &Tensor,
    inputs: &[&Memory],
    parameters: &[u32],
) -> Result<()> {
    let mut all = vec![output.count() as u32];
    all.extend(parameters);
    stream.dispatch(&Dispatch {
        kernel,
        output: output.memory(),
        inputs,
        parameters: &all,
        groups: folded(output.count().div_ceil(ELEMENT_THREADS)),
        work: output.count() as u64,
    })
}

/// A function of one element.
#[derive(Debug, Clone, Copy)]
pub(super) enum Function {
    Activation(Activation),
    Scale(f32),
    Softcap(f32),
}

pub(super) fn map(stream: &Stream, x: &Tensor, function: Function) -> Result<Tensor> {
    let (operation, factor) = match function {
        Function::Activation(activation) => (number(activation), 1.0),
        Function::Scale(factor) => (8, factor),
        Function::Softcap(cap) if cap > 0.0 && cap.is_finite() => (9, cap),
        Function::Softcap(cap) => {
            return Err(mismatch(format!("a soft cap must be a positive number, not `{cap}`")));
        }
    };
    let out = Tensor::new(stream, x.rows(), x.width())?;
    each(stream, Kernel::Map, &out, &[x.memory()], &[operation, f32::to_bits(factor)])?;
    Ok(out)
}

/// A function of two elements.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pair {
    Add,
    Multiply,
    Gated(Activation),
}

pub(super) fn combine(stream: &Stream, a: &Tensor, b: &Tensor, pair: Pair) -> Result<Tensor> {
    let (operation, activation) = match pair {
        Pair::Add => (0, 0),
        Pair::Multiply => (1, 0),
        Pair::Gated(activation) => (2, number(activation)),
    };
    let one_row = b.rows() == 1 && !matches!(pair, Pair::Gated(_));
    let one_column = matches!(pair, Pair::Multiply) && (b.rows(), b.width()) == (a.rows(), 1);
    if !one_column && (a.width() != b.width() || (a.rows() != b.rows() && !one_row)) {
        return Err(mismatch(format!(
            "`{}` and `{}` cannot be combined",
            a.describe(),
            b.describe()
        )));
    }
    let out = Tensor::new(stream, a.rows(), a.width())?;
    let each_meets = if one_column { a.width() } else { 1 };
    let parameters = [b.count() as u32, each_meets as u32, operation, activation];
    each(stream, Kernel::Combine, &out, &[a.memory(), b.memory()], &parameters)?;
    Ok(out)
}

pub(super) fn norm(stream: &Stream, x: &Tensor, norm: &Norm<'_, Tensor>) -> Result<Tensor> {
    let (rows, width) = (x.rows(), x.width());
    if let Some(weight) = norm.weight {
        weight.expect("the weight of a norm", 1, width)?;
    }
    if let Some(bias) = norm.bias {
        bias.expect("the bias of a norm", 1, width)?;
    }
    let out = Tensor::new(stream, rows, width)?;
    stream.dispatch(&Dispatch {
        kernel: Kernel::Norm,
        output: out.memory(),
        inputs: &[x.memory(), norm.weight.unwrap_or(x).memory(), norm.bias.unwrap_or(x).memory()],
        parameters: &[
            width as u32,
            rows as u32,
            u32::from(norm.kind == NormKind::Rms),
            u32::from(norm.weight.is_some()),
            u32::from(norm.bias.is_some()),
            norm.offset.to_bits(),
            norm.eps.to_bits(),
        ],
        groups: if out.count() == 0 { [0; 3] } else { folded(rows) },
        work: 4 * out.count() as u64,
    })?;
    Ok(out)
}

/// Rotates the first `2 * cos.width()` elements of each head of `x`.
pub(super) fn rope(
    stream: &Stream,
    x: &Tensor,
    heads: usize,
    cos: &Tensor,
    sin: &Tensor,
    pairing: Pairing,
) -> Result<Tensor> {
    let (rows, width, pairs) = (x.rows(), x.width(), cos.width());
    if heads == 0 || width % heads != 0 {
        return Err(mismatch(format!("`{heads}` heads do not share rows of `{width}` elements")));
    }
    cos.expect("the table of cosines", rows, pairs)?;
    sin.expect("the table of sines", rows, pairs)?;
    let head = width / heads;
    if pairs > head / 2 {
        return Err(mismatch(format!(
            "`{pairs}` pairs do not fit into a head of `{head}` elements"
        )));
    }
    let out = Tensor::new(stream, rows, width)?;
    let interleaved = u32::from(pairing == Pairing::Interleaved);
    let parameters = [width as u32, head as u32, pairs as u32, interleaved];
    let inputs = [x.memory(), cos.memory(), sin.memory()];
    each(stream, Kernel::Rope, &out, &inputs, &parameters)?;
    Ok(out)
}
