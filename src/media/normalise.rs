//! Bytes to floats: rescaling and normalisation with the reference's f32 operations, by table.

use rayon::prelude::*;

use super::image::{Planes, Rgb8};
use crate::error::{Error, ErrorKind, Result};

/// The float of every byte value of every channel.
///
/// As `TorchvisionBackend.rescale_and_normalize` with `_fuse_mean_std_and_rescale_factor`, where every operation
/// rounds to f32:
///
/// | rescale | normalise | value of byte x |
/// | --- | --- | --- |
/// | yes | yes | `(x - mean * k) / (std * k)` with `k = f32(1 / factor)` |
/// | yes | no | `x * f32(factor)` |
/// | no | yes | `(x - mean) / std` |
/// | no | no | `x` |
///
/// Only 768 values are possible, so they are computed once.
#[derive(Debug, Clone, PartialEq)]
pub struct Normaliser {
    table: [[f32; 256]; 3],
}

/// The settings of a channel in words.
fn settings(
    rescale: Option<f64>,
    normalise: Option<([f64; 3], [f64; 3])>,
    channel: usize,
) -> String {
    let mut words = Vec::new();
    words.extend(rescale.map(|factor| format!("rescale factor `{factor}`")));
    if let Some((mean, std)) = normalise {
        words.push(format!("mean `{}`, standard deviation `{}`", mean[channel], std[channel]));
    }
    words.join(", ")
}

impl Normaliser {
    /// A table for `rescale` (the factor, usually 1/255) and `normalise` (mean and standard deviation per channel).
    ///
    /// Fails where the reference would divide by zero or make values that are not finite.
    pub fn new(rescale: Option<f64>, normalise: Option<([f64; 3], [f64; 3])>) -> Result<Self> {
        let mut table = [[0.0; 256]; 3];
        for (channel, row) in table.iter_mut().enumerate() {
            let value: Box<dyn Fn(f32) -> f32> = match (rescale, normalise) {
                (Some(factor), None) => Box::new(move |x| x * factor as f32),
                (None, None) => Box::new(|x| x),
                (_, Some((mean, std))) => {
                    // the reference divides in f64, then multiplies f32 tensors by that number as f32
                    let scale = rescale.map_or(1.0, |factor| (1.0 / factor) as f32);
                    let mean = mean[channel] as f32 * scale;
                    let std = std[channel] as f32 * scale;
                    Box::new(move |x| (x - mean) / std)
                }
            };
            for (byte, slot) in (0u8..=255).zip(row.iter_mut()) {
                *slot = value(f32::from(byte));
            }
            if !row.iter().all(|value| value.is_finite()) {
                return Err(Error::new(
                    ErrorKind::Media,
                    format!(
                        "channel {channel} cannot be normalised: {}",
                        settings(rescale, normalise, channel)
                    ),
                ));
            }
        }
        Ok(Self { table })
    }

    /// The float of `byte` in `channel`, 0 to 2, or `None` for another channel.
    pub fn value(&self, channel: usize, byte: u8) -> Option<f32> {
        self.table.get(channel).map(|row| row[usize::from(byte)])
    }

    /// The planes `[3, height, width]` of `image`, channels in the order R, G, B.
    pub fn apply(&self, image: &Rgb8) -> Planes {
        let (height, width) = (image.height() as usize, image.width() as usize);
        let mut data = vec![0.0; 3 * height * width];
        for (channel, (plane, row)) in
            data.chunks_exact_mut(height * width).zip(&self.table).enumerate()
        {
            plane
                .par_chunks_exact_mut(width)
                .zip(image.data().par_chunks_exact(3 * width))
                .for_each(|(values, bytes)| {
                    for (value, pixel) in values.iter_mut().zip(bytes.chunks_exact(3)) {
                        *value = row[usize::from(pixel[channel])];
                    }
                });
        }
        Planes { channels: 3, height, width, data }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_become_planes() {
        let image = Rgb8::new(2, 1, vec![0, 1, 2, 253, 254, 255]).unwrap();
        let planes = Normaliser::new(None, None).unwrap().apply(&image);
        assert_eq!((planes.channels, planes.height, planes.width), (3, 1, 2));
        assert_eq!(planes.data, [0.0, 253.0, 1.0, 254.0, 2.0, 255.0]);
    }

    #[test]
    fn half_mean_and_half_std() {
        let table = Normaliser::new(Some(1.0 / 255.0), Some(([0.5; 3], [0.5; 3]))).unwrap();
        assert_eq!(table.value(0, 0), Some(-1.0));
        assert_eq!(table.value(2, 255), Some(1.0));
        assert_eq!(table.value(3, 0), None);
    }

    #[test]
    fn a_zero_deviation_is_refused() {
        assert!(Normaliser::new(Some(1.0 / 255.0), Some(([0.5; 3], [0.5, 0.0, 0.5]))).is_err());
        assert!(Normaliser::new(Some(0.0), Some(([0.5; 3], [0.5; 3]))).is_err());
        assert!(Normaliser::new(Some(f64::NAN), None).is_err());
    }
}
