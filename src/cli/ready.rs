//! From the command line to a loaded model with its media: what `run`, `trace` and `score` share.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use vlm_spec::backend::Backend;
use vlm_spec::checkpoint::Checkpoint;
use vlm_spec::error::Result;
use vlm_spec::model::{Model, Timings};
use vlm_spec::plan::Plan;
use vlm_spec::preprocess::{Clip, Media, Picture, preprocess, preprocess_clip};

use super::arguments::{Input, load};
use super::output::note;
use super::request::Asked;
use super::watch::Watch;

/// A model with a request, ready to run.
pub(super) struct Ready<B: Backend> {
    pub(super) model: Model<B>,
    pub(super) asked: Asked,
    pub(super) media: Media,
    pub(super) timings: Timings,
}

/// Reads the media, loads the model onto a backend. A file that cannot be read is found before weights are.
pub(super) fn prepare<B: Backend>(input: &Input, backend: B, watch: &Watch) -> Result<Ready<B>> {
    let asked = Asked::read(input)?;
    let (raw, checkpoint) = load(input.family.as_deref(), &input.checkpoint)?;
    let plan = input.settings.plan(&raw, &checkpoint)?;
    if let Some(tokens) = context_length(&checkpoint) {
        watch.set_context(tokens);
    }
    let mut timings = Timings::default();
    let media = Timings::measure(&mut timings.preprocess, || {
        Ok(Media {
            clips: read_clips(&plan, &asked.clips, watch)?,
            pictures: read_pictures(&plan, &asked.images, watch)?,
        })
    })?;
    let model =
        Timings::measure(&mut timings.load, || Model::load_observed(&plan, backend, watch))?;
    Watch::go_on()?;
    for problem in &model.notes {
        watch.note(&problem.to_string());
    }
    for (picture, file) in media.pictures.iter().zip(&asked.images) {
        for text in &picture.notes {
            watch.note(&format!("note: {}: {text}", file.display()));
        }
    }
    Ok(Ready { model, asked, media, timings })
}

fn read_pictures(plan: &Plan, files: &[PathBuf], watch: &Watch) -> Result<Vec<Picture>> {
    // loading says what is wrong with the family's images
    if let Some(Err(_)) = &plan.image {
        return Ok(Vec::new());
    }
    let read = |(index, file): (usize, &PathBuf)| {
        watch.reading(index, files.len())?;
        preprocess(plan, file, files.len())
    };
    files.iter().enumerate().map(read).collect()
}

fn read_clips(plan: &Plan, files: &[PathBuf], watch: &Watch) -> Result<Vec<Clip>> {
    // loading says what is wrong with the family's clips
    if let Some(Err(_)) = &plan.audio {
        return Ok(Vec::new());
    }
    let read = |(index, file): (usize, &PathBuf)| {
        watch.reading(index, files.len())?;
        preprocess_clip(plan, file, files.len())
    };
    files.iter().enumerate().map(read).collect()
}

/// The longest sequence that the decoder was made for, as the config states it.
fn context_length(checkpoint: &Checkpoint) -> Option<u64> {
    let config = checkpoint.config();
    ["text_config.max_position_embeddings", "max_position_embeddings"]
        .iter()
        .find_map(|key| config.get(key)?.as_u64())
}

/// Timings and tokens to stderr.
pub(super) fn report(timings: &Timings, tokens: &str) {
    let parts = [
        ("load", timings.load),
        ("preprocess", timings.preprocess),
        ("encode", timings.encode),
        ("prefill", timings.prefill),
        ("decode", timings.decode),
    ];
    for (name, duration) in parts {
        note(&format!("{name:>10}: {:9.1} ms", milliseconds(duration)));
    }
    let sum: Duration = parts.iter().map(|(_, duration)| *duration).sum();
    note(&format!("{tokens}, {:.1} ms in all", milliseconds(sum)));
    if let Some(bytes) = peak_memory() {
        note(&format!("peak memory: {:.1} MB", bytes as f64 / 1e6));
    }
}

/// Timings in JSON.
pub(super) fn timings_json(timings: &Timings) -> Value {
    json!({
        "load": milliseconds(timings.load),
        "preprocess": milliseconds(timings.preprocess),
        "encode": milliseconds(timings.encode),
        "prefill": milliseconds(timings.prefill),
        "decode": milliseconds(timings.decode),
    })
}

/// To a microsecond.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// The largest resident size so far, in bytes, where the system tells.
pub(super) fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
