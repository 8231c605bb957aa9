//! [`Command`] values to command lines.

use std::net::SocketAddr;

use super::{
    Command, Dcau, Dcsc, Epsv, Eret, Esto, ListArgs, Protection, Restart, TransferMode, TransferType, TrevEvent,
    V2Data, V2Transfer, chunk, opts, probe, site,
};
use crate::op::PackedFile;
use crate::{hostport, pack, ranges};

/// Why a command cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// CR, LF or NUL in an argument: it would end the line early or cut a name, so that another file is meant.
    #[error("an argument contains CR, LF or NUL, which cannot be sent on the control connection")]
    LineBreak,
    /// A character that this position cannot carry, as `;` in a version 2 path, or an empty argument.
    #[error("an argument cannot be expressed in this command")]
    Inexpressible,
}

pub(super) fn encode(command: &Command, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let line = line(command)?;
    if line.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)) {
        return Err(EncodeError::LineBreak);
    }
    out.reserve(line.len() + 2);
    out.extend_from_slice(&line);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

fn with(verb: &str, args: &[u8]) -> Vec<u8> {
    [verb.as_bytes(), b" ", args].concat()
}

/// A verb with an optional argument.
fn may(verb: &str, arg: Option<&[u8]>) -> Vec<u8> {
    arg.map_or_else(|| verb.as_bytes().to_vec(), |arg| with(verb, arg))
}

/// A verb, or whatever comes before the last argument, with an argument that must not be empty.
pub(super) fn must(verb: &str, arg: &[u8]) -> Result<Vec<u8>, EncodeError> {
    if arg.is_empty() { Err(EncodeError::Inexpressible) } else { Ok(with(verb, arg)) }
}

fn line(command: &Command) -> Result<Vec<u8>, EncodeError> {
    if let Some((verb, path)) = path_of(command) {
        return must(verb, path);
    }
    if let Some(line) = fixed(command) {
        return Ok(line.as_bytes().to_vec());
    }
    match command {
        Command::User(name) => must("USER", name),
        Command::Pass(secret) => Ok(with("PASS", &secret.0)),
        Command::Acct(secret) => Ok(with("ACCT", &secret.0)),
        Command::Adat(secret) => must("ADAT", &secret.0),
        Command::Auth(kind) => must("AUTH", kind),
        Command::Abuf(args) => Ok(with("ABUF", args)),
        Command::Opts(opts) => Ok(with("OPTS", &opts::format(opts))),
        Command::Site(site) => site::format(site).map(|text| with("SITE", &text)),
        Command::Raw(line) => Ok(line.clone()),
        Command::Get(get) => v2("GET", get),
        Command::Put(put) => v2("PUT", put),
        Command::List(args) => Ok(list("LIST", args)),
        Command::Nlst(args) => Ok(list("NLST", args)),
        Command::Eret(eret) => encode_eret(eret),
        Command::Esto(esto) => encode_esto(esto),
        Command::Mfmt { time, path } => must(&format!("MFMT {time}"), path),
        Command::Cksm { algorithm, offset, length, path } => {
            let length = length.map_or_else(|| "-1".to_owned(), |n| n.to_string());
            must(&format!("CKSM {algorithm} {offset} {length}"), path)
        }
        Command::Dcau(Dcau::Subject(subject)) => must("DCAU S", subject),
        Command::Dcsc(Dcsc::Pem(blob)) => must("DCSC P", &blob.0),
        other => numeric(other).map(String::into_bytes).ok_or(EncodeError::Inexpressible),
    }
}

/// Commands that are a verb and one name.
fn path_of(command: &Command) -> Option<(&'static str, &[u8])> {
    Some(match command {
        Command::Cwd(p) => ("CWD", p),
        Command::Mkd(p) => ("MKD", p),
        Command::Rmd(p) => ("RMD", p),
        Command::Dele(p) => ("DELE", p),
        Command::Rnfr(p) => ("RNFR", p),
        Command::Rnto(p) => ("RNTO", p),
        Command::Size(p) => ("SIZE", p),
        Command::Mdtm(p) => ("MDTM", p),
        Command::Retr(p) => ("RETR", p),
        Command::Stor(p) => ("STOR", p),
        Command::Appe(p) => ("APPE", p),
        Command::Stat(Some(p)) => ("STAT", p),
        Command::Stou(Some(p)) => ("STOU", p),
        Command::Mlst(Some(p)) => ("MLST", p),
        Command::Mlsd(Some(p)) => ("MLSD", p),
        Command::Mlsc(Some(p)) => ("MLSC", p),
        Command::Mlsr(Some(p)) => ("MLSR", p),
        Command::Help(Some(p)) => ("HELP", p),
        Command::Lang(Some(p)) => ("LANG", p),
        _ => return None,
    })
}

/// Commands whose line never changes.
fn fixed(command: &Command) -> Option<&'static str> {
    Some(match command {
        Command::Rein => "REIN",
        Command::Quit => "QUIT",
        Command::Feat => "FEAT",
        Command::Help(None) => "HELP",
        Command::Noop => "NOOP",
        Command::Syst => "SYST",
        Command::Stat(None) => "STAT",
        Command::Pwd => "PWD",
        Command::Cdup => "CDUP",
        Command::Type(TransferType::Ascii) => "TYPE A",
        Command::Type(TransferType::Image) => "TYPE I",
        Command::Mode(TransferMode::Stream) => "MODE S",
        Command::Mode(TransferMode::ExtendedBlock) => "MODE E",
        Command::StruFile => "STRU F",
        Command::Pasv => "PASV",
        Command::Epsv(Epsv::Default) => "EPSV",
        Command::Epsv(Epsv::All) => "EPSV ALL",
        Command::Spas(None) => "SPAS",
        Command::Stou(None) => "STOU",
        Command::Abor => "ABOR",
        Command::Mlst(None) => "MLST",
        Command::Mlsd(None) => "MLSD",
        Command::Mlsc(None) => "MLSC",
        Command::Mlsr(None) => "MLSR",
        Command::Lang(None) => "LANG",
        Command::Ccc => "CCC",
        Command::Prot(Protection::Clear) => "PROT C",
        Command::Prot(Protection::Safe) => "PROT S",
        Command::Prot(Protection::Confidential) => "PROT E",
        Command::Prot(Protection::Private) => "PROT P",
        Command::Dcau(Dcau::None) => "DCAU N",
        Command::Dcau(Dcau::Myself) => "DCAU A",
        Command::Dcsc(Dcsc::Default) => "DCSC D",
        _ => return None,
    })
}

