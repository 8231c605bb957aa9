//! Grid Security Infrastructure: proxies, the authorities behind them, and who may speak for whom.

pub mod anchors;
pub mod crl;
pub mod host;
pub mod judge;

pub use anchors::{AnchorStore, Anchors};
pub use judge::{Judge, Kinds};
