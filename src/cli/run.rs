//! `spec run`, and the loading that `spec trace` shares with it.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use vlm_spec::backend::Backend;
use vlm_spec::backend::cpu::Cpu;
use vlm_spec::error::{Error, ErrorKind, Result};
use vlm_spec::generate::Sampling;
use vlm_spec::model::{Model, Timings};
use vlm_spec::preprocess::{Picture, preprocess};
use vlm_spec::prompt::{Content, Conversation, Message, Request, place_media};

use super::arguments::{BackendName, Input, RunCommand, load};
use super::output::{Status, note, print, print_json, print_on};

/// A model with a request, ready to run.
pub(super) struct Ready {
    pub(super) model: Model<Cpu>,
    pub(super) pictures: Vec<Picture>,
    messages: Vec<Message>,
    raw: Option<String>,
    pub(super) timings: Timings,
}

impl Ready {
    /// The request.
    pub(super) fn request(&self) -> Request<'_> {
        match &self.raw {
            Some(text) => Request::Raw(text),
            None => Request::Messages(&self.messages),
        }
    }
}

/// Loads the model, reads the media, lays out the request.
pub(super) fn prepare(input: &Input) -> Result<Ready> {
    if !input.audio.is_empty() {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "none of the built-in families takes audio yet",
        ));
    }
    let (messages, images) = conversation(input)?;
    let (raw, checkpoint) = load(input.family.as_deref(), &input.checkpoint)?;
    let plan = input.settings.plan(&raw, &checkpoint)?;
    let backend = match input.backend {
        BackendName::Cpu => Cpu::new(input.threads)?,
        BackendName::Auto => {
            let cpu = Cpu::new(input.threads)?;
            if !input.quiet {
                note("backend: cpu");
            }
            cpu
        }
    };
    let mut timings = Timings::default();
    let progress = progress(input.quiet, "reading pictures");
    // a picture that cannot be read is found before weights are
    let pictures = Timings::measure(&mut timings.preprocess, || match &plan.image {
        // loading says what is wrong with the family's images
        Some(Err(_)) => Ok(Vec::new()),
        _ => images.iter().map(|file| preprocess(&plan, file, images.len())).collect(),
    });
    progress.set_message("loading weights");
    let loaded = pictures.and_then(|pictures| {
        let model = Timings::measure(&mut timings.load, || Model::load(&plan, backend))?;
        Ok((model, pictures))
    });
    progress.finish_and_clear();
    let (model, pictures) = loaded?;
    if !input.quiet {
        for problem in &model.notes {
            note(&problem.to_string());
        }
        for (picture, file) in pictures.iter().zip(&images) {
            for text in &picture.notes {
                note(&format!("note: {}: {text}", file.display()));
            }
        }
    }
    let raw = if input.raw { input.prompt.clone() } else { None };
    Ok(Ready { model, pictures, messages, raw, timings })
}

fn progress(quiet: bool, message: &'static str) -> ProgressBar {
    if quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner().with_message(message);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// The messages of the command line, and the pictures in the order of their items.
fn conversation(input: &Input) -> Result<(Vec<Message>, Vec<PathBuf>)> {
    if let Some(file) = &input.messages {
        return from_file(file, &input.images);
    }
    let prompt = input.prompt.as_deref().unwrap_or_default();
    if input.raw {
        return Ok((Vec::new(), input.images.clone()));
    }
    let mut messages = Vec::new();
    if let Some(system) = &input.system {
        messages.push(Message::new("system", vec![Content::Text(system.clone())]));
    }
    messages
        .push(Message::new("user", place_media(prompt, input.images.len(), input.audio.len())?));
    Ok((messages, input.images.clone()))
}

/// A conversation file. Pictures are named in it, relative to its folder, or come from the command line in order.
fn from_file(file: &Path, given: &[PathBuf]) -> Result<(Vec<Message>, Vec<PathBuf>)> {
    let text = fs::read_to_string(file).map_err(|error| {
        Error::new(ErrorKind::Usage, format!("cannot read `{}`", file.display())).with_source(error)
    })?;
    let conversation = Conversation::from_json(&text)?;
    if !conversation.audio.is_empty() {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "none of the built-in families takes audio yet",
        ));
    }
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    let mut rest = given.iter();
    let mut images = Vec::new();
    for (index, named) in conversation.images.iter().enumerate() {
        match named {
            Some(name) => images.push(folder.join(name)),
            None => match rest.next() {
                Some(file) => images.push(file.clone()),
                None => {
                    let message = format!(
                        "image {} of the messages names no file, and no `--image` is left for it",
                        index + 1
                    );
                    return Err(Error::new(ErrorKind::Placeholders, message));
                }
            },
        }
    }
    let left = rest.count();
    if left > 0 {
        let verb = if left == 1 { "has" } else { "have" };
        let message = format!("{left} of `--image` {verb} no item in the messages");
        return Err(Error::new(ErrorKind::Placeholders, message));
    }
    Ok((conversation.messages, images))
}

