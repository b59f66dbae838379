//! A strip against the formula under `[floor]`, for every checkpoint at once.
//!
//! Equal polynomials are proof. Where they differ, a small assignment is searched at which the two numbers do: layouts that
//! the policy can return, values that the family can look up, and all requirements met that are about what differs. Without
//! one nothing is said: names may depend on each other in ways that only a checkpoint's parameters tell.

use std::collections::{BTreeMap, BTreeSet};

use super::samples::{self, Domain};
use crate::descriptor::config::{Entry, Lookup, ValueType};
use crate::descriptor::expression::{Bound, Expression};
use crate::descriptor::slot::OneOrMany;
use crate::descriptor::strip::Strip;
use crate::descriptor::symbolic::{Case, Sum, cases};
use crate::descriptor::{Descriptor, Family};
use crate::problem::{Problem, Problems};

/// The most assignments that are tried.
const TRIES: usize = 4000;
/// How deep config values are computed from each other before that is given up.
const DEPTH: usize = 32;

type Bindings = BTreeMap<String, Bound>;

pub(super) fn check(descriptor: &Descriptor) -> Problems {
    let mut problems = Problems::default();
    let family = &descriptor.family;
    if family.family.no_budget.is_some() {
        return problems;
    }
    for (modality, tables) in family.media() {
        let domain = match (&family.image, modality) {
            (Some(image), "image") => samples::of_pictures(&image.resize),
            _ => samples::of_clips(),
        };
        let formula = family.floor.get(modality).map(|text| Expression::parse(text));
        let (Ok(strip), Some(Ok(formula))) = (Strip::parse(tables.strip), formula) else {
            continue; // said where the file was loaded
        };
        let pair = Pair { family, domain: &domain, strip: &strip, formula: &formula };
        if let Some((expected, found, at)) = pair.difference() {
            problems.push(
                Problem::error("strip-length", format!("strip and formula disagree at {at}"))
                    .at(descriptor.place(&format!("floor.{modality}")))
                    .expected_found(expected, found)
                    .with_hint(format!(
                        "the formula under `[floor]` states the length of `{modality}.strip`"
                    )),
            );
        }
    }
    problems
}

/// Two statements of one number.
struct Pair<'a> {
    family: &'a Family,
    domain: &'a Domain,
    strip: &'a Strip,
    formula: &'a Expression,
}

