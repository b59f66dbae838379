//! What of a plan the forward pass does not know yet.

use crate::descriptor::block::{KeySource, ValueSource};
use crate::descriptor::tower::TableResize;
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
    if let Some(encoder) = &plan.audio {
        list.encoder(encoder);
    }
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
        let table = plan.position.as_ref();
        let antialias = table.is_some_and(|table| table.resize == TableResize::Antialias);
        self.add(antialias, "an antialiased position table");
        self.add(table.is_some_and(|table| table.axes.is_some()), "position tables per axis");
        self.stack(&plan.stack);
        if let Some(then) = &plan.then {
            self.stack(then);
        }
        let deep = plan.deepstack.iter().flat_map(|deep| deep.ops.iter().flatten());
        for op in plan.ops.iter().chain(deep) {
            if let OpPlan::Query { stack, .. } = op {
                self.stack(stack);
            }
        }
    }

    fn stack(&mut self, plan: &StackPlan) {
        for block in &plan.kinds {
            self.add(block.scalar, "a learned number on what blocks give");
            self.add(block.clipped, "clamped projections");
            self.add(block.inputs.is_some(), "a second embedding for every block");
            self.add(block.replaced, "something else in place of attention");
            self.attention(&block.attention);
        }
    }

    fn attention(&mut self, plan: &AttentionPlan) {
        self.add(plan.v_norm.is_some(), "a norm of values");
        self.add(plan.over == KeySource::Earlier, "keys and values of an earlier layer");
        self.add(plan.values == ValueSource::Keys, "values that are keys");
        self.add(plan.gated, "gates beside the queries");
        if let Some(rope) = &plan.rope {
            self.rope(rope);
        }
    }

    fn rope(&mut self, plan: &RopePlan) {
        let proportional = matches!(plan.scaling, ScalingPlan::Proportional { .. });
        self.add(proportional, "proportional rotary scaling");
        self.add(plan.apart, "rotary axes with elements of their own");
    }

    fn decoder(&mut self, plan: &DecoderPlan) {
        self.add(plan.parts.is_some(), "a second embedding for every block");
        self.stack(&plan.stack);
    }
}
