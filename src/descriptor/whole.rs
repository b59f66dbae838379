//! What no single slot of a merged family shows: tables that need each other, values that are computed from themselves.

use super::expression::Expression;
use super::node::{Node, NodeValue};
use super::references::References;
use super::validate::one_of;
use crate::problem::{Problem, Problems};

impl References<'_> {
    /// What no single slot shows.
    pub(super) fn whole(&self) -> Problems {
        let mut problems = Problems::default();
        for (modality, item) in [("image", "image"), ("audio", "clip")] {
            if let Some(media) = self.root.get(modality) {
                problems.extend(self.stated_floor(modality, item, media));
                problems.extend(self.media_roots(modality));
                problems.extend(self.encoder(modality, media));
            } else {
                problems.extend(self.stray_floors(modality));
            }
        }
        problems.extend(self.alternatives());
        problems.extend(self.roots());
        problems.extend(self.letters());
        problems.extend(self.cycles());
        problems
    }

    /// Every modality has a formula under `[floor]`.
    fn stated_floor(&self, modality: &str, item: &str, media: &Node) -> Option<Problem> {
        let floor = self.root.get("floor");
        if floor.is_some_and(|floor| floor.get(modality).is_some() || floor.as_table().is_none()) {
            return None;
        }
        let key = format!("floor.{modality}");
        let place = if floor.is_some() { self.root.place(&key) } else { media.origin.place(&key) };
        let missing = Problem::error("key-missing", format!("key `{modality}` is missing"));
        Some(missing.at(place).expected_found(
            format!("`{modality}`: the tokens in place of one {item}'s marker, as an expression"),
            "nothing",
        ))
    }

    /// Floors of a modality that is not there.
    fn stray_floors(&self, modality: &str) -> Problems {
        let complain = |node: &Node, key: String, what: &str| {
            Problem::error(
                "modality-absent",
                format!("{what} of `{modality}`, and there is no `[{modality}]`"),
            )
            .at(node.origin.place(&key))
            .with_hint(format!("describe `[{modality}]`, or remove this"))
        };
        let mut problems = Problems::default();
        let formula = format!("floor.{modality}");
        if let Some(node) = self.root.get(&formula) {
            problems.push(complain(node, formula.clone(), "a formula states the tokens"));
        }
        if let Some(Node { value: NodeValue::Array(examples), .. }) = self.root.get("example") {
            for (index, example) in examples.iter().enumerate() {
                if let Some(node) = example.get(&formula) {
                    let key = format!("example.{index}.{formula}");
                    problems.push(complain(node, key, "an example states the tokens"));
                }
            }
        }
        problems
    }

    /// Tables of which one key out of several must be there.
    fn alternatives(&self) -> Problems {
        let need = |at: &str, keys: &[&str], what: &str| {
            let node = self.root.get(at)?;
            let table = node.as_table()?;
            let first = keys.first()?;
            let there = keys.iter().any(|key| table.contains_key(*key));
            (!there).then(|| {
                Problem::error("key-missing", format!("key `{first}` is missing"))
                    .at(node.origin.place(&format!("{at}.{first}")))
                    .expected_found(format!("`{}`: {what}", keys.join("` or `")), "nothing")
            })
        };
        let (either, name) =
            (["name", "parameter"], "the tensor's name below its component's root");
        let mut problems = Problems::default();
        problems.extend(need("decoder.embed", &either, name));
        for modality in ["image", "audio"] {
            let at = |key: &str| format!("{modality}.{key}");
            problems.extend(need(
                &at("tower"),
                &["patch", "frames"],
                "what stands before the blocks",
            ));
            problems.extend(need(&at("tower.position"), &either, name));
            let Some(Node { value: NodeValue::Array(ops), .. }) =
                self.root.get(&at("connector.ops"))
            else {
                continue;
            };
            for (index, op) in ops.iter().enumerate() {
                let word = |key: &str| op.get(key).and_then(Node::as_str);
                let keys: &[&str] = match word("op") {
                    Some("linear") => &either,
                    Some("norm") if word("weight") != Some("none") => &["name"],
                    _ => continue,
                };
                let there = |table: &indexmap::IndexMap<String, Node>| {
                    keys.iter().any(|key| table.contains_key(*key))
                };
                if op.as_table().is_none_or(there) {
                    continue;
                }
                problems.push(
                    Problem::error("key-missing", "key `name` is missing")
                        .at(op.origin.place(&at(&format!("connector.ops.{index}.name"))))
                        .expected_found(format!("`{}`: {name}", keys.join("` or `")), "nothing"),
                );
            }
        }
        problems
    }

    fn roots(&self) -> Option<Problem> {
        let node = self.root.get("tensors.roots")?;
        let NodeValue::Array(roots) = &node.value else { return None };
        roots.is_empty().then(|| {
            Problem::error("key-missing", "`roots` holds no set of prefixes")
                .at(node.origin.place("tensors.roots"))
                .expected_found("at least one `{ decoder = …, head = … }`", "an empty array")
        })
    }

    /// Letters in the names of an inventory that `each` does not explain.
    fn letters(&self) -> Problems {
        let mut problems = Problems::default();
        let Some(Node { value: NodeValue::Array(modules), .. }) =
            self.root.get("tensors.inventory")
        else {
            return problems;
        };
        for (index, module) in modules.iter().enumerate() {
            let table = |key: &str| module.get(key).and_then(Node::as_table);
            let known: Vec<_> =
                table("each").into_iter().flatten().map(|(letter, _)| letter.as_str()).collect();
            for (name, shape) in table("tensors").into_iter().flatten() {
                let letters = name.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
                for (letter, _) in letters.filter(|(letter, _)| !known.contains(letter)) {
                    let key = format!("tensors.inventory.{index}.tensors.{name}");
                    let expected = if known.is_empty() {
                        "a name without braces, or `each`".to_owned()
                    } else {
                        one_of(&known)
                    };
                    problems.push(
                        Problem::error("name-unknown", format!("`each` has no `{letter}`"))
                            .at(shape.origin.place(&key))
                            .expected_found(expected, format!("`{{{letter}}}`")),
                    );
                }
            }
        }
        problems
    }

    /// An encoder is described by a tower with what reads it, or by its tensors alone.
    fn encoder(&self, modality: &str, media: &Node) -> Problems {
        let below = if modality == "audio" { "audio_tower" } else { "tower" };
        let mut listed = false;
        if let Some(Node { value: NodeValue::Array(modules), .. }) =
            self.root.get("tensors.inventory")
        {
            listed = modules
                .iter()
                .any(|module| module.get("below").and_then(Node::as_str) == Some(below));
        }
        let tower = media.get("tower").is_some();
        let mut problems = Problems::default();
        if media.as_table().is_none() || (!tower && listed && self.nothing_reads(modality)) {
            return problems;
        }
        for (key, what) in [
            ("tower", "the encoder"),
            ("features", "what of the encoder's states is used"),
            ("connector", "the steps from encoder states to rows of the decoder"),
        ] {
            if media.get(key).is_none() {
                problems.push(
                    Problem::error("key-missing", format!("key `{key}` is missing"))
                        .at(media.origin.place(&format!("{modality}.{key}")))
                        .expected_found(format!("`{key}`: {what}"), "nothing")
                        .with_hint(format!("an encoder without these tables is described by `[[tensors.inventory]]` with `below = \"{below}\"`")),
                );
            }
        }
        problems
    }

    fn nothing_reads(&self, modality: &str) -> bool {
        ["features", "connector"]
            .iter()
            .all(|key| self.root.get(&format!("{modality}.{key}")).is_none())
    }

    /// Where there is a modality, every root says where its tower and connector are.
    fn media_roots(&self, modality: &str) -> Problems {
        let keys = match modality {
            "audio" => ["audio_tower", "audio_connector"],
            _ => ["tower", "connector"],
        };
        let mut problems = Problems::default();
        let Some(Node { value: NodeValue::Array(roots), .. }) = self.root.get("tensors.roots")
        else {
            return problems;
        };
        for (index, root) in roots.iter().enumerate() {
            for key in keys {
                if root.as_table().is_some_and(|table| !table.contains_key(key)) {
                    problems.push(
                        Problem::error("key-missing", format!("key `{key}` is missing"))
                            .at(root.origin.place(&format!("tensors.roots.{index}.{key}")))
                            .expected_found(format!("`{key}`: the prefix of the {modality} {}, since there is `[{modality}]`", key.trim_start_matches("audio_")), "nothing"),
                    );
                }
            }
        }
        problems
    }

    /// Config values that are computed from themselves.
    fn cycles(&self) -> Problems {
        let mut problems = Problems::default();
        let mut reported: Vec<String> = Vec::new();
        for (section, values) in self.entries("config") {
            for (entry, node) in values.as_table().into_iter().flatten() {
                let name = format!("{section}.{entry}");
                let mut chain = vec![name.clone()];
                if node.as_str().is_none()
                    || reported.contains(&name)
                    || !self.comes_back(node, &mut chain)
                {
                    continue;
                }
                problems.push(
                    Problem::error("config-cycle", format!("`{name}` is computed from itself"))
                        .at(node.origin.place(&format!("config.{name}")))
                        .expected_found(
                            "expressions that end at lookups or literals",
                            format!("`{}`", chain.join("` → `")),
                        ),
                );
                reported.extend(chain);
            }
        }
        problems
    }

    /// Whether the expression `node` leads back to the first of `chain`, which then shows the way.
    fn comes_back(&self, node: &Node, chain: &mut Vec<String>) -> bool {
        let Some(Ok(expression)) = node.as_str().map(Expression::parse) else { return false };
        for name in expression.names() {
            if chain.first() == Some(name) {
                chain.push(name.clone());
                return true;
            }
            let Some(next) = self.config_value(name) else { continue };
            if chain.contains(name) {
                continue;
            }
            chain.push(name.clone());
            if self.comes_back(next, chain) {
                return true;
            }
            chain.pop();
        }
        false
    }
}
