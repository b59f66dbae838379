//! What one media item costs on one checkpoint: policy, strip, formula, and the values that they read.

use std::collections::BTreeMap;

use super::values::Values;
use crate::descriptor::Descriptor;
use crate::descriptor::expression::{Bound, Expression, ExpressionError};
use crate::descriptor::image::{AreaParameters, CropParameters, Media, Resize};
use crate::descriptor::slot::Count;
use crate::descriptor::strip::{Slot, Strip, StripLength};
use crate::layout::crop::ResizeTo;
use crate::layout::{Area, Crop, Formula, ImageSize, LAYOUT_NAMES, Layout, Maximum, Policy};
use crate::media::Filter;
use crate::problem::{Place, Problem, Problems};

/// One value that a budget was computed from.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// Its name in the family file.
    pub name: String,
    /// The value.
    pub value: serde_json::Value,
    /// The file and key it came from.
    pub source: String,
}

/// Everything about the cost of one item of a modality.
#[derive(Debug, Clone)]
pub struct MediaPlan {
    /// The size policy.
    pub policy: Policy,
    /// The interpolation of its resize step.
    pub filter: Filter,
    /// The strip.
    pub strip: Strip,
    /// The descriptor's own statement of the strip's length.
    pub formula: Expression,
    /// The config values that strip and formula read.
    pub bindings: BTreeMap<String, Bound>,
    /// Around the marker: tokens and literals, in order.
    pub frame: Frame,
    /// The texts of the literals, by name.
    pub literals: BTreeMap<String, String>,
    /// What it was computed from.
    pub inputs: Vec<Input>,
}

/// What a chat template puts around a marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Names of tokens before the marker.
    pub before: Vec<String>,
    /// Names of tokens after the marker.
    pub after: Vec<String>,
    /// Names of literals on either side.
    pub literals: Vec<String>,
    /// Tokens that the literals may add by splitting their neighbours.
    pub seam: u64,
}

/// Tokens around one marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framing {
    /// How many, at most.
    pub tokens: u64,
    /// Whether it was measured or follows from named tokens alone; otherwise it is a bound.
    pub exact: bool,
}

/// What one item costs, apart from its framing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cost {
    /// What the policy made of the item.
    pub layout: Layout,
    /// Encoder rows that are spliced in.
    pub embeds: u64,
    /// Tokens in place of the marker.
    pub expansion: u64,
}

