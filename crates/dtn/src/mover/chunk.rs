//! Files written in chunks by many movers (SITE CHUNK, ESTO C).
//!
//! The client proves leaves; here they are recorded beside the unfinished file, and the file gets
//! its name only when the record covers all of it. See `docs/design/chunks.md`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use whimbrel_connector::{Connector, WriteAt, WriteSession};
use whimbrel_engine::{Fault, FaultCode};

use super::command::resolve;
use super::node::Node;

/// Most files kept open between operations; each holds up to three descriptors.
const KEPT: usize = 64;

/// What a client carries from operation to operation.
///
/// Names are not in it: with the path of the operation it leads to the unfinished file of that path,
/// or, being another file's, to none.
#[derive(Serialize, Deserialize)]
struct Ticket {
    token: Vec<u8>,
    size: u64,
}

impl Ticket {
    fn session(self, connector: &dyn Connector, path: &[u8]) -> Result<WriteSession, Fault> {
        let target = connector.target(&resolve(path)?)?;
        WriteSession::of_unfinished(target, self.token, Some(self.size))
    }
}

fn decode(path: &[u8], bytes: &[u8]) -> Result<Ticket, Fault> {
    match postcard::take_from_bytes(bytes) {
        Ok((ticket, [])) => Ok(ticket),
        _ => Err(Fault::new(FaultCode::InvalidArgument, "join session").on_path(path).detail("not a session")),
    }
}

/// An unfinished file that movers of this process write.
struct File {
    path: Vec<u8>,
    ticket: Vec<u8>,
    session: WriteSession,
    writer: Arc<dyn WriteAt>,
}

/// The unfinished files that were used last.
#[derive(Default)]
pub struct Files(Mutex<VecDeque<Arc<File>>>);

impl Files {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<File>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, path: &[u8], ticket: &[u8]) -> Option<Arc<File>> {
        let mut files = self.lock();
        let at = files.iter().position(|file| file.path == path && file.ticket == ticket)?;
        let file = files.remove(at)?;
        files.push_back(file.clone());
        Some(file)
    }

    fn keep(&self, file: &Arc<File>) {
        let mut files = self.lock();
        files.push_back(file.clone());
        if files.len() > KEPT {
            files.pop_front();
        }
    }
}

fn open(node: &Node, path: &[u8], ticket: &[u8]) -> Result<Arc<File>, Fault> {
    if let Some(file) = node.chunked.find(path, ticket) {
        return Ok(file);
    }
    let connector = node.connector.as_ref();
    let session = decode(path, ticket)?.session(connector, path)?;
    let writer = connector.join(&session)?;
    let file = Arc::new(File { path: path.to_vec(), ticket: ticket.to_vec(), session, writer });
    node.chunked.keep(&file);
    Ok(file)
}

/// The unfinished file of `path` to write a chunk of; all movers of this process share the writer.
///
/// A session of another file, of another path or of a file that was replaced is refused; it cannot
/// reach anything but the unfinished file of `path`.
pub fn join(node: &Node, path: &[u8], session: &[u8]) -> Result<(WriteSession, Arc<dyn WriteAt>), Fault> {
    let file = open(node, path, session)?;
    Ok((file.session.clone(), file.writer.clone()))
}
