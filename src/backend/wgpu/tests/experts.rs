//! Mixtures of experts against the CPU backend.

use super::super::experts::Stack;
use super::*;
use crate::backend::{RouterScores, Routing};
use crate::error::Result;

const ROUTINGS: [Routing; 3] = [
    Routing { top: 2, scores: RouterScores::Softmax, renormalise: true, scale: 1.0 },
    Routing { top: 1, scores: RouterScores::Sigmoid, renormalise: false, scale: 1.0 },
    Routing { top: 3, scores: RouterScores::Softmax, renormalise: false, scale: 2.5 },
];

/// Stacks of both backends, the device's in buffers of at most `most` bytes.
fn parts(dtype: Dtype, outputs: usize, inputs: usize) -> impl FnMut(usize) -> Result<HostTensor> {
    move |expert| Ok(host_weight(dtype, outputs, inputs, 40 + expert as u64))
}

/// Rows × experts, as many as make workgroups full, overfull and all but empty.
const SHAPES: [(usize, usize); 8] =
    [(1, 3), (1, 70), (5, 4), (9, 5), (40, 130), (300, 7), (700, 3), (40, 6)];

#[test]
fn routes_are_those_of_the_processor() {
    for (rows, experts) in SHAPES {
        for routing in ROUTINGS {
            for weighted in [false, true] {
                let what = format!("{rows} rows, {experts} experts, {routing:?}, {weighted}");
                // one weight, of an exponential that shaders compute to a few units in the last place
                let tolerance = if weighted { 2e-6 } else { 0.0 };
                alike!(tolerance, what, |backend| {
                    let logits = tensor(backend, rows, experts, 1);
                    let logits = backend.scale(&logits, 5.0).unwrap();
                    let routes = backend.route(&logits, &routing).unwrap();
                    backend.spread(&tensor(backend, rows, 3, 2), &routes, weighted).unwrap()
                });
                alike!(tolerance.max(3e-7), what, |backend| {
                    let routes =
                        backend.route(&tensor(backend, rows, experts, 1), &routing).unwrap();
                    let pairs = tensor(backend, rows * routing.top, 3, 2);
                    backend.collect(&pairs, &routes, weighted).unwrap()
                });
            }
        }
    }
}

/// The first among equals; zeros of both signs; all experts; one that nobody chooses and one that all do; endless logits.
#[test]
fn ties_and_extremes() {
    let rows: [[f32; 5]; 6] = [
        [0.5, 0.5, 0.5, 0.5, 0.5],
        [0.0, -0.0, 0.0, -0.0, -1.0],
        [-3.0, 7.0, 7.0, -3.0, 7.0],
        [1e30, -1e30, 0.0, 1e30, 1.0],
        [f32::NEG_INFINITY, 1.0, 2.0, 3.0, f32::NEG_INFINITY],
        [-90.0, 90.0, 89.5, -200.0, 88.0],
    ];
    for scores in [RouterScores::Softmax, RouterScores::Sigmoid] {
        for top in [1, 2, 5] {
            let routing = Routing { top, scores, renormalise: false, scale: 1.0 };
            for weighted in [false, true] {
                let what = format!("{routing:?}, {weighted}");
                alike!(if weighted { 2e-6 } else { 0.0 }, what, |backend| {
                    let logits = backend.upload(rows.concat(), 6, 5).unwrap();
                    let routes = backend.route(&logits, &routing).unwrap();
                    backend.spread(&tensor(backend, 6, 4, 3), &routes, weighted).unwrap()
                });
            }
        }
    }
}

#[test]
fn rows_meet_the_matrices_of_their_experts() {
    let sizes = [(7, 5), (72, 66), (64, 130)];
    for (number, (rows, experts)) in (0_usize..).zip(SHAPES) {
        let (inputs, outputs) = sizes[number % sizes.len()];
        for dtype in DTYPES {
            let routing = ROUTINGS[number % 2];
            for bias in [false, true] {
                let what = format!("{rows} rows, {experts} experts, {dtype:?}, {bias}");
                // sums of up to 72 products in other orders
                alike!(3e-6, what, |backend| {
                    let stack = backend.stack(experts, &mut parts(dtype, outputs, inputs)).unwrap();
                    let routes =
                        backend.route(&tensor(backend, rows, experts, 1), &routing).unwrap();
                    let x = backend.spread(&tensor(backend, rows, inputs, 2), &routes, false);
                    let biases = tensor(backend, experts, outputs, 3);
                    let bias = bias.then_some(&biases);
                    let activation = bias.map(|_| Activation::Silu);
                    let made = backend.linear_each(&x.unwrap(), &stack, &routes, bias, activation);
                    backend.collect(&made.unwrap(), &routes, true).unwrap()
                });
            }
        }
    }
}

