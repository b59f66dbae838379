//! A family with its weights on a backend: pictures in, logits out.

mod embed;
mod trace;

use std::cell::Cell;
use std::time::{Duration, Instant};

pub use self::embed::{Embedded, EncodedMedia};
pub use self::trace::{Trace, TraceTensor, write_trace};
use crate::backend::Backend;
use crate::check::{TensorMatch, match_tensors};
use crate::checkpoint::tokenizer::TokenizerFiles;
use crate::checkpoint::weights::Weights;
use crate::checkpoint::{Checkpoint, FileState, Source};
use crate::descriptor::family::Root;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Decoder, DecoderCache, Encoder, TensorSource, unsupported};
use crate::plan::graph::GraphPlan;
use crate::plan::tensors::{Component, TensorSpec};
use crate::plan::{Modality, Plan};
use crate::problem::{Level, Problem, Problems};
use crate::progress::{Observer, Progress};
use crate::prompt::PromptMaker;
use crate::tensor::HostTensor;

/// A loaded model.
pub struct Model<B: Backend> {
    plan: Plan,
    graph: GraphPlan,
    backend: B,
    /// The encoder of each modality that the family takes.
    encoders: Vec<(Modality, Encoder<B>)>,
    decoder: Decoder<B>,
    maker: PromptMaker,
    ending: Vec<u32>,
    /// What was noticed while loading.
    pub notes: Problems,
}

/// How long the parts of a run took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Timings {
    /// Reading headers, mapping and preparing weights.
    pub load: Duration,
    /// Decoding, resizing and normalising pictures.
    pub preprocess: Duration,
    /// Tower and connector.
    pub encode: Duration,
    /// The prompt through the decoder.
    pub prefill: Duration,
    /// All later tokens.
    pub decode: Duration,
}

impl Timings {
    /// Runs `work` and adds the time it took to `slot`.
    pub fn measure<T>(slot: &mut Duration, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let result = work();
        *slot += start.elapsed();
        result
    }
}

struct Stored<'a> {
    weights: &'a Weights,
    root: &'a Root,
    observer: &'a dyn Observer,
    /// Bytes of the tensors that have been asked for.
    done: Cell<u64>,
    total: u64,
}

impl TensorSource for Stored<'_> {
    fn tensor(&self, component: Component, name: &str) -> Result<HostTensor> {
        let tensor = self.weights.tensor(&component.full_name(self.root, name))?;
        let done = (self.done.get() + tensor.data.len() as u64).min(self.total);
        self.done.set(done);
        self.observer.progress(Progress::Loading { done, total: self.total })?;
        Ok(tensor)
    }

    fn optional(&self, component: Component, name: &str) -> Result<Option<HostTensor>> {
        let full = component.full_name(self.root, name);
        self.weights.info(&full).map(|_| self.tensor(component, name)).transpose()
    }
}

impl<B: Backend> Model<B> {
    /// Loads what a run needs. Everything wrong with the weights is reported at once, before any compute.
    ///
    /// # Errors
    /// [`ErrorKind::NoNumber`] for config values, [`ErrorKind::Weights`] for weights, [`ErrorKind::Unsupported`] for
    /// quantised ones, [`ErrorKind::Tokenizer`] for the tokenizer.
    pub fn load(plan: &Plan, backend: B) -> Result<Self> {
        Self::load_observed(plan, backend, &())
    }

