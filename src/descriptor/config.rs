//! `[config.SECTION]`: named values that are looked up in the files of a checkpoint.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::slot::OneOrMany;

/// A section: names for values of one part of the config files.
///
/// A path is `KEY.KEY…`, read from the section's roots, or `SOURCE:KEY.KEY…` with a source of `config`, `preprocessor`,
/// `processor`, `generation`, `tokenizer`. `null` is absent, unless the lookup says what it means.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct Section {
    /// The roots tried, in order, for every path without a source. `""` is the top of config.json,
    /// `"preprocessor:"` the top of the image processor's settings.
    #[serde(default)]
    pub within: Option<OneOrMany>,
    /// Values that stand in only where none of the roots exists at all (the reference's composite constructor).
    #[serde(default)]
    pub absent: IndexMap<String, Value>,
    /// The values: a lookup, an expression, or a literal.
    #[serde(flatten)]
    pub values: IndexMap<String, Entry>,
}

/// One named value.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(title = "a lookup { at = …, or = … }, an expression, or a literal")]
pub enum Entry {
    /// A lookup.
    Lookup(Box<Lookup>),
    /// An expression over other values.
    Expression(String),
    /// A literal: a number, a boolean, or an array.
    Literal(Value),
}

/// Where a value is found.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lookup {
    /// Paths tried in order; the first that is present wins. Left out: the entry's own name.
    pub at: Option<OneOrMany>,
    /// Paths that may all state the value. At least one must (or `or` is given), all that do must agree, and an integer
    /// must be at least 1 wherever it is stated.
    pub same: Option<Vec<String>>,
    /// Whether `at` lists switches of which any may be on: the value is true if one of them says `true`.
    #[serde(default)]
    pub any: bool,
    /// The literal used where the key is missing.
    pub or: Option<Value>,
    /// A path whose presence takes `or` away: the reference then has no default.
    pub unless: Option<String>,
    /// What an explicit `null` means, where that differs from a missing key: a literal, or an expression. Left out, `null` is
    /// absent.
    pub null: Option<Value>,
    /// The expression used where the key is missing; the bare name of a value stands for that value, whatever its type.
    #[serde(rename = "else")]
    pub otherwise: Option<String>,
    /// What each string or boolean of the file means: an integer, or a member of a set. A value that the map lacks is an
    /// unrecognised variant, and what depends on it has no number.
    pub map: Option<IndexMap<String, Value>>,
    /// Only values of this type count as present.
    #[serde(rename = "type")]
    pub kind: Option<ValueType>,
}

/// The types that [`Lookup::kind`] can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
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
