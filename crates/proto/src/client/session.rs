//! What is in force on a server, so that a value is not sent twice.

use std::collections::HashMap;

use crate::command::{
    BufferSide, BufferVerb, Command, Opts, Parallelism, Protection, RetrOptions, Site, TransferMode, TrevEvent,
};
use crate::op::LeafSpec;

/// Settings that hold until they are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Setting {
    Type,
    Mode,
    Parallelism,
    Layout,
    BlockSize,
    RetrMarkers,
    PerfInterval,
    RestartInterval,
    ChecksumMarkers,
    SendBuffer,
    ReceiveBuffer,
    Leaves,
    ReadBack,
    Congestion,
    Spent,
    Durable,
    BufferSize,
    Protection,
    PeerCheck,
    Credential,
}

/// What one command sets, each as the command that sets it alone.
pub(super) type Settings = Vec<(Setting, Command)>;

/// Remembers the values of one connection: those that a server has, or will have once it has carried out what was sent.
///
/// A refused command leaves its value unknown: the reference server applies some OPTS it answers with 500.
#[derive(Debug, Clone)]
pub struct SessionState {
    values: HashMap<Setting, Command>,
    /// Values that the server would not take.
    refused: HashMap<Setting, Command>,
}

impl Default for SessionState {
    fn default() -> Self {
        Self::new()
    }
}

impl SessionState {
    /// A fresh login: what standards and extensions say holds at the start (RFC 959 §5.1, RFC 2228 §3, GFD.20 §3.4). Not DCAU, whose
    /// start depends on the login.
    pub fn new() -> Self {
        let start = [
            Command::Mode(TransferMode::Stream),
            Command::Opts(Opts::Retr(RetrOptions {
                parallelism: Some(Parallelism::fixed(1)),
                ..RetrOptions::default()
            })),
            Command::Site(Site::Leaves(None)),
            Command::Site(Site::ReadBack { disk: false }),
            Command::Site(Site::Congestion(None)),
            Command::Site(Site::Spent(false)),
            Command::Site(Site::Durable(false)),
            Command::Prot(Protection::Clear),
        ];
        Self { values: start.iter().flat_map(settings).collect(), refused: HashMap::new() }
    }

    /// False if everything the command sets is in force already; commands that set nothing lasting are always needed.
    pub fn needs(&self, command: &Command) -> bool {
        let settings = settings(command);
        settings.is_empty() || settings.iter().any(|(key, value)| self.values.get(key) != Some(value))
    }

    /// As [`Self::needs`], but false too for what the server has refused: for values that it may lack.
    pub fn wants(&self, command: &Command) -> bool {
        let settings = settings(command);
        let is_open = |(key, value): &(Setting, Command)| {
            self.values.get(key) != Some(value) && self.refused.get(key) != Some(value)
        };
        settings.is_empty() || settings.iter().any(is_open)
    }

    /// The transfer mode; stream mode where nothing is known.
    pub fn mode(&self) -> TransferMode {
        match self.values.get(&Setting::Mode) {
            Some(Command::Mode(mode)) => *mode,
            _ => TransferMode::Stream,
        }
    }

    /// The leaves whose digests come in final replies; `None`: none, or not known.
    pub fn leaves(&self) -> Option<&LeafSpec> {
        match self.values.get(&Setting::Leaves) {
            Some(Command::Site(Site::Leaves(spec))) => spec.as_ref(),
            _ => None,
        }
    }

    /// The command was given: until its reply, what it sets is taken as set, so that a pipeline does not repeat it.
    pub(super) fn sent(&mut self, command: &Command) {
        match command {
            Command::Rein | Command::User(_) => *self = Self::new(),
            _ => self.values.extend(settings(command)),
        }
    }

    /// The command's final reply came; `later`: what was given behind it.
    pub(super) fn completed<'a>(
        &mut self,
        settings: &Settings,
        success: bool,
        later: impl Iterator<Item = &'a (Setting, Command)> + Clone,
    ) {
        if !success {
            self.withdrawn(settings, later);
            self.refused.extend(settings.iter().cloned());
        }
    }

    /// The command was never sent; `later`: what was given behind it.
    pub(super) fn withdrawn<'a>(
        &mut self,
        settings: &Settings,
        later: impl Iterator<Item = &'a (Setting, Command)> + Clone,
    ) {
        for setting in settings {
            let (key, value) = setting;
            // What was given later counts, also the same once more.
            if self.values.get(key) == Some(value) && !later.clone().any(|later| later == setting) {
                self.values.remove(key);
            }
        }
    }
}

/// What a command sets.
pub(super) fn settings(command: &Command) -> Settings {
    let key = match command {
        Command::Type(_) => Setting::Type,
        Command::Mode(_) => Setting::Mode,
        Command::Trev { event: TrevEvent::Perf, .. } => Setting::PerfInterval,
        Command::Trev { event: TrevEvent::Restart, .. } => Setting::RestartInterval,
        Command::Sbuf(bytes) => return buffers(BufferSide::Both, *bytes),
        Command::Opts(Opts::Retr(options)) => return retrieval(options),
        Command::Opts(Opts::Cksm { .. }) => Setting::ChecksumMarkers,
        Command::Pbsz(_) => Setting::BufferSize,
        Command::Prot(_) => Setting::Protection,
        Command::Dcau(_) => Setting::PeerCheck,
        Command::Dcsc(_) => Setting::Credential,
        Command::Site(site) => return site_settings(site),
        _ => return Vec::new(),
    };
    vec![(key, command.clone())]
}

fn site_settings(site: &Site) -> Settings {
    let key = match site {
        Site::BufferSize { verb, bytes } => return buffers(verb.side(), *bytes),
        Site::Leaves(_) => Setting::Leaves,
        Site::ReadBack { .. } => Setting::ReadBack,
        Site::Congestion(_) => Setting::Congestion,
        Site::Spent(_) => Setting::Spent,
        Site::Durable(_) => Setting::Durable,
        _ => return Vec::new(),
    };
    vec![(key, Command::Site(site.clone()))]
}

/// However they are spelt.
fn buffers(side: BufferSide, bytes: u64) -> Settings {
    let one = |key, verb| (key, Command::Site(Site::BufferSize { verb, bytes }));
    let send = one(Setting::SendBuffer, BufferVerb::RetrBufSize);
    let receive = one(Setting::ReceiveBuffer, BufferVerb::StorBufSize);
    match side {
        BufferSide::Send => vec![send],
        BufferSide::Receive => vec![receive],
        BufferSide::Both => vec![send, receive],
    }
}

fn retrieval(options: &RetrOptions) -> Settings {
    let RetrOptions { parallelism, layout, block_size, markers } = *options;
    let none = RetrOptions::default();
    let parts = [
        (Setting::Parallelism, RetrOptions { parallelism, ..none }),
        (Setting::Layout, RetrOptions { layout, ..none }),
        (Setting::BlockSize, RetrOptions { block_size, ..none }),
        (Setting::RetrMarkers, RetrOptions { markers, ..none }),
    ];
    let given = parts.into_iter().filter(|(_, part)| *part != none);
    given.map(|(key, part)| (key, Command::Opts(Opts::Retr(part)))).collect()
}
