//! The tokenizer of a checkpoint, with media markers that only a template can write.
//!
//! [`TokenizerFiles`] answers what the small files say in microseconds. [`Tokenizer`] is the whole thing, built from
//! `tokenizer.json` the way the reference's `TokenizersBackend` does, with protected markers renamed ([`Sentinels`]).

mod entries;
mod files;
mod rename;
mod scanner;
mod sentinel;
mod stream;
mod trimmed;

use std::fs;
use std::ops::Range;
use std::path::Path;

pub use files::TokenizerFiles;
pub use sentinel::Sentinels;
pub use stream::DecodeStream;

use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence;
use tokenizers::decoders::strip::Strip;
use tokenizers::normalizers::replace::Replace;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::{DecoderWrapper, NormalizerWrapper};

use crate::descriptor::prompt::Pipeline;
use crate::error::{Error, ErrorKind, Result};

/// A tokenizer ready for use.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    sentinels: Sentinels,
}

/// One token of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedToken {
    /// Its id.
    pub id: u32,
    /// The bytes of the text that it stands for, some tokenizers leaving out white space at its edges; `None` if it was added
    /// to the text.
    pub place: Option<Range<usize>>,
}

impl Tokenizer {
    /// Builds the tokenizer of `directory` with its stored pipeline; `protected` are the media markers.
    ///
    /// # Errors
    ///
    /// As for [`Tokenizer::load_with`].
    pub fn load(directory: &Path, protected: &[String]) -> Result<Self> {
        Self::load_with(directory, protected, Pipeline::Stored)
    }

    /// Builds the tokenizer of `directory` around its model; `protected` are the media markers.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Tokenizer`] if there is no `tokenizer.json`, or it or one of the small files is not understood.
    pub fn load_with(directory: &Path, protected: &[String], pipeline: Pipeline) -> Result<Self> {
        let files = TokenizerFiles::read(directory)?;
        let json = read(directory)?;
        Self::from_json(&json, Sentinels::new(protected)?, pipeline, &files)
    }

    fn from_json(
        json: &str,
        sentinels: Sentinels,
        pipeline: Pipeline,
        files: &TokenizerFiles,
    ) -> Result<Self> {
        let renamed = rename::rename_strings(json, &names(&sentinels));
        let mut inner = build(json, &renamed)?;
        dress(&mut inner, &sentinels, pipeline, files)?;
        Ok(Self { inner, sentinels })
    }

    /// The ids of `text`, in which sentinels stand for markers. Markers that are written out are ordinary text.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Tokenizer`] if the text holds the sentinel of a marker that is not one token, or the tokenizer
    /// fails.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>> {
        self.check_sentinels(text)?;
        let encoding = self.inner.encode_fast(text, add_special_tokens).map_err(|error| {
            Error::new(ErrorKind::Tokenizer, "the text cannot be tokenised").with_source(error)
        })?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The same with the part of the text that each token stands for. Tokens that are added to the text stand for none.
    ///
    /// # Errors
    ///
    /// As for [`Tokenizer::encode`].
    pub fn encode_placed(&self, text: &str, add_special_tokens: bool) -> Result<Vec<PlacedToken>> {
        self.check_sentinels(text)?;
        let encoding = self.inner.encode(text, add_special_tokens).map_err(|error| {
            Error::new(ErrorKind::Tokenizer, "the text cannot be tokenised").with_source(error)
        })?;
        let offsets = encoding.get_offsets().iter().zip(encoding.get_special_tokens_mask());
        let places = offsets.map(|(&(start, end), mask)| (*mask == 0).then_some(start..end));
        let tokens = encoding.get_ids().iter().zip(places);
        let tokens: Vec<_> = tokens.map(|(&id, place)| PlacedToken { id, place }).collect();
        self.check_kept(text, &tokens)?;
        Ok(tokens)
    }

