//! The kernels of the backend of compute shaders against what the device reaches at most:
//! `cargo bench --bench wgpu [-- --device NAME|INDEX] [-- --quick]`.
//!
//! A line is the median of several runs. In a run a kernel is recorded many times, and the clock runs from sending until
//! all is done: timestamps of the device would need a feature that the library itself has no use for, and the gaps
//! between kernels, which they leave out, are part of every forward pass. What a kernel costs that does nothing is the
//! first line: where another one takes less than ten times that, its rate is too low. Weights rotate, so that caches do
//! not hold them. On a slow device sizes are halved until a kernel takes a fraction of a second.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints, and may panic"
)]

use std::process::ExitCode;
use std::time::Instant;

use vlm_spec::backend::wgpu::{Options, Peaks, Tensor, Weight, Wgpu};
use vlm_spec::backend::{
    Activation, Attention, Backend, Epilogue, Mask, Norm, NormKind, Pairing, RouterScores, Routing,
};
use vlm_spec::tensor::{Dtype, HostTensor, SharedBytes};

/// Multiply-adds that the library sends at once; recording more would let the device begin before the clock runs.
const AT_ONCE: f64 = (1_u64 << 40) as f64;
/// Bytes that weights have together, about.
const WEIGHT_BYTES: usize = 256 << 20;

/// What a kernel does, whichever of the two limits it.
#[derive(Clone, Copy)]
enum Work {
    MultiplyAdds(usize),
    Bytes(usize),
}

struct Bench {
    backend: Wgpu,
    peaks: Peaks,
    /// Timed runs of a line.
    runs: usize,
    /// Seconds of a run, about.
    seconds: f64,
}

/// Any values: no kernel takes longer for some than for others.
fn values(count: usize) -> Vec<f32> {
    (0..count).map(|index| (index * 7919 % 2048) as f32 / 1024.0 - 1.0).collect()
}

fn host_weight(dtype: Dtype, outputs: usize, inputs: usize) -> HostTensor {
    let values = values(outputs * inputs);
    let bytes: Vec<u8> = match dtype {
        Dtype::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Dtype::F16 => {
            values.iter().flat_map(|value| half::f16::from_f32(*value).to_le_bytes()).collect()
        }
        Dtype::Bf16 => {
            values.iter().flat_map(|value| half::bf16::from_f32(*value).to_le_bytes()).collect()
        }
    };
    HostTensor { dtype, shape: vec![outputs, inputs], data: SharedBytes::from_vec(bytes) }
}

impl Bench {
    /// `rows`, halved until a kernel of so much work is short, but at least `least`.
    fn shrunk(&self, rows: usize, least: usize, work: impl Fn(usize) -> Work) -> usize {
        let mut rows = rows;
        while rows > least {
            // kernels are slower than the peaks, most of all where a processor plays the device
            let expected = match work(rows) {
                Work::MultiplyAdds(count) => {
                    count as f64 / (self.peaks.multiply_adds_per_second * 0.1)
                }
                Work::Bytes(bytes) => bytes as f64 / (self.peaks.copy_bytes_per_second * 0.5),
            };
            if expected < self.seconds {
                break;
            }
            rows /= 2;
        }
        rows.max(least)
    }

    fn tensor(&self, rows: usize, width: usize) -> Tensor {
        self.backend.upload(values(rows * width), rows, width).unwrap()
    }

    /// Seconds from sending to the end of `times` calls of `record`.
    fn run(&self, times: usize, record: &mut impl FnMut() -> Tensor) -> f64 {
        for _ in 0..times {
            record(); // the result's memory is taken again by the next one
        }
        let start = Instant::now();
        self.backend.wait().unwrap();
        start.elapsed().as_secs_f64()
    }

    /// Measures one kernel and prints its line.
    fn line(&self, name: &str, shape: &str, work: Work, mut record: impl FnMut() -> Tensor) {
        self.run(1, &mut record); // compiles
        let once = self.run(1, &mut record);
        let most = match work {
            Work::MultiplyAdds(count) => AT_ONCE / count as f64,
            Work::Bytes(_) => 1000.0,
        };
        let times = (self.seconds / once).min(most).clamp(1.0, 1000.0) as usize;
        let runs = if once > 2.0 * self.seconds { 3 } else { self.runs };
        let mut seconds: Vec<f64> =
            (0..runs).map(|_| self.run(times, &mut record) / times as f64).collect();
        seconds.sort_by(f64::total_cmp);
        let median = seconds[runs / 2];
        let (rate, unit, peak) = match work {
            Work::MultiplyAdds(count) => {
                (2.0 * count as f64, "GFLOP/s", 2.0 * self.peaks.multiply_adds_per_second)
            }
            Work::Bytes(bytes) => (bytes as f64, "GB/s", self.peaks.copy_bytes_per_second),
        };
        let rate = rate / median;
        println!(
            "{name:<20} {shape:<34} {:>10.3} ms {:>10.2} {unit:<8} {:>5.1} %",
            median * 1e3,
            rate / 1e9,
            100.0 * rate / peak
        );
    }

