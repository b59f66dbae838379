//! The reference's answers, known counts, exhaustive small worlds, and samples of the large one.

use super::*;
use crate::layout::Polynomial;
use crate::layout::sweep::{
    Dice, assert_bounds, assert_maxima, assert_table, at_witness, for_every_formula,
};

fn size(width: u32, height: u32) -> ImageSize {
    ImageSize { width, height }
}

fn policy(min_crop: u32, max_crops: u32, ratio: f64) -> PanAndScan {
    PanAndScan::new(size(896, 896), 14, Some(Scan { min_crop, max_crops, ratio })).unwrap()
}

fn crops(policy: &PanAndScan, width: u32, height: u32) -> u32 {
    policy.layout(size(width, height)).unwrap().get("crops").unwrap()
}

#[test]
fn equals_the_reference() {
    let table = include_str!("../../../tests/fixtures/layout/pan_and_scan.txt");
    assert_table(table, 12, |fields| {
        let number = |at: usize| fields[at].parse::<u32>().unwrap();
        let policy = policy(number(0), number(1), fields[2].parse().unwrap());
        (size(number(0), number(0)), move |image: ImageSize| {
            let Ok(layout) = policy.layout(image) else { return vec![1_000_000, 0, 0, 0, 0] };
            let crops = policy.crops(image).unwrap();
            assert_eq!(layout.get("crops"), Some(crops.len() as u32));
            let (Some(first), Some(last)) = (crops.first(), crops.last()) else {
                return vec![0; 5];
            };
            let (first, last) = (first.size, last.size);
            vec![crops.len() as u32, first.width, first.height, last.width, last.height]
        })
    });
}

#[test]
fn usual_settings() {
    let policy = policy(256, 4, 1.2);
    for (width, height, count) in [
        (500, 500, 0),
        // ⌈511 / 2⌉ is 256, ⌈510 / 2⌉ is not
        (511, 400, 2),
        (510, 400, 0),
        (600, 500, 2),
        (599, 500, 0),
        (1000, 300, 3),
        (1024, 300, 3),
        (1024, 256, 4),
        (1023, 256, 3),
        (5000, 255, 0),
        (65_535, 256, 4),
        (256, 65_535, 4),
    ] {
        assert_eq!(crops(&policy, width, height), count, "{width}x{height}");
        assert_eq!(crops(&policy, height, width), count, "{height}x{width}");
    }
    let fields: Vec<_> = policy.layout(size(1024, 256)).unwrap().fields().collect();
    let expected =
        [("rows", 64), ("cols", 64), ("crops", 4), ("tiles", 5), ("width", 896), ("height", 896)];
    assert_eq!(fields, expected);
    let parts = policy.crops(size(300, 1001)).unwrap();
    let part = |y, height| Part { x: 0, y, size: size(300, height) };
    assert_eq!(parts, [part(0, 334), part(334, 334), part(668, 333)]);
}

#[test]
fn crops_without_pixels_are_refused() {
    let policy = policy(1, 4, 1.2);
    assert!(policy.layout(size(5, 1)).is_err());
    assert!(policy.crops(size(2, 9)).is_err());
    assert_eq!(crops(&policy, 4, 1), 4);
    assert!(policy.layout(size(0, 1)).is_err());
}

#[test]
fn one_crop_is_the_whole_again() {
    let policy = policy(256, 1, 1.2);
    let whole = Part { x: 0, y: 0, size: size(900, 300) };
    assert_eq!(policy.crops(size(900, 300)).unwrap(), [whole]);
    assert_eq!(policy.samples().len(), 2);
}

#[test]
fn published_worst_cases() {
    // 256 tokens, two delimiters and two line ends for every view
    let value = |layout: &Layout| Ok(260 * i64::from(layout.get("tiles").unwrap()));
    let formula = Formula { value: &value, polynomial: None };
    let off = PanAndScan::new(size(896, 896), 14, None).unwrap();
    let maximum = off.maximum(&formula).unwrap().unwrap();
    assert_eq!((maximum.value, maximum.witness, maximum.exact), (260, size(1, 1), true));
    assert_eq!((off.samples().len(), off.budget_kind()), (1, "fixed"));
    assert_eq!(crops(&off, 65_535, 1), 0);
    let on = policy(256, 4, 1.2);
    let maximum = on.maximum(&formula).unwrap().unwrap();
    assert_eq!((maximum.value, maximum.witness, maximum.exact), (1300, size(1024, 256), true));
    assert_eq!(on.budget_kind(), "per tile");
    let numbers = |policy: &PanAndScan| {
        policy.samples().iter().filter_map(|layout| layout.get("crops")).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&on), [0, 2, 3, 4]);
    // 255 · 257 = 65 535: as many as there are crops of 257 px in the longest side
    assert_eq!(numbers(&policy(257, u32::MAX, 1.2)).last(), Some(&255));
    // 2 is reached up to a ratio of 3 - 1 / 256, by 767 × 256 px
    assert_eq!(numbers(&policy(256, 4, 2.99)), [0, 2, 3, 4]);
    assert_eq!(numbers(&policy(256, 4, 3.0)), [0, 3, 4]);
    assert_eq!(numbers(&policy(256, 4, 200.0)), [0, 4]);
    assert_eq!(numbers(&policy(256, 4, 300.0)), [0]);
    // every image is cut
    assert_eq!(numbers(&policy(1, 3, 1.0)), [2, 3]);
}

