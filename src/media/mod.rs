//! Pictures and clips: from a file to the numbers a tower reads.
//!
//! Every step is one file and one function, and none knows where it stands in a pipeline:
//!
//! | step | function | from | to |
//! | --- | --- | --- | --- |
//! | look | [`image_header`], [`image_size`] | file | format, size |
//! | load | [`load_image`], [`decode_image`] | file | [`Rgb8`] |
//! | resize | [`resize()`] | [`Rgb8`] | [`Rgb8`] |
//! | cut and pad | [`crop`], [`center_crop`], [`pad`], [`pad_to_square`] | [`Rgb8`] | [`Rgb8`] |
//! | normalise | [`Normaliser::apply`] | [`Rgb8`] | [`Planes`] |
//! | cut into rows | [`patchify`] | [`Planes`] | rows of f32 |
//!
//! From decoded RGB on, every result equals the reference processors' (transformers 5.24 on torchvision, x86 with AVX2 or
//! newer) bit for bit. Decoding equals Pillow bit for bit except for JPEG, where decoders differ by a few levels.
//!
//! Facts that are easy to miss:
//!
//! * Resizing works on bytes, columns before rows, and rounds and clamps to bytes in between.
//! * Its integer weights carry as many fraction bits as the largest weight of the axis allows.
//! * Normalisation is one subtraction and one true division in f32; any other arrangement is off by an ulp or two.
//! * Padding before normalisation is black or a byte colour; padding after it, where a family does so, is 0.0.
//! * EXIF orientation counts also when only the header is read.
//!
//! Clips of sound go by two steps more: [`load_sound`] from a file to samples of one channel at one rate, [`LogMel::apply`]
//! from these to energies in mel bands.
//!
//! All errors are of kind [`ErrorKind::Media`](crate::error::ErrorKind::Media).

mod container;
mod decode;
mod geometry;
mod header;
mod image;
mod mel;
mod normalise;
mod patches;
mod plain;
mod resize;
mod sound;

pub use self::decode::{LoadedImage, decode_image, load_image};
pub use self::geometry::{center_crop, crop, pad, pad_to_square};
pub use self::header::{ImageFormat, ImageHeader, MAX_PIXELS, image_header, image_size};
pub use self::image::{Planes, Rgb8};
pub use self::mel::{LogMel, Mel, MelSettings};
pub use self::normalise::Normaliser;
pub use self::patches::{PatchOrder, Patches, patchify};
pub use self::resize::{Filter, resize};
pub use self::sound::{ClipLength, Sound, clip_length, load_sound};
