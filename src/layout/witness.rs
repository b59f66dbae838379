//! What size policies share about witnesses: which of two is preferred, and the smallest image of a range of ratios.

use std::cmp::Ordering;

use super::ImageSize;

/// The image nearest to a square, then the smaller one, then the one in landscape.
pub(crate) fn preferred(one: ImageSize, other: ImageSize) -> ImageSize {
    let sides = |size: ImageSize| {
        let (width, height) = (u64::from(size.width), u64::from(size.height));
        (width.max(height), width.min(height))
    };
    let (long, short) = sides(one);
    let (other_long, other_short) = sides(other);
    let order = (long * other_short)
        .cmp(&(other_long * short))
        .then((long * short).cmp(&(other_long * other_short)))
        .then(other.width.cmp(&one.width));
    if order == Ordering::Greater { other } else { one }
}

/// The fraction with the least numerator, and at once the least denominator, from `low` to `high`, ends included.
///
/// Both are fractions with positive denominators, at least 0, and `low <= high` (Stern and Brocot).
pub(super) fn simplest_between(low: (u128, u128), high: (u128, u128)) -> (u128, u128) {
    let (whole, rest) = (low.0 / low.1, low.0 % low.1);
    if rest == 0 {
        return (whole, 1);
    }
    if whole < high.0 / high.1 {
        return (whole + 1, 1);
    }
    // the same whole part: the reciprocals of the rests, whose order is reversed
    let (numerator, denominator) = simplest_between((high.1, high.0 % high.1), (low.1, rest));
    (whole * numerator + denominator, numerator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squarer_then_smaller_then_wider() {
        let size = |width, height| ImageSize { width, height };
        for (better, worse) in [
            (size(9, 8), size(8, 7)),
            (size(3, 4), size(8, 6)),
            (size(4, 3), size(3, 4)),
            (size(65_535, 65_535), size(65_535, 65_534)),
        ] {
            assert_eq!(preferred(better, worse), better);
            assert_eq!(preferred(worse, better), better);
        }
    }

    #[test]
    fn no_simpler_fraction_lies_between() {
        for low in 1..30_u128 {
            for high in low..30 {
                for (below, above) in [(7, 7), (5, 3), (29, 29)] {
                    let (low, high) = ((low, below), (high, above));
                    if low.0 * high.1 > high.0 * low.1 {
                        continue;
                    }
                    let (numerator, denominator) = simplest_between(low, high);
                    let inside = |numerator: u128, denominator: u128| {
                        numerator * low.1 >= low.0 * denominator
                            && numerator * high.1 <= high.0 * denominator
                    };
                    assert!(inside(numerator, denominator), "{low:?} {high:?}");
                    for other in 1..denominator {
                        assert!(!(1..200).any(|numerator| inside(numerator, other)));
                    }
                    assert!(!(1..numerator).any(|numerator| inside(numerator, denominator)));
                }
            }
        }
    }
}
