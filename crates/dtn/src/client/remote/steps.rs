//! The commands that carry out one operation.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use whimbrel_engine::{Fault, FaultCode, auto};
use whimbrel_proto::fact;
use whimbrel_proto::holes;
use whimbrel_proto::hostport;
use whimbrel_proto::leaf;
use whimbrel_proto::op::{ChunkedFile, DataParams, Family, LeafSpec, ListForm, ListSpec, PackSpec};
use whimbrel_proto::op::{Mode, Op, Probe, ProbeKind, ReceiveSpec, SendSpec, WriteKind};
use whimbrel_proto::pack;
use whimbrel_proto::ranges;
use whimbrel_proto::timeval::Timestamp;

use super::{Answer, Remote, Step};

/// Files from this size on are worth asking for frequent markers, bytes.
const LONG_TRANSFER: u64 = 16 << 20;

/// One command line with what its reply means.
#[derive(Debug)]
pub(super) struct Line {
    pub line: Vec<u8>,
    pub step: Step,
    pub name: &'static str,
    pub subject: Vec<u8>,
}

fn line(verb: &str, path: &[u8], step: Step, name: &'static str) -> Line {
    let mut line = verb.as_bytes().to_vec();
    if !path.is_empty() {
        line.push(b' ');
        line.extend_from_slice(path);
    }
    Line { line, step, name, subject: path.to_vec() }
}

fn plain(verb: &str, path: &[u8], name: &'static str) -> Line {
    line(verb, path, Step::Done(Answer::Plain), name)
}

fn quiet(text: String) -> Line {
    line(&text, b"", Step::Quiet, "set a parameter")
}

impl Remote {
    pub(super) fn commands_for(&mut self, op: &Op) -> Result<Vec<Line>, Fault> {
        Ok(match op {
            Op::Passive { striped, family, params } => self.passive(*striped, *family, params),
            Op::Active { targets, params } => self.active(targets, params),
            Op::CloseData => Vec::new(),
            Op::Send(spec) => self.send(spec),
            Op::Receive(spec) => self.receive(spec),
            Op::SendPack(spec) => self.pack("ERET PACK", spec, "retrieve"),
            Op::ReceivePack(spec) => self.pack("ESTO PACK", spec, "store"),
            Op::SendListing(spec) => vec![list(spec, Answer::Transfer)],
            Op::Listing(spec) => vec![line("MLSC", &spec.path, Step::Done(Answer::Lines), "list")],
            Op::Checksum { algorithm, offset, length, path, marker_interval } => {
                let mut lines = Vec::new();
                if let Some(interval) = marker_interval.filter(|_| !self.in_force.checksum_markers) {
                    self.in_force.checksum_markers = true;
                    lines.push(quiet(format!("OPTS CKSM Markers={};", interval.as_secs().max(1))));
                }
                let length = length.map_or("-1".to_owned(), |length| length.to_string());
                let verb = format!("CKSM {algorithm} {offset} {length}");
                lines.push(line(&verb, path, Step::Done(Answer::Checksum), "checksum"));
                lines
            }
            Op::Symlink { target, link } => vec![
                line("SITE SYMLINKFROM", target, Step::Need, "link to"),
                plain("SITE SYMLINKTO", link, "make link"),
            ],
            Op::Rename { from, to } => vec![line("RNFR", from, Step::Need, "rename"), plain("RNTO", to, "rename to")],
            Op::SetModified { path, seconds, .. } => vec![self.set_modified(path, *seconds)],
            Op::OpenChunked(file) => vec![open_chunked(file)],
            Op::KeepLeaves { path, session, leaves } => {
                let verb = format!("SITE CHUNK KEEP {} {}", leaf::hex(session), leaf::format_list(leaves));
                vec![plain(&verb, path, "keep what is proven")]
            }
            Op::KeepHoles { path, session, holes } => {
                let verb = format!("SITE CHUNK HOLES {} {}", leaf::hex(session), holes::format_list(holes));
                vec![plain(&verb, path, "keep holes")]
            }
            Op::Extents { path, leaf } => {
                vec![line(&format!("SITE EXTENTS {leaf}"), path, Step::Done(Answer::Extents), "find holes")]
            }
            Op::CommitChunked { path, session, modified, expected } => {
                let time = modified.map(|time| self.store_time(time));
                let sum = expected.as_ref().map(store_checksum);
                let commit = plain(&format!("SITE CHUNK COMMIT {}", leaf::hex(session)), path, "complete");
                time.into_iter().chain(sum).chain([commit]).collect()
            }
            Op::DropChunked { path, session } => {
                vec![plain(&format!("SITE CHUNK DROP {}", leaf::hex(session)), path, "throw away")]
            }
            Op::Probe(probe) => self.probe(probe),
            other => vec![simple(other)?],
        })
    }

