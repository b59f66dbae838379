//! Norms with every parameter known.

use super::Resolver;
use crate::backend::NormKind;
use crate::descriptor::block::{Norm, NormWeight};

/// A norm.
#[derive(Debug, Clone, PartialEq)]
pub struct NormPlan {
    /// The kind.
    pub kind: NormKind,
    /// Added to the variance or mean square.
    pub eps: f32,
    /// What it multiplies by.
    pub weight: NormWeight,
    /// Whether there is a bias tensor.
    pub bias: bool,
    /// The tensor's name below its component.
    pub name: String,
}

impl Resolver<'_> {
    pub(super) fn norm(&mut self, key: &str, norm: &Norm) -> Option<NormPlan> {
        let kind = self.values.choice(&norm.kind);
        let kind = self.keep(&format!("{key}.kind"), kind)?;
        let eps = self.values.number(&norm.eps);
        let eps = self.keep(&format!("{key}.eps"), eps)? as f32;
        let weight =
            self.choice_or(&format!("{key}.weight"), norm.weight.as_ref(), NormWeight::Stored)?;
        let usual = kind == NormKind::Layer && weight != NormWeight::None;
        let bias = self.flag_or(&format!("{key}.bias"), norm.bias.as_ref(), usual)?;
        Some(NormPlan { kind, eps, weight, bias, name: norm.name.clone().unwrap_or_default() })
    }
}
