//! Printing: data to stdout, problems and errors to stderr, and the exit status.

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::{Value, json};
use vlm_spec::error::{Error, ErrorKind, Result};
use vlm_spec::problem::{Level, Problem, Problems};

/// The exit status of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// All is well.
    Fine,
    /// A check found errors, a capacity is too small, a snapshot differs.
    Found,
    /// Usage, or something cannot be read.
    Usage,
    /// A floor or count has no number.
    NoNumber,
    /// Ctrl-C.
    Interrupted,
}

impl Status {
    /// The number that the program ends with.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Found => 1,
            Self::Usage => 2,
            Self::NoNumber => 3,
            Self::Interrupted => 130, // what shells give for SIGINT
        }
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status.number())
    }
}

/// Writes text to stdout.
pub(crate) fn print(text: &str) -> Result<()> {
    print_on(text).map(|_| ())
}

/// Writes text to stdout at once; whether anyone is still there to read on.
pub(crate) fn print_on(text: &str) -> Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        // whoever reads us has seen enough
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            Err(Error::new(ErrorKind::Output, "cannot write to stdout").with_source(error))
        }
    }
}

/// Writes one JSON document to stdout.
pub(crate) fn print_json(document: &Value) -> Result<()> {
    let mut text = serde_json::to_string_pretty(document)
        .map_err(|error| Error::new(ErrorKind::Output, "cannot write JSON").with_source(error))?;
    text.push('\n');
    print(&text)
}

/// Writes a line to stderr.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes an error to stderr: its problems first, then one line, then its hint.
pub(crate) fn print_error(error: &Error) {
    for problem in error.problems() {
        note(&format!("{problem}\n"));
    }
    note(&format!("error: {error}"));
    if let Some(hint) = error.hint() {
        note(&format!("hint: {hint}"));
    }
}

/// Problems at or above a level, one after the other.
pub(crate) fn listed(problems: &Problems, least: Level) -> String {
    let lines: Vec<_> = problems
        .iter()
        .filter(|problem| problem.level >= least)
        .map(|problem| format!("{problem}\n"))
        .collect();
    lines.join("\n")
}

/// A problem as a finding of `check --json`.
pub(crate) fn finding(problem: &Problem) -> Value {
    let place = &problem.place;
    let mut document = json!({
        "code": problem.code,
        "level": problem.level.word(),
        "message": problem.message,
        "where": { "file": place.file, "key": place.key, "line": place.line },
        "expected": problem.expected,
        "found": problem.found,
    });
    if let (Some(hint), Some(object)) = (&problem.hint, document.as_object_mut()) {
        object.insert("hint".to_owned(), Value::from(hint.as_str()));
    }
    document
}

/// Rows of cells as a table with aligned columns; the first row is the heading.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width + 2 - cell.chars().count()));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
