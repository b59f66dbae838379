//! Sweeps against the reference, exhaustive small worlds, and samples of the large one.

use std::collections::BTreeMap;

use super::*;
use crate::layout::Polynomial;

/// SplitMix64, scaled.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(z ^ (z >> 31)) * u128::from(sides)) >> 64) as u64
    }
}

/// The sizes of `tests/scripts/patch_budget_sweep.py`.
struct Sizes {
    dice: Dice,
    unit: u64,
    most: u64,
}

impl Sizes {
    fn new(seed: u64, policy: &PatchBudget) -> Self {
        Self { dice: Dice(seed), unit: u64::from(policy.unit()), most: u64::from(policy.most) }
    }

    fn pair(&mut self, kind: usize) -> (u64, u64) {
        let dice = &mut self.dice;
        match kind {
            0 => return (1 + dice.roll(65_535), 1 + dice.roll(65_535)),
            1 => return (1 + dice.roll(6 * self.unit), 1 + dice.roll(6 * self.unit)),
            2 => {
                let (one, two) = (1 + dice.roll(16), 1 + dice.roll(16));
                return (1 + dice.roll(1 << one), 1 + dice.roll(1 << two));
            }
            3 => {
                let short = 1 + dice.roll(65_535 / self.most);
                return (short, (self.most * short + dice.roll(5)).saturating_sub(2));
            }
            _ => {}
        }
        let rows = 1 + dice.roll(64);
        let cols = (self.most / rows).max(1);
        let bits = 1 + dice.roll(15);
        let times = 1 + dice.roll(1 << bits);
        match kind {
            4 => (rows * times, cols * times),
            5 => (rows * times, cols * times + dice.roll(3) - 1),
            6 => (times, times + dice.roll(3) - 1),
            _ => (rows * rows * times, self.most * times),
        }
    }

    fn draw(&mut self, index: usize) -> ImageSize {
        let (mut one, mut two) = self.pair(index % 8);
        if self.dice.roll(2) == 1 {
            (one, two) = (two, one);
        }
        let side = |side: u64| side.clamp(1, 65_535) as u32;
        size(side(one), side(two))
    }
}

fn size(width: u32, height: u32) -> ImageSize {
    ImageSize { width, height }
}

fn budget(most: u32) -> PatchBudget {
    PatchBudget::new(16, 3, most).unwrap()
}

fn rows(layout: &Layout) -> i64 {
    i64::from(layout.get("rows").unwrap())
}

fn cols(layout: &Layout) -> i64 {
    i64::from(layout.get("cols").unwrap())
}

fn polynomial(terms: &[([u32; 4], i64)]) -> Polynomial {
    let terms = terms.iter().map(|(powers, factor)| (powers.to_vec(), *factor));
    Polynomial::new(terms.collect::<BTreeMap<_, _>>())
}

type Value = fn(&Layout) -> i64;

/// Some formulas that rise, some that fall, some that do both, and some that are no polynomials.
fn formulas() -> Vec<(Option<Polynomial>, Value)> {
    vec![
        (Some(polynomial(&[([1, 1, 0, 0], 1), ([0; 4], 2)])), |layout| {
            rows(layout) * cols(layout) + 2
        }),
        (Some(polynomial(&[([1, 1, 0, 0], 1), ([1, 0, 0, 0], 1)])), |layout| {
            rows(layout) * (cols(layout) + 1)
        }),
        (Some(polynomial(&[([2, 0, 0, 0], 3), ([0, 1, 0, 0], 50)])), |layout| {
            3 * rows(layout) * rows(layout) + 50 * cols(layout)
        }),
        (Some(polynomial(&[([1, 1, 0, 0], -1)])), |layout| -rows(layout) * cols(layout)),
        (Some(polynomial(&[([1, 1, 0, 0], 1), ([2, 0, 0, 0], -1)])), |layout| {
            rows(layout) * (cols(layout) - rows(layout))
        }),
        (None, |layout| -(rows(layout) - cols(layout)).abs()),
        (None, |layout| (7 * rows(layout) + 3 * cols(layout)) % 11),
        (None, |layout| rows(layout).min(cols(layout))),
    ]
}

