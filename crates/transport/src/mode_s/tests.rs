use super::*;
use crate::cancel::Cancel;
use crate::faulty::{FaultyChannel, Mishap};
use crate::flow::StallPolicy;
use crate::local::{LocalChannel, pair};
use crate::pool::{Pool, PoolLimits};
use crate::progress::Progress;
use crate::rate::RateLimit;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

#[derive(Default)]
struct Memory(Mutex<Vec<u8>>);

impl BlockSink for Memory {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let mut bytes = self.0.lock().expect("lock");
        let end = offset as usize + data.len();
        let len = bytes.len().max(end);
        bytes.resize(len, 0);
        bytes[offset as usize..end].copy_from_slice(data);
        Ok(())
    }
}

struct FileSource(std::fs::File);

impl BlockSource for FileSource {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        std::os::unix::fs::FileExt::read_at(&self.0, buffer, offset).map_err(|error| Fault::from_io(error, "read"))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

fn file(data: &[u8]) -> FileSource {
    let fd = rustix::fs::memfd_create("source", rustix::fs::MemfdFlags::CLOEXEC);
    let mut file = std::fs::File::from(fd.expect("memfd"));
    file.write_all(data).expect("write");
    FileSource(file)
}

struct Bench {
    pool: Pool,
    progress: Progress,
    cancel: Cancel,
}

impl Bench {
    fn new() -> Self {
        let limits = PoolLimits { buffer_size: 8192, send: 1, receive: 1, hash: 1, low_water: 1, high_water: 1 };
        Self {
            pool: Pool::new(limits).expect("pool"),
            progress: Progress::new(),
            cancel: Cancel::new().expect("cancel"),
        }
    }

    fn flow(&self) -> Flow<'_> {
        Flow::new(&self.pool, &self.progress, &self.cancel)
    }

    fn send_job<'a>(&'a self, source: &'a dyn BlockSource) -> StreamSend<'a> {
        StreamSend {
            source,
            offset: 0,
            length: None,
            representation: Representation::Image,
            sendfile: false,
            digests: None,
            flow: self.flow(),
        }
    }

    fn receive_job<'a>(&'a self, sink: &'a dyn BlockSink) -> StreamReceive<'a> {
        StreamReceive { sink, offset: 0, limit: None, representation: Representation::Image, flow: self.flow() }
    }
}

fn transfer(send_job: &StreamSend<'_>, receive_job: &StreamReceive<'_>) -> (Result<u64, Fault>, Result<u64, Fault>) {
    let (mut one, mut other) = pair().expect("pair");
    thread::scope(|scope| {
        let sender = scope.spawn(move || send(send_job, &mut one));
        let received = receive(receive_job, &mut other);
        (sender.join().expect("no panic"), received)
    })
}

fn data(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ (i >> 8)) as u8).collect()
}

#[test]
fn a_file_or_a_part_arrives_by_either_way_of_sending() {
    let bytes = data(300_000);
    let source = file(&bytes);
    for sendfile in [false, true] {
        for (offset, length) in [(0, None), (0, Some(300_000)), (5, Some(100_000)), (9, Some(0))] {
            let (out, inn, sink) = (Bench::new(), Bench::new(), Memory::default());
            let mut job = out.send_job(&source);
            (job.offset, job.length, job.sendfile) = (offset, length, sendfile);
            let (sent, received) = transfer(&job, &inn.receive_job(&sink));
            let expected = length.unwrap_or(300_000 - offset);
            assert_eq!(sent.expect("sent"), expected);
            assert_eq!(received.expect("received"), expected);
            let got = sink.0.into_inner().expect("lock");
            assert!(got == bytes[offset as usize..(offset + expected) as usize]);
            assert_eq!(out.progress.bytes(), expected);
        }
    }
}

