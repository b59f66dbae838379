//! A stack of blocks: what every block does, and what kinds of layers change.

use std::borrow::Cow;

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Map, json};

use super::attention::{Attention, AttentionChange};
use super::mlp::Mlp;
use super::norm::{Norm, Placement};
use crate::backend::Activation;
use crate::descriptor::slot::{Choice, Count, Flag, Number};

/// A stack of blocks.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// How many blocks.
    pub layers: Count,
    /// Elements per row.
    pub width: Count,
    /// Where the norms stand.
    pub placement: Choice<Placement>,
    /// All norms of a block.
    pub norm: Norm,
    /// The attention.
    pub attention: Attention,
    /// A second attention between the first and the mlp, with norms of its own; its slots begin with `cross_`.
    pub cross: Option<Attention>,
    /// The feed-forward half.
    pub mlp: Mlp,
    /// Factor on what attention and mlp add to a row; left out, 1.
    pub residual: Option<Number>,
    /// Whether what attention and mlp add is multiplied by learned vectors, by the slots `scale1` and `scale2`.
    pub scaled: Option<Flag>,
    /// Whether what attention and mlp add is multiplied by the tanh of learned numbers, by the slots `gate1` and `gate2`.
    pub gated: Option<Flag>,
    /// Whether what comes out of a block is multiplied by a learned number, by the slot `scalar`; left out, not.
    pub scalar: Option<Flag>,
    /// Whether what goes into and comes out of every projection is clamped to learned numbers; left out, not. A projection
    /// `NAME` has these in `NAME.input_min`, `NAME.input_max`, `NAME.output_min` and `NAME.output_max`; its slot holds
    /// `NAME.linear`.
    pub clipped: Option<Flag>,
    /// Rows of a second embedding that every block takes in behind its mlp.
    pub inputs: Option<LayerInputs>,
    /// Layers that differ, by a name; the first kind whose `at` holds is taken.
    #[serde(default)]
    pub kinds: IndexMap<String, LayerKind>,
    /// Tensor names by slot, relative to `block`, which holds `{i}`. `.weight` and `.bias` are appended, except to the vectors
    /// and numbers of `scaled`, `gated` and `scalar` and to stacked experts.
    #[schemars(schema_with = "slot_names")]
    pub names: IndexMap<String, String>,
}

/// Rows of a second embedding, a part for every block: x + norm(out(act(gate(x)) · part)), by the slots `input_gate`,
/// `input_out` and `input_norm`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerInputs {
    /// Elements of a part; 0: there is no second embedding.
    pub width: Count,
    /// The activation.
    pub act: Choice<Activation>,
}

/// Layers that differ from the stack's other layers; what is left out stays.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerKind {
    /// Which layers these are.
    pub at: Layers,
    /// What changes of the attention.
    pub attention: Option<AttentionChange>,
    /// A second attention.
    pub cross: Option<Attention>,
    /// Another feed-forward half.
    pub mlp: Option<Mlp>,
    /// Whether the two branches have learned gates.
    pub gated: Option<Flag>,
    /// Whether something else stands in place of the attention, whose tensors an inventory lists; left out, not.
    pub replaced: Option<Flag>,
    /// Other tensor names.
    #[serde(default)]
    #[schemars(schema_with = "some_slot_names")]
    pub names: IndexMap<String, String>,
}

/// Which layers of a stack.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Layers {
    /// The name of a config value that lists indices, or a condition over `i`.
    Condition(String),
    /// These.
    Indices(Vec<i64>),
    /// By a list with one item per layer.
    List(LayerList),
}

/// Layers by a list with one item per layer.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerList {
    /// The list, by the name of a config value; its `map` turns words into integers. Where it is empty, `else` holds.
    #[schemars(extend("x-reads" = "value"))]
    pub list: String,
    /// What stands in the list for these layers.
    pub is: i64,
    /// A further condition over `i`, besides what the list or `else` says; left out, none.
    #[schemars(extend("x-reads" = "layers"))]
    pub when: Option<String>,
    /// A condition over `i` where the list is empty; left out, no layer.
    #[serde(rename = "else")]
    #[schemars(extend("x-reads" = "layers"))]
    pub otherwise: Option<String>,
}

impl JsonSchema for Layers {
    fn schema_name() -> Cow<'static, str> {
        "Layers".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "title": "a condition over the layer's index `i`, the name of a config value that lists indices, an array of indices, or { list = …, is = …, else = … }",
            "anyOf": [
                { "type": "string", "x-reads": "layers", "description": "A condition over `i`, or the name of a config value that lists indices." },
                { "type": "array", "items": { "type": "integer" }, "description": "Indices." },
                generator.subschema_for::<LayerList>()
            ]
        })
    }
}

/// The tensor slots of a block: name and meaning.
pub const TENSOR_SLOTS: [(&str, &str); 36] = [
    ("block", "The prefix of block `{i}`, below the component's root."),
    ("norm1", "The norm of the attention."),
    ("after1", "The norm of what the attention adds."),
    ("norm2", "The norm of the mlp."),
    ("after2", "The norm of what the mlp adds."),
    ("q", "The query projection."),
    ("k", "The key projection."),
    ("v", "The value projection."),
    ("qkv", "Query, key and value as rows of one tensor."),
    ("o", "The output projection of the attention."),
    ("q_norm", "The norm of queries."),
    ("k_norm", "The norm of keys."),
    ("v_norm", "The norm of values."),
    ("cross_norm1", "The norm of the second attention."),
    ("cross_after1", "The norm of what the second attention adds."),
    ("cross_q", "The query projection of the second attention."),
    ("cross_k", "The key projection of the second attention."),
    ("cross_v", "The value projection of the second attention."),
    ("cross_o", "The output projection of the second attention."),
    ("gate", "The gate projection of a gated mlp."),
    ("up", "The first projection of the mlp."),
    ("gate_up", "Both first projections of a gated mlp in one tensor."),
    ("down", "The second projection of the mlp."),
    ("router", "The map from a row to the experts' logits."),
    ("shared_gate", "The gate projection of the shared expert."),
    ("shared_up", "The first projection of the shared expert."),
    ("shared_down", "The second projection of the shared expert."),
    ("shared_router", "The map from a row to the weight of the shared expert."),
    ("scale1", "The vector on what the attention adds."),
    ("scale2", "The vector on what the mlp adds."),
    ("gate1", "The learned number on what the attention adds."),
    ("gate2", "The learned number on what the mlp adds."),
    ("scalar", "The learned number on what comes out of a block."),
    ("input_gate", "The map from a row to the elements of its part of a second embedding."),
    ("input_out", "The map from these elements back to a row."),
    ("input_norm", "The norm of what that adds."),
];

fn slots(required: &[&str]) -> Schema {
    let slot = |(name, meaning): &(&str, &str)| {
        let mut schema = json!({ "type": "string", "description": meaning });
        if *name == "block" {
            schema["x-reads"] = "block".into();
        }
        ((*name).to_owned(), schema)
    };
    let properties: Map<_, _> = TENSOR_SLOTS.iter().map(slot).collect();
    let mut schema =
        json_schema!({ "type": "object", "additionalProperties": false, "properties": properties });
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    schema
}

fn slot_names(_: &mut SchemaGenerator) -> Schema {
    slots(&["block"])
}

fn some_slot_names(_: &mut SchemaGenerator) -> Schema {
    slots(&[])
}
