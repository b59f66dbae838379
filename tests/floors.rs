//! Floors, counts and the start-up guard on published config files and on tiny ones.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use vlm_spec::checkpoint::Checkpoint;
use vlm_spec::descriptor::{Library, RawDescriptor};
use vlm_spec::error::{ErrorKind, Result};
use vlm_spec::floor::{ensure_image_context_capacity, image_context_floor};
use vlm_spec::layout::{ImageSize, MediaSize};
use vlm_spec::plan::{Modality, Overrides, Plan};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn published(name: &str) -> PathBuf {
    fixtures().join("checkpoints").join(name)
}

fn plan(folder: &Path, set: &[(&str, Value)]) -> Result<Plan> {
    let checkpoint = Checkpoint::open(folder)?;
    let raw = checkpoint.find_family()?;
    let overrides: Overrides =
        set.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    Plan::resolve_with(&raw, &checkpoint, &overrides)
}

/// A copy of a folder's files that a test may change.
fn copy(folder: &Path, name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("floors").join(name);
    let _ = fs::remove_dir_all(&target);
    fs::create_dir_all(&target).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, target.join(path.file_name().unwrap())).unwrap();
        }
    }
    target
}

fn edit(folder: &Path, file: &str, change: impl FnOnce(&mut Value)) {
    let path = folder.join(file);
    let mut json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut json);
    fs::write(path, json.to_string()).unwrap();
}

/// (checkpoint, expansion, framing, witness): from `cases.md`, the processors' files and the reference's own counts.
const PUBLISHED: [(&str, u64, u64, (u32, u32)); 6] = [
    ("Qwen__Qwen2-VL-2B-Instruct", 16_384, 2, (3584, 3584)),
    ("Qwen__Qwen2-VL-7B-Instruct", 16_384, 2, (3584, 3584)),
    ("Qwen__Qwen2-VL-2B-Instruct-AWQ", 1280, 2, (1120, 896)),
    ("MBZUAI__AIN", 16_384, 2, (3584, 3584)),
    ("allenai__olmOCR-7B-0225-preview", 16_384, 2, (3584, 3584)),
    ("llava-hf__llava-1.5-7b-hf", 576, 3, (336, 336)),
];

#[test]
fn published_floors() {
    for (name, expansion, framing, (width, height)) in PUBLISHED {
        let plan = plan(&published(name), &[]).unwrap();
        let floor = plan.floor(Modality::Image).unwrap();
        assert_eq!((floor.expansion, floor.framing), (expansion, framing), "{name}");
        assert_eq!(floor.floor, expansion + framing);
        assert_eq!(floor.embeds, expansion);
        assert!(floor.exact);
        assert_eq!(floor.witness, MediaSize::Image(ImageSize { width, height }), "{name}");
        // the witness really goes through the size function
        assert_eq!(plan.count(floor.witness).unwrap().expansion, expansion);
        assert!(floor.inputs.iter().all(|input| !input.source.is_empty()));
    }
}

#[test]
fn examples_in_family_files_hold() {
    let mut held = 0;
    for family in Library::families() {
        let raw = RawDescriptor::load(family).unwrap();
        let descriptor = raw.describe(&raw.first_parts()).unwrap();
        for example in &descriptor.family.example {
            let folder = published(&example.checkpoint.replace('/', "__"));
            let checkpoint = Checkpoint::open(&folder).unwrap();
            assert_eq!(checkpoint.find_family().unwrap().name(), family);
            let plan = Plan::resolve(&raw, &checkpoint).unwrap();
            for modality in Modality::ALL {
                let Some(expected) = example.floor.get(modality.name()) else { continue };
                let floor = plan.floor(modality).unwrap();
                assert_eq!(floor.expansion, u64::try_from(*expected).unwrap(), "{family}");
                held += 1;
            }
        }
    }
    assert!(held >= 20, "{held}");
}

/// What the reference's processor counts, recorded beside the goldens: the framing and the samples, and a floor that no
/// searched size exceeds.
#[test]
fn recorded_counts_hold() {
    for name in ["llava", "llava_full", "llava_taps", "llava_siglip", "qwen2vl", "qwen2vl_odd"] {
        let folder = fixtures().join("goldens").join(name);
        let recorded: Value =
            serde_json::from_slice(&fs::read(folder.join("floor.json")).unwrap()).unwrap();
        let plan = plan(&folder, &[]).unwrap();
        let floor = plan.floor(Modality::Image).unwrap();
        assert_eq!(Value::from(floor.framing), recorded["framing"], "{name}");
        assert!(floor.exact && floor.framing_exact);
        assert_eq!(Value::from(floor.expansion), recorded["expansion"], "{name}");
        for sample in recorded["samples"].as_array().unwrap() {
            let side = |key: &str| u32::try_from(sample[key].as_u64().unwrap()).unwrap();
            let count =
                plan.count(ImageSize { width: side("width"), height: side("height") }).unwrap();
            assert_eq!(Value::from(count.expansion), sample["expansion"], "{name}: {sample}");
        }
    }
}

