//! Tensors of modules that are not interpreted: names and shapes, written out.

use super::Resolver;
use crate::descriptor::family::{Each, Inventory};
use crate::problem::Problem;

/// More tensors than any module has.
const MOST_TENSORS: usize = 100_000;

/// The tensors of a module that is not interpreted.
#[derive(Debug, Clone, PartialEq)]
pub struct InventoryPlan {
    /// What the module is.
    pub what: String,
    /// The component below whose root the names stand; `None`: names are absolute.
    pub below: Option<String>,
    /// Whether a checkpoint may lack it.
    pub optional: bool,
    /// Name, shape, and the key of every tensor.
    pub tensors: Vec<(String, Vec<usize>, String)>,
}

impl Resolver<'_> {
    pub(super) fn inventory(&mut self) -> Vec<InventoryPlan> {
        let inventory = &self.family.tensors.inventory;
        let modules = inventory.iter().enumerate();
        modules
            .filter_map(|(index, module)| {
                self.module(&format!("tensors.inventory.{index}"), module)
            })
            .collect()
    }

    /// `None` where the module is not there, or where it is wrong and a problem is kept.
    fn module(&mut self, key: &str, module: &Inventory) -> Option<InventoryPlan> {
        if !self.flag_or(&format!("{key}.when"), module.when.as_ref(), true)? {
            return None;
        }
        let optional = self.flag_or(&format!("{key}.optional"), module.optional.as_ref(), false)?;
        let mut letters: Vec<(String, Vec<String>)> = Vec::new();
        for (letter, each) in &module.each {
            let key = format!("{key}.each.{letter}");
            let values = match each {
                Each::Count(count) => {
                    let count = self.size(&key, "the number of modules", count, 0)?;
                    (0..count.min(MOST_TENSORS)).map(|value| value.to_string()).collect()
                }
                Each::List(list) => list.iter().map(i64::to_string).collect(),
                Each::Words(words) => words.clone(),
                Each::Layers(some) => {
                    let of =
                        self.size(&format!("{key}.of"), "the number of layers", &some.of, 0)?;
                    let chosen =
                        self.layers(&format!("{key}.at"), &some.at, of.min(MOST_TENSORS))?;
                    let chosen = chosen.into_iter().enumerate().filter(|(_, chosen)| *chosen);
                    chosen.map(|(at, _)| at.to_string()).collect()
                }
            };
            letters.push((format!("{{{letter}}}"), values));
        }
        let mut tensors = Vec::new();
        for (pattern, shape) in &module.tensors {
            let key = format!("{key}.tensors.{pattern}");
            let shape: Option<Vec<usize>> = shape
                .iter()
                .map(|count| self.size(&key, "the size of an axis", count, 1))
                .collect();
            let shape = shape?;
            let mut names = vec![pattern.clone()];
            for (letter, values) in &letters {
                if !pattern.contains(letter.as_str()) {
                    continue;
                }
                if names.len() * values.len() > MOST_TENSORS {
                    let problem =
                        Problem::error("value-bound", "an inventory has too many tensors")
                            .expected_found(format!("at most {MOST_TENSORS}"), "more");
                    return self.keep(&key, Err(problem));
                }
                names = names
                    .iter()
                    .flat_map(|name| {
                        values.iter().map(|value| name.replace(letter.as_str(), value))
                    })
                    .collect();
            }
            tensors.extend(names.into_iter().map(|name| (name, shape.clone(), key.clone())));
        }
        Some(InventoryPlan {
            what: module.what.clone(),
            below: module.below.clone(),
            optional,
            tensors,
        })
    }
}
