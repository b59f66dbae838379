//! `check` against the tensor layouts of published checkpoints, and against ones that are broken in every way.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "common/formula.rs"]
mod formula;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use formula::{Options, goldens, materialise};
use serde_json::{Map, Value, json};
use vlm_spec::check::{Report, check};
use vlm_spec::checkpoint::Checkpoint;
use vlm_spec::descriptor::RawDescriptor;
use vlm_spec::problem::Level;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("check").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn report(folder: &Path) -> Report {
    let checkpoint = Checkpoint::open(folder).unwrap();
    let raw = checkpoint.find_family().unwrap();
    check(&raw, &checkpoint).unwrap()
}

/// Findings of a level as `code: message | expected | found`.
fn lines(report: &Report, level: Level) -> Vec<String> {
    report
        .findings
        .iter()
        .filter(|finding| finding.level == level)
        .map(|finding| {
            let part = |text: &Option<String>| text.clone().unwrap_or_default();
            format!(
                "{}: {} | {} | {}",
                finding.code,
                finding.message,
                part(&finding.expected),
                part(&finding.found)
            )
        })
        .collect()
}

type Tensors = Vec<(String, Vec<u64>)>;
type Change = fn(&mut Tensors);

/// The tensors of one recorded layout: `N` in a name stands for as many numbers as the layout counts.
fn layout_tensors(layout: &Map<String, Value>) -> Tensors {
    let mut tensors = Vec::new();
    for (pattern, entry) in layout {
        let shapes: Vec<(Vec<u64>, u64)> = entry[1]
            .as_object()
            .unwrap()
            .iter()
            .map(|(shape, count)| (serde_json::from_str(shape).unwrap(), count.as_u64().unwrap()))
            .collect();
        let count = entry[0].as_u64().unwrap();
        // the steps of a sequential module are numbered with a gap where an activation stands
        let stride = if pattern.contains("mlp.N.") && count == 2 { 2 } else { 1 };
        let mut number = 0;
        for (shape, times) in shapes {
            for _ in 0..times {
                tensors.push((pattern.replacen(".N.", &format!(".{number}."), 1), shape.clone()));
                number += stride;
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
        header.insert(
            name.clone(),
            json!({ "dtype": "BF16", "shape": shape, "data_offsets": [offset, end] }),
        );
        offset = end;
    }
    let text = Value::Object(header).to_string();
    let mut file = fs::File::create(folder.join("model.safetensors")).unwrap();
    file.write_all(&(text.len() as u64).to_le_bytes()).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.set_len(8 + text.len() as u64 + offset).unwrap();
}

fn published(name: &str, layout: &str) -> (PathBuf, Map<String, Value>) {
    let layouts: Value = serde_json::from_slice(
        &fs::read(fixtures().join("layouts").join(format!("{layout}.json"))).unwrap(),
    )
    .unwrap();
    (fixtures().join("checkpoints").join(name), layouts.as_object().unwrap().clone())
}

fn with_configs(source: &Path, name: &str) -> PathBuf {
    let folder = scratch(name);
    for file in ["config.json", "preprocessor_config.json", "processor_config.json"] {
        if source.join(file).is_file() {
            fs::copy(source.join(file), folder.join(file)).unwrap();
        }
    }
    folder
}

#[test]
fn every_layout_of_published_checkpoints_is_accepted() {
    let mut accepted = 0;
    for (name, layout) in [
        ("llava-hf__llava-1.5-7b-hf", "llava-1.5"),
        ("Qwen__Qwen2-VL-2B-Instruct", "qwen2-vl-2b"),
        ("Qwen__Qwen2-VL-7B-Instruct", "qwen2-vl-7b"),
    ] {
        let (source, layouts) = published(name, layout);
        for (version, tensors) in &layouts {
            let Some(tensors) = tensors.as_object() else { continue };
            let tag = format!("{layout}-{}", version.replace(' ', "-"));
            let folder = with_configs(&source, &tag);
            write_weights(&folder, &layout_tensors(tensors));
            let report = report(&folder);
            assert_eq!(lines(&report, Level::Error), [""; 0], "{tag}");
            assert_eq!(lines(&report, Level::Warning), [""; 0], "{tag}");
            accepted += 1;
        }
    }
    assert!(accepted >= 12, "{accepted}");
}

/// The index alone: names are checked, and a note says that shapes are not.
#[test]
fn an_index_without_shards_is_enough_for_names() {
    for name in [
        "llava-hf__llava-1.5-7b-hf",
        "Qwen__Qwen2-VL-7B-Instruct",
        "MBZUAI__AIN",
        "allenai__olmOCR-7B-0225-preview",
    ] {
        let report = report(&fixtures().join("checkpoints").join(name));
        assert_eq!(lines(&report, Level::Error), [""; 0], "{name}");
        assert_eq!(lines(&report, Level::Warning), [""; 0], "{name}");
        assert!(
            lines(&report, Level::Note).iter().any(|line| line.contains("only the index is there")),
            "{name}"
        );
    }
}

#[test]
fn broken_tensors_are_found_and_named() {
    let (source, layouts) = published("Qwen__Qwen2-VL-2B-Instruct", "qwen2-vl-2b");
    let sound = layout_tensors(layouts["4.51.3 saved"].as_object().unwrap());
    let cases: [(&str, Change, Level, &str); 7] = [
        (
            "removed",
            |tensors| tensors.retain(|(name, _)| name != "model.norm.weight"),
            Level::Error,
            "tensor-missing: 1 tensor is missing: `model.norm.weight` | shape [1536] | nothing",
        ),
        (
            "renamed",
            |tensors| rename(tensors, "visual.merger.ln_q.bias", "visual.merger.ln.bias"),
            Level::Error,
            "tensor-missing: 1 tensor is missing: `visual.merger.ln_q.bias` | shape [1280] | nothing",
        ),
        (
            "left over",
            |tensors| rename(tensors, "visual.merger.ln_q.bias", "visual.merger.ln.bias"),
            Level::Warning,
            "tensor-unknown: 1 tensor that nothing reads: `visual.merger.ln.bias` |  | ",
        ),
        (
            "transposed",
            |tensors| shape(tensors, "model.layers.3.mlp.up_proj.weight").reverse(),
            Level::Error,
            "tensor-shape: 1 tensor has another shape: `model.layers.3.mlp.up_proj.weight` | shape [8960, 1536] | shape [1536, 8960]",
        ),
        (
            "resized",
            |tensors| shape(tensors, "model.embed_tokens.weight")[0] = 151_930,
            Level::Error,
            "tensor-shape: 1 tensor has another shape: `model.embed_tokens.weight` | shape [151936, 1536] | shape [151930, 1536]",
        ),
        (
            "many removed",
            |tensors| {
                tensors.retain(|(name, _)| {
                    !name.ends_with("self_attn.k_proj.bias") || name.contains(".7.")
                });
            },
            Level::Error,
            "tensor-missing: 27 tensors are missing: `model.layers.*.self_attn.k_proj.bias` with * = 0-6, 8-27 | shape [256] | nothing",
        ),
        (
            "tower removed",
            |tensors| tensors.retain(|(name, _)| !name.starts_with("visual.blocks.31.norm1")),
            Level::Error,
            "tensor-missing: 1 tensor is missing: `visual.blocks.31.norm1.weight` | shape [1280] | nothing",
        ),
    ];
    for (tag, change, level, expected) in cases {
        let mut tensors = sound.clone();
        change(&mut tensors);
        let folder = with_configs(&source, &format!("broken-{}", tag.replace(' ', "-")));
        write_weights(&folder, &tensors);
        let report = report(&folder);
        assert!(
            lines(&report, level).iter().any(|line| line == expected),
            "{tag}: {:#?}",
            lines(&report, level)
        );
        assert!(!report.ok(), "{tag}");
    }
}

fn rename(tensors: &mut Tensors, from: &str, to: &str) {
    let tensor = tensors.iter_mut().find(|(name, _)| name == from).unwrap();
    to.clone_into(&mut tensor.0);
}

fn shape<'a>(tensors: &'a mut Tensors, name: &str) -> &'a mut Vec<u64> {
    &mut tensors.iter_mut().find(|(found, _)| found == name).unwrap().1
}

