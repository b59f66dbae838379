//! Sweeps against the reference, exhaustive small worlds, and samples of the large one.

use super::*;

const CELL: u64 = 28 * 28;

fn area(step: u32, least: u64, most: u64) -> Area {
    Area::new(step, least, most, 200, 1).unwrap()
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
    fn magnitude(&mut self, bits: u64) -> u64 {
        let bits = 1 + self.roll(bits);
        1 + self.roll(1 << bits)
    }

    /// Limits, steps and all, with contradictions and ties among them.
    fn policy(&mut self, steps: u64, bits: u64, aspects: u64) -> Area {
        let step = self.magnitude(steps).min(1 << steps) as u32;
        let frames = 1 + self.roll(6) / 4;
        let unit = frames * u64::from(step) * u64::from(step);
        let mut most = self.magnitude(bits);
        if self.roll(3) == 0 {
            // whole cells, or one off
            most = ((most / unit).max(1) * unit + self.roll(3)).saturating_sub(1).max(1);
        }
        let least = match self.roll(8) {
            0 => 0,
            1 => most,
            2 => self.magnitude(bits + 2),
            3 => most.saturating_sub(self.roll(unit)),
            4 => (most / unit) * unit,
            _ => self.roll(most + 1),
        };
        let aspect = match self.roll(4) {
            0 => 1 + self.roll(6),
            1 => 1 + self.roll(aspects),
            _ => 200,
        };
        Area::new(step, least, most, aspect as u32, frames as u32).unwrap()
    }
}

/// The sizes of `tests/scripts/area_sweep.py`.
struct Sizes {
    dice: Dice,
    area: Area,
}

impl Sizes {
    fn pair(&mut self, kind: usize) -> (u64, u64) {
        let dice = &mut self.dice;
        let (step, frames) = (u64::from(self.area.step), u64::from(self.area.frames));
        match kind {
            0 => return (1 + dice.roll(65_535), 1 + dice.roll(65_535)),
            1 => return (1 + dice.roll(6 * step), 1 + dice.roll(6 * step)),
            2 => {
                let (one, two) = (1 + dice.roll(16), 1 + dice.roll(16));
                return (1 + dice.roll(1 << one), 1 + dice.roll(1 << two));
            }
            3 => {
                let short = 1 + dice.roll(327);
                return (short, 200 * short + dice.roll(5) - 2);
            }
            4 => {
                let (one, two) = (dice.roll(1 + 4000 / step), dice.roll(1 + 4000 / step));
                let one = ((2 * one + 1) * step / 2 + dice.roll(3)).saturating_sub(1);
                return (one, ((2 * two + 1) * step / 2 + dice.roll(3)).saturating_sub(1));
            }
            _ => {}
        }
        let limit = if dice.roll(2) == 0 { self.area.least } else { self.area.most };
        if kind < 7 {
            let bits = 4 + dice.roll(13);
            let long = 1 + dice.roll(1 << bits);
            return (long, (limit / (frames * long) + dice.roll(3)).saturating_sub(1));
        }
        let rows = 1 + dice.roll(40);
        let columns = limit / (frames * step * step * rows);
        let times = 1 + dice.roll(16 * step);
        (rows * times, columns * times)
    }

    fn draw(&mut self, index: usize) -> (u32, u32) {
        let (mut one, mut two) = self.pair(index % 8);
        if self.dice.roll(2) == 1 {
            (one, two) = (two, one);
        }
        let no_smaller = self.area.frames > 1 && !self.area.enlarge;
        let least = if no_smaller { self.area.step } else { 1 };
        let side = |side: u64| side.clamp(u64::from(least), 65_535) as u32;
        (side(one), side(two))
    }
}

#[test]
fn forward_cases() {
    let usual = area(28, 3136, 1280 * CELL);
    for (policy, height, width, resized) in [
        (usual, 70, 70, (56, 56)),
        (usual, 1, 1, (56, 56)),
        (usual, 14, 14, (56, 56)),
        (usual, 42, 42, (56, 56)),
        (usual, 257, 27, (252, 28)),
        (usual, 1, 200, (28, 812)),
        (usual, 14, 1400, (28, 560)),
        (usual, 768, 1024, (756, 1036)),
        (area(28, 3136, 20 * CELL), 31, 639, (28, 560)),
    ] {
        assert_eq!(policy.resized(width, height), Ok((resized.1, resized.0)), "{height}x{width}");
        assert_eq!(policy.resized(height, width), Ok(resized), "{width}x{height}");
    }
    assert_eq!(usual.grid(1024, 768).map(|(columns, rows)| columns * rows), Ok(999));
    let wide = area(28, 3136, 16_384 * CELL);
    assert_eq!(wide.grid(10_000, 12_000).map(|(columns, rows)| columns * rows), Ok(16_240));
}

