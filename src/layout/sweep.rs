//! For tests: dice, the sizes of `tests/scripts/sizes.py`, and comparison with tables of the reference's answers.

use super::{Formula, ImageSize, Layout, Maximum, Polynomial, SizePolicy};
use crate::descriptor::expression::ExpressionError;

/// SplitMix64, scaled.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(z ^ (z >> 31)) * u128::from(sides)) >> 64) as u64
    }

    /// Of any magnitude up to so many bits, at least 1.
    pub(crate) fn magnitude(&mut self, bits: u64) -> u64 {
        let bits = 1 + self.roll(bits);
        1 + self.roll(1 << bits)
    }
}

/// The sizes of one setting around a tile.
pub(crate) struct Sizes {
    pub(crate) dice: Dice,
    pub(crate) tile: ImageSize,
}

impl Sizes {
    fn pair(&mut self, kind: usize) -> (u64, u64) {
        let dice = &mut self.dice;
        let (width, height) = (u64::from(self.tile.width), u64::from(self.tile.height));
        match kind {
            0 => (1 + dice.roll(65_535), 1 + dice.roll(65_535)),
            1 => (1 + dice.roll(6 * width), 1 + dice.roll(6 * height)),
            2 => (dice.magnitude(16), dice.magnitude(16)),
            3 => {
                let times = dice.magnitude(13);
                ((1 + dice.roll(12)) * times, (1 + dice.roll(12)) * times)
            }
            4 => {
                let times = dice.magnitude(12);
                let (columns, rows) = (1 + dice.roll(12), 1 + dice.roll(12));
                ((2 * columns + 1) * times, 2 * rows * times)
            }
            5 => {
                let (long, tiles) = (dice.magnitude(16), 1 + dice.roll(16));
                let short = tiles * width * height / (2 * long) + dice.roll(3);
                (long, short.saturating_sub(1))
            }
            6 => {
                let (columns, rows) = (1 + dice.roll(12), 1 + dice.roll(12));
                let one = columns * width + dice.roll(3) - 1;
                (one, rows * height + dice.roll(3) - 1)
            }
            _ => (1 + dice.roll(3), 1 + dice.roll(65_535)),
        }
    }

    pub(crate) fn draw(&mut self, index: usize) -> ImageSize {
        let (mut one, mut two) = self.pair(index % 8);
        if self.dice.roll(2) == 1 {
            (one, two) = (two, one);
        }
        let side = |side: u64| side.clamp(1, 65_535) as u32;
        ImageSize { width: side(one), height: side(two) }
    }
}

/// Compares with a table: `policy` makes from a setting's fields the tile and what answers for a size.
pub(crate) fn assert_table<A>(
    table: &str,
    settings: usize,
    policy: impl Fn(&[&str]) -> (ImageSize, A),
) where
    A: Fn(ImageSize) -> Vec<u32>,
{
    let mut seen = 0;
    for part in table.split("setting ").skip(1) {
        let mut lines = part.lines();
        let setting = lines.next().unwrap();
        let (tile, answer) = policy(&setting.split(' ').collect::<Vec<_>>());
        let mut sizes = Sizes { dice: Dice(seen as u64), tile };
        seen += 1;
        let answers: Vec<_> =
            (0..8192).map(|index| sizes.draw(index)).map(|size| (size, answer(size))).collect();
        for (size, answer) in &answers[..48] {
            let numbers = [size.width, size.height].into_iter().chain(answer.iter().copied());
            let found = numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
            assert_eq!(Some(found.as_str()), lines.next(), "{setting}");
        }
        let mut hashes = lines.flat_map(|line| line.split(' '));
        for block in answers.chunks(64) {
            let bytes = block.iter().flat_map(|(_, answer)| answer).copied();
            let hash =
                bytes.flat_map(u32::to_le_bytes).fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
                    (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
                });
            assert_eq!(Some(format!("{hash:016x}").as_str()), hashes.next(), "{setting} {block:?}");
        }
        assert_eq!(hashes.next(), None);
    }
    assert_eq!(seen, settings);
}

type Value = fn(&Layout) -> i64;

fn get(layout: &Layout, name: &str) -> i64 {
    i64::from(layout.get(name).unwrap())
}

/// Formulas that rise, fall and do neither; the numbers of tiles and rows are known by these names to every tiling.
pub(crate) const FORMULAS: [Value; 7] = [
    |layout| 2 + 256 * get(layout, "tiles"),
    |layout| get(layout, "rows") * (get(layout, "cols") + 1) + 3,
    |layout| get(layout, "cols") * 5 - get(layout, "rows") * 4,
    |layout| (get(layout, "tiles") - 5).abs(),
    |layout| 1000 - get(layout, "tiles"),
    |layout| get(layout, "width") % 7 * 3 + get(layout, "height") % 11 * get(layout, "rows"),
    |_| 9,
];

