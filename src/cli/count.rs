//! `spec count`.

use serde_json::{Map, Value, json};
use vlm_spec::error::Result;
use vlm_spec::floor::Count;
use vlm_spec::layout::{ImageSize, MediaSize};
use vlm_spec::media::{clip_length, image_size};
use vlm_spec::plan::Plan;

use super::arguments::CountCommand;
use super::output::{Status, print, print_error, print_json, table};

/// One input: what it is called, and its size.
struct Asked {
    source: String,
    size: MediaSize,
}

pub(super) fn run(command: &CountCommand) -> Result<Status> {
    let (raw, checkpoint) = command.subject.load()?;
    let plan = command.settings.plan(&raw, &checkpoint)?;
    let asked = inputs(command, &plan)?;
    let pictures = asked.iter().filter(|item| matches!(item.size, MediaSize::Image(_))).count();
    let mut status = Status::Fine;
    let mut items = Vec::new();
    let mut rows = vec![
        ["source", "size", "layout", "embeds", "expansion", "framing", "tokens"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut sum = 0_u64;
    for item in &asked {
        let beside = match item.size {
            _ if command.each => 1,
            MediaSize::Image(_) => pictures,
            MediaSize::Samples(_) => asked.len() - pictures,
        };
        let mut fields = Map::new();
        fields.insert("source".to_owned(), item.source.clone().into());
        match item.size {
            MediaSize::Image(ImageSize { width, height }) => {
                fields.insert("width".to_owned(), width.into());
                fields.insert("height".to_owned(), height.into());
            }
            MediaSize::Samples(samples) => {
                fields.insert("samples".to_owned(), samples.into());
            }
        }
        match plan.count_among(item.size, beside) {
            Ok(count) => {
                document(&mut fields, &count);
                rows.push(row(item, &count));
                sum = sum.saturating_add(count.tokens());
            }
            Err(error) => {
                fields.insert("tokens".to_owned(), Value::Null);
                fields.insert("reason".to_owned(), error.to_string().into());
                print_error(&error);
                status = Status::NoNumber;
            }
        }
        items.push(Value::Object(fields));
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

/// Pictures, then clips, each in the order of the command line, sizes before files.
fn inputs(command: &CountCommand, plan: &Plan) -> Result<Vec<Asked>> {
    let mut asked = Vec::new();
    for size in &command.sizes {
        asked.push(Asked { source: size.to_string(), size: MediaSize::Image(*size) });
    }
    for file in &command.images {
        let (width, height) = image_size(file)?;
        let size = MediaSize::Image(ImageSize { width, height });
        asked.push(Asked { source: file.display().to_string(), size });
    }
    for samples in &command.samples {
        let size = MediaSize::Samples(*samples);
        asked.push(Asked { source: size.to_string(), size });
    }
    for file in &command.audio {
        // without a rate there is no number to give, which counting says
        let samples = clip_length(file)?.at(plan.sample_rate().unwrap_or(1));
        let size = MediaSize::Samples(samples);
        asked.push(Asked { source: file.display().to_string(), size });
    }
    Ok(asked)
}

fn document(fields: &mut Map<String, Value>, count: &Count) {
    let layout: Map<String, Value> =
        count.layout.fields().map(|(name, value)| (name.to_owned(), Value::from(value))).collect();
    let mut insert = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    insert("embeds", count.embeds.into());
    insert("expansion", count.expansion.into());
    insert("framing", count.framing.into());
    insert("tokens", count.tokens().into());
    for (name, value) in [("patches", count.patches), ("states", count.states)] {
        if let Some(value) = value {
            insert(name, value.into());
        }
    }
    insert("layout", layout.into());
}

fn row(item: &Asked, count: &Count) -> Vec<String> {
    let field = |name: &str| count.layout.get(name).unwrap_or(0);
    let layout: Vec<String> =
        count.layout.fields().map(|(name, value)| format!("{name} {value}")).collect();
    let layout = match item.size {
        MediaSize::Image(_) if layout.len() == 4 => format!(
            "{}x{} cells of {}x{} px",
            field("cols"),
            field("rows"),
            field("width"),
            field("height")
        ),
        _ => layout.join(", "),
    };
    vec![
        item.source.clone(),
        item.size.to_string(),
        layout,
        count.embeds.to_string(),
        count.expansion.to_string(),
        count.framing.to_string(),
        count.tokens().to_string(),
    ]
}
