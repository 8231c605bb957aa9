//! A look at a data channel from other threads while a transfer uses it.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use crate::channel::{ChannelStats, PathStats};

/// The part of a data channel that can be looked at from anywhere.
pub trait Watched: Send + Sync {
    /// Counters as of now.
    fn stats(&self) -> ChannelStats;

    /// Congestion control in use; `None` where there is none.
    fn congestion(&self) -> Option<String> {
        None
    }

    /// Send and receive buffer as they are now, bytes as the kernel counts them.
    fn buffers(&self) -> Option<(u64, u64)> {
        None
    }

    /// Of the sums in `path`, what no earlier call was told; what is no sum stays.
    fn untold_path(&self, path: PathStats) -> PathStats {
        path
    }

    /// Of `retransmits`, those that no earlier call was told: every one is counted once, whoever asks.
    fn untold(&self, retransmits: u64) -> u64;
}

/// A channel in use by one transfer; does not keep it open.
#[derive(Clone)]
pub struct ChannelWatch {
    peer: Option<SocketAddr>,
    /// What it had carried before this transfer.
    before: u64,
    channel: Weak<dyn Watched>,
}

impl ChannelWatch {
    /// Watches from now on; `carried` are the bytes it has carried so far in either direction.
    pub(crate) fn new(channel: &Arc<dyn Watched>, peer: Option<SocketAddr>, carried: u64) -> Self {
        Self { peer, before: carried, channel: Arc::downgrade(channel) }
    }

    /// The other end; `None` for channels inside one process.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Whether the channel is still open.
    pub fn is_open(&self) -> bool {
        self.channel.strong_count() > 0
    }

    /// Bytes carried for this transfer, headers included, and the channel's counters; `None` when it is closed.
    pub fn look(&self) -> Option<(u64, ChannelStats)> {
        let stats = self.channel.upgrade()?.stats();
        Some(((stats.bytes_sent + stats.bytes_received).saturating_sub(self.before), stats))
    }

    /// [`Watched::congestion`] of a channel that is still open.
    pub fn congestion(&self) -> Option<String> {
        self.channel.upgrade()?.congestion()
    }

    /// [`Watched::buffers`] of a channel that is still open.
    pub fn buffers(&self) -> Option<(u64, u64)> {
        self.channel.upgrade()?.buffers()
    }

    /// [`Watched::untold_path`] of a channel that is still open.
    pub fn untold_path(&self, path: PathStats) -> PathStats {
        self.channel.upgrade().map_or(PathStats::default(), |channel| channel.untold_path(path))
    }

    /// [`Watched::untold`] of a channel that is still open.
    pub fn untold(&self, retransmits: u64) -> u64 {
        self.channel.upgrade().map_or(0, |channel| channel.untold(retransmits))
    }
}
