//! What protects a connection and its data connections: AUTH, ADAT, PBSZ, PROT, DCAU, DCSC, CCC (RFC 2228, RFC 4217, GFD.20 §3.1).
//!
//! TLS and wrapped lines are below the machine: it says when they begin, and knows only that they are there.

use super::answer::Answer;
use super::config::ServerConfig;
use super::data;
use super::event::{PeerView, Proof, TokenOutcome};
use super::failure;
use super::login;
use super::session::{DataHandle, Phase, Session};
use super::step::{Step, Task};
use crate::command::{Command, Dcau, Dcsc, Protection, Secret};
use crate::op::{GsiPeer, Level, Op, Outcome, Shield};
use crate::protect::base64;

/// Longest ADAT line, bytes without line end: a chain of certificates with a VO's attributes has some 20 KiB in base64.
pub(super) const MAX_ADAT_LINE: usize = 64 << 10;

/// What the control connection runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    /// Nothing that protects it.
    Clear,
    /// TLS.
    Tls,
    /// Lines wrapped by a GSSAPI context: GSI or Kerberos.
    Gssapi,
    /// ssh.
    Ssh,
}

/// What protects the connection, and what its next data handles are protected with.
#[derive(Debug, Clone)]
pub(super) struct Security {
    channel: Channel,
    /// Who is at the other end, where the handshake told.
    peer: Option<PeerView>,
    /// AUTH GSSAPI was given and the exchange of tokens is not over.
    awaits_token: bool,
    /// PROT.
    level: Level,
    /// DCAU.
    dcau: Dcau,
    /// DCSC P is in force.
    credential: bool,
    /// The login was let in at USER (232), so that a PASS that was sent along is no error.
    pub(super) let_in_at_user: bool,
}

impl Security {
    /// A fresh connection.
    pub(super) fn new(config: &ServerConfig) -> Self {
        Self::over(if config.mechanisms.ssh { Channel::Ssh } else { Channel::Clear }, None)
    }

    /// Data connections are in clear at first; after a GSI login each proves to be the user's (GFD.20 §3.1).
    fn over(channel: Channel, peer: Option<PeerView>) -> Self {
        let gsi = channel == Channel::Gssapi && peer.as_ref().is_some_and(|peer| peer.gsi);
        let dcau = if gsi { Dcau::Myself } else { Dcau::None };
        let (awaits_token, credential, let_in_at_user) = (false, false, false);
        Self { channel, peer, awaits_token, level: Level::Clear, dcau, credential, let_in_at_user }
    }

    /// After REIN: what the connection runs over stays.
    pub(super) fn again(&self) -> Self {
        Self::over(self.channel, self.peer.clone())
    }

    /// TLS begins.
    pub(super) fn begin_tls(&mut self, peer: Option<PeerView>) {
        *self = Self::over(Channel::Tls, peer);
    }

    /// True where nobody between the ends can read or change the control connection.
    pub(super) fn is_protected(&self) -> bool {
        self.channel != Channel::Clear
    }

    /// True while nothing but ADAT counts.
    pub(super) fn awaits_token(&self) -> bool {
        self.awaits_token
    }

    /// Subject of the peer's certificate, or its principal.
    pub(super) fn subject(&self) -> Option<&str> {
        self.peer.as_ref().map(|peer| peer.subject.as_str())
    }

    /// True if data connections may prove identities by certificates.
    pub(super) fn authenticates_data(&self) -> bool {
        self.takes_credentials() && (self.credential || self.peer.as_ref().is_some_and(|peer| peer.gsi))
    }

    /// True if DCSC is accepted.
    pub(super) fn takes_credentials(&self) -> bool {
        matches!(self.channel, Channel::Gssapi | Channel::Ssh)
    }

    /// True if the peer's certificate lets a TLS login in without a password (232 after USER, RFC 4217 §6). Over GSSAPI
    /// clients send USER and PASS all the same, and stock ones expect 331 between them.
    pub(super) fn suffices_at_user(&self) -> bool {
        self.channel == Channel::Tls && self.suffices()
    }

    fn suffices(&self) -> bool {
        self.channel == Channel::Ssh || self.peer.as_ref().is_some_and(|peer| peer.suffices)
    }

    /// What a login is judged by: over GSSAPI and ssh the text of PASS says nothing.
    pub(super) fn proof(&self, password: Secret) -> Proof {
        match self.channel {
            Channel::Gssapi | Channel::Ssh if self.suffices() => Proof::Peer,
            _ => Proof::Password(password),
        }
    }

    /// True if some way to protect data connections may be found when their handle is made.
    fn can_protect_data(&self, config: &ServerConfig) -> bool {
        match self.channel {
            Channel::Clear => false,
            Channel::Tls => true,
            Channel::Gssapi | Channel::Ssh => config.data_nonce || self.authenticates_data(),
        }
    }

