//! What the connections of one kind have in common: versions, ciphers, our certificate, whom to believe.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock};

use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::rand::rand_bytes;
use openssl::ssl::{
    AlpnError, Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions, SslRef, SslSessionCacheMode,
    SslVerifyMode, SslVersion,
};
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_sys::sessions::{KeptSession, TicketSource, set_ticket_source};
use whimbrel_sys::ssl::{TICKET_KEYS, connection_slot, know_session, refusal, set_chain_judge, set_ticket_keys};
use zeroize::Zeroizing;

use super::machine::internal;
use super::resume::Sessions;
use super::traffic::offer_secrets;
use crate::fault::TrustFault;
use crate::make::{self, KeyKind, Life, Purpose};
use crate::peer::{OwnChain, Peer, PeerJudge};
use crate::psk::AGREED_KEY;

/// AES-128 first: it costs least, and keys agreed beforehand need a suite with SHA-256 (RFC 8446 §4.2.11).
const SUITES_1_3: &str = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

/// Authenticated ciphers with forward secrecy only.
const CIPHERS_1_2: &str = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:!aNULL:!eNULL";

/// The name under which an agreed key is offered; which one it is follows from the connection.
const AGREED: &[u8] = b"whimbrel\0";

/// Sessions of one context only are resumed by a context with the same name.
const SESSION_CONTEXT: &[u8] = b"whimbrel";

/// Tickets a server gives on a control connection in TLS 1.3: some clients use each for one data connection only, and uploads give none
/// back.
pub(super) const TICKETS: usize = 8;

/// How a server's sessions can be resumed.
pub(super) enum Tickets<'a> {
    /// Not at all.
    None,
    /// By whoever shows a ticket that these keys sealed.
    Sealed(&'a TicketKeys),
    /// Each connection has keys of its own.
    Own(Arc<TicketSource>),
}

/// Whether a server asks its clients for a certificate.
#[derive(Clone)]
pub enum Clients {
    /// No: they log in some other way.
    Unasked,
    /// They may show one, which is judged then.
    Welcome(Arc<dyn PeerJudge>),
    /// They have to.
    Demanded(Arc<dyn PeerJudge>),
}

/// What a server's connections have in common.
#[derive(Clone)]
pub struct ServerTls(SslContext);

/// What a client's connections have in common.
#[derive(Clone)]
pub struct ClientTls(SslContext);

/// The secret under which a server's session tickets are sealed; whoever has it can resume its sessions.
#[derive(Clone)]
pub struct TicketKeys(Zeroizing<[u8; TICKET_KEYS]>);

impl TicketKeys {
    /// Fresh ones.
    pub fn new() -> Result<Self, TrustFault> {
        let mut keys = Zeroizing::new([0; TICKET_KEYS]);
        rand_bytes(&mut keys[..]).map_err(|error| internal(&error))?;
        Ok(Self(keys))
    }

    /// Those that another process made; `None` unless there are exactly 80 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(|keys| Self(Zeroizing::new(keys)))
    }

    /// For the process that is to resume the sessions.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0[..]
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKeys(..)")
    }
}

impl ServerTls {
    /// A server that shows a certificate; `tickets` lets its sessions be resumed.
    pub fn new(own: &OwnChain, clients: &Clients, tickets: Option<&TicketKeys>) -> Result<Self, TrustFault> {
        server(own, clients, tickets.map_or(Tickets::None, Tickets::Sealed)).map(Self).map_err(|error| internal(&error))
    }

    /// A server of GSI's kind: asks for a certificate, gives no tickets (their messages are no part of the token exchange).
    pub fn gsi(own: &OwnChain, judge: Arc<dyn PeerJudge>) -> Result<Self, TrustFault> {
        Self::new(own, &Clients::Demanded(judge), None)
    }

    /// A server that shows no certificate and believes whoever knows `key` (RFC 8446 §2.2).
    pub fn agreed(key: &[u8; AGREED_KEY]) -> Result<Self, TrustFault> {
        agreed_server(key).map(Self).map_err(|error| internal(&error))
    }

    /// A server in another process than the one that gave the tickets: resumes sessions and can do nothing else, for the
    /// certificate it shows is nobody's (without one there is no TLS 1.3).
    ///
    /// Danger: who does not resume is met all the same; ask the connection whether it did.
    pub fn resuming(tickets: &TicketKeys) -> Result<Self, TrustFault> {
        static NOBODY: OnceLock<OwnChain> = OnceLock::new();
        let own = match NOBODY.get() {
            Some(own) => own,
            None => {
                let own = nobody()?;
                NOBODY.get_or_init(|| own)
            }
        };
        let context = server(own, &Clients::Unasked, Tickets::Sealed(tickets)).map_err(|error| internal(&error))?;
        Ok(Self(context))
    }

    /// Lets it resume one more session: that of a [`TlsMachine`](super::TlsMachine) in another process, for clients without tickets.
    pub fn know(&self, session: &[u8]) -> Result<(), TrustFault> {
        know_session(&self.0, session).map_err(|error| internal(&error))
    }

