//! Family files: from TOML text to a typed description that is free of any checkpoint.
//!
//! A [`RawDescriptor`] is what the file says, merged over what it extends. Its `use` tables may pick parts by a config
//! value; [`RawDescriptor::describe`] merges the picked parts and types the result, reporting every problem at once.

pub mod block;
pub mod config;
pub mod expression;
pub mod family;
pub mod image;
mod library;
mod node;
mod schema;
pub mod slot;
pub mod strip;

use std::path::Path;

use indexmap::IndexMap;

pub use self::family::Family;
pub use self::library::{Library, nearest};
pub use self::node::{Node, NodeValue, Origin};
pub use self::schema::family_schema;
use crate::error::{Error, ErrorKind, Result};
use crate::problem::{Place, Problem, Problems};

/// The tables at which a part may be mounted, and the part's own table that goes there.
const MOUNTS: [(&str, &str); 2] = [("image.tower", "tower"), ("decoder", "decoder")];
const EXTENDS_LIMIT: usize = 8;

/// A family file as written: spanned, merged over what it extends, parts not yet picked.
#[derive(Debug, Clone)]
pub struct RawDescriptor {
    name: String,
    root: Node,
    library: Library,
    picks: Vec<Pick>,
}

/// A choice of a part by a config value.
#[derive(Debug, Clone)]
pub struct Pick {
    /// The table that the part is mounted at.
    pub mount: &'static str,
    part_table: &'static str,
    /// The path in config.json that decides; `None` where there is one part only.
    pub path: Option<String>,
    /// What each value picks, in order.
    pub parts: IndexMap<String, String>,
    /// What stands where the path is absent.
    pub otherwise: Option<String>,
}

/// A family, merged and typed, with a way back to the lines it came from.
#[derive(Debug, Clone)]
pub struct Descriptor {
    /// The name: the stem of its file.
    pub name: String,
    /// The typed tables.
    pub family: Family,
    source: Node,
}

impl RawDescriptor {
    /// Loads a family: a path to a TOML file, or the name of an embedded one.
    pub fn load(family: &str) -> Result<Self> {
        let path = Path::new(family);
        let is_path = path.extension().is_some_and(|extension| extension == "toml")
            || family.contains(['/', '\\']);
        let loaded = if is_path {
            let folder = path.parent().unwrap_or_else(|| Path::new(""));
            let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or(family).to_owned();
            let library = Library::beside(folder);
            library::read_file(path).and_then(|root| Self::merge(name, root, library))
        } else {
            let library = Library::embedded();
            library.read(family).and_then(|root| Self::merge(family.to_owned(), root, library))
        };
        loaded.map_err(|problems| descriptor_error(family, problems))
    }

    fn merge(name: String, mut root: Node, library: Library) -> Result<Self, Problems> {
        let valid_name =
            !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        if !valid_name {
            return Err(Problem::error("family-name", format!("`{name}` is not a family name"))
                .at(root.place(""))
                .expected_found("a file stem of lower-case letters and digits", format!("`{name}`"))
                .into());
        }
        extend(&mut root, &library, 0)?;
        let mut picks = Vec::new();
        let mut problems = Problems::default();
        for (mount, part_table) in MOUNTS {
            let path = format!("{mount}.use");
            if let Some(node) = root.get(&path).cloned() {
                match read_pick(&node, &path, mount, part_table) {
                    Ok(pick) => picks.push(pick),
                    Err(problem) => problems.push(problem),
                }
            }
        }
        if problems.is_empty() { Ok(Self { name, root, library, picks }) } else { Err(problems) }
    }

    /// The stem of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the dotted key path is written.
    pub fn place(&self, key: &str) -> Place {
        self.root.place(key)
    }

    /// The choices that config values make.
    pub fn picks(&self) -> &[Pick] {
        &self.picks
    }

    /// The family's header alone, without looking at anything else.
    pub fn header(&self) -> Result<family::Header> {
        let json = self.root.get("family").map(Node::to_json).unwrap_or_default();
        serde_json::from_value(json).map_err(|_| {
            let problems =
                self.describe(&self.first_parts()).err().map(|error| error.problems().clone());
            descriptor_error(&self.name, problems.unwrap_or_default())
        })
    }

    /// The default parts: of every pick, what stands where its path is absent, or the first.
    pub fn first_parts(&self) -> Vec<String> {
        let first =
            |pick: &Pick| pick.otherwise.clone().or_else(|| pick.parts.values().next().cloned());
        self.picks.iter().map(|pick| first(pick).unwrap_or_default()).collect()
    }

