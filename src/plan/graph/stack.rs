//! Stacks: one plan per kind of layer, and which layer is of which kind.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::{AttentionPlan, MlpPlan, NormPlan, Resolver};
use crate::backend::Activation;
use crate::descriptor::block::{
    Attention, KeySource, LayerKind, Layers, NormWeight, Placement, Stack,
};
use crate::descriptor::expression::Bound;
use crate::descriptor::slot::Count;
use crate::problem::Problem;

/// More layers than any model has; every layer's tensors are listed by name.
const MOST_LAYERS: usize = 4096;

/// A block.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "a block has each of these or not")]
pub struct BlockPlan {
    /// The kind's name; empty for layers of no kind.
    pub kind: String,
    /// Where the norms stand.
    pub placement: Placement,
    /// All norms; the name is unused.
    pub norm: NormPlan,
    /// The attention.
    pub attention: AttentionPlan,
    /// A second attention.
    pub cross: Option<AttentionPlan>,
    /// The feed-forward half.
    pub mlp: MlpPlan,
    /// Factor on what attention and mlp add.
    pub residual: f32,
    /// Whether what they add is multiplied by vectors.
    pub scaled: bool,
    /// Whether what they add is multiplied by the tanh of learned numbers.
    pub gated: bool,
    /// Whether what comes out is multiplied by a learned number.
    pub scalar: bool,
    /// Whether what goes into and comes out of projections is clamped.
    pub clipped: bool,
    /// The part of a second embedding that it takes in.
    pub inputs: Option<LayerInputsPlan>,
    /// Whether an inventory lists what stands in place of the attention.
    pub replaced: bool,
    /// Tensor names by slot, without the block's prefix.
    pub names: IndexMap<String, String>,
}

/// The part of a second embedding that a block takes in.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerInputsPlan {
    /// Its elements.
    pub width: usize,
    /// The activation.
    pub act: Activation,
}

impl BlockPlan {
    /// The name of a slot's tensor in block `index`.
    pub fn name(&self, index: usize, slot: &str) -> Option<String> {
        let block = self.names.get("block")?.replace("{i}", &index.to_string());
        Some(format!("{block}.{}", self.names.get(slot)?))
    }

    /// The slots that must have names.
    fn slots(&self) -> Vec<&'static str> {
        let mut slots = vec!["block"];
        let norms = self.norm.weight != NormWeight::None;
        slots.extend(if norms { self.placement.slots() } else { &[] });
        if !self.replaced {
            slots.extend(self.attention.slots());
        }
        if self.cross.is_some() {
            slots.extend(["cross_norm1", "cross_q", "cross_k", "cross_v", "cross_o"]);
        }
        slots.extend(self.mlp.slots());
        if self.scaled {
            slots.extend(["scale1", "scale2"]);
        }
        if self.gated {
            slots.extend(["gate1", "gate2"]);
        }
        slots.extend(self.scalar.then_some("scalar"));
        if self.inputs.is_some() {
            slots.extend(["input_gate", "input_out"]);
            slots.extend(norms.then_some("input_norm"));
        }
        slots
    }
}

/// A stack of blocks.
#[derive(Debug, Clone, PartialEq)]
pub struct StackPlan {
    /// Blocks.
    pub layers: usize,
    /// Elements per row.
    pub width: usize,
    /// What blocks of each kind do.
    pub kinds: Vec<BlockPlan>,
    /// The kind of every layer, as an index of `kinds`.
    pub kind_of: Vec<usize>,
    /// The key path of the stack in the family file.
    pub key: String,
}

impl StackPlan {
    /// What block `index` does; beyond the last layer, what the last kind does.
    ///
    /// # Panics
    /// Never: a stack has at least one kind.
    pub fn block(&self, index: usize) -> &BlockPlan {
        let kind = self.kind_of.get(index).copied().unwrap_or(0);
        &self.kinds[kind.min(self.kinds.len() - 1)] // a stack is resolved with at least one kind
    }

    /// The key of `slot`'s name in the family file, where block `index` finds it.
    pub fn name_key(&self, index: usize, slot: &str) -> String {
        let kind = &self.block(index).kind;
        if kind.is_empty() {
            format!("{}.names.{slot}", self.key)
        } else {
            format!("{}.kinds.{kind}.names.{slot}", self.key)
        }
    }

    /// Whether some layer attends to media states.
    pub fn reads_media(&self) -> bool {
        let over = |attention: &AttentionPlan| attention.over == KeySource::Media;
        self.kinds.iter().any(|kind| over(&kind.attention) || kind.cross.as_ref().is_some_and(over))
    }
}

