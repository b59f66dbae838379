//! `spec score`.

use serde_json::{Map, Value, json};
use vlm_spec::backend::Backend;
use vlm_spec::error::{ErrorKind, Result};
use vlm_spec::model::Timings;
use vlm_spec::preprocess::Media;
use vlm_spec::prompt::Request;
use vlm_spec::score::{Score, without_media};

use super::arguments::ScoreCommand;
use super::backend::{choose, on_backend};
use super::output::{Status, print, print_json, table};
use super::ready::{Ready, peak_memory, prepare, report, timings_json};
use super::watch::Watch;

pub(super) fn run(command: &ScoreCommand) -> Result<Status> {
    let watch = Watch::start(command.input.quiet);
    on_backend!(choose(&command.input, &watch)?, |backend| rate(command, backend, &watch))
}

fn rate<B: Backend>(command: &ScoreCommand, backend: B, watch: &Watch) -> Result<Status> {
    let input = &command.input;
    let ready = prepare(input, backend, watch)?;
    let mut timings = ready.timings;
    let text = &command.continuation;
    let score =
        ready.model.score(ready.asked.request(), &ready.media, text, watch, &mut timings)?;
    let bare = bare(&ready, command, watch)?;
    watch.clear();
    if command.json {
        let mut all = Map::from_iter([
            ("family".to_owned(), json!(ready.model.plan().family())),
            ("characters".to_owned(), json!(score.characters)),
        ]);
        all.extend(document(&score));
        all.insert("without_media".to_owned(), json!(bare.as_ref().map(document)));
        all.insert("backend".to_owned(), json!(ready.model.backend().name()));
        all.insert("device".to_owned(), json!(ready.model.backend().device_name()));
        all.insert("timings_ms".to_owned(), timings_json(&timings));
        all.insert("peak_rss_bytes".to_owned(), json!(peak_memory()));
        print_json(&Value::Object(all))?;
    } else {
        let media = ready.asked.has_media();
        print(&summary(&score, bare.as_ref(), media))?;
    }
    if input.verbose {
        let (prompt, scored) = (score.prompt_tokens, score.tokens.len());
        report(&timings, &format!("{prompt} prompt tokens, {scored} scored"));
    }
    Ok(Status::Fine)
}

/// The score behind the same messages with their media taken out, where there are any.
fn bare<B: Backend>(
    ready: &Ready<B>,
    command: &ScoreCommand,
    watch: &Watch,
) -> Result<Option<Score>> {
    let asked = &ready.asked;
    if !asked.has_media() {
        return Ok(None);
    }
    if asked.raw.is_some() {
        watch.note("note: a raw prompt has no media parts to take out, so there is one number");
        return Ok(None);
    }
    let messages = without_media(&asked.messages);
    let request = Request::Messages(&messages);
    let mut timings = Timings::default();
    match ready.model.score(request, &Media::default(), &command.continuation, watch, &mut timings)
    {
        Ok(score) => Ok(Some(score)),
        Err(error) if error.kind() == ErrorKind::Interrupted => Err(error),
        // some templates want a picture
        Err(error) => {
            watch.note(&format!("note: there is no number without media: {error}"));
            Ok(None)
        }
    }
}

/// A score in JSON. The logarithm of zero is `null`.
fn document(score: &Score) -> Map<String, Value> {
    let tokens = score.tokens.iter().map(|token| {
        json!({ "id": token.id, "text": token.text, "log_probability": token.log_probability })
    });
    Map::from_iter([
        ("bits".to_owned(), json!(score.bits())),
        ("bits_per_character".to_owned(), json!(score.bits_per_character())),
        ("bits_per_token".to_owned(), json!(score.bits_per_token())),
        ("prompt_tokens".to_owned(), json!(score.prompt_tokens)),
        ("tokens".to_owned(), tokens.collect()),
    ])
}

/// A table with a row for each prompt.
fn summary(score: &Score, bare: Option<&Score>, media: bool) -> String {
    let row = |name: &str, score: &Score| {
        let mut row = vec![name.to_owned(), format!("{:.2}", score.bits())];
        let rates = [score.bits_per_character(), score.bits_per_token()];
        row.extend(rates.map(|bits| format!("{bits:.3}")));
        row.push(score.prompt_tokens.to_string());
        row
    };
    let heading = ["", "bits", "per character", "per token", "prompt tokens"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.push(row(if media { "with media" } else { "text alone" }, score));
    rows.extend(bare.map(|bare| row("without media", bare)));
    let count =
        |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let (characters, tokens) = (score.characters, score.tokens.len());
    format!("{}{}, {}\n", table(&rows), count(characters, "character"), count(tokens, "token"))
}
