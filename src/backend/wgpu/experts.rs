//! Rows that go to different experts of a mixture. Which rows go where is decided on the device and stays there.

use super::elements::each;
use super::kernel::{Kernel, folded};
use super::stream::{Dispatch, Stream};
use super::tensor::{Tensor, mismatch};
use super::weight::{Each, PartSize, Weight};
use crate::backend::{Activation, Epilogue, RouterScores, Routing};
use crate::error::Result;
use crate::tensor::HostTensor;

/// Matrices of one shape and dtype, one for each expert, one below the other in as few buffers as shaders can see.
pub struct Stack {
    weight: Weight,
    experts: usize,
}

impl Stack {
    pub(super) fn new(
        stream: &Stream,
        experts: usize,
        part: &mut dyn FnMut(usize) -> Result<HostTensor>,
    ) -> Result<Self> {
        let most = usize::try_from(stream.pool.most()).unwrap_or(usize::MAX);
        Self::cut(stream, experts, part, most)
    }

    /// The same in buffers of at most `most` bytes, if single rows are not larger.
    pub(super) fn cut(
        stream: &Stream,
        experts: usize,
        part: &mut dyn FnMut(usize) -> Result<HostTensor>,
        most: usize,
    ) -> Result<Self> {
        if experts == 0 {
            return Err(mismatch("a mixture has no experts".to_owned()));
        }
        Ok(Self { weight: Weight::stacked(stream, experts, part, most)?, experts })
    }
}

/// Which experts every row goes to.
pub struct Routes {
    rows: usize,
    top: usize,
    experts: usize,
    /// What `route.wgsl` wrote: the experts of all pairs, and their weights.
    chosen: Tensor,
    /// What `group.wgsl` wrote: where experts begin, the pairs in their order, and the place of each.
    grouped: Tensor,
    /// What `parts.wgsl` wrote: the rows of each expert in parts of `size`.
    parts: Tensor,
    size: PartSize,
}

impl Routes {
    fn pairs(&self) -> usize {
        self.rows * self.top
    }
}

/// Chooses experts by logits `[rows, experts]`.
pub(super) fn route(stream: &Stream, logits: &Tensor, routing: &Routing) -> Result<Routes> {
    let (rows, experts, top) = (logits.rows(), logits.width(), routing.top);
    if top == 0 || top > experts {
        return Err(mismatch(format!("`{top}` of `{experts}` experts cannot be chosen")));
    }
    let pairs = rows
        .checked_mul(top)
        .filter(|pairs| *pairs < 1 << 30)
        .ok_or_else(|| mismatch(format!("`{rows}` rows are too many for `{top}` experts each")))?;
    let chosen = Tensor::new(stream, 2, pairs)?;
    stream.dispatch(&Dispatch {
        kernel: Kernel::Route,
        output: chosen.memory(),
        inputs: &[logits.memory()],
        parameters: &[
            experts as u32,
            rows as u32,
            top as u32,
            u32::from(routing.scores == RouterScores::Sigmoid),
            u32::from(routing.renormalise),
            routing.scale.to_bits(),
        ],
        groups: folded(rows),
        work: (top * logits.count()) as u64,
    })?;
    let grouped = Tensor::new(stream, 1, experts + 1 + 2 * pairs)?;
    stream.dispatch(&Dispatch {
        kernel: Kernel::Group,
        output: grouped.memory(),
        inputs: &[chosen.memory()],
        parameters: &[experts as u32, pairs as u32],
        groups: folded(experts),
        work: (experts * pairs) as u64,
    })?;
    let size = PartSize::of(pairs.div_ceil(experts));
    // the last part of an expert may be smaller, of as many experts as have rows
    let smaller = if size.rows() == 1 { 0 } else { experts.min(pairs) };
    let room = pairs.div_ceil(size.rows()) + smaller;
    let parts = Tensor::new(stream, room, 3)?;
    stream.dispatch(&Dispatch {
        kernel: Kernel::Parts,
        output: parts.memory(),
        inputs: &[grouped.memory()],
        parameters: &[experts as u32, size.rows() as u32, room as u32],
        groups: if pairs == 0 { [0; 3] } else { folded(experts) },
        work: (experts * experts) as u64,
    })?;
    Ok(Routes { rows, top, experts, chosen, grouped, parts, size })
}

/// Every row once for each of its experts, in the order of experts.
pub(super) fn spread(
    stream: &Stream,
    x: &Tensor,
    routes: &Routes,
    weighted: bool,
) -> Result<Tensor> {
    x.expect("the tensor that is spread", routes.rows, x.width())?;
    let out = Tensor::new(stream, routes.pairs(), x.width())?;
    by_route(stream, Kernel::Spread, &out, x, routes, weighted)?;
    Ok(out)
}

/// `activation(x Wᵀ + bias)` with the matrix of each row's expert.
pub(super) fn linear_each(
    stream: &Stream,
    x: &Tensor,
    stack: &Stack,
    routes: &Routes,
    bias: Option<&Tensor>,
    activation: Option<Activation>,
) -> Result<Tensor> {
    x.expect("the tensor of spread rows", routes.pairs(), x.width())?;
    if routes.experts != stack.experts {
        return Err(mismatch(format!(
            "routes to `{}` experts do not fit `{}` matrices",
            routes.experts, stack.experts
        )));
    }
    let each = Each {
        experts: stack.experts,
        parts: routes.parts.memory(),
        room: routes.parts.rows(),
        size: routes.size,
    };
    let epilogue = Epilogue { bias, activation, then: None };
    stack.weight.product_each(stream, x, &epilogue, &each)
}

/// What belongs to each row, summed.
pub(super) fn collect(
    stream: &Stream,
    x: &Tensor,
    routes: &Routes,
    weighted: bool,
) -> Result<Tensor> {
    x.expect("the tensor of spread rows", routes.pairs(), x.width())?;
    let out = Tensor::new(stream, routes.rows, x.width())?;
    by_route(stream, Kernel::Collect, &out, x, routes, weighted)?;
    Ok(out)
}

fn by_route(
    stream: &Stream,
    kernel: Kernel,
    out: &Tensor,
    x: &Tensor,
    routes: &Routes,
    weighted: bool,
) -> Result<()> {
    let parameters =
        [x.width() as u32, routes.top as u32, routes.experts as u32, u32::from(weighted)];
    let inputs = [x.memory(), routes.chosen.memory(), routes.grouped.memory()];
    each(stream, kernel, out, &inputs, &parameters)
}
