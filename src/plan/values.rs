//! The config values of one family on one checkpoint: looked up, checked, each with where it came from.
//!
//! Every value is resolved on its own: one that is missing or not understood is a [`Problem`] of that value, and hurts
//! only what reads it.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde_json::Value;

use crate::checkpoint::{ConfigFile, FileState, Files, Source};
use crate::descriptor::config::{Entry, Lookup, Section, ValueType};
use crate::descriptor::expression::{Bound, Expression, ExpressionError};
use crate::descriptor::slot::{Choice, Count, Flag, Member, Number};
use crate::descriptor::{Descriptor, nearest};
use crate::error::{Error, ErrorKind, Result as CrateResult};
use crate::problem::{Place, Problem};

/// How many sources a path may name, and the deepest chain of values that read each other.
const DEPTH_LIMIT: usize = 32;

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

fn from_expression(error: ExpressionError) -> Problem {
    let mut problem = Problem::error("expression", error.message);
    problem.hint = error.hint;
    problem
}

fn wrong_type(name: &str, expected: &str, found: &Value) -> Problem {
    Problem::error("config-type", format!("`{name}` has a value of the wrong type"))
        .expected_found(expected, found.to_string())
}

/// An integer as config files write it: `336`, or `336.0`.
fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let float = value.as_f64()?;
        // every integral float below 2^53 is exact
        (float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0).then_some(float as i64)
    })
}

fn bound(name: &str, value: &Value) -> Result<Bound, Problem> {
    match value {
        Value::Bool(flag) => Ok(Bound::Boolean(*flag)),
        Value::Array(items) => {
            let items: Option<Vec<i64>> = items.iter().map(integer).collect();
            items.map(Bound::List).ok_or_else(|| wrong_type(name, "integers", value))
        }
        other => {
            integer(other).map(Bound::Integer).ok_or_else(|| wrong_type(name, "an integer", other))
        }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

struct Resolver<'a> {
    descriptor: &'a Descriptor,
    files: &'a Files,
    overrides: &'a Overrides,
    values: IndexMap<String, Result<Resolved, Box<Problem>>>,
    pending: Vec<String>,
}

/// A path in a source.
struct Candidate<'a> {
    file: &'a ConfigFile,
    source: Source,
    path: String,
}

impl<'a> Resolver<'a> {
    fn get(&mut self, name: &str) -> Result<Resolved, Box<Problem>> {
        if let Some(done) = self.values.get(name) {
            return done.clone();
        }
        let result = if self.pending.iter().any(|pending| pending == name)
            || self.pending.len() > DEPTH_LIMIT
        {
            Err(Problem::error("config-cycle", format!("`{name}` is computed from itself")))
        } else {
            self.pending.push(name.to_owned());
            let result = self.resolve(name);
            self.pending.pop();
            result
        };
        let result = result.map_err(|mut problem| {
            // a value computed from one that failed passes that one's problem on
            if problem.place == Place::default() {
                problem.place = self.descriptor.place(&format!("config.{name}"));
            }
            Box::new(problem)
        });
        self.values.insert(name.to_owned(), result.clone());
        result
    }

    fn resolve(&mut self, name: &str) -> Result<Resolved, Problem> {
        let (section_name, entry_name) = name.split_once('.').unwrap_or((name, ""));
        let descriptor = self.descriptor;
        let Some(section) = descriptor.family.config.get(section_name) else {
            return Err(Problem::error(
                "name-unknown",
                format!("there is no config section `{section_name}`"),
            ));
        };
        let entry = section.values.get(entry_name);
        if let Some(value) = self.overrides.get(name) {
            let value = match entry {
                Some(Entry::Lookup(lookup)) => {
                    mapped(lookup, value.clone(), "--set").or_else(|problem| {
                        // the already mapped form is accepted as well
                        let known = lookup
                            .map
                            .iter()
                            .flat_map(|map| map.values())
                            .any(|known| known == value);
                        if known { Ok(value.clone()) } else { Err(problem) }
                    })?
                }
                _ => value.clone(),
            };
            return Ok(Resolved {
                value,
                source: "--set".to_owned(),
                defaulted: false,
                from: Vec::new(),
            });
        }
        match entry {
            Some(Entry::Lookup(lookup)) => self.lookup(section, entry_name, lookup),
            Some(Entry::Expression(text)) => self.compute(text, &format!("`{text}`"), false),
            Some(Entry::Literal(value)) => Ok(Resolved {
                value: value.clone(),
                source: "the family file".to_owned(),
                defaulted: false,
                from: Vec::new(),
            }),
            None => match section.absent.get(entry_name) {
                Some(_) => self.lookup(section, entry_name, &Lookup::default()),
                None => Err(Problem::error(
                    "name-unknown",
                    format!("there is no config value `{name}`"),
                )),
            },
        }
    }

