//! Records of TLS made by hand: what no library lets its client say, such as a change of keys without end or a second handshake.
//!
//! A library does the first handshake; then its secrets are taken from it, and every record is sealed and opened here
//! (RFC 5246 §6.3, RFC 5288, RFC 8446 §5.2 and §7). One cipher for each version: AES-128-GCM.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;
use openssl::ssl::{Ssl, SslContextBuilder, SslMethod, SslRef, SslStream, SslVerifyMode, SslVersion};
use openssl::symm::{Cipher, decrypt_aead, encrypt_aead};
use whimbrel_sys::retry;
use whimbrel_trust::OwnChain;

use crate::error::{Attempt, Error, Result};

/// Content types (RFC 8446 §5.1).
pub const ALERT: u8 = 21;
/// As [`ALERT`].
pub const HANDSHAKE: u8 = 22;
/// As [`ALERT`].
pub const DATA: u8 = 23;

const KEY_UPDATE: u8 = 24;
const TAG: usize = 16;

/// A TLS connection of a client that is no library's.
pub struct ByHand {
    stream: TcpStream,
    sending: Direction,
    receiving: Direction,
    finished: Vec<u8>,
    text: Vec<u8>,
}

/// Keys of one direction.
enum Direction {
    /// TLS 1.2.
    Old { key: [u8; 16], salt: [u8; 4], sequence: u64 },
    /// TLS 1.3.
    New { secret: [u8; 32], sequence: u64 },
}

impl ByHand {
    /// Shakes hands over a connection with this version, TLS 1.2 or 1.3, whoever the server is; shows `own` where it is asked to.
    pub fn connect(stream: TcpStream, version: SslVersion, own: Option<&OwnChain>) -> Result<ByHand> {
        let secrets = Arc::<Mutex<Vec<String>>>::default();
        let stream = shaken(stream, version, own, secrets.clone()).map_err(|reason| failed(&reason))?;
        let told = secrets.lock().expect("no test panics while it holds them");
        let (sending, receiving) = match version {
            SslVersion::TLS1_3 => (modern(&told, "CLIENT"), modern(&told, "SERVER")),
            _ => expanded(stream.ssl()).attempt(|| "expanding keys".to_owned())?,
        };
        let mut finished = vec![0; 64];
        let length = stream.ssl().finished(&mut finished);
        finished.truncate(length);
        let stream = stream.get_ref().0.try_clone().attempt(|| "keeping the connection".to_owned())?;
        Ok(ByHand { stream, sending, receiving, finished, text: Vec::new() })
    }

    /// A record with this content, ready to be sent; records count in the order in which they are made.
    pub fn seal(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        self.sending.seal(kind, content).expect("OpenSSL encrypts with its own keys")
    }

