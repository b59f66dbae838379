//! A mixture of experts in place of an mlp: a router picks some for every row.

use super::feed::MlpWeights;
use super::{Linear, Loader, matrix, misshapen, name_missing};
use crate::backend::{Activation, Backend};
use crate::descriptor::block::{Half, MlpKind, Scores, Stored};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::graph::{ExpertsPlan, MlpPlan};
use crate::tensor::HostTensor;

/// The weights of all experts of one block.
pub(super) struct Experts<B: Backend> {
    plan: ExpertsPlan,
    router: Linear<B>,
    each: Vec<MlpWeights<B>>,
    /// The expert that every row goes through, and the map to its weight.
    shared: Option<(MlpWeights<B>, Option<Linear<B>>)>,
}

/// Which expert gives what to which row.
struct Choice {
    row: u32,
    expert: usize,
    weight: f32,
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
        let all = if experts.stacked {
            Self::stacked(loader, plan, experts, name)?
        } else {
            let one = |expert: usize| {
                let number = expert.to_string();
                MlpWeights::load(loader, plan, |slot| {
                    name(slot).map(|name| name.replace("{e}", &number))
                })
            };
            (0..experts.count).map(one).collect::<Result<_>>()?
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
        let router = loader.linear(&slot("router")?, false)?;
        Ok(Self { plan: experts.clone(), router, each: all, shared })
    }

