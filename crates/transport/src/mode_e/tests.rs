use super::crew::THREADS_LEFT;
use super::*;
use crate::block::{BlockSink, BlockSource};
use crate::cancel::Cancel;
use crate::channel::DataChannel;
use crate::faulty::{FaultyChannel, Mishap};
use crate::flow::{Flow, StallPolicy};
use crate::local::pair;
use crate::pool::{Pool, PoolLimits};
use crate::progress::Progress;
use crate::tcp::{ChannelOptions, ConnectOptions, Listener, connect, listen};
use std::io::{IoSlice, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};
use whimbrel_proto::eblock::{CLOSE, EOD, EOF, HEADER_LEN, Header};

pub(crate) const MIB: usize = 1 << 20;
pub(super) const NONCE: Nonce = *b"0123456789abcdef";

#[derive(Default)]
pub(crate) struct Memory(pub(crate) Mutex<Vec<u8>>);

impl BlockSink for Memory {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let mut bytes = self.0.lock().expect("lock");
        let end = offset as usize + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(data);
        Ok(())
    }
}

struct FullDisk;

impl BlockSink for FullDisk {
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), Fault> {
        Err(Fault::new(FaultCode::NoSpace, "write"))
    }
}

struct FileSource(std::fs::File);

impl FileSource {
    fn new(data: &[u8]) -> Self {
        let fd = rustix::fs::memfd_create("source", rustix::fs::MemfdFlags::CLOEXEC);
        let mut file = std::fs::File::from(fd.expect("memfd"));
        file.write_all(data).expect("write");
        Self(file)
    }
}

impl BlockSource for FileSource {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        std::os::unix::fs::FileExt::read_at(&self.0, buffer, offset).map_err(|error| Fault::from_io(error, "read"))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// One side of a transfer.
pub(crate) struct End {
    pub(crate) pool: Pool,
    pub(crate) progress: Progress,
    pub(crate) cancel: Cancel,
    threads: usize,
    stall: Option<StallPolicy>,
}

impl End {
    pub(crate) fn new(buffers: usize, threads: usize) -> Self {
        let limits = PoolLimits {
            buffer_size: 128 * 1024,
            send: buffers,
            receive: buffers,
            hash: 1,
            low_water: 2,
            high_water: 4,
        };
        Self {
            pool: Pool::new(limits).expect("pool"),
            progress: Progress::new(),
            cancel: Cancel::new().expect("cancel"),
            threads,
            stall: Some(StallPolicy::silent_for(Duration::from_secs(20))),
        }
    }

    pub(crate) fn flow(&self) -> Flow<'_> {
        Flow { threads: self.threads, stall: self.stall, ..Flow::new(&self.pool, &self.progress, &self.cancel) }
    }

    pub(crate) fn send_job<'a>(&'a self, source: &'a dyn BlockSource, ranges: &'a RangeSet) -> SendJob<'a> {
        SendJob {
            source,
            amount: Amount::Ranges(ranges),
            origin: 0,
            block_size: 100_000,
            nonce: None,
            eof: Eof::Own,
            sendfile: false,
            digests: None,
            flow: self.flow(),
        }
    }

    pub(crate) fn receive_job<'a>(&'a self, sink: &'a dyn BlockSink) -> ReceiveJob<'a> {
        ReceiveJob { sink, bound: 0..u64::MAX, origin: 0, admission: Admission::default(), flow: self.flow() }
    }
}

