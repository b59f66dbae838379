//! The size policy `pan_and_scan`: one view of the whole image and, if it is elongated, crops along its longer side.
//!
//! This is `Gemma3ImageProcessor.pan_and_scan_batched` of the reference (`models/gemma3/image_processing_gemma3.py`).
//! With long ≥ short the sides of an image and n = max(2, min(⌊long / `min_crop`⌋, ⌊long / short + ½⌋)), but at most
//! `max_crops`, the image is cut into n slices of ⌈long / n⌉ px along its longer side, unless long / short is below `ratio`
//! or a slice would be shorter than `min_crop` px in either direction. Every view, the whole first, is resized to one size.
//!
//! # What surprises
//!
//! * **The file does not switch it on.** `Gemma3Processor` hands all four settings to its image processor in every call
//!   (off, 256, 4, 1.2), so those of the image processor's file count only where that class is used alone.
//! * **A crop is never alone, except by decree.** At least two are made, so an image that barely passes costs three
//!   views. Only `max_crops` = 1 gives one crop, which is the whole image again.
//! * **The last crop is shorter, and may be empty.** Slices are rounded up: 9 px in 4 slices of 3 px leave nothing for
//!   the last one. The reference fails on such images; they need `max_crops` beyond the square root of the longer side.
//! * **The ratio is compared in doubles,** with the value in the file: 6×5 px pass 1.2. All else is as in integers.
//! * **A long image costs no more than one with `max_crops` slices,** and thin ones (short below `min_crop`) cost one view.
//!
//! # Why [`SizePolicy::maximum`] is exact
//!
//! Turning an image turns its crops, so long and short are all that counts; witnesses are in landscape. Layouts differ in
//! the number of crops only. *No crops* are made for 1×1 px if `min_crop` is at least 2 (the slices are too short) or the
//! ratio is above 1 (it is not elongated); else every image is cut.
//!
//! *n crops*, 2 ≤ n ≤ `max_crops`, are made for long × short px if and only if
//!
//! * short ≥ `min_crop`, and long / short in doubles is at least `ratio`;
//! * long ≥ n · `min_crop` and 2·long ≥ (2n − 1)·short, so that n is not too many; for n = 2, which is raised to,
//!   long ≥ 2 · `min_crop` − 1 instead, so that a slice has `min_crop` px;
//! * long < (n + 1) · `min_crop` or 2·long < (2n + 1)·short, so that n is not too few, unless n = `max_crops`;
//! * (n − 1) · ⌈long / n⌉ < long, so that no crop is empty.
//!
//! For one short side the first three are an interval of long sides. Among the long sides that share s = ⌈long / n⌉ the
//! fourth admits those above (n − 1)·s, of which n·s is always one; so the least admissible long side is the interval's
//! lower end or, if larger, (n − 1)·s + 1 for its s. All short sides are tried from the smallest on; usually the first
//! does, with n · `min_crop` × `min_crop` px. Where none does, no image has n crops. (n + 1 ≤ `ratio` rules n out at once,
//! unless n = `max_crops`: by the third condition the ratio is then below n + 1.) n is at most `max_crops` and, beyond
//! 2, at most 65 535 / `min_crop`.

use super::witness::preferred;
use super::{Formula, ImageSize, LONGEST_SIDE, Layout, Maximum, SizePolicy};
use crate::descriptor::expression::ExpressionError;

use crate::descriptor::resize::PAN_AND_SCAN as NAMES;
/// So many numbers of crops are all sampled, beyond it every so manyth.
const SAMPLES: u32 = 1000;

/// When and how an image is cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scan {
    /// No crop is shorter in either direction, in pixels (`pan_and_scan_min_crop_size`).
    pub min_crop: u32,
    /// The most crops of one image (`pan_and_scan_max_num_crops`).
    pub max_crops: u32,
    /// Images whose longer side is less than this many times the shorter one are not cut
    /// (`pan_and_scan_min_ratio_to_activate`).
    pub ratio: f64,
}

