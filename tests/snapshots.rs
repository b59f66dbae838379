//! Resolved plans of published checkpoints: every value with its source, floors and witnesses, as `spec snapshot` writes
//! them. A reader of a diff sees at once what changed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::path::Path;

use vlm_spec::checkpoint::Checkpoint;
use vlm_spec::plan::Plan;
use vlm_spec::snapshot::render;

/// One checkpoint at least of every family that has a published one here.
const NAMES: [&str; 28] = [
    "llava-hf__llava-1.5-7b-hf",
    "llava-hf__llava-v1.6-mistral-7b-hf",
    "ibm-granite__granite-vision-3.2-2b",
    "llava-hf__llava-onevision-qwen2-0.5b-ov-hf",
    "Qwen__Qwen2-VL-2B-Instruct",
    "Qwen__Qwen2-VL-7B-Instruct",
    "Qwen__Qwen2-VL-2B-Instruct-AWQ",
    "MBZUAI__AIN",
    "allenai__olmOCR-7B-0225-preview",
    "Qwen__Qwen2.5-VL-3B-Instruct",
    "Qwen__Qwen2.5-VL-7B-Instruct",
    "Qwen__Qwen3-VL-4B-Instruct",
    "Qwen__Qwen3-VL-30B-A3B-Instruct",
    "nvidia__Cosmos-Reason2-8B",
    "zai-org__GLM-4.1V-9B-Thinking",
    "google__gemma-3-4b-it",
    "google__gemma-3n-E4B-it",
    "google__gemma-4-E2B-it",
    "google__paligemma-3b-pt-224",
    "google__paligemma-3b-pt-448",
    "google__paligemma-3b-pt-896",
    "allenai__Molmo2-4B",
    "allenai__Molmo2-8B",
    "meta-llama__Llama-3.2-11B-Vision-Instruct",
    "HuggingFaceTB__SmolVLM-256M-Instruct",
    "ibm-granite__granite-docling-258M",
    "mistralai__Mistral-Small-3.2-24B-Instruct-2506",
    "Qwen__Qwen2-Audio-7B-Instruct",
];

#[test]
fn resolved_plans_of_published_checkpoints() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints");
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for name in NAMES {
            let checkpoint = Checkpoint::open(folder.join(name)).unwrap();
            let raw = checkpoint.find_family().unwrap();
            insta::assert_snapshot!(name, render(&Plan::resolve(&raw, &checkpoint).unwrap()));
        }
    });
}
