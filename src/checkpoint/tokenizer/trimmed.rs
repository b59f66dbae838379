//! A tokenizer cut down to a few known texts, for when only the number of their tokens is wanted.
//!
//! Most of the time that a tokenizer takes to build goes into vocabulary entries and merges that a short text never
//! meets. So everything before the model makes a tokenizer without entries, which cuts the texts into the very pieces that
//! the model would be given; then of the model's entries only those are kept that stand in one of these pieces. A token that byte-pair encoding makes, and every one on the way to it, is part of its piece,
//! and the merges that are kept keep their order, so the pieces fall into the same tokens as with the whole model.
//!
//! Ids of added tokens are not those of the file. That is why nothing but counts leaves this module's caller.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;

use serde::de::DeserializeOwned;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::tokenizer::pre_tokenizer::PreTokenizedString;
use tokenizers::{OffsetReferential, OffsetType, PreTokenizer, Tokenizer};

use super::entries::{Entries, Merge, Part};
use super::rename;

/// Texts whose pieces are longer than this together are not worth it.
const MOST_TEXT: usize = 1 << 16;
/// Where the parts of a piece are cut in the index; longer tokens are looked for in the pieces themselves.
const LONGEST: usize = 256;
/// The model of a tokenizer without entries.
const NO_MODEL: &str = r#"{"type":"BPE","vocab":{},"merges":[]}"#;

/// The tokenizer of a `tokenizer.json`, good for counting the tokens of `texts` and for nothing else.
///
/// `names` are tokens to rename. `dress` makes of the tokenizer what the caller wants around its model. `None` if the file
/// is not one that this can be sure of: its model is another one, or chooses by chance, or writes tokens otherwise than
/// they stand in the text, or parts of the file come in another order than the library writes. A file with merges that
/// lead nowhere is not found out if the texts do not meet them.
pub(super) fn trim(
    entries: &Entries,
    names: &[(&str, &str)],
    texts: &[&str],
    dress: impl FnOnce(&mut Tokenizer) -> Option<()>,
) -> Option<Tokenizer> {
    let mut frame = String::from("{");
    for (key, value) in entries.before() {
        let _ = write!(frame, "{}:{value},", serde_json::Value::from(key));
    }
    let _ = write!(frame, r#""model":{NO_MODEL}}}"#);
    let frame = rename::rename_strings(&frame, names);
    let mut tokenizer = Tokenizer::from_bytes(frame.as_bytes()).ok()?;
    dress(&mut tokenizer)?;
    let pieces = pieces(&tokenizer, texts)?;
    let parts = Parts::of(&pieces);
    tokenizer.with_model(ModelReader { entries, names, parts: &parts }.read()?);
    Some(tokenizer)
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
struct ModelReader<'a> {
    entries: &'a Entries,
    names: &'a [(&'a str, &'a str)],
    parts: &'a Parts<'a>,
}

impl ModelReader<'_> {
    fn renamed<'t>(&self, text: Cow<'t, str>) -> Cow<'t, str> {
        match self.names.iter().find(|(old, _)| *old == text) {
            Some((_, new)) => Cow::Owned((*new).to_string()),
            None => text,
        }
    }

    /// A small value.
    fn setting<T: DeserializeOwned>(&self, range: &Range<usize>) -> Option<T> {
        serde_json::from_str(self.entries.value(range)).ok()
    }

    fn read(&self) -> Option<BPE> {
        let mut builder = BPE::builder();
        let mut bpe = false;
        let mut byte_fallback = false;
        let mut unknown = None;
        let mut vocabulary = None;
        let mut merges = None;
        for part in self.entries.model() {
            let (key, value) = match part {
                Part::Setting(key, value) => (key.as_str(), value),
                Part::Vocabulary => {
                    vocabulary = Some(self.vocabulary(unknown.as_deref())?);
                    continue;
                }
                Part::Merges => {
                    merges = Some(self.merges(unknown.as_deref())?);
                    continue;
                }
            };
            match key {
                "type" => bpe = self.setting::<String>(value)? == "BPE",
                "dropout" => {
                    if self.setting::<Option<f64>>(value)?.is_some() {
                        return None;
                    }
                }
                "continuing_subword_prefix" | "end_of_word_suffix" => {
                    let affix: Option<String> = self.setting(value)?;
                    if affix.is_some_and(|affix| !affix.is_empty()) {
                        return None;
                    }
                }
                // what is kept depends on it
                "unk_token" if vocabulary.is_none() && merges.is_none() => {
                    let token: Option<String> = self.setting(value)?;
                    unknown = token.map(|token| self.renamed(token.into()).into_owned());
                }
                "fuse_unk" => {
                    builder = builder.fuse_unk(self.setting::<Option<_>>(value)?.unwrap_or(false));
                }
                "byte_fallback" => {
                    byte_fallback = self.setting::<Option<_>>(value)?.unwrap_or(false);
                    builder = builder.byte_fallback(byte_fallback);
                }
                "ignore_merges" => {
                    let ignored = self.setting::<Option<_>>(value)?.unwrap_or(false);
                    builder = builder.ignore_merges(ignored);
                }
                _ => return None,
            }
        }
        let (true, Some(vocabulary), Some(merges)) = (bpe, vocabulary, merges) else {
            return None;
        };
        if byte_fallback && merges.of_bytes {
            return None;
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
            return None;
        }
        // the library need not survive merges that lead nowhere
        let sound = |(left, right): &(String, String)| {
            known(left) && known(right) && known(&format!("{left}{right}"))
        };
        if !merges.kept.iter().all(sound) {
            return None;
        }
        if let Some(unknown) = unknown {
            builder = builder.unk_token(unknown);
        }
        builder.vocab_and_merges(vocabulary, merges.kept).build().ok()
    }

    fn vocabulary(&self, unknown: Option<&str>) -> Option<Vocab> {
        let mut kept = Vocab::default();
        for &(token, id) in self.entries.vocabulary() {
            let token = self.renamed(token.of(self.entries.text())?);
            // what a renamed token is called says that it is a token, wherever it stands
            if self.names.iter().any(|(_, new)| *new == token)
                || is_byte(&token)
                || unknown == Some(&*token)
                || self.parts.contain(&token)
            {
                kept.insert(token.into_owned(), id);
            }
        }
        Some(kept)
    }

    fn merges(&self, unknown: Option<&str>) -> Option<Merges> {
        let mut merges = Merges { kept: Vec::new(), of_bytes: false };
        let mut joined = String::new();
        let text = self.entries.text();
        for &merge in self.entries.merges() {
            let (left, right) = match merge {
                Merge::Pair(left, right) => {
                    (self.renamed(left.of(text)?), self.renamed(right.of(text)?))
                }
                Merge::Text(merge) => match self.renamed(merge.of(text)?) {
                    Cow::Borrowed(text) => {
                        let (left, right) = split(text)?;
                        (Cow::Borrowed(left), Cow::Borrowed(right))
                    }
                    Cow::Owned(text) => {
                        let (left, right) = split(&text)?;
                        (Cow::Owned(left.to_string()), Cow::Owned(right.to_string()))
                    }
                },
            };
            let unknown = |token: &str| unknown == Some(token);
            if unknown(&left) || unknown(&right) {
                return None;
            }
            merges.of_bytes |= is_byte(&left) || is_byte(&right);
            if self.parts.contain_joined(&left, &right, &mut joined) {
                merges.kept.push((left.into_owned(), right.into_owned()));
            }
        }
        Some(merges)
    }
}

