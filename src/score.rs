//! How likely a model finds a given text behind a prompt.

use std::f64::consts::LN_2;
use std::time::Instant;

use crate::backend::Backend;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Model, Timings};
use crate::preprocess::Media;
use crate::progress::{Observer, Progress};
use crate::prompt::message::MessageContent;
use crate::prompt::{Content, Message, Request};

/// At most this many logits are on the host at once.
const LOGITS: usize = 1 << 22;

/// A text and how likely it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// Its tokens, in order.
    pub tokens: Vec<ScoredToken>,
    /// Its length in Unicode scalar values.
    pub characters: usize,
    /// Tokens of the prompt before it.
    pub prompt_tokens: usize,
}

/// One token of a scored text.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredToken {
    /// Its id.
    pub id: u32,
    /// What it adds to the text. A token that ends within a character adds nothing, the one that completes it all of it.
    pub text: String,
    /// The natural logarithm of its probability, given the prompt and all tokens before it.
    pub log_probability: f64,
}

impl Score {
    /// The information of the whole text, in bits.
    pub fn bits(&self) -> f64 {
        let nats: f64 = self.tokens.iter().map(|token| token.log_probability).sum();
        (-nats / LN_2).max(0.0) // a sum of zeros is not to become -0
    }

    /// Bits per Unicode scalar value.
    pub fn bits_per_character(&self) -> f64 {
        self.bits() / self.characters as f64
    }

    /// Bits per token.
    pub fn bits_per_token(&self) -> f64 {
        self.bits() / self.tokens.len() as f64
    }
}

/// The same messages with their pictures and clips taken out.
pub fn without_media(messages: &[Message]) -> Vec<Message> {
    let mut messages = messages.to_vec();
    for message in &mut messages {
        if let MessageContent::Parts(parts) = &mut message.content {
            parts.retain(|part| matches!(part, Content::Text(_)));
        }
    }
    messages
}

impl<B: Backend> Model<B> {
    /// Scores `continuation` behind the prompt of `request`, where an answer would begin.
    ///
    /// The continuation is tokenised by itself, without special tokens; a media marker written in it is text. Its
    /// likelihood is what a causal model's logits give: of each token under the log-softmax of the row before it. Logits
    /// are f32; the logarithm and the sums over it are f64.
    ///
    /// # Errors
    /// As for [`Model::embed`]; [`ErrorKind::Usage`] for a continuation without tokens; [`ErrorKind::Weights`] where
    /// the model gives no probability; what `observer` returns.
    pub fn score(
        &self,
        request: Request<'_>,
        media: &Media,
        continuation: &str,
        observer: &dyn Observer,
        timings: &mut Timings,
    ) -> Result<Score> {
        let ids = self.continuation(continuation)?;
        let embedded = self.embed_rows(request, media, observer, timings)?;
        let prompt_tokens = embedded.prompt.ids.len();
        observer.progress(Progress::Prefill { tokens: prompt_tokens })?;
        let start = Instant::now();
        let mut cache = self.room(&embedded, ids.len())?;
        let states = self.prefill(&embedded, &mut cache, observer)?;
        let first = self.last_logits(&states)?;
        drop(states);
        timings.prefill += start.elapsed();
        observer.progress(Progress::Decoding { done: 0, total: ids.len() })?;
        let start = Instant::now();
        let mut likelihoods = Vec::with_capacity(ids.len());
        if let [id, rest @ ..] = &ids[..] {
            likelihoods.push(log_probability(&first, *id)?);
            // each row tells of the token behind it, so the last token needs no row
            let rows = ids.get(..rest.len()).unwrap_or_default();
            if !rows.is_empty() {
                let at = rows.iter().zip(embedded.positions.next..).map(|(_, at)| [at; 3]);
                let at: Vec<_> = at.collect();
                let states = self.forward(self.lookup(rows)?, &at, &mut cache)?;
                self.rate(&states, rest, first.len(), observer, &mut likelihoods)?;
            }
        }
        timings.decode += start.elapsed();
        let mut tokens = Vec::with_capacity(ids.len());
        let mut stream = self.prompts().tokenizer().decode_stream(false);
        for (id, log_probability) in ids.into_iter().zip(likelihoods) {
            tokens.push(ScoredToken { id, text: stream.push(id)?, log_probability });
        }
        if let Some(last) = tokens.last_mut() {
            last.text.push_str(&stream.finish()?);
        }
        Ok(Score { tokens, characters: continuation.chars().count(), prompt_tokens })
    }

