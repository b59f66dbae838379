//! What strings mean: expressions and strips that parse, and names of things that are there.
//!
//! The schema says of each string slot what it holds (`x-reads`); [`References::check`] judges one slot. Everything is
//! looked up in the merged tree, so that one misspelt table does not hide what is wrong with another.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::audio::CLIP;
use super::config::SOURCES;
use super::expression::{Expression, ExpressionError, Kind};
use super::family::COMPONENTS;
use super::library::{did_you_mean, nearest};
use super::lookup;
use super::node::{Node, NodeValue};
use super::read::Read;
use super::resize::{any_layout, layout_names};
use super::strip::Strip;
use super::validate::{join, one_of, unknown_member};
use crate::problem::{Problem, Problems};

/// Everything that a slot may hold, as the schema writes it.
#[cfg(test)]
pub(super) const READS: [&str; 19] = [
    "block",
    "component",
    "condition",
    "count",
    "expression",
    "floor",
    "frame",
    "layers",
    "lookup",
    "path",
    "pattern",
    "prompt",
    "requirement",
    "root",
    "rope",
    "stack",
    "strip",
    "token",
    "value",
];

/// The names that a merged family defines.
pub(super) struct References<'a> {
    pub(super) root: &'a Node,
    /// What has been referred to so far.
    pub(super) reads: RefCell<BTreeSet<Read>>,
}

/// Which names an expression may read besides config values.
#[derive(Clone, Copy)]
struct Scope {
    layout: bool,
    literals: bool,
    /// The index `i` of a layer.
    layer: bool,
}

/// One slot under judgement.
pub(super) struct Slot<'a> {
    pub(super) node: &'a Node,
    pub(super) path: &'a str,
}

impl Slot<'_> {
    fn problem(&self, code: &'static str, message: impl Into<String>) -> Problem {
        Problem::error(code, message).at(self.node.origin.place(self.path))
    }

    fn malformed(&self, code: &'static str, error: ExpressionError) -> Problem {
        let mut problem = self.problem(code, error.message);
        problem.hint = error.hint;
        problem
    }
}

impl<'a> References<'a> {
    pub(super) fn new(root: &'a Node) -> Self {
        Self { root, reads: RefCell::default() }
    }

    /// Judges the slot at `path`, whose shape is right already.
    pub(super) fn check(
        &self,
        reads: &str,
        node: &Node,
        path: &str,
        layout: bool,
        problems: &mut Problems,
    ) {
        let slot = Slot { node, path };
        if let (NodeValue::Array(items), "path" | "pattern") = (&node.value, reads) {
            for (index, item) in items.iter().enumerate() {
                self.check(reads, item, &join(path, &index.to_string()), layout, problems);
            }
            return;
        }
        if reads == "lookup" {
            problems.extend(lookup::check(&slot));
            return;
        }
        if reads == "root" {
            if node.as_table().is_some_and(|table| table.len() != 1) {
                let problem = slot.problem("value-type", "a root has one key");
                problems.push(problem.expected_found("`sqrt` or `rsqrt`", node.describe()));
            }
            return;
        }
        let Some(text) = node.as_str() else { return };
        let scope = |layout, literals| Scope { layout, literals, layer: false };
        match reads {
            "expression" => {
                problems.extend(self.expression(&slot, text, scope(layout, false), None));
            }
            "count" => problems.extend(self.expression(
                &slot,
                text,
                scope(layout, false),
                Some(Kind::Integer),
            )),
            "condition" => problems.extend(self.expression(
                &slot,
                text,
                scope(layout, false),
                Some(Kind::Truth),
            )),
            "requirement" => {
                problems.extend(self.expression(
                    &slot,
                    text,
                    scope(true, false),
                    Some(Kind::Truth),
                ));
            }
            "floor" => problems.extend(self.expression(
                &slot,
                text,
                scope(true, true),
                Some(Kind::Integer),
            )),
            "layers" => problems.extend(self.expression(
                &slot,
                text,
                Scope { layout: false, literals: false, layer: true },
                Some(Kind::Truth),
            )),
            "strip" => problems.extend(self.strip(&slot, text)),
            "frame" => problems.extend(self.frame(&slot, text)),
            "value" => problems.extend(self.value(&slot, text)),
            "token" => problems.extend(self.name(&slot, "token", "tokens", text)),
            "stack" => problems.extend(self.name(&slot, "stack", "stacks", text)),
            "rope" if text != "none" => problems.extend(self.name(&slot, "rope", "rope", text)),
            "component" if !COMPONENTS.contains(&text) => {
                problems.extend(prefix(&slot, &format!("{text}:"), "component", &COMPONENTS));
            }
            "path" => problems.extend(prefix(&slot, text, "source", &SOURCES)),
            "pattern" => problems.extend(prefix(&slot, text, "component", &COMPONENTS)),
            "block" if !text.contains("{i}") => problems.push(
                slot.problem(
                    "value-form",
                    "the prefix of a block does not say where its number stands",
                )
                .expected_found("a name with `{i}`", format!("`{text}`")),
            ),
            "prompt" if !text.contains("{text}") => problems.push(
                slot.problem("value-form", "a prompt's layout does not say where the text stands")
                    .expected_found(
                        "a text with `{text}`, and `{media}` for the markers",
                        format!("`{text}`"),
                    ),
            ),
            _ => {}
        }
    }

