use proptest::prelude::*;

use super::*;

fn parse_all(bytes: &[u8]) -> Vec<Result<Reply, ReplyError>> {
    let mut parser = ReplyParser::default();
    parser.feed(bytes);
    std::iter::from_fn(|| parser.next_reply()).collect()
}

fn texts(reply: &Reply) -> Vec<&str> {
    reply.lines.iter().map(|l| std::str::from_utf8(l).unwrap()).collect()
}

// RFC 959 §4.2: "the last line will begin with the same code, followed immediately by Space <SP>".
#[test]
fn only_the_same_code_and_a_space_ends_a_reply() {
    let got = parse_all(b"123-First line\r\nSecond line\r\n  234 A line beginning with numbers\r\n456 other\r\n123-more\r\n123 The last line\r\n");
    assert_eq!(got.len(), 1);
    let reply = got[0].as_ref().unwrap();
    assert_eq!(
        texts(reply),
        ["First line", "Second line", " 234 A line beginning with numbers", "456 other", "more", "The last line"]
    );
    assert_eq!(reply.class(), ReplyClass::Preliminary);
}

#[test]
fn both_styles_of_middle_lines_lose_their_prefix() {
    let got = parse_all(b"250-status of /d\r\n Type=file; /d\r\n250 End.\r\n550-a\r\n550-b\r\n550 End.\r\n");
    assert_eq!(texts(got[0].as_ref().unwrap()), ["status of /d", "Type=file; /d", "End."]);
    assert_eq!(texts(got[1].as_ref().unwrap()), ["a", "b", "End."]);
    assert_eq!(got[1].as_ref().unwrap().middle_lines(), [b"b"]);
}

#[test]
fn a_crlf_inside_a_501_does_not_desynchronise() {
    let got = parse_all(b"501 'TYPE X\r\n' unrecognized type.\r\n200 ok\r\n");
    let codes: Vec<_> = got.iter().map(|r| r.as_ref().map(|r| r.code)).collect();
    assert_eq!(codes, [Ok(501), Ok(200)]);
}

#[test]
fn text_without_a_code_is_an_error_and_the_next_reply_is_still_read() {
    let got = parse_all(b"200 fine\r\nSSH-2.0-x\r\n200 ok\r\n");
    assert_eq!(got[1], Err(ReplyError::NoCode));
    assert_eq!(got[2].as_ref().unwrap().code, 200);
}

#[test]
fn a_bare_code_is_a_reply() {
    assert_eq!(parse_all(b"200\r\n"), [Ok(Reply::line(200, ""))]);
    assert_eq!(parse_all(b"700 x\r\n"), [Err(ReplyError::NoCode)]);
    assert_eq!(parse_all(b"200x\r\n"), [Err(ReplyError::NoCode)]);
}

#[test]
fn limits_stop_endless_lines_and_replies() {
    let mut parser = ReplyParser::with_limits(64, 1000);
    parser.feed(&[b'2'; 200]);
    parser.feed(b"\r\n250-x\r\n");
    assert_eq!(parser.next_reply(), Some(Err(ReplyError::LineTooLong)));
    for _ in 0..40 {
        parser.feed(b"\r\n");
    }
    assert_eq!(parser.next_reply(), Some(Err(ReplyError::TooLarge)));
}

#[test]
fn an_open_reply_is_told() {
    let mut parser = ReplyParser::default();
    parser.feed(b"250-x\r\n");
    assert!(parser.is_mid_reply());
    parser.feed(b"250 y\r\n");
    assert!(!parser.is_mid_reply());
    parser.feed(b"25");
    assert!(parser.is_mid_reply());
}

#[test]
fn echoed_line_ends_cannot_forge_a_reply() {
    let mut out = Vec::new();
    Reply::line(501, "bad 'x\r\n226 done'").encode(&mut out);
    assert_eq!(out, b"501 bad 'x??226 done'\r\n");
}

#[test]
fn a_middle_line_that_looks_like_the_end_stays_inside() {
    let reply = Reply::multi(250, "Contents", ["250 fake"], "End.");
    assert_eq!(parse_all(&reply.to_bytes()), [Ok(reply)]);
}

proptest! {
    #[test]
    fn any_reply_survives_both_styles_in_any_pieces(
        code in 100u16..700,
        lines in proptest::collection::vec("[ -~]{0,30}", 1..6),
        cut in 1usize..9,
    ) {
        let reply = Reply::from_lines(code, lines);
        let mut prefixed = Vec::new();
        reply.encode_prefixed(&mut prefixed);
        for bytes in [reply.to_bytes(), prefixed] {
            let mut parser = ReplyParser::default();
            bytes.chunks(cut).for_each(|piece| parser.feed(piece));
            prop_assert_eq!(parser.next_reply(), Some(Ok(reply.clone())));
            prop_assert_eq!(parser.next_reply(), None);
        }
    }

    #[test]
    fn reading_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_all(&bytes);
    }
}

#[test]
fn a_long_reply_can_be_taken_as_it_comes_but_never_a_refusal() {
    let mut parser = ReplyParser::with_limits(100, 200);
    parser.feed(b"250-list\r\n");
    for n in 0..100 {
        parser.feed(format!(" entry {n}\r\n").as_bytes());
        assert_eq!(parser.take_middle_lines(), [format!("entry {n}").into_bytes()]);
    }
    parser.feed(b" last\r\n250 End\r\n500-no\r\n500-why\r\n");
    assert!(parser.take_middle_lines().is_empty());
    assert_eq!(texts(&parser.next_reply().unwrap().unwrap()), ["list", "last", "End"]);
    parser.feed(b"500 End\r\n");
    assert_eq!(texts(&parser.next_reply().unwrap().unwrap()), ["no", "why", "End"]);
}
