//! The backend of compute shaders: any GPU that has a driver for Vulkan, Metal or Direct3D 12.
//!
//! Activations are f32, weights stay packed in the dtype of the checkpoint and are decoded in the kernels; sums are in f32.
//! Operations are recorded and sent together when a result is read, so that a whole forward pass is one submission, and
//! nothing comes back to the host but what is asked for. `kernel.rs` lists the kernels, `shaders/` holds their text.

mod attention;
mod device;
mod elements;
mod experts;
mod kernel;
mod measure;
mod memory;
mod rows;
mod stream;
mod tensor;
mod weight;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::attention::KeysValues;
use self::elements::{Function, Pair};
use self::stream::Stream;
use super::{Activation, Attention, Backend, Epilogue, Norm, Pairing, Routing};
use crate::error::Result;
use crate::tensor::HostTensor;

pub use self::device::{DeviceInfo, Options, best_hardware, devices};
pub use self::experts::{Routes, Stack};
pub use self::measure::Peaks;
pub use self::tensor::{Cache, Tensor};
pub use self::weight::Weight;

/// The backend of compute shaders, on one device. Clones share it.
#[derive(Clone)]
pub struct Wgpu {
    stream: Arc<Stream>,
}

impl Wgpu {
    /// Opens a device.
    ///
    /// # Errors
    /// `Backend` where there is no driver or no such device, or where the driver refuses it.
    pub fn new(options: &Options) -> Result<Self> {
        Ok(Self { stream: Arc::new(Stream::new(device::open(options)?)) })
    }

    /// The device.
    pub fn device(&self) -> &DeviceInfo {
        &self.stream.opened.info
    }

    /// Bytes that came back from the device since it was opened.
    pub fn bytes_read_back(&self) -> u64 {
        self.stream.read_back()
    }

    /// How often commands were sent to the device since it was opened.
    pub fn submissions(&self) -> u64 {
        self.stream.submits()
    }
}

impl Backend for Wgpu {
    type Tensor = Tensor;
    type Weight = Weight;
    type Stack = Stack;
    type Routes = Routes;
    type Cache = Cache;

