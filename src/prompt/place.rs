//! `{image}` and `{audio}` in a prompt of the command line: where media items stand between the words.

use super::message::Content;
use crate::error::{Error, ErrorKind, Result};

/// Splits a prompt at its placeholders. `{{image}}` is a literal `{image}`. Without any placeholder all items go before
/// the text, images first.
///
/// # Errors
/// [`ErrorKind::Placeholders`] if there are placeholders of a kind, but not one for every item of that kind.
pub fn place_media(prompt: &str, images: usize, clips: usize) -> Result<Vec<Content>> {
    let mut parts = Vec::new();
    let mut text = String::new();
    let mut rest = prompt;
    while let Some(character) = rest.chars().next() {
        let literal =
            ["{{image}}", "{{audio}}"].into_iter().find(|literal| rest.starts_with(literal));
        let placeholder =
            ["{image}", "{audio}"].into_iter().find(|placeholder| rest.starts_with(placeholder));
        let length = match (literal, placeholder) {
            (Some(literal), _) => {
                text.push_str(&literal[1..literal.len() - 1]);
                literal.len()
            }
            (None, Some(placeholder)) => {
                if !text.is_empty() {
                    parts.push(Content::Text(std::mem::take(&mut text)));
                }
                parts.push(if placeholder == "{image}" { Content::Image } else { Content::Audio });
                placeholder.len()
            }
            (None, None) => {
                text.push(character);
                character.len_utf8()
            }
        };
        rest = rest.get(length..).unwrap_or("");
    }
    if !text.is_empty() {
        parts.push(Content::Text(text));
    }
    let count = |kind: &Content| parts.iter().filter(|part| *part == kind).count();
    let placed =
        [(count(&Content::Image), images, "image"), (count(&Content::Audio), clips, "audio")];
    if placed.iter().all(|(count, ..)| *count == 0) {
        let mut all = vec![Content::Image; images];
        all.extend(vec![Content::Audio; clips]);
        all.extend(parts);
        return Ok(all);
    }
    for (count, items, kind) in placed {
        if count != items {
            return Err(Error::new(
                ErrorKind::Placeholders,
                format!(
                    "the prompt places {count} of `{{{kind}}}`, but {items} of `--{kind}` are given"
                ),
            )
            .with_hint(format!(
                "place all items or none; `{{{{{kind}}}}}` stands for the word itself"
            )));
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Content {
        Content::Text(text.to_owned())
    }

    #[test]
    fn items_go_first_or_where_they_are_placed() {
        assert_eq!(
            place_media("what?", 2, 0).unwrap(),
            [Content::Image, Content::Image, text("what?")]
        );
        assert_eq!(
            place_media("a {image} b{image}", 2, 0).unwrap(),
            [text("a "), Content::Image, text(" b"), Content::Image]
        );
        assert_eq!(place_media("say {{image}} {x}", 0, 0).unwrap(), [text("say {image} {x}")]);
        assert_eq!(place_media("", 1, 1).unwrap(), [Content::Image, Content::Audio]);
    }

    #[test]
    fn all_or_none() {
        assert!(place_media("a {image}", 2, 0).is_err());
        assert!(place_media("a {image}", 0, 0).is_err());
        assert!(place_media("a {image}", 1, 1).is_err());
    }
}
