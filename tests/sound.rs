//! Clips against the reference: files and formulas of `fixtures/sound/goldens`, recorded by `scripts/sound_goldens.py`.

#![allow(clippy::unwrap_used)] // helpers of tests may stop a test

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use vlm_spec::checkpoint::Checkpoint;
use vlm_spec::error::ErrorKind;
use vlm_spec::layout::MediaSize;
use vlm_spec::media::{LogMel, MelSettings, clip_length, load_sound};
use vlm_spec::plan::Plan;
use vlm_spec::preprocess::preprocess_clip;

const CHECKPOINT: &str = "Qwen__Qwen2-Audio-7B-Instruct";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn goldens() -> PathBuf {
    fixtures().join("sound/goldens")
}

fn cases(part: &str) -> Vec<Value> {
    let text = fs::read_to_string(goldens().join("goldens.json")).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    all[part].as_array().unwrap().clone()
}

fn plan(checkpoint: &str) -> Plan {
    let checkpoint = Checkpoint::open(fixtures().join("checkpoints").join(checkpoint)).unwrap();
    Plan::resolve(&checkpoint.find_family().unwrap(), &checkpoint).unwrap()
}

fn scratch(name: &str, content: &[u8]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sound");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join(name);
    fs::write(&file, content).unwrap();
    file
}

fn triangle(i: i64, period: i64) -> i64 {
    (i % period * 2 - period).abs() - period / 2
}

/// The 16-bit samples that the script's function of the same name makes.
fn clip(kind: &str, samples: u64) -> Vec<i16> {
    let at = |i: i64| match kind {
        "noise" => {
            let mut n = (i as u32).wrapping_mul(2_654_435_761).wrapping_add(40503);
            n ^= n >> 15;
            n = n.wrapping_mul(2_246_822_519);
            (i64::from(n >> 16) - 32768).div_euclid(4)
        }
        "wave" => {
            let tone = triangle(i, 131) * 5 + triangle(i, 29) * 7 + triangle(i, 7);
            (tone * (triangle(i, 9000) + 4500)).div_euclid(400)
        }
        _ if i / 6000 % 2 == 1 => i % 3 - 1,
        _ if i / 40 % 2 == 0 => 30000,
        _ => -30000,
    };
    (0..samples as i64).map(|i| i16::try_from(at(i)).unwrap()).collect()
}

/// A WAV file of one channel.
fn wav(samples: &[i16], rate: u32) -> Vec<u8> {
    let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
    file.extend(rate.to_le_bytes());
    file.extend((2 * rate).to_le_bytes());
    file.extend(b"\x02\0\x10\0data");
    file.extend((bytes.len() as u32).to_le_bytes());
    [file, bytes].concat()
}

