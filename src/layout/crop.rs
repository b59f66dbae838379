//! The size policy `crop`: every picture becomes one fixed size.
//!
//! The reference's plain processors (`CLIPImageProcessor`, `SiglipImageProcessor`, `LlavaImageProcessor`) resize, either
//! the shortest edge to a length or both sides to a height and width, and then cut (or zero-pad) the centre.
//!
//! # What surprises
//!
//! * The long side after resizing the shortest edge is `int(shortest · long / short)`: multiplied first, truncated.
//! * The cut never fails: a smaller picture is padded with black first.
//! * Without a cut the shortest-edge form has no fixed size. The towers behind it take one size only, so that is
//!   refused rather than counted.
//!
//! # Domain
//!
//! One layout, whatever the picture: exact by construction. The witness is a picture of just that size.

use super::{Formula, ImageSize, LONGEST_SIDE, Layout, Maximum, SizePolicy};
use crate::descriptor::expression::ExpressionError;

pub(super) use crate::descriptor::resize::PLAIN as NAMES;

/// The parameters, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crop {
    /// Whether pictures are padded to a square with the mean colour first.
    pub pad_square: bool,
    /// The resize step; `None` leaves the size alone.
    pub resize: Option<ResizeTo>,
    /// Whether the centre is cut.
    pub cut: bool,
    /// The final height in pixels.
    height: u32,
    /// The final width in pixels.
    width: u32,
    cell: u32,
}

/// How the resize step finds its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResizeTo {
    /// The shortest edge becomes this long, the other keeps the aspect ratio.
    Shortest(u32),
    /// Both sides, the aspect ratio ignored.
    Fixed {
        /// Height in pixels.
        height: u32,
        /// Width in pixels.
        width: u32,
    },
}

impl ResizeTo {
    /// The size that an image is resized to, as `get_resize_output_image_size` of the reference computes it.
    pub fn target(self, size: ImageSize) -> Option<ImageSize> {
        match self {
            Self::Fixed { height, width } => Some(ImageSize { width, height }),
            Self::Shortest(shortest) => {
                let (short, long) = (size.width.min(size.height), size.width.max(size.height));
                // the product is an exact integer in the reference, its quotient a double that is truncated
                let product = u64::from(shortest) * u64::from(long);
                let stretched = (product as f64 / f64::from(short)).floor();
                if short == 0 || stretched > f64::from(u32::MAX) {
                    return None;
                }
                let stretched = stretched as u32;
                Some(if size.width <= size.height {
                    ImageSize { width: shortest, height: stretched }
                } else {
                    ImageSize { width: stretched, height: shortest }
                })
            }
        }
    }
}

impl Crop {
    /// Checks the parameters; the error is a sentence.
    pub fn new(
        pad_square: bool,
        resize: Option<ResizeTo>,
        cut: Option<ImageSize>,
        cell: u32,
    ) -> Result<Self, String> {
        let size = match (cut, resize) {
            (Some(size), _) => size,
            (None, Some(ResizeTo::Fixed { height, width })) => ImageSize { width, height },
            (None, _) => {
                return Err(
                    "pictures keep a size of their own, but the tower takes one size".to_owned()
                );
            }
        };
        if cell == 0 || size.width < cell || size.height < cell {
            return Err(format!("a picture of {size} px holds no cell of {cell} px"));
        }
        if size.width > LONGEST_SIDE || size.height > LONGEST_SIDE {
            return Err(format!("a picture of {size} px is larger than {LONGEST_SIDE} px"));
        }
        if let Some(ResizeTo::Shortest(0)) = resize {
            return Err("the shortest edge is resized to 0 px".to_owned());
        }
        Ok(Self {
            pad_square,
            resize,
            cut: cut.is_some(),
            height: size.height,
            width: size.width,
            cell,
        })
    }

    /// The size of every picture.
    pub fn size(&self) -> ImageSize {
        ImageSize { width: self.width, height: self.height }
    }

    /// The only layout.
    fn only(&self) -> Layout {
        let (rows, cols) = (self.height / self.cell, self.width / self.cell);
        Layout::new(&NAMES, [rows, cols, self.width, self.height])
    }
}

impl SizePolicy for Crop {
    fn names(&self) -> &'static [&'static str] {
        &NAMES
    }

    fn layout(&self, _: ImageSize) -> Result<Layout, String> {
        Ok(self.only())
    }

    fn maximum(&self, formula: &Formula<'_>) -> Result<Option<Maximum>, ExpressionError> {
        Ok(Some(Maximum { value: formula.at(&self.only())?, witness: self.size(), exact: true }))
    }

    fn samples(&self) -> Vec<Layout> {
        vec![self.only()]
    }

    fn budget_kind(&self) -> &'static str {
        "fixed"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortest_edge_truncates_after_multiplying() {
        let to = ResizeTo::Shortest(336);
        let size = |width, height| {
            to.target(ImageSize { width, height }).map(|size| (size.width, size.height))
        };
        assert_eq!(size(640, 480), Some((448, 336)));
        assert_eq!(size(333, 500), Some((336, 504)));
        assert_eq!(size(1, 200), Some((336, 67_200)));
        assert_eq!(size(7, 7), Some((336, 336)));
        assert_eq!(size(0, 5), None);
    }

    #[test]
    fn one_layout_for_all() {
        let cut = Some(ImageSize { width: 336, height: 336 });
        let crop = Crop::new(false, Some(ResizeTo::Shortest(336)), cut, 14).unwrap();
        assert_eq!((crop.only().get("rows"), crop.only().get("cols")), (Some(24), Some(24)));
        assert!(Crop::new(false, Some(ResizeTo::Shortest(336)), None, 14).is_err());
        assert!(Crop::new(false, None, None, 14).is_err());
        assert!(Crop::new(false, None, cut, 337).is_err());
        let fixed = ResizeTo::Fixed { height: 30, width: 44 };
        assert_eq!(Crop::new(false, Some(fixed), None, 14).unwrap().only().get("cols"), Some(3));
    }
}
