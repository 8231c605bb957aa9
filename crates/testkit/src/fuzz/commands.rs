//! Command lines.

use whimbrel_proto::command::{Chunk, Command, CommandError, EncodeError, Opts, Site, WirePath};
use whimbrel_proto::line::{LineError, LineSplitter};

use super::input::pieces;

/// Lines to commands: what was read and can be written is read again as the same, and errors have a code of RFC 959.
pub fn command(data: &[u8]) {
    for line in data.split(|&b| b == b'\n') {
        match Command::parse(line) {
            Ok(command) => check_command(&command),
            Err(error) => check_error(&error),
        }
    }
}

fn check_error(error: &CommandError) {
    assert!(matches!(error.code(), 500 | 501 | 502 | 504 | 522 | 536));
    assert!(!error.to_string().is_empty());
    if let CommandError::UnknownVerb { verb } = error {
        assert!(verb.len() <= 32);
    }
}

fn check_command(command: &Command) {
    assert!(!format!("{command:?}").is_empty());
    if let Some(path) = path_of(command) {
        assert!(!path.is_empty() && !path.contains(&0), "no path is empty or contains NUL: {command:?}");
    }
    let mut out = b"before".to_vec();
    match command.encode(&mut out) {
        Ok(()) => {
            let written = out.strip_prefix(b"before").expect("encoding appends");
            let line = written.strip_suffix(b"\r\n").expect("a command ends with CRLF");
            assert!(!line.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)), "one command is one line");
            let again = Command::parse(line).expect("what was written is read");
            assert_eq!(expected(again), expected(command.clone()));
        }
        Err(error) => {
            assert_eq!(out, b"before", "a refused command writes nothing");
            // What was read came from one line, so only a CR or NUL inside it cannot be written.
            assert_eq!(error, EncodeError::LineBreak, "{command:?}");
        }
    }
}

/// The path of a command that names an object.
fn path_of(command: &Command) -> Option<&WirePath> {
    use whimbrel_proto::command::{Eret, Esto, SiteProbe};
    Some(match command {
        Command::Cwd(path) | Command::Mkd(path) | Command::Rmd(path) | Command::Dele(path) => path,
        Command::Rnfr(path) | Command::Rnto(path) | Command::Size(path) | Command::Mdtm(path) => path,
        Command::Retr(path) | Command::Stor(path) | Command::Appe(path) => path,
        Command::Mlst(path) | Command::Mlsd(path) | Command::Mlsc(path) | Command::Mlsr(path) => path.as_ref()?,
        Command::Stat(path) | Command::Stou(path) => path.as_ref()?,
        Command::List(args) | Command::Nlst(args) => args.path.as_ref()?,
        Command::Mfmt { path, .. } | Command::Cksm { path, .. } => path,
        Command::Eret(Eret::Partial { path, .. } | Eret::Probe { path, .. } | Eret::Module { path, .. }) => path,
        Command::Esto(Esto::Adjusted { path, .. } | Esto::Chunk { path, .. }) => path,
        Command::Esto(Esto::Probe { path, .. } | Esto::Module { path, .. }) => path,
        Command::Site(Site::Probe(SiteProbe::Host(path) | SiteProbe::Read(_, path) | SiteProbe::Write(_, path))) => {
            path
        }
        Command::Get(transfer) | Command::Put(transfer) => &transfer.path,
        Command::Site(Site::Chmod { path, .. } | Site::Chgrp { path, .. } | Site::Utime { path, .. }) => path,
        Command::Site(Site::Chunk(Chunk::Open(file))) => &file.path,
        Command::Site(Site::Chunk(Chunk::Keep { path, .. })) => path,
        Command::Site(Site::Chunk(Chunk::Commit { path, .. } | Chunk::Drop { path, .. })) => path,
        Command::Site(Site::Rdel(path) | Site::Chroot(path) | Site::Trnc { path, .. }) => path,
        Command::Site(Site::SymlinkFrom(path) | Site::SymlinkTo(path) | Site::Symlink { link: path, .. }) => path,
        _ => return None,
    })
}

/// The command as it comes back: quotes inside pairs are dropped, and a listed name that reads as a flag goes out behind `./`.
fn expected(mut command: Command) -> Command {
    match &mut command {
        Command::Site(Site::ClientInfo(pairs) | Site::StorAttr(pairs)) => {
            // A quote in a key opens a quotation that swallows what follows; no client writes one.
            if pairs.iter().any(|(key, _)| key.contains('"')) {
                pairs.clear();
            }
            pairs.iter_mut().for_each(|(_, value)| value.retain(|&b| b != b'"'));
        }
        Command::List(args) | Command::Nlst(args) => {
            if let Some(path) = args.path.as_mut().filter(|path| matches!(path[0], b'-' | b' ')) {
                path.splice(..0, *b"./");
            }
        }
        Command::Opts(Opts::Unknown { .. }) => {}
        _ => {}
    }
    command
}

/// Bytes to lines: every LF ends exactly one, pieces do not matter, and no line exceeds the limit.
pub fn line(data: &[u8]) {
    let (limit, data) = data.split_first().map_or((1, data), |(first, rest)| (usize::from(*first) + 1, rest));
    for telnet in [true, false] {
        let whole = split(limit, telnet, std::iter::once(data));
        assert_eq!(whole.len(), data.iter().filter(|&&b| b == b'\n').count(), "every LF ends one line");
        assert_eq!(split(limit, telnet, pieces(data)), whole);
        for line in whole.iter().flatten() {
            assert!(line.len() <= limit && !line.contains(&b'\n'));
        }
    }
}

fn split<'a>(limit: usize, telnet: bool, portions: impl Iterator<Item = &'a [u8]>) -> Vec<Result<Vec<u8>, LineError>> {
    let mut splitter = LineSplitter::new(limit);
    if !telnet {
        splitter = splitter.without_telnet();
    }
    let mut lines = Vec::new();
    let mut last = None;
    for portion in portions {
        splitter.feed(portion);
        lines.extend(std::iter::from_fn(|| splitter.next_line()));
        last = portion.last().or(last);
    }
    assert_eq!(splitter.is_mid_line(), last.is_some_and(|&b| b != b'\n'));
    lines
}
