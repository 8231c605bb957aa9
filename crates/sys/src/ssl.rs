//! The two parts of OpenSSL that its safe bindings lack: a judge of whole certificate chains, and session ticket keys.

use std::ffi::{c_int, c_long, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use foreign_types::ForeignTypeRef;
use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{Ssl, SslContext, SslContextBuilder, SslRef, SslSession, SslStream};
use openssl::stack::StackRef;
use openssl::x509::{X509, X509Ref, X509VerifyResult};
use openssl_sys as ffi;

/// Judges the chain that a peer sent: its own certificate, and everything it sent beside that, in its order.
///
/// An error becomes a TLS alert, before any application byte is read. The connection is given so that the judge can leave its
/// findings there ([`SslRef::set_ex_data`] needs `&mut`, hence a cell in the connection's data).
pub type ChainJudge = dyn Fn(&SslRef, &X509Ref, &[&X509Ref]) -> Result<(), X509VerifyResult> + Send + Sync;

unsafe extern "C" {
    fn SSL_CTX_set_cert_verify_callback(
        context: *mut ffi::SSL_CTX,
        callback: Option<unsafe extern "C" fn(*mut ffi::X509_STORE_CTX, *mut c_void) -> c_int>,
        argument: *mut c_void,
    );
    fn SSL_has_pending(ssl: *const ffi::SSL) -> c_int;
    fn SSL_new_session_ticket(ssl: *mut ffi::SSL) -> c_int;
    fn X509_STORE_CTX_get0_cert(store: *mut ffi::X509_STORE_CTX) -> *mut ffi::X509;
    fn X509_STORE_CTX_get0_untrusted(store: *mut ffi::X509_STORE_CTX) -> *mut ffi::stack_st_X509;
}

/// `X509_V_ERR_APPLICATION_VERIFICATION`: what a judge that panicked answers.
const APPLICATION_VERIFICATION: c_int = 50;

/// `X509_V_ERR_CERT_HAS_EXPIRED` and `X509_V_ERR_CERT_REJECTED` of x509_vfy.h.
const EXPIRED: c_int = 10;
const REJECTED: c_int = 28;

/// `SSL_CTRL_SET_TLSEXT_TICKET_KEYS` of ssl.h.
const SET_TICKET_KEYS: c_int = 59;

/// Bytes of a set of session ticket keys: name 16, HMAC 32, AES 32 (OpenSSL 1.1.1 and later).
pub const TICKET_KEYS: usize = 80;

/// Puts `judge` in the place of OpenSSL's own chain verification, for both ends.
///
/// Whether a certificate is asked for at all stays with [`SslContextBuilder::set_verify`].
pub fn set_chain_judge(context: &mut SslContextBuilder, judge: Arc<ChainJudge>) {
    context.set_ex_data(judge_index(), judge);
    // SAFETY: `as_ptr` is the live context under construction. `judge_chain` looks its judge up in the context of the
    // connection, so no argument is passed whose life would have to be kept.
    unsafe { SSL_CTX_set_cert_verify_callback(context.as_ptr(), Some(judge_chain), std::ptr::null_mut()) }
}

/// The word of a judge that refuses a certificate; it decides which alert tells the other side (RFC 8446 §6.2:
/// `certificate_expired` or `bad_certificate`).
pub fn refusal(expired: bool) -> X509VerifyResult {
    // SAFETY: both numbers are OpenSSL's own, so that all methods of the result are as safe as with those it makes.
    unsafe { X509VerifyResult::from_raw(if expired { EXPIRED } else { REJECTED }) }
}

/// Sets the keys under which a server encrypts its session tickets: whoever has them can resume the sessions.
pub fn set_ticket_keys(context: &mut SslContextBuilder, keys: &[u8; TICKET_KEYS]) -> Result<(), ErrorStack> {
    let mut keys = *keys;
    // SAFETY: the call reads `TICKET_KEYS` bytes from the pointer and keeps none of it (SSL_CTX_set_tlsext_ticket_keys(3)).
    let done = unsafe {
        ffi::SSL_CTX_ctrl(context.as_ptr(), SET_TICKET_KEYS, TICKET_KEYS as c_long, keys.as_mut_ptr().cast())
    };
    if done == 1 { Ok(()) } else { Err(ErrorStack::get()) }
}

/// Lets connections of a server's context resume a session that another process began, in the form of [`SslSession::to_der`](openssl::ssl::SslSessionRef::to_der).
///
/// Clients that switch tickets off in TLS 1.2, as curl does, name a session and have nothing else to show.
pub fn know_session(context: &SslContext, der: &[u8]) -> Result<(), ErrorStack> {
    let session = SslSession::from_der(der)?;
    // SAFETY: the session was made of bytes just now, so no other context has ever used it.
    let _known_already = !unsafe { context.add_session(&session) };
    Ok(())
}

/// Whether the connection holds bytes of the wire that were not given out, be it as part of an unfinished record.
pub fn holds_bytes(ssl: &SslRef) -> bool {
    // SAFETY: the call only looks at the live connection.
    unsafe { SSL_has_pending(ssl.as_ptr()) == 1 }
}

/// Has a server give its client one more ticket, along with what it writes next; `false` where that cannot be: a client, TLS 1.2, or a
/// handshake that is not over.
pub fn give_ticket<S>(stream: &mut SslStream<S>) -> bool {
    // SAFETY: the call changes nothing but the live connection, which nobody else uses: its stream is borrowed exclusively.
    let given = unsafe { SSL_new_session_ticket(stream.ssl().as_ptr()) == 1 };
    if !given {
        // A refusal leaves its reason behind, which would be taken for that of a later call.
        let _reason = ErrorStack::get();
    }
    given
}

fn judge_index() -> Index<SslContext, Arc<ChainJudge>> {
    static INDEX: OnceLock<Index<SslContext, Arc<ChainJudge>>> = OnceLock::new();
    *INDEX.get_or_init(|| SslContext::new_ex_index().expect("an index is made once, at the first context"))
}

/// What OpenSSL calls for a chain: 1 accepts, 0 refuses.
unsafe extern "C" fn judge_chain(store: *mut ffi::X509_STORE_CTX, _: *mut c_void) -> c_int {
    let verdict = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: OpenSSL gives a store context that lives for the call and belongs to a connection.
        unsafe { judged(store) }
    }));
    let error = match verdict {
        Ok(Ok(())) => return 1,
        Ok(Err(refusal)) => refusal.as_raw(),
        Err(_panic) => APPLICATION_VERIFICATION,
    };
    // SAFETY: as above.
    unsafe { ffi::X509_STORE_CTX_set_error(store, error) };
    0
}