/// Blocks above the deepest tap are neither required nor unknown.
#[test]
fn blocks_above_the_deepest_tap_may_be_absent() {
    let (source, layouts) = published("llava-hf__llava-1.5-7b-hf", "llava-1.5");
    let mut tensors = layout_tensors(layouts["4.51.3 saved"].as_object().unwrap());
    tensors.retain(|(name, _)| !name.starts_with("vision_tower.vision_model.encoder.layers.23."));
    let folder = with_configs(&source, "shallow");
    write_weights(&folder, &tensors);
    assert_eq!(lines(&report(&folder), Level::Error), [""; 0]);
    tensors.retain(|(name, _)| {
        !name.starts_with("vision_tower.vision_model.encoder.layers.22.mlp.fc1.")
    });
    write_weights(&folder, &tensors);
    assert_eq!(lines(&report(&folder), Level::Error).len(), 2);
}

/// Every committed tiny checkpoint passes with nothing but notes.
#[test]
fn tiny_checkpoints_pass() {
    for name in [
        "llava",
        "llava_full",
        "llava_taps",
        "llava_siglip",
        "llava_resaved",
        "qwen2vl",
        "qwen2vl_odd",
        "qwen2vl_resaved",
    ] {
        let folder = scratch(name);
        materialise(&goldens().join(name), &folder, &Options::default()).unwrap();
        let report = report(&folder);
        assert_eq!(lines(&report, Level::Error), [""; 0], "{name}");
        assert_eq!(lines(&report, Level::Warning), [""; 0], "{name}");
    }
}

