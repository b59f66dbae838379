//! Size policies: what an input of one size becomes, and the worst that any input can become.
//!
//! A policy knows no pixels, no tokens and no families. It answers two questions: [`Policy::layout`] for one input, and
//! [`Policy::maximum`] of a formula over every input that the policy admits: images whose sides are 1 to 65 535 px, clips
//! of any length.

pub mod area;
pub mod arrangement;
mod bound;
pub mod ceil_grid;
pub mod clip;
pub mod closest_ratio;
mod core;
pub mod crop;
pub mod fit;
pub mod least_upscale;
pub mod pan_and_scan;
pub mod patch_budget;
pub mod pinpoints;
mod rounding;
#[cfg(test)]
mod sweep;
pub mod view_steps;
mod witness;

use std::fmt;

pub use self::area::Area;
pub use self::arrangement::Arrangement;
pub use self::ceil_grid::CeilGrid;
pub use self::clip::Clip;
pub use self::closest_ratio::ClosestRatio;
pub use self::core::{Formula, ImageSize, LONGEST_SIDE, Layout, Maximum, Polynomial, SizePolicy};
pub use self::crop::Crop;
pub use self::fit::Fit;
pub use self::least_upscale::LeastUpscale;
pub use self::pan_and_scan::PanAndScan;
pub use self::patch_budget::PatchBudget;
pub use self::pinpoints::Pinpoints;
pub use self::view_steps::ViewSteps;
use crate::descriptor::expression::ExpressionError;

/// The size of one media item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaSize {
    /// A picture in pixels.
    Image(ImageSize),
    /// A clip in samples, at the rate that the model takes.
    Samples(u64),
}

impl From<ImageSize> for MediaSize {
    fn from(size: ImageSize) -> Self {
        Self::Image(size)
    }
}

impl From<&ImageSize> for MediaSize {
    fn from(size: &ImageSize) -> Self {
        Self::Image(*size)
    }
}

impl From<&MediaSize> for MediaSize {
    fn from(size: &MediaSize) -> Self {
        *size
    }
}

impl fmt::Display for MediaSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(size) => size.fmt(f),
            Self::Samples(1) => f.write_str("1 sample"),
            Self::Samples(samples) => write!(f, "{samples} samples"),
        }
    }
}

/// A policy with all its parameters known.
#[derive(Debug, Clone, PartialEq)]
pub enum Policy {
    /// One fixed size.
    Crop(Crop),
    /// Multiples of a step within bounds of area.
    Area(Area),
    /// Within limits of both sides.
    Fit(Fit),
    /// Within a budget of cells.
    PatchBudget(PatchBudget),
    /// Tiles of a canvas out of a list.
    Pinpoints {
        /// The grid.
        policy: Pinpoints,
        /// What every view goes through.
        steps: ViewSteps,
    },
    /// Tiles in the grid of the closest ratio.
    ClosestRatio(ClosestRatio),
    /// The long side to a length, then whole tiles.
    CeilGrid(CeilGrid),
    /// Tiles in the grid that enlarges least.
    LeastUpscale {
        /// The grid.
        policy: LeastUpscale,
        /// Whether pictures keep their proportions in a corner of the canvas; otherwise they are stretched.
        inside: bool,
    },
    /// One size, and crops of long pictures.
    PanAndScan(PanAndScan),
    /// Clips of sound.
    Clip(Clip),
}

