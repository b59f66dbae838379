//! Intervals of ratios in fixed point, where doubles cannot be trusted, and the simplest fraction in them.

/// Ratios are integers in units of 2^-60.
const RATIO_BITS: u32 = 60;
/// The ratio of a square.
pub(super) const SQUARE: u128 = 1 << RATIO_BITS;

/// An interval of ratios, at least 1, in units of 2^-60.
pub(super) struct Cone {
    /// Here doubles and real numbers agree.
    pub(super) inner: (u128, u128),
    /// Here they may not.
    pub(super) edges: [(u128, u128); 2],
}

impl Cone {
    /// The ratios from `low` to `high`, ends uncertain, and from 1 to `limit`, ends included.
    pub(super) fn new(low: f64, high: f64, limit: u32) -> Self {
        // the ends are doubles off by a few 2^-53; none beyond 2^17 matters
        let fixed = |ratio: f64| (ratio.min(f64::from(1 << 17)) * SQUARE as f64) as u128;
        let margin = |edge: u128| (edge >> 44) + 1;
        let limit = u128::from(limit) * SQUARE;
        let (low, high) = (fixed(low), fixed(high));
        let around = |edge: u128| {
            let start = edge.saturating_sub(2 * margin(edge));
            (start.max(SQUARE), (edge + 2 * margin(edge)).min(limit))
        };
        Self {
            inner: ((low + margin(low)).max(SQUARE), high.saturating_sub(margin(high)).min(limit)),
            edges: [around(low), around(high)],
        }
    }
}
