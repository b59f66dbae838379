//! A family file as written: a tree in which every value and key knows its file and line.
//!
//! Merging (`extends`, parts) happens on this tree, before anything is typed, so that a partial table merges over the
//! table it refines and every problem can still point to the line that caused it.

use std::sync::Arc;

use indexmap::IndexMap;
use toml::de::{DeTable, DeValue};

use crate::problem::{Place, Problem, Problems};

/// A file's name, as the user or the embedded folder gives it, and its text.
#[derive(Debug)]
pub(super) struct SourceFile {
    /// The name shown in messages.
    pub name: String,
    /// The whole text.
    pub text: String,
}

impl SourceFile {
    /// The line, counted from 1, that holds byte `offset`.
    fn line(&self, offset: usize) -> usize {
        let end = offset.min(self.text.len());
        1 + self.text.as_bytes()[..end].iter().filter(|byte| **byte == b'\n').count()
    }
}

/// Where a node was written.
#[derive(Debug, Clone)]
pub struct Origin {
    file: Arc<SourceFile>,
    offset: usize,
}

impl Origin {
    /// The place of key path `key` written here.
    pub fn place(&self, key: &str) -> Place {
        Place {
            file: Some(self.file.name.clone()),
            key: (!key.is_empty()).then(|| key.to_owned()),
            line: Some(self.file.line(self.offset)),
        }
    }
}

/// A value with its origin.
#[derive(Debug, Clone)]
pub struct Node {
    /// The value.
    pub value: NodeValue,
    /// Where it was written.
    pub origin: Origin,
}

/// The kinds of value that a family file may hold.
#[derive(Debug, Clone)]
pub enum NodeValue {
    /// A string.
    String(String),
    /// An integer that fits 64 bits.
    Integer(i64),
    /// A float.
    Float(f64),
    /// `true` or `false`.
    Boolean(bool),
    /// An array.
    Array(Vec<Node>),
    /// A table, in the order written.
    Table(IndexMap<String, Node>),
}

impl Node {
    /// Parses a TOML file. All syntax errors are reported at once.
    pub fn parse(name: &str, text: &str) -> Result<Self, Problems> {
        let file = Arc::new(SourceFile { name: name.to_owned(), text: text.to_owned() });
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut problems = Problems::default();
        for error in errors {
            let offset = error.span().map_or(0, |span| span.start);
            let origin = Origin { file: Arc::clone(&file), offset };
            problems.push(
                Problem::error("toml-syntax", error.message().trim().replace('\n', ", "))
                    .at(origin.place("")),
            );
        }
        let offset = table.span().start;
        let mut reader = Reader { file: &file, problems: &mut problems };
        let value = reader.table(table.into_inner(), "");
        if problems.is_empty() {
            Ok(Self { value, origin: Origin { file, offset } })
        } else {
            Err(problems)
        }
    }

    /// The table's entries, if this is a table.
    pub fn as_table(&self) -> Option<&IndexMap<String, Node>> {
        match &self.value {
            NodeValue::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The string, if this is one.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            NodeValue::String(text) => Some(text),
            _ => None,
        }
    }

    /// The entry at a dotted path below this node.
    pub fn get(&self, path: &str) -> Option<&Self> {
        if path.is_empty() {
            return Some(self);
        }
        path.split('.').try_fold(self, |node, key| match &node.value {
            NodeValue::Table(table) => table.get(key),
            NodeValue::Array(items) => items.get(key.parse::<usize>().ok()?),
            _ => None,
        })
    }

