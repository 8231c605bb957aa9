//! A control connection: command lines out, replies in, nothing of their meaning.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::line::LineSplitter;
use whimbrel_proto::reply::{MAX_REPLY_LINE, Reply, ReplyError, ReplyParser};

use super::target::{AddressFamily, SessionOptions, Target};

/// What a server sends.
#[derive(Debug)]
pub enum Incoming {
    /// A complete reply, without the lines that came before.
    Reply(Reply),
    /// Middle lines of a reply that is not complete.
    Lines(Vec<Vec<u8>>),
}

/// Prints the dialogue.
#[derive(Debug)]
struct Trace {
    name: String,
    lines: LineSplitter,
}

/// One control connection.
#[derive(Debug)]
pub struct Channel {
    stream: TcpStream,
    input: BytesMut,
    replies: ReplyParser,
    output: BytesMut,
    waiting: VecDeque<Vec<u8>>,
    lockstep: bool,
    /// A reply is due; at first the greeting.
    due: bool,
    trace: Option<Trace>,
    /// Address of the server.
    pub peer: SocketAddr,
    /// Our address, as the server sees it unless it is translated in between.
    pub local: SocketAddr,
}

impl Channel {
    /// Resolves and connects, trying every address in turn.
    pub async fn connect(target: &Target, options: &SessionOptions) -> Result<Self, Fault> {
        let addresses = resolve(target, options.family).await?;
        let mut last = None;
        for address in addresses {
            match connect_one(address, options).await {
                Ok(stream) => return Self::new(stream, target, options),
                Err(fault) => last = Some(fault.subject(target.to_string())),
            }
        }
        Err(last.unwrap_or_else(|| no_address(target, options.family)))
    }

    fn new(stream: TcpStream, target: &Target, options: &SessionOptions) -> Result<Self, Fault> {
        let lost = |error| Fault::from_io(error, "connect").subject(target.to_string()).side(Side::Network);
        // Flights of commands are complete when they are written; waiting to fill a segment costs a round trip.
        stream.set_nodelay(true).map_err(lost)?;
        Ok(Self {
            peer: stream.peer_addr().map_err(lost)?,
            local: stream.local_addr().map_err(lost)?,
            stream,
            input: BytesMut::with_capacity(8 * 1024),
            replies: ReplyParser::default(),
            output: BytesMut::new(),
            waiting: VecDeque::new(),
            lockstep: !options.pipelined,
            due: true,
            trace: options
                .trace
                .then(|| Trace { name: target.to_string(), lines: LineSplitter::new(MAX_REPLY_LINE).without_telnet() }),
        })
    }

    /// Queues one command line without its line end; in lock-step it waits for [`Channel::answered`].
    ///
    /// # Errors
    /// `InvalidPath` when the line holds CR, LF or NUL, which no FTP command can carry.
    pub fn push(&mut self, line: &[u8]) -> Result<(), Fault> {
        if line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(Fault::new(FaultCode::InvalidPath, "send command")
                .on_path(line)
                .detail("FTP cannot carry a name with a line break"));
        }
        if self.lockstep && self.due {
            self.waiting.push_back(line.to_vec());
        } else {
            self.due = true;
            self.write_line(line);
        }
        Ok(())
    }

    fn write_line(&mut self, line: &[u8]) {
        if let Some(Trace { name, .. }) = &self.trace {
            let secret = line.get(..5).is_some_and(|verb| verb.eq_ignore_ascii_case(b"PASS "));
            let shown = if secret { b"PASS ***".as_slice() } else { line };
            eprintln!("{name} > {}", String::from_utf8_lossy(shown));
        }
        self.output.extend_from_slice(line);
        self.output.extend_from_slice(b"\r\n");
    }

    /// A final reply, or the greeting, is here: in lock-step the next command may go.
    pub fn answered(&mut self) {
        self.due = !self.waiting.is_empty();
        if let Some(line) = self.waiting.pop_front() {
            self.write_line(&line);
        }
    }

    /// What comes next from the server, writing what is queued meanwhile; with `stream`, the lines of a reply as they come.
    ///
    /// Cancel safe: a dropped call loses nothing.
    ///
    /// # Errors
    /// The connection is over, or what comes is no FTP.
    pub async fn next(&mut self, stream: bool) -> Result<Incoming, Fault> {
        loop {
            if let Some(reply) = self.replies.next_reply() {
                return reply.map(Incoming::Reply).map_err(misspoken);
            }
            if stream {
                let lines = self.replies.take_middle_lines();
                if !lines.is_empty() {
                    return Ok(Incoming::Lines(lines));
                }
            }
            self.exchange().await?;
            self.read();
        }
    }

    /// Makes replies of the bytes that came.
    fn read(&mut self) {
        if let Some(Trace { name, lines }) = &mut self.trace {
            lines.feed(&self.input);
            while let Some(line) = lines.next_line() {
                let shown = line
                    .as_ref()
                    .map_or_else(|error| error.to_string(), |line| String::from_utf8_lossy(line).into_owned());
                eprintln!("{name} < {shown}");
            }
        }
        self.replies.feed(&self.input);
        self.input.clear();
    }

    /// Moves bytes in either direction once.
    async fn exchange(&mut self) -> Result<(), Fault> {
        let Self { stream, input, output, .. } = self;
        let (mut reader, mut writer) = stream.split();
        if output.is_empty() {
            let count = reader.read_buf(input).await.map_err(lost)?;
            return ended(count);
        }
        tokio::select! {
            count = reader.read_buf(input) => ended(count.map_err(lost)?),
            count = writer.write(output) => {
                output.advance(count.map_err(lost)?);
                Ok(())
            }
        }
    }

    /// Writes everything queued, reading nothing.
    pub async fn flush(&mut self) -> Result<(), Fault> {
        self.stream.write_all_buf(&mut self.output).await.map_err(lost)
    }
}

fn misspoken(error: ReplyError) -> Fault {
    Fault::new(FaultCode::PeerMisbehaved, "read reply").side(Side::Peer).detail(error.to_string())
}

fn ended(count: usize) -> Result<(), Fault> {
    if count > 0 {
        return Ok(());
    }
    Err(Fault::new(FaultCode::ConnectionLost, "read reply")
        .side(Side::Network)
        .detail("the server closed the control connection"))
}

fn lost(error: io::Error) -> Fault {
    Fault::from_io(error, "use the control connection").side(Side::Network)
}

async fn resolve(target: &Target, family: AddressFamily) -> Result<Vec<SocketAddr>, Fault> {
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
