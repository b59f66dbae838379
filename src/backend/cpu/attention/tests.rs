//! Attention against its definition in f64.

#![allow(clippy::single_range_in_vec_init, reason = "ranges of visible keys are meant")]

use std::ops::Range;

use super::super::cache::Cache;
use super::super::testing::{assert_close, bits, on_any_threads, tensor, values};
use super::*;
use crate::backend::cpu::Precision;
use crate::backend::{KeyRanges, Mask};

/// Weights add up to 1 and values are below 1, so an error of a score matters as it is: scores below 16 from up to
/// 130 terms are within 1e-5, exponentials and sums within 1e-6.
const TOLERANCE: f64 = 1e-5;

/// In bf16 queries, keys and probabilities are rounded by up to 2^-9, and so is a score by about as much in each of its
/// terms; outputs are averages of values below 1.
const ROUNDED: f64 = 2e-2;

/// Runs attention on every path of this machine and compares it with f64.
fn agree(q: &Tensor, kv: KeysValues<'_>, geometry: &Attention<'_>, expected: &[f64], what: &str) {
    for units in Units::every() {
        let found = on_any_threads(|workers| attention(workers, units, q, kv, geometry).unwrap());
        let tolerance = if units.brain.is_some() { ROUNDED } else { TOLERANCE };
        assert_close(&found, expected, tolerance, &format!("{what} with {units:?}"));
    }
}

fn view<'a>(k: &'a Tensor, v: &'a Tensor) -> KeysValues<'a> {
    KeysValues { keys: k.values(), values: v.values(), rows: k.rows(), width: k.width() }
}

/// Attention as it is defined, in f64. `sees` says whether a query sees a key.
fn reference(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    geometry: &Attention<'_>,
    sees: impl Fn(usize, usize) -> bool,
) -> Vec<f64> {
    let dim = geometry.head_dim;
    let mut out = vec![0.0; q.rows() * q.width()];
    for query in 0..q.rows() {
        for head in 0..geometry.heads {
            let kv_head = head / (geometry.heads / geometry.kv_heads);
            let keys: Vec<usize> = (0..k.rows()).filter(|&key| sees(query, key)).collect();
            let scores: Vec<f64> = keys
                .iter()
                .map(|&key| {
                    let q = &q.row(query)[head * dim..][..dim];
                    let k = &k.row(key)[kv_head * dim..][..dim];
                    let dot: f64 =
                        q.iter().zip(k).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum();
                    let score = dot * f64::from(geometry.scale);
                    geometry.softcap.map(f64::from).map_or(score, |cap| cap * (score / cap).tanh())
                })
                .collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
            for (&key, score) in keys.iter().zip(scores) {
                for element in 0..dim {
                    out[query * q.width() + head * dim + element] += (score - largest).exp()
                        / total
                        * f64::from(v.row(key)[kv_head * dim + element]);
                }
            }
        }
    }
    out
}

const HEADS: [(usize, usize, usize); 8] =
    [(1, 1, 1), (2, 2, 8), (4, 2, 16), (3, 1, 72), (2, 2, 80), (2, 1, 128), (1, 1, 7), (70, 1, 3)];

#[test]
fn causal_rows_match_f64() {
    for (heads, kv_heads, head_dim) in HEADS {
        for (start, queries, unseen) in [
            (0, 1, 0),
            (0, 5, 0),
            (4, 1, 0),
            (3, 2, 2),
            (0, 130, 0),
            (16, 17, 1),
            (300, 3, 0),
            (250, 70, 3),
        ] {
            let q = tensor(queries, heads * head_dim, 1);
            let rows = start + queries + unseen;
            let (k, v) =
                (tensor(rows, kv_heads * head_dim, 2), tensor(rows, kv_heads * head_dim, 3));
            let geometry = Attention {
                heads,
                kv_heads,
                head_dim,
                scale: 0.7,
                softcap: None,
                mask: Mask::Causal { start },
            };
            let expected = reference(&q, &k, &v, &geometry, |query, key| key <= start + query);
            let what = format!("{heads}/{kv_heads} x {head_dim}: {queries} from {start}");
            agree(&q, view(&k, &v), &geometry, &expected, &what);
        }
    }
}