impl Pair<'_> {
    /// The formula, the strip, and where they differ; `None` if they do not, or if that cannot be told.
    fn difference(&self) -> Option<(String, String, String)> {
        let cases = cases(self.strip, &self.domain.bounds)?;
        if self.undecided(&cases)?.is_empty() {
            return None;
        }
        let inlined =
            cases.into_iter().map(|case| self.inlined(case)).collect::<Option<Vec<_>>>()?;
        let differing = self.undecided(&inlined)?;
        let names: BTreeSet<String> = differing.iter().flat_map(Sum::names).collect();
        if differing.is_empty() || !self.independent(&names) {
            return None;
        }
        self.search(&names)
    }

    /// What strip and formula differ by, in every case where they are not the same polynomial.
    fn undecided(&self, cases: &[Case]) -> Option<Vec<Sum>> {
        let mut differing = Vec::new();
        for case in cases {
            let difference = case.length(self.strip)?.minus(&case.sum(self.formula)?)?;
            if !difference.is_zero() {
                differing.push(difference);
            }
        }
        Some(differing)
    }

    /// The case with config values replaced by what they are computed from.
    fn inlined(&self, mut case: Case) -> Option<Case> {
        for name in self.names() {
            self.inline(&mut case, &name, 0)?;
        }
        Some(case)
    }

    fn inline(&self, case: &mut Case, name: &str, depth: usize) -> Option<()> {
        let Some(text) = self.computed(name) else { return Some(()) };
        if depth > DEPTH {
            return None;
        }
        let expression = Expression::parse(text).ok()?;
        for inner in expression.names() {
            self.inline(case, inner, depth + 1)?;
        }
        case.put(name, &expression)
    }

    /// The names that strip and formula read.
    fn names(&self) -> BTreeSet<String> {
        let names = self.strip.names().into_iter().chain(self.formula.names().iter().cloned());
        names.chain(self.strip.literals()).collect()
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        let (section, entry) = name.split_once('.')?;
        self.family.config.get(section)?.values.get(entry)
    }

    fn lookup(&self, name: &str) -> Option<&Lookup> {
        match self.entry(name)? {
            Entry::Lookup(lookup) => Some(lookup),
            _ => None,
        }
    }

    fn computed(&self, name: &str) -> Option<&str> {
        match self.entry(name)? {
            Entry::Expression(text) => Some(text),
            _ => None,
        }
    }

    /// The names that are not computed from others, below `names`.
    fn leaves(&self, names: impl IntoIterator<Item = String>, depth: usize) -> BTreeSet<String> {
        let mut leaves = BTreeSet::new();
        for name in names {
            let inner = self.computed(&name).and_then(|text| Expression::parse(text).ok());
            match inner {
                Some(expression) if depth < DEPTH => {
                    leaves.extend(self.leaves(expression.names().to_vec(), depth + 1));
                }
                _ => {
                    leaves.insert(name);
                }
            }
        }
        leaves
    }

    /// Whether nothing but a requirement can tie the names to each other.
    fn independent(&self, names: &BTreeSet<String>) -> bool {
        let among = |known: &[&str]| names.iter().any(|name| known.contains(&name.as_str()));
        let values: Vec<_> = names.iter().filter(|name| name.contains('.')).collect();
        if among(self.domain.opaque) || (among(self.domain.settled) && !values.is_empty()) {
            return false;
        }
        // two lookups that may read one key of a file
        let mut keys = BTreeSet::new();
        for name in values {
            let own: BTreeSet<_> = self.keys(name).into_iter().collect();
            if own.iter().any(|key| !keys.insert(key.clone())) {
                return false;
            }
        }
        true
    }

    /// The last parts of the paths at which a value is looked up.
    fn keys(&self, name: &str) -> Vec<String> {
        let Some(lookup) = self.lookup(name) else { return Vec::new() };
        let at = lookup.at.iter().flat_map(OneOrMany::as_slice);
        let paths: Vec<_> = at.chain(lookup.same.iter().flatten()).collect();
        let last = |path: &str| path.rsplit(['.', ':']).next().unwrap_or(path).to_owned();
        if paths.is_empty() {
            vec![last(name)]
        } else {
            paths.into_iter().map(|path| last(path)).collect()
        }
    }

    /// An assignment at which the two differ, in which the names that the difference reads vary first.
    fn search(&self, names: &BTreeSet<String>) -> Option<(String, String, String)> {
        let mut leaves = self.leaves(self.names(), 0);
        let requirements = self.requirements(names, &mut leaves)?;
        let layout =
            |name: &str| self.domain.layouts.first().is_some_and(|first| first.contains_key(name));
        let mut varied: Vec<(&String, Vec<Bound>)> = Vec::new();
        for name in leaves.iter().filter(|name| !layout(name)) {
            varied.push((name, self.candidates(name)?));
        }
        varied.sort_by_key(|(name, _)| !names.contains(*name));
        let reads_layout = names.iter().any(|name| layout(name));
        let mut tries = 0;
        let combinations: usize = varied
            .iter()
            .fold(1_usize, |product, (_, values)| product.saturating_mul(values.len()));
        for number in 0..combinations.min(TRIES) {
            let mut bindings = Bindings::new();
            let mut rest = number;
            for (name, values) in &varied {
                bindings.insert((*name).clone(), values.get(rest % values.len())?.clone());
                rest /= values.len();
            }
            for layout in &self.domain.layouts {
                tries += 1;
                if tries > TRIES {
                    return None;
                }
                let mut bindings = bindings.clone();
                let fields = layout.iter();
                bindings.extend(
                    fields.map(|(name, value)| ((*name).to_owned(), Bound::Integer(*value))),
                );
                if let Some((formula, strip)) = self.evaluated(bindings.clone(), &requirements) {
                    return Some(self.told(&bindings, names, reads_layout, formula, strip));
                }
            }
        }
        None
    }

    /// The requirements that are about what differs; the names that they read are added to `leaves`.
    fn requirements(
        &self,
        names: &BTreeSet<String>,
        leaves: &mut BTreeSet<String>,
    ) -> Option<Vec<Expression>> {
        let mut found = Vec::new();
        for text in self.family.require.values() {
            let expression = Expression::parse(text).ok()?;
            let reads = self.leaves(expression.names().to_vec(), 0);
            match reads.intersection(names).count() {
                0 => {}
                // others can be such that it holds
                1 if !reads.is_subset(leaves) => {}
                _ => {
                    leaves.extend(reads);
                    found.push(expression);
                }
            }
        }
        Some(found)
    }

    /// Formula and strip at an assignment that meets the requirements, if they differ there.
    fn evaluated(&self, mut bindings: Bindings, requirements: &[Expression]) -> Option<(i64, i64)> {
        let required = requirements.iter().flat_map(|requirement| requirement.names().to_vec());
        for name in self.names().into_iter().chain(required) {
            self.bind(&name, &mut bindings, 0)?;
        }
        if !requirements.iter().all(|requirement| requirement.truth(&bindings) == Ok(true)) {
            return None;
        }
        let literal = |name: &str| match bindings.get(name) {
            Some(Bound::Integer(tokens)) => u64::try_from(*tokens).ok(),
            _ => None,
        };
        let strip = self.strip.length(&bindings).ok()?.slots(literal)?;
        let (formula, strip) = (self.formula.integer(&bindings).ok()?, i64::try_from(strip).ok()?);
        (formula != strip).then_some((formula, strip))
    }

    fn bind(&self, name: &str, bindings: &mut Bindings, depth: usize) -> Option<()> {
        let Some(text) = self.computed(name).filter(|_| !bindings.contains_key(name)) else {
            return Some(());
        };
        if depth > DEPTH {
            return None;
        }
        let expression = Expression::parse(text).ok()?;
        for inner in expression.names() {
            self.bind(inner, bindings, depth + 1)?;
        }
        let value = match expression.integer(bindings) {
            Ok(number) => Bound::Integer(number),
            Err(_) => Bound::Boolean(expression.truth(bindings).ok()?),
        };
        bindings.insert(name.to_owned(), value);
        Some(())
    }

    /// Values that a name can have; `None` where that cannot be told.
    fn candidates(&self, name: &str) -> Option<Vec<Bound>> {
        use serde_json::Value;
        let bound = |value: &Value| match value {
            Value::Bool(flag) => Some(Bound::Boolean(*flag)),
            Value::Number(number) => number.as_i64().map(Bound::Integer),
            Value::Array(items) => {
                items.iter().map(Value::as_i64).collect::<Option<_>>().map(Bound::List)
            }
            _ => None,
        };
        let small = || (1..=3).map(Bound::Integer).collect::<Vec<_>>();
        let lookup = match self.entry(name) {
            None if self.domain.opaque.contains(&name) => return None,
            None => return Some(small()), // the tokens of a literal
            Some(Entry::Literal(value)) => return bound(value).map(|value| vec![value]),
            Some(Entry::Lookup(lookup)) => lookup,
            Some(Entry::Expression(_)) => return None,
        };
        if let Some(map) = &lookup.map {
            let mut values = map.values().map(bound).collect::<Option<Vec<_>>>()?;
            values.dedup();
            return (!values.is_empty()).then_some(values);
        }
        match &lookup.or {
            None if lookup.kind.is_none_or(|kind| kind == ValueType::Integer) => Some(small()),
            Some(Value::Number(number)) if number.is_i64() => Some(small()),
            Some(Value::Bool(_)) => Some(vec![Bound::Boolean(false), Bound::Boolean(true)]),
            Some(list @ Value::Array(_)) => bound(list).map(|list| vec![list]),
            _ => None,
        }
    }

    /// What is expected, what is found, and where.
    fn told(
        &self,
        bindings: &Bindings,
        names: &BTreeSet<String>,
        reads_layout: bool,
        formula: i64,
        strip: i64,
    ) -> (String, String, String) {
        let whole = Case::default();
        let written = |text: &str, sum: Option<Sum>, what: &str, number: i64| {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            match sum.map(|sum| sum.to_string()).filter(|sum| *sum != text) {
                Some(sum) => format!("`{text}`, that is `{sum}`, {what} {number}"),
                None => format!("`{text}` {what} {number}"),
            }
        };
        let expected = written(self.formula.text(), whole.sum(self.formula), "gives", formula);
        let found = written(self.strip.text(), whole.length(self.strip), "has", strip);
        let read = self.names();
        let fields = bindings.iter().filter(|(name, _)| {
            read.contains(*name) || names.contains(*name) && (reads_layout || name.contains('.'))
        });
        let at: Vec<_> = fields.map(|(name, value)| format!("{name} = {value}")).collect();
        let at = if at.is_empty() { "every layout".to_owned() } else { at.join(", ") };
        (expected, found, at)
    }
}