/// # Safety
///
/// `store` must be a live store context that OpenSSL made for a handshake.
unsafe fn judged(store: *mut ffi::X509_STORE_CTX) -> Result<(), X509VerifyResult> {
    // SAFETY: an integer is always a valid verify result.
    let refused = unsafe { X509VerifyResult::from_raw(APPLICATION_VERIFICATION) };
    // SAFETY: `store` is live (contract); the connection outlives the call.
    let ssl =
        unsafe { ffi::X509_STORE_CTX_get_ex_data(store, ffi::SSL_get_ex_data_X509_STORE_CTX_idx()) as *mut ffi::SSL };
    // SAFETY: `store` is live (contract).
    let leaf = unsafe { X509_STORE_CTX_get0_cert(store) };
    if ssl.is_null() || leaf.is_null() {
        return Err(refused);
    }
    // SAFETY: both are live for the call; only shared references are made of them.
    let (ssl, leaf) = unsafe { (<SslRef as ForeignTypeRef>::from_ptr(ssl), X509Ref::from_ptr(leaf)) };
    // SAFETY: `store` is live (contract); the stack, if there is one, belongs to it.
    let sent = unsafe { X509_STORE_CTX_get0_untrusted(store) };
    let others: Vec<&X509Ref> = if sent.is_null() {
        Vec::new()
    } else {
        // SAFETY: a live stack of certificates (above).
        let sent = unsafe { StackRef::<X509>::from_ptr(sent) };
        // A peer's own certificate comes first in what it sent.
        sent.iter().filter(|certificate| !std::ptr::eq(*certificate, leaf)).collect()
    };
    let judge = ssl.ssl_context().ex_data(judge_index()).ok_or(refused)?;
    judge(ssl, leaf, &others)
}

