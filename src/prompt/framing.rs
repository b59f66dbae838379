//! What a chat template adds around one marker, and how many tokens a literal text is.

use std::path::Path;

use crate::checkpoint::tokenizer::{Sentinels, TokenizerFiles, count_tokens};
use crate::descriptor::Descriptor;
use crate::descriptor::prompt::Prompt;
use crate::plan::{Framing, MediaPlan, Modality};
use crate::prompt::message::{Content, Message};
use crate::prompt::template::ChatTemplate;
use crate::prompt::user_text::{adds_special_tokens, render_marked};

/// Texts that a framing is measured with; the largest difference counts, since a template's text may or may not merge
/// with what follows.
const PROBES: [&str; 4] = ["What is this?", "Describe the image.", "Compare the two images.", "1"];

/// Tokens of literal texts, and whether the number is exact: one if a text stands as one entry among the added tokens,
/// measured if there is a tokenizer, else at most its bytes.
pub fn literal_tokens(
    rules: &Prompt,
    files: Option<&TokenizerFiles>,
    folder: &Path,
    texts: &[&str],
) -> Vec<(u64, bool)> {
    let entry = |text: &str| files.is_some_and(|files| files.token_id(text).is_some());
    let others: Vec<_> =
        texts.iter().filter(|text| !entry(text)).map(|text| (*text, false)).collect();
    let pipeline = rules.pipeline(files.and_then(TokenizerFiles::class));
    let measured = if others.is_empty() || !folder.join("tokenizer.json").is_file() {
        None
    } else {
        files.and_then(|files| count_tokens(files, &Sentinels::default(), pipeline, &others).ok())
    };
    let tokens = |text: &str| {
        let Some(at) = others.iter().position(|(other, _)| *other == text) else {
            return (1, true);
        };
        match measured.as_ref().and_then(|counts| counts.get(at)) {
            Some(count) => (*count as u64, true),
            None => (text.len() as u64, false),
        }
    };
    texts.iter().map(|text| tokens(text)).collect()
}

/// The framing of an item: (one user message with one item and a text) − (the same with the text alone) − 1.
///
/// Where the frame consists of named tokens, each counts one and nothing is measured. Other text is measured with the
/// checkpoint's own template and tokenizer. Without those it is bounded by its bytes, plus the tokens that the family says it
/// may add at its seams. A framing that is negative with every text, since an item saves a token of the template, is bounded
/// by zero.
pub fn framing(
    descriptor: &Descriptor,
    media: &MediaPlan,
    files: Option<&TokenizerFiles>,
    folder: &Path,
) -> Framing {
    let frame = &media.frame;
    let named = (frame.before.len() + frame.after.len()) as u64;
    if frame.literals.is_empty() && frame.seam == 0 {
        return Framing { tokens: named, exact: true };
    }
    if let Some(framing) = measured(descriptor, media.modality, files, folder) {
        return framing;
    }
    let bytes: usize =
        frame.literals.iter().filter_map(|name| media.literals.get(name)).map(String::len).sum();
    Framing { tokens: named + bytes as u64 + frame.seam, exact: false }
}

fn measured(
    descriptor: &Descriptor,
    modality: Modality,
    files: Option<&TokenizerFiles>,
    folder: &Path,
) -> Option<Framing> {
    let family = &descriptor.family;
    let (_, tables) = family.media().find(|(name, _)| *name == modality.name())?;
    let marker = &family.tokens.get(tables.marker)?.text;
    let item = match modality {
        Modality::Image => Content::Image,
        Modality::Audio => Content::Audio,
    };
    if !folder.join("tokenizer.json").is_file() {
        return None;
    }
    let own = family.prompt.template.as_deref();
    let template = ChatTemplate::find_beside(folder, own).ok()??;
    let files = files?;
    let sentinels = Sentinels::new(std::slice::from_ref(marker)).ok()?;
    let special = files.special_tokens();
    let bos = files.special("bos_token");
    let mut prompts = Vec::new();
    for probe in PROBES {
        let text = Content::Text(probe.to_owned());
        for content in [vec![item.clone(), text.clone()], vec![text]] {
            let messages = [Message::new("user", content)];
            prompts.push(render_marked(&template, &messages, true, &special, &sentinels).ok()?);
        }
    }
    let texts: Vec<_> = prompts
        .iter()
        .map(|prompt| (prompt.as_str(), adds_special_tokens(prompt, bos.as_deref())))
        .collect();
    let counts =
        count_tokens(files, &sentinels, family.prompt.pipeline(files.class()), &texts).ok()?;
    let framings = counts.chunks_exact(2).filter_map(|pair| match pair {
        [with, without] => i64::try_from(*with).ok()?.checked_sub_unsigned(*without as u64 + 1),
        _ => None,
    });
    let most = framings.max()?;
    Some(Framing { tokens: most.max(0).unsigned_abs(), exact: most >= 0 })
}
