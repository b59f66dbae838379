//! The descriptor language: its schema, its reference page, and what the built-in files must satisfy.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use serde_json::{Map, Value};
use vlm_spec::checkpoint::Source;
use vlm_spec::descriptor::{Library, RawDescriptor, family_schema};
use vlm_spec::plan::tensors::Component;
use vlm_spec::{descriptor, layout};

const BEGIN: &str = "<!-- vocabulary: generated, see tests/descriptor.rs -->\n";
const END: &str = "<!-- end of vocabulary -->\n";

fn file(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn the_committed_schema_is_current() {
    let expected = serde_json::to_string_pretty(&family_schema()).unwrap() + "\n";
    let committed = fs::read_to_string(file("schema/family.schema.json")).unwrap_or_default();
    assert!(
        committed == expected,
        "run `cargo run --release -- schema > schema/family.schema.json`"
    );
}

#[test]
fn every_key_of_the_schema_is_described() {
    fn walk(schema: &Value, path: &str, missing: &mut Vec<String>) {
        match schema {
            Value::Object(object) => {
                for (key, property) in
                    object.get("properties").and_then(Value::as_object).into_iter().flatten()
                {
                    if property.get("description").and_then(Value::as_str).is_none_or(str::is_empty)
                    {
                        missing.push(format!("{path}.{key}"));
                    }
                }
                for member in object.get("oneOf").and_then(Value::as_array).into_iter().flatten() {
                    if member.get("description").is_none() {
                        missing.push(format!("{path}: {member}"));
                    }
                }
                for (key, inner) in object {
                    walk(inner, &format!("{path}.{key}"), missing);
                }
            }
            Value::Array(items) => items.iter().for_each(|inner| walk(inner, path, missing)),
            _ => {}
        }
    }
    let mut missing = Vec::new();
    walk(&family_schema(), "", &mut missing);
    assert!(missing.is_empty(), "without a description: {missing:#?}");
}

#[test]
fn the_schema_speaks_to_old_readers() {
    let text = family_schema().to_string();
    for word in ["\"x-", "$defs", ":\"null\"", "[`"] {
        assert!(!text.contains(word), "the schema holds {word}");
    }
}

/// Names that two rooms of the house know without importing each other.
#[test]
fn words_agree_across_layers() {
    let layout = layout::Layout { rows: 0, cols: 0, width: 0, height: 0 };
    assert_eq!(layout.fields().map(|(name, _)| name), layout::LAYOUT_NAMES);
    assert_eq!(descriptor::config::SOURCES, Source::NAMES.map(|(name, _)| name));
    assert_eq!(descriptor::family::COMPONENTS, Component::NAMES.map(|(name, _)| name));
}

#[test]
fn every_built_in_family_is_well_formed_with_every_part() {
    for name in Library::families() {
        let raw = RawDescriptor::load(name).unwrap();
        for parts in raw.combinations() {
            if let Err(error) = raw.describe(&parts) {
                panic!("{name} with {parts:?}:\n{}", error.problems());
            }
        }
        assert!(!raw.combinations().is_empty());
    }
}

#[test]
fn the_reference_page_lists_the_whole_vocabulary() {
    let path = file("docs/families.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the vocabulary");
    let (_, after) = rest.split_once(END).expect("the vocabulary has an end");
    let expected = format!("{before}{BEGIN}{}{END}{after}", vocabulary());
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &expected).unwrap();
    } else {
        assert!(page == expected, "run `UPDATE_DOCS=1 cargo nextest run --test descriptor`");
    }
    // the vocabulary grows, the rest stays an hour's reading
    let written = before.lines().count() + after.lines().count();
    assert!(written <= 300, "{written} lines are written by hand");
}

/// Keys of the language that the page does not name in code.
#[test]
fn the_reference_page_names_every_key() {
    let page = fs::read_to_string(file("docs/families.md")).unwrap();
    let words: Vec<_> = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let schema = family_schema();
    let mut missing = Vec::new();
    for (name, definition) in
        schema["definitions"].as_object().unwrap().iter().chain([(&String::new(), &schema)])
    {
        for key in definition["properties"].as_object().into_iter().flat_map(Map::keys) {
            if !words.contains(&key.as_str()) {
                missing.push(format!("{name}.{key}"));
            }
        }
    }
    assert!(missing.is_empty(), "the page does not mention {missing:?}");
}

/// A table of every member of every closed set.
fn vocabulary() -> String {
    let schema = family_schema();
    let mut table = String::from("| set | member | meaning |\n|---|---|---|\n");
    for (name, definition) in schema["definitions"].as_object().unwrap() {
        let mut set = spaced(name);
        for (member, meaning) in members(definition) {
            writeln!(table, "| {set} | `{member}` | {} |", meaning.replace('|', "\\|")).unwrap();
            set.clear();
        }
    }
    table
}

/// `MlpKind` as `mlp kind`.
fn spaced(name: &str) -> String {
    let mut words = String::new();
    for character in name.chars() {
        if character.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(character.to_lowercase());
    }
    words
}

/// The members of a definition: constants, or tables told apart by a constant key, with their other keys.
fn members(definition: &Value) -> Vec<(String, String)> {
    let branches =
        ["oneOf", "anyOf"].iter().filter_map(|key| definition[*key].as_array()).flatten();
    let mut found = Vec::new();
    for branch in branches {
        let meaning = branch["description"].as_str().unwrap_or_default();
        if let Some(name) = branch["const"].as_str() {
            found.push((name.to_owned(), meaning.to_owned()));
        } else if let Some(properties) = branch["properties"].as_object() {
            let Some((tag, name)) = properties
                .iter()
                .find_map(|(key, property)| Some((key, property["const"].as_str()?)))
            else {
                continue;
            };
            let keys: Vec<_> =
                properties.keys().filter(|key| *key != tag).map(|key| format!("`{key}`")).collect();
            let keys = if keys.is_empty() {
                String::new()
            } else {
                format!(" Keys: {}.", keys.join(", "))
            };
            found.push((name.to_owned(), format!("{meaning}{keys}")));
        } else {
            found.extend(members(branch));
        }
    }
    found
}
