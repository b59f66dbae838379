//! Operands in the order in which tiles read them.

use std::ops::Range;

use super::super::simd::{Kernel, dispatch};
use super::super::weight::Weight;
use super::{QUAD, Unit};

/// Words of a line that are widened before they are transposed: with 16 lines they fill half of a first-level cache.
const CHUNK: usize = 256;

/// `SIDE` lines of `SIDE` words that begin `length` words apart.
pub(super) fn square<const SIDE: usize>(lines: &[f32], length: usize) -> [&[f32; SIDE]; SIDE] {
    std::array::from_fn(|line| &lines[line * length..].as_chunks().0[0])
}

/// Writes the words of four lines alternately: `out[4 k + i] = lines[i][k]`.
fn quad(lines: [&[f32]; QUAD], out: &mut [f32]) {
    dispatch(Quad { lines, out });
}

struct Quad<'a> {
    lines: [&'a [f32]; QUAD],
    out: &'a mut [f32],
}

impl Kernel for Quad<'_> {
    type Output = ();
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let [a, b, c, d] = self.lines;
        let lines = a.iter().zip(b).zip(c.iter().zip(d));
        for (out, ((&a, &b), (&c, &d))) in self.out.as_chunks_mut::<QUAD>().0.iter_mut().zip(lines)
        {
            *out = [a, b, c, d];
        }
    }
}

/// The bf16 nearest to `x`, ties to even, in the low bits. NaN stays NaN.
pub(super) fn round(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if x.is_nan() { 0x7fc0 } else { rounded }
}

/// Rows of the left operand as quads, each `[words, 4]`, as many as `out` holds: `row` gives the elements of a row, or
/// nothing for a row of zeros.
pub(in super::super) fn left<'a>(
    unit: Unit,
    words: usize,
    row: impl Fn(usize) -> Option<&'a [f32]>,
    out: &mut [f32],
) {
    let mut pairs = vec![0.0; if unit.takes_pairs() { QUAD * words } else { 0 }];
    let zeros = vec![0.0; words];
    for (index, out) in out.chunks_exact_mut(QUAD * words).enumerate() {
        let lines: [_; QUAD] = std::array::from_fn(|line| row(index * QUAD + line));
        if unit.takes_pairs() {
            for (line, out) in lines.into_iter().zip(pairs.chunks_exact_mut(words)) {
                match line {
                    Some(line) => unit.round_line(line, out),
                    None => out.fill(0.0),
                }
            }
            let (a, b) = pairs.split_at(2 * words);
            quad([&a[..words], &a[words..], &b[..words], &b[words..]], out);
        } else {
            quad(lines.map(|line| line.unwrap_or(&zeros)), out);
        }
    }
}

/// Words that a panel of `depth` words takes in memory: whole squares are written.
pub(super) fn panel_words(unit: Unit, depth: usize) -> usize {
    depth.next_multiple_of(unit.square()) * unit.columns()
}

/// Words that [`panel`] needs besides.
pub(super) fn stage_words(unit: Unit) -> usize {
    unit.square() * CHUNK
}

/// Rows `outputs` of a weight, at most as many as a tile has columns, words `depth` of each, as a panel
/// `[depth, columns]`; columns beyond the last are zeros.
pub(super) fn panel(
    unit: Unit,
    weight: &Weight,
    outputs: Range<usize>,
    depth: Range<usize>,
    stage: &mut [f32],
    out: &mut [f32],
) {
    let (side, columns) = (unit.square(), unit.columns());
    for column in (0..columns).step_by(side) {
        let first = outputs.end.min(outputs.start + column);
        let lines = first..outputs.end.min(first + side);
        for start in depth.clone().step_by(CHUNK) {
            let chunk = start..depth.end.min(start + CHUNK);
            let length = chunk.len().next_multiple_of(side);
            let stage = &mut stage[..side * length];
            if lines.len() < side || length > chunk.len() {
                stage.fill(0.0);
            }
            if unit.takes_pairs() {
                weight.pairs(lines.clone(), chunk.clone(), stage, length);
            } else {
                weight.widen_to(lines.clone(), chunk.clone(), stage, length);
            }
            for word in (0..chunk.len()).step_by(side) {
                let line = start - depth.start + word;
                unit.transpose(
                    &stage[word..],
                    length,
                    &mut out[line * columns + column..],
                    columns,
                );
            }
        }
    }
}
