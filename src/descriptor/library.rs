//! Where family files come from: a folder, or the ones embedded in the program.

use std::fs;
use std::path::{Path, PathBuf};

use super::node::Node;
use crate::problem::{Problem, Problems};

/// Every file below `families/`: path without extension, text.
const EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/families.rs"));

/// A place that family files and parts are read from.
///
/// A file named by a path finds its base and its parts beside it first (`parts/…` below its folder), then among the
/// embedded ones.
#[derive(Debug, Clone, Default)]
pub struct Library {
    folder: Option<PathBuf>,
}

impl Library {
    /// The embedded files alone.
    pub fn embedded() -> Self {
        Self::default()
    }

    /// A folder in front of the embedded files.
    pub fn beside(folder: &Path) -> Self {
        Self { folder: Some(folder.to_owned()) }
    }

    /// The names of the embedded families, sorted.
    pub fn families() -> Vec<&'static str> {
        EMBEDDED.iter().map(|(name, _)| *name).filter(|name| !name.contains('/')).collect()
    }

    /// Reads and parses `path` (without extension): a family's name, or `parts/…`.
    pub fn read(&self, path: &str) -> Result<Node, Problems> {
        if let Some(folder) = &self.folder {
            let file = folder.join(format!("{path}.toml"));
            if file.is_file() {
                return read_file(&file);
            }
        }
        match EMBEDDED.iter().find(|(name, _)| *name == path) {
            Some((name, text)) => Node::parse(&format!("families/{name}.toml"), text),
            None => {
                let prefix = if path.starts_with("parts/") { "parts/" } else { "" };
                let known: Vec<_> = EMBEDDED
                    .iter()
                    .map(|(name, _)| *name)
                    .filter(|name| name.starts_with("parts/") != prefix.is_empty())
                    .collect();
                let mut problem =
                    Problem::error("file-missing", format!("there is no family file `{path}`"));
                if let Some(near) = nearest(path, known.iter().copied()) {
                    problem = problem.with_hint(format!("did you mean `{near}`?"));
                }
                Err(problem
                    .expected_found(format!("one of `{}`", known.join("`, `")), format!("`{path}`"))
                    .into())
            }
        }
    }
}

/// Reads and parses one file.
pub(super) fn read_file(path: &Path) -> Result<Node, Problems> {
    let name = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(text) => Node::parse(&name, &text),
        Err(error) => {
            Err(Problem::error("file-unreadable", format!("cannot read `{name}`: {error}"))
                .in_file(name)
                .into())
        }
    }
}

/// The candidate that `word` was probably meant to be.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(score, _)| *score > 0.8)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, candidate)| candidate)
}
