//! Sweeps against the reference, exhaustive small worlds, and samples of the large one.

use super::*;
use crate::layout::Polynomial;

/// LLaVA-NeXT 1.6.
const FIVE: [(u32, u32); 5] = [(336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008)];

/// Granite Vision 3.2.
fn wide_list() -> Pinpoints {
    let mut list = Vec::new();
    for (rows, cols) in
        [(1, 10), (2, 5), (3, 3), (4, 2), (5, 2), (6, 1), (7, 1), (8, 1), (9, 1), (10, 1)]
    {
        list.extend((1..=cols).map(|cols| (384 * rows, 384 * cols)));
    }
    Pinpoints::new(&list, 384, 14, true, 0).unwrap()
}

/// LLaVA-OneVision with so many tiles at most.
fn onevision(shrink_over: u32) -> Pinpoints {
    let list: Vec<_> =
        (1..=6).flat_map(|rows| (1..=6).map(move |cols| (384 * rows, 384 * cols))).collect();
    Pinpoints::new(&list, 384, 14, true, shrink_over).unwrap()
}

/// SplitMix64, scaled.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(z ^ (z >> 31)) * u128::from(sides)) >> 64) as u64
    }

    /// Pinpoints of up to so many tiles a side, some of them odd or repeated.
    fn policy(&mut self, tiles: u64, largest_tile: u64) -> Pinpoints {
        let tile = 1 + self.roll(largest_tile);
        let cell = match self.roll(4) {
            0 => 1,
            1 => tile,
            _ => 1 + self.roll(tile),
        };
        let odd = self.roll(3) == 0;
        let count = 1 + self.roll(9);
        let mut list: Vec<(u32, u32)> = Vec::new();
        for _ in 0..count {
            let mut side = || {
                let side = tile * (1 + self.roll(tiles));
                let side = if odd && self.roll(3) == 0 { side + self.roll(tile) } else { side };
                side as u32
            };
            let size = (side(), side());
            list.push(size);
        }
        if self.roll(4) == 0 {
            list.push(list[self.roll(count) as usize]);
        }
        let last = list.len() as u64;
        list.insert(
            self.roll(last) as usize,
            (tile as u32, tile as u32 * (1 + self.roll(tiles)) as u32),
        );
        let shrink_over = if self.roll(2) == 0 { 0 } else { 1 + self.roll(6) };
        Pinpoints::new(&list, tile as u32, cell as u32, self.roll(6) > 0, shrink_over as u32)
            .unwrap()
    }
}

fn polynomial(terms: &[(i64, &[&str])]) -> Polynomial {
    let powers = |names: &[&str]| {
        NAMES.map(|name| names.iter().filter(|other| **other == name).count() as u32).to_vec()
    };
    Polynomial::new(terms.iter().map(|(factor, names)| (powers(names), *factor)).collect())
}

/// Rising, falling and mixed.
fn polynomials() -> Vec<Polynomial> {
    vec![
        polynomial(&[(1, &["base_rows", "base_cols"]), (1, &["rows", "cols"]), (1, &["rows"])]),
        polynomial(&[(1, &["tiles"]), (3, &["cols"])]),
        polynomial(&[(7, &[])]),
        polynomial(&[(3, &["rows", "cols"]), (-1, &["rows", "rows"]), (2, &["cols"])]),
        polynomial(&[(1000, &[]), (-1, &["rows", "cols"]), (-1, &["width"])]),
        polynomial(&[(2, &["rows", "tiles"]), (-3, &["cols"]), (1, &["height"])]),
        polynomial(&[(40, &["cols"]), (-2, &["cols", "cols"]), (-1, &["rows", "rows"])]),
    ]
}

