//! Memory to memory over loopback, `/dev/zero` to `/dev/null`, in two processes.
//!
//! `loopback [GIB] [CHANNELS] [BLOCK_KIB] [THREADS] [mode-e|plain]` prints rate and processor time
//! of both ends. `plain` is the floor: read and send, receive and write, in one loop each.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Instant;

use whimbrel_engine::Fault;
use whimbrel_transport::mode_e::{Admission, Amount, Connection, Eof, ReceiveJob, SendJob, receive, send};
use whimbrel_transport::tcp::{ChannelOptions, ConnectOptions, connect, listen};
use whimbrel_transport::{BlockSink, BlockSource, Cancel, Flow, Pool, PoolLimits, Progress};

struct Device(File);

impl BlockSource for Device {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        let read = self.0.read_at(buffer, offset);
        read.map_err(|error| Fault::from_io(error, "read"))
    }
}

impl BlockSink for Device {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let written = self.0.write_all_at(data, offset);
        written.map_err(|error| Fault::from_io(error, "write"))
    }
}

struct Settings {
    bytes: u64,
    channels: usize,
    block: usize,
    threads: usize,
    plain: bool,
    role: String,
    port: u16,
}

fn settings() -> Settings {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| {
        let given = args.get(at).map(|arg| arg.parse().expect("a number"));
        given.unwrap_or(default)
    };
    Settings {
        bytes: number(0, 4) << 30,
        channels: number(1, 1) as usize,
        block: number(2, 256) as usize * 1024,
        threads: number(3, 2) as usize,
        plain: args.get(4).is_some_and(|mode| mode == "plain"),
        role: args.get(5).cloned().unwrap_or_default(),
        port: number(6, 0) as u16,
    }
}

/// User and system time of this process, in seconds.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("proc");
    let fields = stat.rsplit(')').next().expect("fields after the name");
    let ticks: f64 = fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().expect("ticks")).sum();
    ticks / 100.0
}

fn main() {
    let settings = settings();
    match settings.role.as_str() {
        "send" if settings.plain => plain_send(&settings),
        "send" => mode_e_send(&settings),
        _ => receive_and_report(&settings),
    }
}

fn receive_and_report(settings: &Settings) {
    let start = Instant::now();
    let sender = if settings.plain { plain_receive(settings) } else { mode_e_receive(settings) };
    let seconds = start.elapsed().as_secs_f64();
    let gigabytes = settings.bytes as f64 / 1e9;
    println!(
        "{:6} channels {} block {:4} KiB threads {}: {:5.0} MB/s, {:.3} cpu-s/GB (send {:.3}, receive {:.3})",
        if settings.plain { "plain" } else { "mode-e" },
        settings.channels,
        settings.block / 1024,
        settings.threads,
        gigabytes * 1000.0 / seconds,
        (sender + cpu_seconds()) / gigabytes,
        sender / gigabytes,
        cpu_seconds() / gigabytes,
    );
}

/// Starts the sending process; the returned closure waits and gives its processor time.
fn sender(port: u16) -> impl FnOnce() -> f64 {
    let mut args: Vec<String> = std::env::args().skip(1).take(5).collect();
    let defaults = ["4", "1", "256", "2", "mode-e"];
    for default in &defaults[args.len()..] {
        args.push((*default).to_owned());
    }
    let child = Command::new(std::env::current_exe().expect("own path"))
        .args(args)
        .args(["send", &port.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("start sender");
    move || {
        let output = child.wait_with_output().expect("sender");
        let text = String::from_utf8(output.stdout).expect("text");
        text.trim().parse().expect("processor time")
    }
}

fn pool(block: usize) -> Pool {
    let limits = PoolLimits { buffer_size: block, ..PoolLimits::default() };
    Pool::new(limits).expect("pool")
}

fn mode_e_send(settings: &Settings) {
    let (pool, progress) = (pool(settings.block), Progress::new());
    let cancel = Cancel::new().expect("cancel");
    let addr = ([127, 0, 0, 1], settings.port).into();
    let mut connections: Vec<Connection> = (0..settings.channels)
        .map(|_| {
            let channel = connect(addr, &ConnectOptions::default(), &cancel).expect("connect");
            Connection::new(Box::new(channel))
        })
        .collect();
    let source = Device(File::open("/dev/zero").expect("open"));
    let ranges = std::iter::once(0..settings.bytes).collect();
    let job = SendJob {
        source: &source,
        amount: Amount::Ranges(&ranges),
        origin: 0,
        block_size: settings.block,
        nonce: None,
        eof: Eof::Own,
        sendfile: false,
        digests: None,
        flow: Flow { threads: settings.threads, ..Flow::new(&pool, &progress, &cancel) },
    };
    send(&job, &mut connections).expect("send");
    println!("{}", cpu_seconds());
}

fn mode_e_receive(settings: &Settings) -> f64 {
    let (pool, progress) = (pool(settings.block), Progress::new());
    let cancel = Cancel::new().expect("cancel");
    let addr = "127.0.0.1:0".parse().expect("address");
    let listener = listen(addr, None, &ChannelOptions::default()).expect("listen");
    let finish = sender(listener.local_addr().port());
    let sink = Device(File::create("/dev/null").expect("open"));
    let job = ReceiveJob {
        sink: &sink,
        bound: 0..settings.bytes,
        origin: 0,
        admission: Admission { listener: Some(&listener), ..Admission::default() },
        flow: Flow { threads: settings.threads, ..Flow::new(&pool, &progress, &cancel) },
    };
    receive(&job, &mut Vec::new()).expect("receive");
    finish()
}

fn plain_send(settings: &Settings) {
    let mut stream = TcpStream::connect(("127.0.0.1", settings.port)).expect("connect");
    let mut source = File::open("/dev/zero").expect("open");
    let mut buffer = vec![0; settings.block];
    let mut left = settings.bytes;
    while left > 0 {
        let want = left.min(buffer.len() as u64) as usize;
        source.read_exact(&mut buffer[..want]).expect("read");
        stream.write_all(&buffer[..want]).expect("send");
        left -= want as u64;
    }
    println!("{}", cpu_seconds());
}

fn plain_receive(settings: &Settings) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let finish = sender(listener.local_addr().expect("address").port());
    let mut stream = listener.accept().expect("accept").0;
    let mut sink = File::create("/dev/null").expect("open");
    let mut buffer = vec![0; settings.block];
    loop {
        match stream.read(&mut buffer).expect("receive") {
            0 => return finish(),
            received => sink.write_all(&buffer[..received]).expect("write"),
        }
    }
}
