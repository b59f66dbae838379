//! The one small set of tensor operations that every backend implements.
//!
//! Activations are f32 and two-dimensional: `[rows, width]`, a row per token. Heads lie side by side in a row
//! (`width = heads * head_dim`, head-major). Index tables, coefficient tables and positions are computed on the host;
//! a backend does dense work and knows no models.

pub mod cpu;
mod key_ranges;
#[cfg(feature = "wgpu")]
pub mod wgpu;

use crate::error::Result;
use crate::tensor::HostTensor;

pub use key_ranges::KeyRanges;

/// Elementwise functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x Φ(x)` with the exact error function.
    Gelu,
    /// `0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
    GeluTanh,
    /// `x σ(1.702 x)`.
    QuickGelu,
    /// `x σ(x)`.
    Silu,
    /// `max(x, 0)`.
    Relu,
    /// `σ(x) = 1 / (1 + e^-x)`.
    Sigmoid,
    /// `tanh(x)`.
    Tanh,
}

/// What a norm subtracts and divides by. Statistics are taken over each row, in f32 or better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// Layer norm: `(x - mean) / √(var + eps)`, biased variance.
    Layer,
    /// `x / √(mean(x²) + eps)`.
    Rms,
}

/// How the two halves of a rotated pair lie in a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// Element `i` is paired with `i + rotated / 2`.
    Half,
    /// Element `2 i` is paired with `2 i + 1`.
    Interleaved,
}

/// Which keys a query row may see.
#[derive(Debug, Clone, Copy)]
pub enum Mask<'a> {
    /// Rows are cut into consecutive segments of these lengths; a row sees exactly its own segment.
    /// The lengths add up to the number of query rows, which equals the number of key rows.
    Segments(&'a [usize]),
    /// Query row `i` stands at key row `start + i` and sees key rows `0..=start + i`.
    Causal {
        /// The number of key rows before the first query row.
        start: usize,
    },
    /// Query row `i` sees exactly the key rows in the ranges of row `i`; a row without ranges gives zeros. There are
    /// as many rows as query rows, and no range ends beyond the key rows, of which there may be any number.
    Ranges(&'a KeyRanges),
}

/// The geometry of one attention call.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`. Query head `h` reads key head `h / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Factor on every score before the softmax.
    pub scale: f32,
    /// A positive number `c`: every scaled score `s` becomes `c tanh(s / c)` before mask and softmax.
    pub softcap: Option<f32>,
    /// Who sees whom.
    pub mask: Mask<'a>,
}

/// What follows a matrix product in the same call: `activation(x Wᵀ + bias)`, to which rows are added or which they multiply.
pub struct Epilogue<'a, T> {
    /// `[1, out]`, added to every row.
    pub bias: Option<&'a T>,
    /// Applied after the bias.
    pub activation: Option<Activation>,
    /// What becomes of the result.
    pub then: Option<Then<'a, T>>,
}

/// What a product ends with.
pub enum Then<'a, T> {
    /// `[rows, out]` is added: a residual.
    Add(&'a T),
    /// `[rows, out]` multiplies, elementwise: the other half of a gated mlp.
    Multiply(&'a T),
}

impl<T> Clone for Then<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Then<'_, T> {}

impl<'a, T> Then<'a, T> {
    /// The rows.
    pub fn rows(self) -> &'a T {
        match self {
            Self::Add(rows) | Self::Multiply(rows) => rows,
        }
    }
}

impl<T> Default for Epilogue<'_, T> {
    fn default() -> Self {
        Self { bias: None, activation: None, then: None }
    }
}

/// The parameters of one norm call: `y = normalised(x) * (offset + weight) + bias`.
pub struct Norm<'a, T> {
    /// The kind.
    pub kind: NormKind,
    /// `[1, width]`; without it the factor is 1.
    pub weight: Option<&'a T>,
    /// Added to every weight: 0, or 1 where the checkpoint stores `weight - 1`.
    pub offset: f32,
    /// `[1, width]`.
    pub bias: Option<&'a T>,
    /// Added to the variance or mean square.
    pub eps: f32,
}

/// How the logits of a router choose experts for a row, and with which weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Routing {
    /// How many experts a row goes to, the largest logits, the first among equals: at least 1, at most as many as there are.
    pub top: usize,
    /// How logits become weights.
    pub scores: RouterScores,
    /// Whether the weights of a row are divided by their sum.
    pub renormalise: bool,
    /// Factor on the weights, applied last.
    pub scale: f32,
}

