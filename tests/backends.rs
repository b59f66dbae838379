//! One backend against the other where the goldens do not reach: what is no number, nothing at all, long prompts, many threads.

#![cfg(feature = "wgpu")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "common/cases.rs"]
mod cases;
#[path = "common/clips.rs"]
mod clips;
#[path = "common/device.rs"]
mod device;
#[path = "common/formula.rs"]
mod formula;

use std::fs;
use std::path::{Path, PathBuf};

use cases::{load, read_json, request};
use formula::{Options, goldens, materialise};
use vlm_spec::ErrorKind;
use vlm_spec::backend::cpu::Cpu;
use vlm_spec::backend::wgpu::{self, Wgpu};
use vlm_spec::backend::{
    Activation, Attention, Backend, Epilogue, KeyRanges, Mask, Norm, NormKind, Pairing,
};
use vlm_spec::generate::Sampling;
use vlm_spec::model::{Model, Timings};
use vlm_spec::preprocess::Media;
use vlm_spec::prompt::Request;
use vlm_spec::tensor::{Dtype, HostTensor, SharedBytes};

const ACTIVATIONS: [Activation; 7] = [
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::QuickGelu,
    Activation::Silu,
    Activation::Relu,
    Activation::Sigmoid,
    Activation::Tanh,
];

fn cpu() -> Cpu {
    Cpu::new(Some(2)).unwrap()
}

/// The device with its abilities, and without.
fn devices() -> Vec<Wgpu> {
    let Some(device) = device::wgpu() else { return Vec::new() };
    let plain = wgpu::Options { subgroups: false, half_precision: false, ..Default::default() };
    vec![device, Wgpu::new(&plain).unwrap()]
}

fn checkpoint(name: &str, test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("backends").join(test).join(name);
    let _ = fs::remove_dir_all(&folder);
    materialise(&goldens().join(name), &folder, &Options::default()).unwrap();
    folder
}

/// Equal within `tolerance` of the larger of 1 and the expected value, what is no number or endless included.
fn alike(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let same = found.to_bits() == expected.to_bits()
            || (found.is_nan() && expected.is_nan())
            || (found - expected).abs() <= tolerance * expected.abs().max(1.0);
        assert!(same, "{what}: element {index} is {found:e}, expected {expected:e}");
    }
}

/// Every elementwise operation on values at the ends of f32.
fn extremes<B: Backend>(backend: &B) -> Vec<(String, Vec<f32>)> {
    let mut values = vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    for magnitude in [1e30_f32, 1e13, 1e5, 300.0, 100.0, 89.0, 30.0, 10.1, 1e-3, 1e-20, 0.0] {
        values.extend([magnitude, -magnitude]);
    }
    let count = values.len();
    let x = backend.upload(values, 1, count).unwrap();
    let ones = backend.upload(vec![1.0; count], 1, count).unwrap();
    let down = |tensor: B::Tensor| backend.download(&tensor).unwrap();
    let mut all = Vec::new();
    for activation in ACTIVATIONS {
        all.push((format!("{activation:?}"), down(backend.activate(&x, activation).unwrap())));
        all.push((
            format!("gated {activation:?}"),
            down(backend.gated(&x, &ones, activation).unwrap()),
        ));
    }
    all.push(("soft cap".to_owned(), down(backend.softcap(&x, 30.0).unwrap())));
    all.push(("factor".to_owned(), down(backend.scale(&x, 2.0).unwrap())));
    all.push(("sum".to_owned(), down(backend.add(&x, &ones).unwrap())));
    all
}

/// What is no number stays none, and nothing else becomes none.
#[test]
fn values_at_the_ends_of_the_range() {
    let expected = extremes(&cpu());
    for device in devices() {
        for ((what, found), (_, expected)) in extremes(&device).iter().zip(&expected) {
            alike(what, found, expected, 4e-7); // a few roundings
        }
    }
}

/// What reaches a row that holds something that is no number: nothing but that row of products and norms, and every row of
/// attention that sees it.
#[test]
fn what_is_no_number_is_passed_on() {
    fn results<B: Backend>(backend: &B, rows: usize) -> Vec<Vec<bool>> {
        let width = 8;
        let mut values: Vec<f32> = (0..rows * width).map(|at| (at % 7) as f32 * 0.1).collect();
        values[3] = f32::NAN;
        let x = backend.upload(values, rows, width).unwrap();
        let data = (0..5 * width).flat_map(|at| (at as f32).to_le_bytes()).collect();
        let shape = vec![5, width];
        let host = HostTensor { dtype: Dtype::F32, shape, data: SharedBytes::from_vec(data) };
        let weight = backend.weight(&host).unwrap();
        let mut all = vec![backend.linear(&x, &weight, Epilogue::default()).unwrap()];
        for kind in [NormKind::Layer, NormKind::Rms] {
            let norm = Norm { kind, weight: None, offset: 0.0, bias: None, eps: 1e-6 };
            all.push(backend.norm(&x, &norm).unwrap());
        }
        for softcap in [None, Some(20.0)] {
            let mask = Mask::Causal { start: 0 };
            let one = Attention { heads: 2, kv_heads: 2, head_dim: 4, scale: 1.0, softcap, mask };
            all.push(backend.attention(&x, &x, &x, &one).unwrap());
        }
        let nan = |tensor: &B::Tensor| {
            backend.download(tensor).unwrap().iter().map(|value| value.is_nan()).collect()
        };
        all.iter().map(nan).collect()
    }
    for rows in [2, 8, 20, 70] {
        let expected = results(&cpu(), rows);
        assert!(expected.iter().all(|values| values.contains(&true)));
        for device in devices() {
            assert_eq!(results(&device, rows), expected, "{rows} rows");
        }
    }
}

