//! Family files: from TOML text to a typed description that is free of any checkpoint.
//!
//! A [`RawDescriptor`] is what the file says, merged over what it extends. Its `use` tables may pick parts by a config
//! value; [`RawDescriptor::describe`] merges the picked parts and types the result, reporting every problem at once.

pub mod audio;
pub mod block;
pub mod config;
pub mod expression;
pub mod family;
mod grammar;
pub mod image;
mod library;
mod lookup;
mod node;
mod part;
pub mod prompt;
mod raw;
mod read;
mod references;
pub mod resize;
mod schema;
pub mod slot;
pub mod strip;
pub mod symbolic;
pub mod tower;
mod validate;
mod whole;

use std::collections::BTreeSet;

pub use self::family::Family;
pub use self::library::{Library, nearest};
pub use self::node::{Node, NodeValue, Origin};
pub use self::part::Pick;
pub use self::raw::RawDescriptor;
pub use self::read::Read;
pub use self::schema::family_schema;
use crate::error::Result;
use crate::problem::Place;

/// A family, merged and typed, with a way back to the lines it came from.
#[derive(Debug, Clone)]
pub struct Descriptor {
    /// The name: the stem of its file.
    pub name: String,
    /// The typed tables.
    pub family: Family,
    /// The family as files of other versions have it, `[tensors.layouts]` merged over it.
    pub layouts: Vec<Layout>,
    source: Node,
    raw: Box<RawDescriptor>,
    reads: BTreeSet<Read>,
}

/// A family as files of another version store it.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Its name in `[tensors.layouts]`.
    pub name: String,
    /// The typed tables.
    pub family: Family,
    source: Node,
}

impl Layout {
    /// The merged tree.
    pub fn source(&self) -> &Node {
        &self.source
    }
}

impl AsRef<RawDescriptor> for Descriptor {
    fn as_ref(&self) -> &RawDescriptor {
        &self.raw
    }
}

impl AsRef<RawDescriptor> for RawDescriptor {
    fn as_ref(&self) -> &RawDescriptor {
        self
    }
}

impl Descriptor {
    /// Loads a family with the parts that stand where no checkpoint says otherwise: a path to a TOML file, or the name of an
    /// embedded one. Bound to a checkpoint, it takes the parts that this one picks.
    ///
    /// # Errors
    /// [`ErrorKind::Descriptor`](crate::error::ErrorKind::Descriptor) with every problem of the file.
    pub fn load(family: &str) -> Result<Self> {
        let raw = RawDescriptor::load(family)?;
        raw.describe(&raw.first_parts())
    }

    /// Where the dotted key path is written.
    pub fn place(&self, key: &str) -> Place {
        self.source.place(key)
    }

    /// Where the dotted key path is written in layout `index` of [`Self::layouts`]; `None` is the family itself.
    pub fn layout_place(&self, index: Option<usize>, key: &str) -> Place {
        let layout = index.and_then(|index| self.layouts.get(index));
        layout.map_or(&self.source, |layout| &layout.source).place(key)
    }

    /// What refers to what, in the family and in its layouts.
    pub fn reads(&self) -> impl Iterator<Item = &Read> {
        self.reads.iter()
    }

    /// The merged tree.
    pub fn source(&self) -> &Node {
        &self.source
    }
}