    /// Experts that lie in one tensor, `[experts, out, in]` or `[experts, in, out]`.
    fn stacked(
        loader: &Loader<'_, B>,
        plan: &MlpPlan,
        experts: &ExpertsPlan,
        name: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<MlpWeights<B>>> {
        let stack = |slot: &str| -> Result<(String, HostTensor)> {
            let name = name(slot).ok_or_else(|| name_missing(slot))?;
            let tensor = loader.source.tensor(loader.component, &name)?;
            Ok((name, tensor))
        };
        let one = |(name, stack): &(String, HostTensor), expert: usize| -> Result<HostTensor> {
            let part = stack.rows(expert..expert + 1).and_then(|part| {
                let shape = part.shape.get(1..)?.to_vec();
                let part = part.reshape(shape)?;
                match experts.order {
                    Stored::OutIn => Some(part),
                    Stored::InOut => part.permuted(&[1, 0]),
                }
            });
            part.ok_or_else(|| misshapen(name, stack, &[experts.count]))
        };
        let linear = |tensor: &HostTensor| -> Result<Linear<B>> {
            Ok(Linear { weight: matrix(loader.backend, tensor)?, bias: None })
        };
        let halves = |name: &str, tensor: &HostTensor| -> Result<[Linear<B>; 2]> {
            let half = |range| tensor.rows(range).ok_or_else(|| misshapen(name, tensor, &[]));
            let (first, second) = (half(0..plan.hidden)?, half(plan.hidden..2 * plan.hidden)?);
            Ok([linear(&first)?, linear(&second)?])
        };
        let down = stack("down")?;
        let (gate, up, both) = match (plan.kind, plan.fused) {
            (MlpKind::Gated, Some(order)) => (None, None, Some((order, stack("gate_up")?))),
            (MlpKind::Gated, None) => (Some(stack("gate")?), Some(stack("up")?), None),
            (MlpKind::Plain, _) => (None, Some(stack("up")?), None),
        };
        let mut all = Vec::new();
        for expert in 0..experts.count {
            let (gate, up) = match (&gate, &up, &both) {
                (_, _, Some(([first, _], stack))) => {
                    let [one, other] = halves(&stack.0, &one(stack, expert)?)?;
                    match first {
                        Half::Gate => (Some(one), other),
                        Half::Up => (Some(other), one),
                    }
                }
                (Some(gate), Some(up), _) => {
                    (Some(linear(&one(gate, expert)?)?), linear(&one(up, expert)?)?)
                }
                (_, Some(up), _) => (None, linear(&one(up, expert)?)?),
                _ => return Err(name_missing("up")),
            };
            let down = linear(&one(&down, expert)?)?;
            all.push(MlpWeights::from_parts(gate, up, down, plan.act));
        }
        Ok(all)
    }

    /// `[rows, width]` → `[rows, width]`; `residual` is added if it is given.
    pub(super) fn forward(
        &self,
        backend: &B,
        x: &B::Tensor,
        residual: Option<&B::Tensor>,
    ) -> Result<B::Tensor> {
        let (rows, _) = backend.shape(x);
        let logits = backend.download(&self.router.apply(backend, x)?)?;
        let mut chosen = Vec::new();
        for (row, logits) in (0..).zip(logits.chunks(self.plan.count.max(1))) {
            for (expert, weight) in self.choose(logits)? {
                chosen.push(Choice { row, expert, weight });
            }
        }
        chosen.sort_by_key(|choice| choice.expert); // stable: rows stay in order
        let (mut parts, mut order) = (Vec::new(), vec![Vec::new(); rows]);
        let mut place = 0_u32;
        for group in chosen.chunk_by(|a, b| a.expert == b.expert) {
            let Some(expert) = group.first().and_then(|choice| self.each.get(choice.expert)) else {
                continue;
            };
            let index: Vec<u32> = group.iter().map(|choice| choice.row).collect();
            let mut seen = backend.gather(x, &index)?;
            if self.plan.score == Scores::Sigmoid {
                // what goes into the experts is scaled, not what comes out
                let weights: Vec<f32> = group.iter().map(|choice| choice.weight).collect();
                let each: Vec<u32> = (0..index.len() as u32).collect();
                seen = backend.blend(&seen, &each, &weights, 1)?;
            }
            parts.push(expert.forward(backend, &seen, None)?);
            for choice in group {
                let weight = if self.plan.score == Scores::Sigmoid { 1.0 } else { choice.weight };
                if let Some(row) = order.get_mut(choice.row as usize) {
                    row.push((place, weight));
                }
                place += 1;
            }
        }
        let all = backend.concat(&parts.iter().collect::<Vec<_>>())?;
        let top = self.plan.top.max(1);
        let (mut index, mut weights) = (Vec::new(), Vec::new());
        for row in &order {
            for slot in 0..top {
                let (place, weight) = row.get(slot).copied().unwrap_or((0, 0.0));
                index.push(place);
                weights.push(weight);
            }
        }
        let mut out = backend.blend(&all, &index, &weights, top)?;
        if let Some((shared, router)) = &self.shared {
            let mut more = shared.forward(backend, x, None)?;
            if let Some(router) = router {
                let gates = router.apply(backend, x)?;
                let gates = backend.download(&backend.activate(&gates, Activation::Sigmoid)?)?;
                let each: Vec<u32> = (0..rows as u32).collect();
                more = backend.blend(&more, &each, &gates, 1)?;
            }
            out = backend.add(&out, &more)?;
        }
        match residual {
            Some(residual) => backend.add(residual, &out),
            None => Ok(out),
        }
    }

    /// The experts of one row with their weights: the largest of its logits.
    ///
    /// As `Qwen3VLMoeTextTopKRouter.forward` and `Llama4Router.forward`.
    fn choose(&self, logits: &[f32]) -> Result<Vec<(usize, f32)>> {
        if logits.iter().any(|logit| logit.is_nan()) {
            let message = "the model produced values that are not numbers";
            return Err(Error::new(ErrorKind::Weights, message));
        }
        let mut ranked: Vec<(usize, f32)> = logits.iter().copied().enumerate().collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
        let largest = ranked.first().map_or(0.0, |(_, logit)| *logit);
        let total: f32 = logits.iter().map(|logit| (logit - largest).exp()).sum();
        ranked.truncate(self.plan.top);
        for (_, weight) in &mut ranked {
            *weight = match self.plan.score {
                Scores::Softmax => (*weight - largest).exp() / total,
                Scores::Sigmoid => 1.0 / (1.0 + (-*weight).exp()),
            };
        }
        if self.plan.renormalise {
            let sum: f32 = ranked.iter().map(|(_, weight)| weight).sum();
            for (_, weight) in &mut ranked {
                *weight /= sum;
            }
        }
        for (_, weight) in &mut ranked {
            *weight *= self.plan.scale;
        }
        Ok(ranked)
    }
}
