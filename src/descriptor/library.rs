//! Where family files come from: a folder, or the ones embedded in the program.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::family::Header;
use super::node::Node;
use super::validate::one_of;
use crate::problem::{Problem, Problems};

/// Every file below `families/`: path without extension, text.
const EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/families.rs"));

/// The most files that one `extends` chain may have below its first.
const EXTENDS_LIMIT: usize = 8;
/// The largest family file, in bytes. The built-in ones have a hundredth of that.
const SIZE_LIMIT: u64 = 1 << 20;

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

    /// The `[family]` table of an embedded family, read without the rest of the file: finding a checkpoint's family asks
    /// all of them. `None` if the table does not stand by itself.
    pub fn header(name: &str) -> Option<Header> {
        let (_, text) = EMBEDDED.iter().find(|(family, _)| *family == name)?;
        let (_, table) = text.split_once("\n[family]\n")?;
        // the next table begins at the start of a line; a value that does so is indented
        let table = table.split_once("\n[").map_or(table, |(table, _)| table);
        serde_json::from_value(Node::parse(name, table).ok()?.to_json()).ok()
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
                let is_part = path.starts_with("parts/");
                let known: Vec<_> = EMBEDDED
                    .iter()
                    .map(|(name, _)| *name)
                    .filter(|name| name.starts_with("parts/") == is_part)
                    .collect();
                let what = if is_part { "part" } else { "family" };
                let expected = match &self.folder {
                    Some(_) => format!("a file beside this one, or a built-in {what}"),
                    None => one_of(&known),
                };
                let problem =
                    Problem::error("file-missing", format!("there is no {what} `{path}`"))
                        .expected_found(expected, format!("`{path}`"));
                Err(did_you_mean(problem, path, &known).into())
            }
        }
    }

    /// Merges `root`, read from `path`, over what it extends.
    pub fn extend(&self, root: &mut Node, path: &str) -> Result<(), Problems> {
        self.extend_along(root, &mut vec![path.to_owned()])
    }

    fn extend_along(&self, root: &mut Node, chain: &mut Vec<String>) -> Result<(), Problems> {
        let Some(base) = root.take("extends") else { return Ok(()) };
        let place = base.origin.place("extends");
        let Some(path) = base.as_str() else {
            return Err(Problem::error("value-type", "`extends` does not take this value")
                .at(place)
                .expected_found("the name of a family, or `parts/…`", base.describe())
                .into());
        };
        if chain.iter().any(|known| known == path) || chain.len() > EXTENDS_LIMIT {
            chain.push(path.to_owned());
            return Err(Problem::error("extends-cycle", "`extends` never ends")
                .at(place)
                .expected_found(
                    format!("at most {EXTENDS_LIMIT} files, each once"),
                    format!("`{}`", chain.join("` → `")),
                )
                .into());
        }
        let mut below = self.read(path).map_err(|problems| {
            let mut placed = Problems::default();
            placed.extend(problems.into_iter().map(|problem| {
                if problem.place.file.is_some() { problem } else { problem.at(place.clone()) }
            }));
            placed
        })?;
        chain.push(path.to_owned());
        self.extend_along(&mut below, chain)?;
        let above = std::mem::replace(root, below);
        root.merge(above);
        Ok(())
    }
}

/// Reads and parses one file.
pub(super) fn read_file(path: &Path) -> Result<Node, Problems> {
    let name = path.display().to_string();
    let unreadable = |message: String| Problem::error("file-unreadable", message).in_file(&name);
    let bytes = File::open(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(SIZE_LIMIT + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    match bytes {
        Err(error) => Err(unreadable(format!("cannot read `{name}`: {error}")).into()),
        Ok(bytes) if bytes.len() as u64 > SIZE_LIMIT => {
            Err(unreadable(format!("`{name}` is too large for a family file"))
                .expected_found(format!("at most {SIZE_LIMIT} bytes"), "more")
                .into())
        }
        Ok(bytes) => match str::from_utf8(&bytes) {
            Ok(text) => Node::parse(&name, text),
            Err(error) => {
                let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
                let byte = bytes.get(valid.len()).copied().unwrap_or_default();
                let mut problem = unreadable(format!("`{name}` is not UTF-8")).expected_found(
                    "text in UTF-8",
                    format!("byte 0x{byte:02x} at offset {}", valid.len()),
                );
                problem.place.line = Some(valid.split(|byte| *byte == b'\n').count());
                Err(problem.into())
            }
        },
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

/// Adds the candidate that `word` was probably meant to be as a hint.
pub(super) fn did_you_mean(problem: Problem, word: &str, candidates: &[&str]) -> Problem {
    match nearest(word, candidates.iter().copied()) {
        Some(near) => problem.with_hint(format!("did you mean `{near}`?")),
        None => problem,
    }
}
