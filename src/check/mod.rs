//! A family file held against a checkpoint: what is wrong, where, what was expected and what was found.

mod family;
mod tensors;
mod tokens;

use std::cell::Cell;
use std::collections::BTreeMap;

pub use self::family::check_family;
pub use self::tensors::{TensorMatch, match_tensors};
use crate::checkpoint::Checkpoint;
use crate::checkpoint::weights::Listing;
use crate::descriptor::RawDescriptor;
use crate::descriptor::expression::ExpressionError;
use crate::error::{Error, Result};
use crate::layout::{Formula, Layout};
use crate::plan::graph::GraphPlan;
use crate::plan::{MediaPlan, Modality, Overrides, Plan};
use crate::problem::{Level, Place, Problem, Problems};
use crate::prompt::literal_tokens;

/// Everything found.
#[derive(Debug, Clone)]
pub struct Report {
    /// The family's name.
    pub family: String,
    /// The findings, in the order of the checks.
    pub findings: Problems,
}

impl Report {
    /// Whether nothing found is an error.
    pub fn ok(&self) -> bool {
        !self.findings.has_errors()
    }
}

/// Checks `raw` against `checkpoint`: config keys, requirements, strip and formula, tensors, tokens, template.
///
/// Works with config files only, better with an index or shard headers, a tokenizer and a chat template; what is not there
/// is said in a note.
///
/// # Errors
/// Only where nothing can be compared, such as weight files in an unreadable folder.
pub fn check(descriptor: &impl AsRef<RawDescriptor>, checkpoint: &Checkpoint) -> Result<Report> {
    let raw = descriptor.as_ref();
    let family = raw.name().to_owned();
    let descriptors = match family::describe(raw) {
        Ok(descriptors) => descriptors,
        Err(findings) => return Ok(Report { family, findings }),
    };
    let mut findings = family::mistakes(raw, &descriptors)?;
    let plan = match Plan::resolve_with(raw, checkpoint, &Overrides::new()) {
        Ok(plan) => plan,
        Err(error) => {
            findings.extend(as_findings(&error));
            return Ok(Report { family, findings });
        }
    };
    values(&plan, &mut findings);
    for modality in Modality::ALL {
        if let Some(Err(problems)) = plan.media(modality) {
            for problem in problems.clone() {
                // the family file says so itself
                let known = problem.code == "no-budget";
                findings.push_new(if known { problem.level(Level::Note) } else { problem });
            }
        }
    }
    add_new(&mut findings, plan.unmet_requirements());
    if matches!(plan.image, Some(Ok(_)))
        && let Err(mut problem) = plan.normaliser()
    {
        if problem.place == Place::default() {
            problem.place = plan.descriptor.place("image.pixels");
        }
        add_new(&mut findings, problem.into());
    }
    let front = plan.descriptor.family.audio.as_ref().and_then(|audio| audio.mel.as_ref());
    if front.is_some()
        && matches!(plan.audio, Some(Ok(_)))
        && let Err(mut problem) = plan.log_mel()
    {
        if problem.place == Place::default() {
            problem.place = plan.descriptor.place("audio.mel");
        }
        add_new(&mut findings, problem.into());
    }
    for modality in Modality::ALL {
        let known = findings.iter().any(|finding| finding.code == "strip-length");
        if let (false, Some(Ok(media))) = (known, plan.media(modality)) {
            strip_length(&plan, media, &mut findings);
        }
    }
    let graphs = GraphPlan::resolve_all(&plan.descriptor, &plan.values);
    let graph = graphs.as_ref().ok().and_then(|graphs| graphs.first().cloned());
    match graphs {
        Ok(graphs) => weights(&plan, graphs, checkpoint, &mut findings)?,
        Err(problems) => add_new(&mut findings, problems),
    }
    tokens::check(&plan, graph.as_ref(), checkpoint, &mut findings);
    Ok(Report { family, findings })
}

fn as_findings(error: &Error) -> Problems {
    if error.problems().is_empty() {
        Problem::error("config-file", error.to_string()).into()
    } else {
        error.problems().clone()
    }
}

fn add_new(findings: &mut Problems, problems: Problems) {
    for problem in problems {
        findings.push_new(problem);
    }
}

/// Config keys: what is missing or not understood is an error, what is a default a note.
fn values(plan: &Plan, findings: &mut Problems) {
    for (name, resolved) in plan.values.iter() {
        match resolved {
            Err(problem) => add_new(findings, (**problem).clone().into()),
            Ok(resolved) if resolved.defaulted => findings.push(
                Problem::error(
                    "config-default",
                    format!("`{name}` is not stated; it is {}", resolved.value),
                )
                .level(Level::Note)
                .at(plan.descriptor.place(&format!("config.{name}"))),
            ),
            Ok(_) => {}
        }
    }
}

