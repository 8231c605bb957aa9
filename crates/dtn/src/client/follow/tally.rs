//! Keeps account of copies that ended, by what the copy tells.

use std::collections::HashSet;

use tokio::sync::mpsc::UnboundedSender;
use whimbrel_engine::events::Event;
use whimbrel_engine::summary::{Summary, exit};

/// Tells the follower of each copy that ends, and the summary which failures were made good.
pub struct Tally {
    prefix: Vec<u8>,
    ended: UnboundedSender<Vec<u8>>,
    failed: HashSet<Vec<u8>>,
    made_good: HashSet<Vec<u8>>,
}

impl Tally {
    /// For files below `root`; their relative paths go to `ended`.
    pub fn new(root: &[u8], ended: UnboundedSender<Vec<u8>>) -> Self {
        let prefix = whimbrel_engine::listing::join(root, b"x");
        let prefix = prefix[..prefix.len() - 1].to_vec();
        Self { prefix, ended, failed: HashSet::new(), made_good: HashSet::new() }
    }

    /// Takes what happened; a summary is corrected.
    pub fn take(&mut self, event: &mut Event) {
        match event {
            Event::ItemDone { item, .. } => {
                if self.failed.remove(&item.source) {
                    self.made_good.insert(item.source.clone());
                }
                self.end(&item.source);
            }
            Event::ItemFailed(failure) => {
                self.failed.insert(failure.source.clone());
                self.end(&failure.source);
            }
            Event::ItemSkipped { source, .. } => self.end(source),
            Event::Summary(summary) => self.correct(summary),
            _ => {}
        }
    }

    /// Takes failures out of a summary whose files were copied in a later version.
    pub fn correct(&self, summary: &mut Summary) {
        let before = summary.failures.len();
        summary.failures.retain(|failure| self.failed.contains(&failure.source) || !self.made_good(&failure.source));
        summary.failed = summary.failed.saturating_sub((before - summary.failures.len()) as u64);
        if summary.failed == 0 && !summary.cancelled {
            summary.exit_code = exit::OK;
        }
    }

    fn made_good(&self, source: &[u8]) -> bool {
        self.made_good.contains(source)
    }

    fn end(&self, source: &[u8]) {
        if let Some(path) = source.strip_prefix(&self.prefix[..]) {
            // The follower may be over; nobody waits then.
            let _ = self.ended.send(path.to_vec());
        }
    }
}
