//! The weights of a checkpoint: listed from headers, judged as a whole, memory-mapped tensor by tensor.
//!
//! [`Listing`] says what is there, with or without the data, and is what a check reads. [`Weights`] is the same with the
//! promise that every listed tensor can be had: it opens only if nothing is missing, stale, cut off or doubled.

mod listing;
mod shard;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use indexmap::IndexMap;
use memmap2::Mmap;

pub use listing::{ListedTensor, Listing};
pub use shard::StoredDtype;

use crate::error::{Error, ErrorKind, Result};
use crate::problem::{Level, Problems};
use crate::tensor::{HostTensor, SharedBytes};

/// What is known of one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorInfo<'a> {
    /// The element type, as the file writes it.
    pub dtype: &'a StoredDtype,
    /// Extents, outermost first.
    pub shape: &'a [usize],
    /// The name of the file that holds it.
    pub file: &'a str,
}

/// The weight files of a checkpoint, all headers read and found sound.
#[derive(Debug)]
pub struct Weights {
    directory: PathBuf,
    listing: Listing,
    maps: IndexMap<String, OnceLock<Arc<Mmap>>>,
}

impl Weights {
    /// Opens the weights of `directory`: `model.safetensors`, or shards with an index, or shards alone.
    ///
    /// Only headers are read. A file is mapped when the first of its tensors is asked for.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Checkpoint`] if there are no weights, [`ErrorKind::Weights`] with all problems if any of them is an
    /// error.
    pub fn open(directory: &Path) -> Result<Self> {
        let Some(mut listing) = Listing::open(directory)? else {
            let message = format!("there are no weights in `{}`", directory.display());
            let error = Error::new(ErrorKind::Checkpoint, message);
            return Err(if directory.join("pytorch_model.bin").is_file() {
                error.with_hint(
                    "`pytorch_model.bin` is not read; save the checkpoint as safetensors",
                )
            } else {
                error.with_hint(
                    "expected `model.safetensors`, or shards with `model.safetensors.index.json`",
                )
            });
        };
        listing.require_files();
        let errors =
            listing.problems.iter().filter(|problem| problem.level == Level::Error).count();
        if errors > 0 {
            let things = if errors == 1 { "problem" } else { "problems" };
            let message = format!(
                "the weights in `{}` cannot be used: {errors} {things}",
                directory.display()
            );
            return Err(Error::new(ErrorKind::Weights, message).with_problems(listing.problems));
        }
        let maps = listing.files.keys().map(|file| (file.clone(), OnceLock::new())).collect();
        Ok(Self { directory: directory.to_path_buf(), listing, maps })
    }

