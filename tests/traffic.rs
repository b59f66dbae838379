//! What goes between host and device while a model runs: a media item's rows never come back.

#![cfg(feature = "wgpu")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "common/cases.rs"]
mod cases;
#[path = "common/clips.rs"]
mod clips;
#[path = "common/device.rs"]
mod device;
#[path = "common/formula.rs"]
mod formula;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use cases::{answers, folders, load, read_json, request, root};
use formula::{Options, materialise};
use vlm_spec::generate::Sampling;
use vlm_spec::prompt::Request;

/// `generate` of n tokens, greedily, on every family, with no media, one item, and several.
///
/// It reads back 4 bytes a token: its number. Commands are sent once a token, since the next one depends on it, and once more when
/// the media are encoded, so that their time is known. Mixtures of experts are no exception.
#[test]
fn nothing_is_read_back_but_the_tokens() {
    let Some(device) = device::wgpu() else { return };
    let (mut with_experts, mut several) = (0, 0);
    for name in folders() {
        let fixture = root().join(&name);
        if read_json(&fixture.join("golden.json"))["same_as"].is_string() {
            continue; // another layout of the same weights
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("traffic").join(&name);
        let _ = fs::remove_dir_all(&folder);
        materialise(&fixture, &folder, &Options::default()).unwrap();
        let config = read_json(&folder.join("config.json"));
        with_experts += usize::from(config["text_config"]["num_experts"].is_u64());
        let model = load(&folder, device.clone());
        let report = read_json(&answers(&name).join("golden.json"));
        let mut counts = BTreeSet::new();
        for (case, details) in report["cases"].as_object().unwrap() {
            if case.contains('.') {
                continue; // other weights
            }
            let (raw, messages, pictures, clips) = request(details);
            let items = pictures.len() + clips.len();
            if !counts.insert(items) {
                continue; // what comes back does not depend on sizes
            }
            let media = model.media(&pictures, &clips).unwrap();
            let asked = raw.as_deref().map_or_else(|| Request::Messages(&messages), Request::Raw);
            for limit in [0, 1, 4] {
                let before = (device.bytes_read_back(), device.submissions());
                let generated = model
                    .generate(asked, &media, limit, Sampling::default(), &mut |_| Ok(true))
                    .unwrap();
                let read = device.bytes_read_back() - before.0;
                let sent = device.submissions() - before.1;
                let tokens = generated.tokens.len() as u64;
                let encoded = u64::from(items > 0);
                let what = format!("{name}: {case}, {tokens} tokens");
                assert_eq!(read, 4 * tokens, "{what}");
                // without a token nothing asks for what the prompt's rows became, but they are computed
                assert_eq!(sent, tokens.max(1) + encoded, "{what}");
            }
        }
        assert!(counts.contains(&1), "{name}: {counts:?}");
        several += usize::from(counts.iter().any(|items| *items > 1));
    }
    assert!(several > 10, "only {several} folders have cases with several items");
    assert!(with_experts > 0, "no folder has experts");
}