    fn compute(&mut self, text: &str, source: &str, defaulted: bool) -> Result<Resolved, Problem> {
        let expression = Expression::parse(text).map_err(from_expression)?;
        if let [only] = expression.names()
            && only == text.trim()
        {
            // a bare name stands for its value, also where that is no integer
            let value = self.get(only).map_err(|problem| *problem)?.value;
            return Ok(Resolved { value, source: source.to_owned(), defaulted, from: vec![only.clone()] });
        }
        let mut bindings = BTreeMap::new();
        for name in expression.names() {
            let resolved = self.get(name).map_err(|problem| *problem)?;
            bindings.insert(name.clone(), bound(name, &resolved.value)?);
        }
        let value = match expression.integer(&bindings) {
            Ok(number) => Value::from(number),
            Err(error) => {
                expression.truth(&bindings).map(Value::from).map_err(|_| from_expression(error))?
            }
        };
        Ok(Resolved {
            value,
            source: source.to_owned(),
            defaulted,
            from: expression.names().to_vec(),
        })
    }

    fn candidates(&self, section: &Section, path: &str) -> Vec<Candidate<'a>> {
        let files = self.files;
        let rooted = |text: &str| {
            let (source, path) = match text.split_once(':') {
                Some((prefix, path)) => (
                    Source::NAMES
                        .iter()
                        .find(|(name, _)| *name == prefix)
                        .map(|(_, source)| *source),
                    path,
                ),
                None => (Some(Source::Config), text),
            };
            source.map(|source| Candidate {
                file: files.source(source),
                source,
                path: path.to_owned(),
            })
        };
        if path.contains(':') {
            return rooted(path).into_iter().collect();
        }
        let default = [String::new()];
        let roots = section.within.as_ref().map_or(&default[..], |within| within.as_slice());
        roots
            .iter()
            .filter_map(|root| {
                let mut candidate = rooted(root)?;
                candidate.path = match (candidate.path.is_empty(), path.is_empty()) {
                    (true, _) => path.to_owned(),
                    (_, true) => candidate.path,
                    _ => format!("{}.{path}", candidate.path),
                };
                Some(candidate)
            })
            .collect()
    }

    fn roots_absent(&self, section: &Section) -> bool {
        let roots = self.candidates(section, "");
        roots.iter().all(|root| {
            matches!(root.file.state, FileState::Object(_))
                && !root.path.is_empty()
                && root.file.get(&root.path).is_none()
        })
    }

    fn lookup(
        &mut self,
        section: &Section,
        entry: &str,
        lookup: &Lookup,
    ) -> Result<Resolved, Problem> {
        let own = [entry.to_owned()];
        let paths: &[String] = match (&lookup.same, &lookup.at) {
            (Some(same), _) => same,
            (None, Some(at)) => at.as_slice(),
            (None, None) => &own,
        };
        let candidates: Vec<_> =
            paths.iter().flat_map(|path| self.candidates(section, path)).collect();
        for candidate in &candidates {
            if let FileState::Broken(reason) = &candidate.file.state {
                let name = &candidate.file.name;
                return Err(Problem::error(
                    "config-file",
                    format!("`{name}` cannot be used: {reason}"),
                ));
            }
        }
        let stated: Vec<_> = candidates
            .iter()
            .filter_map(|candidate| {
                let value = candidate.file.get(&candidate.path)?;
                fits(lookup.kind, value).then_some((candidate, value))
            })
            .collect();
        let found = |candidate: &Candidate<'_>, value: Value| Resolved {
            value,
            source: candidate.file.label(&candidate.path),
            defaulted: false,
            from: Vec::new(),
        };
        if lookup.same.is_some() {
            if let Some(agreed) = agreement(lookup, &stated)? {
                let labels: Vec<_> = stated
                    .iter()
                    .map(|(candidate, _)| candidate.file.label(&candidate.path))
                    .collect();
                return Ok(Resolved {
                    value: agreed,
                    source: labels.join(", "),
                    defaulted: false,
                    from: Vec::new(),
                });
            }
        } else if lookup.any {
            let on =
                stated.iter().find(|(_, value)| value.as_bool() == Some(true)).or(stated.first());
            if let Some((candidate, value)) = on {
                return Ok(found(candidate, (*value).clone()));
            }
        } else if let Some((candidate, value)) = stated.first() {
            let label = candidate.file.label(&candidate.path);
            return Ok(found(candidate, mapped(lookup, (*value).clone(), &label)?));
        }
        if let Some(meaning) = &lookup.null
            && let Some(candidate) = candidates.iter().find(|candidate| candidate.file.is_null(&candidate.path))
        {
            let source = format!("{}: null", candidate.file.label(&candidate.path));
            return match meaning.as_str() {
                Some(text) => self.compute(text, &source, false),
                None => Ok(Resolved { value: meaning.clone(), source, defaulted: false, from: Vec::new() }),
            };
        }
        self.fall_back(section, entry, lookup, &candidates)
    }

    fn fall_back(
        &mut self,
        section: &Section,
        entry: &str,
        lookup: &Lookup,
        candidates: &[Candidate<'_>],
    ) -> Result<Resolved, Problem> {
        let needed = |candidate: &&Candidate<'_>| {
            !matches!(candidate.source, Source::Generation | Source::Tokenizer)
        };
        let present =
            candidates.iter().any(|candidate| matches!(candidate.file.state, FileState::Object(_)));
        if !present && let Some(candidate) = candidates.iter().find(needed) {
            let name = &candidate.file.name;
            return Err(Problem::error("config-file", format!("`{name}` is missing")));
        }
        if let Some(value) = section.absent.get(entry)
            && self.roots_absent(section)
        {
            let source = "default of this family where the whole section is absent".to_owned();
            return Ok(Resolved {
                value: value.clone(),
                source,
                defaulted: true,
                from: Vec::new(),
            });
        }
        let blocked = lookup.unless.as_ref().and_then(|path| {
            self.candidates(section, path)
                .into_iter()
                .find(|candidate| candidate.file.get(&candidate.path).is_some())
        });
        if let Some(value) = &lookup.or
            && blocked.is_none()
        {
            let value = mapped(lookup, value.clone(), "default of this family")?;
            let source = "default of this family".to_owned();
            return Ok(Resolved { value, source, defaulted: true, from: Vec::new() });
        }
        if let Some(text) = &lookup.otherwise {
            return self.compute(text, &format!("default of this family: `{text}`"), true);
        }
        let places: Vec<_> =
            candidates.iter().map(|candidate| candidate.file.label(&candidate.path)).collect();
        let mut problem = Problem::error("config-missing", format!("nothing states `{entry}`"))
            .expected_found(format!("one of `{}`", places.join("`, `")), "none of them");
        if let Some(blocked) = blocked {
            let label = blocked.file.label(&blocked.path);
            problem =
                problem.with_hint(format!("the default does not apply where `{label}` is given"));
        }
        Err(problem)
    }
}