    fn nothing(&self) {
        let x = self.tensor(1, 1);
        self.line("nothing", "one element", Work::Bytes(8), || {
            self.backend.scale(&x, 1.0).unwrap()
        });
    }

    /// Weights of one shape that together are more than caches hold.
    fn weights(&self, dtype: Dtype, inputs: usize, outputs: usize) -> Vec<Weight> {
        let host = host_weight(dtype, outputs, inputs);
        let count = WEIGHT_BYTES.div_ceil(host.data.len());
        (0..count).map(|_| self.backend.weight(&host).unwrap()).collect()
    }

    fn products(&self) {
        for (rows, inputs, outputs) in [(4096, 1152, 4304), (4096, 1152, 1152), (1024, 1536, 8960)]
        {
            // rows first, then columns
            let rows = self.shrunk(rows, 64, |rows| Work::MultiplyAdds(rows * inputs * outputs));
            let work = |outputs| Work::MultiplyAdds(rows * inputs * outputs);
            let outputs = self.shrunk(outputs, 128, work);
            let x = self.tensor(rows, inputs);
            for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
                let weight = self.backend.weight(&host_weight(dtype, outputs, inputs)).unwrap();
                let shape = format!("{rows} x {inputs} x {outputs}");
                self.line(
                    &format!("product {dtype:?}").to_lowercase(),
                    &shape,
                    work(outputs),
                    || self.backend.linear(&x, &weight, Epilogue::default()).unwrap(),
                );
            }
        }
    }

    fn skinny_products(&self) {
        for (inputs, outputs) in [(1536, 8960), (8960, 1536)] {
            for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
                let weights = self.weights(dtype, inputs, outputs);
                for rows in [1, 4] {
                    let x = self.tensor(rows, inputs);
                    let bytes = dtype.size() * inputs * outputs + 4 * rows * (inputs + outputs);
                    let mut next = weights.iter().cycle();
                    let shape = format!("{rows} x {inputs} x {outputs}");
                    let name = format!("product {dtype:?}").to_lowercase();
                    self.line(&name, &shape, Work::Bytes(bytes), || {
                        let weight = next.next().unwrap();
                        self.backend.linear(&x, weight, Epilogue::default()).unwrap()
                    });
                }
            }
        }
    }

    /// A mixture of 128 experts, of which a row goes to 8: the size of one of 30B parameters, in part.
    fn experts(&self) {
        let (experts, inputs, outputs) = (128, 2048, 768);
        let routing =
            Routing { top: 8, scores: RouterScores::Softmax, renormalise: true, scale: 1.0 };
        let dtype = Dtype::Bf16;
        let host = host_weight(dtype, outputs, inputs);
        let stack = self.backend.stack(experts, &mut |_| Ok(host.clone())).unwrap();
        let pairs = |rows: usize| rows * routing.top;
        let many = self.shrunk(1024, 16, |rows| Work::MultiplyAdds(pairs(rows) * inputs * outputs));
        for rows in [1, many] {
            let logits = self.tensor(rows, experts);
            let x = self.tensor(rows, inputs);
            let routes = self.backend.route(&logits, &routing).unwrap();
            let spread = self.backend.spread(&x, &routes, false).unwrap();
            let shape = format!("{rows} rows, 8 of {experts}");
            let moved = Work::Bytes(4 * rows * (experts + inputs) + 4 * pairs(rows) * inputs);
            self.line("route, spread", &shape, moved, || {
                let routes = self.backend.route(&logits, &routing).unwrap();
                self.backend.spread(&x, &routes, false).unwrap()
            });
            let work = if rows == 1 {
                Work::Bytes(dtype.size() * routing.top * inputs * outputs)
            } else {
                Work::MultiplyAdds(pairs(rows) * inputs * outputs)
            };
            self.line(
                "product of experts",
                &format!("{shape} x {inputs} x {outputs}"),
                work,
                || self.backend.linear_each(&spread, &stack, &routes, None, None).unwrap(),
            );
        }
    }

    fn attention(&self) {
        // scores and outputs are a multiply-add each per pair and element
        let of_pairs = |pairs: usize, width: usize| Work::MultiplyAdds(2 * pairs * width);
        let head = |heads, kv_heads, head_dim, mask| Attention {
            heads,
            kv_heads,
            head_dim,
            scale: 0.1,
            softcap: None,
            mask,
        };
        let run = |shape: &str, work, rows: usize, keys: usize, attention: &Attention<'_>| {
            let q = self.tensor(rows, attention.heads * attention.head_dim);
            let k = self.tensor(keys, attention.kv_heads * attention.head_dim);
            let v = self.tensor(keys, attention.kv_heads * attention.head_dim);
            self.line("attention", shape, work, || {
                self.backend.attention(&q, &k, &v, attention).unwrap()
            });
        };

        let rows = self.shrunk(4096, 128, |rows| of_pairs(rows * rows, 1152));
        let whole = [rows];
        let seen = head(16, 16, 72, Mask::Segments(&whole));
        run(&format!("{rows} rows, 16 of 72"), of_pairs(rows * rows, 1152), rows, rows, &seen);

        let rows = self.shrunk(4096, 128, |rows| of_pairs(rows * 64, 1280));
        let windows = vec![64; rows / 64];
        let seen = head(16, 16, 80, Mask::Segments(&windows));
        run(
            &format!("{rows} rows, windows of 64, 16 of 80"),
            of_pairs(rows * 64, 1280),
            rows,
            rows,
            &seen,
        );

        let pairs = |rows: usize| rows * (rows + 1) / 2;
        let rows = self.shrunk(1024, 128, |rows| of_pairs(pairs(rows), 1536));
        let seen = head(12, 2, 128, Mask::Causal { start: 0 });
        run(
            &format!("{rows} rows, causal, 12 on 2 of 128"),
            of_pairs(pairs(rows), 1536),
            rows,
            rows,
            &seen,
        );

        let seen = head(12, 2, 128, Mask::Causal { start: 4095 });
        let bytes = Work::Bytes(2 * 4 * 4096 * 256);
        run("1 row, 4096 keys, 12 on 2 of 128", bytes, 1, 4096, &seen);
    }

    fn rows_and_elements(&self) {
        let backend = &self.backend;
        let (width, hidden) = (1152, 4304);
        let rows = self.shrunk(16384, 256, |rows| Work::Bytes(2 * 4 * rows * width));
        let moved = |tensors: usize| Work::Bytes(tensors * 4 * rows * width);
        let shape = format!("{rows} x {width}");
        let x = self.tensor(rows, width);
        let (weight, bias) = (self.tensor(1, width), self.tensor(1, width));
        for (name, kind, bias) in
            [("layer norm", NormKind::Layer, Some(&bias)), ("rms norm", NormKind::Rms, None)]
        {
            let norm = Norm { kind, weight: Some(&weight), offset: 0.0, bias, eps: 1e-6 };
            self.line(name, &shape, moved(2), || backend.norm(&x, &norm).unwrap());
        }
        let (cos, sin) = (self.tensor(rows, 36), self.tensor(rows, 36));
        self.line(
            "rope",
            &format!("{shape}, 16 of 72"),
            Work::Bytes(8 * rows * (width + 36)),
            || backend.rope(&x, 16, &cos, &sin, Pairing::Half).unwrap(),
        );
        // every second row first, as where patches are put into another order
        let index: Vec<u32> = (0..rows).map(|row| (row * 2 % (rows - 1)) as u32).collect();
        self.line("gather", &shape, moved(2), || backend.gather(&x, &index).unwrap());
        let halves = Work::Bytes(2 * 4 * rows * width / 2);
        self.line("columns", &format!("{rows} x {} of {width}", width / 2), halves, || {
            backend.columns(&x, width / 2, width / 2).unwrap()
        });
        self.line("transpose", &format!("{rows} x (36 x 32)"), moved(2), || {
            backend.transpose(&x, 36, 32).unwrap()
        });
        let other = self.tensor(rows, width);
        self.line("add", &shape, moved(3), || backend.add(&x, &other).unwrap());
        self.line("add a row", &shape, moved(2), || backend.add(&x, &bias).unwrap());

        let rows = (rows / 4).max(64);
        let moved = |tensors: usize| Work::Bytes(tensors * 4 * rows * hidden);
        let shape = format!("{rows} x {hidden}");
        let (gate, up) = (self.tensor(rows, hidden), self.tensor(rows, hidden));
        for (name, activation) in [("gelu", Activation::Gelu), ("gelu, tanh", Activation::GeluTanh)]
        {
            self.line(name, &shape, moved(2), || backend.activate(&gate, activation).unwrap());
        }
        self.line("silu(gate) up", &shape, moved(3), || {
            backend.gated(&gate, &up, Activation::Silu).unwrap()
        });
    }
}

