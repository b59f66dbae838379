//! Planes to patch rows: each row is what one position of a patch convolution reads.

use rayon::prelude::*;

use super::image::Planes;
use crate::error::{Error, ErrorKind, Result};

/// How planes are cut into patches, and in which order the patches follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PatchOrder {
    /// Height and width of a patch in pixels.
    pub patch: (usize, usize),
    /// How often the picture is repeated along time; 1 for a convolution over a plane.
    pub frames: usize,
    /// Side of a block in patches. 1 gives raster order; otherwise block rows and block columns run outside, the row
    /// and the column within the block inside.
    pub block: usize,
}

/// Patch rows, `[rows, columns]` in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub struct Patches {
    /// Number of patches.
    pub rows: usize,
    /// Values of a patch: `channels * frames * patch height * patch width`.
    pub columns: usize,
    /// `rows * columns` values.
    pub data: Vec<f32>,
}

/// The patches of `planes` as rows.
///
/// Columns run channel, frame, y, x, so a row times the flattened weight `[out, channels, frames, h, w]` is one
/// position of the convolution. With blocks the order of rows is that of `Qwen2VLImageProcessor` (its `merge_size` is
/// the block), where the patches that are merged later stand together.
///
/// Fails if a number is 0 or the sides are not multiples of patch times block.
pub fn patchify(planes: &Planes, order: PatchOrder) -> Result<Patches> {
    let PatchOrder { patch: (patch_height, patch_width), frames, block } = order;
    let refuse = || {
        Error::new(
            ErrorKind::Media,
            format!(
                "a picture of `{}x{}` pixels cannot be cut into blocks of `{block}x{block}` patches of \
                 `{patch_width}x{patch_height}` pixels in `{frames}` frames",
                planes.width, planes.height
            ),
        )
    };
    let blocks = |side: usize, patch: usize| {
        let unit = patch.checked_mul(block).filter(|unit| *unit > 0)?;
        (side > 0 && side.is_multiple_of(unit)).then_some(side / unit)
    };
    let block_rows = blocks(planes.height, patch_height).ok_or_else(refuse)?;
    let block_columns = blocks(planes.width, patch_width).ok_or_else(refuse)?;
    let area = planes.height.checked_mul(planes.width).ok_or_else(refuse)?;
    if frames == 0 || Some(planes.data.len()) != area.checked_mul(planes.channels) {
        return Err(refuse());
    }
    let rows = block_rows * block_columns * block * block;
    let pixels = patch_height * patch_width;
    let columns = pixels
        .checked_mul(planes.channels)
        .and_then(|n| n.checked_mul(frames))
        .ok_or_else(refuse)?;
    let length = rows.checked_mul(columns).ok_or_else(refuse)?;
    let mut data = Vec::new();
    data.try_reserve_exact(length).map_err(|_| refuse())?;
    data.resize(length, 0.0_f32);
    if data.is_empty() {
        return Err(refuse());
    }

    data.par_chunks_exact_mut(columns).enumerate().for_each(|(index, row)| {
        let (block_index, inside) = (index / (block * block), index % (block * block));
        let patch_y = block_index / block_columns * block + inside / block;
        let patch_x = block_index % block_columns * block + inside % block;
        let corner = patch_y * patch_height * planes.width + patch_x * patch_width;
        for (channel, repeats) in row.chunks_exact_mut(frames * pixels).enumerate() {
            let from = channel * area + corner;
            let (first, others) = repeats.split_at_mut(pixels);
            for (y, line) in first.chunks_exact_mut(patch_width).enumerate() {
                let start = from + y * planes.width;
                line.copy_from_slice(&planes.data[start..start + patch_width]);
            }
            for other in others.chunks_exact_mut(pixels) {
                other.copy_from_slice(first);
            }
        }
    });
    Ok(Patches { rows, columns, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One plane whose values count up.
    fn counting(height: usize, width: usize) -> Planes {
        Planes::new(1, height, width, (0..height * width).map(|n| n as f32).collect()).unwrap()
    }

    fn first_columns(patches: &Patches) -> Vec<f32> {
        patches.data.chunks_exact(patches.columns).map(|row| row[0]).collect()
    }

    #[test]
    fn raster_order() {
        let order = PatchOrder { patch: (1, 2), frames: 1, block: 1 };
        let patches = patchify(&counting(2, 4), order).unwrap();
        assert_eq!((patches.rows, patches.columns), (4, 2));
        assert_eq!(first_columns(&patches), [0.0, 2.0, 4.0, 6.0]);
    }

    #[test]
    fn block_order_keeps_merged_patches_together() {
        let order = PatchOrder { patch: (1, 1), frames: 2, block: 2 };
        let patches = patchify(&counting(2, 4), order).unwrap();
        assert_eq!(patches.columns, 2);
        assert_eq!(first_columns(&patches), [0.0, 1.0, 4.0, 5.0, 2.0, 3.0, 6.0, 7.0]);
        assert_eq!(patches.data[2..4], [1.0, 1.0]);
    }

    #[test]
    fn sides_must_divide() {
        for (patch, frames, block) in [
            ((2, 2), 1, 2),
            ((0, 1), 1, 1),
            ((1, 1), 0, 1),
            ((1, 1), 1, 0),
            ((1, 1), usize::MAX, 1),
        ] {
            assert!(patchify(&counting(2, 6), PatchOrder { patch, frames, block }).is_err());
        }
    }
}
