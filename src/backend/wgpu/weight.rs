//! Weight matrices on the device, in the dtype of the checkpoint.

use super::kernel::{ELEMENT_THREADS, Kernel, SKINNY_COLUMNS, Tile, folded};
use super::memory::Memory;
use super::stream::{Dispatch, Stream};
use super::tensor::{Tensor, mismatch};
use crate::backend::Epilogue;
use crate::error::Result;
use crate::tensor::{Dtype, HostTensor};

/// Rows that are few: a product with them reads the weight once, and its time is that of reading.
const FEW_ROWS: usize = 8;
/// Workgroups that keep a device busy, about; fewer tiles than these are better small.
const BUSY_GROUPS: usize = 96;

/// A matrix `[outputs, inputs]`. Rows are filled up with zeros to a multiple of four; a matrix that a shader cannot see at
/// once is cut between rows.
pub struct Weight {
    dtype: Dtype,
    outputs: usize,
    inputs: usize,
    shards: Vec<Shard>,
}

/// Some rows of a weight.
struct Shard {
    memory: Memory,
    first: usize,
    rows: usize,
}

impl Weight {
    pub(super) fn new(stream: &Stream, tensor: &HostTensor) -> Result<Self> {
        Self::cut(stream, tensor, usize::try_from(stream.pool.most()).unwrap_or(usize::MAX))
    }

    /// A weight in buffers of at most `most` bytes, if single rows are not larger.
    pub(super) fn cut(stream: &Stream, tensor: &HostTensor, most: usize) -> Result<Self> {
        let &[outputs, inputs] = tensor.shape.as_slice() else {
            return Err(mismatch(format!("a weight has the shape {:?}", tensor.shape)));
        };
        let row_bytes = inputs * tensor.dtype.size();
        if tensor.data.len() != outputs * row_bytes {
            return Err(mismatch(format!(
                "a weight of the shape `[{outputs}, {inputs}]` has `{}` bytes",
                tensor.data.len()
            )));
        }
        let stored = inputs.div_ceil(4) * 4 * tensor.dtype.size();
        let at_once = most.checked_div(stored).unwrap_or(outputs).min(outputs).max(1);
        let mut shards = Vec::new();
        for first in (0..outputs).step_by(at_once) {
            let rows = at_once.min(outputs - first);
            let bytes = &tensor.data[first * row_bytes..(first + rows) * row_bytes];
            let memory = stream.filled((rows * stored) as u64, |to| {
                if row_bytes == stored {
                    return to.push(bytes);
                }
                for row in bytes.chunks_exact(row_bytes.max(1)) {
                    to.push(row);
                    to.skip(stored - row_bytes);
                }
            })?;
            stream.weights_uploaded((rows * stored) as u64)?;
            shards.push(Shard { memory, first, rows });
        }
        Ok(Self { dtype: tensor.dtype, outputs, inputs, shards })
    }

    /// `residual + activation(x Wᵀ + bias)`.
    pub(super) fn product(
        &self,
        stream: &Stream,
        x: &Tensor,
        epilogue: &Epilogue<'_, Tensor>,
    ) -> Result<Tensor> {
        let rows = x.rows();
        if x.width() != self.inputs {
            return Err(mismatch(format!(
                "a product of `{}` with a weight of `[{}, {}]`",
                x.describe(),
                self.outputs,
                self.inputs
            )));
        }
        if let Some(bias) = epilogue.bias {
            bias.expect("the bias", 1, self.outputs)?;
        }
        if let Some(residual) = epilogue.residual {
            residual.expect("the residual", rows, self.outputs)?;
        }
        let out = Tensor::new(stream, rows, self.outputs)?;
        let (dtype, aligned) = (self.dtype, self.inputs.is_multiple_of(4) && self.inputs > 0);
        for shard in &self.shards {
            let (kernel, groups) = if rows <= FEW_ROWS {
                let kernel = Kernel::Skinny { dtype, aligned, rows: rows.next_power_of_two() };
                (kernel, folded(shard.rows.div_ceil(SKINNY_COLUMNS)))
            } else {
                let tiles =
                    |tile: Tile| [shard.rows.div_ceil(tile.side()), rows.div_ceil(tile.side()), 1];
                let large = tiles(Tile::Large).iter().product::<usize>() >= BUSY_GROUPS;
                let tile = if large { Tile::Large } else { Tile::Small };
                (Kernel::Product { dtype, aligned, tile }, tiles(tile))
            };
            let parameters = [
                rows as u32,
                self.inputs as u32,
                shard.rows as u32,
                self.inputs.div_ceil(4) as u32,
                shard.first as u32,
                self.outputs as u32,
                epilogue.activation.map_or(0, super::elements::number),
                u32::from(epilogue.bias.is_some()),
                u32::from(epilogue.residual.is_some()),
            ];
            let bias = epilogue.bias.unwrap_or(x).memory();
            let residual = epilogue.residual.unwrap_or(x).memory();
            stream.dispatch(&Dispatch {
                kernel,
                output: out.memory(),
                inputs: &[x.memory(), &shard.memory, bias, residual],
                parameters: &parameters,
                groups: if out.count() == 0 { [0; 3] } else { groups },
                work: (rows * shard.rows * self.inputs) as u64,
            })?;
        }
        Ok(out)
    }

    /// Rows `ids` as f32.
    pub(super) fn rows(&self, stream: &Stream, ids: &[u32]) -> Result<Tensor> {
        if let Some(outside) = ids.iter().find(|id| **id as usize >= self.outputs) {
            return Err(mismatch(format!(
                "row `{outside}` is outside a weight of `{}` rows",
                self.outputs
            )));
        }
        let out = Tensor::new(stream, ids.len(), self.inputs)?;
        if out.count() == 0 {
            return Ok(out);
        }
        let table = stream.table(ids)?;
        for shard in &self.shards {
            let wanted =
                |id: &u32| (shard.first..shard.first + shard.rows).contains(&(*id as usize));
            if !ids.iter().any(wanted) {
                continue;
            }
            stream.dispatch(&Dispatch {
                kernel: Kernel::Embed { dtype: self.dtype },
                output: out.memory(),
                inputs: &[&shard.memory, &table],
                parameters: &[
                    out.count() as u32,
                    self.inputs as u32,
                    self.inputs.div_ceil(4) as u32,
                    shard.first as u32,
                    shard.rows as u32,
                ],
                groups: folded(out.count().div_ceil(ELEMENT_THREADS)),
                work: out.count() as u64,
            })?;
        }
        Ok(out)
    }
}
