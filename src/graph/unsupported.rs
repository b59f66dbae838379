//! What of a plan the forward pass does not know yet.

use crate::descriptor::block::{KeySource, Ladder, MaskRule, Placement, Stored, ValueSource};
use crate::descriptor::tower::{ClassPlace, Concat, MergeOrder, PatchForm, Splice, TableResize};
use crate::plan::graph::{
    AttentionPlan, DecoderPlan, EncoderPlan, GraphPlan, OpPlan, RopePlan, ScalingPlan, StackPlan,
};

/// The members of the vocabulary that `plan` needs and the forward pass does not run, in words; empty where it runs.
///
/// One line of this file per member: who teaches the graph a member takes its line out.
pub fn unsupported(plan: &GraphPlan) -> Vec<String> {
    let mut list = List { words: Vec::new() };
    for module in &plan.inventory {
        list.add(true, &module.what);
    }
    if let Some(encoder) = &plan.image {
        list.encoder(encoder);
    }
    list.add(plan.audio.is_some(), "an audio encoder");
    list.decoder(&plan.decoder);
    list.words
}

struct List {
    words: Vec<String>,
}

impl List {
    fn add(&mut self, needed: bool, word: &str) {
        if needed && !self.words.iter().any(|known| known == word) {
            self.words.push(word.to_owned());
        }
    }

    fn encoder(&mut self, plan: &EncoderPlan) {
        self.add(plan.patch.is_none() || !plan.frames.is_empty(), "convolutions over frames");
        if let Some(patch) = &plan.patch {
            self.add(
                patch.form == PatchForm::Linear,
                "patches as linear maps over (row, column, channel)",
            );
            self.add(patch.norm.is_some(), "a norm of patches");
            self.add(patch.spread, "pixels that the tower spreads");
        }
        let last = plan.class.as_ref().is_some_and(|class| class.at == ClassPlace::Last);
        self.add(last, "a class row behind the patches");
        let resize = plan.position.as_ref().is_some_and(|table| table.resize != TableResize::None);
        self.add(resize, "a position table that is resized");
        let axes = plan.position.as_ref().is_some_and(|table| table.axes.is_some());
        self.add(axes, "position tables per axis");
        self.add(plan.tiles.is_some(), "learned rows of tiles");
        self.add(plan.average > 1, "averaged rows behind the blocks");
        self.add(plan.then.is_some() || plan.last, "a second stack behind the first");
        self.add(plan.norm, "the norm behind the last block");
        self.add(plan.concat == Concat::Interleaved, "interleaved taps");
        self.stack(&plan.stack, false);
        self.ops(&plan.ops);
        let deep = plan.deepstack.as_ref().is_some_and(|deep| !deep.taps.is_empty());
        self.add(deep, "states of earlier blocks for the decoder");
        self.add(!plan.vectors.is_empty(), "learned rows in a strip");
        self.add(plan.splice == Splice::Add, "media rows that are added to embeddings");
        self.add(plan.splice == Splice::Cross, "attention over media states");
    }

    fn ops(&mut self, ops: &[OpPlan]) {
        for op in ops {
            match op {
                OpPlan::Linear { order, .. } => {
                    self.add(*order == Stored::InOut, "matrices stored [in, out]");
                }
                OpPlan::Merge { order, .. } => {
                    self.add(*order == MergeOrder::Channel, "merging channel by channel");
                }
                OpPlan::Activation(_) | OpPlan::Norm { .. } => {}
                OpPlan::Pool { .. } => self.add(true, "pooling of patches"),
                OpPlan::Average { .. } => self.add(true, "averaged rows"),
                OpPlan::Conv { .. } => self.add(true, "a convolution in the connector"),
                OpPlan::Glu { .. } => self.add(true, "a gated linear unit in the connector"),
                OpPlan::Scale(_) => self.add(true, "a factor in the connector"),
                OpPlan::Mlp { .. } => self.add(true, "an mlp in the connector"),
                OpPlan::Attend { .. } => self.add(true, "pooling attention"),
                OpPlan::Query { .. } => self.add(true, "a query transformer"),
            }
        }
    }