    /// How the connections of a handle that is made now are protected; `nonce`: it has one (SITE DCNONCE).
    ///
    /// DCAU comes first, as it names whom to expect. Without it PROT P is met by the nonce, which travelled over the protected
    /// control connection, or by TLS that continues the control connection's (RFC 4217 §10.2).
    pub(super) fn shield(&self, config: &ServerConfig, nonce: bool) -> Result<Shield, Answer> {
        let level = self.level;
        if level == Level::Clear && config.mechanisms.private_data {
            return Err(Answer::line(521, "Data connections must be protected here: send PROT P first."));
        }
        Ok(match &self.dcau {
            Dcau::Myself => Shield::Gsi { peer: GsiPeer::Own, level },
            Dcau::Subject(subject) => {
                let subject = String::from_utf8_lossy(subject).into_owned();
                Shield::Gsi { peer: GsiPeer::Subject(subject), level }
            }
            Dcau::None if level == Level::Clear => Shield::None,
            Dcau::None if nonce => Shield::Nonce,
            Dcau::None if self.channel == Channel::Tls => Shield::Session,
            Dcau::None => return Err(Answer::line(431, NO_WAY)),
        })
    }
}

/// RFC 2228 §5.5.1: 431 "Necessary resource is not available".
const NO_WAY: &str =
    "Data connections cannot be protected: send DCAU A, or SITE DCNONCE before PASV or PORT, or PROT C.";

/// The security commands; others come back.
pub(super) fn command(session: &mut Session, config: &ServerConfig, command: Command) -> Result<Step, Command> {
    Ok(match command {
        Command::Auth(mechanism) => authenticate(session, config, &mechanism),
        Command::Adat(text) => token(session, &text),
        // RFC 2228 §3: 533 where the server does not let the control connection become clear again.
        Command::Ccc if session.security.is_protected() => line(533, "The control connection stays protected."),
        Command::Ccc => line(533, "The control connection is not protected."),
        Command::Pbsz(size) => line(200, &format!("PBSZ={size}")),
        Command::Prot(level) => protection(session, config, level),
        Command::Dcau(dcau) => authentication(session, dcau),
        Command::Dcsc(dcsc) => credential(session, dcsc),
        other => return Err(other),
    })
}

fn line(code: u16, text: &str) -> Step {
    Step::Answer(Answer::line(code, text))
}

/// AUTH (RFC 2228 §3, RFC 4217 §4): before the login, once. AUTH SSL, which would mean PROT P as well, is not there.
fn authenticate(session: &mut Session, config: &ServerConfig, mechanism: &[u8]) -> Step {
    let mechanisms = &config.mechanisms;
    let tls = match mechanism.to_ascii_uppercase().as_slice() {
        b"TLS" | b"TLS-C" if mechanisms.tls => true,
        b"GSSAPI" if mechanisms.gssapi => false,
        _ => return line(504, "Unknown authentication type."),
    };
    if session.security.is_protected() {
        return line(503, "The control connection is protected already.");
    }
    if session.is_logged_in() {
        return line(503, "AUTH comes before the login.");
    }
    session.phase = Phase::Fresh;
    if tls {
        return Step::StartTls(Answer::line(234, "Begin the TLS handshake."));
    }
    session.security.awaits_token = true;
    line(334, "Using authentication type; ADAT must follow.")
}

/// What a command other than ADAT and QUIT gets in the middle of the exchange of tokens (GCT practice).
pub(super) fn out_of_turn(session: &Session, verb: &str) -> Option<Step> {
    let refused = session.security.awaits_token && !["ADAT", "QUIT"].contains(&verb);
    refused.then(|| line(530, "Must perform GSSAPI authentication."))
}

/// ADAT (RFC 2228 §3).
fn token(session: &Session, text: &Secret) -> Step {
    if !session.security.awaits_token {
        return line(503, "Send AUTH first.");
    }
    match base64::decode(&text.0, MAX_ADAT_LINE) {
        Ok(token) => Step::Token(Secret(token)),
        Err(error) => line(501, &format!("ADAT: {error}.")),
    }
}

/// The reply to a token (RFC 2228 §5.4, with the codes of GCT practice for failures).
pub(super) fn finish_token(session: &mut Session, config: &ServerConfig, outcome: TokenOutcome) -> Step {
    match outcome {
        TokenOutcome::Continue(token) => line(335, &format!("ADAT={}", base64::encode(&token))),
        TokenOutcome::Established { token, peer } => {
            session.security = Security::over(Channel::Gssapi, Some(peer));
            match token {
                Some(token) => line(235, &format!("ADAT={}", base64::encode(&token))),
                None => line(235, "GSSAPI Authentication successful."),
            }
        }
        TokenOutcome::Refused { lines } => {
            session.security = Security::new(config);
            login::refused(session, config, "Authentication failed.", lines)
        }
    }
}

