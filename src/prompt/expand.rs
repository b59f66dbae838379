//! Strips in place of markers in a prompt's text, and where their rows are once the text is tokenised.
//!
//! The reference expands the text and tokenises afterwards (`ProcessorMixin.get_text_with_replacements`), so the literals of
//! a strip may merge with the text beside it. Fill tokens in a row are written once and multiplied afterwards: added tokens
//! are cut out of a text before anything else happens to it, so their number changes nothing around them.

use crate::checkpoint::tokenizer::{PlacedToken, Sentinels, Tokenizer};
use crate::error::{Error, ErrorKind, Result};
use crate::prompt::assemble::{Item, Prompt, Span};

/// What stands on one fill token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Filled {
    /// The token itself.
    Token,
    /// An encoder row.
    Row,
    /// A learned vector, by name.
    Vector(String),
}

/// A part of a strip.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Literals and tokens other than the fill token.
    Text(String),
    /// Fill tokens in a row.
    Run(Vec<Filled>),
}

/// The strip of one item.
#[derive(Debug)]
pub(super) struct Strip<'a> {
    item: &'a Item,
    parts: Vec<Part>,
}

impl<'a> Strip<'a> {
    pub(super) fn new(item: &'a Item) -> Self {
        Self { item, parts: Vec::new() }
    }

    /// Appends a text, in which sentinels stand for markers.
    pub(super) fn push_text(&mut self, text: &str) {
        match self.parts.last_mut() {
            Some(Part::Text(last)) => last.push_str(text),
            _ => self.parts.push(Part::Text(text.to_owned())),
        }
    }

    /// Appends a fill token.
    pub(super) fn push(&mut self, filled: Filled) {
        match self.parts.last_mut() {
            Some(Part::Run(last)) => last.push(filled),
            _ => self.parts.push(Part::Run(vec![filled])),
        }
    }

    /// Its text, with every fill token written out.
    fn whole(&self, fill: &str) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Run(run) => fill.repeat(run.len()),
        };
        self.parts.iter().map(part).collect()
    }

    /// How many tokens it is by itself.
    fn tokens(&self, fill: &str, tokenizer: &Tokenizer) -> Result<usize> {
        let mut text = String::new();
        let mut left_out = 0;
        for part in &self.parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Run(run) => {
                    text.push_str(fill);
                    left_out += run.len() - 1;
                }
            }
        }
        Ok(tokenizer.encode(&text, false)?.len() + left_out)
    }
}

/// The strips of one modality, in order.
#[derive(Debug)]
pub(super) struct Queue<'a> {
    /// What stands for one item, a sentinel where the marker is protected.
    pub(super) marker: &'a str,
    /// The fill token, likewise.
    pub(super) fill: &'a str,
    /// Its id.
    pub(super) fill_id: u32,
    /// What takes the markers' places.
    pub(super) strips: Vec<Strip<'a>>,
}

impl Queue<'_> {
    /// How many tokens one of the strips is by itself.
    pub(super) fn tokens(&self, strip: usize, tokenizer: &Tokenizer) -> Option<usize> {
        self.strips.get(strip)?.tokens(self.fill, tokenizer).ok()
    }
}

/// What was seen of one modality.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Markers and strips, whether or not there was an item for them.
    pub(super) markers: usize,
    /// Strips that were put.
    pub(super) placed: usize,
    /// How many of them stood there expanded.
    pub(super) already: usize,
}

/// A text with strips in place of markers; fill tokens in a row are written once.
#[derive(Debug, Default)]
pub(super) struct Laid<'a> {
    text: String,
    /// The runs of fill tokens, in the order of the text.
    runs: Vec<Run<'a>>,
    /// The strips, in the order of the text.
    strips: Vec<Placed<'a>>,
    /// What was seen of every queue.
    pub(super) seen: Vec<Seen>,
    /// The protected markers outside strips.
    pub(super) stray: Vec<String>,
}

/// Fill tokens in a row.
#[derive(Debug)]
struct Run<'a> {
    id: u32,
    filled: &'a [Filled],
    /// The strip that it belongs to, by its number in the text.
    strip: Option<usize>,
}

/// A strip in a text.
#[derive(Debug)]
struct Placed<'a> {
    item: &'a Item,
    /// The item's number among those of its modality.
    number: usize,
    from: usize,
    to: usize,
}

