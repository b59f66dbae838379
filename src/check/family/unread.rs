//! What the file at hand defines and nothing refers to.
//!
//! Judged are only the definitions that the file itself writes, over all combinations of its parts: a part serves several
//! families, and a base may define what a refinement no longer needs. Some definitions need no reader:
//!
//! * a lookup with `map` or `same` is a statement by itself: a word that the map lacks, or files that disagree, are errors;
//! * a token with an `id` is held against the tokenizer.

use std::collections::{BTreeMap, BTreeSet};

use crate::descriptor::{Descriptor, Node};
use crate::problem::{Level, Place, Problem, Problems};

/// Tables of things with names: the path, what one is called, and a hint.
const TABLES: [(&str, &str, &str); 7] = [
    ("tokens", "token", "name it in a marker, a frame or a strip, or state its `id`"),
    ("image.literals", "literal", "write it as `\"name\"` in a strip or a frame"),
    ("audio.literals", "literal", "write it as `\"name\"` in a strip or a frame"),
    ("image.connector.vectors", "vector", "write it as `~name` in a strip"),
    ("audio.connector.vectors", "vector", "write it as `~name` in a strip"),
    ("stacks", "stack", "name it in a tower or under `[decoder]`"),
    ("rope", "rope", "name it in the `attention` of a stack"),
];

/// Something that the file at hand defines.
struct Definition {
    key: String,
    code: &'static str,
    message: String,
    hint: &'static str,
    place: Place,
    /// Whether it has a purpose of its own.
    speaks: bool,
}

pub(super) fn check(descriptors: &[Descriptor]) -> Problems {
    let Some(first) = descriptors.first() else { return Problems::default() };
    let definitions = definitions(first);
    let mut readers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for read in descriptors.iter().flat_map(Descriptor::reads) {
        readers.entry(&read.key).or_default().push(&read.reader);
    }
    // what is read by unread definitions alone is unread, too
    let mut unread: BTreeSet<&str> = BTreeSet::new();
    loop {
        let known = unread.len();
        for definition in definitions.iter().filter(|definition| !definition.speaks) {
            let is_unread = |reader: &str| {
                let reader = reader.replacen(".absent.", ".", 1);
                let mut owners = reader.match_indices('.').map(|(end, _)| &reader[..end]);
                unread.contains(reader.as_str()) || owners.any(|owner| unread.contains(owner))
            };
            let readers = readers.get(definition.key.as_str()).into_iter().flatten();
            if readers.into_iter().all(|reader| is_unread(reader)) {
                unread.insert(&definition.key);
            }
        }
        if unread.len() == known {
            break;
        }
    }
    let mut problems = Problems::default();
    for definition in &definitions {
        if unread.contains(definition.key.as_str()) {
            problems.push(
                Problem::error(definition.code, definition.message.clone())
                    .level(Level::Warning)
                    .at(definition.place.clone())
                    .with_hint(definition.hint),
            );
        }
    }
    problems
}

fn definitions(descriptor: &Descriptor) -> Vec<Definition> {
    let mut found = Vec::new();
    for (section, entries) in entries(descriptor, "config") {
        let absent = entries.get("absent").and_then(Node::as_table).into_iter().flatten();
        let values = entries.as_table().into_iter().flatten();
        let values = values.filter(|(name, _)| !["within", "absent"].contains(&name.as_str()));
        let all = values.map(|value| ("", value)).chain(absent.map(|value| ("absent.", value)));
        for (at, (name, entry)) in all {
            let place = own(descriptor, entry, &format!("config.{section}.{at}{name}"));
            found.extend(place.map(|place| Definition {
                key: format!("config.{section}.{name}"),
                code: "value-unused",
                message: format!("nothing reads `{section}.{name}`"),
                hint: "read it in a slot or under `[require]`, or remove it",
                place,
                speaks: ["map", "same"].iter().any(|key| entry.get(key).is_some()),
            }));
        }
    }
    for (table, what, hint) in TABLES {
        for (name, entry) in entries(descriptor, table) {
            let key = format!("{table}.{name}");
            found.extend(own(descriptor, entry, &key).map(|place| Definition {
                key,
                code: "name-unused",
                message: format!("nothing names {what} `{name}`"),
                hint,
                place,
                speaks: table == "tokens" && entry.get("id").is_some(),
            }));
        }
    }
    found
}

fn entries<'a>(
    descriptor: &'a Descriptor,
    table: &str,
) -> impl Iterator<Item = (&'a String, &'a Node)> {
    descriptor.source().get(table).and_then(Node::as_table).into_iter().flatten()
}

/// Where `entry` is written, if that is in the family's own file.
fn own(descriptor: &Descriptor, entry: &Node, key: &str) -> Option<Place> {
    let place = entry.origin.place(key);
    (place.file == descriptor.source().origin.place("").file).then_some(place)
}
