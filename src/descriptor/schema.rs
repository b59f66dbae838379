//! The JSON Schema of a family file, generated from the types of [`super::family`].
//!
//! There are two forms of it. The *merged* form describes a complete family, after `extends` and `use`; the loader reads
//! it to report all problems of a family at once. The *written* form describes a file as people write it: a part, or a
//! family that refines another, may leave out any key of a table that merges, and it knows `extends`, `use` and the
//! `[tower]` of a part. The written form is the committed one, for editors.
//!
//! Keys beginning with `x-` are notes of the types to the loader and are not published:
//! `x-reads` says what kind of name or expression a string holds, `x-layout` that an expression may read the layout,
//! `x-members` and `x-kind` list and name a closed set.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::family::Family;
use super::part::Use;

/// What the written form says about itself.
const DESCRIPTION: &str = "A family file or a part of one, as written. Keys that the merged family requires may be left \
                           out here, since `extends` and `use` can supply them; `spec check` reports what is missing.";

static MERGED: LazyLock<Value> = LazyLock::new(|| {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    generator.subschema_for::<Use>();
    let mut schema = generator.into_root_schema_for::<Family>().to_value();
    tidy(&mut schema);
    schema
});

static WRITTEN: LazyLock<Value> = LazyLock::new(|| {
    let mut schema = MERGED.clone();
    relax(&mut schema);
    schema
});

/// The schema of a family file as written, for editors: the committed `schema/family.schema.json`.
pub fn family_schema() -> Value {
    let mut schema = WRITTEN.clone();
    publish(&mut schema);
    if let Some(root) = schema.as_object_mut() {
        root.insert("$schema".to_owned(), "http://json-schema.org/draft-07/schema#".into());
        root.insert("description".to_owned(), DESCRIPTION.into());
    }
    schema
}

/// The schema of a merged family, with the notes.
pub(super) fn merged() -> &'static Value {
    &MERGED
}

/// The schema of a file as written, with the notes.
pub(super) fn written() -> &'static Value {
    &WRITTEN
}

/// Takes out what TOML has no word for (`null`), and the marks of Rust documentation.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Object(object) => {
            object.values_mut().for_each(tidy);
            drop_null(object);
            describe_tag(object);
            if let Some(Value::String(text)) = object.get_mut("description") {
                *text = plain_words(text);
            }
        }
        _ => {}
    }
}

fn drop_null(object: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    let Some(Value::Array(branches)) = object.get_mut("anyOf") else { return };
    branches.retain(|branch| branch.get("type").and_then(Value::as_str) != Some("null"));
    if let [Value::Object(only)] = branches.as_slice() {
        let only = only.clone();
        object.shift_remove("anyOf");
        for (key, value) in only {
            object.entry(key).or_insert(value);
        }
    }
}

/// Gives the key that chooses a member the member's description.
fn describe_tag(object: &mut Map<String, Value>) {
    let Some(description) = object.get("description").cloned() else { return };
    let Some(Value::Object(properties)) = object.get_mut("properties") else { return };
    for property in properties.values_mut().filter_map(Value::as_object_mut) {
        if property.contains_key("const") {
            property.entry("description").or_insert_with(|| description.clone());
        }
    }
}

/// Lines joined to paragraphs, links turned into plain code.
fn plain_words(text: &str) -> String {
    let paragraphs: Vec<_> =
        text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect();
    paragraphs.join("\n\n").replace("[`", "`").replace("`]", "`")
}

