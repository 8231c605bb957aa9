//! Replies and what they carry.

use std::ops::Range;

use whimbrel_proto::fact;
use whimbrel_proto::feat::{self, Features, SiteHelp};
use whimbrel_proto::holes;
use whimbrel_proto::hostport;
use whimbrel_proto::leaf;
use whimbrel_proto::marker::Marker;
use whimbrel_proto::mlsx;
use whimbrel_proto::op::Leaf;
use whimbrel_proto::pack;
use whimbrel_proto::policy::{self, Rule};
use whimbrel_proto::reply::error_body::{self, ErrorBody, ErrorCause};
use whimbrel_proto::reply::{Reply, ReplyError, ReplyParser};
use whimbrel_proto::spent;

use super::addresses::check_reply;
use super::input::pieces;

/// Limits of the parser under test: small ones, so that inputs reach them.
const MAX_LINE: usize = 300;
const MAX_BYTES: usize = 3000;

/// Most leaves that are cut once more.
const MOST_CUT: usize = 4;

/// Bytes to replies: pieces do not matter, memory is bounded, and all that replies carry is written and read the same.
pub fn reply(data: &[u8]) {
    let whole = read(std::iter::once(data));
    assert_eq!(read(pieces(data)), whole);
    for reply in whole.iter().flatten() {
        assert!((100..700).contains(&reply.code) && !reply.lines.is_empty());
        assert!(reply.lines.iter().map(Vec::len).sum::<usize>() <= MAX_BYTES + MAX_LINE);
        check_text(reply);
        check_styles(reply);
        check_contents(reply);
    }
}

fn read<'a>(portions: impl Iterator<Item = &'a [u8]>) -> Vec<Result<Reply, ReplyError>> {
    let mut parser = ReplyParser::with_limits(MAX_LINE, MAX_BYTES);
    let mut replies = Vec::new();
    let mut last = None;
    for portion in portions {
        parser.feed(portion);
        replies.extend(std::iter::from_fn(|| parser.next_reply()));
        last = portion.last().or(last);
    }
    assert!(parser.is_mid_reply() || last.is_none_or(|&b| b == b'\n'), "an unfinished line is an unfinished reply");
    replies
}

fn check_text(reply: &Reply) {
    assert!(!reply.display_text().chars().any(char::is_control));
    assert!(!(reply.is_success() && reply.is_failure()));
    let ends = if reply.lines.len() > 1 { 2 } else { 1 };
    assert_eq!(reply.middle_lines().len() + ends, reply.lines.len());
    assert_eq!((reply.first_text(), reply.last_text()), (&reply.lines[0][..], &reply.lines[reply.lines.len() - 1][..]));
}

/// Both ways of writing a reply give it back; only CR, which would forge a line end, changes.
fn check_styles(reply: &Reply) {
    let mut safe = reply.clone();
    safe.lines.iter_mut().flatten().filter(|b| **b == b'\r').for_each(|b| *b = b'?');
    let mut prefixed = Vec::new();
    reply.encode_prefixed(&mut prefixed);
    for wire in [reply.to_bytes(), prefixed] {
        let mut parser = ReplyParser::default();
        parser.feed(&wire);
        assert_eq!(parser.next_reply(), Some(Ok(safe.clone())));
        assert!(parser.next_reply().is_none() && !parser.is_mid_reply());
    }
}

fn check_contents(reply: &Reply) {
    if let Some(Ok(marker)) = Marker::parse(reply) {
        assert_eq!(Marker::parse(&marker.to_reply()), Some(Ok(marker)));
    }
    check_leaves(reply);
    check_holes(reply);
    check_fates(reply);
    check_facts(reply);
    check_policy(reply);
    check_features(reply);
    check_error_body(reply);
    if hostport::parse_passive(reply).is_ok() {
        check_reply(reply);
    }
    if let Ok(entry) = mlsx::parse_mlst(reply) {
        assert!(!entry.name.is_empty());
    }
    if let Ok(entries) = mlsx::parse_mlsc(reply) {
        assert_eq!(entries.len(), reply.middle_lines().len());
    }
}

