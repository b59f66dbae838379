//! From a prompt to text: greedy or sampled, and the trace of one run.

use std::time::Instant;

use crate::backend::Backend;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::DecoderCache;
use crate::model::{Embedded, Model, Timings, Trace, TraceTensor};
use crate::plan::Modality;
use crate::preprocess::Media;
use crate::progress::{Observer, Progress};
use crate::prompt::Request;

/// How tokens are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// 0 takes the likeliest token.
    pub temperature: f32,
    /// Only the likeliest tokens that together reach this probability are drawn from.
    pub top_p: f32,
    /// The seed of the draw.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.0, top_p: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// Checks the ranges.
    pub fn check(self) -> Result<Self> {
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("the temperature `{}` is not 0 or more", self.temperature),
            ));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("top-p `{}` is not above 0 and at most 1", self.top_p),
            ));
        }
        Ok(self)
    }
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model ended its text.
    End,
    /// As many tokens as were allowed are there.
    Limit,
    /// The caller wanted no more.
    Stopped,
}

impl Finish {
    /// The word in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Limit => "limit",
            Self::Stopped => "stopped",
        }
    }
}

/// A finished generation.
#[derive(Debug, Clone)]
pub struct Generated {
    /// Every generated id, the ending token included.
    pub tokens: Vec<u32>,
    /// Why there are no more.
    pub finish: Finish,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// How long each part took.
    pub timings: Timings,
}

/// Splitmix64: a small generator, so that a seed gives the same draw on every machine.
struct Draw(u64);

impl Draw {
    /// Uniform in [0, 1).
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) as f64 / 2.0_f64.powi(64)
    }
}

/// Where tokens come from.
struct Source {
    sampling: Sampling,
    draw: Draw,
}

/// A draw from the likeliest tokens.
fn choose(logits: &[f32], sampling: Sampling, draw: &mut Draw) -> u32 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |logit: f32| f64::from((logit - largest) / sampling.temperature).exp();
    let mut ranked: Vec<(u32, f64)> =
        logits.iter().enumerate().map(|(index, logit)| (index as u32, weight(*logit))).collect();
    ranked.sort_by(|left, right| right.1.total_cmp(&left.1));
    let total: f64 = ranked.iter().map(|(_, weight)| weight).sum();
    let mut kept = 0.0;
    let mut count = 0;
    while count < ranked.len() && (count == 0 || kept < f64::from(sampling.top_p) * total) {
        kept += ranked[count].1;
        count += 1;
    }
    let mut target = draw.next() * kept;
    for (index, weight) in &ranked[..count] {
        target -= weight;
        if target < 0.0 {
            return *index;
        }
    }
    ranked[count - 1].0
}

impl<B: Backend> Model<B> {
    /// Generates at most `limit` tokens; `on_token` sees each as it is made and stops the run by returning `false`.
    ///
    /// # Errors
    /// As for [`Model::embed`]; the first error of `on_token`.
    pub fn generate(
        &self,
        request: Request<'_>,
        media: &Media,
        limit: usize,
        sampling: Sampling,
        on_token: &mut dyn FnMut(u32) -> Result<bool>,
    ) -> Result<Generated> {
        self.generate_observed(request, media, limit, sampling, &(), on_token)
    }

    /// The same with someone listening while pictures and prompt are worked on.
    ///
    /// # Errors
    /// As for [`Model::generate`]; what `observer` returns.
    pub fn generate_observed(
        &self,
        request: Request<'_>,
        media: &Media,
        limit: usize,
        sampling: Sampling,
        observer: &dyn Observer,
        on_token: &mut dyn FnMut(u32) -> Result<bool>,
    ) -> Result<Generated> {
        let sampling = sampling.check()?;
        let mut timings = Timings::default();
        let embedded = self.embed_rows(request, media, observer, &mut timings)?;
        let prompt_tokens = embedded.prompt.ids.len();
        observer.progress(Progress::Prefill { tokens: prompt_tokens })?;
        let start = Instant::now();
        let mut cache = self.room(&embedded, limit)?;
        let states = self.prefill(&embedded, &mut cache, observer)?;
        let mut source = Source { sampling, draw: Draw(sampling.seed) };
        let first = if limit > 0 { Some(self.next_token(&states, &mut source)?) } else { None };
        self.backend().wait()?;
        timings.prefill = start.elapsed();
        let start = Instant::now();
        let (tokens, finish) = self.continue_from(
            first,
            embedded.positions.next,
            &mut cache,
            limit,
            source,
            on_token,
        )?;
        timings.decode = start.elapsed();
        Ok(Generated { tokens, finish, prompt_tokens, timings })
    }

