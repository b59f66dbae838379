//! The rules of the house, as far as a program can hold them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use vlm_spec::descriptor::{Node, NodeValue};

/// Rooms from the ground up: a module imports only what stands before it.
const ORDER: [&str; 19] = [
    "problem",
    "error",
    "progress",
    "tensor",
    "backend",
    "media",
    "descriptor",
    "layout",
    "checkpoint",
    "plan",
    "preprocess",
    "prompt",
    "graph",
    "floor",
    "check",
    "model",
    "generate",
    "score",
    "snapshot",
];

/// Words by which people know families. `clip` is missing: a clip is also a piece of sound, and what a sampler does.
const FAMILY_WORDS: [&str; 22] = [
    "llava", "qwen", "gemma", "granite", "molmo", "mllama", "llama", "pixtral", "mistral",
    "internvl", "internlm", "idefics", "smolvlm", "blip", "siglip", "vicuna", "deepseek",
    "minicpm", "florence", "whisper", "voxtral", "ultravox",
];

const LONGEST_FILE: usize = 700;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &str, extension: &str) -> Vec<(String, String)> {
    fn walk(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, extension, found);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    let mut paths = Vec::new();
    walk(&root().join(folder), extension, &mut paths);
    paths.sort();
    let named = |path: PathBuf| {
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
        (name, fs::read_to_string(path).unwrap())
    };
    paths.into_iter().map(named).collect()
}

/// A line of Rust without its comment.
fn code(line: &str) -> &str {
    let comment = line.match_indices("//").find(|(at, _)| !line[..*at].ends_with(':'));
    comment.map_or(line, |(at, _)| &line[..at])
}

/// Names of families, model types and checkpoints that the family files state.
fn stated_names() -> Vec<String> {
    fn strings(node: &Node, found: &mut Vec<String>) {
        match &node.value {
            NodeValue::String(text) => found.push(text.to_lowercase()),
            NodeValue::Array(items) => items.iter().for_each(|item| strings(item, found)),
            NodeValue::Table(table) => table.values().for_each(|item| strings(item, found)),
            _ => {}
        }
    }
    let mut names = Vec::new();
    for (file, text) in files("families", "toml") {
        let node = Node::parse(&file, &text).unwrap();
        if !file.contains("/parts/") {
            names.push(Path::new(&file).file_stem().unwrap().to_string_lossy().into_owned());
        }
        node.get("family.match").inspect(|matches| strings(matches, &mut names));
        if let Some(NodeValue::Array(examples)) = node.get("example").map(|example| &example.value)
        {
            examples
                .iter()
                .filter_map(|example| example.get("checkpoint"))
                .for_each(|name| strings(name, &mut names));
        }
    }
    names.sort();
    names.dedup();
    names
}

#[test]
fn no_code_names_a_family() {
    let names = stated_names();
    assert!(names.len() > 3, "{names:?}");
    let mut found = Vec::new();
    for (file, text) in files("src", "rs") {
        for (index, line) in text.lines().enumerate() {
            let line = code(line).to_lowercase();
            let words: Vec<_> =
                line.split(|c: char| !c.is_alphanumeric() && !"_-/.".contains(c)).collect();
            let word = FAMILY_WORDS
                .iter()
                .find(|word| line.contains(**word))
                .map(|word| (*word).to_owned());
            if let Some(word) =
                word.or_else(|| names.iter().find(|name| words.contains(&name.as_str())).cloned())
            {
                found.push(format!("{file}:{}: `{word}`", index + 1));
            }
        }
    }
    assert!(found.is_empty(), "code names families:\n{}", found.join("\n"));
}

#[test]
fn nothing_is_left_undone() {
    let marks = [
        concat!("todo", "!"),
        concat!("unimplemented", "!"),
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
    ];
    let mut found = Vec::new();
    for (file, text) in files("src", "rs").into_iter().chain(files("families", "toml")) {
        for (index, line) in text.lines().enumerate() {
            found.extend(
                marks
                    .iter()
                    .filter(|mark| line.contains(**mark))
                    .map(|mark| format!("{file}:{}: {mark}", index + 1)),
            );
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn files_have_a_readable_length() {
    let long: Vec<_> = files("src", "rs")
        .into_iter()
        .map(|(file, text)| (text.lines().count(), file))
        .filter(|(lines, _)| *lines >= LONGEST_FILE)
        .collect();
    assert!(long.is_empty(), "split {long:?}");
}

#[test]
fn lower_rooms_import_no_upper_ones() {
    let place = |module: &str| ORDER.iter().position(|known| *known == module);
    let mut found = Vec::new();
    for (file, text) in files("src", "rs") {
        let module =
            file.trim_start_matches("src/").split(['/', '.']).next().unwrap_or_default().to_owned();
        if ["lib", "main", "cli"].contains(&module.as_str()) {
            continue;
        }
        let Some(own) = place(&module) else {
            found.push(format!("{file}: `{module}` has no place in the order of the house"));
            continue;
        };
        let mut line_number = 0;
        for line in text.lines() {
            line_number += 1;
            for part in code(line).split("crate::").skip(1) {
                let name = part
                    .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .next()
                    .unwrap_or_default();
                if place(name).is_some_and(|imported| imported > own) {
                    found.push(format!("{file}:{line_number}: `{module}` imports `{name}`"));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn family_files_begin_with_their_schema_and_a_sentence() {
    for (file, text) in files("families", "toml") {
        let mut lines = text.lines();
        let schema =
            lines.next().and_then(|line| line.strip_prefix("#:schema ")).unwrap_or_default();
        let target = root().join(&file).parent().unwrap().join(schema);
        assert!(
            schema.ends_with("schema/family.schema.json"),
            "{file} does not begin with its `#:schema` line"
        );
        assert!(target.is_file(), "{file}: `{schema}` is not there");
        let comment: Vec<_> = lines.take_while(|line| line.starts_with('#')).collect();
        let first = comment.first().and_then(|line| line.strip_prefix("# ")).unwrap_or_default();
        assert!(
            first.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit()),
            "{file} begins without a sentence"
        );
        assert!(comment.join(" ").contains('.'), "{file}: the sentence has no end");
    }
}

#[test]
fn there_is_a_readme() {
    assert!(root().join("README.md").is_file());
}

/// Every finding code stands in `docs/findings.md`, and that page names no other.
#[test]
fn every_finding_code_is_documented() {
    let page = fs::read_to_string(root().join("docs/findings.md")).unwrap();
    let documented: std::collections::BTreeSet<String> = page
        .lines()
        .filter_map(|line| {
            line.strip_prefix("| `")?.split_once('`').map(|(code, _)| code.to_owned())
        })
        .collect();
    let mut used = std::collections::BTreeSet::new();
    for (_, text) in files("src", "rs") {
        // the code is the first argument of the constructor, perhaps on the next line
        for (at, _) in text
            .match_indices("roblem::error(")
            .chain(text.match_indices("complain("))
            .chain(text.match_indices(".problem("))
        {
            let rest = text[at..].split_once('(').map_or("", |(_, rest)| rest).trim_start();
            if let Some(code) =
                rest.strip_prefix('"').and_then(|rest| rest.split_once('"')).map(|(code, _)| code)
            {
                used.insert(code.to_owned());
            }
        }
    }
    assert!(used.len() > 30, "{used:?}");
    let missing: Vec<_> = used.difference(&documented).collect();
    assert!(missing.is_empty(), "not in docs/findings.md: {missing:?}");
}
