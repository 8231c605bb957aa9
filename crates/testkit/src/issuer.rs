//! An issuer of tokens: HTTPS on loopback that serves its description and its keys, and whoever asks gets an access token. People log
//! in there, too, for programs that are registered ([`Registered`]).

mod people;

use std::fs;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey};
use openssl::ecdsa::EcdsaSig;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::sha::sha256;
use openssl::sign::Signer;
use serde_json::{Value, json};
use tempfile::TempDir;
use whimbrel_sys::retry;
use whimbrel_trust::tls::{Clients, Plain, Progress, ServerTls, TlsMachine};

use crate::error::{Attempt, Error, Result};
use crate::peers::public_dir;
use crate::pki::Pki;

pub use self::people::Registered;
use self::people::{People, Request};

/// A key that signs tokens, with the name that tokens and the set of keys have for it.
#[derive(Clone, Debug)]
pub struct SigningKey {
    name: String,
    material: Material,
}

#[derive(Clone, Debug)]
enum Material {
    Rs256(Rsa<Private>),
    Es256(EcKey<Private>),
}

/// A running issuer; dropping it ends it.
#[derive(Debug)]
pub struct Issuer {
    address: SocketAddr,
    directory: TempDir,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    keys: Mutex<Vec<Value>>,
    people: Mutex<People>,
    /// Claims of who sits before every browser that comes.
    resident: Mutex<Value>,
    answers: AtomicUsize,
    down: AtomicBool,
    over: AtomicBool,
}

impl SigningKey {
    /// For RS256.
    pub fn rs256(name: &str) -> Result<SigningKey> {
        let material = Material::Rs256(Rsa::generate(2048).attempt(|| "making a key".to_owned())?);
        Ok(SigningKey { name: name.to_owned(), material })
    }

    /// For ES256.
    pub fn es256(name: &str) -> Result<SigningKey> {
        let key = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).and_then(|curve| EcKey::generate(&curve));
        Ok(SigningKey { name: name.to_owned(), material: Material::Es256(key.attempt(|| "making a key".to_owned())?) })
    }

    /// A token with these claims.
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_as(&self.header(), claims)
    }

    /// The header of its tokens.
    pub fn header(&self) -> Value {
        let algorithm = match self.material {
            Material::Rs256(_) => "RS256",
            Material::Es256(_) => "ES256",
        };
        json!({"alg": algorithm, "kid": self.name, "typ": "JWT"})
    }

    /// A token with a header of the caller's, whatever that says.
    pub fn sign_as(&self, header: &Value, claims: &Value) -> String {
        token(header, claims, |text| self.signature(text).expect("OpenSSL signs with its own keys"))
    }

    /// Its public half, which everybody may know: PEM.
    pub fn public_pem(&self) -> Vec<u8> {
        let pem = match &self.material {
            Material::Rs256(key) => key.public_key_to_pem(),
            Material::Es256(key) => key.public_key_to_pem(),
        };
        pem.expect("OpenSSL writes its own keys")
    }

    /// As a set of keys shows it.
    pub fn shown(&self) -> Value {
        self.public().expect("OpenSSL knows the numbers of its own keys")
    }

    fn signature(&self, text: &[u8]) -> std::result::Result<Vec<u8>, openssl::error::ErrorStack> {
        match &self.material {
            Material::Rs256(key) => {
                let key = PKey::from_rsa(key.clone())?;
                Signer::new(MessageDigest::sha256(), &key)?.sign_oneshot_to_vec(text)
            }
            Material::Es256(key) => {
                let signature = EcdsaSig::sign(&sha256(text), key)?;
                Ok([signature.r().to_vec_padded(32)?, signature.s().to_vec_padded(32)?].concat())
            }
        }
    }

    /// As a set of keys shows it.
    fn public(&self) -> std::result::Result<Value, openssl::error::ErrorStack> {
        let name = &self.name;
        Ok(match &self.material {
            Material::Rs256(key) => {
                let (n, e) = (base64url(&key.n().to_vec()), base64url(&key.e().to_vec()));
                json!({"kty": "RSA", "kid": name, "use": "sig", "alg": "RS256", "n": n, "e": e})
            }
            Material::Es256(key) => {
                let (mut x, mut y) = (BigNum::new()?, BigNum::new()?);
                key.public_key().affine_coordinates(key.group(), &mut x, &mut y, &mut *BigNumContext::new()?)?;
                let (x, y) = (base64url(&x.to_vec_padded(32)?), base64url(&y.to_vec_padded(32)?));
                json!({"kty": "EC", "crv": "P-256", "kid": name, "use": "sig", "alg": "ES256", "x": x, "y": y})
            }
        })
    }
}

/// A token with this header and what `sign` makes of its text.
pub fn token(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let text = format!("{}.{}", base64url(header.to_string().as_bytes()), base64url(claims.to_string().as_bytes()));
    let signature = sign(text.as_bytes());
    format!("{text}.{}", base64url(&signature))
}

/// The keyed hash of HS256.
pub fn hs256(secret: &[u8], text: &[u8]) -> Vec<u8> {
    let signed = PKey::hmac(secret).and_then(|key| {
        let mut signer = Signer::new(MessageDigest::sha256(), &key)?;
        signer.sign_oneshot_to_vec(text)
    });
    signed.expect("OpenSSL computes digests")
}