    /// A slot that takes a member of a closed set, given the name of a config value instead.
    pub(super) fn choice(
        &self,
        node: &Node,
        path: &str,
        kind: &str,
        members: &[&str],
        problems: &mut Problems,
    ) {
        let slot = Slot { node, path };
        let text = node.as_str().unwrap_or_default();
        if let Some(problem) = self.value(&slot, text) {
            problems.push(problem);
            return;
        }
        // what the value can be, as far as the family file says
        let Some(entry) = self.config_value(text).and_then(Node::as_table) else { return };
        let key = format!("config.{text}");
        let words = match (entry.get("map").and_then(Node::as_table), entry.get("or")) {
            (Some(map), _) => {
                map.iter().map(|(word, node)| (format!("{key}.map.{word}"), node)).collect()
            }
            (None, Some(or)) => vec![(format!("{key}.or"), or)],
            (None, None) => Vec::new(),
        };
        for (key, word) in words {
            if !word.as_str().is_some_and(|word| members.contains(&word)) {
                let problem = match word.as_str() {
                    Some(_) => unknown_member(word, &key, kind, members),
                    None => {
                        Problem::error("value-type", format!("`{path}` reads this as its {kind}"))
                            .at(word.origin.place(&key))
                            .expected_found(one_of(members), word.describe())
                    }
                };
                if !problems.iter().any(|known| *known == problem) {
                    problems.push(problem);
                }
            }
        }
    }

    fn expression(
        &self,
        slot: &Slot<'_>,
        text: &str,
        scope: Scope,
        wanted: Option<Kind>,
    ) -> Problems {
        match Expression::parse(text) {
            Ok(expression) => {
                let mut problems = self.names(slot, expression.names(), scope);
                let found = expression.kind();
                if let Some(wanted) =
                    wanted.filter(|wanted| found != *wanted && found != Kind::Name)
                {
                    let problem =
                        slot.problem("expression", format!("`{text}` gives {}", found.words()));
                    problems.push(problem.expected_found(wanted.words(), found.words()));
                }
                problems
            }
            Err(error) => slot.malformed("expression", error).into(),
        }
    }

    fn names(&self, slot: &Slot<'_>, names: &[String], scope: Scope) -> Problems {
        let mut problems = Problems::default();
        problems.extend(names.iter().filter_map(|name| self.unknown(slot, name, scope)));
        problems
    }