    /// A change of the sending keys (RFC 8446 §4.6.3); `asks`: the other side is to change its keys, too.
    pub fn change_keys(&mut self, asks: bool) -> Vec<u8> {
        let record = self.seal(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, u8::from(asks)]);
        self.sending.advance();
        record
    }

    /// The beginning of a second handshake of TLS 1.2, as a genuine client would say it (RFC 5746 §3.5).
    pub fn hello_again(&mut self) -> Vec<u8> {
        let extension = |number: u16, body: &[u8]| [&number.to_be_bytes()[..], &length(body), body].concat();
        let renegotiation = [&[self.finished.len() as u8][..], &self.finished].concat();
        let extensions = [
            extension(0xff01, &renegotiation),
            // Supported groups P-256 and x25519, uncompressed points, and RSA or ECDSA with SHA-256.
            extension(10, &[0, 4, 0, 0x17, 0, 0x1d]),
            extension(11, &[1, 0]),
            extension(13, &[0, 6, 4, 1, 4, 3, 8, 4]),
            // Extended master secret, which the first handshake had.
            extension(23, &[]),
        ]
        .concat();
        let body = [
            &[3, 3][..],
            &[7; 32],
            // No session; two suites with AES-128-GCM; no compression.
            &[0, 0, 4, 0xc0, 0x2f, 0xc0, 0x2b, 1, 0],
            &length(&extensions),
            &extensions,
        ]
        .concat();
        let hello = [&[1, 0][..], &length(&body), &body].concat();
        self.seal(HANDSHAKE, &hello)
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, wire: &[u8]) -> io::Result<()> {
        self.stream.write_all(wire)
    }

    /// Sends a line, and gives the next reply: its lines, the last of which has a space behind the code.
    pub fn ask(&mut self, line: &str) -> io::Result<String> {
        let record = self.seal(DATA, format!("{line}\r\n").as_bytes());
        self.send(&record)?;
        self.reply()
    }

    /// The next reply; an alert is an error that names it.
    pub fn reply(&mut self) -> io::Result<String> {
        let mut reply = String::new();
        loop {
            while let Some(end) = self.text.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                reply.push_str(&String::from_utf8_lossy(&line));
                if line.get(3) == Some(&b' ') {
                    return Ok(reply);
                }
            }
            match self.record()? {
                (DATA, bytes) => self.text.extend(bytes),
                (ALERT, alert) => return Err(io::Error::other(format!("alert {}", alert.get(1).unwrap_or(&0)))),
                // Tickets, and keys that are changed.
                _ => {}
            }
        }
    }

    /// The next record: its kind and content.
    pub fn record(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head)?;
        let mut body = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
        self.stream.read_exact(&mut body)?;
        let (kind, content) = self.receiving.open(head[0], &body).map_err(io::Error::other)?;
        if kind == HANDSHAKE && content.first() == Some(&KEY_UPDATE) {
            self.receiving.advance();
        }
        Ok((kind, content))
    }

    /// The connection below.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

/// A connection whose reads go on when they are interrupted, which the library takes for an error.
struct Whole(TcpStream);

impl Read for Whole {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        retry::read(&mut self.0, buffer)
    }
}

impl Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn shaken(
    stream: TcpStream,
    version: SslVersion,
    own: Option<&OwnChain>,
    secrets: Arc<Mutex<Vec<String>>>,
) -> std::result::Result<SslStream<Whole>, String> {
    let told = |error: ErrorStack| error.to_string();
    let context = context(version, own, secrets).map_err(told)?;
    let mut stream = SslStream::new(Ssl::new(&context).map_err(told)?, Whole(stream)).map_err(told)?;
    stream.connect().map_err(|error| error.to_string())?;
    Ok(stream)
}

fn context(
    version: SslVersion,
    own: Option<&OwnChain>,
    secrets: Arc<Mutex<Vec<String>>>,
) -> std::result::Result<openssl::ssl::SslContext, ErrorStack> {
    let mut context = SslContextBuilder::new(SslMethod::tls_client())?;
    context.set_verify(SslVerifyMode::NONE);
    context.set_min_proto_version(Some(version))?;
    context.set_max_proto_version(Some(version))?;
    context.set_cipher_list("ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256")?;
    context.set_ciphersuites("TLS_AES_128_GCM_SHA256")?;
    context.set_keylog_callback(move |_, line| {
        secrets.lock().expect("no test panics while it holds them").push(line.to_owned());
    });
    if let Some(own) = own {
        context.set_certificate(&own.certificate)?;
        context.set_private_key(&own.key)?;
        own.chain.iter().try_for_each(|above| context.add_extra_chain_cert(above.clone()))?;
    }
    Ok(context.build())
}

/// The secret of one side's data in TLS 1.3, from lines `LABEL RANDOM SECRET` in hexadecimal digits.
fn modern(told: &[String], side: &str) -> Direction {
    let label = format!("{side}_TRAFFIC_SECRET_0");
    let line = told.iter().find(|line| line.starts_with(&label)).expect("OpenSSL tells every secret");
    let digits = line.rsplit(' ').next().unwrap_or_default().as_bytes();
    let mut secret = [0; 32];
    for (byte, pair) in secret.iter_mut().zip(digits.chunks(2)) {
        let value = |digit: u8| (digit as char).to_digit(16).expect("a digit") as u8;
        *byte = value(pair[0]) << 4 | value(pair[1]);
    }
    Direction::New { secret, sequence: 0 }
}

