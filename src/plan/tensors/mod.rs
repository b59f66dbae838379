//! The tensors that a plan reads: names below a root, shapes, and the descriptor key that asks for each.

mod encoder;
mod stack;

use super::graph::{GraphPlan, NormPlan};
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
    pub(super) fn add(
        &mut self,
        component: Component,
        name: String,
        shape: Vec<usize>,
        required: bool,
        key: &str,
    ) {
        self.specs.push(TensorSpec { component, name, shape, required, key: key.to_owned() });
    }

    pub(super) fn linear(
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

    pub(super) fn norm_named(
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

    pub(super) fn norm(&mut self, component: Component, norm: &NormPlan, width: usize, key: &str) {
        self.norm_named(component, &norm.name, norm, width, true, key);
    }
}
