//! The sessions of README and guides are true: every `$ spec …` line in a `console` block prints what stands below it.
//!
//! `UPDATE_README=1 cargo test --release --test readme` writes what the program prints now.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// A command line split as a shell does with double quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, piece) in line.split('"').enumerate() {
        if index % 2 == 1 {
            words.push(piece.to_owned());
        } else {
            words.extend(piece.split_whitespace().map(str::to_owned));
        }
    }
    words
}

fn output(line: &str) -> String {
    let words = words(line);
    assert_eq!(words[0], "spec", "{line}");
    let output = Command::new(env!("CARGO_BIN_EXE_spec"))
        .args(&words[1..])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    text.trim_end().to_owned()
}

/// The pages with sessions, and how many commands each has at least.
const PAGES: [(&str, usize); 4] =
    [("README.md", 8), ("docs/adding.md", 7), ("docs/floors.md", 3), ("docs/running.md", 9)];

#[test]
fn sessions_print_what_the_pages_show() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::create_dir_all(root.join("target")).unwrap();
    for (page, least) in PAGES {
        let text = fs::read_to_string(root.join(page)).unwrap();
        let (rewritten, commands) = run_sessions(&text);
        assert!(commands >= least, "{page}: only {commands} sessions");
        if std::env::var_os("UPDATE_README").is_some() {
            fs::write(root.join(page), rewritten).unwrap();
        } else {
            assert!(
                text == rewritten,
                "{page} is out of date; `UPDATE_README=1 cargo test --release --test readme`\n{rewritten}"
            );
        }
    }
}

/// The page with what its commands print now, and how many there are.
fn run_sessions(text: &str) -> (String, usize) {
    let mut rewritten = String::new();
    let mut in_session = false;
    let mut commands = 0;
    for line in text.lines() {
        if line.starts_with("```") {
            in_session = line == "```console";
        }
        if in_session && let Some(command) = line.strip_prefix("$ ") {
            commands += 1;
            rewritten.push_str(&format!("$ {command}\n"));
            let printed = output(command);
            if !printed.is_empty() {
                rewritten.push_str(&printed);
                rewritten.push('\n');
            }
        } else if !in_session || line.starts_with("```") {
            rewritten.push_str(line);
            rewritten.push('\n');
        }
    }
    (rewritten, commands)
}

/// The first command of the README prints the number in the picture.
#[test]
fn the_first_command_reads_the_sample() {
    let readme =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let command =
        readme.lines().find_map(|line| line.strip_prefix("cargo run --release -- ")).unwrap();
    let printed = output(&format!("spec {command}"));
    assert!(printed.len() >= 4 && printed.bytes().all(|byte| byte.is_ascii_digit()), "{printed}");
    assert!(readme.contains(&format!("The first prints `{printed}`")), "{printed}");
}
