//! The feed-forward half of a block with every size known.

use super::Resolver;
use crate::backend::Activation;
use crate::descriptor::block::{Half, Mlp, MlpKind, Scores, Stored};
use crate::problem::Problem;

/// The feed-forward half.
#[derive(Debug, Clone, PartialEq)]
pub struct MlpPlan {
    /// The shape.
    pub kind: MlpKind,
    /// Inner width, of every expert where there are experts.
    pub hidden: usize,
    /// The activation.
    pub act: Activation,
    /// Whether its projections have biases.
    pub bias: bool,
    /// The order of gate and up where they are rows of one tensor.
    pub fused: Option<[Half; 2]>,
    /// The experts.
    pub experts: Option<ExpertsPlan>,
}

/// A mixture of experts.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpertsPlan {
    /// How many there are.
    pub count: usize,
    /// How many a row goes through.
    pub top: usize,
    /// How logits become weights.
    pub score: Scores,
    /// Whether the weights of the chosen are divided by their sum.
    pub renormalise: bool,
    /// Factor on the weights.
    pub scale: f32,
    /// Whether all lie in one tensor.
    pub stacked: bool,
    /// How stacked matrices are stored.
    pub order: Stored,
    /// Inner width of the shared expert, and whether its output is gated.
    pub shared: Option<(usize, bool)>,
}

impl Resolver<'_> {
    /// `None` where there are two tensors, or where the order is wrong and a problem is kept.
    pub(super) fn fused(&mut self, key: &str, fused: Option<&Vec<Half>>) -> Option<[Half; 2]> {
        match fused?.as_slice() {
            [] => None,
            [first, second] if first != second => Some([*first, *second]),
            other => {
                let problem =
                    Problem::error("value-form", "`fused` is not an order of both halves")
                        .expected_found(
                            "[\"gate\", \"up\"] or [\"up\", \"gate\"]",
                            format!("{other:?}").to_lowercase(),
                        );
                self.keep(&format!("{key}.fused"), Err(problem))
            }
        }
    }

    pub(super) fn mlp(&mut self, key: &str, mlp: &Mlp) -> Option<MlpPlan> {
        let kind = self.values.choice(&mlp.kind);
        let kind = self.keep(&format!("{key}.kind"), kind);
        let hidden = self.size(&format!("{key}.hidden"), "the mlp's width", &mlp.hidden, 1);
        let act = self.values.choice(&mlp.act);
        let act = self.keep(&format!("{key}.act"), act);
        let bias = self.flag(&format!("{key}.bias"), &mlp.bias);
        let fused = self.fused(key, mlp.fused.as_ref());
        let experts = match &mlp.experts {
            None => None,
            Some(experts) => {
                let key = format!("{key}.experts");
                let count =
                    self.size(&format!("{key}.count"), "the number of experts", &experts.count, 1)?;
                let top = self.size(
                    &format!("{key}.top"),
                    "the number of chosen experts",
                    &experts.top,
                    1,
                )?;
                let score = self.values.choice(&experts.score);
                let score = self.keep(&format!("{key}.score"), score)?;
                let renormalise = self.flag_or(
                    &format!("{key}.renormalise"),
                    experts.renormalise.as_ref(),
                    false,
                )?;
                let scale = self.optional_number(&format!("{key}.scale"), experts.scale.as_ref());
                let order =
                    self.choice_or(&format!("{key}.order"), experts.order.as_ref(), Stored::OutIn)?;
                let shared = match &experts.shared {
                    None => None,
                    Some(shared) => {
                        let hidden = self.size(
                            &format!("{key}.shared.hidden"),
                            "the shared expert's width",
                            &shared.hidden,
                            1,
                        )?;
                        let gated = self.flag_or(
                            &format!("{key}.shared.gated"),
                            shared.gated.as_ref(),
                            false,
                        )?;
                        Some((hidden, gated))
                    }
                };
                Some(ExpertsPlan {
                    count,
                    top,
                    score,
                    renormalise,
                    scale: scale.unwrap_or(1.0),
                    stacked: experts.stacked,
                    order,
                    shared,
                })
            }
        };
        Some(MlpPlan { kind: kind?, hidden: hidden?, act: act?, bias: bias?, fused, experts })
    }
}

impl MlpPlan {
    /// The tensor slots that it takes.
    pub(super) fn slots(&self) -> Vec<&'static str> {
        let mut slots = vec!["down"];
        match (self.kind, self.fused) {
            (MlpKind::Gated, Some(_)) => slots.push("gate_up"),
            (MlpKind::Gated, None) => slots.extend(["gate", "up"]),
            (MlpKind::Plain, _) => slots.push("up"),
        }
        if let Some(experts) = &self.experts {
            slots.push("router");
            if let Some((_, gated)) = experts.shared {
                slots.extend(["shared_gate", "shared_up", "shared_down"]);
                slots.extend(gated.then_some("shared_router"));
            }
        }
        slots
    }
}