    fn name(&self) -> &'static str {
        "wgpu"
    }

    fn device_name(&self) -> Option<&str> {
        Some(&self.device().name)
    }

    fn upload(&self, values: Vec<f32>, rows: usize, width: usize) -> Result<Tensor> {
        Tensor::upload(&self.stream, &values, rows, width)
    }

    fn download(&self, tensor: &Tensor) -> Result<Vec<f32>> {
        let bytes = self.stream.read(tensor.memory(), tensor.bytes())?;
        Ok(bytemuck::pod_collect_to_vec(&bytes))
    }

    fn shape(&self, tensor: &Tensor) -> (usize, usize) {
        (tensor.rows(), tensor.width())
    }

    fn weight(&self, tensor: &HostTensor) -> Result<Weight> {
        Weight::new(&self.stream, tensor)
    }

    fn linear(
        &self,
        x: &Tensor,
        weight: &Weight,
        epilogue: Epilogue<'_, Tensor>,
    ) -> Result<Tensor> {
        weight.product(&self.stream, x, &epilogue)
    }

    fn norm(&self, x: &Tensor, norm: &Norm<'_, Tensor>) -> Result<Tensor> {
        elements::norm(&self.stream, x, norm)
    }

    fn activate(&self, x: &Tensor, activation: Activation) -> Result<Tensor> {
        elements::map(&self.stream, x, Function::Activation(activation))
    }

    fn gated(&self, gate: &Tensor, up: &Tensor, activation: Activation) -> Result<Tensor> {
        elements::combine(&self.stream, gate, up, Pair::Gated(activation))
    }

    fn add(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        elements::combine(&self.stream, a, b, Pair::Add)
    }

    fn multiply(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        elements::combine(&self.stream, a, b, Pair::Multiply)
    }

    fn scale(&self, x: &Tensor, factor: f32) -> Result<Tensor> {
        elements::map(&self.stream, x, Function::Scale(factor))
    }

    fn softcap(&self, x: &Tensor, cap: f32) -> Result<Tensor> {
        elements::map(&self.stream, x, Function::Softcap(cap))
    }

    fn rope(
        &self,
        x: &Tensor,
        heads: usize,
        cos: &Tensor,
        sin: &Tensor,
        pairing: Pairing,
    ) -> Result<Tensor> {
        elements::rope(&self.stream, x, heads, cos, sin, pairing)
    }

    fn attention(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        attention: &Attention<'_>,
    ) -> Result<Tensor> {
        v.expect("the tensor of values", k.rows(), k.width())?;
        let kv =
            KeysValues { keys: k.memory(), values: v.memory(), rows: k.rows(), width: k.width() };
        attention::attention(&self.stream, q, &kv, attention)
    }

    fn embed(&self, table: &Weight, ids: &[u32]) -> Result<Tensor> {
        table.rows(&self.stream, ids)
    }

    fn gather(&self, x: &Tensor, index: &[u32]) -> Result<Tensor> {
        rows::gather(&self.stream, x, index)
    }

    fn blend(&self, x: &Tensor, index: &[u32], weights: &[f32], count: usize) -> Result<Tensor> {
        rows::blend(&self.stream, x, index, weights, count)
    }

    fn scatter(&self, x: Tensor, rows: &Tensor, index: &[u32]) -> Result<Tensor> {
        rows::scatter(&self.stream, x, rows, index)
    }

    fn columns(&self, x: &Tensor, start: usize, width: usize) -> Result<Tensor> {
        rows::columns(&self.stream, x, start, width)
    }

    fn rows(&self, x: &Tensor, start: usize, count: usize) -> Result<Tensor> {
        rows::rows(&self.stream, x, start, count)
    }

    fn transpose(&self, x: &Tensor, rows: usize, columns: usize) -> Result<Tensor> {
        rows::transpose(&self.stream, x, rows, columns)
    }

    fn reshape(&self, x: Tensor, rows: usize, width: usize) -> Result<Tensor> {
        x.reshape(rows, width)
    }

    fn concat(&self, parts: &[&Tensor]) -> Result<Tensor> {
        rows::concat(&self.stream, parts)
    }

    fn stack(
        &self,
        count: usize,
        part: &mut dyn FnMut(usize) -> Result<HostTensor>,
    ) -> Result<Stack> {
        Stack::new(&self.stream, count, part)
    }

    fn route(&self, logits: &Tensor, routing: &Routing) -> Result<Routes> {
        experts::route(&self.stream, logits, routing)
    }

    fn spread(&self, x: &Tensor, routes: &Routes, weighted: bool) -> Result<Tensor> {
        experts::spread(&self.stream, x, routes, weighted)
    }

    fn linear_each(
        &self,
        x: &Tensor,
        stack: &Stack,
        routes: &Routes,
        bias: Option<&Tensor>,
        activation: Option<Activation>,
    ) -> Result<Tensor> {
        experts::linear_each(&self.stream, x, stack, routes, bias, activation)
    }

    fn collect(&self, x: &Tensor, routes: &Routes, weighted: bool) -> Result<Tensor> {
        experts::collect(&self.stream, x, routes, weighted)
    }

    fn largest(&self, x: &Tensor) -> Result<Vec<Option<u32>>> {
        rows::largest(&self.stream, x)
    }

    fn wait(&self) -> Result<()> {
        self.stream.finish()
    }

    fn cache(&self, capacity: usize, width: usize) -> Result<Cache> {
        Cache::new(&self.stream, capacity, width)
    }

    fn cache_len(&self, cache: &Cache) -> usize {
        cache.rows
    }

    fn append(&self, cache: &mut Cache, k: &Tensor, v: &Tensor) -> Result<()> {
        rows::append(&self.stream, cache, k, v)
    }

    fn attention_cached(
        &self,
        q: &Tensor,
        cache: &Cache,
        attention: &Attention<'_>,
    ) -> Result<Tensor> {
        let kv = KeysValues {
            keys: &cache.keys,
            values: &cache.values,
            rows: cache.rows,
            width: cache.width,
        };
        attention::attention(&self.stream, q, &kv, attention)
    }
}
