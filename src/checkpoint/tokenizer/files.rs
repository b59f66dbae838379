//! The small files beside a tokenizer: special tokens and added tokens, without building the tokenizer.
//!
//! The rules are those of the reference's `PreTrainedTokenizerBase._from_pretrained` and `TokenizersBackend.__init__`:
//!
//! * If `tokenizer_config.json` has an `added_tokens_decoder`, `special_tokens_map.json` and `added_tokens.json` are not
//!   read at all. Otherwise they count, and the former overrides `tokenizer_config.json`.
//! * Named tokens are the seven standard ones, every other `*_token` that is a text, and the entries of
//!   `extra_special_tokens` where that is an object. Where it is a list, its tokens have no names.
//! * `add_bos_token` and `add_eos_token` are ignored when there is a `tokenizer.json`: its post-processor decides.

use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use tokenizers::AddedToken;

use super::entries::Entries;
use crate::error::{Error, ErrorKind, Result};

/// The names that every tokenizer of the reference may give a token to (`SPECIAL_TOKENS_ATTRIBUTES`).
const STANDARD: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

pub(super) const TOKENIZER: &str = "tokenizer.json";
const CONFIG: &str = "tokenizer_config.json";
const SPECIAL_MAP: &str = "special_tokens_map.json";
const ADDED: &str = "added_tokens.json";

/// What the small tokenizer files of a folder say. Files that are not there say nothing.
#[derive(Debug, Clone)]
pub struct TokenizerFiles {
    directory: PathBuf,
    config: ConfigFile,
    special_map: Map<String, Value>,
    added: IndexMap<String, u32>,
    /// `added_tokens` of `tokenizer.json`, read when first asked for.
    stored: OnceLock<Vec<StoredToken>>,
    /// Where the entries of `tokenizer.json` are, found when first asked for.
    entries: OnceLock<Option<Arc<Entries>>>,
}

/// `tokenizer_config.json`. Its list of added tokens can be a megabyte of small objects, so that is read into its own type.
#[derive(Debug, Clone, Default)]
struct ConfigFile {
    /// Everything but `added_tokens_decoder`.
    values: Map<String, Value>,
    /// `added_tokens_decoder`, by id; an entry that is no token is left out.
    decoder: Option<Vec<(String, StoredToken)>>,
}

impl<'de> Deserialize<'de> for ConfigFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(ConfigVisitor)
    }
}

struct ConfigVisitor;

impl<'de> Visitor<'de> for ConfigVisitor {
    type Value = ConfigFile;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<ConfigFile, A::Error> {
        let mut file = ConfigFile::default();
        while let Some(key) = map.next_key::<String>()? {
            if key == "added_tokens_decoder" {
                let Decoder(decoder) = map.next_value()?;
                file.decoder = decoder;
            } else {
                file.values.insert(key, map.next_value()?);
            }
        }
        Ok(file)
    }
}

/// The value of `added_tokens_decoder`; what is no object says nothing.
struct Decoder(Option<Vec<(String, StoredToken)>>);

impl<'de> Deserialize<'de> for Decoder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(DecoderVisitor).map(Self)
    }
}

/// Reads an object of tokens; other values are passed over.
struct DecoderVisitor;

impl<'de> Visitor<'de> for DecoderVisitor {
    type Value = Option<Vec<(String, StoredToken)>>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object of tokens")
    }

    fn visit_map<A: MapAccess<'de>>(
        self,
        mut map: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        let mut tokens = Vec::new();
        while let Some(id) = map.next_key::<String>()? {
            if let Entry(Some(token)) = map.next_value()? {
                tokens.push((id, token));
            }
        }
        Ok(Some(tokens))
    }

    fn visit_unit<E>(self) -> std::result::Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> std::result::Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> std::result::Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> std::result::Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> std::result::Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(
        self,
        mut seq: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

/// One token: a text, or an object with `content`.
struct Entry(Option<StoredToken>);

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(EntryVisitor)
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = Entry;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a token: an object with `content`, or a text")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<Entry, A::Error> {
        StoredToken::deserialize(MapAccessDeserializer::new(map)).map(|token| Entry(Some(token)))
    }

    fn visit_str<E>(self, text: &str) -> std::result::Result<Entry, E> {
        Ok(Entry(Some(StoredToken { content: text.to_owned(), ..StoredToken::default() })))
    }

    fn visit_unit<E>(self) -> std::result::Result<Entry, E> {
        Ok(Entry(None))
    }
}

