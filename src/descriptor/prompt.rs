//! `[prompt]`: how prompts are laid out and tokenised where the checkpoint's own files do not say.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

/// How prompts are laid out and tokenised where the checkpoint's own files do not say.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prompt {
    /// The layout where checkpoints carry no chat template: `{media}` stands for all markers, `{text}` for the prompt, `{bos}`
    /// for the first token, which is then added nowhere else.
    #[schemars(extend("x-reads" = "prompt"))]
    pub raw: Option<String>,
    /// The chat template (Jinja) that the reference's processor class brings along; a checkpoint's own processor template
    /// wins, its tokenizer's does not.
    pub template: Option<String>,
    /// Special tokens, one of which the reference's processor class puts into the text, whatever the tokenizer adds: the first
    /// that the tokenizer has.
    #[serde(default)]
    pub first: Vec<SpecialToken>,
    /// Where that token goes; left out, in front.
    #[serde(default)]
    pub first_at: FirstPlace,
    /// How many media items one prompt takes at most, where the reference's processor lays out no more.
    pub most: Option<u32>,
    /// What the reference puts around the vocabulary of a `tokenizer.json`, by `tokenizer_class` of tokenizer_config.json
    /// (without `Fast`); a class that is not listed keeps what the file says.
    #[serde(default)]
    pub pipelines: IndexMap<String, Pipeline>,
}

/// Where a processor class puts the first token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FirstPlace {
    /// In front of a text that does not begin with it.
    #[default]
    Front,
    /// Behind the markers that the text begins with, unless the text holds it anywhere.
    BehindMarkers,
}

/// A special token by the name that tokenizer files give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpecialToken {
    /// `bos_token`.
    BosToken,
    /// `eos_token`.
    EosToken,
}

impl SpecialToken {
    /// Its name in tokenizer files.
    pub fn name(self) -> &'static str {
        match self {
            Self::BosToken => "bos_token",
            Self::EosToken => "eos_token",
        }
    }
}

/// What stands around the model of a tokenizer: normalizer, pre-tokenizer and decoder.
///
/// The reference builds some tokenizer classes from the vocabulary alone (`TokenizersBackend.convert_to_native_format`), with
/// a pipeline of the class in place of the stored one, and then gives other ids than the file would (runs of digits and of
/// spaces). Which class it takes depends on `tokenizer_class` and on a table of model types, so a family says which applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pipeline {
    /// The pipeline in `tokenizer.json` (the reference's `TokenizersBackend`).
    #[default]
    Stored,
    /// Byte-level words and nothing else (the reference's `GPT2Tokenizer`).
    ByteLevel,
    /// Spaces as `▁`, with one in front: of every piece between added tokens if `legacy` of `tokenizer_config.json` is
    /// true, of the whole text otherwise; none if `add_prefix_space` is false (the reference's `LlamaTokenizer`).
    Metaspace,
}

impl Prompt {
    /// The pipeline of a tokenizer whose files state `class`.
    pub fn pipeline(&self, class: Option<&str>) -> Pipeline {
        let class = class.map(|class| class.strip_suffix("Fast").unwrap_or(class));
        class.and_then(|class| self.pipelines.get(class)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_decides_with_or_without_its_ending() {
        let pipelines = IndexMap::from([("GPT2Tokenizer".to_owned(), Pipeline::ByteLevel)]);
        let prompt = Prompt { pipelines, ..Prompt::default() };
        for class in ["GPT2Tokenizer", "GPT2TokenizerFast"] {
            assert_eq!(prompt.pipeline(Some(class)), Pipeline::ByteLevel);
        }
        assert_eq!(prompt.pipeline(Some("PreTrainedTokenizerFast")), Pipeline::Stored);
        assert_eq!(prompt.pipeline(None), Pipeline::Stored);
    }
}