/// smart_resize on a published folder with the operator's own limits (`cases.md` §1 and §2).
#[test]
fn counts_and_floors_under_other_limits() {
    let folder = published("Qwen__Qwen2-VL-7B-Instruct");
    let unit = 784_u64;
    let count = |width, height, set: &[(&str, Value)]| {
        plan(&folder, set).unwrap().count(ImageSize { width, height }).map(|count| count.expansion)
    };
    for (width, height, expected) in [
        (70, 70, 4),
        (1, 1, 4),
        (14, 14, 4),
        (42, 42, 4),
        (27, 257, 9),
        (200, 1, 29),
        (1400, 14, 20),
        (1024, 768, 999),
        (10_000, 12_000, 16_240),
    ] {
        let most = if width > 9999 { 16_384 } else { 1280 };
        let set = [("image.most", Value::from(most * unit))];
        assert_eq!(count(width, height, &set).unwrap(), expected, "{width}x{height}");
    }
    let error = count(201, 1, &[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Media);
    assert!(error.message().contains("200 times"), "{error}");
    assert_eq!(count(639, 31, &[("image.most", Value::from(20 * unit))]).unwrap(), 20);

    let floor = |least: u64, most: u64| {
        let set = [("image.least", Value::from(least)), ("image.most", Value::from(most))];
        let plan = plan(&folder, &set).unwrap();
        let floor = plan.floor(Modality::Image).unwrap();
        assert!(floor.exact);
        assert_eq!(plan.count(floor.witness).unwrap().expansion, floor.expansion);
        let sources: Vec<_> = floor.inputs.iter().filter(|input| input.source == "--set").collect();
        assert_eq!(sources.len(), 2);
        floor.expansion
    };
    assert_eq!(floor(3136, 1280 * unit), 1280);
    assert_eq!(floor(3136, 6 * unit), 34);
    assert_eq!(floor(256 * unit, 256 * unit), 454);
    assert_eq!(floor(4 * unit, 64 * unit), 113);
}

#[test]
fn the_guard_names_both_numbers_and_is_silent_without_a_floor() {
    for (name, floor) in
        [("Qwen__Qwen2-VL-2B-Instruct", 16_386), ("llava-hf__llava-1.5-7b-hf", 579)]
    {
        let folder = published(name);
        assert_eq!(image_context_floor(&folder), Some(floor));
        assert!(ensure_image_context_capacity(&folder, floor).is_ok());
        assert!(ensure_image_context_capacity(&folder, u64::MAX).is_ok());
        let error = ensure_image_context_capacity(&folder, floor - 1).unwrap_err();
        assert_eq!((error.floor, error.capacity), (floor, floor - 1));
        assert_eq!(
            error.to_string(),
            format!("one image can cost {floor} prompt tokens, the capacity is {}", floor - 1)
        );
    }
    assert_eq!(image_context_floor("/nowhere/at/all"), None);
    assert!(ensure_image_context_capacity("/nowhere/at/all", 0).is_ok());
}

/// Every file that a number needs, missing and unreadable: no number, and the reason names the file.
#[test]
fn missing_and_broken_files_give_no_number() {
    let cases: [(&str, &[&str]); 2] = [
        ("Qwen__Qwen2-VL-2B-Instruct", &["config.json", "preprocessor_config.json"]),
        (
            "llava-hf__llava-1.5-7b-hf",
            &["config.json", "preprocessor_config.json", "processor_config.json"],
        ),
    ];
    for (name, files) in cases {
        for file in files {
            for content in [None, Some("{"), Some("[]"), Some("")] {
                let folder = copy(
                    &published(name),
                    &format!("{name}-{file}-{}", content.map_or(9, str::len)),
                );
                match content {
                    None => fs::remove_file(folder.join(file)).unwrap(),
                    Some(text) => fs::write(folder.join(file), text).unwrap(),
                }
                assert_eq!(image_context_floor(&folder), None, "{name} {file} {content:?}");
                assert!(ensure_image_context_capacity(&folder, 0).is_ok());
                let error =
                    plan(&folder, &[]).and_then(|plan| plan.floor(Modality::Image)).unwrap_err();
                assert!(error.to_string().contains(file), "{name} {file}: {error}");
            }
        }
    }
}

/// Sizes that files contradict each other about, zeros, and variants that nobody knows: no number, both named.
#[test]
fn contradictions_give_no_number() {
    type Edit = fn(&mut Value);
    let cases: [(&str, &str, Edit, &[&str]); 16] = [
        (
            "Qwen__Qwen2-VL-7B-Instruct",
            "config.json",
            |json| json["vision_config"] = serde_json::json!([]),
            &["vision_config` is not an object"],
        ),
        // what the size policy does not describe must not be counted with it
        (
            "Qwen__Qwen2-VL-7B-Instruct",
            "preprocessor_config.json",
            |json| json["do_resize"] = false.into(),
            &["the processor resizes pictures", "do_resize"],
        ),
        (
            "llava-hf__llava-1.5-7b-hf",
            "preprocessor_config.json",
            |json| {
                json["size"] = serde_json::json!({ "shortest_edge": 336, "longest_edge": 800 });
            },
            &["the long side of a picture has no bound of its own", "800"],
        ),
        // the reference takes an explicit null for off
        (
            "llava-hf__llava-1.5-7b-hf",
            "preprocessor_config.json",
            |json| json["do_center_crop"] = Value::Null,
            &["tower takes one size"],
        ),
        (
            "Qwen__Qwen2-VL-7B-Instruct",
            "config.json",
            |json| json["vision_config"]["patch_size"] = 16.into(),
            &["preprocessor_config.json: patch_size", "vision_config.patch_size", "14", "16"],
        ),
        (
            "Qwen__Qwen2-VL-7B-Instruct",
            "preprocessor_config.json",
            |json| json["merge_size"] = 3.into(),
            &["merge_size", "spatial_merge_size"],
        ),
        (
            "Qwen__Qwen2-VL-7B-Instruct",
            "preprocessor_config.json",
            |json| json["patch_size"] = 0.into(),
            &["patch_size", "0"],
        ),
        (
            "Qwen__Qwen2-VL-7B-Instruct",
            "preprocessor_config.json",
            |json| json["max_pixels"] = 0.into(),
            &["largest area", "0"],
        ),
        (
            "Qwen__Qwen2-VL-7B-Instruct",
            "preprocessor_config.json",
            |json| json["max_pixels"] = "many".into(),
            &["image.most"],
        ),
        (
            "Qwen__Qwen2-VL-7B-Instruct",
            "preprocessor_config.json",
            |json| {
                json["size"] = serde_json::json!({ "longest_edge": 4096 });
                json.as_object_mut().unwrap().shift_remove("min_pixels");
                json.as_object_mut().unwrap().shift_remove("max_pixels");
            },
            &["least", "default does not apply"],
        ),
        (
            "Qwen__Qwen2-VL-7B-Instruct",
            "preprocessor_config.json",
            |json| json["image_processor_type"] = "Other".into(),
            &["Other", "not understood"],
        ),
        (
            "llava-hf__llava-1.5-7b-hf",
            "preprocessor_config.json",
            |json| json["crop_size"] = serde_json::json!({ "height": 224, "width": 224 }),
            &["crop_size.height", "image_size"],
        ),
        (
            "llava-hf__llava-1.5-7b-hf",
            "processor_config.json",
            |json| json["patch_size"] = 16.into(),
            &["patch_size"],
        ),
        (
            "llava-hf__llava-1.5-7b-hf",
            "processor_config.json",
            |json| json["vision_feature_select_strategy"] = "some".into(),
            &["some", "not understood"],
        ),
        (
            "llava-hf__llava-1.5-7b-hf",
            "config.json",
            |json| json["vision_config"]["model_type"] = "another_tower".into(),
            &["another_tower", "not understood"],
        ),
        (
            "llava-hf__llava-1.5-7b-hf",
            "preprocessor_config.json",
            |json| json["do_center_crop"] = false.into(),
            &["tower takes one size"],
        ),
    ];
    for (index, (name, file, change, words)) in cases.into_iter().enumerate() {
        let folder = copy(&published(name), &format!("contradiction-{index}"));
        edit(&folder, file, change);
        assert_eq!(image_context_floor(&folder), None, "case {index}");
        let error = plan(&folder, &[]).and_then(|plan| plan.floor(Modality::Image)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoNumber, "case {index}: {error}");
        let text = format!("{error}\n{}\n{:?}", error.problems(), error.hint());
        for word in words {
            assert!(text.contains(word), "case {index} lacks `{word}`:\n{text}");
        }
    }
}

/// The ways in which files spell the same settings.
#[test]
fn spellings_of_the_same_settings() {
    type Edit = fn(&mut Value);
    let base = "Qwen__Qwen2-VL-7B-Instruct";
    let clear = |json: &mut Value| {
        json.as_object_mut().unwrap().shift_remove("min_pixels");
        json.as_object_mut().unwrap().shift_remove("max_pixels");
    };
    let cases: [(Edit, u64); 6] = [
        // neither: the class default of 1280 cells
        (|_| {}, 1280),
        (
            |json| {
                json["size"] =
                    serde_json::json!({ "shortest_edge": 3136, "longest_edge": 784_000 });
            },
            1000,
        ),
        // both and different: the older keys win
        (
            |json| {
                json["size"] =
                    serde_json::json!({ "shortest_edge": 3136, "longest_edge": 784_000 });
                json["max_pixels"] = 1_568_000.into();
            },
            2000,
        ),
        (|json| json["max_pixels"] = Value::Null, 1280),
        (|json| json["max_pixels"] = serde_json::json!(784_000.0), 1000),
        (|json| json["size"] = Value::Null, 1280),
    ];
    for (index, (change, expected)) in cases.into_iter().enumerate() {
        let folder = copy(&published(base), &format!("spelling-{index}"));
        edit(&folder, "preprocessor_config.json", |json| {
            clear(json);
            change(json);
        });
        let floor = plan(&folder, &[]).unwrap().floor(Modality::Image).unwrap();
        assert_eq!(floor.expansion, expected, "case {index}");
    }
    // everything nested in processor_config.json, which wins over the older file
    let folder = copy(&published(base), "nested");
    let mut nested: Value =
        serde_json::from_slice(&fs::read(folder.join("preprocessor_config.json")).unwrap())
            .unwrap();
    nested["max_pixels"] = 784_000.into();
    fs::write(
        folder.join("processor_config.json"),
        serde_json::json!({ "image_processor": nested }).to_string(),
    )
    .unwrap();
    let plan_of = |folder: &Path| plan(folder, &[]).unwrap().floor(Modality::Image).unwrap();
    assert_eq!(plan_of(&folder).expansion, 1000);
    assert!(
        plan_of(&folder)
            .inputs
            .iter()
            .any(|input| input.source == "processor_config.json: image_processor.max_pixels")
    );
    fs::remove_file(folder.join("preprocessor_config.json")).unwrap();
    assert_eq!(plan_of(&folder).expansion, 1000);

    let folder = copy(&published("llava-hf__llava-1.5-7b-hf"), "bare-sizes");
    edit(&folder, "preprocessor_config.json", |json| {
        json["size"] = 336.into();
        json["crop_size"] = 336.into();
    });
    assert_eq!(plan_of(&folder).expansion, 576);
    edit(&folder, "processor_config.json", |json| {
        let object = json.as_object_mut().unwrap();
        for key in ["patch_size", "vision_feature_select_strategy", "num_additional_image_tokens"] {
            object.shift_remove(key);
        }
    });
    assert_eq!(plan_of(&folder).expansion, 576);
    // without a tokenizer the framing is a bound that holds
    fs::remove_file(folder.join("tokenizer.json")).unwrap();
    let floor = plan_of(&folder);
    assert_eq!((floor.framing, floor.framing_exact), (3, false));
}

/// Spellings that change the computation, not the floor: an explicit null, the place of the rotary base, a stray switch.
#[test]
fn spellings_of_the_decoder() {
    type Edit = fn(&mut Value);
    let cases: [(&str, Edit, &str, Value); 5] = [
        (
            "llava",
            |json| json["text_config"]["num_key_value_heads"] = Value::Null,
            "text.kv_heads",
            4.into(),
        ),
        (
            "llava",
            |json| {
                json["text_config"]["rope_scaling"] =
                    serde_json::json!({ "rope_type": "linear", "factor": 2.0, "rope_theta": 77.0 });
            },
            "text.theta",
            77.0.into(),
        ),
        (
            "llava_taps",
            |json| json["text_config"]["sliding_window"] = Value::Null,
            "text.window",
            0.into(),
        ),
        (
            "llava_siglip",
            |json| json["text_config"]["mlp_bias"] = true.into(),
            "text.mlp_bias",
            false.into(),
        ),
        (
            "qwen2vl",
            |json| {
                json.as_object_mut().unwrap().shift_remove("rms_norm_eps");
            },
            "text.eps",
            1e-5.into(),
        ),
    ];
    for (index, (name, change, value, expected)) in cases.into_iter().enumerate() {
        let folder = copy(&fixtures().join("goldens").join(name), &format!("decoder-{index}"));
        edit(&folder, "config.json", change);
        let plan = plan(&folder, &[]).unwrap();
        assert_eq!(plan.values.get(value).unwrap().value, expected, "case {index}");
    }
}
