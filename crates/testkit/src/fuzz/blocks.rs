//! MODE E: receivers against arbitrary headers, and senders against a receiver.

use std::collections::VecDeque;
use std::ops::Range;

use whimbrel_engine::RangeSet;
use whimbrel_proto::eblock::{
    EofDuty, HEADER_LEN, Header, ReceiveConfig, ReceiveError, ReceiveMachine, ReceiveStep, SendConfig, SendError,
    SendMachine, SendStep, Stripe, nonce_blocks,
};
use whimbrel_proto::op::Layout;

use super::input::Input;

const NONCE: [u8; 16] = *b"0123456789abcdef";

/// Blocks in any order: nothing outside the promise is placed, and a transfer is complete when all ends came, never before.
pub fn eblock(data: &[u8]) {
    let mut input = Input::new(data);
    if input.flag() { Receiver::new(&mut input).run(&mut input) } else { Pair::new(&mut input).run(&mut input) }
}

/// A receiver with the accounts that its caller keeps.
struct Receiver {
    machine: ReceiveMachine,
    config: ReceiveConfig,
    channels: u32,
    /// Open payload of each channel: bytes left, and whether they count.
    open: Vec<Option<(u64, bool)>>,
    received: u64,
    ends: u64,
}

impl Receiver {
    fn new(input: &mut Input) -> Self {
        let promised = input.flag().then(|| {
            let (a, b) = (input.number(), input.number());
            a.min(b)..a.max(b)
        });
        let nonce = input.flag().then_some(NONCE);
        let config =
            ReceiveConfig { promised, shift: input.number(), nonce, max_channels: u32::from(input.byte() % 8) };
        let machine = ReceiveMachine::new(config.clone());
        Self { machine, config, channels: 0, open: Vec::new(), received: 0, ends: 0 }
    }

    fn run(mut self, input: &mut Input) {
        while !input.is_empty() {
            if self.step(input).is_err_and(|error| !error.is_channel_only()) {
                return;
            }
            let (eods, eodc) = self.machine.ends();
            assert_eq!(eods, self.ends);
            assert_eq!(self.machine.is_complete(), eodc == Some(eods));
            assert_eq!(self.machine.received(), self.received);
            for (id, open) in self.open.iter().enumerate() {
                assert_eq!(self.machine.payload_left(id as u32), open.map_or(0, |(left, _)| left));
            }
        }
    }

    fn step(&mut self, input: &mut Input) -> Result<(), ReceiveError> {
        let choice = input.byte();
        let channel = u32::from(choice >> 4) % self.channels.max(1);
        match choice % 8 {
            0 => self.add(input.flag()),
            1 => self.nonce(channel),
            2 => self.feed(channel, input.take(usize::from(choice))),
            3 => self.close(channel),
            4 | 5 => self.payload(channel, input.number()),
            _ => {
                let header = Header { descriptor: input.byte() << 2, count: input.number(), offset: input.number() };
                self.feed(channel, &header.encode())
            }
        }
    }

    fn add(&mut self, fresh: bool) -> Result<(), ReceiveError> {
        let id = self.machine.add_channel(fresh)?;
        assert_eq!(id, self.channels, "channels are counted from 0");
        self.channels += 1;
        self.open.push(None);
        Ok(())
    }

    fn nonce(&mut self, channel: u32) -> Result<(), ReceiveError> {
        nonce_blocks(&NONCE).into_iter().try_for_each(|block| self.feed(channel, &block.encode()))
    }

    /// Feeds bytes as they are, and to a copy one by one.
    fn feed(&mut self, channel: u32, mut bytes: &[u8]) -> Result<(), ReceiveError> {
        while !bytes.is_empty() && self.machine.payload_left(channel) == 0 {
            let mut copy = self.machine.clone();
            let result = self.machine.feed(channel, bytes);
            let used = result.map_or(HEADER_LEN.min(bytes.len()), |(used, _)| used);
            let single = bytes[..used]
                .iter()
                .map(|byte| copy.feed(channel, &[*byte]))
                .find(|step| !matches!(step, Ok((_, ReceiveStep::Header))));
            match (&result, single) {
                (Ok((_, ReceiveStep::Header)), None) => {}
                (Ok((_, step)), Some(Ok((1, other)))) => assert_eq!(*step, other),
                (Err(error), Some(Err(other))) => assert_eq!(*error, other),
                (whole, single) => panic!("whole: {whole:?}, byte by byte: {single:?}"),
            }
            let (used, step) = result?;
            assert!(0 < used && used <= HEADER_LEN);
            bytes = &bytes[used..];
            self.note(channel, step);
        }
        Ok(())
    }

