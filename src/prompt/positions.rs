//! Positions of prompt tokens: one axis, or three where media items have a grid.

use std::collections::BTreeMap;

use super::assemble::Span;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Values;
use crate::plan::graph::PositionRule;

/// The positions of a prompt's tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Positions {
    /// (time, row, column) of every token; equal where there is one axis only.
    pub tokens: Vec<[i64; 3]>,
    /// The position of the first token after the prompt.
    pub next: i64,
}

/// Counts positions along a prompt of `length` tokens with media items at `spans`, which are in order.
///
/// Three axes follow `Qwen2VLModel.get_rope_index`: text runs advance all axes alike from the cursor; the rows of an
/// item stand at the cursor on the first axis and at cursor + row, cursor + column on the others; then the cursor moves
/// on by `advance`. Decoding continues at the cursor, which is one beyond the largest position.
pub fn positions(
    rule: &PositionRule,
    values: &Values,
    length: usize,
    spans: &[Span],
) -> Result<Positions> {
    let (start, advance) = match rule {
        PositionRule::Sequential { start } => {
            let tokens = (0..length as i64).map(|index| [start + index; 3]).collect();
            return Ok(Positions { tokens, next: start + length as i64 });
        }
        PositionRule::Mrope { advance } => (0, advance),
    };
    let mut tokens = Vec::with_capacity(length);
    let mut cursor = start;
    let mut items = spans.iter().peekable();
    while tokens.len() < length {
        let Some(span) = items.next_if(|span| span.rows.first() == Some(&tokens.len())) else {
            tokens.push([cursor; 3]);
            cursor += 1;
            continue;
        };
        let side = |name| i64::from(span.layout.get(name).unwrap_or(1));
        let (rows, cols) = (side("rows"), side("cols"));
        let count = span.rows.len();
        let contiguous = span.rows.last().is_some_and(|last| last + 1 == tokens.len() + count);
        if !contiguous || usize::try_from(rows * cols).ok() != Some(count) {
            return Err(Error::new(
                ErrorKind::Placeholders,
                format!(
                    "an item of {rows}x{cols} cells has {count} rows in the prompt; three position axes need one run of them"
                ),
            ));
        }
        for row in 0..rows {
            for col in 0..cols {
                tokens.push([cursor, cursor + row, cursor + col]);
            }
        }
        let local: BTreeMap<_, _> = span.layout.bindings();
        cursor += values.count(advance, &local).map_err(|problem| {
            Error::new(ErrorKind::Descriptor, problem.message.clone()).with_problems(problem.into())
        })?;
    }
    Ok(Positions { tokens, next: cursor })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::resize::PLAIN;
    use crate::descriptor::slot::Count;
    use crate::layout::Layout;
    use crate::plan::Modality;

    fn span(start: usize, rows: u32, cols: u32) -> Span {
        let count = (rows * cols) as usize;
        Span {
            modality: Modality::Image,
            item: 0,
            layout: Layout::new(&PLAIN, [rows, cols, 0, 0]),
            start,
            length: count,
            rows: (start..start + count).collect(),
            vectors: Vec::new(),
        }
    }

    /// The published fault mlx-vlm#1282: `[1,2,VS,IMG×4,5,VS,IMG×4,7]`, grids [[1,4,4]]×2, merge 2.
    #[test]
    fn counting_goes_on_after_each_item() {
        let rule = PositionRule::Mrope { advance: Count::Expression("max(rows, cols)".to_owned()) };
        let spans = [span(3, 2, 2), span(9, 2, 2)];
        let found = positions(&rule, &Values::default(), 14, &spans).unwrap();
        let time: Vec<_> = found.tokens.iter().map(|token| token[0]).collect();
        let row: Vec<_> = found.tokens.iter().map(|token| token[1]).collect();
        let col: Vec<_> = found.tokens.iter().map(|token| token[2]).collect();
        assert_eq!(time, [0, 1, 2, 3, 3, 3, 3, 5, 6, 7, 7, 7, 7, 9]);
        assert_eq!(row, [0, 1, 2, 3, 3, 4, 4, 5, 6, 7, 7, 8, 8, 9]);
        assert_eq!(col, [0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 8, 7, 8, 9]);
        assert_eq!(found.next, 10);
    }

    #[test]
    fn one_axis_counts_from_its_start() {
        let found =
            positions(&PositionRule::Sequential { start: 1 }, &Values::default(), 3, &[]).unwrap();
        assert_eq!(found.tokens, [[1; 3], [2; 3], [3; 3]]);
        assert_eq!(found.next, 4);
    }
}
