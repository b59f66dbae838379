//! What refers to what.

/// One thing that refers to another: the key of the slot, and the key of what it names, such as `config.vision.patch`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Read {
    /// The slot.
    pub reader: String,
    /// What it names.
    pub key: String,
}
