use super::*;
use crate::tls::rehearsal;

/// Both ends of one direction.
fn ends() -> (Sealer, Opener) {
    rehearsal([7; 32])
}

fn sealed(sealer: &mut Sealer, plain: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    let from = sealer.begin(&mut wire).expect("begun");
    wire.extend_from_slice(plain);
    sealer.end(from, &mut wire).expect("sealed");
    wire
}

/// A record of any type, for what no [`Sealer`] sends.
fn record(sealer: &mut Sealer, kind: u8, content: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    sealer.whole(kind, content, &mut wire).expect("sealed");
    wire
}

fn data(opener: &mut Opener, wire: &mut [u8]) -> Vec<u8> {
    let Incoming::Data { plain, used } = opener.open(wire).expect("a record") else { panic!("no data") };
    assert_eq!(used, wire.len());
    wire[plain].to_vec()
}

/// What a record that ends the connection is called.
fn refused(opener: &mut Opener, mut wire: Vec<u8>) -> (Option<u8>, String) {
    let broken = opener.open(&mut wire).expect_err("no such record");
    (broken.alert, broken.fault.detail)
}

#[test]
fn what_is_sealed_comes_out_again() {
    let (mut sealer, mut opener) = ends();
    for size in [1, 2, 1000, RECORD] {
        let plain = vec![size as u8; size];
        let mut wire = sealed(&mut sealer, &plain);
        assert_eq!(wire.len(), size + OVERHEAD);
        assert!(!wire.windows(4).any(|window| plain.len() >= 4 && window == &plain[..4]));
        assert_eq!(data(&mut opener, &mut wire), plain);
    }
}

#[test]
fn a_record_waits_for_its_last_byte() {
    let (mut sealer, mut opener) = ends();
    let mut wire = sealed(&mut sealer, b"whole");
    for short in 0..wire.len() {
        assert!(!Opener::is_ready(&wire[..short]));
        assert_eq!(opener.open(&mut wire[..short]).expect("patience"), Incoming::Part);
    }
    assert!(Opener::is_ready(&wire));
    assert_eq!(data(&mut opener, &mut wire), b"whole");
}

#[test]
fn no_bit_of_a_record_can_be_changed() {
    let wire = sealed(&mut ends().0, b"one");
    for bit in 0..wire.len() * 8 {
        let mut forged = wire.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        match ends().1.open(&mut forged) {
            // A length that grew waits for what never comes.
            Ok(Incoming::Part) => assert!((3..5).contains(&(bit / 8)), "bit {bit}"),
            Ok(other) => panic!("bit {bit}: {other:?}"),
            Err(broken) => assert_eq!(broken.fault.code, FaultCode::EncryptionFailed),
        }
    }
}

#[test]
fn records_come_once_and_in_order() {
    let (mut sealer, mut opener) = ends();
    let (first, second) = (sealed(&mut sealer, b"first"), sealed(&mut sealer, b"second"));
    assert_eq!(refused(&mut ends().1, second.clone()).0, Some(BAD_RECORD), "the second before the first");
    assert_eq!(data(&mut opener, &mut first.clone()), b"first");
    assert_eq!(refused(&mut opener, first).0, Some(BAD_RECORD), "the first again");
}

#[test]
fn keys_change_where_both_sides_see_it() {
    let (mut sealer, mut opener) = ends();
    let mut renewal = Vec::new();
    sealer.renew(&mut renewal).expect("renewed");
    assert_eq!(sealer.keys.records, 0);
    let mut behind = sealed(&mut sealer, b"behind");
    assert_eq!(refused(&mut ends().1, behind.clone()).0, Some(BAD_RECORD), "under the old keys");
    assert_eq!(opener.open(&mut renewal).expect("an update"), Incoming::Aside(renewal.len()));
    assert_eq!(data(&mut opener, &mut behind), b"behind");
}

#[test]
fn worn_keys_are_renewed_without_being_asked() {
    let (mut sealer, mut opener) = ends();
    (sealer.keys.records, opener.keys.records) = (WORN - 1, WORN - 1);
    assert_eq!(data(&mut opener, &mut sealed(&mut sealer, b"last")), b"last");
    let mut wire = sealed(&mut sealer, b"first");
    let Incoming::Aside(used) = opener.open(&mut wire).expect("an update") else { panic!("no update") };
    assert_eq!(data(&mut opener, &mut wire[used..]), b"first");
    assert_eq!(sealer.keys.records, 1);
}

#[test]
fn who_asks_for_new_keys_is_told_apart() {
    let (mut sealer, mut opener) = ends();
    let mut wire = record(&mut sealer, HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 1]);
    assert_eq!(opener.open(&mut wire).expect("an update"), Incoming::Renew(wire.len()));
    let mut wire = record(&mut ends().0, HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 2]);
    assert_eq!(ends().1.open(&mut wire).expect_err("no such wish").alert, Some(DECODE_ERROR));
}

