//! Planes of one data process that the tests play.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;

use super::super::dataside::tests::{account, asked, data_side};
use super::super::link::tests::{greet, identity, tell};
use super::*;
use crate::mover::codec::Decoder;
use crate::mover::message::{LINES_AHEAD, MoverId};

/// The data process' end.
struct Process {
    stream: UnixStream,
    decoder: Decoder<ToMover>,
}

impl Process {
    async fn next(&mut self) -> ToMover {
        let mut bytes = [0; 4096];
        loop {
            if let Some(message) = self.decoder.next().expect("a message") {
                return message;
            }
            let count = self.stream.read(&mut bytes).await.expect("read");
            assert!(count > 0, "the front is there");
            self.decoder.push(&bytes[..count]);
        }
    }

    /// A login, as its mover.
    async fn attached(&mut self) -> MoverId {
        match self.next().await {
            ToMover::Attach { mover, .. } => mover,
            other => panic!("{other:?}"),
        }
    }

    async fn answer(&mut self, mover: MoverId, id: OpId, outcome: Outcome) {
        tell(&mut self.stream, &FromMover::Outcome { mover, id, outcome }).await;
    }
}

async fn served() -> (Arc<DataSide>, Plane, MoverId, Process) {
    let (side, monitor) = data_side();
    let first = tokio::spawn(Plane::attach(side.clone(), account(1), identity()));
    let (_, mut stream) = asked(&monitor).await;
    greet(&mut stream).await;
    let mut process = Process { stream, decoder: Decoder::new() };
    let plane = first.await.expect("no panic").expect("attached");
    let mover = process.attached().await;
    // The monitor is not needed any more, and its end nobody's matter.
    std::mem::forget(monitor);
    (side, plane, mover, process)
}

#[tokio::test]
async fn what_a_client_says_of_itself_travels_with_its_next_operation() {
    let (_side, mut plane, mover, mut process) = served().await;
    for number in 0..1000 {
        plane.label(Some(number.to_string()), None);
    }
    plane.label(None, Some("appname=x;".to_owned()));
    for id in [OpId(1), OpId(2)] {
        plane.run(id, Op::CloseData).await;
    }
    let (task, client) = (Some("999".to_owned()), Some("appname=x;".to_owned()));
    assert_eq!(process.next().await, ToMover::Label { mover, task, client });
    for id in [OpId(1), OpId(2)] {
        assert!(matches!(process.next().await, ToMover::Run { id: run, .. } if run == id));
    }
}

#[tokio::test]
async fn a_client_who_does_not_read_is_found_out_though_nothing_more_is_taken_up_for_it() {
    let (_side, mut plane, mover, mut process) = served().await;
    plane.run(OpId(1), Op::CloseData).await;
    let notice = Notice::Lines(vec![b'x'; LINES_AHEAD as usize]);
    let told = FromMover::Notice { mover, id: OpId(1), notice };
    let mut pending = Box::pin(plane.next(false));
    for _ in 0..2 * MOST_NEWS / LINES_AHEAD as usize {
        tell(&mut process.stream, &told).await;
    }
    let over = tokio::time::timeout(Duration::from_secs(60), &mut pending).await;
    assert_eq!(over, Ok(PlaneEvent::Overrun));
}

#[tokio::test]
async fn a_process_that_tells_and_does_not_hear_is_lost_before_much_waits_for_it() {
    const AT_ONCE: usize = 1000;
    let (_side, mut plane, mover, mut process) = served().await;
    plane.run(OpId(1), Op::CloseData).await;
    let told = FromMover::Notice { mover, id: OpId(1), notice: Notice::Lines(b"x".to_vec()) };
    // Each is worth an answer of more than a hundred bytes that waits; there is room for 32 MiB.
    for round in 0.. {
        assert!(round < 300, "what waits has no end");
        for _ in 0..AT_ONCE {
            tell(&mut process.stream, &told).await;
        }
        let mut heard = 0;
        while heard < AT_ONCE {
            match plane.next(true).await {
                PlaneEvent::Notice(..) => heard += 1,
                PlaneEvent::Outcome(OpId(1), Outcome::Failed(_)) => return,
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_login_is_told_where_others_of_the_same_server_wait_and_no_longer() {
    let (side, mut waits, mover, mut process) = served().await;
    let mut calls = Plane::attach(side.clone(), account(1), identity()).await.expect("attached");
    let caller = process.attached().await;
    let address = "192.0.2.7:5000".parse().expect("an address");
    let params = DataParams { mode: Mode::Extended, nonce: Some([7; 16]), ..DataParams::default() };
    waits.run(OpId(1), Op::Passive { striped: false, family: None, params: params.clone() }).await;
    assert!(matches!(process.next().await, ToMover::Run { .. }));
    process.answer(mover, OpId(1), Outcome::Listening(vec![address])).await;
    assert!(matches!(waits.next(true).await, PlaneEvent::Outcome(OpId(1), Outcome::Listening(_))));
    let other = "192.0.2.7:5001".parse().expect("an address");
    let active = |targets, params| Op::Active { targets, params };
    calls.run(OpId(1), active(vec![other, address], params.clone())).await;
    assert_eq!(process.next().await, ToMover::Listening { mover: caller, addresses: vec![address] });
    assert!(matches!(process.next().await, ToMover::Run { .. }));
    process.answer(caller, OpId(1), Outcome::Done).await;
    assert_eq!(calls.next(true).await, PlaneEvent::Outcome(OpId(1), Outcome::Done));
    // Without a nonce it is nobody's.
    calls.run(OpId(2), active(vec![address], DataParams { nonce: None, ..params.clone() })).await;
    assert!(matches!(process.next().await, ToMover::Run { .. }));
    process.answer(caller, OpId(2), Outcome::Done).await;
    assert_eq!(calls.next(true).await, PlaneEvent::Outcome(OpId(2), Outcome::Done));
    // Once the handle is closed, neither.
    waits.run(OpId(2), Op::CloseData).await;
    assert!(matches!(process.next().await, ToMover::Run { .. }));
    calls.run(OpId(3), active(vec![address], params)).await;
    assert!(matches!(process.next().await, ToMover::Run { .. }));
    assert!(side.listening.known(&[address]).is_empty());
}