/// One entry of an `added_tokens` list, or of an `added_tokens_decoder`.
#[expect(clippy::struct_excessive_bools, reason = "the file has these flags")]
#[derive(Debug, Clone, Default, Deserialize)]
struct StoredToken {
    #[serde(default)]
    id: u32,
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    normalized: Option<bool>,
    #[serde(default)]
    special: bool,
}

impl StoredToken {
    fn token(&self) -> AddedToken {
        AddedToken::from(self.content.clone(), self.special)
            .single_word(self.single_word)
            .lstrip(self.lstrip)
            .rstrip(self.rstrip)
            .normalized(self.normalized.unwrap_or(!self.special))
    }
}

impl TokenizerFiles {
    /// Reads the small files of `directory`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Tokenizer`] if one of them is there and cannot be read or understood.
    pub fn read(directory: &Path) -> Result<Self> {
        Ok(Self {
            directory: directory.to_path_buf(),
            config: read_json(directory, CONFIG)?.unwrap_or_default(),
            special_map: read_json(directory, SPECIAL_MAP)?.unwrap_or_default(),
            added: read_json(directory, ADDED)?.unwrap_or_default(),
            stored: OnceLock::new(),
            entries: OnceLock::new(),
        })
    }

    /// The folder.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The entries of `tokenizer.json`, if it is there and plainly one with a byte-pair model.
    pub(super) fn entries(&self) -> Option<&Entries> {
        let find = || {
            let text = fs::read_to_string(self.directory.join(TOKENIZER)).ok()?;
            Entries::find(text).map(Arc::new)
        };
        self.entries.get_or_init(find).as_deref()
    }

    /// The text of a named special token (`bos_token`, `eos_token`, `pad_token`, `image_token`, …), if there is one.
    pub fn special(&self, name: &str) -> Option<String> {
        self.named().shift_remove(name).map(|token| token.content)
    }

    /// All named special tokens: the variables that a chat template may use.
    pub fn special_tokens(&self) -> IndexMap<String, String> {
        self.named().into_iter().map(|(name, token)| (name, token.content)).collect()
    }

