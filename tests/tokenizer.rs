//! The tokenizer against the reference: recorded ids of two small tokenizers, one SentencePiece-like and one byte-level.
//!
//! `expected.json` holds what the reference's `AutoTokenizer` returns. Its `mixed` cases alternate typed text and real
//! markers; there each text's ids come from the same tokenizer without the markers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use vlm_spec::checkpoint::tokenizer::{Sentinels, Tokenizer, TokenizerFiles, count_tokens};
use vlm_spec::descriptor::prompt::Pipeline;

#[derive(Deserialize)]
struct Expected {
    markers: indexmap::IndexMap<String, u32>,
    vocabulary: usize,
    special: indexmap::IndexMap<String, String>,
    cases: Vec<Case>,
    mixed: Vec<Mixed>,
    decode: Vec<Decoded>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    special: bool,
    ids: Vec<u32>,
}

#[derive(Deserialize)]
struct Mixed {
    segments: Vec<String>,
    ids: Vec<u32>,
}

#[derive(Deserialize)]
struct Decoded {
    ids: Vec<u32>,
    text: String,
    skipped: String,
}

fn fixture(name: &str) -> (PathBuf, Expected) {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizer").join(name);
    let expected =
        serde_json::from_slice(&fs::read(directory.join("expected.json")).unwrap()).unwrap();
    (directory, expected)
}

const NAMES: [&str; 2] = ["llava", "qwen2_vl"];

fn protected(expected: &Expected) -> Vec<String> {
    expected.markers.keys().cloned().collect()
}

#[test]
fn prompts_have_the_reference_ids() {
    for name in NAMES {
        let (directory, expected) = fixture(name);
        let plain = Tokenizer::load(&directory, &[]).unwrap();
        let marked = Tokenizer::load(&directory, &protected(&expected)).unwrap();
        assert_eq!(
            (plain.vocabulary_size(), marked.vocabulary_size()),
            (expected.vocabulary, expected.vocabulary)
        );
        for Case { text, special, ids } in &expected.cases {
            assert_eq!(plain.encode(text, *special).unwrap(), *ids, "{name}: {text:?}");
            let text = marked.sentinels().replace_markers(text);
            assert_eq!(
                marked.encode(&text, *special).unwrap(),
                *ids,
                "{name}: {text:?} through sentinels"
            );
        }
    }
}

#[test]
fn typed_markers_are_ordinary_text() {
    for name in NAMES {
        let (directory, expected) = fixture(name);
        let tokenizer = Tokenizer::load(&directory, &protected(&expected)).unwrap();
        for (marker, &id) in &expected.markers {
            assert_eq!(tokenizer.token_to_id(marker), Some(id));
            assert_eq!(tokenizer.id_to_token(id).as_deref(), Some(marker.as_str()));
            assert_eq!(tokenizer.encode(tokenizer.mark(marker), false).unwrap(), [id]);
            assert!(!tokenizer.encode(&format!("a {marker} b"), true).unwrap().contains(&id));
        }
        for Mixed { segments, ids } in &expected.mixed {
            let text: String = segments
                .iter()
                .enumerate()
                .map(
                    |(position, segment)| {
                        if position % 2 == 1 { tokenizer.mark(segment) } else { segment.as_str() }
                    },
                )
                .collect();
            assert_eq!(tokenizer.encode(&text, false).unwrap(), *ids, "{name}: {segments:?}");
        }
    }
}

#[test]
fn decoding_gives_the_reference_text_at_once_and_in_pieces() {
    for name in NAMES {
        let (directory, expected) = fixture(name);
        let tokenizer = Tokenizer::load(&directory, &protected(&expected)).unwrap();
        for Decoded { ids, text, skipped } in &expected.decode {
            assert_eq!(tokenizer.decode(ids, false).unwrap(), *text, "{name}");
            assert_eq!(tokenizer.decode(ids, true).unwrap(), *skipped, "{name}");
            for (skip, text) in [(false, text), (true, skipped)] {
                let mut stream = tokenizer.decode_stream(skip);
                let mut streamed = String::new();
                for &id in ids {
                    let piece = stream.push(id).unwrap();
                    assert!(!piece.contains(char::REPLACEMENT_CHARACTER), "{name}: {piece:?}");
                    streamed += &piece;
                }
                streamed += &stream.finish().unwrap();
                assert_eq!(streamed, *text, "{name}: in pieces");
            }
        }
    }
}