/// From the merged to the written form.
fn relax(schema: &mut Value) {
    let mut tables = Vec::new();
    merging(schema, schema, &mut tables);
    let defs = schema.get_mut("$defs").and_then(Value::as_object_mut);
    for (name, def) in defs.into_iter().flatten() {
        if tables.contains(name) {
            optional(def);
        }
        if let ("Tower" | "Decoder", Some(Value::Object(properties))) =
            (name.as_str(), def.get_mut("properties"))
        {
            properties.insert(
                "use".to_owned(),
                json!({ "$ref": "#/$defs/Use", "description": "The part that this table is completed from." }),
            );
        }
    }
    optional(schema);
    if let Some(layouts) = schema.pointer_mut("/$defs/Tensors/properties/layouts") {
        layouts["additionalProperties"] = json!({ "$ref": "#" });
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.insert(
            "extends".to_owned(),
            json!({ "type": "string", "description": "The family, or the part as `parts/…`, that this file refines." }),
        );
        properties.insert(
            "tower".to_owned(),
            json!({ "$ref": "#/$defs/Tower", "description": "In a part of `parts/towers`: what stands at `image.tower`." }),
        );
    }
}

/// The definitions that are reached through tables alone. An array is replaced as a whole when files merge, so that its
/// items are complete wherever they are written.
fn merging(root: &Value, schema: &Value, found: &mut Vec<String>) {
    let Some(object) = schema.as_object() else { return };
    if let Some(name) =
        object.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix("#/$defs/"))
        && !found.iter().any(|known| known == name)
        && let Some(def) = root.get("$defs").and_then(|defs| defs.get(name))
    {
        found.push(name.to_owned());
        merging(root, def, found);
    }
    let properties =
        object.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::values);
    let branches =
        ["anyOf", "oneOf"].iter().filter_map(|key| object.get(*key)?.as_array()).flatten();
    for inner in properties.chain(branches).chain(object.get("additionalProperties")) {
        merging(root, inner, found);
    }
}

/// Lets every key of a table be left out, and of a table with a tag the tag.
fn optional(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    object.shift_remove("required");
    if let Some(Value::Array(branches)) = object.get_mut("oneOf")
        && branches.iter().any(|branch| branch.get("properties").is_some())
    {
        branches.iter_mut().for_each(optional);
        if let Some(branches) = object.shift_remove("oneOf") {
            object.insert("anyOf".to_owned(), branches);
        }
    }
    for key in ["properties", "additionalProperties"] {
        match object.get_mut(key) {
            Some(Value::Object(inner)) if key == "properties" => {
                inner.values_mut().for_each(optional);
            }
            Some(inner) => optional(inner),
            None => {}
        }
    }
}

