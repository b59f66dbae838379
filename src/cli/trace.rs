//! `spec trace`.

use serde_json::{Map, Value, json};
use vlm_spec::error::Result;
use vlm_spec::model::{TraceTensor, write_trace};

use super::arguments::TraceCommand;
use super::output::{Status, print, print_json, table};
use super::run::prepare;

pub(super) fn run(command: &TraceCommand) -> Result<Status> {
    let ready = prepare(&command.input)?;
    let trace = ready.model.trace(ready.request(), &ready.pictures, command.max_tokens)?;
    write_trace(&trace, ready.model.plan().family(), &command.out)?;
    let shapes = trace.iter().map(|(name, tensor)| match tensor {
        TraceTensor::Float(shape, _) => (name, "f32", shape),
        TraceTensor::Integer(shape, _) => (name, "i64", shape),
    });
    if command.json {
        let tensors: Map<String, Value> = shapes
            .map(|(name, dtype, shape)| (name.clone(), json!({ "dtype": dtype, "shape": shape })))
            .collect();
        print_json(&json!({
            "family": ready.model.plan().family(),
            "file": command.out.display().to_string(),
            "tensors": tensors,
        }))?;
    } else {
        let mut rows = vec![["tensor", "type", "shape"].map(str::to_owned).to_vec()];
        rows.extend(shapes.map(|(name, dtype, shape)| vec![name.clone(), dtype.to_owned(), format!("{shape:?}")]));
        print(&table(&rows))?;
    }
    Ok(Status::Fine)
}