#[test]
fn refusals() {
    let usual = area(28, 3136, 1280 * CELL);
    assert_eq!(usual.resized(0, 5), Err(AreaRefusal::Empty));
    assert_eq!(usual.resized(201, 1), Err(AreaRefusal::Elongated { aspect: 200 }));
    assert_eq!(usual.resized(65_535, 327), Err(AreaRefusal::Elongated { aspect: 200 }));
    assert!(usual.resized(65_400, 327).is_ok());
    assert_eq!(usual.resized(u32::MAX, u32::MAX), Err(AreaRefusal::TooLarge));
    // without a lower limit a zero survives the rounding
    assert_eq!(area(28, 0, 1280 * CELL).resized(14, 100), Err(AreaRefusal::Vanishing));
    assert_eq!(area(28, 1, 1280 * CELL).resized(14, 100), Ok((28, 28)));
    for (step, least, most, aspect, frames) in [
        (0, 1, 1, 1, 1),
        (u32::MAX, 1, 1, 1, 1),
        (1, u64::MAX, 1, 1, 1),
        (1, 1, 0, 1, 1),
        (1, 1, u64::MAX, 1, 1),
        (1, 1, 1, 0, 1),
        (1, 1, 1, 1, 0),
        (1, 1, 1, 1, u32::MAX),
    ] {
        let error = Area::new(step, least, most, aspect, frames).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoNumber);
    }
}

