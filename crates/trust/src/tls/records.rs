//! Records of TLS 1.3 behind the handshake (RFC 8446 §5): plain bytes in, records out, and back.
//!
//! Bytes are protected where they lie, in buffers of the caller.

use std::ops::Range;

use whimbrel_engine::fault::FaultCode;

use super::failure::refused;
use super::traffic::Keys;
use crate::fault::TrustFault;

/// Most plain bytes of a record (RFC 8446 §5.1).
pub const RECORD: usize = 16 << 10;

/// Bytes before what a record protects: its type, a version of old and the length.
const HEADER: usize = 5;

/// Bytes of the proof behind what it protects.
const TAG: usize = 16;

/// Bytes that a record adds to plain ones: header, type and proof.
pub const OVERHEAD: usize = HEADER + 1 + TAG;

/// Most protected bytes of a record (RFC 8446 §5.2).
const MOST: usize = RECORD + 256;

/// Records under one key, of 2^24.5 that are safe (RFC 8446 §5.5).
const WORN: u64 = 1 << 24;

/// Records in a row that bring no plain bytes: more are an attack.
const IDLE: u32 = 32;

/// Most bytes of a message behind the handshake; a ticket is the longest.
const MESSAGE: usize = 64 << 10;

/// What a record holds (RFC 8446 appendix B.1).
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// Messages behind the handshake (RFC 8446 appendix B.3).
const TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// Alerts (RFC 8446 appendix B.2).
const CLOSE_NOTIFY: u8 = 0;
const UNEXPECTED_MESSAGE: u8 = 10;
const BAD_RECORD: u8 = 20;
const RECORD_OVERFLOW: u8 = 22;
const DECODE_ERROR: u8 = 50;
const INTERNAL_ERROR: u8 = 80;
const USER_CANCELED: u8 = 90;

/// Protects what one side sends.
pub struct Sealer {
    keys: Keys,
}

impl Sealer {
    pub(super) fn new(keys: Keys) -> Self {
        Self { keys }
    }

    /// Begins a record at the end of `into`; up to [`RECORD`] plain bytes are to be appended before [`Self::end`].
    pub fn begin(&mut self, into: &mut Vec<u8>) -> Result<usize, TrustFault> {
        if self.keys.records >= WORN {
            self.renew(into)?;
        }
        Ok(open_record(into))
    }

    /// Protects the plain bytes behind `from`, which [`Self::begin`] gave.
    pub fn end(&mut self, from: usize, into: &mut Vec<u8>) -> Result<(), TrustFault> {
        self.finish(DATA, from, into)
    }

    /// Takes new keys, and says so (KeyUpdate, RFC 8446 §4.6.3).
    pub fn renew(&mut self, into: &mut Vec<u8>) -> Result<(), TrustFault> {
        self.whole(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 0], into)?;
        self.keys = self.keys.next()?;
        Ok(())
    }

    /// Says that nothing more will be sent.
    pub fn farewell(&mut self, into: &mut Vec<u8>) -> Result<(), TrustFault> {
        self.whole(ALERT, &[1, CLOSE_NOTIFY], into)
    }

    /// Says why the connection is given up, unless the other side said it first.
    pub fn give_up(&mut self, broken: &Broken, into: &mut Vec<u8>) -> Result<(), TrustFault> {
        broken.alert.map_or(Ok(()), |alert| self.whole(ALERT, &[2, alert], into))
    }

    /// Protects a whole message of any type, at most [`RECORD`] bytes.
    pub fn whole(&mut self, kind: u8, message: &[u8], into: &mut Vec<u8>) -> Result<(), TrustFault> {
        let from = open_record(into);
        into.extend_from_slice(message);
        self.finish(kind, from, into)
    }

    fn finish(&mut self, kind: u8, from: usize, into: &mut Vec<u8>) -> Result<(), TrustFault> {
        into.push(kind);
        let length = (into.len() - from - HEADER + TAG) as u16;
        let header = [DATA, 3, 3, (length >> 8) as u8, length as u8];
        into[from..from + HEADER].copy_from_slice(&header);
        let tag = self.keys.seal(&header, &mut into[from + HEADER..])?;
        into.extend_from_slice(tag.as_ref());
        Ok(())
    }
}

fn open_record(into: &mut Vec<u8>) -> usize {
    into.extend_from_slice(&[0; HEADER]);
    into.len() - HEADER
}

/// What the next bytes of the wire are.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// No whole record yet.
    Part,
    /// A record of `used` bytes; its plain bytes lie at `plain`.
    Data {
        /// Where the plain bytes are now.
        plain: Range<usize>,
        /// Bytes of the wire.
        used: usize,
    },
    /// A record of so many bytes that says nothing to the reader.
    Aside(usize),
    /// As [`Incoming::Aside`]; new keys of ours are asked for.
    Renew(usize),
    /// The other side's farewell.
    End,
}

/// Why a connection is given up.
#[derive(Debug)]
pub struct Broken {
    /// What to tell the other side; `None` if it told us.
    alert: Option<u8>,
    /// What is wrong.
    pub fault: TrustFault,
}