#[test]
fn segments_match_f64() {
    let cuts: [&[usize]; 7] =
        [&[1], &[5], &[0, 2, 0], &[1, 1, 3], &[17, 0, 130, 1], &[300], &[64, 256, 9]];
    for (heads, kv_heads, head_dim) in HEADS {
        for lengths in cuts {
            let rows = lengths.iter().sum();
            let q = tensor(rows, heads * head_dim, 1);
            let (k, v) =
                (tensor(rows, kv_heads * head_dim, 2), tensor(rows, kv_heads * head_dim, 3));
            let mask = Mask::Segments(lengths);
            let geometry = Attention { heads, kv_heads, head_dim, scale: 0.7, softcap: None, mask };
            let ends: Vec<usize> = lengths
                .iter()
                .scan(0, |end, &length| {
                    *end += length;
                    Some(*end)
                })
                .collect();
            let segment = |row: usize| ends.iter().position(|&end| row < end);
            let expected =
                reference(&q, &k, &v, &geometry, |query, key| segment(query) == segment(key));
            let what = format!("{heads}/{kv_heads} x {head_dim}: {lengths:?}");
            agree(&q, view(&k, &v), &geometry, &expected, &what);
        }
    }
}

fn key_ranges(rows: impl IntoIterator<Item = Vec<Range<usize>>>) -> KeyRanges {
    let mut keys = KeyRanges::new();
    rows.into_iter().for_each(|row| keys.push(row));
    keys
}

/// A number of queries, a number of keys, and the ranges of each query.
type Visible = (&'static str, usize, usize, Box<dyn Fn(usize) -> Vec<Range<usize>>>);

/// The masks of decoders and of cross-attention in small, and some that no model has.
fn visible() -> Vec<Visible> {
    let random = |query: usize| {
        let cuts = values(12, query as u64 + 9);
        let place = |cut: &f32| ((cut + 1.0) * 350.0) as usize;
        cuts.chunks(2).map(|cut| place(&cut[0])..place(&cut[1])).collect()
    };
    vec![
        ("window", 700, 700, Box::new(|query| vec![(query + 1).saturating_sub(37)..query + 1])),
        ("one row", 1, 900, Box::new(|_| vec![388..900])),
        ("media", 150, 150, Box::new(|q| vec![0..if (70..95).contains(&q) { 95 } else { q + 1 }])),
        ("prefix", 90, 320, Box::new(|query| vec![0..300.max(query + 231)])),
        (
            "crossed",
            70,
            1000,
            Box::new(|query| match query {
                0..9 => vec![],
                9..30 => vec![0..250],
                30..65 => vec![250..500, 750..1000],
                _ => vec![0..1000],
            }),
        ),
        ("random", 131, 700, Box::new(random)),
        (
            "single keys",
            65,
            300,
            Box::new(|query| (0..4).map(|at| (query + 70 * at)..(query + 70 * at + 1)).collect()),
        ),
        ("nothing", 66, 5, Box::new(|_| vec![])),
        ("no keys", 3, 0, Box::new(|_| vec![])),
    ]
}

#[test]
fn visible_ranges_match_f64() {
    for (heads, kv_heads, head_dim) in HEADS {
        for (name, queries, rows, ranges) in visible() {
            for softcap in if head_dim == 16 { vec![None, Some(0.5)] } else { vec![None] } {
                let q = tensor(queries, heads * head_dim, 1);
                let width = kv_heads * head_dim;
                let (k, v) = (tensor(rows, width, 2), tensor(rows, width, 3));
                let keys = key_ranges((0..queries).map(&ranges));
                let mask = Mask::Ranges(&keys);
                let geometry = Attention { heads, kv_heads, head_dim, scale: 0.7, softcap, mask };
                let expected = reference(&q, &k, &v, &geometry, |query, key| {
                    ranges(query).iter().any(|range| range.contains(&key))
                });
                let what = format!("{heads}/{kv_heads} x {head_dim}: {name}, cap {softcap:?}");
                agree(&q, view(&k, &v), &geometry, &expected, &what);
            }
        }
    }
}

#[test]
fn ranges_that_say_causal_give_the_bits_of_causal() {
    let (q, k, v) = (tensor(130, 24, 1), tensor(400, 12, 2), tensor(400, 12, 3));
    let keys = key_ranges((0..130).map(|query| vec![0..query + 201]));
    for (softcap, units) in [None, Some(2.0)]
        .into_iter()
        .flat_map(|cap| Units::every().into_iter().map(move |u| (cap, u)))
    {
        let call = |mask| {
            let geometry =
                Attention { heads: 6, kv_heads: 3, head_dim: 4, scale: 0.9, softcap, mask };
            on_any_threads(|workers| {
                attention(workers, units, &q, view(&k, &v), &geometry).unwrap()
            })
        };
        assert_eq!(bits(&call(Mask::Ranges(&keys))), bits(&call(Mask::Causal { start: 200 })));
    }
}

/// A key or value outside of every span is not read: a cache may hold what a query must not even multiply by 0.
#[test]
fn keys_outside_of_every_span_are_not_touched() {
    let (q, mut k, mut v) = (tensor(64, 8, 1), tensor(900, 8, 2), tensor(900, 8, 3));
    for x in [&mut k, &mut v] {
        x.values_mut()[..500 * 8].fill(f32::NAN);
        x.values_mut()[600 * 8..].fill(f32::NAN);
    }
    let keys = key_ranges((0..64).map(|query| vec![500 + query..537 + query]));
    let geometry = Attention {
        heads: 1,
        kv_heads: 1,
        head_dim: 8,
        scale: 1.0,
        softcap: None,
        mask: Mask::Ranges(&keys),
    };
    for units in Units::every() {
        let found = on_any_threads(|workers| {
            attention(workers, units, &q, view(&k, &v), &geometry).unwrap()
        });
        assert!(found.values().iter().all(|value| value.is_finite()), "{units:?}");
    }
}

#[test]
fn soft_caps_match_f64_and_must_be_positive() {
    let (q, k, v) = (tensor(70, 32, 1), tensor(300, 16, 2), tensor(300, 16, 3));
    let mask = Mask::Causal { start: 230 };
    let geometry = |softcap| Attention {
        heads: 4,
        kv_heads: 2,
        head_dim: 8,
        scale: 20.0,
        softcap: Some(softcap),
        mask,
    };
    for cap in [0.1, 3.0, 50.0] {
        let expected = reference(&q, &k, &v, &geometry(cap), |query, key| key <= 230 + query);
        for units in Units::every().into_iter().filter(|units| units.brain.is_none()) {
            let found = on_any_threads(|workers| {
                attention(workers, units, &q, view(&k, &v), &geometry(cap)).unwrap()
            });
            // scores reach 50 and are rounded by up to 2e-6, a few times
            assert_close(&found, &expected, 3e-5, &format!("cap {cap} with {units:?}"));
        }
    }
    for cap in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let found = attention(
            &Workers::new(1).unwrap(),
            Units::default(),
            &q,
            view(&k, &v),
            &geometry(cap),
        );
        assert_eq!(found.unwrap_err().kind(), crate::error::ErrorKind::Backend);
    }
}

