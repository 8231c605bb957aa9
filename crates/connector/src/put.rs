//! Small files stored in one act.

use whimbrel_engine::{Fault, FaultCode};

use crate::path::StoragePath;
use crate::session::{Attributes, Disposition, WriteIntent, WriteSession};
use crate::{Connector, WriteAt};

/// Is shown the stored bytes of a file, all at once; with its fault the file gets no name.
pub type ReadBack<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Fault>;

/// [`Connector::put`] by a write session, which every storage has.
///
/// Nothing of it is left when it fails, as far as the storage lets go of it.
pub(crate) fn put_in_steps<C: Connector + ?Sized>(
    storage: &C,
    path: &StoragePath,
    data: &[u8],
    attributes: &Attributes,
    read_back: Option<ReadBack<'_>>,
) -> Result<(), Fault> {
    let size = Some(data.len() as u64);
    let session = storage
        .begin(path, &WriteIntent { disposition: Disposition::Replace, size, length: size, mode: attributes.mode })?;
    let stored = store(storage, &session, data, attributes, read_back);
    if stored.is_err()
        && let Err(fault) = storage.abandon(&session)
    {
        tracing::warn!(%fault, "an unfinished file stays");
    }
    stored
}

fn store<C: Connector + ?Sized>(
    storage: &C,
    session: &WriteSession,
    data: &[u8],
    attributes: &Attributes,
    read_back: Option<ReadBack<'_>>,
) -> Result<(), Fault> {
    let writer = storage.join(session)?;
    writer.write_at(0, data)?;
    if attributes.durable {
        // What is read back is then what the storage has taken.
        writer.sync()?;
    }
    if let Some(read_back) = read_back {
        read_back(&stored_bytes(writer.as_ref(), data.len())?)?;
    }
    storage.commit(session, &[writer.finish()?], attributes)
}

fn stored_bytes(writer: &dyn WriteAt, len: usize) -> Result<Vec<u8>, Fault> {
    let mut stored = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match writer.read_back(filled as u64, &mut stored[filled..])? {
            0 => return Err(ends_early()),
            count => filled += count,
        }
    }
    Ok(stored)
}

/// Stored bytes are fewer than were written.
pub(crate) fn ends_early() -> Fault {
    Fault::new(FaultCode::StorageIo, "read back").detail("the file ends too early")
}
