//! An encoder and its connector.

use super::{DeepStackPlan, NormPlan, OpPlan, Resolver, StackPlan};
use crate::backend::Activation;
use crate::descriptor::slot::Count;
use crate::descriptor::tower::{
    ClassPlace, Concat, Connector, ConnectorOp, DeepStack, Features, FinalState, FrameConv, Patch,
    PatchForm, PositionTable, Splice, TableResize, TapCount, TilePositions, Tower,
};
use crate::problem::Problem;

/// A patch embedding.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchPlan {
    /// Pixels per side.
    pub size: usize,
    /// How it is stored.
    pub form: PatchForm,
    /// Depth of the kernel; `None` if it has no such axis.
    pub frames: Option<usize>,
    /// Patches per side of the blocks that they are emitted in; 1 for raster order.
    pub block: usize,
    /// Whether there is a bias.
    pub bias: bool,
    /// Whether pixels x enter as 2 x − 1.
    pub spread: bool,
    /// The tensor's name.
    pub name: String,
    /// A norm of patch rows before positions are added.
    pub norm: Option<NormPlan>,
}

/// A convolution over time.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameConvPlan {
    /// Channels before.
    pub input: usize,
    /// Channels after.
    pub out: usize,
    /// Frames that one output sees.
    pub kernel: usize,
    /// Frames from one output to the next.
    pub stride: usize,
    /// Zero frames at either end.
    pub pad: usize,
    /// Whether there is a bias.
    pub bias: bool,
    /// The function behind it.
    pub act: Activation,
    /// The tensor's name.
    pub name: String,
}

/// A class row.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassPlan {
    /// The tensor's full name.
    pub parameter: String,
    /// Axes of size 1 in front of its elements.
    pub ones: usize,
    /// Where it stands.
    pub at: ClassPlace,
}

/// A table of positions.
#[derive(Debug, Clone, PartialEq)]
pub struct PositionPlan {
    /// Its rows.
    pub rows: usize,
    /// Its full name.
    pub tensor: String,
    /// Axes of size 1 in front.
    pub ones: usize,
    /// Tables, one per axis of the grid; `None`: one over all positions.
    pub axes: Option<usize>,
    /// What happens where a picture has another grid.
    pub resize: TableResize,
}

/// Learned rows of tiles.
#[derive(Debug, Clone, PartialEq)]
pub struct TilesPlan {
    /// Arrangements of tiles.
    pub arrangements: usize,
    /// The most tiles of a picture.
    pub most: usize,
    /// The rows of a tile are filled up to a multiple of this.
    pub align: usize,
    /// The prefixes of the three tables.
    pub names: [String; 3],
}

/// An encoder with its connector.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderPlan {
    /// The modality: `image` or `audio`, as keys of the family file begin.
    pub modality: &'static str,
    /// The patch embedding of a picture.
    pub patch: Option<PatchPlan>,
    /// Convolutions over time.
    pub frames: Vec<FrameConvPlan>,
    /// The class row.
    pub class: Option<ClassPlan>,
    /// The table of positions.
    pub position: Option<PositionPlan>,
    /// Learned rows of tiles.
    pub tiles: Option<TilesPlan>,
    /// The norm before the first block.
    pub enter: Option<NormPlan>,
    /// The stack.
    pub stack: StackPlan,
    /// How many rows are averaged after the blocks; 1: none.
    pub average: usize,
    /// The norm after the last block.
    pub leave: Option<NormPlan>,
    /// A second stack behind it.
    pub then: Option<StackPlan>,
    /// After how many blocks each tap is taken, in the order of concatenation.
    pub taps: Vec<usize>,
    /// How tapped states lie side by side.
    pub concat: Concat,
    /// Whether the tower's last state stands in front of the taps.
    pub last: bool,
    /// Whether `leave` is applied to what is read.
    pub norm: bool,
    /// Leading rows dropped.
    pub drop: usize,
    /// The connector's steps.
    pub ops: Vec<OpPlan>,
    /// Elements per row that the connector makes.
    pub out: usize,
    /// Learned rows of strips: name and full tensor name.
    pub vectors: Vec<(String, String)>,
    /// States of earlier blocks for the decoder's first blocks.
    pub deepstack: Option<DeepStackPlan>,
    /// How its rows enter the decoder.
    pub splice: Splice,
}

impl EncoderPlan {
    /// How many blocks are run: up to the deepest tap, or all where the end is read.
    pub fn depth(&self) -> usize {
        if self.last || self.then.is_some() {
            return self.stack.layers;
        }
        let deep = self.deepstack.iter().flat_map(|deep| &deep.taps);
        self.taps.iter().chain(deep).copied().max().unwrap_or(0)
    }

    /// Elements per row that the connector receives.
    pub fn feature_width(&self) -> usize {
        self.stack.width * (self.taps.len() + usize::from(self.last))
    }
}

