//! The front of an encoder: patches or frames, class row, learned positions.

use super::interpolate::{self, Kernel};
use super::{Linear, Loader, NormWeights, tables};
use crate::backend::{Activation, Backend};
use crate::descriptor::tower::{ClassPlace, PatchForm};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::graph::{EncoderPlan, FrameConvPlan, PatchPlan, PositionPlan, TilesPlan};

/// Channels of a picture.
const CHANNELS: usize = 3;

/// The grid of every view of a batch, in patches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Views {
    /// How many there are.
    pub(super) count: usize,
    /// Patches down.
    pub(super) rows: usize,
    /// Patches across.
    pub(super) cols: usize,
}

/// Weights in front of the first block.
pub(super) struct Front<B: Backend> {
    patch: Option<(PatchPlan, Linear<B>, Option<NormWeights<B>>)>,
    frames: Vec<(FrameConvPlan, Linear<B>)>,
    class: Option<(ClassPlace, B::Tensor)>,
    position: Option<(PositionPlan, B::Tensor)>,
    tiles: Option<Tiles<B>>,
    enter: Option<NormWeights<B>>,
}

/// Learned rows of tiles.
struct Tiles<B: Backend> {
    plan: TilesPlan,
    /// One row per arrangement: rows of all tiles and positions.
    table: B::Weight,
    /// The tanh of its gate.
    table_gate: f32,
    before: TileRows<B>,
    after: TileRows<B>,
}

/// A learned row per tile, already a table of one row per arrangement.
struct TileRows<B: Backend> {
    table: B::Weight,
    /// The tanh of its gate.
    gate: f32,
}

impl<B: Backend> Front<B> {
    pub(super) fn load(loader: &Loader<'_, B>, plan: &EncoderPlan) -> Result<Self> {
        let patch = match &plan.patch {
            Some(patch) => {
                let name = format!("{}.weight", patch.name);
                let size = patch.size;
                let weight = match patch.form {
                    // patch rows run channel, frame, row, column
                    PatchForm::Conv | PatchForm::LinearChannels => loader.matrix(&name)?,
                    PatchForm::Linear => {
                        let shape = [plan.stack.width, size, size, CHANNELS];
                        loader.permuted(&name, &shape, &[0, 3, 1, 2])?
                    }
                };
                let bias = format!("{}.bias", patch.name);
                let bias = patch.bias.then(|| loader.vector(&bias)).transpose()?;
                let norm = patch.norm.as_ref().map(|norm| loader.norm(&norm.name, norm));
                Some((patch.clone(), Linear { weight, bias }, norm.transpose()?))
            }
            None => None,
        };
        let frames = plan.frames.iter().map(|conv| {
            let shape = [conv.out, conv.input, conv.kernel];
            let weight = loader.permuted(&format!("{}.weight", conv.name), &shape, &[0, 2, 1])?;
            let bias = format!("{}.bias", conv.name);
            let bias = conv.bias.then(|| loader.vector(&bias)).transpose()?;
            Ok((conv.clone(), Linear { weight, bias }))
        });
        let class = match &plan.class {
            Some(class) => Some((class.at, loader.vector(&class.parameter)?)),
            None => None,
        };
        let mut position = match &plan.position {
            Some(table) => {
                let rows = table.rows * table.axes.unwrap_or(1);
                Some((table.clone(), loader.table(&table.tensor, rows)?))
            }
            None => None,
        };
        let tiles = plan.tiles.as_ref().map(|tiles| Tiles::load(loader, tiles)).transpose()?;
        if let (Some(tiles), Some((_, table))) = (&tiles, &mut position) {
            *table = loader.backend.scale(table, 1.0 - tiles.table_gate)?;
        }
        Ok(Self {
            patch,
            frames: frames.collect::<Result<_>>()?,
            class,
            position,
            tiles,
            enter: plan.enter.as_ref().map(|norm| loader.norm(&norm.name, norm)).transpose()?,
        })
    }

    /// Rows of a view's class.
    pub(super) fn class_rows(&self) -> usize {
        usize::from(self.class.is_some())
    }

    /// Rows that every view is filled up to behind its own.
    pub(super) fn padding(&self, own: usize) -> usize {
        let align = self.tiles.as_ref().map_or(1, |tiles| tiles.plan.align);
        own.next_multiple_of(align.max(1)) - own
    }

    /// Tiles that every picture is filled up to.
    pub(super) fn most_tiles(&self) -> Option<usize> {
        self.tiles.as_ref().map(|tiles| tiles.plan.most)
    }

