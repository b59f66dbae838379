//! A mixture of experts in place of an mlp: a router picks some for every row.
//!
//! Which rows go where never comes back to the host: a backend chooses, puts the rows of each expert together, multiplies
//! them by its matrices, and sums up what belongs to a row.

use super::feed::MlpWeights;
use super::{Linear, Loader, misshapen, name_missing};
use crate::backend::{Activation, Backend, RouterScores, Routing};
use crate::descriptor::block::{Half, MlpKind, Scores, Stored};
use crate::error::Result;
use crate::plan::graph::{ExpertsPlan, MlpPlan};
use crate::tensor::{HostTensor, SharedBytes};

/// Pairs of a row and an expert that are worked on at once: their inner and outer rows must not all exist at a time.
const PAIRS: usize = 8192;

/// The weights of all experts of one block.
pub(super) struct Experts<B: Backend> {
    routing: Routing,
    router: Linear<B>,
    gate: Option<Each<B>>,
    up: Each<B>,
    down: Each<B>,
    act: Activation,
    /// The expert that every row goes through, and the map to its weight.
    shared: Option<(MlpWeights<B>, Option<Linear<B>>)>,
}

/// One map of every expert.
struct Each<B: Backend> {
    stack: B::Stack,
    /// `[experts, out]`.
    bias: Option<B::Tensor>,
}

/// Where the matrices of one map are.
struct Place<'a, B: Backend> {
    loader: &'a Loader<'a, B>,
    experts: &'a ExpertsPlan,
    /// A tensor of all experts, or with `{e}` in its name one of each.
    name: String,
    /// The rows of a matrix, where it shares a tensor with another.
    half: Option<std::ops::Range<usize>>,
}

impl<B: Backend> Place<'_, B> {
    fn load(&self, bias: bool) -> Result<Each<B>> {
        let count = self.experts.count;
        let stacked =
            if self.experts.stacked { Some(self.loader.tensor(&self.name)?) } else { None };
        let stack = self.loader.backend.stack(count, &mut |expert| match &stacked {
            Some(stack) => self.cut(self.one_of(stack, expert)?),
            None => {
                let name = self.named(expert, "weight");
                let tensor = self.loader.tensor(&name)?;
                let rows = tensor.shape.first().copied().unwrap_or(1);
                let flat = vec![rows, tensor.elements() / rows.max(1)];
                let flat =
                    tensor.reshape(flat).ok_or_else(|| misshapen(&name, &tensor, &[rows]))?;
                self.cut(flat)
            }
        })?;
        let bias = if bias && !self.experts.stacked {
            let mut values = Vec::new();
            for expert in 0..count {
                let tensor = self.loader.tensor(&self.named(expert, "bias"))?;
                values.extend(self.cut(tensor)?.to_f32());
            }
            let width = values.len() / count.max(1);
            Some(self.loader.backend.upload(values, count, width)?)
        } else {
            None
        };
        Ok(Each { stack, bias })
    }

    fn named(&self, expert: usize, what: &str) -> String {
        format!("{}.{what}", self.name.replace("{e}", &expert.to_string()))
    }

    /// A matrix of `[experts, out, in]` or `[experts, in, out]`, as `[out, in]`.
    fn one_of(&self, stack: &HostTensor, expert: usize) -> Result<HostTensor> {
        let part = stack.rows(expert..expert + 1).and_then(|part| {
            let shape = part.shape.get(1..)?.to_vec();
            let part = part.reshape(shape)?;
            match self.experts.order {
                Stored::OutIn => Some(part),
                Stored::InOut => part.permuted(&[1, 0]),
            }
        });
        part.ok_or_else(|| misshapen(&self.name, stack, &[self.experts.count]))
    }

    fn cut(&self, tensor: HostTensor) -> Result<HostTensor> {
        let Some(half) = &self.half else { return Ok(tensor) };
        let part = tensor.rows(half.clone());
        let part = part.ok_or_else(|| misshapen(&self.name, &tensor, &[half.end]))?;
        if self.experts.stacked && self.experts.order == Stored::InOut {
            // a transposed copy, of which the other half would stay in memory as well
            return Ok(HostTensor { data: SharedBytes::from_vec(part.data.to_vec()), ..part });
        }
        Ok(part)
    }
}

