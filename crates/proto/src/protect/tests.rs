//! Lines through a toy seal, and the lines of a recorded session.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::reply::{Reply, ReplyParser};

/// Counts its tokens, as TLS does: one that is changed, repeated or left out does not open.
#[derive(Default)]
struct Toy {
    made: u8,
    opened: u8,
    clear: bool,
}

const KEY: u8 = 0x5a;

impl Seal for Toy {
    type Fault = &'static str;

    fn seal(&mut self, plain: &[u8]) -> Result<Vec<u8>, &'static str> {
        self.made = self.made.wrapping_add(1);
        Ok(std::iter::once(self.made).chain(plain.iter().map(|b| b ^ KEY)).collect())
    }

    fn open(&mut self, token: &[u8], into: &mut Vec<u8>) -> Result<(), &'static str> {
        self.opened = self.opened.wrapping_add(1);
        match token.split_first() {
            Some((&number, text)) if number == self.opened => into.extend(text.iter().map(|b| b ^ KEY)),
            _ => return Err("out of order"),
        }
        Ok(())
    }

    fn hides(&self) -> bool {
        !self.clear
    }
}

/// Knows the tokens of a recorded session in their order.
#[derive(Default)]
struct Recorded(VecDeque<(Vec<u8>, Vec<u8>)>);

impl Seal for Recorded {
    type Fault = &'static str;

    fn seal(&mut self, plain: &[u8]) -> Result<Vec<u8>, &'static str> {
        self.0.pop_front().filter(|(_, known)| known == plain).map(|(token, _)| token).ok_or("not recorded")
    }

    fn open(&mut self, token: &[u8], into: &mut Vec<u8>) -> Result<(), &'static str> {
        let (_, plain) = self.0.pop_front().filter(|(known, _)| known == token).ok_or("not recorded")?;
        into.extend(plain);
        Ok(())
    }

    fn hides(&self) -> bool {
        true
    }
}

fn sealed(plain: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    CommandSealer::default().feed(&mut Toy::default(), plain, &mut wire).unwrap();
    wire
}

fn opened(wire: &[u8]) -> Result<String, ProtectError<&'static str>> {
    let mut plain = Vec::new();
    CommandOpener::new(200).feed(&mut Toy::default(), wire, &mut plain)?;
    Ok(String::from_utf8(plain).unwrap())
}

/// One `ENC` line around this token.
fn enc(token: &[u8]) -> Vec<u8> {
    format!("ENC {}\r\n", base64::encode(token)).into_bytes()
}

#[test]
fn a_command_becomes_one_protected_line_and_is_read_again() {
    let wire = sealed(b"PWD\r\nRETR a b\xff\r\n");
    let text = String::from_utf8(wire.clone()).unwrap();
    assert!(text.starts_with("ENC ") && text.matches("\r\nENC ").count() == 1 && text.ends_with("\r\n"), "{text}");
    let mut plain = Vec::new();
    CommandOpener::new(200).feed(&mut Toy::default(), &wire, &mut plain).unwrap();
    assert_eq!(plain, b"PWD\r\nRETR a b\xff\r\n");
    let mut wire = Vec::new();
    CommandSealer::default().feed(&mut Toy { clear: true, ..Toy::default() }, b"PWD\r\n", &mut wire).unwrap();
    assert!(wire.starts_with(b"MIC "));
}

#[test]
fn half_a_command_waits_for_its_other_half() {
    let (mut sealer, mut seal, mut wire) = (CommandSealer::default(), Toy::default(), Vec::new());
    sealer.feed(&mut seal, b"PW", &mut wire).unwrap();
    assert!(wire.is_empty());
    sealer.feed(&mut seal, b"D\r\nNO", &mut wire).unwrap();
    assert_eq!(opened(&wire).as_deref(), Ok("PWD\r\n"));
}

#[test]
fn any_protecting_verb_is_taken_in_any_case_and_telnet_signals_are_passed_over() {
    let token = base64::encode(&Toy::default().seal(b"ABOR\r\n").unwrap());
    for verb in ["ENC", "MIC", "CONF", "enc", "Mic"] {
        assert_eq!(opened(format!("{verb} {token}\r\n").as_bytes()).as_deref(), Ok("ABOR\r\n"), "{verb}");
    }
    let signals = [b"\xff\xf4\xff\xf2ENC ", token.as_bytes(), b" \n"].concat();
    assert_eq!(opened(&signals).as_deref(), Ok("ABOR\r\n"));
}

