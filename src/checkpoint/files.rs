//! The JSON files of a checkpoint folder, read on demand and looked up by dotted paths.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;

/// The places that a descriptor looks values up in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// config.json.
    Config,
    /// The image processor's settings: `image_processor` of processor_config.json where it has one (files saved by
    /// transformers 5), else preprocessor_config.json (`ImageProcessingMixin.get_image_processor_dict`).
    Preprocessor,
    /// processor_config.json.
    Processor,
    /// generation_config.json.
    Generation,
    /// tokenizer_config.json.
    Tokenizer,
}

impl Source {
    /// All sources by the prefix that names them in family files.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("config", Self::Config),
        ("preprocessor", Self::Preprocessor),
        ("processor", Self::Processor),
        ("generation", Self::Generation),
        ("tokenizer", Self::Tokenizer),
    ];

    fn index(self) -> usize {
        match self {
            Self::Config => 0,
            Self::Preprocessor => 1,
            Self::Processor => 2,
            Self::Generation => 3,
            Self::Tokenizer => 4,
        }
    }
}

/// What became of reading a file.
#[derive(Debug, Clone)]
pub enum FileState {
    /// There is no such file.
    Missing,
    /// It is there but cannot be used; the reason.
    Broken(String),
    /// Its top-level object.
    Object(Value),
}

/// One source: the file it comes from and what is in it.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    /// The file's name in the folder.
    pub name: String,
    /// A path inside the file at which the source begins, with a trailing dot, or nothing.
    pub prefix: &'static str,
    /// What became of it.
    pub state: FileState,
}

impl ConfigFile {
    /// The value at a dotted path; JSON null counts as absent. The empty path is the whole object.
    pub fn get(&self, path: &str) -> Option<&Value> {
        self.raw(path).filter(|value| !value.is_null())
    }

    /// Whether the value at a dotted path is an explicit null.
    pub fn is_null(&self, path: &str) -> bool {
        self.raw(path).is_some_and(Value::is_null)
    }

    fn raw(&self, path: &str) -> Option<&Value> {
        let FileState::Object(root) = &self.state else { return None };
        let mut value = root;
        if !path.is_empty() {
            for key in path.split('.') {
                value = match value {
                    Value::Array(items) => items.get(key.parse::<usize>().ok()?)?,
                    other => other.as_object()?.get(key)?,
                };
            }
        }
        Some(value)
    }

    /// `FILE: PATH`, as provenance is printed.
    pub fn label(&self, path: &str) -> String {
        format!("{}: {}{path}", self.name, self.prefix)
    }
}

/// The config files of one folder. Nothing is read before it is asked for.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    sources: [OnceLock<ConfigFile>; 5],
}

impl Files {
    /// The files of `folder`.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), sources: Default::default() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// One source.
    pub fn source(&self, source: Source) -> &ConfigFile {
        let read = || match source {
            Source::Config => self.read("config.json"),
            Source::Processor => self.read("processor_config.json"),
            Source::Generation => self.read("generation_config.json"),
            Source::Tokenizer => self.read("tokenizer_config.json"),
            Source::Preprocessor => {
                let processor = self.source(Source::Processor);
                match (&processor.state, processor.get("image_processor")) {
                    (_, Some(nested @ Value::Object(_))) => ConfigFile {
                        name: processor.name.clone(),
                        prefix: "image_processor.",
                        state: FileState::Object(nested.clone()),
                    },
                    // a broken file might hold the settings that would win
                    (FileState::Broken(_), _) => processor.clone(),
                    _ => self.read("preprocessor_config.json"),
                }
            }
        };
        self.sources[source.index()].get_or_init(read)
    }

    fn read(&self, name: &str) -> ConfigFile {
        let path = self.folder.join(name);
        let state = match fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice::<Value>(&bytes) {
                Ok(object @ Value::Object(_)) => FileState::Object(object),
                Ok(_) => FileState::Broken("it does not hold a JSON object".to_owned()),
                Err(error) => FileState::Broken(format!("it is not JSON: {error}")),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => FileState::Missing,
            Err(error) => FileState::Broken(error.to_string()),
        };
        ConfigFile { name: name.to_owned(), prefix: "", state }
    }
}
