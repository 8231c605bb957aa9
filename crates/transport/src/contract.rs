//! What every [`DataChannel`] promises, as a suite that each implementation runs.
//!
//! Panics with a description when a promise is broken; for tests only.

use std::io::{ErrorKind, IoSlice, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use whimbrel_sys::poll::{self, PollFd, PollFlags};

use crate::channel::DataChannel;

/// Makes a fresh connected pair.
pub type MakePair<'a> = dyn FnMut() -> (Box<dyn DataChannel>, Box<dyn DataChannel>) + 'a;

const LONG: Duration = Duration::from_secs(10);

/// Runs the whole suite on pairs from `make`.
pub fn run(make: &mut MakePair<'_>) {
    pieces_arrive_in_order(make);
    a_quiet_channel_would_block_and_is_not_readable(make);
    a_full_channel_would_block_and_drains(make);
    shutdown_ends_the_stream_after_its_bytes(make);
    an_aborted_channel_does_not_end_like_a_whole_file(make);
    bytes_are_counted(make);
    sendfile_agrees_with_its_announcement(make);
}

fn wait(channel: &dyn DataChannel, interest: PollFlags) {
    if interest == PollFlags::IN && channel.has_buffered() {
        return;
    }
    let flags = channel.poll_flags(interest);
    let mut fds = [PollFd::from_borrowed_fd(channel.as_fd(), flags)];
    let ready = poll::wait(&mut fds, Some(LONG)).expect("poll");
    assert_eq!(ready, 1, "the channel should have become ready");
}

fn send_all(channel: &mut dyn DataChannel, mut data: &[u8]) {
    while !data.is_empty() {
        match channel.send_vectored(&[IoSlice::new(data)], false) {
            Ok(sent) => {
                assert!(sent > 0, "a send takes something or fails");
                data = &data[sent..];
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(channel, PollFlags::OUT),
            Err(error) => panic!("send: {error}"),
        }
    }
}

fn receive_exactly(channel: &mut dyn DataChannel, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    let mut at = 0;
    while at < len {
        match channel.recv(&mut data[at..]) {
            Ok(0) => panic!("ended after {at} of {len} bytes"),
            Ok(received) => at += received,
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(channel, PollFlags::IN),
            Err(error) => panic!("receive: {error}"),
        }
    }
    data
}

fn pieces_arrive_in_order(make: &mut MakePair<'_>) {
    let (mut one, mut other) = make();
    let pieces = [IoSlice::new(b"head"), IoSlice::new(b"payload")];
    assert_eq!(one.send_vectored(&pieces, true).expect("send"), 11);
    send_all(one.as_mut(), b"tail");
    assert_eq!(receive_exactly(other.as_mut(), 15), b"headpayloadtail");
}

fn a_quiet_channel_would_block_and_is_not_readable(make: &mut MakePair<'_>) {
    let (mut one, _other) = make();
    let error = one.recv(&mut [0; 8]).expect_err("nothing was sent");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let mut fds = [PollFd::from_borrowed_fd(one.as_fd(), PollFlags::IN)];
    let ready = poll::wait(&mut fds, Some(Duration::ZERO)).expect("poll");
    assert_eq!(ready, 0, "a quiet channel must not look readable");
}

fn a_full_channel_would_block_and_drains(make: &mut MakePair<'_>) {
    let (mut one, mut other) = make();
    let chunk = [7u8; 65_536];
    let mut sent = 0;
    let error = loop {
        match one.send_vectored(&[IoSlice::new(&chunk)], false) {
            Ok(taken) => sent += taken,
            Err(error) => break error,
        }
        assert!(sent < 1 << 30, "nobody reads, yet everything is taken");
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let data = receive_exactly(other.as_mut(), sent);
    assert!(data.iter().all(|&byte| byte == 7));
    wait(one.as_ref(), PollFlags::OUT);
}

fn shutdown_ends_the_stream_after_its_bytes(make: &mut MakePair<'_>) {
    let (mut one, mut other) = make();
    send_all(one.as_mut(), b"last words");
    one.shutdown().expect("shutdown");
    assert_eq!(receive_exactly(other.as_mut(), 10), b"last words");
    wait(other.as_ref(), PollFlags::IN);
    assert_eq!(other.recv(&mut [0; 8]).expect("end"), 0);
    send_all(other.as_mut(), b"answer");
    assert_eq!(receive_exactly(one.as_mut(), 6), b"answer");
}

fn an_aborted_channel_does_not_end_like_a_whole_file(make: &mut MakePair<'_>) {
    let (mut one, mut other) = make();
    if one.peer_addr().is_none() {
        return;
    }
    send_all(one.as_mut(), b"half of");
    assert_eq!(receive_exactly(other.as_mut(), 7), b"half of");
    one.abort().expect("abort");
    drop(one);
    wait(other.as_ref(), PollFlags::IN);
    let error = other.recv(&mut [0; 8]).expect_err("an end that nobody told");
    assert_ne!(error.kind(), ErrorKind::WouldBlock);
}

fn bytes_are_counted(make: &mut MakePair<'_>) {
    let (mut one, mut other) = make();
    send_all(one.as_mut(), &[1; 1000]);
    receive_exactly(other.as_mut(), 1000);
    assert_eq!(one.stats().bytes_sent, 1000);
    assert_eq!(other.stats().bytes_received, 1000);
}

fn sendfile_agrees_with_its_announcement(make: &mut MakePair<'_>) {
    let (mut one, mut other) = make();
    let mut file = tempfile();
    file.write_all(b"0123456789").expect("write");
    if !one.can_sendfile() {
        let error = one.sendfile(file.as_fd(), 0, 4).expect_err("announced");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        return;
    }
    assert_eq!(one.sendfile(file.as_fd(), 3, 4).expect("sendfile"), 4);
    assert_eq!(one.sendfile(file.as_fd(), 10, 4).expect("at the end"), 0);
    assert_eq!(receive_exactly(other.as_mut(), 4), b"3456");
    assert_eq!(one.stats().bytes_sent, 4);
}

/// A file without a name.
fn tempfile() -> std::fs::File {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let fd = rustix::fs::memfd_create("whimbrel-contract", flags).expect("memfd");
    fd.into()
}