    /// The same with someone listening while weights are read.
    ///
    /// # Errors
    /// As for [`Model::load`]; what `observer` returns.
    pub fn load_observed(plan: &Plan, backend: B, observer: &dyn Observer) -> Result<Self> {
        let checkpoint = &Checkpoint::open(&plan.folder)?;
        if let Some(method) = checkpoint.quantisation() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("the weights are quantised ({method}), which is not spoken"),
            )
            .with_hint("`spec floor`, `spec count` and `spec check` work on this checkpoint"));
        }
        let graphs = GraphPlan::resolve_all(&plan.descriptor, &plan.values)
            .map_err(|problems| config_error(&problems))?;
        if let Some(graph) = graphs.first() {
            runnable(graph)?;
        }
        if let Some(Err(problems)) = &plan.image {
            return Err(config_error(problems));
        }
        let unmet = plan.unmet_requirements();
        if unmet.has_errors() {
            return Err(config_error(&unmet));
        }
        // quickly read, so what is wrong there is said before the weights are looked at
        let maker = PromptMaker::open(plan)?;
        let ending = ending_tokens(checkpoint)?;
        agreed_marker(plan, checkpoint)?;
        let weights = Weights::open(checkpoint.folder())?;
        let matched = match_tensors(&plan.descriptor, graphs, weights.listing());
        let Some(TensorMatch { graph, specs, root, problems, .. }) = matched else {
            return Err(Error::new(ErrorKind::Descriptor, "the family states no roots"));
        };
        if problems.has_errors() {
            let count = problems.iter().filter(|problem| problem.level == Level::Error).count();
            let what =
                if count == 1 { "1 problem".to_owned() } else { format!("{count} problems") };
            return Err(Error::new(
                ErrorKind::Weights,
                format!("the weights do not fit the family: {what}"),
            )
            .with_problems(problems));
        }
        runnable(&graph)?;
        require_dtypes(&weights, &root, &specs)?;
        let bytes = |spec: &TensorSpec| {
            let info = weights.info(&spec.component.full_name(&root, &spec.name))?;
            let elements: usize = info.shape.iter().product();
            Some(elements as u64 * info.dtype.dtype()?.size() as u64)
        };
        let total = specs.iter().filter(|spec| spec.required).filter_map(bytes).sum();
        observer.progress(Progress::Loading { done: 0, total })?;
        let source = Stored { weights: &weights, root: &root, observer, done: Cell::new(0), total };
        let plans = [(Modality::Image, &graph.image), (Modality::Audio, &graph.audio)];
        let mut encoders = Vec::new();
        for (modality, encoder) in plans {
            if let Some(encoder) = encoder {
                encoders.push((modality, Encoder::load(&backend, &source, encoder)?));
            }
        }
        let decoder = Decoder::load(&backend, &source, &graph.decoder)?;
        let notes = weights.problems().clone();
        Ok(Self { plan: plan.clone(), graph, backend, encoders, decoder, maker, ending, notes })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The backend.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Tokenizer and template.
    pub fn prompts(&self) -> &PromptMaker {
        &self.maker
    }

    /// Ids that end a generation.
    pub fn ending(&self) -> &[u32] {
        &self.ending
    }

    /// The number of position axes.
    pub fn position_axes(&self) -> usize {
        self.graph.positions.axes()
    }

    /// An empty cache for `capacity` tokens, the prompt's among them.
    pub fn cache(&self, embedded: &Embedded<B>, capacity: usize) -> Result<DecoderCache<B>> {
        self.decoder.cache(
            &self.backend,
            capacity,
            embedded.prospect.clone(),
            embedded.states.as_ref(),
            embedded.deep.clone(),
        )
    }

    /// Runs a prompt through the decoder; the states after its last norm. `observer` is asked between blocks.
    pub fn prefill(
        &self,
        embedded: &Embedded<B>,
        cache: &mut DecoderCache<B>,
        observer: &dyn Observer,
    ) -> Result<B::Tensor> {
        let at = &embedded.positions.tokens;
        let pulse = || observer.progress(Progress::Prefill { tokens: at.len() });
        self.decoder.forward(&self.backend, embedded.rows.clone(), at, cache, &pulse)
    }

    /// Runs rows behind the prompt through the decoder; the states after its last norm.
    pub fn forward(
        &self,
        rows: B::Tensor,
        at: &[[i64; 3]],
        cache: &mut DecoderCache<B>,
    ) -> Result<B::Tensor> {
        self.decoder.forward(&self.backend, rows, at, cache, &|| Ok(()))
    }

    /// Token embeddings `[ids, width]`, as a plain lookup.
    pub fn lookup(&self, ids: &[u32]) -> Result<B::Tensor> {
        self.decoder.embed(&self.backend, ids)
    }

    /// Logits `[rows, vocabulary]` of states. Some rows are computed at a time: of a long prompt all of them are larger
    /// than what devices take at once.
    pub fn logits(&self, states: &B::Tensor) -> Result<Vec<f32>> {
        const AT_ONCE: usize = 1 << 24; // 64 MiB
        let (rows, _) = self.backend.shape(states);
        let some = (AT_ONCE / self.graph.decoder.embed_rows.max(1)).max(1);
        if rows <= some {
            return self.backend.download(&self.logit_rows(states)?);
        }
        let mut logits = Vec::new();
        for start in (0..rows).step_by(some) {
            let part = self.backend.rows(states, start, some.min(rows - start))?;
            logits.extend(self.backend.download(&self.logit_rows(&part)?)?);
        }
        Ok(logits)
    }

    /// Logits of the last row of states alone.
    pub fn last_logits(&self, states: &B::Tensor) -> Result<Vec<f32>> {
        self.logits(&self.last_row(states)?)
    }

    /// Logits on the backend.
    pub(crate) fn logit_rows(&self, states: &B::Tensor) -> Result<B::Tensor> {
        self.decoder.logits(&self.backend, states)
    }

    /// The last row of states.
    pub(crate) fn last_row(&self, states: &B::Tensor) -> Result<B::Tensor> {
        let (rows, _) = self.backend.shape(states);
        self.backend.rows(states, rows.saturating_sub(1), 1)
    }
}

