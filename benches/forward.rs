//! What one picture, one prompt and one token cost of a whole checkpoint: `cargo bench --bench forward -- CKPT`.
//!
//! ```text
//! cargo bench --bench forward -- CKPT [--image FILE] [--tokens N] [--generate N] [--precision f32|bf16] [--rounds N | --on-request]
//! ```
//!
//! With `--image` the picture is encoded, and nothing else; else a prompt of `--tokens` tokens is run and `--generate` tokens
//! follow it. Each round prints a line of JSON, in seconds: `encode`, or `prefill`, `decode` (a token), `read` (a plain read of the
//! bytes that a token reads, with as many threads) and `bytes` (how many those are). `--on-request` makes a round for every line
//! that comes in, so that other programs can be measured in between (`benches/peers/run.py` does).

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and may panic")]

use std::env;
use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};
use vlm_spec::backend::cpu::{Cpu, Precision};
use vlm_spec::checkpoint::Checkpoint;
use vlm_spec::checkpoint::weights::Weights;
use vlm_spec::generate::Sampling;
use vlm_spec::model::{Model, Timings};
use vlm_spec::plan::Plan;
use vlm_spec::preprocess::Media;
use vlm_spec::prompt::{Content, Message, Request};
use vlm_spec::tensor::SharedBytes;

struct Bench {
    model: Model<Cpu>,
    media: Media,
    /// Bytes that every token reads: the matrices of the decoder and its head.
    read: Vec<SharedBytes>,
    tokens: usize,
    generate: usize,
}

impl Bench {
    fn round(&self) -> Value {
        if self.media.pictures.is_empty() { self.text() } else { self.picture() }
    }

    fn picture(&self) -> Value {
        let content = vec![Content::Image; self.media.pictures.len()];
        let messages = [Message::new("user", content)];
        let mut timings = Timings::default();
        let request = Request::Messages(&messages);
        black_box(self.model.embed(request, &self.media, &(), &mut timings).unwrap());
        json!({"encode": timings.encode.as_secs_f64()})
    }

    fn text(&self) -> Value {
        let prompt = self.prompt();
        let sampling = Sampling { temperature: 0.0, top_p: 1.0, seed: 0 };
        let made = self
            .model
            .generate(Request::Raw(&prompt), &self.media, self.generate + 1, sampling, &mut |_| {
                Ok(true)
            })
            .unwrap();
        // the first token belongs to the prompt
        let steps = made.tokens.len() as f64 - 1.0;
        let read = Instant::now();
        self.read_all();
        json!({
            "prompt_tokens": made.prompt_tokens,
            "prefill": made.timings.prefill.as_secs_f64(),
            "decode": if steps > 0.0 { Some(made.timings.decode.as_secs_f64() / steps) } else { None },
            "steps": steps,
            "read": read.elapsed().as_secs_f64(),
            "bytes": self.read.iter().map(|bytes| bytes.len()).sum::<usize>(),
        })
    }

    /// Characters that are tokens of their own in any tokenizer, as many as make the prompt long enough.
    fn prompt(&self) -> String {
        let tokenizer = self.model.prompts().tokenizer();
        let letters = "q?z!x7k%".chars().cycle();
        let mut text = String::new();
        for letter in letters {
            if tokenizer.encode(&text, false).unwrap().len() >= self.tokens {
                break;
            }
            text.push(letter);
        }
        text
    }

    fn read_all(&self) {
        let threads = self.model.backend().threads();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || {
                    for bytes in self.read.iter().skip(thread).step_by(threads) {
                        let words = bytes.as_chunks::<8>().0.iter();
                        black_box(words.fold(0, |sum, word| sum | u64::from_le_bytes(*word)));
                    }
                });
            }
        });
    }
}

/// The matrices that one token of text goes through: all of the checkpoint but the towers', and of the embeddings only as
/// the head, which is stored once where it is tied.
fn read_by_a_token(folder: &str, towers: &[&str]) -> Vec<SharedBytes> {
    let weights = Weights::open(folder.as_ref()).unwrap();
    let names: Vec<&str> = weights.names().collect();
    let head = names.iter().any(|name| name.ends_with("lm_head.weight"));
    let read = |name: &&&str| {
        let of_a_tower = towers.iter().any(|tower| name.starts_with(tower));
        !of_a_tower && (!head || !name.ends_with("embed_tokens.weight"))
    };
    let tensors = names.iter().filter(read).map(|name| weights.tensor(name).unwrap());
    tensors.filter(|tensor| tensor.shape.len() == 2).map(|tensor| tensor.data).collect()
}

fn main() {
    let mut folder = None;
    let (mut images, mut rounds, mut on_request) = (Vec::new(), 5, false);
    let (mut tokens, mut generate, mut precision) = (1024, 16, Precision::F32);
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut next = || arguments.next().unwrap();
        match argument.as_str() {
            "--bench" => {} // cargo's own
            "--image" => images.push(PathBuf::from(next())),
            "--tokens" => tokens = next().parse().unwrap(),
            "--generate" => generate = next().parse().unwrap(),
            "--rounds" => rounds = next().parse().unwrap(),
            "--on-request" => on_request = true,
            "--precision" => {
                precision = if next() == "bf16" { Precision::Bf16 } else { Precision::F32 };
            }
            _ => folder = Some(argument),
        }
    }
    let Some(folder) = folder else {
        // `cargo bench` without arguments runs this too
        println!("forward: no checkpoint given, nothing measured");
        return;
    };
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let plan = Plan::resolve(&checkpoint.find_family().unwrap(), &checkpoint).unwrap();
    let cpu = Cpu::with_precision(None, precision).unwrap();
    let model = Model::load(&plan, cpu).unwrap();
    let media = model.media(&images, &[]).unwrap();
    let read = if images.is_empty() {
        read_by_a_token(&folder, &["visual.", "vision_tower.", "model.visual."])
    } else {
        Vec::new()
    };
    let bench = Bench { model, media, read, tokens, generate };
    let say = || {
        println!("{}", bench.round());
        io::stdout().flush().unwrap();
    };
    if on_request {
        println!("ready");
        io::stdin().lock().lines().for_each(|_| say());
    } else {
        (0..rounds).for_each(|_| say());
    }
}
