//! Size policies of a family bound to one checkpoint: every parameter known.

use super::values::Values;
use crate::descriptor::audio::Clip as ClipParameters;
use crate::descriptor::resize::{
    AreaParameters, CeilGridParameters, ClosestRatioParameters, CropParameters, FitParameters,
    LeastUpscaleParameters, PanAndScanParameters, PatchBudgetParameters, PinpointsParameters,
    Resize,
};
use crate::descriptor::slot::{Choice, Count, Flag, Number};
use crate::layout::crop::ResizeTo;
use crate::layout::pan_and_scan::Scan;
use crate::layout::{
    Area, CeilGrid, Clip, ClosestRatio, Crop, Fit, ImageSize, LeastUpscale, PanAndScan,
    PatchBudget, Pinpoints, Policy, ViewSteps, clip,
};
use crate::media::Filter;
use crate::problem::Problem;

/// The policy of pictures.
pub(super) fn of_pictures(resize: &Resize, values: &Values) -> Result<Policy, Problem> {
    match resize {
        Resize::Crop(parameters) => crop(parameters, values),
        Resize::Area(parameters) => area(parameters, values),
        Resize::Fit(parameters) => fit(parameters, values),
        Resize::PatchBudget(parameters) => patch_budget(parameters, values),
        Resize::Pinpoints(parameters) => pinpoints(parameters, values),
        Resize::ClosestRatio(parameters) => closest_ratio(parameters, values),
        Resize::CeilGrid(parameters) => ceil_grid(parameters, values),
        Resize::LeastUpscale(parameters) => least_upscale(parameters, values),
        Resize::PanAndScan(parameters) => pan_and_scan(parameters, values),
    }
}

/// The interpolation of a policy.
pub(super) fn filter(resize: &Resize) -> &Choice<Filter> {
    match resize {
        Resize::Crop(parameters) => &parameters.filter,
        Resize::Area(parameters) => &parameters.filter,
        Resize::Fit(parameters) => &parameters.filter,
        Resize::PatchBudget(parameters) => &parameters.filter,
        Resize::Pinpoints(parameters) => &parameters.filter,
        Resize::ClosestRatio(parameters) => &parameters.filter,
        Resize::CeilGrid(parameters) => &parameters.filter,
        Resize::LeastUpscale(parameters) => &parameters.filter,
        Resize::PanAndScan(parameters) => &parameters.filter,
    }
}

/// The values that the layouts of a policy depend on, by name.
pub(super) fn reads(resize: &Resize) -> Vec<String> {
    let (counts, others): (Vec<Option<&Count>>, Vec<Option<String>>) = match resize {
        Resize::Crop(of) => {
            (vec![Some(&of.crop_height), Some(&of.crop_width), Some(&of.cell)], Vec::new())
        }
        Resize::Area(of) => (
            vec![
                Some(&of.step),
                Some(&of.least),
                Some(&of.most),
                Some(&of.aspect),
                of.frames.as_ref(),
            ],
            Vec::new(),
        ),
        Resize::Fit(of) => (vec![Some(&of.height), Some(&of.width), Some(&of.cell)], Vec::new()),
        Resize::PatchBudget(of) => {
            (vec![Some(&of.patch), Some(&of.pool), Some(&of.most)], Vec::new())
        }
        Resize::Pinpoints(of) => (
            vec![Some(&of.tile), Some(&of.cell), of.shrink_over.as_ref()],
            vec![Some(of.list.clone())],
        ),
        Resize::ClosestRatio(of) => (
            vec![Some(&of.tile_width), Some(&of.tile_height), Some(&of.least), Some(&of.most)],
            vec![flag_name(&of.thumb), flag_name(&of.cut)],
        ),
        Resize::CeilGrid(of) => {
            (vec![Some(&of.longest), Some(&of.tile)], vec![flag_name(&of.split)])
        }
        Resize::LeastUpscale(of) => (
            vec![Some(&of.tile), Some(&of.most), of.cell.as_ref()],
            vec![of.margins.clone(), of.pool.clone()],
        ),
        Resize::PanAndScan(of) => (
            vec![
                Some(&of.height),
                Some(&of.width),
                Some(&of.cell),
                Some(&of.min_crop),
                Some(&of.max_crops),
            ],
            vec![flag_name(&of.scan), number_name(&of.ratio)],
        ),
    };
    let counts = counts.into_iter().flatten().flat_map(Values::names_of);
    counts.chain(others.into_iter().flatten()).collect()
}

