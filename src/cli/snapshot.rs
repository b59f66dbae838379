//! `spec snapshot`.

use std::fs;
use std::path::Path;

use serde_json::json;
use vlm_spec::error::{Error, ErrorKind, Result};
use vlm_spec::plan::{Modality, Plan};
use vlm_spec::snapshot::render;

use super::arguments::{SnapshotCommand, load};
use super::output::{Status, print, print_json};

pub(super) fn run(command: &SnapshotCommand) -> Result<Status> {
    let mut status = Status::Fine;
    let mut documents = Vec::new();
    let mut text = String::new();
    for folder in &command.checkpoints {
        let (raw, checkpoint) = load(command.family.as_deref(), &folder.display().to_string())?;
        let plan = Plan::resolve(&raw, &checkpoint)?;
        let name = fs::canonicalize(folder)
            .ok()
            .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .unwrap_or_else(|| plan.family().to_owned());
        let file = command.dir.join(format!("{name}.spec.txt"));
        let rendered = render(&plan);
        if plan.modalities().into_iter().any(|modality| plan.floor(modality).is_err()) {
            status = Status::NoNumber;
        }
        let outcome = match fs::read_to_string(&file) {
            Ok(stored) if stored == rendered => "unchanged",
            Ok(stored) if !command.update => {
                if status == Status::Fine {
                    status = Status::Found;
                }
                text.push_str(&difference(&stored, &rendered));
                "differs"
            }
            Ok(_) => {
                write(&command.dir, &file, &rendered)?;
                "updated"
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                write(&command.dir, &file, &rendered)?;
                "written"
            }
            Err(error) => {
                let message = format!("cannot read `{}`", file.display());
                return Err(Error::new(ErrorKind::Output, message).with_source(error));
            }
        };
        text.push_str(&format!("{outcome}: {}\n", file.display()));
        let floor = plan.floor(Modality::Image).ok().map(|floor| floor.floor);
        documents.push(json!({ "checkpoint": name, "file": file.display().to_string(), "outcome": outcome, "floor": floor }));
    }
    if command.json {
        print_json(&json!({ "snapshots": documents }))?;
    } else {
        print(&text)?;
    }
    Ok(status)
}

fn write(folder: &Path, file: &Path, text: &str) -> Result<()> {
    fs::create_dir_all(folder).and_then(|()| fs::write(file, text)).map_err(|error| {
        Error::new(ErrorKind::Output, format!("cannot write `{}`", file.display()))
            .with_source(error)
    })
}

/// Lines that only one of the texts has, in order, marked `-` and `+`.
fn difference(old: &str, new: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let removed = old.iter().filter(|line| !new.contains(line)).map(|line| format!("- {line}\n"));
    let added = new.iter().filter(|line| !old.contains(line)).map(|line| format!("+ {line}\n"));
    removed.chain(added).collect()
}
