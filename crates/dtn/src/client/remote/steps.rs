//! The commands that carry out one operation.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use whimbrel_engine::{Fault, FaultCode, auto};
use whimbrel_proto::client::Order;
use whimbrel_proto::client::secure::DataProtection;
use whimbrel_proto::command::{
    Chunk, Command, Dcau, Dcsc, Epsv, Eret, Esto, ListArgs, Opts, Parallelism, Protection, Restart, RetrOptions,
    Secret, Site, SiteProbe, TransferMode, TrevEvent, WirePath,
};
use whimbrel_proto::op::{DataParams, Family, GsiPeer, LeafSpec, Level, ListForm, ListSpec, PackSpec};
use whimbrel_proto::op::{Mode, Op, Probe, ProbeKind, ReceiveSpec, SendSpec, Shield, WriteKind};
use whimbrel_proto::protect::base64;
use whimbrel_proto::timeval::Timestamp;

use super::{Answer, Remote, Step};

/// Files from this size on are worth asking for frequent markers, bytes.
const LONG_TRANSFER: u64 = 16 << 20;

/// One command with what its reply means.
#[derive(Debug)]
pub(super) struct Ask {
    command: Command,
    step: Step,
    name: &'static str,
    subject: Vec<u8>,
}

impl Ask {
    pub(super) fn new(command: Command, step: Step, name: &'static str, subject: &[u8]) -> Self {
        Self { command, step, name, subject: subject.to_vec() }
    }

    /// The operation's last command, with nothing to learn from its reply.
    pub(super) fn plain(command: Command, name: &'static str, subject: &[u8]) -> Self {
        Self::new(command, Step::Done(Answer::Plain), name, subject)
    }

    /// One whose result does not matter.
    fn quiet(command: Command) -> Self {
        Self::new(command, Step::Quiet, "set a parameter", b"")
    }

    /// What the machine is told, and what is kept for the reply.
    pub(super) fn split(self) -> (Order, (Step, &'static str, Vec<u8>)) {
        let gate = matches!(self.step, Step::Gate | Step::Secure | Step::UserFirst);
        let stream = self.step == Step::Done(Answer::Lines);
        (Order { command: self.command, gate, stream }, (self.step, self.name, self.subject))
    }
}

impl Remote {
    pub(super) fn asks_for(&mut self, op: &Op) -> Result<Vec<Ask>, Fault> {
        Ok(match op {
            Op::Passive { striped, family, params } => self.passive(*striped, *family, params),
            Op::Active { targets, params } => self.active(targets, params),
            Op::CloseData => Vec::new(),
            Op::Send(spec) => self.retrieve(spec),
            Op::Receive(spec) => self.store(spec),
            Op::SendPack(spec) => self.pack(Command::Eret(Eret::Pack(spec.files.clone())), spec, "retrieve"),
            Op::ReceivePack(spec) => self.pack(Command::Esto(Esto::Pack(spec.files.clone())), spec, "store"),
            Op::SendListing(spec) => vec![Ask::new(listing(spec), Step::Done(Answer::Transfer), "list", &spec.path)],
            Op::Listing(spec) => {
                vec![Ask::new(Command::Mlsc(named(&spec.path)), Step::Done(Answer::Lines), "list", &spec.path)]
            }
            Op::Checksum { algorithm, offset, length, path, marker_interval } => {
                let (algorithm, offset, length) = (algorithm.clone(), *offset, *length);
                let markers = marker_interval.map(|interval| Command::Opts(Opts::Cksm { markers: seconds(interval) }));
                let command = Command::Cksm { algorithm, offset, length, path: path.clone() };
                let sum = Ask::new(command, Step::Done(Answer::Checksum), "checksum", path);
                markers.and_then(|markers| self.wish(markers)).into_iter().chain([sum]).collect()
            }
            Op::CommitChunked { path, session, modified, mode, expected } => {
                let attributes = self.store_attributes(*modified, *mode, false);
                let sum = expected.as_ref().map(store_checksum);
                let commit = Chunk::Commit { session: session.clone(), path: path.clone() };
                let commit = Ask::plain(Command::Site(Site::Chunk(commit)), "complete", path);
                attributes.into_iter().chain(sum).chain([commit]).collect()
            }
            Op::SetModified { path, seconds, .. } => vec![self.set_modified(path, *seconds)],
            Op::Probe(probe) => self.probe(probe),
            other => simple(other)?,
        })
    }

    /// Sets a value that the server may lack, unless it is in force or was refused.
    fn wish(&self, command: Command) -> Option<Ask> {
        self.machine.session().wants(&command).then(|| Ask::quiet(command))
    }

