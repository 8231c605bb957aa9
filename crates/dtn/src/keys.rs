//! Fetches the keys of one issuer of tokens: a process of its own, which may make connections and has nothing else.
//!
//! The front, which needs the keys, can make none; the monitor, which starts this, does not look at what comes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use openssl::x509::X509;
use serde::{Deserialize, Serialize};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::token::discovery::{self, MAX_DOCUMENT};
use whimbrel_proto::token::http::{Answer, AnswerReader, HttpsUrl};
use whimbrel_trust::TrustFault;
use whimbrel_trust::roots::{HostOfAuthorities, SystemRoots};
use whimbrel_trust::tls::{ClientTls, Plain, Progress, TlsMachine};

use crate::confine::{self, Needs, Sandbox};
use crate::parent;

const OP: &str = "fetch keys";

/// Time for all of it; the monitor waits a little longer.
pub const LIMIT: Duration = Duration::from_secs(15);

/// Time for a connection to one address.
const CONNECT: Duration = Duration::from_secs(5);

/// Largest set of keys, bytes: it has to fit a packet to the front.
const MOST_KEYS: usize = 96 << 10;

/// Longest answer of this process, bytes.
pub const MOST_ANSWER: usize = 112 << 10;

/// Redirections that are followed.
const MOST_MOVES: usize = 3;

/// What this process is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct Question {
    /// The issuer, a URL.
    pub issuer: String,
    /// PEM text of those who vouch for its host; `None`: those of the system.
    pub authorities: Option<Vec<u8>>,
    /// How far it is confined.
    pub sandbox: Sandbox,
}

impl Question {
    /// For the standard input of the process.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("texts can always be written")
    }
}

/// The keys in what the process said.
///
/// # Errors
/// Its own fault; `Internal` for something else.
pub fn read(answer: &[u8]) -> Result<Vec<u8>, Fault> {
    postcard::from_bytes(answer)
        .unwrap_or_else(|error| Err(Fault::new(FaultCode::Internal, OP).side(Side::Us).detail(error.to_string())))
}

/// Reads the question from standard input, and writes the keys or the fault to standard output.
pub fn serve_standard_input() -> Result<(), Fault> {
    let failed = |error| Fault::from_io(error, OP).side(Side::Us);
    parent::end_with_parent()?;
    let mut question = Vec::new();
    io::stdin().lock().read_to_end(&mut question).map_err(failed)?;
    let question: Question = postcard::from_bytes(&question)
        .map_err(|_| Fault::new(FaultCode::InvalidArgument, OP).detail("only `whimbrel dtn` starts it"))?;
    confine::enter(&Needs::fetch(), question.sandbox)?;
    let answer = keys(&question);
    let bytes = postcard::to_stdvec(&answer).expect("texts can always be written");
    io::stdout().lock().write_all(&bytes).map_err(failed)
}

fn keys(question: &Question) -> Result<Vec<u8>, Fault> {
    let roots = match &question.authorities {
        None => SystemRoots::load(),
        Some(pem) => X509::stack_from_pem(pem)
            .map_err(|error| TrustFault::new(FaultCode::CredentialRejected, format!("tokens.authorities: {error}")))
            .and_then(SystemRoots::of),
    };
    let roots = roots.map_err(|fault| fault.into_fault(OP, Side::Us))?;
    let web = Web { roots, until: Instant::now() + LIMIT };
    let mut first = None;
    for place in discovery::places(&question.issuer) {
        match web.keys_by(&place, &question.issuer) {
            Ok(keys) => return Ok(keys),
            // The second place is for issuers of another make: what the first one said tells more.
            Err(fault) => first = first.or(Some(fault)),
        }
    }
    Err(first.unwrap_or_else(|| fault(&question.issuer, "it is no https URL")))
}

fn fault(subject: &str, detail: impl Into<String>) -> Fault {
    Fault::new(FaultCode::ServerBusy, OP).side(Side::Peer).subject(subject).detail(detail)
}

/// What all requests have in common.
struct Web {
    roots: SystemRoots,
    until: Instant,
}

impl Web {
    fn keys_by(&self, place: &HttpsUrl, issuer: &str) -> Result<Vec<u8>, Fault> {
        let description = self.get(place, MAX_DOCUMENT)?;
        let keys = discovery::keys(&description, issuer).map_err(|error| fault(&shown(place), error.to_string()))?;
        self.get(&keys, MOST_KEYS)
    }

