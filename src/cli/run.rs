//! `spec run`.

use serde_json::json;
use vlm_spec::backend::Backend;
use vlm_spec::error::{ErrorKind, Result};
use vlm_spec::generate::{Finish, Sampling};
use vlm_spec::model::Timings;

use super::arguments::RunCommand;
use super::backend::{choose_for, on_backend};
use super::output::{Status, print, print_json, print_on};
use super::ready::{peak_memory, prepare, report, timings_json};
use super::watch::Watch;

pub(super) fn run(command: &RunCommand) -> Result<Status> {
    let sampling =
        Sampling { temperature: command.temperature, top_p: command.top_p, seed: command.seed }
            .check()?;
    let watch = Watch::start(command.input.quiet);
    let chosen = choose_for(&command.input, command.precision, &watch)?;
    let precision = chosen.precision();
    on_backend!(chosen, |backend| answer(command, sampling, backend, precision, &watch))
}

fn answer<B: Backend>(
    command: &RunCommand,
    sampling: Sampling,
    backend: B,
    precision: &str,
    watch: &Watch,
) -> Result<Status> {
    let input = &command.input;
    let ready = prepare(input, backend, watch)?;
    let mut stream = ready.model.prompts().tokenizer().decode_stream(true);
    let mut text = String::new();
    let mut read = true;
    let mut on_token = |token: u32| -> Result<bool> {
        watch.clear();
        let piece = stream.push(token)?;
        text.push_str(&piece);
        if !command.json {
            read = print_on(&piece)?;
        }
        Ok(read && !Watch::pressed())
    };
    let generated = ready
        .model
        .generate_observed(
            ready.asked.request(),
            &ready.media,
            command.max_tokens,
            sampling,
            watch,
            &mut on_token,
        )
        .inspect_err(|error| {
            watch.clear();
            if error.kind() == ErrorKind::Interrupted && input.verbose {
                report(&ready.timings, "nothing generated");
            }
        })?;
    watch.clear();
    let rest = stream.finish()?;
    text.push_str(&rest);
    // whoever closed our output is served; Ctrl-C is told from that by the flag
    let stopped = generated.finish == Finish::Stopped && Watch::pressed();
    let timings = Timings {
        load: ready.timings.load,
        preprocess: ready.timings.preprocess,
        ..generated.timings
    };
    if command.json {
        print_json(&json!({
            "family": ready.model.plan().family(),
            "text": text,
            "tokens": generated.tokens,
            "finish": generated.finish.name(),
            "prompt_tokens": generated.prompt_tokens,
            "backend": ready.model.backend().name(),
            "device": ready.model.backend().device_name(),
            "precision": precision,
            "timings_ms": timings_json(&timings),
            "peak_rss_bytes": peak_memory(),
        }))?;
    } else if read {
        print(&format!("{rest}\n"))?;
    }
    let (prompt, made) = (generated.prompt_tokens, generated.tokens.len());
    watch.hold_context("prompt and text have", prompt.saturating_add(made));
    if stopped {
        watch.note("interrupted");
    }
    if input.verbose {
        report(&timings, &format!("{prompt} prompt tokens, {made} generated"));
    }
    Ok(if stopped { Status::Interrupted } else { Status::Fine })
}
