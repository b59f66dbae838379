//! Pictures against the reference: every case of `fixtures/media`, made by `scripts/media_goldens.py`.

#![allow(clippy::unwrap_used)] // helpers of tests may stop a test

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use vlm_spec::error::ErrorKind;
use vlm_spec::media::{
    Filter, Normaliser, PatchOrder, Planes, Rgb8, center_crop, decode_image, image_header,
    image_size, load_image, pad_to_square, patchify, resize,
};

/// How far a lossy decoder may be from Pillow's, in levels.
const LOSSY: u8 = 3;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/media")
}

fn cases(part: &str) -> Vec<Value> {
    let text = fs::read_to_string(fixtures().join("cases.json")).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    all[part].as_array().unwrap().clone()
}

/// The picture that the script's function of the same name makes.
fn picture(width: u32, height: u32, kind: u64, seed: u32) -> Rgb8 {
    let sample = |x: u32, y: u32, z: u32| match (kind, z) {
        (2, _) => x + y / 2 + 40 * z + seed,
        (3, 0) => 5 * x + 3 * y + 40 * seed,
        (3, 1) => x * y + 7 * seed,
        (3, _) => 255_u32.wrapping_sub(2 * x + 9 * y),
        _ => {
            let mut n = (y * width + x) * 3 + z;
            n = n.wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(40503));
            n ^= n >> 15;
            n = n.wrapping_mul(2_246_822_519);
            n ^= n >> 13;
            if kind == 1 { n % 2 * 255 } else { n }
        }
    };
    let at = |y, x| (0..3).map(move |z| sample(x, y, z) as u8);
    let data = (0..height).flat_map(|y| (0..width).flat_map(move |x| at(y, x))).collect();
    Rgb8::new(width, height, data).unwrap()
}

fn fnv(bytes: impl IntoIterator<Item = u8>) -> String {
    let hash = bytes.into_iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    format!("{hash:016x}")
}

fn fnv_floats(values: &[f32]) -> String {
    fnv(values.iter().flat_map(|value| value.to_le_bytes()))
}

fn hex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    text.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) * 16 + digit(pair[1])).collect()
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

fn pair(value: &Value) -> (u32, u32) {
    (number(&value[0]), number(&value[1]))
}

fn triple(value: &Value) -> Option<[f64; 3]> {
    let list: Vec<f64> = value.as_array()?.iter().map(|n| n.as_f64().unwrap()).collect();
    Some(list.try_into().unwrap())
}

fn source(case: &Value) -> Rgb8 {
    let (width, height) = pair(&case["size"]);
    picture(width, height, case["kind"].as_u64().unwrap(), number(&case["seed"]))
}

/// The steps that a case asks for, up to normalised planes.
fn planes(case: &Value, mut image: Rgb8) -> Planes {
    if let Some(colour) = triple(&case["square"]) {
        image = pad_to_square(&image, colour.map(|level| level as u8)).unwrap();
    }
    if let Some(filter) = case["filter"].as_str() {
        let (width, height) = pair(&case["to"]);
        image = resize(&image, width, height, filter.parse().unwrap()).unwrap();
    }
    if case["crop"].is_array() {
        let (width, height) = pair(&case["crop"]);
        image = center_crop(&image, width, height).unwrap();
    }
    let statistics = triple(&case["mean"]).zip(triple(&case["std"]));
    Normaliser::new(case["rescale"].as_f64(), statistics).unwrap().apply(&image)
}

#[test]
fn resizing_is_bit_identical() {
    for case in cases("resize") {
        let (width, height) = pair(&case["to"]);
        let filter: Filter = case["filter"].as_str().unwrap().parse().unwrap();
        let out = resize(&source(&case), width, height, filter).unwrap();
        if let Some(bytes) = case["out"].as_str() {
            assert_eq!(out.data(), hex(bytes), "{case}");
        }
        assert_eq!(fnv(out.into_data()), case["hash"].as_str().unwrap(), "{case}");
    }
}

#[test]
fn processors_are_bit_identical() {
    for case in cases("planes") {
        let planes = planes(&case, source(&case));
        assert_eq!(fnv_floats(&planes.data), case["hash"].as_str().unwrap(), "{case}");
    }
}

