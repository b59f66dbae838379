//! From a request and its media to what the decoder receives.

use std::borrow::Cow;
use std::path::PathBuf;

use super::{Model, Timings};
use crate::backend::Backend;
use crate::descriptor::tower::Splice;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{ClipInput, EncodedItem, Encoder, PictureInput, Prospect, Pulse, SeenStates};
use crate::media::{PatchOrder, Planes, patchify};
use crate::plan::Modality;
use crate::plan::graph::{EncoderPlan, PatchPlan};
use crate::preprocess::{Clip, Media, Picture, preprocess, preprocess_clip};
use crate::progress::{Observer, Progress};
use crate::prompt::{Item, Positions, Prompt, Request, Span, positions};

/// A prompt with everything that the decoder receives.
pub struct Embedded<B: Backend> {
    /// The prompt.
    pub prompt: Prompt,
    /// Its positions.
    pub positions: Positions,
    /// One row per token, `[n, width]`, media rows in place.
    pub rows: B::Tensor,
    /// What was made of its media, in the order in which they stand in the prompt; empty where nobody asked for it.
    pub items: Vec<EncodedMedia<B>>,
    /// Who sees whom.
    pub(super) prospect: Prospect,
    /// What attention over media reads, `[n, width]`.
    pub(super) states: Option<B::Tensor>,
    /// What is added behind the decoder's first blocks, and to which tokens.
    pub(super) deep: (Vec<B::Tensor>, Vec<u32>),
}

/// What was made of one media item.
pub struct EncodedMedia<B: Backend> {
    /// Its modality.
    pub modality: Modality,
    /// Its number among those of its modality, from 0.
    pub item: usize,
    /// Views that `tower` is made of, of equally many rows.
    pub views: usize,
    /// What the connector received, `[views * tokens, width]`.
    pub tower: B::Tensor,
    /// What stands in the prompt, `[embeds, hidden]`: the connector's rows and the learned rows between them; of an item that is
    /// seen by attention over media, its states.
    pub features: B::Tensor,
    /// What is added behind the decoder's first blocks, `[embeds, hidden]` each.
    pub deep: Vec<B::Tensor>,
}

impl<B: Backend> Model<B> {
    /// Reads and preprocesses the media of one prompt.
    ///
    /// # Errors
    /// [`ErrorKind::Media`] for files that cannot be read or that the family does not take; [`ErrorKind::NoNumber`] for
    /// config values.
    pub fn media(&self, pictures: &[PathBuf], clips: &[PathBuf]) -> Result<Media> {
        let plan = &self.plan;
        let of = |file: &PathBuf| preprocess(plan, file, pictures.len());
        let clip_of = |file: &PathBuf| preprocess_clip(plan, file, clips.len());
        Ok(Media {
            pictures: pictures.iter().map(of).collect::<Result<_>>()?,
            clips: clips.iter().map(clip_of).collect::<Result<_>>()?,
        })
    }

    /// Tokenises a request, encodes its media, and splices their rows between the token embeddings.
    ///
    /// # Errors
    /// [`ErrorKind::Placeholders`] where markers and media do not go together; [`ErrorKind::Media`] for what the tower does
    /// not take; what `observer` returns.
    pub fn embed(
        &self,
        request: Request<'_>,
        media: &Media,
        observer: &dyn Observer,
        timings: &mut Timings,
    ) -> Result<Embedded<B>> {
        self.embed_keeping(request, media, observer, timings, true)
    }

    /// The same without [`Embedded::items`], so that what towers made, as large as all patches of a picture, lives no longer
    /// than the picture's own encoding.
    pub(crate) fn embed_rows(
        &self,
        request: Request<'_>,
        media: &Media,
        observer: &dyn Observer,
        timings: &mut Timings,
    ) -> Result<Embedded<B>> {
        self.embed_keeping(request, media, observer, timings, false)
    }

    fn embed_keeping(
        &self,
        request: Request<'_>,
        media: &Media,
        observer: &dyn Observer,
        timings: &mut Timings,
        stages: bool,
    ) -> Result<Embedded<B>> {
        let pictures = media.pictures.iter().map(|picture| (Modality::Image, picture.layout));
        let clips = media.clips.iter().map(|clip| (Modality::Audio, clip.layout));
        let items = pictures.chain(clips).map(|(modality, layout)| Item { modality, layout });
        let prompt = self.maker.make(request, &items.collect::<Vec<_>>(), &self.plan)?;
        if prompt.ids.is_empty() {
            return Err(Error::new(ErrorKind::Usage, "the prompt has no tokens"));
        }
        let positions =
            positions(&self.graph.positions, &self.plan.values, prompt.ids.len(), &prompt.spans)?;
        let total = prompt.spans.len();
        observer.progress(Progress::Encoding { done: 0, total })?;
        let mut encoded = Vec::new();
        let mut spans = &prompt.spans[..];
        while let Some((group, rest)) = self.next_group(spans, media) {
            let pulse = || observer.progress(Progress::Encoding { done: encoded.len(), total });
            let made = Timings::measure(&mut timings.encode, || self.encode(group, media, &pulse))?;
            for mut item in made {
                if !stages {
                    item.tower = self.backend.upload(Vec::new(), 0, 0)?;
                }
                encoded.push(item);
            }
            observer.progress(Progress::Encoding { done: encoded.len(), total })?;
            spans = rest;
        }
        if total > 0 {
            Timings::measure(&mut timings.encode, || self.backend.wait())?;
        }
        self.splice(prompt, positions, encoded, stages)
    }