/// The parameters, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct PanAndScan {
    view: ImageSize,
    cell: u32,
    scan: Option<Scan>,
    /// The longest side that `maximum` considers; a field so that tests can search small worlds exhaustively.
    longest: u32,
}

/// A part of an image in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The first column.
    pub x: u32,
    /// The first row.
    pub y: u32,
    /// Columns and rows.
    pub size: ImageSize,
}

impl PanAndScan {
    /// The policy that resizes the image and its crops to `view`, which is cut into cells of `cell` × `cell` px.
    ///
    /// Without `scan` there are no crops. Refuses a view smaller than a cell, of a single pixel (the reference's kernel
    /// fails on it) or above 65 535 px a side, a smallest crop or a number of crops of 0 (the reference divides by
    /// them), and a ratio that is not finite.
    pub fn new(view: ImageSize, cell: u32, scan: Option<Scan>) -> Result<Self, String> {
        let (short, long) = (view.width.min(view.height), view.width.max(view.height));
        if cell == 0 || short < cell {
            return Err(format!("a view of {view} px holds no cell of {cell} px"));
        }
        if !(2..=LONGEST_SIDE).contains(&long) {
            return Err(format!(
                "a view must have sides of 1 to {LONGEST_SIDE} px and more than one pixel, got `{view}`"
            ));
        }
        if let Some(scan) = scan {
            if scan.min_crop == 0 {
                return Err("the smallest crop must be at least 1 px, got `0`".to_owned());
            }
            if scan.max_crops == 0 {
                return Err("the most crops must be at least 1, got `0`".to_owned());
            }
            if !scan.ratio.is_finite() {
                return Err(format!("the ratio must be a finite number, got `{}`", scan.ratio));
            }
        }
        Ok(Self { view, cell, scan, longest: LONGEST_SIDE })
    }

    /// The size of every view in pixels.
    pub fn view(&self) -> ImageSize {
        self.view
    }

    /// The crops of an image in the reference's order; none where it is not cut.
    ///
    /// The error is the refusal that [`SizePolicy::layout`] reports.
    pub fn crops(&self, size: ImageSize) -> Result<Vec<Part>, String> {
        let Some((count, step)) = self.slices(size)? else { return Ok(Vec::new()) };
        let wide = size.width >= size.height;
        let long = if wide { size.width } else { size.height };
        Ok((0..count)
            .map(|index| {
                let from = index * step;
                let length = step.min(long - from);
                if wide {
                    Part { x: from, y: 0, size: ImageSize { width: length, ..size } }
                } else {
                    Part { x: 0, y: from, size: ImageSize { height: length, ..size } }
                }
            })
            .collect())
    }

    /// The number of slices and their length along the longer side, if the image is cut.
    fn slices(&self, size: ImageSize) -> Result<Option<(u32, u32)>, String> {
        if size.width == 0 || size.height == 0 {
            return Err("a side is zero".to_owned());
        }
        let Some(scan) = self.scan else { return Ok(None) };
        let (long, short) = (size.width.max(size.height), size.width.min(size.height));
        if f64::from(long) / f64::from(short) < scan.ratio {
            return Ok(None);
        }
        // in the reference these are quotients of doubles; below 2^32 their floors are those of the exact ones
        let half_up = (2 * u64::from(long) + u64::from(short)) / (2 * u64::from(short));
        let count = u64::from(long / scan.min_crop).min(half_up).max(2);
        let count = count.min(u64::from(scan.max_crops)) as u32;
        let step = long.div_ceil(count);
        if step.min(short) < scan.min_crop {
            return Ok(None);
        }
        if u64::from(count - 1) * u64::from(step) >= u64::from(long) {
            return Err(format!(
                "{count} crops of {step} px leave nothing of {long} px for the last one"
            ));
        }
        Ok(Some((count, step)))
    }