/// Layouts that strip and formula are held against each other on, at most, beyond the policy's samples.
const MOST_LAYOUTS: u32 = 100_000;

/// The strip's length and the formula under `[floor]` are two statements of one number.
fn strip_length(plan: &Plan, media: &MediaPlan, findings: &mut Problems) {
    let texts: Vec<_> = media.literals.values().map(String::as_str).collect();
    let rules = &plan.descriptor.family.prompt;
    let measured = literal_tokens(rules, plan.tokenizer_files(), &plan.folder, &texts);
    let names = media.literals.keys().cloned();
    let lengths: BTreeMap<String, u64> =
        names.zip(measured.into_iter().map(|(tokens, _)| tokens)).collect();
    let literal = |name: &str| lengths.get(name).copied().unwrap_or(0);
    let modality = media.modality.name();
    let mut layouts = media.shape.policy.samples();
    layouts.extend(worst_disagreement(media, &literal));
    for layout in layouts {
        let place = plan.descriptor.place(&format!("floor.{modality}"));
        let shape = || {
            let fields: Vec<_> =
                layout.fields().map(|(name, value)| format!("{name} = {value}")).collect();
            fields.join(", ")
        };
        let stated = media.stated_length(&layout, literal);
        let strip = media
            .strip_length(&media.shape, &layout)
            .map(|length| length.slots(|name| Some(literal(name))));
        match (stated, strip) {
            (Ok(stated), Ok(Some(slots))) if i64::try_from(slots) == Ok(stated) => {}
            (Ok(stated), Ok(slots)) => {
                let slots = slots.map_or_else(|| "too many".to_owned(), |slots| slots.to_string());
                findings.push(
                    Problem::error(
                        "strip-length",
                        format!("strip and formula disagree at {}", shape()),
                    )
                    .at(place)
                    .expected_found(
                        format!("`{}` gives {stated}", media.formula.text()),
                        format!("`{}` has {slots}", media.shape.strip.text()),
                    )
                    .with_hint(format!(
                        "the formula under `[floor]` states the length of `{modality}.strip`"
                    )),
                );
                return; // one layout tells enough
            }
            (Err(error), _) | (_, Err(error)) => {
                findings.push(Problem::error("expression", error.message).at(place));
                return;
            }
        }
    }
}

/// The layout at which strip and formula differ most, out of the whole domain as far as the policy goes through it within
/// [`MOST_LAYOUTS`]. Polynomials are not asked: whether they are equal is seen without a checkpoint.
fn worst_disagreement(media: &MediaPlan, literal: &dyn Fn(&str) -> u64) -> Option<Layout> {
    let policy = &media.shape.policy;
    let names = policy.names();
    if media.formula.polynomial(names, &media.bindings).is_some()
        && media.shape.strip.embed_polynomial(names, &media.bindings).is_some()
    {
        return None;
    }
    let asked = Cell::new(0_u32);
    let difference = |layout: &Layout| {
        asked.set(asked.get() + 1);
        if asked.get() > MOST_LAYOUTS {
            return Err(ExpressionError { message: "too many layouts".to_owned(), hint: None });
        }
        let stated = media.stated_length(layout, literal)?;
        let slots = media.strip_length(&media.shape, layout)?.slots(|name| Some(literal(name)));
        let slots = slots.and_then(|slots| i64::try_from(slots).ok()).unwrap_or(i64::MAX);
        Ok(stated.saturating_sub(slots).saturating_abs())
    };
    let worst = policy.maximum(&Formula { value: &difference, polynomial: None }).ok()??;
    (worst.value > 0).then(|| policy.layout(worst.witness).ok()).flatten()
}

fn weights(
    plan: &Plan,
    graphs: Vec<GraphPlan>,
    checkpoint: &Checkpoint,
    findings: &mut Problems,
) -> Result<()> {
    if let Some(method) = checkpoint.quantisation() {
        findings.push(
            Problem::error(
                "quantised",
                format!("the weights are quantised ({method}); they are neither checked nor run"),
            )
            .level(Level::Warning)
            .in_file("config.json")
            .at_key("quantization_config"),
        );
        return Ok(());
    }
    let Some(listing) = Listing::open(checkpoint.folder())? else {
        findings.push(
            Problem::error(
                "weights-absent",
                "there are no weight files and no index; tensors are not checked",
            )
            .level(Level::Note),
        );
        return Ok(());
    };
    findings.extend(listing.problems.clone());
    if listing.tensors.is_empty() {
        return Ok(());
    }
    if listing.tensors.values().all(|tensor| tensor.shape.is_none()) {
        findings.push(
            Problem::error(
                "weights-absent",
                "only the index is there; tensor names are checked, shapes are not",
            )
            .level(Level::Note),
        );
    }
    let matched = match_tensors(&plan.descriptor, graphs, &listing);
    findings.extend(matched.map(|matched| matched.problems).into_iter().flatten());
    Ok(())
}
