//! Protected lines of a control connection.

use whimbrel_proto::protect::{CommandOpener, CommandSealer, ProtectError, ReplyOpener, ReplySealer, Seal};
use whimbrel_proto::reply::{Reply, ReplyClass, ReplyParser};

use super::input::pieces;

/// Longest line of the opener under test: a small one, so that inputs reach it.
const MAX_LINE: usize = 300;

/// A seal that a fuzzer can write: a mark, then the message as it is.
struct Marked;

const MARK: u8 = b'.';

impl Seal for Marked {
    type Fault = ();

    fn seal(&mut self, plain: &[u8]) -> Result<Vec<u8>, ()> {
        Ok([&[MARK], plain].concat())
    }

    fn open(&mut self, token: &[u8], into: &mut Vec<u8>) -> Result<(), ()> {
        into.extend_from_slice(token.strip_prefix(&[MARK]).ok_or(())?);
        Ok(())
    }

    fn hides(&self) -> bool {
        true
    }
}

/// What was opened, and why no more could be.
type Opened = (Vec<u8>, Result<(), ProtectError<()>>);

/// Any bytes of the wire read the same in pieces, and whatever goes in at one end of a protected connection comes out at the other.
pub fn protected_lines(data: &[u8]) {
    for open in [open_commands, open_replies] {
        let (plain, result) = open(MAX_LINE, &mut std::iter::once(data));
        assert_eq!(open(MAX_LINE, &mut pieces(data)), (plain.clone(), result));
        assert!(plain.is_empty() || plain.ends_with(b"\n"), "only whole lines are handed on");
        // A line takes eight signs of the wire at least, and becomes two bytes without them.
        assert!(plain.len() <= data.len());
        check_both_ways(&plain);
    }
    let mut lines = data.to_vec();
    lines.extend_from_slice(b"\r\n");
    check_both_ways(&lines);
}

fn open_commands(limit: usize, portions: &mut dyn Iterator<Item = &[u8]>) -> Opened {
    let (mut opener, mut plain, mut result) = (CommandOpener::new(limit), Vec::new(), Ok(()));
    while result.is_ok()
        && let Some(portion) = portions.next()
    {
        result = opener.feed(&mut Marked, portion, &mut plain);
    }
    (plain, result)
}

fn open_replies(limit: usize, portions: &mut dyn Iterator<Item = &[u8]>) -> Opened {
    let (mut opener, mut plain, mut result) = (ReplyOpener::new(limit), Vec::new(), Ok(()));
    while result.is_ok()
        && let Some(portion) = portions.next()
    {
        result = opener.feed(&mut Marked, portion, &mut plain);
    }
    (plain, result)
}

/// Whole lines, sealed in any pieces, are opened as they were.
fn check_both_ways(lines: &[u8]) {
    let (mut commands, mut wire) = (CommandSealer::default(), Vec::new());
    pieces(lines).for_each(|piece| commands.feed(&mut Marked, piece, &mut wire).expect("this seal does not fail"));
    assert_eq!(open_commands(lines.len(), &mut pieces(&wire)), (lines.to_vec(), Ok(())));
    let (mut replies, mut wire) = (ReplySealer::default(), Vec::new());
    pieces(lines).for_each(|piece| replies.feed(&mut Marked, piece, &mut wire).expect("this seal does not fail"));
    assert_eq!(open_replies(lines.len(), &mut pieces(&wire)), (lines.to_vec(), Ok(())));
    check_groups(lines, &wire);
}

/// One group of protected lines is one reply, as long as it is replies that are sealed.
fn check_groups(lines: &[u8], wire: &[u8]) {
    let (Some(inner), Some(outer)) = (read(lines), read(wire)) else { return };
    assert!(outer.iter().all(|reply| reply.class() == ReplyClass::Protected && reply.code == 632));
    assert_eq!(outer.len(), inner.len());
    let most = |(group, reply): (&Reply, &Reply)| group.lines.len() <= reply.lines.len();
    assert!(outer.iter().zip(&inner).all(most), "lines are sealed together, and never taken apart");
}

/// The replies of a stream that is nothing but replies as servers write them: readers are lenient about lines behind a 5yz, about a code
/// alone and about LF alone.
fn read(bytes: &[u8]) -> Option<Vec<Reply>> {
    let mut lines = bytes.split_inclusive(|&b| b == b'\n');
    let well_formed = lines.clone().all(|line| line.ends_with(b"\r\n") && line.len() > 5);
    let mut parser = ReplyParser::with_limits(1 << 20, 1 << 24);
    parser.feed(bytes);
    let replies = std::iter::from_fn(|| parser.next_reply()).collect::<Result<Vec<_>, _>>().ok()?;
    let read: usize = replies.iter().map(|reply| reply.lines.len()).sum();
    (well_formed && !parser.is_mid_reply() && read == lines.by_ref().count()).then_some(replies)
}
