//! Rotary angles: ladders of frequencies, their scalings, and how axes share them.

use super::attend::Angles;
use crate::backend::Backend;
use crate::descriptor::block::{Ladder, RopeAxis};
use crate::error::Result;
use crate::plan::graph::{RopePlan, ScalingPlan};

/// The angles of rows at `positions` (time, row, column), on the device.
pub(super) fn angles<B: Backend>(
    backend: &B,
    plan: &RopePlan,
    positions: &[[i64; 3]],
) -> Result<Angles<B>> {
    let (cos, sin) = tables(plan, positions);
    let (rows, pairs) = (positions.len(), plan.dim / 2);
    Ok(Angles {
        cos: backend.upload(cos, rows, pairs)?,
        sin: backend.upload(sin, rows, pairs)?,
        pairing: plan.pairing,
    })
}

/// Cosines and sines, `[positions, dim / 2]` each.
///
/// Frequencies are `theta^(-2j/d)` in f32, as the reference computes them; angles are products in f32.
fn tables(plan: &RopePlan, positions: &[[i64; 3]]) -> (Vec<f32>, Vec<f32>) {
    let length = positions.iter().flatten().copied().max().unwrap_or(0).saturating_add(1);
    let ladder = ladder(plan, length.max(0) as u64);
    let factor = attention_factor(&plan.scaling);
    let mut cos = Vec::with_capacity(positions.len() * ladder.len());
    let mut sin = Vec::with_capacity(positions.len() * ladder.len());
    for position in positions {
        for (axis, frequency) in &ladder {
            let angle = position[*axis] as f32 * frequency;
            cos.push(angle.cos() * factor);
            sin.push(angle.sin() * factor);
        }
    }
    (cos, sin)
}

/// The axis and the frequency of every pair, for a sequence of `length` positions so far.
fn ladder(plan: &RopePlan, length: u64) -> Vec<(usize, f32)> {
    let pairs = plan.dim / 2;
    let axes: Vec<usize> = plan
        .axes
        .iter()
        .map(|axis| match axis {
            RopeAxis::Time => 0,
            RopeAxis::Row => 1,
            RopeAxis::Col => 2,
        })
        .collect();
    let count = axes.len().max(1);
    let share = pairs / count;
    if !plan.sections.is_empty() {
        let frequencies = frequencies(plan, plan.dim, length);
        let axis_of: Vec<usize> = if plan.interleaved {
            // axes take turns as long as their sections last; the first has what is left (`apply_interleaved_mrope`)
            (0..pairs)
                .map(|pair| {
                    let turn = pair % count;
                    let lasts = plan.sections.get(turn).is_some_and(|size| pair < size * count);
                    let turn = if turn > 0 && lasts { turn } else { 0 };
                    axes.get(turn).copied().unwrap_or(0)
                })
                .collect()
        } else {
            // consecutive sections (`apply_multimodal_rotary_pos_emb`)
            let sections = axes.iter().zip(&plan.sections);
            sections.flat_map(|(axis, size)| std::iter::repeat_n(*axis, *size)).collect()
        };
        return axis_of.into_iter().zip(frequencies).collect();
    }
    match plan.ladder {
        // every axis has a ladder of its own over an equal share of the rotated elements (`VisionRotaryEmbedding`)
        Ladder::Split => {
            let own = frequencies(plan, 2 * share, length);
            axes.iter().flat_map(|axis| own.iter().map(move |value| (*axis, *value))).collect()
        }
        // one ladder over all rotated elements, of which every axis takes each n-th (`PixtralRotaryEmbedding`)
        Ladder::Strided => {
            let all = frequencies(plan, plan.dim, length);
            let strided = axes.iter().enumerate().flat_map(|(place, axis)| {
                all.iter().skip(place).step_by(count).take(share).map(move |value| (*axis, *value))
            });
            strided.collect()
        }
    }
}

