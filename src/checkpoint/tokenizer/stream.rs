//! Text from tokens that arrive one by one.

use super::Tokenizer;
use crate::error::Result;

/// Turns a stream of token ids into text as it comes, and never into half a character.
///
/// A token can hold part of a character, and its text can depend on the token before it (a leading space is dropped at
/// the start only). So a short window of tokens is decoded again for each new one, and only what is new and complete is
/// given out: the idea of the tokenizers library's `DecodeStream`.
#[derive(Debug)]
pub struct DecodeStream<'a> {
    tokenizer: &'a Tokenizer,
    skip_special_tokens: bool,
    /// The tokens of the last piece given out, and all after them.
    window: Vec<u32>,
    /// How many of the window have been given out.
    given: usize,
    /// The text of those.
    given_text: String,
}

impl<'a> DecodeStream<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, skip_special_tokens: bool) -> Self {
        Self {
            tokenizer,
            skip_special_tokens,
            window: Vec::new(),
            given: 0,
            given_text: String::new(),
        }
    }

    /// Takes the next token; gives the text that is now complete, which may be empty.
    ///
    /// # Errors
    ///
    /// [`crate::error::ErrorKind::Tokenizer`] if the tokens cannot be decoded.
    pub fn push(&mut self, id: u32) -> Result<String> {
        self.window.push(id);
        let text = self.tokenizer.decode(&self.window, self.skip_special_tokens)?;
        // the replacement character stands for bytes that the next token may complete
        if text.ends_with(char::REPLACEMENT_CHARACTER) {
            return Ok(String::new());
        }
        let Some(fresh) =
            text.strip_prefix(self.given_text.as_str()).filter(|fresh| !fresh.is_empty())
        else {
            return Ok(String::new());
        };
        let fresh = fresh.to_string();
        self.window.drain(..self.given);
        self.given = self.window.len();
        self.given_text = self.tokenizer.decode(&self.window, self.skip_special_tokens)?;
        Ok(fresh)
    }

    /// Ends the stream: gives the text that was held back, with replacement characters for bytes that stayed alone.
    ///
    /// # Errors
    ///
    /// As for [`DecodeStream::push`].
    pub fn finish(self) -> Result<String> {
        let text = self.tokenizer.decode(&self.window, self.skip_special_tokens)?;
        Ok(text.strip_prefix(self.given_text.as_str()).unwrap_or_default().to_string())
    }
}
