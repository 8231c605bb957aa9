//! Checksums of stored bytes.

use std::ops::Range;

use whimbrel_engine::{Fault, FaultCode};

use super::{Algorithm, Hasher};
use crate::block::BlockSource;
use crate::cancel::Cancel;
use crate::pool::{Class, Pool};
use crate::progress::Progress;

/// Hashes `range` of `source` (`None`: all of it), counting bytes in `progress`.
///
/// Uses one buffer of the hash class, so the caller must hold none. Fails with `SourceChanged` when
/// the source ends inside the range.
pub fn hash_source(
    algorithm: Algorithm,
    source: &dyn BlockSource,
    range: Option<Range<u64>>,
    pool: &Pool,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<String, Fault> {
    let new = || Hasher::new(algorithm);
    let mut hasher = range.as_ref().map_or_else(new, |range| Hasher::for_range(algorithm, range));
    let (mut at, end) = range.as_ref().map_or((0, u64::MAX), |range| (range.start, range.end));
    let mut buffer = pool.acquire(Class::Hash, cancel)?;
    while at < end {
        cancel.check("checksum")?;
        let want = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        let read = source.read_at(at, &mut buffer[..want])?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        at += read as u64;
        progress.add_bytes(read as u64);
    }
    if range.is_some() && at < end {
        let detail = format!("it ends at {at}, inside the range asked for");
        return Err(Fault::new(FaultCode::SourceChanged, "checksum").detail(detail));
    }
    Ok(hasher.finish_hex())
}
