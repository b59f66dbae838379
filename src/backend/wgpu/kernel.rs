//! Kernels: which shader files make one, and their compiled pipelines.
//!
//! A shader is put together from files by writing them one after the other: constants, what differs between variants (how
//! weights are decoded, how threads add up), then the kernel itself. Each file says what it needs from those before.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ::wgpu::{
    BindGroupLayout, BindGroupLayoutDescriptor, BindGroupLayoutEntry, BindingType,
    BufferBindingType, ComputePipeline, ComputePipelineDescriptor, Device, ErrorFilter,
    PipelineCompilationOptions, PipelineLayout, PipelineLayoutDescriptor, ShaderModuleDescriptor,
    ShaderSource, ShaderStages,
};

use super::device::{Opened, PARAMETER_BYTES};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::Dtype;

/// Buffers that a kernel reads, at most.
const MOST_INPUTS: usize = 6;

/// Sides of the tiles of a matrix product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Tile {
    /// 64 × 64 of the result by a workgroup, 4 × 4 by a thread.
    Small,
    /// 128 × 128 and 8 × 8: fewer loads for each product, fewer workgroups.
    Large,
}

impl Tile {
    /// Rows and columns of the result that a workgroup computes.
    pub(super) fn side(self) -> usize {
        match self {
            Self::Small => 64,
            Self::Large => 128,
        }
    }
}

/// A kernel with the constants that are compiled into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kernel {
    /// A function of every element.
    Map,
    /// A function of two elements at the same place.
    Combine,
    /// The norm of every row.
    Norm,
    /// Rotary embedding.
    Rope,
    /// A block of rows and columns.
    Copy {
        /// Elements are moved four at once.
        aligned: bool,
    },
    /// Rows by index.
    Gather,
    /// Rows to their index.
    Scatter,
    /// Weighted sums of rows by index.
    Blend,
    /// Which experts rows go to.
    Route,
    /// Pairs of a row and an expert in the order of experts.
    Group,
    /// Rows of experts in parts of one size.
    Parts,
    /// Every row once for each of its experts.
    Spread,
    /// What belongs to a row, summed.
    Collect,
    /// Every row as a matrix transposed.
    Transpose,
    /// The largest element of every row.
    Largest,
    /// Rows of a weight by index.
    Embed {
        /// The type of the weight.
        dtype: Dtype,
    },
    /// A matrix product of many rows.
    Product {
        /// The type of the weight.
        dtype: Dtype,
        /// Rows are read four elements at once.
        aligned: bool,
        /// The tile.
        tile: Tile,
        /// Rows meet the matrices of their experts.
        experts: bool,
    },
    /// A matrix product of at most `rows` rows.
    Skinny {
        /// The type of the weight.
        dtype: Dtype,
        /// Rows are read four elements at once.
        aligned: bool,
        /// 1, 2, 4 or 8.
        rows: usize,
        /// Rows meet the matrices of their experts, so many of one expert at a time.
        experts: bool,
    },
    /// Attention of many query rows.
    Attention {
        /// Elements per head.
        head: usize,
        /// Heads are read four elements at once.
        aligned: bool,
    },
    /// Attention of few query rows.
    AttentionRow {
        /// Elements per head.
        head: usize,
        /// Heads are read four elements at once.
        aligned: bool,
    },
    /// What [`Kernel::AttentionRow`] found for parts of the keys.
    AttentionJoin {
        /// Elements per head.
        head: usize,
    },
    /// Multiplications and additions without memory, to measure the device.
    Multiply,
}

/// Workgroups in a row, folded into a grid that devices start: 65535 along an axis, at most.
pub(super) fn folded(groups: usize) -> [usize; 3] {
    const MOST: usize = 65535;
    let lines = groups.div_ceil(MOST);
    if lines == 0 { [0; 3] } else { [groups.div_ceil(lines), lines, 1] }
}

/// Outputs of one workgroup of [`Kernel::Skinny`].
pub(super) const SKINNY_COLUMNS: usize = 4;
/// Query rows of one workgroup of [`Kernel::Attention`].
pub(super) const ATTENTION_ROWS: usize = 64;
/// Keys that a workgroup of [`Kernel::AttentionRow`] takes at a time.
pub(super) const ATTENTION_KEYS: usize = 128;
/// Threads of the kernels that take an element each.
pub(super) const ELEMENT_THREADS: usize = 256;
/// Elements of a head, at most.
pub(super) const LONGEST_HEAD: usize = 256;

/// What variants of kernels depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Abilities {
    /// Threads of a subgroup add up by themselves.
    pub(super) subgroups: bool,
    /// f16 is converted by an instruction.
    pub(super) half_precision: bool,
}