/// Tensors without rows or without columns go through everything.
#[test]
fn nothing_at_all() {
    fn results<B: Backend>(backend: &B) -> Vec<(usize, usize, Vec<f32>)> {
        let upload = |rows: usize, width: usize| {
            backend.upload(vec![0.5; rows * width], rows, width).unwrap()
        };
        let weight = |outputs: usize, inputs: usize| {
            let data = vec![1.0_f32; outputs * inputs];
            let data = data.iter().flat_map(|value| value.to_le_bytes()).collect();
            let shape = vec![outputs, inputs];
            let host = HostTensor { dtype: Dtype::F32, shape, data: SharedBytes::from_vec(data) };
            backend.weight(&host).unwrap()
        };
        let bias = upload(1, 3);
        let none = upload(0, 8);
        let biased = || Epilogue { bias: Some(&bias), activation: None, then: None };
        let norm = Norm { kind: NormKind::Layer, weight: None, offset: 0.0, bias: None, eps: 1.0 };
        let mut nobody = KeyRanges::new();
        (0..3).for_each(|_| nobody.push([]));
        let blind = |mask| Attention {
            heads: 2,
            kv_heads: 1,
            head_dim: 4,
            scale: 1.0,
            softcap: None,
            mask,
        };
        let unseen = blind(Mask::Ranges(&nobody));
        let mut cache = backend.cache(0, 4).unwrap();
        backend.append(&mut cache, &upload(0, 4), &upload(0, 4)).unwrap();
        let all = [
            backend.linear(&none, &weight(3, 8), biased()).unwrap(),
            backend.linear(&upload(2, 0), &weight(3, 0), biased()).unwrap(),
            backend.linear(&upload(20, 0), &weight(3, 0), biased()).unwrap(),
            backend.linear(&upload(2, 8), &weight(0, 8), Epilogue::default()).unwrap(),
            backend.norm(&none, &norm).unwrap(),
            backend.activate(&none, Activation::Silu).unwrap(),
            backend.gated(&none, &none, Activation::Silu).unwrap(),
            backend.add(&none, &upload(1, 8)).unwrap(),
            backend.multiply(&none, &none).unwrap(),
            backend.scale(&none, 2.0).unwrap(),
            backend.softcap(&none, 2.0).unwrap(),
            backend.rope(&none, 2, &upload(0, 2), &upload(0, 2), Pairing::Half).unwrap(),
            backend.rope(&upload(2, 8), 2, &upload(2, 0), &upload(2, 0), Pairing::Half).unwrap(),
            backend.attention(&upload(3, 8), &upload(0, 4), &upload(0, 4), &unseen).unwrap(),
            backend.attention_cached(&upload(3, 8), &cache, &unseen).unwrap(),
            backend
                .attention(&none, &upload(5, 4), &upload(5, 4), &blind(Mask::Causal { start: 5 }))
                .unwrap(),
            backend
                .attention(&none, &upload(0, 4), &upload(0, 4), &blind(Mask::Segments(&[])))
                .unwrap(),
            backend.embed(&weight(3, 8), &[]).unwrap(),
            backend.gather(&none, &[]).unwrap(),
            backend.blend(&none, &[], &[], 3).unwrap(),
            backend.scatter(upload(2, 8), &none, &[]).unwrap(),
            backend.scatter(none.clone(), &none, &[]).unwrap(),
            backend.columns(&none, 8, 0).unwrap(),
            backend.columns(&upload(2, 8), 3, 0).unwrap(),
            backend.rows(&none, 0, 0).unwrap(),
            backend.transpose(&none, 2, 4).unwrap(),
            backend.reshape(none.clone(), 3, 0).unwrap(),
            backend.concat(&[&none, &none]).unwrap(),
        ];
        assert!(backend.largest(&none).unwrap().is_empty());
        assert!(backend.concat(&[]).is_err());
        all.iter()
            .map(|tensor| {
                let (rows, width) = backend.shape(tensor);
                (rows, width, backend.download(tensor).unwrap())
            })
            .collect()
    }
    let expected = results(&cpu());
    for device in devices() {
        for (index, (found, expected)) in results(&device).iter().zip(&expected).enumerate() {
            assert_eq!(found, expected, "result {index}");
        }
    }
}

