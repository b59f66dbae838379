//! The reference's answers, known counts, exhaustive corners, and samples of all images.

use super::*;
use crate::layout::sweep::{Dice, assert_bounds, assert_table, at_witness, for_every_formula};

fn size(width: u32, height: u32) -> ImageSize {
    ImageSize { width, height }
}

fn policy(longest: u32, tile: u32) -> CeilGrid {
    CeilGrid::new(longest, tile, true).unwrap()
}

/// Rows, columns, views.
fn grid(policy: &CeilGrid, width: u32, height: u32) -> (u32, u32, u32) {
    let layout = policy.layout(size(width, height)).unwrap();
    let get = |name: &str| layout.get(name).unwrap();
    (get("rows"), get("cols"), get("tiles"))
}

/// `sequence + 3 + rows * ((sequence + 2) * cols + 1)`, the length of the expansion where two line ends are one token.
fn expansion(sequence: i64) -> impl Fn(&Layout) -> Result<i64, ExpressionError> {
    move |layout| {
        let get = |name: &str| i64::from(layout.get(name).unwrap());
        Ok(sequence + 3 + get("rows") * ((sequence + 2) * get("cols") + 1))
    }
}

#[test]
fn equals_the_reference() {
    let table = include_str!("../../../tests/fixtures/layout/ceil_grid.txt");
    assert_table(table, 19, |fields| {
        let number = |at: usize| fields[at].parse::<u32>().unwrap();
        let policy = CeilGrid::new(number(0), number(1), number(2) == 1).unwrap();
        (size(number(1), number(1)), move |image: ImageSize| {
            let Ok(layout) = policy.layout(image) else { return vec![0; 7] };
            let get = |name: &str| layout.get(name).unwrap();
            let (fitted, canvas) = (policy.fitted(image), policy.canvas(image).unwrap());
            assert_eq!(canvas, size(get("width"), get("height")));
            let mut numbers = vec![get("rows"), get("cols"), get("tiles")];
            numbers.extend([fitted.width, fitted.height, canvas.width, canvas.height]);
            numbers
        })
    });
}

#[test]
fn small_images_are_enlarged() {
    let policy = policy(1456, 364);
    assert_eq!(grid(&policy, 1, 1), (4, 4, 17));
    assert_eq!(grid(&policy, 65_535, 1), (1, 4, 5));
    assert_eq!(grid(&policy, 1, 65_535), (4, 1, 5));
    assert_eq!(policy.fitted(size(1, 65_535)), size(1, 1456));
    // 1456 · 3 / 16 = 273 becomes even; without that, one row would be the same
    assert_eq!(policy.fitted(size(16, 3)), size(1456, 274));
}

#[test]
fn the_shorter_side_is_stretched_before_it_is_rounded() {
    assert_eq!(grid(&policy(1000, 364), 1000, 700), (3, 3, 10));
}

#[test]
fn odd_edges_cost_squares_a_row_and_a_column() {
    assert_eq!(grid(&policy(365, 365), 7, 7), (2, 2, 5));
    assert_eq!(grid(&policy(365, 365), 8, 7), (0, 0, 1));
    assert_eq!(grid(&policy(1095, 365), 7, 7), (4, 4, 17));
    assert_eq!(grid(&policy(1095, 365), 8, 7), (3, 3, 10));
    // an even edge does not
    assert_eq!(grid(&policy(364, 364), 7, 7), (0, 0, 1));
    let formula = Formula { value: &expansion(169), polynomial: None };
    let maximum = policy(1095, 365).maximum(&formula).unwrap().unwrap();
    assert_eq!((maximum.value, maximum.witness), (2912, size(1, 1)));
}

#[test]
fn a_column_of_pixels_vanishes() {
    // 49.0 * (1.0 / 49.0) is 0.9999999999999999
    let policy = policy(49, 7);
    assert!(policy.layout(size(1, 50)).is_err());
    assert!(policy.layout(size(1, 49)).is_err());
    assert_eq!(grid(&policy, 1, 48), (7, 1, 8));
    assert_eq!(grid(&policy, 50, 1), (1, 7, 8));
    // where nothing is split, nothing is computed from the ratio again
    assert!(CeilGrid::new(49, 7, false).unwrap().layout(size(1, 50)).is_ok());
}

#[test]
fn nothing_is_longer_than_the_cap() {
    assert_eq!(policy(u32::MAX, 512).fitted(size(3, 2)), size(4096, 2730));
    assert_eq!(policy(4097, 512).fitted(size(1, 1)), size(4095, 4096));
    assert_eq!(grid(&policy(u32::MAX, 512), 1, 1), (8, 8, 65));
}

