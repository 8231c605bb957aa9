//! The data process: one stream to a front, one thread for each mover.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use whimbrel_connector::Connector;
use whimbrel_engine::{Fault, FaultCode, Side};

use super::books::Books;
use super::codec::{CodecError, FrameReader, FrameWriter};
use super::failure;
use super::message::{DataSettings, FromMover, Identity, MoverId, NodeOverrides, ToMover, VERSION};
use super::node::Node;
pub use super::stdio::serve_standard_input;
use super::worker::{Job, Worker};

/// Stack of a mover's thread; buffers live on the heap.
pub(crate) const STACK: usize = 256 << 10;

/// Why a data process ended other than by the end of its stream or by draining.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The front sent something that is no message, or the stream failed.
    #[error(transparent)]
    Stream(#[from] CodecError),
    /// The first message was no `Hello`, or a later one was.
    #[error("the front broke the mover protocol: {0}")]
    Protocol(&'static str),
    /// The front speaks another version.
    #[error("the front speaks version {0} of the mover protocol, this is version {VERSION}")]
    Version(u32),
    /// Storage or another resource could not be prepared.
    #[error(transparent)]
    Setup(Fault),
}

impl ServeError {
    /// For callers that speak of faults.
    pub fn into_fault(self) -> Fault {
        match self {
            Self::Setup(fault) => fault,
            other => Fault::new(FaultCode::NodeLost, "serve front").detail(other.to_string()),
        }
    }
}

/// A stream that can be read by one thread while others write.
pub trait Link: Send + 'static {
    /// Ends the stream for whoever waits in it.
    fn closer(&self) -> io::Result<Box<dyn FnOnce() + Send>>;

    /// The two directions; dropping both closes the stream.
    fn halves(self) -> io::Result<(Box<dyn Read + Send>, Box<dyn Write + Send>)>;
}

impl Link for UnixStream {
    fn closer(&self) -> io::Result<Box<dyn FnOnce() + Send>> {
        let stream = self.try_clone()?;
        Ok(Box::new(move || {
            // Fails only when the stream is gone already, which is what was wanted.
            let _ = stream.shutdown(Shutdown::Both);
        }))
    }

    fn halves(self) -> io::Result<(Box<dyn Read + Send>, Box<dyn Write + Send>)> {
        let writer = self.try_clone()?;
        Ok((Box::new(self), Box::new(writer)))
    }
}

/// Serves one front until the stream ends or everything is drained; the caller's thread reads.
///
/// `connect` makes the process's one connector from the front's settings. Everything of every
/// mover is gone when this returns.
pub fn serve<C>(link: impl Link, connect: C) -> Result<(), ServeError>
where
    C: FnOnce(&DataSettings) -> Result<Arc<dyn Connector>, Fault>,
{
    serve_overridden(link, NodeOverrides::default(), Books::default(), connect, |_| Ok(()), |_| {})
}

/// Tells the front that this data process takes no new work.
///
/// What runs is finished; the process ends when the front has detached its movers.
pub struct Departure(FrameWriter);

impl Departure {
    /// Says so; harmless when the stream is gone.
    pub fn announce(&self) {
        self.0.send_message(&FromMover::Leaving).expect("a short message");
    }
}

