//! `spec devices`.

use serde_json::json;
use vlm_spec::backend::cpu::Cpu;
use vlm_spec::error::Result;

use super::arguments::DevicesCommand;
use super::output::{Status, print, print_json};

pub(super) fn run(command: &DevicesCommand) -> Result<Status> {
    let threads = Cpu::new(None)?.threads();
    if command.json {
        print_json(&json!({ "devices": [{ "backend": "cpu", "threads": threads }] }))?;
    } else {
        print(&format!("cpu: {threads} threads\n"))?;
    }
    Ok(Status::Fine)
}
