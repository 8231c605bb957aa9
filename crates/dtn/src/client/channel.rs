//! The wire side of a control connection: moves the bytes of its machine, nothing of their meaning.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::client::ClientControl;
use whimbrel_proto::line::LineSplitter;
use whimbrel_proto::reply::MAX_REPLY_LINE;
use whimbrel_trust::tls::{Plain, TlsMachine};

use super::gssapi::Wrapped;
use super::meeting;
use super::security::{Handshake, Security, told};
use super::ssh;
use super::stream::Stream;
use super::target::{AddressFamily, SessionOptions, Target};

/// Verbs whose arguments nobody may see.
const SECRET: [&[u8]; 4] = [b"PASS ", b"ACCT ", b"ADAT ", b"DCSC "];

/// Both addresses of a connection that the server made: it listens at none.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Prints the dialogue.
#[derive(Debug)]
struct Trace {
    name: String,
    lines: LineSplitter,
}

/// What lies between the socket and the lines.
#[derive(Debug)]
enum Wire {
    /// Nothing.
    Clear,
    /// TLS that does not stand yet.
    Handshake(Box<Handshake>),
    /// TLS, and why its other end is believed.
    Tls(Box<TlsMachine>, String),
    /// Each line is a token of GSI or Kerberos.
    Wrapped(Box<Wrapped>),
}

/// One control connection.
#[derive(Debug)]
pub struct Channel {
    stream: Stream,
    wire: Wire,
    /// From the socket.
    input: BytesMut,
    /// Lines of the server: what is left of them belongs to TLS or to an attacker.
    lines: Vec<u8>,
    /// For the socket.
    output: Bytes,
    trace: Option<Trace>,
    /// Address of the server.
    pub peer: SocketAddr,
    /// Our address, as the server sees it unless it is translated in between.
    pub local: SocketAddr,
}

impl Channel {
    /// Resolves and connects, trying every address in turn.
    pub async fn connect(target: &Target, options: &SessionOptions) -> Result<Self, Fault> {
        if target.security == Security::Ssh {
            let started = ssh::start(target, options).await?;
            let stream = Stream::Ssh(started.stream, Box::new(started.ssh));
            return Ok(Self {
                input: started.input,
                ..Self::new((stream, started.ends.0, started.ends.1), target, options)
            });
        }
        if let Some(stream) = meeting::meet(target, options).await? {
            return Ok(Self::new((Stream::Met(stream), NOWHERE, NOWHERE), target, options));
        }
        let addresses = resolve(target, options.family).await?;
        let lost = |error| Fault::from_io(error, "connect").subject(target.to_string()).side(Side::Network);
        let mut last = None;
        for address in addresses {
            match connect_one(address, options).await {
                Ok(stream) => return Ok(Self::new(Stream::tcp(stream).map_err(lost)?, target, options)),
                Err(fault) => last = Some(fault.subject(target.to_string())),
            }
        }
        Err(last.unwrap_or_else(|| no_address(target, options.family)))
    }

    fn new((stream, peer, local): (Stream, SocketAddr, SocketAddr), target: &Target, options: &SessionOptions) -> Self {
        Self {
            peer,
            local,
            stream,
            wire: Wire::Clear,
            input: BytesMut::with_capacity(8 * 1024),
            lines: Vec::new(),
            output: Bytes::new(),
            trace: options
                .trace
                .then(|| Trace { name: target.to_string(), lines: LineSplitter::new(MAX_REPLY_LINE).without_telnet() }),
        }
    }

    /// Whether the server made the connection: nobody has dialled an address of its.
    pub fn is_met(&self) -> bool {
        matches!(self.stream, Stream::Met(_))
    }

    /// How lines are protected, and why the server is believed; `None` in clear.
    pub fn protection(&self) -> Option<String> {
        match &self.wire {
            Wire::Clear | Wire::Handshake(_) => self.stream.protection(),
            Wire::Wrapped(wrapped) => Some(wrapped.protection.clone()),
            Wire::Tls(tls, why) => Some(format!("{}; the host is {why}", tls.suite())),
        }
    }

    /// The login over GSSAPI that wraps the lines, if one does.
    pub(super) fn wrapped(&self) -> Option<&Wrapped> {
        match &self.wire {
            Wire::Wrapped(wrapped) => Some(wrapped),
            _ => None,
        }
    }

    /// The shortest round trip that the kernel has seen, the handshake's included; `None` where it does not say.
    pub fn round_trip(&self) -> Option<Duration> {
        self.stream.round_trip()
    }