/// Like [`serve`], on a host that decides some settings for itself, and writes down in `books`; `confine` is called when storage is open and
/// no thread runs yet, `started` gets the means to leave early.
pub fn serve_overridden<C>(
    link: impl Link,
    own: NodeOverrides,
    books: Books,
    connect: C,
    confine: impl FnOnce(&DataSettings) -> Result<(), Fault>,
    started: impl FnOnce(Departure),
) -> Result<(), ServeError>
where
    C: FnOnce(&DataSettings) -> Result<Arc<dyn Connector>, Fault>,
{
    let (link_ip, close) = (own.link_ip, link.closer().map_err(CodecError::Io)?);
    let (source, sink) = link.halves().map_err(CodecError::Io)?;
    let mut reader = FrameReader::new(source);
    let writer = FrameWriter::new(sink);
    let Some(settings) = greeting(&mut reader, &writer)? else {
        return Ok(());
    };
    let settings = settings.overridden(own);
    let connector = connect(&settings).map_err(ServeError::Setup)?;
    confine(&settings).map_err(ServeError::Setup)?;
    let node = Node::new(settings, connector, books, writer.clone(), link_ip).map_err(ServeError::Setup)?;
    let node = Arc::new(node);
    writer.send_message(&hello())?;
    started(Departure(writer));
    let mut process = Process::new(node);
    let result = process.run(&mut reader);
    if !process.draining {
        // Nobody reads any more: a mover that waits to be heard must not keep the process.
        close();
    }
    process.end();
    result
}

/// Starts a data process inside this one; the caller speaks the mover protocol on the returned
/// stream and ends the process by closing it (or with `Drain`).
pub fn spawn_in_process<C>(connect: C) -> io::Result<(UnixStream, JoinHandle<Result<(), ServeError>>)>
where
    C: FnOnce(&DataSettings) -> Result<Arc<dyn Connector>, Fault> + Send + 'static,
{
    let (near, far) = UnixStream::pair()?;
    let builder = thread::Builder::new().name("data-process".to_owned()).stack_size(STACK);
    let thread = builder.spawn(move || serve(far, connect))?;
    Ok((near, thread))
}

