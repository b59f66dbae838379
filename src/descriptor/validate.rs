//! A tree held against the schema: everything that does not fit, each with its line.
//!
//! Only the constructs that the generator emits are interpreted. What a string *means* (an expression, the name of a token)
//! is judged by [`super::references`], slot by slot, so that a misspelt key elsewhere hides nothing.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::library::did_you_mean;
use super::node::{Node, NodeValue};
use super::read::Read;
use super::references::References;
use super::schema;
use crate::problem::{Problem, Problems};

/// Checks a merged family: its structure, and every name and expression in it. Also tells what refers to what.
pub(super) fn merged(root: &Node) -> (Problems, BTreeSet<Read>) {
    let references = References::new(root);
    let mut validator = Validator::new(schema::merged(), Some(&references));
    validator.check(root, schema::merged(), "");
    let mut problems = validator.problems;
    problems.extend(references.whole());
    (problems, references.reads.into_inner())
}

/// Checks the structure of a file as written.
pub(super) fn written(root: &Node) -> Problems {
    let mut validator = Validator::new(schema::written(), None);
    validator.check(root, schema::written(), "");
    validator.problems
}

/// Checks the structure of `node` against the definition `name`.
pub(super) fn definition(node: &Node, name: &str, path: &str) -> Problems {
    let mut validator = Validator::new(schema::merged(), None);
    if let Some(definition) = schema::merged().pointer(&format!("/$defs/{name}")) {
        validator.check(node, definition, path);
    }
    validator.problems
}

struct Validator<'a> {
    schema: &'static Value,
    references: Option<&'a References<'a>>,
    /// Whether expressions may read the layout here.
    layout: bool,
    /// How many of the problems say that a value has the wrong shape.
    misfits: usize,
    problems: Problems,
}

impl<'a> Validator<'a> {
    fn new(schema: &'static Value, references: Option<&'a References<'a>>) -> Self {
        Self { schema, references, layout: false, misfits: 0, problems: Problems::default() }
    }

    fn resolve(&self, schema: &'static Value) -> &'static Value {
        let mut schema = schema;
        while let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let Some(target) = self.schema.pointer(reference.trim_start_matches('#')) else {
                break;
            };
            schema = target;
        }
        schema
    }

    fn check(&mut self, node: &Node, schema: &'static Value, path: &str) {
        let resolved = self.resolve(schema);
        if let NodeValue::Unusable(_) = node.value {
            self.refuse(node, path, &self.expects(resolved));
            return;
        }
        let Some(object) = resolved.as_object() else {
            self.check_untyped(node, path);
            return;
        };
        let layout = self.layout;
        self.layout |= schema.get("x-layout").is_some();
        let misfits = self.misfits;
        self.check_shape(node, object, path);
        let reads = schema.get("x-reads").or(object.get("x-reads")).and_then(Value::as_str);
        if misfits == self.misfits
            && let (Some(references), Some(reads)) = (self.references, reads)
        {
            references.check(reads, node, path, self.layout, &mut self.problems);
        }
        self.layout = layout;
    }

    fn check_shape(&mut self, node: &Node, schema: &'static Map<String, Value>, path: &str) {
        if let Some(members) = schema.get("x-members").and_then(Value::as_array) {
            self.check_choice(node, schema, members, path);
        } else if let Some(branches) = schema.get("anyOf").and_then(Value::as_array) {
            let tag = branches.first().and_then(|branch| tag_of(self.resolve(branch)));
            match tag {
                // the written form, where another file may have chosen the member
                Some((tag, _)) if node.as_table().is_some_and(|table| table.contains_key(tag)) => {
                    self.check_one(node, schema, branches, path);
                }
                _ => self.check_any(node, schema, branches, path),
            }
        } else if let Some(branches) = schema.get("oneOf").and_then(Value::as_array) {
            self.check_one(node, schema, branches, path);
        } else if let Some(expected) = schema.get("type")
            && !has_type(node, expected)
        {
            let title = schema.get("title").and_then(Value::as_str);
            self.refuse(node, path, title.unwrap_or(&type_words(expected)));
        } else {
            match &node.value {
                NodeValue::Table(_) => self.check_table(node, schema, path),
                NodeValue::Array(items) => {
                    for (index, item) in items.iter().enumerate() {
                        let path = join(path, &index.to_string());
                        match schema.get("items") {
                            Some(item_schema) => self.check(item, item_schema, &path),
                            None => self.check_untyped(item, &path),
                        }
                    }
                }
                NodeValue::Integer(number) => self.check_range(node, *number, schema, path),
                _ => {}
            }
        }
    }

