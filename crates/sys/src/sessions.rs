//! TLS sessions that are resumed: at a server whose connections each have ticket keys of their own, and at a client.

use std::ffi::{CStr, c_char, c_int, c_uchar, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Arc, OnceLock};

use foreign_types::ForeignTypeRef;
use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::rand::rand_bytes;
use openssl::ssl::{Ssl, SslContext, SslContextBuilder, SslRef, SslSession};
use openssl_sys as ffi;

use crate::ssl::TICKET_KEYS;

/// Bytes at the beginning of a ticket, in clear, that name its keys.
pub const TICKET_NAME: usize = 16;

/// Bytes of the key of HMAC-SHA256, which follow the name, as OpenSSL's own ticket keys have it.
const MAC_KEY: usize = 32;

/// Bytes of an initialization vector of AES-CBC.
const IV: usize = 16;

/// Gives a connection the keys to seal its tickets with (`None`), or those of a ticket that its client shows (its name).
///
/// `false` says that there are none: no ticket is given, or the one that is shown not opened, and the handshake goes on without it.
pub type TicketSource = dyn Fn(&SslRef, Option<&[u8; TICKET_NAME]>, &mut [u8; TICKET_KEYS]) -> bool + Send + Sync;

unsafe extern "C" {
    fn SSL_CTX_set_tlsext_ticket_key_evp_cb(context: *mut ffi::SSL_CTX, callback: Option<TicketCallback>) -> c_int;
    fn OPENSSL_cleanse(memory: *mut c_void, bytes: usize);
    fn OSSL_PARAM_construct_utf8_string(key: *const c_char, text: *mut c_char, bytes: usize) -> ffi::OSSL_PARAM;
}

type TicketCallback = unsafe extern "C" fn(
    *mut ffi::SSL,
    *mut c_uchar,
    *mut c_uchar,
    *mut ffi::EVP_CIPHER_CTX,
    *mut ffi::EVP_MAC_CTX,
    c_int,
) -> c_int;

/// Has a server's tickets sealed and opened with what `source` gives, in the form of [`set_ticket_keys`](crate::ssl::set_ticket_keys).
///
/// Who resumes gets fresh tickets.
pub fn set_ticket_source(context: &mut SslContextBuilder, source: Arc<TicketSource>) -> Result<(), ErrorStack> {
    context.set_ex_data(source_index(), source);
    // SAFETY: `as_ptr` is the live context under construction. The callback looks its source up in the context of the connection.
    let done = unsafe { SSL_CTX_set_tlsext_ticket_key_evp_cb(context.as_ptr(), Some(ticket_keys)) };
    if done == 1 { Ok(()) } else { Err(ErrorStack::get()) }
}

fn source_index() -> Index<SslContext, Arc<TicketSource>> {
    static INDEX: OnceLock<Index<SslContext, Arc<TicketSource>>> = OnceLock::new();
    *INDEX.get_or_init(|| SslContext::new_ex_index().expect("an index is made once, at the first context"))
}

/// What OpenSSL calls for a ticket: 1 and 2 go on (2: the client gets a fresh one), 0 has no keys, -1 ends the handshake.
unsafe extern "C" fn ticket_keys(
    ssl: *mut ffi::SSL,
    name: *mut c_uchar,
    iv: *mut c_uchar,
    cipher: *mut ffi::EVP_CIPHER_CTX,
    mac: *mut ffi::EVP_MAC_CTX,
    sealing: c_int,
) -> c_int {
    if ssl.is_null() || name.is_null() || iv.is_null() || cipher.is_null() || mac.is_null() {
        return -1;
    }
    // SAFETY: the connection lives for the call and only a shared reference is made of it; the name has 16 bytes and the vector at
    // least as many (SSL_CTX_set_tlsext_ticket_key_cb(3)), and nothing else refers to either meanwhile.
    let (ssl, name, iv) = unsafe {
        (<SslRef as ForeignTypeRef>::from_ptr(ssl), &mut *name.cast::<[u8; TICKET_NAME]>(), &mut *iv.cast::<[u8; IV]>())
    };
    let sealing = sealing == 1;
    let mut keys = [0; TICKET_KEYS];
    let known = catch_unwind(AssertUnwindSafe(|| {
        let source = ssl.ssl_context().ex_data(source_index());
        source.is_some_and(|source| source(ssl, (!sealing).then_some(name), &mut keys))
    }));
    if sealing {
        name.copy_from_slice(&keys[..TICKET_NAME]);
    }
    let random = !sealing || rand_bytes(iv).is_ok();
    let answer = match known {
        Ok(true) if random => {
            // SAFETY: both contexts are live and OpenSSL's, made for this ticket.
            let ready = unsafe { prepare(cipher, mac, &keys, iv, sealing) };
            if ready { if sealing { 1 } else { 2 } } else { -1 }
        }
        Ok(true) => -1,
        Ok(false) | Err(_) => 0,
    };
    // SAFETY: the array is alive and has as many bytes.
    unsafe { OPENSSL_cleanse(keys.as_mut_ptr().cast(), keys.len()) };
    answer
}

