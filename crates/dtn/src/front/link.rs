//! The front's end of a mover stream: many control connections share one data process.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use whimbrel_engine::{Fault, FaultCode, Side};

use crate::mover::codec::{self, CodecError, Decoder};
use crate::mover::message::{DataSettings, FromMover, Identity, Load, MoverId, ToMover, Transfers, VERSION};

/// How long a data process may take to say hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// One data process, as the front sees it.
pub struct MoverLink {
    outgoing: mpsc::UnboundedSender<ToMover>,
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
pub type EventSender = mpsc::UnboundedSender<(usize, MoverEvent)>;

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
        let FromMover::Hello { version: VERSION, processors, uid } = hello else {
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
        let (outgoing, messages) = mpsc::unbounded_channel();
        let (lost_sender, lost) = watch::channel(false);
        let shared = Arc::new(Shared::new());
        tokio::spawn(write_messages(writer, messages));
        tokio::spawn(route_messages(reader, decoder, shared.clone(), outgoing.downgrade(), lost_sender));
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { outgoing, shared, next_mover: AtomicU64::new(1), lost, number, processors, uid })
    }

    /// Makes a mover for one control connection; its events arrive at `events` marked with `tag`.
    pub fn attach(self: &Arc<Self>, identity: Identity, tag: usize, events: EventSender) -> Result<MoverHandle, Fault> {
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
        let _ = self.outgoing.send(ToMover::Drain);
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
    /// Sends a message; fails when the data process is gone.
    pub fn send(&self, message: ToMover) -> Result<(), Fault> {
        self.link.outgoing.send(message).map_err(|_| node_lost("the data process is gone"))
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
        let _ = self.link.outgoing.send(ToMover::Detach { mover: self.id });
    }
}

/// Writes messages, as many at once as are waiting.
async fn write_messages<S: AsyncWrite>(mut writer: WriteHalf<S>, mut messages: mpsc::UnboundedReceiver<ToMover>) {
    let mut batch = Vec::new();
    let mut buffer = Vec::new();
    while messages.recv_many(&mut batch, 256).await > 0 {
        buffer.clear();
        for message in batch.drain(..) {
            if let Err(fault) = codec::encode(&message, &mut buffer) {
                tracing::error!(%fault, "mover message cannot be encoded");
            }
        }
        if writer.write_all(&buffer).await.is_err() {
            return; // the reading task reports the loss
        }
    }
}

async fn route_messages<S: AsyncRead>(
    mut reader: ReadHalf<S>,
    mut decoder: Decoder<FromMover>,
    shared: Arc<Shared>,
    outgoing: mpsc::WeakUnboundedSender<ToMover>,
    lost: watch::Sender<bool>,
) {
    let fault = loop {
        match next_message(&mut reader, &mut decoder).await {
            Ok(FromMover::Load(load)) => add_load(&mut shared.load(), load),
            Ok(FromMover::Transfers(transfers)) => *shared.transfers() = transfers.into(),
            Ok(FromMover::Leaving) => leave(&shared, &outgoing),
            Ok(message) => route(&shared, message),
            Err(fault) => break fault,
        }
    };
    tracing::info!(%fault, "data process gone");
    shared.forget_levels();
    let routes = shared.routes().take().unwrap_or_default();
    lost.send_replace(true);
    for route in routes.into_values() {
        // A control connection that has just ended needs no notice.
        let _ = route.events.send((route.tag, MoverEvent::Lost));
    }
}

/// Nothing new goes to a data process that leaves; those who use it are told.
fn leave(shared: &Shared, outgoing: &mpsc::WeakUnboundedSender<ToMover>) {
    tracing::info!("a data process takes no new work: it finishes what it runs");
    shared.leaving.store(true, Ordering::Release);
    for route in shared.routes().iter().flat_map(HashMap::values) {
        // A control connection that has just ended needs no notice.
        let _ = route.events.send((route.tag, MoverEvent::Leaving));
    }
    // Behind the last attachment: it goes when that and all before it are detached.
    if let Some(outgoing) = outgoing.upgrade() {
        // A link that is lost meanwhile needs no word.
        let _ = outgoing.send(ToMover::Drain);
    }
}

fn route(shared: &Shared, message: FromMover) {
    let Some(mover) = mover_of(&message) else {
        return;
    };
    if let Some(route) = shared.routes().as_ref().and_then(|routes| routes.get(&mover)) {
        // The control connection may just have ended; its news are nobody's.
        let _ = route.events.send((route.tag, MoverEvent::Message(message)));
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
) -> Result<FromMover, Fault> {
    let mut buffer = [0; 16 * 1024];
    loop {
        if let Some(message) = decoder.next()? {
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