/// `theta^(-2j / dim)` for j below `dim / 2`, scaled.
fn frequencies(plan: &RopePlan, dim: usize, length: u64) -> Vec<f32> {
    let theta = match &plan.scaling {
        // `_compute_dynamic_ntk_parameters`: the base grows with the sequence
        ScalingPlan::Dynamic { factor, original } if dim > 2 => {
            let longer = length.max(*original as u64) as f64 / *original as f64;
            let exponent = dim as f64 / (dim as f64 - 2.0);
            (plan.theta * (factor * longer - (factor - 1.0)).powf(exponent)) as f32
        }
        _ => plan.theta as f32,
    };
    let power = |index: usize| theta.powf((2 * index) as f32 / dim as f32);
    let plain = |index: usize| 1.0 / power(index);
    let pairs = 0..dim / 2;
    match &plan.scaling {
        ScalingPlan::Linear { factor } => {
            pairs.map(|index| plain(index) / *factor as f32).collect()
        }
        // `_compute_llama3_parameters`
        ScalingPlan::Wavelength { factor, low, high, original } => {
            let original = *original as f64;
            let (longest, shortest) = ((original / low) as f32, (original / high) as f32);
            let factor = *factor as f32;
            let scaled = |frequency: f32| {
                let wave = (2.0 * std::f64::consts::PI) as f32 / frequency;
                if wave > longest {
                    frequency / factor
                } else if wave < shortest {
                    frequency
                } else {
                    let (low, high) = (*low as f32, *high as f32);
                    let smooth = (original as f32 / wave - low) / (high - low);
                    (1.0 - smooth) * frequency / factor + smooth * frequency
                }
            };
            pairs.map(|index| scaled(plain(index))).collect()
        }
        // `_compute_yarn_parameters` (B. Peng et al., arXiv:2309.00071)
        ScalingPlan::Yarn { factor, fast, slow, original, truncate, .. } => {
            let rotations = |count: f64| {
                let waves = *original as f64 / (count * 2.0 * std::f64::consts::PI);
                dim as f64 * waves.ln() / (2.0 * plan.theta.ln())
            };
            let (mut first, mut last) = (rotations(*fast), rotations(*slow));
            if *truncate {
                (first, last) = (first.floor(), last.ceil());
            }
            let (first, last) = (first.max(0.0), last.min(dim as f64 - 1.0));
            let span = if last > first { last - first } else { last - first + 0.001 };
            let scaled = |index: usize| {
                let ramp = ((index as f32 - first as f32) / span as f32).clamp(0.0, 1.0);
                let kept = 1.0 - ramp;
                1.0 / (*factor as f32 * power(index)) * (1.0 - kept) + plain(index) * kept
            };
            pairs.map(scaled).collect()
        }
        // `_compute_longrope_parameters`
        ScalingPlan::Longrope { original, short, long, .. } => {
            let divisors = if length > *original as u64 { long } else { short };
            let divisor = |index: usize| divisors.get(index).copied().unwrap_or(1.0) as f32;
            pairs.map(|index| 1.0 / (divisor(index) * power(index))).collect()
        }
        // proportional is refused before: `unsupported`
        ScalingPlan::None | ScalingPlan::Dynamic { .. } | ScalingPlan::Proportional { .. } => {
            pairs.map(plain).collect()
        }
    }
}

