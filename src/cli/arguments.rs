//! What may be written on the command line.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use vlm_spec::checkpoint::Checkpoint;
use vlm_spec::descriptor::RawDescriptor;
use vlm_spec::error::{Error, ErrorKind, Result};
use vlm_spec::layout::ImageSize;
use vlm_spec::plan::{Overrides, Plan, parse_override};

/// Vision- and audio-language model families as data: token floors, checks, and a reference-exact forward pass.
#[derive(Debug, Parser)]
#[command(name = "spec", version, arg_required_else_help = true)]
#[command(
    after_help = "CKPT is a folder in the published layout. FAMILY is a path to a TOML file (families/NAME.toml) or the \
name of a built-in family; left out, it is found from config.json.\n\nExit status: 0 fine; 1 a check found errors, a capacity \
is too small, a snapshot differs; 2 usage, or something cannot be read; 3 a floor or count has no number; 130 Ctrl-C."
)]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the built-in families.
    Families(FamiliesCommand),
    /// Compare a family file and a checkpoint, and say what is wrong where.
    #[command(override_usage = "spec check [OPTIONS] [FAMILY] [CKPT]")]
    Check(CheckCommand),
    /// The most prompt tokens that one item can cost, with an input that reaches it.
    #[command(override_usage = "spec floor [OPTIONS] [FAMILY] CKPT")]
    Floor(FloorCommand),
    /// What given inputs cost.
    #[command(
        override_usage = "spec count [OPTIONS] [FAMILY] CKPT (--size WxH | --image FILE | --samples N)…"
    )]
    Count(CountCommand),
    /// Write or compare a text snapshot of resolved values, floors and witnesses.
    Snapshot(SnapshotCommand),
    /// The merged family file; with a checkpoint, every value with its source and the topology.
    #[command(override_usage = "spec show [OPTIONS] [FAMILY] [CKPT]")]
    Show(ShowCommand),
    /// Print the JSON Schema of a family file.
    Schema(SchemaCommand),
    /// Generate text.
    Run(RunCommand),
    /// Run a prompt once and keep every stage in a file.
    Trace(TraceCommand),
    /// How likely a text is behind a prompt, with and without its media, in bits.
    Score(ScoreCommand),
    /// What each backend can run on here.
    Devices(DevicesCommand),
}

/// `spec families`.
#[derive(Debug, Args)]
pub(crate) struct FamiliesCommand {
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `spec schema`.
#[derive(Debug, Args)]
pub(crate) struct SchemaCommand {
    /// Print one JSON document; a schema always is one.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `spec devices`.
#[derive(Debug, Args)]
pub(crate) struct DevicesCommand {
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A family and a checkpoint, in the ways that they can be named.
#[derive(Debug, Args)]
pub(crate) struct Subject {
    /// A family and a checkpoint; a single one is CKPT if it is a folder, else FAMILY
    #[arg(value_name = "FAMILY, CKPT", num_args = 1..=2, required = true)]
    names: Vec<String>,
    /// The family: a path to a TOML file, or the name of a built-in one.
    #[arg(long)]
    family: Option<String>,
}

impl Subject {
    /// The names of family and checkpoint, as far as they are given.
    pub(crate) fn split(&self) -> Result<(Option<&str>, Option<&str>)> {
        let (family, checkpoint) = match self.names.as_slice() {
            [one] if Path::new(one).is_dir() => (None, Some(one.as_str())),
            [one] => {
                let looks_like_folder = one.contains(['/', '\\']) && !names_a_file(one);
                if self.family.is_some() || looks_like_folder {
                    (None, Some(one.as_str()))
                } else {
                    (Some(one.as_str()), None)
                }
            }
            [family, checkpoint] => (Some(family.as_str()), Some(checkpoint.as_str())),
            _ => (None, None),
        };
        match (family, self.family.as_deref()) {
            (Some(_), Some(_)) => Err(Error::new(
                ErrorKind::Usage,
                "the family is named twice: before the checkpoint and by `--family`",
            )),
            (family, option) => Ok((family.or(option), checkpoint)),
        }
    }

