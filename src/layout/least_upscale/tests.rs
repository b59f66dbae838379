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

    fn policy(&mut self, cells: u64, cell: u64, most: u64) -> LeastUpscale {
        let cells = 1 + self.roll(cells) as u32;
        let cell = 1 + self.roll(cell) as u32;
        let margin = if self.roll(3) == 0 { 0 } else { self.roll(u64::from(cells)) as u32 };
        let left = self.roll(u64::from(margin) + 1) as u32;
        let mut pool = || 1 + self.roll(u64::from(cells).min(4)) as u32;
        let pool = [pool(), pool()];
        let whole = [Whole::None, Whole::First, Whole::LastIfMany][self.roll(3) as usize];
        let most = 1 + self.roll(most) as u32;
        LeastUpscale::new(cells * cell, most, cell, [left, margin - left], pool, whole).unwrap()
    }
}

/// The sizes of `tests/scripts/least_upscale_sweep.py`.
struct Sizes {
    dice: Dice,
    window: u64,
    margin: u64,
    most: u64,
}

impl Sizes {
    fn new(seed: u64, policy: &LeastUpscale) -> Self {
        let (window, margin) = (u64::from(policy.window()), u64::from(policy.margin()));
        Self { dice: Dice(seed), window, margin, most: u64::from(policy.most) }
    }

    fn pair(&mut self, kind: usize) -> (u64, u64) {
        let (dice, window, margin) = (&mut self.dice, self.window, self.margin);
        match kind {
            0 => return (1 + dice.roll(65_535), 1 + dice.roll(65_535)),
            1 => return (1 + dice.roll(margin + 4 * window), 1 + dice.roll(margin + 4 * window)),
            2 => {
                let (one, two) = (1 + dice.roll(16), 1 + dice.roll(16));
                return (1 + dice.roll(1 << one), 1 + dice.roll(1 << two));
            }
            3 => {
                let (one, two) = (dice.roll(self.most + 2), dice.roll(self.most + 2));
                let one = (margin + one * window + dice.roll(3)).saturating_sub(1);
                return (one, (margin + two * window + dice.roll(3)).saturating_sub(1));
            }
            4 => {
                let near = (margin + dice.roll(5)).saturating_sub(2);
                return (near, 1 + dice.roll(margin + 6 * window));
            }
            _ => {}
        }
        let rows = 1 + dice.roll(self.most);
        let cols = 1 + dice.roll(self.most / rows);
        let bits = 1 + dice.roll(13);
        let times = 1 + dice.roll(1 << bits);
        match kind {
            5 => (margin + rows * times, margin + cols * times),
            6 => {
                let other = 1 + dice.roll(self.most);
                (margin + rows * times, margin + other * times)
            }
            _ => (margin + rows * times, margin + rows * times + dice.roll(3) - 1),
        }
    }

    fn draw(&mut self, index: usize) -> ImageSize {
        let (mut one, mut two) = self.pair(index % 8);
        if self.dice.roll(2) == 1 {
            (one, two) = (two, one);
        }
        let side = |side: u64| side.clamp(1, 65_535) as u32;
        ImageSize { width: side(one), height: side(two) }
    }
}

fn size(width: u32, height: u32) -> ImageSize {
    ImageSize { width, height }
}

fn tiles(tile: u32, most: u32) -> LeastUpscale {
    let whole = Whole::LastIfMany;
    LeastUpscale::new(tile, most, tile, [0; 2], [1; 2], whole).unwrap()
}

fn overlapping(most: u32, margins: [u32; 2]) -> LeastUpscale {
    LeastUpscale::new(378, most, 14, margins, [2; 2], Whole::First).unwrap()
}

/// A polynomial by the names of its powers.
fn polynomial(terms: &[(i64, &[&str])]) -> Polynomial {
    let mut all = BTreeMap::new();
    for (factor, names) in terms {
        let power = |name: &&str| names.iter().filter(|other| *other == name).count() as u32;
        all.insert(NAMES.iter().map(power).collect(), *factor);
    }
    Polynomial::new(all)
}

type Value = fn(&Layout) -> i64;

/// Some formulas that rise, some that fall, some that do both, and some that are no polynomials.
fn formulas() -> Vec<(Option<Polynomial>, Value)> {
    fn get(layout: &Layout, name: &str) -> i64 {
        i64::from(layout.get(name).unwrap())
    }
    vec![
        (Some(polynomial(&[(1, &["rows", "cols"]), (1, &["rows"])])), |layout| {
            get(layout, "rows") * (get(layout, "cols") + 1)
        }),
        (Some(polynomial(&[(257, &["views"]), (2, &[])])), |layout| 257 * get(layout, "views") + 2),
        (Some(polynomial(&[(-1, &["tiles"]), (3, &["grid_rows"])])), |layout| {
            3 * get(layout, "grid_rows") - get(layout, "tiles")
        }),
        (None, |layout| get(layout, "width").max(2 * get(layout, "height"))),
        (None, |layout| -get(layout, "rows") - get(layout, "base_rows") * get(layout, "base_cols")),
        (None, |layout| get(layout, "tiles") % 5 + get(layout, "grid_cols") % 3),
        (Some(polynomial(&[(1, &[])])), |_| 1),
    ]
}

