//! The one tag of the reference's templates that the template engine does not know.

use std::borrow::Cow;

/// `source` with `{% generation %}` … `{% endgeneration %}` made into a plain scope.
///
/// The reference marks what an assistant said with this tag (`AssistantTracker`); it prints its body and is a scope of
/// its own. A `with` block is the same, and keeps the whitespace rules of a tag, which leaving it out would not.
pub(super) fn replace_generation_tags(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut replaced = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find('{') {
        let (before, tag) = rest.split_at(start);
        replaced.push_str(before);
        let length = match tag.as_bytes().get(1) {
            Some(b'#') => tag.find("#}").map(|end| end + 2),
            Some(b'{') => end_of_tag(tag, "}}"),
            Some(b'%') => end_of_tag(tag, "%}"),
            _ => Some(1),
        };
        let Some(length) = length else {
            rest = tag;
            break;
        };
        let (tag, after) = tag.split_at(length);
        let inner =
            tag.strip_prefix("{%").and_then(|tag| tag.strip_suffix("%}")).unwrap_or_default();
        match inner.trim_matches(['-', '+']).trim() {
            "generation" => replaced.push_str(&tag.replacen("generation", "with", 1)),
            "endgeneration" => replaced.push_str(&tag.replacen("endgeneration", "endwith", 1)),
            _ => replaced.push_str(tag),
        }
        rest = after;
    }
    replaced.push_str(rest);
    Cow::Owned(replaced)
}

/// The length of a tag with its end mark; marks within string literals do not count.
fn end_of_tag(tag: &str, end: &str) -> Option<usize> {
    let bytes = tag.as_bytes();
    let mut quote = None;
    let mut position = 2;
    while let Some(&byte) = bytes.get(position) {
        match quote {
            Some(_) if byte == b'\\' => position += 1,
            Some(open) if byte == open => quote = None,
            None if byte == b'"' || byte == b'\'' => quote = Some(byte),
            None if bytes[position..].starts_with(end.as_bytes()) => {
                return Some(position + end.len());
            }
            _ => {}
        }
        position += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tags_are_replaced() {
        let source = "{%- generation -%}x{% endgeneration %}{{ '{% generation %}' }}{# {% generation %} #}generation{ {%";
        let expected = "{%- with -%}x{% endwith %}{{ '{% generation %}' }}{# {% generation %} #}generation{ {%";
        assert_eq!(replace_generation_tags(source), expected);
    }

    #[test]
    fn other_templates_are_borrowed() {
        assert!(matches!(replace_generation_tags("{{ x }}"), Cow::Borrowed(_)));
        let source = "{% if add_generation_prompt %}é{% endif %}";
        assert_eq!(replace_generation_tags(source), source);
    }
}