    fn mode(&self) -> TransferMode {
        self.machine.session().mode()
    }

    fn change_mode(&self, mode: Mode) -> Option<Ask> {
        let command = Command::Mode(match mode {
            Mode::Stream => TransferMode::Stream,
            Mode::Extended => TransferMode::ExtendedBlock,
        });
        self.machine.session().needs(&command).then(|| Ask::new(command, Step::Mode, "set transfer mode", b""))
    }

    /// What a data handle freezes must be sent before it is made.
    fn parameters(&mut self, params: &DataParams) -> Vec<Ask> {
        let buffer = params.send_buffer.max(params.receive_buffer);
        let known = self.congestions();
        let wanted = params.congestion.clone().filter(|name| known.contains(name));
        let congestion = Command::Site(Site::Congestion(wanted));
        let congestion = self.machine.session().needs(&congestion).then_some(congestion);
        self.nonce_accepted = false;
        self.shield = params.shield.clone();
        let protection = self.shielding(&params.shield);
        let nonce = params.nonce.map(|nonce| Command::Site(Site::DcNonce(Secret(nonce.to_vec()))));
        let relay = params.relay.map(|part| Command::Site(Site::DcRelay(part)));
        self.change_mode(params.mode)
            .into_iter()
            .chain(buffer.and_then(|size| self.wish(Command::Sbuf(size.into()))))
            .chain(congestion.map(|command| Ask::new(command, Step::Need, "set congestion control", b"")))
            .chain(protection.into_iter().map(|order| Ask::new(order.command, Step::Need, "protect data", b"")))
            .chain(nonce.map(|command| Ask::new(command, Step::Nonce, "set nonce", b"")))
            .chain(relay.map(|command| Ask::new(command, Step::Need, "connect by a relay", b"")))
            .collect()
    }

    /// What is missing so that the next data handle is protected in this way.
    fn shielding(&self, shield: &Shield) -> Vec<Order> {
        let session = self.machine.session();
        let (peer, level) = match shield {
            Shield::None => (Dcau::None, Protection::Clear),
            Shield::Nonce | Shield::Session => (Dcau::None, Protection::Private),
            Shield::Gsi { peer, level } => {
                let peer = match peer {
                    GsiPeer::Own => Dcau::Myself,
                    GsiPeer::Subject(subject) => Dcau::Subject(subject.clone().into_bytes()),
                };
                let level = match (level, self.options.guarded) {
                    (Level::Clear, _) => Protection::Clear,
                    (Level::Private, true) => Protection::Safe,
                    (Level::Private, false) => Protection::Private,
                };
                (peer, level)
            }
        };
        let proves = peer != Dcau::None;
        // After any login but those over GSSAPI it is off (GFD.20 §3.1), and many servers have never heard of it.
        let peer = Some(peer).filter(|_| proves || self.channel.wrapped().is_some());
        let credential = self.data_credential.as_ref().filter(|_| proves);
        let credential = credential.map(|(_, pem)| Dcsc::Pem(Secret(base64::encode(&pem.0).into_bytes())));
        DataProtection { credential, peer, level }.orders(session)
    }

    fn passive(&mut self, striped: bool, family: Option<Family>, params: &DataParams) -> Vec<Ask> {
        let mut asks = self.parameters(params);
        // A sender that listens must know how many connections come.
        if self.features.has("REVERSE") {
            asks.extend(self.parallelism(params));
        }
        let v6 = match family {
            Some(family) => family == Family::V6,
            None => !is_v4(self.channel.peer.ip()),
        };
        let command = match (striped, v6) {
            (true, false) => Command::Spas(None),
            (true, true) => Command::Spas(Some(Family::V6)),
            (false, false) => Command::Pasv,
            (false, true) => Command::Epsv(Epsv::Default),
        };
        asks.push(Ask::new(command, Step::Done(Answer::Passive), "listen for data", b""));
        asks
    }

    fn active(&mut self, targets: &[SocketAddr], params: &DataParams) -> Vec<Ask> {
        let mut asks = self.parameters(params);
        asks.extend(self.parallelism(params));
        let command = match targets {
            [one] => Command::Port(*one),
            many => Command::Spor(many.to_vec()),
        };
        asks.push(Ask::plain(command, "name the data address", b""));
        asks
    }

    fn parallelism(&self, params: &DataParams) -> Option<Ask> {
        if params.mode != Mode::Extended {
            return None;
        }
        let parallelism = Some(Parallelism::fixed(params.parallelism.max(1).into()));
        self.option(RetrOptions { parallelism, ..RetrOptions::default() })
    }

