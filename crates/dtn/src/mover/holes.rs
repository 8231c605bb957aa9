//! Holes of files: which leaves hold nothing, what of a part a sender leaves out, and what a receiver makes of gaps.

use std::ops::Range;

use whimbrel_connector::{Connector, Kind, WriteAt};
use whimbrel_engine::{Fault, FaultCode, RangeSet};
use whimbrel_proto::leaf;
use whimbrel_proto::op::Outcome;

use super::command::resolve;

/// Bytes looked at together where storage keeps no holes.
const WINDOW: usize = 64 << 10;
/// The least that storage keeps as data or as a hole, bytes.
const PAGE: u64 = 4096;

/// The runs of whole leaves of a file that hold no data, and how much data it has (SITE EXTENTS).
///
/// Walks the file's map of extents; reads no data. What has no size, or no holes, is all data.
pub fn extents(connector: &dyn Connector, path: &[u8], leaf: u64) -> Result<Outcome, Fault> {
    let reader = connector.open_read(&resolve(path)?, None)?;
    let meta = reader.opened()?;
    if meta.size.div_ceil(leaf.max(1)) > leaf::MAX_LEAVES as u64 {
        let fault = Fault::new(FaultCode::InvalidArgument, "find holes").on_path(path);
        return Err(fault.detail("the leaves are too small: a file has at most 65536"));
    }
    if meta.kind != Kind::File || !reader.may_have_holes() {
        return Ok(Outcome::Extents { holes: Vec::new(), data: meta.size });
    }
    let (mut holes, mut data, mut at) = (Vec::new(), 0, 0);
    while at < meta.size {
        let extent = reader.extent_at(at)?;
        let end = extent.end.min(meta.size);
        match extent.is_data {
            true => data += end - at,
            false => holes.extend(whole_leaves(at..end, leaf, meta.size)),
        }
        at = end;
    }
    Ok(Outcome::Extents { holes, data })
}

/// `hole` shrunk to whole leaves; the last one ends with the file.
fn whole_leaves(hole: Range<u64>, leaf: u64, size: u64) -> Option<Range<u64>> {
    let start = hole.start.checked_next_multiple_of(leaf)?;
    let end = if hole.end == size { size } else { hole.end / leaf * leaf };
    (start < end).then_some(start..end)
}

/// Makes what did not arrive of `expected` read as zeros, whatever an earlier attempt left there.
///
/// Kept as holes where storage keeps them; elsewhere zeros are written only over bytes that are none.
pub fn clear_gaps(writer: &dyn WriteAt, arrived: &RangeSet, expected: Range<u64>) -> Result<(), Fault> {
    for gap in arrived.missing(expected).as_slice() {
        match writer.clear(gap.clone()) {
            Err(fault) if fault.code == FaultCode::NotSupported => write_zeros(writer, gap.clone())?,
            other => other?,
        }
    }
    Ok(())
}

/// Makes the end of a file a hole again of which only the last byte came, to tell where it ends.
pub fn clear_end(writer: &dyn WriteAt, arrived: &RangeSet) -> Result<(), Fault> {
    let [.., last] = arrived.as_slice() else { return Ok(()) };
    let page = last.start / PAGE * PAGE..last.end;
    let mut byte = [0xff];
    let is_mark = last.end - last.start == 1
        && arrived.missing(page.clone()).len() == page.end - page.start - 1
        && writer.read_back(last.start, &mut byte)? == 1
        && byte == [0];
    if !is_mark {
        return Ok(());
    }
    match writer.clear(page) {
        // A page of zeros reads the same.
        Err(fault) if fault.code == FaultCode::NotSupported => Ok(()),
        other => other,
    }
}

fn write_zeros(writer: &dyn WriteAt, gap: Range<u64>) -> Result<(), Fault> {
    let mut buffer = vec![0; WINDOW];
    let mut at = gap.start;
    while at < gap.end {
        let wanted = (gap.end - at).min(WINDOW as u64) as usize;
        let read = writer.read_back(at, &mut buffer[..wanted])?;
        if read == 0 {
            // Beyond the end there is nothing to cover.
            break;
        }
        if buffer[..read].iter().any(|&byte| byte != 0) {
            buffer[..read].fill(0);
            writer.write_at(at, &buffer[..read])?;
        }
        at += read as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use whimbrel_connector::memory::Memory;
    use whimbrel_connector::{Attributes, Disposition, StoragePath, WriteIntent};

    use super::*;

    const L: u64 = 16 << 10;

    fn path() -> StoragePath {
        StoragePath::resolve(&StoragePath::root(), b"f").unwrap()
    }

    fn storage(pieces: &[(u64, &[u8])], size: u64) -> Memory {
        let storage = Memory::new();
        let session = storage
            .begin(&path(), &WriteIntent { disposition: Disposition::Replace, size: None, length: None, mode: None })
            .unwrap();
        let writer = storage.join(&session).unwrap();
        pieces.iter().for_each(|(at, data)| writer.write_at(*at, data).unwrap());
        storage.commit(&session, &[], &Attributes { size: Some(size), ..Attributes::default() }).unwrap();
        storage
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
    fn only_whole_leaves_are_holes_and_all_data_is_counted() {
        let storage = storage(&[(0, b"start"), (5 * L + 100, b"middle")], 8 * L + 9);
        let told = extents(&storage, b"/f", L).unwrap();
        assert_eq!(told, Outcome::Extents { holes: vec![L..5 * L, 6 * L..8 * L + 9], data: 2 * 4096 });
        let all = extents(&super::tests::storage(&[], 3 * L), b"/f", L).unwrap();
        assert_eq!(all, Outcome::Extents { holes: vec![0..3 * L], data: 0 });
        let fault = extents(&super::tests::storage(&[], 1 << 40), b"/f", L).unwrap_err();
        assert_eq!(fault.code, FaultCode::InvalidArgument);
    }

    #[test]
    fn what_an_earlier_attempt_left_in_a_gap_is_gone() {
        let storage = storage(&[(0, &[7; 40_000])], 60_000);
        let intent = WriteIntent { disposition: Disposition::Update, size: None, length: None, mode: None };
        let session = storage.begin(&path(), &intent).unwrap();
        let writer = storage.join(&session).unwrap();
        // Neither end of the gap is one of a page.
        clear_gaps(writer.as_ref(), &RangeSet::from(0..5000), 0..39_000).unwrap();
        let mut data = vec![1; 60_000];
        assert_eq!(writer.read_back(0, &mut data).unwrap(), 60_000);
        assert!(data[..5000].iter().all(|&byte| byte == 7));
        assert!(data[5000..39_000].iter().all(|&byte| byte == 0));
        assert!(data[39_000..40_000].iter().all(|&byte| byte == 7));
    }
}