    /// A document, at the place or where it was moved on the same host.
    fn get(&self, place: &HttpsUrl, most: usize) -> Result<Vec<u8>, Fault> {
        let mut place = place.clone();
        for _ in 0..=MOST_MOVES {
            let subject = shown(&place);
            place = match self.ask(&place, most)? {
                Answer::Document(document) => return Ok(document),
                Answer::Status(status) => return Err(fault(&subject, format!("the server answered {status}"))),
                Answer::Moved(there) => place
                    .redirected(&there)
                    .ok_or_else(|| fault(&subject, "the server sends us to another host, which is not followed"))?,
            };
        }
        Err(fault(&shown(&place), "the server sends us from place to place"))
    }

    fn ask(&self, place: &HttpsUrl, most: usize) -> Result<Answer, Fault> {
        let subject = shown(place);
        let refused = |fault: TrustFault| fault.into_fault(OP, Side::Peer).subject(&subject);
        let failed = |error: io::Error| Fault::from_io(error, OP).side(Side::Peer).subject(&subject);
        let judge = HostOfAuthorities::new(self.roots.clone(), place.host());
        let context = ClientTls::new(Arc::new(judge), None).map_err(refused)?;
        let mut tls = TlsMachine::client(&context, place.host()).map_err(refused)?;
        let mut stream = self.connect(place).map_err(failed)?;
        let mut reader = AnswerReader::new(most);
        let mut asked = false;
        loop {
            if !asked && tls.drive().map_err(refused)? == Progress::Established {
                tls.write(&place.request()).map_err(refused)?;
                asked = true;
            }
            let (plain, closed) = if asked { drained(&mut tls).map_err(refused)? } else { (Vec::new(), false) };
            let complete = reader.feed(&plain).map_err(|error| fault(&subject, error.to_string()))?;
            // Only TLS can say that this is all there is.
            if complete || closed {
                return reader.finish().map_err(|error| fault(&subject, error.to_string()));
            }
            self.exchange(&mut stream, &mut tls).map_err(failed)?;
        }
    }

    /// The first address that takes a connection.
    fn connect(&self, place: &HttpsUrl) -> io::Result<TcpStream> {
        let addresses: Vec<SocketAddr> = (place.host(), place.port()).to_socket_addrs()?.collect();
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses {
            match TcpStream::connect_timeout(&address, self.left()?.min(CONNECT)) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Sends what TLS has to say, and hands it what comes next.
    fn exchange(&self, stream: &mut TcpStream, tls: &mut TlsMachine) -> io::Result<()> {
        stream.set_write_timeout(Some(self.left()?))?;
        if let Some(bytes) = tls.transmit() {
            stream.write_all(&bytes)?;
        }
        stream.set_read_timeout(Some(self.left()?))?;
        let mut bytes = [0; 16 << 10];
        match stream.read(&mut bytes)? {
            0 => tls.feed_end(),
            count => tls.feed(&bytes[..count]),
        }
        Ok(())
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// All plain bytes that have come, and whether the other side will send no more.
fn drained(tls: &mut TlsMachine) -> Result<(Vec<u8>, bool), TrustFault> {
    let mut plain = Vec::new();
    loop {
        match tls.read(&mut plain)? {
            Plain::Bytes(_) => {}
            Plain::Nothing => return Ok((plain, false)),
            Plain::Closed => return Ok((plain, true)),
        }
    }
}

fn shown(place: &HttpsUrl) -> String {
    let host = if place.host().contains(':') { format!("[{}]", place.host()) } else { place.host().to_owned() };
    format!("https://{host}:{}{}", place.port(), place.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_keys_or_the_fault() {
        let said = |answer: Result<Vec<u8>, Fault>| read(&postcard::to_stdvec(&answer).unwrap());
        assert_eq!(said(Ok(b"{}".to_vec())).unwrap(), b"{}");
        assert_eq!(said(Err(fault("https://i", "no"))).unwrap_err().subject, "https://i");
        assert_eq!(read(b"\xff\xff\xff").unwrap_err().code, FaultCode::Internal);
    }

    #[test]
    fn an_issuer_that_is_not_there_or_no_url_is_named() {
        let ask = |issuer: &str| {
            keys(&Question { issuer: issuer.into(), authorities: Some(Vec::new()), sandbox: Sandbox::Off })
        };
        assert_eq!(ask("http://i").unwrap_err().subject, "http://i");
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let fault = ask(&format!("https://127.0.0.1:{port}")).unwrap_err();
        assert!(fault.subject.starts_with(&format!("https://127.0.0.1:{port}/")), "{fault}");
    }
}
