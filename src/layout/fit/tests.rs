//! Sweeps against the reference, exhaustive small worlds, and samples of the large one.

use super::*;
use crate::layout::Polynomial;

fn fit(longest: u32, cell: u32) -> Fit {
    Fit::new(longest, longest, cell).unwrap()
}

fn size(width: u32, height: u32) -> ImageSize {
    ImageSize { width, height }
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

    /// Of any magnitude up to so many bits, at least 1.
    fn magnitude(&mut self, bits: u64) -> u32 {
        let bits = 1 + self.roll(bits);
        1 + self.roll(1 << bits) as u32
    }
}

fn polynomial(terms: &[(i64, [u32; 4])]) -> Polynomial {
    Polynomial::new(terms.iter().map(|(factor, powers)| (powers.to_vec(), *factor)).collect())
}

/// Rising, falling and mixed.
fn polynomials() -> Vec<Polynomial> {
    vec![
        polynomial(&[(1, [1, 1, 0, 0]), (1, [1, 0, 0, 0])]),
        polynomial(&[(5, [0; 4])]),
        polynomial(&[(1, [0, 1, 0, 0])]),
        polynomial(&[(900, [0; 4]), (-1, [1, 1, 0, 0])]),
        polynomial(&[(2, [1, 1, 0, 0]), (-1, [2, 0, 0, 0]), (3, [0, 1, 0, 0])]),
        polynomial(&[(9, [1, 0, 0, 0]), (-1, [2, 0, 0, 0]), (-1, [0, 0, 1, 0])]),
        polynomial(&[(8, [1, 0, 0, 0]), (8, [0, 1, 0, 0]), (-1, [1, 1, 0, 0])]),
    ]
}

