//! A family file by itself: mistakes that need no checkpoint to be seen.

mod length;
mod matches;
mod roots;
mod samples;
mod unread;

use crate::descriptor::{Descriptor, RawDescriptor};
use crate::error::Result;
use crate::problem::Problems;

/// Checks `raw` with every combination of its parts: what does not fit together, what differs from what it repeats, what
/// nothing reads or can reach, and what it cannot be told apart from.
///
/// # Errors
/// Only where a built-in family cannot be read.
pub fn check_family(raw: &RawDescriptor) -> Result<Problems> {
    match describe(raw) {
        Ok(descriptors) => mistakes(raw, &descriptors),
        Err(problems) => Ok(problems),
    }
}

/// The family with every combination of its parts, or what is wrong with some.
pub(super) fn describe(raw: &RawDescriptor) -> Result<Vec<Descriptor>, Problems> {
    let mut problems = Problems::default();
    let mut descriptors = Vec::new();
    for parts in raw.combinations() {
        match raw.describe(&parts) {
            Ok(descriptor) => descriptors.push(descriptor),
            Err(error) => super::add_new(&mut problems, error.problems().clone()),
        }
    }
    if problems.is_empty() { Ok(descriptors) } else { Err(problems) }
}

/// Mistakes of a family that is well formed with every combination of its parts.
pub(super) fn mistakes(raw: &RawDescriptor, descriptors: &[Descriptor]) -> Result<Problems> {
    let mut findings = Problems::default();
    for descriptor in descriptors {
        super::add_new(&mut findings, length::check(descriptor));
        super::add_new(&mut findings, roots::check(descriptor));
    }
    super::add_new(&mut findings, unread::check(descriptors));
    super::add_new(&mut findings, matches::check(raw)?);
    Ok(findings)
}
