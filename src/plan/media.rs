//! What one media item costs on one checkpoint: policy, strip, formula, and the values that they read.

use std::collections::BTreeMap;

use super::Modality;
use super::policy;
use super::values::Values;
use crate::descriptor::Descriptor;
use crate::descriptor::expression::{Bound, Expression, ExpressionError};
use crate::descriptor::image::Tables;
use crate::descriptor::slot::Count;
use crate::descriptor::strip::{Slot, Strip, StripLength};
use crate::layout::{Formula, Layout, Maximum, MediaSize, Policy, Polynomial};
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
    /// The modality.
    pub modality: Modality,
    /// How an item becomes a strip.
    pub shape: Shape,
    /// The same where a prompt has several items of this modality, if that is another.
    pub several: Option<Shape>,
    /// The descriptor's own statement of the strip's length.
    pub formula: Expression,
    /// Patches of the tower over the layout.
    pub patches: Option<Expression>,
    /// Rows that cross-attention sees of one item, over the layout.
    pub states: Option<Expression>,
    /// The config values that strips, formula, patches and states read.
    pub bindings: BTreeMap<String, Bound>,
    /// Around the marker: tokens and literals, in order.
    pub frame: Frame,
    /// The texts of the literals, by name.
    pub literals: BTreeMap<String, String>,
    /// What it was computed from.
    pub inputs: Vec<Input>,
}

/// How an item becomes a strip.
#[derive(Debug, Clone)]
pub struct Shape {
    /// The size policy.
    pub policy: Policy,
    /// The interpolation of a picture's resizing.
    pub filter: Option<Filter>,
    /// The strip.
    pub strip: Strip,
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
    /// Rows that are spliced in: of the encoder, and learned vectors between them.
    pub embeds: u64,
    /// Tokens in place of the marker.
    pub expansion: u64,
    /// Patches of the tower, where they are not the same for every item.
    pub patches: Option<u64>,
    /// Rows that cross-attention sees, where the item enters that way.
    pub states: Option<u64>,
}

fn misfit(error: ExpressionError) -> Problem {
    let mut problem = Problem::error("expression", error.message);
    problem.hint = error.hint;
    problem
}

fn overflows() -> ExpressionError {
    ExpressionError { message: "the strip's length overflows 64 bits".to_owned(), hint: None }
}

/// What collects problems and puts them at keys of the family file.
struct Collector<'a> {
    descriptor: &'a Descriptor,
    problems: Problems,
}

impl Collector<'_> {
    fn add(&mut self, problem: Problem, key: &str) {
        self.problems.push_new(if problem.place == Place::default() {
            problem.at(self.descriptor.place(key))
        } else {
            problem
        });
    }

    fn keep<T>(&mut self, key: &str, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.add(problem, key)).ok()
    }
}

impl MediaPlan {
    /// Resolves the budget of a modality; `None` if the family has none. All problems are reported at once.
    pub fn resolve(
        descriptor: &Descriptor,
        modality: Modality,
        values: &Values,
    ) -> Option<Result<Self, Problems>> {
        let family = &descriptor.family;
        let tables = match modality {
            Modality::Image => family.image.as_ref()?.tables(),
            Modality::Audio => family.audio.as_ref()?.tables(),
        };
        let taken = match modality {
            Modality::Image => None,
            Modality::Audio => family.audio.as_ref().and_then(|audio| audio.when.as_ref()),
        };
        if taken.is_some_and(|when| values.flag(when) == Ok(false)) {
            return None;
        }
        if let Some(reason) = &family.family.no_budget {
            let problem =
                Problem::error("no-budget", format!("this family has no budget: {reason}"));
            return Some(Err(problem.at(descriptor.place("family.no_budget")).into()));
        }
        let mut collector = Collector { descriptor, problems: Problems::default() };
        let plan = Self::collect(&mut collector, modality, tables, values);
        let mut problems = collector.problems;
        Some(match plan {
            Some(plan) if problems.is_empty() => {
                plan.agreements(descriptor, values, &mut problems);
                if problems.is_empty() { Ok(plan) } else { Err(problems) }
            }
            _ => Err(problems),
        })
    }

