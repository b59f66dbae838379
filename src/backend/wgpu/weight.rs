//! Weight matrices on the device, in the dtype of the checkpoint.

use super::kernel::{ELEMENT_THREADS, Kernel, SKINNY_COLUMNS, Tile, folded};
use super::memory::Memory;
use super::stream::{Dispatch, Stream};
use super::tensor::{Tensor, mismatch};
use crate::backend::{Epilogue, Then};
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

/// How rows lie that meet the matrices of their experts.
pub(super) struct Each<'a> {
    pub(super) experts: usize,
    /// What `parts.wgsl` wrote.
    pub(super) parts: &'a Memory,
    /// How many parts there is room for.
    pub(super) room: usize,
    /// The size of a part.
    pub(super) size: PartSize,
}

/// Rows of one expert that a workgroup takes at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartSize {
    /// 1, 2, 4 or 8, for which the matrix is read once.
    Few(usize),
    /// A tile of a product of many.
    Tile(Tile),
}

impl PartSize {
    /// For so many rows of an expert, on average.
    pub(super) fn of(rows: usize) -> Self {
        match rows {
            // a tile of 64 rows would be all but empty
            ..=16 => Self::Few(rows.next_power_of_two().clamp(1, FEW_ROWS)),
            17..=127 => Self::Tile(Tile::Small),
            _ => Self::Tile(Tile::Large),
        }
    }

    /// The rows.
    pub(super) fn rows(self) -> usize {
        match self {
            Self::Few(rows) => rows,
            Self::Tile(tile) => tile.side(),
        }
    }
}

impl Weight {
    pub(super) fn new(stream: &Stream, tensor: &HostTensor) -> Result<Self> {
        Self::cut(stream, tensor, usize::try_from(stream.pool.most()).unwrap_or(usize::MAX))
    }

    /// A weight in buffers of at most `most` bytes, if single rows are not larger.
    pub(super) fn cut(stream: &Stream, tensor: &HostTensor, most: usize) -> Result<Self> {
        Self::stacked(stream, 1, &mut |_| Ok(tensor.clone()), most)
    }

    /// `count` matrices of one shape, one below the other. A buffer holds whole ones, if it can.
    pub(super) fn stacked(
        stream: &Stream,
        count: usize,
        part: &mut dyn FnMut(usize) -> Result<HostTensor>,
        most: usize,
    ) -> Result<Self> {
        let first = part(0)?;
        let (dtype, shape) = (first.dtype, first.shape.clone());
        let &[outputs, inputs] = shape.as_slice() else {
            return Err(mismatch(format!("a weight has the shape {shape:?}")));
        };
        let row_bytes = inputs * dtype.size();
        let stored = inputs.div_ceil(4) * 4 * dtype.size();
        let all = outputs * count;
        let mut at_once = most.checked_div(stored).unwrap_or(all).min(all).max(1);
        if at_once >= outputs && outputs > 0 {
            at_once = at_once / outputs * outputs;
        }
        let mut shards = Vec::new();
        for first in (0..all).step_by(at_once) {
            let rows = at_once.min(all - first);
            let mut parts = Vec::new();
            let mut row = first;
            while row < first + rows {
                let (number, inner) = (row / outputs, row % outputs);
                let taken = (outputs - inner).min(first + rows - row);
                let tensor = part(number)?;
                if (tensor.dtype, &tensor.shape) != (dtype, &shape) {
                    return Err(mismatch(format!(
                        "weights of the shapes {shape:?} and {:?} in {dtype:?} and {:?} make no stack",
                        tensor.shape, tensor.dtype
                    )));
                }
                if tensor.data.len() != outputs * row_bytes {
                    return Err(mismatch(format!(
                        "a weight of the shape `[{outputs}, {inputs}]` has `{}` bytes",
                        tensor.data.len()
                    )));
                }
                parts.push((tensor, inner * row_bytes..(inner + taken) * row_bytes));
                row += taken;
            }
            let memory = stream.filled((rows * stored) as u64, |to| {
                for (tensor, range) in parts {
                    let bytes = &tensor.data[range];
                    if row_bytes == stored {
                        to.push(bytes);
                        continue;
                    }
                    for row in bytes.chunks_exact(row_bytes.max(1)) {
                        to.push(row);
                        to.skip(stored - row_bytes);
                    }
                }
            })?;
            stream.weights_uploaded((rows * stored) as u64)?;
            shards.push(Shard { memory, first, rows });
        }
        Ok(Self { dtype, outputs: all, inputs, shards })
    }

