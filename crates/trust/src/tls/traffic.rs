//! The keys of a connection's records, handed over after OpenSSL's handshake to who protects the records itself.

use std::sync::{Mutex, OnceLock, PoisonError};

use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{Ssl, SslContextBuilder, SslRef, SslVersion};
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use ring::hkdf::{self, HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
use whimbrel_engine::fault::FaultCode;
use whimbrel_sys::ssl::connection_slot;
use zeroize::Zeroizing;

use super::records::{Opener, Sealer};
use crate::fault::TrustFault;

/// Names of the secrets of application data in the key log of TLS 1.3.
const FROM_CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
const FROM_SERVER: &str = "SERVER_TRAFFIC_SECRET_0";

/// The secrets of a connection that asked for them.
#[derive(Default)]
struct Secrets {
    client: Option<Secret>,
    server: Option<Secret>,
}

type Secret = Zeroizing<Vec<u8>>;

fn slot() -> Result<Index<Ssl, Mutex<Secrets>>, ErrorStack> {
    static SLOT: OnceLock<Index<Ssl, Mutex<Secrets>>> = OnceLock::new();
    connection_slot(&SLOT)
}

/// Lets the connections of a context keep their secrets, where they ask with [`keep_secrets`].
pub(super) fn offer_secrets(context: &mut SslContextBuilder) {
    context.set_keylog_callback(|ssl, line| {
        let Some(slot) = slot().ok().and_then(|index| ssl.ex_data(index)) else { return };
        let mut words = line.split(' ');
        let (label, secret) = (words.next(), words.nth(1).and_then(from_hex));
        let mut secrets = slot.lock().unwrap_or_else(PoisonError::into_inner);
        match label {
            Some(FROM_CLIENT) => secrets.client = secret,
            Some(FROM_SERVER) => secrets.server = secret,
            _ => {}
        }
    });
}

fn from_hex(digits: &str) -> Option<Secret> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
    bytes.map(Zeroizing::new)
}

/// Asks that the handshake, which has not begun, ends with [`take_over`].
///
/// Does nothing for a server that gives tickets: their records come before the first that could be ours.
pub fn keep_secrets(ssl: &mut Ssl) {
    if ssl.is_server() && ssl.num_tickets() > 0 {
        return;
    }
    if let Ok(index) = slot() {
        ssl.set_ex_data(index, Mutex::default());
    }
}

/// Both directions of a connection whose handshake is through; OpenSSL must neither read nor write from here on.
///
/// `None` where OpenSSL stays: before TLS 1.3, with ciphers it knows best, and without [`keep_secrets`].
pub fn take_over(ssl: &SslRef) -> Option<(Sealer, Opener)> {
    let mut secrets = ssl.ex_data(slot().ok()?)?.lock().ok()?;
    let (client, server) = (secrets.client.take()?, secrets.server.take()?);
    let suite = Suite::of(ssl)?;
    let (out, incoming) = if ssl.is_server() { (server, client) } else { (client, server) };
    let keys = |secret| Keys::new(suite, secret).ok();
    Some((Sealer::new(keys(out)?), Opener::new(keys(incoming)?)))
}

/// Both ends of one direction under a secret that is known: for tests and fuzzing.
///
/// # Panics
/// Where the library lacks AES-128-GCM.
pub fn rehearsal(secret: [u8; 32]) -> (Sealer, Opener) {
    let keys = || Keys::new(Suite::Aes128, Zeroizing::new(secret.to_vec())).expect("keys of 32 bytes");
    (Sealer::new(keys()), Opener::new(keys()))
}

/// What protects the records (RFC 8446 appendix B.4).
#[derive(Debug, Clone, Copy)]
pub(super) enum Suite {
    Aes128,
    Aes256,
}

impl Suite {
    fn of(ssl: &SslRef) -> Option<Self> {
        if ssl.version2() != Some(SslVersion::TLS1_3) {
            return None;
        }
        match ssl.current_cipher()?.name() {
            "TLS_AES_128_GCM_SHA256" => Some(Self::Aes128),
            "TLS_AES_256_GCM_SHA384" => Some(Self::Aes256),
            _ => None,
        }
    }