    /// The id of `text` if it stands as one entry among the added tokens. Such a text is one token wherever it stands.
    ///
    /// The small files are asked first; only if none of them has it, `tokenizer.json` is read up to its list. `None`
    /// says nothing about the vocabulary.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        if let Some(decoder) = self.decoder() {
            let found = decoder.iter().find(|(_, token)| token.content == text);
            if let Some(id) = found.and_then(|(id, _)| id.parse().ok()) {
                return Some(id);
            }
        } else if let Some(&id) = self.added.get(text) {
            return Some(id);
        }
        self.stored().iter().find(|token| token.content == text).map(|token| token.id)
    }

    /// Whether any file of the folder lists added tokens: only then does a missing one say something.
    pub fn lists_tokens(&self) -> bool {
        self.decoder().is_some() || !self.added.is_empty() || !self.stored().is_empty()
    }

    /// What `tokenizer_config.json` states as the class of the tokenizer.
    pub fn class(&self) -> Option<&str> {
        self.config("tokenizer_class").and_then(Value::as_str)
    }

    /// A value of `tokenizer_config.json`; `null` is absent.
    pub fn config(&self, key: &str) -> Option<&Value> {
        self.config.values.get(key).filter(|value| !value.is_null())
    }

    /// The tokens that the reference adds to a tokenizer built from `tokenizer.json`, in its order.
    ///
    /// Most are there already; adding one again changes its flags. The ids in the files do not count: a token that is
    /// new gets the next id.
    pub(super) fn tokens_to_add(&self, is_known: impl Fn(&str) -> bool) -> Vec<AddedToken> {
        let mut by_id: Vec<(u32, AddedToken)> = Vec::new();
        if let Some(decoder) = self.decoder() {
            by_id.extend(
                decoder.iter().filter_map(|(id, token)| Some((id.parse().ok()?, token.token()))),
            );
        } else {
            let named = self.named();
            let unnamed = self.unnamed();
            for (text, &id) in &self.added {
                let special = STANDARD
                    .iter()
                    .any(|name| named.get(*name).is_some_and(|token| token.content == *text))
                    || unnamed.iter().any(|token| token.content == *text);
                by_id.push((id, AddedToken::from(text.clone(), special)));
            }
            // an id that both lists hold is the stored token's
            let stored = self.stored();
            by_id.retain(|(id, _)| stored.iter().all(|token| token.id != *id));
            by_id.extend(stored.iter().map(|token| (token.id, token.token())));
        }
        by_id.sort_by_key(|(id, _)| *id);
        let mut tokens: Vec<AddedToken> = by_id.into_iter().map(|(_, token)| token).collect();
        for mut token in self.named().into_values().chain(self.unnamed()) {
            if !is_known(&token.content)
                && tokens.iter().all(|known| known.content != token.content)
            {
                token.special = true;
                tokens.push(token);
            }
        }
        tokens
    }

    fn decoder(&self) -> Option<&[(String, StoredToken)]> {
        self.config.decoder.as_deref()
    }

    /// Named special tokens, the standard ones first.
    fn named(&self) -> IndexMap<String, AddedToken> {
        let mut named = IndexMap::new();
        let maps =
            [Some(&self.config.values), self.decoder().is_none().then_some(&self.special_map)];
        for map in maps.into_iter().flatten() {
            for (name, value) in map.iter().filter(|(name, _)| name.ends_with("_token")) {
                insert_token(&mut named, name, value);
            }
            for key in ["extra_special_tokens", "model_specific_special_tokens"] {
                for (name, value) in map.get(key).and_then(Value::as_object).into_iter().flatten() {
                    insert_token(&mut named, name, value);
                }
            }
        }
        named.sort_by_cached_key(|name, _| {
            STANDARD.iter().position(|standard| standard == name).unwrap_or(STANDARD.len())
        });
        named
    }

    /// Special tokens without a name.
    fn unnamed(&self) -> Vec<AddedToken> {
        let mut tokens: Vec<AddedToken> = Vec::new();
        let maps =
            [Some(&self.config.values), self.decoder().is_none().then_some(&self.special_map)];
        for map in maps.into_iter().flatten() {
            let extra = ["extra_special_tokens", "additional_special_tokens"];
            let lists = extra
                .iter()
                .filter_map(|key| map.get(*key)?.as_array().filter(|list| !list.is_empty()));
            for token in lists.take(1).flatten().filter_map(added_token) {
                if tokens.iter().all(|known| known.content != token.content) {
                    tokens.push(token);
                }
            }
        }
        tokens
    }

    fn stored(&self) -> &[StoredToken] {
        self.stored.get_or_init(|| {
            let Ok(file) = fs::File::open(self.directory.join(TOKENIZER)) else {
                return Vec::new();
            };
            let mut tokens = None;
            let visitor = AddedTokensVisitor(&mut tokens);
            // the visitor stops behind the list, which the parser reports as an error
            let reader = BufReader::with_capacity(1 << 16, file);
            let _ = serde_json::Deserializer::from_reader(reader).deserialize_map(visitor);
            tokens.unwrap_or_default()
        })
    }
}

/// A token that is a text, or an object with `content` (as `save_pretrained` writes an `AddedToken`).
fn added_token(value: &Value) -> Option<AddedToken> {
    match value {
        Value::String(text) => Some(AddedToken::from(text.clone(), true)),
        Value::Object(_) => Some(StoredToken::deserialize(value).ok()?.token()),
        _ => None,
    }
}

fn insert_token(named: &mut IndexMap<String, AddedToken>, name: &str, value: &Value) {
    if let Some(token) = added_token(value).filter(|token| !token.content.is_empty()) {
        named.insert(name.to_string(), token);
    }
}

/// A JSON file of the folder; `None` if it is not there.
fn read_json<T: for<'de> Deserialize<'de>>(directory: &Path, file: &str) -> Result<Option<T>> {
    let text = match fs::read(directory.join(file)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Error::new(ErrorKind::Tokenizer, format!("cannot read `{file}`"))
                .with_source(error));
        }
    };
    let value = serde_json::from_slice(&text);
    value.map(Some).map_err(|error| {
        Error::new(ErrorKind::Tokenizer, format!("`{file}` is not understood")).with_source(error)
    })
}

/// Finds `added_tokens` in a `tokenizer.json` and stops there: the vocabulary behind it is megabytes.
struct AddedTokensVisitor<'a>(&'a mut Option<Vec<StoredToken>>);

impl<'de> Visitor<'de> for AddedTokensVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a tokenizer")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "added_tokens" {
                *self.0 = Some(map.next_value()?);
                break;
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}
