//! The language model: embeddings, stack, output projection.

use super::{NormPlan, Resolver, StackPlan};

/// The language model.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderPlan {
    /// Rows of the embedding table.
    pub embed_rows: usize,
    /// The table's name.
    pub embed_name: String,
    /// Factor on token embeddings.
    pub embed_scale: f32,
    /// The stack.
    pub stack: StackPlan,
    /// The norm after the last block.
    pub leave: NormPlan,
    /// Rows of the output projection.
    pub head_rows: usize,
    /// Whether the embedding table stands in for a missing head.
    pub tied: bool,
}

impl Resolver<'_> {
    pub(super) fn decoder(&mut self) -> Option<DecoderPlan> {
        let decoder = &self.descriptor.family.decoder;
        let stack = self.stack(&decoder.stack);
        let embed_rows =
            self.size("decoder.embed.rows", "the number of embedding rows", &decoder.embed.rows, 1);
        let embed_scale = match &decoder.embed.scale {
            Some(number) => {
                let scale = self.values.number(number);
                self.keep("decoder.embed.scale", scale).map(|scale| scale as f32)
            }
            None => Some(1.0),
        };
        let leave = self.norm("decoder.leave", &decoder.leave);
        let head_rows =
            self.size("decoder.head.rows", "the size of the vocabulary", &decoder.head.rows, 1);
        let tied = self.flag("decoder.head.tied", &decoder.head.tied);
        Some(DecoderPlan {
            embed_rows: embed_rows?,
            embed_name: decoder.embed.name.clone(),
            embed_scale: embed_scale?,
            stack: stack?,
            leave: leave?,
            head_rows: head_rows?,
            tied: tied?,
        })
    }
}
