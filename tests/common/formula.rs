//! Checkpoints whose weights are a formula: `tests/scripts/formula.py` states it, this is its other half.
//!
//! A folder below `tests/fixtures/goldens` holds a checkpoint's config files, `weights.json` and what the reference
//! implementation computed. [`materialise`] turns it into a complete checkpoint with weights.
//! Include it with `#[path = "common/formula.rs"] mod formula;`.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::{
    collections::HashMap,
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How [`materialise`] writes the weights; the default is one file of f32 under the published names.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// `F32`, `BF16` or `F16`; rounded to nearest, ties to even
    pub(crate) dtype: Dtype,
    /// number of shards, with an index file if more than one
    pub(crate) shards: usize,
    /// `(from, to)` prefixes of tensor names; the first that fits applies, an empty `from` fits all
    pub(crate) rename: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self { dtype: Dtype::F32, shards: 1, rename: Vec::new() }
    }
}

/// One tensor of a fixture, by its published name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}

/// The folder of all fixtures.
pub(crate) fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/goldens")
}

/// The folder that holds `golden.json`, `golden.safetensors`, `floor.json` and `weights.json` for a fixture: its own, or the
/// one that it shares them with.
pub(crate) fn home(fixture: &Path) -> Result<PathBuf> {
    let table = read_json(&fixture.join("weights.json"))?;
    Ok(table["same_as"].as_str().map_or_else(|| fixture.to_path_buf(), |other| fixture.join(other)))
}

/// Copies the config and tokenizer files of `fixture` into `target` (made if need be) and writes the weights there.
/// Two tests that run at the same time need two targets.
pub(crate) fn materialise(fixture: &Path, target: &Path, options: &Options) -> Result<()> {
    fs::create_dir_all(target)?;
    for entry in fs::read_dir(fixture)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let ours =
            ["weights.json", "golden.json", "golden.safetensors", "floor.json"].contains(&name);
        if path.is_file() && !ours {
            fs::copy(&path, target.join(name))?;
        } else if path.is_dir() {
            copy_folder(&path, &target.join(name))?;
        }
    }
    let mut all = tensors(fixture)?;
    for tensor in &mut all {
        if let Some((from, to)) =
            options.rename.iter().find(|(from, _)| tensor.name.starts_with(from))
        {
            tensor.name.replace_range(..from.len(), to);
        }
    }
    write(&all, target, options)
}

/// A folder of files, such as a second tokenizer.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// All tensors of a fixture in file order.
pub(crate) fn tensors(fixture: &Path) -> Result<Vec<Tensor>> {
    let table = read_json(&home(fixture)?.join("weights.json"))?;
    let seed = table["seed"].as_u64().ok_or("seed")?;
    table["tensors"].as_array().ok_or("tensors")?.iter().map(|entry| fill(seed, entry)).collect()
}

/// One entry of `weights.json`.
fn fill(seed: u64, entry: &Value) -> Result<Tensor> {
    let number = |v: &Value| v.as_f64().map(|x| x as f32).ok_or("a number");
    let index = |v: &Value| v.as_u64().and_then(|i| usize::try_from(i).ok()).ok_or("an index");
    let name = entry["name"].as_str().ok_or("name")?.to_owned();
    let shape = entry["shape"]
        .as_array()
        .ok_or("shape")?
        .iter()
        .map(index)
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let (offset, scale) = (number(&entry["offset"])?, number(&entry["scale"])?);
    let count: usize = shape.iter().product();
    // numbers of one row, as a table is read by rows
    let width = count / shape.first().copied().unwrap_or(1).max(1);
    let mut scales = vec![scale; count / width.max(1)];
    for group in entry["rows"].as_array().into_iter().flatten() {
        for row in group["index"].as_array().ok_or("rows")? {
            scales[index(row)?] = number(&group["scale"])?;
        }
    }
    let uniform = uniform(seed, &name);
    // not a fused product and sum: the formula rounds both
    let values = (0..count).map(|i| uniform(i as u64) * scales[i / width] + offset).collect();
    Ok(Tensor { name, shape, values })
}

/// Element `i` of the named tensor before scale and offset, in [-1, 1).
fn uniform(seed: u64, name: &str) -> impl Fn(u64) -> f32 + use<> {
    let start = fnv(FNV_BASIS, format!("{seed}:{name}").bytes());
    move |i| {
        let z = start.wrapping_add(i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let z = z ^ (z >> 31);
        ((z >> 40) as i64 - (1 << 23)) as f32 / (1 << 23) as f32
    }
}

const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(start: u64, bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(start, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

fn write(tensors: &[Tensor], target: &Path, options: &Options) -> Result<()> {
    let shards = options.shards.clamp(1, tensors.len().max(1));
    let metadata = || Some(HashMap::from([("format".to_owned(), "pt".to_owned())]));
    let mut map = serde_json::Map::new();
    let mut total = 0;
    for shard in 0..shards {
        let file = match shards {
            1 => "model.safetensors".to_owned(),
            _ => format!("model-{:05}-of-{shards:05}.safetensors", shard + 1),
        };
        let part = &tensors[tensors.len() * shard / shards..tensors.len() * (shard + 1) / shards];
        let bytes =
            part.iter().map(|t| encode(&t.values, options.dtype)).collect::<Result<Vec<_>>>()?;
        let mut views = Vec::new();
        for (tensor, data) in part.iter().zip(&bytes) {
            views.push((
                tensor.name.as_str(),
                TensorView::new(options.dtype, tensor.shape.clone(), data)?,
            ));
            map.insert(tensor.name.clone(), json!(file));
            total += data.len();
        }
        safetensors::serialize_to_file(views, metadata(), &target.join(&file))?;
    }
    if shards > 1 {
        let index = json!({"metadata": {"total_size": total}, "weight_map": map});
        fs::write(
            target.join("model.safetensors.index.json"),
            serde_json::to_string_pretty(&index)?,
        )?;
    }
    Ok(())
}

fn encode(values: &[f32], dtype: Dtype) -> Result<Vec<u8>> {
    Ok(match dtype {
        Dtype::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Dtype::BF16 => values.iter().flat_map(|v| half::bf16::from_f32(*v).to_le_bytes()).collect(),
        Dtype::F16 => values.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect(),
        other => return Err(format!("no conversion to {other:?}").into()),
    })
}

fn read_json(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_the_formula() {
        assert_eq!(uniform(1, "lm_head.weight")(0).to_bits(), 0x3f5c_9e50);
        assert_eq!(uniform(1, "lm_head.weight")(1000).to_bits(), 0xbf44_1b30);
        assert_eq!(uniform(42, "visual.patch_embed.proj.weight")(77).to_bits(), 0xbecd_b558);
    }

    #[test]
    fn every_fixture_has_the_stated_bytes() {
        for entry in fs::read_dir(goldens()).unwrap() {
            let fixture = entry.unwrap().path();
            if !fixture.join("weights.json").exists() {
                continue;
            }
            let table = read_json(&home(&fixture).unwrap().join("weights.json")).unwrap();
            let bytes = tensors(&fixture)
                .unwrap()
                .into_iter()
                .flat_map(|t| t.values)
                .flat_map(f32::to_le_bytes);
            assert_eq!(
                table["fnv"],
                format!("{:016x}", fnv(FNV_BASIS, bytes)),
                "{}",
                fixture.display()
            );
        }
    }
}
