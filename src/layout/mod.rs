//! Size policies: what an image of one size becomes, and the worst that any image can become.
//!
//! A policy knows no pixels, no tokens and no families. It answers two questions: [`Policy::layout`] for one input, and
//! [`Policy::maximum`] of a formula over every input whose sides are 1 to 65 535 px and that the policy admits.

pub mod area;
pub mod crop;
mod maximum;
mod rounding;

use std::collections::BTreeMap;
use std::fmt;

pub use self::area::Area;
pub use self::crop::Crop;
pub use self::maximum::{Formula, Maximum};
use crate::descriptor::expression::{Bound, ExpressionError};
pub use crate::descriptor::image::LAYOUT_NAMES;

/// The longest side of an admissible image, in pixels.
pub const LONGEST_SIDE: u32 = 65_535;

/// The size of an image in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSize {
    /// Columns of pixels.
    pub width: u32,
    /// Rows of pixels.
    pub height: u32,
}

impl fmt::Display for ImageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

/// What a policy makes of one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Rows of cells.
    pub rows: u32,
    /// Columns of cells.
    pub cols: u32,
    /// The resized picture's width in pixels.
    pub width: u32,
    /// The resized picture's height in pixels.
    pub height: u32,
}

impl Layout {
    /// The names that expressions use, with the values.
    pub fn fields(&self) -> [(&'static str, u32); 4] {
        [("rows", self.rows), ("cols", self.cols), ("width", self.width), ("height", self.height)]
    }

    /// The values as bindings of an expression.
    pub fn bindings(&self) -> BTreeMap<String, Bound> {
        self.fields()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), Bound::Integer(i64::from(value))))
            .collect()
    }
}

/// A resize policy with all its parameters known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Policy {
    /// One fixed size.
    Crop(Crop),
    /// Multiples of a step within bounds of area.
    Area(Area),
}

impl Policy {
    /// The layout of one image, or why the reference refuses it.
    pub fn layout(&self, size: ImageSize) -> Result<Layout, String> {
        if size.width == 0 || size.height == 0 {
            return Err("a side is zero".to_owned());
        }
        match self {
            Self::Crop(crop) => Ok(crop.layout()),
            Self::Area(area) => {
                let (width, height) =
                    area.resized(size.width, size.height).map_err(|refusal| refusal.to_string())?;
                Ok(Layout { rows: height / area.step(), cols: width / area.step(), width, height })
            }
        }
    }

    /// The largest value of `formula` over all admissible images, with an image that reaches it.
    pub fn maximum(&self, formula: &Formula<'_>) -> Result<Option<Maximum>, ExpressionError> {
        match self {
            Self::Crop(crop) => maximum::of_one(formula, &crop.layout(), crop.witness()).map(Some),
            Self::Area(area) => maximum::of_area(formula, area),
        }
    }

    /// Layouts to hold statements against: all of a small domain, or its corners and a regular sample.
    pub fn samples(&self) -> Vec<Layout> {
        match self {
            Self::Crop(crop) => vec![crop.layout()],
            Self::Area(area) => maximum::area_samples(area),
        }
    }

    /// `fixed` where every image costs the same, else `dynamic`.
    pub fn budget_kind(&self) -> &'static str {
        match self {
            Self::Crop(_) => "fixed",
            Self::Area(_) => "dynamic",
        }
    }
}
