//! A family file as written: a tree in which every value and key knows its file and line.
//!
//! Merging (`extends`, parts) happens on this tree, before anything is typed, so that a partial table merges over the
//! table it refines and every problem can still point to the line that caused it.

use std::borrow::Cow;
use std::sync::Arc;

use indexmap::IndexMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::{Place, Problem, Problems};

/// The most syntax errors shown of one file: one that is left open makes many more behind it.
const SYNTAX_LIMIT: usize = 20;
/// The longest piece of a line that a message quotes, in characters.
const QUOTE_LIMIT: usize = 60;

/// A file's name, as the user or the embedded folder gives it, and where its lines begin.
#[derive(Debug)]
struct SourceFile {
    name: String,
    /// Offsets of the line ends, ascending.
    ends: Vec<usize>,
}

impl SourceFile {
    fn new(name: &str, text: &str) -> Self {
        let ends =
            text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(offset, _)| offset);
        Self { name: name.to_owned(), ends: ends.collect() }
    }

    /// The line, counted from 1, that holds byte `offset`.
    fn line(&self, offset: usize) -> usize {
        1 + self.ends.partition_point(|end| *end < offset)
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
    /// What TOML can write and no slot takes, in words: a date, an integer beyond 64 bits, an infinity.
    Unusable(String),
}

impl Node {
    /// Parses a TOML file. All syntax errors are reported at once, one a line.
    pub fn parse(name: &str, text: &str) -> Result<Self, Problems> {
        let file = Arc::new(SourceFile::new(name, text));
        let (table, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            return Err(syntax_problems(&file, text, &errors));
        }
        let offset = table.span().start;
        let value = Reader { file: &file }.table(table.into_inner());
        Ok(Self { value, origin: Origin { file, offset } })
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
        let (node, rest) = self.descend(path);
        rest.is_empty().then_some(node)
    }

    /// Where the dotted path is written: the deepest part of it that exists.
    pub fn place(&self, path: &str) -> Place {
        self.descend(path).0.origin.place(path)
    }

    /// The deepest entry along a dotted path, and the rest of the path. Keys may hold dots themselves: the longest that
    /// is there is taken.
    fn descend<'a>(&self, path: &'a str) -> (&Self, &'a str) {
        let (mut node, mut rest) = (self, path);
        while !rest.is_empty() {
            let ends = rest.match_indices('.').map(|(dot, _)| dot).chain([rest.len()]);
            let entry = ends.collect::<Vec<_>>().into_iter().rev().find_map(|end| {
                let key = rest.get(..end)?;
                let next = match &node.value {
                    NodeValue::Table(table) => table.get(key),
                    NodeValue::Array(items) => items.get(key.parse::<usize>().ok()?),
                    _ => None,
                };
                Some((next?, rest.get(end + 1..).unwrap_or("")))
            });
            match entry {
                Some(entry) => (node, rest) = entry,
                None => break,
            }
        }
        (node, rest)
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

    /// Removes the entry at a path of plain keys.
    pub fn remove(&mut self, path: &str) {
        match path.split_once('.') {
            None => {
                self.take(path);
            }
            Some((head, rest)) => {
                if let NodeValue::Table(table) = &mut self.value
                    && let Some(node) = table.get_mut(head)
                {
                    node.remove(rest);
                }
            }
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
            NodeValue::Unusable(_) => Value::Null,
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
            NodeValue::Unusable(words) => words.clone(),
            NodeValue::Array(items) if items.is_empty() => "an empty array".to_owned(),
            NodeValue::Array(items) => format!("an array of {}", items.len()),
            NodeValue::Table(table) if table.is_empty() => "an empty table".to_owned(),
            NodeValue::Table(table) => {
                let keys: Vec<_> = table.keys().map(String::as_str).collect();
                format!("a table with `{}`", keys.join("`, `"))
            }
        }
    }
}

