//! The tensors that a plan reads: names below a root, shapes, and the descriptor key that asks for each.

use super::graph::{EncoderPlan, GraphPlan, NormPlan, OpPlan, StackPlan};
use crate::descriptor::block::MlpKind;
use crate::descriptor::family::Root;

/// Which prefix of a [`Root`] a tensor's name stands below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Component {
    /// The image tower.
    Tower,
    /// The image connector.
    Connector,
    /// The decoder.
    Decoder,
    /// The output projection; the root's name is the whole name.
    Head,
}

impl Component {
    /// The word that patterns of `[tensors] ignore` begin with.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("tower", Self::Tower),
        ("connector", Self::Connector),
        ("decoder", Self::Decoder),
        ("head", Self::Head),
    ];

    /// The full name of `name` below this component.
    pub fn full_name(self, root: &Root, name: &str) -> String {
        let prefix = match self {
            Self::Tower => root.tower.as_deref().unwrap_or(""),
            Self::Connector => root.connector.as_deref().unwrap_or(""),
            Self::Decoder => &root.decoder,
            Self::Head => &root.head,
        };
        if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
    }
}

/// One tensor that a plan knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// Where its name stands.
    pub component: Component,
    /// The name below the component's prefix.
    pub name: String,
    /// The shape stored in the checkpoint.
    pub shape: Vec<usize>,
    /// Whether a run needs it: blocks above the deepest tap and a tied head are not needed.
    pub required: bool,
    /// The key in the family file that asks for it.
    pub key: String,
}

/// Every tensor of the computation.
pub fn tensors(plan: &GraphPlan) -> Vec<TensorSpec> {
    let mut list = List { specs: Vec::new() };
    if let Some(encoder) = &plan.image {
        list.encoder(encoder);
    }
    let decoder = &plan.decoder;
    let width = decoder.stack.width;
    let component = Component::Decoder;
    list.add(
        component,
        format!("{}.weight", decoder.embed_name),
        vec![decoder.embed_rows, width],
        true,
        "decoder.embed.name",
    );
    list.stack(component, &decoder.stack, decoder.stack.layers);
    list.norm(component, &decoder.leave, width, "decoder.leave.name");
    list.add(
        Component::Head,
        "weight".to_owned(),
        vec![decoder.head_rows, width],
        !decoder.tied,
        "tensors.roots",
    );
    list.specs
}

struct List {
    specs: Vec<TensorSpec>,
}

impl List {
    fn add(
        &mut self,
        component: Component,
        name: String,
        shape: Vec<usize>,
        required: bool,
        key: &str,
    ) {
        self.specs.push(TensorSpec { component, name, shape, required, key: key.to_owned() });
    }

    fn linear(
        &mut self,
        component: Component,
        name: &str,
        shape: [usize; 2],
        bias: bool,
        required: bool,
        key: &str,
    ) {
        self.add(component, format!("{name}.weight"), shape.to_vec(), required, key);
        if bias {
            self.add(component, format!("{name}.bias"), vec![shape[0]], required, key);
        }
    }

    fn norm_named(
        &mut self,
        component: Component,
        name: &str,
        norm: &NormPlan,
        width: usize,
        required: bool,
        key: &str,
    ) {
        self.add(component, format!("{name}.weight"), vec![width], required, key);
        if norm.bias {
            self.add(component, format!("{name}.bias"), vec![width], required, key);
        }
    }

    fn norm(&mut self, component: Component, norm: &NormPlan, width: usize, key: &str) {
        self.norm_named(component, &norm.name, norm, width, true, key);
    }

    fn stack(&mut self, component: Component, stack: &StackPlan, needed: usize) {
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

    fn encoder(&mut self, encoder: &EncoderPlan) {
        let tower = Component::Tower;
        let width = encoder.stack.width;
        let patch = &encoder.patch;
        let mut shape = vec![width, 3];
        shape.extend(patch.frames);
        shape.extend([patch.size, patch.size]);
        self.add(tower, format!("{}.weight", patch.name), shape, true, "image.tower.patch.name");
        if patch.bias {
            self.add(
                tower,
                format!("{}.bias", patch.name),
                vec![width],
                true,
                "image.tower.patch.name",
            );
        }
        if let Some(class) = &encoder.class {
            self.add(tower, class.clone(), vec![width], true, "image.tower.class.parameter");
        }
        if let Some((rows, name)) = &encoder.position {
            self.add(
                tower,
                format!("{name}.weight"),
                vec![*rows, width],
                true,
                "image.tower.position.name",
            );
        }
        if let Some(norm) = &encoder.enter {
            self.norm(tower, norm, width, "image.tower.enter.name");
        }
        self.stack(tower, &encoder.stack, encoder.depth());
        for (index, op) in encoder.ops.iter().enumerate() {
            let key = format!("image.connector.ops.{index}.name");
            match op {
                OpPlan::Linear { input, out, bias, name } => {
                    self.linear(Component::Connector, name, [*out, *input], *bias, true, &key);
                }
                OpPlan::Norm { norm, width } => self.norm(Component::Connector, norm, *width, &key),
                OpPlan::Activation(_) | OpPlan::Merge { .. } => {}
            }
        }
    }
}
