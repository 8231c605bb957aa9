//! From a command line to a step.

use super::answer::Answer;
use super::config::ServerConfig;
use super::data;
use super::inbox::{Line, unescape_telnet, verb};
use super::session::{Direction, Once, PassiveKind, Session};
use super::step::{Step, Task, aborted_before_it_began};
use super::transfer::{self, Part, Store, Transfer};
use super::{checksum, feat, files, help, listing, login, options, probe, secure, site};
use crate::command::{BufferSide, Command, Epsv, Eret, Esto, Opts, Restart, Site, V2Data, V2Transfer};
use crate::op::{Family, ListForm, Op, PackedFile, ProbeKind};
use crate::ranges;

/// True for verbs whose operation an ABOR cancels before it began.
pub(super) fn is_transfer(verb: &str) -> bool {
    const TRANSFERS: [&str; 14] =
        ["RETR", "STOR", "APPE", "STOU", "ERET", "ESTO", "GET", "PUT", "LIST", "NLST", "MLSD", "MLSR", "MLSC", "CKSM"];
    TRANSFERS.contains(&verb)
}

/// True for lines that may be dispatched while a transfer in front of them runs over the same data handle: they
/// neither set up a handle nor look at what the outcome of that transfer changes.
pub(super) fn may_run_ahead(line: &[u8]) -> bool {
    match verb(line).as_str() {
        "SITE" => {
            let rest = line[b"SITE".len()..].trim_ascii_start();
            let word = rest.split(|&b| b == b' ').next().unwrap_or_default().to_ascii_uppercase();
            matches!(word.as_slice(), b"CHUNK" | b"DURABLE" | b"EXTENTS" | b"LEAVES" | b"READBACK" | b"STORATTR")
        }
        verb => ["STOR", "RETR", "ESTO", "ERET", "CKSM", "ALLO", "SCKS", "MFMT"].contains(&verb),
    }
}

/// Carries out one line.
pub(super) fn dispatch(session: &mut Session, config: &ServerConfig, line: Line) -> Step {
    match line {
        Line::TooLong => Step::Answer(Answer::line(500, "Command line too long.")),
        Line::Cancelled(_) => {
            session.once = Once::default();
            aborted_before_it_began()
        }
        Line::Whole(line) if session.telnet => parse(session, config, &unescape_telnet(&line)),
        Line::Whole(line) => parse(session, config, &line),
    }
}

fn parse(session: &mut Session, config: &ServerConfig, line: &[u8]) -> Step {
    if let Some(step) = secure::out_of_turn(session, &verb(line)).or_else(|| unparsed(session, line)) {
        return step;
    }
    match Command::parse(line) {
        Ok(command) if session.is_logged_in() || allowed_before_login(session, &command) => {
            any(session, config, command)
        }
        Ok(_) => login::required(),
        // Nobody learns before login which verbs exist, except where the verb is plainly wrong.
        Err(error) if session.is_logged_in() || session.security.awaits_token() || error.code() == 500 => {
            Step::Answer(Answer::line(error.code(), error.to_string()))
        }
        Err(_) => login::required(),
    }
}

/// Verbs that only everyday clients use and the parser does not know.
fn unparsed(session: &Session, line: &[u8]) -> Option<Step> {
    let verb = line.split(|&b| b == b' ').next().unwrap_or_default().to_ascii_uppercase();
    match verb.as_slice() {
        b"CLNT" => Some(Step::Answer(Answer::line(200, "OK."))),
        b"WHOAMI" if session.is_logged_in() => Some(site::who_am_i(session)),
        _ => None,
    }
}

/// What a client may ask before login: the reference server's list, what everyday clients send first, and the security
/// commands, whose refusal tells clients to go on in clear. Over a protected connection some clients settle PROT before they log in.
fn allowed_before_login(session: &Session, command: &Command) -> bool {
    if matches!(command, Command::Pbsz(_) | Command::Prot(_) | Command::Ccc) {
        return session.security.is_protected();
    }
    matches!(
        command,
        Command::User(_)
            | Command::Pass(_)
            | Command::Feat
            | Command::Help(_)
            | Command::Noop
            | Command::Quit
            | Command::Rein
            | Command::Lang(_)
            | Command::Auth(_)
            | Command::Adat(_)
            | Command::Site(Site::Help(_))
            | Command::Opts(Opts::Utf8(_))
    )
}

fn any(session: &mut Session, config: &ServerConfig, command: Command) -> Step {
    connection(session, config, command)
        .or_else(|command| names(session, config, command))
        .or_else(|command| parameters(session, config, command))
        .or_else(|command| handles(session, config, command))
        .or_else(|command| transfers(session, config, command))
        .or_else(|command| listings(session, command))
        .unwrap_or_else(|_| Step::Answer(Answer::line(502, "Command not implemented.")))
}

