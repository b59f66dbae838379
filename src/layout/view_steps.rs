//! What every view of a tiled picture goes through once more: a resize and a cut, identities in published files.

use super::ImageSize;
use super::crop::ResizeTo;

/// The plain steps that a file asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewSteps {
    /// `size`: what views are resized to. The first view is always resized to it, both sides to a shortest edge.
    pub size: ResizeTo,
    /// `do_resize`: whether every view is resized to `size` once more.
    pub resize: bool,
    /// `crop_size` where `do_center_crop` is on: height and width that every view is cut or padded to.
    pub crop: Option<ImageSize>,
}

impl ViewSteps {
    /// Checks that views come out as squares of `tile` px, which is what the towers take.
    ///
    /// The reference cuts tiles of `crop_size.height`, else `size.height`, else `size.shortest_edge`: that is `tile`.
    pub fn check(&self, tile: u32) -> Result<(), String> {
        let square = ImageSize { width: tile, height: tile };
        let first = match self.size {
            ResizeTo::Fixed { height, width } => ImageSize { width, height },
            ResizeTo::Shortest(edge) => ImageSize { width: edge, height: edge },
        };
        for size in [square, first] {
            let size = if self.resize { self.size.target(size) } else { Some(size) };
            let size = self.crop.or(size).ok_or("a view would be resized to nothing")?;
            if size != square {
                return Err(format!("views would be {size} px where the tower takes {square}"));
            }
        }
        Ok(())
    }
}
