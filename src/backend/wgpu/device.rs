//! Which devices there are, and opening one of them.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ::wgpu::{
    Adapter, Backends, Device, DeviceDescriptor, DeviceType, Features, Instance,
    InstanceDescriptor, InstanceFlags, Limits, MemoryHints, Queue,
};

use crate::error::{Error, ErrorKind, Result};

/// Bytes of parameters that a shader may take: what Vulkan promises everywhere.
pub(super) const PARAMETER_BYTES: u32 = 128;

/// One device that compute shaders run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its place in [`devices`].
    pub index: usize,
    /// What its driver calls it.
    pub name: String,
    /// `discrete`, `integrated`, `virtual`, `software` or `other`.
    pub kind: &'static str,
    /// The interface to its driver: `vulkan`, `metal` or `dx12`.
    pub interface: String,
    /// The driver and its version, as it says.
    pub driver: String,
    /// Bytes of one buffer, at most.
    pub buffer_bytes: u64,
    /// Bytes of a buffer that a shader sees at once, at most. Larger weights are cut.
    pub binding_bytes: u64,
    /// Bytes that the threads of a workgroup share, at most.
    pub shared_bytes: u32,
    /// Threads of a workgroup, at most.
    pub workgroup_threads: u32,
    /// Whether threads of a subgroup add up without shared memory.
    pub subgroups: bool,
    /// Whether shaders know half precision.
    pub half_precision: bool,
    /// Why it cannot be used, if it cannot.
    pub lacks: Option<String>,
}

/// Which device to take, and what of its abilities to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// A number in [`devices`], or a part of a name whatever the case; `None` takes the best.
    pub device: Option<String>,
    /// Use subgroups where the device has them.
    pub subgroups: bool,
    /// Use half precision where the device has it: f16 weights are then converted by the device's own instruction.
    pub half_precision: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { device: None, subgroups: true, half_precision: true }
    }
}

/// An open device.
pub(super) struct Opened {
    pub(super) device: Device,
    pub(super) queue: Queue,
    pub(super) info: DeviceInfo,
    pub(super) limits: Limits,
    /// Subgroups are there and wanted.
    pub(super) subgroups: bool,
    /// Half precision is there and wanted.
    pub(super) half_precision: bool,
    /// The first thing that went wrong outside any call that could tell.
    pub(super) failure: Failure,
}

/// Where the driver's complaints are kept until somebody asks.
#[derive(Clone, Default)]
pub(super) struct Failure(Arc<Mutex<Option<String>>>);

impl Failure {
    fn note(&self, message: String) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(message);
    }

    /// A loss is the reason for whatever else is complained about.
    fn lose(&self, message: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
    }

    /// An error if anything went wrong so far; what did is said once and again.
    pub(super) fn check(&self) -> Result<()> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(message) => Err(Error::new(ErrorKind::Backend, message.clone())),
            None => Ok(()),
        }
    }
}

/// The connection to the drivers: one a process, since some do not like to be loaded twice at a time.
fn instance() -> &'static Instance {
    static INSTANCE: OnceLock<Instance> = OnceLock::new();
    INSTANCE.get_or_init(|| {
        let mut description = InstanceDescriptor::new_without_display_handle();
        description.backends = Backends::VULKAN | Backends::METAL | Backends::DX12;
        description.flags = InstanceFlags::empty(); // no debug layers, whatever is installed
        Instance::new(description)
    })
}

fn adapters() -> Vec<Adapter> {
    let backends = Backends::VULKAN | Backends::METAL | Backends::DX12;
    pollster::block_on(instance().enumerate_adapters(backends))
}

/// All devices, in the order in which the drivers list them; none where there is no driver.
pub fn devices() -> Vec<DeviceInfo> {
    adapters().iter().enumerate().map(|(index, adapter)| describe(index, adapter)).collect()
}

