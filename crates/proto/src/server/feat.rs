//! FEAT (RFC 2389 §3).

use super::answer::Answer;
use super::config::ServerConfig;
use super::session::Session;
use crate::fact;

/// Facts that MLSx can give, in the form of RFC 3659 §7.8: those with `*` are in the default set.
const FACTS: [(&str, bool); 15] = [
    ("Type", true),
    ("Size", true),
    ("Modify", true),
    ("Perm", true),
    ("Charset", false),
    ("UNIX.mode", true),
    ("UNIX.owner", true),
    ("UNIX.uid", true),
    ("UNIX.group", true),
    ("UNIX.gid", true),
    ("Unique", true),
    ("UNIX.slink", true),
    ("X.count", false),
    ("X.nanos", true),
    ("X.link", true),
];

/// Features that are always there: GridFTP's labels as the reference server writes them (and STORMODE: that STORATTR takes
/// a mode, our own), then those it implements without saying so, then what everyday clients look for.
const ALWAYS: [&str; 29] = [
    "STORATTR",
    "STORMODE",
    "MFMT",
    "WHOAMI",
    "MLSR",
    "MLSC",
    "UTF8",
    "LANG EN",
    "PARALLEL",
    "SIZE",
    "ERET",
    "ESTO",
    "SPAS",
    "SPOR",
    "REST STREAM",
    "MDTM",
    "PASV AllowDelayed;",
    "SBUF",
    "ABUF",
    "SCKS",
    "MLSD",
    "EPSV",
    "EPRT",
    "TVFS",
    "CLNT",
    "SITE CHMOD",
    "SITE UTIME",
    "SITE SYMLINK",
    "TREV",
];

/// The reply to FEAT; the CKSM line appears only after login, as on the reference server, and with it what needs one of
/// its algorithms.
pub(super) fn features(config: &ServerConfig, session: &Session) -> Answer {
    let logged_in = session.is_logged_in();
    let mut answer = Answer::listing(211, "Extensions supported", "End.");
    if logged_in && !config.checksums.is_empty() {
        let list = config.checksums.iter().map(|sum| format!("{}:{};", sum.name, sum.preference));
        answer.push(format!("CKSM {}", list.collect::<String>()));
        let names = config.checksums.iter().map(|sum| sum.name.as_str());
        let names: Vec<&str> = names.chain(config.leaf_checksums.iter().map(String::as_str)).collect();
        answer.push(format!("LEAVES {}", names.join(",")));
        answer.push("HOLES");
        answer.push("PACK");
        answer.push("VOUCH");
        if !config.read_only {
            answer.push("CHUNK NONE");
            answer.push("READBACK");
            answer.push("DURABLE");
            match &config.start {
                Some(start) => answer.push(format!("SYNC {start}")),
                None => answer.push("SYNC"),
            }
        }
    }
    if logged_in {
        announce_measuring(config, &mut answer);
    }
    answer.push(format!("MLST {}", fact_list(session.facts.as_deref())));
    ALWAYS.iter().for_each(|feature| answer.push(feature));
    if config.announce_get_put {
        answer.push("GETPUT");
    }
    if config.data_nonce {
        // A nonce is a secret only where the connection that carries it is protected.
        answer.push(if session.security.is_protected() { "DCNONCE TLS" } else { "DCNONCE" });
        answer.push("DCRELAY");
    }
    if config.reverse {
        answer.push("REVERSE");
    }
    if config.outbound {
        answer.push("OUTBOUND");
    }
    if config.relay && logged_in {
        answer.push("RELAY");
    }
    announce_security(config, session, &mut answer);
    config.extra_features.iter().for_each(|feature| answer.push(feature));
    answer
}

/// AUTH with its mechanisms, PBSZ and PROT (RFC 4217 §6), and what data connections of this login can prove, as the reference server says it.
fn announce_security(config: &ServerConfig, session: &Session, answer: &mut Answer) {
    let mechanisms = &config.mechanisms;
    let takes_credentials = session.security.takes_credentials();
    let features = [
        (mechanisms.tls, "AUTH TLS"),
        (mechanisms.gssapi, "AUTH GSSAPI"),
        (mechanisms.any(), "PBSZ"),
        (mechanisms.any(), "PROT"),
        (takes_credentials, "DCAU"),
        (takes_credentials, "DCSC P,D"),
    ];
    features.iter().filter(|(is, _)| *is).for_each(|(_, feature)| answer.push(feature));
}

/// PROBE with its bounds, CONGESTION with the names that may be chosen, PROCESSORS, SPENT, POLICY if there are rules.
fn announce_measuring(config: &ServerConfig, answer: &mut Answer) {
    if let Some(most) = config.probe {
        answer.push(format!("PROBE {}", fact::format_bounds(most)));
    }
    if !config.congestion.is_empty() {
        answer.push(format!("CONGESTION {}", config.congestion.join(",")));
    }
    if let Some(processors) = config.processors {
        answer.push(format!("PROCESSORS {processors:.2}"));
    }
    answer.push("SPENT");
    if !config.rules.is_empty() {
        answer.push("POLICY");
    }
}

/// `Type*;Size*;…`: every fact, a star behind those in force (RFC 3659 §7.8).
fn fact_list(chosen: Option<&[String]>) -> String {
    let in_force = |name: &str, default: bool| chosen.map_or(default, |chosen| chosen.iter().any(|fact| fact == name));
    FACTS.iter().map(|&(name, default)| format!("{name}{};", if in_force(name, default) { "*" } else { "" })).collect()
}

/// The known facts among those named, in our spelling; unknown ones are ignored (RFC 3659 §7.9).
pub(super) fn known_facts<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut known: Vec<String> = Vec::new();
    for name in names {
        if let Some((fact, _)) = FACTS.iter().find(|(fact, _)| fact.eq_ignore_ascii_case(name.trim()))
            && !known.iter().any(|k| k == fact)
        {
            known.push((*fact).to_owned());
        }
    }
    known
}
