//! Witnesses really made: a picture or clip of the size that a floor names is written to a file, read, preprocessed and
//! expanded, and costs what the floor says and what the reference processor made of the same file.
//!
//! `tests/scripts/make_witnesses.py` made the folders and recorded the reference.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder};
use serde_json::Value;
use vlm_spec::checkpoint::Checkpoint;
use vlm_spec::descriptor::{Library, RawDescriptor};
use vlm_spec::error::ErrorKind;
use vlm_spec::floor::Floor;
use vlm_spec::layout::{ImageSize, Layout, MediaSize};
use vlm_spec::media::{Planes, clip_length};
use vlm_spec::plan::{Modality, Overrides, Plan};
use vlm_spec::preprocess::preprocess;
use vlm_spec::prompt::{Content, Item, Message, Prompt, PromptMaker, Request};

/// Pictures that are no witnesses are preprocessed if they and all their views have at most so many pixels.
const SMALL: u64 = 400_000;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/witness")
}

fn reference() -> Value {
    serde_json::from_slice(&fs::read(fixtures().join("reference.json")).unwrap()).unwrap()
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("witness");
    fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// What the reference made of one item.
struct Recorded<'a>(&'a Value);

impl Recorded<'_> {
    fn modality(&self) -> Modality {
        if self.0["modality"] == "image" { Modality::Image } else { Modality::Audio }
    }

    fn size(&self) -> MediaSize {
        match self.0["size"].as_array() {
            Some(sides) => {
                let [width, height] = [0, 1].map(|side| number(&sides[side]) as u32);
                MediaSize::Image(ImageSize { width, height })
            }
            None => MediaSize::Samples(number(&self.0["size"])),
        }
    }

    /// Whether a floor names it as the witness of this maximum.
    fn of(&self, maximum: &str) -> bool {
        self.0["of"].as_array().unwrap().iter().any(|of| of == maximum)
    }

    fn refused(&self) -> bool {
        !self.0["refused"].is_null()
    }

    /// Whether the pixels of picture and views are few.
    fn small(&self) -> bool {
        let MediaSize::Image(size) = self.size() else { return true };
        let views: u64 = self.0["views"].as_array().unwrap().iter().map(number).product();
        views.max(u64::from(size.width) * u64::from(size.height)) <= SMALL
    }
}

/// Pixel (x, y) is R = 5x + 3y, G = xy, B = 255 - 2x - 9y, modulo 256.
fn write_picture(file: &Path, size: ImageSize) {
    let mut pixels = Vec::with_capacity(3 * size.width as usize * size.height as usize);
    for y in 0..size.height {
        for x in 0..size.width {
            let (down, across) = (y.wrapping_mul(9), x.wrapping_mul(2));
            let blue = 255_u32.wrapping_sub(across).wrapping_sub(down);
            pixels.extend([5 * x + 3 * y, x.wrapping_mul(y), blue].map(|value| value as u8));
        }
    }
    let target = BufWriter::new(fs::File::create(file).unwrap());
    let encoder = PngEncoder::new_with_quality(target, CompressionType::Fast, FilterType::NoFilter);
    encoder.write_image(&pixels, size.width, size.height, ExtendedColorType::Rgb8).unwrap();
}

/// A WAV file of one channel of 16 bits; sample i is (i * 7919) mod 65536 - 32768.
fn write_clip(file: &Path, samples: u64, rate: u32) {
    let bytes = 2 * samples as u32;
    let mut wave = Vec::with_capacity(44 + bytes as usize);
    wave.extend(b"RIFF");
    wave.extend((36 + bytes).to_le_bytes());
    wave.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    wave.extend(rate.to_le_bytes());
    wave.extend((2 * rate).to_le_bytes());
    wave.extend(b"\x02\0\x10\0data");
    wave.extend(bytes.to_le_bytes());
    for sample in 0..samples {
        wave.extend((((sample * 7919) % 65_536) as i32 - 32_768).to_le_bytes().into_iter().take(2));
    }
    fs::write(file, wave).unwrap();
}