    fn note(&mut self, channel: u32, step: ReceiveStep) {
        let open = &mut self.open[channel as usize];
        match step {
            ReceiveStep::Header => *open = None,
            ReceiveStep::Discard { len } => *open = Some((len, false)),
            ReceiveStep::Payload { offset, len } => {
                let wire = offset.checked_sub(self.config.shift).expect("the shift was added");
                let end = offset.checked_add(len).expect("files have an end");
                assert!(len > 0 && i64::try_from(end).is_ok());
                if let Some(promised) = &self.config.promised {
                    assert!(promised.start <= wire && wire + len <= promised.end, "a block outside the promise");
                }
                *open = Some((len, true));
            }
            ReceiveStep::EndOfData { .. } => {
                *open = None;
                self.ends += 1;
            }
        }
    }

    fn payload(&mut self, channel: u32, len: u64) -> Result<(), ReceiveError> {
        let Some((left, counts)) = self.open.get(channel as usize).copied().flatten() else {
            assert_eq!(self.machine.payload(channel, len), Err(ReceiveError::NotExpected));
            return Ok(());
        };
        if len > left {
            assert_eq!(self.machine.payload(channel, len), Err(ReceiveError::NotExpected));
            return Ok(());
        }
        // A transfer does not last long enough for more bytes than a file can have.
        if counts && self.received.checked_add(len).is_none_or(|sum| sum > i64::MAX as u64) {
            return Ok(());
        }
        let step = self.machine.payload(channel, len)?;
        self.received += if counts { len } else { 0 };
        self.open[channel as usize] = Some((left - len, counts));
        assert_eq!(step.is_some(), left == len);
        if let Some(step) = step {
            self.note(channel, step);
        }
        Ok(())
    }

    fn close(&mut self, channel: u32) -> Result<(), ReceiveError> {
        let mid_block = self.open.get(channel as usize).copied().flatten().is_some();
        let result = self.machine.closed(channel);
        if mid_block {
            assert_eq!(result, Err(ReceiveError::ClosedMidBlock));
        }
        result
    }
}

/// Bytes of the source in a [`Pair`].
const SPACE: u64 = 400;

/// What a sender puts on a channel.
enum Piece {
    Head(Vec<u8>),
    Payload(u64),
}

/// A striped sender whose nodes all feed one receiver.
struct Pair {
    senders: Vec<SendMachine>,
    /// Sender and its channel of every channel of the receiver, and what is on the way.
    channels: Vec<(usize, u32, VecDeque<Piece>)>,
    receiver: ReceiveMachine,
    wanted: RangeSet,
    /// Bytes the source really has.
    size: u64,
    /// How often each byte arrived.
    arrived: Vec<u8>,
}

impl Pair {
    fn new(input: &mut Input) -> Self {
        let wanted: RangeSet = (0..input.byte() % 5)
            .map(|_| (input.number() % SPACE, input.number() % SPACE))
            .map(|(a, b)| a.min(b)..a.max(b))
            .collect();
        let nodes = u32::from(input.byte() % 3) + 1;
        let per_node: Vec<u32> = (0..nodes).map(|_| u32::from(input.byte() % 4) + 1).collect();
        let origin = wanted.as_slice().first().map_or(0, |range| range.start);
        let end = wanted.as_slice().last().map_or(0, |range| range.end);
        let nonce = input.flag().then_some(NONCE);
        let config = ReceiveConfig { promised: Some(0..end - origin), shift: origin, nonce, max_channels: 0 };
        let mut pair = Self {
            senders: Vec::new(),
            channels: Vec::new(),
            receiver: ReceiveMachine::new(config),
            size: if input.flag() { input.number() % SPACE } else { u64::MAX },
            arrived: vec![0; SPACE as usize],
            wanted,
        };
        let block = input.number() % 100 + 1;
        let layout = if input.flag() { Layout::Partitioned } else { Layout::Blocked { block_size: block } };
        let (block_size, close) = (input.number() % 60 + 1, input.flag());
        for index in 0..nodes {
            let others = per_node[1..].iter().map(|&n| u64::from(n)).sum();
            let eof = match (index, nodes) {
                (0, 1) => EofDuty::Own,
                (0, _) => EofDuty::Sum(others),
                _ => EofDuty::None,
            };
            let stripe = Stripe { index, count: nodes, layout, size: end };
            let ranges = pair.wanted.as_slice().to_vec();
            let config = SendConfig { stripe, block_size, origin, nonce, close, eof, ..SendConfig::new(ranges) };
            pair.add(config, per_node[index as usize]);
        }
        pair
    }