/// A step, or the command for the next group.
type Handled = Result<Step, Command>;

/// Login, information and security (RFC 959 §4.1.1 and §4.1.3, RFC 2228, RFC 2389, RFC 2640).
fn connection(session: &mut Session, config: &ServerConfig, command: Command) -> Handled {
    Ok(match command {
        Command::User(name) => login::user(session, config, name),
        Command::Pass(password) => login::password(session, config, password),
        Command::Acct(_) => Step::Answer(Answer::line(202, "No account is needed.")),
        Command::Rein => login::reinitialise(session, config),
        Command::Quit => login::quit(),
        Command::Feat => Step::Answer(feat::features(config, session)),
        Command::Help(topic) => Step::Answer(help::help(config, topic.as_deref())),
        Command::Noop => Step::Answer(Answer::line(200, "NOOP command successful.")),
        Command::Syst => Step::Answer(Answer::line(215, "UNIX Type: L8")),
        Command::Stat(None) => Step::Answer(login::status(session, config, None)),
        Command::Lang(language) => secure::language(language.as_deref()),
        Command::Abor => data::abort_idle(session),
        Command::Site(command) => site::site(session, config, command),
        other => return secure::command(session, config, other),
    })
}

/// Files and directories (RFC 959 §4.1.3, RFC 3659 §3 and §4).
fn names(session: &mut Session, config: &ServerConfig, command: Command) -> Handled {
    Ok(match command {
        Command::Pwd => files::print_directory(session),
        Command::Cwd(path) => files::enter(session, &path),
        Command::Cdup => files::enter(session, b".."),
        Command::Mkd(path) => files::make(session, config, &path),
        Command::Rmd(path) => files::change(config, Op::RemoveDirectory(session.resolve(&path))),
        Command::Dele(path) => files::change(config, Op::Delete(session.resolve(&path))),
        Command::Rnfr(path) => files::rename_from(session, config, &path),
        Command::Rnto(path) => files::rename_to(session, config, &path),
        Command::Size(path) => Step::run(Op::Size(session.resolve(&path)), Task::Size),
        Command::Mdtm(path) => files::modified(session, &path),
        Command::Mfmt { time, path } => files::set_modified(session, config, time, &path),
        Command::Cksm { algorithm, offset, length, path } => {
            checksum::compute(session, config, &algorithm, (offset, length), &path)
        }
        other => return Err(other),
    })
}

/// Settings, of which PASV and PORT take copies (RFC 959 §4.1.2, GFD.20 §3).
fn parameters(session: &mut Session, config: &ServerConfig, command: Command) -> Handled {
    Ok(match command {
        Command::Type(kind) => options::transfer_type(session, kind),
        Command::Mode(mode) => options::mode(session, mode),
        Command::StruFile => Step::Answer(Answer::line(200, "STRU F ok.")),
        Command::Opts(opts) => options::opts(session, config, opts),
        Command::Sbuf(bytes) => options::buffer(session, BufferSide::Both, bytes, "SBUF Command Successful."),
        Command::Abuf(_) => options::automatic_buffer(session),
        Command::Trev { event, seconds } => options::trev(session, event, seconds),
        Command::Allo { size, .. } => {
            session.once.size = Some(size);
            Step::Answer(Answer::line(200, "ALLO command successful."))
        }
        Command::Rest(restart) => rest(session, restart),
        Command::Scks { algorithm, checksum } => match checksum::expect(config, &algorithm, &checksum) {
            Ok(expected) => {
                session.once.checksum = Some(expected);
                Step::Answer(Answer::line(200, "OK."))
            }
            Err(refusal) => Step::Answer(refusal),
        },
        other => return Err(other),
    })
}

/// REST (RFC 3659 §5, GFD.20 §3.2.5); `REST 0` withdraws an earlier one.
fn rest(session: &mut Session, restart: Restart) -> Step {
    session.once.restart = match restart {
        Restart::Offset(0) => None,
        #[allow(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
        Restart::Offset(offset) => Some(vec![0..offset]),
        Restart::Ranges(ranges) => Some(ranges::merged(ranges)),
    };
    Step::Answer(Answer::line(350, "Restart Marker OK. Send STORE or RETR to initiate transfer."))
}

/// Data handles.
fn handles(session: &mut Session, config: &ServerConfig, command: Command) -> Handled {
    Ok(match command {
        Command::Pasv => data::passive(session, config, PassiveKind::Plain, Some(Family::V4)),
        Command::Epsv(Epsv::All) => data::epsv_all(session),
        Command::Epsv(Epsv::Default) => data::passive(session, config, PassiveKind::Extended, None),
        Command::Epsv(Epsv::Family(family)) => data::passive(session, config, PassiveKind::Extended, Some(family)),
        Command::Spas(None) => data::passive(session, config, PassiveKind::Striped(false), Some(Family::V4)),
        Command::Spas(Some(family)) => data::passive(session, config, PassiveKind::Striped(true), Some(family)),
        Command::Port(address) | Command::Eprt(address) => data::active(session, config, vec![address]),
        Command::Spor(addresses) => data::active(session, config, addresses),
        other => return Err(other),
    })
}

