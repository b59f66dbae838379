//! Tokens: config ids against the tokenizer and the embedding table, markers and frames against the chat template.

use crate::checkpoint::Checkpoint;
use crate::checkpoint::tokenizer::{Sentinels, Tokenizer, TokenizerFiles};
use crate::descriptor::Descriptor;
use crate::floor::missing_numbers;
use crate::plan::graph::GraphPlan;
use crate::plan::{MediaPlan, Modality, Plan};
use crate::problem::{Level, Place, Problem, Problems};
use crate::prompt::template::ChatTemplate;
use crate::prompt::user_text::render_marked;
use crate::prompt::{Content, Message};

pub(super) fn check(
    plan: &Plan,
    graph: Option<&GraphPlan>,
    checkpoint: &Checkpoint,
    findings: &mut Problems,
) {
    let folder = checkpoint.folder();
    let files = match TokenizerFiles::read(folder) {
        Ok(files) => files,
        Err(error) => {
            findings.push(Problem::error("tokenizer-file", error.to_string()));
            return;
        }
    };
    let has_tokenizer = folder.join("tokenizer.json").is_file() || files.lists_tokens();
    if !has_tokenizer {
        findings.push(
            Problem::error("tokenizer-absent", "there is no tokenizer; token ids are not checked")
                .level(Level::Note),
        );
    }
    if folder.join("tokenizer.json").is_file()
        && let Err(error) = Tokenizer::load(folder, &[])
    {
        let place = plan.descriptor.place("tokens");
        findings.push(Problem::error("tokenizer-file", error.to_string()).at(place));
        return;
    }
    for (name, token) in &plan.descriptor.family.tokens {
        let key = format!("tokens.{name}");
        let place = || plan.descriptor.place(&key);
        if token.text.contains('{') {
            if has_tokenizer {
                numbered(plan, name, &files, &place(), findings);
            }
            continue;
        }
        let configured = plan.values.get(&key).ok();
        let stated = configured.and_then(|resolved| resolved.value.as_i64());
        let stored = if has_tokenizer { files.token_id(&token.text) } else { None };
        match (stated, stored) {
            (Some(stated), Some(stored)) if stated != i64::from(stored) => {
                let source = configured.map_or("", |resolved| resolved.source.as_str());
                let defaulted = configured.is_some_and(|resolved| resolved.defaulted);
                // a default that the tokenizer contradicts says nothing of the file
                let level = if defaulted { Level::Note } else { Level::Error };
                findings.push(
                    Problem::error(
                        "token-id",
                        format!("config and tokenizer give `{}` different ids", token.text),
                    )
                    .level(level)
                    .at(place())
                    .expected_found(
                        format!("{stored} (the tokenizer)"),
                        format!("{stated} ({source})"),
                    ),
                );
            }
            (_, None) if has_tokenizer => {
                let needed = plan
                    .descriptor
                    .family
                    .media()
                    .any(|(_, tables)| [tables.marker, tables.fill].contains(&name.as_str()));
                let level = if needed { Level::Error } else { Level::Warning };
                findings.push(
                    Problem::error(
                        "token-missing",
                        format!("the tokenizer has no added token `{}`", token.text),
                    )
                    .level(level)
                    .at(place()),
                );
            }
            _ => {}
        }
        let id = stored
            .map(i64::from)
            .or(stated.filter(|_| configured.is_some_and(|resolved| !resolved.defaulted)));
        if let (Some(id), Some(graph)) = (id, graph) {
            let rows = graph.decoder.embed_rows;
            if usize::try_from(id).map_or(true, |id| id >= rows) {
                findings.push(
                    Problem::error(
                        "token-range",
                        format!("`{}` lies outside the embedding table", token.text),
                    )
                    .at(place())
                    .expected_found(format!("an id below {rows}"), id.to_string()),
                );
            }
        }
    }
    for modality in Modality::ALL {
        if let Some(Ok(media)) = plan.media(modality) {
            template(&plan.descriptor, media, checkpoint, &files, findings);
        }
    }
}

