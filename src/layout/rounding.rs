//! Rounding by name: what the reference's `round` and integer square roots mean, spelled once.

/// Rounds to the nearest integer, a tie to the even one: Python's `round` of a float.
pub(crate) fn half_even(value: f64) -> f64 {
    value.round_ties_even()
}

/// `numerator / denominator` rounded as [`half_even`] does, without floats. The denominator is at least 1.
///
/// For a numerator below 2^52 this equals `half_even(numerator / denominator)`: the quotient differs from a tie
/// either not at all, and then it is a double, or by at least `1 / (2 · denominator)`, which is more than half of
/// its last place.
pub(crate) fn half_even_quotient(numerator: u64, denominator: u64) -> u64 {
    let (whole, rest) = (numerator / denominator, numerator % denominator);
    // rest against denominator - rest: twice the rest could overflow
    let up = match rest.cmp(&(denominator - rest)) {
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Equal => whole % 2 == 1,
        std::cmp::Ordering::Greater => true,
    };
    whole + u64::from(up)
}

/// The largest integer whose square is at most `value`.
pub(crate) fn isqrt(value: u64) -> u64 {
    value.isqrt()
}

#[cfg(test)]
mod tests {
    use super::{half_even, half_even_quotient, isqrt};

    #[test]
    fn ties_go_to_the_even_neighbour() {
        for (value, rounded) in
            [(0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-0.5, 0.0), (-1.5, -2.0), (0.499_999, 0.0)]
        {
            assert!((half_even(value) - rounded).abs() < 1e-12, "{value}");
        }
    }

    #[test]
    fn quotients_round_as_floats_do() {
        for denominator in [1, 2, 3, 4, 7, 8, 14, 27, 28, 32, 65_535] {
            for numerator in (0..70_000).chain((1 << 32) - 500..1 << 32) {
                let float = half_even(numerator as f64 / denominator as f64);
                assert_eq!(
                    half_even_quotient(numerator, denominator),
                    float as u64,
                    "{numerator}/{denominator}"
                );
            }
        }
        assert_eq!(half_even_quotient(u64::MAX, 2), 1 << 63);
        assert_eq!(half_even_quotient(u64::MAX, u64::MAX), 1);
    }

    #[test]
    fn roots_are_floored() {
        for (value, root) in [(0, 0), (1, 1), (3, 1), (4, 2), (99, 9), (u64::MAX, (1 << 32) - 1)] {
            assert_eq!(isqrt(value), root);
        }
    }
}