    /// Any value does, as long as TOML and config files both have it.
    fn check_untyped(&mut self, node: &Node, path: &str) {
        match &node.value {
            NodeValue::Unusable(_) => self.refuse(node, path, "a value that config files can hold"),
            NodeValue::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.check_untyped(item, &join(path, &index.to_string()));
                }
            }
            NodeValue::Table(table) => {
                for (key, value) in table {
                    self.check_untyped(value, &join(path, key));
                }
            }
            _ => {}
        }
    }

    fn check_range(&mut self, node: &Node, number: i64, schema: &Map<String, Value>, path: &str) {
        let largest = (schema.get("format").and_then(Value::as_str) == Some("uint32"))
            .then_some(i64::from(u32::MAX));
        let least = schema.get("minimum").and_then(Value::as_i64);
        if let Some(least) = least.filter(|least| number < *least) {
            self.refuse(node, path, &format!("an integer of at least {least}"));
        } else if let Some(largest) = largest.filter(|largest| number > *largest) {
            self.refuse(node, path, &format!("an integer of at most {largest}"));
        }
    }

    fn check_table(&mut self, node: &Node, schema: &'static Map<String, Value>, path: &str) {
        let Some(table) = node.as_table() else { return };
        let properties = schema.get("properties").and_then(Value::as_object);
        let additional = schema.get("additionalProperties");
        for (key, value) in table {
            let path = join(path, key);
            if let Some(property) = properties.and_then(|properties| properties.get(key)) {
                self.check(value, property, &path);
            } else if let Some(Value::Bool(false)) = additional {
                let known: Vec<_> =
                    properties.into_iter().flat_map(Map::keys).map(String::as_str).collect();
                self.misfit(unknown_key(value, key, &path, &known));
            } else if let Some(additional) = additional {
                self.check(value, additional, &path);
            } else {
                self.check_untyped(value, &path);
            }
        }
        for key in schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !table.contains_key(key) {
                let what = properties
                    .and_then(|properties| properties.get(key))
                    .and_then(|property| property.get("description"))
                    .and_then(Value::as_str)
                    .map(|text| format!("`{key}`: {}", text.trim_end_matches('.')));
                self.misfit(missing_key(
                    node,
                    key,
                    path,
                    what.unwrap_or_else(|| format!("`{key}`")),
                ));
            }
        }
    }

    /// A member of a closed set, or the name of a config value.
    fn check_choice(
        &mut self,
        node: &Node,
        schema: &Map<String, Value>,
        members: &[Value],
        path: &str,
    ) {
        let names: Vec<_> = members.iter().filter_map(Value::as_str).collect();
        match node.as_str() {
            Some(text) if text.contains('.') => {
                if let Some(references) = self.references {
                    references.choice(node, path, kind_of(schema), &names, &mut self.problems);
                }
            }
            Some(text) if names.contains(&text) => {}
            Some(_) => self.misfit(unknown_member(node, path, kind_of(schema), &names)),
            None => self.refuse(
                node,
                path,
                schema.get("title").and_then(Value::as_str).unwrap_or("a string"),
            ),
        }
    }

    /// A slot that takes several kinds of value: fine if one fits; else the most telling complaint.
    fn check_any(
        &mut self,
        node: &Node,
        schema: &'static Map<String, Value>,
        branches: &'static [Value],
        path: &str,
    ) {
        let mut closest: Option<Problems> = None;
        for branch in branches {
            let mut attempt =
                Validator { layout: self.layout, ..Validator::new(self.schema, self.references) };
            attempt.check(node, branch, path);
            if attempt.misfits == 0 {
                self.problems.extend(attempt.problems);
                return;
            }
            let resolved = self.resolve(branch);
            let is_container = matches!(node.value, NodeValue::Table(_) | NodeValue::Array(_));
            let fits = resolved.get("type").is_some_and(|expected| has_type(node, expected));
            if is_container && fits && closest.is_none() {
                closest = Some(attempt.problems);
            }
        }
        match closest {
            Some(problems) => {
                self.misfits += 1;
                self.problems.extend(problems);
            }
            None => self.refuse(node, path, &self.words(schema)),
        }
    }

    /// A table whose members are told apart by one key, or a plain enumeration.
    fn check_one(
        &mut self,
        node: &Node,
        schema: &'static Map<String, Value>,
        branches: &'static [Value],
        path: &str,
    ) {
        let Some((tag, _)) = branches.iter().find_map(|branch| tag_of(self.resolve(branch))) else {
            let names: Vec<_> =
                branches.iter().filter_map(|branch| branch.get("const")?.as_str()).collect();
            match node.as_str() {
                Some(text) if names.contains(&text) => {}
                Some(_) => self.misfit(unknown_member(node, path, kind_of(schema), &names)),
                None => self.refuse(node, path, &one_of(&names)),
            }
            return;
        };
        let members: Vec<_> = branches
            .iter()
            .filter_map(|branch| tag_of(self.resolve(branch)).map(|(_, name)| name))
            .collect();
        let Some(table) = node.as_table() else {
            self.refuse(node, path, &format!("a table with `{tag}`, {}", one_of(&members)));
            return;
        };
        let Some(kind) = table.get(tag) else {
            self.misfit(missing_key(node, tag, path, format!("`{tag}`, {}", one_of(&members))));
            return;
        };
        let tagged = branches.iter().map(|branch| self.resolve(branch));
        let chosen = tagged
            .into_iter()
            .find(|branch| tag_of(branch).is_some_and(|(_, name)| kind.as_str() == Some(name)));
        let key = join(path, tag);
        match chosen.and_then(Value::as_object) {
            Some(branch) => self.check_table(node, branch, path),
            None if kind.as_str().is_some() => {
                self.misfit(unknown_member(kind, &key, kind_of(schema), &members));
            }
            None => self.refuse(kind, &key, &one_of(&members)),
        }
    }

    fn refuse(&mut self, node: &Node, path: &str, expected: &str) {
        let mut keys = path.rsplit('.');
        let key = keys.next().unwrap_or(path);
        let what = match keys.next() {
            Some(list) if key.bytes().all(|byte| byte.is_ascii_digit()) => {
                format!("an item of `{list}`")
            }
            _ => format!("`{key}`"),
        };
        self.misfit(
            Problem::error("value-type", format!("{what} does not take this value"))
                .at(node.origin.place(path))
                .expected_found(expected, node.describe()),
        );
    }

    fn misfit(&mut self, problem: Problem) {
        self.misfits += 1;
        self.problems.push(problem);
    }

    /// What a slot takes, in words.
    fn expects(&self, schema: &'static Value) -> String {
        match schema.as_object() {
            Some(object) => self.words(object),
            None => "a value that config files can hold".to_owned(),
        }
    }

    fn words(&self, schema: &'static Map<String, Value>) -> String {
        if let Some(title) = schema.get("title").and_then(Value::as_str) {
            return title.to_owned();
        }
        if let Some(expected) = schema.get("type") {
            return type_words(expected);
        }
        let branches =
            ["anyOf", "oneOf"].iter().filter_map(|key| schema.get(*key)?.as_array()).flatten();
        let constants: Vec<_> =
            branches.clone().filter_map(|branch| branch.get("const")?.as_str()).collect();
        if !constants.is_empty() {
            return one_of(&constants);
        }
        let mut words: Vec<_> = branches.map(|branch| self.expects(self.resolve(branch))).collect();
        words.dedup();
        if words.is_empty() {
            "a value that config files can hold".to_owned()
        } else {
            words.join(" or ")
        }
    }
}

