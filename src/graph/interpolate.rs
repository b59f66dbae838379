//! Which rows of a grid of learned rows a grid of another size reads, and with which weights.
//!
//! All numbers are f32 and rounded in the reference's order.

use crate::descriptor::tower::TableResize;

/// The taps of one axis: for every place of the new axis the places of the old one and their weights.
pub(super) type Taps = Vec<Vec<(usize, f32)>>;

/// How `size` places lie on an axis of `side` places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    /// Two neighbours, corners on corners: `align_corners=True` of `F.interpolate`.
    Corners,
    /// Two neighbours, half-pixel centres.
    Linear,
    /// Four neighbours, half-pixel centres, Keys' cubic with a = −3/4.
    Cubic,
    /// The bucket that a fraction of the axis falls into.
    Nearest,
}

impl Kernel {
    /// The kernel of a table's resizing; `None` where it is not resized.
    pub(super) fn of(resize: TableResize) -> Option<Self> {
        match resize {
            TableResize::None | TableResize::Antialias => None,
            TableResize::Bilinear => Some(Self::Corners),
            TableResize::Bicubic => Some(Self::Cubic),
            TableResize::Nearest => Some(Self::Nearest),
        }
    }
}

/// The taps of `size` places on an axis of `side` places; both are at least 1.
pub(super) fn axis(kernel: Kernel, size: usize, side: usize) -> Taps {
    match kernel {
        Kernel::Corners => {
            // `_interpolation_axis_taps_weights` of `vision_utils.py`
            let source = |index: usize| {
                index as f32 * (side.saturating_sub(1)) as f32 / (size.max(2) - 1) as f32
            };
            (0..size).map(|index| linear(source(index), side)).collect()
        }
        Kernel::Linear => {
            // `area_pixel_compute_source_index` of `UpSample.h`: no place before the first
            let scale = side as f32 / size as f32;
            let source = |index: usize| ((index as f32 + 0.5) * scale - 0.5).max(0.0);
            (0..size).map(|index| linear(source(index), side)).collect()
        }
        Kernel::Cubic => {
            let scale = side as f32 / size as f32;
            let source = |index: usize| (index as f32 + 0.5) * scale - 0.5;
            (0..size).map(|index| cubic(source(index), side)).collect()
        }
        Kernel::Nearest => nearest(size, side).into_iter().map(|at| vec![(at, 1.0)]).collect(),
    }
}

fn linear(source: f32, side: usize) -> Vec<(usize, f32)> {
    let floor = source.floor();
    let (first, fraction) = (floor as usize, source - floor);
    let last = side.saturating_sub(1);
    vec![(first.min(last), 1.0 - fraction), ((first + 1).min(last), fraction)]
}

/// Keys' kernel (R. Keys, 1981) with a = −3/4; rows beyond the border are those at the border.
fn cubic(source: f32, side: usize) -> Vec<(usize, f32)> {
    const A: f32 = -0.75;
    let floor = source.floor();
    let fraction = source - floor;
    let near = |x: f32| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let far = |x: f32| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    let weights = [far(fraction + 1.0), near(fraction), near(1.0 - fraction), far(2.0 - fraction)];
    let last = side.saturating_sub(1) as i64;
    let place = |offset: i64| (floor as i64 + offset).clamp(0, last) as usize;
    (-1..3).map(place).zip(weights).collect()
}

/// The bucket of `index / size` among `side`: `Idefics3VisionEmbeddings.forward`.
///
/// The boundaries are those of `torch.arange(1 / side, 1.0, 1 / side)`, whose roundings decide where a place falls exactly
/// onto one: whole pairs of 8 lanes count on from their first, which is rounded, in f64; the rest is counted from the start.
fn nearest(size: usize, side: usize) -> Vec<usize> {
    let step = 1.0 / side as f64;
    let count = ((1.0 - step) / step).ceil().max(0.0) as usize;
    let vectors = count / 16 * 16;
    let boundary = |index: usize| {
        if index < vectors {
            let first = (step + step * (index / 8 * 8) as f64) as f32;
            (f64::from(first) + (index % 8) as f64 * step) as f32
        } else {
            (step + step * index as f64) as f32
        }
    };
    let boundaries: Vec<f32> = (0..count).map(boundary).collect();
    let share = 1.0 / size as f32;
    (0..size)
        .map(|index| {
            let at = (index as f32 * share).min(1.0 - 1e-6);
            boundaries.partition_point(|boundary| *boundary <= at)
        })
        .collect()
}

