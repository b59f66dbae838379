//! An encoder and its connector.

use super::{NormPlan, Resolver, StackPlan};
use crate::backend::{Activation, NormKind};
use crate::descriptor::image::Image;
use crate::descriptor::tower::{ConnectorOp, Splice};
use crate::problem::Problem;

/// A patch embedding.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchPlan {
    /// Pixels per side.
    pub size: usize,
    /// Depth of the kernel; `None` if it has no such axis.
    pub frames: Option<usize>,
    /// Patches per side of the blocks that they are emitted in; 1 for raster order.
    pub block: usize,
    /// Whether there is a bias.
    pub bias: bool,
    /// The tensor's name.
    pub name: String,
}

/// An encoder with its connector.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderPlan {
    /// The patch embedding.
    pub patch: PatchPlan,
    /// The class row's tensor.
    pub class: Option<String>,
    /// Rows and name of the position table.
    pub position: Option<(usize, String)>,
    /// The norm before the first block.
    pub enter: Option<NormPlan>,
    /// The stack.
    pub stack: StackPlan,
    /// After how many blocks each tap is taken, in the order of concatenation.
    pub taps: Vec<usize>,
    /// Leading rows dropped.
    pub drop: usize,
    /// The connector's steps.
    pub ops: Vec<OpPlan>,
    /// How its rows enter the decoder.
    pub splice: Splice,
}

impl EncoderPlan {
    /// How many blocks are run: up to the deepest tap.
    pub fn depth(&self) -> usize {
        self.taps.iter().copied().max().unwrap_or(0)
    }

    /// Elements per row that the connector receives.
    pub fn feature_width(&self) -> usize {
        self.stack.width * self.taps.len()
    }
}

/// One step of a connector.
#[derive(Debug, Clone, PartialEq)]
pub enum OpPlan {
    /// A linear map.
    Linear {
        /// Elements per row before.
        input: usize,
        /// Elements per row after.
        out: usize,
        /// Whether there is a bias.
        bias: bool,
        /// The tensor's name.
        name: String,
    },
    /// An elementwise function.
    Activation(Activation),
    /// A norm.
    Norm {
        /// The norm.
        norm: NormPlan,
        /// Elements per row.
        width: usize,
    },
    /// Space to depth.
    Merge {
        /// Patches per side.
        side: usize,
    },
}

impl Resolver<'_> {
    pub(super) fn encoder(&mut self, media: &Image, hidden: usize) -> Option<EncoderPlan> {
        let tower = &media.tower;
        let stack = self.stack(&tower.stack);
        let size = self.size("image.tower.patch.size", "the patch size", &tower.patch.size, 1);
        let frames = match &tower.patch.frames {
            Some(count) => {
                self.size("image.tower.patch.frames", "the number of frames", count, 1).map(Some)
            }
            None => Some(None),
        };
        let block = match &tower.patch.block {
            Some(count) => self.size("image.tower.patch.block", "the patch block", count, 1),
            None => Some(1),
        };
        let bias = self.flag("image.tower.patch.bias", &tower.patch.bias);
        let position = match &tower.position {
            Some(table) => self
                .size("image.tower.position.rows", "the number of positions", &table.rows, 1)
                .map(|rows| Some((rows, table.name.clone()))),
            None => Some(None),
        };
        let enter = match &tower.enter {
            Some(norm) => self.norm("image.tower.enter", norm).map(Some),
            None => Some(None),
        };
        let drop = match &media.features.drop {
            Some(count) => self.size("image.features.drop", "the number of dropped rows", count, 0),
            None => Some(0),
        };
        let splice = self.values.choice(&media.connector.splice);
        let splice = self.keep("image.connector.splice", splice);
        let stack = stack?;
        let taps = self.values.integers(&media.features.taps);
        let taps = self.keep("image.features.taps", taps)?;
        let mut depths = Vec::new();
        for tap in &taps {
            let states = stack.layers as i64 + 1;
            let index = if *tap < 0 { tap + states } else { *tap };
            if taps.is_empty() || index < 0 || index >= states {
                let problem = Problem::error(
                    "tap-range",
                    format!("there is no state {tap} of a tower of {} blocks", stack.layers),
                )
                .expected_found(format!("{} to {}", -states, states - 1), tap.to_string());
                return self.keep("image.features.taps", Err(problem));
            }
            depths.push(usize::try_from(index).unwrap_or(0));
        }
        let feature_width = stack.width * depths.len();
        let (ops, width) = self.connector(&media.connector.ops, feature_width)?;
        if hidden != 0 && width != hidden {
            let problem = Problem::error(
                "connector-width",
                "the connector's rows are not as wide as the decoder's",
            )
            .expected_found(format!("{hidden} elements"), format!("{width}"));
            return self.keep("image.connector.ops", Err(problem));
        }
        let patch = PatchPlan {
            size: size?,
            frames: frames?,
            block: block?,
            bias: bias?,
            name: tower.patch.name.clone(),
        };
        Some(EncoderPlan {
            patch,
            class: tower.class.as_ref().map(|class| class.parameter.clone()),
            position: position?,
            enter: enter?,
            stack,
            taps: depths,
            drop: drop?,
            ops,
            splice: splice?,
        })
    }

    pub(super) fn connector(
        &mut self,
        ops: &[ConnectorOp],
        mut width: usize,
    ) -> Option<(Vec<OpPlan>, usize)> {
        let mut planned = Vec::new();
        for (index, op) in ops.iter().enumerate() {
            let key = format!("image.connector.ops.{index}");
            planned.push(match op {
                ConnectorOp::Linear { out, bias, name } => {
                    let out = self.size(&format!("{key}.out"), "the output width", out, 1)?;
                    let bias = self.flag(&format!("{key}.bias"), bias)?;
                    let input = std::mem::replace(&mut width, out);
                    OpPlan::Linear { input, out, bias, name: name.clone() }
                }
                ConnectorOp::Activation { kind } => {
                    let kind = self.values.choice(kind);
                    OpPlan::Activation(self.keep(&format!("{key}.kind"), kind)?)
                }
                ConnectorOp::Norm { kind, eps, name } => {
                    let kind = self.values.choice(kind);
                    let kind = self.keep(&format!("{key}.kind"), kind)?;
                    let eps = self.values.number(eps);
                    let eps = self.keep(&format!("{key}.eps"), eps)? as f32;
                    let bias = kind == NormKind::Layer;
                    OpPlan::Norm { norm: NormPlan { kind, eps, bias, name: name.clone() }, width }
                }
                ConnectorOp::Merge { side } => {
                    let side = self.size(&format!("{key}.side"), "the merged side", side, 1)?;
                    let wider = side.checked_mul(side).and_then(|cells| cells.checked_mul(width));
                    width = match wider {
                        Some(wider) => wider,
                        None => {
                            let problem =
                                Problem::error("value-bound", "the merged width overflows");
                            return self.keep(&key, Err(problem));
                        }
                    };
                    OpPlan::Merge { side }
                }
            });
        }
        Some((planned, width))
    }
}
