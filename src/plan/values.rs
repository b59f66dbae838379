//! The config values of one family on one checkpoint: looked up, checked, each with where it came from.
//!
//! Every value is resolved on its own: one that is missing or not understood is a [`Problem`] of that value, and hurts
//! only what reads it.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde_json::Value;

use super::lookup::Resolver;
use crate::checkpoint::Files;
use crate::descriptor::config::Section;
use crate::descriptor::expression::{Bound, Expression, ExpressionError};
use crate::descriptor::slot::{Choice, Count, Flag, Member, Number};
use crate::descriptor::{Descriptor, nearest};
use crate::error::{Error, ErrorKind, Result as CrateResult};
use crate::problem::Problem;

/// A value and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The value, after `map`.
    pub value: Value,
    /// `preprocessor_config.json: max_pixels`, `default of this family`, …
    pub source: String,
    /// Whether it is a default, not stated by any file.
    pub defaulted: bool,
    /// The other values that it was computed from.
    pub from: Vec<String>,
}

/// All values of a family on a checkpoint.
#[derive(Debug, Clone, Default)]
pub struct Values {
    resolved: IndexMap<String, Result<Resolved, Box<Problem>>>,
}

/// An override from the command line: `image.most` and what it is set to.
pub type Overrides = IndexMap<String, Value>;

/// Parses `NAME=VALUE` as `--set` takes it: `image.` or `audio.` values; VALUE is JSON, or a plain word.
pub fn parse_override(text: &str) -> CrateResult<(String, Value)> {
    let wrong = |message: String| Error::new(ErrorKind::Usage, message);
    let (name, value) =
        text.split_once('=').ok_or_else(|| wrong(format!("`--set {text}` is not NAME=VALUE")))?;
    let name = name.trim();
    if !(name.starts_with("image.") || name.starts_with("audio.")) {
        return Err(wrong(format!(
            "`--set` takes names that begin with `image.` or `audio.`, not `{name}`"
        )));
    }
    let value = value.trim();
    Ok((
        name.to_owned(),
        serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned())),
    ))
}

impl Values {
    /// Resolves every value of `descriptor`.
    pub fn resolve(
        descriptor: &Descriptor,
        files: &Files,
        overrides: &Overrides,
    ) -> CrateResult<Self> {
        let sections = &descriptor.family.config;
        for name in overrides.keys() {
            let known: Vec<_> = sections
                .iter()
                .flat_map(|(section, values)| {
                    values.values.keys().map(move |entry| format!("{section}.{entry}"))
                })
                .filter(|known| known.starts_with("image.") || known.starts_with("audio."))
                .collect();
            if !known.contains(name) {
                let mut error = Error::new(
                    ErrorKind::Usage,
                    format!("`--set`: this family has no value `{name}`"),
                );
                error = match nearest(name, known.iter().map(String::as_str)) {
                    Some(near) => error.with_hint(format!("did you mean `{near}`?")),
                    None => error.with_hint(format!("it has `{}`", known.join("`, `"))),
                };
                return Err(error);
            }
        }
        let mut resolver =
            Resolver { descriptor, files, overrides, values: IndexMap::new(), pending: Vec::new() };
        for (section, values) in sections {
            for entry in values.values.keys() {
                // the outcome is kept for whoever asks
                let _ = resolver.get(&format!("{section}.{entry}"));
            }
            for entry in values.absent.keys().filter(|entry| !values.values.contains_key(*entry)) {
                // the outcome is kept for whoever asks
                let _ = resolver.get(&format!("{section}.{entry}"));
            }
        }
        let top = Section::default();
        for (name, token) in &descriptor.family.tokens {
            if let Some(lookup) = &token.id {
                let key = format!("tokens.{name}");
                let resolved = resolver
                    .lookup(&top, "id", lookup)
                    .map_err(|problem| Box::new(problem.at_key(format!("tokens.{name}.id"))));
                resolver.values.insert(key, resolved);
            }
        }
        Ok(Self { resolved: resolver.values })
    }

    /// Every value by name, in the order of the family file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Result<Resolved, Box<Problem>>)> {
        self.resolved.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// One value.
    pub fn get(&self, name: &str) -> Result<&Resolved, Problem> {
        match self.resolved.get(name) {
            Some(Ok(resolved)) => Ok(resolved),
            Some(Err(problem)) => Err((**problem).clone()),
            None => {
                let mut problem =
                    Problem::error("name-unknown", format!("there is no config value `{name}`"));
                if let Some(near) = nearest(name, self.resolved.keys().map(String::as_str)) {
                    problem = problem.with_hint(format!("did you mean `{near}`?"));
                }
                Err(problem)
            }
        }
    }

