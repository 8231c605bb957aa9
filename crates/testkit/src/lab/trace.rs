//! A record of the packets that crossed the laboratory's links, for counting round trips.
//!
//! Times are those of the model, not of the thread that moves the packets: a packet that enters at *t* arrives at *t*
//! plus queue plus delay, even when a busy machine delivers it a little later.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::link::Verdict;
use super::packet::Packet;

/// How a packet's crossing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It reached the other end at this time on the laboratory's clock.
    Arrived(Duration),
    /// It was lost at random.
    Lost,
    /// The queue was full.
    QueueFull,
    /// The link was cut, or a firewall refused it.
    Blocked,
}

/// One packet on one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it entered the link, on the laboratory's clock.
    pub entered: Duration,
    /// How its crossing ended.
    pub fate: Fate,
    /// The host it came from on this link.
    pub from: String,
    /// The host it went to on this link.
    pub to: String,
    /// Size as an IP packet in bytes; with segmentation offload up to 64 KiB.
    pub bytes: usize,
    /// Its headers, when it is IP.
    pub packet: Option<Packet>,
    /// The first bytes that it carries, at most 512, if it is TCP with no more than 4 KiB: lines of a dialogue.
    pub words: Vec<u8>,
}

impl Record {
    /// Whether these are among its words.
    pub fn says(&self, words: &[u8]) -> bool {
        self.words.windows(words.len().max(1)).any(|part| part == words)
    }

    fn is_tcp_on(&self, port: u16) -> bool {
        let ports = self.packet.and_then(|packet| packet.tcp.and(packet.ports));
        ports.is_some_and(|(source, destination)| source == port || destination == port)
    }

    fn payload(&self) -> usize {
        self.packet.and_then(|packet| packet.tcp).map_or(0, |tcp| tcp.payload)
    }
}

/// Packets in the order in which they entered their links, with filters that keep a part of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    records: Vec<Record>,
}

impl Trace {
    #[cfg(test)]
    pub(crate) fn of(records: Vec<Record>) -> Trace {
        Trace { records }
    }

    /// All records left after the filters so far.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Keeps what crossed the link between these two hosts, either way.
    pub fn between(self, a: &str, b: &str) -> Trace {
        self.keep(|record| (record.from == a && record.to == b) || (record.from == b && record.to == a))
    }

    /// Keeps TCP.
    pub fn tcp(self) -> Trace {
        self.keep(|record| record.packet.is_some_and(|packet| packet.tcp.is_some()))
    }

    /// Keeps TCP from or to this port.
    pub fn port(self, port: u16) -> Trace {
        self.keep(|record| record.is_tcp_on(port))
    }

    /// Keeps packets with payload, dropping bare acknowledgements and openings.
    pub fn with_payload(self) -> Trace {
        self.keep(|record| record.payload() > 0)
    }

    /// Keeps what entered in this time of the laboratory's clock; for commands whose sockets close after their exit.
    pub fn during(self, from: Duration, until: Duration) -> Trace {
        self.keep(|record| (from..=until).contains(&record.entered))
    }

    /// Keeps what `wanted` says.
    pub fn keep(mut self, wanted: impl Fn(&Record) -> bool) -> Trace {
        self.records.retain(wanted);
        self
    }

    /// Payload bytes of TCP, retransmissions included.
    pub fn payload_bytes(&self) -> u64 {
        self.records.iter().map(|record| record.payload() as u64).sum()
    }

    /// From the entry of the first packet to the last arrival; zero when nothing arrived.
    pub fn span(&self) -> Duration {
        let last = self.records.iter().filter_map(|record| match record.fate {
            Fate::Arrived(at) => Some(at),
            _ => None,
        });
        let first = self.records.iter().map(|record| record.entered).min();
        last.max().zip(first).map_or(Duration::ZERO, |(last, first)| last.saturating_sub(first))
    }

