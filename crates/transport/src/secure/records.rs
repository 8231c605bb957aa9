//! Who protects a channel's records: OpenSSL, or, behind its handshake, we ourselves where the bytes lie.
//!
//! Ours copies each byte once and has newer ciphers than distributions' OpenSSL; it takes over where [`take_over`] can.

use std::io::{self, ErrorKind, IoSlice};

use openssl::ssl::{ErrorCode, SslStream};
use whimbrel_engine::Side;
use whimbrel_trust::TrustFault;
use whimbrel_trust::tls::{Broken, Incoming, OVERHEAD, Opener, RECORD, Sealer, stream_failed, take_over};

use super::carrier::Carrier;

/// Most plain bytes protected before they are sent: sixteen records a system call.
const TOGETHER: usize = 256 << 10;

/// The records of one channel.
pub(super) enum Records {
    /// OpenSSL's.
    Library,
    /// Ours.
    Own(Box<Own>),
}

impl Records {
    /// Of a channel whose handshake is through.
    pub(super) fn behind(stream: &SslStream<Carrier>) -> Self {
        match take_over(stream.ssl()) {
            Some((sealer, opener)) => {
                Self::Own(Box::new(Own { sealer, opener, renew: false, plain: 0, behind: 0, end: None }))
            }
            None => Self::Library,
        }
    }

    /// Protects what one system call is to carry; returns the plain bytes.
    pub(super) fn protect(&mut self, stream: &mut SslStream<Carrier>, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Library => protect(stream, pieces),
            Self::Own(own) => own.protect(stream.get_mut(), pieces).map_err(|fault| failed(fault, "send data")),
        }
    }

    /// Reads into one piece until it is full or nothing is left; gives the bytes and how it ended.
    pub(super) fn read(&mut self, stream: &mut SslStream<Carrier>, piece: &mut [u8]) -> (usize, End) {
        match self {
            Self::Library => read(stream, piece),
            Self::Own(own) => own.read(stream.get_mut(), piece),
        }
    }

    /// Puts together what the other side's records ask for.
    pub(super) fn answer(&mut self, stream: &mut SslStream<Carrier>) -> io::Result<()> {
        match self {
            Self::Library => Ok(()),
            Self::Own(own) => own.answer(stream.get_mut()).map_err(|fault| failed(fault, "receive data")),
        }
    }

    /// Says that nothing more will be sent; the answer is not waited for (RFC 8446 §6.1).
    pub(super) fn farewell(&mut self, stream: &mut SslStream<Carrier>) {
        match self {
            Self::Library => {
                let _first_half = stream.shutdown();
            }
            Self::Own(own) => {
                // What cannot be told is noticed as a cut.
                let _told = own.sealer.farewell(stream.get_mut().outgoing());
            }
        }
    }

    /// Whether bytes may wait here, where poll does not see them.
    pub(super) fn may_hold_more(&self, stream: &mut SslStream<Carrier>) -> bool {
        match self {
            Self::Library => stream.ssl().pending() > 0 || stream.get_ref().has_unread(),
            Self::Own(own) => own.plain > 0 || Opener::is_ready(stream.get_mut().unread()),
        }
    }
}

/// How reading ended.
#[derive(Debug)]
pub(super) enum End {
    /// The piece is full.
    Full,
    /// Nothing more has come yet.
    Empty,
    /// The other side has said farewell.
    Farewell,
    /// The carrying channel ended without a farewell.
    Cut,
    /// It is broken.
    Failed(io::Error),
}

/// Our own records, protected and uncovered in the carrier's buffers.
pub(super) struct Own {
    sealer: Sealer,
    opener: Opener,
    /// New keys are asked for; one answer serves several such wishes (RFC 8446 §4.6.3).
    renew: bool,
    /// Plain bytes that wait at the beginning of the carrier's unread ones.
    plain: usize,
    /// What is left of their record behind them.
    behind: usize,
    /// Why nothing more is read; `None`: it goes on.
    end: Option<Last>,
}

enum Last {
    Farewell,
    Broken(TrustFault),
}

