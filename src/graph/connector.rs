//! The steps of a connector: from rows of a tower to rows of a decoder.

use super::attend::Keys;
use super::block::{Block, Sight};
use super::feed::MlpWeights;
use super::{Linear, Loader, NormWeights, tables};
use crate::backend::{Activation, Attention, Backend, KeyRanges, Mask};
use crate::descriptor::block::Stored;
use crate::descriptor::tower::MergeOrder;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::arrangement::Pooled;
use crate::plan::graph::{AttentionPlan, OpPlan, StackPlan};

/// How rows lie: views one after the other, each a grid.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    /// Views.
    pub(super) views: usize,
    /// Rows of cells of a view.
    pub(super) rows: usize,
    /// Columns of cells of a view.
    pub(super) cols: usize,
    /// Cells are emitted in blocks of so many per side.
    pub(super) block: usize,
}

enum Op<B: Backend> {
    Linear(Linear<B>),
    Activation(Activation),
    Norm(NormWeights<B>),
    Merge(usize, MergeOrder),
    Pool(usize),
    Average(usize),
    Conv(usize, Linear<B>),
    Glu {
        second: bool,
        act: Activation,
        width: usize,
    },
    Scale(f32),
    Mlp(MlpWeights<B>),
    Attend {
        side: usize,
        plan: Box<AttentionPlan>,
        weights: [Linear<B>; 4],
    },
    Query {
        queries: B::Tensor,
        enter: Option<NormWeights<B>>,
        plan: Box<StackPlan>,
        blocks: Vec<Block<B>>,
    },
}

/// A connector's weights.
pub(super) struct Connector<B: Backend> {
    ops: Vec<Op<B>>,
}

impl<B: Backend> Connector<B> {
    pub(super) fn load(loader: &Loader<'_, B>, ops: &[OpPlan]) -> Result<Self> {
        let ops = ops.iter().map(|op| Op::load(loader, op));
        Ok(Self { ops: ops.collect::<Result<_>>()? })
    }

    /// Rows of views through all steps. Where `pooled` says which cells are merged, pooling attention takes these.
    pub(super) fn apply(
        &self,
        backend: &B,
        mut x: B::Tensor,
        mut grid: Grid,
        pooled: Option<&Pooled>,
    ) -> Result<B::Tensor> {
        for op in &self.ops {
            x = op.apply(backend, x, &mut grid, pooled)?;
        }
        Ok(x)
    }
}

impl<B: Backend> Op<B> {
    fn load(loader: &Loader<'_, B>, op: &OpPlan) -> Result<Self> {
        Ok(match op {
            OpPlan::Linear { input, out, bias, weight, order } => Self::Linear(Linear {
                weight: match order {
                    Stored::OutIn => loader.matrix(weight)?,
                    Stored::InOut => loader.permuted(weight, &[*input, *out], &[1, 0])?,
                },
                bias: bias.as_ref().map(|bias| loader.vector(bias)).transpose()?,
            }),
            OpPlan::Activation(activation) => Self::Activation(*activation),
            OpPlan::Norm { norm, .. } => Self::Norm(loader.norm(&norm.name, norm)?),
            OpPlan::Merge { side, order } => Self::Merge(*side, *order),
            OpPlan::Pool { side } => Self::Pool(*side),
            OpPlan::Average { count } => Self::Average(*count),
            OpPlan::Conv { side, input, out, bias, name } => {
                let shape = [*out, *input, *side, *side];
                let weight = loader.permuted(&format!("{name}.weight"), &shape, &[0, 2, 3, 1])?;
                let bias = bias.then(|| loader.vector(&format!("{name}.bias"))).transpose()?;
                Self::Conv(*side, Linear { weight, bias })
            }
            OpPlan::Glu { second, act, width } => {
                Self::Glu { second: *second, act: *act, width: *width }
            }
            OpPlan::Scale(by) => Self::Scale(*by),
            OpPlan::Mlp { mlp, names, .. } => {
                Self::Mlp(MlpWeights::load(loader, mlp, |slot| match slot {
                    "gate" => names.gate.clone(),
                    "up" | "gate_up" => Some(names.up.clone()),
                    _ => Some(names.down.clone()),
                })?)
            }
            OpPlan::Attend { side, attention, names: [q, k, v, o], .. } => {
                let [bq, bk, bv, bo] = attention.bias;
                let weights = [
                    loader.linear(q, bq)?,
                    loader.linear(k, bk)?,
                    loader.linear(v, bv)?,
                    loader.linear(o, bo)?,
                ];
                Self::Attend { side: *side, plan: attention.clone(), weights }
            }
            OpPlan::Query { count, parameter, enter, stack, .. } => {
                let blocks = (0..stack.layers).map(|index| Block::load(loader, stack, index));
                Self::Query {
                    queries: loader.table(parameter, *count)?,
                    enter: enter.as_ref().map(|norm| loader.norm(&norm.name, norm)).transpose()?,
                    plan: Box::new(stack.clone()),
                    blocks: blocks.collect::<Result<_>>()?,
                }
            }
        })
    }

