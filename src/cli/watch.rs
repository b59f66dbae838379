//! Who listens to long calls at the command line: a progress bar on a terminal, and Ctrl-C.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use vlm_spec::error::Result;
use vlm_spec::progress::{Observer, Progress, interrupted};

use super::output::{Status, note};

/// Whether Ctrl-C was pressed.
static PRESSED: AtomicBool = AtomicBool::new(false);

const SPINNER: &str = "{spinner} {msg} {elapsed}";
const BYTES: &str = "{spinner} {msg} [{bar:30}] {bytes}/{total_bytes} {elapsed}";
const ITEMS: &str = "{spinner} {msg} [{bar:30}] {pos}/{len} {elapsed}";

/// A progress bar that the first Ctrl-C stops at its next step.
pub(super) struct Watch {
    bar: ProgressBar,
    quiet: bool,
    /// The longest sequence that the decoder was made for, until a longer one was noted.
    context: AtomicU64,
}

impl Watch {
    /// Watches from now on. The second Ctrl-C ends the program at once. Where the signal is ignored, as in a script's
    /// background, it stays ignored.
    pub(super) fn start(quiet: bool) -> Self {
        let _ = ctrlc::try_set_handler(|| {
            if PRESSED.swap(true, Ordering::SeqCst) {
                std::process::exit(Status::Interrupted.number().into());
            }
        });
        let bar = if quiet || !io::stderr().is_terminal() {
            ProgressBar::hidden()
        } else {
            let bar = ProgressBar::no_length().with_message("starting");
            if let Ok(style) = ProgressStyle::with_template(SPINNER) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        };
        Self { bar, quiet, context: AtomicU64::new(u64::MAX) }
    }

    /// Whether Ctrl-C was pressed.
    pub(super) fn pressed() -> bool {
        PRESSED.load(Ordering::SeqCst)
    }

    /// Ends the command if Ctrl-C was pressed.
    pub(super) fn go_on() -> Result<()> {
        if Self::pressed() { Err(interrupted()) } else { Ok(()) }
    }

    /// Sets the longest sequence that the decoder was made for.
    pub(super) fn set_context(&self, tokens: u64) {
        self.context.store(tokens, Ordering::Relaxed);
    }

    /// Shows that item `done` of `total` is being read.
    pub(super) fn reading(&self, done: usize, total: usize) -> Result<()> {
        self.show(ITEMS, "reading media", done as u64, total as u64);
        Self::go_on()
    }

    /// Takes the bar away, before something is printed.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Writes a line to stderr, unless only errors are wanted.
    pub(super) fn note(&self, text: &str) {
        if !self.quiet {
            self.bar.suspend(|| note(text));
        }
    }

    /// Notes, once, a sequence that is longer than the decoder was made for. The reference runs it as well.
    pub(super) fn hold_context(&self, what: &str, tokens: usize) {
        let context = self.context.load(Ordering::Relaxed);
        if tokens as u64 > context {
            self.context.store(u64::MAX, Ordering::Relaxed);
            self.note(&format!(
                "note: {what} {tokens} tokens, but the decoder was made for {context} \
                 (config.json: max_position_embeddings)"
            ));
        }
    }

    fn show(&self, template: &str, message: &'static str, done: u64, total: u64) {
        if self.bar.is_hidden() {
            return;
        }
        self.bar.set_message(message);
        self.bar.set_length(total);
        self.bar.set_position(done);
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("=> "));
        }
    }
}

impl Observer for Watch {
    fn progress(&self, progress: Progress) -> Result<()> {
        match progress {
            Progress::Loading { done, total: 0 } => self.show(SPINNER, "loading weights", done, 0),
            Progress::Loading { done, total } => self.show(BYTES, "loading weights", done, total),
            Progress::Encoding { total: 0, .. } => {}
            Progress::Encoding { done, total } => {
                self.show(ITEMS, "encoding", done as u64, total as u64);
            }
            Progress::Prefill { tokens } => {
                self.hold_context("the prompt has", tokens);
                self.show(SPINNER, "reading the prompt", 0, 0);
            }
            Progress::Decoding { done, total } => {
                self.show(ITEMS, "tokens", done as u64, total as u64);
            }
            _ => self.show(SPINNER, "working", 0, 0),
        }
        Self::go_on()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.clear();
    }
}
