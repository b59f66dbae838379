//! Views against those of the reference's processors: `tests/scripts/view_goldens.py`.

use super::*;

/// The pictures of `tests/scripts/view_goldens.py`.
fn picture(width: u32, height: u32, seed: u32) -> Rgb8 {
    let byte = |x: u32, y: u32, channel: u32| {
        if seed % 2 == 1 {
            return (x + y / 2 + 40 * channel + seed) as u8;
        }
        let mut n = ((y * width + x) * 3 + channel).wrapping_mul(2_654_435_761);
        n = n.wrapping_add(seed.wrapping_mul(40_503));
        n = (n ^ (n >> 15)).wrapping_mul(2_246_822_519);
        (n ^ (n >> 13)) as u8
    };
    let pixel = |x, y| (0..3).map(move |channel| byte(x, y, channel));
    let data = (0..height).flat_map(|y| (0..width).flat_map(move |x| pixel(x, y)));
    Rgb8::new(width, height, data.collect()).unwrap()
}

fn fnv(bytes: impl Iterator<Item = u8>) -> String {
    let hash = bytes.fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    });
    format!("{hash:016x}")
}

fn hashed(views: &[Rgb8]) -> String {
    fnv(views.iter().flat_map(|view| view.data().iter().copied()))
}

#[test]
fn equal_the_reference() {
    let mut lines = 0;
    for line in include_str!("../../../tests/fixtures/media/tiles.txt").lines() {
        lines += 1;
        let mut words = line.split(' ');
        let kind = words.next().unwrap();
        let fit = if kind == "tiles" { words.next().unwrap() } else { "" };
        let words: Vec<_> = words.collect();
        let number = |at: usize| words[at].parse::<u32>().unwrap();
        if kind == "budgeted" {
            let policy = PatchBudget::new(number(0), number(1), number(2)).unwrap();
            let image = picture(number(3), number(4), number(5));
            let view = budgeted(&policy, &image, Filter::Bicubic).unwrap();
            assert_eq!(hashed(&[view]), words[7], "{line}");
            continue;
        }
        let whole = [Whole::None, Whole::First, Whole::LastIfMany][number(8) as usize];
        let policy = LeastUpscale::new(
            number(1),
            number(2),
            number(3),
            [number(4), number(5)],
            [number(6), number(7)],
            whole,
        );
        let policy = policy.unwrap();
        let size = ImageSize { width: number(9), height: number(10) };
        let image = picture(size.width, size.height, number(11));
        let views = match fit {
            "inside" => tiles(&policy, &image, Fit::Inside, Filter::Bilinear),
            "stretch" => tiles(&policy, &image, Fit::Stretch, Filter::Bicubic),
            _ => tiles(&policy, &image, Fit::Stretch, Filter::Plain),
        };
        let views = views.unwrap();
        assert_eq!(views.len(), number(12) as usize, "{line}");
        assert_eq!(hashed(&views), words[13], "{line}");
        if fit == "plain" {
            let places = policy.pooling(size).unwrap();
            let places = places.into_iter().map(|place| place.map_or(-1, |place| place as i32));
            assert_eq!(fnv(places.flat_map(i32::to_le_bytes)), words[14], "{line}");
        }
    }
    assert_eq!(lines, 110);
}

#[test]
fn refusals_are_media_errors() {
    // the square of one pixel that doubles round to nothing
    let policy = PatchBudget::new(16, 3, 1).unwrap();
    let size = |side: u32| ImageSize { width: side, height: side };
    let side = (1..2000).find(|side| policy.resized(size(*side)).is_err()).unwrap();
    let image = Rgb8::filled(side, side, [0; 3]).unwrap();
    let error = budgeted(&policy, &image, Filter::Plain).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Media);
}
