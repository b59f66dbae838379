//! What the file at hand defines and nothing refers to.
//!
//! Judged are only the definitions that the file itself writes, over all combinations of its parts: a part serves several
//! families, and a base may define what a refinement no longer needs. Some definitions need no reader:
//!
//! * a lookup with `map` or `same` is a statement by itself: a word that the map lacks, or files that disagree, are errors;
//! * a token with an `id` is held against the tokenizer.

use crate::descriptor::{Descriptor, Node};
use crate::problem::{Level, Problem, Problems};

/// Tables of things with names: the path, what one is called, and a hint.
const TABLES: [(&str, &str, &str); 6] = [
    ("tokens", "token", "name it in a marker, a frame or a strip, or state its `id`"),
    ("image.literals", "literal", "write it as `\"name\"` in a strip or a frame"),
    ("audio.literals", "literal", "write it as `\"name\"` in a strip or a frame"),
    ("image.connector.vectors", "vector", "write it as `~name` in a strip"),
    ("stacks", "stack", "name it in a tower or under `[decoder]`"),
    ("rope", "rope", "name it in the `attention` of a stack"),
];

pub(super) fn check(descriptors: &[Descriptor]) -> Problems {
    let mut problems = Problems::default();
    let Some(first) = descriptors.first() else { return problems };
    let is_read = |key: &str| descriptors.iter().any(|descriptor| descriptor.reads(key));
    for (section, entries) in entries(first, "config") {
        let absent = entries.get("absent").and_then(Node::as_table).into_iter().flatten();
        let values = entries.as_table().into_iter().flatten();
        let values = values.filter(|(name, _)| !["within", "absent"].contains(&name.as_str()));
        for (at, (name, entry)) in
            values.map(|value| ("", value)).chain(absent.map(|value| ("absent.", value)))
        {
            let speaks = ["map", "same"].iter().any(|key| entry.get(key).is_some());
            if speaks || is_read(&format!("config.{section}.{name}")) {
                continue;
            }
            let key = format!("config.{section}.{at}{name}");
            if let Some(place) = own(first, entry, &key) {
                problems.push(
                    Problem::error("value-unused", format!("nothing reads `{section}.{name}`"))
                        .level(Level::Warning)
                        .at(place)
                        .with_hint("read it in a slot or under `[require]`, or remove it"),
                );
            }
        }
    }
    for (table, what, hint) in TABLES {
        for (name, entry) in entries(first, table) {
            let key = format!("{table}.{name}");
            let speaks = table == "tokens" && entry.get("id").is_some();
            if speaks || is_read(&key) {
                continue;
            }
            if let Some(place) = own(first, entry, &key) {
                problems.push(
                    Problem::error("name-unused", format!("nothing names {what} `{name}`"))
                        .level(Level::Warning)
                        .at(place)
                        .with_hint(hint),
                );
            }
        }
    }
    problems
}

fn entries<'a>(
    descriptor: &'a Descriptor,
    table: &str,
) -> impl Iterator<Item = (&'a String, &'a Node)> {
    descriptor.source().get(table).and_then(Node::as_table).into_iter().flatten()
}

/// Where `entry` is written, if that is in the family's own file.
fn own(descriptor: &Descriptor, entry: &Node, key: &str) -> Option<crate::problem::Place> {
    let place = entry.origin.place(key);
    (place.file == descriptor.source().origin.place("").file).then_some(place)
}
