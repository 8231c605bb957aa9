//! Listening ends: who is heard, and who keeps nobody waiting.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use whimbrel_engine::FaultCode;

use super::tests::*;
use super::*;
use crate::cancel::Cancel;
use crate::channel::DataChannel;
use crate::tcp::Listener;

#[test]
fn a_listening_sender_serves_only_who_shows_the_nonce() {
    let listener = local_listener();
    let (out, inn) = (End::new(2, 1), End::new(2, 1));
    let long = Duration::from_secs(10);
    let mut stranger = dial(&listener, &inn.cancel);
    let wrong = stranger.greet(b"a guess, no more", long, &inn.cancel);
    wrong.expect("sent");
    let gone = dial(&listener, &inn.cancel);
    drop(gone);
    let mut receiver = dial(&listener, &inn.cancel);
    receiver.greet(&NONCE, long, &inn.cancel).expect("sent");
    let mut from = Vec::new();
    let gathering = Gathering { listener: &listener, nonce: Some(&NONCE), wanted: 1, timeout: long };
    gather(&gathering, &mut from, &out.cancel).expect("the third");
    assert_eq!(from.len(), 1);
    let (source, wanted, sink) = (data(MIB), all(MIB), Memory::default());
    let (mut send_job, mut receive_job) = (out.send_job(&source, &wanted), inn.receive_job(&sink));
    (send_job.nonce, receive_job.admission.nonce) = (Some(NONCE), Some(NONCE));
    let mut to = vec![receiver];
    let (sent, received) = transfer(&send_job, &receive_job, &mut from, &mut to);
    sent.expect("sent");
    received.expect("received");
    assert!(sink.0.into_inner().expect("lock") == source);
}

/// Somebody who knows the nonce and tells it a byte at a time, one at every tick of a clock.
struct Trickling {
    clock: rustix::fd::OwnedFd,
    told: Arc<AtomicUsize>,
}

impl Trickling {
    fn every(tick: Duration) -> Self {
        use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};
        use rustix::time::{Timespec, timerfd_create, timerfd_settime};
        let clock = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK).expect("clock");
        let tick = Timespec { tv_sec: 0, tv_nsec: i64::from(tick.subsec_nanos()) };
        let each = Itimerspec { it_interval: tick, it_value: tick };
        timerfd_settime(&clock, TimerfdTimerFlags::empty(), &each).expect("set");
        Self { clock, told: Arc::default() }
    }
}