    fn apply(
        &self,
        backend: &B,
        x: B::Tensor,
        grid: &mut Grid,
        pooled: Option<&Pooled>,
    ) -> Result<B::Tensor> {
        match self {
            Self::Linear(linear) => linear.apply(backend, &x),
            Self::Activation(activation) => backend.activate(&x, *activation),
            Self::Norm(norm) => norm.apply(backend, &x),
            Self::Scale(by) => backend.scale(&x, *by),
            Self::Mlp(mlp) => mlp.forward(backend, &x, None),
            Self::Merge(side, order) => {
                let (_, width) = backend.shape(&x);
                let merged = merge(backend, x, grid, *side)?;
                match order {
                    MergeOrder::Patch => Ok(merged),
                    MergeOrder::Channel => backend.transpose(&merged, side * side, width),
                }
            }
            Self::Conv(side, linear) => linear.apply(backend, &merge(backend, x, grid, *side)?),
            Self::Pool(side) => {
                let index = merged_cells(grid, *side)?;
                let count = side * side;
                check_rows(backend, &x, grid)?;
                *grid = merged_grid(*grid, *side);
                backend.blend(&x, &index, &vec![1.0 / count as f32; index.len()], count)
            }
            Self::Average(count) => {
                let (rows, _) = backend.shape(&x);
                let each = rows / grid.views.max(1);
                let kept = each / count;
                let view =
                    |view: usize| (0..kept * count).map(move |row| (view * each + row) as u32);
                let index: Vec<u32> = (0..grid.views).flat_map(view).collect();
                *grid = Grid { rows: kept, cols: 1, block: 1, ..*grid };
                backend.blend(&x, &index, &vec![1.0 / *count as f32; index.len()], *count)
            }
            Self::Glu { second, act, width } => {
                let (first, other) =
                    (backend.columns(&x, 0, *width)?, backend.columns(&x, *width, *width)?);
                let (gate, up) = if *second { (other, first) } else { (first, other) };
                backend.gated(&gate, &up, *act)
            }
            Self::Attend { side, plan, weights } => {
                let groups = match pooled {
                    Some(pooled) => groups_of(pooled),
                    None => {
                        check_rows(backend, &x, grid)?;
                        let cells = merged_cells(grid, *side)?;
                        cells.chunks(side * side).map(<[u32]>::to_vec).collect()
                    }
                };
                *grid = Grid { views: 1, rows: groups.len(), cols: 1, block: 1 };
                attend(backend, plan, weights, &x, &groups)
            }
            Self::Query { queries, enter, plan, blocks } => {
                let (rows, _) = backend.shape(&x);
                let (count, _) = backend.shape(queries);
                let views = grid.views;
                let index: Vec<u32> = (0..views).flat_map(|_| 0..count as u32).collect();
                let mut asked = backend.gather(queries, &index)?;
                if let Some(norm) = enter {
                    asked = norm.apply(backend, &asked)?;
                }
                let (own, each) = (vec![count; views], rows / views.max(1));
                let mut seen = KeyRanges::new();
                for view in 0..views {
                    let rows = view * each..(view + 1) * each;
                    (0..count).for_each(|_| seen.push(std::iter::once(rows.clone())));
                }
                for (index, block) in blocks.iter().enumerate() {
                    let sight = Sight {
                        angles: None,
                        keys: Keys::Own(Mask::Segments(&own)),
                        cross: Some(Keys::States(&x, Mask::Ranges(&seen))),
                        passing: &[],
                    };
                    asked = block.forward(backend, plan.block(index), &asked, sight)?;
                }
                *grid = Grid { views, rows: count, cols: 1, block: 1 };
                Ok(asked)
            }
        }
    }
}