    /// A login that failed, with what the program below says about it.
    pub(super) async fn explain(&mut self, fault: Fault) -> Fault {
        match self.stream.ssh() {
            Some(ssh) => ssh.explain(fault).await,
            None => fault,
        }
    }

    /// Moves bytes between machine and server once, in whichever direction it goes first. Cancel safe.
    ///
    /// # Errors
    /// The connection broke; its orderly end is the machine's to judge.
    pub async fn exchange(&mut self, machine: &mut ClientControl) -> Result<(), Fault> {
        if !self.input.is_empty() {
            // Came with the start of the server.
            return self.received(machine);
        }
        self.take(machine)?;
        match self.move_bytes().await? {
            Some(0) => self.ended(machine),
            Some(_) => self.received(machine),
            None => Ok(()),
        }
    }

    /// Bytes that came in; `None`: some went out.
    async fn move_bytes(&mut self) -> Result<Option<usize>, Fault> {
        let Self { stream, input, output, .. } = self;
        let (mut reader, mut writer) = stream.split();
        if output.is_empty() {
            return reader.read_buf(input).await.map(Some).map_err(lost);
        }
        tokio::select! {
            count = reader.read_buf(input) => count.map(Some).map_err(lost),
            count = writer.write(output) => {
                output.advance(count.map_err(lost)?);
                Ok(None)
            }
        }
    }

    /// Begins TLS; what the machine has to send waits for its end.
    ///
    /// # Errors
    /// `PeerMisbehaved` if bytes in clear stand behind the server's consent: whoever put them there is not the server.
    pub(super) fn start_tls(&mut self, mut handshake: Handshake) -> Result<(), Fault> {
        self.nothing_behind()?;
        handshake.advance(b"")?;
        self.wire = Wire::Handshake(Box::new(handshake));
        Ok(())
    }

    /// Wraps all lines from now on.
    ///
    /// # Errors
    /// As [`Self::start_tls`].
    pub(super) fn start_wrapping(&mut self, wrapped: Wrapped) -> Result<(), Fault> {
        self.nothing_behind()?;
        self.wire = Wire::Wrapped(Box::new(wrapped));
        Ok(())
    }