/// Gives the contexts of a ticket their keys: AES-256 in CBC, HMAC with SHA-256.
///
/// # Safety
///
/// Both contexts must be live.
unsafe fn prepare(
    cipher: *mut ffi::EVP_CIPHER_CTX,
    mac: *mut ffi::EVP_MAC_CTX,
    keys: &[u8; TICKET_KEYS],
    iv: &[u8; IV],
    sealing: bool,
) -> bool {
    const DIGEST: &CStr = c"digest";
    let (mac_key, key) = keys[TICKET_NAME..].split_at(MAC_KEY);
    let mut digest = *b"SHA256\0";
    // SAFETY: the parameters refer to a constant and to `digest`, which outlives the call that reads them; 0 takes the text's own length.
    let parameters = unsafe {
        [
            OSSL_PARAM_construct_utf8_string(DIGEST.as_ptr(), digest.as_mut_ptr().cast(), 0),
            ffi::OSSL_PARAM_construct_end(),
        ]
    };
    // SAFETY: the contexts are live (contract); key and vector have the 32 and 16 bytes that AES-256-CBC reads, the other key the length
    // that is told with it; all is copied.
    unsafe {
        let (kind, engine) = (ffi::EVP_aes_256_cbc(), ptr::null_mut());
        ffi::EVP_MAC_init(mac, mac_key.as_ptr(), mac_key.len(), parameters.as_ptr()) == 1
            && ffi::EVP_CipherInit_ex(cipher, kind, engine, key.as_ptr(), iv.as_ptr(), c_int::from(sealing)) == 1
    }
}

/// A session that a client may continue, with the context that it belongs to.
#[derive(Clone)]
pub struct KeptSession {
    context: SslContext,
    session: SslSession,
}

impl KeptSession {
    /// A session of this connection.
    pub fn new(ssl: &SslRef, session: SslSession) -> Self {
        Self { context: ssl.ssl_context().to_owned(), session }
    }

    /// Has a connection that has not begun offer it; `false`: the connection is of another context.
    pub fn offer(&self, ssl: &mut Ssl) -> Result<bool, ErrorStack> {
        if ssl.ssl_context().as_ptr() != self.context.as_ptr() {
            return Ok(false);
        }
        // SAFETY: the session is of the context of this connection (above), which is all that is asked for.
        unsafe { ssl.set_session(&self.session) }.map(|()| true)
    }
}

