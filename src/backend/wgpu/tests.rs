//! Every kernel against the CPU backend, over shapes that are multiples of nothing, with all abilities of the device and
//! with fewer.
//!
//! `VLM_SPEC_REQUIRE_DEVICE=1` makes a missing device a failure; otherwise tests say that they were skipped.

#![allow(clippy::print_stderr, clippy::single_range_in_vec_init)]

use std::env;
use std::sync::OnceLock;

use super::kernel::{Abilities, Kernel};
use super::*;
use crate::backend::cpu::Cpu;
use crate::backend::{KeyRanges, Mask, NormKind, Then};
use crate::error::ErrorKind;
use crate::tensor::{Dtype, SharedBytes};

const ACTIVATIONS: [Activation; 7] = [
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::QuickGelu,
    Activation::Silu,
    Activation::Relu,
    Activation::Sigmoid,
    Activation::Tanh,
];
const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

/// The device with all that it can do, then without subgroups, without half precision, without both; one device each for
/// the whole process.
fn variants() -> Option<&'static [Wgpu]> {
    static VARIANTS: OnceLock<Vec<Wgpu>> = OnceLock::new();
    let variants = VARIANTS.get_or_init(|| {
        let all = [(true, true), (false, true), (true, false), (false, false)];
        let open = |(subgroups, half_precision)| {
            Wgpu::new(&Options { device: None, subgroups, half_precision })
        };
        match all.map(open).into_iter().collect() {
            Ok(variants) => variants,
            Err(error) => {
                let required = env::var_os("VLM_SPEC_REQUIRE_DEVICE").is_some();
                assert!(!required, "a device is required: {error}");
                eprintln!("skipped: {error}");
                Vec::new()
            }
        }
    });
    (!variants.is_empty()).then_some(variants)
}

fn cpu() -> &'static Cpu {
    static CPU: OnceLock<Cpu> = OnceLock::new();
    CPU.get_or_init(|| Cpu::new(Some(1)).unwrap())
}

