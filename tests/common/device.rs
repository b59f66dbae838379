//! The device that tests of compute shaders run on. Include it with `#[path = "common/device.rs"] mod device;`.
//!
//! `VLM_SPEC_REQUIRE_DEVICE=1` makes a missing device a failure; otherwise tests say that they were skipped.

#![cfg(feature = "wgpu")]

use std::env;
use std::sync::OnceLock;

use vlm_spec::backend::wgpu::{Options, Wgpu};

/// The best device, opened once in a process (some drivers do not like to be opened twice at a time); `None`, and a word about
/// it, where there is none.
pub(crate) fn wgpu() -> Option<Wgpu> {
    static DEVICE: OnceLock<Option<Wgpu>> = OnceLock::new();
    let open = || match Wgpu::new(&Options::default()) {
        Ok(device) => Some(device),
        Err(error) => {
            let required = env::var_os("VLM_SPEC_REQUIRE_DEVICE").is_some();
            assert!(!required, "a device is required: {error}");
            println!("there is no device: {error}");
            None
        }
    };
    let device = DEVICE.get_or_init(open).clone();
    if device.is_none() {
        println!("skipped: this test needs a device");
    }
    device
}
