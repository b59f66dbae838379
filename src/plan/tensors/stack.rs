//! The tensors of a stack.

use super::List;
use crate::backend::NormKind;
use crate::descriptor::block::{KeySource, MlpKind, NormReach, NormWeight, Stored, ValueSource};
use crate::plan::graph::{AttentionPlan, BlockPlan, HeadNormPlan, MlpPlan, StackPlan};

/// Slot, what is appended to its name, and the shape.
type Slot = (&'static str, &'static str, Vec<usize>);

fn linear(slots: &mut Vec<Slot>, slot: &'static str, out: usize, input: usize, bias: bool) {
    slots.push((slot, ".weight", vec![out, input]));
    if bias {
        slots.push((slot, ".bias", vec![out]));
    }
}

fn attention(slots: &mut Vec<Slot>, plan: &AttentionPlan, width: usize, names: [&'static str; 4]) {
    let (query, keys) = (plan.heads * plan.head_dim, plan.kv_heads * plan.head_dim);
    let [q, k, v, o] = plan.bias;
    let gates = if plan.gated { query } else { 0 };
    if plan.fused {
        linear(slots, "qkv", query + gates + 2 * keys, width, q || k || v);
    } else {
        linear(slots, names[0], query + gates, width, q);
        if plan.over != KeySource::Earlier {
            linear(slots, names[1], keys, plan.key_width, k);
            if plan.values == ValueSource::Own {
                linear(slots, names[2], keys, plan.key_width, v);
            }
        }
    }
    linear(slots, names[3], width, query, o);
}

fn head_norm(
    slots: &mut Vec<Slot>,
    slot: &'static str,
    norm: &HeadNormPlan,
    head: usize,
    all: usize,
) {
    let width = match norm.over {
        NormReach::Head => head,
        NormReach::Full => all,
    };
    if norm.norm.weight != NormWeight::None {
        slots.push((slot, ".weight", vec![width]));
        if norm.norm.kind == NormKind::Layer && norm.norm.bias {
            slots.push((slot, ".bias", vec![width]));
        }
    }
}

fn mlp(slots: &mut Vec<Slot>, plan: &MlpPlan, width: usize) {
    let hidden = plan.hidden;
    let Some(experts) = &plan.experts else {
        match (plan.kind, plan.fused) {
            (MlpKind::Gated, Some(_)) => linear(slots, "gate_up", 2 * hidden, width, plan.bias),
            (MlpKind::Gated, None) => {
                linear(slots, "gate", hidden, width, plan.bias);
                linear(slots, "up", hidden, width, plan.bias);
            }
            (MlpKind::Plain, _) => linear(slots, "up", hidden, width, plan.bias),
        }
        linear(slots, "down", width, hidden, plan.bias);
        return;
    };
    linear(slots, "router", experts.count, width, false);
    let mut maps = vec![("down", width, hidden)];
    match (plan.kind, plan.fused) {
        (MlpKind::Gated, Some(_)) => maps.push(("gate_up", 2 * hidden, width)),
        (MlpKind::Gated, None) => maps.extend([("gate", hidden, width), ("up", hidden, width)]),
        (MlpKind::Plain, _) => maps.push(("up", hidden, width)),
    }
    for (slot, out, input) in maps {
        match (experts.stacked, experts.order) {
            (true, Stored::OutIn) => slots.push((slot, "", vec![experts.count, out, input])),
            (true, Stored::InOut) => slots.push((slot, "", vec![experts.count, input, out])),
            (false, _) => linear(slots, slot, out, input, plan.bias),
        }
    }
    if let Some((hidden, gated)) = experts.shared {
        linear(slots, "shared_gate", hidden, width, plan.bias);
        linear(slots, "shared_up", hidden, width, plan.bias);
        linear(slots, "shared_down", width, hidden, plan.bias);
        if gated {
            linear(slots, "shared_router", 1, width, false);
        }
    }
}

fn head_norms(slots: &mut Vec<Slot>, plan: &AttentionPlan) {
    let (query, keys) = (plan.heads * plan.head_dim, plan.kv_heads * plan.head_dim);
    let own = plan.over != KeySource::Earlier;
    if let Some(norm) = &plan.qk_norm {
        head_norm(slots, "q_norm", norm, plan.head_dim, query);
        if own {
            head_norm(slots, "k_norm", norm, plan.head_dim, keys);
        }
    }
    if let Some(norm) = plan.v_norm.as_ref().filter(|_| own) {
        head_norm(slots, "v_norm", norm, plan.head_dim, keys);
    }
}

/// The slots whose projections have bounds where a stack is clipped.
const CLIPPED: [&str; 9] = ["q", "k", "v", "qkv", "o", "gate", "up", "gate_up", "down"];

/// Every slot of a block with its shape.
fn slots(block: &BlockPlan, width: usize) -> Vec<Slot> {
    let mut slots = Vec::new();
    let plan = &block.attention;
    let mut norms = block.placement.slots().to_vec();
    norms.extend(block.cross.is_some().then_some("cross_norm1"));
    for slot in norms {
        if block.norm.weight != NormWeight::None {
            slots.push((slot, ".weight", vec![width]));
        }
        if block.norm.bias {
            slots.push((slot, ".bias", vec![width]));
        }
    }
    if !block.replaced {
        attention(&mut slots, plan, width, ["q", "k", "v", "o"]);
        head_norms(&mut slots, plan);
    }
    if let Some(cross) = &block.cross {
        attention(&mut slots, cross, width, ["cross_q", "cross_k", "cross_v", "cross_o"]);
    }
    mlp(&mut slots, &block.mlp, width);
    if block.scaled {
        slots.extend([("scale1", "", vec![width]), ("scale2", "", vec![width])]);
    }
    if block.gated {
        slots.extend([("gate1", "", vec![1]), ("gate2", "", vec![1])]);
    }
    slots.extend(block.scalar.then(|| ("scalar", "", vec![1])));
    if let Some(inputs) = &block.inputs {
        linear(&mut slots, "input_gate", inputs.width, width, false);
        linear(&mut slots, "input_out", width, inputs.width, false);
        if block.norm.weight != NormWeight::None {
            slots.push(("input_norm", ".weight", vec![width]));
        }
        if block.norm.bias {
            slots.push(("input_norm", ".bias", vec![width]));
        }
    }
    slots
}

impl List {
    /// The tensors of a stack, of which the first `needed` blocks are run.
    pub(super) fn stack(&mut self, stack: &StackPlan, needed: usize) {
        let required = self.required;
        let kinds: Vec<_> = stack.kinds.iter().map(|kind| slots(kind, stack.width)).collect();
        for index in 0..stack.layers {
            self.required = required && index < needed;
            let block = stack.block(index);
            let Some(slots) = stack.kind_of.get(index).and_then(|kind| kinds.get(*kind)) else {
                continue;
            };
            for (slot, suffix, shape) in slots {
                let key = stack.name_key(index, slot);
                let Some(name) = block.name(index, slot) else { continue };
                if block.clipped && *suffix == ".weight" && CLIPPED.contains(slot) {
                    let owner = name.rsplit_once('.').map_or(name.as_str(), |(owner, _)| owner);
                    for bound in ["input_min", "input_max", "output_min", "output_max"] {
                        self.add(format!("{owner}.{bound}"), Vec::new(), &key);
                    }
                }
                let experts = block.mlp.experts.as_ref();
                match experts.filter(|_| name.contains("{e}")) {
                    Some(experts) => {
                        for expert in 0..experts.count {
                            let name = name.replace("{e}", &expert.to_string());
                            self.add(format!("{name}{suffix}"), shape.clone(), &key);
                        }
                    }
                    None => self.add(format!("{name}{suffix}"), shape.clone(), &key),
                }
            }
        }
        self.required = required;
    }
}