/// The options of a command line; `None` where it is not understood.
fn options() -> Option<(Options, bool)> {
    let (mut options, mut quick) = (Options::default(), false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--bench" => {} // what cargo says
            "--quick" => quick = true,
            "--device" => options.device = Some(words.next()?),
            _ => return None,
        }
    }
    Some((options, quick))
}

fn main() -> ExitCode {
    let Some((options, quick)) = options() else {
        eprintln!("usage: cargo bench --bench wgpu [-- [--device NAME|INDEX] [--quick]]");
        return ExitCode::from(2);
    };
    let backend = match Wgpu::new(&options) {
        Ok(backend) => backend,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let device = backend.device();
    println!("{} ({}, {}, {})", device.name, device.kind, device.interface, device.driver);
    let peaks = backend.measure().unwrap();
    println!(
        "copies {:.1} GB/s, multiplies and adds {:.1} GFLOP/s\n",
        peaks.copy_bytes_per_second / 1e9,
        2.0 * peaks.multiply_adds_per_second / 1e9
    );
    let (runs, seconds) = if quick { (3, 0.02) } else { (5, 0.1) };
    let bench = Bench { backend, peaks, runs, seconds };
    bench.nothing();
    bench.products();
    bench.skinny_products();
    bench.experts();
    bench.attention();
    bench.rows_and_elements();
    ExitCode::SUCCESS
}
