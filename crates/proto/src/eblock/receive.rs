//! The receiving side of one transfer.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{CLOSE, ChannelId, EOD, EOF, HEADER_LEN, Header, NONCE_LEN, RESTART, nonce_blocks};

/// What one machine accepts.
#[derive(Debug, Clone, Default)]
pub struct ReceiveConfig {
    /// Offsets on the wire that blocks must stay inside; `None`: any.
    pub promised: Option<Range<u64>>,
    /// Added to each offset (ESTO A).
    pub shift: u64,
    /// What fresh channels must start with; others are strangers.
    pub nonce: Option<[u8; NONCE_LEN]>,
    /// Most channels, and most EODs that EOF may announce; 0 means 4096.
    pub max_channels: u32,
}

/// A breach of the rules of the data channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// A fresh channel does not start with the agreed nonce; only that channel is to be closed.
    #[error("the data connection does not prove that it belongs to this transfer")]
    Stranger,
    /// More channels than allowed; only that channel is to be closed.
    #[error("too many data connections")]
    TooManyChannels,
    /// Offset and count, with the shift, exceed 64 bits.
    #[error("block at {offset} with {count} bytes exceeds the largest file offset")]
    Overflow {
        /// Offset on the wire.
        offset: u64,
        /// Bytes.
        count: u64,
    },
    /// A block outside the promised range.
    #[error("block at {offset} with {count} bytes lies outside the announced range")]
    BeyondPromise {
        /// Offset on the wire.
        offset: u64,
        /// Bytes.
        count: u64,
    },
    /// EOF twice.
    #[error("EOF was sent twice")]
    DuplicateEof,
    /// EOF announces 0 EODs, or more than there may be channels.
    #[error("EOF announces {0} channel ends, which cannot be")]
    BadEodc(u64),
    /// More EODs than EOF announced.
    #[error("more channel ends than EOF announced")]
    TooManyEods,
    /// A block on a channel that already sent EOD.
    #[error("a block follows EOD on the same channel")]
    AfterEod,
    /// CLOSE without EOD, which would leave the number of EODs short for ever.
    #[error("CLOSE without EOD")]
    CloseWithoutEod,
    /// The channel closed inside a block or header.
    #[error("the data connection closed inside a block")]
    ClosedMidBlock,
    /// The channel closed between blocks, before its EOD.
    #[error("the data connection closed before its end of data")]
    ClosedBeforeEod,
    /// All channels ended or closed, and none sent EOF.
    #[error("all data connections ended without EOF")]
    NoEof,
    /// The caller reports progress that cannot be, or an unknown channel.
    #[error("no payload is expected on this channel")]
    NotExpected,
}

impl ReceiveError {
    /// True if only the channel is at fault and the transfer goes on without it.
    pub fn is_channel_only(&self) -> bool {
        matches!(self, Self::Stranger | Self::TooManyChannels)
    }
}

/// What to do with a channel after its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveStep {
    /// Read on: a header is next.
    Header,
    /// `len` bytes follow and belong at `offset` of the destination; report them with [`ReceiveMachine::payload`].
    Payload {
        /// Offset in the destination, shift included.
        offset: u64,
        /// Bytes, at least 1.
        len: u64,
    },
    /// `len` bytes follow and belong nowhere; report them with [`ReceiveMachine::payload`].
    Discard {
        /// Bytes, at least 1.
        len: u64,
    },
    /// The channel has ended its part of this transfer.
    EndOfData {
        /// The sender will close it; else it may serve the next transfer.
        close: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nonce blocks still expected, of two.
    Nonce(u8),
    Header,
    Payload {
        left: u64,
        discard: bool,
        then: Option<bool>,
    },
    Ended,
    Closed,
}

#[derive(Debug, Clone)]
struct Channel {
    state: State,
    header: [u8; HEADER_LEN],
    have: usize,
    spoke: bool,
}

/// Follows the channels of one transfer until all EODs came.
///
/// Blocks may come in any size and order, and overlap; EOF may come on any channel at any time, before data too.
#[derive(Debug, Clone)]
pub struct ReceiveMachine {
    config: ReceiveConfig,
    /// Without those that closed before they spoke, of which there may be any number.
    channels: BTreeMap<ChannelId, Channel>,
    /// What the next one is called.
    next: ChannelId,
    eods: u64,
    eodc: Option<u64>,
    received: u64,
}

const DEFAULT_MAX_CHANNELS: u32 = 4096;

impl ReceiveMachine {
    /// A machine without channels.
    pub fn new(config: ReceiveConfig) -> Self {
        Self { config, channels: BTreeMap::new(), next: 0, eods: 0, eodc: None, received: 0 }
    }

