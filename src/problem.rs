//! Problems of a descriptor or a checkpoint: collected, placed, and printed with a hint.

use std::fmt;

/// How much a [`Problem`] weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Works, but is probably not what was meant.
    Warning,
    /// Cannot work, or would give a wrong number.
    Error,
}

impl Level {
    /// The word used in messages and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Where a problem sits. Any part may be unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The file, as the user named it.
    pub file: Option<String>,
    /// The dotted key path in that file.
    pub key: Option<String>,
    /// The line, counted from 1.
    pub line: Option<usize>,
}

/// One thing that is wrong, with what was expected and what was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// A stable kebab-case code, documented in `docs/findings.md`.
    pub code: &'static str,
    /// How much it weighs.
    pub level: Level,
    /// One sentence, lower case, no final period, values in backticks.
    pub message: String,
    /// Where it is.
    pub place: Place,
    /// What would have been right.
    pub expected: Option<String>,
    /// What is there.
    pub found: Option<String>,
    /// Advice.
    pub hint: Option<String>,
}

impl Problem {
    /// An error-level problem without a place.
    pub fn error(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            level: Level::Error,
            message: message.into(),
            place: Place::default(),
            expected: None,
            found: None,
            hint: None,
        }
    }

    /// The same at another level.
    #[must_use]
    pub fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// Sets the file.
    #[must_use]
    pub fn in_file(mut self, file: impl Into<String>) -> Self {
        self.place.file = Some(file.into());
        self
    }

    /// Sets the key.
    #[must_use]
    pub fn at_key(mut self, key: impl Into<String>) -> Self {
        self.place.key = Some(key.into());
        self
    }

    /// Sets the whole place.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = place;
        self
    }

    /// States what was expected and what was found.
    #[must_use]
    pub fn expected_found(mut self, expected: impl Into<String>, found: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self.found = Some(found.into());
        self
    }

    /// Adds advice.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Problem {
    /// Several lines: `level[code]: message`, `--> file:line: key`, `expected`, `found`, `hint`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]: {}", self.level.word(), self.code, self.message)?;
        let Place { file, key, line } = &self.place;
        let place = match (file, line) {
            (Some(file), Some(line)) => Some(format!("{file}:{line}")),
            (Some(file), None) => Some(file.clone()),
            (None, Some(line)) => Some(format!("line {line}")),
            (None, None) => None,
        };
        match (place, key) {
            (Some(place), Some(key)) => write!(f, "\n  --> {place}: {key}")?,
            (Some(place), None) => write!(f, "\n  --> {place}")?,
            (None, Some(key)) => write!(f, "\n  --> {key}")?,
            (None, None) => {}
        }
        if let Some(expected) = &self.expected {
            write!(f, "\n   expected: {expected}")?;
        }
        if let Some(found) = &self.found {
            write!(f, "\n      found: {found}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n       hint: {hint}")?;
        }
        Ok(())
    }
}

/// An ordered collection of problems.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Adds one.
    pub fn push(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    /// Adds one unless the same is known, wherever it was found: many values may suffer from one missing file.
    pub fn push_new(&mut self, problem: Problem) {
        let known = |other: &Problem| {
            other.code == problem.code
                && other.message == problem.message
                && (other.place == problem.place
                    || ["config-file", "config-variant"].contains(&problem.code))
        };
        if !self.0.iter().any(known) {
            self.0.push(problem);
        }
    }

    /// Adds many.
    pub fn extend(&mut self, problems: impl IntoIterator<Item = Problem>) {
        self.0.extend(problems);
    }

    /// Whether any is an error.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|problem| problem.level == Level::Error)
    }

    /// Whether there is none at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// One by one, in the order found.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}
