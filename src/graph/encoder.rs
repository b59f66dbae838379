//! An encoder: front → tower → features → connector rows. `pictures.rs` says what of pictures goes through it together.

use super::attend::{Angles, Keys};
use super::block::{Block, Sight};
use super::connector::{Connector, Grid};
use super::front::{Front, Views};
use super::masks::{Masks, pairs};
use super::{Loader, NormWeights, Pulse, TensorSource, rope, tables};
use crate::backend::Backend;
use crate::descriptor::block::MaskRule;
use crate::descriptor::tower::Concat;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Arrangement;
use crate::plan::graph::{EncoderPlan, StackPlan};
use crate::plan::tensors::Component;

/// A picture as the encoder takes it.
#[derive(Debug, Clone)]
pub struct PictureInput {
    /// Views, all of one size.
    pub views: usize,
    /// Patches down, of each view.
    pub rows: usize,
    /// Patches across, of each view.
    pub cols: usize,
    /// `[views * rows * cols, channels * frames * size²]`, in the order in which patches are emitted.
    pub patches: Vec<f32>,
    /// How the views belong together.
    pub arrangement: Arrangement,
}

/// A clip as the encoder takes it.
#[derive(Debug, Clone)]
pub struct ClipInput {
    /// Mel bands, `[bands, frames]`.
    pub mel: Vec<f32>,
    /// Frames.
    pub frames: usize,
    /// Leading frames that are sound.
    pub valid: usize,
}

/// What the encoder made of one item.
pub struct EncodedItem<B: Backend> {
    /// Views of which each has equally many rows in `tower`.
    pub views: usize,
    /// What the connector receives, `[views * tokens, width]`.
    pub tower: B::Tensor,
    /// What the connector produces, `[rows, hidden]`; learned rows of strips are not among them.
    pub features: B::Tensor,
    /// States of earlier blocks for the decoder's first blocks, `[rows, hidden]` each.
    pub deep: Vec<B::Tensor>,
    /// How many leading rows of `features` are rows of real views; all but for pictures that are filled up to a number of tiles.
    pub real: usize,
}

/// The encoder's weights.
pub struct Encoder<B: Backend> {
    pub(super) plan: EncoderPlan,
    pub(super) front: Front<B>,
    blocks: Vec<Block<B>>,
    leave: Option<NormWeights<B>>,
    then: Vec<Block<B>>,
    pub(super) connector: Connector<B>,
    pub(super) deep: Vec<Connector<B>>,
    vectors: Vec<(String, B::Tensor)>,
}

/// States of one batch.
pub(super) struct States<B: Backend> {
    /// What is read, `[views * tokens, feature width]`.
    pub(super) features: B::Tensor,
    /// States for the decoder's first blocks, `[views * tokens, width]`.
    pub(super) deep: Vec<B::Tensor>,
}

impl<B: Backend> Encoder<B> {
    /// Loads what a run needs: blocks above the deepest tap are not read.
    pub fn load(backend: &B, source: &dyn TensorSource, plan: &EncoderPlan) -> Result<Self> {
        let (tower, connector) = Component::of_modality(plan.modality);
        let tower = Loader { backend, source, component: tower };
        let connector = Loader { backend, source, component: connector };
        let blocks = (0..plan.depth()).map(|index| Block::load(&tower, &plan.stack, index));
        let then = plan.then.iter().filter(|_| plan.last);
        let then = then.flat_map(|stack| (0..stack.layers).map(move |index| (stack, index)));
        let needs_leave = plan.norm || plan.then.is_some() || plan.last;
        let leave = plan.leave.as_ref().filter(|_| needs_leave);
        let deep = plan.deepstack.iter().flat_map(|deep| &deep.ops);
        let vectors = plan
            .vectors
            .iter()
            .map(|(name, parameter)| Ok((name.clone(), connector.vector(parameter)?)));
        Ok(Self {
            front: Front::load(&tower, plan)?,
            blocks: blocks.collect::<Result<_>>()?,
            leave: leave.map(|norm| tower.norm(&norm.name, norm)).transpose()?,
            then: then
                .map(|(stack, index)| Block::load(&tower, stack, index))
                .collect::<Result<_>>()?,
            connector: Connector::load(&connector, &plan.ops)?,
            deep: deep.map(|ops| Connector::load(&connector, ops)).collect::<Result<_>>()?,
            vectors: vectors.collect::<Result<_>>()?,
            plan: plan.clone(),
        })
    }

    /// The learned rows that strips put between its rows, `[1, hidden]` each, by name.
    pub fn vectors(&self) -> &[(String, B::Tensor)] {
        &self.vectors
    }