/// Puts the strips in place of the markers of `text`, in order. With `lenient`, a strip that stands there already counts as
/// one marker.
pub(super) fn lay<'a>(
    text: &str,
    queues: &'a [Queue<'a>],
    sentinels: &Sentinels,
    lenient: bool,
) -> Laid<'a> {
    let mut laid =
        Laid { seen: queues.iter().map(|_| Seen::default()).collect(), ..Laid::default() };
    // the next strips as they would stand there already
    let whole = |queue: &Queue<'_>, next: usize| {
        let strip = queue.strips.get(next).filter(|_| lenient);
        strip.map(|strip| strip.whole(queue.fill)).filter(|whole| *whole != queue.marker)
    };
    let mut expected: Vec<_> = queues.iter().map(|queue| whole(queue, 0)).collect();
    let mut rest = text;
    'next: while let Some(character) = rest.chars().next() {
        for (index, queue) in queues.iter().enumerate() {
            let (Some(seen), Some(expected)) = (laid.seen.get_mut(index), expected.get_mut(index))
            else {
                continue;
            };
            let stands = expected.as_deref().filter(|whole| !whole.is_empty());
            let length = match stands.and_then(|whole| rest.strip_prefix(whole)) {
                Some(_) => {
                    seen.already += 1;
                    stands.map_or(0, str::len)
                }
                None if rest.starts_with(queue.marker) => queue.marker.len(),
                None => continue,
            };
            seen.markers += 1;
            let next = queue.strips.get(seen.placed);
            let number = seen.placed;
            if let Some(strip) = next {
                seen.placed += 1;
                *expected = whole(queue, seen.placed);
                laid.push_strip(queue, strip, number);
            }
            rest = rest.get(length..).unwrap_or_default();
            continue 'next;
        }
        let length = match sentinels.begins(rest) {
            Some((marker, sentinel)) => {
                laid.stray.push(marker.to_owned());
                if let Some(queue) = queues.iter().find(|queue| queue.fill == sentinel) {
                    let run = Run { id: queue.fill_id, filled: &[Filled::Token], strip: None };
                    laid.runs.push(run);
                }
                sentinel.len()
            }
            None => character.len_utf8(),
        };
        let (passed, after) = rest.split_at(length);
        laid.text.push_str(passed);
        rest = after;
    }
    laid
}

impl<'a> Laid<'a> {
    fn push_strip(&mut self, queue: &'a Queue<'_>, strip: &'a Strip<'a>, number: usize) {
        let from = self.text.len();
        for part in &strip.parts {
            match part {
                Part::Text(text) => self.text.push_str(text),
                Part::Run(filled) => {
                    self.text.push_str(queue.fill);
                    let strip = Some(self.strips.len());
                    self.runs.push(Run { id: queue.fill_id, filled, strip });
                }
            }
        }
        self.strips.push(Placed { item: strip.item, number, from, to: self.text.len() });
    }

    /// Tokenises the text, and finds rows and strips in it.
    pub(super) fn tokenise(&self, tokenizer: &Tokenizer, add_special: bool) -> Result<Prompt> {
        let lost = || {
            let message =
                "the tokenizer does not keep media tokens apart from the text beside them";
            Error::new(ErrorKind::Tokenizer, message)
        };
        let tokens = tokenizer.encode_placed(&self.text, add_special)?;
        let mut spans: Vec<Span> = self.strips.iter().map(Placed::span).collect();
        let mut ids = Vec::with_capacity(tokens.len());
        // where each token is among the ids
        let mut at = Vec::with_capacity(tokens.len() + 1);
        let mut runs = self.runs.iter().peekable();
        for token in &tokens {
            at.push(ids.len());
            if self.runs.iter().all(|run| run.id != token.id) {
                ids.push(token.id);
                continue;
            }
            let run = runs.next_if(|run| run.id == token.id).ok_or_else(lost)?;
            for filled in run.filled {
                if let Some(span) = run.strip.and_then(|strip| spans.get_mut(strip)) {
                    match filled {
                        Filled::Row => span.rows.push(ids.len()),
                        Filled::Vector(name) => span.vectors.push((ids.len(), name.clone())),
                        Filled::Token => {}
                    }
                }
                ids.push(token.id);
            }
        }
        at.push(ids.len());
        if runs.next().is_some() {
            return Err(lost());
        }
        let mut from = 0;
        for (span, placed) in spans.iter_mut().zip(&self.strips) {
            let (start, end) = placed.tokens(&tokens, from);
            let place = |index: usize| at.get(index).copied().unwrap_or(ids.len());
            span.start = place(start);
            span.length = place(end).saturating_sub(span.start);
            from = start;
        }
        Ok(Prompt { ids, spans })
    }
}

