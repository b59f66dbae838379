//! The policy of clips: samples become frames, frames become rows.
//!
//! Frames are counted as the reference's feature extractors mask them: frame i counts if the samples from its beginning on,
//! as many as `span`, are all of the clip (`WhisperFeatureExtractor` asks for the first alone, `Gemma4AudioFeatureExtractor`
//! for the whole window and one more). Each step then shortens the sequence as a convolution or a pooling does, with the floor
//! division of Python: ⌊(n + 2p − k) / s⌋ + 1, never below zero.
//!
//! # What surprises
//!
//! * Very short clips have no row at all: two frames become one after a convolution of 3 by 2, and none after pooling by two.
//! * A longer clip is cut at `limit`; the reference takes it without a word.
//!
//! # Domain
//!
//! Clips of 0 to `limit` samples; every step is monotone, so rows never fall when samples grow. A formula that rises has its
//! maximum at `limit`. Any other is evaluated at the shortest and the longest clip of each number of frames: between them
//! `frames` and `rows` are the same, so a formula over these is exact. One whose value differs between the two reads
//! `samples` as well, and is refused rather than guessed.

use super::core::{Formula, Layout, Maximum};
pub(super) use crate::descriptor::audio::CLIP as NAMES;
use crate::descriptor::expression::ExpressionError;

/// Runs of clips that a formula is evaluated on, at most.
const MOST_FRAMES: u64 = 1 << 20;

/// One step over a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Positions read at a time.
    pub kernel: u32,
    /// Positions from one to the next.
    pub stride: u32,
    /// Positions added at both ends.
    pub padding: u32,
}

impl Step {
    /// How long a sequence of `length` is afterwards.
    pub fn shortened(self, length: u64) -> u64 {
        let padded = length.saturating_add(2 * u64::from(self.padding));
        match padded.checked_sub(u64::from(self.kernel)) {
            Some(rest) => rest / u64::from(self.stride) + 1,
            None => 0,
        }
    }
}

/// The parameters, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clip {
    rate: u32,
    limit: u32,
    lead: u32,
    hop: u32,
    span: u32,
    steps: Vec<Step>,
}

impl Clip {
    /// Checks the parameters; the error is a sentence.
    pub fn new(
        rate: u32,
        limit: u32,
        lead: u32,
        hop: u32,
        span: u32,
        steps: Vec<Step>,
    ) -> Result<Self, String> {
        if rate == 0 || limit == 0 || hop == 0 || span == 0 {
            return Err("a rate, a limit, a hop and a span of 0 make no frames".to_owned());
        }
        if steps.iter().any(|step| step.kernel == 0 || step.stride == 0) {
            return Err("a step with a kernel or a stride of 0 has no length".to_owned());
        }
        Ok(Self { rate, limit, lead, hop, span, steps })
    }