/// Files over the data handle (RFC 959 §4.1.3, GFD.20 §3.4, GFD.47 §3).
fn transfers(session: &mut Session, config: &ServerConfig, command: Command) -> Handled {
    Ok(match command {
        Command::Retr(path) => retrieve(session, &path, Part::WHOLE),
        Command::Eret(Eret::Partial { offset, length, path }) => {
            retrieve(session, &path, Part { offset, length: Some(length) })
        }
        Command::Eret(Eret::Pack(files)) => pack(session, config, files, Direction::Sending),
        Command::Esto(Esto::Pack(files)) => pack(session, config, files, Direction::Receiving),
        Command::Stor(path) => store(session, config, &path, Store::Plain),
        Command::Appe(path) => store(session, config, &path, Store::Append),
        Command::Stou(path) => store(session, config, path.as_deref().unwrap_or(b"stou"), Store::Unique),
        Command::Esto(Esto::Adjusted { offset, path }) => store(session, config, &path, Store::Adjusted(offset)),
        Command::Esto(Esto::Chunk { session: id, offset, path }) => {
            store(session, config, &path, Store::Chunk(offset, id))
        }
        Command::Eret(Eret::Probe { storage, bounds, path }) => {
            probe::over_data(session, config, ProbeKind::Send { storage }, bounds, &path)
        }
        Command::Esto(Esto::Probe { storage, bounds, path }) => {
            probe::over_data(session, config, ProbeKind::Receive { storage }, bounds, &path)
        }
        Command::Eret(Eret::Module { name, .. }) | Command::Esto(Esto::Module { name, .. }) => {
            session.once = Once::default();
            Step::Answer(Answer::line(504, [b"No storage module '", name.as_slice(), b"'."].concat()))
        }
        Command::Get(V2Transfer { path, data, mode }) => {
            mode.into_iter().for_each(|mode| options::set_mode(session, mode));
            let transfer = transfer::send(session, &path, Part::WHOLE);
            version2(session, config, data, transfer)
        }
        Command::Put(V2Transfer { path, data, mode }) => {
            mode.into_iter().for_each(|mode| options::set_mode(session, mode));
            match transfer::receive(session, config, &path, Store::Plain) {
                Ok(transfer) => version2(session, config, data, transfer),
                Err(refusal) => Step::Answer(refusal),
            }
        }
        other => return Err(other),
    })
}

fn retrieve(session: &mut Session, path: &[u8], part: Part) -> Step {
    let transfer = transfer::send(session, path, part);
    data::begin(session, transfer)
}

fn store(session: &mut Session, config: &ServerConfig, path: &[u8], store: Store) -> Step {
    match transfer::receive(session, config, path, store) {
        Ok(transfer) => data::begin(session, transfer),
        Err(refusal) => Step::Answer(refusal),
    }
}

fn pack(session: &mut Session, config: &ServerConfig, files: Vec<PackedFile>, direction: Direction) -> Step {
    match transfer::pack(session, config, files, direction) {
        Ok(transfer) => data::begin(session, transfer),
        Err(refusal) => Step::Answer(refusal),
    }
}

/// GET and PUT make their data handle themselves, or use the one that is there (GFD.47 §3.2).
fn version2(session: &mut Session, config: &ServerConfig, data: V2Data, transfer: Transfer) -> Step {
    match data {
        V2Data::Passive => data::passive_for(session, config, transfer),
        V2Data::Port(target) => data::active_for(session, config, target, transfer),
        V2Data::Cached => data::begin(session, transfer),
    }
}

/// Listings.
fn listings(session: &mut Session, command: Command) -> Handled {
    Ok(match command {
        Command::List(args) => listing::over_data(session, ListForm::Long, args.path.as_deref(), args.flags),
        Command::Nlst(args) => listing::over_data(session, ListForm::Names, args.path.as_deref(), args.flags),
        Command::Mlsd(path) => listing::over_data(session, ListForm::Facts, path.as_deref(), Vec::new()),
        Command::Mlsr(path) => listing::over_data(session, ListForm::FactsRecursive, path.as_deref(), Vec::new()),
        Command::Mlsc(path) => listing::contents(session, path.as_deref()),
        Command::Mlst(path) => listing::facts(session, path.as_deref()),
        Command::Stat(Some(path)) => listing::status_of(session, &path),
        other => return Err(other),
    })
}