fn maximum(policy: &LeastUpscale, value: Value, of: Option<Polynomial>) -> Maximum {
    let value = |layout: &Layout| Ok(value(layout));
    let maximum = policy.maximum(&Formula { value: &value, polynomial: of }).unwrap().unwrap();
    let reached = value(&policy.layout(maximum.witness).unwrap());
    assert_eq!(reached, Ok(maximum.value), "{policy:?} {maximum:?}");
    assert!(maximum.exact && maximum.witness.width.max(maximum.witness.height) <= policy.longest);
    maximum
}

/// Expected grids follow from the rule by hand; totals are those of the reference's processors.
#[test]
fn known_grids() {
    let grid = |policy: &LeastUpscale, width: u32, height: u32| {
        let grid = policy.grid(size(width, height)).unwrap();
        (grid.rows, grid.cols)
    };
    let four = tiles(560, 4);
    assert_eq!(grid(&four, 1, 1), (1, 1));
    assert_eq!(grid(&four, 560, 561), (2, 1));
    assert_eq!(grid(&four, 1120, 1120), (2, 2));
    // three by two are not allowed: 2x2 shrinks to 0.75, 3x1 to 0.5
    assert_eq!(grid(&four, 1121, 1120), (2, 2));
    assert_eq!(grid(&four, 65_535, 1), (1, 4));
    // a larger image is not covered; of 1x1, 1x2 and 2x1 that shrink it alike the least is taken
    assert_eq!(grid(&tiles(560, 2), 1120, 1120), (1, 1));

    let cells = |policy: &LeastUpscale, width: u32, height: u32| {
        let layout = policy.layout(size(width, height)).unwrap();
        let get = |name: &str| layout.get(name).unwrap();
        (
            get("base_rows") * (get("base_cols") + 1) + get("rows") * (get("cols") + 1) + 4,
            get("views"),
        )
    };
    let eight = overlapping(8, [4, 4]);
    for (width, height, tokens) in
        [(224, 224, 424), (756, 756, 766), (378, 1512, 1129), (1512, 378, 1082), (1024, 768, 996)]
    {
        assert_eq!(cells(&eight, width, height).0, tokens, "{width}x{height}");
    }
    // shorter than the margins: one tile and the whole
    assert_eq!(cells(&eight, 60_000, 111), (424, 2));
    assert_eq!(grid(&eight, 60_000, 112), (1, 8));
    assert_eq!(grid(&eight, 112, 112), (1, 1));
}

#[test]
fn published_maxima() {
    let joined = |low: i64| polynomial(&[(1, &["rows", "cols"]), (1, &["rows"]), (low, &[])]);
    let tokens = |policy: &LeastUpscale, low: i64, value| maximum(policy, value, Some(joined(low)));
    let eight = overlapping(8, [4, 4]);
    let found = tokens(&eight, 214, |layout| 214 + rows_of_cells(layout));
    assert_eq!((found.value, found.witness), (1414, size(378, 2240)));
    assert_eq!(eight.grid(found.witness), Ok(Grid { rows: 8, cols: 1 }));
    assert_eq!(
        tokens(&overlapping(8, [0, 0]), 214, |layout| 214 + rows_of_cells(layout)).value,
        1834
    );
    assert_eq!(tokens(&eight, 200, |layout| 200 + rows_of_cells(layout)).value, 1400);
    assert_eq!(
        tokens(&overlapping(24, [4, 4]), 214, |layout| 214 + rows_of_cells(layout)).value,
        3694
    );
    let found = maximum(
        &tiles(512, 12),
        |layout| 2 + 257 * i64::from(layout.get("views").unwrap()),
        Some(polynomial(&[(2, &[]), (257, &["views"])])),
    );
    // of the grids with 12 tiles, 3x4 and 4x3 are squarest, and landscape comes first
    assert_eq!((found.value, found.witness), (3343, size(2048, 1536)));
}

fn rows_of_cells(layout: &Layout) -> i64 {
    let get = |name: &str| i64::from(layout.get(name).unwrap());
    get("rows") * (get("cols") + 1)
}

#[test]
fn arrangements_count_rows_first() {
    // (1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1)
    let four = tiles(10, 4);
    for (id, (rows, cols)) in
        (1..).zip([(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1)])
    {
        assert_eq!(four.arrangement(size(10 * cols, 10 * rows)), Ok(id));
    }
}

