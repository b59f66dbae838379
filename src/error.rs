//! The crate's one error type: opaque, with a kind that callers may match on.

use std::error::Error as StdError;
use std::fmt;

use crate::problem::Problems;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in words for a person and a [`ErrorKind`] for a program.
///
/// `Display` prints one line; hints and single problems are separate ([`Error::hint`], [`Error::problems`]).
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    problems: Problems,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kinds of failure. New kinds may be added.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The caller asked for something contradictory or unknown.
    Usage,
    /// A family file is not well formed; [`Error::problems`] lists why.
    Descriptor,
    /// No family, or more than one, matches a checkpoint.
    NoFamily,
    /// A checkpoint folder or one of its files cannot be read.
    Checkpoint,
    /// A value that a number depends on is missing, contradictory or not understood.
    NoNumber,
    /// Tensors are missing, have the wrong shape, or a weight file is damaged.
    Weights,
    /// The tokenizer or the chat template cannot be used.
    Tokenizer,
    /// Media markers and media items do not fit together.
    Placeholders,
    /// An image or audio file cannot be read or is not admissible.
    Media,
    /// A backend or device is not there, or failed.
    Backend,
    /// Something this program recognises and does not do (quantised weights, video).
    Unsupported,
    /// Writing an output file failed.
    Output,
    /// The caller stopped the call.
    Interrupted,
}

impl Error {
    /// An error of `kind`; `message` is lower case, without a final period, values in backticks.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            hint: None,
            problems: Problems::default(),
            source: None,
        }))
    }

    /// Adds advice that is printed apart from the message.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Adds the list of problems that this error sums up.
    #[must_use]
    pub fn with_problems(mut self, problems: Problems) -> Self {
        self.0.problems = problems;
        self
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The one-line message, without the source.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Advice, if there is any.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The single problems behind this error, empty for most kinds.
    pub fn problems(&self) -> &Problems {
        &self.0.problems
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