    /// The problem of `name` if nothing of that name can be read here.
    fn unknown(&self, slot: &Slot<'_>, name: &str, scope: Scope) -> Option<Problem> {
        let layout = self.layout(slot.path);
        let is_layout = layout.contains(&name);
        let table = literals_of(slot.path);
        let literals = self.keys(table);
        self.note(slot, "config", name);
        if scope.literals {
            self.note(slot, table, name);
        }
        if self.config_value(name).is_some()
            || (scope.layout && is_layout)
            || (scope.layer && name == "i")
            || (scope.literals && literals.contains(&name))
        {
            return None;
        }
        let (section, entry) = name.split_once('.').unwrap_or(("", name));
        let entries = self.config_names(section);
        if !entries.is_empty() {
            let known: Vec<_> = entries.iter().map(|entry| format!("{section}.{entry}")).collect();
            let known: Vec<_> = known.iter().map(String::as_str).collect();
            let problem = slot
                .problem("name-unknown", format!("there is no config value `{name}`"))
                .expected_found(one_of(&known), format!("`{name}`"));
            return Some(match nearest(entry, entries.iter().copied()) {
                Some(near) => problem.with_hint(format!("did you mean `{section}.{near}`?")),
                None => problem,
            });
        }
        let sections = self.keys("config");
        if name.contains('.') {
            let problem = slot
                .problem("name-unknown", format!("there is no config value `{name}`"))
                .expected_found(
                    format!("a value of the sections `{}`", sections.join("`, `")),
                    format!("`{name}`"),
                );
            return Some(match nearest(section, sections.iter().copied()) {
                Some(near) => problem.with_hint(format!("did you mean `{near}.{entry}`?")),
                None => problem,
            });
        }
        let mut expected = vec![format!(
            "a config value as `section.name`, with a section of `{}`",
            sections.join("`, `")
        )];
        let mut known = Vec::new();
        if scope.layer {
            expected.push("the layer's index `i`".to_owned());
        }
        if scope.layout {
            expected.push(format!("a name of the layout (`{}`)", layout.join("`, `")));
            known.extend(&layout);
        }
        if scope.literals && !literals.is_empty() {
            expected.push(format!("a literal (`{}`)", literals.join("`, `")));
            known.extend(&literals);
        }
        let problem = slot
            .problem("name-unknown", format!("there is no value `{name}` here"))
            .expected_found(expected.join(", or "), format!("`{name}`"));
        if is_layout {
            return Some(problem.with_hint(
                "only strips, floors, requirements and `positions.advance` read the layout",
            ));
        }
        if nearest(name, known.iter().copied()).is_some() {
            return Some(did_you_mean(problem, name, &known));
        }
        let same_entry = sections.iter().find(|section| self.config_names(section).contains(&name));
        Some(match same_entry {
            Some(section) => problem.with_hint(format!("did you mean `{section}.{name}`?")),
            None => problem,
        })
    }