/// Removes the notes, and writes what older drafts of JSON Schema understand as well: `definitions`, and no neighbours of
/// a `$ref`.
fn publish(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(publish),
        Value::Object(object) => {
            object.retain(|key, _| !key.starts_with("x-"));
            object.values_mut().for_each(publish);
            if let Some(defs) = object.shift_remove("$defs") {
                object.insert("definitions".to_owned(), defs);
            }
            if let Some(Value::String(path)) = object.get_mut("$ref") {
                *path = path.replace("#/$defs/", "#/definitions/");
            }
            if object.len() > 1
                && let Some(reference) = object.shift_remove("$ref")
            {
                object.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::node::Node;
    use super::super::references::READS;
    use super::super::validate;
    use super::*;

    fn files(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { files(&path, found) } else { found.push(path) }
        }
    }

    /// The written form accepts every family and every part as it stands in its file.
    #[test]
    fn every_file_fits_the_written_form() {
        let mut paths = Vec::new();
        files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("families"), &mut paths);
        assert!(!paths.is_empty());
        for path in paths {
            let node =
                Node::parse(&path.display().to_string(), &fs::read_to_string(&path).unwrap())
                    .unwrap();
            let problems = validate::written(&node);
            assert!(problems.is_empty(), "{problems}");
        }
    }

    #[test]
    fn the_written_form_still_refuses_what_no_merge_can_mend() {
        let cases = [
            "famly = 1",
            "[image.resize]\nkind = \"x\"",
            "[image.resize]\nstep = true",
            "[[example]]\ncheckpoint = \"x\"",
            "[image.connector]\nops = [{ op = \"merge\" }]",
            "[decoder]\nuse = 1",
            "[image]\nuse = \"x\"",
        ];
        for text in cases {
            let problems = validate::written(&Node::parse("x.toml", text).unwrap());
            assert_eq!(problems.len(), 1, "{text}\n{problems}");
        }
        for text in [
            "[image.resize]\nstep = 3",
            "[stacks.x]\nlayers = 3",
            "[tower.patch]\nsize = 3",
            "extends = \"x\"",
        ] {
            let problems = validate::written(&Node::parse("x.toml", text).unwrap());
            assert!(problems.is_empty(), "{text}\n{problems}");
        }
    }

    #[test]
    fn every_note_of_the_types_is_understood() {
        fn walk(schema: &Value, found: &mut Vec<String>) {
            match schema {
                Value::Object(object) => {
                    found.extend(object.get("x-reads").and_then(Value::as_str).map(str::to_owned));
                    object.values().for_each(|inner| walk(inner, found));
                }
                Value::Array(items) => items.iter().for_each(|inner| walk(inner, found)),
                _ => {}
            }
        }
        let mut found = Vec::new();
        walk(merged(), &mut found);
        found.sort();
        found.dedup();
        assert_eq!(found, READS);
    }

    /// A text that no note explains is taken as it stands, whatever it says. These are all of them: names of tensors, texts
    /// of tokens and prompts, sentences.
    #[test]
    fn every_text_is_judged_or_known_to_be_plain() {
        fn walk(schema: &Value, path: &str, judged: bool, plain: &mut Vec<String>) {
            let judged = judged
                || ["x-reads", "x-members", "const"].iter().any(|key| schema.get(key).is_some());
            if !judged && schema.get("type").is_some_and(|kind| *kind == "string") {
                plain.push(path.to_owned());
            }
            let table =
                |key: &str| schema.get(key).and_then(Value::as_object).into_iter().flatten();
            for (name, def) in table("$defs") {
                // what is one or several names is judged where it is used
                let judged = name == "OneOrMany";
                walk(def, name, judged, plain);
            }
            for (name, property) in table("properties") {
                let several = property.get("$ref").is_some_and(|def| *def == "#/$defs/OneOrMany");
                let noted = property.get("x-reads").is_some();
                if several && !noted {
                    plain.push(format!("{path}.{name}"));
                }
                walk(property, &format!("{path}.{name}"), false, plain);
            }
            for key in ["items", "additionalProperties"] {
                schema.get(key).inspect(|inner| walk(inner, path, judged, plain));
            }
            for key in ["anyOf", "oneOf"] {
                let branches = schema.get(key).and_then(Value::as_array).into_iter().flatten();
                branches.for_each(|branch| walk(branch, path, judged, plain));
            }
        }
        let mut plain = Vec::new();
        walk(merged(), "", false, &mut plain);
        // names of tensors by their slot
        plain.retain(|path| !path.contains("Names.") && !path.contains(".names."));
        plain.sort();
        plain.dedup();
        assert_eq!(plain, PLAIN_TEXTS);
    }

    const PLAIN_TEXTS: [&str; 40] = [
        "Audio.literals",
        "ClassRow.parameter",
        "ConnectorOp.name",
        "ConnectorOp.parameter",
        "Each",
        "Embedding.name",
        "Embedding.parameter",
        "Embedding.project_in",
        "Embedding.project_out",
        "Example.checkpoint",
        "FrameConv.name",
        "Header.about",
        "Header.no_budget",
        "Header.title",
        "Image.literals",
        "Inventory.what",
        "MoreRows.parameter",
        "Norm.name",
        "PartRows.name",
        "PartRows.project",
        "Patch.name",
        "Picked.or",
        "Picked.parts",
        "Picked.pick",
        "PositionRows.name",
        "PositionTable.name",
        "PositionTable.parameter",
        "Prompt.template",
        "TensorRoot.audio_connector",
        "TensorRoot.audio_tower",
        "TensorRoot.connector",
        "TensorRoot.decoder",
        "TensorRoot.head",
        "TensorRoot.tower",
        "TilePositions.after",
        "TilePositions.before",
        "TilePositions.table",
        "Token.text",
        "Use",
        "Vector.parameter",
    ];
}
