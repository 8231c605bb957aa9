use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::op::Layout;

fn receiver(channels: u32) -> ReceiveMachine {
    let mut machine = ReceiveMachine::new(ReceiveConfig::default());
    (0..channels).for_each(|_| {
        machine.add_channel(true).unwrap();
    });
    machine
}

fn eof(bits: u8, eodc: u64) -> Header {
    Header { descriptor: EOF | bits, count: 0, offset: eodc }
}

fn eod(bits: u8) -> Header {
    Header { descriptor: EOD | bits, count: 0, offset: 0 }
}

/// The bytes of every channel of a sender that deals its steps in turn.
fn run_sender(config: SendConfig, channels: u32, size: u64) -> Vec<Vec<(Header, u64)>> {
    let mut machine = SendMachine::new(config);
    (0..channels).for_each(|_| {
        machine.add_channel(true).unwrap();
    });
    let mut out = vec![Vec::new(); channels as usize];
    while !machine.is_finished() {
        for id in 0..channels {
            let head = match machine.next(id).unwrap() {
                SendStep::Payload(range) => {
                    let len = range.end.min(size).saturating_sub(range.start);
                    if len < range.end - range.start {
                        machine.source_ended();
                    }
                    machine.head(id, len).unwrap()
                }
                SendStep::Finish { head, .. } => Some(head),
                SendStep::Done => None,
            };
            for wire in head.iter().flat_map(|h| h.as_ref().chunks(HEADER_LEN)) {
                let header = Header::decode(wire.try_into().unwrap());
                out[id as usize].push((header, if header.has(EOF) { 0 } else { header.count }));
            }
        }
    }
    out
}

