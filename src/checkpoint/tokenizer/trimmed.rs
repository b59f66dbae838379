//! A tokenizer cut down to a few known texts, for when only the number of their tokens is wanted.
//!
//! Most of the time that a tokenizer takes to build goes into vocabulary entries and merges that a short text never
//! meets. So the file is read in one pass: everything before the model makes a tokenizer without entries, which cuts the
//! texts into the very pieces that the model would be given; then of the model's entries only those are kept that stand
//! in one of these pieces. A token that byte-pair encoding makes, and every one on the way to it, is part of its piece,
//! and the merges that are kept keep their order, so the pieces fall into the same tokens as with the whole model.
//!
//! Ids of added tokens are not those of the file. That is why nothing but counts leaves this module's caller.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::{self, Write};

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};
use serde_json::value::RawValue;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::tokenizer::pre_tokenizer::PreTokenizedString;
use tokenizers::{OffsetReferential, OffsetType, PreTokenizer, Tokenizer};

use super::rename;

/// Texts whose pieces are longer than this together are not worth it.
const MOST_TEXT: usize = 1 << 16;
/// Where the parts of a piece are cut in the index; longer tokens are looked for in the pieces themselves.
const LONGEST: usize = 256;
/// An id that no vocabulary has.
const HIGHEST: u32 = 1 << 24;
/// The model of a tokenizer without entries.
const NO_MODEL: &str = r#"{"type":"BPE","vocab":{},"merges":[]}"#;

/// The tokenizer of a `tokenizer.json`, good for counting the tokens of `texts` and for nothing else.
///
/// `names` are tokens to rename. `dress` makes of the tokenizer what the caller wants around its model. `None` if the file
/// is not one that this can be sure of: its model is another one, or chooses by chance, or writes tokens otherwise than
/// they stand in the text, or parts of the file come in another order than the library writes. A file with merges that
/// lead nowhere is not found out if the texts do not meet them.
pub(super) fn trim(
    json: &str,
    names: &[(&str, &str)],
    texts: &[&str],
    dress: impl FnOnce(&mut Tokenizer) -> Option<()>,
) -> Option<Tokenizer> {
    let mut parser = serde_json::Deserializer::from_str(json);
    let trimmed = parser.deserialize_map(FileVisitor { names, texts, dress }).ok()?;
    parser.end().ok()?;
    Some(trimmed)
}

/// Reads the whole file.
struct FileVisitor<'a, F> {
    names: &'a [(&'a str, &'a str)],
    texts: &'a [&'a str],
    dress: F,
}

impl<'de, F: FnOnce(&mut Tokenizer) -> Option<()>> Visitor<'de> for FileVisitor<'_, F> {
    type Value = Tokenizer;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tokenizer")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tokenizer, A::Error> {
        let mut frame = String::from("{");
        while let Some(Text(key)) = map.next_key()? {
            if key != "model" {
                let value: &RawValue = map.next_value()?;
                let _ = write!(frame, "{}:{},", serde_json::Value::from(key), value.get());
                continue;
            }
            let _ = write!(frame, r#""model":{NO_MODEL}}}"#);
            let frame = rename::rename_strings(&frame, self.names);
            let mut tokenizer =
                Tokenizer::from_bytes(frame.as_bytes()).map_err(A::Error::custom)?;
            (self.dress)(&mut tokenizer).ok_or_else(unsure)?;
            let pieces = pieces(&tokenizer, self.texts).ok_or_else(unsure)?;
            let parts = Parts::of(&pieces);
            let model = map.next_value_seed(ModelSeed { names: self.names, parts: &parts })?;
            if map.next_key::<IgnoredAny>()?.is_some() {
                return Err(unsure());
            }
            tokenizer.with_model(model);
            return Ok(tokenizer);
        }
        Err(unsure())
    }
}

/// Why a file is given up; nobody reads it.
fn unsure<E: serde::de::Error>() -> E {
    E::custom("not a file that can be trimmed")
}

