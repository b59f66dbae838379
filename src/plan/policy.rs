//! Size policies of a family bound to one checkpoint: every parameter known.

use super::values::Values;
use crate::descriptor::audio::Clip as ClipParameters;
use crate::descriptor::resize::{AreaParameters, CropParameters, Resize};
use crate::descriptor::slot::{Choice, Count};
use crate::layout::crop::ResizeTo;
use crate::layout::{Area, Clip, Crop, ImageSize, Policy, clip};
use crate::media::Filter;
use crate::problem::Problem;

/// The policy of pictures.
pub(super) fn of_pictures(resize: &Resize, values: &Values) -> Result<Policy, Problem> {
    match resize {
        Resize::Crop(parameters) => crop(parameters, values),
        Resize::Area(parameters) => area(parameters, values),
    }
}

/// The interpolation of a policy.
pub(super) fn filter(resize: &Resize) -> &Choice<Filter> {
    match resize {
        Resize::Crop(parameters) => &parameters.filter,
        Resize::Area(parameters) => &parameters.filter,
    }
}

/// The values that the layouts of a policy depend on, by name.
pub(super) fn reads(resize: &Resize) -> Vec<String> {
    let counts: Vec<&Count> = match resize {
        Resize::Crop(parameters) => {
            vec![&parameters.crop_height, &parameters.crop_width, &parameters.cell]
        }
        Resize::Area(parameters) => {
            vec![&parameters.step, &parameters.least, &parameters.most, &parameters.aspect]
        }
    };
    counts.into_iter().flat_map(Values::names_of).collect()
}

fn pixels(values: &Values, what: &str, count: &Count, least: i64) -> Result<u32, Problem> {
    let number = values.size(what, count, least)?;
    u32::try_from(number).map_err(|_| {
        Problem::error("value-bound", format!("{what} is {number}"))
            .expected_found("at most 4294967295", number.to_string())
    })
}

fn optional(
    values: &Values,
    what: &str,
    count: Option<&Count>,
    least: i64,
    absent: u32,
) -> Result<u32, Problem> {
    count.map_or(Ok(absent), |count| pixels(values, what, count, least))
}

fn refused(message: String) -> Problem {
    Problem::error("layout", message)
}

fn crop(parameters: &CropParameters, values: &Values) -> Result<Policy, Problem> {
    let pad_square = parameters.pad_square.as_ref().map_or(Ok(false), |flag| values.flag(flag))?;
    let resize = if values.flag(&parameters.resize)? {
        Some(match pixels(values, "the shortest edge", &parameters.shortest, 0)? {
            0 => ResizeTo::Fixed {
                height: pixels(values, "the resized height", &parameters.height, 1)?,
                width: pixels(values, "the resized width", &parameters.width, 1)?,
            },
            shortest => ResizeTo::Shortest(shortest),
        })
    } else {
        None
    };
    let cut = if values.flag(&parameters.crop)? {
        Some(ImageSize {
            height: pixels(values, "the cropped height", &parameters.crop_height, 1)?,
            width: pixels(values, "the cropped width", &parameters.crop_width, 1)?,
        })
    } else {
        None
    };
    let cell = pixels(values, "the cell", &parameters.cell, 1)?;
    Crop::new(pad_square, resize, cut, cell).map(Policy::Crop).map_err(refused)
}

fn area(parameters: &AreaParameters, values: &Values) -> Result<Policy, Problem> {
    let step = pixels(values, "the step", &parameters.step, 1)?;
    let least = values.size("the least area", &parameters.least, 1)? as u64;
    let most = values.size("the largest area", &parameters.most, 1)? as u64;
    let aspect = pixels(values, "the aspect limit", &parameters.aspect, 1)?;
    let frames = optional(values, "the number of frames", parameters.frames.as_ref(), 1, 1)?;
    Area::new(step, least, most, aspect, frames)
        .map(Policy::Area)
        .map_err(|error| refused(error.message().to_owned()))
}

/// The policy of clips.
pub(super) fn of_clips(parameters: &ClipParameters, values: &Values) -> Result<Policy, Problem> {
    let rate = pixels(values, "the rate", &parameters.rate, 1)?;
    let limit = pixels(values, "the longest clip", &parameters.limit, 1)?;
    let lead = optional(values, "the lead", parameters.lead.as_ref(), 0, 0)?;
    let hop = pixels(values, "the hop", &parameters.hop, 1)?;
    let span = optional(values, "the span", parameters.span.as_ref(), 1, 1)?;
    let mut steps = Vec::new();
    for step in &parameters.steps {
        steps.push(clip::Step {
            kernel: pixels(values, "the kernel", &step.kernel, 1)?,
            stride: pixels(values, "the stride", &step.stride, 1)?,
            padding: optional(values, "the padding", step.padding.as_ref(), 0, 0)?,
        });
    }
    Clip::new(rate, limit, lead, hop, span, steps).map(Policy::Clip).map_err(refused)
}

/// The values that the layouts of clips depend on, by name.
pub(super) fn clip_reads(parameters: &ClipParameters) -> Vec<String> {
    let mut counts = vec![&parameters.limit, &parameters.hop];
    counts.extend(&parameters.lead);
    counts.extend(&parameters.span);
    for step in &parameters.steps {
        counts.extend([&step.kernel, &step.stride]);
        counts.extend(&step.padding);
    }
    counts.into_iter().flat_map(Values::names_of).collect()
}
