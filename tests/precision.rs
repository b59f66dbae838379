//! Products in bf16 (`Precision::Bf16`) beside products in f32, on the same bf16 weights.

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
#[path = "common/formula.rs"]
mod formula;

use std::fs;
use std::path::Path;

use cases::{answers, folders, load, read_json, request, root};
use formula::{Options, materialise};
use safetensors::Dtype;
use vlm_spec::backend::cpu::{Cpu, Precision};
use vlm_spec::model::{Model, Trace, TraceTensor};
use vlm_spec::prompt::Request;

/// ‖rounded − exact‖ / ‖exact‖ of a stage. A number in bf16 is off by at most 2⁻⁹, and so is each of the products that a
/// stage adds up; the contract allows 2e-2, which is ten of these.
const TOLERANCE: f64 = 2e-2;
/// Of a mixture of experts: where two experts are all but equally likely, rounding makes a row choose the other one.
const CHOOSING: f64 = 5e-2;

fn trace(model: &Model<Cpu>, case: &serde_json::Value) -> Trace {
    let (raw, messages, files, clips) = request(case);
    let media = model.media(&files, &clips).unwrap();
    let asked = raw.as_deref().map_or_else(|| Request::Messages(&messages), Request::Raw);
    model.trace(asked, &media, 0).unwrap()
}

fn apart(rounded: &[f32], exact: &[f32]) -> f64 {
    let norm =
        |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let pairs = rounded.iter().zip(exact).map(|(a, b)| f64::from(*a) - f64::from(*b));
    let whole = norm(&mut exact.iter().map(|value| f64::from(*value)));
    (norm(&mut pairs.into_iter()) / whole.max(f64::MIN_POSITIVE)).sqrt()
}

/// Every stage of every family is near the exact one, and products really are rounded.
#[test]
fn stages_in_bf16_are_near_those_in_f32() {
    let rounding = || Cpu::with_precision(Some(2), Precision::Bf16).unwrap();
    if rounding().precision() == Precision::F32 {
        println!("skipped: this processor does not multiply bf16");
        return;
    }
    let (mut failures, mut worst, mut differ) = (Vec::new(), 0.0_f64, 0);
    for name in folders() {
        let fixture = root().join(&name);
        if read_json(&fixture.join("golden.json"))["same_as"].is_string() {
            continue; // another layout of the same weights
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("precision").join(&name);
        let _ = fs::remove_dir_all(&folder);
        let options = Options { dtype: Dtype::BF16, ..Options::default() };
        materialise(&fixture, &folder, &options).unwrap();
        let model = load(&folder, Cpu::new(Some(2)).unwrap());
        let rounding = load(&folder, rounding());
        let text = &read_json(&folder.join("config.json"))["text_config"];
        let tolerance = if text["num_experts"].is_u64() { CHOOSING } else { TOLERANCE };
        let report = read_json(&answers(&name).join("golden.json"));
        for (case, details) in report["cases"].as_object().unwrap() {
            let (rounded, exact) = (trace(&rounding, details), trace(&model, details));
            for (stage, tensor) in &exact {
                match (tensor, &rounded[stage]) {
                    (TraceTensor::Float(_, exact), TraceTensor::Float(_, rounded)) => {
                        let error = apart(rounded, exact);
                        differ += usize::from(error > 1e-5);
                        worst = worst.max(error);
                        // NaN is no error that is small
                        if !matches!(error.partial_cmp(&tolerance), Some(order) if order.is_le()) {
                            failures.push(format!("{name} {case} {stage}: {error:e}"));
                        }
                    }
                    (exact, rounded) => assert_eq!(exact, rounded, "{name} {case} {stage}"),
                }
            }
        }
    }
    println!("worst {worst:e}, {differ} stages differ");
    assert!(failures.is_empty(), "{} stages\n{}", failures.len(), failures.join("\n"));
    assert!(differ > 100, "only {differ} stages were rounded");
}