fn unknown_key(node: &Node, key: &str, path: &str, known: &[&str]) -> Problem {
    let problem = Problem::error("key-unknown", format!("there is no key `{key}` here"))
        .at(node.origin.place(path))
        .expected_found(one_of(known), format!("`{key}`"));
    match path {
        "tower" => {
            problem.with_hint("`[tower]` stands in a part; in a family it is `[image.tower]`")
        }
        _ if key == "use" => {
            problem.with_hint("`use` stands in `[image.tower]` and `[decoder]` of a family")
        }
        _ => did_you_mean(problem, key, known),
    }
}

fn missing_key(node: &Node, key: &str, path: &str, what: String) -> Problem {
    Problem::error("key-missing", format!("key `{key}` is missing"))
        .at(node.origin.place(&join(path, key)))
        .expected_found(what, "nothing")
}

/// A word that a closed set lacks.
pub(super) fn unknown_member(node: &Node, path: &str, kind: &str, names: &[&str]) -> Problem {
    let word = node.as_str().unwrap_or_default();
    let problem = Problem::error("member-unknown", format!("there is no {kind} `{word}`"))
        .at(node.origin.place(path))
        .expected_found(one_of(names), format!("`{word}`"));
    did_you_mean(problem, word, names)
}

/// Names in backticks, after `one of` where there are several.
pub(super) fn one_of(names: &[&str]) -> String {
    match names {
        [] => "nothing".to_owned(),
        [only] => format!("`{only}`"),
        several => format!("one of `{}`", several.join("`, `")),
    }
}

/// The path of `key` below `path`.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn kind_of(schema: &Map<String, Value>) -> &str {
    schema.get("x-kind").and_then(Value::as_str).unwrap_or("member")
}

fn tag_of(branch: &Value) -> Option<(&str, &str)> {
    let properties = branch.get("properties")?.as_object()?;
    properties
        .iter()
        .find_map(|(key, property)| Some((key.as_str(), property.get("const")?.as_str()?)))
}

fn has_type(node: &Node, expected: &Value) -> bool {
    let one = |name: &str| {
        matches!(
            (name, &node.value),
            ("string", NodeValue::String(_))
                | ("integer" | "number", NodeValue::Integer(_))
                | ("number", NodeValue::Float(_))
                | ("boolean", NodeValue::Boolean(_))
                | ("array", NodeValue::Array(_))
                | ("object", NodeValue::Table(_))
        )
    };
    match expected {
        Value::String(name) => one(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(one),
        _ => true,
    }
}

fn type_words(expected: &Value) -> String {
    let word = |name: &str| match name {
        "string" => "a string",
        "integer" => "an integer",
        "number" => "a number",
        "boolean" => "true or false",
        "array" => "an array",
        "object" => "a table",
        _ => "another value",
    };
    match expected {
        Value::String(name) => word(name).to_owned(),
        Value::Array(names) => {
            names.iter().filter_map(Value::as_str).map(word).collect::<Vec<_>>().join(" or ")
        }
        _ => "another value".to_owned(),
    }
}