    /// Every combination of parts.
    pub fn combinations(&self) -> Vec<Vec<String>> {
        let mut combinations = vec![Vec::new()];
        for pick in &self.picks {
            let mut parts: Vec<_> = pick.parts.values().cloned().collect();
            parts.sort();
            parts.dedup();
            combinations = combinations
                .into_iter()
                .flat_map(|chosen: Vec<String>| {
                    parts.iter().map(move |part| {
                        let mut chosen = chosen.clone();
                        chosen.push(part.clone());
                        chosen
                    })
                })
                .collect();
        }
        combinations
    }

    /// Merges `parts` (one path per pick, in order) and types the result. All problems are reported at once.
    pub fn describe(&self, parts: &[String]) -> Result<Descriptor> {
        self.describe_checked(parts).map_err(|problems| descriptor_error(&self.name, problems))
    }

    fn describe_checked(&self, parts: &[String]) -> Result<Descriptor, Problems> {
        let mut root = self.root.clone();
        for (pick, part) in self.picks.iter().zip(parts) {
            let mut node = self.library.read(&format!("parts/{part}"))?;
            extend(&mut node, &self.library, 0)?;
            if let Some(mut mounted) = node.take(pick.part_table) {
                mounted.take("use");
                root.put_under(pick.mount, mounted);
            }
            let NodeValue::Table(tables) = node.value else { continue };
            for (key, table) in tables {
                root.put_under(&key, table);
            }
        }
        for (mount, _) in MOUNTS {
            remove(&mut root, &format!("{mount}.use"));
        }
        let problems = schema::validate(&root, &family_schema());
        if !problems.is_empty() {
            return Err(problems);
        }
        match serde_json::from_value::<Family>(root.to_json()) {
            Ok(family) => {
                let descriptor = Descriptor { name: self.name.clone(), family, source: root };
                let problems = descriptor.references();
                if problems.is_empty() { Ok(descriptor) } else { Err(problems) }
            }
            Err(error) => {
                Err(Problem::error("value-type", error.to_string()).at(root.place("")).into())
            }
        }
    }
}

impl Descriptor {
    /// Where the dotted key path is written.
    pub fn place(&self, key: &str) -> Place {
        self.source.place(key)
    }

    /// The merged tree.
    pub fn source(&self) -> &Node {
        &self.source
    }

    /// Problems that the types cannot show: expressions and strips that do not parse, names of things that are not there.
    fn references(&self) -> Problems {
        let mut problems = Problems::default();
        let family = &self.family;
        let mut expression = |text: &str, key: &str| {
            if let Err(error) = expression::Expression::parse(text) {
                let mut problem = Problem::error("expression", error.message).at(self.place(key));
                problem.hint = error.hint;
                problems.push(problem);
            }
        };
        for (name, text) in &family.floor {
            expression(text, &format!("floor.{name}"));
        }
        for (name, text) in &family.require {
            expression(text, &format!("require.{name}"));
        }
        for (section, values) in &family.config {
            for (name, entry) in &values.values {
                if let config::Entry::Expression(text) = entry {
                    expression(text, &format!("config.{section}.{name}"));
                }
            }
        }
        let mut missing = |kind: &str, name: &str, key: &str, known: Vec<&str>| {
            if !known.contains(&name) {
                let mut problem =
                    Problem::error("name-unknown", format!("there is no {kind} `{name}`"))
                        .at(self.place(key))
                        .expected_found(
                            format!("one of `{}`", known.join("`, `")),
                            format!("`{name}`"),
                        );
                if let Some(near) = nearest(name, known) {
                    problem = problem.with_hint(format!("did you mean `{near}`?"));
                }
                problems.push(problem);
            }
        };
        let tokens = || family.tokens.keys().map(String::as_str).collect::<Vec<_>>();
        let stacks = || family.stacks.keys().map(String::as_str).collect::<Vec<_>>();
        missing("stack", &family.decoder.stack, "decoder.stack", stacks());
        for (name, stack) in &family.stacks {
            if let Some(rope) = &stack.attention.rope {
                let ropes = family.rope.keys().map(String::as_str).collect();
                missing("rope", rope, &format!("stacks.{name}.attention.rope"), ropes);
            }
        }
        let Some(image) = &family.image else { return problems };
        missing("token", &image.marker, "image.marker", tokens());
        if let Some(fill) = &image.fill {
            missing("token", fill, "image.fill", tokens());
        }
        missing("stack", &image.tower.stack, "image.tower.stack", stacks());
        let mut malformed = Vec::new();
        for (key, text) in [("image.strip", &image.strip), ("image.frame", &image.frame)] {
            match strip::Strip::parse(text) {
                Ok(strip) => {
                    for token in strip.tokens() {
                        missing("token", &token, key, tokens());
                    }
                    for literal in strip.literals() {
                        missing(
                            "literal",
                            &literal,
                            key,
                            image.literals.keys().map(String::as_str).collect(),
                        );
                    }
                    for vector in strip.vectors() {
                        missing("vector", &vector, key, Vec::new());
                    }
                }
                Err(error) => {
                    malformed.push(Problem::error("strip", error.message).at(self.place(key)))
                }
            }
        }
        problems.extend(malformed);
        if !family.floor.contains_key("image") {
            problems.push(
                Problem::error("key-missing", "key `image` is missing")
                    .at(self.place("floor.image"))
                    .expected_found("an expression for the tokens of one image", "nothing"),
            );
        }
        problems
    }
}

