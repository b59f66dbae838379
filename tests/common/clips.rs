//! The clips of the goldens: a formula, so that no sound needs to be stored (`tests/scripts/golden_cases.py` is its other half).
//! Include it with `#[path = "common/clips.rs"] mod clips;`.

use std::fs;
use std::path::{Path, PathBuf};

/// Samples a second of every clip.
const RATE: u32 = 16_000;

/// Clip number `k`: a saw whose frequency rises, on noise.
fn samples(count: i64, k: i64) -> Vec<i16> {
    let sample = |i: i64| {
        let saw = (i * i / 64 * (3 + k) + i * 29) % 8192 - 4096;
        let noise = (i * 7919 + k * 104_729) % 4099 - 2049;
        (saw + noise) as i16
    };
    (0..count).map(sample).collect()
}

/// Writes the clip that a name `SAMPLES_K.wav` stands for into `folder`, as mono PCM of 16 bits.
pub(crate) fn write(folder: &Path, name: &str) -> PathBuf {
    let stem = name.strip_suffix(".wav").expect("a name that ends in .wav");
    let (count, k) = stem.split_once('_').expect("SAMPLES_K.wav");
    let samples = samples(count.parse().expect("samples"), k.parse().expect("a number"));
    let bytes = u32::try_from(samples.len() * 2).expect("a short clip");
    let mut file = Vec::new();
    file.extend_from_slice(b"RIFF");
    file.extend_from_slice(&(36 + bytes).to_le_bytes());
    file.extend_from_slice(b"WAVEfmt ");
    file.extend_from_slice(&16_u32.to_le_bytes());
    file.extend_from_slice(&1_u16.to_le_bytes()); // PCM
    file.extend_from_slice(&1_u16.to_le_bytes()); // one channel
    file.extend_from_slice(&RATE.to_le_bytes());
    file.extend_from_slice(&(RATE * 2).to_le_bytes());
    file.extend_from_slice(&2_u16.to_le_bytes());
    file.extend_from_slice(&16_u16.to_le_bytes());
    file.extend_from_slice(b"data");
    file.extend_from_slice(&bytes.to_le_bytes());
    file.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    let path = folder.join(name);
    fs::create_dir_all(folder).expect("a folder for clips");
    fs::write(&path, file).expect("a clip is written");
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by `golden_cases.clip_array`.
    #[test]
    fn the_formula_is_that_of_the_script() {
        assert_eq!(samples(4, 0), VECTOR_START);
        assert_eq!(samples(40_001, 1)[39_998..], VECTOR_END);
    }

    const VECTOR_START: [i16; 4] = [-6145, -2296, -2546, -2796];
    const VECTOR_END: [i16; 3] = [-2537, -5979, 2870];
}