    /// The TLS object of a new connection.
    pub fn connection(&self) -> Result<Ssl, TrustFault> {
        with_slot(&self.0, Slot::default()).map_err(|error| internal(&error))
    }

    /// As [`Self::connection`], with so many tickets after a TLS 1.3 handshake instead of the usual number.
    pub fn connection_with(&self, tickets: usize) -> Result<Ssl, TrustFault> {
        let mut ssl = self.connection()?;
        ssl.set_num_tickets(tickets).map_err(|error| internal(&error))?;
        Ok(ssl)
    }
}

impl ClientTls {
    /// A client that believes whom `judge` believes, and shows `own` when it is asked to.
    pub fn new(judge: Arc<dyn PeerJudge>, own: Option<&OwnChain>) -> Result<Self, TrustFault> {
        client(Some(judge), own).map(Self).map_err(|error| internal(&error))
    }

    /// A client whose connections each bring the judge of their server, and may continue sessions; see [`Self::connection_to`].
    pub fn of_many(own: Option<&OwnChain>) -> Result<Self, TrustFault> {
        client(None, own).map(Self).map_err(|error| internal(&error))
    }

    /// A client that believes whoever knows `key`, and proves that it does, too.
    pub fn agreed(key: &[u8; AGREED_KEY]) -> Result<Self, TrustFault> {
        agreed_client(key).map(Self).map_err(|error| internal(&error))
    }

    /// The TLS object of a new connection to `host`, which is named in the first message unless it is an address or empty.
    pub fn connection(&self, host: &str) -> Result<Ssl, TrustFault> {
        self.begin(host, Slot::default()).map_err(|error| internal(&error))
    }

    /// As [`Self::connection`], to a server that `judge` has to believe, unless it continues `session`, whose server was believed.
    pub fn connection_to(
        &self,
        host: &str,
        judge: Arc<dyn PeerJudge>,
        session: Option<&KeptSession>,
    ) -> Result<Ssl, TrustFault> {
        let slot = Slot { judge: Some(judge), ..Slot::default() };
        let begun = self.begin(host, slot).and_then(|mut ssl| {
            if let Some(session) = session {
                session.offer(&mut ssl)?;
            }
            Ok(ssl)
        });
        begun.map_err(|error| internal(&error))
    }

    fn begin(&self, host: &str, slot: Slot) -> Result<Ssl, ErrorStack> {
        let mut ssl = with_slot(&self.0, slot)?;
        if !host.is_empty() && host.parse::<IpAddr>().is_err() {
            ssl.set_hostname(host)?;
        }
        Ok(ssl)
    }
}

/// What the judge found about the other side of a connection; `None`: it has not been asked.
pub fn verdict(ssl: &SslRef) -> Option<Result<Peer, TrustFault>> {
    slot(ssl)?.verdict.lock().ok()?.clone()
}

/// What a connection keeps beside its TLS object.
#[derive(Default)]
pub(super) struct Slot {
    /// Whom a client believes, where its context does not say.
    pub(super) judge: Option<Arc<dyn PeerJudge>>,
    /// The judge's findings: OpenSSL calls it with a shared reference only.
    pub(super) verdict: Mutex<Option<Result<Peer, TrustFault>>>,
    /// What seals a server's tickets, where that is not its context's to say.
    pub(super) keys: Option<TicketKeys>,
    /// Where a client keeps sessions, once it believes its server.
    pub(super) sessions: OnceLock<Arc<Sessions>>,
}

pub(super) fn slot(ssl: &SslRef) -> Option<&Slot> {
    ssl.ex_data(slot_index().ok()?)
}

fn slot_index() -> Result<Index<Ssl, Slot>, ErrorStack> {
    static INDEX: OnceLock<Index<Ssl, Slot>> = OnceLock::new();
    connection_slot(&INDEX)
}

pub(super) fn with_slot(context: &SslContext, slot: Slot) -> Result<Ssl, ErrorStack> {
    let mut ssl = Ssl::new(context)?;
    ssl.set_ex_data(slot_index()?, slot);
    Ok(ssl)
}

fn common(method: SslMethod) -> Result<SslContextBuilder, ErrorStack> {
    let mut context = SslContextBuilder::new(method)?;
    context.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    context.set_ciphersuites(SUITES_1_3)?;
    context.set_cipher_list(CIPHERS_1_2)?;
    context.set_options(SslOptions::NO_RENEGOTIATION | SslOptions::NO_COMPRESSION);
    // An idle connection keeps no buffers; a write may be continued from another place in memory.
    context.set_mode(SslMode::RELEASE_BUFFERS | SslMode::ACCEPT_MOVING_WRITE_BUFFER | SslMode::ENABLE_PARTIAL_WRITE);
    offer_secrets(&mut context);
    Ok(context)
}

fn show(context: &mut SslContextBuilder, own: &OwnChain) -> Result<(), ErrorStack> {
    context.set_certificate(&own.certificate)?;
    context.set_private_key(&own.key)?;
    context.check_private_key()?;
    own.chain.iter().try_for_each(|above| context.add_extra_chain_cert(above.clone()))
}