    /// Of RETR.
    fn option(&self, options: RetrOptions) -> Option<Ask> {
        self.wish(Command::Opts(Opts::Retr(options)))
    }

    /// Leaf digests in the replies to transfers, or none.
    fn leaves(&self, wanted: Option<&LeafSpec>) -> Option<Ask> {
        self.wish(Command::Site(Site::Leaves(wanted.cloned())))
    }

    /// Where what is stored is read back from.
    fn read_back(&self, past_memory: bool) -> Option<Ask> {
        self.wish(Command::Site(Site::ReadBack { disk: past_memory && self.features.has("READBACK") }))
    }

    /// Whether what is stored survives a crash before it is answered.
    fn durable(&self, wanted: bool) -> Option<Ask> {
        let command = Command::Site(Site::Durable(wanted && self.features.has("DURABLE")));
        // A server that says it can, and will not, would have sources deleted whose copies may be lost.
        self.machine.session().needs(&command).then(|| Ask::new(command, Step::Need, "make copies durable", b""))
    }

    /// Markers of an event every so often, at least every second.
    fn markers(&self, event: TrevEvent, interval: Duration) -> Option<Ask> {
        self.wish(Command::Trev { event, seconds: seconds(interval) })
    }

    /// Measurements; 112 every second, where they are sent by themselves.
    fn probe(&self, probe: &Probe) -> Vec<Ask> {
        let (path, bounds) = (probe.path.clone(), probe.bounds);
        let command = match probe.kind {
            ProbeKind::Host => Command::Site(Site::Probe(SiteProbe::Host(path))),
            ProbeKind::Read => Command::Site(Site::Probe(SiteProbe::Read(bounds, path))),
            ProbeKind::Write => Command::Site(Site::Probe(SiteProbe::Write(bounds, path))),
            ProbeKind::Send { storage } => Command::Eret(Eret::Probe { storage, bounds, path }),
            ProbeKind::Receive { storage } => Command::Esto(Esto::Probe { storage, bounds, path }),
        };
        let markers = probe.performance_interval.and_then(|interval| self.markers(TrevEvent::Perf, interval));
        let measure = Ask::new(command, Step::Done(Answer::Probed), "measure", &probe.path);
        markers.into_iter().chain([measure]).collect()
    }

    /// Where the time of transfers went, in their final replies.
    fn spent(&self) -> Option<Ask> {
        self.wish(Command::Site(Site::Spent(true))).filter(|_| self.features.has("SPENT"))
    }

    fn retrieve(&self, spec: &SendSpec) -> Vec<Ask> {
        let path = spec.path.clone();
        let command = match (spec.offset, spec.length) {
            (0, None) => Command::Retr(path),
            // The real server cuts a range at the end of the file.
            (offset, length) => {
                let length = length.unwrap_or(i64::MAX as u64 - offset);
                Command::Eret(Eret::Partial { offset, length, path })
            }
        };
        let markers = spec.performance_interval.map(seconds);
        let leaves = self.leaves(spec.leaves.as_ref()).into_iter().chain(self.spent());
        leaves
            .chain(markers.and_then(|_| self.option(RetrOptions { markers, ..RetrOptions::default() })))
            .chain(self.restart(&spec.done))
            .chain([Ask::new(command, Step::Done(Answer::Transfer), "retrieve", &spec.path)])
            .collect()
    }

    /// Its digests are of the algorithm of leaves, whose size does not matter to it.
    fn pack(&self, command: Command, spec: &PackSpec, name: &'static str) -> Vec<Ask> {
        let in_force = self.machine.session().leaves();
        let leaves = match &spec.algorithm {
            Some(algorithm)
                if in_force.is_some_and(|now| (&now.algorithm, now.vouched) == (algorithm, spec.vouched)) =>
            {
                None
            }
            Some(algorithm) => {
                let (algorithm, vouched) = (algorithm.clone(), spec.vouched);
                self.leaves(Some(&LeafSpec { size: auto::LEAF, algorithm, holes: false, vouched }))
            }
            None => self.leaves(None),
        };
        // The list is too long for a message.
        let subject = spec.files.first().map_or(&b""[..], |file| &file.path);
        let command = Ask::new(command, Step::Done(Answer::Packed(spec.files.len())), name, subject);
        let durable = self.durable(spec.durable);
        leaves.into_iter().chain(durable).chain(self.spent()).chain([command]).collect()
    }

