//! The sending side of one transfer, as a model: tests and the fuzz targets hold receivers against it.
//!
//! What the product sends is dealt out by `whimbrel_transport::mode_e`, whose threads share one [`RangeCursor`] and must know which block
//! is the last before they load it.

use std::ops::Range;

use super::{CLOSE, ChannelId, EOD, EOF, HEADER_LEN, Header, NONCE_LEN, RangeCursor, Stripe, nonce_blocks};

/// Who tells the receiver how many EODs to expect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EofDuty {
    /// This machine, for its own channels.
    Own,
    /// This machine, for its own channels and this many of other senders that feed the same address.
    Sum(u64),
    /// Another sender.
    None,
}

/// What one machine sends.
#[derive(Debug, Clone)]
pub struct SendConfig {
    /// Bytes of the source, in the order to send them; an open end is `u64::MAX`.
    pub ranges: Vec<Range<u64>>,
    /// This sender's share.
    pub stripe: Stripe,
    /// Most payload of one block, bytes; the peers use 256 KiB and 1 MiB.
    pub block_size: u64,
    /// Source offset that is offset 0 on the wire: the start of the part in ERET.
    pub origin: u64,
    /// Sent first on every fresh channel.
    pub nonce: Option<[u8; NONCE_LEN]>,
    /// Ends each channel with EOD and CLOSE instead of leaving it for the next transfer.
    pub close: bool,
    /// Who sends EOF.
    pub eof: EofDuty,
}

impl SendConfig {
    /// Everything in `ranges` over one address, blocks of 256 KiB, channels left open.
    pub fn new(ranges: Vec<Range<u64>>) -> Self {
        Self {
            ranges,
            stripe: Stripe::WHOLE,
            block_size: 256 * 1024,
            origin: 0,
            nonce: None,
            close: false,
            eof: EofDuty::Own,
        }
    }
}

/// A misuse of the machine, or a source that breaks its promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// A channel added after EOF told how many there are.
    #[error("a channel cannot join after EOF was sent")]
    AfterEof,
    /// A header for a range that this channel did not take.
    #[error("the range was not taken on this channel")]
    NotTaken,
    /// An unknown channel.
    #[error("there is no such channel")]
    NoChannel,
}

/// Header bytes, with the nonce blocks in front where they belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    bytes: [u8; 3 * HEADER_LEN],
    len: u8,
}

impl Head {
    fn new() -> Self {
        Self { bytes: [0; 3 * HEADER_LEN], len: 0 }
    }

    fn push(&mut self, header: Header) {
        let at = usize::from(self.len);
        self.bytes[at..at + HEADER_LEN].copy_from_slice(&header.encode());
        self.len += HEADER_LEN as u8;
    }
}

impl AsRef<[u8]> for Head {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// What a channel does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendStep {
    /// Read these bytes of the source, ask [`SendMachine::head`] for the header, send both.
    Payload(Range<u64>),
    /// Send these bytes: the channel's last of this transfer.
    Finish {
        /// EOD, with EOF on one channel.
        head: Head,
        /// Close the channel afterwards; else it may serve the next transfer.
        close: bool,
    },
    /// This channel has sent its EOD.
    Done,
}

#[derive(Debug, Clone)]
struct Channel {
    greeted: bool,
    taken: Option<Range<u64>>,
    finished: bool,
}

/// Deals the bytes of one transfer to its channels.
///
/// Every channel sends exactly one EOD, and one of them EOF with EODC, the number of channels (GFD.20 §3.4).
#[derive(Debug, Clone)]
pub struct SendMachine {
    config: SendConfig,
    cursor: RangeCursor,
    channels: Vec<Channel>,
    eof_sent: bool,
    announced: u64,
}

impl SendMachine {
    /// A machine without channels.
    pub fn new(config: SendConfig) -> Self {
        let cursor = RangeCursor::new(config.ranges.clone(), config.stripe);
        Self { config, cursor, channels: Vec::new(), eof_sent: false, announced: 0 }
    }