fn flag_name(flag: &Flag) -> Option<String> {
    match flag {
        Flag::Literal(_) => None,
        Flag::Condition(text) => Some(text.clone()),
    }
}

fn number_name(number: &Number) -> Option<String> {
    match number {
        Number::Value(name) => Some(name.clone()),
        _ => None,
    }
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

/// What a picture is resized to: its shortest edge to a length, or, where that is 0, both sides.
fn resize_to([shortest, height, width]: [&Count; 3], values: &Values) -> Result<ResizeTo, Problem> {
    Ok(match pixels(values, "the shortest edge", shortest, 0)? {
        0 => ResizeTo::Fixed {
            height: pixels(values, "the resized height", height, 1)?,
            width: pixels(values, "the resized width", width, 1)?,
        },
        shortest => ResizeTo::Shortest(shortest),
    })
}

fn cut_to(
    cut: &Flag,
    height: &Count,
    width: &Count,
    values: &Values,
) -> Result<Option<ImageSize>, Problem> {
    if !values.flag(cut)? {
        return Ok(None);
    }
    Ok(Some(ImageSize {
        height: pixels(values, "the cropped height", height, 1)?,
        width: pixels(values, "the cropped width", width, 1)?,
    }))
}

fn crop(of: &CropParameters, values: &Values) -> Result<Policy, Problem> {
    let pad_square = of.pad_square.as_ref().map_or(Ok(false), |flag| values.flag(flag))?;
    let resize = if values.flag(&of.resize)? {
        Some(resize_to([&of.shortest, &of.height, &of.width], values)?)
    } else {
        None
    };
    let cut = cut_to(&of.crop, &of.crop_height, &of.crop_width, values)?;
    let cell = pixels(values, "the cell", &of.cell, 1)?;
    Crop::new(pad_square, resize, cut, cell).map(Policy::Crop).map_err(refused)
}

fn area(parameters: &AreaParameters, values: &Values) -> Result<Policy, Problem> {
    let step = pixels(values, "the step", &parameters.step, 1)?;
    let least = values.size("the least area", &parameters.least, 1)? as u64;
    let most = values.size("the largest area", &parameters.most, 1)? as u64;
    let aspect = pixels(values, "the aspect limit", &parameters.aspect, 1)?;
    let frames = optional(values, "the number of frames", parameters.frames.as_ref(), 1, 1)?;
    let enlarge = parameters.enlarge.as_ref().map_or(Ok(false), |flag| values.flag(flag))?;
    Area::new(step, least, most, aspect, frames)
        .and_then(|area| if enlarge { area.enlarging() } else { Ok(area) })
        .map(Policy::Area)
        .map_err(|error| refused(error.message().to_owned()))
}

fn fit(parameters: &FitParameters, values: &Values) -> Result<Policy, Problem> {
    let height = pixels(values, "the largest height", &parameters.height, 1)?;
    let width = pixels(values, "the largest width", &parameters.width, 1)?;
    let cell = pixels(values, "the cell", &parameters.cell, 1)?;
    Fit::new(height, width, cell).map(Policy::Fit).map_err(refused)
}

fn patch_budget(parameters: &PatchBudgetParameters, values: &Values) -> Result<Policy, Problem> {
    let patch = pixels(values, "the patch", &parameters.patch, 1)?;
    let pool = pixels(values, "the pooled patches", &parameters.pool, 1)?;
    let most = pixels(values, "the most cells", &parameters.most, 1)?;
    PatchBudget::new(patch, pool, most).map(Policy::PatchBudget).map_err(refused)
}

fn pinpoints(parameters: &PinpointsParameters, values: &Values) -> Result<Policy, Problem> {
    let list = values.pairs(&parameters.list)?;
    let tile = pixels(values, "the tile", &parameters.tile, 1)?;
    let cell = pixels(values, "the cell", &parameters.cell, 1)?;
    let crop = values.flag(&parameters.crop)?;
    let shrink = parameters.shrink_over.as_ref();
    let shrink = optional(values, "the most tiles of cells", shrink, 0, 0)?;
    let steps = ViewSteps {
        size: resize_to([&parameters.shortest, &parameters.height, &parameters.width], values)?,
        resize: values.flag(&parameters.resize)?,
        crop: cut_to(&parameters.cut, &parameters.cut_height, &parameters.cut_width, values)?,
    };
    steps.check(tile).map_err(refused)?;
    Pinpoints::new(&list, tile, cell, crop, shrink)
        .map(|policy| Policy::Pinpoints { policy, steps })
        .map_err(refused)
}

fn closest_ratio(parameters: &ClosestRatioParameters, values: &Values) -> Result<Policy, Problem> {
    let tile = ImageSize {
        width: pixels(values, "the width of a tile", &parameters.tile_width, 1)?,
        height: pixels(values, "the height of a tile", &parameters.tile_height, 1)?,
    };
    let least = pixels(values, "the fewest tiles", &parameters.least, 0)?;
    let most = pixels(values, "the most tiles", &parameters.most, 0)?;
    let (thumb, cut) = (values.flag(&parameters.thumb)?, values.flag(&parameters.cut)?);
    ClosestRatio::new(tile, least, most, thumb, cut).map(Policy::ClosestRatio).map_err(refused)
}

fn ceil_grid(parameters: &CeilGridParameters, values: &Values) -> Result<Policy, Problem> {
    let longest = pixels(values, "the longest edge", &parameters.longest, 1)?;
    let tile = pixels(values, "the tile", &parameters.tile, 1)?;
    let split = values.flag(&parameters.split)?;
    CeilGrid::new(longest, tile, split).map(Policy::CeilGrid).map_err(refused)
}

fn least_upscale(parameters: &LeastUpscaleParameters, values: &Values) -> Result<Policy, Problem> {
    let tile = pixels(values, "the tile", &parameters.tile, 1)?;
    let most = pixels(values, "the most tiles", &parameters.most, 1)?;
    let cell = optional(values, "the cell", parameters.cell.as_ref(), 1, tile)?;
    let pair = |name: Option<&String>, absent: u32| match name {
        Some(name) => values.pair(name),
        None => Ok([absent; 2]),
    };
    let margins = pair(parameters.margins.as_ref(), 0)?;
    let pool = pair(parameters.pool.as_ref(), 1)?;
    let whole = values.choice(&parameters.whole)?;
    let inside = values.flag(&parameters.inside)?;
    LeastUpscale::new(tile, most, cell, margins, pool, whole)
        .map(|policy| Policy::LeastUpscale { policy, inside })
        .map_err(refused)
}

fn pan_and_scan(parameters: &PanAndScanParameters, values: &Values) -> Result<Policy, Problem> {
    let view = ImageSize {
        width: pixels(values, "the width of a view", &parameters.width, 1)?,
        height: pixels(values, "the height of a view", &parameters.height, 1)?,
    };
    let cell = pixels(values, "the cell", &parameters.cell, 1)?;
    let scan = if values.flag(&parameters.scan)? {
        Some(Scan {
            min_crop: pixels(values, "the smallest crop", &parameters.min_crop, 1)?,
            max_crops: pixels(values, "the most crops", &parameters.max_crops, 0)?,
            ratio: values.number(&parameters.ratio)?,
        })
    } else {
        None
    };
    PanAndScan::new(view, cell, scan).map(Policy::PanAndScan).map_err(refused)
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
