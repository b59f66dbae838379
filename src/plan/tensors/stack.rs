//! The tensors of a stack.

use super::{Component, List};
use crate::descriptor::block::MlpKind;
use crate::plan::graph::StackPlan;

impl List {
    pub(super) fn stack(&mut self, component: Component, stack: &StackPlan, needed: usize) {
        let attention = &stack.attention;
        let (query, keys) =
            (attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim);
        let (width, hidden) = (stack.width, stack.mlp.hidden);
        let [q, k, v, o] = attention.bias;
        let mut linears = if attention.fused {
            vec![("qkv", [query + 2 * keys, width], q || k || v)]
        } else {
            vec![("q", [query, width], q), ("k", [keys, width], k), ("v", [keys, width], v)]
        };
        linears.push(("o", [width, query], o));
        if stack.mlp.kind == MlpKind::Gated {
            linears.push(("gate", [hidden, width], stack.mlp.bias));
        }
        linears.push(("up", [hidden, width], stack.mlp.bias));
        linears.push(("down", [width, hidden], stack.mlp.bias));
        for index in 0..stack.layers {
            let required = index < needed;
            for slot in ["norm1", "norm2"] {
                let key = format!("{}.names.{slot}", stack.key);
                if let Some(name) = stack.name(index, slot) {
                    self.norm_named(component, &name, &stack.norm, width, required, &key);
                }
            }
            for (slot, shape, bias) in &linears {
                let key = format!("{}.names.{slot}", stack.key);
                if let Some(name) = stack.name(index, slot) {
                    self.linear(component, &name, *shape, *bias, required, &key);
                }
            }
        }
    }
}
