//! The two picture types: interleaved RGB bytes, and planes of floats.

use crate::error::{Error, ErrorKind, Result};

/// A picture of RGB bytes: `height` rows of `width` pixels of 3 bytes, interleaved, no padding between rows.
///
/// Both sides are at least 1 and `data` holds exactly `3 * width * height` bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rgb8 {
    width: u32,
    height: u32,
    data: Vec<u8>,
}

impl Rgb8 {
    /// Wraps `data`, which must hold `height` rows of `width` RGB pixels.
    ///
    /// Fails if a side is 0 or the length is not `3 * width * height`.
    pub fn new(width: u32, height: u32, data: Vec<u8>) -> Result<Self> {
        let expected = byte_length(width, height)?;
        if data.len() != expected {
            return Err(Error::new(
                ErrorKind::Media,
                format!(
                    "a picture of `{width}x{height}` pixels needs `{expected}` bytes, not `{}`",
                    data.len()
                ),
            ));
        }
        Ok(Self { width, height, data })
    }

    /// A picture of one colour.
    ///
    /// Fails if a side is 0 or memory does not suffice.
    pub fn filled(width: u32, height: u32, colour: [u8; 3]) -> Result<Self> {
        let length = byte_length(width, height)?;
        let mut data = reserved(length, width, height)?;
        if colour[0] == colour[1] && colour[1] == colour[2] {
            data.resize(length, colour[0]);
        } else {
            data.extend(colour.iter().cycle().take(length));
        }
        Ok(Self { width, height, data })
    }

    /// Pixels per row, at least 1.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Rows, at least 1.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// All bytes, row after row.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// All bytes, row after row, given away.
    pub fn into_data(self) -> Vec<u8> {
        self.data
    }

    /// Bytes per row.
    pub fn stride(&self) -> usize {
        3 * self.width as usize
    }

    /// The bytes of row `y`, or `None` below the last row.
    pub fn row(&self, y: u32) -> Option<&[u8]> {
        self.data.chunks_exact(self.stride()).nth(y as usize)
    }

    /// The rows from top to bottom.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.data.chunks_exact(self.stride())
    }

    /// The colour at column `x` of row `y`, or `None` outside.
    pub fn pixel(&self, x: u32, y: u32) -> Option<[u8; 3]> {
        let at = 3 * x as usize;
        self.row(y)?.get(at..at + 3)?.try_into().ok()
    }

    /// For kernels that have filled exactly `3 * width * height` bytes.
    pub(super) fn from_parts(width: u32, height: u32, data: Vec<u8>) -> Self {
        debug_assert_eq!(Some(data.len()), byte_length(width, height).ok());
        Self { width, height, data }
    }

    /// The rows from top to bottom, to be written.
    pub(super) fn rows_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [u8]> {
        let stride = self.stride();
        self.data.chunks_exact_mut(stride)
    }
}

/// A picture of f32 planes, `[channels, height, width]` in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub struct Planes {
    /// Planes; 3 for RGB.
    pub channels: usize,
    /// Rows of each plane.
    pub height: usize,
    /// Values in each row.
    pub width: usize,
    /// `channels * height * width` values.
    pub data: Vec<f32>,
}

impl Planes {
    /// Wraps `data`, which must hold `channels * height * width` values, none of them 0.
    pub fn new(channels: usize, height: usize, width: usize, data: Vec<f32>) -> Result<Self> {
        let length = channels.checked_mul(height).and_then(|n| n.checked_mul(width));
        if length != Some(data.len()) || data.is_empty() {
            return Err(Error::new(
                ErrorKind::Media,
                format!(
                    "planes of shape `[{channels}, {height}, {width}]` do not hold `{}` values",
                    data.len()
                ),
            ));
        }
        Ok(Self { channels, height, width, data })
    }

    /// The values of plane `channel`, row after row, or `None` behind the last plane.
    pub fn plane(&self, channel: usize) -> Option<&[f32]> {
        let length = self.height * self.width;
        self.data.get(channel.checked_mul(length)?..)?.get(..length)
    }
}

/// `3 * width * height`, or an error if a side is 0 or the product is too large for this machine.
pub(super) fn byte_length(width: u32, height: u32) -> Result<usize> {
    if width == 0 || height == 0 {
        return Err(Error::new(
            ErrorKind::Media,
            format!("a picture of `{width}x{height}` pixels is empty"),
        ));
    }
    usize::try_from(u128::from(width) * u128::from(height) * 3).ok().ok_or_too_large(width, height)
}

/// An empty vector with room for `length` bytes, or an error where memory does not suffice.
pub(super) fn reserved(length: usize, width: u32, height: u32) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    data.try_reserve_exact(length).ok().ok_or_too_large(width, height)?;
    Ok(data)
}

/// Turns a missing value into the error for a picture that memory cannot hold.
trait OrTooLarge<T> {
    fn ok_or_too_large(self, width: u32, height: u32) -> Result<T>;
}

impl<T> OrTooLarge<T> for Option<T> {
    fn ok_or_too_large(self, width: u32, height: u32) -> Result<T> {
        self.ok_or_else(|| {
            Error::new(
                ErrorKind::Media,
                format!("a picture of `{width}x{height}` pixels does not fit into memory"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_checked() {
        assert!(Rgb8::new(0, 1, vec![]).is_err());
        assert!(Rgb8::new(2, 1, vec![0; 5]).is_err());
        assert!(Rgb8::filled(u32::MAX, u32::MAX, [0; 3]).is_err());
        assert!(Planes::new(3, 1, 1, vec![0.0; 2]).is_err());
        assert!(Planes::new(usize::MAX, 2, 1, vec![0.0; 2]).is_err());
    }

    #[test]
    fn views() {
        let picture = Rgb8::new(2, 2, (0..12).collect()).unwrap();
        assert_eq!(picture.row(1), Some(&[6, 7, 8, 9, 10, 11][..]));
        assert_eq!(picture.row(2), None);
        assert_eq!(picture.pixel(1, 0), Some([3, 4, 5]));
        assert_eq!(picture.pixel(2, 0), None);
        assert_eq!(Rgb8::filled(1, 2, [1, 2, 3]).unwrap().data(), &[1, 2, 3, 1, 2, 3]);
        let planes = Planes::new(2, 1, 2, vec![0.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!(planes.plane(1), Some(&[2.0, 3.0][..]));
        assert_eq!(planes.plane(2), None);
    }
}
