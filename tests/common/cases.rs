//! The recorded cases of the goldens: where they are, what they ask, and models to ask.
//!
//! Include it with `#[path = "common/cases.rs"] mod cases;`, beside `clips` and `formula`.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use vlm_spec::backend::Backend;
use vlm_spec::checkpoint::Checkpoint;
use vlm_spec::error::Error;
use vlm_spec::model::Model;
use vlm_spec::plan::Plan;
use vlm_spec::prompt::{Conversation, Message};

use crate::clips;
use crate::formula::goldens;

/// Where the folders are: `GOLDENS_DIR`, or those of the repository.
pub(crate) fn root() -> PathBuf {
    env::var_os("GOLDENS_DIR").map_or_else(goldens, PathBuf::from)
}

/// Every folder with recorded answers, by name.
pub(crate) fn folders() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|folder| folder.join("golden.json").exists())
        .map(|folder| folder.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// A file of JSON.
pub(crate) fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The folder that holds the answers for `name`: its own, or the one that it shares them with.
pub(crate) fn answers(name: &str) -> PathBuf {
    let folder = root().join(name);
    let report = read_json(&folder.join("golden.json"));
    report["same_as"].as_str().map_or_else(|| folder.clone(), |other| folder.join(other))
}

/// A model of a complete checkpoint.
pub(crate) fn try_load<B: Backend>(folder: &Path, backend: B) -> Result<Model<B>, Error> {
    let checkpoint = Checkpoint::open(folder).unwrap();
    let raw = checkpoint.find_family().unwrap();
    let plan = Plan::resolve(&raw, &checkpoint).unwrap();
    Model::load(&plan, backend)
}

/// The same, which must succeed.
pub(crate) fn load<B: Backend>(folder: &Path, backend: B) -> Model<B> {
    try_load(folder, backend).unwrap_or_else(|error| panic!("{error}\n{}", error.problems()))
}

/// The request of a recorded case, and its pictures and clips as files.
pub(crate) fn request(case: &Value) -> (Option<String>, Vec<Message>, Vec<PathBuf>, Vec<PathBuf>) {
    let images = root().join("images");
    let sounds = Path::new(env!("CARGO_TARGET_TMPDIR")).join("goldens").join("clips");
    let files = |key: &str| {
        let items = case[key].as_array().into_iter().flatten();
        items.map(|item| item["file"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let pictures = files("images").iter().map(|name| images.join(name)).collect();
    let clips = files("clips").iter().map(|name| clips::write(&sounds, name)).collect();
    if case["raw"] == Value::Bool(true) {
        return (Some(case["prompt"].as_str().unwrap().to_owned()), Vec::new(), pictures, clips);
    }
    let conversation = Conversation::from_json(&case["messages"].to_string()).unwrap();
    (None, conversation.messages, pictures, clips)
}