impl Placed<'_> {
    fn span(&self) -> Span {
        Span {
            modality: self.item.modality,
            item: self.number,
            layout: self.item.layout,
            start: 0,
            length: 0,
            rows: Vec::new(),
            vectors: Vec::new(),
        }
    }

    /// The first of the tokens that it takes part in, and the one behind the last; none is before `from`.
    fn tokens(&self, tokens: &[PlacedToken], from: usize) -> (usize, usize) {
        let rest = tokens.get(from..).unwrap_or_default();
        let before =
            |token: &PlacedToken| token.place.as_ref().is_none_or(|place| place.end <= self.from);
        let within = |token: &PlacedToken| {
            let place = token.place.as_ref();
            place.is_some_and(|place| place.start < self.to || place.end <= self.to)
        };
        let start = from + rest.iter().take_while(|token| before(token)).count();
        let strip = tokens.get(start..).unwrap_or_default();
        (start, start + strip.iter().take_while(|token| within(token)).count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::plan::Modality;

    const FILL: &str = "#";

    fn item() -> Item {
        Item { modality: Modality::Image, layout: Layout::new(&["rows"], [1]) }
    }

    /// `(##)` with a vector on the last fill token.
    fn strip(item: &Item) -> Strip<'_> {
        let mut strip = Strip::new(item);
        strip.push_text("(");
        strip.push(Filled::Row);
        strip.push(Filled::Vector("v".to_owned()));
        strip.push_text(")");
        strip
    }

    fn queues(item: &Item, strips: usize) -> [Queue<'_>; 1] {
        let strips = (0..strips).map(|_| strip(item)).collect();
        [Queue { marker: "<m>", fill: FILL, fill_id: 7, strips }]
    }

    fn laid(text: &str, strips: usize, lenient: bool) -> (String, usize, usize, Vec<usize>) {
        let item = item();
        let queues = queues(&item, strips);
        let laid = lay(text, &queues, &Sentinels::default(), lenient);
        let [seen] = laid.seen.as_slice() else { panic!("{:?}", laid.seen) };
        let runs = laid.runs.iter().map(|run| run.filled.len()).collect();
        (laid.text.clone(), seen.markers, seen.already, runs)
    }

    #[test]
    fn fill_tokens_in_a_row_are_written_once() {
        assert_eq!(laid("a<m>b<m>", 2, false), ("a(#)b(#)".into(), 2, 0, vec![2, 2]));
    }

    #[test]
    fn more_markers_than_strips_are_counted() {
        assert_eq!(laid("<m><m>", 1, false), ("(#)".into(), 2, 0, vec![2]));
        assert_eq!(laid("x", 1, false), ("x".into(), 0, 0, vec![]));
    }

    #[test]
    fn a_strip_that_stands_there_is_one_marker_if_lenient() {
        assert_eq!(laid("(##)<m>", 2, true), ("(#)(#)".into(), 2, 1, vec![2, 2]));
        assert_eq!(laid("(##)", 1, false), ("(##)".into(), 0, 0, vec![]));
        assert_eq!(laid("(#)", 1, true), ("(#)".into(), 0, 0, vec![]));
    }

    #[test]
    fn a_strip_takes_part_in_the_tokens_at_its_edges() {
        let item = item();
        let placed = Placed { item: &item, number: 0, from: 3, to: 6 };
        let tokens = |places: &[Option<(usize, usize)>]| {
            let token = |place: &Option<(usize, usize)>| PlacedToken {
                id: 0,
                place: place.map(|(start, end)| start..end),
            };
            let tokens: Vec<_> = places.iter().map(token).collect();
            placed.tokens(&tokens, 0)
        };
        let apart = [None, Some((0, 3)), Some((3, 5)), Some((5, 6)), Some((6, 9)), None];
        assert_eq!(tokens(&apart), (2, 4));
        let merged = [Some((0, 2)), Some((2, 4)), Some((4, 7)), Some((7, 8))];
        assert_eq!(tokens(&merged), (1, 3));
        // white space left out at the edges
        let trimmed = [Some((0, 2)), Some((4, 4)), Some((4, 5)), Some((6, 6)), Some((6, 9)), None];
        assert_eq!(tokens(&trimmed), (1, 4));
    }
}