    /// The names of the layout that an expression at `path` reads. Where the kind of policy is not known, which is
    /// reported elsewhere, any policy's.
    fn layout(&self, path: &str) -> Vec<&'static str> {
        let pictures = self.root.get("image").is_some();
        if is_audio(path) || !pictures {
            return CLIP.to_vec();
        }
        let resize = if path.starts_with("image.several.") {
            "image.several.resize.kind"
        } else {
            "image.resize.kind"
        };
        let kind = self.root.get(resize).and_then(Node::as_str);
        kind.and_then(layout_names).map_or_else(any_layout, <[_]>::to_vec)
    }

    /// A slot that takes the name of one config value, and no expression.
    fn value(&self, slot: &Slot<'_>, text: &str) -> Option<Problem> {
        self.note(slot, "config", text);
        if self.config_value(text).is_some() {
            return None;
        }
        let is_name = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        if is_name && !text.is_empty() {
            return self.unknown(
                slot,
                text,
                Scope { layout: false, literals: false, layer: false },
            );
        }
        let problem =
            slot.problem("name-unknown", format!("`{text}` is not the name of a config value"));
        Some(problem.expected_found("one `section.name`, and no expression", format!("`{text}`")))
    }

    fn strip(&self, slot: &Slot<'_>, text: &str) -> Problems {
        let strip = match Strip::parse(text) {
            Ok(strip) => strip,
            Err(error) => return slot.malformed("strip", error).into(),
        };
        let mut problems =
            self.names(slot, &strip.names(), Scope { layout: true, literals: false, layer: false });
        problems.extend(self.slots(slot, &strip));
        problems
    }

    /// The tokens, literals and vectors of a strip.
    fn slots(&self, slot: &Slot<'_>, strip: &Strip) -> Problems {
        let mut problems = Problems::default();
        problems.extend(
            strip.tokens().iter().filter_map(|name| self.name(slot, "token", "tokens", name)),
        );
        problems.extend(
            strip
                .literals()
                .iter()
                .filter_map(|name| self.name(slot, "literal", literals_of(slot.path), name)),
        );
        problems.extend(
            strip
                .vectors()
                .iter()
                .filter_map(|name| self.name(slot, "vector", vectors_of(slot.path), name)),
        );
        problems
    }

    fn frame(&self, slot: &Slot<'_>, text: &str) -> Problems {
        let strip = match Strip::parse(text) {
            Ok(strip) => strip,
            Err(error) => return slot.malformed("strip", error).into(),
        };
        let markers = strip.length(&std::collections::BTreeMap::new()).map(|length| length.rows);
        let mut problems = Problems::default();
        if strip.is_flat() && markers == Ok(1) {
            problems.extend(self.slots(slot, &strip));
        } else {
            problems.push(
                slot.problem("strip", "a frame is not a marker with something around it")
                    .expected_found(
                        "tokens and literals around one `*`, without repetitions and conditions",
                        format!("`{text}`"),
                    ),
            );
        }
        problems
    }

    fn name(&self, slot: &Slot<'_>, kind: &str, table: &str, name: &str) -> Option<Problem> {
        let known = self.keys(table);
        self.note(slot, table, name);
        if known.contains(&name) {
            return None;
        }
        let expected = if known.is_empty() {
            format!("a name of `[{table}]`, which is empty")
        } else {
            one_of(&known)
        };
        let problem = slot
            .problem("name-unknown", format!("there is no {kind} `{name}`"))
            .expected_found(expected, format!("`{name}`"));
        Some(did_you_mean(problem, name, &known))
    }

    fn note(&self, slot: &Slot<'_>, table: &str, name: &str) {
        let read = Read { reader: slot.path.to_owned(), key: format!("{table}.{name}") };
        self.reads.borrow_mut().insert(read);
    }

    pub(super) fn entries(&self, table: &str) -> impl Iterator<Item = (&'a str, &'a Node)> {
        let table = self.root.get(table).and_then(Node::as_table);
        table.into_iter().flatten().map(|(key, node)| (key.as_str(), node))
    }

    fn keys(&self, table: &str) -> Vec<&'a str> {
        self.entries(table).map(|(key, _)| key).collect()
    }

    /// The values of a config section; a value that stands under `absent` alone is one, too.
    fn config_names(&self, section: &str) -> Vec<&'a str> {
        if section.is_empty() {
            return Vec::new();
        }
        let mut names = self.keys(&format!("config.{section}"));
        names.retain(|name| !["within", "absent"].contains(name));
        for name in self.keys(&format!("config.{section}.absent")) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The entry of `section.name`.
    pub(super) fn config_value(&self, name: &str) -> Option<&'a Node> {
        let (section, entry) = name.split_once('.')?;
        if ["within", "absent"].contains(&entry) || entry.contains('.') {
            return None;
        }
        let section = self.root.get("config")?.as_table()?.get(section)?.as_table()?;
        section.get(entry).or_else(|| section.get("absent")?.as_table()?.get(entry))
    }
}

/// A name before a `:` that says where the rest is found.
fn prefix(slot: &Slot<'_>, text: &str, kind: &str, known: &[&str]) -> Option<Problem> {
    let (word, _) = text.split_once(':')?;
    if known.contains(&word) {
        return None;
    }
    let problem = slot
        .problem("name-unknown", format!("there is no {kind} `{word}`"))
        .expected_found(format!("{} before the `:`", one_of(known)), format!("`{word}`"));
    Some(did_you_mean(problem, word, known))
}

fn is_audio(path: &str) -> bool {
    path.starts_with("audio.") || path == "floor.audio"
}

fn literals_of(path: &str) -> &'static str {
    if is_audio(path) { "audio.literals" } else { "image.literals" }
}

fn vectors_of(path: &str) -> &'static str {
    if is_audio(path) { "audio.connector.vectors" } else { "image.connector.vectors" }
}