#[test]
fn the_real_bytes_of_a_two_channel_transfer_are_made() {
    let mut machine = SendMachine::new(SendConfig::new(std::iter::once(0..6).collect()));
    let (a, b) = (machine.add_channel(true).unwrap(), machine.add_channel(true).unwrap());
    assert_eq!(machine.next(a), Ok(SendStep::Payload(0..6)));
    assert_eq!(machine.head(a, 6).unwrap().unwrap().as_ref(), b"\0\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\0");
    let SendStep::Finish { head, close: false } = machine.next(a).unwrap() else { panic!("EOF is due") };
    assert_eq!(head.as_ref(), b"\x48\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02");
    let SendStep::Finish { head, .. } = machine.next(b).unwrap() else { panic!("EOD is due") };
    assert_eq!(head.as_ref(), b"\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(machine.next(b), Ok(SendStep::Done));
    assert!(machine.is_finished());
    assert_eq!(machine.add_channel(true), Err(SendError::AfterEof));
}

#[test]
fn the_nonce_leads_only_on_fresh_channels() {
    let nonce = *b"0123456789abcdef";
    let mut sender = SendMachine::new(SendConfig { nonce: Some(nonce), ..SendConfig::new(vec![]) });
    let (fresh, cached) = (sender.add_channel(true).unwrap(), sender.add_channel(false).unwrap());
    let config = ReceiveConfig { nonce: Some(nonce), ..ReceiveConfig::default() };
    let mut receiver = ReceiveMachine::new(config);
    for (id, is_fresh) in [(fresh, true), (cached, false)] {
        let SendStep::Finish { head, .. } = sender.next(id).unwrap() else { panic!("nothing to send") };
        assert_eq!(head.as_ref().len(), if is_fresh { 51 } else { 17 });
        let channel = receiver.add_channel(is_fresh).unwrap();
        for byte in head.as_ref() {
            receiver.feed(channel, &[*byte]).unwrap();
        }
    }
    assert!(receiver.is_complete());
}

#[test]
fn a_stranger_is_turned_away_and_the_transfer_goes_on() {
    let config = ReceiveConfig { nonce: Some([7; 16]), ..ReceiveConfig::default() };
    let mut machine = ReceiveMachine::new(config);
    let stranger = machine.add_channel(true).unwrap();
    let error = machine.header(stranger, Header::data(0, 5)).unwrap_err();
    assert!(error == ReceiveError::Stranger && error.is_channel_only());
    let friend = machine.add_channel(true).unwrap();
    for header in nonce_blocks(&[7; 16]).into_iter().chain([eof(EOD, 1)]) {
        machine.header(friend, header).unwrap();
    }
    assert!(machine.is_complete());
}

#[test]
fn a_stock_receiver_ignores_nonce_blocks() {
    let mut machine = receiver(1);
    for header in nonce_blocks(&[9; 16]) {
        assert_eq!(machine.header(0, header), Ok(ReceiveStep::Header));
    }
    machine.header(0, eof(EOD, 1)).unwrap();
    assert!(machine.is_complete());
}

// "complete when EODs received = EODC. EOF may come on any connection at any time, before data too".
#[test]
fn eof_may_come_first_and_apart_from_eod() {
    let mut machine = receiver(2);
    assert_eq!(machine.header(0, eof(0, 2)), Ok(ReceiveStep::Header));
    assert_eq!(machine.header(0, Header::data(10, 4)), Ok(ReceiveStep::Payload { offset: 10, len: 4 }));
    assert_eq!(machine.payload(0, 3), Ok(None));
    assert_eq!(machine.payload_left(0), 1);
    assert_eq!(machine.payload(0, 1), Ok(Some(ReceiveStep::Header)));
    assert_eq!(machine.header(0, eod(0)), Ok(ReceiveStep::EndOfData { close: false }));
    assert!(!machine.is_complete());
    let last = Header { descriptor: EOD | CLOSE, count: 2, offset: 0 };
    assert_eq!(machine.header(1, last), Ok(ReceiveStep::Payload { offset: 0, len: 2 }));
    assert!(!machine.is_complete(), "EOD counts when its data arrived");
    assert_eq!(machine.payload(1, 2), Ok(Some(ReceiveStep::EndOfData { close: true })));
    assert!(machine.is_complete());
    assert_eq!(machine.received(), 6);
}

#[test]
fn broken_ends_have_names() {
    let mut machine = receiver(1);
    machine.header(0, eof(0, 2)).unwrap();
    assert_eq!(machine.header(0, eof(0, 2)), Err(ReceiveError::DuplicateEof));
    assert_eq!(receiver(1).header(0, eof(EOD, 0)), Err(ReceiveError::BadEodc(0)));
    assert_eq!(receiver(1).header(0, eof(EOD, 1 << 40)), Err(ReceiveError::BadEodc(1 << 40)));
    assert_eq!(
        receiver(1).header(0, Header { descriptor: CLOSE, count: 0, offset: 0 }),
        Err(ReceiveError::CloseWithoutEod)
    );
    let mut machine = receiver(2);
    machine.header(0, eof(EOD, 1)).unwrap();
    assert_eq!(machine.header(1, eod(0)), Err(ReceiveError::TooManyEods));
    assert_eq!(machine.header(0, Header::data(0, 1)), Err(ReceiveError::AfterEod));
    let mut machine = receiver(3);
    machine.header(0, eod(0)).unwrap();
    machine.header(1, eod(0)).unwrap();
    assert_eq!(machine.header(2, eof(0, 1)), Err(ReceiveError::TooManyEods));
}

#[test]
fn blocks_outside_what_was_promised_or_can_exist_are_refused() {
    let config = ReceiveConfig { promised: Some(10..20), shift: 100, ..ReceiveConfig::default() };
    let mut machine = ReceiveMachine::new(config);
    machine.add_channel(true).unwrap();
    assert_eq!(machine.header(0, Header::data(15, 6)), Err(ReceiveError::BeyondPromise { offset: 15, count: 6 }));
    assert_eq!(machine.header(0, Header::data(9, 1)), Err(ReceiveError::BeyondPromise { offset: 9, count: 1 }));
    assert_eq!(machine.header(0, Header::data(15, 5)), Ok(ReceiveStep::Payload { offset: 115, len: 5 }));
    for header in [Header::data(u64::MAX, 1), Header::data(1, u64::MAX), Header::data(i64::MAX as u64, 1)] {
        assert!(matches!(receiver(1).header(0, header), Err(ReceiveError::Overflow { .. })));
    }
}

#[test]
fn closing_means_what_the_moment_says() {
    let mut machine = receiver(3);
    assert_eq!(machine.closed(0), Ok(()), "a port scanner");
    machine.feed(1, &[0; 5]).unwrap();
    assert_eq!(machine.closed(1), Err(ReceiveError::ClosedMidBlock));
    machine.header(2, Header::data(0, 5)).unwrap();
    machine.payload(2, 4).unwrap();
    assert_eq!(machine.closed(2), Err(ReceiveError::ClosedMidBlock));

    let mut machine = receiver(1);
    machine.header(0, Header::data(0, 0)).unwrap();
    assert_eq!(machine.closed(0), Err(ReceiveError::ClosedBeforeEod));

    let mut machine = receiver(2);
    machine.header(0, eod(0)).unwrap();
    machine.header(1, eod(0)).unwrap();
    assert_eq!(machine.closed(0), Ok(()));
    assert_eq!(machine.closed(1), Err(ReceiveError::NoEof));
}

#[test]
fn restart_marker_blocks_are_no_file_data() {
    let mut machine = receiver(1);
    let marker = Header { descriptor: RESTART, count: 3, offset: 50 };
    assert_eq!(machine.header(0, marker), Ok(ReceiveStep::Discard { len: 3 }));
    machine.payload(0, 3).unwrap();
    assert_eq!(machine.received(), 0);
}

#[test]
fn misuse_is_refused() {
    let mut machine = receiver(1);
    assert_eq!(machine.payload(0, 1), Err(ReceiveError::NotExpected));
    machine.header(0, Header::data(0, 2)).unwrap();
    assert_eq!(machine.payload(0, 3), Err(ReceiveError::NotExpected));
    assert_eq!(machine.feed(9, b"x"), Err(ReceiveError::NotExpected));
    let mut sender = SendMachine::new(SendConfig::new(std::iter::once(0..6).collect()));
    assert_eq!(sender.next(0), Err(SendError::NoChannel));
    let id = sender.add_channel(true).unwrap();
    assert_eq!(sender.head(id, 1), Err(SendError::NotTaken));
    sender.next(id).unwrap();
    assert_eq!(sender.head(id, 7), Err(SendError::NotTaken));
    assert_eq!(sender.next(id), Err(SendError::NotTaken));
}

#[test]
fn channels_are_bounded() {
    let mut machine = ReceiveMachine::new(ReceiveConfig { max_channels: 2, ..ReceiveConfig::default() });
    machine.add_channel(true).unwrap();
    machine.add_channel(true).unwrap();
    assert_eq!(machine.add_channel(true), Err(ReceiveError::TooManyChannels));
    machine.closed(0).unwrap();
    assert!(machine.add_channel(true).is_ok(), "a silent stranger gives its place back");
    machine.closed(2).unwrap();
    let before = format!("{machine:?}").len();
    for _ in 0..10_000 {
        let scan = machine.add_channel(true).unwrap();
        assert_eq!((machine.closed(scan), machine.closed(scan)), (Ok(()), Ok(())));
        assert_eq!(machine.header(scan, Header::data(0, 5)), Err(ReceiveError::NotExpected));
    }
    assert!(format!("{machine:?}").len() < before + 10, "nothing is remembered of those who only came and went");
}

#[test]
fn a_source_that_ends_early_ends_the_transfer() {
    let sent =
        run_sender(SendConfig { block_size: 4, ..SendConfig::new(std::iter::once(0..u64::MAX).collect()) }, 1, 10);
    let data: Vec<_> = sent[0].iter().filter(|(h, _)| h.count > 0).map(|(h, _)| (h.offset, h.count)).collect();
    assert_eq!(data, [(0, 4), (4, 4), (8, 2)]);
}

#[test]
fn one_node_announces_the_ends_of_all() {
    let first = run_sender(SendConfig { eof: EofDuty::Sum(3), close: true, ..SendConfig::new(vec![]) }, 2, 0);
    assert_eq!(first[0], [(eof(EOD | CLOSE, 5), 0)]);
    let other = run_sender(SendConfig { eof: EofDuty::None, ..SendConfig::new(vec![]) }, 3, 0);
    assert!(other.iter().all(|channel| channel == &[(eod(0), 0)]));
}

#[test]
#[allow(clippy::single_range_in_vec_init)]
fn layouts_deal_as_the_reference_server_does() {
    let pieces = |layout, index| {
        let stripe = Stripe { index, count: 2, layout, size: 100 };
        let mut cursor = RangeCursor::new(std::iter::once(0..100).collect(), stripe);
        std::iter::from_fn(move || cursor.take(1000)).collect::<Vec<_>>()
    };
    assert_eq!(pieces(Layout::Blocked { block_size: 30 }, 0), [0..30, 60..90]);
    assert_eq!(pieces(Layout::Blocked { block_size: 30 }, 1), [30..60, 90..100]);
    assert_eq!(pieces(Layout::Partitioned, 0), [0..50]);
    assert_eq!(pieces(Layout::Partitioned, 1), [50..100]);
}

/// Sorted ranges without touching each other, of the bytes in any of `pairs`.
fn disjoint(pairs: &[(u64, u64)]) -> Vec<Range<u64>> {
    let mut out: Vec<Range<u64>> = Vec::new();
    let has = |i: u64| pairs.iter().any(|&(a, b)| a.min(b) <= i && i < a.max(b));
    for i in (0..300).filter(|&i| has(i)) {
        match out.last_mut().filter(|last| last.end == i) {
            Some(last) => last.end = i + 1,
            None => out.push(i..i + 1),
        }
    }
    out
}

proptest! {
    #[test]
    fn headers_survive_the_wire(descriptor: u8, count: u64, offset: u64) {
        let header = Header { descriptor, count, offset };
        prop_assert_eq!(Header::decode(&header.encode()), header);
    }

    #[test]
    fn stripes_cover_every_wanted_byte_exactly_once(
        pairs in proptest::collection::vec((0u64..300, 0u64..300), 0..5),
        count in 1u32..5, block in 1u64..50, max in 1u64..60, partitioned: bool, size in 0u64..300,
    ) {
        let wanted = disjoint(&pairs);
        let has = |i: u64| wanted.iter().any(|range| range.contains(&i));
        let layout = if partitioned { Layout::Partitioned } else { Layout::Blocked { block_size: block } };
        let mut seen = vec![0u32; 300];
        for index in 0..count {
            let mut cursor = RangeCursor::new(wanted.clone(), Stripe { index, count, layout, size });
            while let Some(piece) = cursor.take(max) {
                prop_assert!(piece.start < piece.end && piece.end - piece.start <= max);
                (piece.start..piece.end).for_each(|i| seen[i as usize] += 1);
            }
        }
        for i in 0..300u64 {
            prop_assert_eq!(seen[i as usize], u32::from(has(i)));
        }
    }

    #[test]
    fn what_the_sender_deals_completes_the_receiver(channels in 1u32..6, size in 0u64..500, block in 1u64..80, order: u64) {
        let sent = run_sender(SendConfig { block_size: block, ..SendConfig::new(std::iter::once(0..size).collect()) }, channels, size);
        let mut machine = receiver(channels);
        let mut got = vec![false; size as usize];
        // Channels in an order of their own: whole ones, rotated.
        for i in 0..channels {
            let id = (u64::from(i) + order % 7) as u32 % channels;
            prop_assert!(!machine.is_complete());
            for (header, payload) in &sent[id as usize] {
                if let ReceiveStep::Payload { offset, len } = machine.header(id, *header).unwrap() {
                    got[offset as usize..(offset + len) as usize].fill(true);
                    machine.payload(id, *payload).unwrap();
                }
            }
        }
        prop_assert!(machine.is_complete());
        prop_assert_eq!(machine.received(), size);
        prop_assert!(got.iter().all(|arrived| *arrived));
    }

    #[test]
    fn receiving_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut machine = receiver(1);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let Ok((used, step)) = machine.feed(0, rest) else { break };
            rest = &rest[used..];
            if let ReceiveStep::Payload { len, .. } | ReceiveStep::Discard { len } = step {
                let now = len.min(rest.len() as u64);
                machine.payload(0, now).unwrap();
                rest = &rest[now as usize..];
                if now < len { break }
            }
        }
        let _ = machine.closed(0);
    }
}
