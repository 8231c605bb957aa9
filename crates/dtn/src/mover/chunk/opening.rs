//! How movers that open a file for chunks at once agree on one unfinished file.

use whimbrel_connector::{Connector, Disposition, WriteIntent, WriteSession};
use whimbrel_engine::journal::{self, Header, Trusted};
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::leaf;
use whimbrel_proto::op::ChunkedFile;
use whimbrel_transport::digest::Algorithm;

use super::trust;
use crate::mover::command::{resolve, timestamp};

/// Attempts to agree with others who open the same file at once.
const ATTEMPTS: usize = 32;

/// Largest file the systems here can address.
const MAX_SIZE: u64 = i64::MAX as u64;

fn header_of(file: &ChunkedFile) -> Result<Header, Fault> {
    let algorithm = match file.leaves.algorithm.as_str() {
        leaf::NONE => leaf::NONE,
        name => name.parse::<Algorithm>()?.name(),
    };
    let bad = |code, detail| Err(Fault::new(code, "open for chunks").on_path(&file.path).detail(detail));
    if file.leaves.size == 0 {
        return bad(FaultCode::InvalidArgument, "a leaf has at least one byte");
    }
    if file.size > MAX_SIZE {
        return bad(FaultCode::FileTooLarge, "no file can be that long");
    }
    if let Some((seconds, nanoseconds)) = file.modified {
        timestamp(seconds, nanoseconds)?;
    }
    let algorithm = algorithm.to_owned();
    Ok(Header { size: file.size, modified: file.modified, leaf: file.leaves.size, algorithm })
}

/// The unfinished file of a version of a source.
pub struct Agreed {
    /// Leads to it.
    pub session: WriteSession,
    /// What its journal says.
    pub trusted: Trusted,
    /// Proven bytes of others that were thrown away for it.
    pub discarded: u64,
}

/// Finds or makes the unfinished file whose journal says what is wanted.
///
/// Others may do the same at once: the first header in a journal counts, and each round begins with
/// what has the hidden name now.
pub fn agree(connector: &dyn Connector, file: &ChunkedFile) -> Result<Agreed, Fault> {
    let wanted = header_of(file)?;
    let path = resolve(&file.path)?;
    // Space is reserved chunk by chunk: a sparse file needs less than its size.
    let intent = WriteIntent { disposition: Disposition::Continue, size: None, length: Some(file.size), mode: None };
    let mut marked: Option<WriteSession> = None;
    let mut discarded = 0;
    for _ in 0..ATTEMPTS {
        let session = connector.begin(&path, &intent)?;
        if let Some(earlier) = marked.take().filter(|earlier| earlier.token != session.token) {
            // Its file got its final name before the header was written: nothing may be left beside it.
            connector.abandon(&earlier)?;
        }
        match look(connector, &session, &wanted) {
            Ok(Found::Fitting(trusted)) => return Ok(Agreed { session, trusted, discarded }),
            Ok(Found::Foreign { proven }) => {
                connector.abandon(&session)?;
                discarded += proven;
            }
            Ok(Found::Again) => marked = Some(session),
            // Committed, dropped or replaced since it was begun.
            Err(fault) if matches!(fault.code, FaultCode::NotFound | FaultCode::StorageBusy) => {}
            Err(fault) => return Err(fault),
        }
    }
    Err(Fault::new(FaultCode::StorageBusy, "open for chunks")
        .on_path(&file.path)
        .detail("others keep opening it for other versions of its source"))
}

enum Found {
    /// What is there is about the same version of the same source.
    Fitting(Trusted),
    /// What is there is about something else.
    Foreign {
        /// Bytes of it that are proven.
        proven: u64,
    },
    /// Something was changed: look again.
    Again,
}

fn look(connector: &dyn Connector, session: &WriteSession, wanted: &Header) -> Result<Found, Fault> {
    // Before the journal is read: whoever writes in chunks has written its header first, so bytes
    // without a journal are those of an ordinary attempt.
    let leftover = connector.unfinished(&session.path)?.is_some_and(|meta| meta.size > 0);
    let journal = connector.journal(session)?;
    let bytes = match journal.read() {
        // Nobody has written so many records.
        Err(fault) if fault.code == FaultCode::FileTooLarge => return Ok(Found::Foreign { proven: 0 }),
        read => read?,
    };
    let mut trusted = trust::read(&bytes);
    if trusted.disputed {
        return Ok(foreign(&trusted));
    }
    match &trusted.header {
        Some(header) if header == wanted => {
            // What is appended behind a torn record would never be read.
            if trusted.torn && !journal.cut(bytes.len() as u64, trusted.sound as u64)? {
                return Ok(Found::Again);
            }
            trusted.torn = false;
            Ok(Found::Fitting(trusted))
        }
        Some(_) => Ok(foreign(&trusted)),
        None if leftover => Ok(Found::Foreign { proven: 0 }),
        None => {
            if journal.cut(bytes.len() as u64, 0)? {
                let header = journal::encode_header(wanted);
                journal.append(&header.expect("checked when the operation began"))?;
            }
            Ok(Found::Again)
        }
    }
}

fn foreign(trusted: &Trusted) -> Found {
    Found::Foreign { proven: trusted.leaves.iter().map(|leaf| leaf.range.end - leaf.range.start).sum() }
}