    /// Both, loaded; the family found from the checkpoint if it is not named.
    pub(crate) fn load(&self) -> Result<(RawDescriptor, Checkpoint)> {
        let (family, checkpoint) = self.split()?;
        let Some(checkpoint) = checkpoint else {
            let name = self.names.first().map_or("", String::as_str);
            return Err(Error::new(
                ErrorKind::Checkpoint,
                format!("`{name}` is not a folder, and no CKPT is given"),
            ));
        };
        load(family, checkpoint)
    }
}

/// Opens a checkpoint and loads the family that is named, or that it matches.
pub(crate) fn load(family: Option<&str>, checkpoint: &str) -> Result<(RawDescriptor, Checkpoint)> {
    let checkpoint = Checkpoint::open(checkpoint)?;
    let raw = match family {
        Some(family) => RawDescriptor::load(family)?,
        None => checkpoint.find_family()?,
    };
    Ok((raw, checkpoint))
}

/// Settings that override the checkpoint's.
#[derive(Debug, Args)]
pub(crate) struct Settings {
    /// Override one resolved preprocessing value (`image.most=1003520`); may be repeated.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
}

impl Settings {
    /// The overrides.
    pub(crate) fn overrides(&self) -> Result<Overrides> {
        self.set.iter().map(|text| parse_override(text)).collect()
    }