impl Kernel {
    /// Its name for messages.
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// The text of its shader.
    pub(super) fn source(self, abilities: Abilities) -> String {
        let mut text = String::new();
        let mut add = |part: &str| {
            text.push_str(part);
            text.push('\n');
        };
        let reduce = if abilities.subgroups {
            include_str!("shaders/parts/reduce_subgroup.wgsl")
        } else {
            include_str!("shaders/parts/reduce_shared.wgsl")
        };
        let weights = |dtype: Dtype| match dtype {
            Dtype::F32 => include_str!("shaders/parts/weights_f32.wgsl"),
            Dtype::Bf16 => include_str!("shaders/parts/weights_bf16.wgsl"),
            Dtype::F16 if abilities.half_precision => {
                include_str!("shaders/parts/weights_f16_native.wgsl")
            }
            Dtype::F16 => include_str!("shaders/parts/weights_f16.wgsl"),
        };
        let rows = |aligned: bool| {
            if aligned {
                include_str!("shaders/parts/rows_aligned.wgsl")
            } else {
                include_str!("shaders/parts/rows_any.wgsl")
            }
        };
        let heads = |aligned: bool| {
            if aligned {
                include_str!("shaders/parts/heads_aligned.wgsl")
            } else {
                include_str!("shaders/parts/heads_any.wgsl")
            }
        };
        let tiles = |experts: bool| {
            if experts {
                include_str!("shaders/parts/tiles_of_experts.wgsl")
            } else {
                include_str!("shaders/parts/tiles.wgsl")
            }
        };
        let activations = include_str!("shaders/parts/activations.wgsl");
        let elements = include_str!("shaders/parts/elements.wgsl");
        // `enable` must come first
        if let (
            Self::Embed { dtype } | Self::Product { dtype, .. } | Self::Skinny { dtype, .. },
            true,
        ) = (self, abilities.half_precision)
            && dtype == Dtype::F16
        {
            add("enable f16;");
        }
        match self {
            Self::Map => {
                add(elements);
                add(activations);
                add(include_str!("shaders/map.wgsl"));
            }
            Self::Combine => {
                add(elements);
                add(activations);
                add(include_str!("shaders/combine.wgsl"));
            }
            Self::Norm => {
                add("const THREADS: u32 = 128u;");
                add(reduce);
                add(include_str!("shaders/norm.wgsl"));
            }
            Self::Rope => {
                add(elements);
                add(include_str!("shaders/rope.wgsl"));
            }
            Self::Copy { aligned } => {
                add(if aligned { "alias Element = vec4<f32>;" } else { "alias Element = f32;" });
                add(elements);
                add(include_str!("shaders/copy.wgsl"));
            }
            Self::Gather => {
                add(elements);
                add(include_str!("shaders/gather.wgsl"));
            }
            Self::Scatter => {
                add(elements);
                add(include_str!("shaders/scatter.wgsl"));
            }
            Self::Blend => {
                add(elements);
                add(include_str!("shaders/blend.wgsl"));
            }
            Self::Route => {
                add(activations);
                add(include_str!("shaders/route.wgsl"));
            }
            Self::Group => add(include_str!("shaders/group.wgsl")),
            Self::Parts => add(include_str!("shaders/parts.wgsl")),
            Self::Spread => {
                add(elements);
                add(include_str!("shaders/spread.wgsl"));
            }
            Self::Collect => {
                add(elements);
                add(include_str!("shaders/collect.wgsl"));
            }
            Self::Transpose => {
                add(elements);
                add(include_str!("shaders/transpose.wgsl"));
            }
            Self::Largest => add(include_str!("shaders/largest.wgsl")),
            Self::Embed { dtype } => {
                add(elements);
                add("@group(0) @binding(1) var<storage, read> weight: array<Packed>;");
                add(weights(dtype));
                add(include_str!("shaders/embed.wgsl"));
            }
            Self::Product { dtype, aligned, tile, experts } => {
                add(&format!("const TILE: u32 = {}u;", tile.side()));
                add(tiles(experts));
                add("@group(0) @binding(2) var<storage, read> weight: array<Packed>;");
                add(weights(dtype));
                add(rows(aligned));
                add(activations);
                add(include_str!("shaders/product.wgsl"));
            }
            Self::Skinny { dtype, aligned, rows: count, experts } => {
                add(&format!("const ROWS: u32 = {count}u;"));
                add("const TILE: u32 = ROWS;");
                add(tiles(experts));
                add("const THREADS: u32 = 64u;");
                add("@group(0) @binding(2) var<storage, read> weight: array<Packed>;");
                add(weights(dtype));
                add(rows(aligned));
                add(activations);
                add(reduce);
                add(include_str!("shaders/skinny.wgsl"));
            }
            Self::Attention { head, aligned } => {
                add(&format!("const HEAD: u32 = {head}u;"));
                add(include_str!("shaders/parts/sight.wgsl"));
                add(heads(aligned));
                add(include_str!("shaders/attention.wgsl"));
            }
            Self::AttentionRow { head, aligned } => {
                add(&format!("const HEAD: u32 = {head}u;"));
                add(&format!("const THREADS: u32 = {ATTENTION_KEYS}u;"));
                add(include_str!("shaders/parts/sight.wgsl"));
                add(heads(aligned));
                add(reduce);
                add(include_str!("shaders/attention_row.wgsl"));
            }
            Self::AttentionJoin { head } => {
                add(&format!("const HEAD: u32 = {head}u;"));
                add(elements);
                add(include_str!("shaders/attention_join.wgsl"));
            }
            Self::Multiply => add(include_str!("shaders/multiply.wgsl")),
        }
        text
    }