/// How the logits of a router become weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouterScores {
    /// Softmax over all experts, of which the chosen keep theirs.
    Softmax,
    /// `σ(x)` of each that is chosen.
    Sigmoid,
}

/// A device and its operations. Shapes that do not fit are errors, never panics.
pub trait Backend: Send + Sync {
    /// An f32 activation `[rows, width]` on the device. Cloning shares the storage.
    type Tensor: Clone + Send + Sync;
    /// A weight matrix `[out, in]` in the dtype of the checkpoint, never widened as a whole.
    type Weight: Send + Sync;
    /// Matrices `[out, in]` of one shape and dtype, one for each expert of a mixture.
    type Stack: Send + Sync;
    /// Which experts every row of a batch goes to: `rows * top` pairs of a row and an expert, on the device.
    type Routes: Send + Sync;
    /// Keys and values of one layer, growing row by row up to a capacity fixed at creation.
    type Cache: Send;

    /// The name on the command line: `cpu`, `wgpu`, `cuda`.
    fn name(&self) -> &'static str;
    /// What the device is called, where it is not the processor.
    fn device_name(&self) -> Option<&str>;

    /// Copies host values (row-major) to the device.
    fn upload(&self, values: Vec<f32>, rows: usize, width: usize) -> Result<Self::Tensor>;
    /// Copies a tensor to the host, row-major.
    fn download(&self, tensor: &Self::Tensor) -> Result<Vec<f32>>;
    /// `(rows, width)`.
    fn shape(&self, tensor: &Self::Tensor) -> (usize, usize);
    /// Makes a matrix usable; two axes, `[out, in]`.
    fn weight(&self, tensor: &HostTensor) -> Result<Self::Weight>;