/// With operands that are bf16 already, all that is rounded are the probabilities, which add up to 1: by up to 2^-9.
#[test]
fn bf16_rounds_no_more_than_it_must() {
    let brains: Vec<_> = Units::every().into_iter().filter(|units| units.brain.is_some()).collect();
    for (heads, kv_heads, head_dim, rows) in [(2, 1, 72, 300), (3, 3, 33, 145), (4, 1, 128, 17)] {
        let exact = |width: usize, seed| {
            let values = values(rows * width, seed);
            let values = values.into_iter().map(|x| half::bf16::from_f32(x).to_f32()).collect();
            Tensor::new(values, rows, width).unwrap()
        };
        let q = exact(heads * head_dim, 1);
        let (k, v) = (exact(kv_heads * head_dim, 2), exact(kv_heads * head_dim, 3));
        let mask = Mask::Causal { start: 0 };
        let geometry = Attention { heads, kv_heads, head_dim, scale: 0.5, softcap: None, mask };
        let expected = reference(&q, &k, &v, &geometry, |query, key| key <= query);
        for units in &brains {
            let found = on_any_threads(|workers| {
                attention(workers, *units, &q, view(&k, &v), &geometry).unwrap()
            });
            assert_close(&found, &expected, 1.0 / 512.0, &format!("{rows} x {head_dim}"));
        }
    }
}

#[test]
fn scores_far_apart_do_not_overflow() {
    let (q, k, v) = (tensor(39, 16, 1), tensor(600, 16, 2), tensor(600, 16, 3));
    let geometry = Attention {
        heads: 2,
        kv_heads: 2,
        head_dim: 8,
        scale: 300.0,
        softcap: None,
        mask: Mask::Causal { start: 561 },
    };
    let expected = reference(&q, &k, &v, &geometry, |query, key| key <= 561 + query);
    for units in Units::every().into_iter().filter(|units| units.brain.is_none()) {
        let found = on_any_threads(|workers| {
            attention(workers, units, &q, view(&k, &v), &geometry).unwrap()
        });
        // scores reach 1000 and are rounded by up to 3e-5, a few times
        assert_close(&found, &expected, 5e-4, &format!("large scores with {units:?}"));
    }
}

