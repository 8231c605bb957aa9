//! How many trips one after the other an exchange took, counted from its packets and not by the clock.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use super::packet::{Packet, Tcp};
use super::trace::{Fate, Record, Trace};

impl Trace {
    /// One-way trips, each begun after the end of the one before, until `host` was where it was at `until`: two make a round trip.
    ///
    /// Every host has a logical clock (Lamport 1978): a packet leaves with its sender's count, and on arrival the receiver's
    /// count becomes that plus one, if it was less. Only connections count whose opening was recorded, and only packets that bring
    /// something new, hence no retransmissions; a bare acknowledgement lets nothing but its own connection go on, unless it completes the opening.
    ///
    /// Between two bounds, when links lose nothing and all have one delay: never less than the longest chain of packets each of which
    /// waited for the one before, because what a host had not received cannot have caused what it sent; and never more than the time since the
    /// first packet by the delay. Time spent computing between the trips of a chain is not counted. Where a host has two chains, and one falls
    /// behind the other by a trip or more, they may be taken for one that is longer: it errs upwards only. In a laboratory in
    /// [lockstep](super::LabBuilder::lockstep) no chain falls behind.
    pub fn one_way_trips(&self, host: &str, until: Duration) -> u32 {
        let mut clocks = Clocks::default();
        for (_, number, step) in steps(self.records(), until) {
            clocks.take(number, &self.records()[number], step);
        }
        clocks.hosts.get(host).copied().unwrap_or(0)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Entry,
    Arrival,
}

/// What happened until then, in order; what arrives at the instant of an entry may have caused it, so it comes first.
fn steps(records: &[Record], until: Duration) -> Vec<(Duration, usize, Step)> {
    let mut steps = Vec::new();
    for (number, record) in records.iter().enumerate() {
        let Fate::Arrived(at) = record.fate else { continue };
        steps.extend([(record.entered, number, Step::Entry), (at, number, Step::Arrival)]);
    }
    steps.retain(|(time, ..)| *time <= until);
    // Records are in the order of their entries: an arrival's number is smaller than that of whatever enters later.
    steps.sort_unstable();
    steps
}

/// One direction of a connection: where from and where to.
type Way = [(IpAddr, u16); 2];

fn way(packet: &Packet) -> Option<(Way, Tcp)> {
    let (source, destination) = packet.ports?;
    Some(([(packet.source, source), (packet.destination, destination)], packet.tcp?))
}

/// What one host has sent one way.
struct Sent {
    /// Sequence number behind the last byte.
    end: u32,
    /// Whether nothing but the opening packet was sent, and by the side that opens: the next packet completes the opening.
    opening: bool,
}

/// What a packet on its way lets its receiver do.
#[derive(Clone, Copy)]
enum Reach {
    /// Anything.
    Host,
    /// Send more on its connection.
    Connection(Way),
}

#[derive(Default)]
struct Clocks<'a> {
    hosts: HashMap<&'a str, u32>,
    /// What bare acknowledgements allow, by the way that they let go on.
    ways: HashMap<Way, u32>,
    sent: HashMap<(&'a str, Way), Sent>,
    /// Packets on their way, by the number of their record.
    carried: HashMap<usize, (u32, Reach)>,
}

impl<'a> Clocks<'a> {
    fn take(&mut self, number: usize, record: &'a Record, step: Step) {
        match step {
            Step::Entry => self.enter(number, record),
            Step::Arrival => self.arrive(number, record),
        }
    }

    fn enter(&mut self, number: usize, record: &'a Record) {
        let Some((way, tcp)) = record.packet.as_ref().and_then(way) else { return };
        let Some(reach) = self.reach(&record.from, way, &tcp) else { return };
        let host = self.hosts.get(record.from.as_str()).copied().unwrap_or(0);
        let allowed = self.ways.get(&way).copied().unwrap_or(0);
        self.carried.insert(number, (host.max(allowed), reach));
    }

    fn arrive(&mut self, number: usize, record: &'a Record) {
        let Some((carried, reach)) = self.carried.remove(&number) else { return };
        let count = match reach {
            Reach::Host => self.hosts.entry(&record.to).or_default(),
            Reach::Connection(way) => self.ways.entry(way).or_default(),
        };
        *count = (*count).max(carried + 1);
    }

