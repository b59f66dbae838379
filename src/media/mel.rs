//! From samples to the logarithm of energies in mel bands: what an audio tower reads.
//!
//! As `WhisperFeatureExtractor._torch_extract_fbank_features`:
//!
//! 1. A clip is cut or padded to one length, and mirrored at both ends by half a window (the edge itself not repeated), so
//!    that frame i is centred on sample `hop * i`. The last frame, centred on the end, is dropped.
//! 2. Each frame is weighted by a periodic Hann window; its power spectrum is gathered into triangles that are equally wide
//!    on Slaney's mel scale and of equal area (`audio_utils.mel_filter_bank`, `norm="slaney"`, `mel_scale="slaney"`).
//! 3. log10 of each energy, at least `floor`; at least the largest of the clip less `range`; then `(x + shift) / scale`.
//!
//! Window, filters and the steps from the magnitude on round to f32 where the reference does. The transform is in f64: the
//! reference's own is in f32, wrong by 1e-7 of the loudest bin of a frame, which shows up to 1e-4 in the logarithm of quiet
//! bands beside a pure tone and 1e-5 in noise; no other transform can come nearer.

use std::sync::Arc;

use rayon::prelude::*;
use realfft::{RealFftPlanner, RealToComplex};

/// The settings of a [`LogMel`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MelSettings {
    /// Samples per second.
    pub rate: u32,
    /// Samples that every clip is cut or padded to.
    pub length: u32,
    /// What it is padded with.
    pub silence: f32,
    /// Samples of a frame, and of its transform.
    pub window: u32,
    /// Samples from one frame to the next.
    pub hop: u32,
    /// Bands of a frame.
    pub bands: u32,
    /// The highest frequency of the last band, in Hz; the first begins at 0.
    pub high: u32,
    /// Energies below count as so much.
    pub floor: f64,
    /// Decades below the largest energy of a clip that are kept.
    pub range: f64,
    /// Added to the logarithm.
    pub shift: f64,
    /// Divides the sum.
    pub scale: f64,
}

/// A filter bank that is ready to be applied.
#[derive(Clone)]
pub struct LogMel {
    settings: MelSettings,
    window: Vec<f32>,
    bands: Vec<Band>,
    transform: Arc<dyn RealToComplex<f64>>,
}

/// Weights of consecutive bins of the spectrum.
#[derive(Debug, Clone)]
struct Band {
    first: usize,
    weights: Vec<f32>,
}

impl std::fmt::Debug for LogMel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LogMel").field(&self.settings).finish()
    }
}

/// Values per band and frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Mel {
    /// `[bands, frames]`, row after row.
    pub values: Vec<f32>,
    /// Rows.
    pub bands: usize,
    /// Columns.
    pub frames: usize,
}

/// Values of one clip, at most: half a gibibyte.
const MOST_VALUES: u64 = 1 << 27;

impl LogMel {
    /// Makes window and filters; the error is a sentence.
    pub fn new(settings: MelSettings) -> Result<Self, String> {
        let MelSettings { rate, length, window, hop, bands, high, .. } = settings;
        if rate < 2 || hop == 0 || bands == 0 || high == 0 {
            return Err(
                "a rate, a hop, bands and a highest frequency of 0 make no spectrum".to_owned()
            );
        }
        if window < 2 || window % 2 == 1 {
            return Err(format!("a window of {window} samples is not two equal halves"));
        }
        if window / 2 >= length {
            return Err(format!(
                "a clip of {length} samples cannot be mirrored by half a window of {window}"
            ));
        }
        if u64::from(length / hop) * u64::from(bands) > MOST_VALUES
            || u64::from(window) * u64::from(bands) > MOST_VALUES
        {
            return Err("the frames of a clip do not fit into memory".to_owned());
        }
        let numbers = [settings.floor, settings.range, settings.shift, settings.scale];
        if !numbers.iter().all(|number| number.is_finite())
            || !settings.silence.is_finite()
            || settings.floor as f32 <= 0.0
            || settings.scale == 0.0
        {
            return Err("the logarithm's settings make values that are not finite".to_owned());
        }
        let transform = RealFftPlanner::new().plan_fft_forward(window as usize);
        Ok(Self { settings, window: hann(window), bands: filters(&settings), transform })
    }

    /// Frames of every clip.
    pub fn frames(&self) -> usize {
        (self.settings.length / self.settings.hop) as usize
    }

    /// Samples per second.
    pub fn rate(&self) -> u32 {
        self.settings.rate
    }

    /// The samples of a clip that are read; of longer ones the rest is dropped.
    pub fn length(&self) -> u32 {
        self.settings.length
    }

    /// The values of a clip.
    pub fn apply(&self, samples: &[f32]) -> Mel {
        let (frames, bands) = (self.frames(), self.bands.len());
        let mut columns = vec![0.0_f32; frames * bands];
        let begin = || (self.transform.make_input_vec(), self.transform.make_output_vec());
        columns.par_chunks_mut(bands).enumerate().for_each_init(
            begin,
            |(frame, spectrum), (index, column)| {
                self.frame(samples, index, frame);
                // the lengths are the transform's own, so it does not fail
                if self.transform.process(frame, spectrum).is_err() {
                    return;
                }
                let power: Vec<f32> = spectrum
                    .iter()
                    .map(|bin| {
                        let magnitude = bin.norm() as f32;
                        magnitude * magnitude
                    })
                    .collect();
                for (band, value) in self.bands.iter().zip(column) {
                    *value = band.energy(&power).max(self.settings.floor as f32).log10();
                }
            },
        );
        let loudest = columns.iter().copied().fold(f32::MIN, f32::max);
        let least = loudest - self.settings.range as f32;
        let (shift, scale) = (self.settings.shift as f32, self.settings.scale as f32);
        let value =
            |band: usize, frame: usize| (columns[frame * bands + band].max(least) + shift) / scale;
        let values = (0..bands).flat_map(|band| (0..frames).map(move |frame| (band, frame)));
        let values = values.map(|(band, frame)| value(band, frame)).collect();
        Mel { values, bands, frames }
    }