/// Uncovers what the other side sends.
pub struct Opener {
    keys: Keys,
    /// The beginning of a message that goes on in the next record.
    message: Vec<u8>,
    /// Records in a row without plain bytes.
    idle: u32,
}

impl Opener {
    pub(super) fn new(keys: Keys) -> Self {
        Self { keys, message: Vec::new(), idle: 0 }
    }

    /// Whether `wire` begins with a whole record, or with what is none.
    pub fn is_ready(wire: &[u8]) -> bool {
        !matches!(length(wire), Ok(None))
    }

    /// Takes the record at the beginning of `wire`; plain bytes take its place.
    ///
    /// # Errors
    /// What ends the connection: forgeries, what does not belong here, and the other side's alerts.
    pub fn open(&mut self, wire: &mut [u8]) -> Result<Incoming, Broken> {
        let Some(length) = length(wire)? else { return Ok(Incoming::Part) };
        let (header, rest) = wire.split_at_mut(HEADER);
        let used = HEADER + length;
        let Some(inner) = self.keys.open(header, &mut rest[..length]) else {
            return Err(wrong(BAD_RECORD, "a record was changed on its way, or made by somebody else"));
        };
        // The type is the last byte that is not padding (RFC 8446 §5.4).
        let Some(end) = rest[..inner].iter().rposition(|byte| *byte != 0) else {
            return Err(wrong(UNEXPECTED_MESSAGE, "a record without a type"));
        };
        if end > RECORD {
            return Err(wrong(RECORD_OVERFLOW, "a record is too long"));
        }
        let content = &rest[..end];
        if rest[end] != HANDSHAKE && !self.message.is_empty() {
            return Err(wrong(UNEXPECTED_MESSAGE, "a message was interrupted"));
        }
        self.idle = if rest[end] == DATA && end > 0 { 0 } else { self.idle + 1 };
        if self.idle > IDLE {
            return Err(wrong(UNEXPECTED_MESSAGE, "too many records without data"));
        }
        match rest[end] {
            DATA => Ok(Incoming::Data { plain: HEADER..HEADER + end, used }),
            HANDSHAKE => Ok(if self.messages(content)? { Incoming::Renew(used) } else { Incoming::Aside(used) }),
            ALERT => alert(content, used),
            _ => Err(wrong(UNEXPECTED_MESSAGE, "a record of unknown type")),
        }
    }

    /// Takes what a record brings of messages; true if new keys of ours are asked for.
    fn messages(&mut self, content: &[u8]) -> Result<bool, Broken> {
        if content.is_empty() {
            return Err(wrong(UNEXPECTED_MESSAGE, "an empty message"));
        }
        self.message.extend_from_slice(content);
        let mut asked = false;
        while let [kind, a, b, c, rest @ ..] = &self.message[..] {
            let (kind, length) = (*kind, u32::from_be_bytes([0, *a, *b, *c]) as usize);
            if length > MESSAGE {
                return Err(wrong(DECODE_ERROR, "a message is too long"));
            }
            let Some(body) = rest.get(..length) else { break };
            // Keys change at the end of a record only (RFC 8446 §5.1).
            match (kind, body, rest.len() == length) {
                (TICKET, ..) => {}
                (KEY_UPDATE, [wish @ 0..=1], true) => {
                    asked |= *wish == 1;
                    self.keys = self.keys.next().map_err(|fault| Broken { alert: Some(INTERNAL_ERROR), fault })?;
                }
                (KEY_UPDATE, ..) => return Err(wrong(DECODE_ERROR, "a damaged update of keys")),
                _ => return Err(wrong(UNEXPECTED_MESSAGE, "a message that belongs into the handshake")),
            }
            self.message.drain(..4 + length);
        }
        Ok(asked)
    }
}

/// Protected bytes of the record at the beginning of `wire`, once it is whole.
fn length(wire: &[u8]) -> Result<Option<usize>, Broken> {
    let [kind, _, _, high, low, rest @ ..] = wire else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    match (*kind, length) {
        (DATA, length) if length > MOST => Err(wrong(RECORD_OVERFLOW, "a record is too long")),
        (DATA, length) if length <= TAG => Err(wrong(DECODE_ERROR, "a record is too short")),
        (DATA, length) => Ok((rest.len() >= length).then_some(length)),
        _ => Err(wrong(UNEXPECTED_MESSAGE, "the other side does not speak TLS here")),
    }
}

fn alert(content: &[u8], used: usize) -> Result<Incoming, Broken> {
    match content {
        [_, CLOSE_NOTIFY] => Ok(Incoming::End),
        [_, USER_CANCELED] => Ok(Incoming::Aside(used)),
        [_, other] => Err(Broken { alert: None, fault: refused(i32::from(*other), &format!("alert {other}")) }),
        _ => Err(wrong(DECODE_ERROR, "a damaged alert")),
    }
}

fn wrong(alert: u8, why: &str) -> Broken {
    let fault = TrustFault::new(FaultCode::EncryptionFailed, format!("the protected connection failed: {why}"));
    Broken { alert: Some(alert), fault }
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
