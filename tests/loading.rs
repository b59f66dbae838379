//! Sessions with checkpoints that are damaged, incomplete or contradictory: nothing runs half-loaded.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "common/formula.rs"]
mod formula;
#[path = "common/session.rs"]
mod session;

use std::collections::BTreeMap;
use std::fs;

use indexmap::IndexMap;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::json;
use session::{Session, assert_session};

const UP: &str = "language_model.model.layers.1.mlp.up_proj.weight";
const HEAD: &str = "language_model.lm_head.weight";
const EMBEDDINGS: &str = "language_model.model.embed_tokens.weight";

/// Type, shape and bytes of one tensor.
type Stored = (Dtype, Vec<usize>, Vec<u8>);

/// Rewrites the weights of a checkpoint with a change.
fn reweigh(
    session: &Session,
    checkpoint: &str,
    change: impl FnOnce(&mut IndexMap<String, Stored>),
) {
    let path = session.path(checkpoint).join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let mut all: IndexMap<String, Stored> = SafeTensors::deserialize(&bytes)
        .unwrap()
        .iter()
        .map(|(name, tensor)| {
            (name.to_owned(), (tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec()))
        })
        .collect();
    change(&mut all);
    let views = all.iter().map(|(name, (dtype, shape, data))| {
        (name, TensorView::new(*dtype, shape.clone(), data).unwrap())
    });
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn folders_that_are_no_checkpoint() {
    let mut session = Session::new("no_checkpoint");
    fs::create_dir(session.path("empty")).unwrap();
    session
        .say("run nowhere hi")
        .say("run a.png hi")
        .say("run empty hi")
        .say("run llava hi --family nope")
        .say("run llava hi --family qwen2vl");
    for (name, content) in
        [("cut", "{"), ("list", "[]"), ("bare", "{}"), ("other", r#"{"model_type": "bert"}"#)]
    {
        fs::create_dir(session.path(name)).unwrap();
        fs::write(session.path(name).join("config.json"), content).unwrap();
        session.say(&format!("run {name} hi"));
    }
    assert_session!("load_no_checkpoint", session);
}

#[test]
fn tokenizers_and_templates() {
    let mut session = Session::new("tokenizers");
    let file = |name: &str| session.path(name);
    fs::remove_file(file("llava/tokenizer.json")).unwrap();
    session.say("run llava hi -n 2");
    fs::write(session.path("llava/tokenizer.json"), "{").unwrap();
    session.say("run llava hi -n 2");
    session.checkpoint("llava", "llava");
    fs::write(session.path("llava/tokenizer_config.json"), "[1]").unwrap();
    session.say("run llava hi -n 2");
    session.checkpoint("llava", "llava");
    fs::remove_file(session.path("llava/chat_template.json")).unwrap();
    session.say("run llava hi -n 2").say("run llava --raw hi -n 2");
    for template in [
        "{% for %}",
        "{{ raise_exception('only cats') }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "hello",
    ] {
        fs::write(
            session.path("llava/chat_template.json"),
            json!({"chat_template": template}).to_string(),
        )
        .unwrap();
        session.say("run llava --image a.png hi -n 2");
    }
    // a marker that the tokenizer lacks, or that the config numbers otherwise
    session.checkpoint("llava", "llava");
    session.edit("llava/config.json", |config| config["image_token_index"] = json!(398));
    session.say("run llava hi -n 2");
    session.checkpoint("llava", "llava");
    session.edit("llava/tokenizer.json", |json| {
        json["added_tokens"].as_array_mut().unwrap().retain(|token| token["content"] != "<image>");
    });
    session.edit("llava/tokenizer_config.json", |json| {
        json["added_tokens_decoder"].as_object_mut().unwrap().remove("399");
    });
    session.say("run llava --image a.png hi -n 2");
    assert_session!("load_tokenizers", session);
}

#[test]
fn weight_files() {
    let mut session = Session::new("weight_files");
    let weights = session.path("llava/model.safetensors");
    let whole = fs::read(&weights).unwrap();
    let mut swapped = whole.clone();
    swapped[8] = b'x';
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    for damaged in
        [&whole[..whole.len() / 2], &whole[..header / 2], &whole[..3], &[], &swapped, &[0xFF; 4096]]
    {
        fs::write(&weights, damaged).unwrap();
        session.say("run llava hi -n 2");
    }
    fs::remove_file(&weights).unwrap();
    session.say("run llava hi -n 2");
    fs::write(session.path("llava/pytorch_model.bin"), "x").unwrap();
    session.say("run llava hi -n 2");
    // an index that names a shard which is not there
    let options = formula::Options { shards: 3, ..formula::Options::default() };
    formula::materialise(&formula::goldens().join("qwen2vl"), &session.path("shards"), &options)
        .unwrap();
    session.say("run shards hi -n 2");
    fs::remove_file(session.path("shards/model-00002-of-00003.safetensors")).unwrap();
    session.say("run shards hi -n 2");
    fs::write(session.path("shards/model.safetensors.index.json"), "{]").unwrap();
    session.say("run shards hi -n 2");
    assert_session!("load_weight_files", session);
}

#[test]
fn tensors() {
    let mut session = Session::new("tensors");
    let mut say = |name: &str, change: &dyn Fn(&mut IndexMap<String, Stored>)| {
        session.checkpoint("llava", name);
        reweigh(&session, name, change);
        session.say(&format!("run {name} hi -n 2"));
    };
    for (name, dtype, bytes) in
        [("i8", Dtype::I8, 1), ("f64", Dtype::F64, 8), ("f8", Dtype::F8_E4M3, 1)]
    {
        say(name, &|all| {
            let (old, shape, data) = all.get_mut(UP).unwrap();
            (*old, *data) = (dtype, vec![0; shape.iter().product::<usize>() * bytes]);
        });
    }
    say("missing", &|all| drop(all.shift_remove(UP)));
    say("renamed", &|all| {
        let tensor = all.shift_remove(UP).unwrap();
        all.insert("renamed.weight".to_owned(), tensor);
    });
    say("transposed", &|all| all[UP].1.reverse());
    say("extra", &|all| {
        drop(all.insert("extra.weight".to_owned(), (Dtype::F32, vec![1], vec![0; 4])));
    });
    say("not_numbers", &|all| all[EMBEDDINGS].2.fill(0xFF));
    assert_session!("load_tensors", session);
}

#[test]
fn output_projections() {
    let session = Session::new("tied");
    let tie = |name: &str, top: Option<bool>, nested: Option<bool>, stored: bool| {
        session.checkpoint("llava", name);
        session.edit(&format!("{name}/config.json"), |config| {
            config.as_object_mut().unwrap().remove("tie_word_embeddings");
            if let Some(top) = top {
                config["tie_word_embeddings"] = json!(top);
            }
            if let Some(nested) = nested {
                config["text_config"]["tie_word_embeddings"] = json!(nested);
            }
        });
        if !stored {
            reweigh(&session, name, |all| drop(all.shift_remove(HEAD)));
        }
        session.spec(&["run", name, "hi", "-n", "6"])
    };
    let (_, stored, _) = tie("stored", Some(false), None, true);
    let (status, tied, _) = tie("tied", Some(true), None, false);
    assert_eq!(status, 0);
    assert_ne!(tied, stored);
    // a stored one wins over any flag; without one either level may say that it is tied
    assert_eq!(tie("both", Some(true), Some(true), true).1, stored);
    assert_eq!(tie("nested", None, Some(true), false).1, tied);
    assert_eq!(tie("either", Some(false), Some(true), false).1, tied);
    for (name, top) in [("none", None), ("no", Some(false))] {
        let (status, stdout, stderr) = tie(name, top, None, false);
        assert_eq!((status, stdout.as_str()), (2, ""));
        assert!(
            stderr.starts_with(
                "error[tensor-missing]: 1 tensor is missing: `language_model.lm_head.weight`"
            ),
            "{stderr}"
        );
    }
}

#[test]
fn configs_and_weights_that_contradict_each_other() {
    let mut session = Session::new("geometry");
    session.edit("llava/config.json", |config| {
        config["text_config"]["intermediate_size"] = json!(100);
        config["text_config"]["num_hidden_layers"] = json!(4);
        config["vision_config"]["intermediate_size"] = json!(61);
    });
    session.say("run llava hi -n 2");
    let values = [
        ("hidden_size", json!(0)),
        ("hidden_size", json!("64")),
        ("hidden_size", json!(1_u64 << 62)),
        ("num_key_value_heads", json!(3)),
        ("hidden_act", json!("swoosh")),
        ("rope_scaling", json!({"type": "yarn", "factor": 2})),
    ];
    for (key, value) in values {
        session.checkpoint("llava", "llava");
        session.edit("llava/config.json", |config| config["text_config"][key] = value);
        session.say("run llava hi -n 2");
    }
    session.checkpoint("llava", "llava");
    session.edit("llava/config.json", |config| {
        config["quantization_config"] = json!({"quant_method": "awq", "bits": 4});
    });
    session.say("run llava hi -n 2");
    // ids of the tokenizer beyond the embedding table
    session.checkpoint("llava", "llava");
    session.edit("llava/config.json", |config| config["text_config"]["vocab_size"] = json!(350));
    reweigh(&session, "llava", |all| {
        for name in [EMBEDDINGS, HEAD] {
            let (_, shape, data) = &mut all[name];
            shape[0] = 350;
            data.truncate(350 * shape[1] * 4);
        }
    });
    session.say("run llava hi -n 2");
    session.checkpoint("llava", "llava");
    fs::remove_file(session.path("llava/preprocessor_config.json")).unwrap();
    session.say("run llava --image a.png hi -n 2");
    assert_session!("load_geometry", session);
}

/// The library that wrote a table as two tensors cuts it into halves where it saves it again (`Concatenate` in its
/// conversion mapping): which rows are where is the files' affair.
#[test]
fn a_table_in_two_tensors_is_cut_anywhere() {
    let session = Session::new("two_tables");
    session.checkpoint("molmo2", "molmo2");
    // the order of a header's entries is not part of what is computed
    let trace = || {
        let bytes = session.trace(&["molmo2", "--image", "a.png", "hi"]);
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let tensors =
            tensors.iter().map(|(name, tensor)| (name.to_owned(), tensor.data().to_vec()));
        tensors.collect::<BTreeMap<_, _>>()
    };
    let expected = trace();
    reweigh(&session, "molmo2", |all| {
        let names =
            ["wte.embedding", "wte.new_embedding"].map(|name| format!("model.transformer.{name}"));
        let [first, second] = names.map(|name| all.shift_remove(&name).unwrap());
        let (width, rows) = (first.1[1], first.1[0] + second.1[0]);
        let bytes = [first.2, second.2].concat();
        let cut = rows.div_ceil(2);
        let (low, high) = bytes.split_at(cut * width * 4);
        let parts = [("embedding", cut, low), ("new_embedding", rows - cut, high)];
        for (name, rows, data) in parts {
            let tensor = (Dtype::F32, vec![rows, width], data.to_vec());
            all.insert(format!("model.transformer.wte.{name}"), tensor);
        }
    });
    assert!(trace() == expected, "the halves give another trace");
}
