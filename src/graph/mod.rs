//! From a plan to backend calls: blocks, encoder, connector, decoder. Files and models' names are unknown here; tensors
//! come from a [`TensorSource`].

mod attend;
mod block;
mod connector;
mod decoder;
mod encoder;
mod experts;
mod feed;
mod front;
mod grid;
mod interpolate;
mod masks;
mod pictures;
mod rope;
mod sight;
mod tables;
mod unsupported;

use std::ops::Range;

pub use self::decoder::{Decoder, DecoderCache};
pub use self::encoder::{ClipInput, EncodedItem, Encoder, PictureInput};
pub use self::sight::{Prospect, SeenStates};
pub use self::unsupported::unsupported;
use crate::backend::{Activation, Backend, Epilogue, Norm, Then};
use crate::descriptor::block::NormWeight;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::graph::NormPlan;
use crate::plan::tensors::Component;
use crate::tensor::HostTensor;

/// Called between the blocks of a long call; an error ends it.
pub type Pulse<'a> = &'a dyn Fn() -> Result<()>;

/// Where weights come from: a component and a name below it.
pub trait TensorSource {
    /// The stored tensor.
    fn tensor(&self, component: Component, name: &str) -> Result<HostTensor>;
    /// The stored tensor, or `None` if the checkpoint has none of that name.
    fn optional(&self, component: Component, name: &str) -> Result<Option<HostTensor>>;
}

/// Loads tensors of one component onto a backend.
struct Loader<'a, B: Backend> {
    backend: &'a B,
    source: &'a dyn TensorSource,
    component: Component,
}

impl<B: Backend> Loader<'_, B> {
    /// A vector as a row `[1, n]` of f32.
    fn vector(&self, name: &str) -> Result<B::Tensor> {
        let tensor = self.source.tensor(self.component, name)?;
        let width = tensor.elements();
        self.backend.upload(tensor.to_f32(), 1, width)
    }

    /// A stored number.
    fn number(&self, name: &str) -> Result<f32> {
        let tensor = self.source.tensor(self.component, name)?;
        match tensor.to_f32()[..] {
            [number] => Ok(number),
            _ => Err(Error::new(
                ErrorKind::Weights,
                format!("`{name}` holds {} numbers, not one", tensor.elements()),
            )),
        }
    }

    /// A table of `rows` rows as f32; meant for small ones.
    fn table(&self, name: &str, rows: usize) -> Result<B::Tensor> {
        let tensor = self.source.tensor(self.component, name)?;
        let width = tensor.elements() / rows.max(1);
        self.backend.upload(tensor.to_f32(), rows, width)
    }

    /// The stored tensor itself.
    fn tensor(&self, name: &str) -> Result<HostTensor> {
        self.source.tensor(self.component, name)
    }

    /// A matrix in its own dtype; further axes of a convolution are flattened into the columns.
    fn matrix(&self, name: &str) -> Result<B::Weight> {
        matrix(self.backend, &self.source.tensor(self.component, name)?)
    }

    /// A matrix whose axes are put into another order first, `axes[i]` being the old place of the new axis `i`; all axes
    /// but the first become columns. `shape` is read into the stored elements.
    fn permuted(&self, name: &str, shape: &[usize], axes: &[usize]) -> Result<B::Weight> {
        let tensor = self.source.tensor(self.component, name)?;
        let tensor = tensor
            .reshape(shape.to_vec())
            .and_then(|tensor| tensor.permuted(axes))
            .ok_or_else(|| misshapen(name, &tensor, shape))?;
        matrix(self.backend, &tensor)
    }

    /// Some rows of a linear map.
    fn linear_rows(&self, name: &str, bias: bool, rows: Range<usize>) -> Result<Linear<B>> {
        let part = |name: &str| {
            let tensor = self.source.tensor(self.component, name)?;
            tensor.rows(rows.clone()).ok_or_else(|| misshapen(name, &tensor, &[rows.end]))
        };
        let weight = matrix(self.backend, &part(&format!("{name}.weight"))?)?;
        let bias = if bias {
            let bias = part(&format!("{name}.bias"))?.to_f32();
            Some(self.backend.upload(bias, 1, rows.len())?)
        } else {
            None
        };
        Ok(Linear { weight, bias })
    }

    fn linear(&self, name: &str, bias: bool) -> Result<Linear<B>> {
        let weight = self.matrix(&format!("{name}.weight"))?;
        let bias = if bias { Some(self.vector(&format!("{name}.bias"))?) } else { None };
        Ok(Linear { weight, bias })
    }

    fn norm(&self, name: &str, plan: &NormPlan) -> Result<NormWeights<B>> {
        let weight = match plan.weight {
            NormWeight::None => None,
            _ => Some(self.vector(&format!("{name}.weight"))?),
        };
        let bias = if plan.bias { Some(self.vector(&format!("{name}.bias"))?) } else { None };
        Ok(NormWeights { plan: plan.clone(), weight, bias })
    }
}

