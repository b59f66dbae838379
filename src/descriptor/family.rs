//! The types of a family file. Their field documentation becomes `schema/family.schema.json`.

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::audio::Audio;
use super::block::{Layers, Norm, Rope, Stack};
use super::config::{Lookup, Section};
use super::image::{Image, Tables};
use super::prompt::Prompt;
use super::slot::{Count, Flag, Number, OneOrMany};

/// One model family, or a part of one.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "vlm-spec family")]
pub struct Family {
    /// What the family is called and which checkpoints it describes.
    pub family: Header,
    /// Values looked up in config files, by section and name; `section.name` names one everywhere else.
    #[serde(default)]
    pub config: IndexMap<String, Section>,
    /// Tokens by name.
    #[serde(default)]
    pub tokens: IndexMap<String, Token>,
    /// How prompts are laid out and tokenised where the checkpoint's own files do not say.
    #[serde(default)]
    pub prompt: Prompt,
    /// Everything about pictures.
    pub image: Option<Image>,
    /// Everything about clips of sound.
    pub audio: Option<Audio>,
    /// The expressions that state how many tokens one item costs at most, over the layout and config values.
    #[serde(default)]
    #[schemars(schema_with = "floors")]
    pub floor: IndexMap<String, String>,
    /// Transformer stacks by name.
    #[serde(default)]
    pub stacks: IndexMap<String, Stack>,
    /// Rotary embeddings by name.
    #[serde(default)]
    pub rope: IndexMap<String, Rope>,
    /// The language model.
    pub decoder: Decoder,
    /// How positions are counted.
    pub positions: Positions,
    /// Where tensors are found.
    pub tensors: Tensors,
    /// Conditions that must hold of a checkpoint, by the sentence that `check` prints when one does not.
    #[serde(default)]
    #[schemars(schema_with = "requirements")]
    pub require: IndexMap<String, String>,
    /// Checkpoints with known floors; tests hold them.
    #[serde(default)]
    pub example: Vec<Example>,
}

impl Family {
    /// What the modalities that the family takes have in common, with their names.
    pub fn media(&self) -> impl Iterator<Item = (&'static str, Tables<'_>)> {
        let image = self.image.as_ref().map(|image| ("image", image.tables()));
        image.into_iter().chain(self.audio.as_ref().map(|audio| ("audio", audio.tables())))
    }
}

/// What the family is called and which checkpoints it describes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The name people use.
    pub title: String,
    /// One line on what is distinctive.
    pub about: String,
    /// Alternatives; each is a table of config.json paths and the value (or values) that must stand there. The alternative
    /// with the most paths wins.
    #[serde(rename = "match")]
    pub matches: Vec<IndexMap<String, OneOrMany>>,
    /// Why no floor and no count is given, where that is so: what of the family is not described. Its tensors are checked
    /// all the same.
    pub no_budget: Option<String>,
}

/// A token by its text, and where config files state its id.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// The text in the tokenizer.
    pub text: String,
    /// Where config files state its id; `check` holds it against the tokenizer.
    pub id: Option<Lookup>,
}

/// The language model.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Decoder {
    /// Token embeddings.
    pub embed: Embedding,
    /// A learned row added per position.
    pub position: Option<PositionRows>,
    /// The stack, by its name in `[stacks]`.
    #[schemars(extend("x-reads" = "stack"))]
    pub stack: String,
    /// The norm after the last block.
    pub leave: Norm,
    /// The output projection.
    pub head: Head,
}

/// Token embeddings.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Embedding {
    /// Rows of the table.
    pub rows: Count,
    /// Elements per row where they differ from the stack's; linear maps without biases, `project_in` before the blocks and
    /// `project_out` after the last norm, lead from one width to the other.
    pub width: Option<Count>,
    /// The name of the map from embeddings to rows of the stack.
    pub project_in: Option<String>,
    /// The name of the map back, before the output projection.
    pub project_out: Option<String>,
    /// Factor on token embeddings; left out, 1.
    pub scale: Option<Number>,
    /// Whether the factor is applied to media rows as well; left out, not.
    pub scale_media: Option<Flag>,
    /// The tensor's name below the decoder's root; `.weight` is appended.
    pub name: Option<String>,
    /// Its full name instead of `name`; nothing is appended.
    pub parameter: Option<String>,
    /// A second table, whose rows follow those of the first.
    pub more: Option<MoreRows>,
    /// A second embedding of every token, of which every block of a stack with `inputs` takes a part.
    pub parts: Option<PartRows>,
}

/// A second embedding of every token: scale · row of a table + norm(project_scale · project(first embedding)), times
/// `mix`, cut into a part for every block.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PartRows {
    /// Rows of the table.
    pub rows: Count,
    /// The row that media rows take; left out, that of the token below them.
    pub media: Option<Count>,
    /// Factor on its rows; left out, 1.
    pub scale: Option<Number>,
    /// The table's name below the decoder's root; `.weight` is appended.
    pub name: String,
    /// The name of the map from the first embedding to all parts; it has no bias.
    pub project: String,
    /// Factor on what the map gives; left out, 1.
    pub project_scale: Option<Number>,
    /// The norm of every part of what the map gives.
    pub norm: Norm,
    /// Factor on the sum; left out, 1.
    pub mix: Option<Number>,
}