    fn change_mode(&mut self, mode: Mode) -> Option<Line> {
        if self.in_force.mode == mode {
            return None;
        }
        self.in_force.mode = mode;
        let verb = if mode == Mode::Extended { "MODE E" } else { "MODE S" };
        Some(line(verb, b"", Step::Mode, "set transfer mode"))
    }

    /// What a data handle freezes must be sent before it is made.
    fn parameters(&mut self, params: &DataParams) -> Vec<Line> {
        let mut lines: Vec<Line> = self.change_mode(params.mode).into_iter().collect();
        if let Some(size) = params.send_buffer.max(params.receive_buffer) {
            lines.push(quiet(format!("SBUF {size}")));
        }
        let known = self.congestions();
        let wanted = params.congestion.clone().filter(|name| known.contains(name));
        if self.in_force.congestion != wanted {
            let name = wanted.as_deref().unwrap_or("-").to_owned();
            self.in_force.congestion = wanted;
            lines.push(line(&format!("SITE CONGESTION {name}"), b"", Step::Need, "set congestion control"));
        }
        self.nonce_accepted = false;
        if let Some(nonce) = params.nonce {
            lines.push(line(&format!("SITE DCNONCE {}", leaf::hex(&nonce)), b"", Step::Nonce, "set nonce"));
        }
        lines
    }

    fn passive(&mut self, striped: bool, family: Option<Family>, params: &DataParams) -> Vec<Line> {
        let mut lines = self.parameters(params);
        // A sender that listens must know how many connections come.
        if self.features.has("REVERSE") {
            lines.extend(self.parallelism(params));
        }
        let v6 = match family {
            Some(family) => family == Family::V6,
            None => !is_v4(self.channel.peer.ip()),
        };
        let verb = match (striped, v6) {
            (true, false) => "SPAS",
            (true, true) => "SPAS 2",
            (false, false) => "PASV",
            (false, true) => "EPSV",
        };
        lines.push(line(verb, b"", Step::Done(Answer::Passive), "listen for data"));
        lines
    }

    fn active(&mut self, targets: &[SocketAddr], params: &DataParams) -> Vec<Line> {
        let mut lines = self.parameters(params);
        lines.extend(self.parallelism(params));
        let verb = match targets {
            [one] => match hostport::format_port(*one) {
                Some(address) => format!("PORT {address}"),
                None => format!("EPRT {}", hostport::format_eprt(*one)),
            },
            many => {
                let items: Vec<String> = many.iter().map(|address| hostport::format_either(*address, false)).collect();
                format!("SPOR {}", items.join(" "))
            }
        };
        lines.push(plain(&verb, b"", "name the data address"));
        lines
    }

    fn parallelism(&mut self, params: &DataParams) -> Option<Line> {
        let wanted = params.parallelism.max(1);
        if params.mode != Mode::Extended || self.in_force.parallelism == wanted {
            return None;
        }
        self.in_force.parallelism = wanted;
        Some(quiet(format!("OPTS RETR Parallelism={wanted},{wanted},{wanted};")))
    }

    /// Leaf digests in the replies to transfers, or none.
    fn leaves(&mut self, wanted: Option<&LeafSpec>) -> Option<Line> {
        if self.in_force.leaves.as_ref() == wanted {
            return None;
        }
        self.in_force.leaves = wanted.cloned();
        let text = match wanted {
            Some(LeafSpec { size, algorithm, holes }) => {
                format!("SITE LEAVES {size} {algorithm}{}", if *holes { " HOLES" } else { "" })
            }
            None => "SITE LEAVES 0".to_owned(),
        };
        Some(quiet(text))
    }

    /// Where what is stored is read back from.
    fn read_back(&mut self, past_memory: bool) -> Option<Line> {
        let past_memory = past_memory && self.features.has("READBACK");
        let known = std::mem::replace(&mut self.in_force.past_memory, past_memory) == past_memory;
        (!known).then(|| quiet(format!("SITE READBACK {}", if past_memory { "DISK" } else { "MEMORY" })))
    }

