//! Small layouts of every kind of policy, as the policy relates their names to each other.

use std::collections::BTreeMap;

use crate::descriptor::audio::CLIP;
use crate::descriptor::expression::Expression;
use crate::descriptor::resize::{Resize, Whole};
use crate::descriptor::slot::{Choice, Flag};
use crate::descriptor::symbolic::Bounds;

/// A layout: every name with its value.
pub(super) type Layout = BTreeMap<&'static str, i64>;

/// What is known of the layouts of a policy without its parameters.
pub(super) struct Domain {
    /// Bounds of the names, and names that others determine.
    pub bounds: Bounds,
    /// Small layouts, rising.
    pub layouts: Vec<Layout>,
    /// Names that the parameters determine: they cannot be told apart from config values.
    pub settled: &'static [&'static str],
    /// Names of which nothing is known but together with the parameters.
    pub opaque: &'static [&'static str],
}

const SIDES: [&str; 2] = ["width", "height"];
/// The largest count in a sample.
const MOST: i64 = 3;

fn counts(least: i64) -> impl Iterator<Item = [i64; 2]> {
    let pairs = (least..=MOST).flat_map(move |rows| (least..=MOST).map(move |cols| [rows, cols]));
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_by_key(|[rows, cols]| rows + cols);
    pairs.into_iter()
}

fn layout<const N: usize>(pairs: [(&'static str, i64); N]) -> Layout {
    Layout::from(pairs)
}

fn domain(least: &[&str], derived: &[(&str, &str)], layouts: Vec<Layout>) -> Domain {
    let derived = derived
        .iter()
        .filter_map(|(name, text)| Some(((*name).to_owned(), Expression::parse(text).ok()?)));
    Domain {
        bounds: Bounds {
            least: least.iter().map(|name| ((*name).to_owned(), 1)).collect(),
            derived: derived.collect(),
            ..Bounds::default()
        },
        layouts,
        settled: &[],
        opaque: &SIDES,
    }
}

/// Whether the flag may hold, and whether it may not.
fn outcomes(flag: &Flag) -> Vec<bool> {
    match flag {
        Flag::Literal(value) => vec![*value],
        Flag::Condition(_) => vec![false, true],
    }
}

/// Clips of sound.
pub(super) fn of_clips() -> Domain {
    let layouts = (1..=MOST).map(|number| CLIP.iter().map(|name| (*name, number)).collect());
    Domain { opaque: &["samples", "frames"], ..domain(&[], &[], layouts.collect()) }
}

/// Pictures.
pub(super) fn of_pictures(resize: &Resize) -> Domain {
    match resize {
        Resize::Area(_) | Resize::Fit(_) | Resize::PatchBudget(_) => {
            let layouts = counts(1).map(|[rows, cols]| layout([("rows", rows), ("cols", cols)]));
            domain(&["rows", "cols"], &[], layouts.collect())
        }
        Resize::Crop(_) => {
            let layouts = (1..=MOST).map(|side| layout([("rows", side), ("cols", side)]));
            Domain {
                settled: &["rows", "cols"],
                ..domain(&["rows", "cols"], &[], layouts.collect())
            }
        }
        Resize::PanAndScan(of) => {
            let most = if outcomes(&of.scan).contains(&true) { MOST } else { 0 };
            // a single crop takes a limit of one
            let layouts = (0..=most).filter(|crops| *crops != 1).flat_map(|crops| {
                (1..=MOST).map(move |side| {
                    layout([("rows", side), ("cols", side), ("crops", crops), ("tiles", crops + 1)])
                })
            });
            Domain {
                settled: &["rows", "cols"],
                ..domain(&["rows", "cols"], &[("tiles", "crops + 1")], layouts.collect())
            }
        }
        Resize::ClosestRatio(of) => {
            let mut layouts = Vec::new();
            for [rows, cols] in counts(1) {
                for thumb in outcomes(&of.thumb) {
                    let thumb = i64::from(thumb && rows * cols > 1);
                    let tiles = rows * cols + thumb;
                    layouts.push(layout([
                        ("rows", rows),
                        ("cols", cols),
                        ("tiles", tiles),
                        ("thumb", thumb),
                    ]));
                }
            }
            let mut domain =
                domain(&["rows", "cols"], &[("tiles", "rows * cols + thumb")], layouts);
            domain.bounds.least.insert("thumb".to_owned(), 0);
            domain.bounds.most.insert("thumb".to_owned(), 1);
            domain
        }
        Resize::CeilGrid(of) => {
            let one = layout([("rows", 0), ("cols", 0), ("tiles", 1)]);
            let many = counts(1).filter(|pair| *pair != [1, 1]).map(|[rows, cols]| {
                layout([("rows", rows), ("cols", cols), ("tiles", rows * cols + 1)])
            });
            let many = many.filter(|_| outcomes(&of.split).contains(&true));
            let layouts = std::iter::once(one).chain(many).collect();
            let mut domain = domain(&[], &[("tiles", "rows * cols + 1")], layouts);
            domain.bounds.least.extend([("rows".to_owned(), 0), ("cols".to_owned(), 0)]);
            domain.bounds.together.push(["rows", "cols"]);
            domain
        }
        Resize::Pinpoints(_) => tiled(
            &[("tiles", "grid_rows * grid_cols + 1")],
            |layout, grid| {
                layout.insert("tiles", grid + 1);
            },
            &SIDES,
        ),
        Resize::LeastUpscale(of) => {
            // how many views there are besides one tile, and besides several
            let whole = match of.whole {
                Choice::Member(Whole::First) => Some([1, 1]),
                Choice::Member(Whole::None) => Some([0, 0]),
                Choice::Member(Whole::LastIfMany) => Some([0, 1]),
                Choice::Value(_) => None,
            };
            let mut derived = vec![("tiles", "grid_rows * grid_cols")];
            match of.whole {
                Choice::Member(Whole::First) => {
                    derived.push(("views", "grid_rows * grid_cols + 1"));
                }
                Choice::Member(Whole::None) => derived.push(("views", "grid_rows * grid_cols")),
                _ => {}
            }
            let opaque: &[&str] =
                if whole.is_some() { &SIDES } else { &["width", "height", "views"] };
            tiled(
                &derived,
                |layout, grid| {
                    layout.insert("tiles", grid);
                    let [beside_one, beside_many] = whole.unwrap_or_default();
                    layout.insert("views", grid + if grid > 1 { beside_many } else { beside_one });
                },
                opaque,
            )
        }
    }
}

/// Cells of tiles in a grid, as many as all tiles have: no margins, and nothing cut off.
fn tiled(
    derived: &[(&str, &str)],
    finish: impl Fn(&mut Layout, i64),
    opaque: &'static [&'static str],
) -> Domain {
    let mut layouts = Vec::new();
    for base in 1..=MOST {
        for [down, across] in counts(1) {
            let mut layout = layout([
                ("rows", down * base),
                ("cols", across * base),
                ("grid_rows", down),
                ("grid_cols", across),
                ("base_rows", base),
                ("base_cols", base),
            ]);
            finish(&mut layout, down * across);
            layouts.push(layout);
        }
    }
    let least = ["rows", "cols", "grid_rows", "grid_cols", "base_rows", "base_cols"];
    Domain { settled: &["base_rows", "base_cols"], opaque, ..domain(&least, derived, layouts) }
}