    /// The names of all tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.listing.tensors.keys().map(String::as_str)
    }

    /// What is known of the tensor `name`; `None` if it is not there.
    pub fn info(&self, name: &str) -> Option<TensorInfo<'_>> {
        let listed = self.listing.tensors.get(name)?;
        Some(TensorInfo {
            dtype: listed.dtype.as_ref()?,
            shape: listed.shape.as_deref()?,
            file: listed.file.as_deref()?,
        })
    }

    /// The tensor `name`, its bytes shared with the mapped file.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Weights`] if there is no such tensor or its file cannot be mapped, [`ErrorKind::Unsupported`] if its
    /// element type is none of F32, F16 and BF16.
    pub fn tensor(&self, name: &str) -> Result<HostTensor> {
        let missing = || Error::new(ErrorKind::Weights, format!("there is no tensor `{name}`"));
        let info = self.info(name).ok_or_else(missing)?;
        let dtype = info.dtype.dtype().ok_or_else(|| {
            let message = format!(
                "tensor `{name}` is stored as `{}`; only F32, F16 and BF16 are read",
                info.dtype
            );
            Error::new(ErrorKind::Unsupported, message)
        })?;
        let range = self
            .listing
            .tensors
            .get(name)
            .and_then(|listed| listed.range.clone())
            .ok_or_else(missing)?;
        let data = SharedBytes::from_map(self.map(info.file)?, range).ok_or_else(|| {
            Error::new(
                ErrorKind::Weights,
                format!("tensor `{name}` does not lie within `{}`", info.file),
            )
        })?;
        Ok(HostTensor { dtype, shape: info.shape.to_vec(), data })
    }

    /// What is wrong without being an error: stray files and tensors.
    pub fn problems(&self) -> &Problems {
        &self.listing.problems
    }

    /// The listing that this was opened from.
    pub fn listing(&self) -> &Listing {
        &self.listing
    }

    /// The bytes of all weight files together.
    pub fn bytes(&self) -> u64 {
        self.listing.files.values().sum()
    }

    fn map(&self, file: &str) -> Result<Arc<Mmap>> {
        let unmappable = |error: std::io::Error| {
            Error::new(ErrorKind::Weights, format!("the weight file `{file}` cannot be mapped"))
                .with_source(error)
        };
        let Some(slot) = self.maps.get(file) else {
            return Err(Error::new(
                ErrorKind::Weights,
                format!("there is no weight file `{file}`"),
            ));
        };
        if let Some(map) = slot.get() {
            return Ok(Arc::clone(map));
        }
        let opened = File::open(self.directory.join(file)).map_err(unmappable)?;
        // SAFETY: the map is read-only, and its length is checked on every access. Someone who shortens the file while
        // it is mapped can still crash the process; no use of memory maps is free of that.
        let map = unsafe { Mmap::map(&opened) }.map_err(unmappable)?;
        Ok(Arc::clone(slot.get_or_init(|| Arc::new(map))))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::tensor::Dtype;

    /// A folder that is removed again.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir()
                .join(format!("vlm-spec-weights-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        /// Writes a shard of f32 tensors; each holds `length` times its own length.
        fn shard(&self, file: &str, tensors: &[(&str, usize)]) {
            let mut header = serde_json::Map::new();
            let mut data = Vec::new();
            for &(name, length) in tensors {
                let begin = data.len();
                for _ in 0..length {
                    data.extend_from_slice(&(length as f32).to_le_bytes());
                }
                let entry = serde_json::json!({"dtype": "F32", "shape": [length], "data_offsets": [begin, data.len()]});
                header.insert(name.to_string(), entry);
            }
            let header = serde_json::to_vec(&header).unwrap();
            let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
            bytes.extend(header);
            bytes.extend(data);
            fs::write(self.0.join(file), bytes).unwrap();
        }

        fn index(&self, entries: &[(&str, &str)]) {
            let map: serde_json::Map<_, _> =
                entries.iter().map(|&(name, file)| (name.to_string(), file.into())).collect();
            let text =
                serde_json::json!({"metadata": {"total_size": 0}, "weight_map": map}).to_string();
            fs::write(self.0.join(listing::INDEX), text).unwrap();
        }

        fn errors(&self) -> Vec<String> {
            let error = Weights::open(&self.0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Weights);
            error
                .problems()
                .iter()
                .map(|problem| format!("{}: {}", problem.code, problem.message))
                .collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_type_of_most_bytes() {
        let folder = Folder::new("mostly");
        let write = |widths: [usize; 2]| {
            let [f32s, bf16s] = widths.map(|width| 12 * width);
            let header = serde_json::json!({
                "a": {"dtype": "F32", "shape": [f32s / 4], "data_offsets": [0, f32s]},
                "b": {"dtype": "BF16", "shape": [bf16s / 2], "data_offsets": [f32s, f32s + bf16s]},
            });
            let header = header.to_string();
            let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
            bytes.extend(header.bytes());
            bytes.resize(bytes.len() + f32s + bf16s, 0);
            fs::write(folder.0.join("model.safetensors"), bytes).unwrap();
            let listing = Listing::open(&folder.0).unwrap().unwrap();
            [Dtype::F32, Dtype::Bf16, Dtype::F16].map(|dtype| listing.mostly(dtype))
        };
        assert_eq!(write([2, 3]), [false, true, false]);
        assert_eq!(write([3, 2]), [true, false, false]);
        assert_eq!(write([2, 2]), [false; 3]);
        assert!(!Listing::default().mostly(Dtype::F32));
    }

    #[test]
    fn a_single_file_is_listed_and_mapped() {
        let folder = Folder::new("single");
        folder.shard("model.safetensors", &[("a", 2), ("b", 3)]);
        let weights = Weights::open(&folder.0).unwrap();
        assert_eq!(weights.names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(weights.info("b").unwrap().shape, [3]);
        assert_eq!(weights.tensor("b").unwrap().to_f32(), [3.0; 3]);
        assert!(weights.problems().is_empty() && weights.listing().complete);
        assert_eq!(weights.tensor("c").unwrap_err().message(), "there is no tensor `c`");
    }

    #[test]
    fn shards_need_no_index_but_all_of_them_must_be_there() {
        let folder = Folder::new("shards");
        folder.shard("model-00001-of-00002.safetensors", &[("a", 2)]);
        let expected =
            "shard-missing: the weight file `model-00002-of-00002.safetensors` is not there";
        assert_eq!(folder.errors(), [expected]);
        folder.shard("model-00002-of-00002.safetensors", &[("b", 1)]);
        assert_eq!(Weights::open(&folder.0).unwrap().tensor("b").unwrap().to_f32(), [1.0]);
    }

    #[test]
    fn all_problems_of_an_index_are_listed() {
        let folder = Folder::new("index");
        folder.shard("model-1.safetensors", &[("a", 2), ("b", 1), ("stray", 1)]);
        folder.shard("model-2.safetensors", &[("b", 1), ("c", 1)]);
        folder.shard("model-9.safetensors", &[("z", 1)]);
        folder.index(&[
            ("a", "model-1.safetensors"),
            ("b", "model-2.safetensors"),
            ("c", "model-1.safetensors"),
            ("d", "model-2.safetensors"),
            ("e", "model-3.safetensors"),
        ]);
        assert_eq!(
            folder.errors(),
            [
                "shard-missing: the index names `model-3.safetensors`, which is not there",
                "shard-stray: the weight file `model-9.safetensors` is not used",
                "tensor-twice: tensor `b` stands in `model-1.safetensors` and in `model-2.safetensors`",
                "index-stale: the index puts `c` into `model-1.safetensors`, but `model-2.safetensors` holds it",
                "index-stale: the index puts `d` into `model-2.safetensors`, which does not hold it",
                "tensor-stray: the index does not name `stray`",
            ]
        );
    }

    #[test]
    fn an_index_alone_lists_names_and_cannot_be_opened() {
        let folder = Folder::new("names");
        folder.index(&[("a", "model-1.safetensors"), ("b", "model-1.safetensors")]);
        let listing = Listing::open(&folder.0).unwrap().unwrap();
        assert!(listing.problems.is_empty() && !listing.complete);
        assert_eq!(listing.tensors.get("b").unwrap().file.as_deref(), Some("model-1.safetensors"));
        assert_eq!(
            folder.errors(),
            ["shard-missing: the index names `model-1.safetensors`, which is not there"]
        );
    }

    #[test]
    fn an_index_may_not_leave_the_folder_and_must_be_json() {
        let folder = Folder::new("outside");
        folder.index(&[("a", "../model.safetensors")]);
        let listing = Listing::open(&folder.0).unwrap().unwrap();
        assert!(listing.problems.to_string().contains("outside the folder"));
        fs::write(folder.0.join(listing::INDEX), "{").unwrap();
        assert!(folder.errors()[0].starts_with("index-unreadable: the index is not understood"));
        assert_eq!(Listing::open(&Folder::new("nothing").0).unwrap().map(|_| ()), None);
    }

    #[test]
    fn other_element_types_are_listed_and_refused_by_name() {
        let folder = Folder::new("dtype");
        let header = r#"{"q":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}}"#;
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(&[0; 4]);
        fs::write(folder.0.join("model.safetensors"), bytes).unwrap();
        let weights = Weights::open(&folder.0).unwrap();
        assert_eq!(weights.info("q").unwrap().dtype.name(), "I8");
        let error = weights.tensor("q").unwrap_err();
        assert_eq!(
            error.message(),
            "tensor `q` is stored as `I8`; only F32, F16 and BF16 are read"
        );
    }

    #[test]
    fn an_index_beside_a_single_file_is_not_used() {
        let folder = Folder::new("both");
        folder.shard("model.safetensors", &[("a", 1)]);
        folder.index(&[("b", "model-1.safetensors")]);
        let weights = Weights::open(&folder.0).unwrap();
        assert_eq!(weights.names().collect::<Vec<_>>(), ["a"]);
        assert_eq!(weights.problems().iter().next().unwrap().code, "index-unused");
    }
}
