//! What is in force on a server, so that a value is not sent twice and a data handle not lost by surprise.

use std::collections::HashMap;

use crate::command::{BufferSide, Command, Opts, PassiveVerb, Site};

/// What a command does to the server's data handle: listener, connections and the parameters frozen in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataHandleEffect {
    /// Nothing.
    Keeps,
    /// The handle stays, but keeps the old value: the command only counts from the next PASV or PORT on.
    CountsForNext,
    /// The old handle is closed and a new one made.
    Replaces,
    /// The handle is gone: the next transfer without PASV or PORT fails.
    Destroys,
}

/// The effect of a command, if it succeeds, on the reference server.
pub fn data_handle_effect(command: &Command) -> DataHandleEffect {
    use DataHandleEffect as E;
    match command {
        Command::Pasv | Command::Epsv(_) | Command::Spas(_) => E::Replaces,
        Command::Port(_) | Command::Eprt(_) | Command::Spor(_) => E::Replaces,
        Command::Dcau(_) | Command::Prot(_) | Command::Dcsc(_) => E::Destroys,
        Command::Site(Site::SetNetStack(_)) => E::Destroys,
        Command::Rein | Command::Quit | Command::Abor => E::Destroys,
        Command::Mode(_) | Command::Type(_) | Command::StruFile | Command::Sbuf(_) | Command::Abuf(_) => {
            E::CountsForNext
        }
        Command::Opts(Opts::Retr(options))
            if options.parallelism.is_some() || options.layout.is_some() || options.block_size.is_some() =>
        {
            E::CountsForNext
        }
        Command::Site(Site::BufferSize { .. } | Site::DcNonce(_)) => E::CountsForNext,
        _ => E::Keeps,
    }
}

/// Settings that hold until they are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Setting {
    Type,
    Mode,
    Stru,
    Parallelism,
    Layout,
    BlockSize,
    RetrMarkers,
    SendBuffer,
    ReceiveBuffer,
    Delayed(u8),
    Facts,
    ChecksumMarkers,
    Utf8,
    Dcau,
    Pbsz,
    Prot,
    Credential,
    NetStack,
    DiskStack,
    Directory,
    Leaves,
}

/// Remembers the values that a server has confirmed on one connection.
///
/// Call [`Self::needs`] before sending, [`Self::sent`] when a command goes out, and [`Self::completed`] at its final reply. A refused command
/// leaves its value unknown: the reference server applies some OPTS it answers with 500.
#[derive(Debug, Clone, Default)]
pub struct SessionState {
    values: HashMap<Setting, Vec<u8>>,
}

impl SessionState {
    /// Nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// False if everything the command sets is in force already; commands that set nothing lasting are always needed.
    pub fn needs(&self, command: &Command) -> bool {
        let settings = settings(command);
        settings.is_empty() || settings.iter().any(|(key, value)| self.values.get(key) != Some(value))
    }

    /// The command went out: until its reply, what it sets is taken as set, so that a pipeline does not repeat it.
    pub fn sent(&mut self, command: &Command) {
        match command {
            Command::Rein | Command::User(_) => self.values.clear(),
            // The reference server forgets delayed mode at PORT.
            Command::Port(_) | Command::Eprt(_) | Command::Spor(_) => {
                self.values.retain(|key, _| !matches!(key, Setting::Delayed(_)));
            }
            // A relative change: where it leads is not known.
            Command::Cdup | Command::Cwd(_) if settings(command).is_empty() => {
                self.values.remove(&Setting::Directory);
            }
            _ => self.values.extend(settings(command)),
        }
    }

    /// The command's final reply came.
    pub fn completed(&mut self, command: &Command, success: bool) {
        if !success {
            settings(command).iter().for_each(|(key, _)| {
                self.values.remove(key);
            });
        }
    }
}

/// What a command sets, with the line as its value.
fn settings(command: &Command) -> Vec<(Setting, Vec<u8>)> {
    let mut line = Vec::new();
    if command.encode(&mut line).is_err() {
        return Vec::new();
    }
    let key = match command {
        Command::Type(_) => Setting::Type,
        Command::Mode(_) => Setting::Mode,
        Command::StruFile => Setting::Stru,
        Command::Dcau(_) => Setting::Dcau,
        Command::Pbsz(_) => Setting::Pbsz,
        Command::Prot(_) => Setting::Prot,
        Command::Dcsc(_) => Setting::Credential,
        // A relative directory leads elsewhere each time.
        Command::Cwd(path) if path.starts_with(b"/") => Setting::Directory,
        Command::Sbuf(bytes) => return buffers(BufferSide::Both, *bytes),
        Command::Opts(opts) => return options(opts, line),
        Command::Site(Site::BufferSize { verb, bytes }) => return buffers(verb.side(), *bytes),
        Command::Site(Site::SetNetStack(_)) => Setting::NetStack,
        Command::Site(Site::SetDiskStack(_)) => Setting::DiskStack,
        Command::Site(Site::Leaves(_)) => Setting::Leaves,
        _ => return Vec::new(),
    };
    vec![(key, line)]
}

fn buffers(side: BufferSide, bytes: u64) -> Vec<(Setting, Vec<u8>)> {
    let value = bytes.to_be_bytes().to_vec();
    let keys: &[Setting] = match side {
        BufferSide::Send => &[Setting::SendBuffer],
        BufferSide::Receive => &[Setting::ReceiveBuffer],
        BufferSide::Both => &[Setting::SendBuffer, Setting::ReceiveBuffer],
    };
    keys.iter().map(|key| (*key, value.clone())).collect()
}

fn options(opts: &Opts, line: Vec<u8>) -> Vec<(Setting, Vec<u8>)> {
    match opts {
        Opts::Retr(o) => {
            let parts = [
                (Setting::Parallelism, o.parallelism.map(|p| format!("{p:?}"))),
                (Setting::Layout, o.layout.map(|l| format!("{l:?}"))),
                (Setting::BlockSize, o.block_size.map(|n| n.to_string())),
                (Setting::RetrMarkers, o.markers.map(|n| n.to_string())),
            ];
            parts.into_iter().filter_map(|(key, value)| Some((key, value?.into_bytes()))).collect()
        }
        Opts::Passive { verb, .. } => {
            let which = match verb {
                PassiveVerb::Pasv => 0,
                PassiveVerb::Epsv => 1,
                PassiveVerb::Spas => 2,
            };
            vec![(Setting::Delayed(which), line)]
        }
        // MLST and MLSD share one set, so the names alone are the value.
        Opts::Mls { facts, .. } => vec![(Setting::Facts, facts.join(";").into_bytes())],
        Opts::Cksm { .. } => vec![(Setting::ChecksumMarkers, line)],
        Opts::Utf8(_) => vec![(Setting::Utf8, line)],
        Opts::Mlsr(_) | Opts::Stor(_) | Opts::Unknown { .. } => Vec::new(),
    }
}