    /// Encodes a clip; `pulse` is called between blocks, and its error ends the call.
    pub fn clip(&self, backend: &B, clip: &ClipInput, pulse: Pulse<'_>) -> Result<EncodedItem<B>> {
        let ClipInput { mel, frames, valid } = clip;
        let x = self.front.clip(backend, mel, *frames, *valid)?;
        let (rows, _) = backend.shape(&x);
        let average = self.plan.average.max(1);
        if rows / average == 0 {
            let none = |width| backend.upload(Vec::new(), 0, width);
            let (tower, features) = (none(self.plan.feature_width())?, none(self.plan.out)?);
            return Ok(EncodedItem { views: 1, tower, features, deep: Vec::new(), real: 0 });
        }
        // a row of frames is a grid of one row
        let views = Views { count: 1, rows: 1, cols: rows };
        let states = self.tower(backend, x, views, 1, (1, 0), pulse)?;
        let (count, _) = backend.shape(&states.features);
        let grid = Grid { views: 1, rows: 1, cols: count, block: 1 };
        let tower = states.features;
        let features = self.connector.apply(backend, tower.clone(), grid, None)?;
        let (real, _) = backend.shape(&features);
        Ok(EncodedItem { views: 1, tower, features, deep: Vec::new(), real })
    }

    /// What is read of a batch: `x` holds the rows of all its views, of which the first `real` are not black;
    /// `number` is that of their arrangement.
    pub(super) fn tower(
        &self,
        backend: &B,
        mut x: B::Tensor,
        views: Views,
        block: usize,
        (real, number): (usize, u32),
        pulse: Pulse<'_>,
    ) -> Result<States<B>> {
        let patches = views.rows * views.cols;
        let class = self.front.class_rows();
        let own = patches + class;
        let padding = self.front.padding(own);
        let mut order = None;
        let window = self.plan.stack.kinds.iter().find_map(|kind| {
            let windows = kind.attention.mask == MaskRule::PerWindow;
            windows.then_some(kind.attention.window).flatten()
        });
        let mut windows = Vec::new();
        if let Some(window) = window {
            if class + padding > 0 {
                let message = "a tower with windows has rows that are in none";
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            let (one, lengths) = tables::window_order(views.rows, views.cols, block, window);
            let view = |view: usize| one.iter().map(move |row| (view * patches) as u32 + row);
            let all: Vec<u32> = (0..views.count).flat_map(view).collect();
            x = backend.gather(&x, &all)?;
            windows = lengths.repeat(views.count);
            order = Some(all);
        }
        let places = Self::places(views, block, class, padding, order.as_deref());
        let masks = Masks {
            views: vec![own + padding; views.count],
            windows,
            pairs: pairs(views.count, real, own, padding),
        };
        // back to the order in which rows are emitted, without padding
        let mut emitted: Vec<u32> = match &order {
            None => (0..(views.count * (own + padding)) as u32).collect(),
            Some(order) => {
                let mut inverse = vec![0_u32; order.len()];
                for (place, row) in order.iter().enumerate() {
                    if let Some(slot) = inverse.get_mut(*row as usize) {
                        *slot = place as u32;
                    }
                }
                inverse
            }
        };
        let dropped = self.plan.drop.min(own);
        emitted = emitted
            .chunks(own + padding)
            .flat_map(|view| view.get(dropped..own).unwrap_or_default())
            .copied()
            .collect();
        let average = self.plan.average.max(1);
        let read = |x: &B::Tensor, leave: Option<&NormWeights<B>>| -> Result<B::Tensor> {
            let mut x = if order.is_none() && dropped + padding == 0 {
                x.clone()
            } else {
                backend.gather(x, &emitted)?
            };
            if average > 1 {
                x = averaged(backend, &x, views.count, average)?;
            }
            match leave {
                Some(norm) => norm.apply(backend, &x),
                None => Ok(x),
            }
        };
        let leave = self.leave.as_ref().filter(|_| self.plan.norm);
        let deep_taps = self.plan.deepstack.iter().flat_map(|deep| &deep.taps);
        let deep_taps: Vec<usize> = deep_taps.copied().collect();
        let mut taps = vec![None; self.plan.taps.len()];
        let mut deep = vec![None; deep_taps.len()];
        let angles = Angled::of(backend, &self.plan.stack, &places)?;
        for depth in 0..=self.blocks.len() {
            for (tap, slot) in self.plan.taps.iter().zip(&mut taps) {
                if *tap == depth {
                    *slot = Some(read(&x, leave)?);
                }
            }
            for (tap, slot) in deep_taps.iter().zip(&mut deep) {
                if *tap == depth {
                    *slot = Some(read(&x, None)?);
                }
            }
            if let Some(weights) = self.blocks.get(depth) {
                pulse()?;
                x = run(backend, &self.plan.stack, depth, weights, &x, &angles, &masks)?;
            }
        }
        let mut states: Vec<B::Tensor> = taps.into_iter().flatten().collect();
        if self.plan.concat == Concat::Interleaved && states.len() > 1 {
            let (_, width) = backend.shape(&x);
            let joined = side_by_side(backend, &states)?;
            states = vec![backend.transpose(&joined, states.len(), width)?];
        }
        if self.plan.last {
            if let Some(norm) = &self.leave {
                x = norm.apply(backend, &x)?;
            }
            if let Some(stack) = &self.plan.then {
                x = self.front.after(backend, &x, number, own + padding)?;
                let angles = Angled::of(backend, stack, &places)?;
                for (index, weights) in self.then.iter().enumerate() {
                    pulse()?;
                    x = run(backend, stack, index, weights, &x, &angles, &masks)?;
                }
            }
            states.insert(0, read(&x, None)?);
        }
        Ok(States {
            features: side_by_side(backend, &states)?,
            deep: deep.into_iter().flatten().collect(),
        })
    }

    /// (time, row, column) of every row of a batch, for rotary embeddings.
    fn places(
        views: Views,
        block: usize,
        class: usize,
        padding: usize,
        order: Option<&[u32]>,
    ) -> Vec<[i64; 3]> {
        let patch = |(row, col)| [0, i64::from(row), i64::from(col)];
        let mut one: Vec<[i64; 3]> = vec![[0; 3]; class];
        one.extend(tables::patch_order(views.rows, views.cols, block).into_iter().map(patch));
        one.extend(vec![[0; 3]; padding]);
        let all = one.repeat(views.count);
        match order {
            Some(order) => order
                .iter()
                .map(|row| all.get(*row as usize).copied().unwrap_or_default())
                .collect(),
            None => all,
        }
    }
}

/// The angles of each kind of layer of a stack.
struct Angled<B: Backend>(Vec<Option<Angles<B>>>);

impl<B: Backend> Angled<B> {
    fn of(backend: &B, stack: &StackPlan, places: &[[i64; 3]]) -> Result<Self> {
        let kinds = stack.kinds.iter().map(|kind| {
            let rope = kind.attention.rope.as_ref();
            rope.map(|rope| rope::angles(backend, rope, places)).transpose()
        });
        kinds.collect::<Result<_>>().map(Self)
    }
}

fn run<B: Backend>(
    backend: &B,
    stack: &StackPlan,
    index: usize,
    block: &Block<B>,
    x: &B::Tensor,
    angles: &Angled<B>,
    masks: &Masks,
) -> Result<B::Tensor> {
    let plan = stack.block(index);
    let kind = stack.kind_of.get(index).copied().unwrap_or(0);
    let sight = Sight {
        angles: angles.0.get(kind).and_then(Option::as_ref),
        keys: Keys::Own(masks.of(&plan.attention)?),
        cross: None,
        passing: &[],
    };
    block.forward(backend, plan, x, sight)
}

/// Averages of `count` consecutive rows of every view; rows that make no whole group are left out.
fn averaged<B: Backend>(
    backend: &B,
    x: &B::Tensor,
    views: usize,
    count: usize,
) -> Result<B::Tensor> {
    let (rows, _) = backend.shape(x);
    let each = rows / views.max(1);
    let kept = each / count * count;
    let view = |view: usize| (0..kept).map(move |row| (view * each + row) as u32);
    let index: Vec<u32> = (0..views).flat_map(view).collect();
    backend.blend(x, &index, &vec![1.0 / count as f32; index.len()], count)
}

/// Equally many rows of several states, side by side.
fn side_by_side<B: Backend>(backend: &B, states: &[B::Tensor]) -> Result<B::Tensor> {
    if let [only] = states {
        return Ok(only.clone());
    }
    let widths: Vec<usize> = states.iter().map(|state| backend.shape(state).1).collect();
    let rows = states.first().map_or(0, |state| backend.shape(state).0);
    let unit = widths.iter().copied().reduce(gcd).unwrap_or(1).max(1);
    // every state as rows of `unit` elements, then the rows of one result behind each other
    let mut parts = Vec::new();
    for (state, width) in states.iter().zip(&widths) {
        parts.push(backend.reshape(state.clone(), rows * (width / unit), unit)?);
    }
    let stacked = backend.concat(&parts.iter().collect::<Vec<_>>())?;
    let mut index = Vec::new();
    for row in 0..rows {
        let mut first = 0;
        for width in &widths {
            let pieces = width / unit;
            let start = (first + row * pieces) as u32;
            index.extend(start..start + pieces as u32);
            first += rows * pieces;
        }
    }
    let width = widths.iter().sum();
    backend.reshape(backend.gather(&stacked, &index)?, rows, width)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