/// Believes whom the judge believes, or that of the connection where there is none; where that is none either, nobody.
fn believe(context: &mut SslContextBuilder, judge: Option<Arc<dyn PeerJudge>>) {
    set_chain_judge(
        context,
        Arc::new(move |ssl, leaf, others| {
            let slot = slot(ssl);
            let own = slot.and_then(|slot| slot.judge.as_ref());
            let judge = judge.as_ref().or(own).ok_or_else(|| refusal(false))?;
            let verdict = judge.judge(leaf, others);
            let answer = match &verdict {
                Ok(_) => Ok(()),
                Err(fault) => Err(refusal(fault.code == FaultCode::CredentialExpired)),
            };
            if let Some(slot) = slot
                && let Ok(mut found) = slot.verdict.lock()
            {
                *found = Some(verdict);
            }
            answer
        }),
    );
}

pub(super) fn server(own: &OwnChain, clients: &Clients, tickets: Tickets<'_>) -> Result<SslContext, ErrorStack> {
    let mut context = common(SslMethod::tls_server())?;
    show(&mut context, own)?;
    context.set_options(SslOptions::CIPHER_SERVER_PREFERENCE);
    context.set_session_id_context(SESSION_CONTEXT)?;
    match tickets {
        Tickets::Sealed(keys) => {
            set_ticket_keys(&mut context, &keys.0)?;
            context.set_num_tickets(TICKETS)?;
        }
        Tickets::Own(source) => {
            set_ticket_source(&mut context, source)?;
            context.set_num_tickets(TICKETS)?;
        }
        Tickets::None => {
            context.set_options(SslOptions::NO_TICKET);
            context.set_num_tickets(0)?;
            context.set_session_cache_mode(SslSessionCacheMode::OFF);
        }
    }
    let (mode, judge) = match clients {
        Clients::Unasked => (SslVerifyMode::NONE, None),
        Clients::Welcome(judge) => (SslVerifyMode::PEER, Some(judge)),
        Clients::Demanded(judge) => (SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT, Some(judge)),
    };
    context.set_verify(mode);
    if let Some(judge) = judge {
        believe(&mut context, Some(judge.clone()));
    }
    context.set_alpn_select_callback(|_, offered| {
        openssl::ssl::select_next_proto(b"\x03ftp", offered).ok_or(AlpnError::NOACK)
    });
    Ok(context.build())
}

/// Without a judge of its own its connections bring theirs, and keep sessions.
fn client(judge: Option<Arc<dyn PeerJudge>>, own: Option<&OwnChain>) -> Result<SslContext, ErrorStack> {
    let mut context = common(SslMethod::tls_client())?;
    if let Some(own) = own {
        show(&mut context, own)?;
    }
    context.set_verify(SslVerifyMode::PEER);
    if judge.is_none() {
        context.set_session_cache_mode(SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL);
        context.set_new_session_callback(|ssl, session| {
            if let Some(sessions) = slot(ssl).and_then(|slot| slot.sessions.get()) {
                sessions.keep(ssl, session);
            }
        });
    }
    believe(&mut context, judge);
    Ok(context.build())
}

fn agreed(method: SslMethod) -> Result<SslContextBuilder, ErrorStack> {
    let mut context = common(method)?;
    context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    context.set_ciphersuites("TLS_AES_128_GCM_SHA256")?;
    // Without a judge no certificate is believed, so that the key is the only way.
    context.set_verify(SslVerifyMode::PEER);
    Ok(context)
}

fn agreed_server(key: &[u8; AGREED_KEY]) -> Result<SslContext, ErrorStack> {
    let mut context = agreed(SslMethod::tls_server())?;
    context.set_session_id_context(SESSION_CONTEXT)?;
    context.set_num_tickets(0)?;
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    let key = Zeroizing::new(*key);
    context.set_psk_server_callback(move |_, name, into| {
        let known = name.is_some_and(|name| name == &AGREED[..AGREED.len() - 1]);
        Ok(if known { put(&key[..], into) } else { 0 })
    });
    Ok(context.build())
}

fn agreed_client(key: &[u8; AGREED_KEY]) -> Result<SslContext, ErrorStack> {
    let mut context = agreed(SslMethod::tls_client())?;
    let key = Zeroizing::new(*key);
    context.set_psk_client_callback(move |_, _hint, name, into| {
        if put(AGREED, name) == 0 {
            return Ok(0);
        }
        Ok(put(&key[..], into))
    });
    Ok(context.build())
}

/// A certificate that vouches for nothing.
fn nobody() -> Result<OwnChain, TrustFault> {
    let key = make::key(KeyKind::P256)?;
    // Its dates count for nothing, either.
    let life = Life::of(Timestamp { secs: 0, nanos: 0 }, 0);
    let certificate = make::self_signed("/CN=nobody", &key, &Purpose::Person, life)?;
    Ok(OwnChain { certificate, key, chain: Vec::new() })
}

/// Bytes copied: all or none.
fn put(bytes: &[u8], into: &mut [u8]) -> usize {
    match into.get_mut(..bytes.len()) {
        Some(place) => {
            place.copy_from_slice(bytes);
            bytes.len()
        }
        None => 0,
    }
}