    /// `epilogue(x Wᵀ)`: `[rows, in]` → `[rows, out]`. Accumulates in f32.
    fn linear(
        &self,
        x: &Self::Tensor,
        weight: &Self::Weight,
        epilogue: Epilogue<'_, Self::Tensor>,
    ) -> Result<Self::Tensor>;
    /// Normalises every row.
    fn norm(&self, x: &Self::Tensor, norm: &Norm<'_, Self::Tensor>) -> Result<Self::Tensor>;
    /// Applies a function to every element.
    fn activate(&self, x: &Self::Tensor, activation: Activation) -> Result<Self::Tensor>;
    /// `activation(gate) * up`, elementwise.
    fn gated(
        &self,
        gate: &Self::Tensor,
        up: &Self::Tensor,
        activation: Activation,
    ) -> Result<Self::Tensor>;
    /// `a + b`; `b` has as many rows as `a`, or one row that is added to all.
    fn add(&self, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor>;
    /// `a * b`, elementwise; `b` has as many rows as `a`, or one row that multiplies all, or one column that does.
    fn multiply(&self, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor>;
    /// `x * factor`.
    fn scale(&self, x: &Self::Tensor, factor: f32) -> Result<Self::Tensor>;
    /// `cap * tanh(x / cap)`, elementwise; `cap` is a positive number.
    fn softcap(&self, x: &Self::Tensor, cap: f32) -> Result<Self::Tensor>;
    /// Rotates the first `2 * angles.width` elements of each head. `cos` and `sin` are `[rows, rotated / 2]`, one
    /// angle per row and pair; the remaining elements pass through.
    fn rope(
        &self,
        x: &Self::Tensor,
        heads: usize,
        cos: &Self::Tensor,
        sin: &Self::Tensor,
        pairing: Pairing,
    ) -> Result<Self::Tensor>;
    /// Attention of `q` `[n, heads * head_dim]` over `k`, `v` `[m, kv_heads * head_dim]`; scores are never stored as a
    /// whole. Softmax in f32.
    fn attention(
        &self,
        q: &Self::Tensor,
        k: &Self::Tensor,
        v: &Self::Tensor,
        attention: &Attention<'_>,
    ) -> Result<Self::Tensor>;

    /// Rows `ids` of a weight matrix, converted to f32 (an embedding lookup).
    fn embed(&self, table: &Self::Weight, ids: &[u32]) -> Result<Self::Tensor>;
    /// Rows `index` of a tensor, in that order; rows may repeat.
    fn gather(&self, x: &Self::Tensor, index: &[u32]) -> Result<Self::Tensor>;
    /// Row `r` of the result is the sum over `j < count` of `weights[r * count + j] * x[index[r * count + j]]`, added in
    /// that order (interpolations, averages). `count` is at least 1 and divides the number of indices; there are as
    /// many weights.
    fn blend(
        &self,
        x: &Self::Tensor,
        index: &[u32],
        weights: &[f32],
        count: usize,
    ) -> Result<Self::Tensor>;
    /// `x` with row `index[i]` replaced by row `i` of `rows`. Indices are distinct.
    fn scatter(&self, x: Self::Tensor, rows: &Self::Tensor, index: &[u32]) -> Result<Self::Tensor>;
    /// Columns `start..start + width` of every row.
    fn columns(&self, x: &Self::Tensor, start: usize, width: usize) -> Result<Self::Tensor>;
    /// Rows `start..start + count`.
    fn rows(&self, x: &Self::Tensor, start: usize, count: usize) -> Result<Self::Tensor>;
    /// Every row, read as a row-major matrix `[rows, columns]`, becomes its transpose `[columns, rows]`;
    /// `rows * columns` is the width, which stays.
    fn transpose(&self, x: &Self::Tensor, rows: usize, columns: usize) -> Result<Self::Tensor>;
    /// The same elements in row-major order under another shape.
    fn reshape(&self, x: Self::Tensor, rows: usize, width: usize) -> Result<Self::Tensor>;
    /// `parts` one below the other; all have the same width.
    fn concat(&self, parts: &[&Self::Tensor]) -> Result<Self::Tensor>;

    /// Makes `count` matrices usable together; `part` gives each, all `[out, in]` and of one dtype, and may be asked for one
    /// more than once.
    fn stack(
        &self,
        count: usize,
        part: &mut dyn FnMut(usize) -> Result<HostTensor>,
    ) -> Result<Self::Stack>;
    /// Chooses experts by the logits `[rows, experts]` of a router. A row with a logit that is not a number gets weights
    /// that are none either, or an error.
    fn route(&self, logits: &Self::Tensor, routing: &Routing) -> Result<Self::Routes>;
    /// `[rows, width]` → `[rows * top, width]`: every row once for each expert that it goes to, those of one expert one below
    /// the other, experts and rows in order; with `weighted` multiplied by its weight.
    fn spread(
        &self,
        x: &Self::Tensor,
        routes: &Self::Routes,
        weighted: bool,
    ) -> Result<Self::Tensor>;
    /// `activation(x Wᵀ + bias)` of rows that [`Backend::spread`] has put in order, `[rows * top, in]` → `[rows * top, out]`,
    /// each with the matrix of its expert and its row of `bias`, `[experts, out]`.
    fn linear_each(
        &self,
        x: &Self::Tensor,
        stack: &Self::Stack,
        routes: &Self::Routes,
        bias: Option<&Self::Tensor>,
        activation: Option<Activation>,
    ) -> Result<Self::Tensor>;
    /// The reverse of [`Backend::spread`]: `[rows * top, width]` → `[rows, width]`, what belongs to a row summed in the order
    /// of its experts; with `weighted` each is multiplied by its weight.
    fn collect(
        &self,
        x: &Self::Tensor,
        routes: &Self::Routes,
        weighted: bool,
    ) -> Result<Self::Tensor>;

    /// The column of the largest element of every row, the first among equals; `None` for a row that holds something that
    /// is not a number. Rows must not be empty.
    fn largest(&self, x: &Self::Tensor) -> Result<Vec<Option<u32>>>;

    /// Returns when everything that was asked for so far has been computed: what one call takes to return is not what its
    /// work takes where a device does it.
    fn wait(&self) -> Result<()>;

    /// An empty cache for up to `capacity` rows of `width = kv_heads * head_dim`.
    fn cache(&self, capacity: usize, width: usize) -> Result<Self::Cache>;
    /// How many rows a cache holds.
    fn cache_len(&self, cache: &Self::Cache) -> usize;
    /// Appends rows; more than the capacity is an error.
    fn append(&self, cache: &mut Self::Cache, k: &Self::Tensor, v: &Self::Tensor) -> Result<()>;
    /// [`Backend::attention`] over everything a cache holds.
    fn attention_cached(
        &self,
        q: &Self::Tensor,
        cache: &Self::Cache,
        attention: &Attention<'_>,
    ) -> Result<Self::Tensor>;
}
