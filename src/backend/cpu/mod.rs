//! The CPU backend: the default, and the reference for the others.
//!
//! Activations are f32 vectors in memory; weights stay memory-mapped in the dtype of the checkpoint and are widened
//! panel by panel, or in registers. Sums are in f32, those of norms in f64. Every operation cuts its work by shapes
//! alone and computes each piece on one thread, so results have the same bits on any number of threads, and two calls
//! with the same arguments give the same bits. A bf16 or f16 weight gives the bits of its f32 copy. The rows of a
//! product are not promised the bits that they have in a batch of another size: one row is computed as dot products,
//! few rows and many rows by kernels that add in other orders.

// a kernel must be inlined into a function of each instruction set to be compiled for it
#![allow(clippy::inline_always)]

mod attention;
mod cache;
mod dots;
mod elementwise;
mod experts;
mod functions;
mod linear;
mod norm;
mod pool;
mod product;
mod rope;
mod rows;
mod simd;
mod storage;
#[cfg(test)]
mod testing;
mod tiled;
mod transpose;
mod weight;
mod workers;

use std::thread::available_parallelism;

use attention::KeysValues;
use storage::copy;
use tiled::Units;
use workers::Workers;

use super::{Activation, Attention, Backend, Epilogue, Norm, Pairing, Routing};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::HostTensor;

pub use cache::Cache;
pub use experts::{Routes, Stack};
pub use storage::Tensor;
pub use weight::Weight;

/// More threads than any machine has processors; a slip of the finger must not start a million.
const MOST_THREADS: usize = 1024;

/// The CPU backend with its own threads.
pub struct Cpu {
    workers: Workers,
    units: Units,
}

/// How exact the products of a [`Cpu`] are. Sums are f32 in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Precision {
    /// Activations and attention in f32; a bf16 or f16 weight counts as its f32 copy.
    #[default]
    F32,
    /// Where many rows meet a bf16 weight, they are rounded to bf16 for that product, and so are queries, keys, values
    /// and the probabilities of attention. Everything else, and what is added to the products, stays f32.
    Bf16,
}

impl Cpu {
    /// A backend with `threads` threads; `None` takes as many as the process may run at once (its CPU affinity and
    /// control group counted in).
    ///
    /// # Errors
    /// `Usage` for zero threads, `Backend` if the threads cannot be started.
    pub fn new(threads: Option<usize>) -> Result<Self> {
        Self::with_precision(threads, Precision::F32)
    }

    /// The same with products of this precision. [`Precision::Bf16`] needs a processor that multiplies bf16; on others
    /// it is [`Precision::F32`], as [`Cpu::precision`] then says.
    ///
    /// # Errors
    /// Those of [`Cpu::new`].
    pub fn with_precision(threads: Option<usize>, precision: Precision) -> Result<Self> {
        let threads = match threads {
            Some(0) => {
                return Err(Error::new(ErrorKind::Usage, "the number of threads must not be `0`"));
            }
            Some(threads) if threads > MOST_THREADS => {
                let message = format!(
                    "the number of threads must be at most {MOST_THREADS}, not `{threads}`"
                );
                return Err(Error::new(ErrorKind::Usage, message));
            }
            Some(threads) => threads,
            None => available_parallelism().map_or(1, usize::from),
        };
        Ok(Self { workers: Workers::new(threads)?, units: Units::best(precision) })
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.workers.count()
    }

    /// The precision that products really have on this processor.
    pub fn precision(&self) -> Precision {
        if self.units.brain.is_some() { Precision::Bf16 } else { Precision::F32 }
    }
}

impl Backend for Cpu {
    type Tensor = Tensor;
    type Weight = Weight;
    type Stack = Stack;
    type Routes = Routes;
    type Cache = Cache;

