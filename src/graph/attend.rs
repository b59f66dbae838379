//! One attention of a block: projections, norms of heads, rotation, keys.

use super::{Linear, Loader, NormWeights, name_missing};
use crate::backend::{Attention, Backend, Mask, Pairing};
use crate::descriptor::block::{KeySource, NormReach, NormWeight};
use crate::error::Result;
use crate::plan::graph::{AttentionPlan, HeadNormPlan};

/// Query, key and value maps.
enum Projections<B: Backend> {
    Fused(Linear<B>),
    Split { q: Linear<B>, k: Linear<B>, v: Linear<B> },
}

/// The weights of one attention.
pub(super) struct AttentionWeights<B: Backend> {
    projections: Projections<B>,
    output: Linear<B>,
    q_norm: Option<NormWeights<B>>,
    k_norm: Option<NormWeights<B>>,
}

/// The angles of a rotary embedding on the device: one row per token, one column per pair.
pub(super) struct Angles<B: Backend> {
    pub(super) cos: B::Tensor,
    pub(super) sin: B::Tensor,
    pub(super) pairing: Pairing,
}

/// Where keys and values are found, and which of them every row sees.
pub(super) enum Keys<'a, B: Backend> {
    /// They are made from the rows themselves.
    Own(Mask<'a>),
    /// They are made from the rows and appended to a cache, over all of which the rows look.
    Cached(&'a mut B::Cache, Mask<'a>),
    /// They are made from other rows, `[m, key width]`.
    States(&'a B::Tensor, Mask<'a>),
    /// They are in a cache already.
    Held(&'a B::Cache, Mask<'a>),
}

impl<B: Backend> AttentionWeights<B> {
    /// `name` gives a slot's tensor: `q`, `k`, `v`, `qkv`, `o`, `q_norm`, `k_norm`.
    pub(super) fn load(
        loader: &Loader<'_, B>,
        plan: &AttentionPlan,
        name: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let name = |slot: &str| name(slot).ok_or_else(|| name_missing(slot));
        let [q, k, v, o] = plan.bias;
        let projections = if plan.fused {
            Projections::Fused(loader.linear(&name("qkv")?, q || k || v)?)
        } else {
            Projections::Split {
                q: loader.linear(&name("q")?, q)?,
                k: loader.linear(&name("k")?, k)?,
                v: loader.linear(&name("v")?, v)?,
            }
        };
        let head_norm = |slot: &str| match &plan.qk_norm {
            Some(HeadNormPlan { norm, .. }) => {
                let stored = norm.weight != NormWeight::None;
                let name = if stored { name(slot)? } else { String::new() };
                loader.norm(&name, norm).map(Some)
            }
            None => Ok(None),
        };
        Ok(Self {
            projections,
            output: loader.linear(&name("o")?, o)?,
            q_norm: head_norm("q_norm")?,
            k_norm: head_norm("k_norm")?,
        })
    }

    /// Attention of rows `x` `[n, width]`, projected back; `residual` is added if it is given.
    pub(super) fn forward(
        &self,
        backend: &B,
        plan: &AttentionPlan,
        x: &B::Tensor,
        angles: Option<&Angles<B>>,
        keys: Keys<'_, B>,
        residual: Option<&B::Tensor>,
    ) -> Result<B::Tensor> {
        let geometry = |mask| Attention {
            heads: plan.heads,
            kv_heads: plan.kv_heads,
            head_dim: plan.head_dim,
            scale: plan.scale,
            softcap: plan.softcap,
            mask,
        };
        let attended = match keys {
            Keys::Own(mask) => {
                let (q, k, v) = self.project(backend, plan, x, angles)?;
                backend.attention(&q, &k, &v, &geometry(mask))?
            }
            Keys::Cached(cache, mask) => {
                let (q, k, v) = self.project(backend, plan, x, angles)?;
                backend.append(cache, &k, &v)?;
                backend.attention_cached(&q, cache, &geometry(mask))?
            }
            Keys::States(states, mask) => {
                let (k, v) = self.project_states(backend, plan, states)?;
                let q = self.queries(backend, plan, x)?;
                backend.attention(&q, &k, &v, &geometry(mask))?
            }
            Keys::Held(cache, mask) => {
                let q = self.queries(backend, plan, x)?;
                backend.attention_cached(&q, cache, &geometry(mask))?
            }
        };
        self.output.apply_with(backend, &attended, None, residual)
    }

