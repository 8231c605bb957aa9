//! Sans-IO transfer logic: what to move, in which order, what failed and what to do about it.
//!
//! Nothing here performs I/O, reads a clock or knows a wire protocol: time and observations are
//! arguments, decisions are return values.

pub mod auto;
pub mod dispatch;
pub mod events;
pub mod fault;
pub mod follow;
pub mod guard;
pub mod journal;
pub mod listing;
pub mod model;
pub mod pattern;
pub mod plan;
pub mod probe;
pub mod progress;
pub mod ranges;
mod records;
pub mod retry;
pub mod summary;
pub mod tally;
pub mod task;
pub mod transfer;
pub mod tune;
pub mod units;

pub use fault::{Fault, FaultCode, Retry, Side};
pub use ranges::RangeSet;
