//! Renaming tokens in the text of a `tokenizer.json`, without parsing its vocabulary into a tree.
//!
//! A token's name can stand in `added_tokens`, in the model's vocabulary, in its merges, and in the post-processor. All
//! of them are whole JSON strings, so that is what is compared and replaced. Ids and order are not touched, which is why
//! the renamed tokenizer gives every token the id that the original gives it.

use std::borrow::Cow;

use serde_json::Value;

/// The text with every JSON string that equals one of the old names replaced by the new one.
///
/// Text that is not well formed comes back as it is from the first fault on; whoever parses it will say so.
pub(super) fn rename_strings<'a>(json: &'a str, names: &[(&str, &str)]) -> Cow<'a, str> {
    let mut renamed = String::new();
    let mut copied = 0;
    let mut position = 0;
    while let Some(start) = find(json, b'"', position) {
        let Some((end, escaped)) = end_of_string(json, start + 1) else { break };
        let content = &json[start + 1..end];
        let content =
            if escaped { unescape(&json[start..=end]) } else { Some(Cow::Borrowed(content)) };
        if let Some(content) = content
            && let Some((_, new)) = names.iter().find(|(old, _)| *old == content)
        {
            renamed.push_str(&json[copied..=start]);
            renamed.push_str(new); // private-use characters need no escape
            copied = end;
        }
        position = end + 1;
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    renamed.push_str(&json[copied..]);
    Cow::Owned(renamed)
}

/// A renamed `tokenizer.json` without the merges that need or make a token that the vocabulary lacks.
///
/// A marker that merges can make would arise from ordinary text; once it is renamed, those merges lead nowhere and the
/// library refuses them. Without them a typed marker stays in the pieces before the last merge. `None` if nothing is to
/// be dropped. This parses the whole file, and is for the rare tokenizer that needs it.
pub(super) fn drop_lost_merges(json: &str) -> Option<String> {
    let mut tokenizer: Value = serde_json::from_str(json).ok()?;
    let model = tokenizer.get_mut("model")?;
    let vocabulary = model.get("vocab")?.as_object()?.clone();
    let Value::Array(merges) = model.get_mut("merges")? else { return None };
    let before = merges.len();
    merges.retain(|merge| {
        let parts = match merge {
            Value::String(text) => text.split_once(' '),
            Value::Array(pair) => match pair.as_slice() {
                [Value::String(left), Value::String(right)] => {
                    Some((left.as_str(), right.as_str()))
                }
                _ => None,
            },
            _ => None,
        };
        let known = |token: &str| vocabulary.contains_key(token);
        // what is not understood is left to the library to refuse
        parts.is_none_or(|(left, right)| {
            known(left) && known(right) && known(&format!("{left}{right}"))
        })
    });
    (merges.len() < before).then(|| tokenizer.to_string())
}

fn find(text: &str, byte: u8, from: usize) -> Option<usize> {
    text.as_bytes().get(from..)?.iter().position(|&b| b == byte).map(|offset| from + offset)
}

/// The position of the quote that ends the string whose content starts at `from`, and whether it holds escapes.
fn end_of_string(text: &str, from: usize) -> Option<(usize, bool)> {
    let bytes = text.as_bytes();
    let mut position = from;
    let mut escaped = false;
    loop {
        match bytes.get(position)? {
            b'"' => return Some((position, escaped)),
            b'\\' => {
                escaped = true;
                position += 2;
            }
            _ => position += 1,
        }
    }
}

fn unescape(quoted: &str) -> Option<Cow<'_, str>> {
    serde_json::from_str(quoted).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_strings_are_renamed_wherever_they_stand() {
        let json = r#"{"<a>": ["<a>", "x<a>", "\u003ca>", "\"", "<a>\\"], "b": "é<a>"}"#;
        let expected = r#"{"S": ["S", "x<a>", "S", "\"", "<a>\\"], "b": "é<a>"}"#;
        assert_eq!(rename_strings(json, &[("<a>", "S")]), expected);
    }

    #[test]
    fn merges_that_lead_nowhere_are_dropped() {
        let json = r#"{"model":{"vocab":{"a":0,"b":1,"ab":2,"S":3},"merges":[["a","b"],["ab","a"],"S b"]}}"#;
        let expected = r#"{"model":{"vocab":{"a":0,"b":1,"ab":2,"S":3},"merges":[["a","b"]]}}"#;
        assert_eq!(drop_lost_merges(json).as_deref(), Some(expected));
        assert_eq!(drop_lost_merges(expected), None);
    }

    #[test]
    fn nothing_to_rename_borrows() {
        assert!(matches!(rename_strings(r#"{"a": 1}"#, &[("b", "S")]), Cow::Borrowed(_)));
        assert_eq!(rename_strings("{\"a", &[("a", "S")]), "{\"a");
        assert_eq!(rename_strings("{\"a\\", &[("a", "S")]), "{\"a\\");
    }
}
