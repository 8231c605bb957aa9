//! Command lines to [`Command`] values.

use super::args::{
    CommandError, ascii, first_word, optional, optional_path, path, splitn, syntax, time, unsigned, word,
};
use super::{
    Command, Dcau, Dcsc, Epsv, Eret, Esto, ListArgs, Protection, Restart, Secret, TransferMode, TransferType,
    TrevEvent, WirePath, chunk, opts, probe, site, v2,
};
use crate::hostport::{self, AddressError};
use crate::op::PackedFile;
use crate::pack;
use crate::ranges;

fn address(verb: &'static str, error: AddressError) -> CommandError {
    match error {
        AddressError::Protocol => CommandError::NetworkProtocol { verb },
        _ => syntax(verb, "the address is malformed"),
    }
}

pub(super) fn parse(line: &[u8]) -> Result<Command, CommandError> {
    let (verb, rest) = first_word(line);
    let upper = verb.to_ascii_uppercase();
    simple(&upper, rest)
        .or_else(|| path_command(&upper, rest))
        .or_else(|| data_command(&upper, rest))
        .or_else(|| transfer_command(&upper, rest))
        .or_else(|| security_command(&upper, rest))
        .unwrap_or_else(|| Err(unknown(verb)))
}

/// The reference server answers 501 to a verb that is too long or not of letters, 500 to an unknown short one; here both are 500,
/// as RFC 959 §4.2.1 has "500 Syntax error, command unrecognized. This may include errors such as command line too long."
fn unknown(verb: &[u8]) -> CommandError {
    CommandError::UnknownVerb { verb: verb[..verb.len().min(32)].to_vec() }
}

type Parsed = Option<Result<Command, CommandError>>;

/// Commands without arguments, and those whose argument is free text.
fn simple(verb: &[u8], rest: Option<&[u8]>) -> Parsed {
    let text = || rest.unwrap_or(b"").to_vec();
    Some(Ok(match verb {
        b"USER" => return Some(word("USER", rest).map(Command::User)),
        b"PASS" => Command::Pass(Secret(text())),
        b"ACCT" => Command::Acct(Secret(text())),
        b"REIN" => Command::Rein,
        b"QUIT" => Command::Quit,
        b"FEAT" => Command::Feat,
        b"HELP" => Command::Help(optional(rest.map(<[u8]>::trim_ascii))),
        b"NOOP" => Command::Noop,
        b"SYST" => Command::Syst,
        b"PWD" | b"XPWD" => Command::Pwd,
        b"CDUP" | b"XCUP" => Command::Cdup,
        b"PASV" => Command::Pasv,
        b"ABOR" => Command::Abor,
        b"ABUF" => Command::Abuf(text()),
        b"LANG" => Command::Lang(optional(rest.map(<[u8]>::trim_ascii))),
        b"CCC" => Command::Ccc,
        b"SITE" => return Some(site::parse(rest.unwrap_or(b"").trim_ascii_start()).map(Command::Site)),
        b"OPTS" => return Some(opts::parse(rest.unwrap_or(b"")).map(Command::Opts)),
        b"SMNT" => return Some(Err(CommandError::VerbNotImplemented { verb: "SMNT" })),
        _ => return None,
    }))
}

/// Commands about one name.
fn path_command(verb: &[u8], rest: Option<&[u8]>) -> Parsed {
    let needed = |verb, make: fn(WirePath) -> Command| Some(path(verb, rest).map(make));
    let may = |verb, make: fn(Option<WirePath>) -> Command| Some(optional_path(verb, rest).map(make));
    match verb {
        b"CWD" | b"XCWD" => needed("CWD", Command::Cwd),
        b"MKD" | b"XMKD" => needed("MKD", Command::Mkd),
        b"RMD" | b"XRMD" => needed("RMD", Command::Rmd),
        b"DELE" => needed("DELE", Command::Dele),
        b"RNFR" => needed("RNFR", Command::Rnfr),
        b"RNTO" => needed("RNTO", Command::Rnto),
        b"SIZE" => needed("SIZE", Command::Size),
        b"MDTM" => needed("MDTM", Command::Mdtm),
        b"RETR" => needed("RETR", Command::Retr),
        b"STOR" => needed("STOR", Command::Stor),
        b"APPE" => needed("APPE", Command::Appe),
        b"STOU" => may("STOU", Command::Stou),
        b"STAT" => may("STAT", Command::Stat),
        b"MLST" => may("MLST", Command::Mlst),
        b"MLSD" => may("MLSD", Command::Mlsd),
        b"MLSC" => may("MLSC", Command::Mlsc),
        b"MLSR" => may("MLSR", Command::Mlsr),
        b"LIST" => Some(list_args("LIST", rest).map(Command::List)),
        b"NLST" => Some(list_args("NLST", rest).map(Command::Nlst)),
        b"MFMT" => Some(mfmt(rest)),
        _ => None,
    }
}

