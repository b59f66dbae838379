//! The descriptor language: its schema, its reference page, and what the built-in files must satisfy.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use serde_json::Value;
use vlm_spec::check::check_family;
use vlm_spec::checkpoint::Source;
use vlm_spec::descriptor;
use vlm_spec::descriptor::{Library, RawDescriptor, family_schema};
use vlm_spec::plan::tensors::Component;

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
    let schema = family_schema();
    let kinds = schema["definitions"]["Resize"]["anyOf"].as_array().unwrap();
    let kinds = kinds.iter().map(|kind| kind["properties"]["kind"]["const"].as_str().unwrap());
    assert!(kinds.eq(descriptor::resize::KINDS.map(|(kind, _)| kind)));
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

/// No built-in family is found fault with, not even by a warning; and a formula that is off is found out in every one, without
/// any checkpoint.
#[test]
fn every_built_in_family_is_free_of_mistakes() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mistakes");
    fs::create_dir_all(&folder).unwrap();
    for name in Library::families() {
        let raw = RawDescriptor::load(name).unwrap();
        let problems = check_family(&raw).unwrap();
        assert!(problems.is_empty(), "{name}:\n{problems}");
        if raw.header().unwrap().no_budget.is_some() {
            continue;
        }
        let family = raw.describe(&raw.first_parts()).unwrap().family;
        for (modality, formula) in &family.floor {
            let more = ["rows", "tiles", "crops"].into_iter().find(|name| formula.contains(name));
            let more = more.map(|name| format!("{formula} + {name}"));
            for wrong in [format!("{formula} + 1")].into_iter().chain(more) {
                let path = folder.join("wrong.toml");
                let file = format!(
                    "extends = \"{name}\"\nfamily.match = [{{ model_type = \"wrong\" }}]\nfloor.{modality} = \"{wrong}\"\n"
                );
                fs::write(&path, file).unwrap();
                let problems =
                    check_family(&RawDescriptor::load(path.to_str().unwrap()).unwrap()).unwrap();
                let codes: Vec<_> = problems.iter().map(|problem| problem.code).collect();
                assert_eq!(codes, ["strip-length"], "{name}: {wrong}\n{problems}");
            }
        }
    }
}

/// Formulas that are right for every checkpoint, or for some and not for others, are left to the check against one.
#[test]
fn what_only_a_checkpoint_can_tell_is_left_alone() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("silent");
    fs::create_dir_all(&folder).unwrap();
    let cases = [
        // the view's cells are stated by a config value, too
        ("llavaonevision", "base_rows * base_cols - image.drop + rows * (cols + 1)"),
        ("paligemma", "rows * cols"),
        // the policy relates these
        ("internvl", "(rows * cols + thumb) * image.seq + 2"),
        ("internvl", "(rows * cols + min(rows * cols - 1, thumb)) * image.seq + 2"),
        ("ayavision", "tiles * image.seq + tiles + 2"),
        ("mistral3", "div_ceil(height, 28) * (cols + 1)"),
    ];
    for (name, formula) in cases {
        let path = folder.join("silent.toml");
        let file = format!(
            "extends = \"{name}\"\nfamily.match = [{{ model_type = \"silent\" }}]\nfloor.image = \"{formula}\"\n"
        );
        fs::write(&path, file).unwrap();
        let problems = match RawDescriptor::load(path.to_str().unwrap()) {
            Ok(raw) => check_family(&raw).unwrap(),
            Err(error) => panic!("{}", error.problems()),
        };
        assert!(problems.is_empty(), "{name}: {formula}\n{problems}");
    }
}

/// `docs/reference.md` is written from the schema, and so are all its words.
#[test]
fn the_reference_page_is_current() {
    let path = file("docs/reference.md");
    let expected = reference();
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &expected).unwrap();
    } else {
        let page = fs::read_to_string(&path).unwrap_or_default();
        assert!(page == expected, "run `UPDATE_DOCS=1 cargo nextest run --test descriptor`");
    }
}

/// The guide stays an hour's reading; what is complete is the reference.
#[test]
fn the_guide_stays_short() {
    let guide = fs::read_to_string(file("docs/families.md")).unwrap();
    assert!(guide.lines().count() <= 320, "{} lines", guide.lines().count());
}

const REFERENCE_HEAD: &str = "# The language of family files, key by key

Written from the types that read the files (`cargo run -- schema` prints the same as JSON Schema); do not edit. `docs/families.md`
explains how the parts go together. A key in **bold** must be there. *Takes* names a kind of value: a type of TOML, or another
heading of this page.

";

