//! Norms, and where they stand in a block.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::backend::NormKind;
use crate::descriptor::slot::{Choice, Flag, Member, Number};

impl Member for NormKind {
    const KIND: &'static str = "norm kind";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("layer", "(x − mean) / √(var + eps) · weight + bias.", Self::Layer),
        ("rms", "x / √(mean(x²) + eps) · weight.", Self::Rms),
    ];
}

/// What a norm multiplies by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormWeight {
    /// The stored vector.
    Stored,
    /// One plus the stored vector.
    OnePlus,
    /// Nothing; no tensor is stored.
    None,
}

impl Member for NormWeight {
    const KIND: &'static str = "norm weight";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("stored", "The stored vector.", Self::Stored),
        ("one_plus", "One plus the stored vector.", Self::OnePlus),
        ("none", "Nothing: no tensor is stored.", Self::None),
    ];
}

/// A norm and its parameters.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Norm {
    /// The kind.
    pub kind: Choice<NormKind>,
    /// Added to the variance or mean square.
    pub eps: Number,
    /// The tensor's name below its component's root; inside a stack slot names stand instead.
    pub name: Option<String>,
    /// Whether there is a bias tensor. Left out: a layer norm has one, an rms norm has none.
    pub bias: Option<Flag>,
    /// What it multiplies by; left out, the stored vector.
    pub weight: Option<Choice<NormWeight>>,
}

/// Where the norms of a block stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// x + f(norm(x)), for attention and for the mlp.
    Pre,
    /// norm(x + f(x)), for attention and for the mlp.
    Post,
    /// x + norm(f(x)), for attention and for the mlp.
    Branch,
    /// x + norm(f(norm(x))), for attention and for the mlp.
    Sandwich,
    /// x + attention(norm(x)) + mlp(norm(x)), with one norm.
    Parallel,
}

impl Placement {
    /// The slots of the norms around attention and mlp.
    pub fn slots(self) -> &'static [&'static str] {
        match self {
            Self::Pre | Self::Post => &["norm1", "norm2"],
            Self::Branch => &["after1", "after2"],
            Self::Sandwich => &["norm1", "after1", "norm2", "after2"],
            Self::Parallel => &["norm1"],
        }
    }
}

impl Member for Placement {
    const KIND: &'static str = "placement";
    const MEMBERS: &'static [(&'static str, &'static str, Self)] = &[
        ("pre", "x + f(norm(x)), for attention (`norm1`) and for the mlp (`norm2`).", Self::Pre),
        ("post", "norm(x + f(x)), for attention (`norm1`) and for the mlp (`norm2`).", Self::Post),
        (
            "branch",
            "x + norm(f(x)), for attention (`after1`) and for the mlp (`after2`).",
            Self::Branch,
        ),
        (
            "sandwich",
            "x + after(f(norm(x))): `norm1` and `after1` around attention, `norm2` and `after2` around the mlp.",
            Self::Sandwich,
        ),
        (
            "parallel",
            "x + attention(norm(x)) + mlp(norm(x)), with the one norm `norm1`.",
            Self::Parallel,
        ),
    ];
}