/// A second table of token embeddings.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoreRows {
    /// Its rows; 0: there is no second table.
    pub rows: Count,
    /// Its full name below the decoder's root; nothing is appended.
    pub parameter: String,
}

/// A learned row per position of the sequence.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PositionRows {
    /// How many positions there are.
    pub rows: Count,
    /// The row of position 0; the table has that many rows more. Left out, 0.
    pub offset: Option<Count>,
    /// The tensor's name below the decoder's root; `.weight` is appended.
    pub name: String,
}

/// The output projection.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Rows of the projection: the size of the vocabulary.
    pub rows: Count,
    /// Whether it is the embedding table where no head is stored. A stored head wins.
    pub tied: Flag,
    /// Factor on the logits; left out, 1.
    pub scale: Option<Number>,
    /// The logits are divided by this; left out, 1.
    pub divide: Option<Number>,
    /// Logits l become c · tanh(l / c); 0 or left out, they stay.
    pub softcap: Option<Number>,
}

/// How positions are counted.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("x-kind" = "position rule"))]
pub enum Positions {
    /// One axis: 0, 1, 2, …
    Sequential {
        /// The first position.
        #[serde(default)]
        start: i64,
    },
    /// Three axes: text advances all alike; a media item's rows stand still on the first axis and take their row and
    /// column on the others; afterwards counting goes on beyond the largest.
    Mrope {
        /// How far an item moves the cursor, over its layout.
        #[schemars(extend("x-layout" = true))]
        advance: Count,
    },
}

/// What a pattern of `[tensors] ignore` may name before a `:`.
pub const COMPONENTS: [&str; 6] =
    ["tower", "connector", "audio_tower", "audio_connector", "decoder", "head"];

/// Where tensors are found.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tensors {
    /// Complete alternatives of name prefixes; files saved by different library versions differ. The one under which most
    /// tensors are found is taken.
    pub roots: Vec<Root>,
    /// Patterns of stored tensors that nothing reads, below a root (`tower:post_layernorm.*`) or absolute. `*` stands for
    /// any text.
    #[serde(default)]
    #[schemars(extend("x-reads" = "pattern"))]
    pub ignore: Vec<String>,
    /// Tensors of modules that are not interpreted: they are checked, and a model that has some is not run.
    #[serde(default)]
    pub inventory: Vec<Inventory>,
    /// Other forms of the same weights in files of other versions, by a name. Each is a family file in small: what differs
    /// from this family is written as there, and merged over it.
    #[serde(default)]
    pub layouts: IndexMap<String, serde_json::Value>,
}

/// Tensors of a module that is not interpreted.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// What the module is, as the refusal to run names it.
    pub what: String,
    /// The component below whose root the names stand; left out, names are absolute.
    #[schemars(extend("x-reads" = "component"))]
    pub below: Option<String>,
    /// What `{i}` and other letters in names stand for: a number of values from 0, an array of numbers or words,
    /// or layers.
    #[serde(default)]
    pub each: IndexMap<String, Each>,
    /// Whether the module is there; left out, it is.
    pub when: Option<Flag>,
    /// Whether a checkpoint may lack it; left out, it may not.
    pub optional: Option<Flag>,
    /// Full tensor names, and the shape of each.
    pub tensors: IndexMap<String, Vec<Count>>,
}

/// What a letter in braces stands for.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(title = "a count, an array of integers or of words, or { of = …, at = … }")]
pub enum Each {
    /// 0 up to a count.
    Count(Count),
    /// These.
    List(Vec<i64>),
    /// These words.
    Words(Vec<String>),
    /// Some of the layers of a stack.
    Layers(EachLayer),
}

/// Some of the layers of a stack.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EachLayer {
    /// How many layers there are.
    pub of: Count,
    /// Which of them.
    pub at: Layers,
}

/// One complete set of name prefixes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TensorRoot")]
pub struct Root {
    /// Of the image tower.
    pub tower: Option<String>,
    /// Of the image connector.
    pub connector: Option<String>,
    /// Of the audio tower.
    pub audio_tower: Option<String>,
    /// Of the audio connector.
    pub audio_connector: Option<String>,
    /// Of the decoder.
    pub decoder: String,
    /// The full name of the output projection, without `.weight`.
    pub head: String,
}

/// A checkpoint with known floors.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// The checkpoint's published name.
    pub checkpoint: String,
    /// The expansion part of the floor, by modality.
    #[schemars(schema_with = "known_floors")]
    pub floor: IndexMap<String, i64>,
}

fn floors(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "image": {
                "type": "string",
                "x-reads": "floor",
                "description": "Tokens in place of one image's marker: the length of `image.strip`, stated as a formula."
            },
            "audio": {
                "type": "string",
                "x-reads": "floor",
                "description": "Tokens in place of one clip's marker: the length of `audio.strip`, stated as a formula."
            }
        }
    })
}

fn known_floors(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "image": { "type": "integer", "minimum": 1, "description": "Tokens in place of one image's marker." },
            "audio": { "type": "integer", "minimum": 1, "description": "Tokens in place of one clip's marker." }
        }
    })
}

fn requirements(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": { "type": "string", "x-reads": "requirement" } })
}