pub(crate) fn data(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

pub(crate) fn all(len: usize) -> RangeSet {
    one(0..len as u64)
}

fn one(range: Range<u64>) -> RangeSet {
    std::iter::once(range).collect()
}

pub(crate) fn ranges<const N: usize>(ranges: [Range<u64>; N]) -> RangeSet {
    ranges.into_iter().collect()
}

pub(crate) fn connections(count: usize) -> (Vec<Connection>, Vec<Connection>) {
    let make = |_| {
        let (one, other) = pair().expect("pair");
        (Connection::new(Box::new(one)), Connection::new(Box::new(other)))
    };
    (0..count).map(make).unzip()
}

/// Sends on one thread, receives on another.
pub(crate) fn transfer(
    send_job: &SendJob<'_>,
    receive_job: &ReceiveJob<'_>,
    from: &mut Vec<Connection>,
    to: &mut Vec<Connection>,
) -> (Result<SendReport, Fault>, Result<ReceiveReport, Fault>) {
    thread::scope(|scope| {
        let sender = scope.spawn(|| send(send_job, from));
        let received = receive(receive_job, to);
        (sender.join().expect("no panic"), received)
    })
}

fn header(descriptor: u8, count: u64, offset: u64) -> [u8; HEADER_LEN] {
    let header = Header { descriptor, count, offset };
    header.encode()
}

/// What a receiver makes of these bytes, one script per connection, each closed at its end.
fn receive_script(scripts: &[&[&[u8]]], adjust: impl Fn(&mut ReceiveJob<'_>)) -> Outcome {
    let end = End::new(4, 1);
    let sink = Memory::default();
    let mut job = end.receive_job(&sink);
    adjust(&mut job);
    let (mut peers, mut connections) = connections(scripts.len());
    for (peer, script) in peers.iter_mut().zip(scripts) {
        let bytes = script.concat();
        let sent = peer.channel.send_vectored(&[IoSlice::new(&bytes)], false);
        assert_eq!(sent.expect("send"), bytes.len());
        peer.channel.shutdown().expect("shutdown");
    }
    let result = receive(&job, &mut connections);
    let unread = connections.iter().map(|c| c.unread.clone()).collect();
    Outcome { result, data: sink.0.into_inner().expect("lock"), unread }
}

struct Outcome {
    result: Result<ReceiveReport, Fault>,
    data: Vec<u8>,
    unread: Vec<Vec<u8>>,
}

impl Outcome {
    fn code(&self) -> FaultCode {
        self.result.as_ref().expect_err("a fault").code
    }
}

#[test]
fn a_file_arrives_whole_over_any_number_of_connections_and_threads() {
    for (size, channels, threads, buffers) in [
        (0, 1, 1, 1),
        (1, 1, 1, 1),
        (300_000, 1, 1, 1),
        (0, 4, 2, 4),
        (3 * MIB + 7, 4, 1, 1),
        (3 * MIB + 7, 3, 2, 2),
        (18 * MIB + 1, 4, 2, 2),
        (18 * MIB + 1, 4, 4, 16),
        (18 * MIB, 2, 8, 3),
    ] {
        let (source, wanted) = (data(size), all(size));
        let (out, inn) = (End::new(buffers, threads), End::new(buffers, threads));
        let sink = Memory::default();
        let (mut from, mut to) = connections(channels);
        let (sent, received) = transfer(&out.send_job(&source, &wanted), &inn.receive_job(&sink), &mut from, &mut to);
        let (sent, received) = (sent.expect("sent"), received.expect("received"));
        let case = format!("{size} bytes, {channels} channels, {threads} threads");
        assert!(sink.0.into_inner().expect("lock") == source, "{case}");
        assert_eq!((sent.bytes, received.bytes), (size as u64, size as u64));
        assert_eq!((sent.eods, received.eods), (channels as u64, channels as u64));
        assert_eq!(sent.blocks, received.blocks, "{case}");
        assert_eq!((from.len(), to.len()), (channels, channels), "{case}");
        assert_eq!(inn.progress.ranges(), wanted, "{case}");
        assert_eq!(out.progress.bytes(), size as u64, "{case}");
        assert_eq!(out.pool.stats().send + inn.pool.stats().receive, 0, "{case}");
    }
}

#[test]
fn large_transfers_use_more_threads() {
    let (source, wanted) = (data(24 * MIB), all(24 * MIB));
    let (out, inn) = (End::new(8, 2), End::new(8, 2));
    let sink = Memory::default();
    let (mut from, mut to) = connections(4);
    let (sent, received) = transfer(&out.send_job(&source, &wanted), &inn.receive_job(&sink), &mut from, &mut to);
    assert_eq!(sent.expect("sent").threads, 2);
    assert_eq!(received.expect("received").threads, 2);
}

#[test]
fn a_system_without_threads_to_spare_slows_a_transfer_and_fails_nothing() {
    let (source, wanted) = (data(24 * MIB), all(24 * MIB));
    for spare in [0, 1] {
        let (out, inn) = (End::new(8, 4), End::new(8, 4));
        let sink = Memory::default();
        let (mut from, mut to) = connections(4);
        let (send_job, receive_job) = (out.send_job(&source, &wanted), inn.receive_job(&sink));
        let (sent, received) = thread::scope(|scope| {
            let sender = scope.spawn(|| {
                THREADS_LEFT.set(spare);
                send(&send_job, &mut from)
            });
            THREADS_LEFT.set(spare);
            let received = receive(&receive_job, &mut to);
            THREADS_LEFT.set(usize::MAX);
            (sender.join().expect("no panic"), received)
        });
        let (sent, received) = (sent.expect("sent"), received.expect("received"));
        assert_eq!((sent.threads, received.threads), (1 + spare, 1 + spare));
        assert_eq!((sent.eods, received.eods), (4, 4));
        assert!(sink.0.into_inner().expect("lock") == source);
    }
}

#[test]
fn the_kernel_sends_the_same_bytes() {
    let bytes = data(5 * MIB + 3);
    let source = FileSource::new(&bytes);
    let wanted = ranges([10..MIB as u64, 2 * MIB as u64..bytes.len() as u64]);
    let (out, inn) = (End::new(2, 1), End::new(2, 1));
    let sink = Memory::default();
    let mut job = out.send_job(&source, &wanted);
    (job.sendfile, job.block_size) = (true, MIB);
    let (mut from, mut to) = connections(2);
    let (sent, received) = transfer(&job, &inn.receive_job(&sink), &mut from, &mut to);
    assert_eq!(sent.expect("sent").bytes, wanted.len());
    received.expect("received");
    let got = sink.0.into_inner().expect("lock");
    for range in wanted.as_slice() {
        let range = range.start as usize..range.end as usize;
        assert!(got[range.clone()] == bytes[range.clone()], "{range:?}");
    }
    assert!(got[..10].iter().all(|&byte| byte == 0), "not asked for");
}

#[test]
fn a_pipe_is_sent_to_its_end() {
    let source = data(500_000);
    let none = RangeSet::new();
    let (out, inn) = (End::new(2, 2), End::new(2, 2));
    let sink = Memory::default();
    let mut job = out.send_job(&source, &none);
    job.amount = Amount::ToEnd(0);
    let (mut from, mut to) = connections(2);
    let (sent, received) = transfer(&job, &inn.receive_job(&sink), &mut from, &mut to);
    assert_eq!(sent.expect("sent").bytes, 500_000);
    assert_eq!(received.expect("received").eods, 2);
    assert!(sink.0.into_inner().expect("lock") == source);
}

#[test]
fn parts_travel_from_offset_zero_and_land_where_they_belong() {
    let source = data(10_000);
    let wanted = one(4000..6000);
    let (out, inn) = (End::new(2, 1), End::new(2, 1));
    let sink = Memory::default();
    let mut send_job = out.send_job(&source, &wanted);
    send_job.origin = 4000;
    let mut receive_job = inn.receive_job(&sink);
    (receive_job.origin, receive_job.bound) = (500, 0..2000);
    let (mut from, mut to) = connections(1);
    let (sent, received) = transfer(&send_job, &receive_job, &mut from, &mut to);
    sent.expect("sent");
    received.expect("received");
    let got = sink.0.into_inner().expect("lock");
    assert_eq!(got[500..], source[4000..6000]);
    assert_eq!(inn.progress.ranges(), one(500..2500));
}

#[test]
fn connections_serve_file_after_file_even_when_the_next_is_already_under_way() {
    let (out, inn) = (End::new(2, 1), End::new(2, 1));
    let (mut from, mut to) = connections(2);
    let files: Vec<Vec<u8>> = (0..20).map(|i| data(i * 100)).collect();
    // All are sent before the first is received.
    for file in &files {
        let wanted = all(file.len());
        let mut job = out.send_job(file, &wanted);
        job.nonce = Some(NONCE);
        send(&job, &mut from).expect("sent");
    }
    for file in &files {
        let sink = Memory::default();
        let mut job = inn.receive_job(&sink);
        job.admission.nonce = Some(NONCE);
        receive(&job, &mut to).expect("received");
        assert_eq!(&sink.0.into_inner().expect("lock"), file);
    }
    assert!(to.iter().all(|connection| connection.unread.is_empty()));
}

#[test]
fn a_shrunken_source_is_reported_and_its_connections_are_given_up() {
    for sendfile in [false, true] {
        let source = FileSource::new(&data(MIB));
        let wanted = all(MIB + 1);
        let (out, inn) = (End::new(2, 1), End::new(2, 1));
        let sink = Memory::default();
        let mut job = out.send_job(&source, &wanted);
        job.sendfile = sendfile;
        let (mut from, mut to) = connections(2);
        let (sent, received) = transfer(&job, &inn.receive_job(&sink), &mut from, &mut to);
        let fault = sent.expect_err("short");
        assert_eq!(fault.code, FaultCode::SourceChanged);
        assert_eq!(fault.side, Some(Side::Source));
        assert_eq!(received.expect_err("cut").code, FaultCode::ConnectionLost);
        assert!(from.is_empty() && to.is_empty());
    }
}

#[test]
fn the_sinks_fault_reaches_the_caller() {
    let source = data(MIB);
    let wanted = all(MIB);
    let (out, inn) = (End::new(2, 1), End::new(2, 1));
    let (mut from, mut to) = connections(2);
    let (sent, received) = transfer(&out.send_job(&source, &wanted), &inn.receive_job(&FullDisk), &mut from, &mut to);
    let fault = received.expect_err("full");
    assert_eq!(fault.code, FaultCode::NoSpace);
    assert_eq!(fault.side, Some(Side::Destination));
    assert_eq!(sent.expect_err("closed").code, FaultCode::ConnectionLost);
}

#[test]
fn blocks_of_any_order_size_and_ending_are_understood() {
    let data = [&header(0, 3, 5)[..], b"fgh", &header(0, 0, 99), &header(EOD, 5, 0), b"abcde"];
    let end = [&header(EOF, 7, 2)[..], &header(EOD | CLOSE, 0, 0)];
    let outcome = receive_script(&[&data, &end], |_| {});
    assert_eq!(outcome.data, b"abcdefgh");
    let report = outcome.result.expect("complete");
    assert_eq!((report.eods, report.blocks), (2, 2));
    assert_eq!(outcome.unread.len(), 1, "the closing one is not kept");
}

#[test]
fn bytes_behind_the_end_belong_to_the_next_transfer() {
    let script = [&header(0, 1, 0)[..], b"a", &header(EOF | EOD, 0, 1), &header(0, 1, 0), b"b"];
    let outcome = receive_script(&[&script], |_| {});
    assert_eq!(outcome.data, b"a");
    assert_eq!(outcome.unread, [script[3..].concat()]);
}

#[test]
fn what_breaks_the_protocol_is_the_peers_fault() {
    let beyond = [&header(0, 5, 8)[..], b"abcde"];
    let endless = [&header(0, u64::MAX, 2)[..], b"abcde"];
    let double = [&header(EOF, 0, 2)[..], &header(EOF | EOD, 0, 2)];
    let none = [&header(EOF | EOD, 0, 0)[..]];
    for script in [&beyond[..], &endless, &double, &none] {
        let outcome = receive_script(&[script], |job| job.bound = 0..10);
        assert_eq!(outcome.code(), FaultCode::PeerMisbehaved);
        assert!(outcome.data.is_empty(), "nothing out of bounds is written");
    }
}

#[test]
fn an_early_close_is_a_lost_connection() {
    let inside = [&header(0, 5, 0)[..], b"abc"];
    let in_header = [&header(0, 1, 0)[..], b"a", &[0; 5]];
    let no_eof = [&header(0, 1, 0)[..], b"a"];
    let no_eod = [&header(EOF, 0, 1)[..]];
    for script in [&inside[..], &in_header, &no_eof, &no_eod] {
        let outcome = receive_script(&[script], |_| {});
        assert_eq!(outcome.code(), FaultCode::ConnectionLost);
    }
}

#[test]
fn strangers_without_the_nonce_change_nothing() {
    let nonce = nonce_blocks(&NONCE);
    let good = [&nonce[..], &header(0, 1, 0), b"g", &header(EOF | EOD, 0, 1)];
    let wrong = [&header(0, 1, 0)[..], b"w", &header(EOF | EOD, 0, 1)];
    let mut almost = nonce;
    almost[33] ^= 1;
    let almost = [&almost[..], &header(0, 1, 0), b"w"];
    let silent: [&[u8]; 0] = [];
    let partial = [&nonce[..20]];
    let outcome = receive_script(&[&wrong, &almost, &silent, &partial, &good], |job| {
        job.admission.nonce = Some(NONCE);
    });
    let report = outcome.result.expect("complete");
    assert_eq!((report.rejected, report.eods), (2, 1));
    assert_eq!(outcome.data, b"g");
    assert_eq!(outcome.unread.len(), 1);
}

pub(super) fn local_listener() -> Listener {
    let addr = "127.0.0.1:0".parse().expect("address");
    listen(addr, None, &ChannelOptions::default()).expect("listen")
}

pub(super) fn dial(listener: &Listener, cancel: &Cancel) -> Connection {
    let options = ConnectOptions::default();
    let channel = connect(listener.local_addr(), &options, cancel).expect("connect");
    Connection::new(Box::new(channel))
}

#[test]
fn connections_join_while_the_transfer_runs_and_strangers_do_not() {
    let listener = local_listener();
    let (out, inn) = (End::new(4, 2), End::new(4, 2));
    let source = data(20 * MIB);
    let wanted = all(20 * MIB);
    let sink = Memory::default();
    let mut send_job = out.send_job(&source, &wanted);
    send_job.nonce = Some(NONCE);
    let mut receive_job = inn.receive_job(&sink);
    receive_job.admission.listener = Some(&listener);
    receive_job.admission.nonce = Some(NONCE);
    let quiet_stranger = dial(&listener, &out.cancel);
    let mut rude_stranger = dial(&listener, &out.cancel);
    let rude = header(EOF | EOD, 0, 1);
    let sent = rude_stranger.channel.send_vectored(&[IoSlice::new(&rude)], false);
    assert_eq!(sent.expect("send"), HEADER_LEN);
    let mut from: Vec<_> = (0..3).map(|_| dial(&listener, &out.cancel)).collect();
    let mut to = Vec::new();
    let (sent, received) = transfer(&send_job, &receive_job, &mut from, &mut to);
    sent.expect("sent");
    let report = received.expect("received");
    assert_eq!((report.eods, report.rejected), (3, 1));
    assert!(sink.0.into_inner().expect("lock") == source);
    assert_eq!(to.len(), 3);
    drop(quiet_stranger);
}

#[test]
fn a_sender_nobody_sees_is_timed_out() {
    let listener = local_listener();
    let (end, sink) = (End::new(1, 1), Memory::default());
    let mut job = end.receive_job(&sink);
    job.admission.listener = Some(&listener);
    job.admission.timeout = Duration::from_millis(20);
    let fault = receive(&job, &mut Vec::new()).expect_err("nobody");
    assert_eq!(fault.code, FaultCode::TimedOut);
    job.admission.listener = None;
    let fault = receive(&job, &mut Vec::new()).expect_err("nobody can come");
    assert_eq!(fault.code, FaultCode::ConnectionLost);
}

#[test]
fn stalls_are_noticed_on_both_sides() {
    let (mut out, mut inn) = (End::new(4, 1), End::new(4, 1));
    let soon = Some(StallPolicy::silent_for(Duration::from_millis(50)));
    (out.stall, inn.stall) = (soon, soon);
    let (one, other) = pair().expect("pair");
    let stalled = FaultyChannel::new(Box::new(one), Mishap::StallAfter(150_000)).expect("wrap");
    let mut from = vec![Connection::new(Box::new(stalled))];
    let mut to = vec![Connection::new(Box::new(other))];
    let (source, wanted, sink) = (data(MIB), all(MIB), Memory::default());
    let (sent, received) = transfer(&out.send_job(&source, &wanted), &inn.receive_job(&sink), &mut from, &mut to);
    assert_eq!(sent.expect_err("stalled").code, FaultCode::Stalled);
    let code = received.expect_err("stalled").code;
    assert!(matches!(code, FaultCode::Stalled | FaultCode::ConnectionLost), "{code:?}");
}

#[test]
fn a_receiver_that_leaves_is_missed_at_once() {
    let cancel = Cancel::new().expect("cancel");
    // By closing its side or altogether, with data unread, on one of two connections.
    for half in [true, false] {
        let listener = local_listener();
        let mut from: Vec<_> = (0..2).map(|_| dial(&listener, &cancel)).collect();
        let mut to: Vec<_> =
            (0..2).map(|_| Some(listener.accept(Duration::from_secs(10), &cancel).expect("accept"))).collect();
        let end = End::new(4, 2);
        let (source, wanted) = (data(64 * MIB), all(64 * MIB));
        let sent = thread::scope(|scope| {
            let sender = scope.spawn(|| send(&end.send_job(&source, &wanted), &mut from));
            while end.progress.bytes() == 0 {
                thread::yield_now();
            }
            match half {
                true => to[1].as_mut().expect("open").shutdown().expect("shut down"),
                false => to[1] = None,
            }
            sender.join().expect("no panic")
        });
        let fault = sent.expect_err("it has left");
        assert_eq!(fault.code, FaultCode::ConnectionLost, "{fault}");
        drop(to);
    }
}

#[test]
fn cancellation_ends_both_sides_at_once() {
    let end = End::new(4, 2);
    let (mut from, mut to) = connections(2);
    let (source, wanted, sink) = (data(32 * MIB), all(32 * MIB), Memory::default());
    // Nobody reads: the sender waits for ever.
    let sent = thread::scope(|scope| {
        let sender = scope.spawn(|| send(&end.send_job(&source, &wanted), &mut from));
        while end.progress.bytes() == 0 {
            thread::yield_now();
        }
        end.cancel.cancel();
        sender.join().expect("no panic")
    });
    assert_eq!(sent.expect_err("cancelled").code, FaultCode::Cancelled);
    let received = receive(&end.receive_job(&sink), &mut to);
    assert_eq!(received.expect_err("cancelled").code, FaultCode::Cancelled);
    assert_eq!(end.pool.stats().send, 0);
}

#[test]
fn a_cut_in_any_place_is_a_fault_never_a_short_file() {
    let size = 3000;
    let (source, wanted) = (data(size), all(size));
    for cut in [0, 1, 16, 17, 18, 1017, 1034, 3050, 3067] {
        let (out, inn) = (End::new(2, 1), End::new(2, 1));
        let (one, other) = pair().expect("pair");
        let one = FaultyChannel::new(Box::new(one), Mishap::CutAfter(cut)).expect("wrap");
        let mut from = vec![Connection::new(Box::new(one) as Box<dyn DataChannel>)];
        let mut to = vec![Connection::new(Box::new(other))];
        let sink = Memory::default();
        let mut job = out.send_job(&source, &wanted);
        job.block_size = 1000;
        let (sent, received) = thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let sent = send(&job, &mut from);
                from.clear();
                sent
            });
            let received = receive(&inn.receive_job(&sink), &mut to);
            (sender.join().expect("no panic"), received)
        });
        let code = sent.expect_err("cut").code;
        assert_eq!(code, FaultCode::ConnectionLost, "cut after {cut}");
        let code = received.expect_err("cut").code;
        assert_eq!(code, FaultCode::ConnectionLost, "cut after {cut}");
    }
}