    /// Keys and values of states that are not rotated.
    pub(super) fn project_states(
        &self,
        backend: &B,
        plan: &AttentionPlan,
        states: &B::Tensor,
    ) -> Result<(B::Tensor, B::Tensor)> {
        let Projections::Split { k, v, .. } = &self.projections else {
            return Err(name_missing("k"));
        };
        let k = k.apply(backend, states)?;
        let k = head_norm(backend, plan, self.k_norm.as_ref(), k, plan.kv_heads)?;
        Ok((k, v.apply(backend, states)?))
    }

    /// Queries alone, not rotated.
    fn queries(&self, backend: &B, plan: &AttentionPlan, x: &B::Tensor) -> Result<B::Tensor> {
        let Projections::Split { q, .. } = &self.projections else {
            return Err(name_missing("q"));
        };
        let q = q.apply(backend, x)?;
        head_norm(backend, plan, self.q_norm.as_ref(), q, plan.heads)
    }

    fn project(
        &self,
        backend: &B,
        plan: &AttentionPlan,
        x: &B::Tensor,
        angles: Option<&Angles<B>>,
    ) -> Result<(B::Tensor, B::Tensor, B::Tensor)> {
        debug_assert!(plan.over == KeySource::Rows, "only these make keys from their own rows");
        let (queries, keys) = (plan.heads * plan.head_dim, plan.kv_heads * plan.head_dim);
        let (mut q, mut k, v) = match &self.projections {
            Projections::Fused(fused) => {
                let all = fused.apply(backend, x)?;
                (
                    backend.columns(&all, 0, queries)?,
                    backend.columns(&all, queries, keys)?,
                    backend.columns(&all, queries + keys, keys)?,
                )
            }
            Projections::Split { q, k, v } => {
                (q.apply(backend, x)?, k.apply(backend, x)?, v.apply(backend, x)?)
            }
        };
        let late = plan.qk_norm.as_ref().is_some_and(|norm| norm.after_rope);
        if !late {
            q = head_norm(backend, plan, self.q_norm.as_ref(), q, plan.heads)?;
            k = head_norm(backend, plan, self.k_norm.as_ref(), k, plan.kv_heads)?;
        }
        if let Some(Angles { cos, sin, pairing }) = angles {
            q = backend.rope(&q, plan.heads, cos, sin, *pairing)?;
            k = backend.rope(&k, plan.kv_heads, cos, sin, *pairing)?;
        }
        if late {
            q = head_norm(backend, plan, self.q_norm.as_ref(), q, plan.heads)?;
            k = head_norm(backend, plan, self.k_norm.as_ref(), k, plan.kv_heads)?;
        }
        Ok((q, k, v))
    }
}

/// The norm of `heads` heads that lie side by side, over each of them or over all.
fn head_norm<B: Backend>(
    backend: &B,
    plan: &AttentionPlan,
    norm: Option<&NormWeights<B>>,
    x: B::Tensor,
    heads: usize,
) -> Result<B::Tensor> {
    let (Some(norm), Some(reach)) = (norm, plan.qk_norm.as_ref().map(|norm| norm.over)) else {
        return Ok(x);
    };
    match reach {
        NormReach::Full => norm.apply(backend, &x),
        NormReach::Head => {
            let (rows, width) = backend.shape(&x);
            let heads_apart = backend.reshape(x, rows * heads, width / heads.max(1))?;
            backend.reshape(norm.apply(backend, &heads_apart)?, rows, width)
        }
    }
}