/// Attention of the mean of each group of rows over the rows of the group.
///
/// As `Molmo2Adapter.forward`: cells beyond the edge are neither seen nor counted.
fn attend<B: Backend>(
    backend: &B,
    plan: &AttentionPlan,
    weights: &[Linear<B>; 4],
    x: &B::Tensor,
    groups: &[Vec<u32>],
) -> Result<B::Tensor> {
    let [q, k, v, o] = weights;
    let most = groups.iter().map(Vec::len).max().unwrap_or(0);
    let (mut index, mut shares) = (Vec::new(), Vec::new());
    let mut seen = KeyRanges::new();
    let mut start = 0;
    for group in groups {
        for place in 0..most {
            let row = group.get(place);
            index.push(row.or(group.first()).copied().unwrap_or(0));
            shares.push(if row.is_some() { 1.0 / group.len() as f32 } else { 0.0 });
        }
        seen.push(std::iter::once(start..start + group.len()));
        start += group.len();
    }
    let means = backend.blend(x, &index, &shares, most.max(1))?;
    let cells = backend.gather(x, &groups.concat())?;
    let (keys, values) = (k.apply(backend, &cells)?, v.apply(backend, &cells)?);
    let geometry = Attention {
        heads: plan.heads,
        kv_heads: plan.kv_heads,
        head_dim: plan.head_dim,
        scale: plan.scale,
        softcap: plan.softcap,
        mask: Mask::Ranges(&seen),
    };
    let attended = backend.attention(&q.apply(backend, &means)?, &keys, &values, &geometry)?;
    o.apply(backend, &attended)
}

/// The cells of every row that is there; rows of which no cell is there are left out.
fn groups_of(pooled: &Pooled) -> Vec<Vec<u32>> {
    let groups = pooled.cells.chunks(pooled.count.max(1));
    let groups = groups.map(|cells| cells.iter().flatten().copied().collect::<Vec<_>>());
    groups.filter(|cells| !cells.is_empty()).collect()
}

fn check_rows<B: Backend>(backend: &B, x: &B::Tensor, grid: &Grid) -> Result<()> {
    let (count, _) = backend.shape(x);
    if count == grid.views * grid.rows * grid.cols {
        return Ok(());
    }
    let Grid { views, rows, cols, .. } = grid;
    let message = format!("{count} rows are not {views} grids of {rows}x{cols}");
    Err(Error::new(ErrorKind::Media, message))
}

/// `side`² cells in a row, for every merged cell of every view.
fn merged_cells(grid: &Grid, side: usize) -> Result<Vec<u32>> {
    let Grid { views, rows, cols, block } = *grid;
    if side == 0 || rows % side != 0 || cols % side != 0 {
        let message = format!("a grid of {rows}x{cols} cells cannot be merged by {side}");
        return Err(Error::new(ErrorKind::Media, message));
    }
    let one = tables::merge_order(rows, cols, block, side);
    let view = |view: usize| one.iter().map(move |cell| (view * rows * cols) as u32 + cell);
    Ok((0..views).flat_map(view).collect())
}

fn merged_grid(grid: Grid, side: usize) -> Grid {
    Grid { views: grid.views, rows: grid.rows / side, cols: grid.cols / side, block: 1 }
}

/// `[rows, width]` → `[rows / side², side² · width]`, patch after patch.
fn merge<B: Backend>(backend: &B, x: B::Tensor, grid: &mut Grid, side: usize) -> Result<B::Tensor> {
    check_rows(backend, &x, grid)?;
    let cells = merged_cells(grid, side)?;
    let (count, width) = backend.shape(&x);
    let gathered = if grid.block == side { x } else { backend.gather(&x, &cells)? };
    *grid = merged_grid(*grid, side);
    backend.reshape(gathered, count / (side * side), width * side * side)
}