    /// `activation(x Wᵀ + bias)`, then a sum or a product with other rows.
    pub(super) fn product(
        &self,
        stream: &Stream,
        x: &Tensor,
        epilogue: &Epilogue<'_, Tensor>,
    ) -> Result<Tensor> {
        if let Some(bias) = epilogue.bias {
            bias.expect("the bias", 1, self.outputs)?;
        }
        if let Some(then) = epilogue.then {
            then.rows().expect("what a product meets", x.rows(), self.outputs)?;
        }
        self.multiply(stream, x, epilogue, None)
    }

    /// The same with one of `each.experts` matrices for every row; the bias has a row for each.
    pub(super) fn product_each(
        &self,
        stream: &Stream,
        x: &Tensor,
        epilogue: &Epilogue<'_, Tensor>,
        each: &Each<'_>,
    ) -> Result<Tensor> {
        if each.experts == 0 || !self.outputs.is_multiple_of(each.experts) {
            return Err(mismatch(format!(
                "a stack of `{}` rows has no matrices of `{}` experts",
                self.outputs, each.experts
            )));
        }
        if let Some(bias) = epilogue.bias {
            bias.expect("the biases of experts", each.experts, self.outputs / each.experts)?;
        }
        self.multiply(stream, x, epilogue, Some(each))
    }

    fn multiply(
        &self,
        stream: &Stream,
        x: &Tensor,
        epilogue: &Epilogue<'_, Tensor>,
        each: Option<&Each<'_>>,
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
        let experts = each.map_or(0, |each| each.experts);
        let width = self.outputs / experts.max(1);
        let out = Tensor::new(stream, rows, width)?;
        let (dtype, aligned) = (self.dtype, self.inputs.is_multiple_of(4) && self.inputs > 0);
        for shard in &self.shards {
            // a shard of matrices of experts holds some of their columns, or none; the kernel finds out
            let columns = if experts > 0 { width } else { shard.rows };
            let across = |columns: usize| folded(columns.div_ceil(SKINNY_COLUMNS));
            let (kernel, groups) = match each.map(|each| (each.size, each.room)) {
                Some((PartSize::Few(count), room)) => {
                    let kernel = Kernel::Skinny { dtype, aligned, rows: count, experts: true };
                    let [x, y, _] = across(columns);
                    (kernel, [x, y, room])
                }
                Some((PartSize::Tile(tile), room)) => {
                    let kernel = Kernel::Product { dtype, aligned, tile, experts: true };
                    (kernel, [columns.div_ceil(tile.side()), room, 1])
                }
                None if rows <= FEW_ROWS => {
                    let count = rows.next_power_of_two();
                    let kernel = Kernel::Skinny { dtype, aligned, rows: count, experts: false };
                    (kernel, across(columns))
                }
                None => {
                    let tiles =
                        |tile: Tile| [columns.div_ceil(tile.side()), rows.div_ceil(tile.side()), 1];
                    let large = tiles(Tile::Large).iter().product::<usize>() >= BUSY_GROUPS;
                    let tile = if large { Tile::Large } else { Tile::Small };
                    let kernel = Kernel::Product { dtype, aligned, tile, experts: false };
                    (kernel, tiles(tile))
                }
            };
            let parameters = [
                rows as u32,
                self.inputs as u32,
                shard.rows as u32,
                self.inputs.div_ceil(4) as u32,
                shard.first as u32,
                width as u32,
                epilogue.activation.map_or(0, super::elements::number),
                u32::from(epilogue.bias.is_some()),
                match epilogue.then {
                    None => 0,
                    Some(Then::Add(_)) => 1,
                    Some(Then::Multiply(_)) => 2,
                },
            ];
            let bias = epilogue.bias.unwrap_or(x).memory();
            let other = epilogue.then.map_or(x, Then::rows).memory();
            let mut inputs = vec![x.memory(), &shard.memory, bias, other];
            inputs.extend(each.map(|each| each.parts));
            stream.dispatch(&Dispatch {
                kernel,
                output: out.memory(),
                inputs: &inputs,
                parameters: &parameters,
                groups: if out.count() == 0 { [0; 3] } else { groups },
                work: (rows * columns * self.inputs) as u64,
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
