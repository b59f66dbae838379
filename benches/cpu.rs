//! What the CPU backend reaches, beside what this machine could: `cargo bench --bench cpu`.
//!
//! Products of the sizes of published models, with as many threads as there are processors: a tower of width 1152 at 729
//! and 4096 patches, a decoder of width 1536 at a prompt of 1024 tokens and at one token, and attention. Every round
//! measures all columns one after the other, so that a load which comes and goes meets all of them; numbers are medians
//! over the rounds. The first columns are peaks: a loop of nothing but multiply-adds in registers, and a plain read of
//! memory. `cargo bench --bench cpu -- WORD` keeps the lines whose name contains the word.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and may panic")]

use std::hint::black_box;
use std::time::Instant;

use vlm_spec::backend::cpu::{Cpu, Precision};
use vlm_spec::backend::{Activation, Attention, Backend, Epilogue, Mask, Norm, NormKind, Then};
use vlm_spec::tensor::{Dtype, HostTensor, SharedBytes};

const ROUNDS: usize = 7;

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn seconds(work: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// Medians of the columns of one line, measured round by round.
fn measure(columns: &mut [Box<dyn FnMut() + '_>]) -> Vec<f64> {
    let mut times = vec![Vec::new(); columns.len()];
    for round in 0..=ROUNDS {
        for (column, times) in columns.iter_mut().zip(&mut times) {
            let time = seconds(column);
            // the first round fills caches and memory pools
            if round > 0 {
                times.push(time);
            }
        }
    }
    times.into_iter().map(median).collect()
}

/// Values between -1 and 1.
fn values(count: usize) -> Vec<f32> {
    let mut state = 1_u32;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

fn weight(dtype: Dtype, outputs: usize, inputs: usize) -> HostTensor {
    let bytes: Vec<u8> = match dtype {
        Dtype::Bf16 => values(outputs * inputs)
            .into_iter()
            .flat_map(|x| half::bf16::from_f32(x).to_le_bytes())
            .collect(),
        _ => values(outputs * inputs).into_iter().flat_map(f32::to_le_bytes).collect(),
    };
    HostTensor { dtype, shape: vec![outputs, inputs], data: SharedBytes::from_vec(bytes) }
}

/// Runs the same loop on every thread.
fn on_threads(threads: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(&work);
        }
        work();
    });
}

/// Loops of nothing but multiply-adds, and how many operations one step makes.
#[cfg(target_arch = "x86_64")]
mod peak {
    use std::arch::x86_64::{
        __m512bh, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_reduce_add_ps, _mm512_set1_ps,
    };
    use std::hint::black_box;

    pub(crate) const STEPS: usize = 400_000;
    pub(crate) const SINGLE: f64 = 24.0 * 32.0;
    pub(crate) const BRAIN: f64 = 24.0 * 64.0;