    fn layout_of(&self, crops: u32) -> Layout {
        let ImageSize { width, height } = self.view;
        // crops are at most as many as an image has columns or rows
        let tiles = crops.saturating_add(1);
        Layout::new(&NAMES, [height / self.cell, width / self.cell, crops, tiles, width, height])
    }

    /// The numbers of crops that may occur, rising; 0 is one of them.
    fn candidates(&self) -> std::ops::RangeInclusive<u32> {
        let most =
            self.scan.map_or(0, |scan| scan.max_crops.min((self.longest / scan.min_crop).max(2)));
        0..=most
    }

    /// The smallest image that has so many crops, if there is any.
    fn witness(&self, crops: u32) -> Option<ImageSize> {
        let square = ImageSize { width: 1, height: 1 };
        let Some(scan) = self.scan else { return (crops == 0).then_some(square) };
        if crops == 0 {
            return (scan.min_crop >= 2 || scan.ratio > 1.0).then_some(square);
        }
        let last = crops == scan.max_crops;
        if !last && (crops == 1 || f64::from(crops) + 1.0 <= scan.ratio) {
            return None;
        }
        let (count, min_crop) = (u64::from(crops), u64::from(scan.min_crop));
        let longest = u64::from(self.longest);
        for short in min_crop..=longest {
            let elongated = elongated(short, scan.ratio);
            if elongated > longest {
                return None;
            }
            let enough = match crops {
                1 => min_crop,
                2 => 2 * min_crop - 1,
                _ => (count * min_crop).max(((2 * count - 1) * short).div_ceil(2)),
            };
            let most = if last {
                longest
            } else {
                let fewer = ((2 * count + 1) * short).div_ceil(2) - 1;
                fewer.max((count + 1) * min_crop - 1).min(longest)
            };
            let long = enough.max(elongated);
            let long = long.max((count - 1) * long.div_ceil(count) + 1);
            if long <= most {
                return Some(ImageSize { width: long as u32, height: short as u32 });
            }
        }
        None
    }
}

/// The least long side, not below `short`, whose quotient by `short` in doubles is at least `ratio`.
fn elongated(short: u64, ratio: f64) -> u64 {
    // saturates for ratios beyond any image; the product is off by less than one pixel
    let mut long = ((ratio * short as f64) as u64).saturating_sub(1).max(short);
    while (long as f64 / short as f64) < ratio && long <= u64::from(LONGEST_SIDE) {
        long += 1;
    }
    long
}

impl SizePolicy for PanAndScan {
    fn names(&self) -> &'static [&'static str] {
        &NAMES
    }

    fn layout(&self, size: ImageSize) -> Result<Layout, String> {
        Ok(self.layout_of(self.slices(size)?.map_or(0, |(count, _)| count)))
    }

    fn maximum(&self, formula: &Formula<'_>) -> Result<Option<Maximum>, ExpressionError> {
        let rises = formula.rises();
        let mut best: Option<Maximum> = None;
        for crops in self.candidates().rev() {
            let Some(witness) = self.witness(crops) else { continue };
            let value = formula.at(&self.layout_of(crops))?;
            best = Some(match best {
                // fewer crops have no larger value either
                Some(best) if best.value > value && rises => return Ok(Some(best)),
                Some(best) if best.value > value => best,
                Some(best) if best.value == value => {
                    Maximum { witness: preferred(best.witness, witness), ..best }
                }
                _ => Maximum { value, witness, exact: true },
            });
        }
        Ok(best)
    }

    fn samples(&self) -> Vec<Layout> {
        let candidates = self.candidates();
        let most = *candidates.end();
        let every = 1 + most / SAMPLES;
        candidates
            .filter(|crops| crops % every == 0 || *crops <= 16 || most - crops <= 16)
            .filter(|crops| self.witness(*crops).is_some())
            .map(|crops| self.layout_of(crops))
            .collect()
    }

    fn budget_kind(&self) -> &'static str {
        if self.scan.is_some() { "per tile" } else { "fixed" }
    }
}

#[cfg(test)]
mod tests;