fn describe(index: usize, adapter: &Adapter) -> DeviceInfo {
    let (info, limits, features) = (adapter.get_info(), adapter.limits(), adapter.features());
    let driver = [info.driver.trim(), info.driver_info.trim()];
    let lacks = if !features.contains(Features::IMMEDIATES)
        || limits.max_immediate_size < PARAMETER_BYTES
    {
        Some(format!("its shaders take less than {PARAMETER_BYTES} bytes of parameters"))
    } else if limits.max_compute_invocations_per_workgroup < 256 {
        Some("its workgroups have fewer than 256 threads".to_owned())
    } else if limits.max_compute_workgroup_storage_size < 16 << 10 {
        Some("its workgroups share less than 16 KiB".to_owned())
    } else {
        None
    };
    DeviceInfo {
        index,
        name: info.name,
        kind: match info.device_type {
            DeviceType::DiscreteGpu => "discrete",
            DeviceType::IntegratedGpu => "integrated",
            DeviceType::VirtualGpu => "virtual",
            DeviceType::Cpu => "software",
            DeviceType::Other => "other",
        },
        interface: info.backend.to_string(),
        driver: driver
            .iter()
            .filter(|part| !part.is_empty())
            .copied()
            .collect::<Vec<_>>()
            .join(" "),
        buffer_bytes: limits.max_buffer_size,
        binding_bytes: limits.max_storage_buffer_binding_size,
        shared_bytes: limits.max_compute_workgroup_storage_size,
        workgroup_threads: limits.max_compute_invocations_per_workgroup,
        subgroups: features.contains(Features::SUBGROUP),
        half_precision: features.contains(Features::SHADER_F16),
        lacks,
    }
}

/// How good a device is, the best first.
fn rank(info: &DeviceInfo) -> usize {
    let kinds = ["discrete", "integrated", "virtual", "other", "software"];
    kinds.iter().position(|kind| *kind == info.kind).unwrap_or(kinds.len())
}

/// The best device that is not the processor in disguise.
pub fn best_hardware() -> Option<DeviceInfo> {
    devices()
        .into_iter()
        .filter(|info| info.lacks.is_none() && info.kind != "software")
        .min_by_key(rank)
}

/// Takes the device that `wanted` names out of `infos`.
fn choose<'a>(infos: &'a [DeviceInfo], wanted: Option<&str>) -> Result<&'a DeviceInfo> {
    let usage = |message: String| {
        Error::new(ErrorKind::Backend, message).with_hint("`spec devices` lists what is there")
    };
    let found = match wanted {
        None => infos.iter().filter(|info| info.lacks.is_none()).min_by_key(|info| rank(info)),
        Some(wanted) => match wanted.parse::<usize>() {
            Ok(index) => infos.get(index),
            Err(_) => {
                let lower = wanted.to_lowercase();
                let named = |info: &&DeviceInfo| info.name.to_lowercase().contains(&lower);
                infos.iter().filter(named).min_by_key(|info| rank(info))
            }
        },
    };
    let Some(found) = found else {
        return Err(match (wanted, infos.first()) {
            (Some(wanted), _) => {
                usage(format!("there is no device `{wanted}` for compute shaders"))
            }
            (None, Some(info)) => usage(format!(
                "device `{}` cannot be used: {}",
                info.name,
                info.lacks.as_deref().unwrap_or_default()
            )),
            (None, None) => usage("there is no device for compute shaders".to_owned()),
        });
    };
    match &found.lacks {
        Some(lacks) => Err(usage(format!("device `{}` cannot be used: {lacks}", found.name))),
        None => Ok(found),
    }
}