fn mfmt(rest: Option<&[u8]>) -> Result<Command, CommandError> {
    let [when, name] = splitn("MFMT", rest)?;
    Ok(Command::Mfmt { time: time("MFMT", when)?, path: path("MFMT", Some(name))? })
}

/// Words that start with `-` and a letter are flags, as everyday clients send `LIST -la dir`; `--` ends them.
fn list_args(verb: &'static str, rest: Option<&[u8]>) -> Result<ListArgs, CommandError> {
    let mut args = ListArgs::default();
    let mut rest = rest;
    while let Some(text) = rest {
        let (word, after) = first_word(text);
        match word {
            b"--" => {
                rest = after;
                break;
            }
            [b'-', letters @ ..] if !letters.is_empty() && letters.iter().all(u8::is_ascii_alphanumeric) => {
                args.flags.extend_from_slice(letters);
                rest = after;
            }
            b"" if after.is_some() && !args.flags.is_empty() => rest = after,
            _ => break,
        }
    }
    args.path = optional_path(verb, rest)?;
    Ok(args)
}

/// Commands that prepare data connections.
fn data_command(verb: &[u8], rest: Option<&[u8]>) -> Parsed {
    let trimmed = rest.unwrap_or(b"").trim_ascii();
    Some(match verb {
        b"TYPE" => transfer_type(trimmed).map(Command::Type),
        b"MODE" => mode(trimmed).map(Command::Mode),
        b"STRU" => structure(trimmed),
        b"EPSV" => epsv(trimmed).map(Command::Epsv),
        b"PORT" => hostport::parse_port(trimmed).map(Command::Port).map_err(|e| address("PORT", e)),
        b"EPRT" => hostport::parse_eprt(trimmed).map(Command::Eprt).map_err(|e| address("EPRT", e)),
        b"SPAS" if trimmed.is_empty() => Ok(Command::Spas(None)),
        b"SPAS" => hostport::parse_family(trimmed).map(|f| Command::Spas(Some(f))).map_err(|e| address("SPAS", e)),
        b"SPOR" => hostport::parse_spor(trimmed).map(Command::Spor).map_err(|e| address("SPOR", e)),
        b"SBUF" => unsigned("SBUF", trimmed).map(Command::Sbuf),
        b"TREV" => trev(rest),
        _ => return None,
    })
}

/// RFC 959 §5.3.2 `<type-code>`; of the forms only N(on-print) exists here.
fn transfer_type(text: &[u8]) -> Result<TransferType, CommandError> {
    let upper = text.to_ascii_uppercase();
    match upper.as_slice() {
        b"A" | b"A N" => Ok(TransferType::Ascii),
        b"I" | b"L 8" | b"L8" => Ok(TransferType::Image),
        [b'A' | b'E', ..] | [b'L', b' ', b'0'..=b'9', ..] if matches!(upper.len(), 1 | 3) => {
            Err(not_implemented("TYPE", text))
        }
        _ => Err(syntax("TYPE", "the type is A or I")),
    }
}

fn not_implemented(verb: &'static str, text: &[u8]) -> CommandError {
    CommandError::NotImplemented { verb, what: String::from_utf8_lossy(text).into_owned() }
}

fn mode(text: &[u8]) -> Result<TransferMode, CommandError> {
    match text.to_ascii_uppercase().as_slice() {
        b"S" => Ok(TransferMode::Stream),
        b"E" => Ok(TransferMode::ExtendedBlock),
        b"B" | b"C" | b"Z" | b"X" => Err(not_implemented("MODE", text)),
        _ => Err(syntax("MODE", "the mode is S or E")),
    }
}

fn structure(text: &[u8]) -> Result<Command, CommandError> {
    match text.to_ascii_uppercase().as_slice() {
        b"F" => Ok(Command::StruFile),
        b"R" | b"P" => Err(not_implemented("STRU", text)),
        _ => Err(syntax("STRU", "the structure is F")),
    }
}

fn epsv(text: &[u8]) -> Result<Epsv, CommandError> {
    match text {
        b"" => Ok(Epsv::Default),
        _ if text.eq_ignore_ascii_case(b"ALL") => Ok(Epsv::All),
        _ => hostport::parse_family(text).map(Epsv::Family).map_err(|e| address("EPSV", e)),
    }
}

