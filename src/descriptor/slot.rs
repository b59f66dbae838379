//! The kinds of value that a descriptor key takes: counts, numbers, flags, choices, and how each is written.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

/// An integer, written as one or as an expression over config values (`"vision.patch * vision.merge"`).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Count {
    /// A literal.
    Literal(i64),
    /// An expression's text.
    Expression(String),
}

impl JsonSchema for Count {
    fn schema_name() -> Cow<'static, str> {
        "Count".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "title": "an integer or an expression",
            "x-reads": "count",
            "description": "An integer, or an integer expression over config values: + - * / %, comparisons, && || !, min, max, div_floor, div_ceil, isqrt, len.",
            "anyOf": [{ "type": "integer" }, { "type": "string" }]
        })
    }
}

/// A real number: a literal, the name of a config value, or a root of an integer expression.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Number {
    /// A literal.
    Literal(f64),
    /// The name of a config value.
    Value(String),
    /// A root.
    Root(Root),
}

/// A number that is a root of an integer.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-reads" = "root"))]
pub struct Root {
    /// The square root of this.
    pub sqrt: Option<Count>,
    /// One over the square root of this.
    pub rsqrt: Option<Count>,
}

impl JsonSchema for Number {
    fn schema_name() -> Cow<'static, str> {
        "Number".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "title": "a number, the name of a config value, or { sqrt = … } / { rsqrt = … }",
            "anyOf": [{ "type": "number" }, { "type": "string", "x-reads": "value" }, generator.subschema_for::<Root>()]
        })
    }
}

/// A truth value: a literal, or a condition over config values (`"text.bias"`, `"mm.keep == 1"`).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Flag {
    /// A literal.
    Literal(bool),
    /// A condition's text.
    Condition(String),
}

impl JsonSchema for Flag {
    fn schema_name() -> Cow<'static, str> {
        "Flag".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "title": "a truth value or a condition",
            "x-reads": "condition",
            "description": "true, false, or a condition over config values; an integer value counts as true when it is not 0.",
            "anyOf": [{ "type": "boolean" }, { "type": "string" }]
        })
    }
}

/// One or several names.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Several, in order.
    Many(Vec<String>),
}

impl OneOrMany {
    /// The names, in order.
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

impl JsonSchema for OneOrMany {
    fn schema_name() -> Cow<'static, str> {
        "OneOrMany".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "title": "a string or an array of strings",
            "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }]
        })
    }
}

/// A closed set of named members that an enum slot takes.
pub trait Member: Copy + Sized + 'static {
    /// What the set is called in messages: `activation`.
    const KIND: &'static str;
    /// Every member: its name in family files, its meaning, the member itself.
    const MEMBERS: &'static [(&'static str, &'static str, Self)];

    /// The member of that name.
    fn named(name: &str) -> Option<Self> {
        Self::MEMBERS.iter().find(|(member, ..)| *member == name).map(|(.., member)| *member)
    }

    /// The names, for "expected one of".
    fn names() -> Vec<&'static str> {
        Self::MEMBERS.iter().map(|(name, ..)| *name).collect()
    }
}

/// A member of a closed set: its name, or the name of a config value that holds one (a string with a dot).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice<M> {
    /// A member.
    Member(M),
    /// The name of a config value.
    Value(String),
}

impl<'de, M: Member> Deserialize<'de> for Choice<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.contains('.') {
            return Ok(Self::Value(text));
        }
        M::named(&text)
            .map(Self::Member)
            .ok_or_else(|| serde::de::Error::custom(format!("unknown {} `{text}`", M::KIND)))
    }
}

impl<M: Member> JsonSchema for Choice<M> {
    fn schema_name() -> Cow<'static, str> {
        let mut name = String::new();
        for word in M::KIND.split(' ') {
            let mut letters = word.chars();
            name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
            name.push_str(letters.as_str());
        }
        name.into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let members: Vec<_> = M::MEMBERS
            .iter()
            .map(|(name, meaning, _)| json_schema!({ "const": name, "description": meaning }))
            .collect();
        json_schema!({
            "title": format!("one of `{}`, or the name of a config value", M::names().join("`, `")),
            "x-kind": M::KIND,
            "x-members": M::names(),
            "anyOf": [
                { "oneOf": members },
                { "type": "string", "pattern": r"^[A-Za-z0-9_]+\.[A-Za-z0-9_]+$", "description": "The name of a config value." }
            ]
        })
    }
}