/// Both sides' keys in TLS 1.2; each has sent one record under them.
fn expanded(ssl: &SslRef) -> std::result::Result<(Direction, Direction), ErrorStack> {
    let (mut master, mut client, mut server) = ([0; 48], [0; 32], [0; 32]);
    ssl.session().expect("the handshake is over").master_key(&mut master);
    ssl.client_random(&mut client);
    ssl.server_random(&mut server);
    let seed = [&b"key expansion"[..], &server, &client].concat();
    let (mut block, mut chain) = (Vec::new(), seed.clone());
    while block.len() < 40 {
        chain = hmac(&master, &chain)?.to_vec();
        block.extend(hmac(&master, &[&chain[..], &seed].concat())?);
    }
    let direction = |key: usize, salt: usize| Direction::Old {
        key: block[key..key + 16].try_into().expect("sixteen bytes"),
        salt: block[salt..salt + 4].try_into().expect("four bytes"),
        sequence: 1,
    };
    Ok((direction(0, 32), direction(16, 36)))
}

impl Direction {
    fn seal(&mut self, kind: u8, content: &[u8]) -> std::result::Result<Vec<u8>, ErrorStack> {
        let mut tag = [0; TAG];
        match self {
            Self::Old { key, salt, sequence } => {
                let explicit = sequence.to_be_bytes();
                let nonce = [&salt[..], &explicit].concat();
                let covered = [&explicit[..], &[kind, 3, 3], &length(content)].concat();
                let sealed = encrypt_aead(Cipher::aes_128_gcm(), key, Some(&nonce), &covered, content, &mut tag)?;
                *sequence += 1;
                Ok(record(kind, &[&explicit, &sealed, &tag]))
            }
            Self::New { secret, sequence } => {
                let (key, nonce) = traffic(secret, *sequence)?;
                let inner = [content, &[kind]].concat();
                let covered = [&[DATA, 3, 3][..], &((inner.len() + TAG) as u16).to_be_bytes()].concat();
                let sealed = encrypt_aead(Cipher::aes_128_gcm(), &key, Some(&nonce), &covered, &inner, &mut tag)?;
                *sequence += 1;
                Ok(record(DATA, &[&sealed, &tag]))
            }
        }
    }

    fn open(&mut self, kind: u8, body: &[u8]) -> std::result::Result<(u8, Vec<u8>), ErrorStack> {
        let (sealed, tag) = body.split_at(body.len().saturating_sub(TAG));
        match self {
            Self::Old { key, salt, sequence } => {
                let (explicit, sealed) = sealed.split_at(sealed.len().min(8));
                let nonce = [&salt[..], explicit].concat();
                let covered = [&sequence.to_be_bytes()[..], &[kind, 3, 3], &length(sealed)].concat();
                *sequence += 1;
                Ok((kind, decrypt_aead(Cipher::aes_128_gcm(), key, Some(&nonce), &covered, sealed, tag)?))
            }
            Self::New { secret, sequence } => {
                let (key, nonce) = traffic(secret, *sequence)?;
                let covered = [&[kind, 3, 3][..], &length(body)].concat();
                let mut inner = decrypt_aead(Cipher::aes_128_gcm(), &key, Some(&nonce), &covered, sealed, tag)?;
                *sequence += 1;
                // Zeros that fill a record up stand behind the kind.
                let end = inner.iter().rposition(|&byte| byte != 0).unwrap_or(0);
                let kind = inner[end];
                inner.truncate(end);
                Ok((kind, inner))
            }
        }
    }

    /// The next keys; TLS 1.2 has none.
    fn advance(&mut self) {
        if let Self::New { secret, sequence } = self {
            *secret =
                expand(secret, "traffic upd", 32).expect("OpenSSL computes digests").try_into().expect("as asked");
            *sequence = 0;
        }
    }
}

fn traffic(secret: &[u8], sequence: u64) -> std::result::Result<(Vec<u8>, Vec<u8>), ErrorStack> {
    let mut nonce = expand(secret, "iv", 12)?;
    nonce[4..].iter_mut().zip(sequence.to_be_bytes()).for_each(|(byte, count)| *byte ^= count);
    Ok((expand(secret, "key", 16)?, nonce))
}