    pub(crate) fn single() {
        #[target_feature(enable = "avx512f")]
        fn run() -> f32 {
            let mut sums = [_mm512_set1_ps(1.0); 24];
            let (a, b) = (_mm512_set1_ps(black_box(0.99)), _mm512_set1_ps(black_box(0.5)));
            for _ in 0..STEPS {
                for sum in &mut sums {
                    *sum = _mm512_fmadd_ps(a, b, *sum);
                }
            }
            sums.map(|sum| _mm512_reduce_add_ps(sum)).iter().sum()
        }
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the machine has the instructions.
            black_box(unsafe { run() });
        }
    }

    pub(crate) fn brain() {
        #[target_feature(enable = "avx512f,avx512bf16")]
        fn run() -> f32 {
            let mut sums = [_mm512_set1_ps(1.0); 24];
            // SAFETY: both are 512 bits of which every pattern is valid.
            let ones: __m512bh = unsafe {
                std::mem::transmute(_mm512_set1_ps(f32::from_bits(black_box(0x3f80_3f80))))
            };
            for _ in 0..STEPS {
                for sum in &mut sums {
                    *sum = _mm512_dpbf16_ps(*sum, ones, ones);
                }
            }
            sums.map(|sum| _mm512_reduce_add_ps(sum)).iter().sum()
        }
        if is_x86_feature_detected!("avx512bf16") {
            // SAFETY: the machine has the instructions.
            black_box(unsafe { run() });
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod peak {
    pub(crate) const STEPS: usize = 0;
    pub(crate) const SINGLE: f64 = 0.0;
    pub(crate) const BRAIN: f64 = 0.0;
    pub(crate) fn single() {}
    pub(crate) fn brain() {}
}

struct Bench {
    threads: usize,
    exact: Cpu,
    brain: Cpu,
    only: Option<String>,
}

impl Bench {
    fn skips(&self, name: &str) -> bool {
        self.only.as_ref().is_some_and(|word| !name.contains(word.as_str()))
    }

    /// One line: peaks, then the same work in f32 and in bf16, in GFLOP/s.
    fn line(&self, name: &str, operations: f64, exact: impl FnMut(), brain: impl FnMut()) {
        let times = measure(&mut [
            Box::new(|| on_threads(self.threads, peak::single)),
            Box::new(|| on_threads(self.threads, peak::brain)),
            Box::new(exact),
            Box::new(brain),
        ]);
        let steps = (peak::STEPS * self.threads) as f64;
        let rates = [
            steps * peak::SINGLE / times[0] / 1e9,
            steps * peak::BRAIN / times[1] / 1e9,
            operations / times[2] / 1e9,
            operations / times[3] / 1e9,
        ];
        println!(
            "{name:<34} {:>6.0} {:>6.0} | {:>9.2} ms {:>6.0} {:>4.0} % | {:>9.2} ms {:>6.0} {:>4.0} %",
            rates[0],
            rates[1],
            times[2] * 1e3,
            rates[2],
            rates[2] / rates[0] * 100.0,
            times[3] * 1e3,
            rates[3],
            rates[3] / rates[1] * 100.0,
        );
    }

    fn product(&self, dtype: Dtype, rows: usize, inputs: usize, outputs: usize) {
        let name = format!("{dtype:?} {rows} x {inputs} x {outputs}");
        if self.skips(&name) {
            return;
        }
        let host = weight(dtype, outputs, inputs);
        let x = self.exact.upload(values(rows * inputs), rows, inputs).unwrap();
        let weight = self.exact.weight(&host).unwrap();
        let run = |cpu: &Cpu| {
            black_box(cpu.linear(&x, &weight, Epilogue::default()).unwrap());
        };
        let operations = 2.0 * rows as f64 * inputs as f64 * outputs as f64;
        self.line(&name, operations, || run(&self.exact), || run(&self.brain));
    }

    fn attention(&self, rows: usize, heads: usize, kv_heads: usize, head_dim: usize, causal: bool) {
        let name = format!(
            "attention {rows} {heads}/{kv_heads} x {head_dim} {}",
            if causal { "causal" } else { "" }
        );
        if self.skips(&name) {
            return;
        }
        let lengths = [rows];
        let mask = if causal { Mask::Causal { start: 0 } } else { Mask::Segments(&lengths) };
        let geometry = Attention { heads, kv_heads, head_dim, scale: 0.2, softcap: None, mask };
        let q = self.exact.upload(values(rows * heads * head_dim), rows, heads * head_dim).unwrap();
        let width = kv_heads * head_dim;
        let [k, v] = [0, 1].map(|_| self.exact.upload(values(rows * width), rows, width).unwrap());
        let run = |cpu: &Cpu| {
            black_box(cpu.attention(&q, &k, &v, &geometry).unwrap());
        };
        let pairs = rows as f64 * rows as f64 / if causal { 2.0 } else { 1.0 };
        let operations = 4.0 * pairs * (heads * head_dim) as f64;
        self.line(&name, operations, || run(&self.exact), || run(&self.brain));
    }

    /// One token through matrices that no cache holds, beside a plain read of the same bytes.
    fn decode(&self, dtype: Dtype, inputs: usize, outputs: usize) {
        let name = format!("{dtype:?} 1 x {inputs} x {outputs}");
        if self.skips(&name) {
            return;
        }
        let host = weight(dtype, outputs, inputs);
        let bytes = host.data.len();
        let count = (1 << 29) / bytes + 1;
        let copies: Vec<_> = (0..count)
            .map(|_| HostTensor { data: SharedBytes::from_vec(host.data.to_vec()), ..host.clone() })
            .collect();
        let weights: Vec<_> = copies.iter().map(|copy| self.exact.weight(copy).unwrap()).collect();
        let x = self.exact.upload(values(inputs), 1, inputs).unwrap();
        let read = || {
            std::thread::scope(|scope| {
                for thread in 0..self.threads {
                    let copies = &copies;
                    scope.spawn(move || {
                        for copy in copies.iter().skip(thread).step_by(self.threads) {
                            let sum = copy
                                .data
                                .as_chunks::<8>()
                                .0
                                .iter()
                                .fold(0, |sum, word| sum | u64::from_le_bytes(*word));
                            black_box(sum);
                        }
                    });
                }
            });
        };
        let decode = || {
            for weight in &weights {
                black_box(self.exact.linear(&x, weight, Epilogue::default()).unwrap());
            }
        };
        let times = measure(&mut [Box::new(read), Box::new(decode)]);
        let rate = |time: f64| (bytes * count) as f64 / time / 1e9;
        println!(
            "{name:<34} read {:>5.1} GB/s | {:>7.3} ms {:>5.1} GB/s {:>4.0} %",
            rate(times[0]),
            times[1] * 1e3 / count as f64,
            rate(times[1]),
            times[0] / times[1] * 100.0,
        );
    }

    /// One block of a tower, operation by operation.
    fn block(&self, rows: usize) {
        const WIDTH: usize = 1152;
        const INNER: usize = 4304;
        let name = format!("block {rows}");
        if self.skips(&name) {
            return;
        }
        for (what, cpu) in [("f32", &self.exact), ("bf16", &self.brain)] {
            let matrix = |outputs, inputs| {
                let host = weight(Dtype::Bf16, outputs, inputs);
                cpu.weight(&host).unwrap()
            };
            let (square, up, down) =
                (matrix(WIDTH, WIDTH), matrix(INNER, WIDTH), matrix(WIDTH, INNER));
            let x = cpu.upload(values(rows * WIDTH), rows, WIDTH).unwrap();
            let wide = cpu.upload(values(rows * INNER), rows, INNER).unwrap();
            let lengths = [rows];
            let geometry = Attention {
                heads: 16,
                kv_heads: 16,
                head_dim: 72,
                scale: 0.2,
                softcap: None,
                mask: Mask::Segments(&lengths),
            };
            let norm =
                Norm { kind: NormKind::Layer, weight: None, offset: 0.0, bias: None, eps: 1e-6 };
            let gelu = Some(Activation::GeluTanh);
            let bias = cpu.upload(values(INNER), 1, INNER).unwrap();
            let times = measure(&mut [
                Box::new(|| drop(black_box(cpu.norm(&x, &norm)))),
                Box::new(|| drop(black_box(cpu.linear(&x, &square, Epilogue::default())))),
                Box::new(|| drop(black_box(cpu.attention(&x, &x, &x, &geometry)))),
                Box::new(|| {
                    let epilogue = Epilogue { then: Some(Then::Add(&x)), ..Epilogue::default() };
                    drop(black_box(cpu.linear(&x, &square, epilogue)));
                }),
                Box::new(|| {
                    let epilogue = Epilogue { bias: Some(&bias), activation: gelu, then: None };
                    drop(black_box(cpu.linear(&x, &up, epilogue)));
                }),
                Box::new(|| {
                    let epilogue = Epilogue { then: Some(Then::Add(&x)), ..Epilogue::default() };
                    drop(black_box(cpu.linear(&wide, &down, epilogue)));
                }),
            ]);
            let [norm, project, attention, output, up, down] = times[..] else { return };
            let all = 2.0 * norm + 3.0 * project + attention + output + up + down;
            println!(
                "{name} {what}: {:.1} ms = norms {:.1} + q k v {:.1} + attention {:.1} + output {:.1} + up, gelu {:.1} + down {:.1}",
                all * 1e3,
                2e3 * norm,
                3e3 * project,
                attention * 1e3,
                output * 1e3,
                up * 1e3,
                down * 1e3,
            );
        }
    }
}

fn main() {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let exact = Cpu::new(None).unwrap();
    let brain = Cpu::with_precision(None, Precision::Bf16).unwrap();
    let bench = Bench { threads: exact.threads(), exact, brain, only };
    println!("{} threads, bf16 mode: {:?}", bench.threads, bench.brain.precision());
    println!(
        "{:<34} {:>6} {:>6} | {:>12} {:>6} {:>6} | {:>12} {:>6} {:>6}",
        "", "f32", "bf16", "f32", "GF/s", "", "bf16", "GF/s", ""
    );
    for rows in [729, 4096] {
        for (inputs, outputs) in [(1152, 1152), (1152, 4304), (4304, 1152)] {
            bench.product(Dtype::Bf16, rows, inputs, outputs);
        }
    }
    for (inputs, outputs) in [(1536, 8960), (8960, 1536)] {
        bench.product(Dtype::Bf16, 1024, inputs, outputs);
        bench.product(Dtype::F32, 1024, inputs, outputs);
    }
    for rows in [2, 4, 6, 7, 12, 16, 24, 32, 64] {
        bench.product(Dtype::Bf16, rows, 1536, 8960);
    }
    bench.attention(729, 16, 16, 72, false);
    bench.attention(4096, 16, 16, 72, false);
    bench.attention(1024, 12, 2, 128, true);
    bench.decode(Dtype::Bf16, 1536, 8960);
    bench.decode(Dtype::Bf16, 8960, 1536);
    bench.decode(Dtype::F32, 1536, 8960);
    bench.block(729);
    bench.block(4096);
}