fn maximum(policy: &PatchBudget, value: Value, of: Option<Polynomial>) -> Maximum {
    let value = |layout: &Layout| Ok(value(layout));
    let maximum = policy.maximum(&Formula { value: &value, polynomial: of }).unwrap().unwrap();
    let reached = value(&policy.layout(maximum.witness).unwrap());
    assert_eq!(reached, Ok(maximum.value), "{policy:?} {maximum:?}");
    assert!(maximum.exact && maximum.witness.width.max(maximum.witness.height) <= policy.longest);
    maximum
}

/// The expected sizes follow from √(budget · ratio), floored.
#[test]
fn known_sizes() {
    let usual = budget(280);
    for (image, resized) in [
        (size(1, 1), size(768, 768)),           // √280 is 16.7
        (size(60_000, 60_000), size(768, 768)), // shrunk to the same
        (size(640, 480), size(912, 672)),       // 19.3 and 14.5
        (size(281, 1), size(13_440, 48)),       // the short side vanishes
        (size(65_535, 1), size(13_440, 48)),
        (size(1, 65_535), size(48, 13_440)),
        (size(279, 1), size(13_392, 48)), // 279.5 and 1.002
    ] {
        assert_eq!(usual.resized(image), Ok(resized), "{image}");
    }
    assert_eq!(usual.padded_rows(), 2520);
}

#[test]
fn every_budget_is_reached_exactly() {
    for most in (1..=MOST_CELLS).step_by(7).chain([70, 140, 280, 560, 1120]) {
        let of = Some(polynomial(&[([1, 1, 0, 0], 1)]));
        let found = maximum(&budget(most), |layout| rows(layout) * cols(layout), of);
        assert_eq!(found.value, i64::from(most));
    }
    // of the factorisations of 280 that doubles leave whole, 14 by 20 is squarest
    let of = Some(polynomial(&[([1, 1, 0, 0], 1)]));
    let found = maximum(&budget(280), |layout| rows(layout) * cols(layout), of);
    let layout = budget(280).layout(found.witness).unwrap();
    assert_eq!((rows(&layout), cols(&layout)), (14, 20));
    assert_eq!(found.witness.width * 7, found.witness.height * 10);
}

#[test]
fn a_tie_may_fall_either_way() {
    // a square image of a square budget: most sizes give 16 by 16, some lose a row and a column
    let square = PatchBudget::new(14, 2, 256).unwrap();
    let grids: Vec<_> = (1..=2000).map(|side| square.grid(size(side, side)).unwrap()).collect();
    assert!(grids.iter().all(|grid| grid.rows == grid.cols && (15..=16).contains(&grid.rows)));
    assert!(grids.iter().any(|grid| grid.rows == 15) && grids.iter().any(|grid| grid.rows == 16));
    // with one cell there is nothing to lose
    let one = budget(1);
    let refused = (1..=2000).filter(|side| one.layout(size(*side, *side)).is_err()).count();
    assert!(refused > 0 && refused < 2000);
    assert!(one.layout(size(3, 2)).is_ok());
}

#[test]
fn refusals() {
    for (patch, pool, most) in [
        (0, 3, 280),
        (16, 0, 280),
        (16, 3, 0),
        (16, 3, 1_000_000_000),
        (u32::MAX, u32::MAX, 1),
        (1 << 17, 2, 1),
    ] {
        assert!(PatchBudget::new(patch, pool, most).is_err());
    }
    let usual = budget(280);
    assert!(usual.layout(size(0, 5)).is_err() && usual.layout(size(5, 0)).is_err());
    assert!(usual.layout(size(u32::MAX, u32::MAX)).is_err());
    assert!(PatchBudget::new(1 << 17, 1, MOST_CELLS).unwrap().resized(size(1, 65_535)).is_ok());
}