/// HKDF-Expand-Label of at most 32 bytes, without a context (RFC 8446 §7.1).
fn expand(secret: &[u8], label: &str, bytes: u16) -> std::result::Result<Vec<u8>, ErrorStack> {
    let label = format!("tls13 {label}");
    let info = [&bytes.to_be_bytes()[..], &[label.len() as u8], label.as_bytes(), &[0, 1]].concat();
    let mut out = hmac(secret, &info)?.to_vec();
    out.truncate(bytes.into());
    Ok(out)
}

fn hmac(key: &[u8], text: &[u8]) -> std::result::Result<Vec<u8>, ErrorStack> {
    Signer::new(MessageDigest::sha256(), &*PKey::hmac(key)?)?.sign_oneshot_to_vec(text)
}

fn length(bytes: &[u8]) -> [u8; 2] {
    (bytes.len() as u16).to_be_bytes()
}

fn record(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&[kind, 3, 3][..], &length(&body), &body].concat()
}

fn failed(reason: &str) -> Error {
    Error::new("shaking hands".to_owned(), reason.to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use openssl::ssl::{SslAcceptor, SslMethod, SslOptions};
    use whimbrel_trust::make::{self, KeyKind, Life, Purpose};

    use super::*;

    /// `SSL_OP_ALLOW_CLIENT_RENEGOTIATION` of ssl.h, without which OpenSSL 3 refuses it, too.
    const ALLOW_CLIENT_RENEGOTIATION: u64 = 1 << 8;

    /// An echo by OpenSSL as it comes, which allows what our servers do not.
    fn echo(version: SslVersion) -> (TcpStream, thread::JoinHandle<()>) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let key = make::key(KeyKind::P256).unwrap();
        let life = Life::of(whimbrel_proto::timeval::Timestamp::from_secs(now as i64), 3600);
        let certificate = make::self_signed("/CN=host", &key, &Purpose::Person, life).unwrap();
        let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
        acceptor.clear_options(SslOptions::NO_RENEGOTIATION);
        acceptor.set_options(SslOptions::from_bits_retain(ALLOW_CLIENT_RENEGOTIATION));
        acceptor.set_min_proto_version(Some(version)).unwrap();
        acceptor.set_max_proto_version(Some(version)).unwrap();
        acceptor.set_certificate(&certificate).unwrap();
        acceptor.set_private_key(&key).unwrap();
        let acceptor = acceptor.build();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let serving = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut stream = acceptor.accept(stream).unwrap();
            let mut bytes = [0; 1024];
            while let Ok(count @ 1..) = stream.ssl_read(&mut bytes) {
                stream.write_all(&bytes[..count]).unwrap();
            }
        });
        (stream, serving)
    }

    #[test]
    fn records_of_both_versions_are_what_openssl_takes_and_gives() {
        for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
            let (stream, serving) = echo(version);
            let mut hand = ByHand::connect(stream, version, None).unwrap();
            for line in ["200 one", "200 two"] {
                assert_eq!(hand.ask(line).unwrap(), format!("{line}\r\n"));
            }
            if version == SslVersion::TLS1_3 {
                for asks in [false, true, true] {
                    let change = hand.change_keys(asks);
                    hand.send(&change).unwrap();
                    assert_eq!(hand.ask("200 more").unwrap(), "200 more\r\n");
                }
            }
            drop(hand);
            serving.join().unwrap();
        }
    }

    #[test]
    fn a_second_handshake_is_one_that_openssl_goes_along_with() {
        let (stream, serving) = echo(SslVersion::TLS1_2);
        let mut hand = ByHand::connect(stream, SslVersion::TLS1_2, None).unwrap();
        let hello = hand.hello_again();
        hand.send(&hello).unwrap();
        let (kind, content) = hand.record().unwrap();
        assert_eq!((kind, content[0]), (HANDSHAKE, 2), "a server's hello");
        drop(hand);
        serving.join().unwrap();
    }
}
