//! `spec check`.

use serde_json::json;
use vlm_spec::check::{Report, check, check_family};
use vlm_spec::descriptor::RawDescriptor;
use vlm_spec::error::{Error, ErrorKind, Result};
use vlm_spec::problem::{Level, Problem};

use super::arguments::{CheckCommand, load};
use super::output::{Status, finding, listed, print, print_json};

pub(super) fn run(command: &CheckCommand) -> Result<Status> {
    let (family, checkpoint) = command.subject.split()?;
    let report = match (family, checkpoint) {
        (Some(family), None) => descriptor_alone(family)?,
        (family, Some(checkpoint)) => match load(family, checkpoint) {
            Ok((raw, checkpoint)) => check(&raw, &checkpoint)?,
            Err(error) if error.kind() == ErrorKind::Descriptor => {
                failed(family.unwrap_or_default(), &error)
            }
            Err(error) => return Err(error),
        },
        (None, None) => return Err(Error::new(ErrorKind::Usage, "nothing is named to check")),
    };
    let status = if report.ok() { Status::Fine } else { Status::Found };
    if command.json {
        let findings: Vec<_> = report.findings.iter().map(finding).collect();
        print_json(&json!({ "family": report.family, "ok": report.ok(), "findings": findings }))?;
        return Ok(status);
    }
    let least = match (command.verbose, command.quiet) {
        (true, _) => Level::Note,
        (_, true) => Level::Error,
        _ => Level::Warning,
    };
    let mut text = listed(&report.findings, least);
    if !command.quiet {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&summary(&report, command.verbose));
    }
    print(&text)?;
    Ok(status)
}

fn summary(report: &Report, verbose: bool) -> String {
    let count =
        |level: Level| report.findings.iter().filter(|problem| problem.level == level).count();
    let plural =
        |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let (errors, warnings, notes) =
        (count(Level::Error), count(Level::Warning), count(Level::Note));
    let more = if notes > 0 && !verbose { " (`-v` prints notes)" } else { "" };
    let alone = report.findings.iter().any(|problem| problem.code == "checkpoint-absent");
    let of = if alone { " in the family file alone" } else { "" };
    format!(
        "{}: {}, {}, {}{of}{more}\n",
        report.family,
        plural(errors, "error"),
        plural(warnings, "warning"),
        plural(notes, "note")
    )
}

fn failed(family: &str, error: &Error) -> Report {
    Report { family: family.to_owned(), findings: error.problems().clone() }
}

/// A family file without a checkpoint: every combination of its parts.
fn descriptor_alone(family: &str) -> Result<Report> {
    let raw = match RawDescriptor::load(family) {
        Ok(raw) => raw,
        Err(error) if error.kind() == ErrorKind::Descriptor => return Ok(failed(family, &error)),
        Err(error) => return Err(error),
    };
    let mut findings = check_family(&raw)?;
    findings.push(
        Problem::error(
            "checkpoint-absent",
            "the family file is checked by itself, without a checkpoint",
        )
        .level(Level::Note)
        .with_hint(format!("`spec check {family} CKPT` checks one against it")),
    );
    Ok(Report { family: raw.name().to_owned(), findings })
}
