//! `use`: which part completes a table, the same one always or one picked by a config value.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::library::{Library, did_you_mean};
use super::node::Node;
use super::validate;
use crate::problem::{Problem, Problems};

/// The tables at which a part may be mounted, and the part's own table that goes there.
pub(super) const MOUNTS: [(&str, &str); 3] =
    [("image.tower", "tower"), ("audio.tower", "tower"), ("decoder", "decoder")];

/// What `use` takes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(title = "a part's path, or { pick = …, parts = { … }, or = … }")]
pub(super) enum Use {
    /// The part's path below `parts/`.
    One(String),
    /// Parts, and the path in config.json that picks one.
    Picked(Picked),
}

/// Parts, and the path in config.json that picks one.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Picked {
    /// The path in config.json whose value picks.
    pick: String,
    /// The part that each value picks, by its path below `parts/`.
    parts: IndexMap<String, String>,
    /// The value that is assumed where the path is absent.
    or: Option<String>,
}

/// A choice of a part by a config value.
#[derive(Debug, Clone)]
pub struct Pick {
    /// The table that the part is mounted at.
    pub mount: &'static str,
    pub(super) part_table: &'static str,
    /// The path in config.json that decides; `None` where there is one part only.
    pub path: Option<String>,
    /// What each value picks, in order.
    pub parts: IndexMap<String, String>,
    /// What stands where the path is absent.
    pub otherwise: Option<String>,
}

impl Pick {
    /// Reads the `use` tables of a family, and makes sure that the parts are there.
    pub(super) fn all(root: &Node, library: &Library) -> (Vec<Self>, Problems) {
        let (mut picks, mut problems) = (Vec::new(), Problems::default());
        for (mount, part_table) in MOUNTS {
            let key = format!("{mount}.use");
            let Some(node) = root.get(&key) else { continue };
            let misfits = validate::definition(node, "Use", &key);
            let written =
                if misfits.is_empty() { serde_json::from_value(node.to_json()).ok() } else { None };
            problems.extend(misfits);
            let pick = match written {
                Some(Use::One(part)) => {
                    let parts = IndexMap::from([(String::new(), part.clone())]);
                    Self { mount, part_table, path: None, parts, otherwise: Some(part) }
                }
                Some(Use::Picked(picked)) => {
                    Self::picked(mount, part_table, picked, node, &mut problems)
                }
                None => continue,
            };
            for (value, part) in &pick.parts {
                let key =
                    if pick.path.is_some() { format!("{key}.parts.{value}") } else { key.clone() };
                if let Err(found) = read(library, part) {
                    problems
                        .extend(found.into_iter().map(|problem| placed(problem, root, &key, part)));
                }
            }
            picks.push(pick);
        }
        (picks, problems)
    }

    fn picked(
        mount: &'static str,
        part_table: &'static str,
        picked: Picked,
        node: &Node,
        problems: &mut Problems,
    ) -> Self {
        let Picked { pick, parts, or } = picked;
        let place = |key: &str| {
            let mut place = node.place(key);
            place.key = Some(format!("{mount}.use.{key}"));
            place
        };
        if parts.is_empty() {
            problems.push(
                Problem::error("key-missing", "`parts` names no part")
                    .at(place("parts"))
                    .expected_found("a table from values to parts", "an empty table"),
            );
        }
        let otherwise = or.and_then(|value| {
            let part = parts.get(&value).cloned();
            if part.is_none() {
                let known: Vec<_> = parts.keys().map(String::as_str).collect();
                let problem = Problem::error("name-unknown", format!("`parts` has no `{value}`"))
                    .at(place("or"))
                    .expected_found(validate::one_of(&known), format!("`{value}`"));
                problems.push(did_you_mean(problem, &value, &known));
            }
            part
        });
        Self { mount, part_table, path: Some(pick), parts, otherwise }
    }
}

/// Reads a part by its path below `parts/`, with what it extends.
pub(super) fn read(library: &Library, part: &str) -> Result<Node, Problems> {
    let path = format!("parts/{part}");
    let mut node = library.read(&path)?;
    library.extend(&mut node, &path)?;
    for (mount, table) in MOUNTS {
        let nested = [format!("{mount}.use"), format!("{table}.use")];
        if let Some(found) =
            nested.iter().find_map(|key| node.get(key).map(|found| found.origin.place(key)))
        {
            return Err(Problem::error("key-unknown", "a part cannot `use` another part")
                .at(found)
                .with_hint("a part can refine another with `extends`")
                .into());
        }
    }
    Ok(node)
}

/// A problem that has no place yet, that `part` is not there, put at a key of `root`; `use` leaves out `parts/`.
fn placed(problem: Problem, root: &Node, key: &str, part: &str) -> Problem {
    if problem.place.file.is_some() {
        return problem;
    }
    let below = |text: String| text.replace("`parts/", "`");
    let mut problem =
        Problem { message: format!("there is no part `{part}`"), ..problem.at(root.place(key)) };
    problem.found = problem.found.map(below);
    problem.hint = problem.hint.map(below);
    problem
}
