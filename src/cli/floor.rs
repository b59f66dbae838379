//! `spec floor`.

use serde_json::{Value, json};
use vlm_spec::error::{ErrorKind, Result};
use vlm_spec::floor::Floor;
use vlm_spec::layout::MediaSize;
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
pub(super) fn size(size: MediaSize) -> Value {
    match size {
        MediaSize::Image(size) => json!({ "width": size.width, "height": size.height }),
        MediaSize::Samples(samples) => json!({ "samples": samples }),
    }
}

/// A floor as JSON.
pub(super) fn document(floor: &Floor) -> Value {
    let inputs: Vec<_> = floor
        .inputs
        .iter()
        .map(|input| json!({ "name": input.name, "value": input.value, "source": input.source }))
        .collect();
    let mut document = json!({
        "modality": floor.modality.name(),
        "floor": floor.floor,
        "expansion": floor.expansion,
        "framing": floor.framing,
        "exact": floor.exact,
        "framing_exact": floor.framing_exact,
        "witness": size(floor.witness),
        "embeds": floor.embeds,
        "embeds_witness": floor.embeds_witness.map(size),
        "formula": floor.formula,
        "inputs": inputs,
    });
    if let Some(fields) = document.as_object_mut() {
        if let Some((patches, witness)) = floor.patches {
            fields.insert("patches".to_owned(), patches.into());
            fields.insert("patches_witness".to_owned(), size(witness));
        }
        if let Some(states) = floor.states {
            fields.insert("states".to_owned(), states.into());
        }
    }
    document
}

/// A floor in words.
pub(super) fn describe(floor: &Floor, inputs: bool) -> String {
    let how = if floor.exact { "" } else { "at most " };
    let about = if floor.framing_exact { "" } else { "at most " };
    let mut text = format!(
        "{}: {} prompt tokens = {how}{} ({}) + {about}{} framing\n  reached by {} of {}\n",
        floor.modality.name(),
        floor.floor,
        floor.expansion,
        floor.formula,
        floor.framing,
        match floor.witness {
            MediaSize::Image(_) => "a picture",
            MediaSize::Samples(_) => "a clip",
        },
        floor.witness,
    );
    if let Some(witness) = floor.embeds_witness
        && (floor.embeds != floor.expansion || witness != floor.witness)
    {
        text.push_str(&format!("  at most {} embeds, reached by {witness}\n", floor.embeds));
    }
    if let Some((patches, witness)) = floor.patches {
        text.push_str(&format!("  at most {patches} patches, reached by {witness}\n"));
    }
    if let Some(states) = floor.states {
        text.push_str(&format!("  at most {states} rows for cross-attention\n"));
    }
    if inputs {
        for input in &floor.inputs {
            text.push_str(&format!("  {} = {} ({})\n", input.name, input.value, input.source));
        }
    }
    text
}
