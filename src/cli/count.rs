//! `spec count`.

use serde_json::{Map, Value, json};
use vlm_spec::error::{Error, ErrorKind, Result};
use vlm_spec::floor::Count;
use vlm_spec::layout::ImageSize;
use vlm_spec::media::image_size;
use vlm_spec::plan::Plan;

use super::arguments::CountCommand;
use super::output::{Status, print, print_error, print_json, table};

pub(super) fn run(command: &CountCommand) -> Result<Status> {
    let (raw, checkpoint) = command.subject.load()?;
    let plan = command.settings.plan(&raw, &checkpoint)?;
    let mut pictures: Vec<(String, ImageSize)> =
        command.sizes.iter().map(|size| (size.to_string(), *size)).collect();
    for file in &command.images {
        let (width, height) = image_size(file)?;
        pictures.push((file.display().to_string(), ImageSize { width, height }));
    }
    let mut status = Status::Fine;
    let mut items = Vec::new();
    let mut rows = vec![
        ["source", "size", "layout", "embeds", "expansion", "framing", "tokens"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut sum = 0_u64;
    for (source, size) in &pictures {
        match plan.count(size) {
            Ok(count) => {
                items.push(document(source, *size, &count));
                rows.push(row(source, *size, &count));
                sum = sum.saturating_add(count.tokens());
            }
            Err(error) => {
                items.push(json!({
                    "source": source, "width": size.width, "height": size.height, "tokens": null,
                    "reason": error.to_string(),
                }));
                print_error(&error);
                status = Status::NoNumber;
            }
        }
    }
    for samples in &command.samples {
        let error = no_audio(&plan);
        items.push(json!({ "source": format!("{samples} samples"), "samples": samples, "tokens": null, "reason": error.to_string() }));
        print_error(&error);
        status = Status::NoNumber;
    }
    if command.json {
        print_json(&json!({ "family": plan.family(), "items": items }))?;
    } else if rows.len() > 1 {
        if rows.len() > 2 && !command.each {
            let mut total = vec![String::new(); 7];
            "all".clone_into(&mut total[0]);
            total[6] = sum.to_string();
            rows.push(total);
        }
        print(&table(&rows))?;
    }
    Ok(status)
}

fn no_audio(plan: &Plan) -> Error {
    Error::new(ErrorKind::NoNumber, format!("family `{}` takes no audio", plan.family()))
}

fn document(source: &str, size: ImageSize, count: &Count) -> Value {
    let layout: Map<String, Value> = count
        .layout
        .fields()
        .into_iter()
        .map(|(name, value)| (name.to_owned(), Value::from(value)))
        .collect();
    json!({
        "source": source,
        "width": size.width,
        "height": size.height,
        "embeds": count.embeds,
        "expansion": count.expansion,
        "framing": count.framing,
        "tokens": count.tokens(),
        "layout": layout,
    })
}

fn row(source: &str, size: ImageSize, count: &Count) -> Vec<String> {
    vec![
        source.to_owned(),
        size.to_string(),
        format!(
            "{}x{} cells of {}x{} px",
            count.layout.cols, count.layout.rows, count.layout.width, count.layout.height
        ),
        count.embeds.to_string(),
        count.expansion.to_string(),
        count.framing.to_string(),
        count.tokens().to_string(),
    ]
}