fn with_formulas(mut check: impl FnMut(&Formula<'_>)) {
    for polynomial in polynomials() {
        let value = |layout: &Layout| Ok(polynomial.at(layout).unwrap());
        check(&Formula { value: &value, polynomial: Some(polynomial.clone()) });
    }
    let value = |layout: &Layout| {
        let of = |name| i64::from(layout.get(name).unwrap());
        Ok((of("rows") * 7 + of("cols") * of("tiles") * 5) % 13)
    };
    check(&Formula { value: &value, polynomial: None });
}

fn features(policy: &Pinpoints, formula: &Polynomial) -> Maximum {
    let value = |layout: &Layout| Ok(formula.at(layout).unwrap());
    let formula = Formula { value: &value, polynomial: Some(formula.clone()) };
    let maximum = policy.maximum(&formula).unwrap().unwrap();
    assert_attained(policy, &formula, maximum);
    maximum
}

fn assert_attained(policy: &Pinpoints, formula: &Formula<'_>, maximum: Maximum) {
    let Ok(layout) = policy.layout(maximum.witness) else {
        // then no image is known to be accepted
        assert!(!maximum.exact, "{policy:?} {maximum:?}");
        return;
    };
    let value = formula.at(&layout).unwrap();
    assert!(value <= maximum.value, "{policy:?} {maximum:?}");
    assert_eq!(maximum.exact, value == maximum.value, "{policy:?} {maximum:?}");
    let ImageSize { width, height } = maximum.witness;
    assert!(width.max(height) <= policy.longest && width.min(height) > 0);
}

/// What the families' strips cost.
fn count() -> Polynomial {
    polynomial(&[(1, &["base_rows", "base_cols"]), (1, &["rows", "cols"]), (1, &["rows"])])
}

#[test]
fn known_counts() {
    let five = Pinpoints::new(&FIVE, 336, 14, true, 0).unwrap();
    let cost = |policy: &Pinpoints, height, width| {
        count().at(&policy.layout(ImageSize { width, height }).unwrap()).unwrap()
    };
    for (height, width, features) in [
        (1008, 336, 2376),
        (336, 1008, 2328),
        (184, 161, 1128),
        (161, 184, 1272),
        (840, 700, 2544),
        (700, 840, 2536),
        (400, 900, 1896),
        (480, 640, 2340),
        (20, 20, 1176),
        (1, 4000, 576),
        (110, 352, 1360),
    ] {
        assert_eq!(cost(&five, height, width), features, "{height}x{width}");
    }
    assert_eq!(cost(&wide_list(), 500, 1000), 4009);
    assert_eq!(cost(&wide_list(), 3840, 384), 8289);
    assert_eq!(cost(&onevision(9), 1153, 944), 8765);
    assert_eq!(cost(&onevision(9), 944, 1153), 8748);
    let grid = five.feature_grid(ImageSize { width: 4000, height: 1 }).unwrap();
    assert_eq!((grid.kept_rows, grid.kept_cols, grid.top), (0, 48, 12));
    // none is of use to either, so both get the smallest canvas that comes first, 672 wide; rows of no columns remain
    let layout = five.layout(ImageSize { width: 1, height: 4000 }).unwrap();
    assert_eq!((layout.get("rows"), layout.get("cols")), (Some(24), Some(0)));
}

#[test]
fn known_maxima() {
    let five = Pinpoints::new(&FIVE, 336, 14, true, 0).unwrap();
    let of = |policy: &Pinpoints| features(policy, &count());
    let exact =
        |value, width, height| Maximum { value, witness: ImageSize { width, height }, exact: true };
    assert_eq!(of(&five), exact(2928, 672, 672));
    assert_eq!(of(&wide_list()), exact(8289, 384, 3840));
    assert_eq!(of(&onevision(9)), exact(8765, 1152, 1380));
    // never shrunk: six by six tiles
    assert_eq!(of(&onevision(0)), exact(729 + 162 * 163, 2304, 2304));
    let turned = polynomial(&[(1, &["rows", "cols"]), (1, &["cols"])]);
    assert_eq!(features(&onevision(9), &turned).value, 8765 - 729);
}

#[test]
fn geometry_of_one_image() {
    let five = Pinpoints::new(&FIVE, 336, 14, true, 0).unwrap();
    let size = ImageSize { width: 1000, height: 333 };
    assert_eq!(five.canvas(size), Ok(ImageSize { width: 1008, height: 336 }));
    assert_eq!(five.fitted(size), Ok(ImageSize { width: 1008, height: 336 }));
    let size = ImageSize { width: 35, height: 500 };
    assert_eq!(five.canvas(size), Ok(ImageSize { width: 336, height: 672 }));
    // 47.04 px, rounded up; the odd pixel is on the right
    assert_eq!(five.fitted(size), Ok(ImageSize { width: 48, height: 672 }));
    assert_eq!(five.borders(size), Ok([144, 0, 144, 0]));
    let layout = five.layout(size).unwrap();
    assert_eq!(layout.get("tiles"), Some(3));
    assert_eq!(layout.get("grid_rows"), Some(2));
}

#[test]
fn refusals() {
    for (list, tile, cell, shrink_over) in [
        (&[][..], 336, 14, 0),
        (&[(336, 0)], 336, 14, 0),
        (&[(336, 336)], 0, 14, 0),
        (&[(336, 336)], 336, 0, 0),
        (&[(336, 336)], 336, 337, 0),
        (&[(336, 65_856)], 336, 14, 0),
        (&[(335, 336), (336, 335)], 336, 14, 0),
        (&[(65_535, 65_535)], 65_535, 1, u32::MAX),
    ] {
        assert!(Pinpoints::new(list, tile, cell, true, shrink_over).is_err());
    }
    assert!(Pinpoints::new(&vec![(336, 336); 5000], 336, 14, true, 0).is_err());
    let mixed = Pinpoints::new(&[(12, 16), (8, 8)], 8, 2, true, 0).unwrap();
    let layout = |width, height| mixed.layout(ImageSize { width, height });
    assert!(layout(8, 8).is_ok());
    assert!(layout(16, 12).unwrap_err().contains("16x12"));
    assert!(layout(0, 1).is_err());
    let largest = ImageSize { width: u32::MAX, height: u32::MAX };
    assert!(onevision(9).layout(largest).is_ok());
    // four rows of 80 columns against one tile of 4x4 shrink to none, one row of padding less to none as well
    let thin = Pinpoints::new(&[(8, 160)], 8, 2, true, 1).unwrap();
    assert!(thin.layout(ImageSize { width: 160, height: 8 }).unwrap_err().contains("0x17"));
    assert_eq!(thin.layout(ImageSize { width: 100, height: 1 }).unwrap().get("rows"), Some(0));
    // 4x4 is the largest grid that is not shrunk
    let maximum = features(&thin, &count());
    assert_eq!((maximum.value, maximum.exact), (16 + 4 * 5, true));
    // all refused
    let thin = Pinpoints::new(&[(8, 160)], 8, 2, false, 1).unwrap();
    with_formulas(|formula| assert_eq!(thin.maximum(formula), Ok(None)));
}

#[test]
fn rounding_as_python_does() {
    for (value, floor) in [
        (0.0, 0.0),
        (0.999_999_9, 0.0),
        (0.999_999_949_999_999, 0.0),
        (0.999_999_950_000_001, 1.0),
        (3.999_999_999_999_999_6, 4.0),
        (4.0, 4.0),
        (65_534.999_999_9, 65_534.0),
        (65_534.999_999_99, 65_535.0),
    ] {
        assert_eq!(floor_after_7_digits(value).to_bits(), f64::to_bits(floor), "{value}");
    }
    // 1 // 0.1 is 9 since the double is a little more than a tenth, though 1 / 0.1 rounds to 10
    assert_eq!(floor_quotient(1.0, 0.1).to_bits(), 9.0_f64.to_bits());
    assert_eq!(floor_quotient(7.0, 2.0).to_bits(), 3.0_f64.to_bits());
    assert_eq!(floor_quotient(81.0, 1.1).to_bits(), 73.0_f64.to_bits());
}

/// The sizes of `tests/scripts/pinpoints_sweep.py`.
fn draw(dice: &mut Dice, policy: &Pinpoints, index: usize) -> ImageSize {
    let pinpoint = policy.list[dice.roll(policy.list.len() as u64) as usize];
    let (height, width) = (u64::from(pinpoint.height), u64::from(pinpoint.width));
    let tile = u64::from(policy.tile);
    let (one, two) = match index % 8 {
        0 => (1 + dice.roll(65_535), 1 + dice.roll(65_535)),
        1 => (1 + dice.roll(4 * tile), 1 + dice.roll(4 * tile)),
        2 => {
            let (bits, other) = (1 + dice.roll(16), 1 + dice.roll(16));
            (1 + dice.roll(1 << bits), 1 + dice.roll(1 << other))
        }
        // the pinpoint itself, or a pixel off
        3 => ((height + dice.roll(3)).saturating_sub(1), (width + dice.roll(3)).saturating_sub(1)),
        // its ratio
        4 => {
            let times = 1 + dice.roll(64);
            (height * times / 8, width * times / 8)
        }
        // a pixel off its ratio
        5 => {
            let times = 1 + dice.roll(16);
            (
                (height * times + dice.roll(3)).saturating_sub(1),
                (width * times + dice.roll(3)).saturating_sub(1),
            )
        }
        // a whole number of cells on the canvas, up to a pixel
        6 => {
            let rows = dice.roll(height * u64::from(policy.cells) / tile + 1);
            let times = 1 + dice.roll(8);
            (
                (rows * tile * times / u64::from(policy.cells) + dice.roll(3)).saturating_sub(1),
                width * times,
            )
        }
        // between two pinpoints
        _ => {
            let other = policy.list[dice.roll(policy.list.len() as u64) as usize];
            (height.midpoint(other.height.into()), width.midpoint(other.width.into()))
        }
    };
    let turned = dice.roll(2) == 1;
    let side = |side: u64| side.clamp(1, 65_535) as u32;
    if turned {
        ImageSize { width: side(one), height: side(two) }
    } else {
        ImageSize { width: side(two), height: side(one) }
    }
}

#[test]
fn equals_the_reference() {
    let table = include_str!("../../../tests/fixtures/layout/pinpoints.txt");
    let mut settings = 0;
    for part in table.split("setting ").skip(1) {
        let mut lines = part.lines();
        let setting: Vec<u32> =
            lines.next().unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
        let list: Vec<_> = setting[4..].chunks(2).map(|pair| (pair[0], pair[1])).collect();
        let policy =
            Pinpoints::new(&list, setting[0], setting[1], setting[2] == 1, setting[3]).unwrap();
        let mut dice = Dice(settings);
        settings += 1;
        let answers = (0..8192).map(|index| {
            let size = draw(&mut dice, &policy, index);
            let answer = match policy.feature_grid(size) {
                Ok(grid) => {
                    let canvas = policy.canvas(size).unwrap();
                    [canvas.width, canvas.height, grid.rows, grid.cols]
                }
                Err(_) => [0; 4],
            };
            (size, answer)
        });
        let answers: Vec<_> = answers.collect();
        for (size, answer) in &answers[..64] {
            let [width, height, rows, cols] = answer;
            let found = format!("{} {} {width} {height} {rows} {cols}", size.width, size.height);
            assert_eq!(Some(found.as_str()), lines.next(), "{policy:?}");
        }
        let mut hashes = lines.flat_map(|line| line.split(' '));
        for block in answers.chunks(64) {
            let numbers = block.iter().flat_map(|(_, answer)| *answer);
            let hash =
                numbers.flat_map(u32::to_le_bytes).fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
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
    assert_eq!(settings, 14);
}

/// Exhaustive: the maxima are those over all images. Returns how many were exact, and how many not.
fn assert_exact(policy: &Pinpoints) -> [u32; 2] {
    let mut layouts = Vec::new();
    for height in 1..=policy.longest {
        for width in 1..=policy.longest {
            if let Ok(layout) = policy.layout(ImageSize { width, height })
                && layouts.last() != Some(&layout)
            {
                layouts.push(layout);
            }
        }
    }
    for sample in policy.samples() {
        assert!(layouts.contains(&sample), "{policy:?} {sample:?}");
    }
    let mut counts = [0; 2];
    with_formulas(|formula| {
        let most = layouts.iter().map(|layout| formula.at(layout).unwrap()).max();
        let maximum = policy.maximum(formula).unwrap();
        let Some(maximum) = maximum else {
            assert_eq!(most, None, "{policy:?}");
            return;
        };
        assert_attained(policy, formula, maximum);
        counts[usize::from(!maximum.exact)] += 1;
        assert!(most <= Some(maximum.value), "{policy:?} {maximum:?} {most:?}");
        assert!(!maximum.exact || most == Some(maximum.value), "{policy:?} {maximum:?} {most:?}");
    });
    counts
}

#[test]
fn exact_in_small_worlds() {
    let mut dice = Dice(11);
    let mut counts = [0; 2];
    for _ in 0..700 {
        let policy = dice.policy(4, 6);
        let sides = policy.list.iter().map(|size| size.width.max(size.height));
        let longest = sides.max().unwrap() + dice.roll(40) as u32;
        let [exact, bounds] = assert_exact(&Pinpoints { longest, ..policy });
        counts = [counts[0] + exact, counts[1] + bounds];
    }
    // a bound is only given where one-pixel cells or odd pinpoints leave a grid unclear
    assert!(counts[1] * 10 < counts[0], "{counts:?}");
}

#[test]
fn whole_tiles_of_larger_cells_leave_nothing_unclear() {
    let mut dice = Dice(12);
    for _ in 0..300 {
        let policy = dice.policy(4, 8);
        let tile = policy.tile;
        let whole =
            |size: &&ImageSize| size.width.is_multiple_of(tile) && size.height.is_multiple_of(tile);
        let list: Vec<_> = policy.list.iter().filter(whole).copied().collect();
        if policy.cells == tile {
            continue;
        }
        let sides = list.iter().map(|size| size.width.max(size.height));
        let longest = sides.max().unwrap() + dice.roll(20) as u32;
        assert_eq!(assert_exact(&Pinpoints { list, longest, ..policy })[1], 0);
    }
}

#[test]
fn nothing_exceeds_the_maximum() {
    let mut dice = Dice(5);
    for round in 0..150 {
        let tiles = 1 + dice.roll(30);
        let policy = dice.policy(tiles, if round % 3 == 0 { 400 } else { 60 });
        let layouts: Vec<_> = (0..800)
            .filter_map(|index| {
                let size = draw(&mut dice, &policy, index);
                Some((size, policy.layout(size).ok()?))
            })
            .collect();
        with_formulas(|formula| {
            let Some(maximum) = policy.maximum(formula).unwrap() else {
                assert!(layouts.is_empty());
                return;
            };
            assert_attained(&policy, formula, maximum);
            for (size, layout) in &layouts {
                let value = formula.at(layout).unwrap();
                assert!(value <= maximum.value, "{policy:?} {size} {maximum:?} {layout:?}");
            }
            assert_eq!(policy.maximum(formula), Ok(Some(maximum)));
        });
    }
}

#[test]
fn absurd_lists() {
    // one-pixel cells on canvases up to the longest side: some 10^7 grids
    let side = |index: u32| 65_535 - 97 * index;
    let list: Vec<_> =
        (0..300).map(|index| (side(index * 7 % 300), side(index * 11 % 300))).collect();
    for shrink_over in [0, 1, 5_000_000] {
        let policy = Pinpoints::new(&list, 1, 1, true, shrink_over).unwrap();
        for polynomial in polynomials() {
            features(&policy, &polynomial);
        }
        let value = |_: &Layout| Ok(0);
        let everywhere = policy.maximum(&Formula { value: &value, polynomial: None });
        // only shrunk grids without a row or column are left out
        assert_eq!(everywhere.is_err(), shrink_over != 1);
        assert!(policy.samples().len() < 4000);
    }
}

#[test]
fn an_edge_that_a_larger_image_reaches() {
    // one-pixel cells: 4 rows of the canvas 8x8 are hidden by the canvas 4x8, but a twice as wide image of 9 rows is
    // 4.5 px high on the canvas
    let policy = Pinpoints::new(&[(4, 8), (8, 8)], 1, 1, true, 0).unwrap();
    let layout = policy.layout(ImageSize { width: 16, height: 9 }).unwrap();
    assert_eq!((layout.get("height"), layout.get("rows")), (Some(8), Some(4)));
    let least = polynomial(&[(-1, &["rows"]), (100, &["height"])]);
    assert_eq!(features(&policy, &least).value, 796);
}

#[test]
fn budget_kinds() {
    let of = |list: &[(u32, u32)], crop| Pinpoints::new(list, 8, 2, crop, 0).unwrap().budget_kind();
    assert_eq!(of(&[(8, 16), (16, 8)], true), "dynamic");
    assert_eq!(of(&[(8, 16), (16, 8)], false), "per tile");
    assert_eq!(of(&[(8, 16), (8, 16)], false), "fixed");
}
