//! The largest value of a formula over the layouts of [`Area`]. The domain is large, so the formula's shape decides how it
//! is searched:
//!
//! * `a + b · rows · cols` with b ≥ 0 depends on the number of cells alone: [`Area::largest`] is exact.
//! * A polynomial without negative factors never falls when a side grows. Every reachable grid has at most as many cells
//!   as the largest, so the maximum over the grids `(r, ⌊cells / r⌋)` is sound; it is exact if an image of just that
//!   size keeps it.
//! * Anything else is evaluated on every grid of at most so many cells, with the same reasoning.

use super::super::crop::NAMES;
use super::Area;
use crate::descriptor::expression::ExpressionError;
use crate::layout::{Formula, ImageSize, LONGEST_SIDE, Layout, Maximum, SizePolicy};

/// A formula is evaluated on at most this many grids.
const EVALUATIONS: u64 = 4_000_000;

impl SizePolicy for Area {
    fn names(&self) -> &'static [&'static str] {
        &NAMES
    }

    fn layout(&self, size: ImageSize) -> Result<Layout, String> {
        let (width, height) =
            self.resized(size.width, size.height).map_err(|refusal| refusal.to_string())?;
        Ok(grid(self, width, height))
    }

    fn maximum(&self, formula: &Formula<'_>) -> Result<Option<Maximum>, ExpressionError> {
        maximum(formula, self)
    }

    fn samples(&self) -> Vec<Layout> {
        samples(self)
    }

    fn budget_kind(&self) -> &'static str {
        "dynamic"
    }
}

/// The layout of a resized picture.
fn grid(area: &Area, width: u32, height: u32) -> Layout {
    Layout::new(&NAMES, [height / area.step(), width / area.step(), width, height])
}

fn maximum(formula: &Formula<'_>, area: &Area) -> Result<Option<Maximum>, ExpressionError> {
    let Some(extreme) = area.largest() else { return Ok(None) };
    let witness = ImageSize { width: extreme.width, height: extreme.height };
    let layout = |rows: u64, cols: u64| {
        let side =
            |cells: u64| u32::try_from(cells).ok().and_then(|cells| cells.checked_mul(area.step()));
        let (height, width) = (side(rows)?, side(cols)?);
        Some(grid(area, width, height))
    };
    let too_large = || ExpressionError {
        message: "the largest picture overflows 32 bits".to_owned(),
        hint: None,
    };
    let (width, height) = area.resized(witness.width, witness.height).map_err(|_| too_large())?;
    let at_extreme = layout(u64::from(height / area.step()), u64::from(width / area.step()))
        .ok_or_else(too_large)?;
    let mut best = Maximum { value: formula.at(&at_extreme)?, witness, exact: extreme.exact };
    let cells_alone = formula.polynomial.as_ref().is_some_and(|terms| {
        terms.terms().all(|(powers, factor)| {
            factor == 0
                || powers.iter().all(|power| *power == 0)
                || (powers == [1, 1, 0, 0] && factor > 0)
        })
    });
    if cells_alone {
        if !extreme.exact {
            let spread = layout(1, extreme.cells).ok_or_else(too_large)?;
            best.value = formula.at(&spread)?;
        }
        return Ok(Some(best));
    }
    // the witness has this value, whether or not it has the most cells
    best.exact = true;
    let rising = formula.rises();
    let grids = if rising {
        extreme.cells
    } else {
        extreme.cells.saturating_mul(u64::from(1 + extreme.cells.ilog2()))
    };
    if grids > EVALUATIONS {
        return Err(ExpressionError {
            message: format!("the formula would have to be evaluated on some {grids} grids"),
            hint: Some("a polynomial in `rows * cols` alone needs one".to_owned()),
        });
    }
    let mut reached = None::<Maximum>;
    for rows in 1..=extreme.cells {
        let most = extreme.cells / rows;
        for cols in if rising { most } else { 1 }..=most {
            let Some(layout) = layout(rows, cols) else { continue };
            let value = formula.at(&layout)?;
            let Some((width, height)) = layout.get("width").zip(layout.get("height")) else {
                continue;
            };
            let witness = ImageSize { width, height };
            let kept = witness.width <= LONGEST_SIDE
                && witness.height <= LONGEST_SIDE
                && area.resized(witness.width, witness.height)
                    == Ok((witness.width, witness.height));
            if kept && reached.is_none_or(|reached| value > reached.value) {
                reached = Some(Maximum { value, witness, exact: true });
            }
            if value > best.value {
                best = Maximum { value, witness: best.witness, exact: false };
            }
        }
    }
    Ok(Some(match reached {
        Some(reached) if reached.value >= best.value => reached,
        Some(reached) if !best.exact => Maximum { witness: reached.witness, ..best },
        _ => best,
    }))
}

fn samples(area: &Area) -> Vec<Layout> {
    let mut layouts = Vec::new();
    let sides = [
        1, 2, 3, 5, 13, 14, 27, 28, 29, 55, 100, 255, 256, 337, 640, 1023, 2000, 4096, 9000,
        30_000, 65_535,
    ];
    for width in sides {
        for height in sides {
            if let Ok((width, height)) = area.resized(width, height) {
                let layout = grid(area, width, height);
                if !layouts.contains(&layout) {
                    layouts.push(layout);
                }
            }
        }
    }
    layouts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::descriptor::expression::Expression;
    use crate::layout::Polynomial;

    fn value(text: &str, layout: &Layout) -> Result<i64, ExpressionError> {
        Expression::parse(text)?.integer(&layout.bindings())
    }

    /// Exhaustive over all images of up to 90 px a side: no formula exceeds its maximum, and exact ones are reached.
    #[test]
    fn maxima_are_sound() {
        let area = Area::new(4, 64, 640, 200, 1).unwrap();
        for text in [
            "rows * cols",
            "3 + 2 * rows * cols",
            "rows * (cols + 1)",
            "rows + cols",
            "max(rows, cols)",
            "div_ceil(rows * cols, 4)",
            "50 - rows",
        ] {
            let expression = Expression::parse(text).unwrap();
            let formula = Formula {
                value: &|layout: &Layout| value(text, layout),
                polynomial: Polynomial::of(&expression, &NAMES, &BTreeMap::new()),
            };
            let maximum = maximum(&formula, &area).unwrap().unwrap();
            let mut seen = i64::MIN;
            for width in 1..=90 {
                for height in 1..=90 {
                    if let Ok((width, height)) = area.resized(width, height) {
                        let layout = grid(&area, width, height);
                        seen = seen.max(value(text, &layout).unwrap());
                    }
                }
            }
            assert!(seen <= maximum.value, "{text}: {seen} > {}", maximum.value);
            let (width, height) =
                area.resized(maximum.witness.width, maximum.witness.height).unwrap();
            let reached = value(text, &grid(&area, width, height)).unwrap();
            assert!(reached <= maximum.value);
            assert_eq!(maximum.exact, reached == maximum.value, "{text}");
        }
    }
}
