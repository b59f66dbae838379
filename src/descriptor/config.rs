//! `[config.SECTION]`: named values that are looked up in the files of a checkpoint.

use std::borrow::Cow;

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::Value;

use super::slot::OneOrMany;

/// The files that a path may name before a `:`.
pub const SOURCES: [&str; 6] =
    ["config", "preprocessor", "extractor", "processor", "generation", "tokenizer"];

/// A section: names for values of one part of the config files.
///
/// A path is `KEY.KEY…`, read from the section's roots, or `SOURCE:KEY.KEY…` with a source of [`SOURCES`]: `config`,
/// `preprocessor` (of pictures), `extractor` (of sound), `processor`, `generation`, `tokenizer`. `null` is absent, unless the lookup says
/// what it means.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct Section {
    /// The roots tried, in order, for every path without a source. `""` is the top of config.json,
    /// `"preprocessor:"` the top of the image processor's settings.
    #[serde(default)]
    #[schemars(extend("x-reads" = "path"))]
    pub within: Option<OneOrMany>,
    /// Values that stand in only where none of the roots exists at all (the reference's composite constructor).
    #[serde(default)]
    pub absent: IndexMap<String, Value>,
    /// The values: a lookup, an expression, or a literal.
    #[serde(flatten)]
    pub values: IndexMap<String, Entry>,
}

/// One named value.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Entry {
    /// A lookup.
    Lookup(Box<Lookup>),
    /// An expression over other values.
    Expression(String),
    /// A literal: a number, a boolean, or an array.
    Literal(Value),
}

impl JsonSchema for Entry {
    fn schema_name() -> Cow<'static, str> {
        "Entry".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "title": "a lookup { at = …, or = … }, an expression, or a literal",
            "anyOf": [
                generator.subschema_for::<Lookup>(),
                { "type": "string", "x-reads": "expression", "description": "An expression over other values." },
                { "type": ["number", "boolean", "array"], "description": "A literal: a number, a boolean, or an array." }
            ]
        })
    }
}

/// Where a value is found.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-reads" = "lookup"))]
pub struct Lookup {
    /// Paths tried in order; the first that is present wins. Left out: the entry's own name.
    #[schemars(extend("x-reads" = "path"))]
    pub at: Option<OneOrMany>,
    /// Paths that may all state the value. At least one must (or `or` is given), all that do must agree, and an integer
    /// must be at least 1 wherever it is stated.
    #[schemars(extend("x-reads" = "path"))]
    pub same: Option<Vec<String>>,
    /// Whether `at` lists switches of which any may be on: the value is true if one of them says `true`.
    #[serde(default)]
    pub any: bool,
    /// The literal used where the key is missing.
    pub or: Option<Value>,
    /// A path whose presence takes `or` away: the reference then has no default.
    #[schemars(extend("x-reads" = "path"))]
    pub unless: Option<String>,
    /// What an explicit `null` means, where that differs from a missing key: a literal, or an expression. Left out, `null` is
    /// absent.
    #[schemars(extend("x-reads" = "expression"))]
    pub null: Option<Value>,
    /// The expression used where the key is missing; the bare name of a value stands for that value, whatever its type.
    #[serde(rename = "else")]
    #[schemars(extend("x-reads" = "expression"))]
    pub otherwise: Option<String>,
    /// What each string or boolean of the file means: an integer, or a member of a set. A value that the map lacks is an
    /// unrecognised variant, and what depends on it has no number. A list is mapped item by item.
    pub map: Option<IndexMap<String, Value>>,
    /// Only values of this type count as present.
    #[serde(rename = "type")]
    pub kind: Option<ValueType>,
}

/// The types that [`Lookup::kind`] can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-kind" = "type"))]
pub enum ValueType {
    /// A JSON integer.
    Integer,
    /// A JSON number.
    Number,
    /// A JSON string.
    String,
    /// `true` or `false`.
    Boolean,
    /// A JSON array.
    List,
    /// A JSON object.
    Table,
}