impl Own {
    fn protect(&mut self, carrier: &mut Carrier, pieces: &[IoSlice<'_>]) -> Result<usize, TrustFault> {
        self.answer(carrier)?;
        let out = carrier.outgoing();
        out.reserve(TOGETHER + (TOGETHER / RECORD + 1) * OVERHEAD);
        let (mut taken, mut record) = (0, None);
        for piece in pieces {
            let mut rest: &[u8] = &piece[..piece.len().min(TOGETHER - taken)];
            taken += rest.len();
            while !rest.is_empty() {
                let (from, room) = match record.take() {
                    Some(begun) => begun,
                    None => (self.sealer.begin(out)?, RECORD),
                };
                let (now, later) = rest.split_at(rest.len().min(room));
                out.extend_from_slice(now);
                rest = later;
                match room - now.len() {
                    0 => self.sealer.end(from, out)?,
                    // The next piece shares the record.
                    room => record = Some((from, room)),
                }
            }
        }
        if let Some((from, _room)) = record {
            self.sealer.end(from, out)?;
        }
        Ok(taken)
    }

    fn answer(&mut self, carrier: &mut Carrier) -> Result<(), TrustFault> {
        if self.renew && !carrier.has_unsent() {
            self.renew = false;
            self.sealer.renew(carrier.outgoing())?;
        }
        Ok(())
    }

    fn read(&mut self, carrier: &mut Carrier, piece: &mut [u8]) -> (usize, End) {
        let mut at = 0;
        while at < piece.len() {
            if self.plain == 0
                && let Some(end) = self.next(carrier)
            {
                return (at, end);
            }
            let count = self.plain.min(piece.len() - at);
            piece[at..at + count].copy_from_slice(&carrier.unread()[..count]);
            carrier.take(count);
            at += count;
            self.plain -= count;
            if self.plain == 0 {
                carrier.take(std::mem::take(&mut self.behind));
            }
        }
        (at, End::Full)
    }

    /// Uncovers the next record with plain bytes; gives why there is none.
    fn next(&mut self, carrier: &mut Carrier) -> Option<End> {
        loop {
            match &self.end {
                Some(Last::Farewell) => return Some(End::Farewell),
                Some(Last::Broken(fault)) => return Some(End::Failed(failed(fault.clone(), "receive data"))),
                None => {}
            }
            match self.opener.open(carrier.unread()) {
                Ok(Incoming::Part) => match carrier.receive() {
                    Ok(true) => {}
                    Ok(false) => return Some(End::Cut),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(End::Empty),
                    Err(error) => return Some(End::Failed(error)),
                },
                Ok(Incoming::Data { plain, used }) if plain.is_empty() => carrier.take(used),
                Ok(Incoming::Data { plain, used }) => {
                    carrier.take(plain.start);
                    (self.plain, self.behind) = (plain.len(), used - plain.end);
                    return None;
                }
                Ok(Incoming::Aside(used)) => carrier.take(used),
                Ok(Incoming::Renew(used)) => {
                    carrier.take(used);
                    self.renew = true;
                }
                Ok(Incoming::End) => self.end = Some(Last::Farewell),
                Err(broken) => self.give_up(carrier, broken),
            }
        }
    }

    fn give_up(&mut self, carrier: &mut Carrier, broken: Broken) {
        // The alert goes if there is room; the other side sees the close in any case.
        let _told = self.sealer.give_up(&broken, carrier.outgoing());
        self.end = Some(Last::Broken(broken.fault));
    }
}

fn failed(fault: TrustFault, op: &str) -> io::Error {
    io::Error::other(fault.into_fault(op, Side::Peer))
}

/// As [`Records::protect`], by OpenSSL.
fn protect(stream: &mut SslStream<Carrier>, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut small = [0; RECORD];
    let mut gathered = 0;
    let mut taken = 0;
    for piece in pieces {
        let mut rest: &[u8] = &piece[..piece.len().min(TOGETHER - taken)];
        taken += rest.len();
        // A header shares its record with what follows it.
        if gathered > 0 || rest.len() < RECORD {
            let count = rest.len().min(RECORD - gathered);
            small[gathered..gathered + count].copy_from_slice(&rest[..count]);
            gathered += count;
            rest = &rest[count..];
            if gathered == RECORD {
                write_all(stream, &small)?;
                gathered = 0;
            }
        }
        let whole = rest.len() - rest.len() % RECORD;
        write_all(stream, &rest[..whole])?;
        let rest = &rest[whole..];
        if !rest.is_empty() {
            small[..rest.len()].copy_from_slice(rest);
            gathered = rest.len();
        }
    }
    write_all(stream, &small[..gathered])?;
    Ok(taken)
}

fn write_all(stream: &mut SslStream<Carrier>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = stream.ssl_write(bytes).map_err(|error| failed(stream_failed(&error), "send data"))?;
        bytes = &bytes[count..];
    }
    Ok(())
}

/// As [`Records::read`], by OpenSSL.
fn read(stream: &mut SslStream<Carrier>, piece: &mut [u8]) -> (usize, End) {
    let mut at = 0;
    while at < piece.len() {
        match stream.ssl_read(&mut piece[at..]) {
            Ok(0) => return (at, End::Farewell),
            Ok(count) => {
                at += count;
                stream.get_mut().bore_fruit();
            }
            Err(error) => {
                let end = match error.code() {
                    ErrorCode::WANT_READ => End::Empty,
                    ErrorCode::ZERO_RETURN => End::Farewell,
                    _ if stream.get_ref().has_ended() => End::Cut,
                    _ => End::Failed(match error.io_error() {
                        Some(cause) => io::Error::new(cause.kind(), cause.to_string()),
                        None => failed(stream_failed(&error), "receive data"),
                    }),
                };
                return (at, end);
            }
        }
    }
    (at, End::Full)
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
