//! Where the entries of a `tokenizer.json` are: found once, for all that is asked of it.

use std::ops::Range;

use super::scanner::{Scanner, Span};

/// An id that no vocabulary has.
const HIGHEST: u32 = 1 << 24;

/// A `tokenizer.json` with a byte-pair model and nothing behind it.
#[derive(Debug)]
pub(super) struct Entries {
    text: String,
    /// What stands before the model.
    before: Vec<(String, Range<usize>)>,
    model: Vec<Part>,
    vocabulary: Vec<(Span, u32)>,
    merges: Vec<Merge>,
}

/// An entry of the model.
#[derive(Debug)]
pub(super) enum Part {
    /// A small value by its key.
    Setting(String, Range<usize>),
    /// [`Entries::vocabulary`].
    Vocabulary,
    /// [`Entries::merges`].
    Merges,
}

/// One merge, as either version of the file writes it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Merge {
    /// `"a b"`.
    Text(Span),
    /// `["a", "b"]`.
    Pair(Span, Span),
}

impl Entries {
    /// `None` for a file that is not plainly one: another model, other parts, an id twice or gaps between ids, merges of
    /// both kinds, anything that is not JSON.
    pub(super) fn find(text: String) -> Option<Self> {
        let mut entries = Self {
            text: String::new(),
            before: Vec::new(),
            model: Vec::new(),
            vocabulary: Vec::new(),
            merges: Vec::new(),
        };
        let mut file = Scanner::new(&text);
        let mut first = true;
        file.expect(b'{')?;
        while file.next(b'}', first)? {
            first = false;
            let key = file.key()?;
            if key == "model" {
                entries.read_model(&mut file)?;
                if file.next(b'}', false)? || !file.ended() {
                    return None;
                }
                entries.text = text;
                return Some(entries);
            }
            entries.before.push((key.into_owned(), file.value()?));
        }
        None
    }

    fn read_model(&mut self, file: &mut Scanner<'_>) -> Option<()> {
        let mut first = true;
        file.expect(b'{')?;
        while file.next(b'}', first)? {
            first = false;
            let part = match &*file.key()? {
                "vocab" if self.vocabulary.is_empty() => {
                    self.read_vocabulary(file)?;
                    Part::Vocabulary
                }
                "merges" if self.merges.is_empty() => {
                    self.read_merges(file)?;
                    Part::Merges
                }
                key => Part::Setting(key.to_owned(), file.value()?),
            };
            self.model.push(part);
        }
        Some(())
    }

    fn read_vocabulary(&mut self, file: &mut Scanner<'_>) -> Option<()> {
        let mut seen: Vec<u64> = Vec::new();
        file.expect(b'{')?;
        while file.next(b'}', self.vocabulary.is_empty())? {
            let token = file.span()?;
            file.expect(b':')?;
            let id = file.integer()?;
            let (word, bit) = (id as usize / 64, id % 64);
            if id > HIGHEST {
                return None;
            }
            if word >= seen.len() {
                seen.resize(word + 1, 0);
            }
            let ids = seen.get_mut(word)?;
            if *ids >> bit & 1 == 1 {
                return None;
            }
            *ids |= 1 << bit;
            self.vocabulary.push((token, id));
        }
        // with gaps between them, the library could give an added token the id of another
        let highest = self.vocabulary.iter().map(|(_, id)| id + 1).max().unwrap_or(0);
        (highest as usize == self.vocabulary.len()).then_some(())
    }

    fn read_merges(&mut self, file: &mut Scanner<'_>) -> Option<()> {
        let mut as_pairs = None;
        file.expect(b'[')?;
        while file.next(b']', self.merges.is_empty())? {
            let is_pair = file.peek()? == b'[';
            if *as_pairs.get_or_insert(is_pair) != is_pair {
                return None;
            }
            self.merges.push(if is_pair {
                file.expect(b'[')?;
                let left = file.span()?;
                file.expect(b',')?;
                let right = file.span()?;
                file.expect(b']')?;
                Merge::Pair(left, right)
            } else {
                Merge::Text(file.span()?)
            });
        }
        Some(())
    }

    /// The text of the file.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Keys and values before the model.
    pub(super) fn before(&self) -> impl Iterator<Item = (&str, &str)> {
        self.before.iter().map(|(key, range)| (key.as_str(), self.value(range)))
    }

    /// The entries of the model, in order.
    pub(super) fn model(&self) -> &[Part] {
        &self.model
    }

    /// The text of a value.
    pub(super) fn value(&self, range: &Range<usize>) -> &str {
        self.text.get(range.clone()).unwrap_or_default()
    }

    /// Tokens with their ids, which are 0, 1, … in any order.
    pub(super) fn vocabulary(&self) -> &[(Span, u32)] {
        &self.vocabulary
    }

    /// Merges, the first to be done first.
    pub(super) fn merges(&self) -> &[Merge] {
        &self.merges
    }
}
