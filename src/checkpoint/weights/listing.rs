//! What a folder says about its tensors before any of their data is read: the index and the shards' headers.
//!
//! Facts that are easy to get wrong, all of the reference's `_get_resolved_checkpoint_files` and
//! `load_sharded_checkpoint`:
//!
//! * `model.safetensors` wins over an index that stands beside it.
//! * The index is only a list of files to the reference: which shard holds a tensor is read from the shards. An index
//!   that disagrees with them is stale, and is reported here.
//! * Shards without an index are not loaded by the reference; here they are, because nothing is unclear about them.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use indexmap::IndexMap;
use serde::Deserialize;

use super::shard::{self, Shard, StoredDtype};
use crate::error::{Error, ErrorKind, Result};
use crate::problem::{Level, Problem, Problems};
use crate::tensor::Dtype;

/// The file of a checkpoint that is not split.
pub(super) const SINGLE: &str = "model.safetensors";
/// The file that names the shard of every tensor.
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// One tensor, as far as the files tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTensor {
    /// The element type, from the header of its file.
    pub dtype: Option<StoredDtype>,
    /// The extents, from the header of its file.
    pub shape: Option<Vec<usize>>,
    /// The file that holds it, or that the index says holds it.
    pub file: Option<String>,
    /// Where its bytes lie in that file.
    pub(super) range: Option<Range<usize>>,
}

/// All tensors of a checkpoint folder, with everything that is wrong with its weight files.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// The tensors by name, in the order of the index, or of the headers where there is no index.
    pub tensors: IndexMap<String, ListedTensor>,
    /// What is wrong.
    pub problems: Problems,
    /// Whether the headers of all files were read: every tensor has a shape, and no file is missing.
    pub complete: bool,
    /// The files that were read, with their lengths.
    pub(super) files: IndexMap<String, u64>,
    /// The files that the index names and that are not there.
    pub(super) absent: Vec<String>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: IndexMap<String, String>,
}

impl Listing {
    /// Lists the tensors of `directory`, reading headers only; `None` if it holds neither weights nor an index.
    ///
    /// An index whose shards are all absent is not a problem: the listing has names only, and is not complete.
    ///
    /// # Errors
    ///
    /// Only if the folder itself cannot be read; everything else becomes one of the [`Listing::problems`].
    pub fn open(directory: &Path) -> Result<Option<Self>> {
        let files = weight_files(directory)?;
        let mut listing = Self::default();
        let index = if files.iter().any(|file| file == SINGLE) {
            if directory.join(INDEX).is_file() {
                listing.problems.push(
                    Problem::error(
                        "index-unused",
                        format!("the index is not used, since `{SINGLE}` is there"),
                    )
                    .level(Level::Warning)
                    .in_file(INDEX),
                );
            }
            None
        } else {
            read_index(directory, &mut listing.problems)
        };
        if let Some(index) = index {
            listing.follow_index(directory, &index, &files);
        } else if files.is_empty() {
            // an index that cannot be read is still worth its problem
            return Ok((!listing.problems.is_empty()).then_some(listing));
        } else {
            listing.follow_files(directory, &files);
        }
        Ok(Some(listing))
    }

    /// Whether more than half of the bytes of all tensors are of this type, as far as headers were read.
    pub fn mostly(&self, dtype: Dtype) -> bool {
        let bytes = |tensor: &ListedTensor| tensor.range.as_ref().map_or(0, ExactSizeIterator::len);
        let of = |tensor: &&ListedTensor| {
            tensor.dtype.as_ref().and_then(StoredDtype::dtype) == Some(dtype)
        };
        let (part, all): (usize, usize) = (
            self.tensors.values().filter(of).map(bytes).fold(0, usize::saturating_add),
            self.tensors.values().map(bytes).fold(0, usize::saturating_add),
        );
        part > all / 2
    }

    /// Adds the problems that names without any file would be for someone who needs the data.
    pub(super) fn require_files(&mut self) {
        if self.files.is_empty() {
            for file in std::mem::take(&mut self.absent) {
                self.problems.push(missing_shard(&file));
            }
        }
    }