/// Values between -1 and 1 (the mixer of splitmix64).
fn values(count: usize, seed: u64) -> Vec<f32> {
    let value = |index: usize| {
        let mut bits = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ seed.wrapping_mul(0xd1b5_4a32_d192_ed03);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits ^= bits >> 27;
        (bits >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    (0..count).map(value).collect()
}

fn host_weight(dtype: Dtype, outputs: usize, inputs: usize, seed: u64) -> HostTensor {
    let mut bytes = Vec::new();
    for value in values(outputs * inputs, seed) {
        match dtype {
            Dtype::F32 => bytes.extend(value.to_le_bytes()),
            Dtype::F16 => bytes.extend(half::f16::from_f32(value).to_le_bytes()),
            Dtype::Bf16 => bytes.extend(half::bf16::from_f32(value).to_le_bytes()),
        }
    }
    HostTensor { dtype, shape: vec![outputs, inputs], data: SharedBytes::from_vec(bytes) }
}

/// A tensor of [`values`] on a backend.
fn tensor<B: Backend>(backend: &B, rows: usize, width: usize, seed: u64) -> B::Tensor {
    backend.upload(values(rows * width, seed), rows, width).unwrap()
}

/// The same computation everywhere, with results at most `tolerance` apart, relative to the largest.
macro_rules! alike {
    ($tolerance:expr, $what:expr, |$backend:ident| $compute:expr) => {{
        let compute = |found: Vec<f32>, expected: &[f32], name: &str| {
            let largest = expected.iter().fold(1.0_f32, |most, value| most.max(value.abs()));
            assert_eq!(found.len(), expected.len(), "{} ({name})", $what);
            for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
                let error = (found - expected).abs() / largest;
                // written so that NaN fails
                assert!(
                    error <= $tolerance,
                    "{} ({name}): element {index} is {found}, expected {expected}",
                    $what
                );
            }
        };
        let expected = {
            let $backend = cpu();
            let result = $compute;
            $backend.download(&result).unwrap()
        };
        for (number, $backend) in variants().into_iter().flatten().enumerate() {
            let result = $compute;
            compute($backend.download(&result).unwrap(), &expected, &format!("variant {number}"));
        }
    }};
}

mod experts;

#[test]
fn values_come_back_as_they_were() {
    for backend in variants().into_iter().flatten() {
        let all = values(15, 1);
        let x = backend.upload(all.clone(), 3, 5).unwrap();
        assert_eq!(backend.shape(&x), (3, 5));
        let x = backend.reshape(x, 5, 3).unwrap();
        assert_eq!(backend.download(&x).unwrap(), all);
        assert!(backend.upload(all, 4, 4).is_err() && backend.reshape(x, 4, 4).is_err());
        let none = backend.upload(Vec::new(), 0, 7).unwrap();
        assert_eq!(backend.shape(&none), (0, 7));
        assert!(backend.download(&none).unwrap().is_empty());
    }
}

#[test]
fn products() {
    // up to 8 rows are few; 65, 129 and 257 are one more than tiles; 1029 rows and columns make tiles large
    let shapes = [
        (1, 1, 1),
        (1, 7, 5),
        (2, 33, 9),
        (3, 72, 66),
        (5, 4, 3),
        (8, 257, 31),
        (9, 8, 5),
        (17, 33, 65),
        (65, 72, 64),
        (64, 64, 129),
        (130, 257, 67),
        (1029, 20, 1100),
    ];
    for (seed, (rows, inputs, outputs)) in (0..).zip(shapes) {
        for dtype in DTYPES {
            for extent in ["alone", "added", "multiplied"] {
                let what = format!("[{rows}, {inputs}] x [{outputs}, {inputs}] {dtype:?} {extent}");
                // sums of up to 257 products of numbers below 1 in other orders
                alike!(3e-6, what, |backend| {
                    let weight =
                        backend.weight(&host_weight(dtype, outputs, inputs, seed)).unwrap();
                    let x = tensor(backend, rows, inputs, seed + 100);
                    let bias = tensor(backend, 1, outputs, seed + 200);
                    let other = tensor(backend, rows, outputs, seed + 300);
                    let activation = Some(ACTIVATIONS[seed as usize % ACTIVATIONS.len()]);
                    let (bias, then) = match extent {
                        "alone" => (None, None),
                        "added" => (Some(&bias), Some(Then::Add(&other))),
                        _ => (Some(&bias), Some(Then::Multiply(&other))),
                    };
                    let activation = activation.filter(|_| bias.is_some());
                    let epilogue = Epilogue { bias, activation, then };
                    backend.linear(&x, &weight, epilogue).unwrap()
                });
            }
        }
    }
}

/// A matrix that is larger than what a shader sees at once is cut; here the bound is made small.
#[test]
fn large_weights_are_cut_between_rows() {
    let Some(backend) = variants().and_then(<[Wgpu]>::first) else { return };
    for dtype in DTYPES {
        let host = host_weight(dtype, 1000, 70, 5);
        let whole = Weight::new(&backend.stream, &host).unwrap();
        let cut = Weight::cut(&backend.stream, &host, 10_000).unwrap();
        for rows in [1, 3, 40] {
            let (x, bias) = (tensor(backend, rows, 70, 6), tensor(backend, 1, 1000, 7));
            let residual = tensor(backend, rows, 1000, 8);
            let product = |weight: &Weight| {
                let epilogue = Epilogue {
                    bias: Some(&bias),
                    activation: Some(Activation::Silu),
                    then: Some(Then::Add(&residual)),
                };
                backend.download(&backend.linear(&x, weight, epilogue).unwrap()).unwrap()
            };
            assert_eq!(product(&whole), product(&cut), "{dtype:?}");
        }
        let ids = [999, 0, 35, 36, 500, 71, 0];
        let rows =
            |weight: &Weight| backend.download(&backend.embed(weight, &ids).unwrap()).unwrap();
        assert_eq!(rows(&whole), rows(&cut), "{dtype:?}");
    }
}

#[test]
fn embeddings_are_exact_in_every_type() {
    for dtype in DTYPES {
        for width in [1, 6, 64] {
            alike!(0.0, format!("{dtype:?}, {width}"), |backend| {
                let table = backend.weight(&host_weight(dtype, 50, width, 3)).unwrap();
                backend.embed(&table, &[49, 0, 7, 7, 21]).unwrap()
            });
        }
    }
    // every f16, the smallest and the endless among them
    let bits: Vec<u16> = (0..=u16::MAX).collect();
    let bytes = bits.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let shape = vec![256, 256];
    let host = HostTensor { dtype: Dtype::F16, shape, data: SharedBytes::from_vec(bytes) };
    let all: Vec<u32> = (0..256).collect();
    for (number, backend) in variants().into_iter().flatten().enumerate() {
        let table = backend.weight(&host).unwrap();
        let found = backend.download(&backend.embed(&table, &all).unwrap()).unwrap();
        for (bits, found) in bits.iter().zip(found) {
            let expected = half::f16::from_bits(*bits).to_f32();
            let same =
                found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
            assert!(same, "variant {number}: {bits:#06x} is {found:e}, expected {expected:e}");
        }
    }
}

#[test]
fn norms() {
    for (rows, width) in [(1, 1), (3, 7), (5, 128), (2, 129), (130, 33), (7, 1153)] {
        for kind in [NormKind::Layer, NormKind::Rms] {
            for full in [false, true] {
                // a variance of up to 1153 squares; a row of one element has none, which leaves eps
                alike!(2e-6, format!("{kind:?} [{rows}, {width}] {full}"), |backend| {
                    let x = tensor(backend, rows, width, 1);
                    let (weight, bias) =
                        (tensor(backend, 1, width, 2), tensor(backend, 1, width, 3));
                    let norm = Norm {
                        kind,
                        weight: full.then_some(&weight),
                        offset: 1.0,
                        bias: full.then_some(&bias),
                        eps: 1e-5,
                    };
                    backend.norm(&x, &norm).unwrap()
                });
            }
        }
    }
    // a mean a thousand times larger than what varies
    alike!(2e-4, "large mean", |backend| {
        let shifted = values(5 * 300, 4).iter().map(|value| value + 1000.0).collect();
        let x = backend.upload(shifted, 5, 300).unwrap();
        let norm = Norm { kind: NormKind::Layer, weight: None, offset: 0.0, bias: None, eps: 1e-6 };
        backend.norm(&x, &norm).unwrap()
    });
}

#[test]
fn elementwise() {
    for (rows, width) in [(1, 1), (3, 7), (17, 259)] {
        for activation in ACTIVATIONS {
            let what = format!("{activation:?} [{rows}, {width}]");
            // a few roundings of numbers of at most 12
            alike!(4e-7, what, |backend| {
                let wide = values(rows * width, 1).iter().map(|value| value * 12.0).collect();
                let x = backend.upload(wide, rows, width).unwrap();
                backend.activate(&x, activation).unwrap()
            });
            alike!(4e-7, what, |backend| {
                let (a, b) = (tensor(backend, rows, width, 1), tensor(backend, rows, width, 2));
                backend.gated(&a, &b, activation).unwrap()
            });
        }
        for other in [1, rows] {
            alike!(0.0, "sum", |backend| {
                let (a, b) = (tensor(backend, rows, width, 1), tensor(backend, other, width, 2));
                backend.add(&a, &b).unwrap()
            });
            alike!(0.0, "product", |backend| {
                let (a, b) = (tensor(backend, rows, width, 1), tensor(backend, other, width, 2));
                backend.multiply(&a, &b).unwrap()
            });
        }
        alike!(0.0, "factor", |backend| {
            backend.scale(&tensor(backend, rows, width, 1), -2.5).unwrap()
        });
        alike!(4e-7, "soft cap", |backend| {
            let x = backend.scale(&tensor(backend, rows, width, 1), 90.0).unwrap();
            backend.softcap(&x, 30.0).unwrap()
        });
    }
}

#[test]
fn rotations() {
    for (rows, heads, head) in [(1, 1, 2), (5, 3, 6), (33, 4, 20)] {
        for pairs in [1, head / 2 - usize::from(head > 4), head / 2] {
            for pairing in [Pairing::Half, Pairing::Interleaved] {
                // the processor fuses multiplication and addition
                alike!(2e-7, format!("{rows} {heads} {head} {pairs} {pairing:?}"), |backend| {
                    let x = tensor(backend, rows, heads * head, 1);
                    let (cos, sin) =
                        (tensor(backend, rows, pairs, 2), tensor(backend, rows, pairs, 3));
                    backend.rope(&x, heads, &cos, &sin, pairing).unwrap()
                });
            }
        }
    }
}

#[test]
fn rows_and_columns_move() {
    alike!(0.0, "columns", |backend| backend.columns(&tensor(backend, 7, 33, 1), 5, 17).unwrap());
    alike!(0.0, "fours", |backend| backend.columns(&tensor(backend, 7, 32, 1), 8, 20).unwrap());
    alike!(0.0, "rows", |backend| backend.rows(&tensor(backend, 7, 33, 1), 2, 4).unwrap());
    alike!(0.0, "no rows", |backend| backend.rows(&tensor(backend, 7, 33, 1), 7, 0).unwrap());
    alike!(0.0, "concat", |backend| {
        let parts = [1, 0, 5, 300].map(|rows| tensor(backend, rows, 33, rows as u64));
        backend.concat(&parts.iter().collect::<Vec<_>>()).unwrap()
    });
    alike!(0.0, "gather", |backend| {
        backend.gather(&tensor(backend, 7, 33, 1), &[6, 0, 0, 3]).unwrap()
    });
    alike!(0.0, "scatter", |backend| {
        let x = tensor(backend, 7, 33, 1);
        let kept = x.clone();
        let changed = backend.scatter(x, &tensor(backend, 3, 33, 2), &[6, 0, 3]).unwrap();
        backend.concat(&[&kept, &changed]).unwrap()
    });
    alike!(0.0, "scatter in place", |backend| {
        backend.scatter(tensor(backend, 7, 33, 1), &tensor(backend, 3, 33, 2), &[6, 0, 3]).unwrap()
    });
    alike!(2e-7, "blend", |backend| {
        let weights = [0.5, -1.5, 2.0, 0.25, 0.0, 1.0];
        backend.blend(&tensor(backend, 7, 33, 1), &[6, 0, 3, 3, 1, 2], &weights, 3).unwrap()
    });
    for (rows, columns) in [(1, 12), (12, 1), (3, 4)] {
        alike!(0.0, "transpose", |backend| {
            backend.transpose(&tensor(backend, 5, 12, 1), rows, columns).unwrap()
        });
    }
}

#[test]
fn the_first_of_the_largest_is_found_and_what_is_no_number_is_told() {
    for backend in variants().into_iter().flatten() {
        for width in [1, 2, 255, 256, 257, 5000] {
            let mut all = values(4 * width, 9);
            all[width..2 * width].fill(0.25);
            all[2 * width - 1] = 0.5;
            all[2 * width..3 * width].fill(f32::NEG_INFINITY);
            all[3 * width + width / 2] = f32::NAN;
            let x = backend.upload(all.clone(), 4, width).unwrap();
            let expected = cpu().largest(&cpu().upload(all, 4, width).unwrap()).unwrap();
            assert_eq!(backend.largest(&x).unwrap(), expected, "{width}");
        }
        assert!(backend.largest(&backend.upload(Vec::new(), 3, 0).unwrap()).is_err());
    }
    if let Some(backend) = variants().and_then(<[Wgpu]>::first) {
        // more rows than a device starts workgroups along an axis
        let many = backend.upload(values(70_000 * 3, 1), 70_000, 3).unwrap();
        let expected = cpu().largest(&tensor(cpu(), 70_000, 3, 1)).unwrap();
        assert_eq!(backend.largest(&many).unwrap(), expected);
    }
}

fn ranges(rows: usize, keys: usize) -> KeyRanges {
    let mut all = KeyRanges::new();
    for row in 0..rows {
        let own = row * keys / rows;
        match row % 4 {
            0 => all.push([0..own + 1]),
            1 => all.push([0..keys / 5, own..(own + 40).min(keys), keys - 1..keys]),
            2 => all.push([]),
            _ => all.push([own / 2..keys]),
        }
    }
    all
}

#[test]
fn attention_with_every_mask() {
    // (query rows, key rows, heads, key heads, elements per head)
    let shapes = [
        (1, 1, 1, 1, 1),
        (1, 300, 4, 2, 6),
        (3, 129, 2, 1, 72),
        (2, 1000, 4, 2, 72),
        (5, 999, 1, 1, 33),
        (15, 40, 3, 3, 130),
        (16, 31, 2, 2, 8),
        (63, 64, 2, 1, 33),
        (64, 150, 4, 2, 64),
        (65, 65, 1, 1, 80),
        (150, 150, 2, 1, 20),
        (40, 33, 1, 1, 256),
    ];
    for (rows, keys, heads, kv_heads, head_dim) in shapes {
        let seen = ranges(rows, keys);
        let third = rows / 3;
        let segments = [third, rows - 2 * third, third];
        let mut masks = vec![("ranges", Mask::Ranges(&seen))];
        if rows <= keys {
            masks.push(("causal", Mask::Causal { start: keys - rows }));
        }
        let whole = [rows];
        if rows == keys {
            masks.push(("segments", Mask::Segments(&segments)));
            masks.push(("one segment", Mask::Segments(&whole)));
        }
        for (name, mask) in masks {
            for softcap in [None, Some(2.5)] {
                let attention = Attention { heads, kv_heads, head_dim, scale: 1.7, softcap, mask };
                let what =
                    format!("{name} {rows} {keys} {heads} {kv_heads} {head_dim} {softcap:?}");
                // powers of two of scores up to 60, and sums of up to 300 of them in other orders
                alike!(1e-5, what, |backend| {
                    let q = tensor(backend, rows, heads * head_dim, 1);
                    let k = tensor(backend, keys, kv_heads * head_dim, 2);
                    let v = tensor(backend, keys, kv_heads * head_dim, 3);
                    backend.attention(&q, &k, &v, &attention).unwrap()
                });
            }
        }
    }
}

#[test]
fn caches_grow_row_by_row() {
    alike!(1e-5, "cached", |backend| {
        let mut cache = backend.cache(40, 12).unwrap();
        let mut parts = Vec::new();
        for (step, rows) in [17, 1, 1, 21].into_iter().enumerate() {
            let start = backend.cache_len(&cache);
            let seed = step as u64;
            let (k, v) = (tensor(backend, rows, 12, seed), tensor(backend, rows, 12, seed + 9));
            backend.append(&mut cache, &k, &v).unwrap();
            let attention = Attention {
                heads: 4,
                kv_heads: 2,
                head_dim: 6,
                scale: 0.4,
                softcap: None,
                mask: Mask::Causal { start },
            };
            let q = tensor(backend, rows, 24, seed + 20);
            parts.push(backend.attention_cached(&q, &cache, &attention).unwrap());
        }
        assert!(
            backend
                .append(&mut cache, &tensor(backend, 1, 12, 1), &tensor(backend, 1, 12, 1))
                .is_err()
        );
        backend.concat(&parts.iter().collect::<Vec<_>>()).unwrap()
    });
}

/// Whatever is recorded between an upload and a result is one submission, and only the result comes back.
#[test]
fn results_alone_come_back_and_work_is_sent_once() {
    let Some(backend) = variants().and_then(<[Wgpu]>::last) else { return };
    // a device of its own, since tests run side by side
    let own = Wgpu::new(&Options { subgroups: false, ..Options::default() }).unwrap();
    assert_eq!(own.device(), backend.device());
    let weight = own.weight(&host_weight(Dtype::Bf16, 64, 64, 1)).unwrap();
    let mut x = tensor(&own, 20, 64, 2);
    for _ in 0..50 {
        x = own.linear(&x, &weight, Epilogue::default()).unwrap();
        x = own.scale(&x, 0.05).unwrap();
    }
    assert_eq!((own.submissions(), own.bytes_read_back()), (0, 0));
    let last = own.rows(&x, 19, 1).unwrap();
    assert_eq!(own.largest(&last).unwrap().len(), 1);
    assert_eq!((own.submissions(), own.bytes_read_back()), (1, 4));
    own.wait().unwrap();
    assert_eq!(own.submissions(), 1, "there is nothing to send");
}

#[test]
fn what_does_not_fit_is_an_error() {
    let Some(backend) = variants().and_then(<[Wgpu]>::first) else { return };
    let x = tensor(backend, 3, 4, 1);
    let weight = backend.weight(&host_weight(Dtype::F32, 5, 6, 1)).unwrap();
    let text = |error: crate::error::Error| error.message().to_owned();
    assert_eq!(
        text(backend.linear(&x, &weight, Epilogue::default()).err().unwrap()),
        "a product of `[3, 4]` with a weight of `[5, 6]`"
    );
    let other = tensor(backend, 2, 4, 1);
    assert!(backend.add(&x, &other).is_err() && backend.concat(&[]).is_err());
    assert!(backend.gather(&x, &[3]).is_err() && backend.embed(&weight, &[5]).is_err());
    assert!(backend.blend(&x, &[0, 1], &[1.0], 1).is_err());
    assert!(backend.columns(&x, 2, 3).is_err() && backend.rows(&x, 2, 2).is_err());
    assert!(backend.transpose(&x, 3, 3).is_err() && backend.softcap(&x, 0.0).is_err());
    let huge = Tensor::new(&backend.stream, 1 << 20, 1 << 20).err().unwrap();
    assert!(
        text(huge)
            .starts_with("a tensor of 4398046511104 bytes is larger than what the device sees")
    );
    assert!(Tensor::new(&backend.stream, usize::MAX, 2).is_err());
    // the device still works
    assert_eq!(backend.download(&x).unwrap(), values(12, 1));
}

/// A device that goes away is one error, then and ever after, and no panic.
#[test]
fn a_lost_device_is_an_error() {
    if variants().is_none() {
        return;
    }
    let own = Wgpu::new(&Options::default()).unwrap();
    let x = tensor(&own, 3, 4, 1);
    own.stream.opened.device.destroy();
    let lost = |result: Result<Vec<f32>>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Backend);
        assert!(error.to_string().contains("lost"), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    };
    lost(own.scale(&x, 2.0).and_then(|x| own.download(&x)));
    lost(own.upload(vec![1.0], 1, 1).and_then(|x| own.download(&x)));
    lost(own.download(&x));
}

