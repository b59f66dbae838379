//! `spec families`.

use serde_json::json;
use vlm_spec::checkpoint::model_types;
use vlm_spec::descriptor::{Library, RawDescriptor};
use vlm_spec::error::Result;

use super::arguments::FamiliesCommand;
use super::output::{Status, print, print_json, table};

pub(super) fn run(command: &FamiliesCommand) -> Result<Status> {
    let mut rows = vec![
        ["name", "model types", "modalities", "what is distinctive"].map(str::to_owned).to_vec(),
    ];
    let mut documents = Vec::new();
    for name in Library::families() {
        let raw = RawDescriptor::load(name)?;
        let header = raw.header()?;
        let descriptor = raw.describe(&raw.first_parts())?;
        let modalities: Vec<&str> = descriptor.family.media().map(|(name, _)| name).collect();
        let types = model_types(&header);
        rows.push(vec![
            name.to_owned(),
            types.join(", "),
            modalities.join(", "),
            format!("{}: {}", header.title, header.about),
        ]);
        documents.push(json!({
            "name": name,
            "title": header.title,
            "about": header.about,
            "model_types": types,
            "modalities": modalities,
        }));
    }
    if command.json {
        print_json(&json!({ "families": documents }))?;
    } else {
        print(&table(&rows))?;
    }
    Ok(Status::Fine)
}