fn fits(kind: Option<ValueType>, value: &Value) -> bool {
    match kind {
        None => true,
        Some(ValueType::Integer) => integer(value).is_some(),
        Some(ValueType::Number) => value.is_number(),
        Some(ValueType::String) => value.is_string(),
        Some(ValueType::Boolean) => value.is_boolean(),
        Some(ValueType::List) => value.is_array(),
        Some(ValueType::Table) => value.is_object(),
    }
}

/// The one value that all stating files agree on; `None` where none states it.
fn agreement(
    lookup: &Lookup,
    stated: &[(&Candidate<'_>, &Value)],
) -> Result<Option<Value>, Problem> {
    let mut agreed: Option<(Value, String)> = None;
    for (candidate, value) in stated {
        let label = candidate.file.label(&candidate.path);
        let value = mapped(lookup, (*value).clone(), &label)?;
        if lookup.map.is_none() {
            match integer(&value) {
                Some(number) if number >= 1 => {}
                Some(number) => {
                    return Err(Problem::error("value-bound", format!("`{label}` is {number}"))
                        .expected_found("at least 1", number.to_string()));
                }
                None => {
                    return Err(Problem::error(
                        "config-type",
                        format!("`{label}` is not an integer"),
                    )
                    .expected_found("an integer", value.to_string()));
                }
            }
        }
        match &agreed {
            Some((first, first_label))
                if integer(first) != integer(&value) || first.as_str() != value.as_str() =>
            {
                return Err(Problem::error(
                    "config-disagree",
                    format!(
                        "`{first_label}` is {}, but `{label}` is {}",
                        plain(first),
                        plain(&value)
                    ),
                )
                .expected_found(
                    "the same value in both",
                    format!("{} and {}", plain(first), plain(&value)),
                ));
            }
            Some(_) => {}
            None => agreed = Some((value, label)),
        }
    }
    Ok(agreed.map(|(value, _)| value))
}

fn mapped(lookup: &Lookup, value: Value, label: &str) -> Result<Value, Problem> {
    let Some(map) = &lookup.map else { return Ok(value) };
    let word = integer(&value).map_or_else(|| plain(&value), |number| number.to_string());
    map.get(&word).cloned().ok_or_else(|| {
        let known: Vec<_> = map.keys().map(String::as_str).collect();
        let mut problem = Problem::error(
            "config-variant",
            format!("`{label}` is `{word}`, which is not understood"),
        )
        .expected_found(format!("one of `{}`", known.join("`, `")), format!("`{word}`"));
        if let Some(near) = nearest(&word, known) {
            problem = problem.with_hint(format!("did you mean `{near}`?"));
        }
        problem
    })
}