#[test]
fn stripes_carry_every_byte_exactly_once() {
    use whimbrel_proto::op::Layout;
    let size = 5 * MIB + 77;
    let source = data(size);
    for (layout, origin) in [
        (Layout::Partitioned, 0),
        (Layout::Blocked { block_size: 1000 }, 0),
        (Layout::Partitioned, 333),
        (Layout::Blocked { block_size: 5000 }, 333),
    ] {
        let (wanted, part) = (one(origin as u64..size as u64), size - origin);
        let sink = Memory::default();
        let mut moved = 0;
        for index in 0..3 {
            let (out, inn) = (End::new(2, 1), End::new(2, 1));
            let stripe = Stripe { index, count: 3, layout, size: part as u64 };
            let mut job = out.send_job(&source, &wanted);
            (job.amount, job.origin) = (Amount::Share(&wanted, stripe), origin as u64);
            let (mut from, mut to) = connections(2);
            let (sent, received) = transfer(&job, &inn.receive_job(&sink), &mut from, &mut to);
            moved += sent.expect("sent").bytes;
            received.expect("received");
            assert!(out.progress.ranges().is_empty(), "a sender keeps no list of its blocks");
            let first = inn.progress.ranges().as_slice()[0].start;
            let expected = match layout {
                Layout::Blocked { block_size } => block_size * u64::from(index),
                Layout::Partitioned => (part as u64).div_ceil(3) * u64::from(index),
            };
            assert_eq!(first, expected, "dealt from the part's beginning");
        }
        assert_eq!(moved, part as u64, "{layout:?}");
        assert!(sink.0.into_inner().expect("lock") == source[origin..], "{layout:?}");
    }
}