#[test]
fn parameters_are_checked() {
    let scan = Scan { min_crop: 256, max_crops: 4, ratio: 1.2 };
    for (view, cell) in
        [(size(0, 9), 1), (size(9, 9), 0), (size(9, 9), 10), (size(1, 1), 1), (size(65_536, 1), 1)]
    {
        assert!(PanAndScan::new(view, cell, Some(scan)).is_err());
        assert!(PanAndScan::new(view, cell, None).is_err());
    }
    for scan in [
        Scan { min_crop: 0, ..scan },
        Scan { max_crops: 0, ..scan },
        Scan { ratio: f64::NAN, ..scan },
        Scan { ratio: f64::INFINITY, ..scan },
    ] {
        assert!(PanAndScan::new(size(9, 9), 1, Some(scan)).is_err());
    }
}

#[test]
fn the_corners_of_the_parameters_do_not_overflow() {
    for min_crop in [1, 2, 65_535, u32::MAX] {
        for max_crops in [1, 2, u32::MAX] {
            for ratio in [-1e300, 0.0, 1.0, 65_535.0, 1e300] {
                let policy = policy(min_crop, max_crops, ratio);
                for side in [1, 2, 65_535, u32::MAX] {
                    for other in [1, 65_535, u32::MAX] {
                        if let Ok(layout) = policy.layout(size(side, other)) {
                            assert!(layout.get("crops").unwrap() <= max_crops);
                        }
                    }
                }
                let terms = [(vec![0, 0, 0, 1, 0, 0], 1)].into_iter().collect();
                let value = |layout: &Layout| Ok(i64::from(layout.get("tiles").unwrap()));
                let formula = Formula { value: &value, polynomial: Some(Polynomial::new(terms)) };
                let maximum = policy.maximum(&formula).unwrap().unwrap();
                assert_eq!(at_witness(&policy, &formula, maximum), maximum.value);
                assert!(policy.samples().len() < 2100);
            }
        }
    }
}

#[test]
fn exact_in_small_worlds() {
    let mut dice = Dice(17);
    for _ in 0..700 {
        let longest = 1 + dice.roll(48) as u32;
        let min_crop = 1 + dice.roll(7) as u32;
        let max_crops = 1 + dice.roll(14) as u32;
        let ratio = match dice.roll(3) {
            0 => 1.2,
            1 => (1 + dice.roll(60)) as f64 / (1 + dice.roll(12)) as f64,
            _ => dice.roll(8) as f64 + 0.5,
        };
        let policy = policy(min_crop, max_crops, ratio);
        assert!(assert_maxima(&PanAndScan { longest, ..policy }, longest), "{policy:?}");
    }
}

#[test]
fn nothing_exceeds_the_maximum() {
    let mut dice = Dice(19);
    for seed in 0..150 {
        let min_crop = dice.magnitude(12) as u32;
        let max_crops = dice.magnitude(6) as u32;
        let ratio = 1.0 + dice.roll(1000) as f64 / 200.0;
        let policy = policy(min_crop, max_crops, ratio);
        assert_bounds(&policy, size(min_crop, min_crop), seed, 300);
    }
}

#[test]
fn a_formula_known_to_rise_is_as_exact() {
    for_every_formula(&NAMES, |formula| {
        if formula.rises() {
            let value = |layout: &Layout| formula.at(layout);
            let plain = Formula { value: &value, polynomial: None };
            for policy in [policy(256, 4, 1.2), policy(3, 4000, 2.2), policy(1, 3, 1.0)] {
                assert_eq!(policy.maximum(formula), policy.maximum(&plain));
            }
        }
    });
}
