//! What a size policy makes of one input, and formulas over it.

use std::collections::BTreeMap;
use std::fmt;

use crate::descriptor::expression::{Bound, Expression, ExpressionError};

/// The longest side of an admissible image, in pixels.
pub const LONGEST_SIDE: u32 = 65_535;

/// The size of an image in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSize {
    /// Columns of pixels.
    pub width: u32,
    /// Rows of pixels.
    pub height: u32,
}

impl fmt::Display for ImageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

/// The most names that a policy gives.
const MOST_NAMES: usize = 12;

/// What a policy makes of one input: a handful of named integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    names: &'static [&'static str],
    values: [u32; MOST_NAMES],
}

impl Layout {
    /// The layout whose names, in the policy's order, have these values.
    pub fn new<const N: usize>(names: &'static [&'static str; N], values: [u32; N]) -> Self {
        const { assert!(N <= MOST_NAMES) };
        let mut all = [0; MOST_NAMES];
        for (slot, value) in all.iter_mut().zip(values) {
            *slot = value;
        }
        Self { names, values: all }
    }

    /// The names that expressions use, with the values.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, u32)> + '_ {
        self.names.iter().copied().zip(self.values)
    }

    /// The values as bindings of an expression.
    pub fn bindings(&self) -> BTreeMap<String, Bound> {
        self.fields()
            .map(|(name, value)| (name.to_owned(), Bound::Integer(i64::from(value))))
            .collect()
    }

    /// One value by its name.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.fields().find(|(field, _)| *field == name).map(|(_, value)| value)
    }
}

/// A polynomial over the names of a policy: powers (in the order of the names) and their factors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Polynomial {
    terms: BTreeMap<Vec<u32>, i64>,
}

impl Polynomial {
    /// The polynomial of these terms.
    pub fn new(terms: BTreeMap<Vec<u32>, i64>) -> Self {
        Self { terms }
    }

    /// The polynomial of an expression over `names`, the config values bound; `None` where it is none.
    pub fn of(
        expression: &Expression,
        names: &[&str],
        bindings: &BTreeMap<String, Bound>,
    ) -> Option<Self> {
        expression.polynomial(names, bindings).map(Self::new)
    }

    /// The terms: powers and factor.
    pub fn terms(&self) -> impl Iterator<Item = (&[u32], i64)> {
        self.terms.iter().map(|(powers, factor)| (powers.as_slice(), *factor))
    }

    /// Its value; `None` beyond 64 bits.
    pub fn at(&self, layout: &Layout) -> Option<i64> {
        let mut sum = 0_i64;
        for (powers, factor) in &self.terms {
            let mut term = *factor;
            for (power, value) in powers.iter().zip(layout.values) {
                term = term.checked_mul(i64::from(value).checked_pow(*power)?)?;
            }
            sum = sum.checked_add(term)?;
        }
        Some(sum)
    }

    /// Whether no factor is negative: then it never falls when a value grows.
    pub fn rises(&self) -> bool {
        self.terms.values().all(|factor| *factor >= 0)
    }
}

/// Something that is computed from a layout: the length of a strip, the rows of an encoder, its patches.
pub struct Formula<'a> {
    /// Its value.
    pub value: &'a dyn Fn(&Layout) -> Result<i64, ExpressionError>,
    /// The same as a polynomial over the policy's names, where it is one.
    pub polynomial: Option<Polynomial>,
}

impl Formula<'_> {
    /// Its value for one layout; quick where it is a polynomial.
    pub fn at(&self, layout: &Layout) -> Result<i64, ExpressionError> {
        match self.polynomial.as_ref().and_then(|polynomial| polynomial.at(layout)) {
            Some(value) => Ok(value),
            None => (self.value)(layout),
        }
    }

    /// Whether it is known never to fall when a value of the layout grows.
    pub fn rises(&self) -> bool {
        self.polynomial.as_ref().is_some_and(Polynomial::rises)
    }
}

/// The largest value, and an input that reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Maximum<Input = ImageSize> {
    /// The value.
    pub value: i64,
    /// The input.
    pub witness: Input,
    /// Whether the witness has exactly this value; otherwise no image has more.
    pub exact: bool,
}

impl<Input> Maximum<Input> {
    /// The same with another witness.
    pub fn map<Other>(self, witness: impl FnOnce(Input) -> Other) -> Maximum<Other> {
        Maximum { value: self.value, witness: witness(self.witness), exact: self.exact }
    }
}

/// A size policy of pictures with all its parameters known.
pub trait SizePolicy {
    /// The names of its layouts.
    fn names(&self) -> &'static [&'static str];
    /// The layout of one image alone in its prompt, or why the reference refuses it (a sentence without a full stop).
    fn layout(&self, size: ImageSize) -> Result<Layout, String>;
    /// The largest value of `formula` over all admissible images, with an image that reaches it; `None` if every image
    /// is refused.
    fn maximum(&self, formula: &Formula<'_>) -> Result<Option<Maximum>, ExpressionError>;
    /// Layouts to hold statements against: all of a small domain, or its corners and a regular sample.
    fn samples(&self) -> Vec<Layout>;
    /// `fixed` where every image costs the same, `per tile`, or `dynamic`.
    fn budget_kind(&self) -> &'static str;
}
