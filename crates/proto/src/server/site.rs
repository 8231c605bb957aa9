//! SITE (RFC 959 §4.1.3): the words of GridFTP servers and of everyday clients.

use super::answer::Answer;
use super::config::ServerConfig;
use super::event::Label;
use super::session::Session;
use super::step::{Step, Task};
use super::{checksum, chunk, failure, files, help, options, policy, probe};
use crate::command::{BufferVerb, Secret, Site, octal_mode, quote_pairs};
use crate::op::Op;
use crate::relay::{Announcement, Part};
use crate::timeval::Timestamp;

/// One SITE command; all of GCT practice unless a handler says otherwise.
pub(super) fn site(session: &mut Session, config: &ServerConfig, site: Site) -> Step {
    match site {
        Site::Help(topic) => Step::Answer(help::site_help(topic.as_deref())),
        Site::WhoAmI => who_am_i(session),
        Site::Version => Step::Answer(Answer::line(200, &config.software)),
        Site::ClientInfo(pairs) => client_info(session, &pairs),
        Site::TaskId(id) => task_id(session, id),
        Site::Policy => policy::policy(session, config),
        Site::StorAttr(pairs) => attributes(session, config, &pairs),
        Site::BufferSize { verb, bytes } => buffer_size(session, verb, bytes),
        Site::Leaves(spec) => chunk::leaves(session, config, spec),
        Site::Chunk(command) => chunk::chunk(session, config, command),
        Site::ReadBack { disk } => chunk::read_back(session, config, disk),
        Site::Extents { leaf, path } => chunk::extents(session, leaf, &path),
        Site::Probe(command) => probe::site(session, config, command),
        Site::Congestion(name) => probe::congestion(session, config, name),
        Site::Spent(on) => probe::spent(session, on),
        Site::Durable(on) => durable(session, config, on),
        Site::DcNonce(secret) => nonce(session, config, &secret),
        Site::DcRelay(part) => relayed(session, config, part),
        Site::Relay(announcement) => relay(config, announcement),
        Site::SymlinkFrom(target) => {
            session.symlink_target = Some(target);
            Step::Answer(Answer::line(350, "OK. Send SITE SYMLINKTO with symlink name."))
        }
        Site::SymlinkTo(link) => match session.symlink_target.take() {
            Some(target) => files::change(config, Op::Symlink { target, link: session.resolve(&link) }),
            None => Step::Answer(Answer::line(503, "Send SITE SYMLINKFROM first.")),
        },
        Site::SetNetStack(stack) => stack_answer("network", &stack, &["default", "tcp"]),
        Site::SetDiskStack(stack) => stack_answer("file", &stack, &["default", "file"]),
        other => on_names(session, config, other),
    }
}

/// The words that change a file or directory, and those that do not exist.
fn on_names(session: &Session, config: &ServerConfig, site: Site) -> Step {
    let op = match site {
        Site::Chmod { mode, path } => Op::SetMode { path: session.resolve(&path), mode },
        Site::Chgrp { group, path } => match String::from_utf8(group) {
            Ok(group) => Op::SetGroup { path: session.resolve(&path), group },
            Err(_) => return Step::Answer(Answer::line(501, "A group is a name or a number.")),
        },
        Site::Symlink { target, link } => Op::Symlink { target, link: session.resolve(&link) },
        Site::Utime { modify, path } => {
            Op::SetModified { path: session.resolve(&path), seconds: modify.secs, nanoseconds: modify.nanos }
        }
        Site::Rdel(path) => Op::DeleteTree(session.resolve(&path)),
        Site::Sync(path) => Op::Sync(session.resolve(&path)),
        Site::Trnc { length, path } => Op::Truncate { path: session.resolve(&path), size: length },
        Site::Unknown { verb, .. } => return Step::Answer(not_there(500, &verb)),
        other => return Step::Answer(not_there(502, word(&other))),
    };
    files::change(config, op)
}

/// Known words of the reference server that this one does without.
fn word(site: &Site) -> &'static [u8] {
    match site {
        Site::Dsi(_) => b"DSI",
        Site::Upas(_) => b"UPAS",
        Site::Uprt(_) => b"UPRT",
        Site::Http(_) => b"HTTP",
        Site::Sharing(_) => b"SHARING",
        Site::Restrict(_) => b"RESTRICT",
        Site::Chroot(_) => b"CHROOT",
        Site::AuthzAssert(_) => b"AUTHZ_ASSERT",
        Site::Fault(_) => b"FAULT",
        _ => b"command",
    }
}

fn not_there(code: u16, word: &[u8]) -> Answer {
    Answer::line(code, [b"SITE ", word, b" is not implemented."].concat())
}

fn ok() -> Answer {
    Answer::line(250, "OK.")
}

/// WHOAMI, SITE WHOAMI: the local user.
pub(super) fn who_am_i(session: &Session) -> Step {
    let user = session.account().map_or("", |account| account.user.as_str());
    Step::Answer(Answer::line(200, user))
}

