//! Attention with every size known.

use super::{NormPlan, Resolver, RopePlan};
use crate::backend::NormKind;
use crate::descriptor::block::{
    Attention, Biases, HeadNorm, KeySource, MaskRule, NormReach, NormWeight, Projection,
    ValueSource,
};
use crate::problem::Problem;

/// Attention.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionPlan {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// Scores s become c · tanh(s / c).
    pub softcap: Option<f32>,
    /// Biases of query, key, value, output.
    pub bias: [bool; 4],
    /// Whether query, key and value are one tensor.
    pub fused: bool,
    /// The rotary embedding.
    pub rope: Option<RopePlan>,
    /// Who sees whom.
    pub mask: MaskRule,
    /// How many rows back a causal row sees, itself included, or the side of a window in patches; `None`: all.
    pub window: Option<usize>,
    /// Where keys and values come from.
    pub over: KeySource,
    /// What values are made of.
    pub values: ValueSource,
    /// Whether the query projection holds gates as well.
    pub gated: bool,
    /// Elements per row that keys and values are made of.
    pub key_width: usize,
    /// The norm of queries and keys.
    pub qk_norm: Option<HeadNormPlan>,
    /// The norm of values.
    pub v_norm: Option<HeadNormPlan>,
}

/// A norm of queries, keys or values.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadNormPlan {
    /// The norm; its name is unused.
    pub norm: NormPlan,
    /// Over what it goes.
    pub over: NormReach,
    /// Whether the rotary embedding comes first.
    pub after_rope: bool,
}

impl AttentionPlan {
    /// The tensor slots that it takes.
    pub(super) fn slots(&self) -> Vec<&'static str> {
        let mut slots = vec!["o"];
        let own = self.over != KeySource::Earlier;
        if self.fused {
            slots.push("qkv");
        } else {
            slots.push("q");
            slots.extend(own.then_some("k"));
            slots.extend((own && self.values == ValueSource::Own).then_some("v"));
        }
        let stored = |norm: &Option<HeadNormPlan>| {
            norm.as_ref().is_some_and(|norm| norm.norm.weight != NormWeight::None)
        };
        if stored(&self.qk_norm) {
            slots.push("q_norm");
            slots.extend(own.then_some("k_norm"));
        }
        slots.extend((own && stored(&self.v_norm)).then_some("v_norm"));
        slots
    }
}

impl Resolver<'_> {
    /// `None` where it is left out, or where it is wrong and a problem is kept.
    fn head_norm(&mut self, key: &str, norm: Option<&HeadNorm>) -> Option<HeadNormPlan> {
        let norm = norm?;
        if !self.flag_or(&format!("{key}.when"), norm.when.as_ref(), true)? {
            return None;
        }
        let kind = self.values.choice(&norm.kind);
        let kind = self.keep(&format!("{key}.kind"), kind)?;
        let eps = self.values.number(&norm.eps);
        let eps = self.keep(&format!("{key}.eps"), eps)? as f32;
        let weight =
            self.choice_or(&format!("{key}.weight"), norm.weight.as_ref(), NormWeight::Stored)?;
        let over = self.choice_or(&format!("{key}.over"), norm.over.as_ref(), NormReach::Head)?;
        let after_rope =
            self.flag_or(&format!("{key}.after_rope"), norm.after_rope.as_ref(), false)?;
        let bias = kind == NormKind::Layer && weight != NormWeight::None;
        let norm = NormPlan { kind, eps, weight, bias, name: String::new() };
        Some(HeadNormPlan { norm, over, after_rope })
    }

    /// `key` is where the table stands, `change` where a kind's changes stand.
    pub(super) fn attention(
        &mut self,
        key: &str,
        change: Option<&str>,
        attention: &Attention,
        width: usize,
        media: Option<usize>,
    ) -> Option<AttentionPlan> {
        let source = self.source;
        let at = |field: &str| {
            let changed = change
                .map(|change| format!("{change}.{field}"))
                .filter(|changed| source.get(changed).is_some());
            changed.unwrap_or_else(|| format!("{key}.{field}"))
        };
        let heads = self.size(&at("heads"), "the number of heads", &attention.heads, 1)?;
        let kv_heads = match &attention.kv_heads {
            Some(count) => self.size(&at("kv_heads"), "the number of key heads", count, 1)?,
            None => heads,
        };
        let head_dim = match &attention.head_dim {
            Some(count) => self.size(&at("head_dim"), "the size of a head", count, 1)?,
            None if width.is_multiple_of(heads) => width / heads,
            None => {
                let problem = Problem::error(
                    "head-size",
                    format!("{heads} heads do not divide a width of {width}"),
                );
                return self.keep(&at("heads"), Err(problem));
            }
        };
        if heads % kv_heads != 0 {
            let problem = Problem::error(
                "head-groups",
                format!("{kv_heads} key heads do not divide {heads} query heads"),
            );
            return self.keep(&at("kv_heads"), Err(problem));
        }
        let scale = match &attention.scale {
            Some(number) => {
                let scale = self.values.number(number);
                self.keep(&at("scale"), scale)? as f32
            }
            None => (1.0 / (head_dim as f64).sqrt()) as f32,
        };
        let softcap = self.optional_number(&at("softcap"), attention.softcap.as_ref());
        let softcap = softcap.filter(|cap| *cap != 0.0);
        let some = |projections: &[Projection]| {
            [Projection::Q, Projection::K, Projection::V, Projection::O]
                .map(|one| projections.contains(&one))
        };
        let bias = match &attention.bias {
            Biases::All(flag) => [self.flag(&at("bias"), flag)?; 4],
            Biases::Some(projections) => some(projections),
            Biases::When(when) => {
                let mut with = when.always.clone();
                if self.flag(&at("bias.when"), &when.when)? {
                    with.extend(&when.of);
                }
                some(&with)
            }
        };
        let mask = self.values.choice(&attention.mask);
        let mask = self.keep(&at("mask"), mask)?;
        let window = match &attention.window {
            Some(count) => match self.size(&at("window"), "the window", count, 0)? {
                0 => None,
                window => Some(window),
            },
            None => None,
        };
        let rope = match attention.rope.as_deref() {
            Some("none") | None => None,
            Some(name) => Some(self.rope(name, head_dim)?),
        };
        let over = self.choice_or(&at("over"), attention.over.as_ref(), KeySource::Rows)?;
        let values = self.choice_or(&at("values"), attention.values.as_ref(), ValueSource::Own)?;
        let gated = self.flag_or(&at("gated"), attention.gated.as_ref(), false)?;
        let key_width = match (over, media) {
            (KeySource::Rows | KeySource::Earlier, _) => width,
            (KeySource::Media, Some(media)) => media,
            (KeySource::Media, None) => {
                let problem = Problem::error(
                    "media-states",
                    "there are no media states for this attention",
                )
                .with_hint(
                    "a decoder has them with `splice = \"cross\"`, a query transformer always",
                );
                return self.keep(&at("over"), Err(problem));
            }
        };
        let qk_norm = self.head_norm(&at("qk_norm"), attention.qk_norm.as_ref());
        let v_norm = self.head_norm(&at("v_norm"), attention.v_norm.as_ref());
        Some(AttentionPlan {
            heads,
            kv_heads,
            head_dim,
            scale,
            softcap,
            bias,
            fused: attention.fused,
            rope,
            mask,
            window,
            over,
            values,
            gated,
            key_width,
            qk_norm,
            v_norm,
        })
    }
}