/// Every shader in every variant is accepted and translated for the two kinds of drivers, without any being here.
#[test]
fn every_shader_translates() {
    use naga::back::{msl, spv};
    use naga::valid::{Capabilities, ValidationFlags, Validator};
    let heads = [1, 6, 33, 64, 72, 80, 96, 128, 256];
    let mut translated = 0;
    for subgroups in [false, true] {
        for half_precision in [false, true] {
            let abilities = Abilities { subgroups, half_precision };
            for kernel in Kernel::all(&heads) {
                let text = kernel.source(abilities);
                let module = naga::front::wgsl::parse_str(&text)
                    .unwrap_or_else(|error| panic!("{kernel:?}: {}", error.emit_to_string(&text)));
                let mut known = Capabilities::IMMEDIATES;
                known.set(Capabilities::SUBGROUP | Capabilities::SUBGROUP_BARRIER, subgroups);
                known.set(Capabilities::SHADER_FLOAT16, half_precision);
                let info = Validator::new(ValidationFlags::all(), known)
                    .subgroup_stages(naga::valid::ShaderStages::COMPUTE)
                    .subgroup_operations(naga::valid::SubgroupOperationSet::all())
                    .validate(&module)
                    .unwrap_or_else(|error| panic!("{kernel:?}: {}", error.emit_to_string(&text)));
                let words = spv::write_vec(&module, &info, &spv::Options::default(), None).unwrap();
                assert!(words.len() > 100, "{kernel:?}");
                let options = msl::Options {
                    lang_version: (2, 4),
                    fake_missing_bindings: true,
                    ..msl::Options::default()
                };
                let (metal, _) =
                    msl::write_string(&module, &info, &options, &msl::PipelineOptions::default())
                        .unwrap_or_else(|error| panic!("{kernel:?}: {error}"));
                assert!(metal.contains("kernel void"), "{kernel:?}");
                translated += 1;
            }
        }
    }
    assert!(translated > 200, "only {translated}");
}