    fn encoder(&self, modality: Modality) -> Option<(&Encoder<B>, &EncoderPlan)> {
        let (_, encoder) = self.encoders.iter().find(|(found, _)| *found == modality)?;
        let plan = match modality {
            Modality::Image => self.graph.image.as_ref(),
            Modality::Audio => self.graph.audio.as_ref(),
        };
        Some((encoder, plan?))
    }

    /// The next items that are encoded together, and those after them.
    fn next_group<'a>(&self, spans: &'a [Span], media: &Media) -> Option<(&'a [Span], &'a [Span])> {
        let first = spans.first()?;
        let grid = |span: &Span| {
            let picture =
                media.pictures.get(span.item).filter(|_| span.modality == Modality::Image)?;
            let view = picture.views.first()?;
            Some((picture.views.len(), view.height, view.width))
        };
        let mut count = 1;
        let image = self.encoder(first.modality).zip(grid(first));
        if let Some(((encoder, plan), (mut views, height, width))) = image {
            let size = plan.patch.as_ref().map_or(1, |patch| patch.size.max(1));
            let more = spans.iter().skip(1).map_while(grid);
            for (more, ..) in more.take_while(|(_, h, w)| (*h, *w) == (height, width)) {
                if !encoder.joins(views, more, height / size, width / size) {
                    break;
                }
                (views, count) = (views + more, count + 1);
            }
        }
        spans.split_at_checked(count)
    }

    /// Encodes items: a clip, or pictures of one grid.
    fn encode(
        &self,
        group: &[Span],
        media: &Media,
        pulse: Pulse<'_>,
    ) -> Result<Vec<EncodedItem<B>>> {
        let missing = |span: &Span| {
            let message = format!("there is no encoder for item {}", span.item + 1);
            Error::new(ErrorKind::Media, message)
        };
        let mut pictures = Vec::new();
        for span in group {
            let (encoder, plan) = self.encoder(span.modality).ok_or_else(|| missing(span))?;
            match span.modality {
                Modality::Image => {
                    let picture = media.pictures.get(span.item).ok_or_else(|| missing(span))?;
                    pictures.push(picture_input(picture, plan.patch.as_ref())?);
                }
                Modality::Audio => {
                    let clip = media.clips.get(span.item).ok_or_else(|| missing(span))?;
                    return Ok(vec![encoder.clip(&self.backend, &clip_input(clip), pulse)?]);
                }
            }
        }
        match self.encoder(Modality::Image) {
            Some((encoder, _)) => encoder.pictures(&self.backend, pictures, pulse),
            None => Ok(Vec::new()),
        }
    }

    /// Puts the rows of all items where they belong.
    fn splice(
        &self,
        prompt: Prompt,
        positions: Positions,
        encoded: Vec<EncodedItem<B>>,
        stages: bool,
    ) -> Result<Embedded<B>> {
        let backend = &self.backend;
        let mut rows = self.decoder.embed(backend, &prompt.ids)?;
        let mut prospect = Prospect { prompt: prompt.ids.len(), ..Prospect::default() };
        let (mut states, mut items) = (Vec::new(), Vec::new());
        let mut deep: Vec<Vec<B::Tensor>> = Vec::new();
        let (mut deep_rows, mut runs) = (Vec::new(), Vec::new());
        for (span, item) in prompt.spans.iter().zip(encoded) {
            let Some((encoder, plan)) = self.encoder(span.modality) else { continue };
            let (count, _) = backend.shape(&item.features);
            prospect.strips.push(span.start..span.start + span.length);
            let mut features = item.features;
            if plan.splice == Splice::Cross {
                let first = prospect.all_states;
                let seen = SeenStates { marker: span.start, rows: first..first + item.real };
                prospect.states.push(seen);
                prospect.all_states += count;
                states.push(features.clone());
            } else {
                if count != span.rows.len() {
                    return Err(uncovered(span, count));
                }
                let places: Vec<u32>;
                (features, places) = with_vectors(backend, encoder, span, features)?;
                let placed = match plan.splice {
                    Splice::Add => backend.add(&backend.gather(&rows, &places)?, &features)?,
                    Splice::Replace | Splice::Cross => features.clone(),
                };
                rows = backend.scatter(rows, &placed, &places)?;
                runs.extend(places.iter().map(|place| *place as usize..*place as usize + 1));
                for (index, state) in item.deep.iter().enumerate() {
                    if deep.len() <= index {
                        deep.push(Vec::new());
                    }
                    if let Some(slot) = deep.get_mut(index) {
                        slot.push(state.clone());
                    }
                }
                if !item.deep.is_empty() {
                    deep_rows.extend(span.rows.iter().map(|row| *row as u32));
                }
            }
            if stages {
                items.push(EncodedMedia {
                    modality: span.modality,
                    item: span.item,
                    views: item.views,
                    tower: item.tower,
                    features,
                    deep: item.deep,
                });
            }
        }
        prospect.runs = Prospect::joined(runs);
        let join = |parts: &[B::Tensor]| match parts {
            [one] => Ok(one.clone()),
            _ => backend.concat(&parts.iter().collect::<Vec<_>>()),
        };
        let states = if states.is_empty() { None } else { Some(join(&states)?) };
        let deep = deep.iter().map(|parts| join(parts)).collect::<Result<_>>()?;
        let deep = (deep, deep_rows);
        Ok(Embedded { prompt, positions, rows, items, prospect, states, deep })
    }
}