#[test]
fn the_corners_of_the_parameters_do_not_overflow() {
    for step in [1, LARGEST_STEP] {
        for least in [0, 1, LARGEST_LEAST] {
            for most in [1, EXACT] {
                for aspect in [1, u32::MAX] {
                    for frames in [1, MOST_FRAMES] {
                        let policy = Area::new(step, least, most, aspect, frames).unwrap();
                        let largest = policy.largest();
                        if let Some(largest) = largest {
                            assert_attained(&policy, largest);
                        }
                        for (width, height) in [(1, 1), (65_535, 1), (1, 65_535), (65_535, 65_535)]
                        {
                            match policy.grid(width, height) {
                                Ok((columns, rows)) => {
                                    assert!(largest.unwrap().cells >= columns * rows);
                                    assert!(policy.resized(width, height).is_ok());
                                }
                                Err(refusal) => assert_ne!(refusal, AreaRefusal::TooLarge),
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn equals_the_reference() {
    let table = include_str!("../../../tests/fixtures/layout/area.txt");
    let mut settings = 0;
    for part in table.split("setting ").skip(1) {
        let mut lines = part.lines();
        let setting: Vec<u64> =
            lines.next().unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
        let (step, frames) = (setting[0] as u32, setting[3] as u32);
        let mut area = Area::new(step, setting[1], setting[2], 200, frames).unwrap();
        if setting[4] == 1 {
            area = area.enlarging().unwrap();
        }
        let mut sizes = Sizes { dice: Dice(settings), area };
        settings += 1;
        let answers = (0..8192).map(|index| {
            let (width, height) = sizes.draw(index);
            let answer = match area.resized(width, height) {
                Ok(size) => size,
                Err(AreaRefusal::Elongated { .. }) => (0, 0),
                Err(refusal) => {
                    assert_eq!(refusal, AreaRefusal::Vanishing);
                    (0, 1)
                }
            };
            (width, height, answer.0, answer.1)
        });
        let answers: Vec<_> = answers.collect();
        for answer in &answers[..128] {
            let (width, height, columns, rows) = answer;
            let found = format!("{width} {height} {columns} {rows}");
            assert_eq!(Some(found.as_str()), lines.next(), "{area:?}");
        }
        let mut hashes = lines.flat_map(|line| line.split(' '));
        for block in answers.chunks(64) {
            let sides = block.iter().flat_map(|answer| [answer.2, answer.3]);
            let hash =
                sides.flat_map(u32::to_le_bytes).fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
                    (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
                });
            assert_eq!(Some(format!("{hash:016x}").as_str()), hashes.next(), "{area:?} {block:?}");
        }
        assert_eq!(hashes.next(), None);
    }
    assert_eq!(settings, 28);
}

fn assert_attained(policy: &Area, largest: Extreme) {
    assert!(largest.exact, "{policy:?} {largest:?}");
    assert!(largest.height <= largest.width && largest.width <= policy.longest);
    let grid = policy.grid(largest.width, largest.height);
    assert_eq!(
        grid.map(|(columns, rows)| columns * rows),
        Ok(largest.cells),
        "{policy:?} {largest:?}"
    );
}

#[test]
fn published_limits() {
    for (policy, cells, witness) in [
        (area(28, 3136, 12_845_056), 16_384, Some((3584, 3584))),
        (area(28, 3136, 1_003_520), 1280, Some((1120, 896))),
        (area(32, 65_536, 16_777_216), 16_384, Some((4096, 4096))),
        (area(28, 3136, 6 * CELL), 34, None),
        (area(28, 256 * CELL, 256 * CELL), 454, Some((200, 1))),
        (area(28, 4 * CELL, 64 * CELL), 113, None),
        (Area::new(28, 112 * 112, 9_633_792, 200, 2).unwrap(), 6144, Some((2688, 1792))),
    ] {
        let largest = policy.largest().unwrap();
        assert_eq!(largest.cells, cells, "{policy:?}");
        assert_attained(&policy, largest);
        if let Some((width, height)) = witness {
            assert_eq!((largest.width, largest.height), (width, height), "{policy:?}");
        }
        assert_eq!(policy.largest(), Some(largest));
    }
}

#[test]
fn no_image_no_answer() {
    // every side rounds to zero, and nothing enlarges it
    assert_eq!(area(LARGEST_STEP, 0, 1).largest(), None);
    assert_eq!(area(LARGEST_STEP, 1, 1).largest().map(|largest| largest.cells), Some(1));
}

fn assert_exact(policy: &Area) {
    let mut most = None;
    for short in 1..=policy.longest {
        for long in short..=policy.longest {
            match policy.grid(long, short) {
                Ok((columns, rows)) => most = most.max(Some(columns * rows)),
                Err(AreaRefusal::Elongated { .. }) => break,
                Err(_) => {}
            }
        }
    }
    let largest = policy.largest();
    assert_eq!(largest.map(|largest| largest.cells), most, "{policy:?} {largest:?}");
    if let Some(largest) = largest {
        assert_attained(policy, largest);
    }
}

#[test]
fn exact_in_small_worlds() {
    let mut dice = Dice(7);
    for _ in 0..12_000 {
        let longest = dice.magnitude(7) as u32;
        assert_exact(&Area { longest, ..dice.policy(6, 17, 60) });
    }
    for _ in 0..60 {
        let longest = 300 + dice.roll(300) as u32;
        assert_exact(&Area { longest, ..dice.policy(5, 20, 300) });
    }
}

#[test]
fn exact_for_every_small_limit() {
    for step in [1, 2, 3, 4, 5, 8, 28] {
        for cells in 1..=48 {
            let unit = u64::from(step * step);
            // both limits the same, a little off, and the range that a default gives
            for most in [cells * unit, cells * unit + 1, (cells * unit - 1).max(1)] {
                for least in [0, 1, unit, most, most - 1, most + unit] {
                    let longest = if step == 28 { 100 } else { 60 };
                    assert_exact(&Area { longest, ..area(step, least, most) });
                }
            }
        }
    }
}

#[test]
fn ties_at_the_aspect_limit() {
    // √(cells · aspect) is whole, and doubles decide for each multiple of the thinnest image where it falls
    for aspect in [2, 3, 5, 8] {
        for root in 1..=9 {
            for step in [1, 2, 3, 5, 7, 11] {
                let unit = u64::from(step * step);
                let most = root * root * unit * if aspect == 8 { 2 } else { u64::from(aspect) };
                for least in [0, most] {
                    let policy = Area::new(step, least, most, aspect, 1).unwrap();
                    assert_exact(&Area { longest: 160, ..policy });
                }
            }
        }
    }
}

#[test]
fn a_long_side_rounded_down_beside_a_short_one_rounded_up() {
    // as many cells in a row as no multiple of the step reaches within the aspect limit, and no divisor
    let policy = area(28, 3136, 293 * CELL);
    let largest = policy.largest().unwrap();
    assert_attained(&policy, largest);
    assert_eq!((largest.cells, largest.height), (293, 41));
    let policy = Area::new(28, 1, 5 * CELL, 4, 1).unwrap();
    assert_exact(&Area { longest: 170, ..policy });
}

#[test]
fn limits_in_the_wrong_order_are_exact_too() {
    for (step, least, most, aspect) in
        [(2, 33_660_197_072, 4, 5), (1, 1 << 30, 198, 37_965), (4, 1 << 39, 16, 4)]
    {
        let policy = Area::new(step, least, most, aspect, 1).unwrap();
        assert_attained(&policy, policy.largest().unwrap());
        assert_exact(&Area { longest: 150, ..policy });
    }
}

#[test]
fn contradictory_limits_grow_beyond_the_upper_one() {
    // images of up to one cell are kept below the upper limit, and grown to the lower one
    let policy = area(28, 100 * CELL, CELL);
    assert_eq!(policy.resized(28, 28), Ok((280, 280)));
    assert_eq!(policy.resized(56, 56), Ok((28, 28)));
    let largest = policy.largest().unwrap();
    assert_attained(&policy, largest);
    assert!(largest.cells >= 100);
}

#[test]
fn nothing_exceeds_the_largest() {
    let mut dice = Dice(3);
    for _ in 0..400 {
        let area = dice.policy(6, 33, 65_535);
        let largest = area.largest().unwrap();
        assert_attained(&area, largest);
        let mut sizes = Sizes { dice: Dice(dice.roll(1 << 40)), area };
        for index in 0..1000 {
            let (width, height) = sizes.draw(index);
            if let Ok((columns, rows)) = area.grid(width, height) {
                assert!(columns * rows <= largest.cells, "{area:?} {width}x{height} {largest:?}");
            }
        }
        // around the witness and at the aspect limit
        for _ in 0..400 {
            let near = |side: u32, dice: &mut Dice| {
                (side + dice.roll(7) as u32).saturating_sub(3).clamp(1, 65_535)
            };
            let (mut width, height) =
                (near(largest.width, &mut dice), near(largest.height, &mut dice));
            if dice.roll(2) == 0 {
                width = height.saturating_mul(area.aspect).clamp(1, 65_535);
            }
            if let Ok((columns, rows)) = area.grid(width, height) {
                assert!(columns * rows <= largest.cells, "{area:?} {width}x{height} {largest:?}");
            }
        }
    }
}

#[test]
fn simplest_fractions() {
    for (low, high, simplest) in [
        ((1, 3), (1, 2), (1, 2)),
        ((3, 7), (4, 9), (3, 7)),
        ((314, 100), (315, 100), (22, 7)),
        ((5, 1), (9, 1), (5, 1)),
        ((51, 10), (91, 10), (6, 1)),
    ] {
        assert_eq!(simplest_between(low, high), simplest);
    }
}

fn enlarging(step: u32, least: u64, most: u64, frames: u32) -> Area {
    Area::new(step, least, most, 200, frames).unwrap().enlarging().unwrap()
}

#[test]
fn small_images_are_enlarged_first() {
    let published = enlarging(28, 112 * 112, 9_633_792, 2);
    for (width, height, resized) in [
        (28, 28, (84, 84)),     // grown to 8 cells: √8 is 2.8
        (1, 1, (84, 84)),       // the same
        (200, 1, (5600, 28)),   // at the aspect limit, and kept
        (5400, 27, (5600, 28)), // the same
        (29, 14, (140, 56)),    // 58 by 28 px, grown: √(8 · 58/28) is 4.1, √(8 · 28/58) is 1.97
    ] {
        assert_eq!(published.resized(width, height), Ok(resized), "{width}x{height}");
        assert_eq!(published.resized(height, width), Ok((resized.1, resized.0)));
    }
    for (width, height) in [(201, 1), (5401, 27), (65_535, 27)] {
        let refused = Err(AreaRefusal::Elongated { aspect: 200 });
        assert_eq!(published.resized(width, height), refused, "{width}x{height}");
    }
    // 49 / 11 · 11 is less than 49 in doubles, so the aspect is asked of 48
    let missed = enlarging(49, 1, 1 << 30, 1);
    assert_eq!(missed.computed(11, 11), (48, 48));
    assert!(missed.resized(2200, 11).is_err() && missed.resized(2000, 10).is_ok());
}

#[test]
fn enlarging_does_not_overflow() {
    for step in [LARGEST_STEP, 1025] {
        let policy = Area::new(step, 1, 1, 200, 1).unwrap();
        assert_eq!(policy.enlarging().unwrap_err().kind(), ErrorKind::NoNumber);
    }
    for least in [0, 1, LARGEST_LEAST] {
        for most in [1, EXACT] {
            for (aspect, frames) in [(1, 1), (u32::MAX, 1), (u32::MAX, MOST_FRAMES)] {
                let policy = Area::new(1024, least, most, aspect, frames).unwrap();
                let policy = policy.enlarging().unwrap();
                let largest = policy.largest().unwrap();
                for (width, height) in [(1, 1), (65_535, 1), (65_535, 1023), (65_535, 65_535)] {
                    match policy.grid(width, height) {
                        Ok((columns, rows)) => {
                            assert!(largest.cells >= columns * rows);
                            assert!(policy.resized(width, height).is_ok());
                        }
                        Err(refusal) => assert_ne!(refusal, AreaRefusal::TooLarge),
                    }
                }
            }
        }
    }
}

#[test]
fn published_limits_with_enlarging() {
    for (policy, cells) in [
        (enlarging(28, 112 * 112, 9_633_792, 2), 6144),
        (enlarging(28, 112 * 112, 28 * 28 * 15_000, 2), 7500),
        (enlarging(28, 112 * 112, 28 * 28 * 12, 2), 34),
    ] {
        let largest = policy.largest().unwrap();
        assert_attained(&policy, largest);
        assert_eq!(largest.cells, cells, "{largest:?}");
    }
    // beyond the longest side: 1 by 150 px count as 700 by 105000, and no other image of one row is as long
    let policy = enlarging(700, 1, 700 * 700 * 150, 1);
    assert_eq!(policy.resized(150, 1), Ok((105_000, 700)));
    assert_attained(&policy, policy.largest().unwrap());
}

#[test]
fn exact_in_small_worlds_with_enlarging() {
    let mut dice = Dice(9);
    for _ in 0..8000 {
        let longest = dice.magnitude(7) as u32;
        let policy = dice.policy(6, 17, 60).enlarging().unwrap();
        assert_exact(&Area { longest, ..policy });
    }
    for _ in 0..60 {
        let longest = 200 + dice.roll(200) as u32;
        let policy = dice.policy(8, 20, 300).enlarging().unwrap();
        assert_exact(&Area { longest, ..policy });
    }
    // the area limits are tied at the aspect limit, or a grid has few images, and only a short side that misses the
    // step, 11 and 13 px at 15, reaches the largest
    for (step, least, most, aspect, frames, longest, cells) in [
        (15, 50_438, 50_438, 6, 1, 94, 264),
        (15, 1, 3675, 9, 3, 142, 7),
        (30, 0, 14_700, 9, 3, 174, 7),
        (30, 7586, 14_700, 9, 3, 208, 7),
    ] {
        let policy = Area::new(step, least, most, aspect, frames).unwrap().enlarging().unwrap();
        let policy = Area { longest, ..policy };
        assert_exact(&policy);
        let largest = policy.largest().unwrap();
        assert!(largest.cells == cells, "{largest:?}");
        assert!(largest.height < step && policy.computed(1, 1).0 == u64::from(step));
        let computed = policy.computed(largest.height, largest.height).0;
        assert_eq!(computed, u64::from(step) - 1, "{largest:?}");
    }
    // steps that some short sides miss
    for step in [15, 26, 30, 47, 49, 60, 61, 62] {
        for _ in 0..60 {
            let (longest, least) = (100 + dice.roll(150) as u32, dice.magnitude(19));
            let (most, aspect) = (dice.magnitude(19), 1 + dice.roll(40) as u32);
            let policy = Area::new(step, least, most, aspect, 1).unwrap().enlarging().unwrap();
            assert_exact(&Area { longest, ..policy });
        }
    }
}

#[test]
fn nothing_exceeds_the_largest_with_enlarging() {
    let mut dice = Dice(4);
    for _ in 0..150 {
        let area = dice.policy(9, 33, 65_535).enlarging().unwrap();
        let largest = area.largest().unwrap();
        if largest.exact {
            assert_attained(&area, largest);
        }
        let mut sizes = Sizes { dice: Dice(dice.roll(1 << 40)), area };
        for index in 0..2000 {
            let (width, mut height) = sizes.draw(index);
            if index % 3 == 0 {
                height = 1 + sizes.dice.roll(u64::from(area.step)) as u32;
            }
            if let Ok((columns, rows)) = area.grid(width, height) {
                assert!(columns * rows <= largest.cells, "{area:?} {width}x{height} {largest:?}");
            }
        }
    }
}