#[test]
fn equals_the_reference() {
    let table = include_str!("../../../tests/fixtures/layout/patch_budget.txt");
    let mut settings = 0;
    for part in table.split("setting ").skip(1) {
        let mut lines = part.lines();
        let setting: Vec<u32> =
            lines.next().unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
        let policy = PatchBudget::new(setting[0], setting[1], setting[2]).unwrap();
        let mut sizes = Sizes::new(settings, &policy);
        settings += 1;
        let answers: Vec<(ImageSize, ImageSize)> = (0..8192)
            .map(|index| {
                let image = sizes.draw(index);
                (image, policy.resized(image).unwrap_or(size(0, 0)))
            })
            .collect();
        for (image, answer) in &answers[..96] {
            let found =
                format!("{} {} {} {}", image.width, image.height, answer.width, answer.height);
            assert_eq!(Some(found.as_str()), lines.next(), "{policy:?}");
        }
        let mut hashes = lines.flat_map(|line| line.split(' '));
        for block in answers.chunks(64) {
            let sides = block.iter().flat_map(|(_, answer)| [answer.width, answer.height]);
            let hash =
                sides.flat_map(u32::to_le_bytes).fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
                    (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
                });
            assert_eq!(
                Some(format!("{hash:016x}").as_str()),
                hashes.next(),
                "{policy:?} {block:?}"
            );
        }
        assert_eq!(hashes.next(), None);
    }
    assert_eq!(settings, 12);
}

fn grids_of(layouts: impl Iterator<Item = Layout>) -> Vec<(i64, i64)> {
    let mut grids: Vec<_> = layouts.map(|layout| (rows(&layout), cols(&layout))).collect();
    grids.sort_unstable();
    grids.dedup();
    grids
}

#[test]
fn exact_in_small_worlds() {
    let mut dice = Dice(5);
    for round in 0..140 {
        let most = if round < 60 { round + 1 } else { 1 + dice.roll(40) as u32 };
        let longest = 2 * most + 2 + dice.roll(60) as u32;
        let (patch, pool) = (1 + dice.roll(20) as u32, 1 + dice.roll(4) as u32);
        let policy = PatchBudget { longest, ..PatchBudget::new(patch, pool, most).unwrap() };
        let all: Vec<Layout> = (1..=longest)
            .flat_map(|width| (1..=longest).map(move |height| size(width, height)))
            .filter_map(|image| policy.layout(image).ok())
            .collect();
        for (of, value) in formulas() {
            let most = all.iter().map(value).max().unwrap();
            assert_eq!(maximum(&policy, value, of).value, most, "{policy:?}");
        }
        // the domain is known grid by grid
        assert_eq!(grids_of(all.into_iter()), grids_of(policy.samples().into_iter()), "{policy:?}");
    }
}

#[test]
fn nothing_exceeds_the_maximum() {
    let mut dice = Dice(3);
    for round in 0..60 {
        let most = if round % 2 == 0 { 1 + dice.roll(300) } else { 1 + dice.roll(1500) };
        let policy =
            PatchBudget::new(1 + dice.roll(30) as u32, 1 + dice.roll(5) as u32, most as u32)
                .unwrap();
        let maxima: Vec<_> = formulas()
            .into_iter()
            .map(|(of, value)| (value, maximum(&policy, value, of)))
            .collect();
        let mut sizes = Sizes::new(dice.roll(1 << 40), &policy);
        for index in 0..1500 {
            let image = sizes.draw(index);
            let Ok(layout) = policy.layout(image) else { continue };
            for (value, maximum) in &maxima {
                assert!(value(&layout) <= maximum.value, "{policy:?} {image} {maximum:?}");
            }
        }
    }
}

/// Each grid of the domain, for the published budgets and some that are hard, is that of the image given with it.
#[test]
fn witnesses_are_real() {
    for most in [1, 2, 3, 4, 70, 140, 255, 256, 280, 289, 560, 720, 1120, 2520, 4095, 4096] {
        let policy = budget(most);
        for (grid, image) in policy.grids(false) {
            assert_eq!(policy.grid(image), Ok(grid), "{most} {image}");
            assert!(image.height <= image.width && image.width <= LONGEST_SIDE);
        }
    }
}

#[test]
fn fractions_between() {
    for (low, high, simplest) in [
        ((1, 3), (1, 2), (2, 5)),
        ((1, 1), (3, 2), (4, 3)),
        ((3, 7), (1, 2), (4, 9)),
        ((314, 100), (315, 100), (22, 7)),
        ((5, 1), (9, 1), (6, 1)),
        ((0, 1), (1, 7), (1, 8)),
    ] {
        assert_eq!(simplest_between(low, high), simplest);
    }
}