    fn stack(&mut self, plan: &StackPlan, causal: bool) {
        self.add(plan.kinds.len() > 1, "layers of several kinds");
        for block in &plan.kinds {
            self.add(block.placement != Placement::Pre, "norms behind attention and mlp");
            self.add(block.cross.is_some(), "a second attention in a block");
            self.add((block.residual - 1.0).abs() > f32::EPSILON, "a factor on what blocks add");
            self.add(block.scaled, "learned vectors on what blocks add");
            self.add(block.gated, "learned gates on what blocks add");
            self.add(block.mlp.fused.is_some(), "gate and up projection in one tensor");
            self.add(block.mlp.experts.is_some(), "a mixture of experts");
            self.add(block.scalar, "a learned number on what blocks give");
            self.add(block.clipped, "clamped projections");
            self.add(block.inputs.is_some(), "a second embedding for every block");
            self.add(block.replaced, "something else in place of attention");
            self.attention(&block.attention, causal);
        }
    }

    fn attention(&mut self, plan: &AttentionPlan, causal: bool) {
        self.add(plan.over == KeySource::Media, "attention over media states");
        self.add(plan.qk_norm.is_some(), "norms of queries and keys");
        self.add(plan.v_norm.is_some(), "a norm of values");
        self.add(plan.over == KeySource::Earlier, "keys and values of an earlier layer");
        self.add(plan.values == ValueSource::Keys, "values that are keys");
        self.add(plan.gated, "gates beside the queries");
        self.add(plan.softcap.is_some(), "capped scores");
        match plan.mask {
            MaskRule::PerMedia | MaskRule::Causal => {}
            MaskRule::PerWindow => self.add(true, "windows in the tower"),
            MaskRule::PadPairs => self.add(true, "attention over padded tiles"),
            MaskRule::MediaRuns | MaskRule::MediaAll => {
                self.add(true, "media rows that see each other in the decoder");
            }
            MaskRule::Prefix => self.add(true, "a prompt whose rows see each other"),
            MaskRule::LastMedia => self.add(true, "attention over media states"),
        }
        self.add(!causal && plan.mask == MaskRule::Causal, "causal attention in an encoder");
        if let Some(rope) = &plan.rope {
            self.rope(rope);
        }
    }

    fn rope(&mut self, plan: &RopePlan) {
        let scaling = match plan.scaling {
            ScalingPlan::None | ScalingPlan::Linear { .. } => None,
            ScalingPlan::Wavelength { .. } => Some("rotary scaling by wavelength"),
            ScalingPlan::Yarn { .. } => Some("rotary scaling yarn"),
            ScalingPlan::Longrope { .. } => Some("rotary scaling longrope"),
            ScalingPlan::Dynamic { .. } => Some("dynamic rotary scaling"),
            ScalingPlan::Proportional { .. } => Some("proportional rotary scaling"),
        };
        self.add(scaling.is_some(), scaling.unwrap_or_default());
        self.add(plan.ladder == Ladder::Strided, "a strided rotary ladder");
        self.add(plan.interleaved, "interleaved rotary sections");
        self.add(plan.apart, "rotary axes with elements of their own");
    }

    fn decoder(&mut self, plan: &DecoderPlan) {
        self.add(plan.embed_more.is_some(), "embeddings in two tables");
        self.add(plan.parts.is_some(), "a second embedding for every block");
        self.add(plan.project.is_some(), "embeddings narrower than the decoder");
        self.add(plan.scale_media, "a factor on media rows");
        self.add(plan.position.is_some(), "learned positions in the decoder");
        self.add((plan.logit_scale - 1.0).abs() > f32::EPSILON, "a factor on logits");
        self.add(plan.softcap.is_some(), "capped logits");
        self.stack(&plan.stack, true);
    }
}