    /// Measurements; 112 every second, where they are sent by themselves.
    fn probe(&mut self, probe: &Probe) -> Vec<Line> {
        let mut lines = Vec::new();
        let data = |verb: &str, storage: bool| {
            format!("{verb} {} {}", if storage { "D" } else { "M" }, fact::format_bounds(probe.bounds))
        };
        let verb = match probe.kind {
            ProbeKind::Host => "SITE PROBE HOST".to_owned(),
            ProbeKind::Read => format!("SITE PROBE READ {}", fact::format_bounds(probe.bounds)),
            ProbeKind::Write => format!("SITE PROBE WRITE {}", fact::format_bounds(probe.bounds)),
            ProbeKind::Send { storage } => data("ERET", storage),
            ProbeKind::Receive { storage } => data("ESTO", storage),
        };
        if let Some(interval) = probe.performance_interval.filter(|_| !self.in_force.frequent_markers) {
            self.in_force.frequent_markers = true;
            lines.push(quiet(format!("TREV PERF {}", interval.as_secs().max(1))));
        }
        lines.push(line(&verb, &probe.path, Step::Done(Answer::Probed), "measure"));
        lines
    }

    /// Where the time of transfers went, in their final replies.
    fn spent(&mut self) -> Option<Line> {
        if self.in_force.spent || !self.features.has("SPENT") {
            return None;
        }
        self.in_force.spent = true;
        Some(quiet("SITE SPENT 1".to_owned()))
    }

    fn send(&mut self, spec: &SendSpec) -> Vec<Line> {
        let mut lines: Vec<Line> = self.leaves(spec.leaves.as_ref()).into_iter().chain(self.spent()).collect();
        if let Some(interval) = spec.performance_interval.filter(|_| !self.in_force.transfer_markers) {
            self.in_force.transfer_markers = true;
            lines.push(quiet(format!("OPTS RETR Markers={};", interval.as_secs().max(1))));
        }
        lines.extend(self.restart(&spec.done));
        let verb = match (spec.offset, spec.length) {
            (0, None) => "RETR".to_owned(),
            // The real server cuts a range at the end of the file.
            (offset, length) => format!("ERET P {offset} {}", length.unwrap_or(i64::MAX as u64 - offset)),
        };
        lines.push(line(&verb, &spec.path, Step::Done(Answer::Transfer), "retrieve"));
        lines
    }

    /// Its digests are of the algorithm of leaves, whose size does not matter to it.
    fn pack(&mut self, verb: &str, spec: &PackSpec, name: &'static str) -> Vec<Line> {
        let other = |algorithm: &String| self.in_force.leaves.as_ref().is_none_or(|now| now.algorithm != *algorithm);
        let lines = match &spec.algorithm {
            Some(algorithm) if other(algorithm) => {
                self.leaves(Some(&LeafSpec { size: auto::LEAF, algorithm: algorithm.clone(), holes: false }))
            }
            Some(_) => None,
            None => self.leaves(None),
        };
        let answer = Answer::Packed(spec.files.len());
        let mut command = line(verb, &pack::format_list(&spec.files), Step::Done(answer), name);
        // The list is too long for a message.
        command.subject = spec.files.first().map(|file| file.path.clone()).unwrap_or_default();
        lines.into_iter().chain(self.spent()).chain([command]).collect()
    }

    /// Markers more often than every 5 s, the servers' default, where a transfer lasts long enough to see them.
    fn frequent_markers(&mut self, spec: &ReceiveSpec) -> Vec<Line> {
        let long = spec.expected_size.is_none_or(|size| size >= LONG_TRANSFER);
        let (Some(performance), Some(ranges)) = (spec.performance_interval, spec.range_interval) else {
            return Vec::new();
        };
        if !long || self.in_force.frequent_markers || self.in_force.mode == Mode::Stream {
            return Vec::new();
        }
        self.in_force.frequent_markers = true;
        let seconds = |interval: Duration| interval.as_secs().max(1);
        vec![quiet(format!("TREV PERF {}", seconds(performance))), quiet(format!("TREV RESTART {}", seconds(ranges)))]
    }