impl std::fmt::Debug for KeptSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeptSession(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;

    use openssl::ssl::{ShutdownState, SslMethod, SslSessionCacheMode, SslStream, SslVerifyMode, SslVersion};

    use super::*;
    use crate::ssl::{certificate, set_ticket_keys};

    type Asked = Arc<Mutex<Vec<Option<[u8; TICKET_NAME]>>>>;

    fn keys(first: u8) -> [u8; TICKET_KEYS] {
        let mut keys = [first; TICKET_KEYS];
        keys[TICKET_KEYS - 1] = 0;
        keys
    }

    fn server(change: impl FnOnce(&mut SslContextBuilder)) -> SslContext {
        let (certificate, key) = certificate("host");
        let mut context = SslContextBuilder::new(SslMethod::tls_server()).unwrap();
        context.set_min_proto_version(Some(SslVersion::TLS1_3)).unwrap();
        context.set_certificate(&certificate).unwrap();
        context.set_private_key(&key).unwrap();
        context.set_session_id_context(b"test").unwrap();
        change(&mut context);
        context.build()
    }

    /// A server that seals with `own` and opens what `opens` names; what it was asked for.
    fn of_source(own: u8, opens: &'static [u8]) -> (SslContext, Asked) {
        let asked = Asked::default();
        let note = asked.clone();
        let source = move |_: &SslRef, name: Option<&[u8; TICKET_NAME]>, into: &mut [u8; TICKET_KEYS]| {
            note.lock().unwrap().push(name.copied());
            let wanted = name.map_or(own, |name| name[0]);
            *into = keys(wanted);
            name.is_none() || opens.contains(&wanted)
        };
        (server(|context| set_ticket_source(context, Arc::new(source)).unwrap()), asked)
    }

    fn client() -> (SslContext, Arc<Mutex<Vec<KeptSession>>>) {
        let kept = Arc::<Mutex<Vec<_>>>::default();
        let keep = kept.clone();
        let mut client = SslContextBuilder::new(SslMethod::tls_client()).unwrap();
        client.set_verify(SslVerifyMode::NONE);
        client.set_session_cache_mode(SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL);
        client.set_new_session_callback(move |ssl, session| keep.lock().unwrap().push(KeptSession::new(ssl, session)));
        (client.build(), kept)
    }

    /// Whether a session was resumed.
    fn meet(server: &SslContext, client: &SslContext, session: Option<&KeptSession>) -> bool {
        let (near, far) = UnixStream::pair().unwrap();
        let server = server.clone();
        let serving = std::thread::spawn(move || {
            let mut stream = SslStream::new(Ssl::new(&server).unwrap(), far).unwrap();
            stream.accept().unwrap();
            stream.write_all(b"hello").unwrap();
            let mut word = [0; 3];
            stream.read_exact(&mut word).unwrap();
            stream.set_shutdown(ShutdownState::SENT | ShutdownState::RECEIVED);
            stream.ssl().session_reused()
        });
        let mut ssl = Ssl::new(client).unwrap();
        if let Some(session) = session {
            assert!(session.offer(&mut ssl).unwrap());
        }
        let mut stream = SslStream::new(ssl, near).unwrap();
        stream.connect().unwrap();
        let mut word = [0; 5];
        stream.read_exact(&mut word).unwrap();
        stream.write_all(b"bye").unwrap();
        stream.set_shutdown(ShutdownState::SENT | ShutdownState::RECEIVED);
        serving.join().unwrap()
    }

    #[test]
    fn a_source_decides_with_what_tickets_are_sealed_and_which_are_opened() {
        let (client, kept) = client();
        let (first, asked) = of_source(1, &[]);
        assert!(!meet(&first, &client, None));
        assert!(asked.lock().unwrap().iter().all(Option::is_none), "nothing was shown");
        let ticket = kept.lock().unwrap().pop().expect("a ticket came");
        let (knowing, asked) = of_source(2, &[1]);
        kept.lock().unwrap().clear();
        assert!(meet(&knowing, &client, Some(&ticket)));
        assert_eq!(asked.lock().unwrap()[0], Some([1; TICKET_NAME]), "the ticket tells the name of its keys");
        let fresh = kept.lock().unwrap().pop().expect("who resumes gets a fresh ticket");
        assert!(!meet(&of_source(1, &[]).0, &client, Some(&ticket)), "no keys: a full handshake");
        assert!(meet(&of_source(1, &[2]).0, &client, Some(&fresh)), "sealed with the keys of the second server");
    }

    #[test]
    fn who_has_the_keys_alone_opens_what_a_source_sealed() {
        let (client, kept) = client();
        assert!(!meet(&of_source(7, &[]).0, &client, None));
        let ticket = kept.lock().unwrap().pop().expect("a ticket came");
        let other = server(|context| set_ticket_keys(context, &keys(8)).unwrap());
        assert!(!meet(&other, &client, Some(&ticket)));
        let data = server(|context| set_ticket_keys(context, &keys(7)).unwrap());
        assert!(meet(&data, &client, Some(&ticket)));
    }

    #[test]
    fn wrong_keys_or_a_source_that_panics_cost_a_full_handshake() {
        let (client, kept) = client();
        assert!(!meet(&of_source(1, &[]).0, &client, None));
        let ticket = kept.lock().unwrap().pop().expect("a ticket came");
        let lying = |_: &SslRef, name: Option<&[u8; TICKET_NAME]>, into: &mut [u8; TICKET_KEYS]| {
            *into = keys(if name.is_some() { 9 } else { 3 });
            true
        };
        let lying = server(|context| set_ticket_source(context, Arc::new(lying)).unwrap());
        assert!(!meet(&lying, &client, Some(&ticket)));
        let panicking = |_: &SslRef, name: Option<&[u8; TICKET_NAME]>, into: &mut [u8; TICKET_KEYS]| {
            assert!(name.is_none(), "a bug in the source");
            *into = keys(3);
            true
        };
        let panicking = server(|context| set_ticket_source(context, Arc::new(panicking)).unwrap());
        assert!(!meet(&panicking, &client, Some(&ticket)));
    }

    #[test]
    fn a_session_is_offered_in_its_own_context_only() {
        let ((mine, kept), (other, _)) = (client(), client());
        assert!(!meet(&of_source(1, &[]).0, &mine, None));
        let session = kept.lock().unwrap().pop().expect("a ticket came");
        assert!(session.offer(&mut Ssl::new(&mine).unwrap()).unwrap());
        assert!(!session.offer(&mut Ssl::new(&other).unwrap()).unwrap());
        assert_eq!(format!("{session:?}"), "KeptSession(..)");
    }
}