#[test]
fn published_worst_cases() {
    for (policy, sequence, value) in [
        (policy(1456, 364), 169, 2912),
        (policy(2048, 512), 64, 1127),
        (policy(1536, 384), 81, 1416),
    ] {
        let formula = Formula { value: &expansion(sequence), polynomial: None };
        let maximum = policy.maximum(&formula).unwrap().unwrap();
        assert_eq!((maximum.value, maximum.exact, maximum.witness), (value, true, size(1, 1)));
        // four rows or four columns
        assert_eq!(policy.samples().len(), 7);
        assert_eq!(policy.budget_kind(), "per tile");
    }
    let unsplit = CeilGrid::new(1456, 364, false).unwrap();
    assert_eq!(grid(&unsplit, 9, 2), (0, 0, 1));
    assert_eq!((unsplit.samples().len(), unsplit.budget_kind()), (1, "fixed"));
    let single = policy(512, 512);
    assert_eq!((single.samples().len(), single.budget_kind()), (1, "fixed"));
}

#[test]
fn parameters_are_checked() {
    for (longest, tile) in [(0, 9), (1, 9), (9, 0), (9, 1), (9, 65_536)] {
        assert!(CeilGrid::new(longest, tile, true).is_err());
    }
    assert!(policy(9, 9).layout(size(0, 1)).is_err());
    for longest in [2, u32::MAX] {
        for tile in [2, 65_535] {
            let policy = policy(longest, tile);
            for side in [1, 2, 65_535, u32::MAX] {
                assert!(policy.layout(size(side, 1)).is_ok());
                assert!(policy.layout(size(1, side)).is_ok());
            }
        }
    }
}

/// All images of up to so many pixels a side, and all whose longer side is the longest there is: the first have every
/// simple ratio, the others every ratio but for 1 / 65 535.
fn assert_exhaustive(policy: &CeilGrid, most: u32) {
    let mut layouts: Vec<Layout> = Vec::new();
    let mut add = |size: ImageSize| {
        if let Ok(layout) = policy.layout(size)
            && !layouts.contains(&layout)
        {
            layouts.push(layout);
        }
    };
    for one in 1..=most {
        for two in 1..=most {
            add(size(one, two));
        }
    }
    for side in (1..=65_535).step_by(7) {
        add(size(side, 65_535));
        add(size(65_535, side));
    }
    let samples = policy.samples();
    for layout in &layouts {
        assert!(samples.contains(layout), "{policy:?} {layout:?}");
    }
    for_every_formula(&NAMES, |formula| {
        let most = layouts.iter().map(|layout| formula.at(layout).unwrap()).max();
        let Some(maximum) = policy.maximum(formula).unwrap() else {
            assert_eq!(most, None, "{policy:?}");
            return;
        };
        assert!(maximum.exact);
        assert_eq!(at_witness(policy, formula, maximum), maximum.value, "{policy:?} {maximum:?}");
        assert!(most.is_none_or(|most| most <= maximum.value), "{policy:?} {most:?} {maximum:?}");
    });
}

#[test]
fn exact_for_many_settings() {
    let mut dice = Dice(1);
    for _ in 0..70 {
        let tile = 2 + dice.roll(60) as u32;
        let longest = match dice.roll(4) {
            0 => tile * (1 + dice.roll(6) as u32),
            1 => (dice.magnitude(14) as u32).max(2),
            2 => 4090 + dice.roll(20) as u32,
            _ => 2 + dice.roll(8 * u64::from(tile)) as u32,
        };
        // not more than some hundred layouts
        assert_exhaustive(&policy(longest, tile.max(longest.min(4096) / 60)), 60);
    }
    for longest in 2..40 {
        for tile in 2..8 {
            assert_exhaustive(&policy(longest, tile), 2 * longest);
        }
    }
}

#[test]
fn every_witness_has_its_layout() {
    for (longest, tile) in
        [(4096, 2), (4095, 3), (1 << 30, 5), (8191, 2), (16_383, 2), (131_071, 2)]
    {
        let policy = policy(longest, tile);
        let domain = policy.domain();
        for (layout, witness) in &domain {
            assert!(witness.width.max(witness.height) <= 65_535);
            assert_eq!(policy.layout(*witness).as_ref(), Ok(layout), "{policy:?} {witness}");
        }
    }
}

#[test]
fn nothing_exceeds_the_maximum() {
    let mut dice = Dice(13);
    for seed in 0..60 {
        let tile = 2 + dice.magnitude(10) as u32;
        let longest = 1 + dice.magnitude(16) as u32;
        let policy = policy(longest, tile.max(longest.min(4096) / 200));
        assert_bounds(&policy, size(tile, tile), seed, 400);
    }
}