    /// A plan with the overrides applied.
    pub(crate) fn plan(&self, raw: &RawDescriptor, checkpoint: &Checkpoint) -> Result<Plan> {
        Plan::resolve_with(raw, checkpoint, &self.overrides()?)
    }
}

/// `spec check`.
#[derive(Debug, Args)]
pub(crate) struct CheckCommand {
    #[command(flatten)]
    pub(crate) subject: Subject,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print notes as well.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print nothing but errors.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// `spec floor`.
#[derive(Debug, Args)]
pub(crate) struct FloorCommand {
    #[command(flatten)]
    pub(crate) subject: Subject,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// Refuse if a floor exceeds this many tokens.
    #[arg(long, value_name = "N")]
    pub(crate) capacity: Option<u64>,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print what each floor was computed from.
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// `spec count`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("inputs").required(true).multiple(true))]
pub(crate) struct CountCommand {
    #[command(flatten)]
    pub(crate) subject: Subject,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// A picture's size in pixels; may be repeated.
    #[arg(long = "size", value_name = "WxH", value_parser = parse_size, group = "inputs")]
    pub(crate) sizes: Vec<ImageSize>,
    /// A picture, of which only the header is read; may be repeated.
    #[arg(long = "image", value_name = "FILE", group = "inputs")]
    pub(crate) images: Vec<PathBuf>,
    /// A clip's samples at the model's rate; may be repeated.
    #[arg(long = "samples", value_name = "N", group = "inputs")]
    pub(crate) samples: Vec<u64>,
    /// A clip, of which only the header is read where that tells its length; may be repeated.
    #[arg(long = "audio", value_name = "FILE", group = "inputs")]
    pub(crate) audio: Vec<PathBuf>,
    /// Count every item as if it were alone, not as one prompt.
    #[arg(long)]
    pub(crate) each: bool,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `spec snapshot`.
#[derive(Debug, Args)]
pub(crate) struct SnapshotCommand {
    /// Checkpoint folders.
    #[arg(value_name = "CKPT", required = true)]
    pub(crate) checkpoints: Vec<PathBuf>,
    /// The family: a path to a TOML file, or the name of a built-in one.
    #[arg(long)]
    pub(crate) family: Option<String>,
    /// Where snapshots are kept.
    #[arg(long, default_value = "snapshots")]
    pub(crate) dir: PathBuf,
    /// Overwrite snapshots that differ.
    #[arg(long)]
    pub(crate) update: bool,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `spec show`.
#[derive(Debug, Args)]
pub(crate) struct ShowCommand {
    #[command(flatten)]
    pub(crate) subject: Subject,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// Write the topology as a drawing.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendName {
    /// The processor.
    Cpu,
    /// Compute shaders, through Vulkan, Metal or Direct3D 12.
    Wgpu,
    /// A GPU if there is one, else the processor.
    Auto,
}

/// How exact products are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrecisionName {
    /// As the reference run in f32, whatever the type of the weights.
    F32,
    /// Where many rows meet bf16 weights they are rounded to bf16, which some processors multiply faster.
    Bf16,
}

/// What `run`, `trace` and `score` share.
#[derive(Debug, Args)]
pub(crate) struct Input {
    /// The checkpoint folder.
    #[arg(value_name = "CKPT")]
    pub(crate) checkpoint: String,
    /// The prompt; `{image}` places a picture and `{audio}` a clip, `{{image}}` is the word itself.
    #[arg(value_name = "PROMPT", required_unless_present = "messages")]
    pub(crate) prompt: Option<String>,
    /// The family: a path to a TOML file, or the name of a built-in one.
    #[arg(long)]
    pub(crate) family: Option<String>,
    /// A picture; may be repeated. They go before the text unless the prompt places them.
    #[arg(long = "image", value_name = "FILE")]
    pub(crate) images: Vec<PathBuf>,
    /// A clip; may be repeated. They go behind the pictures unless the prompt places them.
    #[arg(long = "audio", value_name = "FILE")]
    pub(crate) audio: Vec<PathBuf>,
    /// A whole conversation with typed content, instead of PROMPT.
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["prompt", "raw", "system"])]
    pub(crate) messages: Option<PathBuf>,
    /// A system message.
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Take the prompt as it is, without a chat template; markers in it are markers.
    #[arg(long, conflicts_with = "system")]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// Where to compute.
    #[arg(long, value_enum, default_value = "cpu")]
    pub(crate) backend: BackendName,
    /// Which device, by its number in `spec devices` or a part of its name.
    #[arg(long, value_name = "NAME|INDEX")]
    pub(crate) device: Option<String>,
    /// Threads of the processor; left out, as many as there are processors for this process.
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Print timings and peak memory.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print no notes and no progress.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// `spec run`.
#[derive(Debug, Args)]
pub(crate) struct RunCommand {
    #[command(flatten)]
    pub(crate) input: Input,
    /// At most this many tokens.
    #[arg(short = 'n', long = "max-tokens", value_name = "N", default_value_t = 256)]
    pub(crate) max_tokens: usize,
    /// How exact products are; left out, bf16 for bf16 weights on processors that multiply it, else f32.
    #[arg(long, value_enum)]
    pub(crate) precision: Option<PrecisionName>,
    /// Sample at this temperature; 0 takes the likeliest token.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) temperature: f32,
    /// Draw only from the likeliest tokens that together reach this probability.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) top_p: f32,
    /// The seed of the draw.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `spec trace`.
#[derive(Debug, Args)]
pub(crate) struct TraceCommand {
    #[command(flatten)]
    pub(crate) input: Input,
    /// The file to write.
    #[arg(long, value_name = "FILE.safetensors")]
    pub(crate) out: PathBuf,
    /// Generate at most this many tokens.
    #[arg(short = 'n', long = "max-tokens", value_name = "N", default_value_t = 16)]
    pub(crate) max_tokens: usize,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `spec score`.
#[derive(Debug, Args)]
pub(crate) struct ScoreCommand {
    #[command(flatten)]
    pub(crate) input: Input,
    /// The text to score; a media marker in it is text.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) continuation: String,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Whether a name is that of a family file.
fn names_a_file(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "toml")
}

fn parse_size(text: &str) -> Result<ImageSize, String> {
    let sides = text.split_once(['x', 'X', '×']).and_then(|(width, height)| {
        Some(ImageSize { width: width.trim().parse().ok()?, height: height.trim().parse().ok()? })
    });
    match sides {
        Some(ImageSize { width: 0, .. } | ImageSize { height: 0, .. }) => {
            Err("a side is zero".to_owned())
        }
        Some(size)
            if size.width > vlm_spec::layout::LONGEST_SIDE
                || size.height > vlm_spec::layout::LONGEST_SIDE =>
        {
            Err(format!("sides go up to {} px", vlm_spec::layout::LONGEST_SIDE))
        }
        Some(size) => Ok(size),
        None => Err("expected WIDTHxHEIGHT in pixels, such as 640x480".to_owned()),
    }
}