/// Every format at its own rate and at 16 kHz.
#[test]
fn files_are_what_the_reference_loads() {
    for case in cases("files") {
        let name = case["file"].as_str().unwrap();
        let [from, rate] = ["from", "rate"].map(|key| case[key].as_u64().unwrap() as u32);
        let sound = load_sound(&goldens().join(name), rate, u64::MAX).unwrap();
        assert_eq!(sound.length, case["samples"].as_u64().unwrap(), "{name} {rate}");
        assert_eq!(sound.samples.len() as u64, sound.length, "{name} {rate}");
        // samples are below 0.6. Lossless: equal. Decoders of lossy sound and soxr compute in f32, some roundings of 6e-8
        // apart; where soxr filters in stages of its own, the beginning differs by 1 % and the rest by 2e-4
        let tolerance = match from {
            _ if from == rate && (name.ends_with("wav") || name.ends_with("flac")) => 0.0,
            _ if from == rate => 1e-6,
            8000 | 12_000 | 24_000 | 32_000 | 48_000 => 1e-6,
            _ => 3e-3,
        };
        let expected: Vec<f64> =
            case["every"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
        let every: Vec<f32> = sound.samples.iter().copied().step_by(29).collect();
        assert_eq!(every.len(), expected.len(), "{name} {rate}");
        for (index, (value, expected)) in every.iter().zip(&expected).enumerate() {
            let difference = (f64::from(*value) - f64::from(*expected as f32)).abs();
            let at = 29 * index;
            assert!(difference <= tolerance, "{name} {rate}: sample {at} is {difference} off");
        }
        let squares: f64 = sound.samples.iter().map(|value| f64::from(*value).powi(2)).sum();
        let expected = case["squares"].as_f64().unwrap();
        let bound = 1e-12 + tolerance.max(1e-9) * expected;
        assert!((squares - expected).abs() <= bound, "{name} {rate}: {squares} {expected}");
    }
}

/// How far mel values may be from recorded ones.
#[derive(Clone, Copy)]
struct Tolerance {
    /// Each value of the first two frames.
    first: f64,
    /// Each of the others.
    most: f64,
    /// The moments over all values.
    mean: f64,
}

/// The reference transforms in f32, wrong by 1e-7 of the loudest bin: up to 1e-4 in quiet bands.
const EXACT: Tolerance = Tolerance { first: 1e-4, most: 1e-4, mean: 1e-6 };

fn assert_mel(
    name: &str,
    case: &Value,
    values: &[f32],
    [bands, frames]: [usize; 2],
    Tolerance { first, most, mean }: Tolerance,
) {
    assert_eq!(case["bands"].as_u64(), Some(bands as u64), "{name}");
    assert_eq!(case["frames"].as_u64(), Some(frames as u64), "{name}");
    assert_eq!(values.len(), bands * frames, "{name}");
    for row in case["rows"].as_array().unwrap() {
        let frame = row["frame"].as_u64().unwrap() as usize;
        let expected = row["values"].as_array().unwrap();
        assert_eq!(expected.len(), bands.div_ceil(9));
        for (band, expected) in (0..bands).step_by(9).zip(expected) {
            let value = f64::from(values[band * frames + frame]);
            let difference = (value - expected.as_f64().unwrap()).abs();
            let most = if frame < 2 { first } else { most };
            assert!(difference <= most, "{name}: band {band}, frame {frame} is {difference} off");
        }
    }
    let count = values.len() as f64;
    let moment =
        |power| values.iter().map(|value| f64::from(*value).powi(power)).sum::<f64>() / count;
    for (key, found) in [("mean", moment(1)), ("square", moment(2))] {
        let expected = case[key].as_f64().unwrap();
        assert!((found - expected).abs() <= mean, "{name}: {key} is {found}, not {expected}");
    }
}

/// Clips of no, one and few samples, of 30 seconds and more, and of other rates, from a file to mel bands; their layout is the
/// one that is counted.
#[test]
fn clips_are_what_the_reference_feeds() {
    let plan = plan(CHECKPOINT);
    for case in cases("clips") {
        let kind = case["kind"].as_str().unwrap();
        let [samples, rate] = ["samples", "rate"].map(|key| case[key].as_u64().unwrap());
        let name = format!("{kind} {samples} {rate}");
        let file = scratch(
            &format!("{kind}_{samples}_{rate}.wav"),
            &wav(&clip(kind, samples), rate as u32),
        );
        let made = preprocess_clip(&plan, &file, 1).unwrap();
        // of other rates, the bands that the resampler's low-pass cuts through differ as far as the two filters do; where
        // soxr has several stages, which begin one after the other, the first samples of a loud clip do as well
        let tolerance = match rate {
            16_000 | 8000 | 48_000 => EXACT,
            _ => Tolerance { first: 5e-2, most: 1e-2, mean: 1e-5 },
        };
        assert_mel(&name, &case, &made.mel, [made.bins, made.frames], tolerance);
        assert_eq!(case["mask"].as_u64(), Some(made.valid as u64), "{name}");
        let counted = clip_length(&file).unwrap().at(plan.sample_rate().unwrap());
        let count = plan.count_among(MediaSize::Samples(counted), 1).unwrap();
        assert_eq!(made.layout, count.layout, "{name}");
    }
}

/// Other bands, windows, hops, rates, lengths and padding.
#[test]
fn settings_are_those_of_the_file() {
    let samples: Vec<f32> =
        clip("wave", 20000).into_iter().map(|sample| f32::from(sample) / 32768.0).collect();
    for case in cases("settings") {
        let given = &case["settings"];
        let number =
            |key: &str, absent: u32| given[key].as_u64().map_or(absent, |value| value as u32);
        let rate = number("sampling_rate", 16_000);
        let settings = MelSettings {
            rate,
            length: rate * number("chunk_length", 30),
            silence: given["padding_value"].as_f64().unwrap_or(0.0) as f32,
            window: number("n_fft", 400),
            hop: number("hop_length", 160),
            bands: number("feature_size", 80),
            high: 8000,
            floor: 1e-10,
            range: 8.0,
            shift: 4.0,
            scale: 4.0,
        };
        let mel = LogMel::new(settings).unwrap().apply(&samples);
        assert_mel(&given.to_string(), &case, &mel.values, [mel.bands, mel.frames], EXACT);
    }
}

#[test]
fn what_cannot_be_loaded_is_said_in_one_line() {
    let sound = fixtures().join("sound");
    let flac = fs::read(goldens().join("short_24000_2.flac")).unwrap();
    let nan = [wav(&[], 16_000), f32::NAN.to_le_bytes().to_vec()].concat();
    let mut nan = nan;
    nan[20] = 3; // floats
    nan[34] = 32; // of 32 bits
    nan[40] = 4; // one of them
    let mut fast = wav(&[1, 2, 3], 16_000);
    fast[24..28].copy_from_slice(&4_000_000_u32.to_le_bytes());
    let files = [
        (sound.join("absent.wav"), "cannot be opened"),
        (sound.join("text_refused.wav"), "no WAV, FLAC, MP3 or Ogg file"),
        (sound.join("opus_refused.ogg"), "Opus"),
        (sound.join("adpcm_505.wav"), "in a form that is not understood"),
        (scratch("cut.flac", &flac[..flac.len() / 2]), "of its 900 samples"),
        (scratch("nan.wav", &nan), "not finite"),
        (scratch("fast.wav", &fast), "4000000 samples a second"),
        (scratch("empty", b""), "no WAV, FLAC, MP3 or Ogg file"),
        (scratch("picture.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), "no WAV, FLAC, MP3 or Ogg file"),
    ];
    for (file, expected) in files {
        let error = load_sound(&file, 16_000, u64::MAX).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Media, "{text}");
        assert!(text.contains(expected) && !text.contains('\n'), "{text}");
    }
}

#[test]
fn a_family_without_a_front_end_says_so() {
    let file = scratch("any.wav", &wav(&[0; 10], 16_000));
    let error = preprocess_clip(&plan("Qwen__Qwen2-VL-7B-Instruct"), &file, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Media);
    let error = preprocess_clip(&plan("google__gemma-4-E2B-it"), &file, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoNumber);
    assert!(error.to_string().contains("what the tower reads of a clip"), "{error}");
}

/// Without the frame that holds the encoder's tag nothing says how long an MP3 file is, and nothing is taken off.
#[test]
fn mp3_without_a_tag_is_as_long_as_its_packets() {
    for (name, frame) in [("layer3_44100_2.mp3", 1152), ("layer3_16000_1.mp3", 576)] {
        let whole = fs::read(goldens().join(name)).unwrap();
        let tag = whole.windows(4).position(|word| word == b"Info" || word == b"Xing").unwrap();
        let next = tag + whole[tag..].windows(2).position(|word| word == &whole[..2]).unwrap();
        let file = scratch(&format!("bare_{name}"), &whole[next..]);
        let length = clip_length(&file).unwrap();
        let sound = load_sound(&file, length.rate, u64::MAX).unwrap();
        assert_eq!(sound.samples.len() as u64, length.samples, "{name}");
        // the tag's frame is gone, and the 1105 samples of delay are there
        let tagged = load_sound(&goldens().join(name), length.rate, u64::MAX).unwrap();
        assert_eq!(length.samples % frame, 0, "{name}");
        assert_eq!(sound.samples[1105..1105 + tagged.samples.len()], tagged.samples, "{name}");
    }
}

/// Settings that no front end can repeat are found by `check`, and refused by name; what a clip costs does not depend on them.
#[test]
fn random_noise_and_odd_windows_are_refused() {
    for (index, setting) in [r#""dither": 0.5"#, r#""n_fft": 401"#].iter().enumerate() {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sound/settings_{index}"));
        fs::create_dir_all(&folder).unwrap();
        for entry in fs::read_dir(fixtures().join("checkpoints").join(CHECKPOINT)).unwrap() {
            let file = entry.unwrap();
            let mut text = fs::read_to_string(file.path()).unwrap();
            if file.file_name() == "preprocessor_config.json" {
                text = text.replace(r#""n_fft": 400"#, r#""n_fft" : 400"#);
                text = text.replacen('{', &format!("{{ {setting},"), 1);
                if setting.contains("n_fft") {
                    text = text.replace(r#""n_fft" : 400,"#, "");
                }
            }
            fs::write(folder.join(file.file_name()), text).unwrap();
        }
        let checkpoint = Checkpoint::open(&folder).unwrap();
        let plan = Plan::resolve(&checkpoint.find_family().unwrap(), &checkpoint).unwrap();
        assert_eq!(plan.count_among(MediaSize::Samples(480_000), 1).unwrap().embeds, 750);
        let file = scratch("noisy.wav", &wav(&[0; 10], 16_000));
        let error = preprocess_clip(&plan, &file, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoNumber, "{error}");
        let report =
            vlm_spec::check::check(&checkpoint.find_family().unwrap(), &checkpoint).unwrap();
        assert!(
            report.findings.iter().any(|finding| finding.code == "sound-settings"),
            "{setting}"
        );
    }
}

/// Files that are cut off or changed are as long as they are counted, or refused; nothing panics.
#[test]
fn damaged_files_are_counted_as_they_are_loaded() {
    let mut state = 1_u32;
    let mut roll = |sides: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % sides
    };
    let mut loaded = 0;
    let names: Vec<_> = cases("files").iter().map(|case| case["file"].clone()).collect();
    for (index, name) in names.iter().enumerate() {
        let whole = fs::read(goldens().join(name.as_str().unwrap())).unwrap();
        for round in 0..40 {
            let mut bytes = whole.clone();
            if round % 2 == 0 {
                bytes.truncate(roll(whole.len()));
            } else {
                for _ in 0..=roll(3) {
                    bytes[roll(whole.len())] ^= 1 << roll(8);
                }
            }
            let file = scratch(&format!("damaged_{index}"), &bytes);
            let Ok(length) = clip_length(&file) else {
                assert!(load_sound(&file, 16_000, 5000).is_err(), "{name} {round}");
                continue;
            };
            let sound = load_sound(&file, 16_000, 5000);
            // of these, whole packets and samples in front of a cut are all that counts
            let counted =
                name.as_str().unwrap().ends_with("wav") || name.as_str().unwrap().ends_with("mp3");
            assert!(sound.is_ok() || !counted || round % 2 == 1, "{name} {round}: {sound:?}");
            if let Ok(sound) = sound {
                loaded += 1;
                assert_eq!(sound.length, length.at(16_000), "{name} {round}");
                assert_eq!(sound.samples.len() as u64, sound.length.min(5000), "{name} {round}");
            }
        }
    }
    assert!(loaded > 300, "{loaded}");
}