    /// Every kernel in every variant of its constants, for heads of the given sizes.
    #[cfg(test)]
    pub(super) fn all(heads: &[usize]) -> Vec<Self> {
        let mut all = vec![
            Self::Map,
            Self::Combine,
            Self::Norm,
            Self::Rope,
            Self::Copy { aligned: false },
            Self::Copy { aligned: true },
            Self::Gather,
            Self::Scatter,
            Self::Blend,
            Self::Route,
            Self::Group,
            Self::Parts,
            Self::Spread,
            Self::Collect,
            Self::Transpose,
            Self::Largest,
            Self::Multiply,
        ];
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            all.push(Self::Embed { dtype });
            for aligned in [true, false] {
                for experts in [false, true] {
                    let (tiles, rows) = ([Tile::Small, Tile::Large], [1, 2, 4, 8]);
                    all.extend(tiles.map(|tile| Self::Product { dtype, aligned, tile, experts }));
                    all.extend(rows.map(|rows| Self::Skinny { dtype, aligned, rows, experts }));
                }
            }
        }
        for &head in heads {
            all.push(Self::AttentionJoin { head });
            for aligned in [false, true] {
                if !aligned || head % 4 == 0 {
                    all.push(Self::Attention { head, aligned });
                    all.push(Self::AttentionRow { head, aligned });
                }
            }
        }
        all
    }
}

/// Compiled kernels of one device.
pub(super) struct Pipelines {
    device: Device,
    abilities: Abilities,
    /// By number of inputs.
    layouts: Vec<(BindGroupLayout, PipelineLayout)>,
    compiled: Mutex<HashMap<Kernel, Arc<ComputePipeline>>>,
}

impl Pipelines {
    pub(super) fn new(opened: &Opened) -> Self {
        let device = opened.device.clone();
        let layouts = (0..=MOST_INPUTS).map(|inputs| {
            let entries: Vec<BindGroupLayoutEntry> = (0..=inputs as u32)
                .map(|binding| BindGroupLayoutEntry {
                    binding,
                    visibility: ShaderStages::COMPUTE,
                    ty: BindingType::Buffer {
                        ty: BufferBindingType::Storage { read_only: binding > 0 },
                        has_dynamic_offset: false,
                        min_binding_size: None,
                    },
                    count: None,
                })
                .collect();
            let bindings = device.create_bind_group_layout(&BindGroupLayoutDescriptor {
                label: None,
                entries: &entries,
            });
            let layout = device.create_pipeline_layout(&PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: &[Some(&bindings)],
                immediate_size: PARAMETER_BYTES,
            });
            (bindings, layout)
        });
        Self {
            layouts: layouts.collect(),
            abilities: Abilities {
                subgroups: opened.subgroups,
                half_precision: opened.half_precision,
            },
            compiled: Mutex::default(),
            device,
        }
    }

    /// How buffers are bound for a kernel with so many inputs.
    pub(super) fn layout(&self, inputs: usize) -> Result<&BindGroupLayout> {
        self.of_inputs(inputs).map(|(bindings, _)| bindings)
    }

    fn of_inputs(&self, inputs: usize) -> Result<&(BindGroupLayout, PipelineLayout)> {
        self.layouts.get(inputs).ok_or_else(|| {
            Error::new(ErrorKind::Backend, format!("a kernel does not read {inputs} buffers"))
        })
    }

    /// The compiled kernel.
    pub(super) fn get(&self, kernel: Kernel, inputs: usize) -> Result<Arc<ComputePipeline>> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipeline) = compiled.get(&kernel) {
            return Ok(pipeline.clone());
        }
        let name = kernel.name();
        let scope = self.device.push_error_scope(ErrorFilter::Validation);
        let module = self.device.create_shader_module(ShaderModuleDescriptor {
            label: Some(&name),
            source: ShaderSource::Wgsl(kernel.source(self.abilities).into()),
        });
        let pipeline = self.device.create_compute_pipeline(&ComputePipelineDescriptor {
            label: Some(&name),
            layout: Some(&self.of_inputs(inputs)?.1),
            module: &module,
            entry_point: Some("main"),
            compilation_options: PipelineCompilationOptions {
                // every kernel writes what it shares before it reads it
                zero_initialize_workgroup_memory: false,
                ..PipelineCompilationOptions::default()
            },
            cache: None,
        });
        if let Some(reason) = pollster::block_on(scope.pop()) {
            return Err(Error::new(
                ErrorKind::Backend,
                format!("the device does not take the shader `{name}`"),
            )
            .with_source(reason.to_string()));
        }
        let pipeline = Arc::new(pipeline);
        compiled.insert(kernel, pipeline.clone());
        Ok(pipeline)
    }
}