impl MediaPlan {
    /// Resolves the budget of images; all problems are reported at once.
    pub fn resolve(
        descriptor: &Descriptor,
        media: &Media,
        values: &Values,
    ) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let mut place = |problem: Problem, key: &str| {
            problems.push_new(if problem.place == Place::default() {
                problem.at(descriptor.place(key))
            } else {
                problem
            });
        };
        // a variant that nobody knows, or a contradiction, says that the settings are not those that this family describes
        for (name, resolved) in values.iter() {
            if let Err(problem) = resolved
                && name.starts_with("image.")
                && ["config-variant", "config-disagree", "value-bound"].contains(&problem.code)
            {
                place((**problem).clone(), "image");
            }
        }
        let policy =
            policy(&media.resize, values).map_err(|problem| place(problem, "image.resize")).ok();
        let filter = match &media.resize {
            Resize::Crop(parameters) => values.choice(&parameters.filter),
            Resize::Area(parameters) => values.choice(&parameters.filter),
        }
        .map_err(|problem| place(problem, "image.resize.filter"))
        .ok();
        let from = |error: ExpressionError| Problem::error("expression", error.message);
        let strip =
            Strip::parse(&media.strip).map_err(|error| place(from(error), "image.strip")).ok();
        let text = descriptor.family.floor.get("image").map_or("0", String::as_str);
        let formula =
            Expression::parse(text).map_err(|error| place(from(error), "floor.image")).ok();
        let mut names: Vec<String> = strip.iter().flat_map(Strip::names).collect();
        names.extend(formula.iter().flat_map(|formula| formula.names().to_vec()));
        let mut bindings = BTreeMap::new();
        for name in names {
            if LAYOUT_NAMES.contains(&name.as_str())
                || bindings.contains_key(&name)
                || media.literals.contains_key(&name)
            {
                continue;
            }
            match values.bindings(std::slice::from_ref(&name), &BTreeMap::new()) {
                Ok(found) => bindings.extend(found),
                Err(problem) => place(problem, "floor.image"),
            }
        }
        let frame =
            frame(&media.frame, media.seam).map_err(|problem| place(problem, "image.frame")).ok();
        let inputs = inputs(media, &bindings, values);
        let literals =
            media.literals.iter().map(|(name, text)| (name.clone(), text.clone())).collect();
        match (policy, filter, strip, formula, frame) {
            (Some(policy), Some(filter), Some(strip), Some(formula), Some(frame))
                if problems.is_empty() =>
            {
                let plan =
                    Self { policy, filter, strip, formula, bindings, frame, literals, inputs };
                plan.agreements(descriptor, values, &mut problems);
                if problems.is_empty() { Ok(plan) } else { Err(problems) }
            }
            _ => Err(problems),
        }
    }

    /// Requirements that mention the layout must hold before any number is given: they say that processor and tower agree.
    fn agreements(&self, descriptor: &Descriptor, values: &Values, problems: &mut Problems) {
        let Some(layout) = self.policy.samples().first().copied() else { return };
        for (sentence, text) in &descriptor.family.require {
            let Ok(expression) = Expression::parse(text) else { continue };
            if !concerns_media(&expression) {
                continue;
            }
            let place = descriptor.place(&format!("require.{sentence}"));
            match values.condition(text, &layout.bindings()) {
                Ok(true) => {}
                Ok(false) => {
                    problems.push(requirement_failed(sentence, text, values, &layout).at(place));
                }
                Err(problem) => problems.push(problem),
            }
        }
    }

    fn all_bindings(&self, layout: &Layout) -> BTreeMap<String, Bound> {
        let mut bindings = self.bindings.clone();
        bindings.extend(layout.bindings());
        bindings
    }

    /// The strip's slots by kind, for one layout.
    pub fn strip_length(&self, layout: &Layout) -> Result<StripLength, ExpressionError> {
        self.strip.length(&self.all_bindings(layout))
    }

    /// The strip, expanded for one layout.
    pub fn expand(&self, layout: &Layout) -> Result<Vec<Slot>, ExpressionError> {
        self.strip.expand(&self.all_bindings(layout))
    }

    /// The descriptor's formula for one layout; `literal` gives the token length of a literal.
    pub fn stated_length(
        &self,
        layout: &Layout,
        literal: impl Fn(&str) -> u64,
    ) -> Result<i64, ExpressionError> {
        let mut bindings = self.all_bindings(layout);
        for name in self.literals.keys() {
            bindings.insert(
                name.clone(),
                Bound::Integer(i64::try_from(literal(name)).unwrap_or(i64::MAX)),
            );
        }
        self.formula.integer(&bindings)
    }

    /// What an image of this size costs; the error is a sentence.
    pub fn cost(&self, size: ImageSize, literal: impl Fn(&str) -> u64) -> Result<Cost, String> {
        let layout = self.policy.layout(size)?;
        let length = self.strip_length(&layout).map_err(|error| error.message)?;
        let expansion = length
            .slots(|name| Some(literal(name)))
            .ok_or_else(|| "the strip's length overflows 64 bits".to_owned())?;
        Ok(Cost { layout, embeds: length.rows, expansion })
    }

    /// The largest expansion over the whole domain.
    pub fn largest_expansion(
        &self,
        literal: impl Fn(&str) -> u64,
    ) -> Result<Option<Maximum>, ExpressionError> {
        let mut bindings = self.bindings.clone();
        for name in self.literals.keys() {
            bindings.insert(
                name.clone(),
                Bound::Integer(i64::try_from(literal(name)).unwrap_or(i64::MAX)),
            );
        }
        let polynomial = Formula::polynomial_of(&self.formula, &bindings);
        self.policy
            .maximum(&Formula { value: &|layout| self.stated_length(layout, &literal), polynomial })
    }

    /// The most encoder rows over the whole domain.
    pub fn largest_embeds(&self) -> Result<Option<Maximum>, ExpressionError> {
        let rows = |layout: &Layout| {
            let rows = self.strip_length(layout)?.rows;
            i64::try_from(rows).map_err(|_| ExpressionError {
                message: "the strip's length overflows 64 bits".to_owned(),
                hint: None,
            })
        };
        let polynomial = self.strip.row_polynomial(&["rows", "cols"], &self.bindings);
        self.policy.maximum(&Formula { value: &rows, polynomial })
    }
}

