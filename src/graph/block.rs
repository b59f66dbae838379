//! One transformer block, over whole sequences or with a cache.

use super::attend::{Angles, AttentionWeights, Keys};
use super::feed::Feed;
use super::{Loader, NormWeights, name_missing};
use crate::backend::Backend;
use crate::descriptor::block::Placement;
use crate::error::Result;
use crate::plan::graph::{BlockPlan, StackPlan};

/// What stands around the attention or the mlp of a block.
struct Branch<B: Backend> {
    /// Of what goes in.
    before: Option<NormWeights<B>>,
    /// Of what comes out, before it is added.
    after: Option<NormWeights<B>>,
    /// Of the sum.
    behind: Option<NormWeights<B>>,
    /// What comes out is multiplied by this row.
    scale: Option<B::Tensor>,
    /// What comes out is multiplied by this number.
    factor: f32,
}

/// The weights of one block.
pub(super) struct Block<B: Backend> {
    attention: AttentionWeights<B>,
    attention_branch: Branch<B>,
    cross: Option<(AttentionWeights<B>, Branch<B>)>,
    mlp: Feed<B>,
    mlp_branch: Branch<B>,
}

/// What a block looks at besides its rows.
pub(super) struct Sight<'a, B: Backend> {
    /// The angles of its rotary embedding.
    pub(super) angles: Option<&'a Angles<B>>,
    /// The keys of its attention.
    pub(super) keys: Keys<'a, B>,
    /// The keys of its second attention.
    pub(super) cross: Option<Keys<'a, B>>,
    /// Rows that the mlp leaves as they are.
    pub(super) passing: &'a [u32],
}

impl<B: Backend> Block<B> {
    pub(super) fn load(loader: &Loader<'_, B>, stack: &StackPlan, index: usize) -> Result<Self> {
        let plan = stack.block(index);
        let name = |slot: &str| plan.name(index, slot);
        let norm = |slot: &str| -> Result<Option<NormWeights<B>>> {
            let stored = plan.norm.weight != crate::descriptor::block::NormWeight::None;
            let name =
                if stored { name(slot).ok_or_else(|| name_missing(slot))? } else { String::new() };
            loader.norm(&name, &plan.norm).map(Some)
        };
        let branch = |[before, after]: [&str; 2], scale: &str, gate: &str| -> Result<Branch<B>> {
            let scale = if plan.scaled && !scale.is_empty() {
                Some(loader.vector(&name(scale).ok_or_else(|| name_missing(scale))?)?)
            } else {
                None
            };
            let factor = if plan.gated && !gate.is_empty() {
                loader.number(&name(gate).ok_or_else(|| name_missing(gate))?)?.tanh()
            } else {
                1.0
            };
            let [mut input, mut output, mut behind] = [None, None, None];
            match plan.placement {
                Placement::Pre => input = norm(before)?,
                Placement::Post => behind = norm(before)?,
                Placement::Branch => output = norm(after)?,
                Placement::Sandwich => {
                    input = norm(before)?;
                    output = norm(after)?;
                }
                Placement::Parallel => {}
            }
            let factor = factor * plan.residual;
            Ok(Branch { before: input, after: output, behind, scale, factor })
        };
        let mut attention_branch = branch(["norm1", "after1"], "scale1", "gate1")?;
        if plan.placement == Placement::Parallel {
            attention_branch.before = norm("norm1")?;
        }
        let cross = match &plan.cross {
            Some(cross) => {
                let weights = AttentionWeights::load(loader, cross, |slot| {
                    plan.name(index, &format!("cross_{slot}"))
                })?;
                Some((weights, branch(["cross_norm1", "cross_after1"], "", "")?))
            }
            None => None,
        };
        Ok(Self {
            attention: AttentionWeights::load(loader, &plan.attention, name)?,
            attention_branch,
            cross,
            mlp: Feed::load(loader, &plan.mlp, name)?,
            mlp_branch: branch(["norm2", "after2"], "scale2", "gate2")?,
        })
    }

    /// `[rows, width]` → `[rows, width]`.
    pub(super) fn forward(
        &self,
        backend: &B,
        plan: &BlockPlan,
        x: &B::Tensor,
        sight: Sight<'_, B>,
    ) -> Result<B::Tensor> {
        let Sight { angles, keys, cross: cross_keys, passing } = sight;
        let attend = |x: &B::Tensor, residual: Option<&B::Tensor>| {
            self.attention.forward(backend, &plan.attention, x, angles, keys, residual)
        };
        if plan.placement == Placement::Parallel {
            let normed = self.attention_branch.enter(backend, x)?;
            let attended = self.attention_branch.add(backend, x, &normed, attend)?;
            return self.mlp_branch.add(backend, &attended, &normed, |x, residual| {
                self.mlp.forward(backend, x, residual)
            });
        }
        let mut x = self.attention_branch.apply(backend, x, attend)?;
        if let (Some((weights, branch)), Some(plan), Some(keys)) =
            (&self.cross, &plan.cross, cross_keys)
        {
            x = branch.apply(backend, &x, |x, residual| {
                weights.forward(backend, plan, x, None, keys, residual)
            })?;
        }
        let out = self
            .mlp_branch
            .apply(backend, &x, |x, residual| self.mlp.forward(backend, x, residual))?;
        if passing.is_empty() {
            return Ok(out);
        }
        backend.scatter(out, &backend.gather(&x, passing)?, passing)
    }

    /// Keys and values that its attention makes of media states.
    pub(super) fn project_states(
        &self,
        backend: &B,
        plan: &BlockPlan,
        states: &B::Tensor,
    ) -> Result<(B::Tensor, B::Tensor)> {
        self.attention.project_states(backend, &plan.attention, states)
    }
}

impl<B: Backend> Branch<B> {
    fn enter(&self, backend: &B, x: &B::Tensor) -> Result<B::Tensor> {
        match &self.before {
            Some(norm) => norm.apply(backend, x),
            None => Ok(x.clone()),
        }
    }

    /// `behind(x + factor · scale · after(f(before(x))))`; `f` adds what it is given as the second.
    fn apply(
        &self,
        backend: &B,
        x: &B::Tensor,
        f: impl FnOnce(&B::Tensor, Option<&B::Tensor>) -> Result<B::Tensor>,
    ) -> Result<B::Tensor> {
        let input = self.enter(backend, x)?;
        let sum = self.add(backend, x, &input, f)?;
        match &self.behind {
            Some(norm) => norm.apply(backend, &sum),
            None => Ok(sum),
        }
    }

    /// `x + factor · scale · after(f(input))`.
    fn add(
        &self,
        backend: &B,
        x: &B::Tensor,
        input: &B::Tensor,
        f: impl FnOnce(&B::Tensor, Option<&B::Tensor>) -> Result<B::Tensor>,
    ) -> Result<B::Tensor> {
        let whole = (self.factor - 1.0).abs() < f32::EPSILON;
        if self.after.is_none() && self.scale.is_none() && whole {
            return f(input, Some(x));
        }
        let mut out = f(input, None)?;
        if let Some(norm) = &self.after {
            out = norm.apply(backend, &out)?;
        }
        if let Some(scale) = &self.scale {
            out = backend.multiply(&out, scale)?;
        }
        if !whole {
            out = backend.scale(&out, self.factor)?;
        }
        backend.add(x, &out)
    }
}
