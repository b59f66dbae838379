//! `spec floor`.

use serde_json::{Value, json};
use vlm_spec::error::{ErrorKind, Result};
use vlm_spec::floor::Floor;
use vlm_spec::layout::ImageSize;
use vlm_spec::plan::Modality;

use super::arguments::FloorCommand;
use super::output::{Status, note, print, print_error, print_json};

pub(super) fn run(command: &FloorCommand) -> Result<Status> {
    let loaded = command.subject.load().and_then(|(raw, checkpoint)| {
        let plan = command.settings.plan(&raw, &checkpoint)?;
        Ok((raw.name().to_owned(), plan))
    });
    let (family, floors) = match loaded {
        Ok((family, plan)) => {
            let floors: Vec<_> = plan
                .modalities()
                .into_iter()
                .map(|modality| (modality, plan.floor(modality)))
                .collect();
            (Some(family), floors)
        }
        Err(error)
            if command.json
                && matches!(error.kind(), ErrorKind::NoFamily | ErrorKind::NoNumber) =>
        {
            (None, vec![(Modality::Image, Err(error))])
        }
        Err(error) => return Err(error),
    };
    let mut status = Status::Fine;
    let mut items = Vec::new();
    let mut text = String::new();
    for (modality, floor) in &floors {
        match floor {
            Ok(floor) => {
                items.push(document(floor));
                text.push_str(&describe(floor, command.verbose));
                if let Some(capacity) = command.capacity.filter(|capacity| floor.floor > *capacity)
                    && status == Status::Fine
                {
                    note(&format!(
                        "error: one {} can cost {} prompt tokens, the capacity is {capacity}",
                        modality.name(),
                        floor.floor
                    ));
                    status = Status::Found;
                }
            }
            Err(error) => {
                items.push(json!({ "modality": modality.name(), "floor": null, "reason": error.to_string() }));
                print_error(error);
                status = Status::NoNumber;
            }
        }
    }
    if command.json {
        print_json(&json!({ "family": family, "items": items }))?;
    } else {
        print(&text)?;
    }
    Ok(status)
}

/// A size as JSON.
pub(super) fn size(size: ImageSize) -> Value {
    json!({ "width": size.width, "height": size.height })
}

/// A floor as JSON.
pub(super) fn document(floor: &Floor) -> Value {
    let inputs: Vec<_> = floor
        .inputs
        .iter()
        .map(|input| json!({ "name": input.name, "value": input.value, "source": input.source }))
        .collect();
    json!({
        "modality": floor.modality.name(),
        "floor": floor.floor,
        "expansion": floor.expansion,
        "framing": floor.framing,
        "exact": floor.exact,
        "framing_exact": floor.framing_exact,
        "witness": size(floor.witness),
        "embeds": floor.embeds,
        "embeds_witness": size(floor.embeds_witness),
        "formula": floor.formula,
        "inputs": inputs,
    })
}

/// A floor in words.
pub(super) fn describe(floor: &Floor, inputs: bool) -> String {
    let how = if floor.exact { "" } else { "at most " };
    let about = if floor.framing_exact { "" } else { "at most " };
    let mut text = format!(
        "{}: {} prompt tokens = {how}{} ({}) + {about}{} framing\n  reached by a picture of {}\n",
        floor.modality.name(),
        floor.floor,
        floor.expansion,
        floor.formula,
        floor.framing,
        floor.witness,
    );
    if floor.embeds != floor.expansion || floor.embeds_witness != floor.witness {
        text.push_str(&format!(
            "  at most {} embeds, reached by {}\n",
            floor.embeds, floor.embeds_witness
        ));
    }
    if inputs {
        for input in &floor.inputs {
            text.push_str(&format!("  {} = {} ({})\n", input.name, input.value, input.source));
        }
    }
    text
}
