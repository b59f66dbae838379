//! Which backend a command computes on.

use std::path::Path;

use vlm_spec::backend::cpu::{Cpu, Precision};
#[cfg(feature = "wgpu")]
use vlm_spec::backend::wgpu::{self, Wgpu};
use vlm_spec::checkpoint::weights::Listing;
use vlm_spec::error::{Error, ErrorKind, Result};
use vlm_spec::tensor::Dtype;

use super::arguments::{BackendName, Input, PrecisionName};
use super::watch::Watch;

/// A backend that is ready.
pub(super) enum Chosen {
    Cpu(Cpu),
    #[cfg(feature = "wgpu")]
    Wgpu(Wgpu),
}

/// Evaluates an expression with the chosen backend, whatever its type.
macro_rules! on_backend {
    ($chosen:expr, |$backend:ident| $compute:expr) => {
        match $chosen {
            $crate::cli::backend::Chosen::Cpu($backend) => $compute,
            #[cfg(feature = "wgpu")]
            $crate::cli::backend::Chosen::Wgpu($backend) => $compute,
        }
    };
}
pub(super) use on_backend;

impl Chosen {
    /// How exact its products are, for bf16 weights.
    pub(super) fn precision(&self) -> &'static str {
        let precision = match self {
            Self::Cpu(cpu) => cpu.precision(),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(_) => Precision::F32,
        };
        match precision {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        }
    }
}

/// Opens what `--backend` and `--device` ask for, with products in f32; `auto` says on stderr what it took.
pub(super) fn choose(input: &Input, watch: &Watch) -> Result<Chosen> {
    choose_for(input, Some(PrecisionName::F32), watch)
}

/// The same with products of a precision, which only the processor knows; `None` is what suits the weights.
pub(super) fn choose_for(
    input: &Input,
    precision: Option<PrecisionName>,
    watch: &Watch,
) -> Result<Chosen> {
    let rounds = precision == Some(PrecisionName::Bf16);
    match (input.backend, &input.device) {
        (BackendName::Cpu, Some(_)) => {
            let message = "`--device` chooses among devices for compute shaders";
            Err(Error::new(ErrorKind::Usage, message).with_hint("add `--backend wgpu`"))
        }
        (BackendName::Wgpu, _) | (BackendName::Auto, Some(_)) if rounds => {
            let message = "compute shaders have one precision, `f32`";
            Err(Error::new(ErrorKind::Usage, message)
                .with_hint("`--precision bf16` is for `--backend cpu`"))
        }
        (BackendName::Cpu, None) => cpu(input, precision, watch),
        (BackendName::Auto, None) if rounds => cpu(input, precision, watch),
        (BackendName::Wgpu, device) => open(device.as_deref()),
        (BackendName::Auto, Some(device)) => open(Some(device)),
        (BackendName::Auto, None) => automatic(input, precision, watch),
    }
}

fn cpu(input: &Input, precision: Option<PrecisionName>, watch: &Watch) -> Result<Chosen> {
    let wanted = match precision {
        Some(PrecisionName::F32) => Precision::F32,
        Some(PrecisionName::Bf16) => Precision::Bf16,
        None => suited(&input.checkpoint),
    };
    let cpu = Cpu::with_precision(input.threads, wanted)?;
    if cpu.precision() != wanted && precision.is_some() {
        watch.note("note: this processor does not multiply bf16, so products are in f32");
    }
    Ok(Chosen::Cpu(cpu))
}

/// The precision of most weights of a folder. One that cannot be read is for who loads it to tell.
fn suited(checkpoint: &str) -> Precision {
    match Listing::open(Path::new(checkpoint)) {
        Ok(Some(listing)) if listing.mostly(Dtype::Bf16) => Precision::Bf16,
        _ => Precision::F32,
    }
}

#[cfg(feature = "wgpu")]
fn open(device: Option<&str>) -> Result<Chosen> {
    let device = device.map(str::to_owned);
    Wgpu::new(&wgpu::Options { device, ..wgpu::Options::default() }).map(Chosen::Wgpu)
}

#[cfg(not(feature = "wgpu"))]
fn open(_: Option<&str>) -> Result<Chosen> {
    let message = "this program was built without the backend `wgpu`";
    Err(Error::new(ErrorKind::Backend, message).with_hint("build it with `--features wgpu`"))
}

/// A GPU that opens, else the processor.
#[cfg(feature = "wgpu")]
fn automatic(input: &Input, precision: Option<PrecisionName>, watch: &Watch) -> Result<Chosen> {
    if let Some(info) = wgpu::best_hardware() {
        match open(Some(&info.index.to_string())) {
            Ok(chosen) => {
                watch.note(&format!("backend: wgpu ({})", info.name));
                return Ok(chosen);
            }
            Err(error) => watch.note(&format!("note: {error}")),
        }
    }
    watch.note("backend: cpu");
    cpu(input, precision, watch)
}

#[cfg(not(feature = "wgpu"))]
fn automatic(input: &Input, precision: Option<PrecisionName>, watch: &Watch) -> Result<Chosen> {
    watch.note("backend: cpu");
    cpu(input, precision, watch)
}