fn with_formulas(mut check: impl FnMut(&Formula<'_>)) {
    for polynomial in polynomials() {
        let value = |layout: &Layout| Ok(polynomial.at(layout).unwrap());
        check(&Formula { value: &value, polynomial: Some(polynomial.clone()) });
    }
}

/// Something that is no polynomial.
#[allow(clippy::unnecessary_wraps)] // the type of a formula's value
fn jagged(layout: &Layout) -> Result<i64, ExpressionError> {
    let of = |name| i64::from(layout.get(name).unwrap());
    Ok((of("rows") * 7 + of("cols") * of("cols") * 5) % 13)
}

fn assert_attained(policy: &Fit, formula: &Formula<'_>, maximum: Maximum) {
    let layout = policy.layout(maximum.witness).unwrap();
    let value = formula.at(&layout).unwrap();
    assert!(value <= maximum.value, "{policy:?} {maximum:?}");
    assert_eq!(maximum.exact, value == maximum.value, "{policy:?} {maximum:?}");
    assert!(maximum.witness.width.max(maximum.witness.height) <= policy.longest);
}

fn of(policy: &Fit, polynomial: &Polynomial) -> Maximum {
    let value = |layout: &Layout| Ok(polynomial.at(layout).unwrap());
    let formula = Formula { value: &value, polynomial: Some(polynomial.clone()) };
    let maximum = policy.maximum(&formula).unwrap().unwrap();
    assert_attained(policy, &formula, maximum);
    maximum
}

#[test]
fn known_sizes() {
    for (policy, given, resized) in [
        (fit(1024, 16), (1024, 1024), (1024, 1024)),
        (fit(1024, 16), (1, 1), (16, 16)),
        (fit(1024, 16), (1025, 2), (1024, 16)),
        (fit(1024, 16), (2048, 100), (1024, 64)),
        (fit(1540, 28), (4000, 3000), (1540, 1176)),
        // rounded up beyond the limit
        (fit(1024, 28), (1024, 5), (1036, 28)),
        // 1547 / (1547 / 1540) is less than 1540 as a double
        (fit(1540, 1), (1547, 1547), (1539, 1539)),
        (Fit::new(100, 300, 10).unwrap(), (300, 101), (300, 100)),
        (Fit::new(100, 300, 10).unwrap(), (150, 200), (80, 100)),
    ] {
        let expected = size(resized.0, resized.1);
        assert_eq!(policy.resized(size(given.0, given.1)), Ok(expected), "{policy:?} {given:?}");
    }
}

#[test]
fn refusals() {
    for (height, width, cell) in
        [(0, 1, 1), (1, 0, 1), (1, 1, 0), (u32::MAX, 1, 1), (1, u32::MAX, 1), (1, 1, u32::MAX)]
    {
        assert!(Fit::new(height, width, cell).is_err());
    }
    let policy = fit(1024, 16);
    assert!(policy.layout(size(0, 1)).is_err());
    assert!(policy.layout(size(1025, 1)).unwrap_err().contains("1024x0"));
    assert!(policy.layout(size(1024, 1)).is_ok());
    assert!(policy.layout(size(u32::MAX, u32::MAX)).is_ok());
    // the largest parameters do not overflow
    assert!(fit(LARGEST, LARGEST - 1).layout(size(u32::MAX, 7)).is_ok());
}

#[test]
fn known_maxima() {
    let strip = &polynomials()[0];
    let exact = |value, width, height| Maximum { value, witness: size(width, height), exact: true };
    // the whole of the last cell in both directions is one layout: the smallest square of it
    assert_eq!(of(&fit(1024, 16), strip), exact(4160, 1009, 1009));
    assert_eq!(of(&fit(1540, 28), strip), exact(3080, 1513, 1513));
    let cells = polynomial(&[(1, [1, 1, 0, 0])]);
    assert_eq!(of(&fit(1024, 16), &cells).value, 4096);
    let wide = Fit::new(100, 300, 10).unwrap();
    assert_eq!(of(&wide, strip), exact(10 * 31, 291, 100));
    // limits that no picture exceeds
    let sides = 65_535_i64.div_euclid(16) + 1;
    assert_eq!(of(&fit(1_000_000_000, 16), strip), exact(sides * (sides + 1), 65_521, 65_521));
    assert_eq!(of(&fit(LARGEST, LARGEST), strip), exact(2, 1, 1));
    assert_eq!(fit(1024, 1024).budget_kind(), "fixed");
    assert_eq!(fit(1024, 1023).budget_kind(), "dynamic");
    // a vertex of a hyperbola, and one of a parabola beyond the domain
    for polynomial in polynomials() {
        for policy in [fit(1024, 16), fit(1540, 28), fit(1_000_000_000, 1)] {
            assert!(of(&policy, &polynomial).exact, "{polynomial:?}");
        }
    }
}

#[test]
fn formulas_without_bounds_are_evaluated_everywhere() {
    let formula = Formula { value: &jagged, polynomial: None };
    let policy = fit(1024, 16);
    let maximum = policy.maximum(&formula).unwrap().unwrap();
    assert_attained(&policy, &formula, maximum);
    assert_eq!((maximum.value, maximum.exact), (12, true));
    assert!(fit(65_535, 1).maximum(&formula).is_err());
}

/// The sizes of `tests/scripts/fit_sweep.py`.
fn draw(dice: &mut Dice, policy: &Fit, index: usize) -> ImageSize {
    let (height, width) = (u64::from(policy.most_height), u64::from(policy.most_width));
    let cell = u64::from(policy.cell);
    let near = |dice: &mut Dice, side: u64| (side + dice.roll(5)).saturating_sub(2);
    let (one, two) = match index % 8 {
        0 => (1 + dice.roll(65_535), 1 + dice.roll(65_535)),
        1 => (1 + dice.roll(2 * height), 1 + dice.roll(2 * width)),
        2 => {
            let (bits, other) = (1 + dice.roll(16), 1 + dice.roll(16));
            (1 + dice.roll(1 << bits), 1 + dice.roll(1 << other))
        }
        // around the limits
        3 => (near(dice, height), near(dice, width)),
        // around whole cells, not shrunk
        4 => {
            let (rows, cols) = (dice.roll(height / cell + 2), dice.roll(width / cell + 2));
            (near(dice, rows * cell), near(dice, cols * cell))
        }
        // around the limits' ratio
        5 => {
            let times = 1 + dice.roll(64);
            (near(dice, height * times / 4), near(dice, width * times / 4))
        }
        // shrunk to whole cells
        6 => {
            let (times, rows) = (1 + dice.roll(20), dice.roll(height / cell + 2));
            (near(dice, rows * cell * times), width * times)
        }
        // a side that just vanishes
        _ => {
            let side = 1 + dice.roll(6);
            (near(dice, height * side), side)
        }
    };
    let side = |side: u64| side.clamp(1, 65_535) as u32;
    if dice.roll(2) == 1 { size(side(two), side(one)) } else { size(side(one), side(two)) }
}

#[test]
fn equals_the_reference() {
    let table = include_str!("../../../tests/fixtures/layout/fit.txt");
    let mut settings = 0;
    for part in table.split("setting ").skip(1) {
        let mut lines = part.lines();
        let setting: Vec<u32> =
            lines.next().unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
        let policy = Fit::new(setting[0], setting[1], setting[2]).unwrap();
        let mut dice = Dice(settings);
        settings += 1;
        let answers = (0..8192).map(|index| {
            let given = draw(&mut dice, &policy, index);
            (given, policy.resized(given).map_or([0; 2], |size| [size.width, size.height]))
        });
        let answers: Vec<_> = answers.collect();
        for (given, answer) in &answers[..64] {
            let found = format!("{} {} {} {}", given.width, given.height, answer[0], answer[1]);
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

#[test]
fn exact_in_small_worlds() {
    let mut dice = Dice(21);
    for _ in 0..400 {
        let policy = Fit {
            longest: 5 + dice.roll(55) as u32,
            ..Fit::new(dice.magnitude(6), dice.magnitude(6), dice.magnitude(4)).unwrap()
        };
        let mut layouts = Vec::new();
        for height in 1..=policy.longest {
            for width in 1..=policy.longest {
                if let Ok(layout) = policy.layout(size(width, height))
                    && !layouts.contains(&layout)
                {
                    layouts.push(layout);
                }
            }
        }
        // the domain is what the module says
        let (rows, cols) = policy.corner();
        assert_eq!(layouts.len() as u32, rows * cols, "{policy:?}");
        assert!(policy.samples().iter().all(|sample| layouts.contains(sample)));
        let check = |formula: &Formula<'_>| {
            let most = layouts.iter().map(|layout| formula.at(layout).unwrap()).max();
            let maximum = policy.maximum(formula).unwrap().unwrap();
            assert_attained(&policy, formula, maximum);
            assert_eq!((Some(maximum.value), maximum.exact), (most, true), "{policy:?}");
        };
        with_formulas(check);
        check(&Formula { value: &jagged, polynomial: None });
    }
}

#[test]
fn nothing_exceeds_the_maximum() {
    let mut dice = Dice(4);
    let mut bounds = 0;
    for _ in 0..300 {
        let policy = Fit::new(dice.magnitude(30), dice.magnitude(14), dice.magnitude(7)).unwrap();
        let layouts: Vec<_> = (0..300)
            .map(|index| draw(&mut dice, &policy, index))
            .filter_map(|size| policy.layout(size).ok())
            .collect();
        with_formulas(|formula| {
            let maximum = policy.maximum(formula).unwrap().unwrap();
            assert_attained(&policy, formula, maximum);
            bounds += u32::from(!maximum.exact);
            for layout in &layouts {
                assert!(formula.at(layout).unwrap() <= maximum.value, "{policy:?} {layout:?}");
            }
        });
        assert!(policy.samples().len() <= 10_000);
    }
    assert_eq!(bounds, 0);
}
