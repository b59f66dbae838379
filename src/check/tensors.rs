//! Tensor names, shapes and types of a checkpoint against those that a plan reads.

use std::collections::HashSet;

use indexmap::IndexMap;

use crate::checkpoint::weights::Listing;
use crate::descriptor::Descriptor;
use crate::descriptor::family::Root;
use crate::plan::graph::GraphPlan;
use crate::plan::tensors::{Component, TensorSpec, tensors};
use crate::problem::{Level, Place, Problem, Problems};

/// The outcome of matching.
#[derive(Debug, Clone)]
pub struct TensorMatch {
    /// The computation in the form in which the weights are stored.
    pub graph: GraphPlan,
    /// The tensors that it knows.
    pub specs: Vec<TensorSpec>,
    /// The root under which most tensors were found.
    pub root: Root,
    /// What is wrong.
    pub problems: Problems,
    /// Stored tensors that nothing reads and no pattern ignores.
    pub unknown: Vec<String>,
}

/// One kind of complaint about tensors whose names differ in numbers only.
#[derive(PartialEq, Eq, Hash)]
struct Group {
    code: &'static str,
    pattern: String,
    expected: String,
    found: String,
    key: String,
}

/// A form of the weights under a root, and how well it fits.
struct Candidate {
    fits: (usize, usize),
    specs: Vec<TensorSpec>,
    root: Root,
    graph: GraphPlan,
}

/// Whether a stored tensor has the shape that it should have; of two that continue each other, both together.
fn has_shape(spec: &TensorSpec, shape: &[usize], root: &Root, listing: &Listing) -> bool {
    if shape == spec.shape {
        return true;
    }
    let Some((other, total)) = &spec.joined else { return false };
    let other = listing.tensors.get(&spec.component.full_name(root, other));
    let Some(other) = other.and_then(|other| other.shape.as_ref()) else { return false };
    match (shape, &other[..], &spec.shape[..]) {
        ([rows, width], [others, other_width], [_, wanted]) => {
            width == wanted && other_width == wanted && rows.checked_add(*others) == Some(*total)
        }
        _ => false,
    }
}

/// How well a form of the weights fits under a root: how many known tensors are stored, and how many of these have the
/// shape that they should have.
fn fit(specs: &[TensorSpec], root: &Root, listing: &Listing) -> (usize, usize) {
    let mut present = 0;
    let mut shaped = 0;
    for spec in specs {
        if let Some(tensor) = listing.tensors.get(&spec.component.full_name(root, &spec.name)) {
            present += 1;
            let fits = |shape: &Vec<usize>| has_shape(spec, shape, root, listing);
            shaped += usize::from(tensor.shape.as_ref().is_none_or(fits));
        }
    }
    (present, shaped)
}

/// Finds the form of the weights and the root that fit best, then lists what is missing, what has another shape or type,
/// and what is unknown.
///
/// `graphs` holds every form, the family's own first; there must be one at least.
pub fn match_tensors(
    descriptor: &Descriptor,
    graphs: Vec<GraphPlan>,
    listing: &Listing,
) -> Option<TensorMatch> {
    let mut best: Option<Candidate> = None;
    for graph in graphs {
        let specs = tensors(&graph);
        for root in graph.roots.clone() {
            let fits = fit(&specs, &root, listing);
            // the first of equals stays
            if best.as_ref().is_none_or(|best| fits > best.fits) {
                best = Some(Candidate { fits, specs: specs.clone(), root, graph: graph.clone() });
            }
        }
    }
    let Candidate { fits: (present, _), specs, root, graph } = best?;
    let place = |key: &str| descriptor.layout_place(graph.layout, key);
    let mut problems = Problems::default();
    if present == 0 {
        let mut examples: Vec<_> = listing.tensors.keys().take(3).map(String::as_str).collect();
        examples.sort_unstable();
        problems.push(
            Problem::error(
                "tensor-root",
                "no tensor of the family is stored under any of its roots",
            )
            .at(place("tensors.roots"))
            .expected_found(
                format!(
                    "names such as `{}`",
                    specs.first().map_or_else(String::new, |spec| spec
                        .component
                        .full_name(&root, &spec.name))
                ),
                format!("names such as `{}`", examples.join("`, `")),
            ),
        );
        let unknown = listing.tensors.keys().cloned().collect();
        return Some(TensorMatch { graph, specs, root, problems, unknown });
    }
    let groups = complaints(&specs, listing, &root);
    for (group, names) in groups {
        problems.push(describe(&group, &names, place(&group.key)));
    }
    let unknown = unknown(&graph.ignore, &specs, listing, &root);
    let mut patterns: IndexMap<String, Vec<String>> = IndexMap::new();
    for name in &unknown {
        patterns.entry(pattern(name)).or_default().push(name.clone());
    }
    for (pattern, names) in patterns {
        problems.push(
            Problem::error(
                "tensor-unknown",
                format!(
                    "{} that nothing reads: {}",
                    counted(names.len()),
                    listed(&pattern, &names)
                ),
            )
            .level(Level::Warning)
            .at(place("tensors.ignore"))
            .with_hint("list a pattern under `[tensors] ignore` if they are not needed"),
        );
    }
    Some(TensorMatch { graph, specs, root, problems, unknown })
}