/// Leaves and sessions are written as they were read.
fn check_leaves(reply: &Reply) {
    let leaves = match leaf::from_reply(reply) {
        Ok(leaves) => leaves,
        Err(error) => {
            assert!(leaf::opened_from_reply(reply).is_err_and(|error| !error.to_string().is_empty()));
            return assert!(!error.to_string().is_empty());
        }
    };
    if let Some(from) = leaf::read_from_reply(reply) {
        let line = leaf::read_line(from).into_bytes();
        assert_eq!(leaf::read_from_reply(&Reply::multi(226, "first", vec![line], "End")), Some(from));
    }
    leaves.iter().take(MOST_CUT).for_each(|leaf| check_cut(&leaf.range));
    assert!(leaves.is_empty() || leaf::check_list(&leaves).is_ok());
    check_batches(&leaves);
    let opened = leaf::opened_from_reply(reply);
    let session = opened.as_ref().ok().map(|(session, _)| leaf::session_line(session));
    let lines = session.into_iter().chain(leaves.iter().map(leaf::line)).map(String::into_bytes);
    let again = Reply::multi(reply.code, "first", lines, "End");
    assert_eq!(leaf::from_reply(&again), Ok(leaves));
    assert_eq!(leaf::opened_from_reply(&again).ok(), opened.ok());
}

/// A part is cut into pieces that follow each other and end at borders of leaves.
fn check_cut(part: &Range<u64>) {
    let size = ((part.end - part.start) / 16).next_power_of_two();
    let mut at = part.start;
    for piece in leaf::cut(part, size) {
        assert!(piece.start == at && at < piece.end && piece.end <= part.end);
        assert!(piece.end == part.end || piece.end % size == 0, "{piece:?} of {part:?} in leaves of {size}");
        at = piece.end;
    }
    assert_eq!(at, part.end);
}

/// Holes that a reply names are read as written, from it and from lists of commands.
fn check_holes(reply: &Reply) {
    let Ok((holes, data)) = holes::extents_from_reply(reply) else { return };
    let lines = std::iter::once(holes::data_line(data)).chain(holes.iter().map(holes::line)).map(String::into_bytes);
    let again = Reply::multi(reply.code, "first", lines, "End");
    assert_eq!(holes::extents_from_reply(&again), Ok((holes.clone(), data)));
    check_storage(reply);
    let lists = holes::batches(&holes).map(holes::format_list);
    let read: Vec<_> = lists.flat_map(|list| holes::parse_list(list.as_bytes()).expect("as written")).collect();
    assert_eq!(read, holes);
}

/// What a reply says of the storage is told again by its lines.
fn check_storage(reply: &Reply) {
    let again = |lines: Vec<String>| Reply::multi(200, "first", lines.into_iter().map(String::into_bytes), "End");
    if let Ok(facts) = holes::storage_from_reply(reply) {
        assert_ne!(facts.stripe, Some(0));
        assert_eq!(holes::storage_from_reply(&again(holes::storage_lines(&facts).collect())), Ok(facts));
    }
    if let Ok(bytes) = holes::discarded_from_reply(reply) {
        let line = holes::discarded_line(bytes).into_iter().collect();
        assert_eq!(holes::discarded_from_reply(&again(line)), Ok(bytes));
    }
}

/// What became of packed files is written as it was read, and read for no other number of files.
fn check_fates(reply: &Reply) {
    let count = reply.middle_lines().iter().filter(|line| line.starts_with(b"FILE ")).count();
    let fates = pack::fates_from_reply(reply, count);
    assert!(pack::fates_from_reply(reply, count + 1).is_err());
    let Ok(fates) = fates else { return };
    let lines = fates.iter().enumerate().map(|(number, fate)| pack::fate_line(number, fate).into_bytes());
    let again = Reply::multi(reply.code, "first", lines, "End");
    assert_eq!(pack::fates_from_reply(&again, count), Ok(fates));
}

