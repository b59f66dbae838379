//! One weight file: its header, read without its data, and everything that can be wrong with it.
//!
//! A file is eight bytes of little-endian header length, a JSON header, and the data. The reference
//! (`safetensors::SafeTensors::read_metadata`) refuses a file whose header does not account for every byte of the data;
//! so does this reader, but it goes on after the first problem and says which tensor each one belongs to.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use crate::problem::{Problem, Problems};
use crate::tensor::Dtype;

/// The largest header that is read; the same limit as in the reference.
const MOST_HEADER_BYTES: u64 = 100_000_000;

/// Bytes of the header's length, at the start of the file.
const LENGTH_BYTES: u64 = 8;

/// An element type as a weight file writes it, understood or not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoredDtype(Box<str>);

impl StoredDtype {
    /// The type that a file calls `name`.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name in the file.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Bits per element, for the types that the format knows.
    pub fn bits(&self) -> Option<u64> {
        Some(match &*self.0 {
            "F4" => 4,
            "F6_E2M3" | "F6_E3M2" => 6,
            "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ"
            | "F8_E5M2FNUZ" => 8,
            "I16" | "U16" | "F16" | "BF16" => 16,
            "I32" | "U32" | "F32" => 32,
            "I64" | "U64" | "F64" | "C64" => 64,
            _ => return None,
        })
    }

    /// The type to compute with, for the types that weights may have here.
    pub fn dtype(&self) -> Option<Dtype> {
        match &*self.0 {
            "F32" => Some(Dtype::F32),
            "F16" => Some(Dtype::F16),
            "BF16" => Some(Dtype::Bf16),
            _ => None,
        }
    }
}

impl fmt::Display for StoredDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One tensor that a header lists.
#[derive(Debug)]
pub(super) struct HeaderTensor {
    pub(super) name: String,
    pub(super) dtype: StoredDtype,
    pub(super) shape: Vec<usize>,
    /// Where its bytes lie, from the start of the file; `None` if its entry contradicts itself or the file.
    pub(super) range: Option<Range<usize>>,
}

/// What one file lists, as far as its header can be read.
#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) tensors: Vec<HeaderTensor>,
    /// Whether the header could be read at all.
    pub(super) readable: bool,
    /// The length of the whole file.
    pub(super) bytes: u64,
}

/// Reads the header of `directory/file` and adds what is wrong with it to `problems`.
pub(super) fn read_shard(directory: &Path, file: &str, problems: &mut Problems) -> Shard {
    match read_header(&directory.join(file)) {
        Ok((header, bytes)) => {
            let mut shard = Shard { tensors: Vec::new(), readable: true, bytes };
            judge(file, header, &mut shard, problems);
            shard
        }
        Err(problem) => {
            problems.push(problem.in_file(file));
            Shard::default()
        }
    }
}

struct Header {
    entries: Vec<(String, Entry)>,
    /// Bytes before the data.
    start: u64,
}

fn read_header(path: &Path) -> Result<(Header, u64), Box<Problem>> {
    let unreadable = |error: std::io::Error| {
        Box::new(Problem::error(
            "shard-unreadable",
            format!("the weight file cannot be read: {error}"),
        ))
    };
    let mut file = File::open(path).map_err(unreadable)?;
    let bytes = file.metadata().map_err(unreadable)?.len();
    if bytes < LENGTH_BYTES {
        let problem = Problem::error(
            "shard-truncated",
            "the weight file is cut off in its first eight bytes",
        );
        return Err(Box::new(problem.expected_found("at least 8 bytes", format!("{bytes} bytes"))));
    }
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(unreadable)?;
    let length = u64::from_le_bytes(length);
    if length > MOST_HEADER_BYTES {
        let problem =
            Problem::error("shard-header", "the weight file states an absurd header length")
                .expected_found(
                    format!("at most {MOST_HEADER_BYTES} bytes"),
                    format!("{length} bytes"),
                );
        return Err(Box::new(problem.with_hint("this is probably not a safetensors file")));
    }
    let start = LENGTH_BYTES + length;
    if start > bytes {
        let problem =
            Problem::error("shard-truncated", "the weight file is cut off within its header");
        return Err(Box::new(
            problem.expected_found(format!("at least {start} bytes"), format!("{bytes} bytes")),
        ));
    }
    let mut text = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_exact(&mut text).map_err(unreadable)?;
    let Entries(entries) = serde_json::from_slice(&text).map_err(|error| {
        let message = format!("the weight file's header is not understood: {error}");
        Box::new(Problem::error("shard-header", message))
    })?;
    Ok((Header { entries, start }, bytes))
}

