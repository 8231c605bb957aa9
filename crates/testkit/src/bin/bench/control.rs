//! Which congestion control runs on a path: what may, and what `ss` says did.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use whimbrel_testkit::lab::Host;
use whimbrel_testkit::peers::Tool;

use crate::Outcome;

const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
/// Bytes after which a connection is one of data.
const DATA: u64 = 1 << 20;
const INTERVAL: Duration = Duration::from_millis(250);

/// What programs without rights may choose, on the whole machine; as it was before when this goes.
pub struct Allowed {
    before: String,
}

impl Allowed {
    /// Allows these only.
    pub fn only(names: &str) -> Outcome<Self> {
        let before = fs::read_to_string(ALLOWED)?;
        fs::write(ALLOWED, names)?;
        Ok(Self { before })
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        if let Err(error) = fs::write(ALLOWED, &self.before) {
            eprintln!("bench: {ALLOWED} was `{}` and cannot be set back: {error}", self.before.trim());
        }
    }
}

/// Does something, and says what the data connections of a host used meanwhile.
pub fn watched<T>(host: &Host, work: impl FnOnce() -> Outcome<T>) -> Outcome<(T, BTreeSet<String>)> {
    let known = fs::read_to_string(AVAILABLE)?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            while !over.load(Ordering::Relaxed) {
                if let Ok(run) = Tool::new("ss").args(["-tinH"]).on(host).run() {
                    seen.extend(controls(&run.stdout_text(), &known));
                }
                thread::park_timeout(INTERVAL);
            }
            seen
        });
        let result = work();
        over.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        let seen = watcher.join().map_err(|_| "the look at connections panicked")?;
        Ok((result?, seen))
    })
}

/// The controls of connections that have sent data, of what `ss -ti` prints.
fn controls(text: &str, known: &str) -> Vec<String> {
    let known: Vec<&str> = known.split_whitespace().collect();
    let details = text.lines().filter(|line| line.starts_with(char::is_whitespace));
    let of_data = details.filter(|line| {
        let sent = line.split_whitespace().find_map(|word| word.strip_prefix("bytes_sent:")?.parse::<u64>().ok());
        sent.is_some_and(|sent| sent >= DATA)
    });
    of_data.filter_map(|line| line.split_whitespace().find(|word| known.contains(word)).map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_data_tell_their_control() {
        let text = "ESTAB 0 0 10.0.0.1:2811 10.0.0.3:4000\n\t ts sack cubic wscale:10,10 rto:204 bytes_sent:900 bytes_acked:900\n\
                    ESTAB 0 9 10.0.0.1:5000 10.0.0.2:5001\n\t ts sack bbr wscale:10,10 rto:276 bytes_sent:7340032 bbr:(bw:1Mbps)\n";
        assert_eq!(controls(text, "reno bbr cubic\n"), ["bbr"]);
        assert!(controls("", "reno").is_empty());
    }
}