fn syntax_problems(file: &Arc<SourceFile>, text: &str, errors: &[toml::de::Error]) -> Problems {
    let mut found: Vec<_> = errors
        .iter()
        .map(|error| {
            let span = error.span().unwrap_or_default();
            (file.line(span.start), span, error.message().trim().replace('\n', ", "))
        })
        .collect();
    found.sort_by_key(|(line, ..)| *line);
    found.dedup_by_key(|(line, ..)| *line);
    let hidden = found.len().saturating_sub(SYNTAX_LIMIT);
    let mut problems = Problems::default();
    for (line, span, message) in found.into_iter().take(SYNTAX_LIMIT) {
        let place = Place { file: Some(file.name.clone()), key: None, line: Some(line) };
        let written = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        let in_array = message.contains("array")
            || (message.contains("quoted") && written.trim().starts_with('['));
        if in_array && begins_statement(written) {
            problems.push(
                Problem::error("toml-syntax", "an array above this line is not closed")
                    .at(place)
                    .expected_found("`]`", quote(written))
                    .with_hint("what follows cannot be read before it is"),
            );
            return problems;
        }
        problems.push(match message.as_str() {
            "duplicate key" => {
                let key = text.get(span).unwrap_or_default();
                Problem::error("toml-syntax", format!("`{key}` is written a second time"))
                    .at(place)
                    .expected_found("each key and table once", quote(written))
            }
            "recursion limit" | "cannot recurse further; max recursion depth met" => {
                Problem::error("toml-syntax", "arrays or tables are nested too deep").at(place)
            }
            // what the parser says of a bare word that begins with `i` or `n`
            "invalid float, expected `inf`" | "invalid float, expected `nan`" => {
                Problem::error("toml-syntax", "string values must be quoted")
                    .at(place)
                    .expected_found("a string in quotes", quote(written))
            }
            _ => {
                let (what, expected) =
                    message.split_once(", expected ").unwrap_or((&message, "valid TOML"));
                let expected = if expected == "nothing" { "valid TOML" } else { expected };
                Problem::error("toml-syntax", what)
                    .at(place)
                    .expected_found(expected, quote(written))
            }
        });
    }
    if hidden > 0 {
        let more = Problem::error("toml-syntax", format!("{hidden} more lines cannot be read"));
        problems.push(
            more.in_file(&file.name).with_hint("most of them may follow from the first ones"),
        );
    }
    problems
}

/// Whether a line looks like the header of a table, or like `key = …`.
fn begins_statement(line: &str) -> bool {
    let line = line.trim();
    let is_key = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.\"' ".contains(c))
    };
    let header = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
        .map(|(name, _)| name.trim_start_matches('['));
    let assigned = line.split_once('=').map(|(key, _)| key.trim());
    header.is_some_and(|name| is_key(name) && !name.starts_with(['"', '\'']))
        || assigned.is_some_and(is_key)
}

/// A line as a message quotes it.
fn quote(line: &str) -> String {
    let line = line.trim();
    match line.char_indices().nth(QUOTE_LIMIT) {
        _ if line.is_empty() => "the end of the line".to_owned(),
        Some((end, _)) => format!("`{}…`", line.get(..end).unwrap_or_default()),
        None => format!("`{line}`"),
    }
}

/// Turns the parser's tree into nodes. The parser bounds the depth.
struct Reader<'a> {
    file: &'a Arc<SourceFile>,
}

impl Reader<'_> {
    fn table(&self, table: DeTable<'_>) -> NodeValue {
        let entry = |(key, value): (Spanned<Cow<'_, str>>, Spanned<DeValue<'_>>)| {
            let node = self.node(value.into_inner(), key.span().start);
            (key.into_inner().into_owned(), node)
        };
        NodeValue::Table(table.into_iter().map(entry).collect())
    }

    fn node(&self, value: DeValue<'_>, offset: usize) -> Node {
        let value = match value {
            DeValue::String(text) => NodeValue::String(text.into_owned()),
            DeValue::Integer(number) => {
                i64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).map_or_else(
                    |_| {
                        NodeValue::Unusable(format!(
                            "the integer `{number}`, which does not fit 64 bits"
                        ))
                    },
                    NodeValue::Integer,
                )
            }
            DeValue::Float(number) => number
                .as_str()
                .replace('_', "")
                .parse::<f64>()
                .ok()
                .filter(|float| float.is_finite())
                .map_or_else(
                    || {
                        NodeValue::Unusable(format!(
                            "the number `{}`, which is not finite",
                            number.as_str()
                        ))
                    },
                    NodeValue::Float,
                ),
            DeValue::Boolean(flag) => NodeValue::Boolean(flag),
            DeValue::Datetime(date) => NodeValue::Unusable(format!("the date or time `{date}`")),
            DeValue::Array(items) => NodeValue::Array(
                items
                    .into_iter()
                    .map(|item| {
                        let offset = item.span().start;
                        self.node(item.into_inner(), offset)
                    })
                    .collect(),
            ),
            DeValue::Table(table) => self.table(table),
        };
        Node { value, origin: Origin { file: Arc::clone(self.file), offset } }
    }
}