impl Issuer {
    /// Starts one whose host the authority of `pki` vouches for; it shows these keys.
    pub fn start(pki: &Pki, keys: &[&SigningKey]) -> Result<Issuer> {
        let what = || "starting an issuer of tokens".to_owned();
        let host = pki.host(&["localhost", "127.0.0.1"])?;
        let tls = ServerTls::new(&host.own, &Clients::Unasked, None)
            .map_err(|fault| Error::new(what(), fault.to_string()))?;
        let listener = TcpListener::bind("127.0.0.1:0").attempt(what)?;
        let address = listener.local_addr().attempt(what)?;
        let directory = public_dir()?;
        let pem = pki.authority().certificate.to_pem().attempt(what)?;
        fs::write(directory.path().join("authority.pem"), pem).attempt(what)?;
        let shared = Arc::<Shared>::default();
        let serving = shared.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.over.load(Ordering::Relaxed) {
                    return;
                }
                if !serving.down.load(Ordering::Relaxed) {
                    // A client that leaves early is no fault of the issuer.
                    let _ended = answer(stream, &tls, &serving, address);
                }
            }
        });
        let issuer = Issuer { address, directory, shared, thread: Some(thread) };
        issuer.show(keys)?;
        Ok(issuer)
    }

    /// Its name in tokens.
    pub fn url(&self) -> String {
        url(self.address)
    }

    /// PEM file of the authority that vouches for its host.
    pub fn authority(&self) -> PathBuf {
        self.directory.path().join("authority.pem")
    }

    /// Shows these keys from now on.
    pub fn show(&self, keys: &[&SigningKey]) -> Result<()> {
        let keys: std::result::Result<_, _> = keys.iter().map(|key| key.public()).collect();
        *self.shared.keys.lock().expect("no test panics while it holds them") =
            keys.attempt(|| "showing keys".to_owned())?;
        Ok(())
    }

    /// Registers a program that may log people in, whose id tokens this key signs.
    pub fn register(&self, program: Registered, key: SigningKey) {
        self.people().register(program, key);
    }

    /// Somebody logs in for what a program's URL asks, with further claims: where their browser is sent; `None` for a program or a
    /// place that is not registered.
    pub fn log_in(&self, asked: &str, claims: &Value) -> Option<String> {
        self.people().log_in(asked, claims)
    }

    /// Who sits before every browser that comes from now on, with these claims.
    pub fn settle(&self, claims: Value) {
        *self.shared.resident.lock().expect("no test panics while it holds it") = claims;
    }

    /// Changes the next id token's claims before they are signed.
    pub fn spoil(&self, change: impl FnOnce(&mut Value) + Send + 'static) {
        self.people().spoil(change);
    }

    fn people(&self) -> std::sync::MutexGuard<'_, People> {
        self.shared.people.lock().expect("no test panics while it holds them")
    }

    /// Answers nobody from now on.
    pub fn fall_silent(&self) {
        self.shared.down.store(true, Ordering::Relaxed);
    }

    /// Documents given out so far.
    pub fn answers(&self) -> usize {
        self.shared.answers.load(Ordering::Relaxed)
    }

    /// Claims of a token about `alice` for `audience`, good for an hour.
    pub fn claims(&self, audience: &str, scope: &str) -> Value {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        json!({
            "iss": self.url(), "sub": "alice", "aud": [audience], "exp": now + 3600, "nbf": now - 60, "iat": now - 60,
            "wlcg.ver": "1.0", "scope": scope,
        })
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        // Wakes it; it may have ended.
        let _woken = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

fn url(address: SocketAddr) -> String {
    // A name, so that who fetches keys has to look one up.
    format!("https://localhost:{}/", address.port())
}

/// Serves one request.
fn answer(mut stream: TcpStream, tls: &ServerTls, shared: &Shared, address: SocketAddr) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut tls = TlsMachine::server(tls).map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    let request = loop {
        if let Some(request) = Request::whole(&bytes) {
            break request;
        }
        let mut more = [0; 4096];
        match retry::read(&mut stream, &mut more)? {
            0 => return Ok(()),
            count => tls.feed(&more[..count]),
        }
        if tls.drive().map_err(io::Error::other)? == Progress::Established {
            while let Plain::Bytes(_) = tls.read(&mut bytes).map_err(io::Error::other)? {}
        }
        send(&mut stream, &mut tls)?;
    };
    let url = url(address);
    if request.path.starts_with("/authorize?") {
        let resident = shared.resident.lock().expect("no test panics while it holds it").clone();
        let back = shared.people.lock().expect("no test panics while it holds them").log_in(&request.path, &resident);
        let head = match back {
            Some(back) => format!("HTTP/1.1 302 Found\r\nLocation: {back}\r\nContent-Length: 0\r\n\r\n"),
            None => "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_owned(),
        };
        tls.write(head.as_bytes()).map_err(io::Error::other)?;
        tls.close();
        return send(&mut stream, &mut tls);
    }
    let people = || shared.people.lock().expect("no test panics while it holds them");
    let document = match request.path.as_str() {
        "/.well-known/openid-configuration" => Some(people().description(&url)),
        "/keys" => Some(json!({"keys": *shared.keys.lock().expect("no test panics while it holds them")})),
        "/token" => people().exchange(&request, &url),
        _ => None,
    };
    let text = document.as_ref().map(Value::to_string).unwrap_or_default();
    let status = if document.is_some() { "200 OK" } else { "404 Not Found" };
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", text.len());
    shared.answers.fetch_add(usize::from(document.is_some()), Ordering::Relaxed);
    tls.write((head + &text).as_bytes()).map_err(io::Error::other)?;
    tls.close();
    send(&mut stream, &mut tls)
}

fn send(stream: &mut TcpStream, tls: &mut TlsMachine) -> io::Result<()> {
    tls.transmit().map_or(Ok(()), |bytes| stream.write_all(&bytes))
}

fn base64url(bytes: &[u8]) -> String {
    openssl::base64::encode_block(bytes).trim_end_matches('=').replace('+', "-").replace('/', "_").replace('\n', "")
}