    fn name(&self) -> &'static str {
        "cpu"
    }

    fn device_name(&self) -> Option<&str> {
        None
    }

    fn upload(&self, values: Vec<f32>, rows: usize, width: usize) -> Result<Tensor> {
        Tensor::new(values, rows, width)
    }

    fn download(&self, tensor: &Tensor) -> Result<Vec<f32>> {
        copy(tensor)
    }

    fn shape(&self, tensor: &Tensor) -> (usize, usize) {
        (tensor.rows(), tensor.width())
    }

    fn weight(&self, tensor: &HostTensor) -> Result<Weight> {
        Weight::new(tensor)
    }

    fn linear(
        &self,
        x: &Tensor,
        weight: &Weight,
        epilogue: Epilogue<'_, Tensor>,
    ) -> Result<Tensor> {
        linear::linear(&self.workers, self.units, x, weight, &epilogue)
    }

    fn norm(&self, x: &Tensor, norm: &Norm<'_, Tensor>) -> Result<Tensor> {
        norm::norm(&self.workers, x, norm)
    }

    fn activate(&self, x: &Tensor, activation: Activation) -> Result<Tensor> {
        elementwise::activate(&self.workers, x, activation)
    }

    fn gated(&self, gate: &Tensor, up: &Tensor, activation: Activation) -> Result<Tensor> {
        elementwise::gated(&self.workers, gate, up, activation)
    }

    fn add(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        elementwise::add(&self.workers, a, b)
    }

    fn multiply(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        elementwise::multiply(&self.workers, a, b)
    }

    fn scale(&self, x: &Tensor, factor: f32) -> Result<Tensor> {
        elementwise::scale(&self.workers, x, factor)
    }

    fn softcap(&self, x: &Tensor, cap: f32) -> Result<Tensor> {
        elementwise::softcap(&self.workers, x, cap)
    }

    fn rope(
        &self,
        x: &Tensor,
        heads: usize,
        cos: &Tensor,
        sin: &Tensor,
        pairing: Pairing,
    ) -> Result<Tensor> {
        rope::rope(&self.workers, x, heads, cos, sin, pairing)
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
            KeysValues { keys: k.values(), values: v.values(), rows: k.rows(), width: k.width() };
        attention::attention(&self.workers, self.units, q, kv, attention)
    }

    fn embed(&self, table: &Weight, ids: &[u32]) -> Result<Tensor> {
        rows::embed(&self.workers, table, ids)
    }

    fn gather(&self, x: &Tensor, index: &[u32]) -> Result<Tensor> {
        rows::gather(&self.workers, x, index)
    }

    fn blend(&self, x: &Tensor, index: &[u32], weights: &[f32], count: usize) -> Result<Tensor> {
        elementwise::blend(&self.workers, x, index, weights, count)
    }

    fn scatter(&self, x: Tensor, rows: &Tensor, index: &[u32]) -> Result<Tensor> {
        rows::scatter(x, rows, index)
    }

    fn columns(&self, x: &Tensor, start: usize, width: usize) -> Result<Tensor> {
        rows::columns(&self.workers, x, start, width)
    }

    fn rows(&self, x: &Tensor, start: usize, count: usize) -> Result<Tensor> {
        rows::rows(x, start, count)
    }

    fn transpose(&self, x: &Tensor, rows: usize, columns: usize) -> Result<Tensor> {
        transpose::transpose(&self.workers, x, rows, columns)
    }

    fn reshape(&self, x: Tensor, rows: usize, width: usize) -> Result<Tensor> {
        x.reshape(rows, width)
    }

    fn concat(&self, parts: &[&Tensor]) -> Result<Tensor> {
        rows::concat(parts)
    }

    fn stack(
        &self,
        count: usize,
        part: &mut dyn FnMut(usize) -> Result<HostTensor>,
    ) -> Result<Stack> {
        Stack::new(count, part)
    }

    fn route(&self, logits: &Tensor, routing: &Routing) -> Result<Routes> {
        experts::route(logits, routing)
    }

    fn spread(&self, x: &Tensor, routes: &Routes, weighted: bool) -> Result<Tensor> {
        experts::spread(&self.workers, x, routes, weighted)
    }

    fn linear_each(
        &self,
        x: &Tensor,
        stack: &Stack,
        routes: &Routes,
        bias: Option<&Tensor>,
        activation: Option<Activation>,
    ) -> Result<Tensor> {
        experts::linear_each(&self.workers, self.units, x, stack, routes, bias, activation)
    }

    fn collect(&self, x: &Tensor, routes: &Routes, weighted: bool) -> Result<Tensor> {
        experts::collect(&self.workers, x, routes, weighted)
    }

    fn largest(&self, x: &Tensor) -> Result<Vec<Option<u32>>> {
        rows::largest(x)
    }

    fn wait(&self) -> Result<()> {
        Ok(())
    }

    fn cache(&self, capacity: usize, width: usize) -> Result<Cache> {
        Cache::new(capacity, width)
    }

    fn cache_len(&self, cache: &Cache) -> usize {
        cache.rows()
    }

    fn append(&self, cache: &mut Cache, k: &Tensor, v: &Tensor) -> Result<()> {
        cache.append(k, v)
    }

    fn attention_cached(
        &self,
        q: &Tensor,
        cache: &Cache,
        attention: &Attention<'_>,
    ) -> Result<Tensor> {
        let kv = KeysValues {
            keys: cache.keys(),
            values: cache.values(),
            rows: cache.rows(),
            width: cache.width(),
        };
        attention::attention(&self.workers, self.units, q, kv, attention)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Mask, NormKind};
    use super::testing::{self, assert_close, host_weight, tensor};
    use super::*;
    use crate::tensor::Dtype;

    #[test]
    fn threads_are_counted() {
        assert_eq!(Cpu::new(Some(3)).unwrap().threads(), 3);
        assert!(Cpu::new(None).unwrap().threads() >= 1);
        assert_eq!(Cpu::new(Some(0)).err().map(|error| error.kind()), Some(ErrorKind::Usage));
    }

    #[test]
    fn values_come_back_as_they_were() {
        let cpu = Cpu::new(Some(1)).unwrap();
        let values = testing::values(15, 1);
        let x = cpu.upload(values.clone(), 3, 5).unwrap();
        assert_eq!(cpu.shape(&x), (3, 5));
        let x = cpu.reshape(x, 5, 3).unwrap();
        assert_eq!(cpu.shape(&x), (5, 3));
        assert_eq!(cpu.download(&x).unwrap(), values);
        assert!(cpu.upload(values, 4, 4).is_err());
        assert!(cpu.reshape(x, 4, 4).is_err());
    }

    /// A layer through the trait alone, whole and with a cache row by row.
    #[test]
    fn a_layer_gives_the_same_whole_and_row_by_row() {
        fn layer<B: Backend>(
            backend: &B,
            x: &B::Tensor,
            weight: &B::Weight,
            cache: &mut B::Cache,
        ) -> B::Tensor {
            let norm =
                Norm { kind: NormKind::Rms, weight: None, offset: 0.0, bias: None, eps: 1e-6 };
            let normed = backend.norm(x, &norm).unwrap();
            let qkv = backend.linear(&normed, weight, Epilogue::default()).unwrap();
            let [q, k, v] = [0, 24, 36].map(|start| {
                backend.columns(&qkv, start, if start == 0 { 24 } else { 12 }).unwrap()
            });
            let start = backend.cache_len(cache);
            backend.append(cache, &k, &v).unwrap();
            let mask = Mask::Causal { start };
            let geometry =
                Attention { heads: 4, kv_heads: 2, head_dim: 6, scale: 0.4, softcap: None, mask };
            backend.attention_cached(&q, cache, &geometry).unwrap()
        }
        let cpu = Cpu::new(Some(2)).unwrap();
        let weight = cpu.weight(&host_weight(Dtype::Bf16, 48, 33, 0, 1)).unwrap();
        let x = tensor(17, 33, 2);
        let whole = layer(&cpu, &x, &weight, &mut cpu.cache(17, 12).unwrap());
        let mut cache = cpu.cache(17, 12).unwrap();
        for row in 0..17 {
            let line = cpu.gather(&x, &[row]).unwrap();
            let found = layer(&cpu, &line, &weight, &mut cache);
            let expected: Vec<f64> =
                whole.row(row as usize).iter().map(|&value| f64::from(value)).collect();
            // two roundings of the same sums in another order
            assert_close(&found, &expected, 1e-5, "row by row");
        }
        assert_eq!(cpu.name(), "cpu");
        assert!(cpu.append(&mut cache, &tensor(1, 12, 1), &tensor(1, 12, 1)).is_err());
        let misfit = cpu.attention(
            &tensor(1, 24, 1),
            &tensor(2, 12, 1),
            &tensor(3, 12, 1),
            &Attention {
                heads: 4,
                kv_heads: 2,
                head_dim: 6,
                scale: 0.4,
                softcap: None,
                mask: Mask::Causal { start: 0 },
            },
        );
        assert!(misfit.is_err());
    }
}
