//! What a control connection runs over: plain bytes, TLS, or wrapped lines.

mod lines;

use bytes::BytesMut;
use whimbrel_proto::server::Secret;
use whimbrel_trust::tls::{ControlTls, Plain, Progress, Stands, TicketKeys, TlsMachine};
use whimbrel_trust::{Peer, TrustFault};

use crate::mover::message::Secrets;
pub(super) use lines::Lines;

/// Between the socket and the control machine.
pub(super) enum Wire {
    /// Bytes go through as they are.
    Clear,
    /// TLS, from its first byte on.
    Tls(Box<Tls>),
    /// Lines that are wrapped one by one.
    Lines(Box<Lines>),
    /// TLS that failed or was ended: nothing goes through any more.
    Ended,
}

/// TLS of one connection.
pub(super) struct Tls {
    machine: TlsMachine,
    established: bool,
    /// Of this connection alone, so that its data connections are those that resume its session.
    tickets: TicketKeys,
    /// Further control connections may resume it, too, as long as this one stands.
    stands: Option<Stands>,
}

/// What bytes of the wire brought besides plain ones.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// TLS stands since now.
    pub(super) established: bool,
    /// ... and continues the session of another connection.
    pub(super) resumed: bool,
    /// The other side will send no more.
    pub(super) closed: bool,
}

impl Wire {
    /// TLS that begins with the next byte.
    pub(super) fn tls(control: &ControlTls) -> Result<Self, TrustFault> {
        let (ssl, tickets) = control.connection()?;
        let machine = TlsMachine::over(ssl, true)?;
        Ok(Self::Tls(Box::new(Tls { machine, established: false, tickets, stands: None })))
    }

    /// Lets other control connections of the same client resume the session of this one.
    pub(super) fn stands(&mut self, control: &ControlTls) {
        if let Self::Tls(tls) = self {
            tls.stands = control.stands(&tls.machine, &tls.tickets);
        }
    }

    /// True if plain bytes can be sent.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::Clear | Self::Lines(_) => true,
            Self::Tls(tls) => tls.established,
            Self::Ended => false,
        }
    }

    /// True if what comes is inside TLS.
    pub(super) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Who showed a certificate in a TLS handshake.
    pub(super) fn peer(&self) -> Option<Peer> {
        match self {
            Self::Tls(tls) => tls.machine.peer(),
            Self::Clear | Self::Lines(_) | Self::Ended => None,
        }
    }

    /// What proves that a data connection belongs to this control connection.
    pub(super) fn secrets(&self) -> Secrets {
        match self {
            Self::Tls(tls) => Secrets {
                tickets: Some(Secret(tls.tickets.as_bytes().to_vec())),
                session: tls.machine.session().map(Secret),
                credential: None,
            },
            Self::Lines(lines) => Secrets { credential: lines.delegated.clone(), ..Secrets::default() },
            Self::Clear | Self::Ended => Secrets::default(),
        }
    }

    /// A data connection that a client sent on has used up a ticket, where tickets are used once, and could not be given another: a
    /// sender reads none (see `mover::shield`).
    pub(super) fn renew_ticket(&mut self) {
        if let Self::Tls(tls) = self {
            let _where_there_are_tickets = tls.machine.give_ticket();
        }
    }

    /// Takes bytes of the wire and appends the plain ones in them; `out` gets what TLS itself has to say.
    ///
    /// # Errors
    /// TLS failed; `out` has the alert, and nothing goes through any more.
    pub(super) fn receive(
        &mut self,
        wire: &[u8],
        plain: &mut BytesMut,
        out: &mut BytesMut,
    ) -> Result<News, TrustFault> {
        let result = match self {
            Self::Clear => {
                plain.extend_from_slice(wire);
                Ok(News::default())
            }
            Self::Lines(lines) => lines.open(wire, plain).map(|()| News::default()),
            Self::Ended => Ok(News { closed: true, ..News::default() }),
            Self::Tls(tls) => {
                let result = tls.receive(wire, plain);
                tls.transmit(out);
                result
            }
        };
        if result.is_err() {
            *self = Self::Ended;
        }
        result
    }

    /// Appends plain bytes to `out` as they go over the wire; where nothing goes through they are dropped.
    ///
    /// # Errors
    /// TLS failed; nothing goes through any more.
    pub(super) fn send(&mut self, plain: &[u8], out: &mut BytesMut) -> Result<(), TrustFault> {
        let result = match self {
            Self::Clear => {
                out.extend_from_slice(plain);
                Ok(())
            }
            Self::Tls(tls) => {
                let result = tls.machine.write(plain);
                tls.transmit(out);
                result
            }
            Self::Lines(lines) => lines.seal(plain, out),
            Self::Ended => Ok(()),
        };
        if result.is_err() {
            *self = Self::Ended;
        }
        result
    }

    /// Says that nothing more will come.
    pub(super) fn end(&mut self, out: &mut BytesMut) {
        match self {
            Self::Clear => return,
            Self::Lines(_) | Self::Ended => {}
            Self::Tls(tls) => {
                if tls.established {
                    tls.machine.close();
                }
                tls.transmit(out);
            }
        }
        *self = Self::Ended;
    }
}

impl Tls {
    fn receive(&mut self, wire: &[u8], plain: &mut BytesMut) -> Result<News, TrustFault> {
        let mut news = News::default();
        self.machine.feed(wire);
        if !self.established {
            self.established = self.machine.drive()? == Progress::Established;
            news.established = self.established;
            news.resumed = self.established && self.machine.resumed();
            if news.resumed {
                self.machine.refill_tickets();
            }
        }
        let mut read = Vec::new();
        while self.established {
            match self.machine.read(&mut read)? {
                Plain::Bytes(_) => {
                    plain.extend_from_slice(&read);
                    read.clear();
                }
                Plain::Nothing => break,
                Plain::Closed => {
                    news.closed = true;
                    break;
                }
            }
        }
        Ok(news)
    }

    fn transmit(&mut self, out: &mut BytesMut) {
        if let Some(bytes) = self.machine.transmit() {
            out.extend_from_slice(&bytes);
        }
    }
}
