//! The front's end of a mover stream: many control connections share one data process.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use whimbrel_engine::{Fault, FaultCode, Side};

use super::queue::{self, Refused};
use crate::mover::codec::{self, CodecError, Decoder};
use crate::mover::message::{
    DataSettings, FromMover, Identity, Load, MAX_CHUNKED, MoverId, ToMover, Transfers, VERSION,
};

/// How long a data process may take to say hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Most bytes that wait for a data process to read them: it reads all the time, so that even those of ten thousand connections are few.
const MOST_OUTGOING: usize = 32 << 20;

/// Most bytes of news that wait for one control connection whose client does not read: more than a listing may run ahead
/// ([`crate::mover::message::LINES_AHEAD`]) and the answers to all commands that are handed over ahead of their turn, of which two may
/// be as long as any.
pub const MOST_NEWS: usize = 2 * MAX_CHUNKED;

/// One data process, as the front sees it.
pub struct MoverLink {
    /// Encoded messages.
    outgoing: queue::Sender<Vec<u8>>,
    shared: Arc<Shared>,
    next_mover: AtomicU64,
    lost: watch::Receiver<bool>,
    /// Tells data processes apart, for metrics; never used again.
    pub number: u64,
    /// Processors the data process has.
    pub processors: u32,
    /// Number of the account that the data process has.
    pub uid: u32,
}

/// What reaches a control connection from one of its movers, with the tag given at attachment.
#[derive(Debug)]
pub enum MoverEvent {
    /// A message.
    Message(FromMover),
    /// The data process takes no new work: what runs is finished, then the mover is to be detached.
    Leaving,
    /// The data process is gone; nothing follows.
    Lost,
}

/// Where the events of several movers of one control connection meet.
#[derive(Clone)]
pub enum EventSender {
    /// A control connection of a client, who may not read: what is too much is the end of it.
    Bounded(queue::Sender<(usize, MoverEvent)>),
    /// Our own program, which reads, and whose own process the data process is.
    Trusted(mpsc::UnboundedSender<(usize, MoverEvent)>),
}

impl From<mpsc::UnboundedSender<(usize, MoverEvent)>> for EventSender {
    fn from(sender: mpsc::UnboundedSender<(usize, MoverEvent)>) -> Self {
        Self::Trusted(sender)
    }
}

impl From<queue::Sender<(usize, MoverEvent)>> for EventSender {
    fn from(sender: queue::Sender<(usize, MoverEvent)>) -> Self {
        Self::Bounded(sender)
    }
}

impl EventSender {
    /// Tells an event of so many bytes, if there is room.
    fn send(&self, tag: usize, event: MoverEvent, bytes: usize) -> Result<(), Refused> {
        match self {
            Self::Bounded(sender) => sender.send((tag, event), bytes),
            Self::Trusted(sender) => sender.send((tag, event)).map_err(|_| Refused::Gone),
        }
    }

    /// Tells what comes once for each mover, whether there is room or not. A control connection that has just ended needs no notice.
    pub(super) fn tell(&self, tag: usize, event: MoverEvent) {
        let _gone = match self {
            Self::Bounded(sender) => sender.send_anyway((tag, event), 0),
            Self::Trusted(sender) => sender.send((tag, event)).map_err(|_| Refused::Gone),
        };
    }
}

struct Route {
    tag: usize,
    events: EventSender,
}

#[derive(Default)]
struct Shared {
    /// `None` once the link is lost.
    routes: Mutex<Option<HashMap<MoverId, Route>>>,
    load: Mutex<Load>,
    transfers: Mutex<Arc<Transfers>>,
    leaving: AtomicBool,
}

impl Shared {
    fn new() -> Self {
        Self { routes: Mutex::new(Some(HashMap::new())), ..Self::default() }
    }