/// 530 where a password would travel in clear and must not; `None`: it may.
pub(super) fn no_clear_password(session: &Session, config: &ServerConfig) -> Option<Step> {
    let mechanisms = &config.mechanisms;
    if mechanisms.clear_text_passwords || session.security.is_protected() {
        return None;
    }
    let cure = match (mechanisms.tls, mechanisms.gssapi) {
        (true, true) => "send AUTH TLS or AUTH GSSAPI first",
        (true, false) => "send AUTH TLS first",
        (false, true) => "send AUTH GSSAPI first",
        (false, false) => "this server lets nobody in with one",
    };
    Some(line(530, &format!("Passwords are not taken over a connection in clear: {cure}.")))
}

/// PROT (RFC 2228 §3). S gets P, which is more than it asks for, except over TLS, where it does not exist (RFC 4217 §9).
fn protection(session: &mut Session, config: &ServerConfig, level: Protection) -> Step {
    let security = &mut session.security;
    let letter = letter(level);
    let wanted = match level {
        Protection::Clear if config.mechanisms.private_data => {
            return line(534, "Protection level C is not allowed here.");
        }
        Protection::Clear => Level::Clear,
        Protection::Private if security.can_protect_data(config) => Level::Private,
        Protection::Safe if security.channel != Channel::Tls && security.can_protect_data(config) => Level::Private,
        _ => return line(536, &format!("{letter} protection level not supported.")),
    };
    security.level = wanted;
    settled(session, Answer::line(200, format!("Protection level set to {letter}.")))
}

fn letter(level: Protection) -> char {
    match level {
        Protection::Clear => 'C',
        Protection::Safe => 'S',
        Protection::Confidential => 'E',
        Protection::Private => 'P',
    }
}

/// DCAU (GFD.20 §3.1).
fn authentication(session: &mut Session, dcau: Dcau) -> Step {
    let letter = match &dcau {
        Dcau::None => 'N',
        Dcau::Myself => 'A',
        Dcau::Subject(_) => 'S',
    };
    if dcau != Dcau::None && !session.security.authenticates_data() {
        return line(504, &format!("DCAU {letter} needs an authenticated login."));
    }
    if matches!(&dcau, Dcau::Subject(subject) if std::str::from_utf8(subject).is_err()) {
        return line(501, "The subject is not UTF-8.");
    }
    session.security.dcau = dcau;
    settled(session, Answer::line(200, format!("DCAU {letter}.")))
}

/// A new setting closes the data handle, which was made under another one (GCT practice). A connection in clear has none to change.
fn settled(session: &mut Session, answer: Answer) -> Step {
    let close = if session.security.is_protected() { data::drop_handle(session) } else { None };
    match close {
        Some(op) => Step::run(op, Task::Simple(answer)),
        None => Step::Answer(answer),
    }
}

/// DCSC (GCT practice): the data side judges the credential, and closes the handle.
fn credential(session: &mut Session, dcsc: Dcsc) -> Step {
    if !session.security.takes_credentials() {
        return line(504, "Data channel credentials need an authenticated login.");
    }
    let credential = match dcsc {
        Dcsc::Default => None,
        Dcsc::Pem(text) => match base64::decode(&text.0, text.0.len()) {
            Ok(pem) => Some(Secret(pem)),
            Err(_) => return line(501, "Invalid base64 input for credential type P."),
        },
    };
    session.data = DataHandle::None;
    let given = credential.is_some();
    Step::run(Op::DataCredential(credential), Task::Credential { given })
}

/// The reply to DCSC; a credential that was refused leaves none behind.
pub(super) fn finish_credential(session: &mut Session, given: bool, outcome: Outcome) -> Step {
    let accepted = !matches!(outcome, Outcome::Failed(_));
    let security = &mut session.security;
    security.credential = given && accepted;
    if !security.authenticates_data() {
        security.dcau = Dcau::None;
    }
    match outcome {
        Outcome::Failed(failure) => Step::Answer(failure::answer(&failure)),
        _ => line(250, "OK."),
    }
}

/// LANG (RFC 2640 §4): English is all there is.
pub(super) fn language(language: Option<&[u8]>) -> Step {
    let known = language.is_none_or(|tag| tag.len() >= 2 && tag[..2].eq_ignore_ascii_case(b"EN"));
    match known {
        true => line(200, "lang set to EN."),
        false => line(504, "This language is not available."),
    }
}
