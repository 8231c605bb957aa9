//! What an earlier run of the same copy, which was cut short, has finished.

use std::fmt;

use super::Item;
use crate::listing::Object;

/// What is known of a file from an earlier run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// Nothing, or it is another version, or the copy is not what that run has left.
    No,
    /// It was moved; nobody knows what of it a crash of the destination has left.
    Perhaps,
    /// It was moved and made durable.
    Yes,
}

/// Remembers what an earlier run has finished.
pub trait Earlier: fmt::Debug {
    /// Whether `item` is among that, with `existing` under the name of its copy.
    fn finished(&self, item: &Item, existing: &Object) -> Finished;
}
