//! What is recorded for the device, and when it is sent.
//!
//! Operations only append to a command buffer. It is sent when somebody reads a result, or when it holds so much work
//! that a driver's watchdog might take it for a hang.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::wgpu::{
    BindGroupDescriptor, BindGroupEntry, BindingResource, BufferBinding, BufferDescriptor,
    BufferUsages, CommandEncoder, CommandEncoderDescriptor, ComputePass, ComputePassDescriptor,
    MapMode, PollType, SubmissionIndex,
};

use super::device::Opened;
use super::kernel::{Kernel, Pipelines};
use super::memory::{Filler, Memory, Pool};
use crate::error::{Error, ErrorKind, Result};

/// Multiplications and additions that are sent at once, about: a second of work for a small GPU. Watchdogs wait for 2 s
/// (Windows) to 10 s (Linux).
const WORK_AT_ONCE: u64 = 1 << 40;
/// Tables of which a copy on the device is kept. The layers of a tower ask for the same ones again and again.
const KEPT_TABLES: usize = 32;
/// Bytes of a table that is kept, at most.
const KEPT_TABLE_BYTES: usize = 1 << 20;
/// Bytes of weights behind which the driver is given time to bring them to the device.
const UPLOAD_BYTES: u64 = 256 << 20;

/// One run of a kernel.
pub(super) struct Dispatch<'a> {
    /// The kernel.
    pub(super) kernel: Kernel,
    /// What it writes; the shader's first binding.
    pub(super) output: &'a Memory,
    /// What it reads, in the order of the shader's further bindings.
    pub(super) inputs: &'a [&'a Memory],
    /// The fields of the shader's `Parameters`, floats as their bits.
    pub(super) parameters: &'a [u32],
    /// Workgroups along the three axes.
    pub(super) groups: [usize; 3],
    /// Multiplications and additions, about.
    pub(super) work: u64,
}

/// A device with what is recorded for it.
pub(super) struct Stream {
    pub(super) opened: Opened,
    pub(super) pool: Pool,
    pipelines: Pipelines,
    recording: Mutex<Recording>,
    tables: Mutex<VecDeque<(Vec<u32>, Arc<Memory>)>>,
    uploaded: AtomicU64,
    read_back: AtomicU64,
    submits: AtomicU64,
}

#[derive(Default)]
struct Recording {
    // declared first, dropped first: a pass must end before its encoder does
    pass: Option<ComputePass<'static>>,
    encoder: Option<CommandEncoder>,
    work: u64,
    /// What was sent last because it had become too much.
    sent: Option<SubmissionIndex>,
}

impl Stream {
    pub(super) fn new(opened: Opened) -> Self {
        let most = opened.limits.max_storage_buffer_binding_size.min(opened.limits.max_buffer_size);
        Self {
            pool: Pool::new(opened.device.clone(), most / 256 * 256),
            pipelines: Pipelines::new(&opened),
            recording: Mutex::default(),
            tables: Mutex::default(),
            uploaded: AtomicU64::new(0),
            read_back: AtomicU64::new(0),
            submits: AtomicU64::new(0),
            opened,
        }
    }

    /// Bytes that were read back so far.
    pub(super) fn read_back(&self) -> u64 {
        self.read_back.load(Ordering::Relaxed)
    }

    /// How often commands were sent so far.
    pub(super) fn submits(&self) -> u64 {
        self.submits.load(Ordering::Relaxed)
    }

