//! Every stage of the forward pass against what the reference implementation recorded (`tests/fixtures/README.md`).

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
#[path = "common/stages.rs"]
mod stages;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use cases::{answers, folders, load, read_json, request, root, try_load};
use formula::{Options, goldens, materialise};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use stages::Worst;
use vlm_spec::backend::Backend;
use vlm_spec::backend::cpu::Cpu;
use vlm_spec::error::Error;
use vlm_spec::generate::Sampling;
use vlm_spec::model::{Model, Timings, Trace, TraceTensor};
use vlm_spec::preprocess::Media;
use vlm_spec::prompt::Request;

/// ‖a − b‖ / ‖b‖ of a stage. On the CPU as on a device, the families are at most 2e-6 away (`docs/stages.md`); the rest is room for
/// other orders of summation and other drivers' exponentials (the reference moves by about 3e-6 between its own attention
/// implementations). The contract allows 1e-4.
const TOLERANCE: f64 = 2e-5;

/// An empty folder. Tests that run at the same time need other names.
fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("goldens").join(name);
    let _ = fs::remove_dir_all(&folder);
    folder
}

/// A complete checkpoint for `name`: one by formula, or the folder itself where it has weights.
fn complete(name: &str, scratch_name: &str) -> PathBuf {
    let fixture = root().join(name);
    if !fixture.join("weights.json").exists() {
        return fixture;
    }
    let folder = scratch(scratch_name);
    materialise(&fixture, &folder, &Options::default()).unwrap();
    folder
}

fn cpu(threads: usize) -> Cpu {
    Cpu::new(Some(threads)).unwrap()
}

/// The trace of a case.
fn run_case<B: Backend>(model: &Model<B>, case: &Value) -> Result<Trace, Error> {
    let (raw, messages, files, clips) = request(case);
    let media = model.media(&files, &clips)?;
    let request = match &raw {
        Some(text) => Request::Raw(text),
        None => Request::Messages(&messages),
    };
    model.trace(request, &media, 16)
}

/// What came of holding the cases of one folder against our traces.
#[derive(Default)]
struct Outcome {
    cases: usize,
    compared: usize,
    worst: Worst,
    failures: Vec<String>,
}

