//! The language model: embeddings, blocks with a cache, the output projection.

use super::attend::{Angles, Keys};
use super::block::{Block, Sight};
use super::sight::{Prospect, Seen};
use super::{Linear, Loader, NormWeights, Pulse, TensorSource, matrix, rope};
use crate::backend::{Backend, Epilogue, Mask};
use crate::descriptor::block::KeySource;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::graph::DecoderPlan;
use crate::plan::tensors::Component;

/// The decoder's weights.
pub struct Decoder<B: Backend> {
    plan: DecoderPlan,
    embed: B::Weight,
    /// The rows behind those of `embed`, and the first token that is theirs.
    embed_more: Option<(u32, B::Weight)>,
    /// From embeddings to rows of the blocks, and back.
    project: Option<(Linear<B>, Linear<B>)>,
    position: Option<B::Weight>,
    blocks: Vec<Block<B>>,
    leave: NormWeights<B>,
    /// `None`: the embedding table stands in.
    head: Option<B::Weight>,
}

/// Keys and values of every layer, and what of the prompt decides who sees them.
pub struct DecoderCache<B: Backend> {
    layers: Vec<B::Cache>,
    /// How many rows have been run.
    length: usize,
    prospect: Prospect,
    /// States that are added behind the first blocks, and the tokens that they are added to.
    deep: (Vec<B::Tensor>, Vec<u32>),
}