    fn aead(self) -> &'static Algorithm {
        match self {
            Self::Aes128 => &AES_128_GCM,
            Self::Aes256 => &AES_256_GCM,
        }
    }

    fn hash(self) -> hkdf::Algorithm {
        match self {
            Self::Aes128 => HKDF_SHA256,
            Self::Aes256 => HKDF_SHA384,
        }
    }
}

/// Key, nonces and what the next key follows from, of one direction.
pub(super) struct Keys {
    suite: Suite,
    secret: Secret,
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    /// Records protected under this key.
    pub(super) records: u64,
}

impl Keys {
    /// Keys of a traffic secret (RFC 8446 §7.3).
    pub(super) fn new(suite: Suite, secret: Secret) -> Result<Self, TrustFault> {
        let derived = Zeroizing::new(expand(suite, &secret, "key", suite.aead().key_len())?);
        let key = UnboundKey::new(suite.aead(), &derived).map_err(|_| broken("key"))?;
        let mut iv = [0; NONCE_LEN];
        iv.copy_from_slice(&expand(suite, &secret, "iv", NONCE_LEN)?);
        Ok(Self { suite, secret, key: LessSafeKey::new(key), iv, records: 0 })
    }

    /// The keys behind a KeyUpdate (RFC 8446 §7.2).
    pub(super) fn next(&self) -> Result<Self, TrustFault> {
        let secret = expand(self.suite, &self.secret, "traffic upd", self.secret.len())?;
        Self::new(self.suite, Zeroizing::new(secret))
    }

    /// Protects bytes where they are; gives what proves them.
    pub(super) fn seal(&mut self, header: &[u8], plain: &mut [u8]) -> Result<Tag, TrustFault> {
        let nonce = self.nonce();
        self.key.seal_in_place_separate_tag(nonce, Aad::from(header), plain).map_err(|_| broken("seal"))
    }

    /// Uncovers what a record holds, at the beginning of its place; `None` for a forgery.
    pub(super) fn open(&mut self, header: &[u8], sealed: &mut [u8]) -> Option<usize> {
        let nonce = self.nonce();
        self.key.open_in_place(nonce, Aad::from(header), sealed).ok().map(|plain| plain.len())
    }

    /// The nonce of the next record (RFC 8446 §5.3).
    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, count) in nonce[NONCE_LEN - 8..].iter_mut().zip(self.records.to_be_bytes()) {
            *byte ^= count;
        }
        self.records += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label with an empty context (RFC 8446 §7.1).
fn expand(suite: Suite, secret: &[u8], label: &str, length: usize) -> Result<Vec<u8>, TrustFault> {
    let short = |number: usize| u8::try_from(number).map_err(|_| broken("label"));
    let (name, size) = (format!("tls13 {label}"), [0, short(length)?]);
    let info = [&size[..], &[short(name.len())?], name.as_bytes(), &[0]];
    let mut bytes = vec![0; length];
    let expanded =
        Prk::new_less_safe(suite.hash(), secret).expand(&info, Length(length)).and_then(|okm| okm.fill(&mut bytes));
    expanded.map(|()| bytes).map_err(|_| broken("expand"))
}

/// A failure that no peer can cause.
fn broken(step: &str) -> TrustFault {
    TrustFault::new(FaultCode::Internal, format!("record keys: {step}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8448 §3: the server's application traffic secret, and what follows from it.
    #[test]
    fn keys_are_those_of_the_standards_example() {
        let secret = from_hex("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643").expect("hex");
        let bytes = |label, length| expand(Suite::Aes128, &secret, label, length).expect("bytes");
        assert_eq!(bytes("key", 16)[..], from_hex("9f02283b6c9c07efc26bb9f2ac92e356").expect("hex")[..]);
        assert_eq!(bytes("iv", 12)[..], from_hex("cf782b88dd83549aadf1e984").expect("hex")[..]);
    }

    #[test]
    fn each_record_has_its_own_nonce() {
        let mut keys = Keys::new(Suite::Aes256, Zeroizing::new(vec![7; 48])).expect("keys");
        let nonces = [keys.nonce(), keys.nonce()].map(|nonce| *nonce.as_ref());
        assert_eq!(nonces[0], keys.iv);
        assert_eq!(nonces[0][11] ^ nonces[1][11], 1);
        assert_eq!(keys.records, 2);
    }
}
