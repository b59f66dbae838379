//! A plan as stable text: every value with its source, floors and witnesses. What a drift guard compares.

use std::fmt::Write as _;

use crate::plan::{Modality, Plan};

/// Renders a plan. The text depends on the family file and the checkpoint's config files (and its tokenizer, where a
/// template's framing is measured) alone: no paths, no times.
pub fn render(plan: &Plan) -> String {
    let mut text = String::new();
    // writing to a string cannot fail
    let _ = writeln!(text, "family: {}", plan.family());
    for modality in plan.modalities() {
        floor(&mut text, plan, modality);
    }
    text.push_str("\nvalues:\n");
    values(&mut text, plan);
    text
}

fn floor(text: &mut String, plan: &Plan, modality: Modality) {
    let name = modality.name();
    match plan.floor(modality) {
        Ok(floor) => {
            let exact = |exact: bool| if exact { "exact" } else { "bound" };
            let _ = writeln!(text, "\n{name}:");
            let _ = writeln!(text, "  floor      {}", floor.floor);
            let _ = writeln!(
                text,
                "  expansion  {} ({}), witness {}",
                floor.expansion,
                exact(floor.exact),
                floor.witness
            );
            let _ =
                writeln!(text, "  framing    {} ({})", floor.framing, exact(floor.framing_exact));
            let _ = match floor.embeds_witness {
                Some(witness) => {
                    writeln!(text, "  embeds     {}, witness {witness}", floor.embeds)
                }
                None => writeln!(text, "  embeds     0"),
            };
            if let Some((patches, witness)) = floor.patches {
                let _ = writeln!(text, "  patches    {patches}, witness {witness}");
            }
            if let Some(states) = floor.states {
                let _ = writeln!(text, "  states     {states}");
            }
            let _ = writeln!(text, "  formula    {}", floor.formula);
        }
        Err(error) => {
            let _ = writeln!(text, "\n{name}:\n  no floor: {error}");
        }
    }
}

/// Every value with its source, one a line, aligned.
pub fn values(text: &mut String, plan: &Plan) {
    let width = plan.values.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, resolved) in plan.values.iter() {
        let _ = match resolved {
            Ok(resolved) => {
                writeln!(text, "  {name:width$} = {} ({})", resolved.value, resolved.source)
            }
            Err(problem) => writeln!(text, "  {name:width$} : {}", problem.message),
        };
    }
}