    /// Rows of all `views`, one view after the other: `[views · (class + patches + padding), width]`.
    ///
    /// `patches` are `[views · rows · cols, channels · frames · size²]` in the order in which they are emitted; `arrangement` is
    /// the number of the arrangement of tiles.
    pub(super) fn pictures(
        &self,
        backend: &B,
        mut patches: Vec<f32>,
        views: Views,
        arrangement: u32,
    ) -> Result<B::Tensor> {
        let Some((plan, linear, norm)) = &self.patch else {
            return Err(Error::new(ErrorKind::Media, "this tower takes no pictures"));
        };
        if plan.spread {
            for value in &mut patches {
                *value = 2.0 * *value - 1.0;
            }
        }
        let each = views.rows * views.cols;
        let rows = views.count * each;
        let width = patches.len() / rows.max(1);
        let mut x = linear.apply(backend, &backend.upload(patches, rows, width)?)?;
        if let Some(norm) = norm {
            x = norm.apply(backend, &x)?;
        }
        if let Some(tiles) = &self.tiles {
            let added = tiles.before.rows(backend, arrangement, tiles.plan.most, each)?;
            x = backend.add(&x, &added)?;
        }
        let own = each + self.class_rows();
        if let Some((place, class)) = &self.class {
            let stacked = backend.concat(&[class, &x])?;
            let mut index = Vec::with_capacity(views.count * own);
            for view in 0..views.count {
                let first = (1 + view * each) as u32;
                let patches = first..first + each as u32;
                match place {
                    ClassPlace::First => {
                        index.push(0);
                        index.extend(patches);
                    }
                    ClassPlace::Last => {
                        index.extend(patches);
                        index.push(0);
                    }
                }
            }
            x = backend.gather(&stacked, &index)?;
        }
        if let Some((table, rows)) = &self.position {
            let positions = self.positions(backend, table, rows, views, plan.block)?;
            x = backend.add(&x, &positions)?;
        }
        if let Some(tiles) = &self.tiles {
            let table = backend.embed(&tiles.table, &[arrangement])?;
            let (_, all) = backend.shape(&table);
            let rows = tiles.plan.most * own;
            let table = backend.reshape(table, rows, all / rows.max(1))?;
            x = backend.add(&x, &backend.scale(&table, tiles.table_gate)?)?;
        }
        if let Some(norm) = &self.enter {
            x = norm.apply(backend, &x)?;
        }
        self.fill(backend, x, views.count, own)
    }

    /// Fills every view up with rows of zeros.
    fn fill(&self, backend: &B, x: B::Tensor, views: usize, own: usize) -> Result<B::Tensor> {
        let padding = self.padding(own);
        if padding == 0 {
            return Ok(x);
        }
        let (rows, width) = backend.shape(&x);
        let zero = backend.upload(vec![0.0; width], 1, width)?;
        let mut index = Vec::with_capacity(views * (own + padding));
        for view in 0..views {
            let first = (view * own) as u32;
            index.extend(first..first + own as u32);
            index.extend(std::iter::repeat_n(rows as u32, padding));
        }
        backend.gather(&backend.concat(&[&x, &zero])?, &index)
    }

    /// The row of the table for every row of every view.
    fn positions(
        &self,
        backend: &B,
        table: &PositionPlan,
        rows: &B::Tensor,
        views: Views,
        block: usize,
    ) -> Result<B::Tensor> {
        let class = self.class_rows();
        let order = tables::patch_order(views.rows, views.cols, block);
        let learned = table.rows - class.min(table.rows);
        let (side, size) = (learned.isqrt(), (views.rows, views.cols));
        let kernel = Kernel::of(table.resize);
        let needed = views.rows * views.cols;
        let fits = match kernel {
            // fractions of an axis are rounded to buckets even where both grids are the same
            Some(Kernel::Nearest) => false,
            _ => needed == learned && (kernel.is_none() || size == (side, side)),
        };
        let one = if fits {
            let place = |(row, col): (u32, u32)| class as u32 + row * views.cols as u32 + col;
            let index: Vec<u32> = (0..class as u32).chain(order.into_iter().map(place)).collect();
            backend.gather(rows, &index)?
        } else if let Some(kernel) = kernel {
            if side * side != learned {
                let message = format!("a table of {learned} positions is no square to resize");
                return Err(Error::new(ErrorKind::Media, message));
            }
            let (index, weights, count) =
                interpolate::grid(kernel, &order, size, (side, side), class);
            let patches = backend.blend(rows, &index, &weights, count)?;
            match class {
                0 => patches,
                _ => backend.concat(&[&backend.rows(rows, 0, class)?, &patches])?,
            }
        } else {
            let message = format!(
                "a picture of {}x{} patches needs {} positions, the tower has {}",
                views.rows,
                views.cols,
                needed + class,
                table.rows
            );
            return Err(Error::new(ErrorKind::Media, message));
        };
        let each = (needed + class) as u32;
        let index: Vec<u32> = (0..views.count).flat_map(|_| 0..each).collect();
        if views.count == 1 { Ok(one) } else { backend.gather(&one, &index) }
    }