    /// The values that `names` are computed from, down to lookups, each once.
    pub fn leaves(&self, names: impl IntoIterator<Item = String>) -> Vec<String> {
        let mut leaves = Vec::new();
        let mut queue: Vec<_> = names.into_iter().collect();
        queue.reverse();
        while let Some(name) = queue.pop() {
            let Some(Ok(resolved)) = self.resolved.get(&name) else { continue };
            if resolved.from.is_empty() {
                if !leaves.contains(&name) {
                    leaves.push(name);
                }
            } else {
                queue.extend(resolved.from.iter().rev().cloned());
            }
        }
        leaves
    }

    /// Bindings for the names that an expression reads; names in `local` (the layout) come first.
    pub fn bindings(
        &self,
        names: &[String],
        local: &BTreeMap<String, Bound>,
    ) -> Result<BTreeMap<String, Bound>, Problem> {
        let mut bindings = local.clone();
        for name in names {
            if !bindings.contains_key(name) {
                bindings.insert(name.clone(), bound(name, &self.get(name)?.value)?);
            }
        }
        Ok(bindings)
    }

    /// An integer slot.
    pub fn count(&self, count: &Count, local: &BTreeMap<String, Bound>) -> Result<i64, Problem> {
        match count {
            Count::Literal(number) => Ok(*number),
            Count::Expression(text) => {
                let expression = Expression::parse(text).map_err(from_expression)?;
                let bindings = self.bindings(expression.names(), local)?;
                expression.integer(&bindings).map_err(from_expression)
            }
        }
    }

    /// The value names that a slot reads.
    pub fn names_of(count: &Count) -> Vec<String> {
        match count {
            Count::Literal(_) => Vec::new(),
            Count::Expression(text) => Expression::parse(text)
                .map(|expression| expression.names().to_vec())
                .unwrap_or_default(),
        }
    }

    /// An integer slot that must be at least `least`.
    pub fn size(&self, what: &str, count: &Count, least: i64) -> Result<usize, Problem> {
        let number = self.count(count, &BTreeMap::new())?;
        if number < least {
            let text = match count {
                Count::Literal(_) => String::new(),
                Count::Expression(text) => format!(" (`{text}`)"),
            };
            return Err(Problem::error("value-bound", format!("{what}{text} is {number}"))
                .expected_found(format!("at least {least}"), number.to_string()));
        }
        usize::try_from(number)
            .map_err(|_| Problem::error("value-bound", format!("{what} is {number}, too large")))
    }

    /// A truth slot.
    pub fn flag(&self, flag: &Flag) -> Result<bool, Problem> {
        match flag {
            Flag::Literal(flag) => Ok(*flag),
            Flag::Condition(text) => self.condition(text, &BTreeMap::new()),
        }
    }

    /// A condition over config values and `local` names; an integer counts as true when it is not 0.
    pub fn condition(&self, text: &str, local: &BTreeMap<String, Bound>) -> Result<bool, Problem> {
        let expression = Expression::parse(text).map_err(from_expression)?;
        let bindings = self.bindings(expression.names(), local)?;
        if let [only] = expression.names()
            && only == text.trim()
            && let Some(Bound::Integer(number)) = bindings.get(only)
        {
            return Ok(*number != 0);
        }
        expression.truth(&bindings).map_err(from_expression)
    }

    /// A real-number slot.
    pub fn number(&self, number: &Number) -> Result<f64, Problem> {
        match number {
            Number::Literal(number) => Ok(*number),
            Number::Value(name) => {
                let resolved = self.get(name)?;
                resolved.value.as_f64().ok_or_else(|| {
                    Problem::error("config-type", format!("`{name}` is not a number"))
                        .expected_found("a number", resolved.value.to_string())
                })
            }
            Number::Root(root) => {
                let (count, inverse) = match (&root.sqrt, &root.rsqrt) {
                    (Some(count), None) => (count, false),
                    (None, Some(count)) => (count, true),
                    _ => {
                        return Err(Problem::error(
                            "value-type",
                            "a root is `{ sqrt = … }` or `{ rsqrt = … }`",
                        ));
                    }
                };
                let inner = self.size("the number under a root", count, 1)? as f64;
                Ok(if inverse { 1.0 / inner.sqrt() } else { inner.sqrt() })
            }
        }
    }