fn trev(rest: Option<&[u8]>) -> Result<Command, CommandError> {
    let [event, seconds] = splitn("TREV", rest)?;
    let event = match event.to_ascii_uppercase().as_slice() {
        b"PERF" => TrevEvent::Perf,
        b"RESTART" => TrevEvent::Restart,
        _ => return Err(not_implemented("TREV", event)),
    };
    let seconds = unsigned("TREV", seconds.trim_ascii())?;
    let seconds = u32::try_from(seconds).map_err(|_| syntax("TREV", "the interval is too large"))?;
    Ok(Command::Trev { event, seconds })
}

/// Commands that move or check data.
fn transfer_command(verb: &[u8], rest: Option<&[u8]>) -> Parsed {
    Some(match verb {
        b"ERET" => eret(rest).map(Command::Eret),
        b"ESTO" => esto(rest).map(Command::Esto),
        b"REST" => restart(rest).map(Command::Rest),
        b"ALLO" => allo(rest),
        b"CKSM" => cksm(rest),
        b"SCKS" => scks(rest),
        b"GET" => v2::parse("GET", rest.unwrap_or(b"")).map(Command::Get),
        b"PUT" => v2::parse("PUT", rest.unwrap_or(b"")).map(Command::Put),
        _ => return None,
    })
}

fn eret(rest: Option<&[u8]>) -> Result<Eret, CommandError> {
    let [function, args] = splitn("ERET", rest)?;
    if function.eq_ignore_ascii_case(b"P") {
        let [offset, length, name] = splitn("ERET", Some(args))?;
        let (offset, length) = (unsigned("ERET", offset)?, unsigned("ERET", length)?);
        return Ok(Eret::Partial { offset, length, path: path("ERET", Some(name))? });
    }
    if function.eq_ignore_ascii_case(b"M") || function.eq_ignore_ascii_case(b"D") {
        return probe::eret(function.eq_ignore_ascii_case(b"D"), args);
    }
    if function.eq_ignore_ascii_case(b"PACK") {
        return pack("ERET", args).map(Eret::Pack);
    }
    let (name, args, path) = module("ERET", rest)?;
    Ok(Eret::Module { name, args, path })
}

fn esto(rest: Option<&[u8]>) -> Result<Esto, CommandError> {
    let [function, args] = splitn("ESTO", rest)?;
    if function.eq_ignore_ascii_case(b"A") {
        let [offset, name] = splitn("ESTO", Some(args))?;
        return Ok(Esto::Adjusted { offset: unsigned("ESTO", offset)?, path: path("ESTO", Some(name))? });
    }
    if function.eq_ignore_ascii_case(b"C") {
        return chunk::esto(args);
    }
    if function.eq_ignore_ascii_case(b"M") || function.eq_ignore_ascii_case(b"D") {
        return probe::esto(function.eq_ignore_ascii_case(b"D"), args);
    }
    if function.eq_ignore_ascii_case(b"PACK") {
        return pack("ESTO", args).map(Esto::Pack);
    }
    let (name, args, path) = module("ESTO", rest)?;
    Ok(Esto::Module { name, args, path })
}

/// `size,modify,mode,path ...`.
fn pack(verb: &'static str, args: &[u8]) -> Result<Vec<PackedFile>, CommandError> {
    pack::parse_list(args).map_err(|error| syntax(verb, error.reason()))
}

/// `name="args" path`.
fn module(verb: &'static str, rest: Option<&[u8]>) -> Result<(Vec<u8>, Vec<u8>, WirePath), CommandError> {
    let bad = || syntax(verb, "the function is unknown or not name=\"args\" path");
    let text = rest.unwrap_or(b"").trim_ascii_start();
    let equals = text.iter().position(|&b| b == b'=').filter(|&at| at > 0).ok_or_else(bad)?;
    let name = &text[..equals];
    if !name.iter().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(b)) {
        return Err(bad());
    }
    let quoted = text[equals + 1..].strip_prefix(b"\"").ok_or_else(bad)?;
    let close = quoted.iter().position(|&b| b == b'"').ok_or_else(bad)?;
    let after = quoted[close + 1..].strip_prefix(b" ").ok_or_else(bad)?;
    Ok((name.to_vec(), quoted[..close].to_vec(), path(verb, Some(after))?))
}

fn restart(rest: Option<&[u8]>) -> Result<Restart, CommandError> {
    let text = word("REST", rest)?;
    if text.contains(&b'-') || text.contains(&b',') {
        return ranges::parse(&text).map(Restart::Ranges).map_err(|_| syntax("REST", "ranges are a-b,c-d"));
    }
    unsigned("REST", &text).map(Restart::Offset)
}