/// Turns header entries into tensors, and adds what is wrong with them.
fn judge(file: &str, header: Header, shard: &mut Shard, problems: &mut Problems) {
    let Header { entries, start } = header;
    let data_bytes = shard.bytes - start;
    let mut promised = 0;
    let mut spans = Vec::with_capacity(entries.len());
    for (name, Entry { dtype, shape, data_offsets: [begin, end] }) in entries {
        promised = promised.max(end);
        let dtype = StoredDtype::new(&dtype);
        let mut problem = |problem: Problem| problems.push(problem.in_file(file).at_key(&name));
        let elements = shape.iter().try_fold(1_u64, |product, &extent| product.checked_mul(extent));
        let expected = match (elements, dtype.bits()) {
            (_, None) => {
                problem(Problem::error(
                    "tensor-dtype",
                    format!(
                        "tensor `{name}` has the element type `{dtype}`, which is not understood"
                    ),
                ));
                None
            }
            (None, _) => {
                problem(Problem::error(
                    "shard-header",
                    format!("tensor `{name}` has an absurd shape {shape:?}"),
                ));
                None
            }
            (Some(elements), Some(bits)) => elements.checked_mul(bits).map(|bits| bits.div_ceil(8)),
        };
        let mut range = None;
        if begin > end {
            problem(Problem::error(
                "shard-header",
                format!("tensor `{name}` begins at byte {begin} and ends before that, at {end}"),
            ));
        } else {
            spans.push((begin, end, name.clone()));
            match expected {
                Some(expected) if expected != end - begin => problem(
                    Problem::error(
                        "shard-header",
                        format!("tensor `{name}` does not fit its place: {dtype} {shape:?} in bytes {begin}..{end}"),
                    )
                    .expected_found(format!("{expected} bytes"), format!("{} bytes", end - begin)),
                ),
                Some(_) if end <= data_bytes => range = whole(start + begin, start + end),
                _ => {}
            }
        }
        let shape =
            shape.iter().map(|&extent| usize::try_from(extent).unwrap_or(usize::MAX)).collect();
        shard.tensors.push(HeaderTensor { name, dtype, shape, range });
    }
    judge_spans(file, spans, problems);
    let total = start.saturating_add(promised);
    if promised > data_bytes {
        let lost = shard.tensors.iter().filter(|tensor| tensor.range.is_none()).count();
        problems.push(
            Problem::error(
                "shard-truncated",
                format!(
                    "the weight file is cut off: {lost} of its {} tensors are not whole",
                    shard.tensors.len()
                ),
            )
            .in_file(file)
            .expected_found(format!("{total} bytes"), format!("{} bytes", shard.bytes))
            .with_hint("download or copy the file again"),
        );
    } else if promised < data_bytes {
        problems.push(
            Problem::error("shard-header", "the weight file has bytes behind its last tensor")
                .in_file(file)
                .expected_found(format!("{total} bytes"), format!("{} bytes", shard.bytes)),
        );
    }
}

/// Finds tensors that share bytes, and bytes that belong to no tensor.
fn judge_spans(file: &str, mut spans: Vec<(u64, u64, String)>, problems: &mut Problems) {
    spans.sort();
    let mut reached = 0;
    let mut before: Option<&str> = None;
    for (begin, end, name) in &spans {
        if *begin < reached {
            problems.push(
                Problem::error(
                    "shard-header",
                    format!("tensors `{}` and `{name}` share bytes", before.unwrap_or_default()),
                )
                .in_file(file)
                .at_key(name),
            );
        } else if *begin > reached {
            problems.push(
                Problem::error(
                    "shard-header",
                    format!("bytes {reached}..{begin} of the data belong to no tensor"),
                )
                .in_file(file)
                .at_key(name),
            );
        }
        if *end >= reached {
            (reached, before) = (*end, Some(name.as_str()));
        }
    }
}

fn whole(begin: u64, end: u64) -> Option<Range<usize>> {
    Some(usize::try_from(begin).ok()?..usize::try_from(end).ok()?)
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// The header's entries in their order; a name that stands twice is kept twice, for a map would hide it.
struct Entries(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<serde::de::IgnoredAny>()?;
                    } else {
                        entries.push((name, map.next_value()?));
                    }
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(EntriesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with a file of this header and so many data bytes: codes and messages.
    fn problems(header: &str, data: usize) -> Vec<String> {
        let name = format!("vlm-spec-shard-{}-{data}-{}", std::process::id(), header.len());
        let path = std::env::temp_dir().join(&name);
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        std::fs::write(&path, bytes).unwrap();
        let mut problems = Problems::default();
        read_shard(&std::env::temp_dir(), &name, &mut problems);
        std::fs::remove_file(path).unwrap();
        problems.iter().map(|problem| format!("{}: {}", problem.code, problem.message)).collect()
    }

    const TWO: &str = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
        "b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}}"#;

    #[test]
    fn a_whole_file_has_no_problems() {
        assert!(problems(TWO, 10).is_empty());
    }

    #[test]
    fn a_cut_off_file_is_one_problem() {
        let found = problems(TWO, 9);
        assert_eq!(
            found,
            ["shard-truncated: the weight file is cut off: 1 of its 2 tensors are not whole"]
        );
    }

    #[test]
    fn bytes_behind_the_last_tensor_are_a_problem() {
        assert_eq!(
            problems(TWO, 11),
            ["shard-header: the weight file has bytes behind its last tensor"]
        );
    }

    #[test]
    fn entries_are_judged_one_by_one() {
        let header = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
            "b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},
            "c":{"dtype":"Q4","shape":[2],"data_offsets":[12,14]},
            "d":{"dtype":"F16","shape":[3],"data_offsets":[15,17]},
            "e":{"dtype":"F16","shape":[4294967296,4294967296],"data_offsets":[17,17]},
            "f":{"dtype":"F16","shape":[1],"data_offsets":[9,7]}}"#;
        let found = problems(header, 17).join("\n");
        for part in [
            "tensors `a` and `b` share bytes",
            "`Q4`, which is not understood",
            "tensor `d` does not fit its place: F16 [3] in bytes 15..17",
            "bytes 14..15 of the data belong to no tensor",
            "tensor `e` has an absurd shape",
            "tensor `f` begins at byte 9 and ends before that, at 7",
        ] {
            assert!(found.contains(part), "{part} not in\n{found}");
        }
    }

    #[test]
    fn a_header_that_is_not_json_is_refused() {
        assert!(
            problems("{\"a\":", 0)[0]
                .starts_with("shard-header: the weight file's header is not understood")
        );
        assert!(problems(r#"{"a":{"dtype":"F32"}}"#, 0)[0].contains("missing field `shape`"));
    }
}