    fn routes(&self) -> MutexGuard<'_, Option<HashMap<MoverId, Route>>> {
        self.routes.lock().expect("no code panics while it holds the routes")
    }

    fn load(&self) -> MutexGuard<'_, Load> {
        self.load.lock().expect("no code panics while it holds the load")
    }

    fn transfers(&self) -> MutexGuard<'_, Arc<Transfers>> {
        self.transfers.lock().expect("no code panics while it holds the transfers")
    }

    /// Forgets what was and no longer is; what was counted stays.
    fn forget_levels(&self) {
        *self.transfers() = Arc::default();
        add_load(&mut self.load(), Load::default());
    }
}

impl MoverLink {
    /// Says hello over `stream` and starts the tasks that serve it.
    pub async fn open<S>(stream: S, settings: DataSettings) -> Result<Arc<Self>, Fault>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut frame = Vec::new();
        codec::encode(&ToMover::Hello { version: VERSION, settings: Box::new(settings) }, &mut frame)?;
        writer.write_all(&frame).await.map_err(lost)?;
        let mut decoder = Decoder::new();
        let hello = tokio::time::timeout(HELLO_TIMEOUT, next_message(&mut reader, &mut decoder))
            .await
            .map_err(|_| node_lost("no hello in time"))??;
        let (FromMover::Hello { version: VERSION, processors, uid }, _) = hello else {
            return Err(node_lost("the data process speaks another version of the mover protocol"));
        };
        Ok(Self::start(reader, writer, decoder, (processors, uid)))
    }

    fn start<S>(
        reader: ReadHalf<S>,
        writer: WriteHalf<S>,
        decoder: Decoder<FromMover>,
        (processors, uid): (u32, u32),
    ) -> Arc<Self>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (outgoing, messages) = queue::bounded(MOST_OUTGOING);
        let (lost_sender, lost) = watch::channel(false);
        let shared = Arc::new(Shared::new());
        tokio::spawn(write_messages(writer, messages));
        tokio::spawn(route_messages(reader, decoder, shared.clone(), outgoing.downgrade(), lost_sender));
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { outgoing, shared, next_mover: AtomicU64::new(1), lost, number, processors, uid })
    }

    /// Makes a mover for one control connection; its events arrive at `events` marked with `tag`.
    ///
    /// # Errors
    /// `NodeLost` where the data process is gone, `ServerBusy` where it does not read what it is told.
    pub fn attach(
        self: &Arc<Self>,
        identity: Identity,
        tag: usize,
        events: impl Into<EventSender>,
    ) -> Result<MoverHandle, Fault> {
        let events = events.into();
        let id = MoverId(self.next_mover.fetch_add(1, Ordering::Relaxed));
        let gone = || node_lost("the data process is gone");
        self.shared.routes().as_mut().ok_or_else(gone)?.insert(id, Route { tag, events });
        let handle = MoverHandle { id, link: self.clone() };
        handle.send(ToMover::Attach { mover: id, identity: Box::new(identity) })?;
        Ok(handle)
    }

    /// Tells the data process to finish and exit.
    pub fn drain(&self) {
        // A link that is already lost has nothing to drain.
        let _gone = send(&self.outgoing, &ToMover::Drain);
    }

    /// Whether the stream still stands.
    pub fn is_alive(&self) -> bool {
        !*self.lost.borrow()
    }

    /// Whether new work may go there: the stream stands, and the data process has not said that it leaves.
    pub fn takes_work(&self) -> bool {
        self.is_alive() && !self.shared.leaving.load(Ordering::Acquire)
    }

    /// Resolves when the stream is lost.
    pub async fn lost(&self) {
        let mut lost = self.lost.clone();
        // An error means that the routing task ended, which is the loss itself.
        let _ = lost.wait_for(|lost| *lost).await;
    }

    /// Movers attached now.
    pub fn movers(&self) -> usize {
        self.shared.routes().as_ref().map_or(0, HashMap::len)
    }

    /// Counters summed over the link's life, levels as last reported.
    pub fn load(&self) -> Load {
        self.shared.load().clone()
    }

    /// The transfers that run there, as last reported.
    pub fn transfers(&self) -> Arc<Transfers> {
        self.shared.transfers().clone()
    }
}

