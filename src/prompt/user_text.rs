//! Rendering with the promise that a marker in the result was written by the template.
//!
//! User text goes through the template with every marker in it broken by a private character; then the markers that
//! are left, all of them the template's, become sentinels; then the private character is taken out again. The template
//! sees user text that is otherwise unchanged, so its own tests and splits still work.

use indexmap::IndexMap;

use crate::checkpoint::tokenizer::Sentinels;
use crate::error::{Error, ErrorKind, Result};
use crate::prompt::message::Message;
use crate::prompt::template::ChatTemplate;

/// Where the character that breaks a typed marker is looked for: the end of the last private-use plane.
const BREAKS: std::ops::RangeInclusive<char> = '\u{10FF00}'..='\u{10FFFD}';

/// Renders `messages` so that only the template's own markers are sentinels. What a user typed stays as typed.
///
/// # Errors
///
/// As for [`ChatTemplate::render`]; [`ErrorKind::Placeholders`] if the messages hold a sentinel, which would be taken for
/// a marker.
pub fn render_marked(
    template: &ChatTemplate,
    messages: &[Message],
    add_generation_prompt: bool,
    special_tokens: &IndexMap<String, String>,
    sentinels: &Sentinels,
) -> Result<String> {
    let texts: Vec<&str> = messages.iter().flat_map(Message::texts).collect();
    let unused = BREAKS
        .rev()
        .find(|c| !template.text().contains(*c) && !texts.iter().any(|text| text.contains(*c)));
    let Some(hidden) = unused else {
        return Err(Error::new(
            ErrorKind::Placeholders,
            "the messages use up the private characters of Unicode",
        ));
    };
    let broken = |text: &str| break_markers(text, sentinels, hidden);
    let rendered =
        template.render_changed(messages, add_generation_prompt, special_tokens, &broken)?;
    sentinels.refuse_in(&rendered)?;
    Ok(sentinels.replace_markers(&rendered).replace(hidden, ""))
}

/// Whether the tokenizer should add its special tokens to a rendered prompt: not if the prompt begins with the first of
/// them already (the reference's `ProcessorMixin.apply_chat_template`).
pub fn adds_special_tokens(prompt: &str, bos_token: Option<&str>) -> bool {
    bos_token.is_none_or(|bos| !prompt.starts_with(bos))
}

/// `text` with `hidden` put behind the first character of every marker in it, and of the beginning of a marker at its
/// end, which the text that follows could complete.
fn break_markers(text: &str, sentinels: &Sentinels, hidden: char) -> String {
    let kept = text.trim_end().len(); // a template may trim
    let mut broken = String::with_capacity(text.len());
    for (position, character) in text.char_indices() {
        broken.push(character);
        let rest = &text[position..];
        let end = text.get(position..kept).unwrap_or_default();
        let begins =
            |marker: &str| rest.starts_with(marker) || (!end.is_empty() && marker.starts_with(end));
        if sentinels.markers().any(begins) {
            broken.push(hidden);
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::message::Content;

    const TEMPLATE: &str = "{% for m in messages %}[{{ m.role }}]{% for c in m.content %}\
        {% if c.type == 'image' %}<pic>{% elif c.type == 'audio' %}{{ audio_token }}{% else %}{{ c.text | trim }}\
        {% endif %}{% endfor %}{% endfor %}";

    fn render(content: Vec<Content>) -> Result<(String, Sentinels)> {
        let sentinels = Sentinels::new(&["<pic>".into(), "<sound>".into()])?;
        let tokens = IndexMap::from([("audio_token".to_string(), "<sound>".to_string())]);
        let template = ChatTemplate::new(TEMPLATE, "test");
        let rendered =
            render_marked(&template, &[Message::new("user", content)], false, &tokens, &sentinels)?;
        Ok((rendered, sentinels))
    }

    fn text(text: &str) -> Content {
        Content::Text(text.to_string())
    }

    #[test]
    fn only_the_template_writes_markers() {
        let typed = "a <pic> <sound>{{ 1 + 1 }}{% raw %} \u{10FFFD}\u{10FE50}\u{10FE51}";
        let (rendered, sentinels) =
            render(vec![text(typed), Content::Image, Content::Audio]).unwrap();
        let (picture, sound) = (sentinels.mark("<pic>"), sentinels.mark("<sound>"));
        assert_eq!(rendered, format!("[user]{typed}{picture}{sound}"));
    }

    #[test]
    fn pieces_do_not_make_a_marker() {
        let (rendered, _) =
            render(vec![text("x<pi \n"), text("c> <"), text("pic>"), text("<<pic>pic>")]).unwrap();
        assert_eq!(rendered, "[user]x<pic> <pic><<pic>pic>");
    }

    #[test]
    fn a_typed_sentinel_is_refused() {
        let sentinel = "\u{10FE50}\u{10FE51}\u{10FE50}";
        assert_eq!(render(vec![text(sentinel)]).unwrap_err().kind(), ErrorKind::Placeholders);
        // also in pieces
        assert!(render(vec![text(&sentinel[..8]), text(&sentinel[8..])]).is_err());
    }

    #[test]
    fn a_prompt_that_begins_with_the_first_token_gets_no_second_one() {
        assert!(adds_special_tokens("x", Some("<s>")) && adds_special_tokens("<s>x", None));
        assert!(!adds_special_tokens("<s>x", Some("<s>")));
    }
}
