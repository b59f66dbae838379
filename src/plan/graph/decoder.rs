//! The language model: embeddings, stack, output projection.

use super::{NormPlan, Resolver, StackPlan};
use crate::descriptor::family::PartRows;

/// The language model.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderPlan {
    /// Rows of the first embedding table.
    pub table_rows: usize,
    /// Rows of both tables together: the ids that have an embedding.
    pub embed_rows: usize,
    /// Elements per embedding.
    pub embed_width: usize,
    /// The table's full name below the decoder's root.
    pub embed_name: String,
    /// Rows and full name of a second table behind the first.
    pub embed_more: Option<(usize, String)>,
    /// A second embedding, cut into parts for the blocks.
    pub parts: Option<PartRowsPlan>,
    /// The maps from embeddings to rows of the stack and back, where their widths differ.
    pub project: Option<(String, String)>,
    /// Factor on token embeddings.
    pub embed_scale: f32,
    /// Whether the factor is applied to media rows as well.
    pub scale_media: bool,
    /// Learned positions.
    pub position: Option<PositionRowsPlan>,
    /// The stack.
    pub stack: StackPlan,
    /// The norm after the last block.
    pub leave: NormPlan,
    /// Rows of the output projection.
    pub head_rows: usize,
    /// Whether the embedding table stands in for a missing head.
    pub tied: bool,
    /// Factor on the logits.
    pub logit_scale: f32,
    /// Logits l become c · tanh(l / c).
    pub softcap: Option<f32>,
}

/// A learned row per position of the sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct PositionRowsPlan {
    /// How many positions there are.
    pub rows: usize,
    /// The row of position 0.
    pub offset: usize,
    /// The table's name below the decoder's root, without `.weight`.
    pub name: String,
}

/// A second embedding of every token.
#[derive(Debug, Clone, PartialEq)]
pub struct PartRowsPlan {
    /// Rows of the table.
    pub rows: usize,
    /// Elements of a part.
    pub width: usize,
    /// Elements of all parts.
    pub all: usize,
    /// The row that media rows take; `None`: that of their token.
    pub media: Option<usize>,
    /// Factor on the table's rows.
    pub scale: f32,
    /// The table's name below the decoder's root, without `.weight`.
    pub name: String,
    /// The name of the map from the first embedding.
    pub project: String,
    /// Factor on what it gives.
    pub project_scale: f32,
    /// The norm of its parts.
    pub norm: NormPlan,
    /// Factor on the sum.
    pub mix: f32,
}

impl Resolver<'_> {
    /// `None` where blocks take no parts, or where something is wrong and a problem is kept.
    fn parts(&mut self, parts: &PartRows, stack: &StackPlan) -> Option<PartRowsPlan> {
        let key = "decoder.embed.parts";
        let width = stack.kinds.first()?.inputs.as_ref()?.width;
        let rows =
            self.size(&format!("{key}.rows"), "the number of embedding rows", &parts.rows, 1)?;
        let all = self.product(key, "width of all parts", &[stack.layers, width])?;
        let media = match &parts.media {
            Some(row) => Some(self.size(&format!("{key}.media"), "the row of media", row, 0)?),
            None => None,
        };
        let scale = self.optional_number(&format!("{key}.scale"), parts.scale.as_ref());
        let project_scale =
            self.optional_number(&format!("{key}.project_scale"), parts.project_scale.as_ref());
        let mix = self.optional_number(&format!("{key}.mix"), parts.mix.as_ref());
        Some(PartRowsPlan {
            rows,
            width,
            all,
            media,
            scale: scale.unwrap_or(1.0),
            name: parts.name.clone(),
            project: parts.project.clone(),
            project_scale: project_scale.unwrap_or(1.0),
            norm: self.norm(&format!("{key}.norm"), &parts.norm)?,
            mix: mix.unwrap_or(1.0),
        })
    }

    /// `crosses`: whether media rows are keys of attention rather than rows of the prompt.
    pub(super) fn decoder(&mut self, crosses: bool) -> Option<DecoderPlan> {
        let decoder = &self.family.decoder;
        let embed = &decoder.embed;
        let width = self.family.stacks.get(&decoder.stack).map(|stack| &stack.width);
        let media = width.filter(|_| crosses);
        let media = media.and_then(|width| self.values.size("the width", width, 1).ok());
        let stack = self.stack(&decoder.stack, media);
        let rows = self.size("decoder.embed.rows", "the number of embedding rows", &embed.rows, 1);
        let more = match &embed.more {
            Some(more) => self
                .size("decoder.embed.more.rows", "the number of further rows", &more.rows, 0)
                .map(|rows| (rows > 0).then(|| (rows, more.parameter.clone()))),
            None => Some(None),
        };
        let name = self.stored("decoder.embed", embed.name.as_ref(), embed.parameter.as_ref());
        let scale = self.optional_number("decoder.embed.scale", embed.scale.as_ref());
        let scale_media =
            self.flag_or("decoder.embed.scale_media", embed.scale_media.as_ref(), false);
        let position = match &decoder.position {
            Some(table) => {
                let rows =
                    self.size("decoder.position.rows", "the number of positions", &table.rows, 1);
                let offset = self.size_or(
                    "decoder.position.offset",
                    "the offset of positions",
                    table.offset.as_ref(),
                    0,
                    0,
                );
                Some(PositionRowsPlan { rows: rows?, offset: offset?, name: table.name.clone() })
            }
            None => None,
        };
        let leave = self.norm("decoder.leave", &decoder.leave);
        let head = &decoder.head;
        let head_rows = self.size("decoder.head.rows", "the size of the vocabulary", &head.rows, 1);
        let tied = self.flag("decoder.head.tied", &head.tied);
        let times = self.optional_number("decoder.head.scale", head.scale.as_ref());
        let over = self.optional_number("decoder.head.divide", head.divide.as_ref());
        let softcap = self.optional_number("decoder.head.softcap", head.softcap.as_ref());
        let stack = stack?;
        let embed_width = self.size_or(
            "decoder.embed.width",
            "the width of an embedding",
            embed.width.as_ref(),
            1,
            stack.width,
        )?;
        let project = if embed_width == stack.width {
            None
        } else {
            let missing = || {
                crate::problem::Problem::error(
                    "key-missing",
                    "embeddings are not as wide as the stack, and no map leads there and back",
                )
                .expected_found("`project_in` and `project_out`", "not both")
            };
            let names = embed.project_in.clone().zip(embed.project_out.clone()).ok_or_else(missing);
            Some(self.keep("decoder.embed.project_in", names)?)
        };
        let parts = embed.parts.as_ref().and_then(|parts| self.parts(parts, &stack));
        let (rows, more) = (rows?, more?);
        Some(DecoderPlan {
            table_rows: rows,
            embed_rows: rows + more.as_ref().map_or(0, |(rows, _)| *rows),
            embed_width,
            embed_name: name?,
            embed_more: more,
            parts,
            project,
            embed_scale: scale.unwrap_or(1.0),
            scale_media: scale_media?,
            position,
            stack,
            leave: leave?,
            head_rows: head_rows?,
            tied: tied?,
            logit_scale: times.unwrap_or(1.0) / over.unwrap_or(1.0),
            softcap: softcap.filter(|cap| *cap != 0.0),
        })
    }
}