fn edit(folder: &Path, file: &str, change: impl FnOnce(&mut Value)) {
    let path = folder.join(file);
    let mut json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut json);
    fs::write(path, json.to_string()).unwrap();
}

#[test]
fn tokens_templates_and_requirements() {
    type Change = fn(&Path);
    let cases: [(&str, Change, &str); 10] = [
        (
            "llava",
            |folder| {
                edit(folder, "preprocessor_config.json", |json| {
                    json["image_std"] = json!([0.5, 0, 0.5]);
                });
            },
            "pixel-settings: channel 1 cannot be normalised",
        ),
        (
            "qwen2vl",
            |folder| fs::write(folder.join("tokenizer.json"), "{").unwrap(),
            "tokenizer-file: `tokenizer.json` is not understood",
        ),
        (
            "qwen2vl",
            |folder| edit(folder, "config.json", |json| json["image_token_id"] = 7.into()),
            "token-id: config and tokenizer give `<|image_pad|>` different ids",
        ),
        (
            "qwen2vl",
            |folder| {
                edit(folder, "config.json", |json| {
                    json["vision_config"]["hidden_size"] = 60.into();
                });
            },
            "connector-width",
        ),
        (
            "qwen2vl",
            |folder| {
                edit(folder, "config.json", |json| {
                    json["rope_scaling"]["mrope_section"] = json!([2, 2, 2]);
                });
            },
            "rope-sections",
        ),
        (
            "qwen2vl",
            |folder| {
                edit(folder, "config.json", |json| json["rope_scaling"]["type"] = "yearn".into());
            },
            "config-variant",
        ),
        (
            "qwen2vl",
            |folder| {
                edit(folder, "config.json", |json| {
                    json["vision_config"]["hidden_act"] = "swish2".into();
                });
            },
            "config-variant: `swish2`",
        ),
        (
            "qwen2vl",
            |folder| edit(folder, "config.json", |json| json["num_key_value_heads"] = 3.into()),
            "head-groups",
        ),
        (
            "llava",
            |folder| edit(folder, "config.json", |json| json["vision_feature_layer"] = 9.into()),
            "tap-range",
        ),
        (
            "llava",
            |folder| {
                edit(folder, "chat_template.json", |json| {
                    json["chat_template"] = "{{ messages[0]['role'] }}: <picture>".into();
                });
            },
            "template-marker: the chat template does not write the marker once",
        ),
    ];
    for (index, (name, change, expected)) in cases.into_iter().enumerate() {
        let folder = scratch(&format!("tokens-{index}"));
        materialise(&goldens().join(name), &folder, &Options::default()).unwrap();
        change(&folder);
        let report = report(&folder);
        assert!(!report.ok(), "case {index}");
        let errors = lines(&report, Level::Error);
        assert!(errors.iter().any(|line| line.starts_with(expected)), "case {index}: {errors:#?}");
        let placed = report.findings.iter().filter(|finding| finding.level == Level::Error);
        for finding in placed {
            assert!(
                finding.place.line.is_some() && finding.place.key.is_some(),
                "case {index}: {finding}"
            );
        }
    }
}

/// A strip that differs from its formula at one layout in thousands, which no sample holds, is found out with a checkpoint.
#[test]
fn a_rare_disagreement_is_found() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rare");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("rare.toml");
    let strip = "(rows * 97 + cols == 497 ? <start> : ) [rows * cols: *]";
    let text = format!("extends = \"qwen2vl\"\nexample = []\n\n[image]\nstrip = \"{strip}\"\n");
    fs::write(&file, text).unwrap();
    let raw = RawDescriptor::load(file.to_str().unwrap()).unwrap();
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/digits");
    let checkpoint = Checkpoint::open(digits).unwrap();
    let report = check(&raw, &checkpoint).unwrap();
    let found = report.findings.iter().find(|finding| finding.code == "strip-length");
    let message = &found.expect("the disagreement is found").message;
    assert!(message.contains("rows = 5, cols = 12"), "{message}");
}