/// Holds every recorded tensor of every case whose name passes `wanted` against the trace of that case.
fn hold<B: Backend>(
    name: &str,
    model: &Model<B>,
    tag: &str,
    wanted: impl Fn(&str) -> bool,
) -> Outcome {
    let fixture = answers(name);
    let report = read_json(&fixture.join("golden.json"));
    let bytes = fs::read(fixture.join("golden.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut outcome = Outcome::default();
    for (case, details) in report["cases"].as_object().unwrap() {
        if !wanted(case) {
            continue;
        }
        outcome.cases += 1;
        let trace = match run_case(model, details) {
            Ok(trace) => trace,
            Err(error) => {
                outcome.failures.push(format!("{tag} {case}: {error}"));
                continue;
            }
        };
        for key in tensors.names() {
            let Some(stage) = key.strip_prefix(&format!("{case}/")) else { continue };
            if stage == "generated_ignoring_eos" {
                continue;
            }
            outcome.compared += 1;
            match stages::compare(&tensors.tensor(key).unwrap(), &trace, stage) {
                Ok(error) => {
                    if let Some(kind) = stages::kind(stage) {
                        let slot = outcome.worst.entry(kind).or_insert(0.0);
                        *slot = slot.max(error);
                    }
                    // NaN is no error that is small
                    if !matches!(error.partial_cmp(&TOLERANCE), Some(order) if order.is_le()) {
                        outcome.failures.push(format!("{tag} {key}: relative error {error:e}"));
                    }
                }
                Err(difference) => outcome.failures.push(format!("{tag} {key}: {difference}")),
            }
        }
    }
    outcome
}

/// A backend, by its name.
struct Way<B> {
    name: &'static str,
    open: fn() -> B,
}

impl<B: Backend> Way<B> {
    /// An empty folder of this backend.
    fn scratch(&self, name: &str) -> PathBuf {
        scratch(&format!("{}.{name}", self.name))
    }

    /// A model on this backend.
    fn load(&self, folder: &Path) -> Model<B> {
        load(folder, (self.open)())
    }

    /// As [`hold`], with everything equal.
    fn must_hold(&self, name: &str, folder: &Path, tag: &str, wanted: impl Fn(&str) -> bool) {
        let outcome = hold(name, &self.load(folder), tag, wanted);
        assert!(outcome.failures.is_empty(), "{}", outcome.failures.join("\n"));
        assert!(outcome.compared >= 6, "{tag}: only {} tensors were compared", outcome.compared);
        println!("{tag}: {} tensors, worst {:?}", outcome.compared, outcome.worst);
    }

    /// Every folder, every case, every stage. All that differs is listed, and `docs/stages.md` lists the same folders and stages.
    fn every_stage(&self) {
        let (mut rows, mut failures) = (BTreeMap::new(), Vec::new());
        for name in folders() {
            let folder = complete(&name, &format!("{}.{name}", self.name));
            let model = match try_load(&folder, (self.open)()) {
                Ok(model) => model,
                Err(error) => {
                    failures.push(format!("{name}: {error}\n{}", error.problems()));
                    continue;
                }
            };
            let outcome = hold(&name, &model, &name, |case| !case.contains('.'));
            println!("{name}: {} tensors, worst {:?}", outcome.compared, outcome.worst);
            if outcome.compared < 6 {
                failures.push(format!("{name}: only {} tensors were compared", outcome.compared));
            }
            failures.extend(outcome.failures);
            rows.insert(name, (outcome.cases, outcome.worst));
        }
        assert!(failures.is_empty(), "{} differences\n{}", failures.len(), failures.join("\n"));
        if env::var_os("GOLDENS_DIR").is_none() {
            stages::document(self.name, &stages::table(&rows));
        }
    }

    /// A checkpoint in half precision equals the reference run in f32 on the upcast weights, at the same tolerance.
    fn half_precision(&self) {
        let mut held = 0;
        for name in folders() {
            let report = read_json(&answers(&name).join("golden.json"));
            let same = read_json(&root().join(&name).join("golden.json"))["same_as"].is_string();
            let cases = report["cases"].as_object().unwrap().keys();
            for case in cases.filter(|case| case.contains('.') && !same) {
                let dtype = match case.rsplit_once('.').unwrap().1 {
                    "bf16" => Dtype::BF16,
                    "f16" => Dtype::F16,
                    other => panic!("{name}: no type {other}"),
                };
                let tag = format!("{name}.{case}");
                let folder = self.scratch(&tag);
                let options = Options { dtype, ..Options::default() };
                materialise(&root().join(&name), &folder, &options).unwrap();
                self.must_hold(&name, &folder, &tag, |found| found == case);
                held += 1;
            }
        }
        assert!(held >= 4 || env::var_os("GOLDENS_DIR").is_some(), "only {held} were held");
    }

    /// Shards with an index, and every root of tensor names, run as the published layout does.
    fn shards_and_other_roots(&self) {
        let pairs = |pairs: &[(&str, &str)]| {
            let owned = |(from, to): &(&str, &str)| ((*from).to_owned(), (*to).to_owned());
            pairs.iter().map(owned).collect::<Vec<_>>()
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
            if env::var_os("GOLDENS_DIR").is_some() && !root().join(name).exists() {
                continue; // others were recorded there
            }
            let tag = format!("{name}.root{index}");
            let folder = self.scratch(&tag);
            let shards = 1 + index;
            let options = Options { shards, rename: rename.clone(), ..Options::default() };
            materialise(&root().join(name), &folder, &options).unwrap();
            self.must_hold(name, &folder, &tag, |case| case == "two");
        }
    }

    /// Text alone through the embedding plan is bit-identical to a plain lookup.
    fn text_alone(&self) {
        for name in ["llava", "qwen2vl"] {
            let folder = self.scratch(&format!("text.{name}"));
            materialise(&goldens().join(name), &folder, &Options::default()).unwrap();
            let model = self.load(&folder);
            let request = Request::Raw("The quick brown fox jumps over the lazy dog.");
            let embedded =
                model.embed(request, &Media::default(), &(), &mut Timings::default()).unwrap();
            let plain = model.lookup(&embedded.prompt.ids).unwrap();
            let backend = model.backend();
            let (ours, plain) =
                (backend.download(&embedded.rows).unwrap(), backend.download(&plain).unwrap());
            assert!(embedded.prompt.ids.len() > 10);
            assert!(ours.iter().zip(&plain).all(|(a, b)| a.to_bits() == b.to_bits()));
        }
    }
}

/// The trace of two pictures by each of the models; `generate` gives the tokens that `trace` records.
fn traces<B: Backend>(models: impl IntoIterator<Item = Model<B>>) -> Vec<Trace> {
    let report = read_json(&goldens().join("qwen2vl/golden.json"));
    let (_, messages, files, clips) = request(&report["cases"]["two"]);
    let trace = |model: Model<B>| {
        let media = model.media(&files, &clips).unwrap();
        let trace = model.trace(Request::Messages(&messages), &media, 16).unwrap();
        let mut seen = Vec::new();
        let generated = model
            .generate(Request::Messages(&messages), &media, 16, Sampling::default(), &mut |token| {
                seen.push(token);
                Ok(true)
            })
            .unwrap();
        let TraceTensor::Integer(_, traced) = &trace["generated"] else { panic!("another type") };
        assert_eq!(
            generated.tokens.iter().map(|token| i64::from(*token)).collect::<Vec<_>>(),
            *traced
        );
        assert_eq!(seen, generated.tokens);
        trace
    };
    models.into_iter().map(trace).collect()
}

mod on_the_cpu {
    use super::*;

    fn way() -> Way<Cpu> {
        Way { name: "cpu", open: || cpu(2) }
    }

    #[test]
    fn every_stage_equals_the_reference() {
        way().every_stage();
    }

    #[test]
    fn half_precision_weights_are_upcast_exactly() {
        way().half_precision();
    }

    #[test]
    fn shards_and_other_roots_run() {
        way().shards_and_other_roots();
    }

    #[test]
    fn text_alone_is_a_plain_lookup() {
        way().text_alone();
    }

    /// Threads do not change a bit.
    #[test]
    fn generation_equals_the_trace_on_any_number_of_threads() {
        let folder = way().scratch("generation");
        materialise(&goldens().join("qwen2vl"), &folder, &Options::default()).unwrap();
        let traces = traces([1, 2, 3].map(|threads| load(&folder, cpu(threads))));
        assert!(traces.windows(2).all(|pair| pair[0] == pair[1]));
    }
}

#[cfg(feature = "wgpu")]
mod on_a_device {
    use vlm_spec::backend::wgpu::Wgpu;

    use super::*;

    fn way() -> Option<Way<Wgpu>> {
        device::wgpu()?;
        Some(Way { name: "wgpu", open: || device::wgpu().unwrap() })
    }

    #[test]
    fn every_stage_equals_the_reference() {
        way().iter().for_each(Way::every_stage);
    }

    #[test]
    fn half_precision_weights_are_upcast_exactly() {
        way().iter().for_each(Way::half_precision);
    }

    #[test]
    fn shards_and_other_roots_run() {
        way().iter().for_each(Way::shards_and_other_roots);
    }

    #[test]
    fn text_alone_is_a_plain_lookup() {
        way().iter().for_each(Way::text_alone);
    }

    /// A second run, with buffers that held other values before, does not change a bit.
    #[test]
    fn generation_equals_the_trace_again_and_again() {
        let Some(way) = way() else { return };
        let folder = way.scratch("generation");
        materialise(&goldens().join("qwen2vl"), &folder, &Options::default()).unwrap();
        let traces = traces([(), (), ()].map(|()| way.load(&folder)));
        assert!(traces.windows(2).all(|pair| pair[0] == pair[1]));
    }
}