    fn receive(&mut self, spec: &ReceiveSpec) -> Vec<Line> {
        let mut lines = self.frequent_markers(spec);
        lines.extend(self.leaves(spec.leaves.as_ref()));
        lines.extend(self.read_back(spec.past_memory));
        lines.extend(self.spent());
        if let Some(size) = spec.expected_size {
            lines.push(quiet(format!("ALLO {size}")));
        }
        if let Some(time) = spec.modified
            && self.features.has("STORATTR")
        {
            lines.push(self.store_time(time));
        }
        lines.extend(spec.expected_checksum.as_ref().map(store_checksum));
        let verb = match &spec.write {
            WriteKind::Replace => "STOR".to_owned(),
            WriteKind::Restart { done } => {
                lines.extend(self.restart(done));
                "STOR".to_owned()
            }
            WriteKind::Adjusted { offset } => format!("ESTO A {offset}"),
            WriteKind::Append => "APPE".to_owned(),
            WriteKind::Unique => "STOU".to_owned(),
            WriteKind::Chunk { offset, session } => format!("ESTO C {},{offset}", leaf::hex(session)),
        };
        lines.push(line(&verb, &spec.path, Step::Done(Answer::Transfer), "store"));
        lines
    }

    /// REST goes alone: a transfer whose REST was refused would truncate what is there.
    fn restart(&self, done: &[Range<u64>]) -> Option<Line> {
        let first = done.first()?;
        let argument = match self.in_force.mode {
            Mode::Stream => first.end.to_string(),
            Mode::Extended => ranges::format(done),
        };
        Some(line(&format!("REST {argument}"), b"", Step::Gate, "restart"))
    }

    /// The time that the next store or commit gives its file; only servers of ours are known to read fractions.
    fn store_time(&self, (secs, nanos): (i64, u32)) -> Line {
        let nanos = if self.features.has("DCNONCE") { nanos } else { 0 };
        quiet(format!("SITE STORATTR modify={};", Timestamp { secs, nanos }))
    }

    fn set_modified(&self, path: &[u8], seconds: i64) -> Line {
        let time = Timestamp::from_secs(seconds).to_wire();
        let verb = if self.lacks("MFMT") { "SITE UTIME" } else { "MFMT" };
        plain(&format!("{verb} {time}"), path, "set the time")
    }
}

fn simple(op: &Op) -> Result<Line, Fault> {
    Ok(match op {
        Op::Facts { path, .. } => line("MLST", path, Step::Done(Answer::Facts), "describe"),
        Op::Size(path) => line("SIZE", path, Step::Done(Answer::Size), "ask the size"),
        Op::Modified(path) => line("MDTM", path, Step::Done(Answer::Modified), "ask the time"),
        Op::EnterDirectory(path) => plain("CWD", path, "enter directory"),
        Op::MakeDirectory(path) => line("MKD", path, Step::Done(Answer::Directory), "make directory"),
        Op::RemoveDirectory(path) => plain("RMD", path, "remove directory"),
        Op::Delete(path) => plain("DELE", path, "remove"),
        Op::DeleteTree(path) => plain("SITE RDEL", path, "remove tree"),
        Op::SetMode { path, mode } => plain(&format!("SITE CHMOD {mode:04o}"), path, "set the mode"),
        Op::SetGroup { path, group } => plain(&format!("SITE CHGRP {group}"), path, "set the group"),
        Op::Truncate { path, size } => plain(&format!("SITE TRNC {size}"), path, "truncate"),
        other => {
            let detail = format!("no command carries it: {other:?}");
            return Err(Fault::new(FaultCode::Internal, "send operation").detail(detail));
        }
    })
}

fn list(spec: &ListSpec, answer: Answer) -> Line {
    let verb = match spec.form {
        ListForm::Facts => "MLSD",
        ListForm::FactsRecursive => "MLSR",
        ListForm::Long => "LIST",
        ListForm::Names => "NLST",
    };
    line(verb, &spec.path, Step::Done(answer), "list")
}

fn is_v4(ip: IpAddr) -> bool {
    ip.to_canonical().is_ipv4()
}

/// The checksum that the file of the next store or commit must have; without it nothing may get a name.
fn store_checksum((algorithm, digest): &(String, String)) -> Line {
    line(&format!("SCKS {algorithm} {digest}"), b"", Step::Need, "announce the checksum")
}

fn open_chunked(file: &ChunkedFile) -> Line {
    let time = file.modified.map_or("-".to_owned(), |(secs, nanos)| Timestamp { secs, nanos }.to_string());
    let LeafSpec { size, algorithm, .. } = &file.leaves;
    let verb = format!("SITE CHUNK OPEN {} {time} {size} {algorithm}", file.size);
    line(&verb, &file.path, Step::Done(Answer::Chunked), "open for chunks")
}
