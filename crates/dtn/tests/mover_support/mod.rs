//! Drives data processes over the mover protocol, as a front would.

// Each test binary uses its own part of this.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;
use whimbrel_connector::posix::{Posix, PosixOptions};
use whimbrel_connector::{Connector, Receipt, WriteSession};
use whimbrel_dtn::mover::books::Books;
use whimbrel_dtn::mover::codec::{FrameReader, FrameWriter};
use whimbrel_dtn::mover::message::NodeOverrides;
use whimbrel_dtn::mover::message::{
    DataPeers, DataSettings, FromMover, Identity, Load, MoverId, Secrets, Stripe, ToMover, Transfers, VERSION,
};
use whimbrel_dtn::mover::{ServeError, serve_overridden};
use whimbrel_engine::Fault;
use whimbrel_proto::op::{DataParams, Failure, FailureKind, Mode, Notice, Op, OpId, Outcome, ReceiveSpec, SendSpec};

/// A hang fails a test after this long.
const PATIENCE: Duration = Duration::from_secs(30);

pub fn settings(root: &std::path::Path) -> DataSettings {
    DataSettings {
        pool_bytes: 16 << 20,
        ..DataSettings::of(root.as_os_str().as_bytes(), Duration::from_secs(20), Duration::from_secs(20))
    }
}

pub fn identity(data_peers: DataPeers) -> Identity {
    Identity {
        rules: whimbrel_proto::rules::LoginRules::unlimited(),
        user: "tester".to_owned(),
        login: Identity::new_login(),
        control_peer: Some("127.0.0.1:40000".parse().unwrap()),
        control_local: Some("127.0.0.1:2811".parse().unwrap()),
        data_peers,
        secrets: Secrets::default(),
    }
}

/// What came back from one operation.
#[derive(Debug, Default)]
pub struct Answer {
    pub notices: Vec<Notice>,
    pub outcome: Option<Outcome>,
    pub session: Option<Box<WriteSession>>,
    pub received: Option<(u64, Receipt)>,
}

impl Answer {
    fn is_complete(&self) -> bool {
        self.outcome.is_some() || self.received.is_some()
    }

    #[track_caller]
    pub fn done(self) -> Outcome {
        match self.outcome {
            Some(Outcome::Failed(failure)) => panic!("failed: {failure:?}"),
            Some(outcome) => outcome,
            None => panic!("no outcome: {self:?}"),
        }
    }