pub(super) fn run(command: &RunCommand) -> Result<Status> {
    let sampling =
        Sampling { temperature: command.temperature, top_p: command.top_p, seed: command.seed }
            .check()?;
    let ready = prepare(&command.input)?;
    let tokenizer = ready.model.prompts().tokenizer();
    let mut stream = tokenizer.decode_stream(true);
    let mut text = String::new();
    let encoding = if ready.pictures.is_empty() { "reading the prompt" } else { "encoding" };
    let bar = progress(command.input.quiet || command.json, encoding);
    let mut first = true;
    let mut on_token = |token: u32| -> Result<bool> {
        if std::mem::take(&mut first) {
            bar.finish_and_clear();
        }
        let piece = stream.push(token)?;
        text.push_str(&piece);
        if command.json { Ok(true) } else { print_on(&piece) }
    };
    let start = Instant::now();
    let generated = ready.model.generate(
        ready.request(),
        &ready.pictures,
        command.max_tokens,
        sampling,
        &mut on_token,
    );
    bar.finish_and_clear();
    let generated = generated?;
    let elapsed = start.elapsed();
    let rest = stream.finish()?;
    text.push_str(&rest);
    let timings = Timings {
        load: ready.timings.load,
        preprocess: ready.timings.preprocess,
        ..generated.timings
    };
    if command.json {
        let milliseconds = |duration: Duration| (duration.as_secs_f64() * 1e6).round() / 1e3;
        print_json(&json!({
            "family": ready.model.plan().family(),
            "text": text,
            "tokens": generated.tokens,
            "prompt_tokens": generated.prompt_tokens,
            "backend": ready.model.backend().name(),
            "timings_ms": {
                "load": milliseconds(timings.load),
                "preprocess": milliseconds(timings.preprocess),
                "encode": milliseconds(timings.encode),
                "prefill": milliseconds(timings.prefill),
                "decode": milliseconds(timings.decode),
            },
            "peak_rss_bytes": peak_memory(),
        }))?;
    } else {
        print(&format!("{rest}\n"))?;
    }
    if command.input.verbose {
        report(&timings, generated.prompt_tokens, generated.tokens.len(), elapsed);
    }
    Ok(Status::Fine)
}

fn report(timings: &Timings, prompt: usize, generated: usize, elapsed: Duration) {
    let parts = [
        ("load", timings.load),
        ("preprocess", timings.preprocess),
        ("encode", timings.encode),
        ("prefill", timings.prefill),
        ("decode", timings.decode),
    ];
    for (name, duration) in parts {
        note(&format!("{name:>10}: {:9.1} ms", duration.as_secs_f64() * 1e3));
    }
    note(&format!(
        "{prompt} prompt tokens, {generated} generated, {:.1} ms in all",
        elapsed.as_secs_f64() * 1e3
    ));
    if let Some(bytes) = peak_memory() {
        note(&format!("peak memory: {:.1} MB", bytes as f64 / 1e6));
    }
    let _ = io::stderr().flush();
}

/// The largest resident size so far, in bytes, where the system tells.
fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
