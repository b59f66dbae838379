//! Rotary embeddings with every number known.

use super::Resolver;
use crate::backend::Pairing;
use crate::descriptor::block::{Ladder, Rope, RopeAxis, RopeScaling};
use crate::descriptor::slot::{Count, Number};
use crate::problem::Problem;

/// A rotary embedding.
#[derive(Debug, Clone, PartialEq)]
pub struct RopePlan {
    /// What each axis counts.
    pub axes: Vec<RopeAxis>,
    /// Rotated elements per head.
    pub dim: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// The base.
    pub theta: f64,
    /// How the axes share the frequencies where there are no sections.
    pub ladder: Ladder,
    /// A change of the frequencies.
    pub scaling: ScalingPlan,
    /// Which elements form a pair.
    pub pairing: Pairing,
    /// Frequencies per axis where the axes share one ladder; empty where each has its own.
    pub sections: Vec<usize>,
    /// Whether sections are dealt out in turn.
    pub interleaved: bool,
    /// Whether every axis turns a run of elements of its own.
    pub apart: bool,
}

/// A change of the rotary frequencies, its numbers known.
#[derive(Debug, Clone, PartialEq)]
pub enum ScalingPlan {
    /// None.
    None,
    /// All frequencies divided by `factor`.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Divided and kept frequencies by the length of the wave.
    Wavelength {
        /// The divisor of long waves.
        factor: f64,
        /// Waves in `original` up to which frequencies are divided.
        low: f64,
        /// Waves in `original` from which frequencies are kept.
        high: f64,
        /// The context length before scaling.
        original: usize,
    },
    /// Divided and kept frequencies by the number of rotations.
    Yarn {
        /// The divisor.
        factor: f64,
        /// Rotations from which a frequency is kept.
        fast: f64,
        /// Rotations up to which a frequency is divided.
        slow: f64,
        /// The context length before scaling.
        original: usize,
        /// Whether the ends of the ramp are whole frequencies.
        truncate: bool,
        /// Factor on cosine and sine, if stated.
        attention: Option<f64>,
    },
    /// Every frequency divided by a number of its own.
    Longrope {
        /// Largest over original length, for the factor on cosine and sine.
        factor: f64,
        /// The context length before scaling.
        original: usize,
        /// Divisors up to the original length.
        short: Vec<f64>,
        /// Divisors beyond it.
        long: Vec<f64>,
        /// Factor on cosine and sine, if stated.
        attention: Option<f64>,
    },
    /// The base grows with the sequence.
    Dynamic {
        /// The factor.
        factor: f64,
        /// The context length before scaling.
        original: usize,
    },
    /// The ladder of a whole head, of which a part turns.
    Proportional {
        /// The divisor.
        factor: f64,
    },
}

/// Yarn's factor on cosine and sine where both numbers for it are stated (`_compute_yarn_parameters`, `get_mscale`).
fn quotient(factor: f64, mscale: f64, mscales: f64) -> Option<f64> {
    let strength = |mscale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 };
    (mscale != 0.0 && mscales != 0.0).then(|| strength(mscale) / strength(mscales))
}

