//! The JSON files of a checkpoint folder, read on demand and looked up by dotted paths.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The places that a descriptor looks values up in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// config.json.
    Config,
    /// The image processor's settings: `image_processor` of processor_config.json where it has one (files saved by
    /// transformers 5), else preprocessor_config.json (`ImageProcessingMixin.get_image_processor_dict`).
    Preprocessor,
    /// The feature extractor's settings: `feature_extractor` (or `audio_processor`) of processor_config.json where it has
    /// one, else preprocessor_config.json (`FeatureExtractionMixin.get_feature_extractor_dict`).
    Extractor,
    /// processor_config.json.
    Processor,
    /// generation_config.json.
    Generation,
    /// tokenizer_config.json.
    Tokenizer,
}

impl Source {
    /// All sources by the prefix that names them in family files.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("config", Self::Config),
        ("preprocessor", Self::Preprocessor),
        ("extractor", Self::Extractor),
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
            Self::Extractor => 5,
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

/// A config file without its list of added tokens: that can be a megabyte, and no family looks settings up in it.
struct Settings(Value);

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SettingsVisitor).map(Self)
    }
}

struct SettingsVisitor;

impl<'de> Visitor<'de> for SettingsVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if key == "added_tokens_decoder" {
                map.next_value::<IgnoredAny>()?;
            } else {
                values.insert(key, map.next_value()?);
            }
        }
        Ok(Value::Object(values))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

/// The config files of one folder. Nothing is read before it is asked for.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    sources: [OnceLock<ConfigFile>; 6],
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
            Source::Preprocessor => self.settings(&[("image_processor", "image_processor.")]),
            Source::Extractor => self.settings(&[
                ("feature_extractor", "feature_extractor."),
                ("audio_processor", "audio_processor."),
            ]),
        };
        self.sources[source.index()].get_or_init(read)
    }

    /// Settings under the first of `keys` (each with its prefix) that processor_config.json has, else those of
    /// preprocessor_config.json; never keys of both. A key that holds `null` hides the keys after it.
    fn settings(&self, keys: &[(&str, &'static str)]) -> ConfigFile {
        let processor = self.source(Source::Processor);
        let stated = keys.iter().find(|(key, _)| processor.raw(key).is_some());
        let nested = stated.and_then(|(key, prefix)| Some((processor.get(key)?, *prefix)));
        match (&processor.state, nested) {
            (_, Some((nested @ Value::Object(_), prefix))) => ConfigFile {
                name: processor.name.clone(),
                prefix,
                state: FileState::Object(nested.clone()),
            },
            // a broken file might hold the settings that would win
            (FileState::Broken(_), _) => processor.clone(),
            _ => self.read("preprocessor_config.json"),
        }
    }

    fn read(&self, name: &str) -> ConfigFile {
        let path = self.folder.join(name);
        let state = match fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice(&bytes).map(|Settings(value)| value) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The label of `rate` in the extractor's settings, as the reference would read it.
    fn rate(name: &str, files: &[(&str, &str)]) -> Option<(String, i64)> {
        let folder = std::env::temp_dir().join(format!("files_{}_{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (file, text) in files {
            fs::write(folder.join(file), text).unwrap();
        }
        let read = Files::new(&folder);
        let source = read.source(Source::Extractor);
        let found =
            source.get("rate").and_then(Value::as_i64).map(|rate| (source.label("rate"), rate));
        fs::remove_dir_all(&folder).unwrap();
        found
    }

    #[test]
    fn extractor_settings() {
        let (processor, preprocessor) = ("processor_config.json", "preprocessor_config.json");
        let own = (preprocessor, r#"{"rate": 1}"#);
        let stated = |label: &str, rate| Some((label.to_owned(), rate));
        let of_file = || stated("preprocessor_config.json: rate", 1);
        assert_eq!(rate("a", &[own]), of_file());
        assert_eq!(
            rate("b", &[own, (processor, r#"{"image_processor": {"rate": 2}}"#)]),
            of_file()
        );
        let nested =
            (processor, r#"{"feature_extractor": {"rate": 3}, "audio_processor": {"rate": 4}}"#);
        assert_eq!(
            rate("c", &[own, nested]),
            stated("processor_config.json: feature_extractor.rate", 3)
        );
        let renamed = (processor, r#"{"audio_processor": {"rate": 4}}"#);
        assert_eq!(
            rate("d", &[own, renamed]),
            stated("processor_config.json: audio_processor.rate", 4)
        );
        assert_eq!(rate("e", &[own, (processor, r#"{"feature_extractor": {}}"#)]), None);
        let null = (processor, r#"{"feature_extractor": null, "audio_processor": {"rate": 4}}"#);
        assert_eq!(rate("f", &[own, null]), of_file());
        assert_eq!(rate("g", &[own, (processor, "{")]), None);
        assert_eq!(rate("h", &[]), None);
    }
}
