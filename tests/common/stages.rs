//! Recorded stages against traced ones, and the table of how far apart they are (`docs/stages.md`).
//! Include it with `#[path = "common/stages.rs"] mod stages;`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::{env, fs};

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use vlm_spec::model::{Trace, TraceTensor};

/// The columns of the table, in the order of the computation.
pub(crate) const KINDS: [&str; 6] = ["mel", "tower", "features", "deepstack", "embeds", "logits"];

/// The largest relative error of each kind of stage.
pub(crate) type Worst = BTreeMap<&'static str, f64>;

/// The column that a stage belongs to; none for what must be equal.
pub(crate) fn kind(stage: &str) -> Option<&'static str> {
    let found = |kind: &&&str| stage.split('.').any(|part| part == **kind);
    // `image.0.features.deepstack.1.rows` is of the last kind that it names
    KINDS.iter().rev().find(found).copied()
}

/// Compares one recorded tensor with the stage of that name: its relative error, or what differs.
///
/// Integers must be equal and pixels have the same bits. `NAME.rows` holds the first and the last four rows of a stage,
/// `NAME.tail` the last ones.
pub(crate) fn compare(expected: &TensorView<'_>, trace: &Trace, name: &str) -> Result<f64, String> {
    let (base, part) = match name.rsplit_once('.') {
        Some((base, part @ ("rows" | "tail"))) => (base, part),
        _ => (name, "whole"),
    };
    let found = trace.get(base).ok_or_else(|| format!("no stage `{base}`"))?;
    match (found, expected.dtype()) {
        (TraceTensor::Integer(shape, values), Dtype::I64) => {
            let wanted: Vec<i64> =
                words::<8>(expected.data()).into_iter().map(i64::from_le_bytes).collect();
            equal("shape", &shape[..], expected.shape())?;
            equal("values", &values[..], &wanted[..])?;
            Ok(0.0)
        }
        (TraceTensor::Float(shape, values), Dtype::F32) => {
            let wanted: Vec<f32> =
                words::<4>(expected.data()).into_iter().map(f32::from_le_bytes).collect();
            let width = shape.last().copied().unwrap_or(1).max(1);
            let rows = values.len() / width;
            let last = |count: usize| &values[rows.saturating_sub(count) * width..];
            let found: Vec<f32> = match part {
                "rows" if rows > 8 => [&values[..4 * width], last(4)].concat(),
                "tail" => last(wanted.len() / width).to_vec(),
                _ => values.clone(),
            };
            if part == "whole" {
                // a tower of views may keep their axis
                let same = base.rsplit('.').next() == Some("tower") && found.len() == wanted.len();
                let narrow = shape.last() == expected.shape().last();
                if !(same && narrow) {
                    equal("shape", &shape[..], expected.shape())?;
                }
            }
            equal("number of values", &found.len(), &wanted.len())?;
            if base.ends_with(".pixels") {
                let at = found.iter().zip(&wanted).position(|(a, b)| a.to_bits() != b.to_bits());
                return at.map_or(Ok(0.0), |at| {
                    Err(format!(
                        "pixels differ from value {at} on: {} is not {}",
                        found[at], wanted[at]
                    ))
                });
            }
            Ok(relative(&found, &wanted))
        }
        _ => Err("another type".to_owned()),
    }
}

fn equal<T: PartialEq + std::fmt::Debug + ?Sized>(
    what: &str,
    found: &T,
    wanted: &T,
) -> Result<(), String> {
    if found == wanted {
        return Ok(());
    }
    Err(format!("another {what}\n  found    {found:?}\n  expected {wanted:?}"))
}

fn words<const N: usize>(data: &[u8]) -> Vec<[u8; N]> {
    data.chunks_exact(N).map(|bytes| bytes.try_into().expect("N bytes")).collect()
}

/// ‖a − b‖ / ‖b‖
fn relative(found: &[f32], wanted: &[f32]) -> f64 {
    let square = |value: f64| value * value;
    let difference: f64 =
        found.iter().zip(wanted).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let norm: f64 = wanted.iter().map(|b| square(f64::from(*b))).sum();
    if difference == 0.0 {
        return 0.0; // no rows at all among them
    }
    (difference / norm).sqrt()
}