    fn max_channels(&self) -> u32 {
        if self.config.max_channels == 0 { DEFAULT_MAX_CHANNELS } else { self.config.max_channels }
    }

    /// Adds a channel, at any time; `fresh` ones were just accepted and must show the nonce, cached ones have.
    ///
    /// # Errors
    /// [`ReceiveError::TooManyChannels`]; closed strangers do not count.
    pub fn add_channel(&mut self, fresh: bool) -> Result<ChannelId, ReceiveError> {
        if self.channels.len() >= self.max_channels() as usize || self.next == ChannelId::MAX {
            return Err(ReceiveError::TooManyChannels);
        }
        let state = if fresh && self.config.nonce.is_some() { State::Nonce(2) } else { State::Header };
        let id = self.next;
        self.next += 1;
        self.channels.insert(id, Channel { state, header: [0; HEADER_LEN], have: 0, spoke: false });
        Ok(id)
    }

    /// Whether a channel has yet to show its nonce.
    pub fn is_stranger(&self, channel: ChannelId) -> bool {
        self.channels.get(&channel).is_some_and(|channel| matches!(channel.state, State::Nonce(_)))
    }

    /// Takes header bytes; returns how many were used and what comes next.
    ///
    /// Uses at most the rest of one header; report payload with [`Self::payload`] before feeding the next.
    ///
    /// # Errors
    /// Any breach; unless [`ReceiveError::is_channel_only`], the transfer has failed.
    pub fn feed(&mut self, channel: ChannelId, bytes: &[u8]) -> Result<(usize, ReceiveStep), ReceiveError> {
        let slot = self.slot(channel)?;
        match slot.state {
            State::Payload { .. } => return Err(ReceiveError::NotExpected),
            State::Ended if !bytes.is_empty() => return Err(ReceiveError::AfterEod),
            State::Ended => return Ok((0, ReceiveStep::EndOfData { close: false })),
            State::Closed => return Err(ReceiveError::NotExpected),
            State::Nonce(_) | State::Header => {}
        }
        let used = bytes.len().min(HEADER_LEN - slot.have);
        slot.header[slot.have..slot.have + used].copy_from_slice(&bytes[..used]);
        slot.have += used;
        if slot.have < HEADER_LEN {
            return Ok((used, ReceiveStep::Header));
        }
        slot.have = 0;
        let header = Header::decode(&slot.header);
        self.header(channel, header).map(|step| (used, step))
    }

    fn slot(&mut self, channel: ChannelId) -> Result<&mut Channel, ReceiveError> {
        self.channels.get_mut(&channel).ok_or(ReceiveError::NotExpected)
    }