    /// Adds the rows of tiles that stand behind the first stack.
    pub(super) fn after(
        &self,
        backend: &B,
        x: &B::Tensor,
        arrangement: u32,
        each: usize,
    ) -> Result<B::Tensor> {
        match &self.tiles {
            Some(tiles) => {
                let rows = tiles.after.rows(backend, arrangement, tiles.plan.most, each)?;
                backend.add(x, &rows)
            }
            None => Ok(x.clone()),
        }
    }

    /// Rows of a clip: `mel` is `[bands, frames]`, of which `valid` frames are sound. `[rows, width]`, without those that
    /// only padding reaches.
    pub(super) fn clip(
        &self,
        backend: &B,
        mel: &[f32],
        frames: usize,
        valid: usize,
    ) -> Result<B::Tensor> {
        let bands = mel.len() / frames.max(1);
        let mut rows = vec![0.0; mel.len()];
        for (band, line) in mel.chunks_exact(frames.max(1)).enumerate() {
            for (frame, value) in line.iter().enumerate() {
                if let Some(slot) = rows.get_mut(frame * bands + band) {
                    *slot = *value;
                }
            }
        }
        let mut x = backend.upload(rows, frames, bands)?;
        let mut valid = valid.min(frames);
        for (conv, linear) in &self.frames {
            x = convolve(backend, conv, linear, &x)?;
            valid = outputs(conv, valid);
        }
        let (rows, _) = backend.shape(&x);
        x = backend.rows(&x, 0, valid.min(rows))?;
        if let Some((table, positions)) = &self.position {
            if valid > table.rows {
                let message =
                    format!("a clip needs {valid} positions, the tower has {}", table.rows);
                return Err(Error::new(ErrorKind::Media, message));
            }
            x = backend.add(&x, &backend.rows(positions, 0, valid)?)?;
        }
        match &self.enter {
            Some(norm) => norm.apply(backend, &x),
            None => Ok(x),
        }
    }
}

/// Outputs of a convolution over `frames`.
fn outputs(conv: &FrameConvPlan, frames: usize) -> usize {
    (frames + 2 * conv.pad).checked_sub(conv.kernel).map_or(0, |rest| rest / conv.stride + 1)
}

fn convolve<B: Backend>(
    backend: &B,
    conv: &FrameConvPlan,
    linear: &Linear<B>,
    x: &B::Tensor,
) -> Result<B::Tensor> {
    let (frames, width) = backend.shape(x);
    let zero = backend.upload(vec![0.0; width], 1, width)?;
    let padded = backend.concat(&[x, &zero])?;
    let count = outputs(conv, frames);
    let mut index = Vec::with_capacity(count * conv.kernel);
    for output in 0..count {
        for tap in 0..conv.kernel {
            let frame = (output * conv.stride + tap).checked_sub(conv.pad);
            index.push(frame.filter(|frame| *frame < frames).unwrap_or(frames) as u32);
        }
    }
    let seen = backend.gather(&padded, &index)?;
    let seen = backend.reshape(seen, count, conv.kernel * width)?;
    let act: Activation = conv.act;
    linear.apply_with(backend, &seen, Some(act), None)
}

impl<B: Backend> Tiles<B> {
    fn load(loader: &Loader<'_, B>, plan: &TilesPlan) -> Result<Self> {
        let [table, before, after] = &plan.names;
        let rows = |prefix: &str| {
            Ok::<_, Error>(TileRows {
                table: loader.matrix(&format!("{prefix}.embedding.weight"))?,
                gate: loader.number(&format!("{prefix}.gate"))?.tanh(),
            })
        };
        Ok(Self {
            plan: plan.clone(),
            table: loader.matrix(&format!("{table}.tile_embedding.weight"))?,
            table_gate: loader.number(&format!("{table}.gate"))?.tanh(),
            before: rows(before)?,
            after: rows(after)?,
        })
    }
}

impl<B: Backend> TileRows<B> {
    /// The row of every tile, `each` times.
    fn rows(&self, backend: &B, arrangement: u32, tiles: usize, each: usize) -> Result<B::Tensor> {
        let row = backend.embed(&self.table, &[arrangement])?;
        let (_, all) = backend.shape(&row);
        let rows = backend.reshape(row, tiles, all / tiles.max(1))?;
        let rows = backend.scale(&rows, self.gate)?;
        let index: Vec<u32> =
            (0..tiles as u32).flat_map(|tile| std::iter::repeat_n(tile, each)).collect();
        backend.gather(&rows, &index)
    }
}
