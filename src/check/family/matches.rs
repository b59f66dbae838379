//! Families that one config.json can belong to alike.

use indexmap::IndexMap;

use crate::descriptor::slot::OneOrMany;
use crate::descriptor::{Library, RawDescriptor};
use crate::error::Result;
use crate::problem::{Level, Problem, Problems};

/// How many rivals are named.
const LISTED: usize = 3;

/// Paths of config.json, and the values of which one must stand there.
type Conditions = IndexMap<String, Vec<String>>;

/// One alternative of a family's `match`.
struct Alternative {
    family: String,
    conditions: Conditions,
}

/// Every other built-in family whose `match` can hold together with that of `raw`, with as many paths.
pub(super) fn check(raw: &RawDescriptor) -> Result<Problems> {
    let built_in = Library::families().contains(&raw.name());
    let written = raw.place("family.match").file.unwrap_or_default();
    if !built_in && written.starts_with("families/") {
        // it refines that family and stands in for it where it is named
        return Ok(Problems::default());
    }
    // only built-in families are found from a config.json; a file that is named by its path is not among them yet
    let level = if built_in { Level::Error } else { Level::Warning };
    let own = alternatives(raw)?;
    let mut others = Vec::new();
    for name in Library::families().into_iter().filter(|name| *name != raw.name()) {
        others.extend(alternatives(&RawDescriptor::load(name)?)?);
    }
    let mut problems = Problems::default();
    for (index, mine) in own.iter().enumerate() {
        let mut rivals: IndexMap<&str, Conditions> = IndexMap::new();
        for other in &others {
            if mine.conditions.is_empty() || mine.conditions.len() != other.conditions.len() {
                continue;
            }
            let Some(both) = together(&mine.conditions, &other.conditions) else { continue };
            // where an alternative with more paths holds as well, it wins
            let settled = own.iter().chain(&others).any(|third| {
                third.conditions.len() > mine.conditions.len() && implied(&third.conditions, &both)
            });
            if !settled {
                rivals.entry(&other.family).or_insert(both);
            }
        }
        if rivals.is_empty() {
            continue;
        }
        let mut names: Vec<_> =
            rivals.keys().take(LISTED).map(|name| format!("`{name}`")).collect();
        let mut shared: Vec<_> = rivals.values().take(LISTED).map(listed).collect();
        if rivals.len() > LISTED {
            names.push(format!("{} more", rivals.len() - LISTED));
            shared.push("…".to_owned());
        }
        let message =
            format!("one config.json matches `{}` as well as {}", raw.name(), names.join(" and "));
        problems.push(
            Problem::error("match-overlap", message)
                .level(level)
                .at(raw.place(&format!("family.match.{index}")))
                .expected_found("one family that matches on most paths", shared.join("; "))
                .with_hint("name one more path of config.json, one in which the families differ"),
        );
    }
    Ok(problems)
}

fn alternatives(raw: &RawDescriptor) -> Result<Vec<Alternative>> {
    let written = raw.header()?.matches;
    let conditions = |alternative: IndexMap<String, OneOrMany>| {
        let entries = alternative.into_iter();
        entries.map(|(path, values)| (path, values.as_slice().to_vec())).collect()
    };
    Ok(written
        .into_iter()
        .map(|alternative| Alternative {
            family: raw.name().to_owned(),
            conditions: conditions(alternative),
        })
        .collect())
}

/// What a config.json states for which both hold; `None` if there is none.
fn together(left: &Conditions, right: &Conditions) -> Option<Conditions> {
    let mut both = left.clone();
    for (path, values) in right {
        // a path below another would need a table where the other needs a text
        let below = |outer: &str, inner: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'))
        };
        if left.keys().any(|known| below(known, path) || below(path, known)) {
            return None;
        }
        let common = both.entry(path.clone()).or_insert_with(|| values.clone());
        common.retain(|value| values.contains(value));
        if common.is_empty() {
            return None;
        }
    }
    Some(both)
}

/// Whether `conditions` hold wherever `known` do.
fn implied(conditions: &Conditions, known: &Conditions) -> bool {
    conditions.iter().all(|(path, allowed)| {
        known.get(path).is_some_and(|values| values.iter().all(|value| allowed.contains(value)))
    })
}

fn listed(conditions: &Conditions) -> String {
    let one =
        |(path, values): (&String, &Vec<String>)| format!("`{path}` = `{}`", values.join("` or `"));
    conditions.iter().map(one).collect::<Vec<_>>().join(" with ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(text: &str) -> Conditions {
        let pairs = text.split(", ").map(|pair| pair.split_once('=').unwrap());
        pairs
            .map(|(path, values)| (path.to_owned(), values.split('|').map(str::to_owned).collect()))
            .collect()
    }

    #[test]
    fn overlaps() {
        let both = |left, right| together(&conditions(left), &conditions(right));
        assert_eq!(both("a=1|2", "a=2|3"), Some(conditions("a=2")));
        assert_eq!(both("a=1", "a=2"), None);
        assert_eq!(both("a=1, b.c=1", "a=1, b.d=2"), Some(conditions("a=1, b.c=1, b.d=2")));
        assert_eq!(both("a=1, b=1", "a=1, b.d=2"), None);
        assert!(implied(&conditions("a=1|2, b=1"), &conditions("a=1, b=1, c=3")));
        assert!(!implied(&conditions("a=1"), &conditions("a=1|2")));
        assert!(!implied(&conditions("d=1"), &conditions("a=1")));
    }
}