    /// The weighted samples of one frame.
    fn frame(&self, samples: &[f32], index: usize, frame: &mut [f64]) {
        let length = self.settings.length as usize;
        let half = self.window.len() / 2;
        let center = index * self.settings.hop as usize;
        for (place, (weight, value)) in self.window.iter().zip(frame).enumerate() {
            // positions below 0 and from `length` on are mirrored
            let position = (center + place).abs_diff(half);
            let position = if position < length { position } else { 2 * (length - 1) - position };
            let sample = samples.get(position).copied().unwrap_or(self.settings.silence);
            *value = f64::from(sample * weight);
        }
    }
}

impl Band {
    fn energy(&self, power: &[f32]) -> f32 {
        let bins = power.iter().skip(self.first);
        let sum: f64 = bins
            .zip(&self.weights)
            .map(|(power, weight)| f64::from(*power) * f64::from(*weight))
            .sum();
        sum as f32
    }
}

/// `torch.hann_window`: every step rounds to f32.
fn hann(length: u32) -> Vec<f32> {
    let step = (std::f64::consts::TAU / f64::from(length)) as f32;
    (0..length).map(|index| (index as f32 * step).cos() * -0.5 + 0.5).collect()
}

/// Slaney's scale: linear to 1000 Hz, 15 mel; logarithmic above.
fn mel_of(hertz: f64) -> f64 {
    if hertz >= 1000.0 {
        15.0 + (hertz / 1000.0).ln() * (27.0 / 6.4_f64.ln())
    } else {
        3.0 * hertz / 200.0
    }
}

fn hertz_of(mel: f64) -> f64 {
    if mel >= 15.0 {
        1000.0 * (6.4_f64.ln() / 27.0 * (mel - 15.0)).exp()
    } else {
        200.0 * mel / 3.0
    }
}

fn filters(settings: &MelSettings) -> Vec<Band> {
    let bins = settings.window as usize / 2 + 1;
    let bin = |index: usize| f64::from(settings.rate / 2) / (bins - 1) as f64 * index as f64;
    let top = mel_of(f64::from(settings.high));
    let step = top / (f64::from(settings.bands) + 1.0);
    let edge =
        |index: u32| hertz_of(if index > settings.bands { top } else { f64::from(index) * step });
    (0..settings.bands)
        .map(|band| {
            let (left, centre, right) = (edge(band), edge(band + 1), edge(band + 2));
            let area = 2.0 / (right - left);
            let mut row = Band { first: 0, weights: Vec::new() };
            for index in 0..bins {
                let rising = (bin(index) - left) / (centre - left);
                let falling = (right - bin(index)) / (right - centre);
                let weight = (rising.min(falling).max(0.0) * area) as f32;
                if weight > 0.0 && row.weights.is_empty() {
                    row.first = index;
                }
                if weight > 0.0 {
                    row.weights.push(weight);
                }
            }
            row
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> MelSettings {
        MelSettings {
            rate: 16_000,
            length: 480_000,
            silence: 0.0,
            window: 400,
            hop: 160,
            bands: 80,
            high: 8000,
            floor: 1e-10,
            range: 8.0,
            shift: 4.0,
            scale: 4.0,
        }
    }

    #[test]
    fn silence_is_the_floor() {
        let mel = LogMel::new(settings()).unwrap();
        for samples in [&[][..], &[0.0], &[0.0; 600]] {
            let made = mel.apply(samples);
            assert_eq!((made.bands, made.frames), (80, 3000));
            assert!(made.values.iter().all(|value| (*value + 1.5).abs() < 1e-6)); // (log10(1e-10) + 4) / 4
        }
    }

    #[test]
    fn a_longer_clip_is_cut_and_a_rest_is_heard() {
        let mut small = settings();
        (small.length, small.hop) = (1000, 170);
        let mel = LogMel::new(small).unwrap();
        assert_eq!(mel.frames(), 5);
        let samples: Vec<f32> =
            (0..2000).map(|index| ((index * 7919) % 101) as f32 / 101.0).collect();
        assert_eq!(mel.apply(&samples), mel.apply(&samples[..1000]));
        // the last frame is centred on 680 and ends at 880; nothing reads what lies behind
        assert_ne!(mel.apply(&samples[..870]), mel.apply(&samples[..1000]));
        assert_eq!(mel.apply(&samples[..880]), mel.apply(&samples[..1000]));
    }

    #[test]
    fn impossible_settings_are_refused() {
        let refused: [fn(&mut MelSettings); 10] = [
            |settings| settings.hop = 0,
            |settings| settings.bands = 0,
            |settings| settings.rate = 0,
            |settings| settings.high = 0,
            |settings| settings.window = 401,
            |settings| settings.window = 0,
            |settings| settings.length = 200,
            |settings| settings.floor = 0.0,
            |settings| settings.scale = 0.0,
            |settings| settings.bands = u32::MAX,
        ];
        for change in refused {
            let mut settings = settings();
            change(&mut settings);
            assert!(LogMel::new(settings).is_err(), "{settings:?}");
        }
    }
}
