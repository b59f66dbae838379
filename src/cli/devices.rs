//! `spec devices`.

use serde_json::{Value, json};
use vlm_spec::backend::cpu::Cpu;
#[cfg(feature = "wgpu")]
use vlm_spec::backend::wgpu::{DeviceInfo, devices};
use vlm_spec::error::Result;

use super::arguments::DevicesCommand;
use super::output::{Status, print, print_json};

pub(super) fn run(command: &DevicesCommand) -> Result<Status> {
    let threads = Cpu::new(None)?.threads();
    let mut text = format!("cpu: {threads} threads\n");
    let mut list = vec![json!({ "backend": "cpu", "threads": threads })];
    shaders(&mut text, &mut list);
    if command.json {
        print_json(&json!({ "devices": list }))?;
    } else {
        print(&text)?;
    }
    Ok(Status::Fine)
}

/// Adds the devices for compute shaders.
#[cfg(feature = "wgpu")]
fn shaders(text: &mut String, list: &mut Vec<Value>) {
    let all = devices();
    if all.is_empty() {
        text.push_str("wgpu: no device (a driver for Vulkan, Metal or Direct3D 12 is needed)\n");
    }
    for info in &all {
        text.push_str(&describe(info));
        list.push(json!({
            "backend": "wgpu",
            "index": info.index,
            "name": info.name,
            "kind": info.kind,
            "interface": info.interface,
            "driver": info.driver,
            "buffer_bytes": info.buffer_bytes,
            "binding_bytes": info.binding_bytes,
            "shared_bytes": info.shared_bytes,
            "workgroup_threads": info.workgroup_threads,
            "subgroups": info.subgroups,
            "half_precision": info.half_precision,
            "usable": info.lacks.is_none(),
            "lacks": info.lacks,
        }));
    }
}

#[cfg(not(feature = "wgpu"))]
fn shaders(text: &mut String, _: &mut Vec<Value>) {
    text.push_str("wgpu: not in this build\n");
}

/// A device in two lines.
#[cfg(feature = "wgpu")]
fn describe(info: &DeviceInfo) -> String {
    let DeviceInfo { index, name, kind, interface, driver, .. } = info;
    let mut features = Vec::new();
    if info.subgroups {
        features.push("subgroups");
    }
    if info.half_precision {
        features.push("half precision");
    }
    let features =
        if features.is_empty() { "none of its own".to_owned() } else { features.join(", ") };
    let mut text = format!("wgpu {index}: {name}, {kind}, {interface}, {driver}\n");
    text.push_str(&format!(
        "        buffers up to {} MiB, {} MiB of them seen at once, {} KiB shared, {} threads, features: {features}\n",
        info.buffer_bytes >> 20,
        info.binding_bytes >> 20,
        info.shared_bytes >> 10,
        info.workgroup_threads,
    ));
    if let Some(lacks) = &info.lacks {
        text.push_str(&format!("        cannot be used: {lacks}\n"));
    }
    text
}