    /// Adds a channel; `fresh` ones were just opened and get the nonce, cached ones already had it.
    ///
    /// # Errors
    /// [`SendError::AfterEof`], as EODC cannot be changed any more.
    pub fn add_channel(&mut self, fresh: bool) -> Result<ChannelId, SendError> {
        let duty_done = self.eof_sent || (self.config.eof == EofDuty::None && self.channels.iter().any(|c| c.finished));
        if duty_done {
            return Err(SendError::AfterEof);
        }
        let greeted = !fresh || self.config.nonce.is_none();
        self.channels.push(Channel { greeted, taken: None, finished: false });
        Ok((self.channels.len() - 1) as ChannelId)
    }

    /// What the channel does next.
    ///
    /// # Errors
    /// [`SendError::NoChannel`]; [`SendError::NotTaken`] when its last range got no header yet.
    pub fn next(&mut self, channel: ChannelId) -> Result<SendStep, SendError> {
        let slot = self.channels.get(channel as usize).ok_or(SendError::NoChannel)?;
        if slot.taken.is_some() {
            return Err(SendError::NotTaken);
        }
        if slot.finished {
            return Ok(SendStep::Done);
        }
        if let Some(range) = self.cursor.take(self.config.block_size) {
            self.channels[channel as usize].taken = Some(range.clone());
            return Ok(SendStep::Payload(range));
        }
        Ok(SendStep::Finish { head: self.finish(channel), close: self.config.close })
    }

    /// The header for the range that the channel took.
    ///
    /// `len` may be shorter than what was taken when the source ended inside it (call [`Self::source_ended`] then);
    /// with 0 no block is due and the answer is `None`.
    ///
    /// # Errors
    /// [`SendError::NoChannel`]; [`SendError::NotTaken`] without a range or with one that is too long.
    pub fn head(&mut self, channel: ChannelId, len: u64) -> Result<Option<Head>, SendError> {
        let slot = self.channels.get_mut(channel as usize).ok_or(SendError::NoChannel)?;
        let range = slot.taken.take().ok_or(SendError::NotTaken)?;
        if len > range.end - range.start {
            slot.taken = Some(range);
            return Err(SendError::NotTaken);
        }
        if len == 0 {
            return Ok(None);
        }
        self.announced += len;
        let mut head = self.greeting(channel);
        head.push(Header::data(range.start.saturating_sub(self.config.origin), len));
        Ok(Some(head))
    }

    /// No more bytes exist beyond those taken: the source was shorter than its ranges.
    pub fn source_ended(&mut self) {
        self.cursor.stop();
    }

    /// Payload bytes announced in headers.
    pub fn announced(&self) -> u64 {
        self.announced
    }

    /// True when every channel has its EOD.
    pub fn is_finished(&self) -> bool {
        !self.channels.is_empty() && self.channels.iter().all(|c| c.finished)
    }

    /// The number of channels, which a sender without the EOF duty reports to the one that has it.
    pub fn channel_count(&self) -> u64 {
        self.channels.len() as u64
    }

    fn greeting(&mut self, channel: ChannelId) -> Head {
        let mut head = Head::new();
        let slot = &mut self.channels[channel as usize];
        if let (false, Some(nonce)) = (std::mem::replace(&mut slot.greeted, true), &self.config.nonce) {
            nonce_blocks(nonce).into_iter().for_each(|block| head.push(block));
        }
        head
    }

    fn finish(&mut self, channel: ChannelId) -> Head {
        let mut head = self.greeting(channel);
        self.channels[channel as usize].finished = true;
        let close = if self.config.close { CLOSE } else { 0 };
        let own = self.channels.len() as u64;
        let eodc = match self.config.eof {
            EofDuty::Own => Some(own),
            EofDuty::Sum(others) => Some(own + others),
            EofDuty::None => None,
        };
        head.push(match eodc.filter(|_| !std::mem::replace(&mut self.eof_sent, true)) {
            Some(eodc) => Header { descriptor: EOF | EOD | close, count: 0, offset: eodc },
            None => Header { descriptor: EOD | close, count: 0, offset: 0 },
        });
        head
    }
}