/// An item with another number of rows than its strip has places.
fn uncovered(span: &Span, count: usize) -> Error {
    let what = match span.modality {
        Modality::Image => "image",
        Modality::Audio => "clip",
    };
    let message = format!(
        "{what} {} has {count} rows, but {} tokens stand for it",
        span.item + 1,
        span.rows.len()
    );
    Error::new(ErrorKind::Placeholders, message)
}

/// An item's rows and the learned rows between them, in the order of their tokens, and these tokens.
fn with_vectors<B: Backend>(
    backend: &B,
    encoder: &Encoder<B>,
    span: &Span,
    features: B::Tensor,
) -> Result<(B::Tensor, Vec<u32>)> {
    let mut places: Vec<(usize, u32)> = span.rows.iter().copied().zip(0..).collect();
    if span.vectors.is_empty() {
        return Ok((features, places.into_iter().map(|(place, _)| place as u32).collect()));
    }
    let count = places.len() as u32;
    let vectors = encoder.vectors();
    for (place, name) in &span.vectors {
        let known = vectors.iter().position(|(known, _)| known == name).ok_or_else(|| {
            let message = format!("a strip has the learned row `{name}`, which is not stored");
            Error::new(ErrorKind::Descriptor, message)
        })?;
        places.push((*place, count + known as u32));
    }
    places.sort_unstable();
    let mut parts = vec![&features];
    parts.extend(vectors.iter().map(|(_, vector)| vector));
    let index: Vec<u32> = places.iter().map(|(_, row)| *row).collect();
    let all = backend.gather(&backend.concat(&parts)?, &index)?;
    Ok((all, places.into_iter().map(|(place, _)| place as u32).collect()))
}

fn clip_input(clip: &Clip) -> ClipInput {
    ClipInput { mel: clip.mel.clone(), frames: clip.frames, valid: clip.valid }
}

fn picture_input(picture: &Picture, patch: Option<&PatchPlan>) -> Result<PictureInput> {
    let Some(patch) = patch else {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "a tower without patches takes no pictures",
        ));
    };
    let order = PatchOrder {
        patch: (patch.size, patch.size),
        frames: patch.frames.unwrap_or(1),
        block: patch.block,
    };
    let mut patches = Vec::new();
    let (mut rows, mut cols) = (0, 0);
    for view in &picture.views {
        let pixels = whole_patches(view, patch.size)?;
        (rows, cols) = (pixels.height / patch.size, pixels.width / patch.size);
        let mut made = patchify(&pixels, order)?;
        if patches.is_empty() {
            patches = made.data;
        } else {
            patches.append(&mut made.data);
        }
    }
    Ok(PictureInput {
        views: picture.views.len(),
        rows,
        cols,
        patches,
        arrangement: picture.arrangement.clone(),
    })
}

/// A convolution reads whole patches only: pixels beyond the last whole one are not seen.
fn whole_patches(pixels: &Planes, size: usize) -> Result<Cow<'_, Planes>> {
    let (height, width) = (pixels.height / size * size, pixels.width / size * size);
    if height == pixels.height && width == pixels.width {
        return Ok(Cow::Borrowed(pixels));
    }
    let mut data = Vec::with_capacity(pixels.channels * height * width);
    for channel in 0..pixels.channels {
        let plane = pixels.plane(channel).unwrap_or_default();
        for row in plane.chunks_exact(pixels.width).take(height) {
            data.extend_from_slice(row.get(..width).unwrap_or_default());
        }
    }
    Planes::new(pixels.channels, height, width, data).map(Cow::Owned)
}
