//! A family file as written, and the step to a typed family.

use std::path::Path;

use super::family::{Family, Header};
use super::library::{self, Library};
use super::node::{Node, NodeValue};
use super::part::{self, MOUNTS, Pick};
use super::{Descriptor, Layout, validate};
use crate::error::{Error, ErrorKind, Result};
use crate::problem::{Place, Problem, Problems};

/// A family file as written: spanned, merged over what it extends, parts not yet picked.
#[derive(Debug, Clone)]
pub struct RawDescriptor {
    name: String,
    root: Node,
    library: Library,
    picks: Vec<Pick>,
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
            library::read_file(path)
                .and_then(|root| Self::merge(name, root, Library::beside(folder)))
        } else {
            let library = Library::embedded();
            library.read(family).and_then(|root| Self::merge(family.to_owned(), root, library))
        };
        loaded.map_err(|problems| descriptor_error(family, problems))
    }

    fn merge(name: String, root: Node, library: Library) -> Result<Self, Problems> {
        let written = root.clone();
        let mut root = root;
        let mut problems = Problems::default();
        let valid_name =
            !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        if !valid_name {
            let place = Place { line: None, ..root.place("") };
            problems.push(
                Problem::error("family-name", format!("`{name}` is not a family name"))
                    .at(place)
                    .expected_found(
                        "a file stem of lower-case letters and digits",
                        format!("`{name}`"),
                    ),
            );
        }
        problems.extend(library.extend(&mut root, &name).err().into_iter().flatten());
        let (picks, found) = Pick::all(&root, &library);
        problems.extend(found);
        if problems.is_empty() {
            return Ok(Self { name, root, library, picks });
        }
        // the family is not whole, but what is wrong with this file's own shape can be told
        add_new(&mut problems, validate::written(&written));
        Err(problems)
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
    pub fn header(&self) -> Result<Header> {
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
            let mut node = part::read(&self.library, part)?;
            if let Some(mounted) = node.take(pick.part_table) {
                root.put_under(pick.mount, mounted);
            }
            let NodeValue::Table(tables) = node.value else { continue };
            for (key, table) in tables {
                root.put_under(&key, table);
            }
        }
        for (mount, _) in MOUNTS {
            root.remove(&format!("{mount}.use"));
        }
        let (mut problems, mut reads) = validate::merged(&root);
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut layouts = Vec::new();
        let written = root.get("tensors.layouts").and_then(Node::as_table).cloned();
        for (name, above) in written.unwrap_or_default() {
            let mut merged = root.clone();
            merged.remove("tensors.layouts");
            merged.merge(above);
            let (found, more) = validate::merged(&merged);
            reads.extend(more);
            if !found.is_empty() {
                add_new(&mut problems, found);
                continue;
            }
            let family = typed(&merged)?;
            layouts.push(Layout { name, family, source: merged });
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Descriptor {
            name: self.name.clone(),
            family: typed(&root)?,
            layouts,
            source: root,
            raw: Box::new(self.clone()),
            reads,
        })
    }
}

fn typed(root: &Node) -> Result<Family, Problems> {
    serde_json::from_value(root.to_json())
        .map_err(|error| Problem::error("value-type", error.to_string()).at(root.place("")).into())
}

fn add_new(problems: &mut Problems, more: Problems) {
    for problem in more {
        if !problems.iter().any(|known| known.code == problem.code && known.place == problem.place)
        {
            problems.push(problem);
        }
    }
}

/// The error that stands for `problems`, which are put in the order of their lines, file by file.
fn descriptor_error(family: &str, problems: Problems) -> Error {
    let mut files: Vec<Option<String>> = Vec::new();
    let mut ordered: Vec<_> = problems
        .into_iter()
        .map(|problem| {
            let file =
                files.iter().position(|file| *file == problem.place.file).unwrap_or_else(|| {
                    files.push(problem.place.file.clone());
                    files.len() - 1
                });
            (file, problem.place.line, problem)
        })
        .collect();
    ordered.sort_by_key(|(file, line, _)| (*file, line.unwrap_or(usize::MAX)));
    let mut problems = Problems::default();
    problems.extend(ordered.into_iter().map(|(.., problem)| problem));
    let count = problems.len();
    let what = if count == 1 { "1 problem".to_owned() } else { format!("{count} problems") };
    Error::new(ErrorKind::Descriptor, format!("family `{family}` has {what}"))
        .with_problems(problems)
}