    /// [`Trace::span`] in round trips of `rtt`: the cost of an exchange, thinking time of both ends included.
    pub fn round_trips(&self, rtt: Duration) -> f64 {
        self.span().as_secs_f64() / rtt.as_secs_f64()
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for record in &self.records {
            let Record { from, to, bytes, fate, .. } = record;
            write!(f, "{:10.3} ms {from} -> {to} {bytes} bytes ", record.entered.as_secs_f64() * 1e3)?;
            match record.packet {
                Some(packet) => writeln!(f, "{packet} {fate:?}")?,
                None => writeln!(f, "{fate:?}")?,
            }
        }
        Ok(())
    }
}

/// Where the links of one laboratory write, when somebody asked for it.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    on: AtomicBool,
    trace: Mutex<Trace>,
}

impl Recorder {
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Forgets what was recorded and begins anew.
    pub(crate) fn start(&self) {
        self.trace.lock().unwrap_or_else(PoisonError::into_inner).records.clear();
        self.on.store(true, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Trace {
        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner).clone();
        trace.records.sort_by_key(|record| record.entered);
        trace
    }

    pub(crate) fn add(&self, record: Record) {
        self.trace.lock().unwrap_or_else(PoisonError::into_inner).records.push(record);
    }
}

impl From<Verdict> for Fate {
    fn from(verdict: Verdict) -> Fate {
        match verdict {
            Verdict::Deliver(due) => Fate::Arrived(Duration::from_nanos(due)),
            Verdict::Lost => Fate::Lost,
            Verdict::QueueFull => Fate::QueueFull,
            Verdict::Cut => Fate::Blocked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::Tcp;
    use super::*;

    fn record(entered_ms: u64, from: &str, to: &str, port: u16, payload: usize) -> Record {
        let tcp = Tcp { sequence: 0, acknowledgment: 0, flags: 16, payload };
        let address = std::net::IpAddr::from([10, 0, 0, 1]);
        Record {
            entered: Duration::from_millis(entered_ms),
            fate: Fate::Arrived(Duration::from_millis(entered_ms + 50)),
            from: from.into(),
            to: to.into(),
            bytes: payload + 40,
            packet: Some(Packet {
                source: address,
                destination: address,
                protocol: 6,
                ports: Some((port, 9)),
                tcp: Some(tcp),
            }),
            words: Vec::new(),
        }
    }

    fn trace() -> Trace {
        let records = vec![
            record(0, "a", "b", 21, 0),
            record(100, "b", "a", 21, 10),
            record(150, "a", "c", 22, 10),
            record(450, "a", "b", 21, 0),
        ];
        Trace { records }
    }

    #[test]
    fn round_trips_count_from_the_first_entry_to_the_last_arrival() {
        assert_eq!(trace().span(), Duration::from_millis(500));
        assert_eq!(trace().round_trips(Duration::from_millis(100)), 5.0);
        assert_eq!(Trace::default().round_trips(Duration::from_millis(100)), 0.0);
    }

    #[test]
    fn filters_keep_a_link_a_port_payload_or_a_time() {
        assert_eq!(trace().between("b", "a").records().len(), 3);
        assert_eq!(trace().port(22).records().len(), 1);
        assert_eq!(trace().with_payload().payload_bytes(), 20);
        let early = trace().during(Duration::ZERO, Duration::from_millis(100));
        assert_eq!(early.span(), Duration::from_millis(150));
        assert_eq!(trace().tcp().records().len(), 4);
    }

    #[test]
    fn a_trace_starts_empty_each_time_it_is_started() {
        let recorder = Recorder::default();
        assert!(!recorder.is_on());
        recorder.start();
        recorder.add(record(2, "a", "b", 1, 0));
        recorder.add(record(1, "a", "b", 1, 0));
        assert_eq!(recorder.snapshot().records()[0].entered, Duration::from_millis(1));
        recorder.start();
        assert_eq!(recorder.snapshot(), Trace::default());
    }
}
