//! What a device reaches at most, to judge kernels by.

use std::time::{Duration, Instant};

use super::Wgpu;
use super::kernel::{ELEMENT_THREADS, Kernel};
use super::rows;
use super::stream::{Dispatch, Stream};
use super::tensor::Tensor;
use crate::error::Result;

/// Bytes that are copied at once, at most: more than what caches hold, so that memory is measured.
const COPIED_BYTES: u64 = 256 << 20;
/// Workgroups that multiply: some for each processor of the largest device.
const GROUPS: usize = 4096;
/// Multiplications and additions of a thread in one round of `shaders/multiply.wgsl`.
const OF_A_ROUND: usize = 16 * 4 * 4;
/// How long one timed run takes, at least: sending it costs a fraction of a millisecond.
const LONG_ENOUGH: Duration = Duration::from_millis(30);
/// Timed runs, of which the fastest counts: whatever else the device does makes it slower, nothing makes it faster.
const RUNS: usize = 5;

/// The rates of one device, as two shaders find them that do nothing else.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peaks {
    /// Bytes per second when a tensor is copied; a byte that is read and written counts twice.
    pub copy_bytes_per_second: f64,
    /// Multiply-adds of two f32 per second without any memory; a multiply-add is two operations.
    pub multiply_adds_per_second: f64,
}

impl Wgpu {
    /// Measures what the device reaches at most. Takes about half a second, and memory for two tensors of 256 MiB, or
    /// of the most that a shader sees at once where that is less.
    ///
    /// # Errors
    /// `Backend` where the device has no memory for it, or fails.
    pub fn measure(&self) -> Result<Peaks> {
        self.stream.finish()?; // what was asked for before is not to be measured
        Ok(Peaks {
            copy_bytes_per_second: copies(&self.stream)?,
            multiply_adds_per_second: multiply_adds(&self.stream)?,
        })
    }
}

fn copies(stream: &Stream) -> Result<f64> {
    const WIDTH: usize = 1024;
    let height = (stream.pool.most().min(COPIED_BYTES) / (4 * WIDTH as u64)) as usize;
    let x = Tensor::new(stream, height, WIDTH)?;
    let rate = fastest(stream, |times| {
        (0..times).try_for_each(|_| rows::rows(stream, &x, 0, height).map(|_| ()))
    })?;
    Ok(rate * (2 * x.bytes()) as f64)
}

fn multiply_adds(stream: &Stream) -> Result<f64> {
    let threads = GROUPS * ELEMENT_THREADS;
    let output = Tensor::new(stream, threads, 4)?;
    let rate = fastest(stream, |rounds| {
        stream.dispatch(&Dispatch {
            kernel: Kernel::Multiply,
            output: output.memory(),
            inputs: &[],
            parameters: &[rounds, 0.5_f32.to_bits()],
            groups: [GROUPS, 1, 1],
            work: 0, // sent when it is waited for, not before
        })
    })?;
    Ok(rate * (threads * OF_A_ROUND) as f64)
}

/// How often `record` does its work in a second, when it is asked to do it many times at once.
fn fastest(stream: &Stream, record: impl Fn(u32) -> Result<()>) -> Result<f64> {
    let run = |times: u32| -> Result<Duration> {
        record(times)?;
        let start = Instant::now();
        stream.finish()?;
        Ok(start.elapsed())
    };
    run(1)?; // compiles, and gets memory
    let mut times = 1;
    // no run is so long that a driver takes it for a hang
    while run(times)? < LONG_ENOUGH && times < 1 << 16 {
        times *= 2;
    }
    let mut shortest = Duration::MAX;
    for _ in 0..RUNS {
        shortest = shortest.min(run(times)?);
    }
    Ok(f64::from(times) / shortest.as_secs_f64().max(f64::MIN_POSITIVE))
}

#[cfg(test)]
mod tests {
    use crate::backend::wgpu::{Options, Wgpu};

    #[test]
    fn a_device_has_rates() {
        // what is missing without a device is said by the tests of the kernels
        let Ok(backend) = Wgpu::new(&Options::default()) else { return };
        let peaks = backend.measure().unwrap();
        for rate in [peaks.copy_bytes_per_second, peaks.multiply_adds_per_second] {
            assert!(rate.is_finite() && rate > 0.0, "{peaks:?}");
        }
    }
}
