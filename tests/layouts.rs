//! The tensors of every family against the layouts in which checkpoints are found: all names and shapes of what three
//! versions of the reference hold in memory and save, and the same with one tensor removed, renamed, transposed or resized.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use vlm_spec::check::{TensorMatch, match_tensors};
use vlm_spec::checkpoint::Checkpoint;
use vlm_spec::checkpoint::weights::Listing;
use vlm_spec::plan::Plan;
use vlm_spec::plan::graph::GraphPlan;
use vlm_spec::problem::{Level, Problems};

/// Layouts, and the family that each is of.
const LAYOUTS: &[(&str, &str)] = &[
    ("aya-vision", "ayavision"),
    ("blip2", "blip2"),
    ("deepseek-vl", "deepseekvl"),
    ("gemma3-4b", "gemma3"),
    ("gemma3n", "gemma3n"),
    ("gemma4-e2b", "gemma4"),
    ("glm4v", "glm4v"),
    ("granite-vision", "granitevision"),
    ("idefics2", "idefics2"),
    ("idefics3", "idefics3"),
    ("instructblip", "instructblip"),
    ("internvl-hf", "internvl"),
    ("lfm2-vl", "lfm2vl"),
    ("llama4-scout", "llama4"),
    ("llava-1.5", "llava"),
    ("llava-next", "llavanext"),
    ("llava-onevision", "llavaonevision"),
    ("mistral3", "mistral3"),
    ("mllama-11b", "mllama"),
    ("molmo2-8b", "molmo2"),
    ("ovis2", "ovis2"),
    ("paligemma-224", "paligemma"),
    ("paligemma2", "paligemma"),
    ("phi4-mm", "phi4mm"),
    ("pixtral", "pixtral"),
    ("qwen2-audio", "qwen2audio"),
    ("qwen2-vl-2b", "qwen2vl"),
    ("qwen2-vl-7b", "qwen2vl"),
    ("qwen2.5-omni", "qwen25omni"),
    ("qwen2.5-vl-3b", "qwen25vl"),
    ("qwen2.5-vl-7b", "qwen25vl"),
    ("qwen3-vl-2b", "qwen3vl"),
    ("qwen3-vl-30b-a3b", "qwen3vlmoe"),
    ("qwen3.5", "qwen35"),
    ("smolvlm", "smolvlm"),
    ("smolvlm-256m", "idefics3"),
    ("whisper-large-v3", "whisper"),
];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/layouts")
}

fn read(path: &Path) -> Map<String, Value> {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap()
}

type Tensors = Vec<(String, Vec<u64>)>;

/// The numbers that `N` stands for in a pattern that occurs `count` times.
fn numbers(layout: &str, pattern: &str, count: u64) -> Vec<u64> {
    let cross = [3, 8, 13, 18, 23, 28, 33, 38];
    match layout {
        "mllama-11b" if pattern.contains("language_model") && count == 8 => cross.to_vec(),
        "mllama-11b" if pattern.contains("language_model") && count == 32 => {
            (0..40).filter(|layer| !cross.contains(layer)).collect()
        }
        // queries read the picture in every other layer
        "blip2" | "instructblip" if pattern.contains("crossattention") => {
            (0..count).map(|layer| 2 * layer).collect()
        }
        // the steps of a sequential module are numbered with a gap where an activation stands
        _ if pattern.contains("mlp.N.") && count == 2 => vec![0, 2],
        _ => (0..count).collect(),
    }
}

/// The numbers of `0-3, 7`.
fn ranges(text: &str) -> Vec<u64> {
    let number = |text: &str| text.parse::<u64>().unwrap();
    let range = |part: &str| match part.split_once('-') {
        Some((first, last)) => number(first)..=number(last),
        None => number(part)..=number(part),
    };
    text.split(", ").flat_map(range).collect()
}

