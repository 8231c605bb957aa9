//! Data channels: tuned TCP, MODE E and MODE S loops, buffer pool, rate limits, checksums.
//!
//! Threads and blocking calls, no async: a transfer runs on its caller's thread, joined by more
//! when it is large. Every wait obeys its [`Cancel`] token.

pub mod block;
pub mod cancel;
pub mod channel;
pub mod contract;
pub mod digest;
pub mod faulty;
pub mod flow;
pub mod leaves;
pub mod local;
pub mod mode_e;
pub mod mode_s;
pub mod pool;
pub mod progress;
pub mod rate;
pub mod secure;
pub mod tcp;
pub mod times;
pub mod watch;

pub use block::{BlockSink, BlockSource, Run};
pub use cancel::Cancel;
pub use channel::{ChannelStats, DataChannel, PathStats};
pub use flow::{Flow, StallPolicy};
pub use leaves::{Digests, Leaves};
pub use pool::{Pool, PoolLimits};
pub use progress::Progress;
pub use rate::RateLimit;
pub use times::{Activity, Stopwatch, Times, TimesTaken};
pub use watch::{ChannelWatch, Watched};
