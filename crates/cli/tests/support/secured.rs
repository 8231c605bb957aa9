//! A control connection behind AUTH GSSAPI or AUTH TLS, in the test's own hands.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use openssl::x509::X509Ref;
use whimbrel_proto::protect::{CommandSealer, ReplyOpener, base64};
use whimbrel_proto::reply::MAX_REPLY_LINE;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_trust::gsi::initiator::Initiated;
use whimbrel_trust::gsi::{Delegate, GsiInitiator};
use whimbrel_trust::tls::{ClientTls, Plain, Progress, TlsMachine};
use whimbrel_trust::{OwnChain, Peer, PeerJudge, TrustFault};

use super::control::{Control, Reply, address};

/// Believes everybody: here it is the server that judges.
struct Anybody;

impl PeerJudge for Anybody {
    fn judge(&self, leaf: &X509Ref, _: &[&X509Ref]) -> Result<Peer, TrustFault> {
        let (subject, chain, vo) = (String::new(), Vec::new(), Vec::new());
        Ok(Peer { subject, leaf: leaf.to_owned(), chain, limited: false, until: now(), vo })
    }
}

/// What was said inside.
pub struct Secured {
    control: Control,
    machine: TlsMachine,
    /// With GSI lines are wrapped one by one.
    lines: Option<(CommandSealer, ReplyOpener)>,
    plain: Vec<u8>,
    /// Tokens that it sent.
    pub tokens: Vec<String>,
}

/// A client that shows this chain where it is asked for one.
pub fn client(own: Option<&OwnChain>) -> ClientTls {
    ClientTls::new(Arc::new(Anybody), own).expect("whatever it is, it is a certificate with its key")
}

impl Secured {
    /// AUTH GSSAPI as `own`, handing on rights; the reply that refused it.
    pub fn gsi(server: SocketAddr, own: &OwnChain) -> Result<Secured, Reply> {
        Secured::gsi_handing_on(server, own, own)
    }

    /// As [`Secured::gsi`], but what is handed on comes from somebody else.
    pub fn gsi_handing_on(server: SocketAddr, own: &OwnChain, other: &OwnChain) -> Result<Secured, Reply> {
        let mut control = Control::open(server);
        control.ask_for(334, "AUTH GSSAPI");
        let tls = TlsMachine::client(&client(Some(own)), "localhost").expect("a machine");
        let mut initiator = GsiInitiator::over(tls, other.clone(), Delegate::Full);
        let (mut token, mut tokens) = (initiator.start().expect("a first token"), Vec::new());
        loop {
            tokens.push(base64::encode(&token));
            let reply = control.ask(&format!("ADAT {}", base64::encode(&token)));
            match (reply.code, reply.text.split_once("ADAT=")) {
                (235, _) => break,
                (335, Some((_, answer))) => {
                    let answer = base64::decode(answer.trim_end().as_bytes(), 1 << 20).expect("a token");
                    token = match initiator.step(&answer, now(), 3600).expect("the server keeps to the exchange") {
                        Initiated::Continue(next) | Initiated::Last(next) => next,
                    };
                }
                _ => return Err(reply),
            }
        }
        let lines = Some((CommandSealer::default(), ReplyOpener::new(MAX_REPLY_LINE)));
        Ok(Secured { control, machine: initiator.into_tls(), lines, plain: Vec::new(), tokens })
    }

    /// AUTH TLS; why the handshake failed. In TLS 1.3 a client learns only with the next reply that it was refused.
    pub fn tls(server: SocketAddr, own: Option<&OwnChain>) -> Result<Secured, TrustFault> {
        let mut control = Control::open(server);
        control.ask_for(234, "AUTH TLS");
        let machine = TlsMachine::client(&client(own), "localhost")?;
        let mut secured = Secured { control, machine, lines: None, plain: Vec::new(), tokens: Vec::new() };
        while secured.machine.drive()? == Progress::Handshaking {
            secured.flush().expect("the server takes a handshake");
            let wire = secured.control.receive().expect("the server goes on");
            secured.machine.feed(&wire);
        }
        secured.flush().expect("the server takes a handshake");
        Ok(secured)
    }

    /// Logs in as whoever the certificate says; the last reply.
    pub fn login(&mut self) -> io::Result<Reply> {
        let reply = self.try_ask("USER :globus-mapping:")?;
        if reply.code == 331 { self.try_ask("PASS dummy") } else { Ok(reply) }
    }

    /// Sends a line.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        let wire = self.seal(line)?;
        self.send(&wire)
    }

    /// A line as it goes over the wire.
    pub fn seal(&mut self, line: &str) -> io::Result<Vec<u8>> {
        let line = format!("{line}\r\n");
        let mut wire = Vec::new();
        match &mut self.lines {
            Some((sealer, _)) => sealer.feed(&mut self.machine, line.as_bytes(), &mut wire).map_err(broken)?,
            None => {
                self.machine.write(line.as_bytes()).map_err(broken)?;
                wire = self.machine.transmit().unwrap_or_default();
            }
        }
        Ok(wire)
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, wire: &[u8]) -> io::Result<()> {
        self.control.send(wire)
    }

    /// The next reply, or why there is none.
    pub fn try_reply(&mut self) -> io::Result<Reply> {
        let mut text = String::new();
        loop {
            while let Some(end) = self.plain.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.plain.drain(..=end).collect();
                text.push_str(&String::from_utf8_lossy(&line));
                let code = line.get(..3).and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
                if let (Some(code), Some(b' ')) = (code, line.get(3)) {
                    return Ok(Reply { code, text });
                }
            }
            let wire = self.control.receive()?;
            match &mut self.lines {
                Some((_, opener)) => opener.feed(&mut self.machine, &wire, &mut self.plain).map_err(broken)?,
                None => {
                    self.machine.feed(&wire);
                    while let Plain::Bytes(_) = self.machine.read(&mut self.plain).map_err(broken)? {}
                }
            }
        }
    }

    /// Sends a line and reads the reply, or tells why there is none.
    pub fn try_ask(&mut self, line: &str) -> io::Result<Reply> {
        self.say(line)?;
        self.try_reply()
    }

    /// Sends a line and reads the reply.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> Reply {
        self.try_ask(line).expect("a reply comes")
    }

    /// Sends a line and expects this code.
    #[track_caller]
    pub fn ask_for(&mut self, code: u16, line: &str) -> Reply {
        let reply = self.ask(line);
        assert_eq!(reply.code, code, "{line}: {}", reply.text);
        reply
    }

    /// Replies up to the first that is no preliminary one.
    #[track_caller]
    pub fn last_reply(&mut self) -> Reply {
        loop {
            let reply = self.try_reply().expect("a reply comes");
            if reply.code >= 200 {
                return reply;
            }
        }
    }

    /// PASV.
    #[track_caller]
    pub fn passive(&mut self) -> SocketAddr {
        let reply = self.ask_for(227, "PASV");
        address(reply.text.split(['(', ')']).nth(1).expect("an address in parentheses"))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.machine.transmit().map_or(Ok(()), |wire| self.control.send(&wire))
    }
}

fn broken(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error.to_string())
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    Timestamp::from_secs(since.as_secs() as i64)
}
