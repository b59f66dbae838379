//! Resolved plans of published checkpoints: every value with its source, floors and witnesses, as `spec snapshot` writes
//! them. A reader of a diff sees at once what changed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::path::Path;

use vlm_spec::checkpoint::Checkpoint;
use vlm_spec::plan::Plan;
use vlm_spec::snapshot::render;

#[test]
fn resolved_plans_of_published_checkpoints() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints");
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for name in [
            "llava-hf__llava-1.5-7b-hf",
            "Qwen__Qwen2-VL-2B-Instruct",
            "Qwen__Qwen2-VL-7B-Instruct",
            "Qwen__Qwen2-VL-2B-Instruct-AWQ",
            "MBZUAI__AIN",
            "allenai__olmOCR-7B-0225-preview",
        ] {
            let checkpoint = Checkpoint::open(folder.join(name)).unwrap();
            let raw = checkpoint.find_family().unwrap();
            insta::assert_snapshot!(name, render(&Plan::resolve(&raw, &checkpoint).unwrap()));
        }
    });
}