    /// An enum slot.
    pub fn choice<M: Member>(&self, choice: &Choice<M>) -> Result<M, Problem> {
        match choice {
            Choice::Member(member) => Ok(*member),
            Choice::Value(name) => {
                let resolved = self.get(name)?;
                let word = resolved.value.as_str().unwrap_or_default();
                M::named(word).ok_or_else(|| {
                    let found = plain(&resolved.value);
                    let mut problem = Problem::error(
                        "config-variant",
                        format!("`{found}` ({}) is not a known {}", resolved.source, M::KIND),
                    )
                    .expected_found(
                        format!("one of `{}`", M::names().join("`, `")),
                        format!("`{found}`"),
                    );
                    if let Some(near) = nearest(word, M::names()) {
                        problem = problem.with_hint(format!("did you mean `{near}`?"));
                    }
                    problem
                })
            }
        }
    }

    /// A list of integers, or one integer as a list of one.
    pub fn integers(&self, count: &Count) -> Result<Vec<i64>, Problem> {
        if let Count::Expression(name) = count
            && let Ok(resolved) = self.get(name)
        {
            return match bound(name, &resolved.value)? {
                Bound::List(items) => Ok(items),
                Bound::Integer(number) => Ok(vec![number]),
                Bound::Boolean(_) => {
                    Err(wrong_type(name, "an integer or a list of integers", &resolved.value))
                }
            };
        }
        self.count(count, &BTreeMap::new()).map(|number| vec![number])
    }

    /// Two counts; one stands for two equal ones.
    pub fn pair(&self, name: &str) -> Result<[u32; 2], Problem> {
        let resolved = self.get(name)?;
        match &resolved.value {
            Value::Array(_) => two(&resolved.value),
            single => {
                integer(single).and_then(|number| u32::try_from(number).ok()).map(|one| [one; 2])
            }
        }
        .ok_or_else(|| wrong_type(name, "two counts", &resolved.value))
    }

    /// A list of pairs of counts.
    pub fn pairs(&self, name: &str) -> Result<Vec<(u32, u32)>, Problem> {
        let resolved = self.get(name)?;
        let pairs = resolved.value.as_array().and_then(|items| {
            items.iter().map(|item| two(item).map(|[first, second]| (first, second))).collect()
        });
        pairs.ok_or_else(|| wrong_type(name, "a list of pairs of counts", &resolved.value))
    }

    /// A list of numbers; one number stands for `length` equal ones.
    pub fn numbers(&self, name: &str, length: usize) -> Result<Vec<f64>, Problem> {
        let resolved = self.get(name)?;
        let items: Option<Vec<f64>> = match &resolved.value {
            Value::Array(items) => items.iter().map(Value::as_f64).collect(),
            single => single.as_f64().map(|number| vec![number; length]),
        };
        items
            .filter(|items| items.len() == length)
            .ok_or_else(|| wrong_type(name, &format!("{length} numbers"), &resolved.value))
    }
}

pub(super) fn from_expression(error: ExpressionError) -> Problem {
    let mut problem = Problem::error("expression", error.message);
    problem.hint = error.hint;
    problem
}

fn wrong_type(name: &str, expected: &str, found: &Value) -> Problem {
    Problem::error("config-type", format!("`{name}` has a value of the wrong type"))
        .expected_found(expected, found.to_string())
}

/// An array of two counts.
fn two(value: &Value) -> Option<[u32; 2]> {
    let items: Option<Vec<u32>> = value
        .as_array()?
        .iter()
        .map(|item| integer(item).and_then(|number| u32::try_from(number).ok()))
        .collect();
    items?.try_into().ok()
}

/// An integer as config files write it: `336`, or `336.0`.
pub(super) fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let float = value.as_f64()?;
        // every integral float below 2^53 is exact
        (float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0).then_some(float as i64)
    })
}

pub(super) fn bound(name: &str, value: &Value) -> Result<Bound, Problem> {
    match value {
        Value::Bool(flag) => Ok(Bound::Boolean(*flag)),
        Value::Array(items) => {
            // of a list of lists only the lengths are of interest here
            let items: Option<Vec<i64>> = items
                .iter()
                .map(|item| match item {
                    Value::Array(inner) => i64::try_from(inner.len()).ok(),
                    other => integer(other),
                })
                .collect();
            items.map(Bound::List).ok_or_else(|| wrong_type(name, "integers", value))
        }
        other => {
            integer(other).map(Bound::Integer).ok_or_else(|| wrong_type(name, "an integer", other))
        }
    }
}

pub(super) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