    /// Where the dotted path is written: the deepest part of it that exists.
    pub fn place(&self, path: &str) -> Place {
        let mut node = self;
        for key in path.split('.').filter(|key| !key.is_empty()) {
            let next = match &node.value {
                NodeValue::Table(table) => table.get(key),
                NodeValue::Array(items) => {
                    key.parse::<usize>().ok().and_then(|index| items.get(index))
                }
                _ => None,
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node.origin.place(path)
    }

    /// Merges `over` onto `self`: tables entry by entry, everything else replaced.
    pub fn merge(&mut self, over: Self) {
        match (&mut self.value, over.value) {
            (NodeValue::Table(below), NodeValue::Table(above)) => {
                for (key, node) in above {
                    match below.get_mut(&key) {
                        Some(existing) => existing.merge(node),
                        None => {
                            below.insert(key, node);
                        }
                    }
                }
                self.origin = over.origin;
            }
            (value, replacement) => {
                *value = replacement;
                self.origin = over.origin;
            }
        }
    }

    /// Removes and returns a key of this table.
    pub fn take(&mut self, key: &str) -> Option<Self> {
        match &mut self.value {
            NodeValue::Table(table) => table.shift_remove(key),
            _ => None,
        }
    }

    /// Puts `node` below the dotted `path`, merging *under* what stands there already.
    pub fn put_under(&mut self, path: &str, node: Self) {
        let NodeValue::Table(table) = &mut self.value else { return };
        let (head, rest) =
            path.split_once('.').map_or((path, None), |(head, rest)| (head, Some(rest)));
        let origin = self.origin.clone();
        let slot = table
            .entry(head.to_owned())
            .or_insert_with(|| Self { value: NodeValue::Table(IndexMap::new()), origin });
        match rest {
            Some(rest) => slot.put_under(rest, node),
            None => {
                let above = std::mem::replace(slot, node);
                slot.merge(above);
            }
        }
    }

    /// The same tree without origins.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value;
        match &self.value {
            NodeValue::String(text) => Value::String(text.clone()),
            NodeValue::Integer(number) => Value::from(*number),
            NodeValue::Float(number) => Value::from(*number),
            NodeValue::Boolean(flag) => Value::Bool(*flag),
            NodeValue::Array(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            NodeValue::Table(table) => Value::Object(
                table.iter().map(|(key, node)| (key.clone(), node.to_json())).collect(),
            ),
        }
    }

    /// How a message names this value.
    pub fn describe(&self) -> String {
        match &self.value {
            NodeValue::String(text) => format!("the string `{text}`"),
            NodeValue::Integer(number) => format!("the integer `{number}`"),
            NodeValue::Float(number) => format!("the number `{number}`"),
            NodeValue::Boolean(flag) => format!("`{flag}`"),
            NodeValue::Array(items) => format!("an array of {}", items.len()),
            NodeValue::Table(table) => {
                let keys: Vec<_> = table.keys().map(String::as_str).collect();
                format!("a table with `{}`", keys.join("`, `"))
            }
        }
    }
}

struct Reader<'a> {
    file: &'a Arc<SourceFile>,
    problems: &'a mut Problems,
}

impl Reader<'_> {
    fn table(&mut self, table: DeTable<'_>, path: &str) -> NodeValue {
        let mut entries = IndexMap::new();
        for (key, value) in table {
            let offset = key.span().start;
            let key = key.into_inner().into_owned();
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            if let Some(value) = self.value(value.into_inner(), offset, &path) {
                let origin = Origin { file: Arc::clone(self.file), offset };
                entries.insert(key, Node { value, origin });
            }
        }
        NodeValue::Table(entries)
    }

    fn value(&mut self, value: DeValue<'_>, offset: usize, path: &str) -> Option<NodeValue> {
        match value {
            DeValue::String(text) => Some(NodeValue::String(text.into_owned())),
            DeValue::Integer(number) => {
                let parsed = i64::from_str_radix(&number.as_str().replace('_', ""), number.radix());
                if parsed.is_err() {
                    self.refuse(offset, path, "an integer of 64 bits", number.as_str());
                }
                parsed.ok().map(NodeValue::Integer)
            }
            DeValue::Float(number) => {
                let parsed = number
                    .as_str()
                    .replace('_', "")
                    .parse::<f64>()
                    .ok()
                    .filter(|float| float.is_finite());
                if parsed.is_none() {
                    self.refuse(offset, path, "a finite number", number.as_str());
                }
                parsed.map(NodeValue::Float)
            }
            DeValue::Boolean(flag) => Some(NodeValue::Boolean(flag)),
            DeValue::Datetime(date) => {
                self.refuse(
                    offset,
                    path,
                    "a string, number, boolean, array or table",
                    &date.to_string(),
                );
                None
            }
            DeValue::Array(items) => {
                let mut nodes = Vec::new();
                for (index, item) in items.into_iter().enumerate() {
                    let offset = item.span().start;
                    if let Some(value) =
                        self.value(item.into_inner(), offset, &format!("{path}.{index}"))
                    {
                        nodes.push(Node {
                            value,
                            origin: Origin { file: Arc::clone(self.file), offset },
                        });
                    }
                }
                Some(NodeValue::Array(nodes))
            }
            DeValue::Table(table) => Some(self.table(table, path)),
        }
    }

    fn refuse(&mut self, offset: usize, path: &str, expected: &str, found: &str) {
        let origin = Origin { file: Arc::clone(self.file), offset };
        self.problems.push(
            Problem::error("value-type", format!("`{path}` has a value that no slot takes"))
                .at(origin.place(path))
                .expected_found(expected, format!("`{found}`")),
        );
    }
}
