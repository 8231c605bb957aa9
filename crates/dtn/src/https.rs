//! Small documents from and to HTTPS servers, for processes of one thread that do nothing else meanwhile.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::token::http::{Answer, AnswerReader, HttpsUrl};
use whimbrel_sys::retry;
use whimbrel_trust::TrustFault;
use whimbrel_trust::roots::{HostOfAuthorities, SystemRoots};
use whimbrel_trust::tls::{ClientTls, Plain, Progress, TlsMachine};

/// Time for a connection to one address.
const CONNECT: Duration = Duration::from_secs(5);

/// Redirections that are followed.
const MOST_MOVES: usize = 3;

/// What requests have in common.
pub(crate) struct Https {
    op: &'static str,
    roots: SystemRoots,
    until: Instant,
}

impl Https {
    /// Requests until a point in time, to hosts that the authorities in `authorities` (PEM) vouch for; without any, those of the system.
    pub(crate) fn new(op: &'static str, authorities: Option<&[u8]>, until: Instant) -> Result<Self, Fault> {
        let roots = SystemRoots::of_pem_or_system(authorities);
        Ok(Self { op, roots: roots.map_err(|fault| fault.into_fault(op, Side::Us))?, until })
    }

    /// A document, at the place or where it was moved on the same host.
    pub(crate) fn get(&self, place: &HttpsUrl, most: usize) -> Result<Vec<u8>, Fault> {
        let mut place = place.clone();
        for _ in 0..=MOST_MOVES {
            place = match self.ask(&place, &place.request(), most)? {
                Answer::Document(document) => return Ok(document),
                Answer::Status(status) => return Err(self.fault(&place, format!("the server answered {status}"))),
                Answer::Moved(there) => place
                    .redirected(&there)
                    .ok_or_else(|| self.fault(&place, "the server sends us to another host, which is not followed"))?,
            };
        }
        Err(self.fault(&place, "the server sends us from place to place"))
    }

    /// What the server answers to a request.
    pub(crate) fn ask(&self, place: &HttpsUrl, request: &[u8], most: usize) -> Result<Answer, Fault> {
        let subject = shown(place);
        let refused = |fault: TrustFault| fault.into_fault(self.op, Side::Peer).subject(&subject);
        let failed = |error: io::Error| Fault::from_io(error, self.op).side(Side::Peer).subject(&subject);
        let judge = HostOfAuthorities::new(self.roots.clone(), place.host());
        let context = ClientTls::new(Arc::new(judge), None).map_err(refused)?;
        let mut tls = TlsMachine::client(&context, place.host()).map_err(refused)?;
        let mut stream = self.connect(place).map_err(failed)?;
        let mut reader = AnswerReader::new(most);
        let mut asked = false;
        loop {
            if !asked && tls.drive().map_err(refused)? == Progress::Established {
                tls.write(request).map_err(refused)?;
                asked = true;
            }
            let (plain, closed) = if asked { drained(&mut tls).map_err(refused)? } else { (Vec::new(), false) };
            let complete = reader.feed(&plain).map_err(|error| self.fault(place, error.to_string()))?;
            // Only TLS can say that this is all there is.
            if complete || closed {
                return reader.finish().map_err(|error| self.fault(place, error.to_string()));
            }
            self.exchange(&mut stream, &mut tls).map_err(failed)?;
        }
    }

    /// A fault about a place.
    pub(crate) fn fault(&self, place: &HttpsUrl, detail: impl Into<String>) -> Fault {
        Fault::new(FaultCode::ServerBusy, self.op).side(Side::Peer).subject(shown(place)).detail(detail)
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
        match retry::read(stream, &mut bytes)? {
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