impl DataChannel for Trickling {
    fn send_vectored(&mut self, _: &[IoSlice<'_>], _: bool) -> std::io::Result<usize> {
        unreachable!("nobody answers a stranger")
    }

    fn recv_vectored(&mut self, pieces: &mut [std::io::IoSliceMut<'_>]) -> std::io::Result<usize> {
        let mut ticks = [0; 8];
        rustix::io::read(&self.clock, &mut ticks)?;
        pieces[0][0] = nonce_blocks(&NONCE)[self.told.fetch_add(1, Ordering::Relaxed)];
        Ok(1)
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.clock.as_fd()
    }

    fn shutdown(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    fn abort(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    fn peer_addr(&self) -> Option<std::net::SocketAddr> {
        None
    }

    fn stats(&self) -> crate::channel::ChannelStats {
        crate::channel::ChannelStats::default()
    }
}

#[test]
fn a_stranger_who_trickles_has_as_long_as_one_who_is_silent() {
    let cancel = Cancel::new().expect("cancel");
    let told = Arc::<AtomicUsize>::default();
    let (counter, mut listener) = (told.clone(), local_listener());
    listener.set_shielding(Arc::new(move |_| {
        Ok(Box::new(Trickling { told: counter.clone(), ..Trickling::every(Duration::from_millis(20)) }))
    }));
    let _stranger = dial(&listener, &cancel);
    let timeout = Duration::from_millis(110);
    let gathering = Gathering { listener: &listener, nonce: Some(&NONCE), wanted: 1, timeout };
    let began = std::time::Instant::now();
    let heard = gather(&gathering, &mut Vec::new(), &cancel);
    assert_eq!(heard.expect_err("too slow").code, FaultCode::TimedOut);
    assert!(began.elapsed() >= timeout);
    // Each byte comes long before the end of such a time; all of them take six.
    assert!(told.load(Ordering::Relaxed) < NONCE_BLOCKS_LEN, "{told:?}");
}

#[test]
fn a_silent_stranger_keeps_nobody_from_a_listening_sender() {
    let listener = local_listener();
    let end = End::new(1, 1);
    let _silent = [dial(&listener, &end.cancel), dial(&listener, &end.cancel)];
    let mut receiver = dial(&listener, &end.cancel);
    // Less than one of them may take alone.
    let timeout = GREETING_TIME / 2;
    receiver.greet(&NONCE, timeout, &end.cancel).expect("sent");
    let mut from = Vec::new();
    let gathering = Gathering { listener: &listener, nonce: Some(&NONCE), wanted: 1, timeout };
    gather(&gathering, &mut from, &end.cancel).expect("the third");
    assert_eq!(from[0].channel().peer_addr(), receiver.channel().local_addr());
}

#[test]
fn no_more_connections_are_taken_than_are_wanted() {
    let listener = local_listener();
    let end = End::new(1, 1);
    let long = Duration::from_secs(10);
    let queued = [dial(&listener, &end.cancel), dial(&listener, &end.cancel)];
    // The first may be a port scan, and the second the peer.
    for expected in &queued {
        let mut taken = Vec::new();
        let gathering = Gathering { listener: &listener, nonce: None, wanted: 1, timeout: long };
        gather(&gathering, &mut taken, &end.cancel).expect("it has arrived");
        assert_eq!(taken[0].channel().peer_addr(), expected.channel().local_addr());
    }
}

#[test]
fn a_listening_sender_does_not_wait_again_for_connections_that_its_peer_announced_and_did_not_open() {
    let listener = local_listener();
    let end = End::new(1, 1);
    let gathering = |wanted| Gathering { listener: &listener, nonce: None, wanted, timeout: Duration::from_secs(3600) };
    let _one = dial(&listener, &end.cancel);
    let mut from = Vec::new();
    gather(&gathering(4), &mut from, &end.cancel).expect("one is enough");
    assert_eq!(from.len(), 1);
    // An hour would not be over.
    gather(&gathering(4), &mut from, &end.cancel).expect("it goes on");
    let _late = [dial(&listener, &end.cancel), dial(&listener, &end.cancel)];
    gather(&gathering(4), &mut from, &end.cancel).expect("those that are there");
    assert_eq!(from.len(), 3);
}

#[test]
fn a_receiver_keeps_connections_of_its_own_that_its_sender_took_up_late() {
    let (source, wanted) = (data(1000), all(1000));
    let (out, inn) = (End::new(1, 1), End::new(1, 1));
    let (mut from, mut to) = connections(3);
    let mut late = from.split_off(2);
    for eods in [2, 3] {
        let sink = Memory::default();
        let job = out.send_job(&source, &wanted);
        let (sent, received) = transfer(&job, &inn.receive_job(&sink), &mut from, &mut to);
        assert_eq!(sent.expect("sent").eods, eods);
        received.expect("received");
        assert!(to.len() == 3 && sink.0.into_inner().expect("lock") == source);
        from.append(&mut late);
    }
}

/// So many connections to `listener`.
fn crowd(listener: &Listener, count: usize, end: &End) -> Vec<Connection> {
    (0..count).map(|_| dial(listener, &end.cancel)).collect()
}

#[test]
fn a_receiver_takes_as_many_connections_as_may_be_asked_for_and_more_as_others_end() {
    let listener = local_listener();
    let (source, wanted, sink) = (data(200_000), all(200_000), Memory::default());
    let (out, inn) = (End::new(8, 1), End::new(8, 1));
    let mut receive_job = inn.receive_job(&sink);
    receive_job.admission = Admission { listener: Some(&listener), max_connections: 4, ..Admission::default() };
    let (mut from, mut to) = (crowd(&listener, 11, &inn), Vec::new());
    let (sent, received) = transfer(&out.send_job(&source, &wanted), &receive_job, &mut from, &mut to);
    assert_eq!(sent.expect("sent").eods, 11);
    assert_eq!(received.expect("received").eods, 11);
    assert_eq!(to.len(), 11);
    assert!(sink.0.into_inner().expect("lock") == source);
}

#[test]
fn strangers_who_say_nothing_take_no_place_of_those_who_show_the_nonce() {
    let listener = local_listener();
    let (source, wanted, sink) = (data(MIB), all(MIB), Memory::default());
    let (out, inn) = (End::new(8, 1), End::new(8, 1));
    let _silent = crowd(&listener, 5, &inn);
    let mut receive_job = inn.receive_job(&sink);
    let (listener, nonce) = (Some(&listener), Some(NONCE));
    // Two of the silent ones must go before anybody else can come.
    receive_job.admission = Admission { listener, nonce, max_connections: 3, ..Admission::default() };
    let mut from = crowd(listener.expect("given"), 3, &out);
    let send_job = SendJob { nonce, ..out.send_job(&source, &wanted) };
    let mut to = Vec::new();
    let (sent, received) = transfer(&send_job, &receive_job, &mut from, &mut to);
    sent.expect("sent");
    let received = received.expect("received");
    assert!((received.eods, to.len()) == (3, 3) && received.rejected >= 3, "{received:?}");
    assert!(sink.0.into_inner().expect("lock") == source);
}
