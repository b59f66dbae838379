//! Sessions with the program: what it prints, where, and its exit status.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, str};

/// One run: `(exit status, stdout, stderr)`. Arguments are split at spaces.
fn spec(arguments: &str) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_spec"))
        .args(arguments.split_whitespace())
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints"))
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| str::from_utf8(bytes).unwrap().to_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// A run as a session: the command, what it printed to each stream, and its status where it is not 0.
fn session(arguments: &str) -> String {
    let (status, stdout, stderr) = spec(arguments);
    let mut text = format!("$ spec {arguments}\n{stdout}");
    if !stderr.is_empty() {
        text.push_str(&format!("--- stderr\n{stderr}"));
    }
    if status != 0 {
        text.push_str(&format!("--- status {status}\n"));
    }
    text
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// File snapshots in `snapshots/`, named after the session.
macro_rules! assert_session {
    ($name:literal, $arguments:expr) => {
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("../snapshots");
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!($name, session($arguments)));
    };
}

#[test]
fn floors() {
    assert_session!("floor", "floor Qwen__Qwen2-VL-7B-Instruct");
    assert_session!("floor_verbose", "floor -v Qwen__Qwen2-VL-2B-Instruct-AWQ");
    assert_session!("floor_json", "floor --json Qwen__Qwen2-VL-7B-Instruct");
    assert_session!("floor_capacity", "floor llava-hf__llava-1.5-7b-hf --capacity 578");
    assert_session!("floor_set", "floor Qwen__Qwen2-VL-7B-Instruct --set image.most=1003520");
    assert_session!("floor_no_file", "floor liuhaotian__llava-v1.5-7b");
    assert_session!("floor_no_family", "floor --json variants__llava-1.5-7b-hf-processor-v5-save");
    assert_session!("floor_no_folder", "floor no/such/folder");
}

/// Tiles, crops by a call's option, cross-attention, sound, two modalities, several pictures in one prompt.
#[test]
fn all_kinds_of_items() {
    assert_session!("floor_tiles", "floor -v ibm-granite__granite-vision-3.2-2b");
    assert_session!("floor_crops", "floor google__gemma-3-4b-it --set image.pan_and_scan=true");
    assert_session!("floor_states", "floor --json meta-llama__Llama-3.2-11B-Vision-Instruct");
    assert_session!("floor_two_modalities", "floor --json google__gemma-4-E2B-it");
    assert_session!("floor_no_budget", "floor openai__whisper-base");
    assert_session!("show_tiles", "show HuggingFaceTB__SmolVLM-256M-Instruct");
    assert_session!(
        "count_one_of_two",
        "count llava-hf__llava-onevision-qwen2-0.5b-ov-hf --size 900x700 --size 900x700"
    );
    assert_session!(
        "count_each_of_two",
        "count llava-hf__llava-onevision-qwen2-0.5b-ov-hf --size 900x700 --size 900x700 --each"
    );
    assert_session!(
        "count_sound",
        "count Qwen__Qwen2-Audio-7B-Instruct --samples 0 --samples 160 --samples 240396 --samples 600000 --audio ../sound/flac_701.flac"
    );
    assert_session!(
        "count_both",
        "count --json google__gemma-4-E2B-it --size 640x480 --samples 48000"
    );
    assert_session!("count_sound_of_none", "count Qwen__Qwen2-VL-7B-Instruct --samples 16000");
    assert_session!(
        "count_damaged_sound",
        "count google__gemma-4-E2B-it --audio ../sound/text_refused.wav"
    );
}

#[test]
fn capacity_at_the_floor_is_enough() {
    for (capacity, status) in [(578, 1), (579, 0), (580, 0)] {
        assert_eq!(
            spec(&format!("floor llava-hf__llava-1.5-7b-hf --capacity {capacity}")).0,
            status
        );
    }
    for (capacity, status) in [(16_385, 1), (16_386, 0)] {
        let (found, stdout, stderr) =
            spec(&format!("floor --json Qwen__Qwen2-VL-7B-Instruct --capacity {capacity}"));
        assert_eq!(found, status);
        // the document is printed either way
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&stdout).unwrap()["items"][0]["floor"],
            16_386
        );
        assert_eq!(stderr.contains("16386") && stderr.contains("16385"), status == 1);
    }
}

#[test]
fn counts() {
    assert_session!("count", "count Qwen__Qwen2-VL-7B-Instruct --size 640x480 --size 1x200");
    assert_session!("count_json", "count --json Qwen__Qwen2-VL-7B-Instruct --size 70x70");
    assert_session!("count_refused", "count Qwen__Qwen2-VL-7B-Instruct --size 1x201");
    assert_session!("count_audio", "count llava-hf__llava-1.5-7b-hf --samples 16000");
    let (status, _, stderr) = spec("count llava-hf__llava-1.5-7b-hf --size 0x3");
    assert_eq!(status, 2);
    assert!(stderr.contains("a side is zero"), "{stderr}");
    assert_eq!(spec("count llava-hf__llava-1.5-7b-hf").0, 2);
    assert_eq!(spec("count llava-hf__llava-1.5-7b-hf --image no.png").0, 2);
}

