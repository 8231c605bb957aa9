//! Probes between all pairs of a set of collections, again and again: a table of how fast each way is.
//!
//! A probe is a task like any other, in its owner's name: what it measures is what users get, from disk to disk. One pair is
//! measured at a time, for probes beside each other would measure each other.

mod document;
mod records;
mod routes;
mod run;

pub use records::{Matrix, MatrixEnd, Measure};
pub use routes::routes;
