//! Vision- and audio-language model families as data: exact token floors, checks, and a reference-exact forward pass.

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
pub mod problem;
pub mod prompt;
pub mod snapshot;
pub mod tensor;