/// What the model is given of `texts`, each piece once.
fn pieces(tokenizer: &Tokenizer, texts: &[&str]) -> Option<BTreeSet<String>> {
    let mut pieces = BTreeSet::new();
    let mut length = 0;
    for text in texts {
        let mut cut: PreTokenizedString = tokenizer
            .get_added_vocabulary()
            .extract_and_normalize(tokenizer.get_normalizer(), text);
        if let Some(pre_tokenizer) = tokenizer.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut cut).ok()?;
        }
        for (piece, _, tokens) in cut.get_splits(OffsetReferential::Normalized, OffsetType::None) {
            if tokens.is_none() && pieces.insert(piece.to_string()) {
                length += piece.len();
            }
        }
        if length > MOST_TEXT {
            return None;
        }
    }
    Some(pieces)
}

/// The parts of some pieces of text.
struct Parts<'a> {
    pieces: &'a BTreeSet<String>,
    /// The rest of a piece from each of its characters on, cut to [`LONGEST`] bytes, sorted.
    rests: Vec<&'a str>,
    /// Which two bytes stand beside each other: one bit for each first and second.
    pairs: Vec<[u64; 4]>,
}

impl<'a> Parts<'a> {
    fn of(pieces: &'a BTreeSet<String>) -> Self {
        let mut rests = Vec::new();
        let mut pairs = vec![[0; 4]; 256];
        for piece in pieces {
            for (start, _) in piece.char_indices() {
                let rest = piece.get(start..).unwrap_or_default();
                rests.push(rest.get(..rest.floor_char_boundary(LONGEST)).unwrap_or_default());
            }
            for pair in piece.as_bytes().windows(2) {
                if let &[first, second] = pair {
                    pairs[usize::from(first)][usize::from(second >> 6)] |= 1 << (second & 63);
                }
            }
        }
        rests.sort_unstable();
        rests.dedup();
        Self { pieces, rests, pairs }
    }

    fn contain(&self, token: &str) -> bool {
        // most tokens fall at their first two bytes or their last two
        let (Some((head, _)), Some((_, tail))) =
            (token.as_bytes().split_first_chunk(), token.as_bytes().split_last_chunk())
        else {
            return self.find(token);
        };
        self.pair(*head) && self.pair(*tail) && self.find(token)
    }

    /// Whether `left` and `right` stand beside each other; `joined` is scratch space.
    fn contain_joined(&self, left: &str, right: &str, joined: &mut String) -> bool {
        if let (Some(&last), Some(&first)) = (left.as_bytes().last(), right.as_bytes().first())
            && !self.pair([last, first])
        {
            return false;
        }
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        self.contain(joined)
    }

    fn pair(&self, [first, second]: [u8; 2]) -> bool {
        self.pairs[usize::from(first)][usize::from(second >> 6)] >> (second & 63) & 1 == 1
    }

    fn find(&self, token: &str) -> bool {
        if token.len() + 4 > LONGEST {
            return self.pieces.iter().any(|piece| piece.contains(token));
        }
        let at = self.rests.partition_point(|rest| *rest < token);
        self.rests.get(at).is_some_and(|rest| rest.starts_with(token))
    }
}

/// Reads the model and keeps what stands in the parts.
struct ModelSeed<'a> {
    names: &'a [(&'a str, &'a str)],
    parts: &'a Parts<'a>,
}

impl ModelSeed<'_> {
    fn renamed<'t>(&self, text: Cow<'t, str>) -> Cow<'t, str> {
        match self.names.iter().find(|(old, _)| *old == text) {
            Some((_, new)) => Cow::Owned((*new).to_string()),
            None => text,
        }
    }
}

