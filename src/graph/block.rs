//! One transformer block, over whole sequences or with a cache.

use super::{Linear, Loader, NormWeights};
use crate::backend::{Attention, Backend, Mask, Pairing};
use crate::descriptor::block::{MlpKind, Placement};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::graph::{BlockPlan, StackPlan};

/// Query, key and value maps.
enum Projections<B: Backend> {
    Fused(Linear<B>),
    Split { q: Linear<B>, k: Linear<B>, v: Linear<B> },
}

/// The weights of one block.
pub(super) struct Block<B: Backend> {
    norm1: NormWeights<B>,
    norm2: NormWeights<B>,
    projections: Projections<B>,
    output: Linear<B>,
    gate: Option<Linear<B>>,
    up: Linear<B>,
    down: Linear<B>,
}

/// The angles of a rotary embedding on the device: one row per token, one column per pair.
pub(super) struct Angles<B: Backend> {
    pub(super) cos: B::Tensor,
    pub(super) sin: B::Tensor,
    pub(super) pairing: Pairing,
}

/// Where keys and values are found.
pub(super) enum Keys<'a, B: Backend> {
    /// In the same rows; each segment sees itself.
    Segments(&'a [usize]),
    /// In a cache that already holds `start` rows; the new rows are appended.
    Cached {
        /// The layer's cache.
        cache: &'a mut B::Cache,
        /// Rows before the new ones.
        start: usize,
    },
}

impl<B: Backend> Block<B> {
    pub(super) fn load(loader: &Loader<'_, B>, stack: &StackPlan, index: usize) -> Result<Self> {
        let plan = stack.block(index);
        let name = |slot: &str| {
            plan.name(index, slot).ok_or_else(|| {
                Error::new(
                    ErrorKind::Descriptor,
                    format!("tensor slot `{slot}` of `{}` has no name", stack.key),
                )
            })
        };
        let [q, k, v, o] = plan.attention.bias;
        let projections = if plan.attention.fused {
            Projections::Fused(loader.linear(&name("qkv")?, q || k || v)?)
        } else {
            Projections::Split {
                q: loader.linear(&name("q")?, q)?,
                k: loader.linear(&name("k")?, k)?,
                v: loader.linear(&name("v")?, v)?,
            }
        };
        let bias = plan.mlp.bias;
        Ok(Self {
            norm1: loader.norm(&name("norm1")?, &plan.norm)?,
            norm2: loader.norm(&name("norm2")?, &plan.norm)?,
            projections,
            output: loader.linear(&name("o")?, o)?,
            gate: match plan.mlp.kind {
                MlpKind::Gated => Some(loader.linear(&name("gate")?, bias)?),
                MlpKind::Plain => None,
            },
            up: loader.linear(&name("up")?, bias)?,
            down: loader.linear(&name("down")?, bias)?,
        })
    }

    /// `[rows, width]` → `[rows, width]`.
    pub(super) fn forward(
        &self,
        backend: &B,
        plan: &BlockPlan,
        x: &B::Tensor,
        angles: Option<&Angles<B>>,
        keys: Keys<'_, B>,
    ) -> Result<B::Tensor> {
        match plan.placement {
            Placement::Pre => {
                let normed = self.norm1.apply(backend, x)?;
                let attended = self.attend(backend, plan, &normed, angles, keys)?;
                let x = self.output.apply_with(backend, &attended, None, Some(x))?;
                let normed = self.norm2.apply(backend, &x)?;
                self.feed_forward(backend, plan, &normed, &x)
            }
            Placement::Post | Placement::Branch | Placement::Sandwich | Placement::Parallel => {
                Err(Error::new(ErrorKind::Unsupported, "this placement of norms is not run yet"))
            }
        }
    }

    fn attend(
        &self,
        backend: &B,
        plan: &BlockPlan,
        x: &B::Tensor,
        angles: Option<&Angles<B>>,
        keys: Keys<'_, B>,
    ) -> Result<B::Tensor> {
        let attention = &plan.attention;
        let (query_width, key_width) =
            (attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim);
        let (mut q, mut k, v) = match &self.projections {
            Projections::Fused(fused) => {
                let all = fused.apply(backend, x)?;
                (
                    backend.columns(&all, 0, query_width)?,
                    backend.columns(&all, query_width, key_width)?,
                    backend.columns(&all, query_width + key_width, key_width)?,
                )
            }
            Projections::Split { q, k, v } => {
                (q.apply(backend, x)?, k.apply(backend, x)?, v.apply(backend, x)?)
            }
        };
        if let Some(angles) = angles {
            q = backend.rope(&q, attention.heads, &angles.cos, &angles.sin, angles.pairing)?;
            k = backend.rope(&k, attention.kv_heads, &angles.cos, &angles.sin, angles.pairing)?;
        }
        let geometry = |mask| Attention {
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            head_dim: attention.head_dim,
            scale: attention.scale,
            softcap: None,
            mask,
        };
        match keys {
            Keys::Segments(lengths) => {
                backend.attention(&q, &k, &v, &geometry(Mask::Segments(lengths)))
            }
            Keys::Cached { cache, start } => {
                backend.append(cache, &k, &v)?;
                backend.attention_cached(&q, cache, &geometry(Mask::Causal { start }))
            }
        }
    }

    fn feed_forward(
        &self,
        backend: &B,
        plan: &BlockPlan,
        x: &B::Tensor,
        residual: &B::Tensor,
    ) -> Result<B::Tensor> {
        let act = plan.mlp.act;
        let hidden = match &self.gate {
            Some(gate) => {
                let up = self.up.apply(backend, x)?;
                let gate = gate.apply(backend, x)?;
                backend.gated(&gate, &up, act)?
            }
            None => self.up.apply_with(backend, x, Some(act), None)?,
        };
        self.down.apply_with(backend, &hidden, None, Some(residual))
    }
}
