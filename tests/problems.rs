//! Broken family files with the problems they must be answered with, written as comments below the offending line.
//!
//! ```toml
//! heads = "vision.haeds"
//! # error[name-unknown]: there is no config value `vision.haeds`
//! #      key: stacks.vision.attention.heads
//! # expected: one of `vision.width`, …
//! #    found: `vision.haeds`
//! #     hint: did you mean `vision.heads`?
//! ```
//!
//! A problem that has no line, or is in another file, says so: `# (file) error[…]`, `# (other.toml:3) error[…]`.
//! `UPDATE_PROBLEMS=1 cargo nextest run --test problems` rewrites the comments; read what it wrote.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use vlm_spec::check::check_family;
use vlm_spec::descriptor::RawDescriptor;
use vlm_spec::problem::{Level, Problem, Problems};

/// A problem as the comments write it, and the line that they stand below; 0 for the top of the file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Expectation {
    line: usize,
    text: String,
}

#[test]
fn every_broken_family_is_answered_with_its_problems() {
    let mut wrong = String::new();
    let mut count = 0;
    for path in cases() {
        let text = fs::read_to_string(&path).unwrap();
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let mut found: Vec<_> =
            problems_of(&path).iter().map(|problem| written(problem, &file)).collect();
        if env::var_os("UPDATE_PROBLEMS").is_some() {
            fs::write(&path, rewritten(&text, &path)).unwrap();
            continue;
        }
        let mut expected = expectations(&text);
        count += expected.len();
        if expected.is_empty() {
            writeln!(wrong, "{file}: expects no problem at all").unwrap();
        }
        expected.sort();
        found.sort();
        for missing in expected.iter().filter(|expectation| !found.contains(expectation)) {
            writeln!(wrong, "{file}:{}: not found\n{}", missing.line, missing.text).unwrap();
        }
        for extra in found.iter().filter(|problem| !expected.contains(problem)) {
            writeln!(wrong, "{file}:{}: not expected\n{}", extra.line, extra.text).unwrap();
        }
        if expected.len() != found.len() {
            writeln!(wrong, "{file}: {} problems, {} expected", found.len(), expected.len())
                .unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(
        count > 100 || env::var_os("UPDATE_PROBLEMS").is_some(),
        "only {count} problems are expected in all"
    );
}

/// Every problem that is found says where it is, and what would be right or what to do.
#[test]
fn every_problem_is_complete() {
    for path in cases() {
        for problem in &problems_of(&path) {
            assert!(problem.place.file.is_some(), "{}: {problem}", path.display());
            let helps = problem.expected.is_some()
                || problem.hint.is_some()
                || problem.code == "expression"
                || problem.code == "strip"
                || problem.code == "toml-syntax";
            assert!(helps, "{}: {problem}", path.display());
            assert!(!problem.message.ends_with('.'), "{problem}");
            assert!(!problem.message.starts_with(char::is_uppercase), "{problem}");
            let harmless = [
                "value-unused",
                "name-unused",
                "root-unreachable",
                "layout-unreachable",
                "match-overlap",
            ];
            let level =
                if harmless.contains(&problem.code) { Level::Warning } else { Level::Error };
            assert_eq!(problem.level, level, "{problem}");
        }
    }
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/problems");
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    paths
}

/// The problems of a file by itself.
fn problems_of(path: &Path) -> Problems {
    let raw = match RawDescriptor::load(path.to_str().unwrap()) {
        Ok(raw) => raw,
        Err(error) => return error.problems().clone(),
    };
    check_family(&raw).unwrap()
}

fn written(problem: &Problem, file: &str) -> Expectation {
    let place = &problem.place;
    let at = Path::new(place.file.as_deref().unwrap_or("?"));
    let name = at.file_name().unwrap().to_string_lossy();
    let is_case = at.parent().is_some_and(|folder| folder.ends_with("tests/problems"));
    let (line, prefix) = match place.line {
        Some(line) if name == file => (line, String::new()),
        None if name == file => (0, "(file) ".to_owned()),
        Some(line) if is_case => (0, format!("({name}:{line}) ")),
        // the line of a built-in file changes with it
        _ => (0, format!("({}) ", place.file.as_deref().unwrap_or("?"))),
    };
    let mut text =
        format!("# {prefix}{}[{}]: {}", problem.level.word(), problem.code, problem.message);
    let details = [
        ("key", &place.key),
        ("expected", &problem.expected),
        ("found", &problem.found),
        ("hint", &problem.hint),
    ];
    for (label, detail) in details {
        if let Some(detail) = detail {
            // the folder of the test is not part of a message; long lists grow with the vocabulary
            let detail =
                detail.replace(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/problems/"), "");
            let detail = if label == "expected" { shortened(&detail) } else { detail };
            write!(text, "\n# {label:>8}: {}", detail.replace('\n', "\\n")).unwrap();
        }
    }
    Expectation {
        line,
        text: text.replace(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/problems/"), ""),
    }
}

/// Of a list of more than four names the first three.
fn shortened(expected: &str) -> String {
    let names: Vec<_> = expected.split("`, `").collect();
    if names.len() > 4 && expected.starts_with("one of `") && expected.ends_with('`') {
        return format!("{}`, …", names[..3].join("`, `"));
    }
    expected.to_owned()
}

fn is_head(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("# ") else { return false };
    let rest = match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(") ").map_or("", |(_, rest)| rest),
        None => rest,
    };
    ["error[", "warning[", "note["].iter().any(|level| rest.starts_with(level))
}

fn is_detail(line: &str) -> bool {
    let Some((label, _)) = line.strip_prefix("# ").and_then(|rest| rest.split_once(": ")) else {
        return false;
    };
    label.len() == 8 && ["key", "expected", "found", "hint"].contains(&label.trim_start())
}

fn expectations(text: &str) -> Vec<Expectation> {
    let mut expectations: Vec<Expectation> = Vec::new();
    let mut content = 0;
    for (index, line) in text.split('\n').enumerate() {
        if is_head(line) {
            let line_of = if line.starts_with("# (") { 0 } else { content };
            expectations.push(Expectation { line: line_of, text: line.to_owned() });
        } else if is_detail(line) {
            let last = expectations.last_mut().expect("a detail stands below a problem");
            last.text.push('\n');
            last.text.push_str(line);
        } else {
            content = index + 1;
        }
    }
    expectations
}

/// The file with the comments that it should have. Those of the file as a whole stand at its end.
fn rewritten(text: &str, path: &Path) -> String {
    let file = path.file_name().unwrap().to_string_lossy().into_owned();
    let text = if text.trim().is_empty() { "\n" } else { text };
    let bare: Vec<_> = text.split('\n').filter(|line| !is_head(line) && !is_detail(line)).collect();
    fs::write(path, bare.join("\n")).unwrap();
    let found: Vec<_> = problems_of(path).iter().map(|problem| written(problem, &file)).collect();
    let mut lines = Vec::new();
    for (index, line) in bare.iter().enumerate() {
        lines.push((*line).to_owned());
        lines.extend(
            found
                .iter()
                .filter(|problem| problem.line == index + 1)
                .map(|problem| problem.text.clone()),
        );
    }
    let whole: Vec<_> = found
        .iter()
        .filter(|problem| problem.line == 0)
        .map(|problem| problem.text.clone())
        .collect();
    if !whole.is_empty() {
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines.extend(whole);
        lines.push(String::new());
    }
    lines.join("\n")
}

/// Files that no editor would keep.
mod odd_files {
    use super::*;

    fn load(name: &str, bytes: &[u8]) -> Vec<String> {
        let folder =
            env::temp_dir().join(format!("vlm-spec-problems-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("odd.toml");
        fs::write(&path, bytes).unwrap();
        let problems = problems_of(&path);
        fs::remove_dir_all(&folder).unwrap();
        let folder = format!("{}/", folder.display());
        problems.iter().map(|problem| problem.to_string().replace(&folder, "")).collect()
    }

    #[test]
    fn a_byte_order_mark_is_no_problem() {
        assert_eq!(
            load(
                "bom",
                b"\xef\xbb\xbfextends = \"qwen2vl\"\nfamily.match = [{ model_type = \"odd\" }]\n"
            ),
            [""; 0]
        );
    }

    #[test]
    fn windows_line_ends_are_no_problem() {
        assert_eq!(
            load("crlf", b"extends = \"qwen2vl\"\r\nfamily.match = [{ model_type = \"odd\" }]\r\n[image]\r\nmarker = \"start\"\r\n"),
            [""; 0]
        );
        assert_eq!(
            load("crlf-line", b"extends = \"qwen2vl\"\r\n\r\n[image]\r\nmarker = 1\r\n"),
            [
                "error[value-type]: `marker` does not take this value\n  --> odd.toml:4: image.marker\n   \
              expected: a string\n      found: the integer `1`"
            ]
        );
    }

    #[test]
    fn other_encodings_are_refused_with_a_line() {
        assert_eq!(
            load("latin", b"# a\n# caf\xe9\n"),
            [
                "error[file-unreadable]: `odd.toml` is not UTF-8\n  --> odd.toml:2\n   expected: text in UTF-8\n      \
              found: byte 0xe9 at offset 9"
            ]
        );
        let utf16: Vec<u8> = std::iter::once(0xfeff)
            .chain("a = 1".encode_utf16())
            .flat_map(u16::to_le_bytes)
            .collect();
        assert_eq!(load("utf16", &utf16).len(), 1);
    }

    #[test]
    fn a_huge_file_is_refused() {
        assert_eq!(
            load("huge", &b"# a comment of some length\n".repeat(200_000)),
            [
                "error[file-unreadable]: `odd.toml` is too large for a family file\n  --> odd.toml\n   \
              expected: at most 1048576 bytes\n      found: more"
            ]
        );
    }

    #[test]
    fn garbage_is_answered_with_few_problems() {
        let problems = load("garbage", &b"%$#\n".repeat(100_000));
        assert_eq!(problems.len(), 21);
        assert!(problems[20].contains("99980 more lines cannot be read"), "{}", problems[20]);
    }

    #[test]
    fn deep_nesting_does_not_overflow_the_stack() {
        let too_deep = "error[toml-syntax]: arrays or tables are nested too deep\n  --> odd.toml:1";
        let cases = [
            format!("x = {}{}", "[".repeat(10_000), "]".repeat(10_000)),
            format!("x = {}", "[".repeat(10_000)),
            format!("x = {}", "{a=".repeat(10_000)),
            format!("{}a = 1", "a.".repeat(100_000)),
            format!("[{}a]\nb = 1", "a.".repeat(100_000)),
            format!("[[{}a]]\nb = 1", "a.".repeat(100_000)),
        ];
        for (index, text) in cases.iter().enumerate() {
            assert_eq!(load(&format!("deep{index}"), text.as_bytes())[0], too_deep, "case {index}");
        }
        let expressions = [
            format!("{}1", "(".repeat(10_000)),
            format!("{}1", "-".repeat(900)),
            "!".repeat(5_000),
        ];
        for (index, text) in expressions.iter().enumerate() {
            let file = format!("extends = \"qwen2vl\"\n[floor]\nimage = \"{text}\"\n");
            assert_eq!(load(&format!("expression{index}"), file.as_bytes()).len(), 1);
        }
    }

    #[test]
    fn a_file_that_is_not_there() {
        let error = RawDescriptor::load("no/such/family.toml").unwrap_err();
        assert_eq!(error.message(), "family `no/such/family.toml` has 1 problem");
        let error = RawDescriptor::load("lava").unwrap_err();
        let problem = error.problems().iter().next().unwrap();
        assert_eq!(problem.hint.as_deref(), Some("did you mean `llava`?"));
        assert!(RawDescriptor::load("").is_err());
        assert!(RawDescriptor::load("tests").is_err());
    }
}