    /// An empty cache for a prompt and what may follow.
    pub(crate) fn room(&self, embedded: &Embedded<B>, limit: usize) -> Result<DecoderCache<B>> {
        let prompt = embedded.prompt.ids.len();
        let tokens = prompt
            .checked_add(limit)
            .ok_or_else(|| Error::new(ErrorKind::Usage, "too many tokens are asked for"))?;
        self.cache(embedded, tokens).map_err(|error| match error.kind() {
            ErrorKind::Backend => Error::new(
                ErrorKind::Backend,
                format!("the keys and values of {tokens} tokens do not fit into memory"),
            )
            .with_hint(format!("{prompt} tokens are the prompt's, up to {limit} may follow it")),
            _ => error,
        })
    }

    /// The token behind the last row of states. What comes back from the backend is one number where the likeliest is
    /// taken, else a row of logits.
    fn next_token(&self, states: &B::Tensor, source: &mut Source) -> Result<u32> {
        let broken =
            || Error::new(ErrorKind::Weights, "the model produced values that are not numbers");
        if source.sampling.temperature == 0.0 {
            let last = self.last_row(states)?;
            let logits = self.logit_rows(&last)?;
            return self.backend().largest(&logits)?.first().copied().flatten().ok_or_else(broken);
        }
        let logits = self.last_logits(states)?;
        if logits.iter().any(|logit| logit.is_nan()) {
            return Err(broken());
        }
        Ok(choose(&logits, source.sampling, &mut source.draw))
    }

    /// What follows `token`, if there is one.
    fn continue_from(
        &self,
        mut token: Option<u32>,
        next: i64,
        cache: &mut DecoderCache<B>,
        limit: usize,
        mut source: Source,
        on_token: &mut dyn FnMut(u32) -> Result<bool>,
    ) -> Result<(Vec<u32>, Finish)> {
        let mut tokens = Vec::new();
        let mut finish = Finish::Limit;
        while let Some(made) = token.take() {
            let position = next + tokens.len() as i64;
            tokens.push(made);
            let more = on_token(made)?;
            if self.ending().contains(&made) {
                finish = Finish::End;
                break;
            }
            if tokens.len() >= limit {
                break;
            }
            if !more {
                finish = Finish::Stopped;
                break;
            }
            let row = self.lookup(&[made])?;
            let states = self.forward(row, &[[position; 3]], cache)?;
            token = Some(self.next_token(&states, &mut source)?);
        }
        Ok((tokens, finish))
    }

    /// Runs a prompt once and keeps every stage under the names of the trace file.
    ///
    /// Stages: `input_ids`, `positions`, `image.K.pixels`, `image.K.tower`, `image.K.features`, `image.K.features.deepstack.J`,
    /// `audio.K.mel`, `audio.K.tower`, `audio.K.features`, `embeds`, `logits`,
    /// `generated` (greedy, at most `limit` tokens, the ending token included).
    pub fn trace(&self, request: Request<'_>, media: &Media, limit: usize) -> Result<Trace> {
        self.trace_observed(request, media, limit, &(), &mut Timings::default())
    }

