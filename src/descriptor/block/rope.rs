//! Rotary embeddings.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::backend::Pairing;
use crate::descriptor::slot::{Choice, Count, Flag, Member, Number};

impl Member for Pairing {
    const KIND: &'static str = "pairing";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("half", "Element i is rotated with i + dim / 2.", Self::Half),
        ("interleaved", "Element 2 i is rotated with 2 i + 1.", Self::Interleaved),
    ];
}

/// What one rotary axis counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-kind" = "axis"))]
pub enum RopeAxis {
    /// The position in the sequence (or the first of several position axes).
    Time,
    /// The row of a patch in its picture, or the second position axis.
    Row,
    /// The column of a patch, or the third position axis.
    Col,
}

/// How several axes share the frequencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ladder {
    /// Every axis has a full ladder over its share of the elements.
    Split,
    /// One ladder over all elements; the first axis takes the even rungs, the second the odd ones.
    Strided,
}

impl Member for Ladder {
    const KIND: &'static str = "ladder";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("split", "Every axis has a full ladder over its share of the elements.", Self::Split),
        (
            "strided",
            "One ladder over all elements: the first axis takes its even rungs, the second its odd ones.",
            Self::Strided,
        ),
    ];
}

/// A change of the rotary frequencies for longer contexts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeScaling {
    /// None.
    None,
    /// All frequencies divided by `factor`.
    Linear,
    /// Long waves divided by `factor`, short ones kept, a ramp between.
    Wavelength,
    /// A ramp between kept and divided frequencies by rotation count, and a factor on cosine and sine.
    Yarn,
    /// Every frequency divided by a number of its own.
    Longrope,
    /// The base grows once a sequence is longer than the original length.
    Dynamic,
    /// The ladder of all elements; only the first ones turn.
    Proportional,
}

impl Member for RopeScaling {
    const KIND: &'static str = "rope scaling";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("none", "Frequencies as they are.", Self::None),
        ("linear", "All frequencies divided by `factor`.", Self::Linear),
        (
            "wavelength",
            "Waves longer than `original` / `low` divided by `factor`, those shorter than `original` / `high` kept, a linear ramp between.",
            Self::Wavelength,
        ),
        (
            "yarn",
            "A ramp between kept and divided frequencies from `fast` to `slow` rotations within `original`; cosine and sine are multiplied by 0.1 ln(`factor`) + 1 (with `mscale` and `mscales`, by the quotient of two such), or by `attention`.",
            Self::Yarn,
        ),
        (
            "longrope",
            "Frequency j divided by item j of `short`, or of `long` where a sequence is longer than `original`; cosine and sine are multiplied by √(1 + ln(`factor`) / ln(`original`)), or by `attention`.",
            Self::Longrope,
        ),
        (
            "dynamic",
            "The base grows with the sequence once it is longer than `original`.",
            Self::Dynamic,
        ),
        (
            "proportional",
            "The ladder of a whole head, divided by `factor`; only the elements of `dim` or `part` turn.",
            Self::Proportional,
        ),
    ];
}

/// A rotary embedding. Frequency j of an axis with a ladder over d elements is theta^(−2 j / d).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rope {
    /// What is counted; left out, the position in the sequence. With several axes and no `sections`, the rotated
    /// elements are split evenly and each axis has its own full ladder.
    pub axes: Option<Vec<RopeAxis>>,
    /// Rotated elements per head; left out, all.
    pub dim: Option<Count>,
    /// The part of `dim` that is rotated, a number from 0 to 1: int(dim · part) elements. Left out, 1.
    pub part: Option<Number>,
    /// The base.
    pub theta: Number,
    /// How the axes share the frequencies where there are no `sections`; left out, each has a ladder of its own.
    pub ladder: Option<Choice<Ladder>>,
    /// A change of the frequencies.
    pub scaling: Option<Choice<RopeScaling>>,
    /// The factor of `scaling`.
    pub factor: Option<Number>,
    /// The context length before scaling.
    pub original: Option<Count>,
    /// The number of waves in `original` up to which `wavelength` divides; left out, 1.
    pub low: Option<Number>,
    /// The number of waves in `original` from which `wavelength` keeps; left out, 4.
    pub high: Option<Number>,
    /// Rotations from which `yarn` keeps a frequency; left out, 32.
    pub fast: Option<Number>,
    /// Rotations up to which `yarn` divides a frequency; left out, 1.
    pub slow: Option<Number>,
    /// What `yarn` multiplies ln(`factor`) by in the factor on cosine and sine, where `mscales` is stated as well; 0 or left out, none.
    pub mscale: Option<Number>,
    /// And in the number that this factor is divided by; 0 or left out, none.
    pub mscales: Option<Number>,
    /// Whether `yarn` rounds the ends of its ramp to whole frequencies; left out, it does.
    pub truncate: Option<Flag>,
    /// Factor on cosine and sine, by the name of a config value; 0 or left out, what the scaling computes.
    pub attention: Option<Number>,
    /// The divisors of `longrope` up to the original length, by the name of a config value.
    #[schemars(extend("x-reads" = "value"))]
    pub short: Option<String>,
    /// The divisors of `longrope` beyond the original length, by the name of a config value.
    #[schemars(extend("x-reads" = "value"))]
    pub long: Option<String>,
    /// Which elements form a pair.
    pub pairing: Choice<Pairing>,
    /// One ladder shared by the axes, cut into sections of these many frequencies, one per axis, by the name of a config value.
    #[schemars(extend("x-reads" = "value"))]
    pub sections: Option<String>,
    /// Whether sections are dealt out in turn (axis 0, 1, 2, 0, 1, 2, …, the rest to axis 0) rather than consecutive.
    pub interleaved: Option<Flag>,
    /// Whether every axis turns a run of elements of its own, whose pairs lie within it, first axis first; left out, pairs are
    /// formed over all rotated elements.
    pub apart: Option<Flag>,
}
