//! Every stage of the forward pass against what the reference implementation recorded (`tests/fixtures/README.md`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "common/formula.rs"]
mod formula;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use formula::{Options, goldens, home, materialise};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use vlm_spec::backend::Backend;
use vlm_spec::backend::cpu::Cpu;
use vlm_spec::checkpoint::Checkpoint;
use vlm_spec::generate::Sampling;
use vlm_spec::model::{Model, Timings, Trace, TraceTensor};
use vlm_spec::plan::Plan;
use vlm_spec::prompt::{Conversation, Message, Request};

/// ‖a − b‖ / ‖b‖ of a stage. Measured at most 9e-7; the rest is room for other orders of summation (the reference moves by
/// about 3e-6 between its own attention implementations). The contract allows 2e-5.
const TOLERANCE: f64 = 4e-6;

const CHECKPOINTS: [&str; 8] = [
    "llava",
    "llava_full",
    "llava_taps",
    "llava_siglip",
    "llava_resaved",
    "qwen2vl",
    "qwen2vl_odd",
    "qwen2vl_resaved",
];

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("goldens").join(name);
    let _ = fs::remove_dir_all(&folder);
    folder
}

fn load(folder: &Path, threads: usize) -> Model<Cpu> {
    let checkpoint = Checkpoint::open(folder).unwrap();
    let raw = checkpoint.find_family().unwrap();
    let plan = Plan::resolve(&raw, &checkpoint).unwrap();
    Model::load(&plan, Cpu::new(Some(threads)).unwrap())
        .unwrap_or_else(|error| panic!("{error}\n{}", error.problems()))
}

/// The request and the picture files of a recorded case.
fn request(case: &Value) -> (Option<String>, Vec<Message>, Vec<PathBuf>) {
    let images = goldens().join("images");
    if case["raw"] == Value::Bool(true) {
        let files = case["images"].as_array().unwrap();
        let files =
            files.iter().map(|image| images.join(image["file"].as_str().unwrap())).collect();
        return (Some(case["prompt"].as_str().unwrap().to_owned()), Vec::new(), files);
    }
    let conversation = Conversation::from_json(&case["messages"].to_string()).unwrap();
    let files =
        conversation.images.iter().map(|name| images.join(name.as_ref().unwrap())).collect();
    (None, conversation.messages, files)
}

fn run_case(model: &Model<Cpu>, case: &Value) -> Trace {
    let (raw, messages, files) = request(case);
    let pictures = model.pictures(&files).unwrap();
    let request = match &raw {
        Some(text) => Request::Raw(text),
        None => Request::Messages(&messages),
    };
    model.trace(request, &pictures, 16).unwrap()
}

/// Compares one recorded tensor; returns its relative error.
fn compare(
    what: &str,
    expected: &safetensors::tensor::TensorView<'_>,
    trace: &Trace,
    name: &str,
) -> f64 {
    let (base, part) = match name.rsplit_once('.') {
        Some((base, part @ ("rows" | "tail"))) => (base, part),
        _ => (name, "whole"),
    };
    let found = trace.get(base).unwrap_or_else(|| panic!("{what}: no stage `{base}`"));
    match (found, expected.dtype()) {
        (TraceTensor::Integer(shape, values), Dtype::I64) => {
            let wanted: Vec<i64> = expected
                .data()
                .chunks_exact(8)
                .map(|b| i64::from_le_bytes(b.try_into().unwrap()))
                .collect();
            assert_eq!(shape, expected.shape(), "{what}");
            assert_eq!(*values, wanted, "{what}");
            0.0
        }
        (TraceTensor::Float(shape, values), Dtype::F32) => {
            let wanted: Vec<f32> = expected
                .data()
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
                .collect();
            let width = *shape.last().unwrap();
            let rows = values.len() / width;
            let found: Vec<f32> = match part {
                "whole" => {
                    assert_eq!(shape, expected.shape(), "{what}");
                    values.clone()
                }
                "rows" if rows > 8 => {
                    [&values[..4 * width], &values[(rows - 4) * width..]].concat()
                }
                "tail" => values[rows.saturating_sub(8) * width..].to_vec(),
                _ => values.clone(),
            };
            assert_eq!(found.len(), wanted.len(), "{what}");
            if base.ends_with(".pixels") {
                let same = found.iter().zip(&wanted).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{what}: pixels are not bit-identical");
                return 0.0;
            }
            relative(&found, &wanted)
        }
        _ => panic!("{what}: another type"),
    }
}

fn relative(found: &[f32], wanted: &[f32]) -> f64 {
    let square = |value: f64| value * value;
    let difference: f64 =
        found.iter().zip(wanted).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let norm: f64 = wanted.iter().map(|b| square(f64::from(*b))).sum();
    (difference / norm).sqrt()
}

