//! Vision- and audio-language model families as data: exact token floors, checks, and a reference-exact forward pass.
//!
//! A family is a TOML file ([`Descriptor`]), bound to a checkpoint folder ([`Checkpoint`]) as a [`Plan`]. A plan answers
//! what images cost, without weights; with weights on a backend it is a [`Model`].
//!
//! ```
//! use vlm_spec::{Checkpoint, Descriptor, Modality, Plan};
//!
//! # fn main() -> vlm_spec::Result<()> {
//! let checkpoint = Checkpoint::open("tests/fixtures/checkpoints/Qwen__Qwen2-VL-7B-Instruct")?;
//! let plan = Plan::resolve(&Descriptor::load("qwen2vl")?, &checkpoint)?;
//! let floor = plan.floor(Modality::Image)?;
//! assert_eq!((floor.floor, floor.exact), (16386, true));
//! assert_eq!(plan.count(&floor.witness)?.tokens(), 16386);
//! // where the family is not known, the checkpoint says which one matches
//! assert_eq!(checkpoint.find_family()?.name(), "qwen2vl");
//! # Ok(())
//! # }
//! ```
//!
//! A server's start-up guard is one call, [`ensure_image_context_capacity`].
//!
//! Not here: training, quantised weights, image or audio output.

pub mod backend;
pub mod check;
pub mod checkpoint;
pub mod descriptor;
pub mod error;
pub mod floor;
pub mod generate;
pub mod graph;
pub mod layout;
pub mod media;
pub mod model;
pub mod plan;
pub mod preprocess;
pub mod problem;
pub mod progress;
pub mod prompt;
pub mod score;
pub mod snapshot;
pub mod tensor;

pub use self::check::check;
pub use self::checkpoint::Checkpoint;
pub use self::descriptor::{Descriptor, RawDescriptor};
pub use self::error::{Error, ErrorKind, Result};
pub use self::floor::{CapacityTooSmall, ensure_image_context_capacity, image_context_floor};
pub use self::layout::ImageSize;
pub use self::model::Model;
pub use self::plan::{Modality, Plan};