#[test]
fn an_abor_whose_line_feed_is_urgent_data_is_taken_at_its_carriage_return() {
    let wire = sealed(b"ABOR\r\nNOOP\r\n");
    let end = wire.iter().position(|&b| b == b'\n').unwrap();
    let late = [&wire[..end], &wire[end + 1..]].concat();
    let (mut opener, mut seal, mut plain) = (CommandOpener::new(200), Toy::default(), Vec::new());
    opener.feed(&mut seal, &late[..end], &mut plain).unwrap();
    assert_eq!(plain, b"ABOR\r\n");
    opener.feed(&mut seal, &late[end..], &mut plain).unwrap();
    assert_eq!(plain, b"ABOR\r\nNOOP\r\n");
}

// xio_gssapi_ftp of the reference server: one NUL is cut off, a line end put where there is none.
#[test]
fn a_message_becomes_one_line_with_its_end() {
    for (message, line) in [
        (&b"PWD\r\n\0"[..], "PWD\r\n"),
        (b"PWD\0", "PWD\r\n"),
        (b"PWD", "PWD\r\n"),
        (b"PWD\n", "PWD\n"),
        (b"PWD\0\0", "PWD\0\r\n"),
        (b"", "\r\n"),
        (b"\0", "\r\n"),
    ] {
        assert_eq!(opened(&enc(&Toy::default().seal(message).unwrap())).as_deref(), Ok(line), "{message:?}");
    }
}

#[test]
fn nothing_in_clear_is_taken() {
    for line in
        ["PWD\r\n", "\r\n", "ENC\r\n", "ENCX AAAA\r\n", "PASS secret\r\n", "ENC=AAAA\r\n", "\t ENC AAAA\n", " \n"]
    {
        assert_eq!(opened(line.as_bytes()), Err(ProtectError::ClearLine), "{line:?}");
    }
    let glued = [sealed(b"PWD\r\n"), b"PWD\r\n".to_vec()].concat();
    assert_eq!(opened(&glued), Err(ProtectError::ClearLine), "behind a protected line, too");
    assert!(!ProtectError::<&str>::ClearLine.to_string().contains("PASS"));
}

#[test]
fn what_is_no_token_ends_the_connection() {
    assert_eq!(opened(b"ENC ???\r\n"), Err(ProtectError::NotBase64));
    assert_eq!(opened(b"ENC Zg\r\n"), Err(ProtectError::NotBase64));
    assert_eq!(
        opened(b"ENC \r\n"),
        Err(ProtectError::Fault("out of order")),
        "an empty token is for the seal to judge"
    );
    assert_eq!(opened(&sealed(b"PWD\r\n").repeat(2)), Err(ProtectError::Fault("out of order")), "a repeated line");
    let error = ProtectError::Fault("x").to_string();
    assert_eq!(error, "a protected line cannot be opened: x");
}

#[test]
fn a_line_without_an_end_is_bounded() {
    let (mut opener, mut seal, mut plain) = (CommandOpener::new(1000), Toy::default(), Vec::new());
    let mut fed = 0;
    let error = loop {
        match opener.feed(&mut seal, &[b'A'; 100], &mut plain) {
            Ok(()) => fed += 100,
            Err(error) => break error,
        }
    };
    let ProtectError::TooLong { limit } = error else { panic!("{error:?}") };
    assert!(fed <= limit && (1000..3000).contains(&limit), "{limit}");
    let longest = enc(&Toy::default().seal(&[b'x'; 1000]).unwrap());
    assert!(CommandOpener::new(1000).feed(&mut Toy::default(), &longest, &mut plain).is_ok());
    assert!(base64::encode(&[0; 16_400]).len() < super::lines::sealed_len(16_384), "room for what a record costs");
}

fn sealed_replies(plain: &[u8]) -> String {
    let mut wire = Vec::new();
    ReplySealer::default().feed(&mut Toy::default(), plain, &mut wire).unwrap();
    String::from_utf8(wire).unwrap()
}

/// The beginnings of the lines.
fn heads(wire: &str) -> Vec<&str> {
    wire.lines().map(|line| &line[..4]).collect()
}

#[test]
fn one_group_of_protected_lines_is_one_reply() {
    let replies =
        b"220 h\r\n211-Ext\r\n SIZE\r\n211 in the middle? no, the end\r\n550-a\r\n550-b\r\n551 no end\r\n550 End.\r\n";
    let wire = sealed_replies(replies);
    assert_eq!(heads(&wire), ["632 ", "632-", "632 ", "632-", "632 "]);
    let markers = b"112-Perf Marker\r\n Timestamp: 1\r\n112 End.\r\n111 Range Marker 0-5\r\n226 Done\r\n";
    assert_eq!(heads(&sealed_replies(markers)), ["632-", "632 ", "632 ", "632 "]);
    let mut wire = Vec::new();
    ReplySealer::default().feed(&mut Toy { clear: true, ..Toy::default() }, b"200 OK.\r\n", &mut wire).unwrap();
    assert!(wire.starts_with(b"631 "));
}