/// Rules are written as they were read, and nobody reads half of them.
fn check_policy(reply: &Reply) {
    let Ok(rules) = policy::from_reply(reply) else { return };
    assert!(rules.iter().all(Rule::is_valid));
    for rule in &rules {
        assert!(policy::first(&rules, &rule.path).is_some() && rule.policy.and(rule.policy) == rule.policy);
    }
    let again = Reply::multi(reply.code, "first", rules.iter().map(policy::line), "End");
    assert_eq!(policy::from_reply(&again), Ok(rules));
}

/// What a probe found out and what a transfer spent is written as it was read, except signs that no line may hold.
fn check_facts(reply: &Reply) {
    let again = |reply: &Reply| {
        let lines = fact::from_reply(reply).into_iter().filter_map(|fact| fact::line(&fact)).map(String::into_bytes);
        Reply::multi(reply.code, "first", lines, "End")
    };
    let (facts, once) = (fact::from_reply(reply), again(reply));
    let names = |facts: &[whimbrel_proto::op::Fact]| facts.iter().map(|fact| fact.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&fact::from_reply(&once)), names(&facts));
    assert_eq!(fact::from_reply(&again(&once)), fact::from_reply(&once));
    if let Some(told) = spent::from_reply(reply) {
        let line = spent::line(&told).into_bytes();
        assert_eq!(spent::from_reply(&Reply::multi(reply.code, "first", vec![line], "End")), Some(told));
    }
}

/// What one reply carries goes back in commands that are read as written, and fits a file of leaves that large.
fn check_batches(leaves: &[Leaf]) {
    let mut batched = Vec::new();
    for batch in leaf::batches(leaves) {
        let list = leaf::format_list(batch);
        assert!(list.len() <= leaf::MAX_KEPT_BYTES);
        assert_eq!(leaf::parse_list(list.as_bytes()).as_deref(), Ok(batch));
        batched.extend_from_slice(batch);
    }
    assert_eq!(batched, leaves);
    let end = leaves.last().map_or(0, |leaf| leaf.range.end);
    if let Some(size) = leaf::size_for(end, 0) {
        assert!(leaf::is_size(size) && end.div_ceil(size) <= leaf::MAX_LEAVES as u64);
    }
}

fn check_features(reply: &Reply) {
    let features = Features::parse(reply);
    assert_eq!(features.is_known(), reply.is_success() || matches!(reply.code, 500 | 502));
    if features.is_known() {
        assert_eq!(Features::parse(&features.to_reply()), features);
    }
    assert!(features.checksums().is_sorted_by_key(|checksum| checksum.preference));
    for fact in features.facts() {
        assert!(!fact.name.contains(';'));
    }
    for line in features.lines() {
        assert!(!line.is_empty());
        let label: String = line.chars().take_while(|c| !" ;=".contains(*c)).collect();
        assert!(features.has(&label), "{label:?}");
    }
    check_feature_lines(&features);
    let _ = SiteHelp::parse(reply).has("SYMLINK");
}

/// Checksums and facts are read again as they were, except a name that the line's separators would swallow.
fn check_feature_lines(features: &Features) {
    let (checksums, facts) = (features.checksums(), features.facts());
    let lines = [
        feat::cksm_line(checksums.iter().map(|checksum| (checksum.name.as_str(), checksum.preference))),
        feat::mlst_line(facts.iter().map(|fact| (fact.name.as_str(), fact.default))),
    ];
    let again = Features::from_lines(lines);
    if !checksums.first().is_some_and(|first| first.name.starts_with('=')) {
        assert_eq!(again.checksums(), checksums);
    }
    assert_eq!(again.facts(), facts);
}

fn check_error_body(reply: &Reply) {
    let cause = error_body::cause_of(reply);
    assert!(cause.is_none() || reply.is_failure());
    let Some(body) = ErrorBody::parse(reply) else { return };
    assert_eq!(ErrorCause::from_name(body.cause.name()), body.cause);
    assert!(matches!(body.cause.code(), 400..=599));
    if let Some(errno) = body.errno {
        assert!(matches!(error_body::from_errno(errno).0, 400..=599));
    }
    if reply.is_failure() {
        assert_eq!(cause.as_ref(), Some(&body.cause));
    }
    assert_eq!(ErrorBody::parse(&body.to_reply(reply.code)), Some(body));
}
