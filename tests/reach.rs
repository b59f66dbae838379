//! A run on an item of the size that a floor names costs what the floor says: with every family whose forward pass is held
//! against the reference (`tests/fixtures/goldens`), by the program as a user calls it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "common/formula.rs"]
mod formula;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use formula::{Options, goldens, materialise};
use serde_json::Value;

/// A document of `spec … --json`; nothing where the program refuses.
fn spec(arguments: &[&str]) -> Option<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_spec")).args(arguments).output().unwrap();
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// A file of the witness's size in `folder`, and the option that takes it.
fn witness(folder: &Path, item: &Value) -> (&'static str, PathBuf) {
    let size = |name: &str| u32::try_from(number(&item["witness"][name])).unwrap();
    if item["modality"] == "audio" {
        let samples: Vec<u8> = (0..size("samples"))
            .flat_map(|at| ((f64::from(at) * 0.21).sin() * 9000.0).to_le_bytes_i16())
            .collect();
        let file = folder.join("witness.wav");
        fs::write(&file, wave(&samples)).unwrap();
        return ("--audio", file);
    }
    let file = folder.join("witness.png");
    let picture = image::RgbImage::from_fn(size("width"), size("height"), |x, y| {
        image::Rgb([x, y, x * 7 + y * 3].map(|value| value.to_le_bytes()[0]))
    });
    picture.save(&file).unwrap();
    ("--image", file)
}

trait Samples {
    fn to_le_bytes_i16(self) -> [u8; 2];
}

impl Samples for f64 {
    #[allow(clippy::cast_possible_truncation, reason = "values of sound are small")]
    fn to_le_bytes_i16(self) -> [u8; 2] {
        (self as i16).to_le_bytes()
    }
}

/// 16-bit mono at 16 kHz, the rate of every family here.
fn wave(samples: &[u8]) -> Vec<u8> {
    let length = u32::try_from(samples.len()).unwrap();
    let mut file = b"RIFF".to_vec();
    file.extend((36 + length).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16_u32.to_le_bytes());
    file.extend([1, 0, 1, 0]);
    file.extend(16_000_u32.to_le_bytes());
    file.extend(32_000_u32.to_le_bytes());
    file.extend([2, 0, 16, 0]);
    file.extend(b"data");
    file.extend(length.to_le_bytes());
    file.extend(samples);
    file
}

const TEXTS: [&str; 3] = ["What is this?", "7 words", "(in short)"];

/// Their small tokenizer (GPT-2's pattern) cuts the template's line break from a word behind it, which a picture between them
/// saves; the published one does not.
const SAVING: [&str; 2] = ["mllama", "mllama_resaved"];

/// prompt_tokens = those of the text alone + the floor, where the framing is exact; at most that where it is a bound.
#[test]
fn runs_cost_what_floors_say() {
    let (mut held, mut wrong) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(goldens()).unwrap() {
        let fixture = entry.unwrap().path();
        if !fixture.join("weights.json").exists() {
            continue;
        }
        let name = fixture.file_name().unwrap().to_str().unwrap().to_owned();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reach").join(&name);
        let _ = fs::remove_dir_all(&folder);
        materialise(&fixture, &folder, &Options::default()).unwrap();
        let checkpoint = folder.to_str().unwrap();
        let floors = spec(&["floor", checkpoint, "--json"]).unwrap();
        for item in floors["items"].as_array().unwrap() {
            let (option, file) = witness(&folder, item);
            let file = file.to_str().unwrap();
            let floor = number(&item["floor"]);
            // what a text costs beside a picture depends on how its first word is cut; none costs more than the floor
            let mut most = 0;
            for text in TEXTS {
                let tokens = |more: &[&str]| {
                    let ran =
                        spec(&[&["run", checkpoint, text, "-n", "1", "--json"], more].concat());
                    ran.map(|ran| number(&ran["prompt_tokens"]))
                };
                let found =
                    tokens(&[option, file]).unwrap_or_else(|| panic!("{name} does not run"));
                // some lay out no text without a picture: what is not the item is the text then
                let alone = tokens(&[]).unwrap_or(found - number(&item["expansion"]));
                if found > alone + floor {
                    wrong.push(format!("{name}, {text}: {found} tokens, {alone} of text, {item}"));
                }
                most = most.max(found - alone.min(found));
            }
            let saved = u64::from(SAVING.contains(&name.as_str()));
            if most + saved != floor && item["framing_exact"] == true {
                wrong.push(format!("{name}: at most {most} tokens, {item}"));
            }
            held.push(name.clone());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(held.len() >= 30, "only {held:?}");
}