    /// The same with someone listening, who is also asked before each generated token.
    ///
    /// # Errors
    /// As for [`Model::embed`]; what `observer` returns.
    pub fn trace_observed(
        &self,
        request: Request<'_>,
        media: &Media,
        limit: usize,
        observer: &dyn Observer,
        timings: &mut Timings,
    ) -> Result<Trace> {
        let backend = self.backend();
        let mut trace = Trace::new();
        let embedded = self.embed(request, media, observer, timings)?;
        let Embedded { prompt, positions, rows, items, .. } = &embedded;
        let length = prompt.ids.len();
        observer.progress(Progress::Prefill { tokens: length })?;
        trace.insert(
            "input_ids".to_owned(),
            TraceTensor::Integer(
                vec![length],
                prompt.ids.iter().map(|id| i64::from(*id)).collect(),
            ),
        );
        let axes = self.position_axes();
        let by_axis = (0..axes)
            .flat_map(|axis| positions.tokens.iter().map(move |token| token[axis]))
            .collect();
        trace.insert("positions".to_owned(), TraceTensor::Integer(vec![axes, length], by_axis));
        // a policy whose views have one size gives tiles; a picture at its own size is one run of tokens
        let tiled = matches!(&self.plan().image, Some(Ok(media)) if media.shape.policy.budget_kind() != "dynamic");
        let keep = |trace: &mut Trace,
                    name: String,
                    tensor: &B::Tensor,
                    tiles: Option<usize>|
         -> Result<()> {
            let (rows, width) = backend.shape(tensor);
            let shape = match tiles {
                Some(tiles) => vec![tiles, rows / tiles.max(1), width],
                None => vec![rows, width],
            };
            trace.insert(name, TraceTensor::Float(shape, backend.download(tensor)?));
            Ok(())
        };
        for (item, picture) in media.pictures.iter().enumerate() {
            if let Some(first) = picture.views.first() {
                let shape = vec![picture.views.len(), first.channels, first.height, first.width];
                let pixels = picture.views.iter().flat_map(|view| &view.data).copied().collect();
                trace.insert(format!("image.{item}.pixels"), TraceTensor::Float(shape, pixels));
            }
        }
        for (item, clip) in media.clips.iter().enumerate() {
            let mel = TraceTensor::Float(vec![clip.bins, clip.frames], clip.mel.clone());
            trace.insert(format!("audio.{item}.mel"), mel);
        }
        for item in items {
            let name = format!("{}.{}", item.modality.name(), item.item);
            let tiles = (tiled && item.modality == Modality::Image).then_some(item.views);
            keep(&mut trace, format!("{name}.tower"), &item.tower, tiles)?;
            keep(&mut trace, format!("{name}.features"), &item.features, None)?;
            for (index, state) in item.deep.iter().enumerate() {
                keep(&mut trace, format!("{name}.features.deepstack.{index}"), state, None)?;
            }
        }
        keep(&mut trace, "embeds".to_owned(), rows, None)?;
        let start = Instant::now();
        let mut cache = self.room(&embedded, limit)?;
        let states = self.prefill(&embedded, &mut cache, observer)?;
        let logits = self.logits(&states)?;
        timings.prefill += start.elapsed();
        let vocabulary = logits.len() / length.max(1);
        trace.insert("logits".to_owned(), TraceTensor::Float(vec![length, vocabulary], logits));
        let start = Instant::now();
        let mut done = 0;
        let mut source = Source { sampling: Sampling::default(), draw: Draw(0) };
        let first = if limit > 0 { Some(self.next_token(&states, &mut source)?) } else { None };
        let (generated, _) =
            self.continue_from(first, positions.next, &mut cache, limit, source, &mut |_| {
                done += 1;
                observer.progress(Progress::Decoding { done, total: limit }).map(|()| true)
            })?;
        timings.decode += start.elapsed();
        trace.insert(
            "generated".to_owned(),
            TraceTensor::Integer(
                vec![generated.len()],
                generated.into_iter().map(i64::from).collect(),
            ),
        );
        Ok(trace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_fixes_the_draw_and_top_p_cuts_the_tail() {
        let logits = [2.0, 1.0, 0.0, -8.0];
        let sampling = Sampling { temperature: 1.0, top_p: 0.8, seed: 7 };
        let draw = |seed| {
            let mut source = Draw(seed);
            (0..50).map(|_| choose(&logits, sampling, &mut source)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        // probabilities 0.67 and 0.24 reach 0.8 together
        assert!(draw(7).iter().all(|token| *token < 2));
        let warm = Sampling { top_p: 1.0, ..sampling };
        let mut source = Draw(1);
        let many: Vec<_> = (0..4000).map(|_| choose(&logits, warm, &mut source)).collect();
        let share = many.iter().filter(|token| **token == 0).count() as f64 / 4000.0;
        assert!((share - 0.665).abs() < 0.03, "{share}"); // four standard deviations of 4000 draws
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        assert!(Sampling { temperature: -1.0, ..Sampling::default() }.check().is_err());
        assert!(Sampling { temperature: f32::NAN, ..Sampling::default() }.check().is_err());
        assert!(Sampling { top_p: 0.0, ..Sampling::default() }.check().is_err());
        assert!(Sampling { top_p: 1.1, ..Sampling::default() }.check().is_err());
    }
}
