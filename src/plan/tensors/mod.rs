//! The tensors that a plan reads: names below a root, shapes, and the descriptor key that asks for each.

mod connector;
mod encoder;
mod stack;

use super::graph::{GraphPlan, NormPlan};
use crate::descriptor::block::NormWeight;
use crate::descriptor::family::Root;

/// Which prefix of a [`Root`] a tensor's name stands below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Component {
    /// The image tower.
    Tower,
    /// The image connector.
    Connector,
    /// The audio tower.
    AudioTower,
    /// The audio connector.
    AudioConnector,
    /// The decoder.
    Decoder,
    /// The output projection; the root's name is the whole name.
    Head,
    /// Nothing: the name is the whole name.
    Whole,
}

impl Component {
    /// The words that patterns of `[tensors] ignore` begin with.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("tower", Self::Tower),
        ("connector", Self::Connector),
        ("audio_tower", Self::AudioTower),
        ("audio_connector", Self::AudioConnector),
        ("decoder", Self::Decoder),
        ("head", Self::Head),
    ];

    /// Tower and connector of a modality.
    pub fn of_modality(modality: &str) -> (Self, Self) {
        match modality {
            "audio" => (Self::AudioTower, Self::AudioConnector),
            _ => (Self::Tower, Self::Connector),
        }
    }

    /// The full name of `name` below this component.
    pub fn full_name(self, root: &Root, name: &str) -> String {
        let prefix = match self {
            Self::Tower => root.tower.as_deref().unwrap_or(""),
            Self::Connector => root.connector.as_deref().unwrap_or(""),
            Self::AudioTower => root.audio_tower.as_deref().unwrap_or(""),
            Self::AudioConnector => root.audio_connector.as_deref().unwrap_or(""),
            Self::Decoder => &root.decoder,
            Self::Head => &root.head,
            Self::Whole => "",
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
    /// Another tensor that this one is continued by, or continues: together they have so many rows, however these are cut.
    pub joined: Option<(String, usize)>,
}

/// Every tensor of the computation.
pub fn tensors(plan: &GraphPlan) -> Vec<TensorSpec> {
    let mut list = List { component: Component::Tower, required: true, specs: Vec::new() };
    for encoder in [&plan.image, &plan.audio].into_iter().flatten() {
        list.encoder(encoder);
    }
    list.decoder(plan);
    for module in &plan.inventory {
        let known =
            Component::NAMES.iter().find(|(name, _)| Some(*name) == module.below.as_deref());
        list.component = known.map_or(Component::Whole, |(_, component)| *component);
        list.required = !module.optional;
        for (name, shape, key) in &module.tensors {
            list.add(name.clone(), shape.clone(), key);
        }
    }
    list.specs
}

/// The list so far, and of what the next tensors are.
struct List {
    component: Component,
    required: bool,
    specs: Vec<TensorSpec>,
}

impl List {
    fn add(&mut self, name: String, shape: Vec<usize>, key: &str) {
        let (component, required) = (self.component, self.required);
        self.specs.push(TensorSpec {
            component,
            name,
            shape,
            required,
            key: key.to_owned(),
            joined: None,
        });
    }

    /// `[out, in]` and a bias.
    fn linear(&mut self, name: &str, shape: [usize; 2], bias: bool, key: &str) {
        self.add(format!("{name}.weight"), shape.to_vec(), key);
        if bias {
            self.add(format!("{name}.bias"), vec![shape[0]], key);
        }
    }

    fn norm_named(&mut self, name: &str, norm: &NormPlan, width: usize, key: &str) {
        if norm.weight != NormWeight::None {
            self.add(format!("{name}.weight"), vec![width], key);
        }
        if norm.bias {
            self.add(format!("{name}.bias"), vec![width], key);
        }
    }

    fn norm(&mut self, norm: &NormPlan, width: usize, key: &str) {
        self.norm_named(&norm.name, norm, width, key);
    }

    fn decoder(&mut self, plan: &GraphPlan) {
        let decoder = &plan.decoder;
        let width = decoder.stack.width;
        self.component = Component::Decoder;
        self.required = true;
        let table = vec![decoder.table_rows, decoder.embed_width];
        self.add(decoder.embed_name.clone(), table, "decoder.embed.name");
        if let Some((rows, name)) = &decoder.embed_more {
            let shape = vec![*rows, decoder.embed_width];
            self.add(name.clone(), shape, "decoder.embed.more.parameter");
            let total = decoder.table_rows + rows;
            let names = [decoder.embed_name.clone(), name.clone()];
            for (spec, other) in self.specs.iter_mut().rev().zip(names) {
                spec.joined = Some((other, total));
            }
        }
        if let Some(parts) = &decoder.parts {
            let key = |key: &str| format!("decoder.embed.parts.{key}");
            let table = format!("{}.weight", parts.name);
            self.add(table, vec![parts.rows, parts.all], &key("name"));
            self.linear(&parts.project, [parts.all, width], false, &key("project"));
            self.norm(&parts.norm, parts.width, &key("norm.name"));
        }
        if let Some(position) = &decoder.position {
            let shape = vec![position.rows + position.offset, width];
            self.add(format!("{}.weight", position.name), shape, "decoder.position.name");
        }
        if let Some((inward, outward)) = &decoder.project {
            let narrow = decoder.embed_width;
            self.linear(inward, [width, narrow], false, "decoder.embed.project_in");
            self.linear(outward, [narrow, width], false, "decoder.embed.project_out");
        }
        self.stack(&decoder.stack, decoder.stack.layers);
        self.norm(&decoder.leave, width, "decoder.leave.name");
        self.component = Component::Head;
        self.required = !decoder.tied;
        self.add(
            "weight".to_owned(),
            vec![decoder.head_rows, decoder.embed_width],
            "tensors.roots",
        );
    }
}