impl Resolver<'_> {
    /// Which of `count` layers `layers` means.
    pub(super) fn layers(&mut self, key: &str, layers: &Layers, count: usize) -> Option<Vec<bool>> {
        let indices = |list: &[i64]| -> Result<Vec<bool>, Problem> {
            let mut chosen = vec![false; count];
            for index in list {
                // an index beyond the last layer means none of them, as a membership test does
                if let Some(slot) = usize::try_from(*index).ok().and_then(|at| chosen.get_mut(at)) {
                    *slot = true;
                }
            }
            Ok(chosen)
        };
        let result = match layers {
            Layers::Indices(list) => indices(list),
            Layers::Condition(text) => match self.values.get(text) {
                Ok(value) if value.value.is_array() => self
                    .values
                    .integers(&Count::Expression(text.clone()))
                    .and_then(|list| indices(&list)),
                Ok(_) | Err(_) => self.condition_per_layer(text, count),
            },
            Layers::List(by) => {
                self.values.integers(&Count::Expression(by.list.clone())).and_then(|list| {
                    let listed = match (&by.otherwise, list.len()) {
                        (Some(text), 0) => self.condition_per_layer(text, count),
                        (None, 0) => Ok(vec![false; count]),
                        (_, length) if length == count => {
                            Ok(list.iter().map(|item| *item == by.is).collect())
                        }
                        (_, length) => Err(Problem::error(
                            "layer-list",
                            format!("`{}` does not have one item per layer", by.list),
                        )
                        .expected_found(format!("{count} items"), format!("{length}"))),
                    };
                    match &by.when {
                        None => listed,
                        Some(text) => {
                            let further = self.condition_per_layer(text, count)?;
                            Ok(listed?.into_iter().zip(further).map(|(a, b)| a && b).collect())
                        }
                    }
                })
            }
        };
        self.keep(key, result)
    }

    fn condition_per_layer(&self, text: &str, count: usize) -> Result<Vec<bool>, Problem> {
        (0..count as i64)
            .map(|index| {
                let local = BTreeMap::from([("i".to_owned(), Bound::Integer(index))]);
                self.values.condition(text, &local)
            })
            .collect()
    }

    /// `media` is how wide the states are that attention over media reads, if there are any.
    pub(super) fn stack(&mut self, name: &str, media: Option<usize>) -> Option<StackPlan> {
        let stack: &Stack = self.family.stacks.get(name)?;
        let key = format!("stacks.{name}");
        let layers = self.size(&format!("{key}.layers"), "the number of layers", &stack.layers, 1);
        if let Some(layers) = layers
            && layers > MOST_LAYERS
        {
            let problem =
                Problem::error("value-bound", format!("the number of layers is {layers}"))
                    .expected_found(format!("at most {MOST_LAYERS}"), layers.to_string());
            return self.keep(&format!("{key}.layers"), Err(problem));
        }
        let width = self.size(&format!("{key}.width"), "the width", &stack.width, 1);
        let (layers, width) = (layers?, width?);
        let base = LayerKind {
            at: Layers::Indices(Vec::new()),
            attention: None,
            cross: None,
            mlp: None,
            gated: None,
            replaced: None,
            names: IndexMap::new(),
        };
        let mut kind_of: Vec<Option<usize>> = vec![None; layers];
        let mut members = Vec::new();
        for (index, (kind, change)) in stack.kinds.iter().enumerate() {
            let chosen = self.layers(&format!("{key}.kinds.{kind}.at"), &change.at, layers)?;
            for (slot, chosen) in kind_of.iter_mut().zip(chosen) {
                if chosen && slot.is_none() {
                    *slot = Some(index);
                }
            }
            members.push((kind.as_str(), change));
        }
        let mut kinds = Vec::new();
        let mut places = Vec::new();
        for (index, (kind, change)) in members.into_iter().enumerate() {
            // a kind without layers may lack what it reads
            if !kind_of.contains(&Some(index)) {
                places.push(0);
                continue;
            }
            places.push(kinds.len());
            kinds.push(self.block(&key, stack, kind, change, width, media)?);
        }
        let plain = kinds.len();
        if kind_of.contains(&None) {
            kinds.push(self.block(&key, stack, "", &base, width, media)?);
        }
        let kind_of = kind_of
            .into_iter()
            .map(|kind| kind.and_then(|kind| places.get(kind).copied()).unwrap_or(plain))
            .collect();
        let stack = StackPlan { layers, width, kinds, kind_of, key };
        self.earlier_keys(&stack)?;
        Some(stack)
    }

    /// Layers that take keys of an earlier layer have one.
    fn earlier_keys(&mut self, stack: &StackPlan) -> Option<()> {
        let seen = |block: &BlockPlan| {
            let AttentionPlan { mask, window, kv_heads, head_dim, .. } = block.attention;
            (mask, window, kv_heads, head_dim)
        };
        let attends = |index: &usize| !stack.block(*index).replaced;
        for index in (0..stack.layers).filter(attends) {
            let block = stack.block(index);
            let makes = |earlier: usize| {
                let earlier = stack.block(earlier);
                earlier.attention.over == KeySource::Rows && seen(earlier) == seen(block)
            };
            if block.attention.over == KeySource::Earlier && !(0..index).filter(attends).any(makes)
            {
                let problem = Problem::error(
                    "earlier-keys",
                    format!("no layer before layer {index} makes keys for it"),
                )
                .expected_found("one with the same mask, window and heads", "none");
                return self.keep(&format!("{}.kinds.{}", stack.key, block.kind), Err(problem));
            }
        }
        Some(())
    }

    fn block(
        &mut self,
        key: &str,
        stack: &Stack,
        kind: &str,
        change: &LayerKind,
        width: usize,
        media: Option<usize>,
    ) -> Option<BlockPlan> {
        let kind_key = if kind.is_empty() { key.to_owned() } else { format!("{key}.kinds.{kind}") };
        let placement = self.values.choice(&stack.placement);
        let placement = self.keep(&format!("{key}.placement"), placement);
        let norm = self.norm(&format!("{key}.norm"), &stack.norm);
        let changed: Attention = match &change.attention {
            Some(change) => stack.attention.changed(change),
            None => stack.attention.clone(),
        };
        let changes = format!("{kind_key}.attention");
        let attention =
            self.attention(&format!("{key}.attention"), Some(&changes), &changed, width, media);
        let cross = match change.cross.as_ref().or(stack.cross.as_ref()) {
            Some(cross) => {
                let at = if change.cross.is_some() { &kind_key } else { key };
                Some(self.attention(&format!("{at}.cross"), None, cross, width, media)?)
            }
            None => None,
        };
        let mlp = match &change.mlp {
            Some(mlp) => self.mlp(&format!("{kind_key}.mlp"), mlp),
            None => self.mlp(&format!("{key}.mlp"), &stack.mlp),
        };
        let residual = self.optional_number(&format!("{key}.residual"), stack.residual.as_ref());
        let scaled = self.flag_or(&format!("{key}.scaled"), stack.scaled.as_ref(), false)?;
        let gated_key = if change.gated.is_some() { &kind_key } else { key };
        let gated = change.gated.as_ref().or(stack.gated.as_ref());
        let gated = self.flag_or(&format!("{gated_key}.gated"), gated, false)?;
        let scalar = self.flag_or(&format!("{key}.scalar"), stack.scalar.as_ref(), false)?;
        let clipped = self.flag_or(&format!("{key}.clipped"), stack.clipped.as_ref(), false)?;
        let replaced =
            self.flag_or(&format!("{kind_key}.replaced"), change.replaced.as_ref(), false)?;
        let inputs = match &stack.inputs {
            Some(inputs) => {
                let key = format!("{key}.inputs");
                let what = "the width of a block's part";
                let width = self.size(&format!("{key}.width"), what, &inputs.width, 0)?;
                let act = self.values.choice(&inputs.act);
                let act = self.keep(&format!("{key}.act"), act)?;
                (width > 0).then_some(LayerInputsPlan { width, act })
            }
            None => None,
        };
        let mut names = stack.names.clone();
        names.extend(change.names.clone());
        let block = BlockPlan {
            kind: kind.to_owned(),
            placement: placement?,
            norm: norm?,
            attention: attention?,
            cross,
            mlp: mlp?,
            residual: residual.unwrap_or(1.0),
            scaled,
            gated,
            scalar,
            clipped,
            inputs,
            replaced,
            names,
        };
        for slot in block.slots() {
            if !block.names.contains_key(slot) {
                let problem =
                    Problem::error("key-missing", format!("tensor slot `{slot}` has no name"))
                        .expected_found(format!("`{slot}`"), "nothing");
                self.keep::<()>(&format!("{kind_key}.names.{slot}"), Err(problem));
            }
        }
        Some(block)
    }
}