/// Whether a requirement holds back what media cost: it mentions the layout or the picture's preprocessing.
pub fn concerns_media(requirement: &Expression) -> bool {
    requirement
        .names()
        .iter()
        .any(|name| LAYOUT_NAMES.contains(&name.as_str()) || name.starts_with("image."))
}

/// The problem of a requirement that does not hold, with the values it reads and where they came from.
pub fn requirement_failed(sentence: &str, text: &str, values: &Values, layout: &Layout) -> Problem {
    let names =
        Expression::parse(text).map(|expression| expression.names().to_vec()).unwrap_or_default();
    let fields: BTreeMap<_, _> = layout.fields().into_iter().collect();
    let found: Vec<_> = names
        .iter()
        .map(|name| match fields.get(name.as_str()) {
            Some(value) => format!("{name} = {value}"),
            None => match values.get(name) {
                Ok(resolved) => format!("{name} = {} ({})", resolved.value, resolved.source),
                Err(_) => format!("{name} = ?"),
            },
        })
        .collect();
    Problem::error("requirement", format!("it must hold that {sentence}"))
        .expected_found(format!("`{text}`"), found.join(", "))
}

fn policy(resize: &Resize, values: &Values) -> Result<Policy, Problem> {
    match resize {
        Resize::Crop(parameters) => crop(parameters, values),
        Resize::Area(parameters) => area(parameters, values),
    }
}

fn pixels(values: &Values, what: &str, count: &Count, least: i64) -> Result<u32, Problem> {
    let number = values.size(what, count, least)?;
    u32::try_from(number).map_err(|_| {
        Problem::error("value-bound", format!("{what} is {number}"))
            .expected_found("at most 4294967295", number.to_string())
    })
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
    Crop::new(pad_square, resize, cut, cell)
        .map(Policy::Crop)
        .map_err(|message| Problem::error("layout", message))
}

fn area(parameters: &AreaParameters, values: &Values) -> Result<Policy, Problem> {
    let step = pixels(values, "the step", &parameters.step, 1)?;
    let least = values.size("the least area", &parameters.least, 1)? as u64;
    let most = values.size("the largest area", &parameters.most, 1)? as u64;
    let aspect = pixels(values, "the aspect limit", &parameters.aspect, 1)?;
    let frames = parameters
        .frames
        .as_ref()
        .map_or(Ok(1), |frames| pixels(values, "the number of frames", frames, 1))?;
    Area::new(step, least, most, aspect, frames)
        .map(Policy::Area)
        .map_err(|error| Problem::error("layout", error.message().to_owned()))
}

fn frame(text: &str, seam: u32) -> Result<Frame, Problem> {
    let strip = Strip::parse(text).map_err(|error| Problem::error("strip", error.message))?;
    let slots =
        strip.expand(&BTreeMap::new()).map_err(|error| Problem::error("strip", error.message))?;
    let mut frame = Frame {
        before: Vec::new(),
        after: Vec::new(),
        literals: Vec::new(),
        seam: u64::from(seam),
    };
    let mut markers = 0;
    for slot in slots {
        match slot {
            Slot::Row => markers += 1,
            Slot::Token(name) if markers == 0 => frame.before.push(name),
            Slot::Token(name) => frame.after.push(name),
            Slot::Literal(name) => frame.literals.push(name),
            Slot::Vector(_) => {
                return Err(Problem::error("strip", "a frame holds no learned vectors"));
            }
        }
    }
    if markers == 1 {
        Ok(frame)
    } else {
        Err(Problem::error("strip", "a frame holds `*` for the marker exactly once")
            .expected_found("one `*`", markers.to_string()))
    }
}

fn inputs(media: &Media, bindings: &BTreeMap<String, Bound>, values: &Values) -> Vec<Input> {
    let counts: Vec<&Count> = match &media.resize {
        Resize::Crop(parameters) => {
            vec![&parameters.crop_height, &parameters.crop_width, &parameters.cell]
        }
        Resize::Area(parameters) => {
            vec![&parameters.step, &parameters.least, &parameters.most, &parameters.aspect]
        }
    };
    let names = counts.into_iter().flat_map(Values::names_of).chain(bindings.keys().cloned());
    let leaves = values.leaves(names.collect::<Vec<_>>());
    leaves
        .into_iter()
        .filter_map(|name| {
            let resolved = values.get(&name).ok()?;
            Some(Input { value: resolved.value.clone(), source: resolved.source.clone(), name })
        })
        .collect()
}
