//! Where the time of a transfer went, from what its loops and the kernel counted.

use std::time::Duration;

use whimbrel_proto::op::{Notice, Spent};
use whimbrel_transport::{Progress, Times};

use super::worker::Task;

/// Transfers of fewer bytes are not told: it would cost as much as they do.
const WORTH_TELLING: u64 = 1 << 20;

/// What a transfer over the data handle has spent; connections must still be open to be counted.
pub fn of(progress: &Progress) -> Spent {
    let times = progress.times().taken();
    let mut spent = Spent {
        bytes: progress.bytes(),
        took: micros(times.took),
        threads: micros(times.threads),
        storage: micros(times.storage),
        network: micros(times.network),
        hash: micros(times.hash),
        cpu: micros(times.cpu),
        delay: micros(times.delay),
        ..Spent::default()
    };
    for channel in progress.channels() {
        let Some((_, stats)) = channel.look() else { continue };
        let news = channel.untold_path(stats.path);
        spent.channels += 1;
        spent.busy += micros(news.busy);
        spent.window_limited += micros(news.window_limited);
        spent.buffer_limited += micros(news.buffer_limited);
        spent.bytes_sent += news.bytes_sent;
        spent.bytes_resent += news.bytes_resent;
        spent.rtt = spent.rtt.max(micros(stats.rtt));
        spent.mss = spent.mss.max(news.mss);
        if spent.congestion.is_empty() {
            spent.congestion = channel.congestion().unwrap_or_default();
        }
    }
    spent
}

/// Tells it, before the outcome.
pub fn tell(task: &mut Task<'_>, progress: &Progress) {
    if progress.bytes() >= WORTH_TELLING && !progress.times().taken().threads.is_zero() {
        task.reporter.notice(Notice::Spent(Box::new(of(progress))));
    }
}

/// What proving what was stored has spent; `None` if nothing was proven.
pub fn of_proof(times: &Times) -> Option<Spent> {
    let times = times.taken();
    (!times.threads.is_zero()).then(|| Spent {
        proof: micros(times.threads),
        proof_storage: micros(times.storage),
        proof_hash: micros(times.hash),
        proof_delay: micros(times.delay),
        ..Spent::default()
    })
}

/// Whole microseconds.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