/// For every place of `places` `(row, column)` on a grid of `size` the rows of a table over a grid of `side` and their
/// weights, as many for each: `(index, weights, count)`. `first` is the row of the table where its grid begins.
pub(super) fn grid(
    kernel: Kernel,
    places: &[(u32, u32)],
    size: (usize, usize),
    side: (usize, usize),
    first: usize,
) -> (Vec<u32>, Vec<f32>, usize) {
    let (down, across) = (axis(kernel, size.0, side.0), axis(kernel, size.1, side.1));
    let count = down.first().map_or(0, Vec::len) * across.first().map_or(0, Vec::len);
    let (mut index, mut weights) = (Vec::new(), Vec::new());
    let none = Vec::new();
    for (row, col) in places {
        for (row, by_row) in down.get(*row as usize).unwrap_or(&none) {
            for (col, by_col) in across.get(*col as usize).unwrap_or(&none) {
                index.push((first + row * side.1 + col) as u32);
                weights.push(by_row * by_col);
            }
        }
    }
    (index, weights, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: &[(usize, f32)], expected: &[(usize, f32)]) {
        assert_eq!(found.len(), expected.len());
        for ((place, weight), (wanted, by)) in found.iter().zip(expected) {
            assert!(place == wanted && (weight - by).abs() < 1e-6, "{found:?} {expected:?}");
        }
    }

    /// `F.interpolate` of [0, 1, 2, 3] to 6 and to 3 places.
    #[test]
    fn taps_of_one_axis() {
        let values = |taps: &Taps| -> Vec<f32> {
            taps.iter().map(|taps| taps.iter().map(|(at, by)| *at as f32 * by).sum()).collect()
        };
        let near = |found: Vec<f32>, expected: &[f32]| {
            assert_eq!(found.len(), expected.len());
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?}");
        };
        near(values(&axis(Kernel::Corners, 6, 4)), &[0.0, 0.6, 1.2, 1.8, 2.4, 3.0]);
        near(values(&axis(Kernel::Linear, 6, 4)), &[0.0, 0.5, 1.166_666_6, 1.833_333_4, 2.5, 3.0]);
        near(values(&axis(Kernel::Linear, 3, 4)), &[0.166_666_67, 1.5, 2.833_333_3]);
        near(
            values(&axis(Kernel::Cubic, 6, 4)),
            &[-0.086_805_56, 0.406_25, 1.212_963, 1.787_037, 2.593_75, 3.086_805_6],
        );
        close(&axis(Kernel::Corners, 1, 4)[0], &[(0, 1.0), (1, 0.0)]);
    }

    /// `torch.bucketize` of the reference for full grids; 19 and 27 are among those where rounding moves a place.
    #[test]
    fn buckets_round_as_the_reference_does() {
        let moved = |side: usize| -> Vec<usize> {
            let found = nearest(side, side);
            (0..side).filter(|index| found[*index] != *index).collect()
        };
        assert!(moved(16).is_empty() && moved(26).is_empty() && moved(32).is_empty());
        assert_eq!(nearest(5, 4), [0, 0, 1, 2, 3]);
        for (side, expected) in RECORDED {
            assert_eq!(moved(side), expected, "{side}");
        }
    }

    const RECORDED: [(usize, &[usize]); 7] = [
        (19, &[12]),
        (27, &[]),
        (38, &[12]),
        (54, &[44, 45]),
        (64, &[]),
        (72, &[35, 51, 52, 53, 60, 61]),
        (41, &[7, 10, 11, 14, 15, 19, 25, 27, 28, 29, 30, 32, 33, 35, 38, 40]),
    ];
}