impl<'de> DeserializeSeed<'de> for ModelSeed<'_> {
    type Value = BPE;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<BPE, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ModelSeed<'_> {
    type Value = BPE;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a byte-pair model")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BPE, A::Error> {
        let mut builder = BPE::builder();
        let mut bpe = false;
        let mut byte_fallback = false;
        let mut unknown = None;
        let mut vocabulary = None;
        let mut merges = None;
        while let Some(Text(key)) = map.next_key()? {
            match &*key {
                "type" => bpe = map.next_value::<Text<'_>>()?.0 == "BPE",
                "dropout" => {
                    if map.next_value::<Option<IgnoredAny>>()?.is_some() {
                        return Err(unsure());
                    }
                }
                "continuing_subword_prefix" | "end_of_word_suffix" => {
                    let affix: Option<Text<'_>> = map.next_value()?;
                    if affix.is_some_and(|Text(affix)| !affix.is_empty()) {
                        return Err(unsure());
                    }
                }
                // what is kept depends on it
                "unk_token" if vocabulary.is_none() && merges.is_none() => {
                    let token: Option<Text<'_>> = map.next_value()?;
                    unknown = token.map(|Text(token)| self.renamed(token).into_owned());
                }
                "fuse_unk" => {
                    builder = builder.fuse_unk(map.next_value::<Option<_>>()?.unwrap_or(false));
                }
                "byte_fallback" => {
                    byte_fallback = map.next_value::<Option<_>>()?.unwrap_or(false);
                    builder = builder.byte_fallback(byte_fallback);
                }
                "ignore_merges" => {
                    let ignored = map.next_value::<Option<_>>()?.unwrap_or(false);
                    builder = builder.ignore_merges(ignored);
                }
                "vocab" if vocabulary.is_none() => {
                    let seed = VocabularySeed { model: &self, unknown: unknown.as_deref() };
                    vocabulary = Some(map.next_value_seed(seed)?);
                }
                "merges" if merges.is_none() => {
                    let seed = MergesSeed { model: &self, unknown: unknown.as_deref() };
                    merges = Some(map.next_value_seed(seed)?);
                }
                _ => return Err(unsure()),
            }
        }
        let (true, Some(vocabulary), Some(merges)) = (bpe, vocabulary, merges) else {
            return Err(unsure());
        };
        if byte_fallback && merges.of_bytes {
            return Err(unsure());
        }
        let known = |token: &str| vocabulary.contains_key(token);
        // a character that has no token at all is left out, and those beside it may merge
        let spelled = |character: char| {
            let mut bytes = [0; 4];
            let text = character.encode_utf8(&mut bytes);
            known(text)
                || byte_fallback && text.bytes().all(|byte| known(&format!("<{byte:#04X}>")))
        };
        let mut characters = self.parts.pieces.iter().flat_map(|piece| piece.chars());
        if unknown.is_none() && !characters.all(spelled) {
            return Err(unsure());
        }
        // the library need not survive merges that lead nowhere
        let sound = |(left, right): &(String, String)| {
            known(left) && known(right) && known(&format!("{left}{right}"))
        };
        if !merges.kept.iter().all(sound) {
            return Err(unsure());
        }
        if let Some(unknown) = unknown {
            builder = builder.unk_token(unknown);
        }
        builder.vocab_and_merges(vocabulary, merges.kept).build().map_err(A::Error::custom)
    }
}

/// Whether this is how a byte is spelled that no entry has: `<0x0A>`.
fn is_byte(token: &str) -> bool {
    token.len() == 6 && token.starts_with("<0x")
}

/// Reads the vocabulary.
struct VocabularySeed<'a> {
    model: &'a ModelSeed<'a>,
    unknown: Option<&'a str>,
}