fn remove(root: &mut Node, path: &str) {
    let (head, rest) = path.split_once('.').map_or((path, None), |(head, rest)| (head, Some(rest)));
    match rest {
        None => {
            root.take(head);
        }
        Some(rest) => {
            if let NodeValue::Table(table) = &mut root.value
                && let Some(node) = table.get_mut(head)
            {
                remove(node, rest);
            }
        }
    }
}

fn extend(root: &mut Node, library: &Library, depth: usize) -> Result<(), Problems> {
    let Some(base) = root.take("extends") else { return Ok(()) };
    let place = base.origin.place("extends");
    let Some(path) = base.as_str() else {
        return Err(Problem::error("value-type", "`extends` does not take this value")
            .at(place)
            .expected_found("the name of a family or `parts/…`", base.describe())
            .into());
    };
    if depth >= EXTENDS_LIMIT {
        return Err(Problem::error("extends-cycle", "`extends` goes in a circle, or too deep")
            .at(place)
            .into());
    }
    let mut below = library.read(path).map_err(|problems| {
        let mut placed = Problems::default();
        placed.extend(problems.into_iter().map(|mut problem| {
            if problem.place.line.is_none() {
                problem.place = place.clone();
            }
            problem
        }));
        placed
    })?;
    extend(&mut below, library, depth + 1)?;
    let above = std::mem::replace(root, below);
    root.merge(above);
    Ok(())
}

fn read_pick(
    node: &Node,
    path: &str,
    mount: &'static str,
    part_table: &'static str,
) -> Result<Pick, Problem> {
    let wrong = |at: &Node, key: &str, expected: &str| {
        Problem::error("value-type", format!("`{key}` does not take this value"))
            .at(at.origin.place(key))
            .expected_found(expected, at.describe())
    };
    if let Some(part) = node.as_str() {
        let parts = IndexMap::from([(String::new(), part.to_owned())]);
        return Ok(Pick { mount, part_table, path: None, parts, otherwise: Some(part.to_owned()) });
    }
    let Some(table) = node.as_table() else {
        return Err(wrong(node, path, "a part's path, or { pick = …, parts = { … }, or = … }"));
    };
    let text = |key: &str| -> Result<Option<String>, Problem> {
        table
            .get(key)
            .map(|value| {
                value
                    .as_str()
                    .map(str::to_owned)
                    .ok_or_else(|| wrong(value, &format!("{path}.{key}"), "a string"))
            })
            .transpose()
    };
    let Some(pick) = text("pick")? else {
        return Err(wrong(node, path, "`pick`, a path in config.json"));
    };
    let mut parts = IndexMap::new();
    match table.get("parts").and_then(Node::as_table) {
        Some(entries) => {
            for (value, part) in entries {
                let Some(part) = part.as_str() else {
                    return Err(wrong(part, &format!("{path}.parts.{value}"), "a part's path"));
                };
                parts.insert(value.clone(), part.to_owned());
            }
        }
        None => return Err(wrong(node, path, "`parts`, a table from values to parts")),
    }
    let otherwise = match text("or")? {
        Some(value) => match parts.get(&value) {
            Some(part) => Some(part.clone()),
            None => return Err(wrong(node, &format!("{path}.or"), "a key of `parts`")),
        },
        None => None,
    };
    Ok(Pick { mount, part_table, path: Some(pick), parts, otherwise })
}

fn descriptor_error(family: &str, problems: Problems) -> Error {
    let count = problems.len();
    let what = if count == 1 { "a problem".to_owned() } else { format!("{count} problems") };
    Error::new(ErrorKind::Descriptor, format!("family `{family}` has {what}"))
        .with_problems(problems)
}