fn misshapen(name: &str, tensor: &HostTensor, shape: &[usize]) -> Error {
    let message = format!("`{name}` has the shape {:?}, expected {shape:?}", tensor.shape);
    Error::new(ErrorKind::Weights, message)
}

/// A slot that a block needs and the family does not name; `check` has found it before.
fn name_missing(slot: &str) -> Error {
    Error::new(ErrorKind::Descriptor, format!("tensor slot `{slot}` has no name"))
}

fn matrix<B: Backend>(backend: &B, tensor: &HostTensor) -> Result<B::Weight> {
    let rows = tensor.shape.first().copied().unwrap_or(1);
    let columns = tensor.elements() / rows.max(1);
    let flat = tensor.reshape(vec![rows, columns]).ok_or_else(|| {
        Error::new(ErrorKind::Weights, format!("a matrix has the shape {:?}", tensor.shape))
    })?;
    backend.weight(&flat)
}

/// A linear map with its bias.
struct Linear<B: Backend> {
    weight: B::Weight,
    bias: Option<B::Tensor>,
}

impl<B: Backend> Linear<B> {
    fn apply(&self, backend: &B, x: &B::Tensor) -> Result<B::Tensor> {
        backend.linear(
            x,
            &self.weight,
            Epilogue { bias: self.bias.as_ref(), ..Epilogue::default() },
        )
    }

    fn apply_with(
        &self,
        backend: &B,
        x: &B::Tensor,
        activation: Option<Activation>,
        residual: Option<&B::Tensor>,
    ) -> Result<B::Tensor> {
        let then = residual.map(Then::Add);
        backend.linear(x, &self.weight, Epilogue { bias: self.bias.as_ref(), activation, then })
    }

    /// `activation(map of x) * factor`.
    fn apply_times(
        &self,
        backend: &B,
        x: &B::Tensor,
        activation: Activation,
        factor: &B::Tensor,
    ) -> Result<B::Tensor> {
        let then = Some(Then::Multiply(factor));
        let bias = self.bias.as_ref();
        backend.linear(x, &self.weight, Epilogue { bias, activation: Some(activation), then })
    }
}

/// A norm with its tensors.
struct NormWeights<B: Backend> {
    plan: NormPlan,
    weight: Option<B::Tensor>,
    bias: Option<B::Tensor>,
}

impl<B: Backend> NormWeights<B> {
    fn apply(&self, backend: &B, x: &B::Tensor) -> Result<B::Tensor> {
        let norm = Norm {
            kind: self.plan.kind,
            weight: self.weight.as_ref(),
            offset: if self.plan.weight == NormWeight::OnePlus { 1.0 } else { 0.0 },
            bias: self.bias.as_ref(),
            eps: self.plan.eps,
        };
        backend.norm(x, &norm)
    }
}