impl<'de> DeserializeSeed<'de> for VocabularySeed<'_> {
    type Value = Vocab;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vocab, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for VocabularySeed<'_> {
    type Value = Vocab;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a vocabulary")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocab, A::Error> {
        let mut kept = Vocab::default();
        let mut seen: Vec<u64> = Vec::new();
        let mut count = 0;
        let mut highest = None;
        while let Some((Text(token), id)) = map.next_entry::<_, u32>()? {
            let (word, bit) = (id as usize / 64, id % 64);
            if id > HIGHEST {
                return Err(unsure());
            }
            if word >= seen.len() {
                seen.resize(word + 1, 0);
            }
            if seen[word] >> bit & 1 == 1 {
                return Err(unsure());
            }
            seen[word] |= 1 << bit;
            count += 1;
            highest = highest.max(Some(id));
            let token = self.model.renamed(token);
            // what a renamed token is called says that it is a token, wherever it stands
            if self.model.names.iter().any(|(_, new)| *new == token)
                || is_byte(&token)
                || self.unknown == Some(&*token)
                || self.model.parts.contain(&token)
            {
                kept.insert(token.into_owned(), id);
            }
        }
        // with gaps between them, the library could give an added token the id of another
        if highest.map_or(0, |highest| highest + 1) == count { Ok(kept) } else { Err(unsure()) }
    }
}

/// What is kept of the merges.
struct Merges {
    kept: Vec<(String, String)>,
    /// Whether one of them takes a spelled byte, which need not stand in the text.
    of_bytes: bool,
}

/// Reads the merges.
struct MergesSeed<'a> {
    model: &'a ModelSeed<'a>,
    unknown: Option<&'a str>,
}

impl<'de> DeserializeSeed<'de> for MergesSeed<'_> {
    type Value = Merges;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Merges, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for MergesSeed<'_> {
    type Value = Merges;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("merges")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Merges, A::Error> {
        let mut merges = Merges { kept: Vec::new(), of_bytes: false };
        let mut as_pairs = None;
        let mut joined = String::new();
        while let Some(merge) = list.next_element::<Merge<'_>>()? {
            let is_pair = matches!(merge, Merge::Pair(..));
            if *as_pairs.get_or_insert(is_pair) != is_pair {
                return Err(unsure());
            }
            let (left, right) = match merge {
                Merge::Pair(left, right) => (self.model.renamed(left), self.model.renamed(right)),
                Merge::Text(text) => match self.model.renamed(text) {
                    Cow::Borrowed(text) => {
                        let (left, right) = split(text).ok_or_else(unsure)?;
                        (Cow::Borrowed(left), Cow::Borrowed(right))
                    }
                    Cow::Owned(text) => {
                        let (left, right) = split(&text).ok_or_else(unsure)?;
                        (Cow::Owned(left.to_string()), Cow::Owned(right.to_string()))
                    }
                },
            };
            let unknown = |token: &str| self.unknown == Some(token);
            if unknown(&left) || unknown(&right) {
                return Err(unsure());
            }
            merges.of_bytes |= is_byte(&left) || is_byte(&right);
            if self.model.parts.contain_joined(&left, &right, &mut joined) {
                merges.kept.push((left.into_owned(), right.into_owned()));
            }
        }
        Ok(merges)
    }
}

/// One merge, as either version of the file writes it.
enum Merge<'de> {
    Text(Cow<'de, str>),
    Pair(Cow<'de, str>, Cow<'de, str>),
}

impl<'de> Deserialize<'de> for Merge<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MergeVisitor;

        impl<'de> Visitor<'de> for MergeVisitor {
            type Value = Merge<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a merge")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Merge<'de>, E> {
                Ok(Merge::Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Merge<'de>, E> {
                Ok(Merge::Text(Cow::Owned(text.to_string())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<Merge<'de>, A::Error> {
                let (left, right) = (pair.next_element()?, pair.next_element()?);
                let (Some(Text(left)), Some(Text(right))) = (left, right) else {
                    return Err(unsure());
                };
                match pair.next_element::<IgnoredAny>()? {
                    None => Ok(Merge::Pair(left, right)),
                    Some(_) => Err(unsure()),
                }
            }
        }

        deserializer.deserialize_any(MergeVisitor)
    }
}

/// The two tokens of a merge that is one text. A text with more spaces, or that names a version, is no merge.
fn split(merge: &str) -> Option<(&str, &str)> {
    let (left, right) = merge.split_once(' ')?;
    (!right.contains(' ') && !left.starts_with("#version")).then_some((left, right))
}