#[test]
fn the_small_files_answer_without_a_tokenizer() {
    for name in NAMES {
        let (directory, expected) = fixture(name);
        let files = TokenizerFiles::read(&directory).unwrap();
        assert_eq!(files.special_tokens(), expected.special);
        assert_eq!(files.special("bos_token"), expected.special.get("bos_token").cloned());
        for (marker, &id) in &expected.markers {
            assert_eq!(files.token_id(marker), Some(id));
        }
        assert_eq!(files.token_id("no such token"), None);
    }
}

#[test]
fn files_override_each_other_as_in_the_reference() {
    let (source, _) = fixture("qwen2_vl");
    let directory = std::env::temp_dir().join(format!("vlm-spec-tokenizer-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    fs::copy(source.join("tokenizer.json"), directory.join("tokenizer.json")).unwrap();
    let mut config: serde_json::Value =
        serde_json::from_slice(&fs::read(source.join("tokenizer_config.json")).unwrap()).unwrap();
    config["unk_token"] = "<unk!>".into();
    config["extra_special_tokens"] = serde_json::json!({"x_token": "<x>"});
    let token = |content: &str, special: bool| {
        serde_json::json!({"content": content, "lstrip": false, "rstrip": false, "single_word": false,
            "normalized": !special, "special": special})
    };
    config["added_tokens_decoder"]["332"]["lstrip"] = true.into();
    config["added_tokens_decoder"]["9000"] = token("<new>", true);
    config["added_tokens_decoder"]["8999"] = token("<plain>", false);
    let write = |file: &str, value: &serde_json::Value| {
        fs::write(directory.join(file), value.to_string()).unwrap();
    };
    write("tokenizer_config.json", &config);
    write(
        "special_tokens_map.json",
        &serde_json::json!({"pad_token": token("<p>", true), "foo_token": "<foo>"}),
    );
    write("added_tokens.json", &serde_json::json!({"<q>": 9999}));

    // with a decoder the other two files are not read; new tokens get the next ids, whatever the file says
    let ids = |names: &[&str]| {
        let tokenizer = Tokenizer::load(&directory, &["<new>".to_string()]).unwrap();
        names.iter().map(|name| tokenizer.token_to_id(name)).collect::<Vec<_>>()
    };
    let names = ["<plain>", "<new>", "<unk!>", "<x>", "<p>", "<q>"];
    assert_eq!(ids(&names), [Some(334), Some(335), Some(336), Some(337), None, None]);
    let marker = "<|image_pad|>";
    let tokenizer = Tokenizer::load(&directory, &[marker.to_string()]).unwrap();
    let text = format!("a  {}", tokenizer.mark(marker));
    assert_eq!(tokenizer.encode(&text, false).unwrap(), [64, 332]); // its `lstrip` comes from the decoder

    // without one they are
    let object = config.as_object_mut().unwrap();
    object.shift_remove("added_tokens_decoder");
    object.shift_remove("extra_special_tokens");
    object.insert("additional_special_tokens".into(), serde_json::json!(["<y>"]));
    object.insert("image_token".into(), marker.into());
    write("tokenizer_config.json", &config);
    let names = ["<q>", "<unk!>", "<p>", "<foo>", "<y>"];
    assert_eq!(ids(&names), [Some(334), Some(335), Some(336), Some(337), Some(338)]);
    let files = TokenizerFiles::read(&directory).unwrap();
    let named = files.special_tokens();
    let named: Vec<_> = named.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert_eq!(
        named,
        [
            ("eos_token", "<|im_end|>"),
            ("unk_token", "<unk!>"),
            ("pad_token", "<p>"),
            ("image_token", marker),
            ("foo_token", "<foo>")
        ]
    );
    assert_eq!(files.token_id(marker), Some(332)); // from `tokenizer.json`, the small files do not have it
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_marker_that_merges_make_is_still_only_a_marker_when_marked() {
    let directory = std::env::temp_dir().join(format!("vlm-spec-merges-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let json = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": null,
        "added_tokens": [{"id": 5, "content": "<m>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true}],
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": {"<": 0, "m": 1, ">": 2, "m>": 3, "x": 4, "<m>": 5},
            "merges": [["m", ">"], ["<", "m>"]]},
    });
    fs::write(directory.join("tokenizer.json"), json.to_string()).unwrap();
    let tokenizer = Tokenizer::load(&directory, &["<m>".to_string()]).unwrap();
    let text = format!("x<m>{}x", tokenizer.mark("<m>"));
    assert_eq!(tokenizer.encode(&text, false).unwrap(), [4, 0, 3, 5, 4]);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_marker_that_is_no_token_cannot_be_encoded() {
    let (directory, _) = fixture("llava");
    let tokenizer = Tokenizer::load(&directory, &["(no such marker)".to_string()]).unwrap();
    assert!(tokenizer.encode("(no such marker)", false).is_ok());
    let error = tokenizer.encode(tokenizer.mark("(no such marker)"), false).unwrap_err();
    assert_eq!(error.message(), "the marker `(no such marker)` is not one token of this tokenizer");
}

#[test]
fn a_missing_or_broken_tokenizer_is_an_error() {
    let directory =
        std::env::temp_dir().join(format!("vlm-spec-no-tokenizer-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let error = Tokenizer::load(&directory, &[]).unwrap_err();
    assert!(error.message().contains("cannot read") && error.hint().is_some());
    fs::write(directory.join("tokenizer.json"), "{}").unwrap();
    assert_eq!(
        Tokenizer::load(&directory, &[]).unwrap_err().message(),
        "`tokenizer.json` is not understood"
    );
    // the library panics on this one: a merge that is longer than every entry
    let faulty = r#"{"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,"post_processor":null,
        "decoder":null,"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]}}"#;
    fs::write(directory.join("tokenizer.json"), faulty).unwrap();
    assert_eq!(
        Tokenizer::load(&directory, &[]).unwrap_err().message(),
        "`tokenizer.json` is not understood"
    );
    fs::write(directory.join("tokenizer_config.json"), "[").unwrap();
    assert_eq!(
        TokenizerFiles::read(&directory).unwrap_err().message(),
        "`tokenizer_config.json` is not understood"
    );
    fs::remove_dir_all(directory).unwrap();
}

/// A text of random parts, the same for the same state.
fn random_text(state: &mut u64, mark: &str) -> String {
    const PARTS: &str = "the¦image¦What¦is¦USER:¦ASSISTANT:¦tion¦internationalization¦x¦a¦e¦t¦0¦1¦23¦4567¦ \
        ¦  ¦    ¦\n¦\n\n¦\t¦\r\n¦.¦,¦?!¦...¦----------------¦(¦)¦\"¦\\¦'s¦<¦>¦<0x41>¦<unk>¦</s>¦<image>\
        ¦<|im_start|>¦é¦e\u{301}¦漢字¦привет¦😀¦▁¦Ġ";
    let parts: Vec<&str> = PARTS.split('¦').collect();
    let mut below = |limit: usize| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        usize::try_from(*state >> 33).unwrap() % limit
    };
    let mut text = String::new();
    for _ in 0..below(24) {
        match below(10) {
            0 => text.extend(char::from_u32(u32::try_from(below(0x3000)).unwrap())),
            1 => text.push_str(mark),
            _ => text.push_str(parts[below(parts.len())]),
        }
        if below(2) == 0 {
            text.push(' ');
        }
    }
    text
}

#[test]
fn counts_are_those_of_the_whole_tokenizer() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let all = [Pipeline::Stored, Pipeline::ByteLevel, Pipeline::Metaspace];
    let mut state = 0x9E37_79B9_7F4A_7C15;
    for (folder, marker, pipelines, sets) in [
        ("tokenizer/llava", "<image>", &all[..], 60),
        ("tokenizer/qwen2_vl", "<|image_pad|>", &all, 60),
        ("goldens/llava_siglip", "<image>", &all, 60),
        ("checkpoints/llava-hf__llava-1.5-7b-hf", "<image>", &all[..1], 12),
    ] {
        let directory = fixtures.join(folder);
        // the second is a token that merges can make
        for markers in [vec![marker.to_string()], vec![marker.to_string(), "he".to_string()]] {
            let sentinels = Sentinels::new(&markers).unwrap();
            for &pipeline in pipelines {
                let tokenizer = Tokenizer::load_with(&directory, &markers, pipeline).unwrap();
                for _ in 0..sets {
                    let texts: Vec<_> =
                        (0..3).map(|_| random_text(&mut state, sentinels.mark(marker))).collect();
                    let texts: Vec<_> =
                        texts.iter().map(|text| (text.as_str(), text.len() % 2 == 0)).collect();
                    let whole: Vec<_> = texts
                        .iter()
                        .map(|(text, special)| tokenizer.encode(text, *special).unwrap().len())
                        .collect();
                    let files = TokenizerFiles::read(&directory).unwrap();
                    let counts = count_tokens(&files, &sentinels, pipeline, &texts).unwrap();
                    assert_eq!(counts, whole, "{folder} {pipeline:?} {texts:?}");
                }
            }
        }
    }
}