impl Resolver<'_> {
    fn number_or(&mut self, key: &str, number: Option<&Number>, or: f64) -> Option<f64> {
        match number {
            Some(number) => {
                let number = self.values.number(number);
                self.keep(key, number)
            }
            None => Some(or),
        }
    }

    fn scaling(&mut self, key: &str, rope: &Rope, pairs: usize) -> Option<ScalingPlan> {
        let scaling = match &rope.scaling {
            Some(choice) => {
                let scaling = self.values.choice(choice);
                self.keep(&format!("{key}.scaling"), scaling)?
            }
            None => RopeScaling::None,
        };
        if scaling == RopeScaling::None {
            return Some(ScalingPlan::None);
        }
        if rope.factor.is_none() {
            let missing = Problem::error("key-missing", "this scaling needs a `factor`");
            return self.keep(&format!("{key}.factor"), Err(missing));
        }
        let factor = self.number_or(&format!("{key}.factor"), rope.factor.as_ref(), 1.0)?;
        if factor <= 0.0 {
            let problem = Problem::error("value-bound", format!("the rotary factor is {factor}"))
                .expected_found("more than 0", factor.to_string());
            return self.keep(&format!("{key}.factor"), Err(problem));
        }
        let original = |resolver: &mut Self| match &rope.original {
            Some(count) => {
                resolver.size(&format!("{key}.original"), "the original length", count, 1)
            }
            None => {
                let missing = Problem::error("key-missing", "this scaling needs `original`");
                resolver.keep(&format!("{key}.original"), Err(missing))
            }
        };
        let attention =
            self.number_or(&format!("{key}.attention"), rope.attention.as_ref(), 0.0)?;
        let attention = (attention > 0.0).then_some(attention);
        let mut number = |name: &str, number: &Option<Number>, or: f64| {
            self.number_or(&format!("{key}.{name}"), number.as_ref(), or)
        };
        Some(match scaling {
            RopeScaling::None => ScalingPlan::None,
            RopeScaling::Linear => ScalingPlan::Linear { factor },
            RopeScaling::Proportional => ScalingPlan::Proportional { factor },
            RopeScaling::Dynamic => ScalingPlan::Dynamic { factor, original: original(self)? },
            RopeScaling::Wavelength => {
                let (low, high) =
                    (number("low", &rope.low, 1.0)?, number("high", &rope.high, 4.0)?);
                ScalingPlan::Wavelength { factor, low, high, original: original(self)? }
            }
            RopeScaling::Yarn => {
                let (fast, slow) =
                    (number("fast", &rope.fast, 32.0)?, number("slow", &rope.slow, 1.0)?);
                let (mscale, mscales) =
                    (number("mscale", &rope.mscale, 0.0)?, number("mscales", &rope.mscales, 0.0)?);
                let attention = attention.or_else(|| quotient(factor, mscale, mscales));
                let truncate =
                    self.flag_or(&format!("{key}.truncate"), rope.truncate.as_ref(), true)?;
                let original = original(self)?;
                ScalingPlan::Yarn { factor, fast, slow, original, truncate, attention }
            }
            RopeScaling::Longrope => {
                let mut list = |name: &str, value: &Option<String>| {
                    let numbers = match value {
                        Some(value) => self.values.numbers(value, pairs),
                        None => {
                            Err(Problem::error("key-missing", format!("longrope needs `{name}`")))
                        }
                    };
                    self.keep(&format!("{key}.{name}"), numbers)
                };
                let (short, long) = (list("short", &rope.short)?, list("long", &rope.long)?);
                ScalingPlan::Longrope { factor, original: original(self)?, short, long, attention }
            }
        })
    }

    pub(super) fn rope(&mut self, name: &str, head_dim: usize) -> Option<RopePlan> {
        let rope = self.family.rope.get(name)?;
        let key = format!("rope.{name}");
        let axes = rope.axes.clone().unwrap_or_else(|| vec![RopeAxis::Time]);
        let dim = self.size_or(
            &format!("{key}.dim"),
            "the rotated size",
            rope.dim.as_ref(),
            2,
            head_dim,
        )?;
        let dim = match &rope.part {
            Some(part) => {
                let part = self.values.number(part);
                let part = self.keep(&format!("{key}.part"), part)?;
                // `int(head_dim * partial_rotary_factor)`; a part outside 0 to 1 is refused below
                (dim as f64 * part) as usize
            }
            None => dim,
        };
        let theta = self.values.number(&rope.theta);
        let theta = self.keep(&format!("{key}.theta"), theta)?;
        let scaling = self.scaling(&key, rope, dim / 2)?;
        let ladder =
            self.choice_or(&format!("{key}.ladder"), rope.ladder.as_ref(), Ladder::Split)?;
        let interleaved =
            self.flag_or(&format!("{key}.interleaved"), rope.interleaved.as_ref(), false)?;
        let apart = self.flag_or(&format!("{key}.apart"), rope.apart.as_ref(), false)?;
        let pairing = self.values.choice(&rope.pairing);
        let pairing = self.keep(&format!("{key}.pairing"), pairing)?;
        let sections = match &rope.sections {
            Some(name) => {
                let sections = self.values.integers(&Count::Expression(name.clone()));
                let sections = self.keep(&format!("{key}.sections"), sections)?;
                let sizes: Vec<usize> =
                    sections.iter().filter_map(|size| usize::try_from(*size).ok()).collect();
                let fits = sizes.len() == sections.len()
                    && sizes.len() == axes.len()
                    && sizes.iter().sum::<usize>() * 2 == dim;
                if !fits {
                    let problem = Problem::error(
                        "rope-sections",
                        format!("the sections of `{name}` do not fill half of a head"),
                    )
                    .expected_found(
                        format!("{} counts that add up to {}", axes.len(), dim / 2),
                        format!("{sections:?}"),
                    );
                    return self.keep(&format!("{key}.sections"), Err(problem));
                }
                sizes
            }
            None => Vec::new(),
        };
        let even = 2 * if sections.is_empty() { axes.len() } else { 1 };
        if !dim.is_multiple_of(even) || dim == 0 || dim > head_dim || theta <= 0.0 {
            let problem = Problem::error(
                "rope-size",
                format!("rope `{name}` does not fit heads of {head_dim} elements"),
            )
            .expected_found(
                format!("a multiple of {even}, at most {head_dim}, positive theta"),
                format!("{dim} elements, theta {theta}"),
            );
            return self.keep(&key, Err(problem));
        }
        Some(RopePlan {
            axes,
            dim,
            head_dim,
            theta,
            ladder,
            scaling,
            pairing,
            sections,
            interleaved,
            apart,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::quotient;

    #[test]
    fn two_stated_numbers_give_a_quotient() {
        // what `_compute_yarn_parameters` returns for a factor of 4
        let found = quotient(4.0, 1.0, 0.5).unwrap_or_default();
        assert!((found - 1.064_821_625_369_571_5).abs() < 1e-15, "{found}");
        assert_eq!(quotient(4.0, 1.0, 1.0), Some(1.0));
        assert_eq!(quotient(1.0, 1.0, 0.5), Some(1.0));
        assert_eq!((quotient(4.0, 1.0, 0.0), quotient(4.0, 0.0, 1.0)), (None, None));
    }
}