#[test]
fn lines_of_an_unfinished_reply_go_out_as_they_come() {
    let (mut sealer, mut seal, mut wire) = (ReplySealer::default(), Toy::default(), Vec::new());
    sealer.feed(&mut seal, b"250-Listing\r\n a\r\n b", &mut wire).unwrap();
    assert_eq!(heads(std::str::from_utf8(&wire).unwrap()), ["632-"]);
    sealer.feed(&mut seal, b"\r\n25", &mut wire).unwrap();
    sealer.feed(&mut seal, b"0 End\r\n", &mut wire).unwrap();
    assert_eq!(heads(std::str::from_utf8(&wire).unwrap()), ["632-", "632-", "632 "]);
}

#[test]
fn lines_that_come_together_are_sealed_together_but_not_without_bound_and_never_the_last() {
    let line = [b" ".as_slice(), &[b'x'; 1021], b"\r\n"].concat();
    let long = [b" ".as_slice(), &[b'y'; 2 * MAX_TOGETHER], b"\r\n"].concat();
    let first = b"250-Listing\r\n";
    let listing = [first.as_slice(), &line.repeat(6), &long, &line, b"250 End\r\n"].concat();
    let wire = sealed_replies(&listing);
    assert_eq!(heads(&wire), ["632-", "632-", "632-", "632-", "632 "]);
    let (mut opener, mut seal, mut plain) = (ReplyOpener::new(long.len()), Toy::default(), Vec::new());
    let mut lengths = Vec::new();
    for line in wire.split_inclusive('\n') {
        let before = plain.len();
        opener.feed(&mut seal, line.as_bytes(), &mut plain).unwrap();
        lengths.push(plain.len() - before);
    }
    assert_eq!(plain, listing);
    assert_eq!(lengths, [first.len() + 3 * 1024, 3 * 1024, long.len(), 1024, 9]);
    // Whoever takes no longer lines than that takes as many of them.
    let most = [first.as_slice(), &[b'\n'; MAX_TOGETHER - 13]].concat();
    let (mut opener, mut plain) = (ReplyOpener::new(13), Vec::new());
    opener.feed(&mut Toy::default(), sealed_replies(&most).as_bytes(), &mut plain).unwrap();
    assert_eq!(plain.len(), MAX_TOGETHER);
}

#[test]
fn replies_in_clear_and_replies_that_are_none_are_refused() {
    let open = |wire: &[u8]| {
        let mut plain = Vec::new();
        ReplyOpener::new(200).feed(&mut Toy::default(), wire, &mut plain).map(|()| plain)
    };
    for wire in ["226 Done.\r\n", "\r\n", "63\r\n", "634 AAAA\r\n", "632AAAA\r\n", "732 AAAA\r\n", " 632 AAAA\r\n"] {
        assert_eq!(open(wire.as_bytes()), Err(ProtectError::ClearLine), "{wire:?}");
    }
    assert_eq!(open(b"632 *\r\n"), Err(ProtectError::NotBase64));
    assert_eq!(
        open(&[b'6'; 3 * MAX_TOGETHER]),
        Err(ProtectError::TooLong { limit: super::lines::sealed_len(MAX_TOGETHER) })
    );
    let token = base64::encode(&Toy::default().seal(b"200 OK.").unwrap());
    for head in ["631 ", "632-", "633 "] {
        assert_eq!(open(format!("{head}{token}\n").as_bytes()).unwrap(), b"200 OK.\r\n");
    }
}

/// Lines of the recorded session that begin with `mark`: the wire, and what each token is.
fn recorded(mark: &str) -> (Vec<u8>, Recorded) {
    let (mut wire, mut tokens) = (Vec::new(), VecDeque::new());
    for line in include_str!("tests/gct.txt").lines().filter_map(|line| line.strip_prefix(mark)) {
        let (line, message) = line.split_once(" | ").expect("line and message");
        wire.extend_from_slice(format!("{line}\r\n").as_bytes());
        let token = base64::decode(&line.as_bytes()[4..], 1 << 14).expect("a token");
        let message = message.strip_suffix("\\r\\n").unwrap_or(message);
        tokens.push_back((token, format!("{message}\r\n").into_bytes()));
    }
    assert!(tokens.len() >= 20);
    (wire, Recorded(tokens))
}