#[test]
fn a_large_share_is_sent_by_more_threads() {
    use whimbrel_proto::op::Layout;
    let (source, wanted) = (data(40 * MIB), all(40 * MIB));
    let (out, inn) = (End::new(8, 2), End::new(8, 2));
    let sink = Memory::default();
    let stripe = Stripe { index: 1, count: 2, layout: Layout::Blocked { block_size: MIB as u64 }, size: 40 << 20 };
    let mut job = out.send_job(&source, &wanted);
    job.amount = Amount::Share(&wanted, stripe);
    let (mut from, mut to) = connections(4);
    let (sent, received) = transfer(&job, &inn.receive_job(&sink), &mut from, &mut to);
    assert_eq!(sent.expect("sent").threads, 2);
    assert_eq!(received.expect("received").bytes, 20 << 20);
}

#[test]
fn one_of_several_senders_announces_the_end_for_all() {
    let (source, wanted, sink) = (data(1000), all(1000), Memory::default());
    let (out, inn) = (End::new(2, 1), End::new(2, 1));
    let (mut from, mut to) = connections(3);
    let mut second = from.split_off(2);
    let mut job = out.send_job(&source, &wanted);
    job.eof = Eof::Total(3);
    send(&job, &mut from).expect("first sender");
    job.eof = Eof::Elsewhere;
    send(&job, &mut second).expect("second sender");
    let report = receive(&inn.receive_job(&sink), &mut to).expect("complete");
    assert_eq!((report.eods, report.bytes), (3, 2000));
}

#[test]
fn a_rate_limit_is_shared_by_all_channels() {
    let (source, wanted, sink) = (data(60_000), all(60_000), Memory::default());
    let (out, inn) = (End::new(4, 1), End::new(4, 1));
    let limit = crate::rate::RateLimit::new(Some(300_000));
    let mut job = out.send_job(&source, &wanted);
    job.flow.rate = Some(&limit);
    let (mut from, mut to) = connections(3);
    let start = std::time::Instant::now();
    let (sent, received) = transfer(&job, &inn.receive_job(&sink), &mut from, &mut to);
    assert!(start.elapsed() >= Duration::from_millis(100), "0.2 s of data");
    assert_eq!(sent.expect("sent").bytes, 60_000);
    received.expect("received");
    assert!(sink.0.into_inner().expect("lock") == source);
}