    /// Records one run of a kernel.
    pub(super) fn dispatch(&self, dispatch: &Dispatch<'_>) -> Result<()> {
        self.healthy()?;
        let Dispatch { kernel, output, inputs, parameters, groups, work } = dispatch;
        if groups.contains(&0) {
            return Ok(());
        }
        let pipeline = self.pipelines.get(*kernel, inputs.len())?;
        let layout = self.pipelines.layout(inputs.len())?;
        let mut entries = Vec::with_capacity(inputs.len() + 1);
        for (binding, memory) in (0..).zip(std::iter::once(output).chain(*inputs)) {
            let buffer = BufferBinding { buffer: memory.buffer()?, offset: 0, size: None };
            entries.push(BindGroupEntry { binding, resource: BindingResource::Buffer(buffer) });
        }
        let bindings = self.opened.device.create_bind_group(&BindGroupDescriptor {
            label: None,
            layout,
            entries: &entries,
        });
        let most = self.opened.limits.max_compute_workgroups_per_dimension as usize;
        if groups.iter().any(|count| *count > most) {
            let message = format!("{groups:?} workgroups are more than the device starts");
            return Err(Error::new(ErrorKind::Backend, message));
        }
        let mut recording = self.recording();
        if recording.work + work > WORK_AT_ONCE {
            self.send_some(&mut recording)?;
        }
        recording.work += work;
        let pass = recording.pass(&self.opened);
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &bindings, &[]);
        pass.set_immediates(0, bytemuck::cast_slice(parameters));
        let [x, y, z] = groups.map(|count| count as u32);
        pass.dispatch_workgroups(x, y, z);
        Ok(())
    }

    /// The first `bytes` bytes of a buffer, when all that was recorded has run.
    pub(super) fn read(&self, memory: &Memory, bytes: u64) -> Result<Vec<u8>> {
        self.healthy()?;
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let size = bytes.next_multiple_of(4);
        let staging = self.opened.device.create_buffer(&BufferDescriptor {
            label: None,
            size,
            usage: BufferUsages::MAP_READ | BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let sent = {
            let mut recording = self.recording();
            recording.pass = None;
            let encoder = recording.encoder(&self.opened);
            encoder.copy_buffer_to_buffer(memory.buffer()?, 0, &staging, 0, size);
            self.send(&mut recording)
        };
        let (answer, mapped) = mpsc::channel();
        staging.map_async(MapMode::Read, .., move |result| {
            let _ = answer.send(result);
        });
        self.wait(sent)?;
        let failed = |reason: String| {
            Error::new(ErrorKind::Backend, "the device does not give a result back")
                .with_source(reason)
        };
        // another thread that waits for the device may be the one that calls back, a moment later
        let result = loop {
            match mapped.recv_timeout(Duration::from_millis(50)) {
                Ok(result) => break result,
                Err(RecvTimeoutError::Timeout) => self.healthy()?,
                Err(reason) => return Err(failed(reason.to_string())),
            }
        };
        result.map_err(|reason| failed(reason.to_string()))?;
        self.healthy()?;
        let view = staging.get_mapped_range(..).map_err(|reason| failed(reason.to_string()))?;
        let mut read = view.to_vec();
        read.truncate(bytes as usize);
        self.read_back.fetch_add(bytes, Ordering::Relaxed);
        Ok(read)
    }

    /// A new buffer of which `write` fills the first `bytes` bytes.
    pub(super) fn filled(&self, bytes: u64, write: impl FnOnce(&mut Filler<'_>)) -> Result<Memory> {
        self.pool.filled(bytes, write).map_err(|error| {
            // a lost device gives no buffers; that it is lost is told by a callback, which waits for somebody to ask
            let _ = self.opened.device.poll(PollType::Poll);
            self.opened.failure.check().err().unwrap_or(error)
        })
    }

    /// A table of numbers on the device.
    pub(super) fn table(&self, values: &[u32]) -> Result<Arc<Memory>> {
        let keep = size_of_val(values) <= KEPT_TABLE_BYTES;
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if keep && let Some(at) = tables.iter().position(|(kept, _)| kept == values) {
            // the one used last is forgotten last
            if let Some(entry) = tables.remove(at) {
                let memory = entry.1.clone();
                tables.push_back(entry);
                return Ok(memory);
            }
        }
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let memory = Arc::new(self.filled(bytes.len() as u64, |to| to.push(bytes))?);
        if keep {
            if tables.len() == KEPT_TABLES {
                tables.pop_front();
            }
            tables.push_back((values.to_vec(), memory.clone()));
        }
        Ok(memory)
    }

    /// Notes that `bytes` bytes of weights were handed to the driver, which keeps a second copy until it is given time.
    pub(super) fn weights_uploaded(&self, bytes: u64) -> Result<()> {
        if self.uploaded.fetch_add(bytes, Ordering::Relaxed) + bytes < UPLOAD_BYTES {
            return Ok(());
        }
        self.uploaded.store(0, Ordering::Relaxed);
        let sent = self.send(&mut self.recording());
        self.wait(sent)?;
        self.healthy()
    }

    /// Sends what is recorded and waits until it has run.
    pub(super) fn finish(&self) -> Result<()> {
        self.healthy()?;
        let sent = {
            let mut recording = self.recording();
            if recording.encoder.is_none() && recording.sent.is_none() {
                return Ok(());
            }
            self.send(&mut recording)
        };
        self.wait(sent)?;
        self.recording().sent = None;
        self.healthy()
    }

    /// An error if anything went wrong so far.
    fn healthy(&self) -> Result<()> {
        let failure = &self.opened.failure;
        failure.check().or_else(|_| {
            // that the device is lost is told by a callback, which waits for somebody to ask; it is the reason for the rest
            let _ = self.opened.device.poll(PollType::Poll);
            failure.check()
        })
    }

    fn recording(&self) -> MutexGuard<'_, Recording> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, recording: &mut Recording) -> SubmissionIndex {
        recording.pass = None;
        recording.work = 0;
        self.submits.fetch_add(1, Ordering::Relaxed);
        let commands = recording.encoder.take().map(CommandEncoder::finish);
        self.opened.queue.submit(commands)
    }

    /// Sends what has become too much, and waits for what was sent the last time: the device always has something to do,
    /// and whoever wants to end the run need not wait for long.
    fn send_some(&self, recording: &mut Recording) -> Result<()> {
        let sent = self.send(recording);
        match recording.sent.replace(sent) {
            Some(before) => self.wait(before),
            None => Ok(()),
        }
    }

    fn wait(&self, sent: SubmissionIndex) -> Result<()> {
        let wait = PollType::Wait { submission_index: Some(sent), timeout: None };
        let waited = self.opened.device.poll(wait);
        // what went wrong before is why waiting fails
        self.healthy()?;
        waited.map(|_| ()).map_err(|reason| {
            Error::new(ErrorKind::Backend, "waiting for the device failed")
                .with_source(reason.to_string())
        })
    }
}

impl Recording {
    fn encoder(&mut self, opened: &Opened) -> &mut CommandEncoder {
        self.encoder.get_or_insert_with(|| {
            opened.device.create_command_encoder(&CommandEncoderDescriptor { label: None })
        })
    }

    fn pass(&mut self, opened: &Opened) -> &mut ComputePass<'static> {
        let encoder = self.encoder.get_or_insert_with(|| {
            opened.device.create_command_encoder(&CommandEncoderDescriptor { label: None })
        });
        self.pass.get_or_insert_with(|| {
            let description = ComputePassDescriptor { label: None, timestamp_writes: None };
            encoder.begin_compute_pass(&description).forget_lifetime()
        })
    }
}
