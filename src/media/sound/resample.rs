//! Another rate: a band-limited interpolation with the filter of the reference's resampler.
//!
//! `soxr` with its `HQ` setting, which the reference uses, low-passes at 0.957 of the lower rate's Nyquist frequency with a
//! sinc under a Kaiser window. It filters in up to four stages; here everything is one: sample j lies at t = j · from / to, and
//! is Σ x[i] · k(i - t). The windows of [`Design`] were fitted to its impulse responses:
//!
//! | rates | farthest from soxr's response, of its peak |
//! | --- | --- |
//! | 2, 3 or 4 to 1, 2 or 3 and back (8, 12, 24, 32, 48 kHz to 16 kHz) | 1e-7 |
//! | a whole number of 4 or more to 1 (64, 80, 96, 192 kHz) | 1e-7 at 96 kHz, 2e-4 at others |
//! | other (11.025, 22.05, 44.1 kHz) | 1.4e-4 |
//!
//! In the last two cases the first samples differ more, up to 1 % of a loud beginning, since soxr's stages begin one after
//! the other. Speech at 44.1 kHz comes out 1e-4 of its size apart, and its mel values 1e-5 on average; the most, 2e-2, is in
//! the first frames and in the quiet bands that the low-pass cuts through.

use std::f64::consts::PI;

use rayon::prelude::*;

/// A windowed sinc, in units of the lower rate.
#[derive(Debug, Clone, Copy)]
struct Design {
    /// Where the response is half, of the Nyquist frequency.
    cutoff: f64,
    /// Shape of the Kaiser window.
    beta: f64,
    /// Half the window's length in samples.
    half: f64,
}

impl Design {
    /// The fitted design for two rates without a common divisor.
    fn new(from: u64, to: u64) -> Self {
        let steps = from.max(to);
        if steps <= 3 || (to == 4 && from == 3) {
            // one stage, of an odd number of taps at the common multiple of both rates
            let half = match steps {
                2 => 389.0 / 4.0,
                3 => 581.0 / 6.0,
                _ => 777.0 / 8.0,
            };
            Self { cutoff: 0.956_871_82, beta: 13.039_7, half }
        } else if to == 1 {
            Self { cutoff: 0.956_871_82, beta: 13.711, half: 101.5 }
        } else {
            Self { cutoff: 0.956_843, beta: 15.978, half: 109.67 }
        }
    }

    /// The windowed sinc at a distance in samples, times I₀(β).
    fn kernel(self, distance: f64) -> f64 {
        let inside = 1.0 - (distance / self.half).powi(2);
        if inside <= 0.0 {
            return 0.0;
        }
        let angle = PI * self.cutoff * distance;
        let sinc = if angle == 0.0 { 1.0 } else { angle.sin() / angle };
        self.cutoff * sinc * bessel(self.beta * inside.sqrt())
    }
}

/// Kernels between two samples of the lower rate, at most; weights between them are interpolated, wrong by (π / 4096)² / 8
/// or 7e-8 of the peak at most.
const PHASES: f64 = 4096.0;

/// From one rate to another.
pub(super) struct Resampler {
    from: u64,
    to: u64,
    /// Samples on either side of a position that its kernel reaches.
    reach: u64,
    /// Rows of `2 * reach + 1` weights: kernels at phases 0, 1 / phases, ... 1.
    weights: Vec<f64>,
    phases: u64,
}

impl Resampler {
    /// The kernels between two rates; `None` where one is 0.
    pub(super) fn new(from: u32, to: u32) -> Option<Self> {
        if from == 0 || to == 0 {
            return None;
        }
        let common = common_divisor(from, to);
        let (from, to) = (u64::from(from / common), u64::from(to / common));
        if from == to {
            return Some(Self { from, to, reach: 0, weights: Vec::new(), phases: 1 });
        }
        let scale = (to as f64 / from as f64).min(1.0);
        let design = Design::new(from, to);
        let reach = (design.half / scale).ceil() as u64;
        // a kernel that is stretched changes less from phase to phase
        let phases = to.min((PHASES * scale).ceil() as u64);
        let peak = bessel(design.beta);
        let weights = (0..=phases).into_par_iter().flat_map_iter(|phase| {
            let position = phase as f64 / phases as f64;
            (0..=2 * reach).map(move |tap| {
                design.kernel((tap as f64 - reach as f64 - position) * scale) * scale / peak
            })
        });
        Some(Self { from, to, reach, weights: weights.collect(), phases })
    }

    /// Samples that the first `outputs` depend on.
    pub(super) fn needed(&self, outputs: u64) -> u64 {
        if outputs == 0 {
            return 0;
        }
        let last = u128::from(outputs - 1) * u128::from(self.from) / u128::from(self.to);
        u64::try_from(last).unwrap_or(u64::MAX).saturating_add(self.reach).saturating_add(1)
    }