/// What cosine and sine are multiplied by.
fn attention_factor(scaling: &ScalingPlan) -> f32 {
    match scaling {
        ScalingPlan::Yarn { attention: Some(attention), .. }
        | ScalingPlan::Longrope { attention: Some(attention), .. } => *attention as f32,
        ScalingPlan::Longrope { factor, original, .. } if *factor > 1.0 => {
            (1.0 + factor.ln() / (*original as f64).ln()).sqrt() as f32
        }
        ScalingPlan::Yarn { factor, .. } if *factor > 1.0 => (0.1 * factor.ln() + 1.0) as f32,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Pairing;

    #[test]
    fn axes_with_their_own_ladders_and_with_a_shared_one() {
        let mut plan = RopePlan {
            axes: vec![RopeAxis::Row, RopeAxis::Col],
            dim: 8,
            theta: 10_000.0,
            head_dim: 8,
            ladder: Ladder::Split,
            scaling: ScalingPlan::None,
            pairing: Pairing::Half,
            sections: Vec::new(),
            interleaved: false,
            apart: false,
        };
        let (cos, sin) = tables(&plan, &[[9, 2, 3]]);
        let expected = [2.0_f32, 0.02, 3.0, 0.03];
        for (index, angle) in expected.iter().enumerate() {
            assert!(
                (cos[index] - angle.cos()).abs() < 1e-6 && (sin[index] - angle.sin()).abs() < 1e-6
            );
        }
        plan.axes = vec![RopeAxis::Time, RopeAxis::Row, RopeAxis::Col];
        plan.sections = vec![1, 2, 1];
        let (cos, _) = tables(&plan, &[[1, 10, 1000]]);
        let expected = [1.0_f32, 10.0 * 0.1, 10.0 * 0.01, 1000.0 * 0.001];
        for (index, angle) in expected.iter().enumerate() {
            assert!((cos[index] - angle.cos()).abs() < 1e-5, "{index}");
        }
    }

    #[test]
    fn axes_take_turns() {
        let plan = RopePlan {
            axes: vec![RopeAxis::Time, RopeAxis::Row, RopeAxis::Col],
            dim: 16,
            theta: 10_000.0,
            head_dim: 16,
            ladder: Ladder::Split,
            scaling: ScalingPlan::None,
            pairing: Pairing::Half,
            sections: vec![4, 2, 2],
            interleaved: true,
            apart: false,
        };
        let axes: Vec<usize> = ladder(&plan, 1).iter().map(|(axis, _)| *axis).collect();
        assert_eq!(axes, [0, 1, 2, 0, 1, 2, 0, 0]);
        let strided = RopePlan {
            axes: vec![RopeAxis::Row, RopeAxis::Col],
            sections: Vec::new(),
            ladder: Ladder::Strided,
            interleaved: false,
            ..plan
        };
        let found = ladder(&strided, 1);
        let expected =
            [(1, 0.0), (1, 4.0), (1, 8.0), (1, 12.0), (2, 2.0), (2, 6.0), (2, 10.0), (2, 14.0)];
        for ((axis, frequency), (wanted, exponent)) in found.iter().zip(expected) {
            let by = 10_000.0_f32.powf(-exponent / 16.0);
            assert!(*axis == wanted && (frequency - by).abs() < 1e-6, "{found:?}");
        }
    }

    #[test]
    fn a_ramp_with_whole_ends_and_with_others() {
        let plan = |truncate| RopePlan {
            axes: vec![RopeAxis::Time],
            dim: 16,
            theta: 10_000.0,
            head_dim: 16,
            ladder: Ladder::Split,
            scaling: ScalingPlan::Yarn {
                factor: 4.0,
                fast: 32.0,
                slow: 1.0,
                original: 64,
                truncate,
                attention: None,
            },
            pairing: Pairing::Half,
            sections: Vec::new(),
            interleaved: false,
            apart: false,
        };
        // `_compute_yarn_parameters` for these settings; 1e-6: powers in f32 differ in the last place
        for (truncate, expected) in [
            (true, [1.0_f32, 0.237_170_82, 0.05, 0.007_905_695, 0.002_5]),
            (false, [1.0, 0.198_583_53, 0.025_595_25, 0.007_905_695, 0.002_5]),
        ] {
            let found = ladder(&plan(truncate), 1);
            for ((_, frequency), wanted) in found.iter().zip(expected) {
                assert!((frequency / wanted - 1.0).abs() < 1e-6, "{truncate}: {found:?}");
            }
        }
    }
}