/// A text, borrowed unless it is written with escapes.
struct Text<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_string())))
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str = r#"{"type":"BPE","dropout":null,"unk_token":"?","byte_fallback":true,
        "vocab":{"?":0,"<0x21>":1,"a":2,"b":3,"c":4,"ab":5,"abc":6,"bc":7,"<m>":8},
        "merges":[["b","c"],["a","b"],["ab","c"]]}"#;

    fn trimmed(model: &str, texts: &[&str]) -> Option<Tokenizer> {
        let json = format!(r#"{{"version":"1.0","added_tokens":[],"model":{model}}}"#);
        trim(&json, &[("<m>", "\u{E000}")], texts, |_| Some(()))
    }

    fn kept(texts: &[&str]) -> Vec<String> {
        let mut kept: Vec<_> = trimmed(MODEL, texts).unwrap().get_vocab(true).into_keys().collect();
        kept.sort_unstable();
        kept
    }

    fn count(tokenizer: &Tokenizer, text: &str) -> usize {
        tokenizer.encode_fast(text, false).unwrap().len()
    }

    #[test]
    fn what_the_texts_do_not_hold_is_dropped() {
        assert_eq!(kept(&[]), ["<0x21>", "?", "\u{E000}"]);
        assert_eq!(kept(&["ab", "ca"]), ["<0x21>", "?", "a", "ab", "b", "c", "\u{E000}"]);
        let tokenizer = trimmed(MODEL, &["abc!", "ab?x"]).unwrap();
        // the first merge comes first, as in the whole model
        assert_eq!((count(&tokenizer, "abc!"), count(&tokenizer, "ab?x")), (3, 3));
    }

    #[test]
    fn merges_may_be_texts() {
        let model = MODEL.replace(r#"[["b","c"],["a","b"],["ab","c"]]"#, r#"["a b", "ab c"]"#);
        assert_eq!(count(&trimmed(&model, &["abcab"]).unwrap(), "abcab"), 2);
        assert!(trimmed(&model.replace("ab c", "ab  c"), &["abcab"]).is_none());
        assert!(trimmed(&model.replace(r#""ab c""#, r#"["ab","c"]"#), &["abcab"]).is_none());
    }

    #[test]
    fn doubtful_models_are_left_alone() {
        for (old, new) in [
            (r#""BPE""#, r#""Unigram""#),
            (r#""type":"BPE","#, ""),
            ("null", "0.1"),
            (r#""byte_fallback""#, r#""continuing_subword_prefix":"x","byte_fallback""#),
            // the unknown token must be known in time
            (r#""unk_token":"?","#, ""),
            (r#"["b","c"]"#, r#"["b","?"]"#),
            (r#"["b","c"]"#, r#"["b","<0x21>"]"#),
            (r#"["b","c"]"#, r#"["b","c","a"]"#),
            // merges that lead nowhere, two tokens of one id, a gap in the ids
            (r#""bc":7"#, r#""bb":7"#),
            (r#""bc":7"#, r#""bc":6"#),
            (r#""bc":7"#, r#""bc":70"#),
        ] {
            assert!(MODEL.contains(old));
            assert!(trimmed(&MODEL.replacen(old, new, 1), &["abc x"]).is_none(), "{old} {new}");
        }
        assert!(trimmed(MODEL, &["abc x"]).is_some());
        assert!(trim(r#"{"model":{}}"#, &[], &[], |_| Some(())).is_none());
        assert!(trim("{", &[], &[], |_| Some(())).is_none());
    }

    #[test]
    fn long_tokens_are_found() {
        let long = "ab".repeat(300);
        let pieces = BTreeSet::from([long.clone(), "é▁x".to_string()]);
        let parts = Parts::of(&pieces);
        assert!(parts.contain(&long) && parts.contain(&long[1..400]) && parts.contain("▁x"));
        assert!(!parts.contain(&long.replace("ab", "ba")) && !parts.contain("▁é"));
        assert!(parts.contain("é") && parts.contain("") && !parts.contain("y"));
    }
}
