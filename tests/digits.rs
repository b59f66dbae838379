//! The trained example: `spec run` reads numbers of handwritten digits that it has never seen.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "common/device.rs"]
mod device;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/digits")
}

/// What `spec run` prints for one picture.
fn read(picture: &Path, backend: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_spec"))
        .arg("run")
        .arg(example())
        .arg("--image")
        .arg(picture)
        .args(["--backend", backend, "--threads", "1", "--quiet", "Read the number."])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", picture.display());
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

struct Label {
    file: String,
    number: String,
    reference: String,
}

/// `labels.tsv`: a heading, then a line per picture.
fn labels() -> Vec<Label> {
    let text = fs::read_to_string(example().join("pictures/labels.tsv")).unwrap();
    let mut lines = text.lines();
    let heading: Vec<_> = lines.next().unwrap().split('\t').collect();
    let column = |name: &str| heading.iter().position(|found| *found == name).unwrap();
    let (file, number, reference) = (column("file"), column("number"), column("reference"));
    lines
        .map(|line| {
            let cells: Vec<_> = line.split('\t').collect();
            Label {
                file: cells[file].to_owned(),
                number: cells[number].to_owned(),
                reference: cells[reference].to_owned(),
            }
        })
        .collect()
}

/// 500 held-out pictures: at least 98 % of digits and 93 % of numbers right, and what the reference reads.
#[test]
fn held_out_numbers_are_read() {
    let labels = labels();
    assert_eq!(labels.len(), 500);
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(vec![String::new(); labels.len()]);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(label) = labels.get(index) else { break };
                    let answer = read(&example().join("pictures").join(&label.file), "cpu");
                    answers.lock().unwrap()[index] = answer;
                }
            });
        }
    });
    let answers = answers.into_inner().unwrap();
    let (mut digits, mut right_digits, mut right_numbers, mut as_reference) = (0, 0, 0, 0);
    for (label, answer) in labels.iter().zip(&answers) {
        digits += label.number.len();
        right_digits += label
            .number
            .bytes()
            .zip(answer.bytes())
            .filter(|(wanted, found)| wanted == found)
            .count();
        right_numbers += usize::from(label.number == *answer);
        as_reference += usize::from(label.reference == *answer);
    }
    println!(
        "{right_digits} of {digits} digits, {right_numbers} of 500 numbers, {as_reference} as the reference reads them"
    );
    assert!(right_digits * 100 >= digits * 98, "{right_digits} of {digits} digits");
    assert!(right_numbers * 100 >= 500 * 93, "{right_numbers} of 500 numbers");
    // a near-tie may fall the other way under another order of summation, once in a long while
    assert!(as_reference >= 499, "{as_reference} of 500 as the reference");
}

/// Every 12th picture on a device: the very answers of the CPU.
#[cfg(feature = "wgpu")]
#[test]
fn a_device_reads_what_the_cpu_reads() {
    if device::wgpu().is_none() {
        return;
    }
    for label in labels().iter().step_by(12) {
        let picture = example().join("pictures").join(&label.file);
        assert_eq!(read(&picture, "wgpu"), read(&picture, "cpu"), "{}", label.file);
    }
}