    /// Makes sure that every sentinel of the text has become its token: flags of an added token can forbid it beside a word.
    fn check_kept(&self, text: &str, tokens: &[PlacedToken]) -> Result<()> {
        for marker in self.sentinels.markers() {
            let sentinel = self.sentinels.mark(marker);
            let written = text.matches(sentinel).count();
            let id = self.inner.token_to_id(sentinel);
            if written > 0 && tokens.iter().filter(|token| Some(token.id) == id).count() != written
            {
                let message =
                    format!("the tokenizer does not keep `{marker}` apart from the text beside it");
                return Err(Error::new(ErrorKind::Tokenizer, message));
            }
        }
        Ok(())
    }

    /// Refuses a text with the sentinel of a marker that is not one token.
    fn check_sentinels(&self, text: &str) -> Result<()> {
        for marker in self.sentinels.markers() {
            let sentinel = self.sentinels.mark(marker);
            if self.inner.token_to_id(sentinel).is_none() && text.contains(sentinel) {
                let message = format!("the marker `{marker}` is not one token of this tokenizer");
                return Err(Error::new(ErrorKind::Tokenizer, message));
            }
        }
        Ok(())
    }

    /// The text of `ids`. Markers are written out.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Tokenizer`] if the decoder fails. Ids outside the vocabulary give no text, as in the reference.
    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String> {
        let text = self.inner.decode(ids, skip_special_tokens).map_err(|error| {
            Error::new(ErrorKind::Tokenizer, "the tokens cannot be turned into text")
                .with_source(error)
        })?;
        Ok(self.sentinels.restore_markers(text))
    }

    /// Text from tokens that arrive one by one.
    pub fn decode_stream(&self, skip_special_tokens: bool) -> DecodeStream<'_> {
        DecodeStream::new(self, skip_special_tokens)
    }

    /// The id of one token, a marker included.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(self.sentinels.mark(token))
    }

    /// The token of an id, as the vocabulary spells it.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id).map(|token| self.sentinels.restore_markers(token))
    }

    /// How many tokens there are, added ones included.
    pub fn vocabulary_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// What stands for `marker` in a text to encode: its sentinel, or `marker` itself if it is not protected.
    pub fn mark<'a>(&'a self, marker: &'a str) -> &'a str {
        self.sentinels.mark(marker)
    }

    /// The protected markers and what stands for them.
    pub fn sentinels(&self) -> &Sentinels {
        &self.sentinels
    }
}

/// The number of tokens of each of `texts`, in which sentinels stand for markers; with every text comes whether special
/// tokens are added to it.
///
/// These are the lengths of what [`Tokenizer::encode`] returns. For a few short texts they come much sooner, since most of
/// the vocabulary is not looked at where that can make no difference.
///
/// # Errors
///
/// As for [`Tokenizer::load_with`] and [`Tokenizer::encode`].
pub fn count_tokens(
    files: &TokenizerFiles,
    sentinels: &Sentinels,
    pipeline: Pipeline,
    texts: &[(&str, bool)],
) -> Result<Vec<usize>> {
    let trimmed = files.entries().and_then(|entries| {
        let texts: Vec<&str> = texts.iter().map(|(text, _)| *text).collect();
        trimmed::trim(entries, &names(sentinels), &texts, |inner| {
            dress(inner, sentinels, pipeline, files).ok()
        })
    });
    let tokenizer = match trimmed {
        Some(inner) => Tokenizer { inner, sentinels: sentinels.clone() },
        None => {
            let json = read(files.directory())?;
            Tokenizer::from_json(&json, sentinels.clone(), pipeline, files)?
        }
    };
    texts.iter().map(|(text, special)| Ok(tokenizer.encode(text, *special)?.len())).collect()
}

/// The text of the `tokenizer.json` of a folder.
fn read(directory: &Path) -> Result<String> {
    let path = directory.join(files::TOKENIZER);
    fs::read_to_string(&path).map_err(|error| {
        Error::new(ErrorKind::Tokenizer, format!("cannot read `{}`", path.display()))
            .with_source(error)
            .with_hint("a tokenizer is needed; other tokenizer files are not read")
    })
}

/// Markers and what they are renamed to.
fn names(sentinels: &Sentinels) -> Vec<(&str, &str)> {
    sentinels.markers().map(|marker| (marker, sentinels.mark(marker))).collect()
}

