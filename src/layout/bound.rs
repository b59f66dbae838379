//! The largest value of a formula over a domain that can be taken apart: best-first search with bounds.
//!
//! A policy describes the layouts of its domain as `Region`s. A formula that is a polynomial has an upper bound over a
//! region: terms with a positive factor at the region's largest values, the others at its smallest. The region with the
//! largest bound is taken apart first, so the search ends as soon as no bound exceeds what an image reaches. Any other
//! formula is evaluated on every layout.
//!
//! *Soundness.* The value of every layout is at most the bound of the region that holds it, and regions are only given
//! up if their bound does not exceed the result. What is neither reached nor given up (the budget is spent, or it is
//! unclear whether an image reaches a layout) raises the result, which then is not `exact`.
//!
//! *Witness.* Among equal values the search goes on for a while, and the squarest image met is taken, then the smallest.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::{Formula, ImageSize, Layout, Maximum, Polynomial};
use crate::descriptor::expression::ExpressionError;

/// So many regions are taken apart before the search settles for a bound.
const BUDGET: u32 = 1 << 12;
/// So many of them only to find a squarer witness of the same value.
const TIES: u32 = 1 << 9;
/// A formula without bounds is evaluated on at most this many layouts.
const EVALUATIONS: u64 = 1 << 18;
/// For so many layouts a search may be made for an image that reaches them.
const ATTEMPTS: usize = 64;

/// Part of a domain, never empty.
pub(crate) trait Region: Sized {
    /// Names a layout for which a witness is not known right away.
    type Place: Copy;
    /// How many layouts the region has.
    fn count(&self) -> u64;
    /// Layouts that in every name are at most, and at least, what any layout of the region is.
    fn corners(&self) -> (Layout, Layout);
    /// Some layouts of the region, and the rest; its largest layout among them if a `rising` formula is sought for and
    /// the region has one.
    fn split(self, rising: bool) -> (Vec<Leaf<Self::Place>>, Vec<Self>);
}

/// What is found out about a layout without a witness.
pub(crate) enum Verdict {
    /// This image reaches it.
    Reached(ImageSize),
    /// No image does.
    Never,
    /// Perhaps one does.
    Unclear,
}

/// One layout of a domain.
pub(crate) struct Leaf<P> {
    /// The layout.
    pub(crate) layout: Layout,
    /// An image that reaches it, if one is known.
    pub(crate) witness: Result<ImageSize, P>,
}

/// A region with the bound of the formula.
struct Open<R> {
    bound: i64,
    turn: Reverse<u32>,
    region: R,
}

impl<R> Ord for Open<R> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.bound, self.turn).cmp(&(other.bound, other.turn))
    }
}

impl<R> PartialOrd for Open<R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<R> PartialEq for Open<R> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<R> Eq for Open<R> {}