/// What tells how a policy is asked.
enum Rule<'a> {
    Image(&'a dyn SizePolicy),
    Audio(&'a Clip),
}

impl Policy {
    fn rule(&self) -> Rule<'_> {
        match self {
            Self::Crop(crop) => Rule::Image(crop),
            Self::Area(area) => Rule::Image(area),
            Self::Fit(fit) => Rule::Image(fit),
            Self::PatchBudget(budget) => Rule::Image(budget),
            Self::Pinpoints { policy, .. } => Rule::Image(policy),
            Self::ClosestRatio(grid) => Rule::Image(grid),
            Self::CeilGrid(grid) => Rule::Image(grid),
            Self::LeastUpscale { policy, .. } => Rule::Image(policy),
            Self::PanAndScan(scan) => Rule::Image(scan),
            Self::Clip(clip) => Rule::Audio(clip),
        }
    }

    /// The names of its layouts.
    pub fn names(&self) -> &'static [&'static str] {
        match self.rule() {
            Rule::Image(rule) => rule.names(),
            Rule::Audio(_) => &clip::NAMES,
        }
    }

    /// The layout of one item, or why the reference refuses it.
    pub fn layout(&self, size: MediaSize) -> Result<Layout, String> {
        match (self.rule(), size) {
            (_, MediaSize::Image(ImageSize { width: 0, .. } | ImageSize { height: 0, .. })) => {
                Err("a side is zero".to_owned())
            }
            (Rule::Image(rule), MediaSize::Image(size)) => rule.layout(size),
            (Rule::Audio(clip), MediaSize::Samples(samples)) => Ok(clip.layout(samples)),
            (Rule::Image(_), MediaSize::Samples(_)) => Err("a clip is no picture".to_owned()),
            (Rule::Audio(_), MediaSize::Image(_)) => Err("a picture is no clip".to_owned()),
        }
    }

    /// The largest value of `formula` over all admissible items, with one that reaches it; `None` if all are refused.
    pub fn maximum(
        &self,
        formula: &Formula<'_>,
    ) -> Result<Option<Maximum<MediaSize>>, ExpressionError> {
        Ok(match self.rule() {
            Rule::Image(rule) => rule.maximum(formula)?.map(|found| found.map(MediaSize::Image)),
            Rule::Audio(clip) => clip.maximum(formula)?.map(|found| found.map(MediaSize::Samples)),
        })
    }

    /// Layouts to hold statements against: all of a small domain, or its corners and a regular sample.
    pub fn samples(&self) -> Vec<Layout> {
        match self.rule() {
            Rule::Image(rule) => rule.samples(),
            Rule::Audio(clip) => clip.samples(),
        }
    }

    /// What it does, in a few words.
    pub fn describe(&self) -> String {
        match self {
            Self::Crop(crop) => format!("one size, {} px", crop.size()),
            Self::Area(area) => {
                format!("sides in steps of {} px, area within limits", area.step())
            }
            Self::Fit(fit) => format!("shrunk to limits, cells of {} px", fit.cell()),
            Self::PatchBudget(budget) => format!("a budget of cells of {} px", budget.unit()),
            Self::Pinpoints { policy, .. } => {
                format!("tiles of {} px on a canvas from a list", policy.tile())
            }
            Self::ClosestRatio(grid) => format!("tiles of {} px, closest ratio", grid.tile()),
            Self::CeilGrid(grid) => format!("a long side of whole tiles of {} px", grid.tile()),
            Self::LeastUpscale { policy, .. } => {
                format!("tiles of {} px, least enlargement", policy.tile())
            }
            Self::PanAndScan(scan) => format!("one size, {} px, and crops", scan.view()),
            Self::Clip(clip) => {
                format!("{} samples a second, at most {} of them", clip.rate(), clip.limit())
            }
        }
    }

    /// The numbers of views (tiles, crops and whole views) that a picture can give, rising; empty where pictures are not cut.
    pub fn tile_counts(&self) -> Vec<u32> {
        let counted = ["views", "tiles"].into_iter().find(|name| self.names().contains(name));
        let Some(name) = counted else { return Vec::new() };
        let layouts = self.samples();
        let mut counts: Vec<_> = layouts.iter().filter_map(|layout| layout.get(name)).collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// `fixed` where every item costs the same, `per tile` or `dynamic` elsewhere.
    pub fn budget_kind(&self) -> &'static str {
        match self.rule() {
            Rule::Image(rule) => rule.budget_kind(),
            Rule::Audio(_) => "dynamic",
        }
    }
}