    /// Markers more often than every 5 s, the servers' default, where a transfer lasts long enough to see them.
    fn frequent_markers(&self, spec: &ReceiveSpec) -> Vec<Ask> {
        let long = spec.expected_size.is_none_or(|size| size >= LONG_TRANSFER);
        match (spec.performance_interval, spec.range_interval) {
            (Some(performance), Some(ranges)) if long && self.mode() == TransferMode::ExtendedBlock => {
                let performance = self.markers(TrevEvent::Perf, performance);
                performance.into_iter().chain(self.markers(TrevEvent::Restart, ranges)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn store(&self, spec: &ReceiveSpec) -> Vec<Ask> {
        let path = spec.path.clone();
        let restart = match &spec.write {
            WriteKind::Restart { done } => self.restart(done),
            _ => None,
        };
        let command = match &spec.write {
            WriteKind::Replace | WriteKind::Restart { .. } => Command::Stor(path),
            WriteKind::Adjusted { offset } => Command::Esto(Esto::Adjusted { offset: *offset, path }),
            WriteKind::Append => Command::Appe(path),
            WriteKind::Unique => Command::Stou(named(&path)),
            WriteKind::Chunk { offset, session } => {
                Command::Esto(Esto::Chunk { session: session.clone(), offset: *offset, path })
            }
        };
        let room = spec.expected_size.map(|size| Ask::quiet(Command::Allo { size, record: None }));
        let strict = spec.strict && restart.is_some();
        let attributes = self.store_attributes(spec.modified, spec.mode, strict);
        let mut asks = self.frequent_markers(spec);
        asks.extend(self.leaves(spec.leaves.as_ref()));
        asks.extend(self.read_back(spec.past_memory));
        // A part always is.
        asks.extend((!spec.is_chunk()).then(|| self.durable(spec.durable)).flatten());
        asks.extend(self.spent().into_iter().chain(room).chain(attributes));
        asks.extend(spec.expected_checksum.as_ref().map(store_checksum).into_iter().chain(restart));
        asks.push(Ask::new(command, Step::Done(Answer::Transfer), "store", &spec.path));
        asks
    }

    /// REST goes alone: a transfer whose REST was refused would truncate what is there.
    fn restart(&self, done: &[Range<u64>]) -> Option<Ask> {
        let first = done.first()?;
        let place = match self.mode() {
            TransferMode::Stream => Restart::Offset(first.end),
            TransferMode::ExtendedBlock => Restart::Ranges(done.to_vec()),
        };
        Some(Ask::new(Command::Rest(place), Step::Gate, "restart", b""))
    }

    /// What the next store or commit gives its file before its name; only servers of ours are known to read fractions, and
    /// modes. A time that is not set does no harm; with another mode than the one told, others may see what they must not.
    fn store_attributes(&self, modified: Option<(i64, u32)>, mode: Option<u32>, strict: bool) -> Option<Ask> {
        let mut pairs = Vec::new();
        if strict && self.features.has("DURABLE") {
            pairs.push(("restart".to_owned(), b"strict".to_vec()));
        }
        if let Some((secs, nanos)) = modified.filter(|_| self.features.has("STORATTR")) {
            let nanos = if self.features.has("DCNONCE") { nanos } else { 0 };
            pairs.push(("modify".to_owned(), Timestamp { secs, nanos }.to_string().into_bytes()));
        }
        let mut step = Step::Quiet;
        if let Some(mode) = mode.filter(|_| self.features.has("STORMODE")) {
            step = Step::Need;
            pairs.push(("UNIX.mode".to_owned(), format!("{mode:04o}").into_bytes()));
        }
        let command = |pairs| Command::Site(Site::StorAttr(pairs));
        (!pairs.is_empty()).then(|| Ask::new(command(pairs), step, "announce the mode", b""))
    }

    fn set_modified(&self, path: &[u8], seconds: i64) -> Ask {
        let (time, name) = (Timestamp::from_secs(seconds), path.to_vec());
        let command = if self.lacks("MFMT") {
            Command::Site(Site::Utime { modify: time, path: name })
        } else {
            Command::Mfmt { time, path: name }
        };
        Ask::plain(command, "set the time", path)
    }
}

/// Operations of one command, or of the two of a sequence, that depend on nothing.
fn simple(op: &Op) -> Result<Vec<Ask>, Fault> {
    let done = |command, answer, name, path: &WirePath| vec![Ask::new(command, Step::Done(answer), name, path)];
    let plain = |command, name, path: &WirePath| vec![Ask::plain(command, name, path)];
    Ok(match op {
        Op::Facts { path, .. } => done(Command::Mlst(named(path)), Answer::Facts, "describe", path),
        Op::Size(path) => done(Command::Size(path.clone()), Answer::Size, "ask the size", path),
        Op::Modified(path) => done(Command::Mdtm(path.clone()), Answer::Modified, "ask the time", path),
        Op::EnterDirectory(path) => plain(Command::Cwd(path.clone()), "enter directory", path),
        Op::MakeDirectory(path) => done(Command::Mkd(path.clone()), Answer::Directory, "make directory", path),
        Op::RemoveDirectory(path) => plain(Command::Rmd(path.clone()), "remove directory", path),
        Op::Delete(path) => plain(Command::Dele(path.clone()), "remove", path),
        Op::Rename { from, to } => vec![
            Ask::new(Command::Rnfr(from.clone()), Step::Need, "rename", from),
            Ask::plain(Command::Rnto(to.clone()), "rename to", to),
        ],
        other => site(other)?,
    })
}

/// Those that are SITE commands.
fn site(op: &Op) -> Result<Vec<Ask>, Fault> {
    let plain = |site, name, path: &WirePath| vec![Ask::plain(Command::Site(site), name, path)];
    Ok(match op {
        Op::DeleteTree(path) => plain(Site::Rdel(path.clone()), "remove tree", path),
        Op::Sync(path) => plain(Site::Sync(path.clone()), "make durable", path),
        Op::SetMode { path, mode } => plain(Site::Chmod { mode: *mode, path: path.clone() }, "set the mode", path),
        Op::SetGroup { path, group } => {
            plain(Site::Chgrp { group: group.clone().into_bytes(), path: path.clone() }, "set the group", path)
        }
        Op::Truncate { path, size } => plain(Site::Trnc { length: *size, path: path.clone() }, "truncate", path),
        Op::Symlink { target, link } => vec![
            Ask::new(Command::Site(Site::SymlinkFrom(target.clone())), Step::Need, "link to", target),
            Ask::plain(Command::Site(Site::SymlinkTo(link.clone())), "make link", link),
        ],
        Op::Relay(what) => {
            let command = Command::Site(Site::Relay(*what));
            vec![Ask::new(command, Step::Done(Answer::Passive), "announce data connections", b"")]
        }
        Op::Extents { path, leaf } => {
            let command = Command::Site(Site::Extents { leaf: *leaf, path: path.clone() });
            vec![Ask::new(command, Step::Done(Answer::Extents), "find holes", path)]
        }
        other => chunk(other)?,
    })
}

/// Those about files in chunks.
fn chunk(op: &Op) -> Result<Vec<Ask>, Fault> {
    let (chunk, answer, name, subject) = match op {
        Op::OpenChunked(file) => (Chunk::Open(file.clone()), Answer::Chunked, "open for chunks", &file.path),
        Op::KeepLeaves { path, session, leaves } => {
            let keep = Chunk::Keep { session: session.clone(), leaves: leaves.clone(), path: path.clone() };
            (keep, Answer::Plain, "keep what is proven", path)
        }
        Op::KeepHoles { path, session, holes } => {
            let keep = Chunk::Holes { session: session.clone(), holes: holes.clone(), path: path.clone() };
            (keep, Answer::Plain, "keep holes", path)
        }
        Op::DropChunked { path, session } => {
            (Chunk::Drop { session: session.clone(), path: path.clone() }, Answer::Plain, "throw away", path)
        }
        other => {
            let detail = format!("no command carries it: {other:?}");
            return Err(Fault::new(FaultCode::Internal, "send operation").detail(detail));
        }
    };
    Ok(vec![Ask::new(Command::Site(Site::Chunk(chunk)), Step::Done(answer), name, subject)])
}

fn listing(spec: &ListSpec) -> Command {
    let path = named(&spec.path);
    match spec.form {
        ListForm::Facts => Command::Mlsd(path),
        ListForm::FactsRecursive => Command::Mlsr(path),
        ListForm::Long => Command::List(ListArgs { flags: spec.flags.clone(), path }),
        ListForm::Names => Command::Nlst(ListArgs { flags: spec.flags.clone(), path }),
    }
}

/// A path, or none for the server's own choice.
fn named(path: &[u8]) -> Option<WirePath> {
    (!path.is_empty()).then(|| path.to_vec())
}

/// Whole seconds, at least one.
fn seconds(interval: Duration) -> u32 {
    u32::try_from(interval.as_secs()).unwrap_or(u32::MAX).max(1)
}

fn is_v4(ip: IpAddr) -> bool {
    ip.to_canonical().is_ipv4()
}

/// The checksum that the file of the next store or commit must have; without it nothing may get a name.
fn store_checksum((algorithm, digest): &(String, String)) -> Ask {
    let command = Command::Scks { algorithm: algorithm.clone(), checksum: digest.clone() };
    Ask::new(command, Step::Need, "announce the checksum", b"")
}