fn complaints(
    specs: &[TensorSpec],
    listing: &Listing,
    root: &Root,
) -> IndexMap<Group, Vec<String>> {
    let mut groups: IndexMap<Group, Vec<String>> = IndexMap::new();
    let mut complain = |code, spec: &TensorSpec, name: &str, expected: String, found: String| {
        let group = Group { code, pattern: pattern(name), expected, found, key: spec.key.clone() };
        groups.entry(group).or_default().push(name.to_owned());
    };
    for spec in specs {
        let name = spec.component.full_name(root, &spec.name);
        let Some(tensor) = listing.tensors.get(&name) else {
            if spec.required {
                complain(
                    "tensor-missing",
                    spec,
                    &name,
                    format!("shape {:?}", spec.shape),
                    "nothing".to_owned(),
                );
            }
            continue;
        };
        if let Some(shape) = &tensor.shape
            && !has_shape(spec, shape, root, listing)
        {
            complain(
                "tensor-shape",
                spec,
                &name,
                format!("shape {:?}", spec.shape),
                format!("shape {shape:?}"),
            );
        }
        if let Some(dtype) = &tensor.dtype
            && dtype.dtype().is_none()
        {
            complain("tensor-dtype", spec, &name, "F32, F16 or BF16".to_owned(), dtype.to_string());
        }
    }
    groups
}

fn describe(group: &Group, names: &[String], place: Place) -> Problem {
    let count = counted(names.len());
    let listed = listed(&group.pattern, names);
    let verb = if names.len() == 1 { "is" } else { "are" };
    let has = if names.len() == 1 { "has" } else { "have" };
    let message = match group.code {
        "tensor-missing" => format!("{count} {verb} missing: {listed}"),
        "tensor-shape" => format!("{count} {has} another shape: {listed}"),
        _ => format!("{count} {has} a type that is not read: {listed}"),
    };
    Problem::error(group.code, message)
        .at(place)
        .expected_found(group.expected.clone(), group.found.clone())
}

fn counted(count: usize) -> String {
    if count == 1 { "1 tensor".to_owned() } else { format!("{count} tensors") }
}

/// The one name, or the pattern with the numbers that occur.
fn listed(pattern: &str, names: &[String]) -> String {
    match names {
        [only] => format!("`{only}`"),
        _ => {
            let mut numbers: Vec<u64> =
                names.iter().filter_map(|name| first_number(name)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            format!("`{pattern}` with * = {}", ranges(&numbers))
        }
    }
}

fn first_number(name: &str) -> Option<u64> {
    name.split('.').find_map(|part| part.parse().ok())
}

/// `0-3, 7` for 0, 1, 2, 3, 7.
fn ranges(numbers: &[u64]) -> String {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let words: Vec<_> = parts
        .iter()
        .map(
            |(first, last)| {
                if first == last { first.to_string() } else { format!("{first}-{last}") }
            },
        )
        .collect();
    words.join(", ")
}

/// A name with every number between dots replaced by `*`.
fn pattern(name: &str) -> String {
    let parts: Vec<_> = name
        .split('.')
        .map(|part| {
            if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
                "*"
            } else {
                part
            }
        })
        .collect();
    parts.join(".")
}

fn unknown(ignore: &[String], specs: &[TensorSpec], listing: &Listing, root: &Root) -> Vec<String> {
    let known: HashSet<String> =
        specs.iter().map(|spec| spec.component.full_name(root, &spec.name)).collect();
    let ignored: Vec<String> = ignore
        .iter()
        .map(|pattern| match pattern.split_once(':') {
            Some((component, rest)) => Component::NAMES
                .iter()
                .find(|(name, _)| *name == component)
                .map_or_else(|| pattern.clone(), |(_, component)| component.full_name(root, rest)),
            None => pattern.clone(),
        })
        .collect();
    listing
        .tensors
        .keys()
        .filter(|name| {
            !known.contains(*name) && !ignored.iter().any(|pattern| matches(pattern, name))
        })
        .cloned()
        .collect()
}

/// Whether `name` fits `pattern`, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or(""),
            None => return false,
        }
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_globs() {
        assert!(matches("a.*.c", "a.b.b.c"));
        assert!(matches("a.*", "a."));
        assert!(matches("a", "a"));
        assert!(!matches("a", "ab"));
        assert!(!matches("a.*.c", "a.b.d"));
        assert!(matches("*.inv_freq", "x.y.inv_freq"));
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(pattern("h.12.w2.weight"), "h.*.w2.weight");
        assert_eq!(ranges(&[0, 1, 2, 7, 9, 10]), "0-2, 7, 9-10");
    }
}
