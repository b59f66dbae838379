//! The tensors of a connector.

use super::List;
use crate::descriptor::block::{MlpKind, Stored};
use crate::plan::graph::{AttentionPlan, OpPlan};

impl List {
    pub(super) fn ops(&mut self, ops: &[OpPlan], key: &str) {
        for (index, op) in ops.iter().enumerate() {
            let key = format!("{key}.{index}");
            let named = format!("{key}.name");
            match op {
                OpPlan::Linear { input, out, bias, weight, order } => {
                    let shape = match order {
                        Stored::OutIn => vec![*out, *input],
                        Stored::InOut => vec![*input, *out],
                    };
                    self.add(weight.clone(), shape, &named);
                    if let Some(bias) = bias {
                        self.add(bias.clone(), vec![*out], &named);
                    }
                }
                OpPlan::Norm { norm, width } => self.norm(norm, *width, &named),
                OpPlan::Conv { side, input, out, bias, name } => {
                    self.add(format!("{name}.weight"), vec![*out, *input, *side, *side], &named);
                    if *bias {
                        self.add(format!("{name}.bias"), vec![*out], &named);
                    }
                }
                OpPlan::Mlp { mlp, input, out, names } => {
                    let key = format!("{key}.names");
                    let (hidden, bias) = (mlp.hidden, mlp.bias);
                    match (mlp.kind, mlp.fused) {
                        (MlpKind::Gated, Some(_)) => {
                            self.linear(&names.up, [2 * hidden, *input], bias, &key);
                        }
                        (MlpKind::Gated, None) => {
                            for name in names.gate.iter().chain([&names.up]) {
                                self.linear(name, [hidden, *input], bias, &key);
                            }
                        }
                        (MlpKind::Plain, _) => {
                            self.linear(&names.up, [hidden, *input], bias, &key);
                        }
                    }
                    self.linear(&names.down, [*out, hidden], bias, &key);
                }
                OpPlan::Attend { attention, out, names, .. } => {
                    self.attend(attention, *out, names, &format!("{key}.names"));
                }
                OpPlan::Query { count, parameter, ones, enter, stack } => {
                    let mut shape = vec![1; *ones];
                    shape.extend([*count, stack.width]);
                    self.add(parameter.clone(), shape, &format!("{key}.parameter"));
                    if let Some(norm) = enter {
                        self.norm(norm, stack.width, &format!("{key}.enter.name"));
                    }
                    self.stack(stack, stack.layers);
                }
                OpPlan::Activation(_)
                | OpPlan::Merge { .. }
                | OpPlan::Pool { .. }
                | OpPlan::Average { .. }
                | OpPlan::Glu { .. }
                | OpPlan::Scale(_) => {}
            }
        }
    }

    fn attend(&mut self, plan: &AttentionPlan, out: usize, names: &[String; 4], key: &str) {
        let (query, keys) = (plan.heads * plan.head_dim, plan.kv_heads * plan.head_dim);
        let shapes =
            [[query, plan.key_width], [keys, plan.key_width], [keys, plan.key_width], [out, query]];
        for ((name, shape), bias) in names.iter().zip(shapes).zip(plan.bias) {
            self.linear(name, shape, bias, key);
        }
    }
}
