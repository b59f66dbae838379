//! What every published checkpoint folder gives: right floors, or the reason why there is none; never a wrong number.
//!
//! `tests/fixtures/published.tsv` holds one line a folder and modality: the family, the expansion and the framing of the
//! floor with whether each is exact, the embeds, and what else is counted; or the reason. The numbers were held against the
//! reference processor (see `PROVENANCE.tsv` beside the folders for where the files come from). Where the family is unknown,
//! the error must name the families that there are.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use vlm_spec::checkpoint::Checkpoint;
use vlm_spec::error::ErrorKind;
use vlm_spec::floor::Floor;
use vlm_spec::layout::MediaSize;
use vlm_spec::plan::Plan;
use vlm_spec::{ensure_image_context_capacity, image_context_floor};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<_> = fs::read_dir(fixtures().join("checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

fn size(size: MediaSize) -> String {
    size.to_string().replace(' ', "_")
}

fn describe(floor: &Floor) -> String {
    let exact = |exact: bool| if exact { "exact" } else { "bound" };
    let mut text = format!(
        "{} {} at {}, framing {} {}, embeds {}",
        floor.expansion,
        exact(floor.exact),
        size(floor.witness),
        floor.framing,
        exact(floor.framing_exact),
        floor.embeds
    );
    if let Some((patches, witness)) = floor.patches {
        write!(text, ", patches {patches} at {}", size(witness)).unwrap();
    }
    if let Some(states) = floor.states {
        write!(text, ", states {states}").unwrap();
    }
    text
}

fn line(folder: &Path) -> String {
    let name = folder.file_name().unwrap().to_string_lossy();
    let checkpoint = Checkpoint::open(folder).unwrap();
    let family = match checkpoint.find_family() {
        Ok(family) => family,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NoFamily, "{name}: {error}");
            if error.to_string().starts_with("no family matches") {
                let hint = error.hint().unwrap_or_default();
                assert!(
                    hint.contains("llava (llava)") && hint.contains("qwen2vl"),
                    "{name}: {hint}"
                );
            }
            let reason = error.to_string();
            let reason = reason.rsplit('/').next().unwrap().trim_start_matches('`').to_owned();
            return format!("{name}\t-\t-\t{reason}\n");
        }
    };
    let plan = Plan::resolve(&family, &checkpoint).unwrap();
    let mut text = String::new();
    for modality in plan.modalities() {
        let outcome = match plan.floor(modality) {
            Ok(floor) => {
                // what the witness costs, run forward
                let cost = plan.count(floor.witness).unwrap();
                assert!(cost.expansion <= floor.expansion, "{name}");
                assert!(!floor.exact || cost.expansion == floor.expansion, "{name}");
                describe(&floor)
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoNumber, "{name}: {error}");
                error.to_string()
            }
        };
        writeln!(text, "{name}\t{}\t{}\t{outcome}", plan.family(), modality.name()).unwrap();
    }
    text
}

#[test]
fn every_published_folder_gives_what_is_written() {
    let path = fixtures().join("published.tsv");
    let head = "checkpoint\tfamily\tmodality\tfloor, or why there is none\n";
    let found: String =
        head.to_owned() + &folders().iter().map(|folder| line(folder)).collect::<String>();
    if std::env::var_os("UPDATE_PUBLISHED").is_some() {
        fs::write(&path, &found).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap();
    for (written, found) in written.lines().zip(found.lines()) {
        assert_eq!(written, found);
    }
    assert_eq!(written.lines().count(), found.lines().count());
}

/// A server's guard: Ok at the floor, an error one below, Ok where there is no number; no folder panics.
#[test]
fn the_guard_holds_for_every_folder() {
    let mut numbers = 0;
    for folder in folders() {
        match image_context_floor(&folder) {
            Some(floor) => {
                numbers += 1;
                ensure_image_context_capacity(&folder, floor).unwrap();
                let error = ensure_image_context_capacity(&folder, floor - 1).unwrap_err();
                assert_eq!((error.floor, error.capacity), (floor, floor - 1));
            }
            None => ensure_image_context_capacity(&folder, 0).unwrap(),
        }
    }
    assert!(numbers > 20, "{numbers}");
}

const BEGIN: &str = "<!-- families: generated, see tests/published.rs -->\n";
const END: &str = "<!-- end of families -->";

/// Folders of config files: published ones, then those made from recorded settings for families without.
fn by_family() -> Vec<(String, &'static str, PathBuf)> {
    let mut found: Vec<(String, &'static str, PathBuf)> = Vec::new();
    for (place, kind) in [("checkpoints", "published"), ("witness", "recorded")] {
        let Ok(entries) = fs::read_dir(fixtures().join(place)) else { continue };
        let mut folders: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        folders.sort();
        for folder in folders.into_iter().filter(|folder| folder.is_dir()) {
            let checkpoint = Checkpoint::open(&folder).unwrap();
            let Ok(family) = checkpoint.find_family() else { continue };
            let Ok(plan) = Plan::resolve(&family, &checkpoint) else { continue };
            let numbers = plan.modalities().iter().all(|modality| plan.floor(*modality).is_ok());
            if numbers && found.iter().all(|(known, ..)| known != family.name()) {
                found.push((family.name().to_owned(), kind, folder));
            }
        }
    }
    found.sort();
    found
}

fn table() -> String {
    let mut text = String::from(
        "| family | lines | config files | modality | floor | witness | exact |\n|---|---|---|---|---|---|---|\n",
    );
    for (family, kind, folder) in by_family() {
        let checkpoint = Checkpoint::open(&folder).unwrap();
        let plan = Plan::resolve(&checkpoint.find_family().unwrap(), &checkpoint).unwrap();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("families/{family}.toml"));
        let lines = fs::read_to_string(file).unwrap().lines().count();
        let name = match kind {
            "published" => folder.file_name().unwrap().to_string_lossy().replacen("__", "/", 1),
            other => other.to_owned(),
        };
        for modality in plan.modalities() {
            let floor = plan.floor(modality).unwrap();
            let exact = match (floor.exact, floor.framing_exact) {
                (true, true) => "exact",
                (true, false) => "exact; framing is a bound",
                (false, _) => "bound",
            };
            writeln!(
                text,
                "| {family} | {lines} | {name} | {} | {} + {} | {} | {exact} |",
                modality.name(),
                floor.expansion,
                floor.framing,
                floor.witness
            )
            .unwrap();
        }
    }
    text
}

/// The table of families in `docs/floors.md` says what the program says.
#[test]
fn the_table_of_families_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/floors.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the table");
    let (_, after) = rest.split_once(END).expect("the table has an end");
    let expected = format!("{before}{BEGIN}{}{END}{after}", table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap() == expected,
        "run `UPDATE_DOCS=1 cargo nextest run --test published`"
    );
}