/// Commands made of numbers, addresses and words.
fn numeric(command: &Command) -> Option<String> {
    Some(match command {
        Command::Epsv(Epsv::Family(family)) => format!("EPSV {}", hostport::family_number(*family)),
        Command::Spas(Some(family)) => format!("SPAS {}", hostport::family_number(*family)),
        Command::Port(address) => port(*address),
        Command::Eprt(address) => format!("EPRT {}", hostport::format_eprt(*address)),
        Command::Spor(addresses) => {
            let items: Vec<_> = addresses.iter().map(|&a| hostport::format_either(a, false)).collect();
            format!("SPOR {}", items.join(" "))
        }
        Command::Rest(Restart::Offset(n)) => format!("REST {n}"),
        Command::Rest(Restart::Ranges(list)) => format!("REST {}", ranges::format(list)),
        Command::Allo { size, record: None } => format!("ALLO {size}"),
        Command::Allo { size, record: Some(record) } => format!("ALLO {size} R {record}"),
        Command::Sbuf(n) => format!("SBUF {n}"),
        Command::Pbsz(n) => format!("PBSZ {n}"),
        Command::Trev { event: TrevEvent::Perf, seconds } => format!("TREV PERF {seconds}"),
        Command::Trev { event: TrevEvent::Restart, seconds } => format!("TREV RESTART {seconds}"),
        Command::Scks { algorithm, checksum } => format!("SCKS {algorithm} {checksum}"),
        _ => return None,
    })
}

/// PORT cannot carry IPv6; such an address goes out as EPRT, which means the same.
fn port(address: SocketAddr) -> String {
    match hostport::format_port(address) {
        Some(text) => format!("PORT {text}"),
        None => format!("EPRT {}", hostport::format_eprt(address)),
    }
}

fn list(verb: &str, args: &ListArgs) -> Vec<u8> {
    let mut line = verb.as_bytes().to_vec();
    if !args.flags.is_empty() {
        line.extend_from_slice(&[b" -", args.flags.as_slice()].concat());
    }
    // A name that reads as a flag, or whose spaces would be skipped behind flags, is reached through its directory.
    let path = args.path.as_deref().map(|path| match path.first() {
        Some(b'-' | b' ') => [b"./", path].concat(),
        _ => path.to_vec(),
    });
    may(&String::from_utf8_lossy(&line), path.as_deref())
}

fn v2(verb: &str, transfer: &V2Transfer) -> Result<Vec<u8>, EncodeError> {
    if transfer.path.is_empty() || transfer.path.contains(&b';') {
        return Err(EncodeError::Inexpressible);
    }
    let mode = match transfer.mode {
        Some(TransferMode::Stream) => "mode=S;",
        Some(TransferMode::ExtendedBlock) => "mode=E;",
        None => "",
    };
    let data = match &transfer.data {
        V2Data::Passive => "pasv;".to_owned(),
        V2Data::Port(address) => format!("port={};", hostport::format_either(*address, false)),
        V2Data::Cached => String::new(),
    };
    Ok([with(verb, b"path="), transfer.path.clone(), b";".to_vec(), data.into_bytes(), mode.into()].concat())
}

fn encode_eret(eret: &Eret) -> Result<Vec<u8>, EncodeError> {
    match eret {
        Eret::Partial { offset, length, path } => must(&format!("ERET P {offset} {length}"), path),
        Eret::Probe { storage, bounds, path } => {
            probe::format_data(*storage, *bounds, path).map(|args| with("ERET", &args))
        }
        Eret::Pack(files) => packed("ERET", files),
        Eret::Module { name, args, path } => module("ERET", name, args, path),
    }
}

fn encode_esto(esto: &Esto) -> Result<Vec<u8>, EncodeError> {
    match esto {
        Esto::Adjusted { offset, path } => must(&format!("ESTO A {offset}"), path),
        Esto::Chunk { session, offset, path } => {
            chunk::format_esto(session, *offset, path).map(|args| with("ESTO", &args))
        }
        Esto::Probe { storage, bounds, path } => {
            probe::format_data(*storage, *bounds, path).map(|args| with("ESTO", &args))
        }
        Esto::Pack(files) => packed("ESTO", files),
        Esto::Module { name, args, path } => module("ESTO", name, args, path),
    }
}

fn packed(verb: &str, files: &[PackedFile]) -> Result<Vec<u8>, EncodeError> {
    pack::check_list(files).map_err(|_| EncodeError::Inexpressible)?;
    Ok([verb.as_bytes(), b" PACK ", &pack::format_list(files)].concat())
}

fn module(verb: &str, name: &[u8], args: &[u8], path: &[u8]) -> Result<Vec<u8>, EncodeError> {
    if name.is_empty() || path.is_empty() || args.contains(&b'"') {
        return Err(EncodeError::Inexpressible);
    }
    Ok([verb.as_bytes(), b" ", name, b"=\"", args, b"\" ", path].concat())
}