/// Longest text that a client gives for logs, bytes: it is kept for the whole session, and told to each data node.
const MAX_LABEL: usize = 1024;

fn too_long(what: &str) -> Step {
    Step::Answer(Answer::line(501, format!("{what} has {MAX_LABEL} bytes at most.")))
}

/// SITE TASKID (GCT practice): what the client calls its task.
fn task_id(session: &mut Session, id: Vec<u8>) -> Step {
    if id.len() > MAX_LABEL {
        return too_long("A task id");
    }
    session.label = Some(id.clone());
    Step::Label(Label::TaskId(id), ok())
}

/// A client that names itself so is a GridFTP client, and those do not speak Telnet.
fn client_info(session: &mut Session, pairs: &[(String, Vec<u8>)]) -> Step {
    session.telnet = false;
    let info = quote_pairs(pairs);
    if info.len() > MAX_LABEL {
        return too_long("Client information");
    }
    Step::Label(Label::ClientInfo(info), ok())
}

fn buffer_size(session: &mut Session, verb: BufferVerb, bytes: u64) -> Step {
    options::buffer(session, verb.side(), bytes, "Site Command Successful.")
}

/// SITE DCNONCE (our own): what data connections of the next handle present, 16 bytes.
fn nonce(session: &mut Session, config: &ServerConfig, secret: &Secret) -> Step {
    match <[u8; 16]>::try_from(secret.0.as_slice()) {
        Ok(nonce) if config.data_nonce => {
            session.params.nonce = Some(nonce);
            Step::Answer(ok())
        }
        Ok(_) => Step::Answer(not_there(502, b"DCNONCE")),
        Err(_) => Step::Answer(Answer::line(501, "DCNONCE is 32 hexadecimal digits.")),
    }
}

/// SITE DCRELAY (our own): the next PORT names a relay, and this end takes this part in TLS with the other one.
fn relayed(session: &mut Session, config: &ServerConfig, part: Part) -> Step {
    if !config.data_nonce {
        return Step::Answer(not_there(502, b"DCRELAY"));
    }
    session.params.relay = Some(part);
    Step::Answer(ok())
}

/// SITE RELAY (our own): connections of two others that say this token are joined here.
fn relay(config: &ServerConfig, announcement: Announcement) -> Step {
    match config.relay {
        true => Step::run(Op::Relay(announcement), Task::Relay),
        false => Step::Answer(Answer::line(502, "This server is no relay.")),
    }
}

/// SITE STORATTR: attributes of the next received file; all are checked before any is kept, unknown ones are ignored.
fn attributes(session: &mut Session, config: &ServerConfig, pairs: &[(String, Vec<u8>)]) -> Step {
    let (mut modified, mut mode, mut checksum, mut strict) = (None, None, None, false);
    for (key, value) in pairs {
        let key = key.to_ascii_lowercase();
        if key == "modify" {
            match Timestamp::parse(value) {
                Ok(time) => modified = Some((time.secs, time.nanos)),
                Err(_) => return Step::Answer(Answer::line(501, "modify is YYYYMMDDHHMMSS.")),
            }
        } else if key == "unix.mode" {
            match octal_mode(value) {
                Some(bits) => mode = Some(bits),
                None => return Step::Answer(Answer::line(501, "UNIX.mode is octal, 7777 at most.")),
            }
        } else if key == "restart" && value == b"strict" {
            strict = true;
        } else if let Some(algorithm) = key.strip_prefix("checksum.") {
            match checksum::expect(config, algorithm, &String::from_utf8_lossy(value)) {
                Ok(expected) => checksum = Some(expected),
                Err(refusal) => return Step::Answer(refusal),
            }
        }
    }
    session.once.modified = modified.or(session.once.modified);
    session.once.mode = mode.or(session.once.mode);
    session.once.strict |= strict;
    session.once.checksum = checksum.or_else(|| session.once.checksum.take());
    Step::Answer(ok())
}

/// SITE DURABLE (our own): whether what is stored survives a crash before it is answered, from now on.
fn durable(session: &mut Session, config: &ServerConfig, on: bool) -> Step {
    if config.read_only {
        return Step::Answer(failure::read_only());
    }
    session.durable = on;
    Step::Answer(Answer::line(200, "OK."))
}

/// SITE SETNETSTACK, SITE SETDISKSTACK: only the stack that is there anyway.
fn stack_answer(kind: &str, stack: &[u8], known: &[&str]) -> Step {
    let plain = stack.trim_ascii().to_ascii_lowercase();
    if known.iter().any(|name| name.as_bytes() == plain) {
        return Step::Answer(ok());
    }
    let text = [format!("This {kind} driver stack is not available: ").as_bytes(), stack].concat();
    Step::Answer(Answer::line(504, text))
}