/// One mover; dropping it detaches.
pub struct MoverHandle {
    /// Its name on the link.
    pub id: MoverId,
    link: Arc<MoverLink>,
}

impl MoverHandle {
    /// Sends a message, without waiting.
    ///
    /// # Errors
    /// `NodeLost` where the data process is gone or the message is too long; `ServerBusy` where the data process does not read what it is told.
    pub fn send(&self, message: ToMover) -> Result<(), Fault> {
        send(&self.link.outgoing, &message)
    }

    /// The link it lives on.
    pub fn link(&self) -> &Arc<MoverLink> {
        &self.link
    }
}

impl Drop for MoverHandle {
    fn drop(&mut self) {
        if let Some(routes) = self.link.shared.routes().as_mut() {
            routes.remove(&self.id);
        }
        // Detaching from a lost link is a no-op.
        let _gone = send(&self.link.outgoing, &ToMover::Detach { mover: self.id });
    }
}

/// Queues a message for the data process.
fn send(outgoing: &queue::Sender<Vec<u8>>, message: &ToMover) -> Result<(), Fault> {
    let mut frame = Vec::new();
    codec::encode(message, &mut frame)?;
    let bytes = frame.len();
    // What ends something makes room, and there is no more of it than of what was begun.
    let ends = matches!(message, ToMover::Abort { .. } | ToMover::Detach { .. } | ToMover::Drain);
    let sent = if ends { outgoing.send_anyway(frame, bytes) } else { outgoing.send(frame, bytes) };
    sent.map_err(|refused| match refused {
        Refused::Gone => node_lost("the data process is gone"),
        Refused::Full => Fault::new(FaultCode::ServerBusy, "talk to the data process")
            .side(Side::Us)
            .detail("it does not read what it is told"),
    })
}

/// Most bytes that are written at once; more only where one message has more.
const BATCH: usize = 64 << 10;

/// Writes messages, as many at once as are waiting.
async fn write_messages<S: AsyncWrite>(mut writer: WriteHalf<S>, mut messages: queue::Receiver<Vec<u8>>) {
    while let Some(mut batch) = messages.recv().await {
        while batch.len() < BATCH
            && let Some(frame) = messages.try_recv()
        {
            batch.extend_from_slice(&frame);
        }
        if writer.write_all(&batch).await.is_err() {
            return; // the reading task reports the loss
        }
    }
}

async fn route_messages<S: AsyncRead>(
    mut reader: ReadHalf<S>,
    mut decoder: Decoder<FromMover>,
    shared: Arc<Shared>,
    outgoing: queue::WeakSender<Vec<u8>>,
    lost: watch::Sender<bool>,
) {
    let fault = loop {
        match next_message(&mut reader, &mut decoder).await {
            Ok((FromMover::Load(load), _)) => add_load(&mut shared.load(), load),
            Ok((FromMover::Transfers(transfers), _)) => *shared.transfers() = transfers.into(),
            Ok((FromMover::Leaving, _)) => leave(&shared, &outgoing),
            Ok((message, bytes)) => route(&shared, message, bytes),
            Err(fault) => break fault,
        }
    };
    tracing::info!(%fault, "data process gone");
    shared.forget_levels();
    let routes = shared.routes().take().unwrap_or_default();
    lost.send_replace(true);
    for route in routes.into_values() {
        route.events.tell(route.tag, MoverEvent::Lost);
    }
}

/// Nothing new goes to a data process that leaves; those who use it are told.
fn leave(shared: &Shared, outgoing: &queue::WeakSender<Vec<u8>>) {
    if shared.leaving.swap(true, Ordering::AcqRel) {
        return; // said once is enough
    }
    tracing::info!("a data process takes no new work: it finishes what it runs");
    for route in shared.routes().iter().flat_map(HashMap::values) {
        route.events.tell(route.tag, MoverEvent::Leaving);
    }
    // Behind the last attachment: it goes when that and all before it are detached.
    if let Some(outgoing) = outgoing.upgrade() {
        // A link that is lost meanwhile needs no word.
        let _gone = send(&outgoing, &ToMover::Drain);
    }
}

