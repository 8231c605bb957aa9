//! Where the time of a run went, from what the ends tell of each transfer: the figures behind [`super::Bottleneck`].

use std::time::Duration;

use super::explain::Figures;

/// What one end has spent, all its transfers together; times in microseconds, those of threads at work at the same time
/// add up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndSpent {
    /// Bytes moved.
    pub bytes: u64,
    /// From the beginning of each transfer's data to their end.
    pub took: u64,
    /// What the threads of the transfers had in all.
    pub threads: u64,
    /// In calls that read or write storage.
    pub storage: u64,
    /// Waiting for the data connections.
    pub network: u64,
    /// Hashing what passes.
    pub hash: u64,
    /// Of this, on a processor.
    pub hash_cpu: u64,
    /// On a processor, whatever for.
    pub cpu: u64,
    /// Kept waiting for a processor, whatever was under way.
    pub delay: u64,
    /// Proving what was stored: the whole of which the next two are parts.
    pub proof: u64,
    /// Reading back and making durable what was stored.
    pub proof_storage: u64,
    /// Hashing what was read back.
    pub proof_hash: u64,
    /// While proving, on a processor.
    pub proof_cpu: u64,
    /// Of this, hashing.
    pub proof_hash_cpu: u64,
    /// Kept waiting for a processor while proving.
    pub proof_delay: u64,
    /// What the kernel had something to send.
    pub busy: u64,
    /// Of this, held by the receiver's window.
    pub window: u64,
    /// Of this, held by the send buffer.
    pub buffer: u64,
    /// Bytes sent by TCP.
    pub sent: u64,
    /// Bytes sent again.
    pub resent: u64,
}

/// What both ends have spent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spending {
    /// The source; nothing if it does not tell.
    pub source: EndSpent,
    /// The destination; nothing if it does not tell.
    pub destination: EndSpent,
}

const FIELDS: [fn(&mut EndSpent) -> &mut u64; 20] = [
    |s| &mut s.bytes,
    |s| &mut s.took,
    |s| &mut s.threads,
    |s| &mut s.storage,
    |s| &mut s.network,
    |s| &mut s.hash,
    |s| &mut s.hash_cpu,
    |s| &mut s.cpu,
    |s| &mut s.delay,
    |s| &mut s.proof,
    |s| &mut s.proof_storage,
    |s| &mut s.proof_hash,
    |s| &mut s.proof_cpu,
    |s| &mut s.proof_hash_cpu,
    |s| &mut s.proof_delay,
    |s| &mut s.busy,
    |s| &mut s.window,
    |s| &mut s.buffer,
    |s| &mut s.sent,
    |s| &mut s.resent,
];

/// Threads that get no more than this part of the time in which they could run are short of processors.
const SHORT: f64 = 0.6;

impl EndSpent {
    /// Adds another transfer.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, u64::saturating_add);
    }

    /// What has been spent since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let mut news = self.clone();
        news.combine(before, u64::saturating_sub);
        news
    }

    fn combine(&mut self, other: &Self, with: fn(u64, u64) -> u64) {
        let mut other = other.clone();
        for field in FIELDS {
            *field(self) = with(*field(self), *field(&mut other));
        }
    }

    /// What the threads had, without what they waited for processors.
    fn undelayed(&self) -> f64 {
        if self.threads == 0 { 1.0 } else { 1.0 - (self.delay as f64 / self.threads as f64).min(1.0) }
    }

    /// The same while proving.
    fn proof_undelayed(&self) -> f64 {
        if self.proof == 0 { 1.0 } else { 1.0 - (self.proof_delay as f64 / self.proof as f64).min(1.0) }
    }

    /// The share of the time in which no data were moved, nor proven.
    fn idle(&self, whole: f64) -> f64 {
        if self.tells() && whole > 0.0 { (1.0 - self.took.max(self.proof) as f64 / whole).max(0.0) } else { 0.0 }
    }

    /// Waiting for the data connections, without waiting for processors.
    fn waits(&self, whole: f64) -> f64 {
        self.share(self.network, whole) * self.undelayed()
    }

    /// Hashing what passes, or what was read back.
    fn hashing(&self, whole: f64) -> f64 {
        let proof = if whole > 0.0 { self.proof_hash as f64 / whole } else { 0.0 };
        self.share(self.hash, whole).max(proof)
    }

    /// The shares of processors and of hashing. Where processors are short, what threads ran and waited to run is one stage,
    /// with what lay between transfers while the `other` end waited; its name is hashing if that had most of the processor.
    fn processors(&self, other: &Self, whole: f64) -> (f64, f64) {
        let hashing = self.hashing(whole);
        let between = self.idle(whole).min(other.waits(whole));
        let moved = if self.undelayed() <= SHORT { self.share(self.cpu + self.delay, whole) + between } else { 0.0 };
        let is_short = self.proof_undelayed() <= SHORT && whole > 0.0;
        let share = moved.max(if is_short { self.proof as f64 / whole } else { 0.0 });
        // What passed meanwhile says little: a limited thread is stopped anywhere, for long.
        let (cpu, hash) = (self.cpu + self.proof_cpu, self.hash_cpu + self.proof_hash_cpu);
        match share == 0.0 || (hash > 0 && 2 * hash >= cpu) {
            true => (0.0, hashing.max(share)),
            false => (share, hashing),
        }
    }

    fn tells(&self) -> bool {
        self.threads > 0
    }

    /// A part of the threads' time as a share of `whole`, the time that all sessions had.
    fn share(&self, part: u64, whole: f64) -> f64 {
        if self.threads == 0 || whole <= 0.0 {
            return 0.0;
        }
        // Threads at work at the same time are one stage of the session.
        (part as f64 / self.threads as f64) * (self.took as f64 / whole)
    }
}

