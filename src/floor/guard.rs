//! A server's start-up guard: will the worst image ever fit?

use std::error::Error as StdError;
use std::fmt;
use std::path::Path;

use crate::checkpoint::Checkpoint;
use crate::plan::{Modality, Plan};

/// The prompt tokens that one image can cost at most on the checkpoint in `folder`, framing included.
///
/// `None` where no number can be derived: no family matches, a file is missing or not understood, the family takes no
/// images. Logs nothing; [`Plan::floor`] gives the reason.
pub fn image_context_floor(folder: impl AsRef<Path>) -> Option<u64> {
    let checkpoint = Checkpoint::open(folder).ok()?;
    let family = checkpoint.find_family().ok()?;
    let plan = Plan::resolve(&family, &checkpoint).ok()?;
    plan.floor(Modality::Image).ok().map(|floor| floor.floor)
}

/// Refuses a capacity that the worst image exceeds. Ok at the floor and above, and where there is no floor.
///
/// # Errors
/// [`CapacityTooSmall`], naming both numbers.
pub fn ensure_image_context_capacity(
    folder: impl AsRef<Path>,
    capacity: u64,
) -> Result<(), CapacityTooSmall> {
    match image_context_floor(folder) {
        Some(floor) if floor > capacity => Err(CapacityTooSmall { floor, capacity }),
        _ => Ok(()),
    }
}

/// A context capacity below the cost of one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapacityTooSmall {
    /// What one image can cost, in prompt tokens.
    pub floor: u64,
    /// What there is.
    pub capacity: u64,
}

impl fmt::Display for CapacityTooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "one image can cost {} prompt tokens, the capacity is {}",
            self.floor, self.capacity
        )
    }
}

impl StdError for CapacityTooSmall {}