/// Stacks that are larger than what a shader sees at once: cut between matrices, and within them.
#[test]
fn large_stacks_are_cut() {
    let Some(backend) = variants().and_then(<[Wgpu]>::first) else { return };
    let stream = &backend.stream;
    let (experts, outputs, inputs) = (6, 90, 33);
    for dtype in DTYPES {
        let stored = outputs * 36 * dtype.size();
        for rows in [2, 50] {
            let routing = ROUTINGS[0];
            let routes = backend.route(&tensor(backend, rows, experts, 1), &routing).unwrap();
            let x = backend.spread(&tensor(backend, rows, inputs, 2), &routes, false).unwrap();
            let bias = tensor(backend, experts, outputs, 3);
            let product = |stack: &Stack| {
                let made = backend.linear_each(&x, stack, &routes, Some(&bias), None).unwrap();
                backend.download(&made).unwrap()
            };
            let cut = |most| {
                Stack::cut(stream, experts, &mut parts(dtype, outputs, inputs), most).unwrap()
            };
            let whole = product(&cut(usize::MAX));
            for most in [3 * stored, 2 * stored - 1, stored, stored / 2, 1000] {
                assert_eq!(product(&cut(most)), whole, "{dtype:?}, {rows} rows, {most} bytes");
            }
        }
    }
}

#[test]
fn what_is_no_number_stays_none() {
    for backend in variants().into_iter().flatten() {
        let mut logits = values(3 * 5, 1);
        logits[7] = f32::NAN;
        let logits = backend.upload(logits, 3, 5).unwrap();
        let routes = backend.route(&logits, &ROUTINGS[0]).unwrap();
        let x = tensor(backend, 3, 4, 2);
        let spread = backend.spread(&x, &routes, false).unwrap();
        let sums = backend.download(&backend.collect(&spread, &routes, true).unwrap()).unwrap();
        let wrong: Vec<bool> = sums.iter().map(|value| value.is_nan()).collect();
        assert_eq!(wrong, [[false; 4], [true; 4], [false; 4]].concat());
    }
    assert!(cpu().route(&cpu().upload(vec![f32::NAN], 1, 1).unwrap(), &ROUTINGS[1]).is_err());
}

#[test]
fn one_column_multiplies_all() {
    alike!(0.0, "column", |backend| {
        backend.multiply(&tensor(backend, 5, 33, 1), &tensor(backend, 5, 1, 2)).unwrap()
    });
    alike!(0.0, "column by column", |backend| {
        backend.multiply(&tensor(backend, 5, 1, 1), &tensor(backend, 5, 1, 2)).unwrap()
    });
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    fn refused<B: Backend>(backend: &B) {
        let logits = tensor(backend, 4, 3, 1);
        for top in [0, 4] {
            assert!(backend.route(&logits, &Routing { top, ..ROUTINGS[0] }).is_err());
        }
        let routes = backend.route(&logits, &ROUTINGS[0]).unwrap();
        let stack = |experts| backend.stack(experts, &mut parts(Dtype::F32, 5, 6)).unwrap();
        assert!(backend.spread(&tensor(backend, 5, 6, 1), &routes, false).is_err());
        assert!(backend.collect(&tensor(backend, 7, 6, 1), &routes, false).is_err());
        let x = tensor(backend, 8, 6, 1);
        assert!(backend.linear_each(&x, &stack(3), &routes, None, None).is_ok());
        assert!(backend.linear_each(&x, &stack(2), &routes, None, None).is_err());
        assert!(backend.linear_each(&x, &stack(3), &routes, Some(&x), None).is_err());
        let narrow = tensor(backend, 8, 5, 1);
        assert!(backend.linear_each(&narrow, &stack(3), &routes, None, None).is_err());
        let mut mixed = |expert: usize| Ok(host_weight(Dtype::F32, 5 + expert, 6, 1));
        assert!(backend.stack(2, &mut mixed).is_err());
    }
    refused(cpu());
    variants().into_iter().flatten().for_each(refused);
}