/// Refuses what the forward pass does not know yet, every member by name.
fn runnable(graph: &GraphPlan) -> Result<()> {
    let unsupported = unsupported(graph);
    if unsupported.is_empty() {
        return Ok(());
    }
    let message = format!("this family is not run yet: it needs {}", unsupported.join(", "));
    Err(Error::new(ErrorKind::Unsupported, message)
        .with_hint("`spec floor`, `spec count` and `spec check` work on this checkpoint"))
}

fn config_error(problems: &Problems) -> Error {
    let first = problems.iter().next().map(|problem| problem.message.clone()).unwrap_or_default();
    Error::new(ErrorKind::NoNumber, first).with_problems(problems.clone())
}

fn require_dtypes(weights: &Weights, root: &Root, specs: &[TensorSpec]) -> Result<()> {
    for spec in specs.iter().filter(|spec| spec.required) {
        let name = spec.component.full_name(root, &spec.name);
        if let Some(info) = weights.info(&name)
            && info.dtype.dtype().is_none()
        {
            let message = format!(
                "tensor `{name}` is stored as `{}`; only F32, F16 and BF16 are read",
                info.dtype
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    }
    Ok(())
}

/// `eos_token_id` of generation_config.json, else of config.json at either level; one id or a list.
fn ending_tokens(checkpoint: &Checkpoint) -> Result<Vec<u32>> {
    let files = checkpoint.files();
    let generation = files.source(Source::Generation);
    if let FileState::Broken(reason) = &generation.state {
        return Err(Error::new(
            ErrorKind::Checkpoint,
            format!("`{}` cannot be used: {reason}", generation.name),
        ));
    }
    let generation = generation.get("eos_token_id");
    let config = checkpoint.config();
    let found = generation
        .or_else(|| config.get("eos_token_id"))
        .or_else(|| config.get("text_config.eos_token_id"));
    Ok(match found {
        Some(serde_json::Value::Array(ids)) => ids.iter().map(token_id).collect::<Result<_>>()?,
        Some(id) => vec![token_id(id)?],
        None => Vec::new(),
    })
}

fn token_id(value: &serde_json::Value) -> Result<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| {
        Error::new(
            ErrorKind::Checkpoint,
            format!("`eos_token_id` holds `{value}`, which is not a token id"),
        )
    })
}

/// The tokenizer writes the placeholder, the config says which id the model replaces: they must be the same.
fn agreed_marker(plan: &Plan, checkpoint: &Checkpoint) -> Result<()> {
    let family = &plan.descriptor.family;
    for (_, media) in family.media() {
        agreed_token(plan, checkpoint, media.fill)?;
    }
    Ok(())
}

fn agreed_token(plan: &Plan, checkpoint: &Checkpoint, fill: &str) -> Result<()> {
    let family = &plan.descriptor.family;
    let key = format!("tokens.{fill}");
    let (Some(token), Ok(configured)) = (family.tokens.get(fill), plan.values.get(&key)) else {
        return Ok(());
    };
    let stored = TokenizerFiles::read(checkpoint.folder())?.token_id(&token.text).map(i64::from);
    if configured.defaulted || stored.is_none() || configured.value.as_i64() == stored {
        return Ok(());
    }
    let problem = Problem::error(
        "token-id",
        format!("config and tokenizer give `{}` different ids", token.text),
    )
    .at(plan.descriptor.place(&key))
    .expected_found(
        stored.map(|id| format!("{id} (the tokenizer)")).unwrap_or_default(),
        format!("{} ({})", configured.value, configured.source),
    );
    Err(Error::new(ErrorKind::Placeholders, problem.message.clone()).with_problems(problem.into()))
}
