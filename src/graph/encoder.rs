//! The image encoder: patch rows → tower → features → connector rows.
//!
//! All items of a call go through the tower as one batch of rows; a mask of segments keeps them apart.

use super::block::{Angles, Block, Keys};
use super::{Linear, Loader, NormWeights, TensorSource, tables};
use crate::backend::Backend;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::graph::{EncoderPlan, OpPlan};
use crate::plan::tensors::Component;

/// One picture as patch rows.
#[derive(Debug, Clone)]
pub struct EncoderInput {
    /// Patches down.
    pub rows: usize,
    /// Patches across.
    pub cols: usize,
    /// `[rows * cols, channels * frames * size²]`, in the order in which patches are emitted.
    pub patches: Vec<f32>,
}

/// What the encoder made of one picture.
pub struct EncodedItem<B: Backend> {
    /// What the connector receives, `[tokens, width]`.
    pub tower: B::Tensor,
    /// What the connector produces, `[embeds, hidden]`.
    pub features: B::Tensor,
}

/// The encoder's weights.
pub struct Encoder<B: Backend> {
    plan: EncoderPlan,
    patch: Linear<B>,
    /// Patches per side of the blocks that they are emitted in.
    block: usize,
    class: Option<B::Tensor>,
    position: Option<B::Tensor>,
    enter: Option<NormWeights<B>>,
    blocks: Vec<Block<B>>,
    connector: Vec<Op<B>>,
}

enum Op<B: Backend> {
    Linear(Linear<B>),
    Activation(crate::backend::Activation),
    Norm(NormWeights<B>),
    Merge(usize),
}