/// Never waits: a client who does not read must keep nobody else from the news of the same data process.
fn route(shared: &Shared, message: FromMover, bytes: usize) {
    let Some(mover) = mover_of(&message) else {
        return;
    };
    let mut routes = shared.routes();
    let Some(routes) = routes.as_mut() else { return };
    let Some(route) = routes.get(&mover) else { return };
    // The control connection may just have ended, and its news are nobody's; or too much waits for it, which is its end.
    if route.events.send(route.tag, MoverEvent::Message(message), bytes).is_err() {
        routes.remove(&mover);
    }
}

fn mover_of(message: &FromMover) -> Option<MoverId> {
    match message {
        FromMover::Notice { mover, .. }
        | FromMover::Outcome { mover, .. }
        | FromMover::Session { mover, .. }
        | FromMover::Received { mover, .. } => Some(*mover),
        FromMover::Hello { .. } | FromMover::Load(_) | FromMover::Transfers(_) | FromMover::Leaving => None,
    }
}

/// Sums up counts; levels are those of the news.
pub(super) fn add_load(total: &mut Load, news: Load) {
    total.bytes_received += news.bytes_received;
    total.bytes_sent += news.bytes_sent;
    total.transfers_done += news.transfers_done;
    total.transfers_failed += news.transfers_failed;
    total.retransmits += news.retransmits;
    *total = Load {
        bytes_received: total.bytes_received,
        bytes_sent: total.bytes_sent,
        transfers_done: total.transfers_done,
        transfers_failed: total.transfers_failed,
        retransmits: total.retransmits,
        ..news
    };
}

async fn next_message<S: AsyncRead>(
    reader: &mut ReadHalf<S>,
    decoder: &mut Decoder<FromMover>,
) -> Result<(FromMover, usize), Fault> {
    let mut buffer = [0; 16 * 1024];
    loop {
        if let Some(message) = decoder.next_sized()? {
            return Ok(message);
        }
        let count = reader.read(&mut buffer).await.map_err(lost)?;
        if count == 0 {
            return Err(node_lost("the stream ended"));
        }
        decoder.push(&buffer[..count]);
    }
}

fn lost(error: io::Error) -> Fault {
    let mut fault = node_lost(&error.to_string());
    fault.source = Some(Box::new(error));
    fault
}

fn node_lost(detail: &str) -> Fault {
    Fault::new(FaultCode::NodeLost, "talk to the data process").side(Side::Us).detail(detail)
}

