//! The reference's answers, known counts, exhaustive small worlds, and samples of the large one.

use super::*;
use crate::layout::sweep::{Dice, assert_bounds, assert_maxima, assert_table};

fn size(width: u32, height: u32) -> ImageSize {
    ImageSize { width, height }
}

fn policy(side: u32, most: u32) -> ClosestRatio {
    ClosestRatio::new(size(side, side), 1, most, true, true).unwrap()
}

fn linear(per_tile: i64, rest: i64) -> impl Fn(&Layout) -> Result<i64, ExpressionError> {
    move |layout| Ok(per_tile * i64::from(layout.get("tiles").unwrap()) + rest)
}

#[test]
fn equals_the_reference() {
    let table = include_str!("../../../tests/fixtures/layout/closest_ratio.txt");
    assert_table(table, 14, |fields| {
        let number = |at: usize| fields[at].parse::<u32>().unwrap();
        let tile = size(number(0), number(1));
        let policy = ClosestRatio::new(tile, number(2), number(3), true, number(4) == 1).unwrap();
        (tile, move |image: ImageSize| {
            let layout = policy.layout(image).unwrap();
            let get = |name: &str| layout.get(name).unwrap();
            assert_eq!((get("cols"), get("rows")), policy.grid(image));
            assert_eq!(get("width"), tile.width * get("cols"));
            assert_eq!(policy.canvas(image), size(get("width"), get("height")));
            vec![get("cols"), get("rows"), get("tiles")]
        })
    });
}

#[test]
fn grids_of_usual_tiles() {
    let policy = policy(448, 12);
    for (width, height, cols, rows) in [
        (1, 1, 1, 1),
        (4, 3, 4, 3),
        (4000, 3000, 4, 3),
        // 2 · 448² px are not more than half of 2 × 2 tiles; one column more is
        (448, 896, 1, 2),
        (633, 633, 1, 1),
        (634, 634, 2, 2),
        (65_535, 1, 12, 1),
        (1, 65_535, 1, 12),
        // halfway between 1 and 2 the differences tie, and the pixels decide
        (450, 300, 3, 2),
        // a square of 3 × 3 tiles has more than half of 9 tiles, but 12 hold no larger square
        (1344, 1344, 3, 3),
    ] {
        assert_eq!(policy.grid(size(width, height)), (cols, rows), "{width}x{height}");
    }
    let layout = policy.layout(size(4, 3)).unwrap();
    let fields: Vec<_> = layout.fields().collect();
    let expected =
        [("rows", 3), ("cols", 4), ("tiles", 13), ("thumb", 1), ("width", 1792), ("height", 1344)];
    assert_eq!(fields, expected);
    let single = policy.layout(size(9, 9)).unwrap();
    assert_eq!((single.get("tiles"), single.get("thumb")), (Some(1), Some(0)));
    assert!(policy.layout(size(0, 9)).is_err());
}

#[test]
fn a_canvas_need_not_choose_its_own_grid() {
    assert_eq!(policy(448, 16).grid(size(1344, 1344)), (4, 4));
    let wide = ClosestRatio::new(size(900, 300), 1, 2, true, true).unwrap();
    // 1 × 2 tiles are 900 × 600 px, and that is nearer to one column than to half a column
    assert_eq!(wide.grid(size(900, 600)), (2, 1));
}

#[test]
fn ratios_are_not_symmetric() {
    let policy = policy(448, 2);
    assert_eq!(policy.grid(size(149, 100)), (1, 1));
    assert_eq!(policy.grid(size(100, 149)), (1, 2));
}

#[test]
fn an_empty_range_is_one_tile() {
    let policy = ClosestRatio::new(size(448, 448), 5, 3, true, true).unwrap();
    assert_eq!(policy.layout(size(3000, 1000)).unwrap().get("tiles"), Some(1));
    assert_eq!(policy.budget_kind(), "fixed");
    assert_maxima(&policy, 3);
}

#[test]
fn published_worst_cases() {
    // 12 tiles and the thumbnail: 256 each and two delimiters; 169 each, a mark for every view and two delimiters
    for (policy, per_tile, rest, value) in [
        (policy(448, 12), 256, 2, 3330),
        (policy(364, 12), 170, 2, 2212),
        (policy(384, 12), 256, 0, 3328),
    ] {
        let formula = Formula { value: &linear(per_tile, rest), polynomial: None };
        let maximum = policy.maximum(&formula).unwrap().unwrap();
        assert_eq!((maximum.value, maximum.exact), (value, true));
        assert_eq!(maximum.witness, size(4, 3), "the squarest of the grids of 12 tiles");
        assert_eq!(policy.budget_kind(), "per tile");
        assert_eq!(policy.samples().len(), 35);
    }
    let uncut = ClosestRatio::new(size(448, 448), 1, 12, true, false).unwrap();
    let formula = Formula { value: &linear(256, 2), polynomial: None };
    assert_eq!(uncut.maximum(&formula).unwrap().unwrap().value, 258);
    let plain = ClosestRatio::new(size(448, 448), 1, 12, false, true).unwrap();
    assert_eq!(plain.maximum(&formula).unwrap().unwrap().value, 12 * 256 + 2);
}