#[test]
fn a_cache_gives_the_bits_of_its_rows() {
    let (q, k, v) = (tensor(13, 24, 1), tensor(40, 12, 2), tensor(40, 12, 3));
    let mut cache = Cache::new(50, 12).unwrap();
    cache.append(&k, &v).unwrap();
    let geometry = Attention {
        heads: 6,
        kv_heads: 3,
        head_dim: 4,
        scale: 1.0,
        softcap: None,
        mask: Mask::Causal { start: 27 },
    };
    let kv = KeysValues {
        keys: cache.keys(),
        values: cache.values(),
        rows: cache.rows(),
        width: cache.width(),
    };
    for units in Units::every() {
        let call =
            |kv| on_any_threads(|workers| attention(workers, units, &q, kv, &geometry).unwrap());
        assert_eq!(bits(&call(view(&k, &v))), bits(&call(kv)), "{units:?}");
    }
}

#[test]
fn nan_is_not_hidden() {
    let (mut q, k, v) = (tensor(20, 8, 1), tensor(20, 8, 2), tensor(20, 8, 3));
    q.values_mut()[0] = f32::NAN;
    let geometry = Attention {
        heads: 1,
        kv_heads: 1,
        head_dim: 8,
        scale: 1.0,
        softcap: None,
        mask: Mask::Segments(&[20]),
    };
    for units in Units::every() {
        let found = on_any_threads(|workers| {
            attention(workers, units, &q, view(&k, &v), &geometry).unwrap()
        });
        assert!(found.row(0).iter().all(|value| value.is_nan()), "{units:?}");
        assert!(found.row(1).iter().all(|value| value.is_finite()), "{units:?}");
    }
}

#[test]
fn no_queries_and_misfits() {
    let workers = Workers::new(2).unwrap();
    let (k, v) = (tensor(5, 6, 2), tensor(5, 6, 3));
    let call = |rows: usize, width: usize, (heads, kv_heads, head_dim), mask| {
        let geometry = Attention { heads, kv_heads, head_dim, scale: 1.0, softcap: None, mask };
        attention(
            &workers,
            Units::best(Precision::Bf16),
            &tensor(rows, width, 1),
            view(&k, &v),
            &geometry,
        )
    };
    let causal = |start| Mask::Causal { start };
    let two = key_ranges([vec![0..5], vec![]]);
    let far = key_ranges([vec![0..1, 5..6], vec![0..2]]);
    let found = call(2, 12, (4, 2, 3), Mask::Ranges(&two)).unwrap();
    assert_eq!((found.describe().as_str(), found.row(1)), ("[2, 12]", [0.0; 12].as_slice()));
    let none = KeyRanges::new();
    assert_eq!(call(0, 12, (4, 2, 3), Mask::Ranges(&none)).unwrap().describe(), "[0, 12]");
    assert_eq!(call(0, 12, (4, 2, 3), causal(5)).unwrap().describe(), "[0, 12]");
    for (rows, width, heads, mask) in [
        (2, 12, (4, 2, 3), causal(4)),
        (2, 12, (4, 2, 3), causal(usize::MAX)),
        (0, 12, (4, 2, 3), causal(6)),
        (2, 11, (4, 2, 3), causal(0)),
        (2, 12, (4, 3, 2), causal(0)),
        (2, 12, (4, 4, 3), causal(0)),
        (2, 12, (0, 2, 3), causal(0)),
        (2, 12, (4, 0, 3), causal(0)),
        (2, 12, (4, 2, 0), causal(0)),
        (2, 12, (usize::MAX, 1, 6), causal(0)),
        (1, 12, (4, 2, 3), Mask::Ranges(&two)),
        (2, 12, (4, 2, 3), Mask::Ranges(&far)),
        (5, 12, (4, 2, 3), Mask::Segments(&[4])),
        (5, 12, (4, 2, 3), Mask::Segments(&[4, 2])),
        (5, 12, (4, 2, 3), Mask::Segments(&[usize::MAX, 6])),
        (4, 12, (4, 2, 3), Mask::Segments(&[4])),
    ] {
        let error = call(rows, width, heads, mask).unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::Backend, "{mask:?}");
    }
    let error = call(1, 12, (4, 2, 3), Mask::Ranges(&two)).unwrap_err();
    assert_eq!(error.message(), "visible keys of `2` rows do not fit `1` queries");
    let error = call(2, 12, (4, 2, 3), Mask::Ranges(&far)).unwrap_err();
    assert_eq!(error.message(), "a query is to see key row `5`, which is beyond the `5` keys");
    let error = call(2, 12, (4, 2, 3), causal(4)).unwrap_err();
    assert_eq!(error.message(), "`2` queries from key row `4` are beyond the `5` keys");
}