/// Holds every recorded tensor of every case whose name passes `wanted` against our trace.
fn hold(name: &str, folder: &Path, tag: &str, wanted: impl Fn(&str) -> bool) {
    let fixture = home(&goldens().join(name)).unwrap();
    let report: Value =
        serde_json::from_slice(&fs::read(fixture.join("golden.json")).unwrap()).unwrap();
    let bytes = fs::read(fixture.join("golden.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let model = load(folder, 2);
    let mut worst: BTreeMap<String, f64> = BTreeMap::new();
    let mut compared = 0;
    for (case, details) in report["cases"].as_object().unwrap() {
        if !wanted(case) {
            continue;
        }
        let trace = run_case(&model, details);
        for key in tensors.names() {
            let Some(stage) = key.strip_prefix(&format!("{case}/")) else { continue };
            if stage == "generated_ignoring_eos" {
                continue;
            }
            let error =
                compare(&format!("{tag} {key}"), &tensors.tensor(key).unwrap(), &trace, stage);
            let kind = stage
                .trim_start_matches(|c: char| c != '.')
                .rsplit('.')
                .next()
                .unwrap_or(stage)
                .to_owned();
            let slot =
                worst.entry(if kind.is_empty() { stage.to_owned() } else { kind }).or_insert(0.0);
            *slot = slot.max(error);
            assert!(error <= TOLERANCE, "{tag} {key}: relative error {error:e}");
            compared += 1;
        }
    }
    assert!(compared >= 6, "{tag}: only {compared} tensors were compared");
    println!("{tag}: {compared} tensors, worst {worst:?}");
}

#[test]
fn every_stage_equals_the_reference() {
    for name in CHECKPOINTS {
        let folder = scratch(name);
        materialise(&goldens().join(name), &folder, &Options::default()).unwrap();
        hold(name, &folder, name, |case| !case.contains('.'));
    }
}

/// A checkpoint in half precision equals the reference run in f32 on the upcast weights, at the same tolerance.
#[test]
fn half_precision_weights_are_upcast_exactly() {
    for name in ["llava", "qwen2vl"] {
        for (dtype, case) in [(Dtype::BF16, "wide.bf16"), (Dtype::F16, "wide.f16")] {
            let tag = format!("{name}.{case}");
            let folder = scratch(&tag);
            materialise(&goldens().join(name), &folder, &Options { dtype, ..Options::default() })
                .unwrap();
            hold(name, &folder, &tag, |found| found == case);
        }
    }
}

/// Shards with an index, and every root of tensor names, run as the published layout does.
#[test]
fn shards_and_other_roots_run() {
    let pairs = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect::<Vec<_>>()
    };
    let llava = [
        pairs(&[("vision_tower.vision_model.", "vision_tower.")]),
        pairs(&[
            ("vision_tower.vision_model.", "model.vision_tower.vision_model."),
            ("multi_modal_projector.", "model.multi_modal_projector."),
            ("language_model.lm_head.", "lm_head."),
            ("language_model.model.", "model.language_model."),
        ]),
        pairs(&[
            ("vision_tower.vision_model.", "model.vision_tower."),
            ("multi_modal_projector.", "model.multi_modal_projector."),
            ("language_model.lm_head.", "lm_head."),
            ("language_model.model.", "model.language_model."),
        ]),
    ];
    let qwen = [pairs(&[("visual.", "model.visual."), ("model.", "model.language_model.")])];
    let all = llava
        .iter()
        .map(|rename| ("llava", rename))
        .chain(qwen.iter().map(|rename| ("qwen2vl", rename)));
    for (index, (name, rename)) in all.enumerate() {
        let tag = format!("{name}.root{index}");
        let folder = scratch(&tag);
        let options = Options { shards: 1 + index, rename: rename.clone(), ..Options::default() };
        materialise(&goldens().join(name), &folder, &options).unwrap();
        hold(name, &folder, &tag, |case| case == "two");
    }
}

/// `generate` gives the tokens that `trace` records, and threads do not change a bit.
#[test]
fn generation_equals_the_trace_on_any_number_of_threads() {
    let folder = scratch("generation");
    materialise(&goldens().join("qwen2vl"), &folder, &Options::default()).unwrap();
    let report: Value =
        serde_json::from_slice(&fs::read(goldens().join("qwen2vl/golden.json")).unwrap()).unwrap();
    let (_, messages, files) = request(&report["cases"]["two"]);
    let mut traces = Vec::new();
    for threads in [1, 2, 3] {
        let model = load(&folder, threads);
        let pictures = model.pictures(&files).unwrap();
        let trace = model.trace(Request::Messages(&messages), &pictures, 16).unwrap();
        let mut seen = Vec::new();
        let generated = model
            .generate(
                Request::Messages(&messages),
                &pictures,
                16,
                Sampling::default(),
                &mut |token| {
                    seen.push(token);
                    Ok(true)
                },
            )
            .unwrap();
        let TraceTensor::Integer(_, traced) = &trace["generated"] else { panic!("another type") };
        assert_eq!(
            generated.tokens.iter().map(|token| i64::from(*token)).collect::<Vec<_>>(),
            *traced
        );
        assert_eq!(seen, generated.tokens);
        traces.push(trace);
    }
    assert!(traces.windows(2).all(|pair| pair[0] == pair[1]));
}

/// Text alone through the embedding plan is bit-identical to a plain lookup.
#[test]
fn text_alone_is_a_plain_lookup() {
    for name in ["llava", "qwen2vl"] {
        let folder = scratch(&format!("text.{name}"));
        materialise(&goldens().join(name), &folder, &Options::default()).unwrap();
        let model = load(&folder, 2);
        let request = Request::Raw("The quick brown fox jumps over the lazy dog.");
        let embedded = model.embed(request, &[], &mut Timings::default()).unwrap();
        let plain = model.lookup(&embedded.prompt.ids).unwrap();
        let backend = model.backend();
        let (ours, plain) =
            (backend.download(&embedded.rows).unwrap(), backend.download(&plain).unwrap());
        assert!(embedded.prompt.ids.len() > 10);
        assert!(ours.iter().zip(&plain).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}