/// The table of measured errors: one row a folder.
pub(crate) fn table(rows: &BTreeMap<String, (usize, Worst)>) -> String {
    let mut table = format!("| checkpoint | cases | {} |\n", KINDS.join(" | "));
    let _ = writeln!(table, "|---|---|{}", "---|".repeat(KINDS.len()));
    for (name, (cases, worst)) in rows {
        let cells = KINDS.map(|kind| worst.get(kind).map_or(String::new(), |e| format!("{e:.0e}")));
        let _ = writeln!(table, "| {name} | {cases} | {} |", cells.join(" | "));
    }
    table
}

/// Where in a page the table below the heading of a backend is.
fn place(page: &str, backend: &str) -> Range<usize> {
    let heading = format!("\n## {backend}\n");
    let below = page.find(&heading).map_or(page.len(), |at| at + heading.len());
    let rest = &page[below..];
    let start = rest.find("\n|").map_or(page.len(), |at| below + at + 1);
    let end = page[start..].find("\n\n").map_or(page.len(), |at| start + at + 1);
    start..end
}

/// Puts `table` in the place of the one that `docs/stages.md` has for a backend, or holds the outlines of the two against
/// each other.
pub(crate) fn document(backend: &str, table: &str) {
    static PAGE: Mutex<()> = Mutex::new(()); // tests of two backends write one page
    let _alone = PAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/stages.md");
    let mut page = fs::read_to_string(&path).unwrap();
    let place = place(&page, backend);
    if env::var_os("UPDATE_STAGES").is_some() {
        page.replace_range(place, table);
        fs::write(path, page).unwrap();
    } else {
        assert_eq!(
            outline(&page[place]),
            outline(table),
            "`UPDATE_STAGES=1 cargo test --release --test goldens` writes docs/stages.md"
        );
    }
}

/// A table without its numbers: which checkpoints are there, how many cases, and which stages each has.
fn outline(table: &str) -> Vec<Vec<String>> {
    let cell = |(at, cell): (usize, &str)| match cell.trim() {
        number if at > 2 && !number.is_empty() => "measured".to_owned(),
        other => other.to_owned(),
    };
    table
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .map(|line| line.split('|').enumerate().map(cell).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_have_kinds() {
        assert_eq!(kind("image.0.features.deepstack.1.rows"), Some("deepstack"));
        assert_eq!(kind("image.1.features"), Some("features"));
        assert_eq!(kind("audio.0.mel.rows"), Some("mel"));
        assert_eq!(kind("logits.tail"), Some("logits"));
        assert_eq!(kind("positions"), None);
        assert_eq!(kind("image.0.pixels"), None);
    }

    #[test]
    fn an_outline_forgets_numbers_but_not_stages() {
        let row = |worst: &[(&'static str, f64)]| {
            let rows = [("x".to_owned(), (3, worst.iter().copied().collect()))];
            outline(&table(&rows.into_iter().collect()))
        };
        assert_eq!(row(&[("logits", 1e-6)]), row(&[("logits", 2e-6)]));
        assert_ne!(row(&[("logits", 1e-6)]), row(&[("embeds", 1e-6)]));
    }

    #[test]
    fn a_backend_has_its_own_table() {
        let page = "# x\n\n## a\n\ntext\n\n| 1 |\n| 2 |\n\n## ab\n\n| 3 |\n";
        assert_eq!(&page[place(page, "a")], "| 1 |\n| 2 |\n");
        assert_eq!(&page[place(page, "ab")], "| 3 |\n");
    }

    #[test]
    fn a_difference_is_relative_to_the_reference() {
        assert!((relative(&[3.0, 5.0], &[3.0, 4.0]) - 0.2).abs() < 1e-12);
        assert!(relative(&[1.0], &[0.0]).is_infinite());
        assert!(relative(&[], &[]).abs() < f64::EPSILON);
    }
}