/// Sets what the small files and the caller say about a tokenizer that was read.
fn dress(
    inner: &mut tokenizers::Tokenizer,
    sentinels: &Sentinels,
    pipeline: Pipeline,
    files: &TokenizerFiles,
) -> Result<()> {
    let failed = |message: &str| Error::new(ErrorKind::Tokenizer, message);
    inner.with_padding(None);
    inner
        .with_truncation(None)
        .map_err(|error| failed("truncation cannot be unset").with_source(error))?;
    apply_pipeline(inner, pipeline, files)?;
    let mut tokens = files.tokens_to_add(|text| {
        inner.get_added_vocabulary().get_vocab().contains_key(sentinels.mark(text))
    });
    for token in &mut tokens {
        token.content = sentinels.mark(&token.content).to_string();
    }
    inner
        .add_tokens(tokens)
        .map_err(|error| failed("the added tokens do not fit").with_source(error))?;
    let split = files.config("split_special_tokens").and_then(serde_json::Value::as_bool);
    inner.set_encode_special_tokens(split.unwrap_or(false));
    Ok(())
}

/// The tokenizer of a `tokenizer.json`, read from its renamed text.
fn build(json: &str, renamed: &str) -> Result<tokenizers::Tokenizer> {
    parse(renamed).or_else(|error| {
        // only renaming may have cost it merges; a file that is faulty as it stands is not to be mended
        let sound = renamed != json && parse(json).is_ok();
        let mended = sound.then(|| rename::drop_lost_merges(renamed)).flatten();
        mended.and_then(|mended| parse(&mended).ok()).ok_or_else(|| {
            Error::new(ErrorKind::Tokenizer, "`tokenizer.json` is not understood")
                .with_source(error)
        })
    })
}

/// The library's own reading. It panics on some faulty models, such as a merge longer than every entry of the vocabulary.
fn parse(json: &str) -> Result<tokenizers::Tokenizer, tokenizers::Error> {
    std::panic::catch_unwind(|| tokenizers::Tokenizer::from_bytes(json.as_bytes()))
        .unwrap_or_else(|_| Err("its model contradicts itself".into()))
}

fn apply_pipeline(
    inner: &mut tokenizers::Tokenizer,
    pipeline: Pipeline,
    files: &TokenizerFiles,
) -> Result<()> {
    let failed = |error: tokenizers::Error| {
        Error::new(ErrorKind::Tokenizer, "the tokenizer's pipeline cannot be replaced")
            .with_source(error)
    };
    let flag = |key: &str| files.config(key).and_then(serde_json::Value::as_bool);
    match pipeline {
        Pipeline::Stored => {}
        Pipeline::ByteLevel => {
            let prefix = flag("add_prefix_space").unwrap_or(false);
            inner.with_normalizer(None::<NormalizerWrapper>).map_err(failed)?;
            inner.with_pre_tokenizer(Some(ByteLevel::new(prefix, true, true)));
            inner.with_decoder(Some(ByteLevel::new(true, true, true)));
        }
        Pipeline::Metaspace => {
            let prefix = flag("add_prefix_space").unwrap_or(true);
            let scheme = match (prefix, flag("legacy").unwrap_or(false)) {
                (false, _) => PrependScheme::Never,
                (true, true) => PrependScheme::Always,
                (true, false) => PrependScheme::First,
            };
            let mut steps = vec![
                DecoderWrapper::from(Replace::new("▁", " ").map_err(failed)?),
                DecoderWrapper::from(ByteFallback::default()),
                DecoderWrapper::from(Fuse::default()),
            ];
            if prefix {
                steps.push(DecoderWrapper::from(Strip::new(' ', 1, 0)));
            }
            inner.with_normalizer(None::<NormalizerWrapper>).map_err(failed)?;
            inner.with_pre_tokenizer(Some(Metaspace::new('▁', scheme, false)));
            inner.with_decoder(Some(Sequence::new(steps)));
        }
    }
    Ok(())
}