    fn nothing_behind(&self) -> Result<(), Fault> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let fault = Fault::new(FaultCode::PeerMisbehaved, "protect the control connection").side(Side::Peer);
        Err(fault.detail("bytes in clear came behind the server's consent to protection"))
    }

    fn received(&mut self, machine: &mut ClientControl) -> Result<(), Fault> {
        if let Wire::Handshake(handshake) = &mut self.wire {
            let advanced = handshake.advance(&self.input);
            self.input.clear();
            if !self.refused(advanced)? {
                return Ok(());
            }
            let Wire::Handshake(handshake) = std::mem::replace(&mut self.wire, Wire::Clear) else { return Ok(()) };
            // The last message of the handshake goes first.
            let mut handshake = handshake;
            self.output = handshake.transmit().unwrap_or_default().into();
            let (tls, why) = handshake.finish()?;
            self.wire = Wire::Tls(Box::new(tls), why);
            machine.secured(Instant::now());
        }
        let before = self.lines.len();
        match &mut self.wire {
            Wire::Tls(tls, _) => {
                tls.feed(&self.input);
                while let Plain::Bytes(_) =
                    tls.read(&mut self.lines).map_err(|fault| told(fault, &self.peer.to_string()))?
                {}
            }
            Wire::Wrapped(wrapped) => wrapped.open(&self.input, &mut self.lines)?,
            _ => self.lines.extend_from_slice(&self.input),
        }
        self.input.clear();
        self.trace_input(before);
        let taken = machine.handle_bytes(Instant::now(), &self.lines);
        self.lines.drain(..taken);
        Ok(())
    }

    /// A refusal, once the alert is on its way that tells the server.
    fn refused(&mut self, advanced: Result<bool, Fault>) -> Result<bool, Fault> {
        if advanced.is_err()
            && let Wire::Handshake(handshake) = &mut self.wire
            && let Some(alert) = handshake.transmit()
        {
            // It learns from the closed connection otherwise.
            let _sent = self.stream.try_write(&alert);
        }
        advanced
    }

    fn ended(&mut self, machine: &mut ClientControl) -> Result<(), Fault> {
        match &self.wire {
            Wire::Handshake(_) => {
                let fault = Fault::new(FaultCode::ConnectionLost, "protect the control connection").side(Side::Peer);
                Err(fault.subject(self.peer.to_string()).detail("the server closed it during the handshake"))
            }
            _ => {
                machine.handle_eof(Instant::now());
                Ok(())
            }
        }
    }

    /// Writes everything the machine has to send, reading nothing.
    pub async fn flush(&mut self, machine: &mut ClientControl) -> Result<(), Fault> {
        loop {
            self.take(machine)?;
            if self.output.is_empty() {
                return Ok(());
            }
            self.stream.write_all_buf(&mut self.output).await.map_err(lost)?;
        }
    }

    /// Ends the connection and waits, not longer than `limit`, until the server has ended it, too.
    pub async fn leave(&mut self, limit: Duration) {
        if let Wire::Tls(tls, _) = &mut self.wire {
            tls.close();
            self.output = tls.transmit().unwrap_or_default().into();
        }
        let ended = async {
            self.stream.write_all_buf(&mut self.output).await?;
            self.stream.shutdown().await?;
            while self.stream.read_buf(&mut self.input).await? > 0 {
                self.input.clear();
            }
            io::Result::Ok(())
        };
        // A connection that is broken, or a server that takes too long, cannot be waited for.
        let _ = timeout(limit, ended).await;
    }

    /// Takes what the machine has to send, once all before it is written.
    fn take(&mut self, machine: &mut ClientControl) -> Result<(), Fault> {
        if !self.output.is_empty() {
            return Ok(());
        }
        let lines = match &mut self.wire {
            Wire::Handshake(handshake) => {
                self.output = handshake.transmit().unwrap_or_default().into();
                return Ok(());
            }
            _ => machine.poll_transmit().unwrap_or_default(),
        };
        self.trace_output(&lines);
        self.output = match &mut self.wire {
            Wire::Tls(tls, _) => {
                tls.write(&lines).map_err(|fault| told(fault, &self.peer.to_string()))?;
                tls.transmit().unwrap_or_default().into()
            }
            Wire::Wrapped(wrapped) => wrapped.seal(&lines)?.into(),
            _ => lines,
        };
        Ok(())
    }

    fn trace_output(&self, output: &[u8]) {
        if let Some(Trace { name, .. }) = &self.trace {
            for line in output.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
                let verb = line.get(..5).filter(|verb| SECRET.iter().any(|secret| verb.eq_ignore_ascii_case(secret)));
                let shown = verb.unwrap_or_else(|| line.strip_suffix(b"\r").unwrap_or(line));
                let hidden = if verb.is_some() { "***" } else { "" };
                tell(format_args!("{name} > {}{hidden}", String::from_utf8_lossy(shown)));
            }
        }
    }

    fn trace_input(&mut self, from: usize) {
        if let Some(Trace { name, lines }) = &mut self.trace {
            lines.feed(&self.lines[from..]);
            while let Some(line) = lines.next_line() {
                let shown = line
                    .as_ref()
                    .map_or_else(|error| error.to_string(), |line| String::from_utf8_lossy(line).into_owned());
                // Nobody reads tokens.
                let token = shown.get(..9).filter(|_| shown.get(3..).is_some_and(|text| text.starts_with(" ADAT=")));
                let hidden = if token.is_some() { "***" } else { "" };
                tell(format_args!("{name} < {}{hidden}", token.unwrap_or(&shown)));
            }
        }
    }
}

/// A line of the dialogue; nobody may be there who reads it.
fn tell(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

fn lost(error: io::Error) -> Fault {
    Fault::from_io(error, "use the control connection").side(Side::Network)
}

pub(super) async fn resolve(target: &Target, family: AddressFamily) -> Result<Vec<SocketAddr>, Fault> {
    let found = tokio::net::lookup_host((target.host.as_str(), target.port)).await.map_err(|error| {
        let mut fault = Fault::new(FaultCode::HostNotFound, "resolve").subject(&target.host).detail(error.to_string());
        fault.source = Some(Box::new(error));
        fault.side(Side::Network)
    })?;
    let wanted = found.filter(|address| match family {
        AddressFamily::Any => true,
        AddressFamily::V4 => address.is_ipv4(),
        AddressFamily::V6 => address.is_ipv6(),
    });
    Ok(wanted.collect())
}

fn no_address(target: &Target, family: AddressFamily) -> Fault {
    Fault::new(FaultCode::HostNotFound, "resolve")
        .subject(&target.host)
        .side(Side::Network)
        .detail(format!("the name has no address of the wanted family ({family:?})"))
}

async fn connect_one(address: SocketAddr, options: &SessionOptions) -> Result<TcpStream, Fault> {
    match timeout(options.connect_timeout, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(Fault::from_io(error, "connect").side(Side::Network)),
        Err(_) => Err(Fault::new(FaultCode::TimedOut, "connect")
            .side(Side::Network)
            .detail(format!("no answer from {address} in {} s", options.connect_timeout.as_secs()))),
    }
}