/// Sizes come from headers, with the orientation applied: a 24x16 picture with orientation 6 is counted as 16x24.
#[test]
fn orientation_counts_in_headers() {
    let image = "../media/files/exif_6.jpg";
    let (status, stdout, stderr) = spec(&format!(
        "count --json Qwen__Qwen2-VL-7B-Instruct --image {image} --set image.least=784"
    ));
    assert_eq!(status, 0, "{stderr}");
    let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let item = &document["items"][0];
    let header = vlm_spec::media::image_header(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints").join(image),
    )
    .unwrap();
    let (stored_width, stored_height) = header.stored();
    assert_eq!(
        (item["width"].as_u64(), item["height"].as_u64()),
        (Some(u64::from(stored_height)), Some(u64::from(stored_width)))
    );
}

#[test]
fn checks() {
    assert_session!("check", "check Qwen__Qwen2-VL-7B-Instruct");
    assert_session!("check_json", "check --json liuhaotian__llava-v1.5-7b");
    assert_session!("check_wrong_family", "check llava Qwen__Qwen2-VL-7B-Instruct");
    assert_session!("check_quantised", "check Qwen__Qwen2-VL-2B-Instruct-AWQ");
    assert_session!("check_family_alone", "check qwen2vl");
    assert_session!("check_no_such_family", "check qwen2v Qwen__Qwen2-VL-7B-Instruct");
}

#[test]
fn families_and_topology() {
    assert_session!("families", "families");
    assert_session!("show", "show Qwen__Qwen2-VL-7B-Instruct");
    assert_session!("show_family", "show llava");
    let folder = scratch("show");
    let file = folder.join("topology.svg");
    let (status, ..) = spec(&format!("show llava-hf__llava-1.5-7b-hf --svg {}", file.display()));
    assert_eq!(status, 0);
    let svg = fs::read_to_string(file).unwrap();
    assert!(
        svg.starts_with("<svg ")
            && svg.contains("24 blocks of width 1024")
            && svg.trim_end().ends_with("</svg>")
    );
}

/// Write, compare, notice a change, update.
#[test]
fn snapshots_are_written_compared_and_updated() {
    let folder = scratch("snapshot");
    let run = |more: &str| {
        spec(&format!(
            "snapshot Qwen__Qwen2-VL-7B-Instruct llava-hf__llava-1.5-7b-hf --dir {} {more}",
            folder.display()
        ))
    };
    assert_eq!(run("").0, 0);
    let file = folder.join("Qwen__Qwen2-VL-7B-Instruct.spec.txt");
    let written = fs::read_to_string(&file).unwrap();
    assert!(written.contains("floor      16386"));
    let (status, stdout, _) = run("");
    assert_eq!((status, stdout.matches("unchanged").count()), (0, 2));
    fs::write(&file, written.replace("16386", "16000")).unwrap();
    let (status, stdout, _) = run("");
    assert_eq!(status, 1);
    assert!(stdout.contains("-   floor      16000\n+   floor      16386\ndiffers"), "{stdout}");
    assert_eq!(run("--update").0, 0);
    assert_eq!(fs::read_to_string(&file).unwrap(), written);
    let (status, stdout, _) = run("--json");
    assert_eq!(status, 0);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&stdout).unwrap()["snapshots"][1]["floor"],
        579
    );
}

#[test]
fn usage_errors_have_status_2() {
    for arguments in [
        "",
        "nonsense",
        "floor",
        "floor --json",
        "count x --size 3",
        "run",
        "run x",
        "trace x y",
        "floor a b c",
        "floor Qwen__Qwen2-VL-7B-Instruct --set most=3",
        "floor Qwen__Qwen2-VL-7B-Instruct --set image.mots=3",
        "floor Qwen__Qwen2-VL-7B-Instruct --set image.most",
        "floor Qwen__Qwen2-VL-7B-Instruct --capacity -1",
        "floor qwen2vl Qwen__Qwen2-VL-7B-Instruct --family llava",
        "show qwen2vl --svg x.svg",
    ] {
        let (status, stdout, stderr) = spec(arguments);
        assert_eq!(status, 2, "`spec {arguments}`: {stdout}{stderr}");
        assert!(stdout.is_empty() && !stderr.is_empty(), "`spec {arguments}`");
    }
    for arguments in ["--help", "--version", "floor --help"] {
        assert_eq!(spec(arguments).0, 0);
    }
}

/// A descriptor with a problem: where, what was expected, what was found; status 1 from `check`, 2 elsewhere.
#[test]
fn a_broken_family_file() {
    let folder = scratch("broken");
    let file = folder.join("mine.toml");
    fs::write(
        &file,
        "extends = \"llava\"\n\n[image]\nmarker = \"imge\"\n\n[stacks.text]\nplacment = \"pre\"\n",
    )
    .unwrap();
    let (status, stdout, _) = spec(&format!("check {} llava-hf__llava-1.5-7b-hf", file.display()));
    assert_eq!(status, 1);
    assert!(stdout.contains("there is no key `placment` here"), "{stdout}");
    assert!(stdout.contains("did you mean `placement`?"), "{stdout}");
    assert!(stdout.contains("mine.toml:7: stacks.text.placment"), "{stdout}");
    let (status, stdout, stderr) =
        spec(&format!("floor {} llava-hf__llava-1.5-7b-hf", file.display()));
    assert_eq!((status, stdout.as_str()), (2, ""));
    assert!(stderr.contains("placment"));
}