    fn follow_index(&mut self, directory: &Path, index: &Index, files: &[String]) {
        let mut named: IndexMap<&str, usize> = IndexMap::new();
        for file in index.weight_map.values() {
            *named.entry(file.as_str()).or_default() += 1;
        }
        let mut held: HashMap<String, usize> = HashMap::new(); // tensor -> which of `shards` holds it
        let mut shards: Vec<(String, Shard)> = Vec::new();
        for &file in named.keys() {
            if file.is_empty() || file.contains(['/', '\\']) || file == ".." {
                self.problems.push(
                    Problem::error(
                        "index-unreadable",
                        format!("the index names a file outside the folder, `{file}`"),
                    )
                    .in_file(INDEX),
                );
            } else if directory.join(file).is_file() {
                let shard = shard::read_shard(directory, file, &mut self.problems);
                shards.push((file.to_string(), shard));
            } else {
                self.absent.push(file.to_string());
            }
        }
        if !shards.is_empty() {
            self.problems.extend(self.absent.iter().map(|file| missing_shard(file)));
        }
        self.note_strays(files, |file| named.contains_key(file));
        for (number, (file, shard)) in shards.iter().enumerate() {
            for tensor in &shard.tensors {
                if let Some(&other) = held.get(&tensor.name) {
                    self.problems.push(twice(&tensor.name, file, &shards[other].0));
                    // the index decides which one counts
                    if index.weight_map.get(&tensor.name) == Some(file) {
                        held.insert(tensor.name.clone(), number);
                    }
                } else {
                    held.insert(tensor.name.clone(), number);
                }
            }
        }
        let mut stale = 0_usize;
        for (name, file) in &index.weight_map {
            let listed =
                ListedTensor { dtype: None, shape: None, file: Some(file.clone()), range: None };
            self.tensors.insert(name.clone(), listed);
            let holder = held.get(name).map(|&number| shards[number].0.as_str());
            let read = shards.iter().any(|(read, shard)| read == file && shard.readable);
            if holder != Some(file.as_str()) && read {
                stale += 1;
                let message = match holder {
                    Some(holder) => {
                        format!("the index puts `{name}` into `{file}`, but `{holder}` holds it")
                    }
                    None => {
                        format!("the index puts `{name}` into `{file}`, which does not hold it")
                    }
                };
                self.problems
                    .push(Problem::error("index-stale", message).in_file(INDEX).at_key(name));
            }
        }
        for (number, (file, shard)) in shards.iter_mut().enumerate() {
            self.files.insert(file.clone(), shard.bytes);
            for tensor in std::mem::take(&mut shard.tensors) {
                if held.get(&tensor.name) != Some(&number) {
                    continue;
                }
                if !self.tensors.contains_key(&tensor.name) {
                    self.problems.push(
                        Problem::error(
                            "tensor-stray",
                            format!("the index does not name `{}`", tensor.name),
                        )
                        .level(Level::Warning)
                        .in_file(file.as_str())
                        .at_key(&tensor.name),
                    );
                }
                self.insert(file, tensor);
            }
        }
        self.complete = stale == 0
            && self.absent.is_empty()
            && !shards.is_empty()
            && shards.iter().all(|(_, shard)| shard.readable);
    }

    fn follow_files(&mut self, directory: &Path, files: &[String]) {
        let chosen: Vec<&String> = if files.iter().any(|file| file == SINGLE) {
            files.iter().filter(|file| *file == SINGLE).collect()
        } else if files.iter().any(|file| numbered(file).is_some()) {
            files.iter().filter(|file| numbered(file).is_some()).collect()
        } else {
            files.iter().collect()
        };
        self.note_strays(files, |file| chosen.iter().any(|chosen| *chosen == file));
        self.complete = true;
        self.note_gaps(&chosen);
        for file in chosen {
            let shard = shard::read_shard(directory, file, &mut self.problems);
            self.complete &= shard.readable;
            self.files.insert(file.clone(), shard.bytes);
            for tensor in shard.tensors {
                if let Some(other) =
                    self.tensors.get(&tensor.name).and_then(|listed| listed.file.as_ref())
                {
                    self.problems.push(twice(&tensor.name, file, other));
                }
                self.insert(file, tensor);
            }
        }
    }