impl Spending {
    /// The share of the time in which the network was what had to be waited for: both ends wait, or the destination waits
    /// for what the source has handed to its kernel already, as it does with small files.
    fn network(&self, whole: f64) -> f64 {
        let (source, destination) = (&self.source, &self.destination);
        match (source.tells(), destination.tells()) {
            (true, true) => {
                let in_kernel = if whole > 0.0 { (source.busy as f64 - source.took as f64) / whole } else { 0.0 };
                let handed_over = source.idle(whole).min(in_kernel.max(0.0));
                (source.waits(whole) + handed_over).min(destination.waits(whole))
            }
            (true, false) => source.waits(whole),
            _ => destination.waits(whole),
        }
    }

    /// Whether any end told anything.
    pub fn tells(&self) -> bool {
        self.source.tells() || self.destination.tells()
    }

    /// The figures of a run that took `elapsed`, in which all sessions together had work for `sessions`; `None` if no end
    /// tells anything.
    ///
    /// A session's stages work at the same time, so that the one that is busy all the time is the one that bounds it.
    /// The network is taken to be busy while both ends wait for it: a sender that waits alone waits for a slow receiver.
    /// What threads waited for processors belongs to no other stage; it is called hashing where that had most of the processor.
    pub fn figures(&self, elapsed: Duration, sessions: Duration) -> Option<Figures> {
        if !self.tells() {
            return None;
        }
        let (source, destination) = (&self.source, &self.destination);
        let whole = sessions.as_secs_f64() * 1e6;
        let proof = |part: u64| if whole > 0.0 { part as f64 / whole } else { 0.0 };
        let network = self.network(whole);
        let of_busy = |part: u64| if source.busy > 0 { (part as f64 / source.busy as f64).min(1.0) } else { 0.0 };
        let written = destination.share(destination.storage, whole) * destination.undelayed();
        let read_back = proof(destination.proof_storage) * destination.proof_undelayed();
        let most_active = source.took.max(destination.took) as f64;
        let cut = |share: f64| share.clamp(0.0, 1.0);
        let (source_processor, source_hashing) = source.processors(destination, whole);
        let (destination_processor, destination_hashing) = destination.processors(source, whole);
        Some(Figures {
            source_processor: cut(source_processor),
            source_read: cut(source.share(source.storage, whole) * source.undelayed()),
            source_hashing: cut(source_hashing),
            network: cut(network),
            destination_processor: cut(destination_processor),
            destination_write: cut(written.max(read_back)),
            destination_hashing: cut(destination_hashing),
            window: of_busy(source.window),
            send_buffer: of_busy(source.buffer),
            retransmitted: if source.sent > 0 { source.resent as f64 / source.sent as f64 } else { 0.0 },
            waiting: if whole > 0.0 {
                cut(1.0 - (most_active / whole).max(proof(destination.proof_storage + destination.proof_hash)))
            } else {
                0.0
            },
            rate: source.bytes.max(destination.bytes) as f64 / elapsed.as_secs_f64().max(1e-9),
            // Who set it adds it.
            limit: 0.0,
            source_tells: source.tells(),
            destination_tells: destination.tells(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Bottleneck;
    use super::*;

    /// A second of two threads; the parts in milliseconds of one of them.
    fn end(storage: u64, network: u64, hash: u64) -> EndSpent {
        let [storage, network, hash] = [storage, network, hash].map(|ms| ms * 2000);
        EndSpent { bytes: 1 << 30, took: 1_000_000, threads: 2_000_000, storage, network, hash, ..EndSpent::default() }
    }

    fn found(source: EndSpent, destination: EndSpent) -> Bottleneck {
        let spending = Spending { source, destination };
        Bottleneck::find(&spending.figures(Duration::from_secs(1), Duration::from_secs(1)).expect("both tell")).0
    }

    #[test]
    fn the_stage_that_is_busy_all_the_time_is_named() {
        assert_eq!(found(end(900, 50, 50), end(50, 900, 0)), Bottleneck::SourceRead);
        assert_eq!(found(end(100, 50, 850), end(50, 900, 0)), Bottleneck::SourceHashing);
        assert_eq!(found(end(50, 900, 50), end(950, 50, 0)), Bottleneck::DestinationWrite);
        assert_eq!(found(end(50, 900, 50), end(50, 900, 0)), Bottleneck::Network);
        let proving = EndSpent { proof_hash: 950_000, ..end(50, 500, 0) };
        assert_eq!(found(end(50, 500, 50), proving), Bottleneck::DestinationHashing);
        let proving = EndSpent { proof_storage: 950_000, ..end(50, 500, 0) };
        assert_eq!(found(end(50, 500, 50), proving), Bottleneck::DestinationWrite);
    }

    #[test]
    fn an_end_without_processors_is_named_and_not_what_it_was_about_to_do() {
        // It waits for the network, is told, and gets no processor: nine tenths of everything are delay.
        let starved = |one: EndSpent| EndSpent { cpu: 100_000, delay: 1_800_000, ..one };
        let hashes = |one: EndSpent| EndSpent { hash_cpu: 60_000, ..starved(one) };
        assert_eq!(found(starved(end(300, 600, 100)), end(50, 900, 0)), Bottleneck::SourceProcessor);
        assert_eq!(found(end(50, 900, 0), starved(end(600, 300, 0))), Bottleneck::DestinationProcessor);
        // What had the processor counts, not what was under way when there was none.
        assert_eq!(found(hashes(end(50, 50, 900)), end(50, 900, 0)), Bottleneck::SourceHashing);
        assert_eq!(found(hashes(end(300, 400, 300)), end(50, 900, 0)), Bottleneck::SourceHashing);
        assert_eq!(found(starved(end(50, 50, 900)), end(50, 900, 0)), Bottleneck::SourceProcessor);
        let proving = EndSpent { proof: 950_000, proof_storage: 800_000, proof_delay: 700_000, ..end(50, 500, 0) };
        assert_eq!(found(end(50, 500, 50), proving), Bottleneck::DestinationProcessor);
        // It waits for its disk; what little it moves it moves with delay.
        let syncing =
            EndSpent { took: 100_000, delay: 1_200_000, proof: 900_000, proof_storage: 890_000, ..end(50, 500, 0) };
        assert_eq!(found(end(50, 900, 0), syncing), Bottleneck::DestinationWrite);
        let hashing = EndSpent { proof: 760_000, proof_hash: 400_000, proof_delay: 650_000, ..starved(end(50, 50, 0)) };
        let hashing = EndSpent { took: 100_000, cpu: 10_000, proof_cpu: 90_000, proof_hash_cpu: 80_000, ..hashing };
        assert_eq!(found(end(50, 900, 0), hashing), Bottleneck::DestinationHashing);
        let busy = EndSpent { delay: 200_000, ..end(900, 50, 50) };
        assert_eq!(found(busy, end(50, 900, 0)), Bottleneck::SourceRead, "a little delay is everywhere");
    }

    #[test]
    fn small_files_that_wait_in_the_senders_kernel_wait_for_the_network() {
        let handed_over = |busy| EndSpent { took: 100_000, busy, ..end(500, 100, 100) };
        assert_eq!(found(handed_over(950_000), end(50, 900, 0)), Bottleneck::Network);
        assert_ne!(found(handed_over(150_000), end(50, 900, 0)), Bottleneck::Network, "the kernel has nothing, either");
        let starved = EndSpent { cpu: 100_000, delay: 1_500_000, ..handed_over(150_000) };
        assert_eq!(found(starved, end(50, 900, 0)), Bottleneck::SourceProcessor, "nor has it what comes between files");
    }

    #[test]
    fn what_holds_a_network_back_is_told_apart() {
        let sender = |window, buffer, resent| EndSpent {
            busy: 1_000_000,
            window,
            buffer,
            sent: 1 << 30,
            resent,
            ..end(50, 900, 50)
        };
        assert_eq!(found(sender(600_000, 0, 0), end(50, 900, 0)), Bottleneck::Window);
        assert_eq!(found(sender(0, 600_000, 0), end(50, 900, 0)), Bottleneck::SendBuffer);
        assert_eq!(found(sender(0, 0, 1 << 20), end(50, 900, 0)), Bottleneck::Network);
        assert_eq!(found(sender(600_000, 0, 0), end(950, 50, 0)), Bottleneck::DestinationWrite);
    }

    #[test]
    fn sessions_that_mostly_wait_for_replies_are_no_full_network() {
        let little = |one: EndSpent| EndSpent { took: 100_000, ..one };
        assert_eq!(found(little(end(50, 900, 50)), little(end(50, 900, 50))), Bottleneck::SessionLatency);
    }

    #[test]
    fn nothing_told_is_nothing_found_and_sums_are_taken_apart_again() {
        assert_eq!(Spending::default().figures(Duration::from_secs(1), Duration::from_secs(4)), None);
        let (mut sum, one) = (end(1, 2, 3), end(10, 20, 30));
        sum.add(&one);
        assert_eq!(sum.since(&end(1, 2, 3)), one);
    }
}
