//! Threads that write complete pieces while more bytes come: storage wants several at once, and a receiver is to receive.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use crate::posix::handles::Handle;

/// Pieces written at once, besides those that their receivers write themselves because the queue is full.
const THREADS: usize = 4;

/// Complete pieces that wait.
const QUEUE: usize = 4;

/// Writing is a few calls deep.
const STACK: usize = 128 << 10;

/// A complete piece of a file.
struct Job {
    handle: Arc<Handle>,
    number: u64,
}

/// The threads of one storage, started when first needed; they end with it.
#[derive(Default)]
pub(super) struct Behind {
    queue: OnceLock<Option<SyncSender<Job>>>,
}

impl Behind {
    /// Whether a piece will be written soon; else there is no room, and nothing has happened.
    ///
    /// What fails is kept with the piece, and seen by who settles it.
    pub fn accepts(&self, handle: &Arc<Handle>, number: u64) -> bool {
        let Some(queue) = self.queue.get_or_init(start) else { return false };
        match queue.try_send(Job { handle: handle.clone(), number }) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}

fn start() -> Option<SyncSender<Job>> {
    let (sender, receiver) = sync_channel(QUEUE);
    let receiver = Arc::new(Mutex::new(receiver));
    let started = (0..THREADS).filter(|_| {
        let receiver = receiver.clone();
        let thread = thread::Builder::new().name("direct-write".to_owned()).stack_size(STACK);
        thread.spawn(move || work(&receiver)).is_ok()
    });
    // Without a thread everybody writes their own.
    (started.count() > 0).then_some(sender)
}

fn work(receiver: &Mutex<Receiver<Job>>) {
    loop {
        // One waits with the lock, the others for it.
        let job = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { handle, number }) = job else { return };
        if let Some(gathering) = handle.gathering() {
            gathering.write_complete(&handle.file, number);
        }
    }
}