    /// `None` for what brings nothing new, and for connections that are older than the trace.
    fn reach(&mut self, host: &'a str, way: Way, tcp: &Tcp) -> Option<Reach> {
        let length = tcp.payload as u32 + u32::from(tcp.syn()) + u32::from(tcp.fin());
        let end = tcp.sequence.wrapping_add(length);
        let Some(sent) = self.sent.get_mut(&(host, way)) else {
            let opening = tcp.syn() && !tcp.ack();
            return tcp.syn().then(|| self.sent.insert((host, way), Sent { end, opening })).map(|_| Reach::Host);
        };
        // RFC 9293 §3.4: sequence numbers are compared modulo 2^32.
        let new = end.wrapping_sub(sent.end).cast_signed() > 0;
        if length > 0 && !new {
            return None;
        }
        let completes = std::mem::take(&mut sent.opening);
        sent.end = if new { end } else { sent.end };
        let bare = length == 0 && !tcp.rst() && !completes;
        Some(if bare { Reach::Connection([way[1], way[0]]) } else { Reach::Host })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: u64 = 100;
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    const FIN: u8 = 17;

    /// A packet of a connection between two hosts, which are told by the last byte of their addresses.
    fn packet(ms: u64, [from, to]: [&str; 2], flags: u8, sequence: u32, payload: usize) -> Record {
        let address = |host: &str| IpAddr::from([10, 0, 0, host.as_bytes()[0]]);
        let tcp = Tcp { sequence, acknowledgment: 0, flags, payload };
        Record {
            entered: Duration::from_millis(ms),
            fate: Fate::Arrived(Duration::from_millis(ms + DELAY)),
            from: from.into(),
            to: to.into(),
            bytes: payload + 40,
            packet: Some(Packet {
                source: address(from),
                destination: address(to),
                protocol: 6,
                ports: Some((21, 21)),
                tcp: Some(tcp),
            }),
            words: Vec::new(),
        }
    }

    fn count(records: Vec<Record>, host: &str, until_ms: u64) -> u32 {
        Trace::of(records).one_way_trips(host, Duration::from_millis(until_ms))
    }

    const THERE: [&str; 2] = ["c", "s"];
    const BACK: [&str; 2] = ["s", "c"];

    /// A connection is opened, the server greets, a command is answered; each after `thinking` milliseconds.
    fn dialogue(thinking: u64) -> Vec<Record> {
        let hop = DELAY + thinking;
        vec![
            packet(0, THERE, SYN, 0, 0),
            packet(hop, BACK, SYN | ACK, 0, 0),
            packet(2 * hop, THERE, ACK, 1, 0),
            packet(3 * hop, BACK, ACK, 1, 10),
            packet(4 * hop, THERE, ACK, 1, 5),
            packet(5 * hop, BACK, ACK, 11, 10),
            packet(6 * hop, THERE, FIN, 6, 0),
        ]
    }

    #[test]
    fn a_dialogue_takes_the_same_trips_however_long_its_ends_think() {
        for thinking in [0, 1, 99, 1000] {
            assert_eq!(count(dialogue(thinking), "c", 100_000), 6, "{thinking}");
            assert_eq!(count(dialogue(thinking), "s", 100_000), 7, "{thinking}");
        }
    }

    #[test]
    fn what_arrives_after_the_end_does_not_count() {
        assert_eq!(count(dialogue(0), "c", 599), 4);
        assert_eq!(count(dialogue(0), "c", 600), 6);
        assert_eq!(count(dialogue(0), "nobody", 600), 0);
    }

    #[test]
    fn retransmissions_and_connections_of_before_do_not_count() {
        let mut records = dialogue(0);
        // The command once more, after its reply: it brings the server nothing.
        records.push(packet(650, THERE, ACK, 1, 5));
        assert_eq!(count(records, "s", 755), 7);
        let older = dialogue(0).split_off(3);
        assert_eq!(count(older, "c", 10_000), 0);
    }

    #[test]
    fn lost_packets_count_when_they_come_through() {
        let mut records = dialogue(0);
        let again = packet(1000, THERE, SYN, 0, 0);
        records[0].fate = Fate::Lost;
        records.truncate(1);
        records.push(again);
        assert_eq!(count(records, "s", 2000), 1);
    }

    #[test]
    fn a_bare_acknowledgement_lets_only_its_own_connection_go_on() {
        let mut records = dialogue(0);
        records.truncate(6);
        // The client acknowledges; with that, after a long time, the server says more, and it speaks to a third host.
        records.push(packet(600, THERE, ACK, 6, 0));
        records.push(packet(750, ["s", "t"], SYN, 0, 0));
        records.push(packet(800, BACK, ACK, 21, 10));
        assert_eq!(count(records.clone(), "t", 10_000), 6, "after the command, which the server had at 5");
        assert_eq!(count(records, "c", 10_000), 8, "the acknowledgement arrived at 7");
    }

    #[test]
    fn chains_beside_each_other_are_as_long_as_the_longer_one() {
        let mut records = dialogue(0);
        let other = |record: Record| {
            let rename = |name: String| if name == "s" { "t".into() } else { name };
            let (from, to) = (rename(record.from.clone()), rename(record.to.clone()));
            let tcp = record.packet.and_then(|packet| packet.tcp).expect("TCP");
            packet(record.entered.as_millis() as u64 + 60, [&from, &to], tcp.flags, tcp.sequence, tcp.payload)
        };
        records.extend(dialogue(0).into_iter().map(other));
        records.sort_by_key(|record| record.entered);
        assert_eq!(count(records, "c", 10_000), 6);
    }

    #[test]
    fn sequence_numbers_may_pass_their_end() {
        let start = u32::MAX - 3;
        let records = vec![
            packet(0, THERE, SYN, start, 0),
            packet(100, BACK, SYN | ACK, 0, 0),
            packet(200, THERE, ACK, start.wrapping_add(1), 10),
            packet(300, BACK, ACK, 1, 10),
            packet(400, THERE, ACK, start.wrapping_add(11), 10),
        ];
        assert_eq!(count(records, "s", 10_000), 5);
    }
}
