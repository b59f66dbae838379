//! The JSON Schema of a family file, and the check of a file against it.
//!
//! The schema is generated from the types of [`super::family`]; editors read the committed copy, and this module reads it
//! to report *all* structural problems of a file at once, each with its line. Only the constructs that the generator
//! emits are interpreted.

use serde_json::{Map, Value};

use super::family::Family;
use super::library::nearest;
use super::node::{Node, NodeValue};
use crate::problem::{Problem, Problems};

/// The schema of a family file.
pub fn family_schema() -> Value {
    schemars::schema_for!(Family).to_value()
}

/// Checks a merged family against the schema and collects everything that does not fit.
pub(super) fn validate(root: &Node, schema: &Value) -> Problems {
    let mut validator = Validator { schema, problems: Problems::default() };
    validator.check(root, schema, "");
    validator.problems
}

struct Validator<'a> {
    schema: &'a Value,
    problems: Problems,
}

impl<'a> Validator<'a> {
    fn resolve(&self, schema: &'a Value) -> &'a Value {
        let mut schema = schema;
        while let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let Some(target) = self.schema.pointer(reference.trim_start_matches('#')) else {
                break;
            };
            schema = target;
        }
        schema
    }

    fn check(&mut self, node: &Node, schema: &'a Value, path: &str) {
        let schema = self.resolve(schema);
        let Some(object) = schema.as_object() else { return };
        if let Some(branches) = object.get("anyOf").and_then(Value::as_array) {
            self.check_any(node, object, branches, path);
            return;
        }
        if let Some(branches) = object.get("oneOf").and_then(Value::as_array) {
            self.check_one(node, object, branches, path);
            return;
        }
        if let Some(expected) = object.get("const") {
            if node.to_json() != *expected {
                self.refuse(node, path, &format!("`{}`", plain(expected)), None);
            }
            return;
        }
        if let Some(allowed) = object.get("enum").and_then(Value::as_array) {
            if !allowed.contains(&node.to_json()) {
                let names: Vec<_> = allowed.iter().map(plain).collect();
                self.refuse_member(node, path, &names);
            }
            return;
        }
        if let Some(expected) = object.get("type")
            && !has_type(node, expected)
        {
            let title = object.get("title").and_then(Value::as_str);
            self.refuse(node, path, title.unwrap_or(&type_words(expected)), None);
            return;
        }
        match &node.value {
            NodeValue::Table(_) => self.check_table(node, object, path),
            NodeValue::Array(items) => {
                if let Some(item_schema) = object.get("items") {
                    for (index, item) in items.iter().enumerate() {
                        self.check(item, item_schema, &join(path, &index.to_string()));
                    }
                }
            }
            _ => {}
        }
    }

    fn check_table(&mut self, node: &Node, schema: &'a Map<String, Value>, path: &str) {
        let Some(table) = node.as_table() else { return };
        let properties = schema.get("properties").and_then(Value::as_object);
        let additional = schema.get("additionalProperties");
        for (key, value) in table {
            let path = join(path, key);
            if let Some(property) = properties.and_then(|properties| properties.get(key)) {
                self.check(value, property, &path);
            } else if let Some(Value::Bool(false)) = additional {
                let known: Vec<_> = properties
                    .map(|map| map.keys().map(String::as_str).collect())
                    .unwrap_or_default();
                let mut problem =
                    Problem::error("key-unknown", format!("there is no key `{key}` here"))
                        .at(value.origin.place(&path))
                        .expected_found(
                            format!("one of `{}`", known.join("`, `")),
                            format!("`{key}`"),
                        );
                if let Some(near) = nearest(key, known.iter().copied()) {
                    problem = problem.with_hint(format!("did you mean `{near}`?"));
                }
                self.problems.push(problem);
            } else if let Some(additional) = additional {
                self.check(value, additional, &path);
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
                self.problems.push(
                    Problem::error("key-missing", format!("key `{key}` is missing"))
                        .at(node.origin.place(&join(path, key)))
                        .expected_found(what.unwrap_or_else(|| format!("`{key}`")), "nothing"),
                );
            }
        }
    }

