//! The floor under every transfer on this machine: sendfile, receive, pwrite, between two processes over loopback.
//!
//! No transfer that writes every byte it receives can cost less, so a speed claim names the floor of the same run.
//!
//! `floor [--streams N] [--bytes N] [--block N] [--source FILE] [--sink FILE] [--keep]` prints one line of JSON.
//! Without a source it sends a hot memory file over and over, without a sink it writes to `/dev/null`. A sink is
//! emptied first, unless `--keep` leaves its pages allocated. Defaults: 1 stream, 1 GiB, blocks of 1 MiB.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::time::{ClockId, clock_gettime};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Size of the memory file: within the processor's outer cache, as a source that costs nothing should be.
const HOT_BYTES: u64 = 4 << 20;
/// Offset and length, before the bytes of each stream.
const HEADER_BYTES: usize = 16;

#[derive(Clone)]
struct Plan {
    streams: u64,
    bytes: u64,
    block: usize,
    source: Option<PathBuf>,
    sink: Option<PathBuf>,
    keep: bool,
    receive: bool,
}

fn main() -> Outcome<()> {
    let mut plan = Plan::parse(std::env::args().skip(1))?;
    if plan.receive {
        return receive(&plan);
    }
    if let Some(source) = &plan.source {
        plan.bytes = fs::metadata(source)?.len();
    }
    let (wall, cpu) = send(&plan)?;
    let name =
        |path: &Option<PathBuf>| format!("{:?}", path.as_ref().map_or("memory".into(), |path| path.to_string_lossy()));
    println!(
        "{{\"floor\":\"sendfile-recv-pwrite\",\"streams\":{},\"source\":{},\"sink\":{},\"bytes\":{},\"seconds\":{:.6},\"cpu_seconds\":{:.6}}}",
        plan.streams,
        name(&plan.source),
        name(&plan.sink),
        plan.bytes,
        wall.as_secs_f64(),
        cpu.as_secs_f64()
    );
    Ok(())
}

impl Plan {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Outcome<Plan> {
        let mut plan =
            Plan { streams: 1, bytes: 1 << 30, block: 1 << 20, source: None, sink: None, keep: false, receive: false };
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{flag} needs a value"));
            match flag.as_str() {
                "--streams" => plan.streams = value()?.parse::<u64>()?.max(1),
                "--bytes" => plan.bytes = value()?.parse()?,
                "--block" => plan.block = value()?.parse::<usize>()?.max(1),
                "--source" => plan.source = Some(value()?.into()),
                "--sink" => plan.sink = Some(value()?.into()),
                "--keep" => plan.keep = true,
                "--receive" => plan.receive = true,
                _ => return Err(format!("unknown argument {flag}").into()),
            }
        }
        Ok(plan)
    }

    /// Offset and length of one stream's contiguous share.
    fn share(&self, stream: u64) -> (u64, u64) {
        let start = |stream: u64| (u128::from(self.bytes) * u128::from(stream) / u128::from(self.streams)) as u64;
        (start(stream), start(stream + 1) - start(stream))
    }
}

/// Runs the receiving process and sends to it; wall time until it has written all, and processor time of both.
fn send(plan: &Plan) -> Outcome<(Duration, Duration)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--receive").args(["--streams", &plan.streams.to_string(), "--block", &plan.block.to_string()]);
    if let Some(sink) = &plan.sink {
        command.arg("--sink").arg(sink).args(plan.keep.then_some("--keep"));
    }
    let mut receiver = command.stdout(Stdio::piped()).spawn()?;
    let mut said = BufReader::new(receiver.stdout.take().ok_or("no output")?).lines();
    let mut next = move || -> Outcome<String> { Ok(said.next().ok_or("the receiving process failed")??) };
    let address: SocketAddr = next()?.parse()?;
    let source = open_source(plan)?;
    let (start, cpu_before) = (Instant::now(), processor_time());
    let sent = thread::scope(|scope| -> Outcome<()> {
        let spawn = |stream| {
            scope.spawn({
                let source = &source;
                move || send_stream(plan, stream, source, address)
            })
        };
        let senders: Vec<_> = (0..plan.streams).map(spawn).collect();
        senders.into_iter().try_for_each(|sender| sender.join().expect("a sender does not panic"))
    });
    if sent.is_err() {
        // It would wait for streams that never come.
        receiver.kill()?;
    }
    let received = next();
    let (wall, cpu) = (start.elapsed(), processor_time() - cpu_before);
    receiver.wait()?;
    sent?;
    Ok((wall, cpu + Duration::from_nanos(received?.parse()?)))
}

fn open_source(plan: &Plan) -> Outcome<File> {
    if let Some(path) = &plan.source {
        return Ok(File::open(path)?);
    }
    let memory = File::from(memfd_create("floor", MemfdFlags::CLOEXEC)?);
    memory.write_all_at(&vec![0x55; HOT_BYTES as usize], 0)?;
    Ok(memory)
}

fn send_stream(plan: &Plan, stream: u64, source: &File, address: SocketAddr) -> Outcome<()> {
    let (offset, length) = plan.share(stream);
    let mut socket = TcpStream::connect(address)?;
    socket.write_all(&[offset.to_be_bytes(), length.to_be_bytes()].concat())?;
    let mut sent = 0;
    while sent < length {
        let (mut from, most) = match plan.source {
            Some(_) => (offset + sent, u64::MAX),
            None => (sent % HOT_BYTES, HOT_BYTES - sent % HOT_BYTES),
        };
        let count = most.min(length - sent).min(plan.block as u64);
        match sendfile(&socket, source, Some(&mut from), count as usize)? {
            0 => return Err("the source has become shorter".into()),
            count => sent += count as u64,
        }
    }
    Ok(())
}

/// The receiving process: prints its address, then, when all is written, its processor time in nanoseconds.
fn receive(plan: &Plan) -> Outcome<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let path = plan.sink.clone().unwrap_or_else(|| "/dev/null".into());
    let sink = OpenOptions::new().write(true).create(true).truncate(!plan.keep).open(path)?;
    println!("{}", listener.local_addr()?);
    let before = processor_time();
    thread::scope(|scope| -> Outcome<()> {
        let mut receivers = Vec::new();
        for _ in 0..plan.streams {
            let (socket, _) = listener.accept()?;
            receivers.push(scope.spawn(|| receive_stream(socket, &sink, plan.block)));
        }
        receivers.into_iter().try_for_each(|receiver| receiver.join().expect("a receiver does not panic"))
    })?;
    println!("{}", (processor_time() - before).as_nanos());
    Ok(())
}

fn receive_stream(mut socket: TcpStream, sink: &File, block: usize) -> Outcome<()> {
    let mut header = [0; HEADER_BYTES];
    socket.read_exact(&mut header)?;
    let number = |at: usize| u64::from_be_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let (mut offset, end) = (number(0), number(0) + number(8));
    let mut buffer = vec![0; block];
    while offset < end {
        match socket.read(&mut buffer)? {
            0 => return Err("the sender has gone".into()),
            count => {
                sink.write_all_at(&buffer[..count], offset)?;
                offset += count as u64;
            }
        }
    }
    Ok(())
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