impl<B: Backend> Experts<B> {
    /// `name` gives a slot's tensor; names of experts that are no stack hold `{e}`.
    pub(super) fn load(
        loader: &Loader<'_, B>,
        plan: &MlpPlan,
        experts: &ExpertsPlan,
        name: impl Fn(&str) -> Option<String> + Copy,
    ) -> Result<Self> {
        let slot = |slot: &str| name(slot).ok_or_else(|| name_missing(slot));
        let place = |slot: &str, half| -> Result<Each<B>> {
            let name = name(slot).ok_or_else(|| name_missing(slot))?;
            Place { loader, experts, name, half }.load(plan.bias)
        };
        let (first, second) = (0..plan.hidden, plan.hidden..2 * plan.hidden);
        let (gate, up) = match (plan.kind, plan.fused) {
            (MlpKind::Plain, _) => (None, place("up", None)?),
            (MlpKind::Gated, None) => (Some(place("gate", None)?), place("up", None)?),
            (MlpKind::Gated, Some([Half::Gate, _])) => {
                (Some(place("gate_up", Some(first))?), place("gate_up", Some(second))?)
            }
            (MlpKind::Gated, Some([Half::Up, _])) => {
                (Some(place("gate_up", Some(second))?), place("gate_up", Some(first))?)
            }
        };
        let shared = match experts.shared {
            Some((_, gated)) => {
                let weights = MlpWeights::from_parts(
                    Some(loader.linear(&slot("shared_gate")?, plan.bias)?),
                    loader.linear(&slot("shared_up")?, plan.bias)?,
                    loader.linear(&slot("shared_down")?, plan.bias)?,
                    plan.act,
                );
                let router =
                    if gated { Some(loader.linear(&slot("shared_router")?, false)?) } else { None };
                Some((weights, router))
            }
            None => None,
        };
        let routing = Routing {
            top: experts.top,
            scores: match experts.score {
                Scores::Softmax => RouterScores::Softmax,
                Scores::Sigmoid => RouterScores::Sigmoid,
            },
            renormalise: experts.renormalise,
            scale: experts.scale,
        };
        let router = loader.linear(&slot("router")?, false)?;
        let down = place("down", None)?;
        Ok(Self { routing, router, gate, up, down, act: plan.act, shared })
    }

    /// `[rows, width]` → `[rows, width]`; `residual` is added if it is given.
    pub(super) fn forward(
        &self,
        backend: &B,
        x: &B::Tensor,
        residual: Option<&B::Tensor>,
    ) -> Result<B::Tensor> {
        let (rows, _) = backend.shape(x);
        let most = (PAIRS / self.routing.top.max(1)).max(1);
        let mut out = if rows <= most {
            self.some_rows(backend, x)?
        } else {
            let mut parts = Vec::new();
            for start in (0..rows).step_by(most) {
                let some = backend.rows(x, start, most.min(rows - start))?;
                parts.push(self.some_rows(backend, &some)?);
            }
            backend.concat(&parts.iter().collect::<Vec<_>>())?
        };
        if let Some((shared, router)) = &self.shared {
            let mut more = shared.forward(backend, x, None)?;
            if let Some(router) = router {
                let gates = router.apply(backend, x)?;
                let gates = backend.activate(&gates, Activation::Sigmoid)?;
                more = backend.multiply(&more, &gates)?;
            }
            out = backend.add(&out, &more)?;
        }
        match residual {
            Some(residual) => backend.add(residual, &out),
            None => Ok(out),
        }
    }

    fn some_rows(&self, backend: &B, x: &B::Tensor) -> Result<B::Tensor> {
        let routes = backend.route(&self.router.apply(backend, x)?, &self.routing)?;
        // a sigmoid's weights scale what goes into the experts (`Llama4TextMoe.forward`), others what comes out
        let before = self.routing.scores == RouterScores::Sigmoid;
        let seen = backend.spread(x, &routes, before)?;
        let each = |map: &Each<B>, x: &B::Tensor, activation| {
            backend.linear_each(x, &map.stack, &routes, map.bias.as_ref(), activation)
        };
        let hidden = match &self.gate {
            Some(gate) => {
                let up = each(&self.up, &seen, None)?;
                backend.gated(&each(gate, &seen, None)?, &up, self.act)?
            }
            None => each(&self.up, &seen, Some(self.act))?,
        };
        backend.collect(&each(&self.down, &hidden, None)?, &routes, !before)
    }
}