/// Every number that the strips of a family give a token must be one in the tokenizer. The largest strip is asked.
fn numbered(
    plan: &Plan,
    name: &str,
    files: &TokenizerFiles,
    place: &Place,
    findings: &mut Problems,
) {
    let mut missing = Vec::new();
    for modality in Modality::ALL {
        let Some(Ok(media)) = plan.media(modality) else { continue };
        let largest = media.largest_expansion(|_| 1).ok().flatten();
        let layout = largest.and_then(|largest| media.shape.policy.layout(largest.witness).ok());
        if let Some(layout) = layout {
            missing.extend(missing_numbers(plan, media, &media.shape, &layout, files, Some(name)));
        }
    }
    if let Some(first) = missing.first() {
        findings.push(
            Problem::error(
                "token-missing",
                format!(
                    "the tokenizer has no added token `{first}`, and {} more",
                    missing.len() - 1
                ),
            )
            .level(Level::Warning)
            .at(place.clone()),
        );
    }
}

/// One user message with one item and a text must give exactly one marker, in the frame that the family states.
fn template(
    descriptor: &Descriptor,
    media: &MediaPlan,
    checkpoint: &Checkpoint,
    files: &TokenizerFiles,
    findings: &mut Problems,
) {
    let own = descriptor.family.prompt.template.as_deref();
    let template = match ChatTemplate::find_beside(checkpoint.folder(), own) {
        Ok(Some(template)) => template,
        Ok(None) => {
            if descriptor.family.prompt.raw.is_none() {
                findings.push(
                    Problem::error(
                        "template-absent",
                        "there is no chat template; the marker's frame is not checked",
                    )
                    .level(Level::Note),
                );
            }
            return;
        }
        Err(error) => {
            findings.push(Problem::error("template-file", error.to_string()));
            return;
        }
    };
    let text_of =
        |name: &String| descriptor.family.tokens.get(name).map_or("", |token| token.text.as_str());
    let marker = descriptor
        .family
        .media()
        .find(|(name, _)| *name == media.modality.name())
        .map(|(_, tables)| text_of(&tables.marker.to_owned()).to_owned())
        .unwrap_or_default();
    let modality = media.modality.name();
    let item = match media.modality {
        Modality::Image => Content::Image,
        Modality::Audio => Content::Audio,
    };
    let Ok(sentinels) = Sentinels::new(std::slice::from_ref(&marker)) else { return };
    let messages = [Message::new("user", vec![item, Content::Text("What is this?".to_owned())])];
    let rendered =
        match render_marked(&template, &messages, true, &files.special_tokens(), &sentinels) {
            Ok(rendered) => rendered,
            Err(error) => {
                findings.push(
                    Problem::error("template-file", error.to_string()).in_file(template.source()),
                );
                return;
            }
        };
    let pieces: Vec<&str> = rendered.split(sentinels.mark(&marker)).collect();
    let [before, after] = pieces[..] else {
        findings.push(
            Problem::error(
                "template-marker",
                format!("the chat template does not write the marker once for one {modality}"),
            )
            .at(descriptor.place(&format!("{modality}.marker")))
            .expected_found(
                format!("one `{marker}`"),
                format!("{} in `{}`", pieces.len() - 1, template.source()),
            ),
        );
        return;
    };
    let lead: String = media.frame.before.iter().map(text_of).collect();
    let trail: String = media.frame.after.iter().map(text_of).collect();
    if !before.ends_with(&lead) || !after.starts_with(&trail) {
        findings.push(
            Problem::error(
                "template-frame",
                "the chat template puts something else around the marker",
            )
            .at(descriptor.place(&format!("{modality}.frame")))
            .expected_found(
                format!("`{lead}` before and `{trail}` after"),
                format!("`…{}` and `{}…`", tail(before), head(after)),
            ),
        );
    }
}

fn tail(text: &str) -> String {
    let count = text.chars().count();
    text.chars().skip(count.saturating_sub(24)).collect()
}

fn head(text: &str) -> String {
    text.chars().take(24).collect()
}