fn processors() -> u32 {
    thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

type Reader = FrameReader<Box<dyn Read + Send>, ToMover>;

/// The settings of the front; `None` when it went away without a word.
fn greeting(reader: &mut Reader, writer: &FrameWriter) -> Result<Option<Box<DataSettings>>, ServeError> {
    match reader.read()? {
        None => Ok(None),
        Some(ToMover::Hello { version, settings }) if version == VERSION => Ok(Some(settings)),
        Some(ToMover::Hello { version, .. }) => {
            // The front finds the difference in our greeting and drops the stream.
            writer.send_message(&hello())?;
            Err(ServeError::Version(version))
        }
        Some(_) => Err(ServeError::Protocol("the first message is no greeting")),
    }
}

fn hello() -> FromMover {
    FromMover::Hello { version: VERSION, processors: processors(), uid: rustix::process::geteuid().as_raw() }
}

struct Process {
    node: Arc<Node>,
    movers: HashMap<MoverId, Handle>,
    /// Movers the system had no thread for; each operation asks for one again.
    waiting: HashMap<MoverId, Identity>,
    leaving: Vec<JoinHandle<()>>,
    draining: bool,
    /// Starts the thread of a mover.
    start: fn(thread::Builder, Work) -> io::Result<JoinHandle<()>>,
}

/// What a mover's thread does.
type Work = Box<dyn FnOnce() + Send>;

/// The reader's hold on a mover.
struct Handle {
    queue: std::sync::mpsc::Sender<Job>,
    control: Arc<super::worker::Control>,
    thread: JoinHandle<()>,
}

impl Process {
    fn new(node: Arc<Node>) -> Self {
        let start = |thread: thread::Builder, work: Work| thread.spawn(work);
        let (movers, waiting) = (HashMap::new(), HashMap::new());
        Self { node, movers, waiting, leaving: Vec::new(), draining: false, start }
    }

    fn run(&mut self, reader: &mut Reader) -> Result<(), ServeError> {
        while let Some(message) = reader.read()? {
            self.handle(message)?;
            if self.draining && self.movers.is_empty() && self.waiting.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn handle(&mut self, message: ToMover) -> Result<(), ServeError> {
        match message {
            ToMover::Hello { .. } => return Err(ServeError::Protocol("a second greeting")),
            ToMover::Attach { mover, identity } => self.attach(mover, *identity)?,
            ToMover::Abort { mover, id } => {
                if let Some(handle) = self.movers.get(&mover) {
                    handle.control.abort(id);
                }
            }
            ToMover::Heard { mover, bytes } => {
                if let Some(handle) = self.movers.get(&mover) {
                    handle.control.heard(bytes);
                }
            }
            ToMover::Detach { mover } => self.detach(mover),
            ToMover::Drain => self.draining = true,
            ToMover::Run { mover, .. }
            | ToMover::Commit { mover, .. }
            | ToMover::Label { mover, .. }
            | ToMover::Listening { mover, .. } => self.queue(mover, message)?,
        }
        Ok(())
    }

    fn attach(&mut self, mover: MoverId, identity: Identity) -> Result<(), ServeError> {
        if self.movers.contains_key(&mover) || self.waiting.contains_key(&mover) {
            return Err(ServeError::Protocol("a mover is attached twice"));
        }
        if let Err(fault) = self.start(mover, &identity) {
            // The others go on; this one's operations are answered with the fault.
            tracing::error!(%fault, user = identity.user, "a login gets no mover for now");
            self.waiting.insert(mover, identity);
        }
        Ok(())
    }

    fn start(&mut self, mover: MoverId, identity: &Identity) -> Result<(), Fault> {
        let (queue, jobs) = std::sync::mpsc::channel();
        let worker = Worker::new(self.node.clone(), mover, identity.clone());
        let control = worker.control();
        let thread = thread::Builder::new().name(format!("mover-{}", mover.0)).stack_size(STACK);
        let thread = (self.start)(thread, Box::new(move || worker.run(&jobs))).map_err(|error| {
            Fault::new(FaultCode::ServerBusy, "start mover").side(Side::Us).detail(format!("no thread: {error}"))
        })?;
        self.movers.insert(mover, Handle { queue, control, thread });
        Ok(())
    }

    fn queue(&mut self, mover: MoverId, message: ToMover) -> Result<(), ServeError> {
        let job = Job::from_message(message).expect("the caller passes jobs only");
        if let Some(identity) = self.waiting.remove(&mover)
            && let Err(fault) = self.start(mover, &identity)
        {
            self.waiting.insert(mover, identity);
            if let Job::Run { id, .. } | Job::Commit { id, .. } = job {
                self.node.writer.send_message(&FromMover::Outcome { mover, id, outcome: failure::outcome(&fault) })?;
            }
            return Ok(());
        }
        let Some(handle) = self.movers.get(&mover) else {
            return Err(ServeError::Protocol("an operation for no mover"));
        };
        // A mover's thread lives as long as its handle; panics of operations are caught in it.
        let _ = handle.queue.send(job);
        Ok(())
    }

    fn detach(&mut self, mover: MoverId) {
        self.waiting.remove(&mover);
        if let Some(handle) = self.movers.remove(&mover) {
            self.leaving.push(handle.leave());
        }
        if self.movers.is_empty() {
            self.node.chunked.close();
        }
        self.leaving.retain(|thread| !thread.is_finished());
    }

    /// Stops every mover and waits for all threads.
    fn end(&mut self) {
        let last = self.movers.drain().map(|(_, handle)| handle.leave());
        self.leaving.extend(last);
        for thread in self.leaving.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a mover's thread panicked outside an operation");
            }
        }
    }
}

impl Handle {
    fn leave(self) -> JoinHandle<()> {
        self.control.detach();
        self.thread
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use whimbrel_connector::memory::Memory;
    use whimbrel_connector::{Attributes, Follow, StoragePath};
    use whimbrel_proto::op::{FailureKind, Op, OpId, Outcome};
    use whimbrel_proto::rules::{LoginRules, PathRules};

    use super::super::message::{DataPeers, Secrets, Stripe};
    use super::*;

    /// Whether the system has threads.
    static THREADS: AtomicBool = AtomicBool::new(true);

    fn node() -> (Arc<Node>, UnixStream) {
        let (near, far) = UnixStream::pair().expect("pair");
        let settings = DataSettings {
            pool_bytes: 1 << 20,
            ..DataSettings::of(*b"/", Duration::from_secs(9), Duration::from_secs(9))
        };
        let node = Node::new(settings, Arc::new(Memory::new()), Books::default(), FrameWriter::new(far), None);
        (Arc::new(node.expect("node")), near)
    }

    fn identity(rules: LoginRules) -> Identity {
        let (control_peer, control_local) = (None, None);
        let (user, data_peers) = ("tester".to_owned(), DataPeers::ControlPeer);
        Identity {
            user,
            login: Identity::new_login(),
            control_peer,
            control_local,
            data_peers,
            rules,
            secrets: Secrets::default(),
        }
    }

    fn attach(mover: u64) -> ToMover {
        let identity = identity(LoginRules::unlimited());
        ToMover::Attach { mover: MoverId(mover), identity: Box::new(identity) }
    }

    /// Where nothing is forbidden, either: it is not the guest's account.
    #[test]
    fn a_guest_of_everything_makes_no_program_that_runs_as_the_sharer() {
        let (node, _far) = node();
        let own = LoginRules::unlimited();
        let guest = LoginRules { paths: PathRules::everything().of_guest(), ..LoginRules::unlimited() };
        let path = StoragePath::resolve(&StoragePath::root(), b"program").unwrap();
        let trusted = Attributes { mode: Some(0o4755), ..Attributes::default() };
        for (rules, mode) in [(own, 0o4755), (guest, 0o755)] {
            let storage = node.of_login(&identity(rules)).connector.clone();
            storage.put(&path, b"code", &Attributes::default(), None).unwrap();
            storage.set_attributes(&path, &trusted, Follow::Yes).unwrap();
            assert_eq!(storage.stat(&path, Follow::Yes).unwrap().mode, mode);
        }
    }

    fn run(mover: u64, id: u64) -> ToMover {
        let (op, stripe) = (Box::new(Op::CloseData), Stripe::WHOLE);
        ToMover::Run { mover: MoverId(mover), id: OpId(id), op, stripe, session: None }
    }

    #[test]
    fn a_login_without_a_thread_is_answered_so_and_the_others_go_on() {
        let (node, far) = node();
        let mut answers = FrameReader::<_, FromMover>::new(far);
        let mut answer = |mover, id| match answers.read().expect("no fault").expect("an answer") {
            FromMover::Outcome { mover: from, id: of, outcome } => {
                assert_eq!((from, of), (MoverId(mover), OpId(id)));
                outcome
            }
            other => panic!("{other:?}"),
        };
        let mut process = Process::new(node);
        process.start = |thread, work| match THREADS.load(Ordering::Relaxed) {
            true => thread.spawn(work),
            false => Err(io::ErrorKind::WouldBlock.into()),
        };
        let mut handle = |message| process.handle(message).expect("the process goes on");
        handle(attach(1));
        THREADS.store(false, Ordering::Relaxed);
        handle(attach(2));
        handle(ToMover::Label { mover: MoverId(2), task: None, client: None });
        handle(run(2, 7));
        let Outcome::Failed(failure) = answer(2, 7) else { panic!("there is no thread") };
        assert_eq!(failure.kind, FailureKind::Busy, "{failure:?}");
        handle(run(1, 8));
        assert_eq!(answer(1, 8), Outcome::Done);
        THREADS.store(true, Ordering::Relaxed);
        handle(run(2, 9));
        assert_eq!(answer(2, 9), Outcome::Done);
        THREADS.store(false, Ordering::Relaxed);
        handle(attach(3));
        handle(ToMover::Detach { mover: MoverId(3) });
        assert!(process.waiting.is_empty());
        assert!(matches!(process.handle(run(3, 1)), Err(ServeError::Protocol(_))));
        process.end();
    }
}
