//! Who sees whom in an encoder.

use crate::backend::{KeyRanges, Mask};
use crate::descriptor::block::MaskRule;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::graph::AttentionPlan;

/// Who sees whom in a batch.
pub(super) struct Masks {
    /// Rows of each view.
    pub(super) views: Vec<usize>,
    /// Rows of each window; empty where there are none.
    pub(super) windows: Vec<usize>,
    /// Pairs of which not both are padding.
    pub(super) pairs: KeyRanges,
}

impl Masks {
    /// The mask of an attention.
    pub(super) fn of(&self, plan: &AttentionPlan) -> Result<Mask<'_>> {
        match plan.mask {
            MaskRule::PerMedia => Ok(Mask::Segments(&self.views)),
            MaskRule::PerWindow => Ok(Mask::Segments(if self.windows.is_empty() {
                &self.views
            } else {
                &self.windows
            })),
            MaskRule::PadPairs => Ok(Mask::Ranges(&self.pairs)),
            MaskRule::Causal
            | MaskRule::MediaRuns
            | MaskRule::MediaAll
            | MaskRule::Prefix
            | MaskRule::LastMedia => {
                Err(Error::new(ErrorKind::Unsupported, "this mask is no mask of an encoder"))
            }
        }
    }
}

/// Rows of `views` views of `own + padding` rows: a pair is hidden if both rows are padding or of a black view.
pub(super) fn pairs(views: usize, real: usize, own: usize, padding: usize) -> KeyRanges {
    let each = own + padding;
    let shown: Vec<_> = (0..real.min(views)).map(|view| view * each..view * each + own).collect();
    let mut ranges = KeyRanges::new();
    for view in 0..views {
        for row in 0..each {
            if view < real && row < own {
                ranges.push(std::iter::once(0..views * each));
            } else {
                ranges.push(shown.iter().cloned());
            }
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init)]

    use super::*;

    #[test]
    fn padding_does_not_see_padding() {
        // two views of two rows and one row of padding, the second view black
        let found = pairs(2, 1, 2, 1);
        assert!((0..2).all(|row| found.row(row) == [0..6]));
        assert!((2..6).all(|row| found.row(row) == [0..2]));
    }
}
