//! Tables that the host computes: the order of patches, rotary angles.

use crate::descriptor::block::RopeAxis;
use crate::plan::graph::{RopePlan, ScalingPlan};

/// `(row, column)` of every patch of a `rows × cols` grid in the order in which patches are emitted: raster order, or
/// blocks of `block × block` patches, row-major inside and outside (`Qwen2VLImageProcessor.patchify`).
///
/// Both sides must be multiples of `block`.
pub(super) fn patch_order(rows: usize, cols: usize, block: usize) -> Vec<(u32, u32)> {
    let mut order = Vec::with_capacity(rows * cols);
    for outer_row in 0..rows / block {
        for outer_col in 0..cols / block {
            for row in 0..block {
                for col in 0..block {
                    order
                        .push(((outer_row * block + row) as u32, (outer_col * block + col) as u32));
                }
            }
        }
    }
    order
}

/// For a merge of `side × side` patches: which emitted patches make up each merged row, in the order (row, column).
pub(super) fn merge_order(rows: usize, cols: usize, block: usize, side: usize) -> Vec<u32> {
    let mut emitted = vec![0_u32; rows * cols];
    for (index, (row, col)) in patch_order(rows, cols, block).into_iter().enumerate() {
        emitted[row as usize * cols + col as usize] = index as u32;
    }
    patch_order(rows, cols, side)
        .into_iter()
        .map(|(row, col)| emitted[row as usize * cols + col as usize])
        .collect()
}

/// Cosines and sines of a rotary embedding, `[positions, dim / 2]` each.
///
/// `positions` holds (time, row, column) of every token. Frequencies are `theta^(-2j/d)` in f32, as the reference
/// computes them; angles are products in f32.
pub(super) fn angles(plan: &RopePlan, positions: &[[i64; 3]]) -> (Vec<f32>, Vec<f32>) {
    let pairs = plan.dim / 2;
    let axis_index = |axis: RopeAxis| match axis {
        RopeAxis::Time => 0,
        RopeAxis::Row => 1,
        RopeAxis::Col => 2,
    };
    // the frequency and the axis of every pair
    let ladder: Vec<(usize, f32)> = if plan.sections.is_empty() {
        // every axis has a ladder of its own over an equal share of the rotated elements (`VisionRotaryEmbedding`)
        let share = pairs / plan.axes.len();
        plan.axes
            .iter()
            .flat_map(|axis| {
                (0..share).map(move |index| (axis_index(*axis), frequency(plan, index, 2 * share)))
            })
            .collect()
    } else {
        // one ladder, cut into consecutive sections (`apply_multimodal_rotary_pos_emb`)
        let axes = plan
            .axes
            .iter()
            .zip(&plan.sections)
            .flat_map(|(axis, size)| std::iter::repeat_n(*axis, *size));
        axes.enumerate()
            .map(|(index, axis)| (axis_index(axis), frequency(plan, index, plan.dim)))
            .collect()
    };
    let mut cos = Vec::with_capacity(positions.len() * pairs);
    let mut sin = Vec::with_capacity(positions.len() * pairs);
    for position in positions {
        for (axis, frequency) in &ladder {
            let angle = position[*axis] as f32 * frequency;
            cos.push(angle.cos());
            sin.push(angle.sin());
        }
    }
    (cos, sin)
}

fn frequency(plan: &RopePlan, index: usize, dim: usize) -> f32 {
    let exponent = (2 * index) as f32 / dim as f32;
    let frequency = 1.0 / (plan.theta as f32).powf(exponent);
    match plan.scaling {
        ScalingPlan::Linear { factor } => frequency / factor as f32,
        _ => frequency,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Pairing;
    use crate::descriptor::block::Ladder;

    #[test]
    fn blocks_are_row_major_inside_and_outside() {
        assert_eq!(
            patch_order(2, 4, 2),
            [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3)]
        );
        assert_eq!(patch_order(2, 2, 1), [(0, 0), (0, 1), (1, 0), (1, 1)]);
    }

    #[test]
    fn merging_gathers_neighbours() {
        // emitted in blocks of the merged size: already in order
        assert_eq!(merge_order(4, 2, 2, 2), [0, 1, 2, 3, 4, 5, 6, 7]);
        // emitted in raster order
        assert_eq!(merge_order(2, 4, 1, 2), [0, 1, 4, 5, 2, 3, 6, 7]);
    }

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
        let (cos, sin) = angles(&plan, &[[9, 2, 3]]);
        let expected = [2.0_f32, 0.02, 3.0, 0.03];
        for (index, angle) in expected.iter().enumerate() {
            assert!(
                (cos[index] - angle.cos()).abs() < 1e-6 && (sin[index] - angle.sin()).abs() < 1e-6
            );
        }
        plan.axes = vec![RopeAxis::Time, RopeAxis::Row, RopeAxis::Col];
        plan.sections = vec![1, 2, 1];
        let (cos, _) = angles(&plan, &[[1, 10, 1000]]);
        let expected = [1.0_f32, 10.0 * 0.1, 10.0 * 0.01, 1000.0 * 0.001];
        for (index, angle) in expected.iter().enumerate() {
            assert!((cos[index] - angle.cos()).abs() < 1e-5, "{index}");
        }
    }
}
