//! Where the time of a transfer went, from what its loops and the kernel counted.

use std::time::Duration;

use whimbrel_proto::op::{Notice, Spent};
use whimbrel_transport::{Progress, Times};

use super::worker::Task;

/// Transfers of fewer bytes are told together with those that follow, once they have this many: each alone would cost as
/// much to tell as it did.
const WORTH_TELLING: u64 = 1 << 20;
/// The same for their time, microseconds.
const WORTH_TELLING_TIME: u64 = 200_000;

/// What a transfer over the data handle has spent; connections must still be open to be counted.
pub fn of(progress: &Progress) -> Spent {
    let mut spent = of_loops(progress.bytes(), progress.times());
    ask_kernel(progress, &mut spent);
    spent
}

fn of_loops(bytes: u64, times: &Times) -> Spent {
    let times = times.taken();
    Spent {
        bytes,
        took: micros(times.took),
        threads: micros(times.threads),
        storage: micros(times.storage),
        network: micros(times.network),
        hash: micros(times.hash),
        hash_cpu: micros(times.hash_cpu),
        cpu: micros(times.cpu),
        delay: micros(times.delay),
        ..Spent::default()
    }
}

/// Adds what the kernel counted of the connections since it was asked last.
fn ask_kernel(progress: &Progress, spent: &mut Spent) {
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
        let least = micros(stats.path.min_rtt);
        if least > 0 && (spent.rtt_least == 0 || least < spent.rtt_least) {
            spent.rtt_least = least;
        }
        spent.mss = spent.mss.max(news.mss);
        if spent.congestion.is_empty() {
            spent.congestion = channel.congestion().unwrap_or_default();
        }
    }
}

/// Tells it, before the outcome, with what was not worth telling before.
pub fn tell(task: &mut Task<'_>, progress: &Progress) {
    let one = of_loops(progress.bytes(), progress.times());
    if one.threads == 0 {
        return;
    }
    let sum = &mut task.session.untold;
    sum.add(&one);
    if sum.bytes >= WORTH_TELLING || sum.took >= WORTH_TELLING_TIME {
        let mut sum = std::mem::take(sum);
        ask_kernel(progress, &mut sum);
        task.reporter.notice(Notice::Spent(Box::new(sum)));
    }
}

/// What proving what was stored has spent; `None` if nothing was proven.
pub fn of_proof(times: &Times) -> Option<Spent> {
    let times = times.taken();
    (!times.threads.is_zero()).then(|| Spent {
        proof: micros(times.threads),
        proof_storage: micros(times.storage),
        proof_hash: micros(times.hash),
        proof_cpu: micros(times.cpu),
        proof_hash_cpu: micros(times.hash_cpu),
        proof_delay: micros(times.delay),
        ..Spent::default()
    })
}

/// Keeps what finishing a small file has spent, to be told with a later transfer: on the thread that moved it, so that it
/// lies beside nothing else.
pub fn keep(task: &mut Task<'_>, times: &Times) {
    task.session.untold.add(&of_loops(0, times));
}

/// Whole microseconds.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
