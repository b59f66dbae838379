//! The language model: embeddings, blocks with a cache, the output projection.

use super::block::{Angles, Block, Keys};
use super::{Loader, NormWeights, TensorSource, matrix, tables};
use crate::backend::{Backend, Epilogue};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::graph::DecoderPlan;
use crate::plan::tensors::Component;

/// The decoder's weights.
pub struct Decoder<B: Backend> {
    plan: DecoderPlan,
    embed: B::Weight,
    blocks: Vec<Block<B>>,
    leave: NormWeights<B>,
    /// `None`: the embedding table stands in.
    head: Option<B::Weight>,
}

/// Keys and values of every layer.
pub struct DecoderCache<B: Backend> {
    layers: Vec<B::Cache>,
}

impl<B: Backend> DecoderCache<B> {
    /// Tokens held.
    pub fn len(&self, backend: &B) -> usize {
        self.layers.first().map_or(0, |layer| backend.cache_len(layer))
    }
}

impl<B: Backend> Decoder<B> {
    /// Loads the decoder. A stored head wins over any tie; without one the tie must be stated.
    pub fn load(backend: &B, source: &dyn TensorSource, plan: &DecoderPlan) -> Result<Self> {
        let loader = Loader { backend, source, component: Component::Decoder };
        let head = match source.optional(Component::Head, "weight")? {
            Some(tensor) => Some(matrix(backend, &tensor)?),
            None if plan.tied => None,
            None => {
                return Err(Error::new(
                    ErrorKind::Weights,
                    "there is no output projection, and it is not tied",
                )
                .with_hint(
                    "config.json must say `tie_word_embeddings: true` where no head is stored",
                ));
            }
        };
        Ok(Self {
            embed: loader.matrix(&plan.embed_name)?,
            blocks: (0..plan.stack.layers)
                .map(|index| Block::load(&loader, &plan.stack, index))
                .collect::<Result<_>>()?,
            leave: loader.norm(&plan.leave.name, &plan.leave)?,
            head,
            plan: plan.clone(),
        })
    }

    /// Token embeddings `[ids, width]`, scaled as the family says.
    pub fn embed(&self, backend: &B, ids: &[u32]) -> Result<B::Tensor> {
        if let Some(outside) = ids.iter().find(|id| **id as usize >= self.plan.embed_rows) {
            return Err(Error::new(
                ErrorKind::Placeholders,
                format!(
                    "token id {outside} is outside the embedding table of {} rows",
                    self.plan.embed_rows
                ),
            ));
        }
        let rows = backend.embed(&self.embed, ids)?;
        if (self.plan.embed_scale - 1.0).abs() < f32::EPSILON {
            return Ok(rows);
        }
        let width = self.plan.stack.width;
        let values = backend
            .download(&rows)?
            .into_iter()
            .map(|value| value * self.plan.embed_scale)
            .collect();
        backend.upload(values, ids.len(), width)
    }

    /// An empty cache for `capacity` tokens. A capacity that a window of the attention would cut is refused.
    pub fn cache(&self, backend: &B, capacity: usize) -> Result<DecoderCache<B>> {
        if let Some(window) = self.plan.stack.block(0).attention.window
            && capacity > window
        {
            let message = format!(
                "prompt and answer may take {capacity} tokens, but the decoder's attention window holds {window}; \
                 sliding windows are not spoken"
            );
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("a shorter prompt or answer runs"));
        }
        let layers = (0..self.blocks.len()).map(|index| {
            let attention = &self.plan.stack.block(index).attention;
            backend.cache(capacity, attention.kv_heads * attention.head_dim)
        });
        let layers = layers.collect::<Result<_>>()?;
        Ok(DecoderCache { layers })
    }

    /// Runs rows `x` `[n, width]` standing at `positions` (time, row, column) behind what the cache holds; returns the
    /// states after the last norm.
    pub fn forward(
        &self,
        backend: &B,
        mut x: B::Tensor,
        positions: &[[i64; 3]],
        cache: &mut DecoderCache<B>,
    ) -> Result<B::Tensor> {
        let start = cache.len(backend);
        let angles = match &self.plan.stack.block(0).attention.rope {
            Some(rope) => {
                let (cos, sin) = tables::angles(rope, positions);
                let pairs = rope.dim / 2;
                Some(Angles {
                    cos: backend.upload(cos, positions.len(), pairs)?,
                    sin: backend.upload(sin, positions.len(), pairs)?,
                    pairing: rope.pairing,
                })
            }
            None => None,
        };
        for (index, (block, layer)) in self.blocks.iter().zip(&mut cache.layers).enumerate() {
            x = block.forward(
                backend,
                self.plan.stack.block(index),
                &x,
                angles.as_ref(),
                Keys::Cached { cache: layer, start },
            )?;
        }
        self.leave.apply(backend, &x)
    }

    /// Logits `[rows, vocabulary]` of states after the last norm.
    pub fn logits(&self, backend: &B, states: &B::Tensor) -> Result<B::Tensor> {
        backend.linear(states, self.head.as_ref().unwrap_or(&self.embed), Epilogue::default())
    }
}