/// Whether this is how a byte is spelled that no entry has: `<0x0A>`.
fn is_byte(token: &str) -> bool {
    token.len() == 6 && token.starts_with("<0x")
}

/// What is kept of the merges.
struct Merges {
    kept: Vec<(String, String)>,
    /// Whether one of them takes a spelled byte, which need not stand in the text.
    of_bytes: bool,
}

/// The two tokens of a merge that is one text. A text with more spaces, or that names a version, is no merge.
fn split(merge: &str) -> Option<(&str, &str)> {
    let (left, right) = merge.split_once(' ')?;
    (!right.contains(' ') && !left.starts_with("#version")).then_some((left, right))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str = r#"{"type":"BPE","dropout":null,"unk_token":"?","byte_fallback":true,
        "vocab":{"?":0,"<0x21>":1,"a":2,"b":3,"c":4,"ab":5,"abc":6,"bc":7,"<m>":8},
        "merges":[["b","c"],["a","b"],["ab","c"]]}"#;

    fn trimmed(model: &str, texts: &[&str]) -> Option<Tokenizer> {
        let json = format!(r#"{{"version":"1.0","added_tokens":[],"model":{model}}}"#);
        trim(&Entries::find(json)?, &[("<m>", "\u{E000}")], texts, |_| Some(()))
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
        for json in [r#"{"model":{}}"#, "{"] {
            let entries = Entries::find(json.to_owned());
            assert!(entries.is_none_or(|entries| trim(&entries, &[], &[], |_| Some(())).is_none()));
        }
    }

    #[test]
    fn a_file_that_is_cut_off_or_goes_on_is_left_alone() {
        let json = format!(
            "{{\n  \"version\": \"1.0\",\n  \"added_tokens\": [ ],\n  \"model\": {MODEL}\n}}\n"
        );
        let read = |json: &str| {
            let entries = Entries::find(json.to_owned());
            entries.is_some_and(|entries| trim(&entries, &[], &["abc x"], |_| Some(())).is_some())
        };
        assert!(read(&json) && read(json.trim_end()));
        for end in 0..json.trim_end().len() {
            assert!(!read(&json[..end]), "{}", &json[..end]);
        }
        for more in ["}", ",", "null", "{}"] {
            assert!(!read(&format!("{json}{more}")));
        }
        for (old, new) in [
            (",\"abc\"", ",,\"abc\""),
            ("\"bc\":7", "\"bc\":7,"),
            (":7", ":07"),
            (":7", ":7.0"),
            ("\"a\":2", "\"a\" 2"),
        ] {
            assert!(json.contains(old) && !read(&json.replacen(old, new, 1)), "{new}");
        }
        // escapes are read, not compared
        assert!(read(&json.replacen("\"a\":2", "\"\\u0061\":2", 1)));
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
