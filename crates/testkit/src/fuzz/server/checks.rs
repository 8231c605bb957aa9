//! What must hold of the output and of what the data side is asked.

use whimbrel_proto::op::{LeafSpec, Op, ProbeKind, WriteKind};
use whimbrel_proto::pack;
use whimbrel_proto::reply::{Reply, ReplyClass, ReplyParser};
use whimbrel_proto::{holes, leaf};

/// The server's output so far, and what the machine says about it.
#[derive(Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    answered: Vec<u16>,
}

impl Output {
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn answered(&mut self, code: u16) {
        self.answered.push(code);
    }

    pub(super) fn answers(&self) -> usize {
        self.answered.len()
    }

    /// The output is a sequence of whole replies, and the final ones are those the machine told of.
    pub(super) fn check(&self, closed: bool) {
        check_lines(&self.bytes);
        let mut parser = ReplyParser::with_limits(1 << 22, 1 << 26);
        parser.feed(&self.bytes);
        let replies: Vec<Reply> =
            std::iter::from_fn(|| parser.next_reply()).collect::<Result<_, _>>().expect("only replies are sent");
        // A connection may end inside a listing.
        assert!(closed || !parser.is_mid_reply(), "the last reply is complete");
        let finals = replies.iter().filter(|reply| reply.class() != ReplyClass::Preliminary);
        let codes: Vec<u16> = finals.map(|reply| reply.code).collect();
        let (greeting, codes) = codes.split_first().expect("there is a greeting");
        assert_eq!(*greeting, 220);
        match codes.strip_prefix(&self.answered[..]) {
            Some([]) => {}
            // Ends of the connection that answer no command.
            Some([421 | 500]) if closed => {}
            // The last words may stand inside an unfinished listing.
            None if closed && parser.is_mid_reply() => {}
            _ => panic!("sent {codes:?}, told {:?}", self.answered),
        }
    }
}

/// Echoed bytes forge no line end.
fn check_lines(bytes: &[u8]) {
    for line in bytes.split_inclusive(|&b| b == b'\n') {
        let line = line.strip_suffix(b"\r\n").expect("every line ends with CRLF");
        assert!(!line.contains(&b'\r'), "{:?}", String::from_utf8_lossy(line));
    }
}

/// Paths are absolute and hold no NUL; ranges are in order.
pub(super) fn check_op(op: &Op) {
    match op {
        Op::Send(spec) => {
            check_path(&spec.path);
            assert!(spec.done.iter().all(|range| range.start <= range.end));
            check_leaves(spec.leaves.as_ref(), spec.ascii);
        }
        Op::Receive(spec) => {
            check_path(&spec.path);
            check_leaves(spec.leaves.as_ref(), spec.ascii);
            assert!(spec.mode.is_none_or(|mode| mode <= 0o7777));
            match &spec.write {
                WriteKind::Restart { done } => assert!(done.iter().all(|range| range.start <= range.end)),
                WriteKind::Chunk { session, .. } => {
                    assert!(!spec.ascii && !session.is_empty());
                    assert!(spec.expected_checksum.is_none() && spec.modified.is_none() && spec.mode.is_none());
                }
                _ => {}
            }
        }
        Op::SendPack(spec) | Op::ReceivePack(spec) => {
            assert_eq!(pack::check_list(&spec.files), Ok(()));
            spec.files.iter().for_each(|file| check_path(&file.path));
        }
        Op::SendListing(spec) | Op::Listing(spec) => check_path(&spec.path),
        Op::Facts { path, .. } | Op::Checksum { path, .. } => check_path(path),
        Op::Size(path) | Op::Modified(path) | Op::EnterDirectory(path) | Op::Exists(path) => check_path(path),
        Op::MakeDirectory(path)
        | Op::RemoveDirectory(path)
        | Op::Delete(path)
        | Op::DeleteTree(path)
        | Op::Sync(path) => {
            check_path(path);
        }
        Op::Rename { from, to } => {
            check_path(from);
            check_path(to);
        }
        Op::SetModified { path, nanoseconds, .. } => {
            check_path(path);
            assert!(*nanoseconds < 1_000_000_000);
        }
        Op::SetMode { path, mode } => {
            check_path(path);
            assert!(*mode <= 0o7777);
        }
        Op::SetGroup { path, .. } | Op::Truncate { path, .. } | Op::Symlink { link: path, .. } => check_path(path),
        Op::Active { targets, params } => assert!(!targets.is_empty() && params.parallelism > 0),
        Op::Passive { params, .. } => assert!(params.parallelism > 0),
        Op::OpenChunked(file) => {
            check_path(&file.path);
            check_leaves(Some(&file.leaves), false);
            assert!(file.size.div_ceil(file.leaves.size) <= leaf::MAX_LEAVES as u64);
        }
        Op::KeepLeaves { path, leaves, .. } => {
            check_path(path);
            assert_eq!(leaf::check_list(leaves), Ok(()));
        }
        Op::KeepHoles { path, holes: list, .. } => {
            check_path(path);
            assert_eq!(holes::check_list(list), Ok(()));
        }
        Op::Extents { path, leaf } => {
            check_path(path);
            assert!(leaf::is_size(*leaf));
        }
        Op::CommitChunked { path, .. } | Op::DropChunked { path, .. } => check_path(path),
        Op::Probe(probe) => {
            check_path(&probe.path);
            assert_ne!(
                probe.kind.uses_data(),
                matches!(probe.kind, ProbeKind::Host | ProbeKind::Read | ProbeKind::Write)
            );
        }
        Op::Relay(announcement) => assert!(announcement.connections > 0 && announcement.seconds > 0),
        Op::CloseData | Op::DataCredential(_) => {}
    }
}

/// Leaves are of a size and an algorithm that exist, and never of converted bytes.
fn check_leaves(leaves: Option<&LeafSpec>, ascii: bool) {
    if let Some(spec) = leaves {
        let known = ["MD5", "ADLER32", "SHA1", "SHA256", "SHA512"].contains(&spec.algorithm.as_str());
        assert!(leaf::is_size(spec.size) && known && !ascii, "{spec:?}");
    }
}

fn check_path(path: &[u8]) {
    assert!(path.starts_with(b"/") && !path.contains(&0), "{:?}", String::from_utf8_lossy(path));
}
