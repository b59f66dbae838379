//! How far a long call has come, told while it works; the one who listens can also stop it.

use crate::error::{Error, ErrorKind, Result};

/// How far a call has come.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Weights are read and prepared.
    Loading {
        /// Bytes of the tensors that are ready.
        done: u64,
        /// Bytes of all tensors that the run needs; 0 where that is not known.
        total: u64,
    },
    /// Media items go through tower and connector.
    Encoding {
        /// Items that are ready.
        done: usize,
        /// All items of the prompt.
        total: usize,
    },
    /// The prompt goes through the decoder.
    Prefill {
        /// Tokens of the prompt.
        tokens: usize,
    },
    /// Tokens behind the prompt are generated or scored.
    Decoding {
        /// Tokens that are there.
        done: usize,
        /// At most this many will be.
        total: usize,
    },
}

/// Listens to a call. `()` does not, and lets every call run to its end.
///
/// Threads of a call may report at the same time, so an observer is shared between them.
pub trait Observer: Send + Sync {
    /// Told before the first piece of a stage and after each. An error ends the call, which returns it.
    fn progress(&self, progress: Progress) -> Result<()>;
}

impl Observer for () {
    fn progress(&self, _progress: Progress) -> Result<()> {
        Ok(())
    }
}

impl<O: Observer + ?Sized> Observer for &O {
    fn progress(&self, progress: Progress) -> Result<()> {
        (**self).progress(progress)
    }
}

impl<O: Observer + ?Sized> Observer for std::sync::Arc<O> {
    fn progress(&self, progress: Progress) -> Result<()> {
        (**self).progress(progress)
    }
}

/// What an observer returns to stop a call.
pub fn interrupted() -> Error {
    Error::new(ErrorKind::Interrupted, "interrupted")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Third(AtomicUsize);

    impl Observer for Third {
        fn progress(&self, _progress: Progress) -> Result<()> {
            if self.0.fetch_add(1, Ordering::Relaxed) < 2 { Ok(()) } else { Err(interrupted()) }
        }
    }

    #[test]
    fn an_observer_stops_whoever_asks_it() {
        fn call(observer: &dyn Observer) -> Result<usize> {
            for done in 0..5 {
                observer.progress(Progress::Encoding { done, total: 5 })?;
            }
            Ok(5)
        }
        assert_eq!(call(&()).unwrap(), 5);
        let third = std::sync::Arc::new(Third(AtomicUsize::new(0)));
        assert_eq!(call(&third).unwrap_err().kind(), ErrorKind::Interrupted);
        assert_eq!(third.0.load(Ordering::Relaxed), 3);
    }
}
