//! Transformer stacks: norms, attention, mlp, layer kinds, rotary embeddings, and the tensor names of a block.

mod attention;
mod mlp;
mod norm;
mod rope;
mod stack;

pub use self::attention::{
    Attention, AttentionChange, Biases, HeadNorm, KeySource, MaskRule, NormReach, Projection,
    ValueSource,
};
pub use self::mlp::{Experts, Half, Mlp, MlpKind, Scores, SharedExpert, Stored};
pub use self::norm::{Norm, NormWeight, Placement};
pub use self::rope::{Ladder, Rope, RopeAxis, RopeScaling};
pub use self::stack::{LayerInputs, LayerKind, LayerList, Layers, Stack, TENSOR_SLOTS};