impl From<CodecError> for Fault {
    fn from(error: CodecError) -> Self {
        let mut fault = node_lost(&error.to_string());
        fault.source = Some(Box::new(error));
        fault
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use tokio::net::UnixStream;
    use whimbrel_proto::op::{Notice, Op, OpId};

    use super::*;
    use crate::mover::message::{DataPeers, LINES_AHEAD, Secrets, Stripe};

    /// Settings that nobody reads.
    pub fn settings(root: &Path) -> DataSettings {
        DataSettings {
            pool_bytes: 1 << 20,
            ..DataSettings::of(root.as_os_str().as_encoded_bytes(), Duration::from_secs(9), Duration::from_secs(9))
        }
    }

    /// The data process' side of the greeting.
    pub async fn greet(process: &mut UnixStream) {
        told(process).await;
        tell(process, &FromMover::Hello { version: VERSION, processors: 1, uid: 1 }).await;
    }

    /// The next message for a data process, which comes alone.
    pub async fn told(process: &mut UnixStream) -> ToMover {
        let mut decoder = Decoder::<ToMover>::new();
        let mut bytes = [0; 4096];
        loop {
            if let Some(message) = decoder.next().expect("a message") {
                return message;
            }
            let count = process.read(&mut bytes).await.expect("read");
            assert!(count > 0, "the front is there");
            decoder.push(&bytes[..count]);
        }
    }

    pub async fn tell(process: &mut UnixStream, message: &FromMover) {
        let mut frame = Vec::new();
        codec::encode(message, &mut frame).expect("it fits");
        process.write_all(&frame).await.expect("the front reads");
    }

    pub fn identity() -> Identity {
        Identity {
            user: "tester".to_owned(),
            login: Identity::new_login(),
            control_peer: None,
            control_local: None,
            data_peers: DataPeers::ControlPeer,
            secrets: Secrets::default(),
            rules: whimbrel_proto::rules::LoginRules::unlimited(),
        }
    }

    pub async fn linked() -> (Arc<MoverLink>, UnixStream) {
        let (near, mut far) = UnixStream::pair().expect("pair");
        let (link, ()) = tokio::join!(MoverLink::open(near, settings(Path::new("/"))), greet(&mut far));
        (link.expect("greeted"), far)
    }

    fn lines(mover: MoverId, bytes: usize) -> FromMover {
        FromMover::Notice { mover, id: OpId(1), notice: Notice::Lines(vec![b'x'; bytes]) }
    }

    #[tokio::test]
    async fn news_that_nobody_takes_are_the_end_of_their_own_connection_only() {
        let (link, mut process) = linked().await;
        let (deaf, mut kept) = queue::bounded(MOST_NEWS);
        let (hears, mut heard) = queue::bounded(MOST_NEWS);
        let deaf = link.attach(identity(), 1, deaf).expect("attached");
        let hears = link.attach(identity(), 2, hears).expect("attached");
        // A process that was taken over keeps to nothing.
        let each = LINES_AHEAD as usize;
        for _ in 0..2 * MOST_NEWS / each {
            tell(&mut process, &lines(deaf.id, each)).await;
        }
        tell(&mut process, &lines(hears.id, 7)).await;
        let Some((2, MoverEvent::Message(message))) = heard.recv().await else { panic!("its news come") };
        assert_eq!(message, lines(hears.id, 7));
        kept.overrun().await;
        assert!(!heard.is_overrun());
        let mut bytes = 0;
        while let Some((_, event)) = kept.try_recv() {
            bytes += if let MoverEvent::Message(_) = event { each } else { 0 };
        }
        assert!(bytes > MOST_NEWS / 2 && bytes <= MOST_NEWS, "{bytes}");
        // Nothing more comes, though there is room now.
        tell(&mut process, &lines(deaf.id, 7)).await;
        tell(&mut process, &lines(hears.id, 8)).await;
        assert!(heard.recv().await.is_some() && kept.try_recv().is_none());
    }

    #[tokio::test]
    async fn what_a_process_does_not_read_is_refused_and_not_kept() {
        let (link, mut process) = linked().await;
        let (events, _kept) = queue::bounded(MOST_NEWS);
        let handle = link.attach(identity(), 1, events).expect("attached");
        let path = vec![b'x'; 250 << 10];
        let run = |id| ToMover::Run {
            mover: handle.id,
            id: OpId(id),
            op: Box::new(Op::EnterDirectory(path.clone())),
            stripe: Stripe::WHOLE,
            session: None,
        };
        let most = 2 * MOST_OUTGOING / path.len();
        let refused = (0..most as u64).find_map(|id| handle.send(run(id)).err());
        assert_eq!(refused.map(|fault| fault.code), Some(FaultCode::ServerBusy));
        // What is too long for a message is told, too, instead of waiting for an answer for ever.
        let long = ToMover::Label { mover: handle.id, task: Some("x".repeat(2 << 20)), client: None };
        assert_eq!(handle.send(long).map_err(|fault| fault.code), Err(FaultCode::NodeLost));
        // That the login ends is told nevertheless, once the process reads.
        let mover = handle.id;
        drop(handle);
        let mut decoder = Decoder::<ToMover>::new();
        let mut bytes = vec![0; 64 << 10];
        loop {
            match decoder.next().expect("a message") {
                Some(ToMover::Detach { mover: left }) => break assert_eq!(left, mover),
                Some(_) => {}
                None => {
                    let count = process.read(&mut bytes).await.expect("read");
                    assert!(count > 0, "the link stands");
                    decoder.push(&bytes[..count]);
                }
            }
        }
    }
}