#[test]
fn a_recorded_session_reads_as_it_was_and_is_written_the_same() {
    let (wire, mut seal) = recorded("> ");
    let mut commands = Vec::new();
    CommandOpener::new(1000).feed(&mut seal, &wire, &mut commands).unwrap();
    assert!(commands.starts_with(b"USER :globus-mapping:\r\nPASS x\r\nTYPE I\r\n") && seal.0.is_empty());
    let mut again = Vec::new();
    CommandSealer::default().feed(&mut recorded("> ").1, &commands, &mut again).unwrap();
    assert_eq!(again, wire);

    let (wire, mut seal) = recorded("< ");
    let mut replies = Vec::new();
    ReplyOpener::new(1000).feed(&mut seal, &wire, &mut replies).unwrap();
    let mut parser = ReplyParser::default();
    parser.feed(&replies);
    let codes: Vec<u16> = std::iter::from_fn(|| parser.next_reply()).map(|reply| reply.unwrap().code).collect();
    assert_eq!(codes.len(), commands.split(|&b| b == b'\n').count() - 1, "one reply for every command");
    assert_eq!(codes[..5], [331, 230, 200, 211, 257]);
    // Lines that come one by one, as the recorded server writes them.
    let (mut sealer, mut seal, mut again) = (ReplySealer::default(), recorded("< ").1, Vec::new());
    for line in replies.split_inclusive(|&byte| byte == b'\n') {
        sealer.feed(&mut seal, line, &mut again).unwrap();
    }
    assert_eq!(again, wire);
}

/// Feeds pieces whose sizes `cuts` say, the last one repeated.
fn cut<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let (mut rest, mut pieces) = (bytes, Vec::new());
    let mut sizes = cuts.iter().chain(std::iter::repeat(&7));
    while !rest.is_empty() {
        let (piece, after) = rest.split_at((*sizes.next().unwrap()).clamp(1, rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>().prop_filter("ends no line", |b| !matches!(b, b'\r' | b'\n' | 0)), 0..30)
}

fn reply() -> impl Strategy<Value = Reply> {
    (100u16..660, proptest::collection::vec(line(), 1..5)).prop_map(|(code, lines)| Reply { code, lines })
}

proptest! {
    #[test]
    fn commands_come_out_as_they_went_in_however_both_streams_are_cut(
        lines in proptest::collection::vec(line(), 0..6),
        cuts in proptest::collection::vec(1usize..40, 0..12),
    ) {
        let plain: Vec<u8> = lines.iter().flat_map(|line| [line.as_slice(), b"\r\n"].concat()).collect();
        let (mut sealer, mut seal, mut wire) = (CommandSealer::default(), Toy::default(), Vec::new());
        for piece in cut(&plain, &cuts) {
            sealer.feed(&mut seal, piece, &mut wire).unwrap();
        }
        let (mut opener, mut seal, mut out) = (CommandOpener::new(100), Toy::default(), Vec::new());
        for piece in cut(&wire, &cuts) {
            opener.feed(&mut seal, piece, &mut out).unwrap();
        }
        prop_assert_eq!(out, plain);
    }

    #[test]
    fn replies_come_out_as_they_went_in_and_each_is_one_group(
        replies in proptest::collection::vec(reply(), 0..6),
        prefixed in any::<bool>(),
        cuts in proptest::collection::vec(1usize..40, 0..12),
    ) {
        let mut plain = Vec::new();
        for reply in &replies {
            if prefixed { reply.encode_prefixed(&mut plain) } else { reply.encode(&mut plain) }
        }
        let (mut sealer, mut seal, mut wire) = (ReplySealer::default(), Toy::default(), Vec::new());
        for piece in cut(&plain, &cuts) {
            sealer.feed(&mut seal, piece, &mut wire).unwrap();
        }
        let (mut opener, mut seal, mut out) = (ReplyOpener::new(100), Toy::default(), Vec::new());
        for piece in cut(&wire, &cuts) {
            opener.feed(&mut seal, piece, &mut out).unwrap();
        }
        prop_assert_eq!(&out, &plain);
        let (mut outer, mut inner) = (ReplyParser::default(), ReplyParser::default());
        outer.feed(&wire);
        inner.feed(&plain);
        loop {
            let (group, reply) = (outer.next_reply(), inner.next_reply());
            prop_assert_eq!(group.is_some(), reply.is_some());
            if group.is_none() { break }
        }
    }
}
