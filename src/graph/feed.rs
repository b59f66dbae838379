//! The feed-forward half of a block, and of a connector.

use super::experts::Experts;
use super::{Linear, Loader, name_missing};
use crate::backend::{Activation, Backend};
use crate::descriptor::block::{Half, MlpKind};
use crate::error::Result;
use crate::plan::graph::MlpPlan;

/// Rows that go through an mlp at once: its inner rows are several times as wide as its outer ones, and must not all
/// exist at a time.
const ROWS: usize = 4096;

/// The feed-forward half of a block.
pub(super) enum Feed<B: Backend> {
    /// One mlp.
    Mlp(MlpWeights<B>),
    /// Many, of which some are picked for every row.
    Experts(Experts<B>),
}

impl<B: Backend> Feed<B> {
    pub(super) fn load(
        loader: &Loader<'_, B>,
        plan: &MlpPlan,
        name: impl Fn(&str) -> Option<String> + Copy,
    ) -> Result<Self> {
        match &plan.experts {
            Some(experts) => Experts::load(loader, plan, experts, name).map(Self::Experts),
            None => MlpWeights::load(loader, plan, name).map(Self::Mlp),
        }
    }

    /// `[rows, width]` → `[rows, width]`; `residual` is added if it is given.
    pub(super) fn forward(
        &self,
        backend: &B,
        x: &B::Tensor,
        residual: Option<&B::Tensor>,
    ) -> Result<B::Tensor> {
        match self {
            Self::Mlp(mlp) => mlp.forward(backend, x, residual),
            Self::Experts(experts) => experts.forward(backend, x, residual),
        }
    }
}

/// The weights of one mlp.
pub(super) struct MlpWeights<B: Backend> {
    gate: Option<Linear<B>>,
    up: Linear<B>,
    down: Linear<B>,
    act: Activation,
}

impl<B: Backend> MlpWeights<B> {
    /// `name` gives a slot's tensor: `gate`, `up`, `gate_up`, `down`.
    pub(super) fn load(
        loader: &Loader<'_, B>,
        plan: &MlpPlan,
        name: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let name = |slot: &str| name(slot).ok_or_else(|| name_missing(slot));
        let bias = plan.bias;
        let (gate, up) = match (plan.kind, plan.fused) {
            (MlpKind::Plain, _) => (None, loader.linear(&name("up")?, bias)?),
            (MlpKind::Gated, None) => {
                (Some(loader.linear(&name("gate")?, bias)?), loader.linear(&name("up")?, bias)?)
            }
            (MlpKind::Gated, Some([first, _])) => {
                let name = name("gate_up")?;
                let hidden = plan.hidden;
                let one = loader.linear_rows(&name, bias, 0..hidden)?;
                let other = loader.linear_rows(&name, bias, hidden..2 * hidden)?;
                match first {
                    Half::Gate => (Some(one), other),
                    Half::Up => (Some(other), one),
                }
            }
        };
        Ok(Self { gate, up, down: loader.linear(&name("down")?, bias)?, act: plan.act })
    }

    /// The same from maps that are loaded already.
    pub(super) fn from_parts(
        gate: Option<Linear<B>>,
        up: Linear<B>,
        down: Linear<B>,
        act: Activation,
    ) -> Self {
        Self { gate, up, down, act }
    }

    /// `[rows, in]` → `[rows, out]`; `residual` is added if it is given.
    pub(super) fn forward(
        &self,
        backend: &B,
        x: &B::Tensor,
        residual: Option<&B::Tensor>,
    ) -> Result<B::Tensor> {
        let (rows, _) = backend.shape(x);
        if rows <= ROWS {
            return self.some_rows(backend, x, residual);
        }
        let mut parts = Vec::new();
        for start in (0..rows).step_by(ROWS) {
            let count = ROWS.min(rows - start);
            let x = backend.rows(x, start, count)?;
            let residual =
                residual.map(|residual| backend.rows(residual, start, count)).transpose()?;
            parts.push(self.some_rows(backend, &x, residual.as_ref())?);
        }
        backend.concat(&parts.iter().collect::<Vec<_>>())
    }

    fn some_rows(
        &self,
        backend: &B,
        x: &B::Tensor,
        residual: Option<&B::Tensor>,
    ) -> Result<B::Tensor> {
        let hidden = match &self.gate {
            Some(gate) => {
                let up = self.up.apply(backend, x)?;
                gate.apply_times(backend, x, self.act, &up)?
            }
            None => self.up.apply_with(backend, x, Some(self.act), None)?,
        };
        self.down.apply_with(backend, &hidden, None, residual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::Cpu;
    use crate::tensor::HostTensor;

    /// Rows behind the first batch are what they are in a batch of their own, residuals included.
    #[test]
    fn many_rows_go_through_in_batches() {
        let cpu = Cpu::new(Some(2)).unwrap();
        let values = |count: usize, step: usize| -> Vec<f32> {
            (0..count).map(|at| ((at * step + 7) % 23) as f32 / 23.0 - 0.5).collect()
        };
        let linear = |out: usize, input: usize, step| Linear {
            weight: cpu
                .weight(&HostTensor::from_f32(vec![out, input], &values(out * input, step)))
                .unwrap(),
            bias: None,
        };
        let mlp = MlpWeights::from_parts(
            Some(linear(6, 4, 5)),
            linear(6, 4, 3),
            linear(4, 6, 11),
            Activation::Silu,
        );
        let rows = 2 * ROWS + 3;
        let x = cpu.upload(values(rows * 4, 13), rows, 4).unwrap();
        let all = mlp.forward(&cpu, &x, Some(&x)).unwrap();
        for start in [0, ROWS - 1, ROWS, rows - 1] {
            let one = cpu.rows(&x, start, 1).unwrap();
            let expected = cpu.download(&mlp.forward(&cpu, &one, Some(&one)).unwrap()).unwrap();
            let found = cpu.download(&cpu.rows(&all, start, 1).unwrap()).unwrap();
            // one row and many are added up in other orders
            assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6), "{start}");
        }
    }
}
