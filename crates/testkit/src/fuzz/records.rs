//! Records of encrypted data channels.

use whimbrel_engine::FaultCode;
use whimbrel_trust::tls::{Broken, Incoming, Opener, Sealer, rehearsal};

use super::input::pieces;

/// Known to both ends, so that anything can stand inside records.
const SECRET: [u8; 32] = [7; 32];

/// Types of content (RFC 8446 appendix B.1).
const PADDING: u8 = 0;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// Marks bytes that are sent as they are.
const CLEAR: u8 = 255;

/// New keys, and none asked for in return (RFC 8446 §4.6.3).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// What came out, how often new keys were asked for, and how it ended.
type Opened = (Vec<u8>, usize, Option<Result<(), FaultCode>>);

/// Records of any type, and bytes that are none, read the same in pieces; nothing comes out that was not sealed as data.
pub fn records(data: &[u8]) {
    let (wire, plain) = wire(data);
    let whole = open(&mut std::iter::once(&wire[..]));
    assert_eq!(open(&mut pieces(&wire)), whole);
    assert!(plain.starts_with(&whole.0));
}

/// What a sender makes of choices, a type, a length and content each; and the plain bytes among it.
fn wire(mut data: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut sealer, mut wire, mut plain) = (rehearsal(SECRET).0, Vec::new(), Vec::new());
    while let [kind, length, rest @ ..] = data {
        let (content, behind) = rest.split_at(rest.len().min(usize::from(*length)));
        send(&mut sealer, *kind, content, &mut wire);
        plain.extend_from_slice(plain_of(*kind, content));
        data = behind;
    }
    (wire, plain)
}

fn send(sealer: &mut Sealer, kind: u8, content: &[u8], wire: &mut Vec<u8>) {
    match (kind, content) {
        (CLEAR, _) => wire.extend_from_slice(content),
        (DATA, _) => {
            let from = sealer.begin(wire).expect("keys last longer");
            wire.extend_from_slice(content);
            sealer.end(from, wire).expect("sealed");
        }
        (ALERT, [1, 0]) => sealer.farewell(wire).expect("sealed"),
        (HANDSHAKE, content) if content == KEY_UPDATE => sealer.renew(wire).expect("keys follow from keys"),
        _ => sealer.whole(kind, content, wire).expect("sealed"),
    }
}

fn plain_of(kind: u8, content: &[u8]) -> &[u8] {
    match kind {
        DATA => content,
        // The type is the last byte that is not padding (RFC 8446 §5.4).
        PADDING => match content.iter().rposition(|byte| *byte != PADDING) {
            Some(end) if content[end] == DATA => &content[..end],
            _ => &[],
        },
        _ => &[],
    }
}

/// The other side is told what is wrong, unless it has said so itself.
fn check_last_words(broken: &Broken) {
    let mut told = Vec::new();
    rehearsal(SECRET).0.give_up(broken, &mut told).expect("sealed");
    assert!(told.is_empty() || Opener::is_ready(&told));
}

fn open(portions: &mut dyn Iterator<Item = &[u8]>) -> Opened {
    let (mut opener, mut wire) = (rehearsal(SECRET).1, Vec::new());
    let (mut plain, mut renewals) = (Vec::new(), 0);
    for portion in portions {
        wire.extend_from_slice(portion);
        loop {
            let ready = Opener::is_ready(&wire);
            let opened = opener.open(&mut wire);
            assert_eq!(ready, !matches!(opened, Ok(Incoming::Part)));
            let used = match opened {
                Ok(Incoming::Part) => break,
                Ok(Incoming::Data { plain: at, used }) => {
                    plain.extend_from_slice(&wire[at]);
                    used
                }
                Ok(Incoming::Aside(used)) => used,
                Ok(Incoming::Renew(used)) => {
                    renewals += 1;
                    used
                }
                Ok(Incoming::End) => return (plain, renewals, Some(Ok(()))),
                Err(broken) => {
                    check_last_words(&broken);
                    return (plain, renewals, Some(Err(broken.fault.code)));
                }
            };
            wire.drain(..used);
        }
    }
    (plain, renewals, None)
}
