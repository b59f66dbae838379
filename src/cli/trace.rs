//! `spec trace`.

use std::error::Error as _;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};
use vlm_spec::backend::Backend;
use vlm_spec::checkpoint::weights::Listing;
use vlm_spec::error::{Error, ErrorKind, Result};
use vlm_spec::model::{Trace, TraceTensor, write_trace};

use super::arguments::TraceCommand;
use super::backend::{choose, on_backend};
use super::output::{Status, print, print_json, table};
use super::ready::{prepare, report};
use super::watch::Watch;

pub(super) fn run(command: &TraceCommand) -> Result<Status> {
    admit(&command.out, Path::new(&command.input.checkpoint))?;
    let watch = Watch::start(command.input.quiet);
    on_backend!(choose(&command.input, &watch)?, |backend| record(command, backend, &watch))
}

fn record<B: Backend>(command: &TraceCommand, backend: B, watch: &Watch) -> Result<Status> {
    let ready = prepare(&command.input, backend, watch)?;
    let mut timings = ready.timings;
    let trace = ready.model.trace_observed(
        ready.asked.request(),
        &ready.media,
        command.max_tokens,
        watch,
        &mut timings,
    )?;
    watch.clear();
    write(&trace, ready.model.plan().family(), &command.out)?;
    let shapes = trace.iter().map(|(name, tensor)| match tensor {
        TraceTensor::Float(shape, _) => (name, "f32", shape),
        TraceTensor::Integer(shape, _) => (name, "i64", shape),
    });
    if command.json {
        let tensors: Map<String, Value> = shapes
            .map(|(name, dtype, shape)| (name.clone(), json!({ "dtype": dtype, "shape": shape })))
            .collect();
        print_json(&json!({
            "family": ready.model.plan().family(),
            "file": command.out.display().to_string(),
            "tensors": tensors,
        }))?;
    } else {
        let mut rows = vec![["tensor", "type", "shape"].map(str::to_owned).to_vec()];
        rows.extend(shapes.map(|(name, dtype, shape)| {
            vec![name.clone(), dtype.to_owned(), format!("{shape:?}")]
        }));
        print(&table(&rows))?;
    }
    if command.input.verbose {
        let length = |name: &str| match trace.get(name) {
            Some(TraceTensor::Integer(_, values)) => values.len(),
            _ => 0,
        };
        let (prompt, made) = (length("input_ids"), length("generated"));
        report(&timings, &format!("{prompt} prompt tokens, {made} generated"));
    }
    Ok(Status::Fine)
}

/// The folder that a file lies in.
fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Refuses a file that cannot be written, before anything is computed, and one among the checkpoint's own.
fn admit(out: &Path, checkpoint: &Path) -> Result<()> {
    let name = out.display();
    let failed = |message: String| Err(Error::new(ErrorKind::Output, message));
    if out.is_dir() {
        return failed(format!("cannot write `{name}`: it is a folder"));
    }
    let folder = folder_of(out);
    if !folder.is_dir() {
        return failed(format!("cannot write `{name}`: there is no folder `{}`", folder.display()));
    }
    // behind links, a file is where they lead
    let place = out.canonicalize().ok();
    let place = place.as_deref().map_or(folder, folder_of).canonicalize();
    if let (Ok(folder), Ok(checkpoint)) = (place, checkpoint.canonicalize())
        && folder == checkpoint
        && let Some(file) = out.file_name().and_then(|name| name.to_str())
    {
        let weights = Listing::open(&checkpoint).ok().flatten().unwrap_or_default();
        let stored = weights.tensors.values().any(|tensor| tensor.file.as_deref() == Some(file));
        if stored || file.starts_with("model") || !file.ends_with(".safetensors") {
            return failed(format!(
                "`{name}` is one of the checkpoint's own files, or looks like one"
            ));
        }
    }
    Ok(())
}

/// Writes the whole file or none: into a file beside it, which then takes its name.
fn write(trace: &Trace, family: &str, out: &Path) -> Result<()> {
    let replaces = out.symlink_metadata().map_or(true, |metadata| metadata.is_file());
    let Some(name) = out.file_name().filter(|_| replaces) else {
        // a device, a pipe or a link is written through
        return write_trace(trace, family, out);
    };
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}", std::process::id()));
    let beside = folder_of(out).join(beside);
    if fs::File::create(&beside).is_err() {
        // where no second file can be made, an old one may still be overwritten
        return write_trace(trace, family, out);
    }
    let failed = |reason: String| {
        Error::new(ErrorKind::Output, format!("cannot write `{}`", out.display()))
            .with_source(reason)
    };
    let written = write_trace(trace, family, &beside)
        .map_err(|error| {
            failed(error.source().map_or_else(|| error.to_string(), ToString::to_string))
        })
        .and_then(|()| fs::rename(&beside, out).map_err(|error| failed(error.to_string())));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}