/// A place in every connection for a value of type `T`, made when it is first asked for and kept in `made`.
pub fn connection_slot<T: 'static + Send + Sync>(made: &OnceLock<Index<Ssl, T>>) -> Result<Index<Ssl, T>, ErrorStack> {
    if let Some(index) = made.get() {
        return Ok(*index);
    }
    let index = Ssl::new_ex_index()?;
    // Whoever loses a race leaves an index unused, which costs a word in each connection.
    Ok(*made.get_or_init(|| index))
}

#[cfg(test)]
pub(crate) use tests::certificate;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;

    use openssl::asn1::Asn1Time;
    use openssl::ec::{EcGroup, EcKey};
    use openssl::hash::MessageDigest;
    use openssl::nid::Nid;
    use openssl::pkey::{PKey, Private};
    use openssl::ssl::{
        ShutdownState, SslMethod, SslOptions, SslSessionCacheMode, SslStream, SslVerifyMode, SslVersion,
    };
    use openssl::x509::{X509Builder, X509NameBuilder};

    use super::*;

    pub(crate) fn certificate(name: &str) -> (X509, PKey<Private>) {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
        let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
        let mut subject = X509NameBuilder::new().unwrap();
        subject.append_entry_by_text("CN", name).unwrap();
        let subject = subject.build();
        let mut builder = X509Builder::new().unwrap();
        builder.set_version(2).unwrap();
        builder.set_subject_name(&subject).unwrap();
        builder.set_issuer_name(&subject).unwrap();
        builder.set_pubkey(&key).unwrap();
        builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
        builder.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
        builder.sign(&key, MessageDigest::sha256()).unwrap();
        (builder.build(), key)
    }

    fn server(name: &str, version: SslVersion, keys: Option<&[u8; TICKET_KEYS]>) -> SslContext {
        let (certificate, key) = certificate(name);
        let mut context = SslContextBuilder::new(SslMethod::tls_server()).unwrap();
        context.set_min_proto_version(Some(version)).unwrap();
        context.set_max_proto_version(Some(version)).unwrap();
        context.set_certificate(&certificate).unwrap();
        context.set_private_key(&key).unwrap();
        context.set_session_id_context(b"test").unwrap();
        if let Some(keys) = keys {
            set_ticket_keys(&mut context, keys).unwrap();
        }
        context.build()
    }

    /// What each end said of the handshake, and whether the session was resumed.
    fn meet(server: &SslContext, client: &SslContext, session: Option<&SslSession>) -> Result<bool, (String, String)> {
        meet_telling(server, client, session).map(|(resumed, _)| resumed)
    }

    /// As [`meet`], with the server's session.
    fn meet_telling(
        server: &SslContext,
        client: &SslContext,
        session: Option<&SslSession>,
    ) -> Result<(bool, Vec<u8>), (String, String)> {
        let (near, far) = UnixStream::pair().unwrap();
        let server = server.clone();
        let serving = std::thread::spawn(move || {
            let mut stream = SslStream::new(Ssl::new(&server).unwrap(), far).unwrap();
            stream.accept().map_err(|error| error.to_string())?;
            stream.write_all(b"hello").map_err(|error| error.to_string())?;
            let mut word = [0; 3];
            stream.read_exact(&mut word).map_err(|error| error.to_string())?;
            // A session whose connection ends without this counts as broken and is not resumed.
            stream.set_shutdown(ShutdownState::SENT | ShutdownState::RECEIVED);
            let session = stream.ssl().session().expect("the handshake is over").to_der().unwrap();
            Ok::<_, String>((stream.ssl().session_reused(), session))
        });
        let mut ssl = Ssl::new(client).unwrap();
        if let Some(session) = session {
            // SAFETY: the session comes from a context with the same settings.
            unsafe { ssl.set_session(session).unwrap() }
        }
        let mut stream = SslStream::new(ssl, near).unwrap();
        let connected = stream.connect().map_err(|error| error.to_string()).and_then(|()| {
            let mut word = [0; 5];
            stream.read_exact(&mut word).map_err(|error| error.to_string())?;
            stream.write_all(b"bye").map_err(|error| error.to_string())
        });
        stream.set_shutdown(ShutdownState::SENT | ShutdownState::RECEIVED);
        drop(stream);
        match (connected, serving.join().unwrap()) {
            (Ok(()), Ok(told)) => Ok(told),
            (near, far) => Err((near.err().unwrap_or_default(), far.err().unwrap_or_default())),
        }
    }

    fn judging(judge: Arc<ChainJudge>) -> SslContext {
        let mut context = SslContextBuilder::new(SslMethod::tls_client()).unwrap();
        context.set_verify(SslVerifyMode::PEER);
        set_chain_judge(&mut context, judge);
        context.build()
    }

    #[test]
    fn a_judge_sees_the_chain_and_its_word_decides() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let note = seen.clone();
        let accepting = judging(Arc::new(move |_, leaf, others| {
            note.lock().unwrap().push((format!("{:?}", leaf.subject_name()), others.len()));
            Ok(())
        }));
        let server = server("first", SslVersion::TLS1_3, None);
        assert_eq!(meet(&server, &accepting, None), Ok(false));
        assert_eq!(seen.lock().unwrap().as_slice(), [("[commonName = \"first\"]".to_owned(), 0)]);

        let refusing = judging(Arc::new(|_, _, _| Err(X509VerifyResult::APPLICATION_VERIFICATION)));
        let (near, far) = meet(&server, &refusing, None).unwrap_err();
        assert!(near.contains("certificate verify failed"), "{near}");
        assert!(far.contains("alert"), "{far}");
    }

    #[test]
    fn the_other_side_is_told_whether_its_certificate_has_expired() {
        for (expired, alert) in [(true, "certificate expired"), (false, "bad certificate")] {
            let refusing = judging(Arc::new(move |_, _, _| Err(refusal(expired))));
            let (_, far) = meet(&server("first", SslVersion::TLS1_3, None), &refusing, None).unwrap_err();
            assert!(far.contains(alert), "{far}");
        }
    }

    #[test]
    fn a_judge_that_panics_refuses() {
        let panicking = judging(Arc::new(|_, _, _| panic!("a bug in the judge")));
        assert!(meet(&server("first", SslVersion::TLS1_2, None), &panicking, None).is_err());
    }

    #[test]
    fn who_knows_a_session_resumes_it_for_a_client_without_tickets() {
        let kept = Arc::new(Mutex::new(None));
        let keep = kept.clone();
        let mut client = SslContextBuilder::new(SslMethod::tls_client()).unwrap();
        client.set_verify(SslVerifyMode::NONE);
        client.set_options(SslOptions::NO_TICKET);
        client.set_session_cache_mode(SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL);
        client.set_new_session_callback(move |_, session| *keep.lock().unwrap() = Some(session));
        let client = client.build();
        let fresh = |keys| server("host", SslVersion::TLS1_2, Some(keys));
        let keys = [7; TICKET_KEYS];
        let (_, der) = meet_telling(&fresh(&keys), &client, None).unwrap();
        let session = kept.lock().unwrap().take().expect("a session came");
        let knowing = fresh(&keys);
        know_session(&knowing, &der).unwrap();
        know_session(&knowing, &der).unwrap();
        assert_eq!(meet(&knowing, &client, Some(&session)), Ok(true));
        assert_eq!(meet(&fresh(&keys), &client, Some(&session)), Ok(false), "the keys alone do not help such a client");
        assert!(know_session(&knowing, b"no session").is_err());
    }

    #[test]
    fn who_has_the_ticket_keys_resumes_what_another_context_began() {
        for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
            let keys = [7; TICKET_KEYS];
            let kept = Arc::new(Mutex::new(None));
            let keep = kept.clone();
            let mut client = SslContextBuilder::new(SslMethod::tls_client()).unwrap();
            client.set_verify(SslVerifyMode::NONE);
            client.set_session_cache_mode(SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL);
            client.set_new_session_callback(move |_, session| *keep.lock().unwrap() = Some(session));
            let client = client.build();
            assert_eq!(meet(&server("front", version, Some(&keys)), &client, None), Ok(false));
            let session = kept.lock().unwrap().take().expect("a ticket came");
            assert_eq!(meet(&server("data", version, Some(&keys)), &client, Some(&session)), Ok(true), "{version:?}");
            let session = kept.lock().unwrap().take().unwrap_or(session);
            assert_eq!(meet(&server("other", version, Some(&[8; TICKET_KEYS])), &client, Some(&session)), Ok(false));
        }
    }
}
