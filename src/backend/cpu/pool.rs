//! Memory of activations that is used again.
//!
//! A forward pass makes and drops tensors of the same few sizes block after block. Memory that is given back to the system
//! and asked for anew costs a page fault for every 4 KiB, and zeros that nobody reads: a sixth of the time of a tower at
//! 729 patches. So what tensors leave behind is kept for the next ones, at most [`MOST`] in all, while there is a backend.

use std::collections::TryReserveError;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Elements below which memory is left to the allocator, which keeps it itself: 64 KiB.
const LEAST: usize = 1 << 14;
/// Elements that are kept, at most: 128 MiB.
const MOST: usize = 1 << 25;

/// Memory that nobody uses, the oldest first.
struct Free {
    /// Backends that there are.
    users: usize,
    memory: VecDeque<Vec<f32>>,
    /// Elements that `memory` has room for.
    elements: usize,
}

static FREE: Mutex<Free> = Mutex::new(Free { users: 0, memory: VecDeque::new(), elements: 0 });

fn free() -> MutexGuard<'static, Free> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While one of these lives, memory is kept.
pub(super) struct User;

impl User {
    pub(super) fn new() -> Self {
        free().users += 1;
        Self
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let mut free = free();
        free.users -= 1;
        if free.users == 0 {
            free.memory.clear();
            free.elements = 0;
        }
    }
}

/// A vector with room for `length` elements, and with any contents.
pub(super) fn take(length: usize) -> Result<Vec<f32>, TryReserveError> {
    if let Some(memory) = used(length) {
        return Ok(memory);
    }
    let mut memory = Vec::new();
    // so that a little more fits another time
    let room = if length < LEAST { length } else { length.saturating_add(length / 16) };
    memory.try_reserve_exact(room).or_else(|_| memory.try_reserve_exact(length))?;
    Ok(memory)
}

/// The smallest memory that is large enough, unless it is much too large.
fn used(length: usize) -> Option<Vec<f32>> {
    if length < LEAST {
        return None;
    }
    let mut free = free();
    let rooms = free.memory.iter().map(Vec::capacity).enumerate();
    let fits =
        rooms.filter(|(_, room)| (length..=length.saturating_add(length / 4)).contains(room));
    let (at, room) = fits.min_by_key(|(_, room)| *room)?;
    free.elements -= room;
    free.memory.remove(at)
}

/// Keeps memory for another time.
pub(super) fn give(memory: Vec<f32>) {
    let room = memory.capacity();
    if !(LEAST..=MOST).contains(&room) {
        return;
    }
    let mut dropped = Vec::new(); // freed when the lock is, which takes its time
    let mut free = free();
    if free.users == 0 {
        return;
    }
    free.elements += room;
    free.memory.push_back(memory);
    while free.elements > MOST {
        let Some(oldest) = free.memory.pop_front() else { break };
        free.elements -= oldest.capacity();
        dropped.push(oldest);
    }
    drop(free);
}

#[cfg(test)]
mod tests {
    use super::*;

    // other tests of the process use the pool at the same time, so only what they cannot change is looked at
    #[test]
    fn memory_is_taken_again_while_there_is_a_user() {
        let _user = User::new();
        let length = 3 * LEAST + 12_345; // no other test has tensors of this size
        let memory = take(length).unwrap();
        let (place, room) = (memory.as_ptr(), memory.capacity());
        assert!(room >= length && room <= length + length / 8);
        give(memory);
        assert!(used(room + 1).is_none_or(|other| other.as_ptr() != place));
        assert!(used(2 * length / 3).is_none_or(|other| other.as_ptr() != place));
        let again = take(length - 7).unwrap();
        assert_eq!(again.as_ptr(), place);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let _user = User::new();
        for _ in 0..20 {
            give(Vec::with_capacity(MOST / 8 - 999));
            let free = free();
            assert!(free.elements <= MOST);
            assert_eq!(free.elements, free.memory.iter().map(Vec::capacity).sum::<usize>());
        }
        give(Vec::with_capacity(MOST + 1));
        give(Vec::with_capacity(3));
        assert!(free().memory.iter().all(|memory| (LEAST..=MOST).contains(&memory.capacity())));
        assert!(take(usize::MAX).is_err());
    }
}
