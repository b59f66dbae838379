//! The reference's views, as hashes.

use super::*;
use crate::layout::pan_and_scan::Scan;

/// The pictures of `tests/scripts/media_goldens.py`.
fn picture(width: u32, height: u32, kind: u32, seed: u32) -> Rgb8 {
    let byte = |x: u32, y: u32, z: u32| {
        if kind == 2 {
            return (x + y / 2 + 40 * z + seed) as u8;
        }
        let n = (y * width + x) * 3 + z;
        let n = n.wrapping_mul(2_654_435_761).wrapping_add(seed * 40_503);
        let n = (n ^ (n >> 15)).wrapping_mul(2_246_822_519);
        let n = n ^ (n >> 13);
        if kind == 1 { (n & 1) as u8 * 255 } else { n as u8 }
    };
    let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    let bytes = pixels.flat_map(|(x, y)| [byte(x, y, 0), byte(x, y, 1), byte(x, y, 2)]);
    Rgb8::new(width, height, bytes.collect()).unwrap()
}

/// What the processors give: all views, or none where they refuse.
fn views(policy: &str, numbers: &[&str], picture: &Rgb8, filter: Filter) -> Result<Vec<Rgb8>> {
    let number = |at: usize| numbers[at].parse::<u32>().unwrap();
    let size = |at: usize| ImageSize { width: number(at), height: number(at + 1) };
    match policy {
        "closest_ratio" => {
            let policy = ClosestRatio::new(size(0), number(2), number(3), true, number(4) == 1);
            closest_ratio(picture, &policy.unwrap(), filter)
        }
        "ceil_grid" => {
            let policy = CeilGrid::new(number(0), number(1), number(2) == 1);
            ceil_grid(picture, &policy.unwrap(), filter)
        }
        _ => {
            let ratio = numbers[5].parse().unwrap();
            let scan = Scan { min_crop: number(3), max_crops: number(4), ratio };
            let policy = PanAndScan::new(size(0), 1, (number(2) == 1).then_some(scan));
            pan_and_scan(picture, &policy.unwrap(), filter)
        }
    }
}

#[test]
fn equal_the_reference() {
    let (mut count, mut refused, mut cut) = (0, 0, 0);
    for line in include_str!("../../../tests/fixtures/media/tilings.txt").lines() {
        let parts: Vec<Vec<&str>> =
            line.split(" : ").map(|part| part.split(' ').collect()).collect();
        let about: Vec<u32> = parts[1].iter().map(|number| number.parse().unwrap()).collect();
        let picture = picture(about[0], about[1], about[2], about[3]);
        let filter = parts[2][0].parse().unwrap();
        let views = views(parts[0][0], &parts[0][1..], &picture, filter).unwrap_or_default();
        let bytes = views.iter().flat_map(Rgb8::data);
        let hash = bytes.fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3)
        });
        let found = [views.len().to_string(), format!("{hash:016x}")];
        assert_eq!(found.as_slice(), parts[3], "{line}");
        count += 1;
        refused += usize::from(views.is_empty());
        cut += usize::from(views.len() > 1);
    }
    assert_eq!(count, 180);
    assert!(refused == 4 && cut > 60, "{refused} {cut}");
}