/// Every definition of the schema as a section.
fn reference() -> String {
    let schema = family_schema();
    let mut page = REFERENCE_HEAD.to_owned();
    section(&mut page, "Family", &schema);
    for (name, definition) in schema["definitions"].as_object().unwrap() {
        section(&mut page, name, definition);
    }
    page
}

fn section(page: &mut String, name: &str, definition: &Value) {
    writeln!(page, "## {}\n", spaced(name)).unwrap();
    if let Some(text) = definition["description"].as_str() {
        writeln!(page, "{}\n", cell(text).replace("\\|", "|")).unwrap();
    }
    keys(page, definition);
    let branches: Vec<_> =
        ["oneOf", "anyOf"].iter().filter_map(|key| definition[*key].as_array()).flatten().collect();
    let nested = branches.iter().flat_map(|branch| {
        branch["oneOf"].as_array().map_or_else(|| vec![*branch], |inner| inner.iter().collect())
    });
    let nested: Vec<&Value> = nested.collect();
    let words: Vec<_> =
        nested.iter().filter_map(|branch| Some((branch["const"].as_str()?, branch))).collect();
    if !words.is_empty() {
        page.push_str("| word | meaning |\n|---|---|\n");
        for (word, branch) in &words {
            let meaning = branch["description"].as_str().unwrap_or_default();
            writeln!(page, "| `{word}` | {} |", cell(meaning)).unwrap();
        }
        page.push('\n');
        if nested.len() > words.len() {
            page.push_str("Or the name of a config value that holds one of these words.\n\n");
        }
    }
    let mut takes = Vec::new();
    for branch in &nested {
        let tag = branch["properties"].as_object().and_then(|properties| {
            properties.iter().find_map(|(key, property)| Some((key, property["const"].as_str()?)))
        });
        match tag {
            Some((key, value)) => {
                writeln!(page, "### `{key} = \"{value}\"`\n").unwrap();
                let meaning = branch["description"]
                    .as_str()
                    .or(branch["properties"][key]["description"].as_str());
                if let Some(text) = meaning {
                    writeln!(page, "{}\n", cell(text).replace("\\|", "|")).unwrap();
                }
                keys(page, branch);
            }
            None if branch["properties"].is_object() => keys(page, branch),
            None if branch["const"].is_string() => {}
            None => takes.push(kind(branch)),
        }
    }
    takes.dedup();
    if words.is_empty() && !takes.is_empty() {
        writeln!(page, "Takes {}.\n", takes.join(" or ")).unwrap();
    }
}

/// A table of the keys of a table.
fn keys(page: &mut String, definition: &Value) {
    let Some(properties) = definition["properties"].as_object() else { return };
    let rows: Vec<_> =
        properties.iter().filter(|(_, property)| property.get("const").is_none()).collect();
    if rows.is_empty() {
        return;
    }
    let required = definition["required"].as_array().cloned().unwrap_or_default();
    page.push_str("| key | takes | meaning |\n|---|---|---|\n");
    for (key, property) in rows {
        let bold = if required.iter().any(|name| name == key) { "**" } else { "" };
        let meaning = property["description"].as_str().unwrap_or_default();
        writeln!(page, "| {bold}`{key}`{bold} | {} | {} |", kind(property), cell(meaning)).unwrap();
    }
    page.push('\n');
}

/// What a slot takes, in words, with a link where that is a section of its own.
fn kind(schema: &Value) -> String {
    if let Some(target) = schema["$ref"].as_str().or(schema["allOf"][0]["$ref"].as_str()) {
        let name = spaced(target.rsplit('/').next().unwrap());
        return format!("[{name}](#{})", name.replace(' ', "-"));
    }
    let one = |name: &str| match name {
        "object" => match &schema["additionalProperties"] {
            inner @ Value::Object(_) => format!("a table of {}", kind(inner)),
            _ => "a table".to_owned(),
        },
        "array" => format!("a list of {}", kind(&schema["items"])),
        "string" => "text".to_owned(),
        "boolean" => "true or false".to_owned(),
        other => format!("{}{other}", if other == "integer" { "an " } else { "a " }),
    };
    match &schema["type"] {
        Value::String(name) => one(name),
        Value::Array(names) => {
            names.iter().filter_map(Value::as_str).map(one).collect::<Vec<_>>().join(" or ")
        }
        _ => {
            let branches = ["anyOf", "oneOf"].iter().filter_map(|key| schema[*key].as_array());
            let mut words: Vec<_> = branches.flatten().map(kind).collect();
            words.dedup();
            if words.is_empty() { "any value".to_owned() } else { words.join(" or ") }
        }
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
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
