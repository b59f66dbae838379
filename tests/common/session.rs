//! Sessions with the program in a folder of their own, with small checkpoints and pictures in it.
//!
//! Include it with `#[path = "common/session.rs"] mod session;`, beside `formula`.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::formula::{Options, goldens, materialise};

/// A folder, and what was said in it.
pub(crate) struct Session {
    pub(crate) folder: PathBuf,
    text: String,
}

impl Session {
    /// An empty folder with the two plain checkpoints, `llava` and `qwen2vl`, and a picture, `a.png`.
    pub(crate) fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("run").join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let session = Self { folder, text: String::new() };
        for family in ["llava", "qwen2vl"] {
            session.checkpoint(family, family);
        }
        fs::copy(goldens().join("images/13x9_0.png"), session.path("a.png")).unwrap();
        session
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes the checkpoint `fixture` under `name`.
    pub(crate) fn checkpoint(&self, fixture: &str, name: &str) -> PathBuf {
        let target = self.path(name);
        let _ = fs::remove_dir_all(&target);
        materialise(&goldens().join(fixture), &target, &Options::default()).unwrap();
        target
    }

    /// Copies a picture of the media fixtures.
    pub(crate) fn picture(&self, name: &str) {
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/media/files");
        fs::copy(files.join(name), self.path(name)).unwrap();
    }

    /// Changes a JSON file of the folder.
    pub(crate) fn edit(&self, file: &str, change: impl FnOnce(&mut Value)) {
        let path = self.path(file);
        let mut json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut json);
        fs::write(path, json.to_string()).unwrap();
    }

    /// The program with arguments, in the folder. Vulkan drivers are hidden, so that it says the same on every machine.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spec"));
        command.args(arguments).current_dir(&self.folder).env("NO_COLOR", "1");
        command.env("VK_DRIVER_FILES", "none").env("VK_ICD_FILENAMES", "none");
        command
    }

    /// Runs it: `(exit status, stdout, stderr)`. No run may end in a panic or a signal.
    pub(crate) fn spec(&self, arguments: &[&str]) -> (i32, String, String) {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let (stdout, stderr) =
            (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        let status = status.code().unwrap_or_else(|| panic!("{arguments:?} was killed\n{stderr}"));
        assert!([0, 1, 2, 3].contains(&status), "{arguments:?} ended with {status}\n{stderr}");
        (status, stdout, stderr)
    }

    /// What a run that must succeed prints.
    pub(crate) fn stdout(&self, arguments: &[&str]) -> String {
        let (status, stdout, stderr) = self.spec(arguments);
        assert_eq!(status, 0, "{arguments:?}\n{stderr}");
        stdout
    }

    /// Runs a line, split at spaces outside double quotes, and notes it with what came of it.
    pub(crate) fn say(&mut self, line: &str) -> &mut Self {
        let words = words(line);
        let (status, stdout, stderr) =
            self.spec(&words.iter().map(String::as_str).collect::<Vec<_>>());
        if status != 0 {
            assert!(stderr.lines().any(|line| line.starts_with("error: ")), "{line}\n{stderr}");
            assert_eq!(stdout, "", "{line}: a failure with a result");
        }
        self.text.extend(["$ spec ", line, "\n", &stdout]);
        if !stderr.is_empty() {
            self.text.extend(["--- stderr\n", &stderr]);
        }
        if status != 0 {
            self.text.extend(["--- status ", &status.to_string(), "\n"]);
        }
        self.text.push('\n');
        self
    }

    /// Everything said.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The tensors of a trace of these arguments.
    pub(crate) fn trace(&self, arguments: &[&str]) -> Vec<u8> {
        let all = [&["trace"], arguments, &["--out", "trace.safetensors", "-n", "1"]].concat();
        self.stdout(&all);
        fs::read(self.path("trace.safetensors")).unwrap()
    }

    /// The ids of a prompt.
    pub(crate) fn ids(&self, arguments: &[&str]) -> Vec<i64> {
        let bytes = self.trace(arguments);
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let ids = tensors.tensor("input_ids").unwrap();
        ids.data()
            .chunks_exact(8)
            .map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap()))
            .collect()
    }
}

fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, piece) in line.split('"').enumerate() {
        if index % 2 == 1 {
            words.push(piece.to_owned());
        } else {
            words.extend(piece.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// Compares a session with the one in `snapshots/`.
macro_rules! assert_session {
    ($name:literal, $session:expr) => {
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("../snapshots");
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        // what stands in which line of a family file is not what these sessions are about
        settings.add_filter(r"(families/[a-z0-9/]+\.toml):\d+", "$1:LINE");
        settings.bind(|| insta::assert_snapshot!($name, $session.text()));
    };
}
pub(crate) use assert_session;
