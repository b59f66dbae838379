//! Lookups that contradict themselves.

use super::library::did_you_mean;
use super::node::{Node, NodeValue};
use super::references::Slot;
use super::validate::{join, one_of};
use crate::problem::{Problem, Problems};

/// Keys of a lookup that contradict each other.
pub(super) fn check(slot: &Slot<'_>) -> Problems {
    let mut problems = Problems::default();
    let Some(table) = slot.node.as_table() else { return problems };
    let key = |key: &str| table.get(key).map(|node| (node, join(slot.path, key)));
    let mut conflict = |first: &str, needs: &str, hint: &str| {
        if let Some((node, path)) = key(first) {
            problems.push(
                Problem::error("lookup", format!("`{first}` has no effect {needs}"))
                    .at(node.origin.place(&path))
                    .with_hint(hint),
            );
        }
    };
    if table.contains_key("same") {
        conflict(
            "at",
            "beside `same`",
            "`at` takes the first path that is there, `same` all of them; keep one",
        );
        conflict("any", "beside `same`", "`any` goes with several paths of `at`");
    }
    if !table.contains_key("or") {
        conflict(
            "unless",
            "without `or`",
            "`unless` takes `or` away; remove it, or state the default",
        );
    }
    for list in ["at", "same"] {
        if let Some((node, path)) = key(list)
            && matches!(&node.value, NodeValue::Array(items) if items.is_empty())
        {
            problems.push(
                Problem::error("lookup", format!("`{list}` names no path"))
                    .at(node.origin.place(&path))
                    .expected_found("at least one path", "an empty array"),
            );
        }
    }
    if let (Some((or, path)), Some(map)) = (key("or"), table.get("map").and_then(Node::as_table))
        && !matches!(or.value, NodeValue::Array(_))
    {
        let word = match &or.value {
            NodeValue::String(text) => text.clone(),
            NodeValue::Integer(number) => number.to_string(),
            NodeValue::Float(number) => number.to_string(),
            NodeValue::Boolean(flag) => flag.to_string(),
            _ => String::new(),
        };
        if !map.contains_key(&word) {
            let known: Vec<_> = map.keys().map(String::as_str).collect();
            let problem =
                Problem::error("name-unknown", "`map` does not say what the default means")
                    .at(or.origin.place(&path))
                    .expected_found(one_of(&known), or.describe());
            problems.push(did_you_mean(problem, &word, &known));
        }
    }
    problems
}