#[test]
fn parameters_are_checked() {
    for (width, height, most) in
        [(0, 9, 1), (9, 0, 1), (1, 1, 1), (65_536, 1, 1), (9, 9, 513), (9, 9, u32::MAX)]
    {
        assert!(ClosestRatio::new(size(width, height), 1, most, true, true).is_err());
    }
    let uncut = ClosestRatio::new(size(9, 9), 0, u32::MAX, true, false).unwrap();
    assert_eq!(uncut.grid(size(900, 3)), (1, 1));
    // sides beyond those that count for the maximum do no harm
    assert_eq!(policy(448, 12).grid(size(u32::MAX, u32::MAX)), (3, 3));
}

#[test]
fn exact_in_small_worlds() {
    let mut dice = Dice(5);
    for _ in 0..260 {
        let (most, longest) = (1 + dice.roll(16) as u32, 1 + dice.roll(36) as u32);
        let side = |dice: &mut Dice| 1 + dice.roll(20) as u32;
        let tile = size(side(&mut dice), side(&mut dice) + 1);
        let least = match dice.roll(3) {
            0 => 1,
            1 => most,
            _ => dice.roll(u64::from(most) + 2) as u32,
        };
        let policy = ClosestRatio::new(tile, least, most, dice.roll(2) == 0, true).unwrap();
        assert!(assert_maxima(&ClosestRatio { longest, ..policy }, longest));
    }
}

#[test]
fn many_tiles_in_a_small_world() {
    // more ratios than images: many grids are out of reach, and neighbours are a fraction of a pixel apart
    for (tile, most, longest) in
        [(size(2, 3), 60, 48), (size(30, 30), 90, 60), (size(1, 2), 40, 30)]
    {
        let policy = ClosestRatio::new(tile, 1, most, true, true).unwrap();
        assert!(assert_maxima(&ClosestRatio { longest, ..policy }, longest));
    }
}

#[test]
fn nothing_exceeds_the_maximum() {
    let mut dice = Dice(11);
    for seed in 0..120 {
        let most = 1 + dice.roll(40) as u32;
        let bits = 1 + dice.roll(16);
        let side = |dice: &mut Dice| dice.magnitude(bits).min(65_535) as u32;
        let tile = size(side(&mut dice), side(&mut dice) / 2 + 2);
        let least = dice.roll(u64::from(most) + 3) as u32;
        let policy = ClosestRatio::new(tile, least, most, true, true).unwrap();
        assert_bounds(&policy, tile, seed, 150);
    }
}

#[test]
fn tiles_so_large_that_the_pixels_of_an_image_are_too_few() {
    // 2 × 2 tiles of 46 341 px need more than half of 4 · 46 341² px, which no image has; of 46 340 px they do not
    for (side, cells) in [(46_340, 4), (46_341, 2)] {
        let policy = policy(side, 4);
        let square = |layout: &Layout| {
            let (rows, cols) = (layout.get("rows").unwrap(), layout.get("cols").unwrap());
            Ok(if rows == cols { i64::from(rows) } else { 0 } * 2)
        };
        let maximum =
            policy.maximum(&Formula { value: &square, polynomial: None }).unwrap().unwrap();
        assert_eq!((maximum.value, maximum.exact), (cells, true), "{side}");
    }
    // 6 × 2 tiles need more than 6 · 15800² px: an image of 3:1 has too few, a squarer one (to 11:4) has not
    let policy = policy(15_800, 12);
    let wanted = |layout: &Layout| {
        Ok(i64::from(layout.get("cols") == Some(6) && layout.get("rows") == Some(2)))
    };
    let maximum = policy.maximum(&Formula { value: &wanted, polynomial: None }).unwrap().unwrap();
    assert_eq!((maximum.value, maximum.exact), (1, true));
    assert_ne!(maximum.witness.width, 3 * maximum.witness.height);
}

/// Every grid that some image of up to `longest` px a side gets has such an image for a witness, and no other grid has.
fn assert_witnesses(policy: &ClosestRatio) {
    let mut reached: Vec<Grid> = Vec::new();
    for width in 1..=policy.longest {
        for height in 1..=policy.longest {
            let grid = policy.chosen(size(width, height));
            if !reached.contains(&grid) {
                reached.push(grid);
            }
        }
    }
    let ratios = policy.ratios();
    for grid in policy.domain() {
        match policy.witness(*grid, &ratios) {
            Reach::Image(image) => {
                assert_eq!(policy.chosen(image), *grid, "{policy:?} {image}");
                assert!(image.width.max(image.height) <= policy.longest);
            }
            Reach::Never => assert!(!reached.contains(grid), "{policy:?} {grid:?}"),
            Reach::Unknown => panic!("{policy:?} {grid:?}"),
        }
    }
}

#[test]
fn every_reached_grid_has_a_witness() {
    for tile in [size(1, 2), size(2, 2), size(3, 1), size(4, 7), size(20, 20)] {
        for most in [3, 6, 13, 20] {
            for longest in 1..=26 {
                let policy = ClosestRatio::new(tile, 1, most, true, true).unwrap();
                assert_witnesses(&ClosestRatio { longest, ..policy });
            }
        }
    }
    for least in 2..=12 {
        let policy = ClosestRatio::new(size(3, 3), least, 12, true, true).unwrap();
        assert_witnesses(&ClosestRatio { longest: 17, ..policy });
    }
    let usual = policy(448, 12);
    let square = usual.witness(Grid { cols: 2, rows: 2 }, &usual.ratios());
    assert_eq!(square, Reach::Image(size(634, 634)), "633² px are less than half of 4 · 448²");
}