    #[track_caller]
    pub fn bytes(self) -> u64 {
        match self.done() {
            Outcome::Transferred { bytes, .. } => bytes,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub fn failure(self) -> Failure {
        match self.outcome {
            Some(Outcome::Failed(failure)) => failure,
            other => panic!("not a failure: {other:?}"),
        }
    }

    #[track_caller]
    pub fn fails_with(self, kind: FailureKind) -> Failure {
        let failure = self.failure();
        assert_eq!(failure.kind, kind, "{failure:?}");
        failure
    }

    pub fn reused(&self) -> Option<bool> {
        self.notices.iter().find_map(|notice| match notice {
            Notice::Opened { reused, .. } => Some(*reused),
            _ => None,
        })
    }

    pub fn lines(&self) -> Vec<u8> {
        let lines = self.notices.iter().filter_map(|notice| match notice {
            Notice::Lines(lines) => Some(lines.as_slice()),
            _ => None,
        });
        lines.collect::<Vec<_>>().concat()
    }
}

/// A data process and the front's end of its stream.
pub struct Node {
    pub root: TempDir,
    writer: FrameWriter,
    /// For closing.
    stream: UnixStream,
    reader: FrameReader<UnixStream, FromMover>,
    answers: HashMap<(MoverId, OpId), Answer>,
    pub loads: Vec<Load>,
    /// As last reported.
    pub transfers: Transfers,
    pub leaving: bool,
    /// Whether it says that it has heard listings.
    pub listens: bool,
    next: u64,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

fn posix(settings: &DataSettings) -> Result<Arc<dyn Connector>, Fault> {
    let root = PathBuf::from(std::ffi::OsStr::from_bytes(&settings.root));
    Ok(Arc::new(Posix::open(&root, PosixOptions::default())?))
}

impl Node {
    pub fn start() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut DataSettings)) -> Self {
        Self::at(tempfile::tempdir().unwrap(), change)
    }

    pub fn at(root: TempDir, change: impl FnOnce(&mut DataSettings)) -> Self {
        Self::opened(root, Books::default(), change, posix)
    }

    /// Writes down what it does.
    pub fn keeping(root: TempDir, books: Books) -> Self {
        Self::opened(root, books, |_| {}, posix)
    }

    /// On storage that the test has opened itself.
    pub fn on(root: TempDir, change: impl FnOnce(&mut DataSettings), storage: Arc<dyn Connector>) -> Self {
        Self::opened(root, Books::default(), change, |_| Ok(storage))
    }

    fn opened(
        root: TempDir,
        books: Books,
        change: impl FnOnce(&mut DataSettings),
        open: impl FnOnce(&DataSettings) -> Result<Arc<dyn Connector>, Fault> + Send + 'static,
    ) -> Self {
        let mut settings = settings(root.path());
        change(&mut settings);
        let (stream, far) = UnixStream::pair().unwrap();
        let serve = move || serve_overridden(far, NodeOverrides::default(), books, open, |_| Ok(()), |_| {});
        let thread = std::thread::spawn(serve);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let writer = FrameWriter::new(stream.try_clone().unwrap());
        let mut reader = FrameReader::new(stream.try_clone().unwrap());
        writer.send_message(&ToMover::Hello { version: VERSION, settings: Box::new(settings) }).unwrap();
        let hello = reader.read().unwrap();
        assert!(matches!(hello, Some(FromMover::Hello { version: VERSION, .. })), "{hello:?}");
        let (answers, loads, thread) = (HashMap::new(), Vec::new(), Some(thread));
        let (transfers, leaving) = (Transfers::default(), false);
        Self { root, writer, stream, reader, answers, loads, transfers, leaving, listens: true, next: 0, thread }
    }

    pub fn attach(&mut self) -> MoverId {
        self.attach_as(identity(DataPeers::ControlPeer))
    }

    pub fn attach_as(&mut self, identity: Identity) -> MoverId {
        self.next += 1;
        let mover = MoverId(self.next);
        self.send(&ToMover::Attach { mover, identity: Box::new(identity) });
        mover
    }

    pub fn send(&self, message: &ToMover) {
        self.writer.send_message(message).unwrap();
    }

    pub fn run(&mut self, mover: MoverId, op: Op) -> (MoverId, OpId) {
        self.run_striped(mover, op, Stripe::WHOLE, None)
    }

    pub fn run_striped(
        &mut self,
        mover: MoverId,
        op: Op,
        stripe: Stripe,
        session: Option<Box<WriteSession>>,
    ) -> (MoverId, OpId) {
        self.next += 1;
        let id = OpId(self.next);
        self.send(&ToMover::Run { mover, id, op: Box::new(op), stripe, session });
        (mover, id)
    }

    /// Takes in one message.
    pub fn step(&mut self) {
        match self.reader.read().unwrap().expect("the data process lives") {
            FromMover::Notice { mover, id, notice } => {
                if let (Notice::Lines(lines), true) = (&notice, self.listens) {
                    self.send(&ToMover::Heard { mover, bytes: lines.len() as u64 });
                }
                self.answer((mover, id)).notices.push(notice);
            }
            FromMover::Outcome { mover, id, outcome } => {
                let answer = self.answer((mover, id));
                assert!(answer.outcome.is_none(), "two outcomes");
                answer.outcome = Some(outcome);
            }
            FromMover::Session { mover, id, session } => self.answer((mover, id)).session = Some(session),
            FromMover::Received { mover, id, bytes, receipt } => {
                self.answer((mover, id)).received = Some((bytes, *receipt));
            }
            FromMover::Load(load) => self.loads.push(load),
            FromMover::Transfers(transfers) => self.transfers = *transfers,
            FromMover::Leaving => self.leaving = true,
            FromMover::Hello { .. } => panic!("a second greeting"),
        }
    }

    fn answer(&mut self, key: (MoverId, OpId)) -> &mut Answer {
        let answer = self.answers.entry(key).or_default();
        assert!(answer.outcome.is_none(), "news after the outcome");
        answer
    }

    /// Takes in messages until `enough` of this operation's answer.
    pub fn until(&mut self, key: (MoverId, OpId), enough: impl Fn(&Answer) -> bool) -> &Answer {
        while !self.answers.get(&key).is_some_and(&enough) {
            self.step();
        }
        &self.answers[&key]
    }

    pub fn has_outcome(&self, key: (MoverId, OpId)) -> bool {
        self.answers.get(&key).is_some_and(|answer| answer.outcome.is_some())
    }

    pub fn wait(&mut self, key: (MoverId, OpId)) -> Answer {
        self.until(key, Answer::is_complete);
        self.answers.remove(&key).unwrap()
    }

    pub fn call(&mut self, mover: MoverId, op: Op) -> Answer {
        let key = self.run(mover, op);
        self.wait(key)
    }

    pub fn abort(&self, (mover, id): (MoverId, OpId)) {
        self.send(&ToMover::Abort { mover, id });
    }

    #[track_caller]
    pub fn passive(&mut self, mover: MoverId, params: &DataParams) -> SocketAddr {
        let op = Op::Passive { striped: false, family: None, params: params.clone() };
        match self.call(mover, op).done() {
            Outcome::Listening(addrs) => addrs[0],
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub fn active(&mut self, mover: MoverId, targets: &[SocketAddr], params: &DataParams) {
        let op = Op::Active { targets: targets.to_vec(), params: params.clone() };
        assert_eq!(self.call(mover, op).done(), Outcome::Done);
    }

    /// Connects two movers of this process for transfers from the first to the second.
    pub fn pair(&mut self, params: &DataParams) -> (MoverId, MoverId) {
        let (source, destination) = (self.attach(), self.attach());
        self.link(source, destination, params);
        (source, destination)
    }

    pub fn link(&mut self, source: MoverId, destination: MoverId, params: &DataParams) {
        let addr = self.passive(destination, params);
        self.active(source, &[addr], params);
    }

    /// A third-party copy over linked movers: answers of source and destination.
    pub fn copy(&mut self, movers: (MoverId, MoverId), from: SendSpec, to: ReceiveSpec) -> (Answer, Answer) {
        let receiving = self.run(movers.1, Op::Receive(to));
        let sending = self.run(movers.0, Op::Send(from));
        (self.wait(sending), self.wait(receiving))
    }

    pub fn write(&self, name: &str, data: &[u8]) {
        std::fs::write(self.root.path().join(name), data).unwrap();
    }

    #[track_caller]
    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.root.path().join(name)).unwrap()
    }

    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Closes the stream and returns how the process ended.
    pub fn end(&mut self) -> Result<(), ServeError> {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        self.thread.take().expect("ended once").join().unwrap()
    }

    /// Waits for the process to end by itself.
    pub fn join(&mut self) -> Result<(), ServeError> {
        self.thread.take().expect("ended once").join().unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let result = self.end();
            assert!(std::thread::panicking() || result.is_ok(), "{result:?}");
        }
    }
}

pub fn stream() -> DataParams {
    DataParams::default()
}

pub fn extended(parallelism: u16) -> DataParams {
    DataParams { mode: Mode::Extended, parallelism, ..DataParams::default() }
}

pub fn send(path: &str) -> SendSpec {
    SendSpec::of(path)
}

pub fn receive(path: &str) -> ReceiveSpec {
    ReceiveSpec::of(path)
}

/// Bytes that differ everywhere.
pub fn pattern(len: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252u64;
    let mut data = Vec::with_capacity(len + 8);
    while data.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data.extend_from_slice(&state.to_le_bytes());
    }
    data.truncate(len);
    data
}