impl<B: Backend> Encoder<B> {
    /// Loads what a run needs: blocks above the deepest tap are not read.
    pub fn load(backend: &B, source: &dyn TensorSource, plan: &EncoderPlan) -> Result<Self> {
        let tower = Loader { backend, source, component: Component::Tower };
        let connector = Loader { backend, source, component: Component::Connector };
        let ops = plan.ops.iter().map(|op| {
            Ok(match op {
                OpPlan::Linear { bias, weight, .. } => Op::Linear(Linear {
                    weight: connector.matrix(weight)?,
                    bias: bias.as_ref().map(|bias| connector.vector(bias)).transpose()?,
                }),
                OpPlan::Activation(activation) => Op::Activation(*activation),
                OpPlan::Norm { norm, .. } => Op::Norm(connector.norm(&norm.name, norm)?),
                OpPlan::Merge { side, .. } => Op::Merge(*side),
                _ => {
                    let message = "this step of a connector is not run yet";
                    return Err(Error::new(ErrorKind::Unsupported, message));
                }
            })
        });
        let patch = plan.patch.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "a tower without patches is not run yet")
        })?;
        Ok(Self {
            patch: tower.linear(&patch.name, patch.bias)?,
            block: patch.block,
            class: plan.class.as_ref().map(|class| tower.vector(&class.parameter)).transpose()?,
            position: plan.position.as_ref().map(|table| tower.table(&table.tensor)).transpose()?,
            enter: plan.enter.as_ref().map(|norm| tower.norm(&norm.name, norm)).transpose()?,
            blocks: (0..plan.depth())
                .map(|index| Block::load(&tower, &plan.stack, index))
                .collect::<Result<_>>()?,
            connector: ops.collect::<Result<_>>()?,
            plan: plan.clone(),
        })
    }

    /// Encodes pictures as one batch; the results are in the order of the inputs.
    pub fn encode(&self, backend: &B, items: Vec<EncoderInput>) -> Result<Vec<EncodedItem<B>>> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let grids: Vec<(usize, usize)> = items.iter().map(|item| (item.rows, item.cols)).collect();
        let block = self.block;
        for (rows, cols) in &grids {
            if rows % block != 0 || cols % block != 0 {
                return Err(Error::new(
                    ErrorKind::Media,
                    format!("a grid of {rows}x{cols} patches is not made of blocks of {block}"),
                ));
            }
        }
        let x = self.embed(backend, items, &grids)?;
        let lengths: Vec<usize> =
            grids.iter().map(|(rows, cols)| rows * cols + self.class_rows()).collect();
        let tapped = self.tower(backend, x, &grids, &lengths)?;
        let mut encoded = Vec::new();
        let mut start = 0;
        for ((rows, cols), length) in grids.iter().zip(&lengths) {
            let dropped = self.plan.drop.min(*length);
            let index: Vec<u32> = (start + dropped..start + length).map(|row| row as u32).collect();
            let tower = self.concatenate(backend, &tapped, &index)?;
            let features = self.connect(backend, tower.clone(), *rows, *cols)?;
            encoded.push(EncodedItem { tower, features });
            start += length;
        }
        Ok(encoded)
    }

    fn class_rows(&self) -> usize {
        usize::from(self.class.is_some())
    }

    /// Patch rows, class rows and positions of all items.
    fn embed(
        &self,
        backend: &B,
        items: Vec<EncoderInput>,
        grids: &[(usize, usize)],
    ) -> Result<B::Tensor> {
        let rows: usize = grids.iter().map(|(rows, cols)| rows * cols).sum();
        let width =
            items.first().map_or(0, |item| item.patches.len() / (item.rows * item.cols).max(1));
        let patches = items.into_iter().flat_map(|item| item.patches).collect();
        let patches = backend.upload(patches, rows, width)?;
        let mut x = self.patch.apply(backend, &patches)?;
        if let Some(class) = &self.class {
            let stacked = backend.concat(&[class, &x])?;
            let mut index = Vec::new();
            let mut next = 1_u32;
            for (rows, cols) in grids {
                let count = (rows * cols) as u32;
                index.push(0);
                index.extend(next..next + count);
                next += count;
            }
            x = backend.gather(&stacked, &index)?;
        }
        if let (Some(position), Some(table)) = (&self.position, &self.plan.position) {
            let mut index = Vec::new();
            for (rows, cols) in grids {
                let needed = rows * cols + self.class_rows();
                if needed != table.rows {
                    return Err(Error::new(
                        ErrorKind::Media,
                        format!(
                            "a picture of {rows}x{cols} patches needs {needed} positions, the tower has {}",
                            table.rows
                        ),
                    ));
                }
                let order = tables::patch_order(*rows, *cols, self.block);
                let class = self.class_rows() as u32;
                index.extend(0..class);
                index.extend(order.into_iter().map(|(row, col)| class + row * *cols as u32 + col));
            }
            x = backend.add(&x, &backend.gather(position, &index)?)?;
        }
        match &self.enter {
            Some(norm) => norm.apply(backend, &x),
            None => Ok(x),
        }
    }

    /// The states after the tapped blocks, in the order of the taps.
    fn tower(
        &self,
        backend: &B,
        mut x: B::Tensor,
        grids: &[(usize, usize)],
        lengths: &[usize],
    ) -> Result<Vec<B::Tensor>> {
        let angles = match &self.plan.stack.block(0).attention.rope {
            Some(rope) => {
                let mut positions = Vec::new();
                for (rows, cols) in grids {
                    positions.extend(std::iter::repeat_n([0; 3], self.class_rows()));
                    let order = tables::patch_order(*rows, *cols, self.block);
                    positions.extend(
                        order.into_iter().map(|(row, col)| [0, i64::from(row), i64::from(col)]),
                    );
                }
                let (cos, sin) = tables::angles(rope, &positions);
                let pairs = rope.dim / 2;
                Some(Angles {
                    cos: backend.upload(cos, positions.len(), pairs)?,
                    sin: backend.upload(sin, positions.len(), pairs)?,
                    pairing: rope.pairing,
                })
            }
            None => None,
        };
        let mut states = vec![None; self.plan.taps.len()];
        for depth in 0..=self.blocks.len() {
            for (state, tap) in states.iter_mut().zip(&self.plan.taps) {
                if *tap == depth {
                    *state = Some(x.clone());
                }
            }
            if let Some(block) = self.blocks.get(depth) {
                x = block.forward(
                    backend,
                    self.plan.stack.block(depth),
                    &x,
                    angles.as_ref(),
                    Keys::Segments(lengths),
                )?;
            }
        }
        Ok(states.into_iter().flatten().collect())
    }

    /// Rows `index` of all taps, side by side.
    fn concatenate(&self, backend: &B, taps: &[B::Tensor], index: &[u32]) -> Result<B::Tensor> {
        if let [only] = taps {
            return backend.gather(only, index);
        }
        // [taps · rows, width], then row r of every tap one after the other, then one row of taps · width
        let parts =
            taps.iter().map(|tap| backend.gather(tap, index)).collect::<Result<Vec<_>>>()?;
        let stacked = backend.concat(&parts.iter().collect::<Vec<_>>())?;
        let rows = index.len() as u32;
        let interleaved: Vec<u32> = (0..rows)
            .flat_map(|row| (0..taps.len() as u32).map(move |tap| tap * rows + row))
            .collect();
        let gathered = backend.gather(&stacked, &interleaved)?;
        backend.reshape(gathered, index.len(), self.plan.feature_width())
    }

    fn connect(
        &self,
        backend: &B,
        mut x: B::Tensor,
        rows: usize,
        cols: usize,
    ) -> Result<B::Tensor> {
        let (mut rows, mut cols, mut block) = (rows, cols, self.block);
        for op in &self.connector {
            x = match op {
                Op::Linear(linear) => linear.apply(backend, &x)?,
                Op::Activation(activation) => backend.activate(&x, *activation)?,
                Op::Norm(norm) => norm.apply(backend, &x)?,
                Op::Merge(side) => {
                    let (count, width) = backend.shape(&x);
                    if rows % side != 0 || cols % side != 0 || count != rows * cols {
                        return Err(Error::new(
                            ErrorKind::Media,
                            format!(
                                "{count} rows of a grid of {rows}x{cols} cannot be merged by {side}"
                            ),
                        ));
                    }
                    let gathered = if block == *side {
                        x
                    } else {
                        backend.gather(&x, &tables::merge_order(rows, cols, block, *side))?
                    };
                    (rows, cols, block) = (rows / side, cols / side, 1);
                    backend.reshape(gathered, rows * cols, width * side * side)?
                }
            };
        }
        Ok(x)
    }
}