/// Calls `check` with every formula, the first two also as polynomials: their names are tiles, and rows and cols.
pub(crate) fn for_every_formula(names: &[&str], mut check: impl FnMut(&Formula<'_>)) {
    for (index, formula) in FORMULAS.into_iter().enumerate() {
        let value = move |layout: &Layout| Ok::<_, ExpressionError>(formula(layout));
        check(&Formula { value: &value, polynomial: None });
        let powers = |wanted: &[&str]| {
            names.iter().map(|name| u32::from(wanted.contains(name))).collect::<Vec<_>>()
        };
        let terms = match index {
            0 => vec![(powers(&[]), 2), (powers(&["tiles"]), 256)],
            1 => vec![(powers(&["rows", "cols"]), 1), (powers(&["rows"]), 1), (powers(&[]), 3)],
            2 => vec![(powers(&["cols"]), 5), (powers(&["rows"]), -4)],
            _ => continue,
        };
        let polynomial = Some(Polynomial::new(terms.into_iter().collect()));
        check(&Formula { value: &value, polynomial });
    }
}

/// The value that the witness really has.
pub(crate) fn at_witness(policy: &impl SizePolicy, formula: &Formula<'_>, maximum: Maximum) -> i64 {
    let layout = policy.layout(maximum.witness).unwrap();
    formula.at(&layout).unwrap()
}

/// Tries every image of up to `longest` px a side: nothing exceeds the maximum, and `exact` tells whether it is reached.
///
/// Returns whether all maxima were exact.
pub(crate) fn assert_maxima<P: SizePolicy + std::fmt::Debug>(policy: &P, longest: u32) -> bool {
    let mut layouts: Vec<Layout> = Vec::new();
    for width in 1..=longest {
        for height in 1..=longest {
            if let Ok(layout) = policy.layout(ImageSize { width, height })
                && !layouts.contains(&layout)
            {
                layouts.push(layout);
            }
        }
    }
    let samples = policy.samples();
    let mut exact = true;
    for_every_formula(policy.names(), |formula| {
        let most = layouts.iter().map(|layout| formula.at(layout).unwrap()).max();
        let maximum = policy.maximum(formula).unwrap();
        assert_eq!(maximum.is_some(), most.is_some(), "{policy:?}");
        let (Some(maximum), Some(most)) = (maximum, most) else { return };
        let reached = at_witness(policy, formula, maximum);
        assert!(maximum.witness.width.max(maximum.witness.height) <= longest, "{policy:?}");
        assert!(most <= maximum.value, "{policy:?} {most} {maximum:?}");
        assert_eq!(maximum.exact, most == maximum.value, "{policy:?} {most} {maximum:?}");
        assert_eq!(maximum.exact, reached == maximum.value, "{policy:?} {reached} {maximum:?}");
        exact &= maximum.exact;
    });
    for layout in &layouts {
        assert!(samples.contains(layout), "{policy:?} {layout:?}");
    }
    if exact {
        assert!(samples.iter().all(|layout| layouts.contains(layout)), "{policy:?}");
    }
    exact
}

/// Tries some of all images against the maxima, many of them around the witnesses.
pub(crate) fn assert_bounds<P: SizePolicy + std::fmt::Debug>(
    policy: &P,
    tile: ImageSize,
    seed: u64,
    images: usize,
) {
    for_every_formula(policy.names(), |formula| {
        let Some(maximum) = policy.maximum(formula).unwrap() else {
            let mut sizes = Sizes { dice: Dice(seed), tile };
            for index in 0..images {
                let size = sizes.draw(index);
                assert!(policy.layout(size).is_err(), "{policy:?} {size}");
            }
            return;
        };
        let reached = at_witness(policy, formula, maximum);
        assert!(reached <= maximum.value);
        assert_eq!(maximum.exact, reached == maximum.value, "{policy:?} {maximum:?}");
        let mut sizes = Sizes { dice: Dice(seed), tile };
        for index in 0..images {
            let mut size = sizes.draw(index);
            if index % 3 == 0 {
                let near =
                    |side: u32, by: u64| (side + by as u32).saturating_sub(2).clamp(1, 65_535);
                let by = (sizes.dice.roll(5), sizes.dice.roll(5));
                size.width = near(maximum.witness.width, by.0);
                size.height = near(maximum.witness.height, by.1);
            }
            if let Ok(layout) = policy.layout(size) {
                let value = formula.at(&layout).unwrap();
                assert!(value <= maximum.value, "{policy:?} {size} {value} {maximum:?}");
            }
        }
    });
}