    /// Takes one whole header.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub fn header(&mut self, channel: ChannelId, header: Header) -> Result<ReceiveStep, ReceiveError> {
        match self.slot(channel)?.state {
            State::Nonce(left) => self.nonce_block(channel, left, header),
            State::Header => self.block(channel, header),
            State::Ended => Err(ReceiveError::AfterEod),
            State::Payload { .. } | State::Closed => Err(ReceiveError::NotExpected),
        }
    }

    fn nonce_block(&mut self, channel: ChannelId, left: u8, header: Header) -> Result<ReceiveStep, ReceiveError> {
        let expected = self.config.nonce.as_ref().map(nonce_blocks).ok_or(ReceiveError::NotExpected)?;
        let slot = self.slot(channel)?;
        if header != expected[usize::from(2 - left)] {
            slot.state = State::Closed;
            return Err(ReceiveError::Stranger);
        }
        slot.state = if left > 1 { State::Nonce(left - 1) } else { State::Header };
        Ok(ReceiveStep::Header)
    }

    fn block(&mut self, channel: ChannelId, header: Header) -> Result<ReceiveStep, ReceiveError> {
        self.slot(channel)?.spoke = true;
        let ends = header.has(EOD).then(|| header.has(CLOSE));
        if header.has(CLOSE) && ends.is_none() {
            return Err(ReceiveError::CloseWithoutEod);
        }
        if header.has(EOF) {
            self.eof(header.offset)?;
            return self.after_block(channel, ends);
        }
        if header.count == 0 {
            return self.after_block(channel, ends);
        }
        let discard = header.has(RESTART);
        let step = if discard { ReceiveStep::Discard { len: header.count } } else { self.place(header)? };
        self.slot(channel)?.state = State::Payload { left: header.count, discard, then: ends };
        Ok(step)
    }

    /// EOF: the offset is EODC, the count means nothing and no payload follows.
    fn eof(&mut self, eodc: u64) -> Result<(), ReceiveError> {
        if self.eodc.is_some() {
            return Err(ReceiveError::DuplicateEof);
        }
        if eodc == 0 || eodc > u64::from(self.max_channels()) {
            return Err(ReceiveError::BadEodc(eodc));
        }
        self.eodc = Some(eodc);
        if self.eods > eodc { Err(ReceiveError::TooManyEods) } else { Ok(()) }
    }

    fn place(&self, header: Header) -> Result<ReceiveStep, ReceiveError> {
        let Header { offset, count, .. } = header;
        let overflow = ReceiveError::Overflow { offset, count };
        let end = offset.checked_add(count).ok_or(overflow)?;
        // Files have signed offsets.
        let shifted_end = end.checked_add(self.config.shift).filter(|&e| e <= i64::MAX as u64).ok_or(overflow)?;
        if self.config.promised.as_ref().is_some_and(|p| offset < p.start || end > p.end) {
            return Err(ReceiveError::BeyondPromise { offset, count });
        }
        Ok(ReceiveStep::Payload { offset: shifted_end - count, len: count })
    }

    fn after_block(&mut self, channel: ChannelId, ends: Option<bool>) -> Result<ReceiveStep, ReceiveError> {
        let slot = self.slot(channel)?;
        let Some(close) = ends else {
            slot.state = State::Header;
            return Ok(ReceiveStep::Header);
        };
        slot.state = State::Ended;
        self.eods += 1;
        if self.eodc.is_some_and(|eodc| self.eods > eodc) {
            return Err(ReceiveError::TooManyEods);
        }
        Ok(ReceiveStep::EndOfData { close })
    }

    /// `len` bytes of the open payload arrived and were dealt with; `None` while more of the block is to come, else what is next.
    ///
    /// # Errors
    /// [`ReceiveError::NotExpected`] for more than is open, [`ReceiveError::TooManyEods`] at the end of the block.
    pub fn payload(&mut self, channel: ChannelId, len: u64) -> Result<Option<ReceiveStep>, ReceiveError> {
        let slot = self.slot(channel)?;
        let State::Payload { left, discard, then } = slot.state else { return Err(ReceiveError::NotExpected) };
        let left = left.checked_sub(len).ok_or(ReceiveError::NotExpected)?;
        slot.state = State::Payload { left, discard, then };
        self.received += if discard { 0 } else { len };
        if left == 0 { self.after_block(channel, then).map(Some) } else { Ok(None) }
    }

    /// Bytes of the open block still to come; 0 between blocks.
    pub fn payload_left(&self, channel: ChannelId) -> u64 {
        match self.channels.get(&channel).map(|c| c.state) {
            Some(State::Payload { left, .. }) => left,
            _ => 0,
        }
    }

    /// The peer closed the channel, or it broke.
    ///
    /// A connection that closes before it spoke (a port scanner) changes nothing.
    ///
    /// # Errors
    /// The breach that the close is: inside a block, before EOD, or with nobody left who could send EOF.
    pub fn closed(&mut self, channel: ChannelId) -> Result<(), ReceiveError> {
        let Some(slot) = self.channels.get_mut(&channel) else {
            return if channel < self.next { Ok(()) } else { Err(ReceiveError::NotExpected) };
        };
        let (state, spoke, mid_header) = (slot.state, slot.spoke, slot.have > 0);
        slot.state = State::Closed;
        if !spoke {
            self.channels.remove(&channel);
        }
        match state {
            State::Nonce(_) | State::Closed => Ok(()),
            State::Payload { .. } => Err(ReceiveError::ClosedMidBlock),
            State::Header if mid_header => Err(ReceiveError::ClosedMidBlock),
            State::Header if spoke => Err(ReceiveError::ClosedBeforeEod),
            State::Header => Ok(()),
            State::Ended => self.someone_can_send_eof(),
        }
    }

    fn someone_can_send_eof(&self) -> Result<(), ReceiveError> {
        let open = self.channels.values().any(|c| c.state != State::Closed);
        if self.eodc.is_none() && !open { Err(ReceiveError::NoEof) } else { Ok(()) }
    }

    /// True when as many EODs came as EOF announced (GFD.20 §3.4).
    pub fn is_complete(&self) -> bool {
        self.eodc == Some(self.eods)
    }

    /// Payload bytes reported, markers not counted.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// EODs seen, and EODC once EOF came: what a time-out message names.
    pub fn ends(&self) -> (u64, Option<u64>) {
        (self.eods, self.eodc)
    }
}
