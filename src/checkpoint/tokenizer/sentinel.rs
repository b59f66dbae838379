//! Private stand-ins for media markers, so that a marker that someone typed is not taken for one.
//!
//! The tokenizer of a checkpoint turns the text of a marker into its id, wherever that text comes from. Here the
//! tokenizer is built with every protected marker *renamed* to a sentinel: three private-use characters. Template text
//! has its markers replaced by sentinels; what a user typed stays as it is, and is tokenised as ordinary text.
//!
//! The reference has the same idea in `mark_control_tokens` (`apply_chat_template(sanitize_control_tokens=True)`), where
//! it encodes the marked text piece by piece. A renamed token needs no pieces, and so no seams between them.

use crate::error::{Error, ErrorKind, Result};

/// The first and the last character of every sentinel.
const FENCE: char = '\u{10FE50}';
/// The middle character of the first sentinel; the others follow.
const FIRST: u32 = 0x10_FE51;
/// How many markers can be protected at once.
const MOST: usize = 0x80;

/// Markers and the sentinels that stand for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sentinels {
    /// Marker and sentinel, in the order given.
    pairs: Vec<(String, String)>,
    /// Positions in `pairs`, longest marker first.
    longest_first: Vec<usize>,
}

impl Sentinels {
    /// Sentinels for `markers`; empty and repeated ones are left out.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Tokenizer`] if there are more than 128, or one of a single character: that could not be told from
    /// the same character in a text.
    pub fn new(markers: &[String]) -> Result<Self> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for marker in markers {
            if marker.is_empty() || pairs.iter().any(|(known, _)| known == marker) {
                continue;
            }
            if marker.chars().count() == 1 {
                return Err(Error::new(
                    ErrorKind::Tokenizer,
                    format!("the marker `{marker}` is a single character"),
                ));
            }
            let middle =
                u32::try_from(pairs.len()).ok().and_then(|number| char::from_u32(FIRST + number));
            match middle {
                Some(middle) if pairs.len() < MOST => {
                    pairs.push((marker.clone(), String::from_iter([FENCE, middle, FENCE])));
                }
                _ => {
                    return Err(Error::new(
                        ErrorKind::Tokenizer,
                        format!("more than {MOST} markers to protect"),
                    ));
                }
            }
        }
        let mut longest_first: Vec<usize> = (0..pairs.len()).collect();
        longest_first.sort_by_key(|&position| std::cmp::Reverse(pairs[position].0.len()));
        Ok(Self { pairs, longest_first })
    }

    /// Whether nothing is protected.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The protected markers.
    pub fn markers(&self) -> impl Iterator<Item = &str> {
        self.pairs.iter().map(|(marker, _)| marker.as_str())
    }

    /// What stands for `marker`: its sentinel, or `marker` itself if it is not protected.
    pub fn mark<'a>(&'a self, marker: &'a str) -> &'a str {
        self.pairs
            .iter()
            .find(|(known, _)| known == marker)
            .map_or(marker, |(_, sentinel)| sentinel)
    }

    /// `text` with every protected marker replaced by its sentinel. For text that no user wrote, and for raw prompts.
    ///
    /// Where markers overlap, the leftmost and then the longest counts, as in the reference's tokenizer.
    pub fn replace_markers(&self, text: &str) -> String {
        let mut marked = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((at, position)) = self.next_marker(rest) {
            let (marker, sentinel) = &self.pairs[position];
            marked.push_str(&rest[..at]);
            marked.push_str(sentinel);
            rest = &rest[at + marker.len()..];
        }
        marked.push_str(rest);
        marked
    }

    /// `text` with every sentinel replaced by the marker it stands for.
    pub fn restore_markers(&self, text: String) -> String {
        if !text.contains(FENCE) {
            return text;
        }
        self.pairs
            .iter()
            .fold(text, |text, (marker, sentinel)| text.replace(sentinel.as_str(), marker))
    }

    /// Refuses text that holds a sentinel: it would be taken for a marker.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Placeholders`].
    pub fn refuse_in(&self, text: &str) -> Result<()> {
        if !text.contains(FENCE) {
            return Ok(());
        }
        for (marker, sentinel) in &self.pairs {
            if text.contains(sentinel.as_str()) {
                let spelled: Vec<_> =
                    sentinel.chars().map(|c| format!("U+{:X}", u32::from(c))).collect();
                let message = format!(
                    "the text holds the private-use characters {} that stand for `{marker}` here",
                    spelled.join(" ")
                );
                return Err(Error::new(ErrorKind::Placeholders, message)
                    .with_hint("remove them from the text"));
            }
        }
        Ok(())
    }

    /// The marker and its sentinel that `text` begins with.
    pub fn begins(&self, text: &str) -> Option<(&str, &str)> {
        if !text.starts_with(FENCE) {
            return None;
        }
        let found = self.pairs.iter().find(|(_, sentinel)| text.starts_with(sentinel.as_str()));
        found.map(|(marker, sentinel)| (marker.as_str(), sentinel.as_str()))
    }

    fn next_marker(&self, text: &str) -> Option<(usize, usize)> {
        let found = self
            .longest_first
            .iter()
            .filter_map(|&position| Some((text.find(&self.pairs[position].0)?, position)));
        // `min_by_key` keeps the first of equals, which is the longest
        found.min_by_key(|&(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentinels(markers: &[&str]) -> Sentinels {
        Sentinels::new(&markers.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn markers_are_replaced_and_restored() {
        let sentinels = sentinels(&["<a>", "<b>", "<a>", ""]);
        assert_eq!(sentinels.markers().collect::<Vec<_>>(), ["<a>", "<b>"]);
        let marked = sentinels.replace_markers("x<b><a>y<c>");
        assert_eq!(marked, format!("x{}{}y<c>", sentinels.mark("<b>"), sentinels.mark("<a>")));
        assert_eq!(sentinels.restore_markers(marked), "x<b><a>y<c>");
        assert_eq!(sentinels.mark("<c>"), "<c>");
    }

    #[test]
    fn the_leftmost_longest_marker_counts() {
        let sentinels = sentinels(&["ab", "abc", "bcd"]);
        assert_eq!(sentinels.replace_markers("abcd"), format!("{}d", sentinels.mark("abc")));
    }

    #[test]
    fn sentinels_in_text_are_refused() {
        let sentinels = sentinels(&["<a>"]);
        assert!(sentinels.refuse_in("plain \u{10FE50} <a>").is_ok());
        let error = sentinels.refuse_in(&format!("x{}", sentinels.mark("<a>"))).unwrap_err();
        assert!(error.message().contains("U+10FE50 U+10FE51 U+10FE50 that stand for `<a>`"));
    }
}