    /// A slot that takes several kinds of value: fine if one fits; else the most telling complaint.
    fn check_any(
        &mut self,
        node: &Node,
        schema: &Map<String, Value>,
        branches: &'a [Value],
        path: &str,
    ) {
        let mut closest: Option<Problems> = None;
        for branch in branches {
            let mut attempt = Validator { schema: self.schema, problems: Problems::default() };
            attempt.check(node, branch, path);
            if attempt.problems.is_empty() {
                return;
            }
            let resolved = self.resolve(branch);
            let wants_table =
                resolved.get("properties").is_some() || resolved.get("oneOf").is_some();
            if wants_table && matches!(node.value, NodeValue::Table(_)) {
                closest = Some(attempt.problems);
            }
        }
        if let Some(members) = schema.get("x-members").and_then(Value::as_array)
            && node.as_str().is_some()
        {
            let names: Vec<_> = members.iter().map(plain).collect();
            self.refuse_member(node, path, &names);
            return;
        }
        if let Some(problems) = closest {
            self.problems.extend(problems);
            return;
        }
        let title = schema.get("title").and_then(Value::as_str).map_or_else(
            || {
                let words: Vec<_> = branches
                    .iter()
                    .map(|branch| self.resolve(branch))
                    .filter(|branch| branch.get("type") != Some(&Value::from("null")))
                    .map(|branch| match branch.get("title").and_then(Value::as_str) {
                        Some(title) => title.to_owned(),
                        None => branch
                            .get("type")
                            .map(type_words)
                            .unwrap_or_else(|| "another value".to_owned()),
                    })
                    .collect();
                words.join(" or ")
            },
            str::to_owned,
        );
        self.refuse(node, path, &title, None);
    }

    /// A tagged table or a plain enumeration.
    fn check_one(
        &mut self,
        node: &Node,
        schema: &Map<String, Value>,
        branches: &'a [Value],
        path: &str,
    ) {
        let tag = branches.iter().find_map(|branch| tag_of(self.resolve(branch)));
        let Some((tag, _)) = tag else {
            let mut names = Vec::new();
            for branch in branches {
                let branch = self.resolve(branch);
                if let Some(constant) = branch.get("const") {
                    names.push(plain(constant));
                }
                names.extend(
                    branch.get("enum").and_then(Value::as_array).into_iter().flatten().map(plain),
                );
            }
            if !node.as_str().is_some_and(|text| names.iter().any(|name| name == text)) {
                self.refuse_member(node, path, &names);
            }
            return;
        };
        let members: Vec<_> = branches
            .iter()
            .filter_map(|branch| tag_of(self.resolve(branch)).map(|(_, name)| name))
            .collect();
        let Some(table) = node.as_table() else {
            let title = schema.get("title").and_then(Value::as_str);
            self.refuse(node, path, title.unwrap_or(&format!("a table with `{tag}`")), None);
            return;
        };
        let Some(kind) = table.get(tag) else {
            self.problems.push(
                Problem::error("key-missing", format!("key `{tag}` is missing"))
                    .at(node.origin.place(&join(path, tag)))
                    .expected_found(
                        format!("`{tag}`, one of `{}`", members.join("`, `")),
                        "nothing",
                    ),
            );
            return;
        };
        let chosen = branches
            .iter()
            .map(|branch| self.resolve(branch))
            .find(|branch| tag_of(branch).is_some_and(|(_, name)| kind.as_str() == Some(name)));
        match chosen.and_then(Value::as_object) {
            Some(branch) => self.check_table(node, branch, path),
            None => {
                let names: Vec<_> = members.iter().map(|name| (*name).to_owned()).collect();
                self.refuse_member(kind, &join(path, tag), &names);
            }
        }
    }

    fn refuse_member(&mut self, node: &Node, path: &str, names: &[String]) {
        let hint = node
            .as_str()
            .and_then(|word| nearest(word, names.iter().map(String::as_str)))
            .map(|near| format!("did you mean `{near}`?"));
        self.refuse(node, path, &format!("one of `{}`", names.join("`, `")), hint);
    }

    fn refuse(&mut self, node: &Node, path: &str, expected: &str, hint: Option<String>) {
        let key = path.rsplit('.').next().unwrap_or(path);
        let mut problem = Problem::error("value-type", format!("`{key}` does not take this value"))
            .at(node.origin.place(path))
            .expected_found(expected, node.describe());
        problem.hint = hint;
        self.problems.push(problem);
    }
}

fn tag_of(branch: &Value) -> Option<(&str, &str)> {
    let properties = branch.get("properties")?.as_object()?;
    properties
        .iter()
        .find_map(|(key, property)| Some((key.as_str(), property.get("const")?.as_str()?)))
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn has_type(node: &Node, expected: &Value) -> bool {
    let one = |name: &str| match (name, &node.value) {
        ("string", NodeValue::String(_))
        | ("integer" | "number", NodeValue::Integer(_))
        | ("number", NodeValue::Float(_))
        | ("boolean", NodeValue::Boolean(_))
        | ("array", NodeValue::Array(_))
        | ("object", NodeValue::Table(_)) => true,
        _ => false,
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
        _ => "nothing",
    };
    match expected {
        Value::String(name) => word(name).to_owned(),
        Value::Array(names) => {
            let words: Vec<_> = names
                .iter()
                .filter_map(Value::as_str)
                .filter(|name| *name != "null")
                .map(word)
                .collect();
            words.join(" or ")
        }
        _ => "another value".to_owned(),
    }
}
