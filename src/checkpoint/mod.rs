//! A checkpoint folder in the published layout: config files, tokenizer, weights. Nothing is read before it is needed.

mod files;
pub mod tokenizer;
pub mod weights;

use std::path::Path;

use serde_json::Value;

pub use self::files::{ConfigFile, FileState, Files, Source};
use crate::descriptor::family::Header;
use crate::descriptor::{Library, RawDescriptor};
use crate::error::{Error, ErrorKind, Result};

/// An opened folder.
#[derive(Debug)]
pub struct Checkpoint {
    files: Files,
}

impl Checkpoint {
    /// Opens a folder. Its files are read when they are asked for.
    ///
    /// # Errors
    /// [`ErrorKind::Checkpoint`] if there is no such folder.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let name = folder.display();
        match folder.metadata() {
            Ok(metadata) if metadata.is_dir() => Ok(Self { files: Files::new(folder) }),
            Ok(_) => Err(Error::new(ErrorKind::Checkpoint, format!("`{name}` is not a folder"))
                .with_hint("a checkpoint is a folder with config.json and its companions")),
            Err(error) => Err(Error::new(ErrorKind::Checkpoint, format!("cannot open `{name}`"))
                .with_source(error)),
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.files.folder()
    }

    /// The config files.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// config.json.
    pub fn config(&self) -> &ConfigFile {
        self.files.source(Source::Config)
    }

    /// How the weights are quantised, if config.json says that they are.
    pub fn quantisation(&self) -> Option<String> {
        let config = self.config();
        let found = config
            .get("quantization_config")
            .or_else(|| config.get("text_config.quantization_config"))?;
        let method = ["quant_method", "quant_type", "quantization"]
            .iter()
            .find_map(|key| found.get(key)?.as_str());
        Some(method.unwrap_or("an unnamed method").to_owned())
    }

    /// The built-in family that this checkpoint belongs to: of those whose `match` holds, the one that matches on most
    /// keys.
    ///
    /// # Errors
    /// [`ErrorKind::NoFamily`] if none or several match equally well; the candidates are listed.
    pub fn find_family(&self) -> Result<RawDescriptor> {
        let config = self.config();
        match &config.state {
            FileState::Missing => {
                return Err(Error::new(
                    ErrorKind::NoFamily,
                    format!("`{}` has no config.json", self.folder().display()),
                )
                .with_hint("name the family with `--family NAME`"));
            }
            FileState::Broken(reason) => {
                return Err(Error::new(
                    ErrorKind::NoFamily,
                    format!("config.json cannot be used: {reason}"),
                ));
            }
            FileState::Object(_) => {}
        }
        let mut best: Vec<(usize, &str)> = Vec::new();
        let mut known = Vec::new();
        for name in Library::families() {
            let header = match Library::header(name) {
                Some(header) => header,
                None => RawDescriptor::load(name)?.header()?,
            };
            known.extend(
                model_types(&header).into_iter().map(|model_type| format!("{name} ({model_type})")),
            );
            let Some(score) = score(&header, config) else { continue };
            match best.first().map(|(top, _)| *top) {
                Some(top) if score < top => {}
                Some(top) if score == top => best.push((score, name)),
                _ => best = vec![(score, name)],
            }
        }
        let count = best.len();
        match (count, best.pop()) {
            (1, Some((_, name))) => RawDescriptor::load(name),
            (0, _) | (_, None) => {
                let found = config.get("model_type").and_then(Value::as_str).map_or_else(
                    || "config.json states no `model_type`".to_owned(),
                    |model_type| format!("no family matches model_type `{model_type}`"),
                );
                Err(Error::new(ErrorKind::NoFamily, found)
                    .with_hint(format!("there are {}", known.join(", "))))
            }
            (_, Some((_, last))) => {
                let mut names: Vec<_> = best.iter().map(|(_, name)| *name).collect();
                names.push(last);
                Err(Error::new(
                    ErrorKind::NoFamily,
                    format!("several families match: `{}`", names.join("`, `")),
                )
                .with_hint("name one with `--family NAME`"))
            }
        }
    }
}

/// The values of `model_type` that a family takes.
pub fn model_types(header: &Header) -> Vec<String> {
    let mut types: Vec<String> = Vec::new();
    for alternative in &header.matches {
        for model_type in alternative.get("model_type").iter().flat_map(|values| values.as_slice())
        {
            if !types.contains(model_type) {
                types.push(model_type.clone());
            }
        }
    }
    types
}

/// How many keys of the best alternative hold; `None` if no alternative holds as a whole.
fn score(header: &Header, config: &ConfigFile) -> Option<usize> {
    header
        .matches
        .iter()
        .filter(|alternative| {
            !alternative.is_empty()
                && alternative.iter().all(|(path, allowed)| {
                    let found = config.get(path).and_then(Value::as_str);
                    found.is_some_and(|found| allowed.as_slice().iter().any(|value| value == found))
                })
        })
        .map(indexmap::IndexMap::len)
        .max()
}
