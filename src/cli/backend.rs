//! Which backend a command computes on.

use vlm_spec::backend::cpu::Cpu;
#[cfg(feature = "wgpu")]
use vlm_spec::backend::wgpu::{self, Wgpu};
use vlm_spec::error::{Error, ErrorKind, Result};

use super::arguments::{BackendName, Input};
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

/// Opens what `--backend` and `--device` ask for; `auto` says on stderr what it took.
pub(super) fn choose(input: &Input, watch: &Watch) -> Result<Chosen> {
    match (input.backend, &input.device) {
        (BackendName::Cpu, Some(_)) => {
            let message = "`--device` chooses among devices for compute shaders";
            Err(Error::new(ErrorKind::Usage, message).with_hint("add `--backend wgpu`"))
        }
        (BackendName::Cpu, None) => cpu(input),
        (BackendName::Wgpu, device) => open(device.as_deref()),
        (BackendName::Auto, Some(device)) => open(Some(device)),
        (BackendName::Auto, None) => automatic(input, watch),
    }
}

fn cpu(input: &Input) -> Result<Chosen> {
    Cpu::new(input.threads).map(Chosen::Cpu)
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
fn automatic(input: &Input, watch: &Watch) -> Result<Chosen> {
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
    cpu(input)
}

#[cfg(not(feature = "wgpu"))]
fn automatic(input: &Input, watch: &Watch) -> Result<Chosen> {
    watch.note("backend: cpu");
    cpu(input)
}
