//! Planes of one data process that the tests play.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use whimbrel_proto::op::ReceiveSpec;

use super::super::dataside::tests::{account, asked, data_side};
use super::super::link::tests::{greet, identity, linked, tell};
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

/// A second data process of the login.
async fn joined(plane: &mut Plane) -> (MoverId, Process) {
    let (link, stream) = linked().await;
    let handle = link.attach(identity(), plane.next_tag, plane.sender.clone()).expect("attached");
    plane.nodes.insert(plane.next_tag, handle);
    plane.next_tag += 1;
    let mut process = Process { stream, decoder: Decoder::new() };
    (process.attached().await, process)
}

impl Process {
    /// The next operation.
    async fn run(&mut self) -> (OpId, Op) {
        match self.next().await {
            ToMover::Run { id, op, .. } => (id, *op),
            other => panic!("{other:?}"),
        }
    }
}

/// Two data processes that listen for one login.
async fn striped() -> (Arc<DataSide>, Plane, [(MoverId, Process); 2]) {
    let (side, mut plane, mover, process) = served().await;
    let second = joined(&mut plane).await;
    let mut nodes = [(mover, process), second];
    plane.run(OpId(1), Op::Passive { striped: true, family: None, params: DataParams::default() }).await;
    for (number, (mover, process)) in nodes.iter_mut().enumerate() {
        assert!(matches!(process.run().await, (OpId(1), Op::Passive { .. })));
        let address = std::net::SocketAddr::from(([192, 0, 2, 7], 5000 + number as u16));
        process.answer(*mover, OpId(1), Outcome::Listening(vec![address])).await;
    }
    assert!(matches!(plane.next(true).await, PlaneEvent::Outcome(OpId(1), Outcome::Listening(all)) if all.len() == 2));
    (side, plane, nodes)
}

#[tokio::test]
async fn fewer_nodes_than_were_announced_receive_nothing_until_they_are_announced_anew() {
    let (_side, mut plane, [(mover, mut stays), (_, leaves)]) = striped().await;
    drop(leaves);
    while plane.nodes.len() > 1 {
        let (tag, event) = plane.events.recv().await.expect("the plane holds a sender");
        plane.absorb(tag, event);
    }
    plane.run(OpId(2), Op::Receive(ReceiveSpec::of(b"/f2"))).await;
    let PlaneEvent::Outcome(OpId(2), Outcome::Failed(failure)) = plane.next(true).await else { panic!("it goes on") };
    assert_eq!(failure.kind, FailureKind::NoDataHandle);
    // What the other had got for it is nobody's.
    assert_eq!(stays.run().await, (OpId(2), Op::CloseData));
    stays.answer(mover, OpId(2), Outcome::Done).await;
    plane.run(OpId(3), Op::Receive(ReceiveSpec::of(b"/f3"))).await;
    assert!(matches!(stays.run().await, (OpId(3), Op::Receive(_))), "a node without a handle says so itself");
}

#[tokio::test]
async fn a_striped_receive_that_is_refused_ends_the_data_handle_on_all_nodes() {
    let (_side, mut plane, [(mover, mut begins), (_, mut waits)]) = striped().await;
    plane.run(OpId(2), Op::Receive(ReceiveSpec::of(b"/f"))).await;
    assert!(matches!(begins.run().await, (OpId(2), Op::Receive(_))));
    let failure = Failure { kind: FailureKind::NotFound, text: String::new(), checksums: None };
    begins.answer(mover, OpId(2), Outcome::Failed(failure)).await;
    assert!(matches!(plane.next(true).await, PlaneEvent::Outcome(OpId(2), Outcome::Failed(_))));
    assert_eq!(waits.run().await, (OpId(2), Op::CloseData));
}

#[tokio::test]
async fn a_striped_transfer_that_succeeds_keeps_the_data_handle() {
    let (_side, mut plane, mut nodes) = striped().await;
    for id in [OpId(2), OpId(3)] {
        plane.run(id, Op::Send(whimbrel_proto::op::SendSpec::of(b"/f"))).await;
        for (mover, process) in &mut nodes {
            assert!(matches!(process.run().await, (run, Op::Send(_)) if run == id));
            process.answer(*mover, id, Outcome::moved(5)).await;
        }
        assert!(matches!(plane.next(true).await, PlaneEvent::Outcome(..)));
    }
}