    /// Samples per second that the model takes.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// Samples that are kept of a longer clip.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    fn frames(&self, samples: u64) -> u64 {
        match (samples + u64::from(self.lead)).checked_sub(u64::from(self.span)) {
            Some(rest) => rest / u64::from(self.hop) + 1,
            None => 0,
        }
    }

    /// The layout of a clip of so many samples.
    pub fn layout(&self, samples: u64) -> Layout {
        let samples = samples.min(u64::from(self.limit));
        let frames = self.frames(samples);
        let rows = self.steps.iter().fold(frames, |length, step| step.shortened(length));
        let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Layout::new(&NAMES, [narrow(samples), narrow(frames), narrow(rows)])
    }

    /// The largest value of `formula` over all clips.
    pub fn maximum(&self, formula: &Formula<'_>) -> Result<Option<Maximum<u64>>, ExpressionError> {
        let limit = u64::from(self.limit);
        let mut best =
            Maximum { value: formula.at(&self.layout(limit))?, witness: limit, exact: true };
        if formula.rises() {
            return Ok(Some(best));
        }
        let most = self.frames(limit);
        if most > MOST_FRAMES {
            return Err(ExpressionError {
                message: format!("the formula would have to be evaluated on {most} clips"),
                hint: Some("a polynomial without negative factors needs one".to_owned()),
            });
        }
        let mut shortest = 0;
        for frames in 0..=most {
            // the longest clip with so many frames
            let longest = (frames * u64::from(self.hop) + u64::from(self.span))
                .saturating_sub(1 + u64::from(self.lead))
                .min(limit);
            if longest < shortest {
                continue;
            }
            let value = formula.at(&self.layout(shortest))?;
            if longest > shortest && formula.at(&self.layout(longest))? != value {
                return Err(ExpressionError {
                    message: "the formula would have to be evaluated on every clip".to_owned(),
                    hint: Some(
                        "one over `frames` and `rows` alone, or without negative factors, need not"
                            .to_owned(),
                    ),
                });
            }
            if value > best.value {
                best = Maximum { value, witness: longest, exact: true };
            }
            shortest = longest + 1;
        }
        Ok(Some(best))
    }

    /// Layouts to hold statements against.
    pub fn samples(&self) -> Vec<Layout> {
        let limit = u64::from(self.limit);
        let mut samples: Vec<u64> = (0..=40).map(|index| index * limit / 40).collect();
        for frames in 0..8 {
            let edge = frames * u64::from(self.hop) + u64::from(self.span);
            samples.extend([edge.saturating_sub(1), edge, edge + 1]);
        }
        let mut layouts = Vec::new();
        for count in samples {
            let layout = self.layout(count);
            if !layouts.contains(&layout) {
                layouts.push(layout);
            }
        }
        layouts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convolution() -> Step {
        Step { kernel: 3, stride: 2, padding: 1 }
    }

    /// ((l − 1) // 2 + 1 − 2) // 2 + 1 in Python, for l mel frames of 160 samples, at most 3000.
    #[test]
    fn a_convolution_and_a_pooling() {
        let pool = Step { kernel: 2, stride: 2, padding: 0 };
        let clip = Clip::new(16_000, 480_000, 0, 160, 1, vec![convolution(), pool]).unwrap();
        for frames in 0..=3100_i64 {
            let expected = (((frames.min(3000) - 1).div_euclid(2) + 1) - 2).div_euclid(2) + 1;
            for samples in [frames * 160 - 159, frames * 160 - 1, frames * 160] {
                let Ok(samples) = u64::try_from(samples) else { continue };
                let layout = clip.layout(samples);
                assert_eq!(layout.get("rows").map(i64::from), Some(expected), "{samples}");
                assert_eq!(layout.get("frames").map(i64::from), Some(frames.min(3000)));
            }
        }
        let rows = |layout: &Layout| Ok(i64::from(layout.get("rows").unwrap()));
        let maximum = clip.maximum(&Formula { value: &rows, polynomial: None }).unwrap().unwrap();
        assert_eq!((maximum.value, maximum.witness), (750, 480_000));
        let falling = |layout: &Layout| Ok(100 - i64::from(layout.get("rows").unwrap()));
        let maximum =
            clip.maximum(&Formula { value: &falling, polynomial: None }).unwrap().unwrap();
        assert_eq!((maximum.value, clip.layout(maximum.witness).get("rows")), (100, Some(0)));
        let of_samples = |layout: &Layout| Ok(i64::from(layout.get("samples").unwrap() % 7));
        assert!(clip.maximum(&Formula { value: &of_samples, polynomial: None }).is_err());
    }

    /// F = (n + 160 − 321) // 160 + 1, then (F + 2 − 3) // 2 + 1 twice.
    #[test]
    fn whole_windows_and_two_convolutions() {
        let steps = vec![convolution(), convolution()];
        let clip = Clip::new(16_000, 480_000, 160, 160, 321, steps).unwrap();
        for samples in (161..480_000_i64).step_by(37) {
            let frames = (samples + 160 - 321).div_euclid(160) + 1;
            let half = |length: i64| (length - 1).div_euclid(2) + 1;
            let layout = clip.layout(samples as u64);
            assert_eq!(layout.get("rows").map(i64::from), Some(half(half(frames))), "{samples}");
        }
        assert_eq!(clip.layout(480_000).get("rows"), Some(750));
        assert_eq!(clip.layout(160).get("frames"), Some(0));
    }

    /// The lengths of `tests/scripts/clip_sweep.py`.
    struct Lengths {
        state: u64,
        limit: u64,
        hop: u64,
        span: u64,
    }

    impl Lengths {
        fn roll(&mut self, sides: u64) -> u64 {
            self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((u128::from(z ^ (z >> 31)) * u128::from(sides)) >> 64) as u64
        }

        fn draw(&mut self, index: usize) -> u64 {
            let Self { limit, hop, span, .. } = *self;
            match index % 4 {
                0 => 1 + self.roll(4 * span + 2 * hop),
                1 => {
                    let frames = self.roll(limit / hop + 2);
                    (frames * hop + span + self.roll(5)).saturating_sub(3).max(1)
                }
                2 => limit + self.roll(2 * span + 5) - span - 2,
                _ => 1 + self.roll(limit + limit / 4),
            }
        }
    }

    /// Frames and rows of 24 576 clips, as the reference's extractors mask and its processors count them.
    #[test]
    fn equals_the_reference() {
        let table = include_str!("../../tests/fixtures/layout/clip.txt");
        let pool = Step { kernel: 2, stride: 2, padding: 0 };
        let mut settings = 0;
        for part in table.split("setting ").skip(1) {
            let mut lines = part.lines();
            let setting: Vec<u32> =
                lines.next().unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
            let [kind, limit, lead, hop, span] = setting[..] else { panic!("{setting:?}") };
            let steps = vec![convolution(), if kind == 0 { pool } else { convolution() }];
            let clip = Clip::new(16_000, limit, lead, hop, span, steps).unwrap();
            let [limit, hop, span] = [limit, hop, span].map(u64::from);
            let mut lengths = Lengths { state: settings, limit, hop, span };
            settings += 1;
            let answers: Vec<(u64, [u32; 2])> = (0..4096)
                .map(|index| {
                    let samples = lengths.draw(index);
                    let layout = clip.layout(samples);
                    (samples, ["frames", "rows"].map(|name| layout.get(name).unwrap()))
                })
                .collect();
            for (samples, [frames, rows]) in &answers[..64] {
                assert_eq!(lines.next(), Some(format!("{samples} {frames} {rows}").as_str()));
            }
            let mut hashes = lines.flat_map(|line| line.split(' '));
            for block in answers.chunks(64) {
                let bytes = block.iter().flat_map(|(_, answer)| *answer).flat_map(u32::to_le_bytes);
                let hash = bytes.fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
                    (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
                });
                assert_eq!(hashes.next(), Some(format!("{hash:016x}").as_str()), "{block:?}");
            }
            assert_eq!(hashes.next(), None);
        }
        assert_eq!(settings, 6);
    }

    #[test]
    fn zeros_are_refused() {
        assert!(Clip::new(0, 1, 0, 1, 1, vec![]).is_err());
        assert!(Clip::new(1, 1, 0, 0, 1, vec![]).is_err());
        let step = Step { kernel: 1, stride: 0, padding: 0 };
        assert!(Clip::new(1, 1, 0, 1, 1, vec![step]).is_err());
    }
}