impl Resolver<'_> {
    fn patch(&mut self, key: &str, patch: &Patch) -> Option<PatchPlan> {
        let size = self.size(&format!("{key}.size"), "the patch size", &patch.size, 1);
        let form = self.choice_or(&format!("{key}.form"), patch.form.as_ref(), PatchForm::Conv);
        let frames = match &patch.frames {
            Some(count) => {
                self.size(&format!("{key}.frames"), "the number of frames", count, 1).map(Some)
            }
            None => Some(None),
        };
        let block =
            self.size_or(&format!("{key}.block"), "the patch block", patch.block.as_ref(), 1, 1);
        let bias = self.flag(&format!("{key}.bias"), &patch.bias);
        let spread = self.flag_or(&format!("{key}.spread"), patch.spread.as_ref(), false);
        let norm = self.optional_norm(&format!("{key}.norm"), patch.norm.as_ref());
        Some(PatchPlan {
            size: size?,
            form: form?,
            frames: frames?,
            block: block?,
            bias: bias?,
            spread: spread?,
            name: patch.name.clone(),
            norm,
        })
    }

    fn frame_convs(
        &mut self,
        key: &str,
        convs: &[FrameConv],
        width: Option<usize>,
    ) -> Option<Vec<FrameConvPlan>> {
        let mut planned: Vec<FrameConvPlan> = Vec::new();
        for (index, conv) in convs.iter().enumerate() {
            let key = format!("{key}.{index}");
            let before = planned.last().map(|conv| conv.out);
            let input = match (&conv.input, before) {
                (Some(count), _) => {
                    self.size(&format!("{key}.input"), "the number of channels", count, 1)?
                }
                (None, Some(before)) => before,
                (None, None) => {
                    let problem =
                        Problem::error("key-missing", "the first convolution states its channels")
                            .expected_found("`input`", "nothing");
                    return self.keep(&format!("{key}.input"), Err(problem));
                }
            };
            let out = match &conv.out {
                Some(count) => {
                    self.size(&format!("{key}.out"), "the number of channels", count, 1)?
                }
                None => width?,
            };
            let act = self.values.choice(&conv.act);
            planned.push(FrameConvPlan {
                input,
                out,
                kernel: self.size(&format!("{key}.kernel"), "the kernel", &conv.kernel, 1)?,
                stride: self.size(&format!("{key}.stride"), "the stride", &conv.stride, 1)?,
                pad: self.size(&format!("{key}.pad"), "the padding", &conv.pad, 0)?,
                bias: self.flag(&format!("{key}.bias"), &conv.bias)?,
                act: self.keep(&format!("{key}.act"), act)?,
                name: conv.name.clone(),
            });
        }
        Some(planned)
    }

    fn position(&mut self, key: &str, table: &PositionTable) -> Option<PositionPlan> {
        let rows = self.size(&format!("{key}.rows"), "the number of positions", &table.rows, 1)?;
        let tensor = self.stored(key, table.name.as_ref(), table.parameter.as_ref())?;
        let resize =
            self.choice_or(&format!("{key}.resize"), table.resize.as_ref(), TableResize::None)?;
        let axes = match &table.axes {
            Some(count) => {
                Some(self.size(&format!("{key}.axes"), "the number of tables", count, 1)?)
            }
            None => None,
        };
        Some(PositionPlan { rows, tensor, ones: table.ones as usize, axes, resize })
    }

    fn tiles(&mut self, key: &str, tiles: &TilePositions) -> Option<TilesPlan> {
        let arrangements = self.size(
            &format!("{key}.arrangements"),
            "the number of arrangements",
            &tiles.arrangements,
            1,
        )?;
        let most = self.size(&format!("{key}.most"), "the most tiles", &tiles.most, 1)?;
        let align = self.size_or(
            &format!("{key}.align"),
            "the multiple of rows",
            tiles.align.as_ref(),
            1,
            1,
        )?;
        let names = [tiles.table.clone(), tiles.before.clone(), tiles.after.clone()];
        Some(TilesPlan { arrangements, most, align, names })
    }

    /// Taps as numbers of blocks.
    fn taps(
        &mut self,
        key: &str,
        taps: &Count,
        count: TapCount,
        layers: usize,
    ) -> Option<Vec<usize>> {
        let taps = self.values.integers(taps);
        let taps = self.keep(key, taps)?;
        let (first, states) = match count {
            TapCount::States => (0, layers as i64 + 1),
            TapCount::Blocks => (1, layers as i64),
        };
        let mut depths = Vec::new();
        for tap in &taps {
            let index = if *tap < 0 { tap + states } else { *tap };
            match usize::try_from(index) {
                Ok(index) if (index as i64) < states => depths.push(index + first),
                _ => {
                    let problem = Problem::error(
                        "tap-range",
                        format!("there is no state {tap} of a tower of {layers} blocks"),
                    )
                    .expected_found(format!("{} to {}", -states, states - 1), tap.to_string());
                    return self.keep(key, Err(problem));
                }
            }
        }
        Some(depths)
    }

    fn deepstack(
        &mut self,
        key: &str,
        deep: &DeepStack,
        stack: &StackPlan,
        out: usize,
    ) -> Option<DeepStackPlan> {
        let taps =
            self.taps(&format!("{key}.blocks"), &deep.blocks, TapCount::Blocks, stack.layers)?;
        let key = format!("{key}.ops");
        let mut all = Vec::new();
        for index in 0..taps.len() {
            let ops: Vec<ConnectorOp> =
                deep.ops.iter().map(|op| op.numbered(&index.to_string())).collect();
            let (ops, width) = self.connector(&key, &ops, stack.width)?;
            if width != out {
                let problem = Problem::error(
                    "connector-width",
                    "states of earlier blocks are not as wide as the connector's rows",
                )
                .expected_found(format!("{out} elements"), format!("{width}"));
                return self.keep(&key, Err(problem));
            }
            all.push(ops);
        }
        Some(DeepStackPlan { taps, ops: all })
    }

    pub(super) fn encoder(
        &mut self,
        modality: &'static str,
        tower: &Tower,
        features: &Features,
        connector: &Connector,
        hidden: usize,
    ) -> Option<EncoderPlan> {
        let at = |key: &str| format!("{modality}.{key}");
        let stack = self.stack(&tower.stack, None);
        let width = stack.as_ref().map(|stack| stack.width);
        let patch = match &tower.patch {
            Some(patch) => self.patch(&at("tower.patch"), patch).map(Some),
            None => Some(None),
        };
        let frames = self.frame_convs(
            &at("tower.frames"),
            tower.frames.as_deref().unwrap_or_default(),
            width,
        );
        if tower.patch.is_none() && tower.frames.is_none() {
            let problem = Problem::error("key-missing", "the tower has no front")
                .expected_found("`patch` or `frames`", "neither");
            self.keep::<()>(&at("tower"), Err(problem));
        }
        let class = match &tower.class {
            Some(class) => self
                .choice_or(&at("tower.class.at"), class.at.as_ref(), ClassPlace::First)
                .map(|place| {
                    let (parameter, ones) = (class.parameter.clone(), class.ones as usize);
                    Some(ClassPlan { parameter, ones, at: place })
                }),
            None => Some(None),
        };
        let position = match &tower.position {
            Some(table) => self.position(&at("tower.position"), table).map(Some),
            None => Some(None),
        };
        let tiles = match &tower.tiles {
            Some(tiles) => self.tiles(&at("tower.tiles"), tiles).map(Some),
            None => Some(None),
        };
        let enter = self.optional_norm(&at("tower.enter"), tower.enter.as_ref());
        let average = self.size_or(
            &at("tower.average"),
            "the number of averaged rows",
            tower.average.as_ref(),
            1,
            1,
        );
        let leave = self.optional_norm(&at("tower.leave"), tower.leave.as_ref());
        let then = match &tower.then {
            Some(name) => self.stack(name, None).map(Some),
            None => Some(None),
        };
        let drop = self.size_or(
            &at("features.drop"),
            "the number of dropped rows",
            features.drop.as_ref(),
            0,
            0,
        );
        let concat =
            self.choice_or(&at("features.concat"), features.concat.as_ref(), Concat::Channel);
        let last = self.choice_or(&at("features.final"), features.last.as_ref(), FinalState::No);
        let norm = self.flag_or(&at("features.norm"), features.norm.as_ref(), false);
        let count =
            self.choice_or(&at("features.count"), features.count.as_ref(), TapCount::States);
        let splice = self.values.choice(&connector.splice);
        let splice = self.keep(&at("connector.splice"), splice);
        let stack = stack?;
        let taps = self.taps(&at("features.taps"), &features.taps, count?, stack.layers)?;
        let last = last? == FinalState::First;
        if taps.is_empty() && !last {
            let problem = Problem::error("tap-range", "no state of the tower is read")
                .expected_found("at least one tap", "none");
            return self.keep(&at("features.taps"), Err(problem));
        }
        let states = taps.len() + usize::from(last);
        let feature_width =
            self.product(&at("features.taps"), "width of all taps", &[stack.width, states])?;
        let (ops, out) = self.connector(&at("connector.ops"), &connector.ops, feature_width)?;
        if hidden != 0 && out != hidden {
            let problem = Problem::error(
                "connector-width",
                "the connector's rows are not as wide as the decoder's",
            )
            .expected_found(format!("{hidden} elements"), format!("{out}"));
            return self.keep(&at("connector.ops"), Err(problem));
        }
        let deepstack = match &connector.deepstack {
            Some(deep) => Some(self.deepstack(&at("connector.deepstack"), deep, &stack, out)?),
            None => None,
        };
        let mut vectors = Vec::new();
        for (name, vector) in &connector.vectors {
            let key = at(&format!("connector.vectors.{name}.when"));
            if self.flag_or(&key, vector.when.as_ref(), true)? {
                vectors.push((name.clone(), vector.parameter.clone()));
            }
        }
        Some(EncoderPlan {
            modality,
            patch: patch?,
            frames: frames?,
            class: class?,
            position: position?,
            tiles: tiles?,
            enter,
            stack,
            average: average?,
            leave,
            then: then?,
            taps,
            concat: concat?,
            last,
            norm: norm?,
            drop: drop?,
            ops,
            out,
            vectors,
            deepstack,
            splice: splice?,
        })
    }
}
