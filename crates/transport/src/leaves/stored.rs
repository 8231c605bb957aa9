//! Leaves of what lies in storage, read back to prove it.

use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};

use super::{Digests, Group, Permits};
use crate::block::BlockSource;
use crate::cancel::Cancel;
use crate::pool::{Buffer, Class, Pool};
use crate::progress::Progress;

const OP: &str = "read back";

/// What reading back needs.
#[derive(Clone, Copy)]
pub struct ReadBack<'a> {
    /// Where the bytes are.
    pub source: &'a dyn BlockSource,
    /// Where buffers come from; those of receivers are taken, which never wait for a peer.
    pub pool: &'a Pool,
    /// Taken for each group of blocks: bounds how many threads of a process read and hash at once.
    pub permits: &'a Permits,
    /// Counts the bytes hashed.
    pub progress: &'a Progress,
    /// Stops it between blocks.
    pub cancel: &'a Cancel,
}

/// Reads `ranges` and adds the digests of their leaves to `digests`.
///
/// Uses one buffer, two where the pool has them, one for each leaf where the source is past the page cache; the caller must hold none of the receiving class. Fails with
/// `StorageIo` when the source ends inside the ranges, `Cancelled`, or what the source says.
pub fn hash_stored(job: &ReadBack<'_>, ranges: &RangeSet, digests: &Digests) -> Result<(), Fault> {
    let mut leaves = digests.leaves().cut(ranges);
    while let Some(mut group) = Group::next(&mut leaves, usize::MAX) {
        while group.unfinished() > 0 {
            job.cancel.check(OP)?;
            let _permit = job.permits.take();
            let mut buffers = vec![job.pool.acquire(Class::Receive, job.cancel)?];
            let most = if job.source.is_past_cache() { group.unfinished() } else { group.unfinished().min(2) };
            while buffers.len() < most
                && let Some(buffer) = job.pool.try_acquire(Class::Receive)?
            {
                buffers.push(buffer);
            }
            job.step(&mut group, &mut buffers)?;
        }
        group.finish(digests)?;
    }
    Ok(())
}

impl ReadBack<'_> {
    /// Hashes as much of all leaves as the buffers hold.
    fn step(&self, group: &mut Group, buffers: &mut [Buffer]) -> Result<(), Fault> {
        let count = group.unfinished();
        let each = count.div_ceil(buffers.len());
        let share = buffers.iter().map(|buffer| share(buffer.len(), each)).min().unwrap_or(0);
        let slices = buffers.iter_mut().flat_map(|buffer| buffer.chunks_exact_mut(share).take(each));
        let mut slices: Vec<&mut [u8]> = slices.take(count).collect();
        let pieces = group.pieces(slices.len(), share);
        group.load(&pieces, &mut slices, self.source.is_past_cache(), |offset, part| {
            let read = self.source.read_at(offset, part).map_err(|fault| fault.side_if_unknown(Side::Destination))?;
            if read < part.len() {
                let detail = format!("the file ends at {}, inside what was written", offset + read as u64);
                return Err(Fault::new(FaultCode::StorageIo, OP).side(Side::Destination).detail(detail));
            }
            Ok(())
        })?;
        let bytes: usize = pieces.iter().map(|piece| piece.len).sum();
        self.progress.add_bytes(bytes as u64);
        Ok(())
    }
}

/// Bytes for each of `count` leaves in a buffer, whole pages where it is large enough.
fn share(len: usize, count: usize) -> usize {
    const PAGE: usize = 4096;
    let share = len / count;
    if share > PAGE { share / PAGE * PAGE } else { share }
}