    fn insert(&mut self, file: &str, tensor: shard::HeaderTensor) {
        let listed = ListedTensor {
            dtype: Some(tensor.dtype),
            shape: Some(tensor.shape),
            file: Some(file.to_string()),
            range: tensor.range,
        };
        self.tensors.insert(tensor.name, listed);
    }

    /// Says which weight files are not used. Only names that look like this checkpoint's own are a warning: adapters
    /// and files in another layout are published beside the weights.
    fn note_strays(&mut self, files: &[String], used: impl Fn(&str) -> bool) {
        for file in files.iter().filter(|file| !used(file)) {
            let level = if file.starts_with("model") { Level::Warning } else { Level::Note };
            self.problems.push(
                Problem::error("shard-stray", format!("the weight file `{file}` is not used"))
                    .level(level)
                    .in_file(file.as_str()),
            );
        }
    }

    /// Finds the numbers missing from `PREFIX-00001-of-00003.safetensors`.
    fn note_gaps(&mut self, chosen: &[&String]) {
        let mut sets: IndexMap<(&str, &str), Vec<usize>> = IndexMap::new();
        for file in chosen {
            if let Some((prefix, number, total)) = numbered(file) {
                sets.entry((prefix, total)).or_default().push(number);
            }
        }
        for ((prefix, total), numbers) in sets {
            // the names say how many there are, and are not to be trusted with a loop of that length
            let most = total.parse::<usize>().unwrap_or(0).min(100_000);
            for number in (1..=most).filter(|number| !numbers.contains(number)) {
                self.complete = false;
                let file = format!(
                    "{prefix}-{number:0width$}-of-{total}.safetensors",
                    width = total.len()
                );
                self.problems.push(
                    Problem::error(
                        "shard-missing",
                        format!("the weight file `{file}` is not there"),
                    )
                    .in_file(file),
                );
            }
        }
    }
}

fn missing_shard(file: &str) -> Problem {
    Problem::error("shard-missing", format!("the index names `{file}`, which is not there"))
        .in_file(INDEX)
}

fn twice(name: &str, file: &str, other: &str) -> Problem {
    let message = if file == other {
        format!("tensor `{name}` stands twice in `{file}`")
    } else {
        format!("tensor `{name}` stands in `{other}` and in `{file}`")
    };
    Problem::error("tensor-twice", message).in_file(file).at_key(name)
}

/// The parts of `PREFIX-NUMBER-of-TOTAL.safetensors`.
fn numbered(file: &str) -> Option<(&str, usize, &str)> {
    let (rest, total) = file.strip_suffix(".safetensors")?.rsplit_once("-of-")?;
    let (prefix, number) = rest.rsplit_once('-')?;
    total.parse::<usize>().ok()?;
    Some((prefix, number.parse().ok()?, total))
}

/// The names of the weight files, sorted.
fn weight_files(directory: &Path) -> Result<Vec<String>> {
    let unreadable = |error: std::io::Error| {
        Error::new(
            ErrorKind::Checkpoint,
            format!("cannot read the folder `{}`", directory.display()),
        )
        .with_source(error)
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if let Some(name) = entry.file_name().to_str()
            && name.ends_with(".safetensors")
            && entry.path().is_file()
        {
            files.push(name.to_string());
        }
    }
    files.sort();
    Ok(files)
}

fn read_index(directory: &Path, problems: &mut Problems) -> Option<Index> {
    let path = directory.join(INDEX);
    if !path.is_file() {
        return None;
    }
    let index = fs::read(path)
        .map_err(|error| error.to_string())
        .and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()));
    match index {
        Ok(index) => Some(index),
        Err(error) => {
            problems.push(
                Problem::error("index-unreadable", format!("the index is not understood: {error}"))
                    .in_file(INDEX),
            );
            None
        }
    }
}