#[test]
fn normalisation_is_bit_identical_for_every_byte() {
    let every = Rgb8::new(256, 1, (0..=255).flat_map(|byte| [byte; 3]).collect()).unwrap();
    for case in cases("normalise") {
        let planes = planes(&case, every.clone());
        assert_eq!(fnv_floats(&planes.data), case["hash"].as_str().unwrap(), "{case}");
    }
}

#[test]
fn patch_rows_are_bit_identical() {
    for case in cases("patches") {
        let (patch_height, patch_width) = pair(&case["patch"]);
        let order = PatchOrder {
            patch: (patch_height as usize, patch_width as usize),
            frames: number(&case["frames"]) as usize,
            block: number(&case["block"]) as usize,
        };
        let patches = patchify(&planes(&case, source(&case)), order).unwrap();
        let (rows, columns) = pair(&case["shape"]);
        assert_eq!((patches.rows, patches.columns), (rows as usize, columns as usize), "{case}");
        assert_eq!(fnv_floats(&patches.data), case["hash"].as_str().unwrap(), "{case}");
    }
}

#[test]
fn files_decode_as_documented() {
    for case in cases("decoded") {
        let name = case["file"].as_str().unwrap();
        let path = fixtures().join("files").join(name);
        let loaded = load_image(&path).unwrap();
        let size = (loaded.image.width(), loaded.image.height());
        assert_eq!(size, pair(&case["size"]), "{name}");
        assert_eq!(image_size(&path).unwrap(), size, "{name}");
        assert_eq!(Value::from(loaded.notes), case["notes"], "{name}");
        if let Some(near) = case["near"].as_str() {
            let worst = loaded.image.data().iter().zip(hex(near)).map(|(a, b)| a.abs_diff(b)).max();
            println!("{name}: at most {} levels from Pillow", worst.unwrap());
            assert!(worst.unwrap() <= LOSSY, "{name}: {worst:?}");
        } else {
            let hash = fnv(loaded.image.into_data());
            assert_eq!(hash, case["hash"].as_str().unwrap(), "{name}");
        }
    }
}

#[test]
fn bad_files_are_refused_in_one_line() {
    for case in cases("refused") {
        let name = case["file"].as_str().unwrap();
        let path = fixtures().join("files").join(name);
        let error = load_image(&path).unwrap_err();
        let expected = format!("`{}` {}", path.display(), case["message"].as_str().unwrap());
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.kind(), ErrorKind::Media);
        // a header may still be whole where the pixels are not
        if case["size"].is_array() {
            assert_eq!(image_size(&path).unwrap(), pair(&case["size"]), "{name}");
        } else {
            assert_eq!(image_size(&path).unwrap_err().to_string(), expected);
        }
    }
    let missing = fixtures().join("files/missing.png");
    let message = load_image(&missing).unwrap_err().to_string();
    assert!(message.contains("missing.png` cannot be opened"), "{message}");
    assert!(image_header(&fixtures()).is_err(), "a folder");
}

/// A file cut off anywhere gives the whole picture or an error, never a part of the picture.
#[test]
fn no_prefix_gives_half_a_picture() {
    for case in cases("decoded") {
        let name = case["file"].as_str().unwrap();
        let bytes = fs::read(fixtures().join("files").join(name)).unwrap();
        let whole = decode_image(&bytes, Path::new(name)).unwrap().image;
        let mut refused = 0;
        for end in 0..bytes.len() {
            match decode_image(&bytes[..end], Path::new(name)) {
                Ok(loaded) => {
                    assert_eq!(loaded.image, whole, "{name} cut at {end} of {}", bytes.len());
                }
                Err(error) => {
                    refused += 1;
                    assert!(!error.to_string().contains('\n'), "{error}");
                }
            }
        }
        // only an animation may lose its later frames
        assert!(refused > bytes.len() / 8, "{name}: {refused} of {}", bytes.len());
    }
}

/// Damage anywhere may change the picture or be refused, but it never ends the program.
#[test]
fn damaged_files_do_not_panic() {
    for case in cases("decoded") {
        let name = case["file"].as_str().unwrap();
        let bytes = fs::read(fixtures().join("files").join(name)).unwrap();
        for at in (0..bytes.len()).step_by(4) {
            let mut damaged = bytes.clone();
            damaged[at] ^= [0x01, 0xFF, 0x80][at % 3];
            let _ = decode_image(&damaged, Path::new(name));
        }
    }
}
