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

/// What is likeliest behind every position of prompts, in bf16 beside f32.
#[derive(Default)]
struct Positions {
    /// Where the reference finds the same in both.
    agreed: usize,
    /// Of these, where bf16 cannot turn it: the two likeliest logits are further apart than it moves any logit of the reference.
    clear: usize,
    /// Of `agreed`, where ours differs.
    turned: usize,
    /// Of `clear`, where ours differs.
    wrong: Vec<String>,
}

impl Positions {
    fn count(&mut self, recorded: &serde_json::Value, exact: &Trace, rounded: &Trace, label: &str) {
        let (Some(tokens), Some(moved)) =
            (recorded["likeliest"].as_array(), recorded["moved"].as_array())
        else {
            return; // the same prompt with weights rounded to another type
        };
        let (TraceTensor::Float(shape, exact), TraceTensor::Float(_, rounded)) =
            (&exact["logits"], &rounded["logits"])
        else {
            panic!("{label}: logits are floats")
        };
        assert_eq!(shape[0], tokens.len(), "{label}");
        let rows = exact.chunks(shape[1]).zip(rounded.chunks(shape[1]));
        for (position, (exact, rounded)) in rows.enumerate() {
            let ranked = |row: &[f32]| {
                let mut order: Vec<usize> = (0..row.len()).collect();
                order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
                (order[0], order[1])
            };
            let ((first, second), (ours, _)) = (ranked(exact), ranked(rounded));
            if tokens[position].as_i64() != Some(first as i64) {
                continue; // bf16 turns it in the reference
            }
            self.agreed += 1;
            self.turned += usize::from(ours != first);
            if f64::from(exact[first] - exact[second]) > moved[position].as_f64().unwrap() {
                self.clear += 1;
                if ours != first {
                    self.wrong.push(format!("{label} {position}: {ours}, not {first}"));
                }
            }
        }
    }
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
    let mut positions = Positions::default();
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
        let recorded = read_json(&answers(&name).join("precision.json"));
        for (case, details) in report["cases"].as_object().unwrap() {
            let (rounded, exact) = (trace(&rounding, details), trace(&model, details));
            positions.count(&recorded["cases"][case], &exact, &rounded, &format!("{name} {case}"));
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
    let Positions { agreed, clear, turned, wrong } = positions;
    println!(
        "worst {worst:e}, {differ} stages differ; of {agreed} positions {clear} clear, {turned} turned"
    );
    assert!(failures.is_empty(), "{} stages\n{}", failures.len(), failures.join("\n"));
    assert!(differ > 100, "only {differ} stages were rounded");
    assert!(wrong.is_empty(), "{} positions\n{}", wrong.len(), wrong.join("\n"));
    assert!(clear > agreed / 2, "only {clear} of {agreed} positions say something");
    // the reference's own run in bf16 turns 2 in 100; what is all but a tie falls either way
    assert!(turned * 100 <= agreed, "{turned} of {agreed} positions have another likeliest token");
}