#[test]
fn fitting_enlarges_to_a_tile_at_most() {
    let four = tiles(560, 4);
    for (image, fitted) in [
        (size(20, 20), size(560, 560)),
        (size(600, 100), size(600, 100)),
        (size(100, 600), size(100, 600)),
        (size(3000, 1), size(2240, 1)),
        (size(1, 1), size(560, 560)),
        (size(1, 65_535), size(1, 2240)),
        (size(1120, 1120), size(1120, 1120)),
        (size(4000, 3000), size(1120, 840)),
    ] {
        assert_eq!(four.fitted(image), Ok(fitted), "{image}");
    }
}

#[test]
fn pooling_numbers_what_is_left_of_each_tile() {
    // tiles of 3 cells that share one: the left keeps its first two columns, the right its last two
    let policy = LeastUpscale::new(3, 2, 1, [1, 0], [1; 2], Whole::First);
    let places = policy.as_ref().unwrap().pooling(size(5, 3)).unwrap();
    let places: Vec<_> = places.into_iter().map(|place| place.map_or(-1, i64::from)).collect();
    assert_eq!(places[..9], [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(places[9..14], [9, 10, 11, 19, 20]);
    // an odd cell beyond the edge comes last
    let policy = LeastUpscale::new(3, 1, 1, [0, 0], [1, 2], Whole::First);
    let places = policy.unwrap().pooling(size(3, 3)).unwrap();
    assert_eq!(places[..4], [Some(0), Some(1), Some(2), None]);
    assert_eq!(places.len(), 24);
}

#[test]
fn refusals() {
    let new = |tile, most, cell, margins, pool| {
        LeastUpscale::new(tile, most, cell, margins, pool, Whole::None)
    };
    for (tile, most, cell, margins, pool) in [
        (0, 1, 1, [0, 0], [1, 1]),
        (u32::MAX, 1, 1, [0, 0], [1, 1]),
        (28, 0, 14, [0, 0], [1, 1]),
        (28, 1_000_000_000, 14, [0, 0], [1, 1]),
        (28, 1, 0, [0, 0], [1, 1]),
        (29, 1, 14, [0, 0], [1, 1]),
        (28, 1, 14, [1, 1], [1, 1]),
        (28, 1, 14, [4, 4], [1, 1]),
        (28, 1, 14, [u32::MAX, 1], [1, 1]),
        (28, 1, 14, [0, 0], [0, 1]),
        (28, 1, 14, [0, 0], [1, 3]),
    ] {
        assert!(new(tile, most, cell, margins, pool).is_err());
    }
    let policy = new(28, 4, 14, [0, 1], [1, 2]).unwrap();
    assert!(policy.layout(size(0, 5)).is_err() && policy.layout(size(5, 0)).is_err());
}

#[test]
fn equals_the_reference() {
    let table = include_str!("../../../tests/fixtures/layout/least_upscale.txt");
    let mut settings = 0;
    for part in table.split("setting ").skip(1) {
        let mut lines = part.lines();
        let setting: Vec<u32> =
            lines.next().unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
        let single = setting[0] == 32;
        let policy = LeastUpscale::new(
            setting[1],
            setting[2],
            setting[3],
            [setting[4], setting[5]],
            [setting[6], setting[7]],
            Whole::First,
        );
        let policy = policy.unwrap();
        let mut sizes = Sizes::new(settings, &policy);
        settings += 1;
        let answers: Vec<(ImageSize, [u32; 8])> = (0..8192)
            .map(|index| {
                let image = sizes.draw(index);
                let layout = policy.layout(image).unwrap();
                let get = |name: &str| layout.get(name).unwrap();
                let fitted = if single { size(0, 0) } else { policy.fitted(image).unwrap() };
                let answer = [
                    get("grid_rows"),
                    get("grid_cols"),
                    get("rows"),
                    get("cols"),
                    get("width"),
                    get("height"),
                    fitted.width,
                    fitted.height,
                ];
                (image, answer)
            })
            .collect();
        for (image, answer) in &answers[..80] {
            let numbers: Vec<_> =
                [image.width, image.height].iter().chain(answer).map(u32::to_string).collect();
            assert_eq!(Some(numbers.join(" ").as_str()), lines.next(), "{policy:?}");
        }
        let mut hashes = lines.flat_map(|line| line.split(' '));
        for block in answers.chunks(64) {
            let bytes = block.iter().flat_map(|answer| answer.1).flat_map(u32::to_le_bytes);
            let hash = bytes.fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
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
    assert_eq!(settings, 17);
}

/// The three lists and tie rules of the reference, in both floats, spelled out: the module claims that they are one.
#[test]
fn orders_and_ties_and_floats_do_not_matter() {
    let mut dice = Dice(11);
    for round in 0..300 {
        let most = if round % 8 == 0 { 128 } else { 30 };
        let policy = dice.policy(6, if round % 2 == 0 { 5 } else { 3000 }, most);
        let mut sizes = Sizes::new(dice.roll(1 << 40), &policy);
        for index in 0..64 {
            let image = sizes.draw(index);
            let taken = policy.grid(image).unwrap();
            let inner = |side: u32| f64::from(side) - f64::from(policy.margin());
            let single = dice.roll(2) == 0;
            let quotient = |count: u32, side: u32| {
                let tiles = f64::from(count * policy.window());
                if single {
                    f64::from(tiles as f32 / inner(side) as f32)
                } else {
                    tiles / inner(side)
                }
            };
            let scale = |&(rows, cols): &(u32, u32)| {
                quotient(rows, image.height).min(quotient(cols, image.width))
            };
            let most = policy.most;
            let mut list: Vec<(u32, u32)> = (1..=most)
                .flat_map(|rows| (1..=most / rows).map(move |cols| (rows, cols)))
                .collect();
            let covering = list.iter().map(scale).filter(|scale| *scale >= 1.0).reduce(f64::min);
            let best = covering.or_else(|| list.iter().map(scale).reduce(f64::max)).unwrap();
            let tied = |list: &[(u32, u32)]| {
                list.iter()
                    .copied()
                    .filter(|grid| scale(grid).total_cmp(&best).is_eq())
                    .collect::<Vec<_>>()
            };
            // by rows, the first of the least area
            let rows_first = tied(&list).into_iter().min_by_key(|grid| grid.0 * grid.1);
            assert_eq!(rows_first, Some((taken.rows, taken.cols)), "{policy:?} {image}");
            // by area and rows, then by area and columns, the first
            list.sort_by_key(|grid| (grid.0 * grid.1, grid.0));
            assert_eq!(tied(&list).first(), Some(&(taken.rows, taken.cols)), "{policy:?} {image}");
            list.sort_by_key(|grid| (grid.0 * grid.1, grid.1));
            assert_eq!(tied(&list).first(), Some(&(taken.rows, taken.cols)), "{policy:?} {image}");
        }
    }
}

#[test]
fn exact_in_small_worlds() {
    let mut dice = Dice(7);
    for _ in 0..400 {
        let longest = 1 + dice.roll(70) as u32;
        let policy = LeastUpscale { longest, ..dice.policy(6, 4, 20) };
        let all: Vec<Layout> = (1..=longest)
            .flat_map(|width| (1..=longest).map(move |height| size(width, height)))
            .map(|image| policy.layout(image).unwrap())
            .collect();
        for (of, value) in formulas() {
            let most = all.iter().map(value).max().unwrap();
            assert_eq!(maximum(&policy, value, of).value, most, "{policy:?}");
        }
        let mut reached: Vec<_> =
            all.iter().map(|layout| layout.fields().collect::<Vec<_>>()).collect();
        reached.sort();
        reached.dedup();
        let mut samples: Vec<_> =
            policy.samples().iter().map(|layout| layout.fields().collect::<Vec<_>>()).collect();
        samples.sort();
        assert_eq!(reached, samples, "{policy:?}");
    }
}

#[test]
fn nothing_exceeds_the_maximum() {
    let mut dice = Dice(3);
    for round in 0..150 {
        let policy =
            if round % 3 == 0 { dice.policy(30, 2000, 40) } else { dice.policy(40, 30, 128) };
        let maxima: Vec<_> = formulas()
            .into_iter()
            .map(|(of, value)| (value, maximum(&policy, value, of)))
            .collect();
        let mut sizes = Sizes::new(dice.roll(1 << 40), &policy);
        for index in 0..800 {
            let image = sizes.draw(index);
            let layout = policy.layout(image).unwrap();
            for (value, maximum) in &maxima {
                assert!(value(&layout) <= maximum.value, "{policy:?} {image} {maximum:?}");
            }
        }
    }
}

#[test]
fn the_corners_of_the_parameters_do_not_overflow() {
    for tile in [1, LONGEST_SIDE] {
        for most in [1, 2, MOST_TILES] {
            for margin in [0, tile - 1] {
                let policy =
                    LeastUpscale::new(tile, most, 1, [0, margin], [1; 2], Whole::First).unwrap();
                for (of, value) in formulas() {
                    maximum(&policy, value, of);
                }
                assert!(!policy.samples().is_empty() && policy.samples().len() <= 645);
                for side in [1, 2, LONGEST_SIDE] {
                    for image in [size(side, 1), size(1, side), size(side, side)] {
                        assert!(policy.layout(image).is_ok() && policy.fitted(image).is_ok());
                    }
                }
                assert!(policy.layout(size(u32::MAX, 1)).is_err());
            }
        }
    }
    assert_eq!(tiles(1, MOST_TILES).samples().len(), 645);
}
