//! Grid Security Infrastructure: proxies, the authorities behind them, and who may speak for whom.

pub mod acceptor;
pub mod anchors;
pub mod crl;
pub mod delegate;
pub mod deposit;
pub mod host;
pub mod initiator;
pub mod judge;
mod keys;
pub mod peers;
mod verify;
pub mod voms;

pub use acceptor::GsiAcceptor;
pub use anchors::{AnchorStore, Anchors};
pub use delegate::Delegate;
pub use initiator::GsiInitiator;
pub(crate) use judge::AMBIGUOUS;
pub use judge::{Judge, Kinds};
pub use keys::KeyPool;
pub use peers::{Expected, GsiJudge, Trusted};
pub use voms::Organizations;