/// FNV-1a-64 of ids, 4 bytes each.
fn hash(ids: &[u32]) -> String {
    let bytes = ids.iter().flat_map(|id| id.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The ids from the first to the last row of the one strip, or all of it where it has no rows.
fn inner(prompt: &Prompt) -> &[u32] {
    let [span] = prompt.spans.as_slice() else { panic!("{:?}", prompt.spans) };
    match (span.rows.first(), span.rows.last()) {
        (Some(first), Some(last)) => &prompt.ids[*first..=*last],
        _ => &prompt.ids[span.start..span.start + span.length],
    }
}

/// The script's `checksum`.
fn checksum(views: &[Planes]) -> String {
    let (mut total, mut step) = (0_u64, 0_u64);
    for value in views.iter().flat_map(|view| &view.data) {
        let mut z = u64::from(value.to_bits()).wrapping_add(step);
        z = z.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        total = total.wrapping_add(z ^ (z >> 31));
        step = step.wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
    format!("{total:016x}")
}

/// One folder with its plan.
struct Subject {
    name: String,
    plan: Plan,
    maker: PromptMaker,
}

impl Subject {
    fn open(name: &str, recorded: &Value) -> Self {
        let checkpoint = Checkpoint::open(fixtures().join(name)).unwrap();
        let raw = checkpoint.find_family().unwrap();
        let mut overrides = Overrides::default();
        for (key, value) in recorded["set"].as_object().into_iter().flatten() {
            overrides.insert(key.clone(), value.clone());
        }
        let plan = Plan::resolve_with(&raw, &checkpoint, &overrides).unwrap();
        let maker = PromptMaker::open(&plan).unwrap();
        Self { name: name.to_owned(), plan, maker }
    }

    /// The text of the marker of one modality.
    fn marker(&self, modality: Modality) -> &str {
        let family = &self.plan.descriptor.family;
        let (_, tables) = family.media().find(|(name, _)| *name == modality.name()).unwrap();
        &family.tokens[tables.marker].text
    }

    fn prompt(&self, request: Request<'_>, modality: Modality, layout: Layout) -> Prompt {
        let item = Item { modality, layout };
        self.maker.make(request, std::slice::from_ref(&item), &self.plan).unwrap()
    }

    /// Count and expansion of every recorded size.
    fn counts(&self, item: &Recorded<'_>) {
        let name = format!("{}, {}", self.name, item.size());
        let count = match self.plan.count(item.size()) {
            Ok(count) => count,
            Err(error) => {
                assert!(item.refused(), "{name}: {error}");
                assert_eq!(error.kind(), ErrorKind::Media, "{name}");
                return;
            }
        };
        assert!(!item.refused(), "{name}: the reference refuses it");
        assert_eq!(count.expansion, number(&item.0["tokens"]), "{name}");
        assert_eq!(count.embeds, number(&item.0["soft"]), "{name}");
        if let Some(patches) = count.patches {
            assert_eq!(patches, number(&item.0["patches"]), "{name}");
        }
        // the strip in place of a marker that is all the text
        let modality = item.modality();
        let prompt = self.prompt(Request::Raw(self.marker(modality)), modality, count.layout);
        let [span] = prompt.spans.as_slice() else { panic!("{name}: {:?}", prompt.spans) };
        let ids = &prompt.ids[span.start..span.start + span.length];
        assert_eq!(ids.len() as u64, count.expansion, "{name}");
        assert_eq!((span.rows.len() + span.vectors.len()) as u64, count.embeds, "{name}");
        assert_eq!(hash(ids), item.0["ids"], "{name}: {:?}", &ids[..ids.len().min(12)]);
        // nothing beside it but the beginning of all text: the tokenizer's, and what a processor class puts there besides
        assert!(prompt.ids.len() - span.length <= 2, "{name}");
    }

    /// From a picture file to views.
    fn pixels(&self, item: &Recorded<'_>, size: ImageSize) {
        let name = format!("{}, {size}", self.name);
        let file = scratch(&format!("{}-{size}.png", self.name));
        write_picture(&file, size);
        let picture = preprocess(&self.plan, &file, 1).unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!((picture.size, picture.layout), (size, self.plan.count(size).unwrap().layout));
        let first = picture.views.first().unwrap();
        let views = [first.height, first.width, picture.views.len()].map(|number| number as u64);
        assert_eq!(Value::from(views.to_vec()), item.0["views"], "{name}");
        assert_eq!(checksum(&picture.views), item.0["pixels"], "{name}");
    }

    /// A witness in a user message, and the floor that it is the witness of.
    fn witness(&self, floor: &Floor, item: &Recorded<'_>) {
        let name = format!("{}, {}", self.name, item.size());
        let count = self.plan.count(item.size()).unwrap();
        if item.of("expansion") {
            assert_eq!((item.size(), count.expansion), (floor.witness, floor.expansion), "{name}");
        }
        if item.of("embeds") {
            assert_eq!(
                (Some(item.size()), count.embeds),
                (floor.embeds_witness, floor.embeds),
                "{name}"
            );
        }
        if item.of("patches") {
            let patches = Some((count.patches.unwrap(), item.size()));
            assert_eq!(patches, floor.patches, "{name}");
        }
        let media = match item.modality() {
            Modality::Image => Content::Image,
            Modality::Audio => Content::Audio,
        };
        let text = || Content::Text("What is this?".to_owned());
        let messages = [Message::new("user", vec![media, text()])];
        let prompt = self.prompt(Request::Messages(&messages), item.modality(), count.layout);
        // the same as alone, but for literals at the edges, which may merge with the text beside them
        let alone =
            self.prompt(Request::Raw(self.marker(item.modality())), item.modality(), count.layout);
        assert_eq!(inner(&prompt), inner(&alone), "{name}");
        let alone = [Message::new("user", vec![text()])];
        let alone = self.maker.make(Request::Messages(&alone), &[], &self.plan).unwrap();
        if !item.of("expansion") {
            return;
        }
        // the same message by the reference: the same ids, and within the floor
        assert_eq!(alone.ids.len() as u64, number(&item.0["text"]), "{name}");
        assert_eq!(prompt.ids.len() as u64, number(&item.0["message"]), "{name}");
        assert_eq!(hash(&prompt.ids), item.0["message_ids"], "{name}");
        let cost = (prompt.ids.len() - alone.ids.len()) as u64;
        assert!(cost <= floor.floor, "{name}: it costs {cost}, the floor is {}", floor.floor);
        if floor.framing_exact {
            // a picture can save a token: a break that the text behind it would have split stays whole
            assert_eq!(cost.max(count.expansion), floor.floor, "{name}");
        }
    }

    fn clip(&self, item: &Recorded<'_>, samples: u64) {
        let rate = number(&self.plan.values.get("audio.rate").unwrap().value) as u32;
        let file = scratch(&format!("{}-{samples}.wav", self.name));
        write_clip(&file, samples, rate);
        let length = clip_length(&file).unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!((length.samples, length.rate, length.at(rate)), (samples, rate, samples));
        assert_eq!(item.size(), MediaSize::Samples(length.at(rate)));
    }
}

fn check(name: &str) {
    let reference = reference();
    let recorded = &reference[name];
    let subject = Subject::open(name, recorded);
    for modality in subject.plan.modalities() {
        let floor = subject.plan.floor(modality).unwrap();
        let items: Vec<_> = recorded["items"].as_array().unwrap().iter().map(Recorded).collect();
        let items: Vec<_> = items.iter().filter(|item| item.modality() == modality).collect();
        assert!(items.len() >= 12, "{name}");
        // every witness of the floor was given to the reference
        let witnesses = [
            ("expansion", Some(floor.witness)),
            ("embeds", floor.embeds_witness),
            ("patches", floor.patches.map(|(_, witness)| witness)),
        ];
        for (of, size) in witnesses {
            let found = items.iter().find(|item| item.of(of)).map(|item| item.size());
            assert_eq!(found, size, "{name}: the witness of the {of}");
        }
        for item in items {
            subject.counts(item);
            if item.refused() {
                continue;
            }
            assert!(number(&item.0["tokens"]) <= floor.expansion, "{name}, {}", item.size());
            let witness = !item.of("other");
            if witness {
                subject.witness(&floor, item);
            }
            match item.size() {
                MediaSize::Image(size) if witness || item.small() => subject.pixels(item, size),
                MediaSize::Image(_) => {}
                MediaSize::Samples(samples) => subject.clip(item, samples),
            }
        }
    }
}

macro_rules! folders {
    ($($name:ident)*) => {
        const FOLDERS: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*
    };
}

folders! {
    llava llavanext granitevision llavaonevision qwen2vl qwen25vl qwen3vl qwen3vlmoe glm4v gemma3 gemma3crops paligemma molmo2
    molmo2columns mllama blip2 instructblip idefics3 smolvlm internvl ayavision pixtral mistral3 gemma4 gemma3n qwen2audio
}

/// Every folder is tested, and every family that has a budget has a folder.
#[test]
fn nothing_is_forgotten() {
    let recorded: Vec<_> = reference().as_object().unwrap().keys().cloned().collect();
    assert_eq!(recorded, FOLDERS);
    let families: Vec<_> = FOLDERS
        .iter()
        .map(|name| {
            let checkpoint = Checkpoint::open(fixtures().join(name)).unwrap();
            checkpoint.find_family().unwrap().name().to_owned()
        })
        .collect();
    for family in Library::families() {
        let raw = RawDescriptor::load(family).unwrap();
        let descriptor = raw.describe(&raw.first_parts()).unwrap();
        let budget = descriptor.family.family.no_budget.is_none();
        // a family that refines another without a budget of its own is held by its published folder
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("families/{family}.toml"));
        let text = fs::read_to_string(file).unwrap();
        let refines = |name: &String| text.contains(&format!("extends = \"{name}\""));
        let inherits = !text.contains("\n[image]") && !text.contains("\n[floor]");
        let held = families.iter().any(|name| name == family || (inherits && refines(name)));
        assert!(!budget || held, "{family}");
    }
}
