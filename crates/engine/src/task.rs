//! What a task is while it lives: its items' states, its counters, and what may follow what.
//!
//! A task's counters change by [`Counters::step`] only, one item at a time, in the transaction that changes the
//! item; adding up all items from nothing gives the same numbers, which is how they are proven.

mod counters;
mod options;
mod path;
mod state;
#[cfg(test)]
mod tests;

pub use counters::Counters;
pub use options::{
    DeleteOptions, ExternalChecksum, Filter, FilterMethod, FilterRule, FilterType, Follow, Perf, Symlinks,
    TransferOptions,
};
pub use path::{InvalidPath, inside, normal};
pub use state::{ItemKind, ItemRecord, ItemState, Status};
