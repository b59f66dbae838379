//! What a traced run keeps, and the file that it is written to.

use std::fs;
use std::path::Path;

use indexmap::IndexMap;

use crate::error::{Error, ErrorKind, Result};

/// Everything a traced run keeps, by the names of the trace file.
pub type Trace = IndexMap<String, TraceTensor>;

/// One kept tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum TraceTensor {
    /// Values of stages.
    Float(Vec<usize>, Vec<f32>),
    /// Ids and positions.
    Integer(Vec<usize>, Vec<i64>),
}

/// Writes a trace as a safetensors file with the family and this program's version in its metadata.
pub fn write_trace(trace: &Trace, family: &str, file: &Path) -> Result<()> {
    let bytes: Vec<(String, safetensors::Dtype, Vec<usize>, Vec<u8>)> = trace
        .iter()
        .map(|(name, tensor)| match tensor {
            TraceTensor::Float(shape, values) => {
                let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                (name.clone(), safetensors::Dtype::F32, shape.clone(), bytes)
            }
            TraceTensor::Integer(shape, values) => {
                let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                (name.clone(), safetensors::Dtype::I64, shape.clone(), bytes)
            }
        })
        .collect();
    let failed = |message: String| Error::new(ErrorKind::Output, message);
    let views = bytes
        .iter()
        .map(|(name, dtype, shape, bytes)| {
            let view = safetensors::tensor::TensorView::new(*dtype, shape.clone(), bytes)
                .map_err(|error| failed(format!("cannot lay out `{name}`")).with_source(error))?;
            Ok((name.clone(), view))
        })
        .collect::<Result<Vec<_>>>()?;
    let metadata = std::collections::HashMap::from([
        ("family".to_owned(), family.to_owned()),
        ("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ]);
    let serialised = safetensors::serialize(views, Some(metadata))
        .map_err(|error| failed("cannot lay out the trace".to_owned()).with_source(error))?;
    fs::write(file, serialised)
        .map_err(|error| failed(format!("cannot write `{}`", file.display())).with_source(error))
}
