//! Hands a letter to a mail server (RFC 5321).

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base64ct::{Base64, Encoding};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_openssl::SslStream;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_trust::roots::{HostOfAuthorities, SystemRoots};
use whimbrel_trust::tls::{ClientTls, verdict};

use super::mail::{MailServer, Protection};

const OP: &str = "send mail";

/// Time for the whole conversation.
const LIMIT: Duration = Duration::from_secs(60);

/// Longest line of an answer, bytes (RFC 5321 §4.5.3.1.5 has 512).
const LONGEST_LINE: u64 = 4096;

/// Most lines of one answer.
const MOST_LINES: usize = 100;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A conversation with a mail server.
pub struct Session {
    stream: BufReader<Box<dyn Stream>>,
    /// What it said that it can, one word a line first.
    offers: Vec<String>,
    protected: bool,
    host: String,
}

impl Session {
    /// Greets the server, protected as it is to be.
    ///
    /// # Errors
    /// It is not there, or not what it is to be, or offers no TLS where there is to be some.
    pub async fn open(server: &MailServer, roots: &SystemRoots) -> Result<Self, Fault> {
        timeout(LIMIT, Self::open_at_leisure(server, roots)).await.unwrap_or_else(|_| Err(late(&server.host)))
    }

    async fn open_at_leisure(server: &MailServer, roots: &SystemRoots) -> Result<Self, Fault> {
        let failed = |error| Fault::from_io(error, OP).subject(&server.host).side(Side::Peer);
        let stream = TcpStream::connect((server.host.as_str(), server.port)).await.map_err(failed)?;
        let protected = server.protection == Protection::Tls;
        let stream: Box<dyn Stream> =
            if protected { Box::new(secured(stream, server, roots).await?) } else { Box::new(stream) };
        let host = server.host.clone();
        let mut session = Self { stream: BufReader::new(stream), offers: Vec::new(), protected, host };
        session.answer("its greeting").await?;
        session.greet().await?;
        if protected || (server.protection == Protection::IfOffered && !session.offers("STARTTLS")) {
            return Ok(session);
        }
        if !session.offers("STARTTLS") {
            return Err(session.fault("it offers no TLS"));
        }
        session.ask("STARTTLS").await?;
        // What it sent in clear behind its answer was not said by who is on the other side of TLS.
        if !session.stream.buffer().is_empty() {
            return Err(session.fault("it sent more than an answer before TLS"));
        }
        let Self { stream, host, .. } = session;
        let stream: Box<dyn Stream> = Box::new(secured(stream.into_inner(), server, roots).await?);
        let mut session = Self { stream: BufReader::new(stream), offers: Vec::new(), protected: true, host };
        session.greet().await?;
        Ok(session)
    }

    /// Hands a letter over: lines end with CR LF, and it ends with one.
    ///
    /// # Errors
    /// The server did not take it.
    pub async fn send(mut self, server: &MailServer, to: &str, letter: &str) -> Result<(), Fault> {
        let host = self.host.clone();
        let sending = async {
            if let Some((name, password)) = &server.login {
                self.log_in(name, password).await?;
            }
            self.ask(&format!("MAIL FROM:<{}>", server.from)).await?;
            self.ask(&format!("RCPT TO:<{to}>")).await?;
            self.ask("DATA").await?;
            // RFC 5321 §4.5.2: a dot that begins a line is doubled.
            let stuffed = letter.replace("\r\n.", "\r\n..");
            self.ask(&format!("{stuffed}.")).await?;
            // The letter is theirs now: how the conversation ends is of no matter.
            let _bye = self.ask("QUIT").await;
            Ok(())
        };
        timeout(LIMIT, sending).await.unwrap_or_else(|_| Err(late(&host)))
    }

    async fn log_in(&mut self, name: &str, password: &str) -> Result<(), Fault> {
        if !self.protected {
            return Err(self.fault("it wants a password, and offers no TLS to say it in"));
        }
        let text = zeroize::Zeroizing::new(format!("\0{name}\0{password}"));
        let line = zeroize::Zeroizing::new(format!("AUTH PLAIN {}", Base64::encode_string(text.as_bytes())));
        self.ask(&line).await
    }

    async fn greet(&mut self) -> Result<(), Fault> {
        self.say("EHLO whimbrel").await?;
        self.offers = self.answer("EHLO").await?;
        Ok(())
    }

    fn offers(&self, word: &str) -> bool {
        let first = |line: &String| line.split(' ').next().is_some_and(|first| first.eq_ignore_ascii_case(word));
        self.offers.iter().any(first)
    }

    async fn ask(&mut self, line: &str) -> Result<(), Fault> {
        self.say(line).await?;
        let what = line.split([' ', ':', '\r']).next().unwrap_or_default().to_owned();
        self.answer(&what).await.map(drop)
    }

    async fn say(&mut self, line: &str) -> Result<(), Fault> {
        let written = async {
            self.stream.write_all(line.as_bytes()).await?;
            self.stream.write_all(b"\r\n").await?;
            self.stream.flush().await
        };
        let written = written.await;
        written.map_err(|error| Fault::from_io(error, OP).subject(&self.host).side(Side::Peer))
    }

    /// The texts of an answer's lines; anything but 2xx and 3xx is a fault.
    async fn answer(&mut self, to: &str) -> Result<Vec<String>, Fault> {
        let mut texts = Vec::new();
        while texts.len() < MOST_LINES {
            let mut line = String::new();
            let read = (&mut self.stream).take(LONGEST_LINE).read_line(&mut line).await;
            read.map_err(|error| Fault::from_io(error, OP).subject(&self.host).side(Side::Peer))?;
            let line = line.trim_end_matches(['\r', '\n']);
            if line.len() < 3 || !line.is_ascii() || !line.as_bytes()[..3].iter().all(u8::is_ascii_digit) {
                return Err(self.fault("it does not answer as mail servers do"));
            }
            texts.push(line.get(4..).unwrap_or_default().to_owned());
            if line.as_bytes().get(3) == Some(&b'-') {
                continue;
            }
            let good = matches!(line.as_bytes()[0], b'2' | b'3');
            return if good { Ok(texts) } else { Err(self.fault(&format!("it answered {to} with {line:?}"))) };
        }
        Err(self.fault("its answer has no end"))
    }

    fn fault(&self, detail: &str) -> Fault {
        Fault::new(FaultCode::PeerRefused, OP).subject(&self.host).side(Side::Peer).detail(detail)
    }
}

fn late(host: &str) -> Fault {
    Fault::new(FaultCode::TimedOut, OP).subject(host).side(Side::Peer).detail("it takes too long")
}

async fn secured<S: Stream>(stream: S, server: &MailServer, roots: &SystemRoots) -> Result<SslStream<S>, Fault> {
    let refused = |fault: whimbrel_trust::TrustFault| fault.into_fault(OP, Side::Peer).subject(&server.host);
    let judge = Arc::new(HostOfAuthorities::new(roots.clone(), &server.host));
    let ssl = ClientTls::new(judge, None).and_then(|tls| tls.connection(&server.host)).map_err(refused)?;
    let broken = |detail: String| {
        Fault::new(FaultCode::ConnectionLost, OP).subject(&server.host).side(Side::Peer).detail(detail)
    };
    let mut stream = SslStream::new(ssl, stream).map_err(|error| broken(error.to_string()))?;
    match Pin::new(&mut stream).connect().await {
        Ok(()) => Ok(stream),
        Err(error) => Err(match verdict(stream.ssl()) {
            Some(Err(fault)) => refused(fault),
            _ => broken(error.to_string()),
        }),
    }
}