/// The last row of logits behind a text, and five greedy tokens.
fn behind<B: Backend>(
    model: &Model<B>,
    request: Request<'_>,
    media: &Media,
) -> (Vec<f32>, Vec<u32>) {
    let embedded = model.embed(request, media, &(), &mut Timings::default()).unwrap();
    let mut cache = model.cache(&embedded, embedded.prompt.ids.len()).unwrap();
    let states = model.prefill(&embedded, &mut cache, &()).unwrap();
    let logits = model.last_logits(&states).unwrap();
    let generated =
        model.generate(request, media, 5, Sampling::default(), &mut |_| Ok(true)).unwrap();
    (logits, generated.tokens)
}

/// Prompts of thousands of tokens: many tiles of every kernel, windows that slide, a picture far behind.
#[test]
fn long_prompts() {
    let Some(device) = device::wgpu() else { return };
    let picture = goldens().join("images/50x37_0.png");
    for name in ["gemma3", "qwen2vl", "mllama", "qwen3vlmoe"] {
        let folder = checkpoint(name, "long");
        let (cpu, model) = (load(&folder, cpu()), load(&folder, device.clone()));
        let text = "The cat sat on the mat, and the dog on 17 cats. ".repeat(60);
        let content = format!(
            r#"[{{"role": "user", "content": [{{"type": "image"}}, {{"type": "text", "text": "{text}"}}]}}]"#
        );
        let conversation = vlm_spec::prompt::Conversation::from_json(&content).unwrap();
        let request = Request::Messages(&conversation.messages);
        let media = cpu.media(std::slice::from_ref(&picture), &[]).unwrap();
        let (expected, expected_tokens) = behind(&cpu, request, &media);
        let (found, tokens) = behind(&model, request, &media);
        let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
        let pairs = || found.iter().zip(&expected);
        let error = (norm(&mut pairs().map(|(a, b)| f64::from(*a) - f64::from(*b)))
            / norm(&mut expected.iter().map(|b| f64::from(*b))))
        .sqrt();
        println!("{name}: {error:e}");
        // as between the backends and the reference: other orders of summation
        assert!(error <= 2e-5, "{name}: {error:e}");
        assert_eq!(tokens, expected_tokens, "{name}");
    }
}

/// Models on one device, each in a thread, give what each gives alone.
#[test]
fn threads_share_a_device() {
    let Some(device) = device::wgpu() else { return };
    let names = ["llava", "qwen2vl", "qwen2audio", "mllama"];
    let models = names.map(|name| load(&checkpoint(name, "threads"), device.clone()));
    let run = |name: &str, model: &Model<Wgpu>| {
        let report = read_json(&goldens().join(name).join("golden.json"));
        let cases = report["cases"].as_object().unwrap();
        let case = cases.values().find(|case| case["raw"] != true).unwrap();
        let (_, messages, pictures, clips) = request(case);
        let media = model.media(&pictures, &clips).unwrap();
        model.trace(Request::Messages(&messages), &media, 8).unwrap()
    };
    let alone: Vec<_> = names.iter().zip(&models).map(|(name, model)| run(name, model)).collect();
    std::thread::scope(|scope| {
        for ((name, model), alone) in names.iter().zip(&models).zip(&alone) {
            scope.spawn(move || {
                for _ in 0..4 {
                    assert!(run(name, model) == *alone, "{name}");
                }
            });
        }
    });
}

/// A weight that is no number is told, and no token is made of it.
#[test]
fn broken_weights_are_told() {
    let Some(device) = device::wgpu() else { return };
    for name in ["paligemma2", "llava"] {
        let folder = checkpoint(name, "broken");
        let file = folder.join("model.safetensors");
        let mut bytes = fs::read(&file).unwrap();
        let end = bytes.len();
        // the embedding table or the head lies somewhere: all of the weights are broken
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize + 8;
        for at in (header..end).step_by(4) {
            bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        }
        fs::write(&file, bytes).unwrap();
        let kind = |error: vlm_spec::error::Error| error.kind();
        let media = Media::default();
        let request = Request::Raw("abc");
        let mut tell = |_| Ok(true);
        let sampling = Sampling::default();
        let on_cpu =
            load(&folder, cpu()).generate(request, &media, 2, sampling, &mut tell).unwrap_err();
        let on_device = load(&folder, device.clone())
            .generate(request, &media, 2, sampling, &mut tell)
            .unwrap_err();
        assert_eq!((kind(on_cpu), kind(on_device)), (ErrorKind::Weights, ErrorKind::Weights));
    }
}