/// Opens a device.
///
/// # Errors
/// `Backend` where there is no driver or no such device, or the driver refuses it.
pub(super) fn open(options: &Options) -> Result<Opened> {
    let adapters = adapters();
    let infos: Vec<DeviceInfo> =
        adapters.iter().enumerate().map(|(index, adapter)| describe(index, adapter)).collect();
    if infos.is_empty() {
        // what the libraries say about why names interfaces that are not even on this system
        let message = "there is no device for compute shaders";
        return Err(Error::new(ErrorKind::Backend, message).with_hint(
            "a driver for Vulkan, Metal or Direct3D 12 is needed; `--backend cpu` needs none",
        ));
    }
    let info = choose(&infos, options.device.as_deref())?.clone();
    let Some(adapter) = adapters.get(info.index) else {
        return Err(Error::new(ErrorKind::Backend, "the device is gone"));
    };
    let subgroups = info.subgroups && options.subgroups;
    let half_precision = info.half_precision && options.half_precision;
    let mut features = Features::IMMEDIATES;
    features.set(Features::SUBGROUP, subgroups);
    features.set(Features::SHADER_F16, half_precision);
    let limits = adapter.limits();
    let description = DeviceDescriptor {
        label: Some("vlm-spec"),
        required_features: features,
        required_limits: limits.clone(),
        memory_hints: MemoryHints::Performance,
        ..DeviceDescriptor::default()
    };
    let (device, queue) =
        pollster::block_on(adapter.request_device(&description)).map_err(|reason| {
            Error::new(ErrorKind::Backend, format!("device `{}` cannot be opened", info.name))
                .with_source(reason.to_string())
        })?;
    let failure = Failure::default();
    let (errors, losses, name) = (failure.clone(), failure.clone(), info.name.clone());
    // without a handler such an error is a panic
    device.on_uncaptured_error(Arc::new(move |error: ::wgpu::Error| {
        errors.note(first_line(&error));
    }));
    device.set_device_lost_callback(move |_, reason| {
        losses.lose(format!("device `{name}` was lost: {}", reason.trim()));
    });
    Ok(Opened { device, queue, info, limits, subgroups, half_precision, failure })
}

/// What the driver says, in one line.
fn first_line(error: &::wgpu::Error) -> String {
    match error {
        ::wgpu::Error::OutOfMemory { .. } => "the device is out of memory".to_owned(),
        ::wgpu::Error::Validation { description, .. }
        | ::wgpu::Error::Internal { description, .. } => {
            let lines: Vec<&str> = description.lines().map(str::trim).collect();
            format!("the device refuses a call: {}", lines.join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(index: usize, name: &str, kind: &'static str, lacks: Option<&str>) -> DeviceInfo {
        DeviceInfo {
            index,
            name: name.to_owned(),
            kind,
            interface: "vulkan".to_owned(),
            driver: String::new(),
            buffer_bytes: 1 << 30,
            binding_bytes: 1 << 27,
            shared_bytes: 16 << 10,
            workgroup_threads: 256,
            subgroups: false,
            half_precision: false,
            lacks: lacks.map(str::to_owned),
        }
    }

    #[test]
    fn the_best_device_is_taken_unless_one_is_named() {
        let infos = [
            info(0, "llvmpipe", "software", None),
            info(1, "Old GPU", "discrete", Some("its workgroups share less than 16 KiB")),
            info(2, "UHD Graphics", "integrated", None),
            info(3, "GeForce 4090", "discrete", None),
        ];
        let index = |wanted| choose(&infos, wanted).map(|info| info.index);
        assert_eq!(index(None).unwrap(), 3);
        assert_eq!(index(Some("uhd")).unwrap(), 2);
        assert_eq!(index(Some("0")).unwrap(), 0);
        let message = |wanted, infos: &[DeviceInfo]| {
            let error = choose(infos, wanted).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Backend);
            error.message().to_owned()
        };
        assert_eq!(message(Some("9"), &infos), "there is no device `9` for compute shaders");
        let lacks = "device `Old GPU` cannot be used: its workgroups share less than 16 KiB";
        assert_eq!(message(Some("1"), &infos), lacks);
        assert_eq!(message(None, &infos[1..2]), lacks);
        assert_eq!(message(None, &[]), "there is no device for compute shaders");
        assert_eq!(choose(&infos[..1], None).unwrap().kind, "software");
    }
}
