//! `spec show`.

use std::fs;

use serde_json::{Map, Value, json};
use vlm_spec::checkpoint::Checkpoint;
use vlm_spec::descriptor::{Descriptor, RawDescriptor};
use vlm_spec::error::{Error, ErrorKind, Result};
use vlm_spec::plan::graph::GraphPlan;
use vlm_spec::plan::{Modality, Plan};
use vlm_spec::snapshot;

use super::arguments::ShowCommand;
use super::drawing::Drawing;
use super::output::{Status, print, print_json};
use super::{arguments, floor};

pub(super) fn run(command: &ShowCommand) -> Result<Status> {
    let (family, checkpoint) = command.subject.split()?;
    match checkpoint {
        Some(checkpoint) => {
            let (raw, checkpoint) = arguments::load(family, checkpoint)?;
            with_checkpoint(command, &raw, &checkpoint)
        }
        None => {
            let raw = RawDescriptor::load(family.unwrap_or_default())?;
            if command.svg.is_some() {
                return Err(Error::new(
                    ErrorKind::Usage,
                    "a drawing needs a checkpoint: its sizes come from there",
                ));
            }
            let descriptor = raw.describe(&raw.first_parts())?;
            if command.json {
                print_json(
                    &json!({ "family": raw.name(), "descriptor": descriptor.source().to_json() }),
                )?;
            } else {
                print(&merged(&descriptor)?)?;
            }
            Ok(Status::Fine)
        }
    }
}

/// The merged descriptor as TOML.
fn merged(descriptor: &Descriptor) -> Result<String> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::Output, format!("the merged descriptor cannot be written: {error}"))
    };
    let table =
        toml::Table::try_from(descriptor.source().to_json()).map_err(|error| failed(&error))?;
    toml::to_string(&table).map_err(|error| failed(&error))
}

fn with_checkpoint(
    command: &ShowCommand,
    raw: &RawDescriptor,
    checkpoint: &Checkpoint,
) -> Result<Status> {
    let plan = command.settings.plan(raw, checkpoint)?;
    let graph = GraphPlan::resolve(&plan.descriptor, &plan.values);
    let drawing = graph.as_ref().ok().map(|graph| Drawing::new(&plan, graph));
    if let Some(file) = &command.svg {
        let Some(drawing) = &drawing else {
            return Err(Error::new(
                ErrorKind::NoNumber,
                "the topology is not known: config values are missing",
            ));
        };
        fs::write(file, drawing.svg()).map_err(|error| {
            Error::new(ErrorKind::Output, format!("cannot write `{}`", file.display()))
                .with_source(error)
        })?;
    }
    if command.json {
        let values: Map<String, Value> = plan
            .values
            .iter()
            .map(|(name, resolved)| {
                let document = match resolved {
                    Ok(resolved) => json!({ "value": resolved.value, "source": resolved.source }),
                    Err(problem) => json!({ "value": null, "reason": problem.message }),
                };
                (name.to_owned(), document)
            })
            .collect();
        let floor = |modality| plan.floor(modality).map(|floor| floor::document(&floor)).ok();
        print_json(&json!({
            "family": plan.family(),
            "descriptor": plan.descriptor.source().to_json(),
            "values": values,
            "budget": budget(&plan),
            "tile_counts": tile_counts(&plan),
            "image": floor(Modality::Image),
            "audio": floor(Modality::Audio),
            "topology": drawing.as_ref().map(Drawing::text),
        }))?;
        return Ok(Status::Fine);
    }
    let mut text = format!("family: {}\n", plan.family());
    if let Some(kind) = budget(&plan) {
        let counts: Vec<_> = tile_counts(&plan).iter().map(u32::to_string).collect();
        text.push_str(&match &counts[..] {
            [] => format!("budget: {kind}\n"),
            counts => format!("budget: {kind}, views {}\n", counts.join(" ")),
        });
    }
    for modality in plan.modalities() {
        if let Ok(floor) = plan.floor(modality) {
            text.push_str(&floor::describe(&floor, false));
        }
    }
    match (&drawing, &graph) {
        (Some(drawing), _) => text.push_str(&format!("\n{}", drawing.text())),
        (None, Err(problems)) => {
            for problem in problems {
                text.push_str(&format!("\n{problem}\n"));
            }
        }
        (None, Ok(_)) => {}
    }
    text.push_str("\nvalues:\n");
    snapshot::values(&mut text, &plan);
    print(&text)?;
    Ok(Status::Fine)
}

/// The kind of the budget: of pictures, or of clips where the family takes only those.
fn budget(plan: &Plan) -> Option<&'static str> {
    let media = Modality::ALL.into_iter().find_map(|modality| plan.media(modality))?;
    media.as_ref().ok().map(|media| media.shape.policy.budget_kind())
}

/// How many views a picture can give, where pictures are cut into tiles.
fn tile_counts(plan: &Plan) -> Vec<u32> {
    match plan.media(Modality::Image) {
        Some(Ok(media)) => media.shape.policy.tile_counts(),
        _ => Vec::new(),
    }
}