fn tensors(layout: &str, version: &Map<String, Value>) -> Tensors {
    let mut tensors = Vec::new();
    for (pattern, entry) in version {
        let mut numbers = numbers(layout, pattern, entry[0].as_u64().unwrap()).into_iter();
        for (shape, which) in entry[1].as_object().unwrap() {
            let shape: Vec<u64> = serde_json::from_str(shape).unwrap();
            let which: Vec<u64> = match which.as_str() {
                Some(text) => ranges(text),
                None => numbers
                    .by_ref()
                    .take(usize::try_from(which.as_u64().unwrap()).unwrap())
                    .collect(),
            };
            for number in which {
                let name = pattern.replacen(".N.", &format!(".{number}."), 1);
                tensors.push((name, shape.clone()));
            }
        }
    }
    tensors
}

/// A weight file of these tensors in bf16: a real header, and a hole in place of the data.
fn write_weights(folder: &Path, tensors: &Tensors) {
    let mut header = Map::new();
    let mut offset = 0_u64;
    for (name, shape) in tensors {
        let end = offset + 2 * shape.iter().product::<u64>();
        let entry = json!({ "dtype": "BF16", "shape": shape, "data_offsets": [offset, end] });
        header.insert(name.clone(), entry);
        offset = end;
    }
    let text = Value::Object(header).to_string();
    let mut file = fs::File::create(folder.join("model.safetensors")).unwrap();
    file.write_all(&(text.len() as u64).to_le_bytes()).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.set_len(8 + text.len() as u64 + offset).unwrap();
}

/// Every version of a layout in a folder of its own, with the configuration that goes with it.
fn versions(layout: &str) -> Vec<(String, PathBuf)> {
    let layouts = read(&fixtures().join(format!("{layout}.json")));
    layouts
        .iter()
        .map(|(version, entries)| {
            let tag = format!("{layout}, {version}");
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("layouts").join(&tag);
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            let config = fixtures().join("configs").join(format!("{layout}.json"));
            fs::copy(config, folder.join("config.json")).unwrap();
            write_weights(&folder, &tensors(layout, entries.as_object().unwrap()));
            (tag, folder)
        })
        .collect()
}

/// A plan and its computations in every form, for the family that the checkpoint itself picks.
fn resolve(tag: &str, family: &str, folder: &Path) -> (Plan, Vec<GraphPlan>) {
    let checkpoint = Checkpoint::open(folder).unwrap();
    let raw = checkpoint.find_family().unwrap_or_else(|error| panic!("{tag}: {error}"));
    assert_eq!(raw.name(), family, "{tag}");
    let plan = Plan::resolve(&raw, &checkpoint).unwrap_or_else(|error| panic!("{tag}: {error}"));
    let graphs = GraphPlan::resolve_all(&plan.descriptor, &plan.values)
        .unwrap_or_else(|problems| panic!("{tag}:\n{problems}"));
    (plan, graphs)
}

fn matched(plan: &Plan, graphs: &[GraphPlan], listing: &Listing) -> TensorMatch {
    match_tensors(&plan.descriptor, graphs.to_vec(), listing).unwrap()
}

fn lines(problems: &Problems) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn accepted(layout: &str, family: &str) {
    let versions = versions(layout);
    assert!(!versions.is_empty());
    for (tag, folder) in versions {
        let (plan, graphs) = resolve(&tag, family, &folder);
        let listing = Listing::open(&folder).unwrap().unwrap();
        assert_eq!(lines(&listing.problems), [""; 0], "{tag}");
        let found = matched(&plan, &graphs, &listing);
        assert!(found.problems.is_empty(), "{tag}:\n{}", lines(&found.problems).join("\n"));
        broken(&tag, &plan, &graphs, &found, &listing);
    }
}