    /// The first `outputs` samples of a clip of `length` samples that begins with `samples`.
    ///
    /// As in the reference's loader, a clip has ⌊length · to / from + ½⌋ samples, and silence up to ⌈length · to / from⌉.
    pub(super) fn resample(&self, samples: Vec<f32>, length: u64, outputs: usize) -> Vec<f32> {
        if self.from == self.to {
            let mut samples = samples;
            samples.truncate(outputs);
            return samples;
        }
        let made = (2 * u128::from(length) * u128::from(self.to) + u128::from(self.from))
            / (2 * u128::from(self.from));
        (0..outputs)
            .into_par_iter()
            .map(|output| if output as u128 >= made { 0.0 } else { self.at(&samples, output) })
            .collect()
    }

    fn at(&self, samples: &[f32], output: usize) -> f32 {
        let place = output as u128 * u128::from(self.from);
        let (whole, part) = (place / u128::from(self.to), (place % u128::from(self.to)) as u64);
        let (phase, rest) = (part * self.phases / self.to, part * self.phases % self.to);
        let taps = 2 * self.reach as usize + 1;
        let row = phase as usize * taps;
        let (here, next) = (&self.weights[row..row + taps], &self.weights[row + taps..]);
        // the first tap stands `reach` samples before `whole`
        let first = whole as i128 - i128::from(self.reach);
        let skipped = (-first).max(0) as usize;
        let begin = first.max(0) as usize;
        let heard = samples.get(begin..).unwrap_or_default();
        let sum = |weights: &[f64]| {
            let weights = weights.iter().take(taps).skip(skipped);
            weights.zip(heard).map(|(weight, sample)| weight * f64::from(*sample)).sum::<f64>()
        };
        if rest == 0 {
            return sum(here) as f32;
        }
        let rest = rest as f64 / self.to as f64;
        (sum(here) * (1.0 - rest) + sum(next) * rest) as f32
    }
}

/// The modified Bessel function I₀ by its power series.
fn bessel(x: f64) -> f64 {
    let (mut sum, mut term, mut order) = (1.0, 1.0, 0.0);
    while term > sum * 1e-17 {
        order += 1.0;
        term *= (x / (2.0 * order)).powi(2);
        sum += term;
    }
    sum
}

fn common_divisor(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tone that both rates can carry stays that tone, whatever the phase count; tones above the lower Nyquist frequency
    /// vanish. 3e-6: the stop band lies 120 dB below.
    #[test]
    fn tones_pass_or_vanish() {
        for from in [8000, 11_025, 12_000, 32_000, 44_100, 44_099, 48_000, 96_000, 767_999] {
            let to = 16_000;
            let resampler = Resampler::new(from, to).unwrap();
            let lower = f64::from(from.min(to)) / 2.0;
            let length = u64::from(from / 5);
            for (hertz, passes) in [(0.0, true), (lower * 0.7, true), (lower * 1.01, false)] {
                if !passes && from < to {
                    continue; // the source cannot hold it
                }
                let tone =
                    |index: f64, rate: u32| (2.0 * PI * hertz * index / f64::from(rate)).cos();
                let samples: Vec<f32> =
                    (0..length).map(|index| tone(index as f64, from) as f32).collect();
                let outputs = (length * u64::from(to) / u64::from(from)) as usize;
                let made = resampler.resample(samples, length, outputs);
                assert_eq!(made.len(), outputs);
                let edge = (resampler.reach as f64 * f64::from(to) / f64::from(from)) as usize + 2;
                for index in (edge..outputs - edge).step_by(17) {
                    let expected = if passes { tone(index as f64, to) } else { 0.0 };
                    let difference = (f64::from(made[index]) - expected).abs();
                    assert!(difference < 3e-6, "{from} {hertz} {index}: {difference}");
                }
            }
        }
    }

    #[test]
    fn a_beginning_needs_no_more_than_it_says() {
        for (from, to) in
            [(44_100, 16_000), (8000, 16_000), (48_000, 16_000), (7, 5), (16_000, 16_000)]
        {
            let resampler = Resampler::new(from, to).unwrap();
            let samples: Vec<f32> = (0..4000).map(|index| ((index * index) % 17) as f32).collect();
            let all = resampler.resample(samples.clone(), 4000, 800);
            for outputs in [0, 1, 2, 100, 800] {
                let needed = resampler.needed(outputs as u64).min(4000) as usize;
                let part = resampler.resample(samples[..needed].to_vec(), 4000, outputs);
                assert_eq!(part, all[..outputs], "{from} {to} {outputs}");
            }
        }
        assert!(Resampler::new(0, 1).is_none() && Resampler::new(1, 0).is_none());
    }
}