    fn collect(
        collector: &mut Collector<'_>,
        modality: Modality,
        tables: Tables<'_>,
        values: &Values,
    ) -> Option<Self> {
        let family = &collector.descriptor.family;
        let name = modality.name();
        // a variant that nobody knows, or a contradiction, says that the settings are not those that this family describes
        for (value, resolved) in values.iter() {
            if let Err(problem) = resolved
                && value.split_once('.').is_some_and(|(section, _)| section == name)
                && ["config-variant", "config-disagree", "value-bound"].contains(&problem.code)
            {
                collector.add((**problem).clone(), name);
            }
        }
        let strip = |collector: &mut Collector<'_>, text: &str, key: &str| {
            collector.keep(key, Strip::parse(text).map_err(misfit))
        };
        let mut reads = Vec::new();
        let mut several = None;
        let main = strip(collector, tables.strip, &format!("{name}.strip"));
        let (policy, filter) = match (modality, &family.image, &family.audio) {
            (Modality::Image, Some(image), _) => {
                reads.extend(policy::reads(&image.resize));
                if let Some(other) = &image.several {
                    let policy = policy::of_pictures(&other.resize, values);
                    let policy = collector.keep("image.several.resize", policy);
                    let filter = values.choice(policy::filter(&other.resize));
                    let filter = collector.keep("image.several.resize.filter", filter);
                    let strip = strip(collector, &other.strip, "image.several.strip");
                    let shape = policy.zip(strip);
                    several = shape.map(|(policy, strip)| Shape { policy, filter, strip });
                }
                let policy = policy::of_pictures(&image.resize, values);
                let policy = collector.keep("image.resize", policy);
                let filter = values.choice(policy::filter(&image.resize));
                (policy, collector.keep("image.resize.filter", filter))
            }
            (Modality::Audio, _, Some(audio)) => {
                reads.extend(policy::clip_reads(&audio.clip));
                let policy = policy::of_clips(&audio.clip, values);
                (collector.keep("audio.clip", policy), None)
            }
            _ => (None, None),
        };
        let parse = |collector: &mut Collector<'_>, key: &str, text: &str| {
            collector.keep(key, Expression::parse(text).map_err(misfit))
        };
        let floor_key = format!("floor.{name}");
        let text = family.floor.get(name).map_or("0", String::as_str);
        let formula = parse(collector, &floor_key, text);
        let mut over = |key: &str, count: Option<&Count>| match count {
            Some(Count::Literal(number)) => parse(collector, key, &number.to_string()),
            Some(Count::Expression(text)) => parse(collector, key, text),
            None => None,
        };
        let patches = over(&format!("{name}.patches"), tables.patches);
        let states = over(&format!("{name}.states"), tables.states);
        let mut names: Vec<String> = main.iter().flat_map(Strip::names).collect();
        names.extend(several.iter().flat_map(|several| several.strip.names()));
        for expression in [&formula, &patches, &states].into_iter().flatten() {
            names.extend(expression.names().to_vec());
        }
        // config values have a section; names of the layout and of literals have none
        names.retain(|name| name.contains('.'));
        let mut bindings = BTreeMap::new();
        for name in names {
            let found = values.bindings(std::slice::from_ref(&name), &BTreeMap::new());
            bindings.extend(collector.keep(&floor_key, found).unwrap_or_default());
        }
        let frame = collector.keep(&format!("{name}.frame"), frame(tables.frame, tables.seam));
        let names = reads.into_iter().chain(bindings.keys().cloned());
        let inputs = values.leaves(names.collect::<Vec<_>>()).into_iter().filter_map(|name| {
            let resolved = values.get(&name).ok()?;
            Some(Input { value: resolved.value.clone(), source: resolved.source.clone(), name })
        });
        let literals = tables.literals.iter();
        Some(Self {
            modality,
            several,
            formula: formula?,
            patches,
            states,
            frame: frame?,
            literals: literals.map(|(name, text)| (name.clone(), text.clone())).collect(),
            inputs: inputs.collect(),
            bindings,
            shape: Shape { policy: policy?, filter, strip: main? },
        })
    }

    /// Requirements that mention the layout must hold before any number is given: they say that processor and tower agree.
    fn agreements(&self, descriptor: &Descriptor, values: &Values, problems: &mut Problems) {
        let Some(layout) = self.shape.policy.samples().first().copied() else { return };
        for (sentence, text) in &descriptor.family.require {
            let Ok(expression) = Expression::parse(text) else { continue };
            if concerned(descriptor, &expression) != Some(self.modality) {
                continue;
            }
            let place = descriptor.place(&format!("require.{sentence}"));
            match values.condition(text, &layout.bindings()) {
                Ok(true) => {}
                Ok(false) => {
                    problems
                        .push(requirement_failed(sentence, text, values, Some(&layout)).at(place));
                }
                Err(problem) => problems.push(problem),
            }
        }
    }

    /// The shape that holds where a prompt has `items` items of this modality.
    pub fn shape(&self, items: usize) -> &Shape {
        match &self.several {
            Some(several) if items > 1 => several,
            _ => &self.shape,
        }
    }

    fn all_bindings(&self, layout: &Layout) -> BTreeMap<String, Bound> {
        let mut bindings = self.bindings.clone();
        bindings.extend(layout.bindings());
        bindings
    }

    /// Every literal that a strip uses.
    pub fn strip_literals(&self) -> Vec<String> {
        let several = self.several.iter().flat_map(|several| several.strip.literals());
        let mut names: Vec<_> = self.shape.strip.literals().into_iter().chain(several).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Every token that a strip uses, by name.
    pub fn strip_tokens(&self) -> Vec<String> {
        let several = self.several.iter().flat_map(|several| several.strip.tokens());
        let mut names: Vec<_> = self.shape.strip.tokens().into_iter().chain(several).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The strip's slots by kind, for one layout.
    pub fn strip_length(
        &self,
        shape: &Shape,
        layout: &Layout,
    ) -> Result<StripLength, ExpressionError> {
        shape.strip.length(&self.all_bindings(layout))
    }

    /// The strip, expanded for one layout.
    pub fn expand(&self, shape: &Shape, layout: &Layout) -> Result<Vec<Slot>, ExpressionError> {
        shape.strip.expand(&self.all_bindings(layout))
    }

    fn with_literals(
        &self,
        mut bindings: BTreeMap<String, Bound>,
        literal: impl Fn(&str) -> u64,
    ) -> BTreeMap<String, Bound> {
        for name in self.literals.keys() {
            let tokens = i64::try_from(literal(name)).unwrap_or(i64::MAX);
            bindings.insert(name.clone(), Bound::Integer(tokens));
        }
        bindings
    }

    /// The descriptor's formula for one layout; `literal` gives the token length of a literal.
    pub fn stated_length(
        &self,
        layout: &Layout,
        literal: impl Fn(&str) -> u64,
    ) -> Result<i64, ExpressionError> {
        self.formula.integer(&self.with_literals(self.all_bindings(layout), literal))
    }

    /// What an item of this size costs in a prompt of `items` items of its modality; the error is a sentence.
    pub fn cost(
        &self,
        size: MediaSize,
        items: usize,
        literal: impl Fn(&str) -> u64,
    ) -> Result<Cost, String> {
        let shape = self.shape(items);
        let layout = shape.policy.layout(size)?;
        let length = self.strip_length(shape, &layout).map_err(|error| error.message)?;
        let embeds = length.embeds().ok_or_else(|| overflows().message)?;
        let expansion =
            length.slots(|name| Some(literal(name))).ok_or_else(|| overflows().message)?;
        let over = |expression: &Option<Expression>| match expression {
            // the expressions read the names of the usual policy
            Some(expression) if items <= 1 || self.several.is_none() => {
                let value = expression.integer(&self.all_bindings(&layout));
                let value = value.map_err(|error| error.message)?;
                u64::try_from(value)
                    .map(Some)
                    .map_err(|_| format!("`{}` is {value}, a count below zero", expression.text()))
            }
            _ => Ok(None),
        };
        let (patches, states) = (over(&self.patches)?, over(&self.states)?);
        Ok(Cost { layout, embeds, expansion, patches, states })
    }

    fn largest(
        &self,
        expression: &Expression,
        literal: impl Fn(&str) -> u64,
    ) -> Result<Option<Maximum<MediaSize>>, ExpressionError> {
        let bindings = self.with_literals(self.bindings.clone(), &literal);
        let polynomial = Polynomial::of(expression, self.shape.policy.names(), &bindings);
        let value = |layout: &Layout| {
            let mut bindings = bindings.clone();
            bindings.extend(layout.bindings());
            expression.integer(&bindings)
        };
        self.shape.policy.maximum(&Formula { value: &value, polynomial })
    }

    /// The largest expansion over the whole domain.
    pub fn largest_expansion(
        &self,
        literal: impl Fn(&str) -> u64,
    ) -> Result<Option<Maximum<MediaSize>>, ExpressionError> {
        self.largest(&self.formula, literal)
    }

    /// The most patches over the whole domain.
    pub fn largest_patches(&self) -> Result<Option<Maximum<MediaSize>>, ExpressionError> {
        self.patches.as_ref().map_or(Ok(None), |patches| self.largest(patches, |_| 0))
    }

    /// The most rows for cross-attention over the whole domain.
    pub fn largest_states(&self) -> Result<Option<Maximum<MediaSize>>, ExpressionError> {
        self.states.as_ref().map_or(Ok(None), |states| self.largest(states, |_| 0))
    }

    /// The most embeds over the whole domain.
    pub fn largest_embeds(&self) -> Result<Option<Maximum<MediaSize>>, ExpressionError> {
        let embeds = |layout: &Layout| {
            let embeds = self.strip_length(&self.shape, layout)?.embeds();
            embeds.and_then(|embeds| i64::try_from(embeds).ok()).ok_or_else(overflows)
        };
        let names = self.shape.policy.names();
        let polynomial = self.shape.strip.embed_polynomial(names, &self.bindings);
        let polynomial = polynomial.map(Polynomial::new);
        self.shape.policy.maximum(&Formula { value: &embeds, polynomial })
    }

    /// The largest expansion of an item among several, where that has a strip of its own.
    pub fn largest_among_several(
        &self,
        literal: impl Fn(&str) -> u64,
    ) -> Result<Option<Maximum<MediaSize>>, ExpressionError> {
        let Some(several) = &self.several else { return Ok(None) };
        let tokens = |layout: &Layout| {
            let slots = self.strip_length(several, layout)?.slots(|name| Some(literal(name)));
            slots.and_then(|slots| i64::try_from(slots).ok()).ok_or_else(overflows)
        };
        several.policy.maximum(&Formula { value: &tokens, polynomial: None })
    }
}

/// The modality whose cost a requirement holds back: it mentions the layout or the preprocessing of that modality. The layout
/// is the pictures' where a family takes pictures.
pub fn concerned(descriptor: &Descriptor, requirement: &Expression) -> Option<Modality> {
    let plain = match descriptor.family.image {
        Some(_) => Modality::Image,
        None => Modality::Audio,
    };
    requirement.names().iter().find_map(|name| match name.split_once('.') {
        Some(("image", _)) => Some(Modality::Image),
        Some(("audio", _)) => Some(Modality::Audio),
        Some(_) => None,
        None => Some(plain),
    })
}

/// The problem of a requirement that does not hold, with the values it reads and where they came from.
pub fn requirement_failed(
    sentence: &str,
    text: &str,
    values: &Values,
    layout: Option<&Layout>,
) -> Problem {
    let names =
        Expression::parse(text).map(|expression| expression.names().to_vec()).unwrap_or_default();
    let found: Vec<_> = names
        .iter()
        .map(|name| match layout.and_then(|layout| layout.get(name)) {
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
            Slot::Token(name, _) if markers == 0 => frame.before.push(name),
            Slot::Token(name, _) => frame.after.push(name),
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