    /// The ids of a continuation.
    fn continuation(&self, text: &str) -> Result<Vec<u32>> {
        if text.is_empty() {
            return Err(Error::new(ErrorKind::Usage, "the continuation is empty"));
        }
        let tokenizer = self.prompts().tokenizer();
        tokenizer.sentinels().refuse_in(text)?;
        let ids = tokenizer.encode(text, false)?;
        if ids.is_empty() {
            return Err(Error::new(ErrorKind::Usage, "the continuation has no tokens"));
        }
        Ok(ids)
    }

    /// How likely `ids` are by the rows of `states`, one for each, a few rows of logits at a time.
    fn rate(
        &self,
        states: &B::Tensor,
        ids: &[u32],
        vocabulary: usize,
        observer: &dyn Observer,
        likelihoods: &mut Vec<f64>,
    ) -> Result<()> {
        let vocabulary = vocabulary.max(1);
        let most = (LOGITS / vocabulary).max(1);
        let mut row = 0_u32;
        for part in ids.chunks(most) {
            let rows: Vec<u32> = part.iter().zip(row..).map(|(_, row)| row).collect();
            row += rows.len() as u32;
            let logits = self.logits(&self.backend().gather(states, &rows)?)?;
            for (logits, id) in logits.chunks(vocabulary).zip(part) {
                likelihoods.push(log_probability(logits, *id)?);
            }
            let (done, total) = (row as usize + 1, ids.len() + 1);
            observer.progress(Progress::Decoding { done, total })?;
        }
        Ok(())
    }
}

/// The log-softmax of logits at `id`, in f64.
fn log_probability(logits: &[f32], id: u32) -> Result<f64> {
    let failed = |message: String| Err(Error::new(ErrorKind::Weights, message));
    let Some(own) = logits.get(id as usize) else {
        return failed(format!("token id {id} is outside the vocabulary of {}", logits.len()));
    };
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let largest = f64::from(largest);
    let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - largest).exp()).sum();
    let value = f64::from(*own) - largest - sum.ln();
    // a token that cannot come has minus infinity, which is an answer
    if value.is_nan() {
        return failed("the model produced values that are not numbers".to_owned());
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_add_up_to_one_whatever_is_added_to_all_logits() {
        for shift in [0.0, 1000.0, -1000.0] {
            let logits = [1.5 + shift, -2.25 + shift, shift, 8.0 + shift];
            let all: Vec<f64> = (0..4).map(|id| log_probability(&logits, id).unwrap()).collect();
            let sum: f64 = all.iter().map(|value| value.exp()).sum();
            assert!((sum - 1.0).abs() < 1e-12, "{sum}"); // rounding of f64
            // e^8 / (e^1.5 + e^-2.25 + 1 + e^8)
            assert!((all[3] + 0.001_872_505).abs() < 1e-9, "{}", all[3]);
        }
    }

    #[test]
    fn what_cannot_come_is_told_from_what_is_no_number() {
        let never = log_probability(&[0.0, f32::NEG_INFINITY], 1).unwrap();
        assert!(never.is_infinite() && never < 0.0);
        assert!(log_probability(&[0.0, f32::NAN], 0).is_err());
        assert!(log_probability(&[f32::NEG_INFINITY; 2], 0).is_err());
        assert!(log_probability(&[f32::INFINITY, 0.0], 0).is_err());
        assert!(log_probability(&[0.0], 1).is_err());
        assert!(log_probability(&[], 0).is_err());
    }

    #[test]
    fn bits_are_per_character_and_per_token() {
        let token =
            |nats: f64| ScoredToken { id: 0, text: String::new(), log_probability: -nats * LN_2 };
        let score = Score { tokens: vec![token(3.0), token(5.0)], characters: 4, prompt_tokens: 1 };
        assert!((score.bits() - 8.0).abs() < 1e-12);
        assert!((score.bits_per_character() - 2.0).abs() < 1e-12);
        assert!((score.bits_per_token() - 4.0).abs() < 1e-12);
        let certain = Score { tokens: vec![token(0.0)], ..score };
        assert_eq!(certain.bits().to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn media_are_taken_out_and_nothing_else() {
        let text = |text: &str| Content::Text(text.to_owned());
        let parts = vec![text("a"), Content::Image, text(" b"), Content::Audio];
        let messages = [Message::text("system", "brief"), Message::new("user", parts)];
        let expected =
            [Message::text("system", "brief"), Message::new("user", vec![text("a"), text(" b")])];
        assert_eq!(without_media(&messages), expected);
    }
}