/// `n [R m]` (RFC 959 §5.3.1).
fn allo(rest: Option<&[u8]>) -> Result<Command, CommandError> {
    let text = word("ALLO", rest)?;
    let words: Vec<&[u8]> = text.split(|&b| b == b' ').filter(|w| !w.is_empty()).collect();
    match words[..] {
        [size] => Ok(Command::Allo { size: unsigned("ALLO", size)?, record: None }),
        [size, b"R" | b"r", record] => {
            Ok(Command::Allo { size: unsigned("ALLO", size)?, record: Some(unsigned("ALLO", record)?) })
        }
        _ => Err(syntax("ALLO", "the form is n [R m]")),
    }
}

fn cksm(rest: Option<&[u8]>) -> Result<Command, CommandError> {
    let [algorithm, offset, length, name] = splitn("CKSM", rest)?;
    let length = if length == b"-1" { None } else { Some(unsigned("CKSM", length)?) };
    Ok(Command::Cksm {
        algorithm: ascii("CKSM", algorithm)?,
        offset: unsigned("CKSM", offset)?,
        length,
        path: path("CKSM", Some(name))?,
    })
}

fn scks(rest: Option<&[u8]>) -> Result<Command, CommandError> {
    let [algorithm, checksum] = splitn("SCKS", rest)?;
    let checksum = word("SCKS", Some(checksum))?;
    Ok(Command::Scks { algorithm: ascii("SCKS", algorithm)?, checksum: ascii("SCKS", &checksum)? })
}

/// Commands of RFC 2228 and the GridFTP data-channel security.
fn security_command(verb: &[u8], rest: Option<&[u8]>) -> Parsed {
    let trimmed = rest.unwrap_or(b"").trim_ascii();
    Some(match verb {
        b"AUTH" => word("AUTH", rest).map(Command::Auth),
        b"ADAT" => word("ADAT", rest).map(|text| Command::Adat(Secret(text))),
        b"PBSZ" => unsigned("PBSZ", trimmed).and_then(|n| match u32::try_from(n) {
            // RFC 2228 §3: the argument is "a decimal integer representing the maximum size ... a 32-bit unsigned integer".
            Ok(_) => Ok(Command::Pbsz(n)),
            Err(_) => Err(syntax("PBSZ", "the size does not fit 32 bits")),
        }),
        b"PROT" => protection(trimmed).map(Command::Prot),
        b"DCAU" => dcau(trimmed).map(Command::Dcau),
        b"DCSC" => dcsc(trimmed).map(Command::Dcsc),
        _ => return None,
    })
}

fn protection(text: &[u8]) -> Result<Protection, CommandError> {
    match text.to_ascii_uppercase().as_slice() {
        b"C" => Ok(Protection::Clear),
        b"S" => Ok(Protection::Safe),
        b"P" => Ok(Protection::Private),
        b"E" => Ok(Protection::Confidential),
        [letter] if letter.is_ascii_graphic() => Err(CommandError::Protection { level: char::from(*letter) }),
        _ => Err(syntax("PROT", "the level is C, S, E or P")),
    }
}

fn dcau(text: &[u8]) -> Result<Dcau, CommandError> {
    let (mode, subject) = first_word(text);
    match (mode.to_ascii_uppercase().as_slice(), subject) {
        (b"N", None) => Ok(Dcau::None),
        (b"A", None) => Ok(Dcau::Myself),
        (b"S", Some(subject)) => Ok(Dcau::Subject(subject.trim_ascii().to_vec())),
        (b"S", None) => Err(syntax("DCAU", "DCAU S expects a subject")),
        ([_], _) | ([], _) => Err(syntax("DCAU", "the mode is N, A or S subject")),
        _ => Err(not_implemented("DCAU", mode)),
    }
}

fn dcsc(text: &[u8]) -> Result<Dcsc, CommandError> {
    let (kind, blob) = first_word(text);
    match (kind.to_ascii_uppercase().as_slice(), blob) {
        (b"D", None) => Ok(Dcsc::Default),
        (b"P", Some(blob)) => Ok(Dcsc::Pem(Secret(blob.trim_ascii().to_vec()))),
        ([b'D' | b'P'], _) => Err(syntax("DCSC", "the form is P blob or D")),
        ([_], _) => Err(not_implemented("DCSC", kind)),
        _ => Err(syntax("DCSC", "the form is P blob or D")),
    }
}