impl<B: Backend> DecoderCache<B> {
    /// Tokens held.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no row has been run yet.
    pub fn is_empty(&self) -> bool {
        self.length == 0
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
        let table = loader.tensor(&plan.embed_name)?;
        // where the two tables part is the files' affair: saved again, they are halves of the whole
        let more = plan.embed_more.as_ref().map(|(_, name)| {
            let rows = table.shape.first().copied().unwrap_or(0);
            let first = u32::try_from(rows)
                .map_err(|_| Error::new(ErrorKind::Weights, format!("a table has {rows} rows")))?;
            Ok::<_, Error>((first, loader.matrix(name)?))
        });
        let position = plan.position.as_ref();
        let project = plan.project.as_ref().map(|(inward, outward)| {
            Ok::<_, Error>((loader.linear(inward, false)?, loader.linear(outward, false)?))
        });
        Ok(Self {
            embed: matrix(backend, &table)?,
            embed_more: more.transpose()?,
            project: project.transpose()?,
            position: position
                .map(|table| loader.matrix(&format!("{}.weight", table.name)))
                .transpose()?,
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
        let rows = match &self.embed_more {
            Some((first, more)) if ids.iter().any(|id| id >= first) => {
                // both lookups for all ids, then the one that counts
                let below: Vec<u32> =
                    ids.iter().map(|id| (*id).min(first.saturating_sub(1))).collect();
                let above: Vec<u32> = ids.iter().map(|id| id.saturating_sub(*first)).collect();
                let tables = [backend.embed(&self.embed, &below)?, backend.embed(more, &above)?];
                let count = ids.len() as u32;
                let place = |(row, id): (u32, &u32)| if id < first { row } else { count + row };
                let index: Vec<u32> = (0..).zip(ids).map(place).collect();
                backend.gather(&backend.concat(&[&tables[0], &tables[1]])?, &index)?
            }
            _ => backend.embed(&self.embed, ids)?,
        };
        // a factor on all rows is applied when they are run
        if self.plan.scale_media || (self.plan.embed_scale - 1.0).abs() < f32::EPSILON {
            return Ok(rows);
        }
        backend.scale(&rows, self.plan.embed_scale)
    }

    /// An empty cache for `capacity` tokens behind a prompt with this `prospect`; `states` `[n, width]` are what attention
    /// over media reads, `deep` what is added behind the first blocks, and to which tokens.
    pub fn cache(
        &self,
        backend: &B,
        capacity: usize,
        prospect: Prospect,
        states: Option<&B::Tensor>,
        deep: (Vec<B::Tensor>, Vec<u32>),
    ) -> Result<DecoderCache<B>> {
        if let Some(table) = &self.plan.position
            && capacity > table.rows
        {
            let message = format!(
                "prompt and answer may take {capacity} tokens, but the decoder has {} positions",
                table.rows
            );
            return Err(Error::new(ErrorKind::Usage, message)
                .with_hint("`-n` limits how many tokens are generated"));
        }
        let mut layers = Vec::new();
        for (index, block) in self.blocks.iter().enumerate() {
            let plan = self.plan.stack.block(index);
            let width = plan.attention.kv_heads * plan.attention.head_dim;
            let layer = match (plan.attention.over, states) {
                (KeySource::Media, Some(states)) => {
                    let (k, v) = block.project_states(backend, plan, states)?;
                    let mut layer = backend.cache(backend.shape(states).0, width)?;
                    backend.append(&mut layer, &k, &v)?;
                    layer
                }
                (KeySource::Media, None) => backend.cache(0, width)?,
                _ => backend.cache(capacity, width)?,
            };
            layers.push(layer);
        }
        Ok(DecoderCache { layers, length: 0, prospect, deep })
    }

    /// Runs rows `x` `[n, width]` standing at `positions` (time, row, column) behind what the cache holds; returns the
    /// states after the last norm. A prompt is run in one call; `pulse` is called between blocks.
    pub fn forward(
        &self,
        backend: &B,
        mut x: B::Tensor,
        positions: &[[i64; 3]],
        cache: &mut DecoderCache<B>,
        pulse: Pulse<'_>,
    ) -> Result<B::Tensor> {
        let (start, count) = (cache.length, positions.len());
        if self.plan.scale_media && (self.plan.embed_scale - 1.0).abs() > f32::EPSILON {
            x = backend.scale(&x, self.plan.embed_scale)?;
        }
        if let Some((inward, _)) = &self.project {
            x = inward.apply(backend, &x)?;
        }
        if let (Some(table), Some(plan)) = (&self.position, &self.plan.position) {
            let row = |position: &[i64; 3]| {
                let row = usize::try_from(position[0]).ok().filter(|row| *row < plan.rows);
                let message = || format!("the decoder has no position {}", position[0]);
                row.map(|row| (row + plan.offset) as u32)
                    .ok_or_else(|| Error::new(ErrorKind::Usage, message()))
            };
            let rows: Vec<u32> = positions.iter().map(row).collect::<Result<_>>()?;
            x = backend.add(&x, &backend.embed(table, &rows)?)?;
        }
        let sights = self.plan.stack.kinds.iter().map(|kind| {
            let rope = kind.attention.rope.as_ref();
            let angles = rope.map(|rope| rope::angles(backend, rope, positions)).transpose()?;
            let seen = match kind.attention.over {
                KeySource::Media => {
                    let (ranges, passing) = cache.prospect.of_states(start, count);
                    return Ok((angles, Seen::Ranges(ranges), passing));
                }
                _ => cache.prospect.of(&kind.attention, start, count),
            };
            Ok((angles, seen, Vec::new()))
        });
        let sights: Vec<(Option<Angles<B>>, Seen, Vec<u32>)> = sights.collect::<Result<_>>()?;
        let DecoderCache { layers, prospect, deep, .. } = cache;
        for (index, (block, layer)) in self.blocks.iter().zip(layers).enumerate() {
            let plan = self.plan.stack.block(index);
            let kind = self.plan.stack.kind_of.get(index).copied().unwrap_or(0);
            let Some((angles, seen, passing)) = sights.get(kind) else { continue };
            let mask: Mask<'_> = seen.mask();
            let keys = match plan.attention.over {
                // without any item such a layer is not there
                KeySource::Media if prospect.all_states == 0 => continue,
                KeySource::Media => Keys::Held(layer, mask),
                _ => Keys::Cached(layer, mask),
            };
            pulse()?;
            let sight = Sight { angles: angles.as_ref(), keys, cross: None, passing };
            x = block.forward(backend, plan, &x, sight)?;
            if let (Some(states), 0) = (deep.0.get(index), start) {
                let sum = backend.add(&backend.gather(&x, &deep.1)?, states)?;
                x = backend.scatter(x, &sum, &deep.1)?;
            }
        }
        cache.length += count;
        self.leave.apply(backend, &x)
    }

    /// Logits `[rows, vocabulary]` of states after the last norm.
    pub fn logits(&self, backend: &B, states: &B::Tensor) -> Result<B::Tensor> {
        let head = self.head.as_ref().unwrap_or(&self.embed);
        let mut logits = match &self.project {
            Some((_, outward)) => {
                let narrow = outward.apply(backend, states)?;
                backend.linear(&narrow, head, Epilogue::default())?
            }
            None => backend.linear(states, head, Epilogue::default())?,
        };
        if (self.plan.logit_scale - 1.0).abs() > f32::EPSILON {
            logits = backend.scale(&logits, self.plan.logit_scale)?;
        }
        match self.plan.softcap {
            Some(cap) => backend.softcap(&logits, cap),
            None => Ok(logits),
        }
    }
}