/// The largest value of `formula` over the layouts of all `regions`; `settle` looks for an image that reaches a layout.
///
/// `None` if no layout is accepted. Fails where the formula does, and for a formula that is no polynomial on a domain of
/// more than 262 144 layouts.
pub(crate) fn maximum<R: Region>(
    formula: &Formula<'_>,
    regions: Vec<R>,
    settle: impl Fn(R::Place) -> Verdict,
) -> Result<Option<Maximum>, ExpressionError> {
    let polynomial = formula.polynomial.as_ref();
    if polynomial.is_none() {
        let count = regions.iter().map(Region::count).fold(0, u64::saturating_add);
        if count > EVALUATIONS {
            return Err(ExpressionError {
                message: format!("the formula would have to be evaluated on {count} layouts"),
                hint: Some("a polynomial needs far fewer".to_owned()),
            });
        }
    }
    let bound = |region: &R| {
        polynomial.map_or(i64::MAX, |polynomial| {
            let (low, high) = region.corners();
            upper_bound(polynomial, &low, &high)
        })
    };
    let mut turns = 0..;
    let mut open = BinaryHeap::new();
    let mut enter = |open: &mut BinaryHeap<Open<R>>, region: R, least: Option<i64>| {
        let bound = bound(&region);
        if least.is_none_or(|least| bound >= least) {
            open.push(Open { bound, turn: Reverse(turns.next().unwrap_or(u32::MAX)), region });
        }
    };
    for region in regions {
        enter(&mut open, region, None);
    }

    let mut best = None::<Maximum>;
    let mut unclear = Vec::new();
    let mut left = None;
    let (mut steps, mut ties) = (0, 0);
    while let Some(next) = open.pop() {
        let least = best.map(|best| best.value);
        if least.is_some_and(|least| next.bound < least) {
            break;
        }
        if polynomial.is_some() {
            ties += u32::from(least == Some(next.bound));
            if ties > TIES {
                break;
            }
            if steps == BUDGET {
                left = Some(next.bound);
                break;
            }
            steps += 1;
        }
        let (leaves, rest) = next.region.split(formula.rises());
        for leaf in leaves {
            let value = formula.at(&leaf.layout)?;
            match leaf.witness {
                Ok(witness) => {
                    if best.is_none_or(|best| {
                        value > best.value || value == best.value && squarer(witness, best.witness)
                    }) {
                        best = Some(Maximum { value, witness, exact: true });
                    }
                }
                Err(place) => unclear.push((value, place)),
            }
        }
        for region in rest {
            enter(&mut open, region, best.map(|best| best.value));
        }
    }

    unclear.sort_by_key(|(value, _)| Reverse(*value));
    for (attempt, (value, place)) in unclear.into_iter().enumerate() {
        if best.is_some_and(|best| best.value >= value) {
            break;
        }
        let verdict = if attempt < ATTEMPTS { settle(place) } else { Verdict::Unclear };
        match verdict {
            Verdict::Reached(witness) => best = Some(Maximum { value, witness, exact: true }),
            Verdict::Never => {}
            Verdict::Unclear => left = left.max(Some(value)),
        }
    }
    Ok(match (best, left) {
        (Some(best), Some(left)) if left > best.value => {
            Some(Maximum { value: left, exact: false, ..best })
        }
        (None, Some(value)) => {
            // no image is known to be accepted, nor that none is
            Some(Maximum { value, witness: ImageSize { width: 1, height: 1 }, exact: false })
        }
        (best, _) => best,
    })
}

/// No layout between `low` and `high` has a larger value; [`i64::MAX`] if that is out of reach.
fn upper_bound(polynomial: &Polynomial, low: &Layout, high: &Layout) -> i64 {
    let mut sum = 0_i128;
    for (powers, factor) in polynomial.terms() {
        let corner = if factor < 0 { low } else { high };
        let mut term = i128::from(factor);
        for (power, (_, value)) in powers.iter().zip(corner.fields()) {
            if *power > 0 {
                term = i128::from(value).saturating_pow(*power).saturating_mul(term);
            }
        }
        if term == i128::MAX {
            return i64::MAX;
        }
        sum = sum.saturating_add(term);
    }
    i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX })
}

/// Whether `one` is nearer to a square than `other`; between equals, whether it is smaller, or in landscape.
pub(crate) fn squarer(one: ImageSize, other: ImageSize) -> bool {
    let sides = |size: ImageSize| {
        (u64::from(size.width.max(size.height)), u64::from(size.width.min(size.height)))
    };
    let ((long, short), (other_long, other_short)) = (sides(one), sides(other));
    let order = (long * other_short).cmp(&(other_long * short));
    let order = order.then((long * short).cmp(&(other_long * other_short)));
    order.then(other.width.cmp(&one.width)) == Ordering::Less
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 2] = ["rows", "cols"];

    #[test]
    fn bounds_take_each_term_at_its_own_corner() {
        let terms = [(vec![1, 1], 2), (vec![0, 2], -3), (vec![0, 0], 5)];
        let polynomial = Polynomial::new(terms.into_iter().collect());
        let corner = |rows, cols| Layout::new(&NAMES, [rows, cols]);
        assert_eq!(upper_bound(&polynomial, &corner(1, 2), &corner(10, 20)), 400 - 12 + 5);
        let huge = Polynomial::new([(vec![9, 9], 1), (vec![0, 0], -7)].into_iter().collect());
        assert_eq!(upper_bound(&huge, &corner(0, 0), &corner(u32::MAX, u32::MAX)), i64::MAX);
        let low = Polynomial::new([(vec![9, 9], -1)].into_iter().collect());
        let (most, least) = (corner(u32::MAX, u32::MAX), corner(u32::MAX, u32::MAX));
        assert_eq!(upper_bound(&low, &least, &most), i64::MIN);
    }

    #[test]
    fn squareness() {
        let size = |width, height| ImageSize { width, height };
        assert!(squarer(size(3, 4), size(4, 8)));
        assert!(squarer(size(3, 4), size(6, 8)));
        assert!(squarer(size(4, 3), size(3, 4)));
        assert!(!squarer(size(3, 4), size(3, 4)));
    }
}
