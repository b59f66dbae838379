//! What deriving a floor costs, per published checkpoint folder: `cargo bench --bench floors`.
//!
//! Two numbers each: the whole derivation from the folder (reading config files, finding the family, binding it, all maxima),
//! and the floors of a plan that is bound already. Medians of several rounds; the folder's own tokenizer, where one is there and
//! something has to be measured with it, is part of the first. The last lines are limits far beyond any published file.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and may panic")]

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use vlm_spec::checkpoint::Checkpoint;
use vlm_spec::plan::{Overrides, Plan};

const ROUNDS: usize = 31;

fn median(mut work: impl FnMut()) -> Duration {
    let mut times: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[ROUNDS / 2]
}

fn floors(plan: &Plan) {
    for modality in plan.modalities() {
        let _ = black_box(plan.floor(modality));
    }
}

fn bind(folder: &Path, overrides: &Overrides) -> Option<Plan> {
    let checkpoint = Checkpoint::open(folder).unwrap();
    let family = checkpoint.find_family().ok()?;
    Plan::resolve_with(&family, &checkpoint, overrides).ok()
}

fn row(name: &str, folder: &Path, overrides: &Overrides) {
    let Some(plan) = bind(folder, overrides) else { return };
    if plan.modalities().iter().all(|modality| plan.floor(*modality).is_err()) {
        return;
    }
    let whole = median(|| floors(&bind(folder, overrides).unwrap()));
    let maxima = median(|| floors(&plan));
    println!(
        "{name:<52} {:>9.2} ms {:>9.3} ms",
        whole.as_secs_f64() * 1e3,
        maxima.as_secs_f64() * 1e3
    );
}

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints");
    println!("{:<52} {:>12} {:>12}", "checkpoint", "derivation", "maxima");
    let mut folders: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    for path in folders.iter().filter(|path| path.is_dir()) {
        row(&path.file_name().unwrap().to_string_lossy(), path, &Overrides::new());
    }
    for (name, setting, value) in [
        ("Qwen__Qwen2-VL-2B-Instruct", "image.most", 1_000_000_000_u64),
        ("HuggingFaceTB__SmolVLM-256M-Instruct", "image.longest", 4096),
        ("allenai__Molmo2-4B", "image.most", 128),
    ] {
        let overrides = Overrides::from_iter([(setting.to_owned(), value.into())]);
        row(&format!("{name} {setting}={value}"), &folder.join(name), &overrides);
    }
}
