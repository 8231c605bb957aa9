//! ERET PACK and ESTO PACK: operations, replies, refusals.

use super::*;
use crate::op::{PackSpec, PackedFile};
use crate::pack;
use crate::reply::ReplyParser;

fn file(path: &str, size: u64) -> PackedFile {
    PackedFile { path: path.into(), size, modified: None, mode: None }
}

/// TYPE I and a MODE E handle.
fn ready() -> Peer {
    let mut peer = Peer::logged_in();
    peer.send("TYPE I");
    peer.send("MODE E");
    peer.passive();
    peer
}

#[test]
fn packs_are_operations_on_resolved_paths_and_the_226_tells_every_file() {
    let mut peer = ready();
    peer.send("SITE LEAVES 16777216 md5");
    let files = vec![file("/home/u/a b", 5), PackedFile { mode: Some(0o640), ..file("/c", 7) }];
    let spec = PackSpec { files, algorithm: Some("MD5".into()), durable: false, vouched: false };
    let failure = Failure { kind: FailureKind::NotFound, text: "no such file".into(), checksums: None };
    let fates = vec![Ok(Some("00ff".into())), Err(failure)];
    let text =
        peer.exchange("ERET PACK 5,-,-,a%20b 7,-,640,/c", &Op::SendPack(spec.clone()), Outcome::Packed(fates.clone()));
    let (opened, end) = text.split_once("\r\n").unwrap();
    assert!(opened.starts_with("150 "), "{text}");
    assert_eq!(
        end,
        "226-Transfer Complete.\r\n FILE 0 OK 00ff\r\n FILE 1 FAILED NOT_FOUND no such file\r\n226 End\r\n"
    );
    let mut parser = ReplyParser::default();
    parser.feed(end.as_bytes());
    assert_eq!(pack::fates_from_reply(&parser.next_reply().unwrap().unwrap(), 2), Ok(fates));
    peer.passive();
    let stored = Outcome::Packed(vec![Ok(None), Ok(None)]);
    peer.exchange("esto pack 5,-,-,a%20b 7,-,640,/c", &Op::ReceivePack(spec), stored);
}

#[test]
fn what_belongs_to_one_file_or_a_stream_does_not_go_with_a_pack() {
    let mut peer = ready();
    for before in ["REST 5", "SCKS MD5 00", "SITE STORATTR modify=20200101000000;", "SITE STORATTR UNIX.mode=644;"] {
        peer.send(before);
        assert!(peer.send("ESTO PACK 5,-,-,/a").starts_with("501 "), "{before}");
    }
    assert!(peer.send("ESTO PACK 0,-,-,/a").starts_with("501 "));
    assert!(peer.send("ESTO PACK").starts_with("501 "));
    let mut peer = Peer::logged_in();
    peer.send("TYPE I");
    peer.passive();
    assert!(peer.send("ERET PACK 5,-,-,/a").starts_with("503 "), "a stream has no gaps");
}