#[test]
fn a_restarted_stream_lands_behind_what_is_there() {
    let (out, inn, sink) = (Bench::new(), Bench::new(), Memory::default());
    let source = data(1000);
    let mut receive_job = inn.receive_job(&sink);
    receive_job.offset = 300;
    let mut send_job = out.send_job(&source);
    send_job.offset = 300;
    let (sent, received) = transfer(&send_job, &receive_job);
    assert_eq!((sent.expect("sent"), received.expect("received")), (700, 700));
    assert_eq!(sink.0.into_inner().expect("lock")[300..], source[300..]);
    assert_eq!(inn.progress.ranges(), std::iter::once(300..1000).collect());
}

#[test]
fn text_is_converted_both_ways() {
    let text = b"line\nanother\n".repeat(3000);
    let (out, inn, sink) = (Bench::new(), Bench::new(), Memory::default());
    let mut send_job = out.send_job(&text);
    send_job.representation = Representation::Ascii;
    let (_, raw) = transfer(&send_job, &inn.receive_job(&sink));
    assert_eq!(raw.expect("raw"), text.len() as u64 + 6000);
    let sink = Memory::default();
    let mut receive_job = inn.receive_job(&sink);
    receive_job.representation = Representation::Ascii;
    let (sent, received) = transfer(&send_job, &receive_job);
    assert_eq!(sent.expect("sent"), text.len() as u64);
    assert_eq!(received.expect("received"), text.len() as u64);
    assert!(sink.0.into_inner().expect("lock") == text);
}

#[test]
fn a_shorter_source_and_a_longer_stream_are_faults() {
    for sendfile in [false, true] {
        let (out, inn, sink) = (Bench::new(), Bench::new(), Memory::default());
        let source = file(&data(1000));
        let mut job = out.send_job(&source);
        (job.length, job.sendfile) = (Some(1001), sendfile);
        let (sent, _) = transfer(&job, &inn.receive_job(&sink));
        assert_eq!(sent.expect_err("short").code, FaultCode::SourceChanged);
        job.length = Some(1000);
        let mut receive_job = inn.receive_job(&sink);
        receive_job.limit = Some(999);
        let (_, received) = transfer(&job, &receive_job);
        assert_eq!(received.expect_err("long").code, FaultCode::PeerMisbehaved);
    }
}

#[test]
fn stall_and_cancellation_end_a_waiting_receiver() {
    let (bench, sink) = (Bench::new(), Memory::default());
    let (_peer, mut quiet): (LocalChannel, LocalChannel) = pair().expect("pair");
    let mut job = bench.receive_job(&sink);
    job.flow.stall = Some(StallPolicy::silent_for(Duration::from_millis(20)));
    let fault = receive(&job, &mut quiet).expect_err("stalled");
    assert_eq!(fault.code, FaultCode::Stalled);
    job.flow.stall = None;
    let token = bench.cancel.clone();
    let canceller = thread::spawn(move || token.cancel());
    let fault = receive(&job, &mut quiet).expect_err("cancelled");
    assert_eq!(fault.code, FaultCode::Cancelled);
    canceller.join().expect("no panic");
}

#[test]
fn a_cut_is_a_lost_connection() {
    let bench = Bench::new();
    let source = data(100_000);
    let (one, _other) = pair().expect("pair");
    let mut cut = FaultyChannel::new(Box::new(one), Mishap::CutAfter(5000)).expect("wrap");
    let fault = send(&bench.send_job(&source), &mut cut).expect_err("cut");
    assert_eq!(fault.code, FaultCode::ConnectionLost);
}

#[test]
fn a_rate_limit_slows_a_stream_down() {
    let (out, inn, sink) = (Bench::new(), Bench::new(), Memory::default());
    let source = data(40_000);
    let limit = RateLimit::new(Some(200_000));
    let mut job = out.send_job(&source);
    job.flow.rate = Some(&limit);
    let start = std::time::Instant::now();
    let (sent, _) = transfer(&job, &inn.receive_job(&sink));
    assert_eq!(sent.expect("sent"), 40_000);
    assert!(start.elapsed() >= Duration::from_millis(150), "0.2 s of data");
}
