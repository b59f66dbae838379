//! Looking values up in the files of a checkpoint: paths in order, agreement between files, maps, defaults.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde_json::Value;

use super::values::{Overrides, Resolved, bound, from_expression, integer, plain};
use crate::checkpoint::{ConfigFile, FileState, Files, Source};
use crate::descriptor::config::{Entry, Lookup, Section, ValueType};
use crate::descriptor::expression::Expression;
use crate::descriptor::{Descriptor, nearest};
use crate::problem::{Place, Problem};

/// The deepest chain of values that read each other.
const DEPTH_LIMIT: usize = 32;

/// Resolves values one by one, each at most once.
pub(super) struct Resolver<'a> {
    pub(super) descriptor: &'a Descriptor,
    pub(super) files: &'a Files,
    pub(super) overrides: &'a Overrides,
    pub(super) values: IndexMap<String, Result<Resolved, Box<Problem>>>,
    pub(super) pending: Vec<String>,
}

/// A path in a source.
struct Candidate<'a> {
    file: &'a ConfigFile,
    source: Source,
    path: String,
}

impl<'a> Resolver<'a> {
    pub(super) fn get(&mut self, name: &str) -> Result<Resolved, Box<Problem>> {
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
            return Ok(Resolved {
                value,
                source: source.to_owned(),
                defaulted,
                from: vec![only.clone()],
            });
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

    /// A root that is there must be an object: an array or a string in its place is no absent section.
    fn roots_are_tables(&self, section: &Section) -> Result<(), Problem> {
        for root in self.candidates(section, "") {
            if let Some(found) = root.file.get(&root.path).filter(|found| !found.is_object()) {
                let label = root.file.label(&root.path);
                return Err(Problem::error("config-type", format!("`{label}` is not an object"))
                    .expected_found("an object", found.to_string()));
            }
        }
        Ok(())
    }

    pub(super) fn lookup(
        &mut self,
        section: &Section,
        entry: &str,
        lookup: &Lookup,
    ) -> Result<Resolved, Problem> {
        self.roots_are_tables(section)?;
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
            && let Some(candidate) =
                candidates.iter().find(|candidate| candidate.file.is_null(&candidate.path))
        {
            let source = format!("{}: null", candidate.file.label(&candidate.path));
            return match meaning.as_str() {
                Some(text) => self.compute(text, &source, false),
                None => Ok(Resolved {
                    value: meaning.clone(),
                    source,
                    defaulted: false,
                    from: Vec::new(),
                }),
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
    if let Value::Array(items) = value {
        // a list is mapped item by item
        return items.into_iter().map(|item| mapped(lookup, item, label)).collect();
    }
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