/// One tensor of every pattern, changed in four ways: an error must name it.
fn broken(tag: &str, plan: &Plan, graphs: &[GraphPlan], sound: &TensorMatch, listing: &Listing) {
    let pattern = |name: &str| -> Vec<String> {
        let part = |part: &str| if part.parse::<u32>().is_ok() { "*" } else { part }.to_owned();
        name.split('.').map(part).collect()
    };
    let mut seen = Vec::new();
    let mut changed = 0;
    for spec in &sound.specs {
        let name = spec.component.full_name(&sound.root, &spec.name);
        if seen.contains(&pattern(&name)) || !listing.tensors.contains_key(&name) {
            continue;
        }
        seen.push(pattern(&name));
        let expect = |what: &str, change: &dyn Fn(&mut Listing), code: &str| {
            let mut listing = listing.clone();
            change(&mut listing);
            let found = matched(plan, graphs, &listing);
            let named = found.problems.iter().any(|problem| {
                problem.level == Level::Error
                    && problem.code == code
                    && problem.message.contains(&format!("`{name}`"))
                    && problem.place.line.is_some()
            });
            assert!(
                named,
                "{tag}: `{name}` {what} is not found:\n{}",
                lines(&found.problems).join("\n")
            );
        };
        if spec.required {
            let remove = |listing: &mut Listing| {
                listing.tensors.shift_remove(&name);
            };
            expect("removed", &remove, "tensor-missing");
            let rename = |listing: &mut Listing| {
                let tensor = listing.tensors.shift_remove(&name).unwrap();
                listing.tensors.insert(format!("{name}_"), tensor);
            };
            expect("renamed", &rename, "tensor-missing");
        }
        let shape = listing.tensors[&name].shape.clone().unwrap();
        let mut reversed = shape.clone();
        reversed.reverse();
        if reversed != shape {
            let transpose = |listing: &mut Listing| {
                listing.tensors.get_mut(&name).unwrap().shape = Some(reversed.clone());
            };
            expect("transposed", &transpose, "tensor-shape");
        }
        let resize = |listing: &mut Listing| {
            let mut shape = shape.clone();
            match shape.last_mut() {
                Some(last) => *last += 1,
                None => shape.push(2),
            }
            listing.tensors.get_mut(&name).unwrap().shape = Some(shape);
        };
        expect("resized", &resize, "tensor-shape");
        changed += 1;
    }
    assert!(changed > 20, "{tag}: {changed}");
}

macro_rules! layouts {
    ($($name:ident: $range:expr),* $(,)?) => {$(
        #[test]
        fn $name() {
            for (layout, family) in &LAYOUTS[$range] {
                accepted(layout, family);
            }
        }
    )*};
}

// a few at a time, so that they run side by side
layouts! {
    layouts_from_a_to_g3: ..4,
    layouts_of_large_inventories_g: 4..6,
    layouts_from_g_to_l: 6..17,
    layouts_from_m_to_o: 17..21,
    layouts_of_p: 21..25,
    layouts_from_q2: 25..28,
    layouts_from_q2_5: 28..31,
    layouts_from_q3_to_w: 31..,
}

/// Every layout that is stored is of some family here, and has its configuration.
#[test]
fn no_layout_is_left_out() {
    let mut stored: Vec<_> = fs::read_dir(fixtures())
        .unwrap()
        .filter_map(|entry| {
            let path = entry.unwrap().path();
            (path.extension()? == "json")
                .then(|| path.file_stem().unwrap().to_string_lossy().into_owned())
        })
        .collect();
    stored.sort();
    let mut listed: Vec<_> = LAYOUTS.iter().map(|(layout, _)| (*layout).to_owned()).collect();
    listed.sort();
    assert_eq!(stored, listed);
}

/// Families that are known and not run say which members they need, all at once.
#[test]
fn what_is_not_run_is_named() {
    for (layout, needs) in [
        ("qwen2-vl-2b", &[][..]),
        ("llava-1.5", &[][..]),
        ("gemma3-4b", &[][..]),
        (
            "gemma4-e2b",
            &["position tables per axis", "clamped projections", "an audio conformer"][..],
        ),
        ("gemma3n", &["a convolutional tower", "keys and values of an earlier layer"][..]),
        ("qwen3.5", &["linear attention", "gates beside the queries"][..]),
        ("mllama-11b", &[][..]),
        ("qwen2-audio", &[][..]),
        ("instructblip", &["queries that read the instruction"][..]),
        ("qwen3-vl-30b-a3b", &[][..]),
    ] {
        let family = LAYOUTS.iter().find(|(known, _)| *known == layout).unwrap().1;
        let (tag, folder) = versions(layout).swap_remove(0);
        let (_, graphs) = resolve(&tag, family, &folder);
        let words = vlm_spec::graph::unsupported(&graphs[0]);
        assert_eq!(words.is_empty(), needs.is_empty(), "{tag}: {words:?}");
        for need in needs {
            assert!(words.iter().any(|word| word == need), "{tag}: {words:?}");
        }
    }
}