#[test]
fn new_keys_may_not_hide_what_stood_behind_them() {
    let (mut sealer, mut opener) = ends();
    let wire = record(&mut sealer, HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 0, TICKET, 0, 0, 0]);
    assert_eq!(refused(&mut opener, wire).0, Some(DECODE_ERROR));
}

#[test]
fn tickets_are_left_aside_also_in_two_parts() {
    let (mut sealer, mut opener) = ends();
    let ticket = [&[TICKET, 0, 0, 40][..], &[1; 40]].concat();
    for part in [&ticket[..2], &ticket[2..30], &ticket[30..]] {
        let mut wire = record(&mut sealer, HANDSHAKE, part);
        assert_eq!(opener.open(&mut wire).expect("a ticket"), Incoming::Aside(wire.len()));
    }
    assert!(opener.message.is_empty());
    assert_eq!(data(&mut opener, &mut sealed(&mut sealer, b"data")), b"data");
}

#[test]
fn a_message_is_not_interrupted() {
    let (mut sealer, mut opener) = ends();
    let mut wire = record(&mut sealer, HANDSHAKE, &[TICKET, 0, 0, 40, 1]);
    opener.open(&mut wire).expect("the beginning");
    let (alert, why) = refused(&mut opener, sealed(&mut sealer, b"data"));
    assert_eq!(alert, Some(UNEXPECTED_MESSAGE));
    assert!(why.contains("interrupted"), "{why}");
}

#[test]
fn records_that_bring_nothing_are_counted() {
    type Flood = fn(&mut Sealer) -> Vec<u8>;
    let floods: [Flood; 3] = [
        |sealer| sealed(sealer, b""),
        |sealer| record(sealer, HANDSHAKE, &[TICKET, 0, 0, 0]),
        |sealer| {
            let mut wire = Vec::new();
            sealer.renew(&mut wire).expect("renewed");
            wire
        },
    ];
    for flood in floods {
        let (mut sealer, mut opener) = ends();
        for _ in 0..IDLE {
            opener.open(&mut flood(&mut sealer)).expect("as many as anybody needs");
        }
        assert_eq!(refused(&mut opener, flood(&mut sealer)).0, Some(UNEXPECTED_MESSAGE));
    }
}

#[test]
fn what_belongs_elsewhere_ends_the_connection() {
    for (kind, content) in [(HANDSHAKE, &[1, 0, 0, 0][..]), (HANDSHAKE, &[]), (20, &[1]), (99, b"what"), (0, b"")] {
        let (mut sealer, mut opener) = ends();
        let wire = record(&mut sealer, kind, content);
        assert_eq!(refused(&mut opener, wire).0, Some(UNEXPECTED_MESSAGE), "type {kind}");
    }
    let long = vec![3; RECORD + 1];
    let (mut sealer, mut opener) = ends();
    let wire = sealed(&mut sealer, &long);
    assert_eq!(refused(&mut opener, wire).0, Some(RECORD_OVERFLOW));
    for header in [[DATA, 3, 3, 0xff, 0xff], [DATA, 3, 3, 0, 16], [ALERT, 3, 3, 0, 2], *b"GET /"] {
        assert!(Opener::is_ready(&header), "it is no use to wait");
        assert!(ends().1.open(&mut header.to_vec()).is_err(), "{header:?}");
    }
}

#[test]
fn padding_is_taken_off() {
    let (mut sealer, mut opener) = ends();
    // The type that the sealer adds is padding behind another type.
    let mut wire = record(&mut sealer, 0, &[b"data", &[DATA][..], &[0; 100]].concat());
    let Incoming::Data { plain, .. } = opener.open(&mut wire).expect("a record") else { panic!("no data") };
    assert_eq!(&wire[plain], b"data");
}

#[test]
fn alerts_are_told_apart() {
    let alert = |bytes: &[u8]| ends().1.open(&mut record(&mut ends().0, ALERT, bytes));
    assert_eq!(alert(&[1, CLOSE_NOTIFY]).expect("farewell"), Incoming::End);
    assert!(matches!(alert(&[1, USER_CANCELED]), Ok(Incoming::Aside(_))));
    let revoked = alert(&[2, 44]).expect_err("an alert");
    assert_eq!((revoked.alert, revoked.fault.code), (None, FaultCode::CredentialRejected));
    assert_eq!(alert(&[2]).expect_err("half an alert").alert, Some(DECODE_ERROR));
    let (mut sealer, mut wire) = (ends().0, Vec::new());
    sealer.farewell(&mut wire).expect("sealed");
    assert_eq!(ends().1.open(&mut wire).expect("farewell"), Incoming::End);
}

#[test]
fn what_is_wrong_is_told_once() {
    let told = |alert| {
        let (mut wire, fault) = (Vec::new(), TrustFault::new(FaultCode::EncryptionFailed, "wrong"));
        ends().0.give_up(&Broken { alert, fault }, &mut wire).expect("sealed");
        wire
    };
    assert!(told(None).is_empty());
    let heard = ends().1.open(&mut told(Some(BAD_RECORD))).expect_err("an alert");
    assert_eq!((heard.alert, heard.fault.code), (None, FaultCode::EncryptionFailed));
}