    fn add(&mut self, config: SendConfig, channels: u32) {
        let mut sender = SendMachine::new(config);
        for _ in 0..channels {
            let id = sender.add_channel(true).expect("nothing was sent yet");
            let received = self.receiver.add_channel(true).expect("few channels");
            assert_eq!(received as usize, self.channels.len());
            self.channels.push((self.senders.len(), id, VecDeque::new()));
        }
        self.senders.push(sender);
    }

    fn run(mut self, input: &mut Input) {
        while !input.is_empty() {
            let choice = input.byte();
            let channel = usize::from(choice >> 1) % self.channels.len();
            if choice & 1 == 1 { self.produce(channel) } else { self.deliver(channel) }
        }
        for channel in 0..self.channels.len() {
            while !self.produced_all(channel) {
                self.produce(channel);
            }
            while !self.channels[channel].2.is_empty() {
                assert!(!self.receiver.is_complete(), "complete before the last byte arrived");
                self.deliver(channel);
            }
        }
        self.check_end();
    }

    fn produced_all(&mut self, channel: usize) -> bool {
        let (sender, id, _) = &self.channels[channel];
        self.senders[*sender].clone().next(*id) == Ok(SendStep::Done)
    }

    fn produce(&mut self, channel: usize) {
        let (sender, id, queue) = &mut self.channels[channel];
        let sender = &mut self.senders[*sender];
        match sender.next(*id).expect("the last range got its header") {
            SendStep::Payload(Range { start, end }) => {
                assert_eq!(sender.next(*id), Err(SendError::NotTaken), "a range needs its header first");
                assert_eq!(sender.head(*id, end - start + 1), Err(SendError::NotTaken), "a range is not exceeded");
                let len = end.min(self.size).saturating_sub(start);
                if len < end - start {
                    sender.source_ended();
                }
                if let Some(head) = sender.head(*id, len).expect("the range was taken") {
                    queue.push_back(Piece::Head(head.as_ref().to_vec()));
                    queue.push_back(Piece::Payload(len));
                }
            }
            SendStep::Finish { head, .. } => queue.push_back(Piece::Head(head.as_ref().to_vec())),
            SendStep::Done => assert!(sender.channel_count() > u64::from(*id)),
        }
    }

    fn deliver(&mut self, channel: usize) {
        let id = channel as u32;
        match self.channels[channel].2.pop_front() {
            Some(Piece::Head(bytes)) => {
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let (used, step) = self.receiver.feed(id, rest).expect("our own sender keeps the rules");
                    rest = &rest[used..];
                    if let ReceiveStep::Payload { offset, len } = step {
                        (offset..offset + len).for_each(|at| self.arrived[at as usize] += 1);
                    }
                }
            }
            Some(Piece::Payload(len)) => {
                assert_eq!(self.receiver.payload(id, len / 2).map(|step| step.is_some()), Ok(len == 0));
                let step = self.receiver.payload(id, len - len / 2).expect("our own sender keeps the rules");
                assert!(step.is_some(), "the block ends with its last byte");
            }
            None => {}
        }
    }

    fn check_end(mut self) {
        assert!(self.receiver.is_complete() && self.senders.iter().all(SendMachine::is_finished));
        for (at, &times) in (0..).zip(&self.arrived) {
            let due = at < self.size && self.wanted.covers(at..at + 1);
            assert_eq!(times, u8::from(due), "byte {at} of a source of {}", self.size);
        }
        assert_eq!(self.receiver.received(), self.senders.iter().map(SendMachine::announced).sum::<u64>());
        for sender in &mut self.senders {
            assert_eq!(sender.add_channel(true), Err(SendError::AfterEof), "the number of channels was told");
            assert_eq!((sender.next(99), sender.head(99, 1)), (Err(SendError::NoChannel), Err(SendError::NoChannel)));
            assert_eq!(sender.head(0, 1), Err(SendError::NotTaken));
        }
    }
}
