//! The journal of an open file, read as it grows.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use whimbrel_connector::Journal;
use whimbrel_engine::journal::{Header, Reading, Writer, encode_beginnings};
use whimbrel_engine::{Fault, FaultCode};

/// Attempts to add to it while others do.
const ATTEMPTS: usize = 32;

/// A journal, and what of it was read.
pub struct Noted {
    journal: Arc<dyn Journal>,
    reading: Mutex<Reading>,
}

impl Noted {
    /// Nothing is read yet.
    pub fn new(journal: Arc<dyn Journal>) -> Self {
        Self { journal, reading: Mutex::default() }
    }

    /// What the file is about; `None`: the journal says nothing.
    pub fn header(&self) -> Result<Option<Header>, Fault> {
        let mut reading = self.lock();
        self.read_on(&mut reading)?;
        Ok(reading.header().cloned())
    }

    /// All that it says, for whoever trusts nothing that was read before.
    pub fn read(&self) -> Result<Vec<u8>, Fault> {
        self.journal.read()
    }

    /// Adds records that survive a crash when this returns.
    pub fn append(&self, records: &[u8]) -> Result<(), Fault> {
        self.journal.append(records)
    }

    /// Makes what was begun survive a crash.
    pub fn sync(&self) -> Result<(), Fault> {
        self.journal.sync()
    }

    /// Says that `writer` begins to write these leaves; whether that withdraws a proof, and is to be synced.
    pub fn begin(&self, writer: Writer, leaves: &[Range<u64>], alone: bool) -> Result<bool, Fault> {
        let mut reading = self.lock();
        for _ in 0..ATTEMPTS {
            self.read_on(&mut reading)?;
            let records =
                encode_beginnings(sound(&reading)?, leaves, writer, alone).expect("made of leaves of this file");
            if records.is_empty() {
                return Ok(false);
            }
            let withdraws = leaves.iter().any(|range| reading.counts_any_of(range));
            if self.journal.note(reading.sound() as u64, &records)? {
                reading.read(&records);
                // Where too many have begun, nobody would read it.
                return sound(&reading).map(|_| withdraws);
            }
        }
        Err(Fault::new(FaultCode::StorageBusy, "begin a part").detail("others keep adding to its journal"))
    }

    fn lock(&self) -> MutexGuard<'_, Reading> {
        // What a panic leaves unread is read by the next.
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what was added since, by whomever.
    fn read_on(&self, reading: &mut Reading) -> Result<(), Fault> {
        reading.read(&self.journal.read_from(reading.sound() as u64)?);
        Ok(())
    }
}

/// Behind a torn record nothing would be read.
fn sound(reading: &Reading) -> Result<&Header, Fault> {
    reading.header().filter(|_| !reading.is_torn()).ok_or_else(|| {
        let fault = Fault::new(FaultCode::StorageBusy, "write in chunks");
        fault.detail("its journal is torn, or gone: open it again")
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::slice;

    use whimbrel_connector::memory::Memory;
    use whimbrel_connector::{Connector, Disposition, StoragePath, WriteIntent};
    use whimbrel_engine::journal::{Leaf, decode, encode_header, encode_leaves};

    use super::*;

    pub const LEAF: u64 = 100;

    pub fn header() -> Header {
        Header { size: 4 * LEAF, modified: None, leaf: LEAF, algorithm: "NONE".into() }
    }

    /// The journal of an unfinished file of four leaves.
    pub fn a_journal() -> Noted {
        let storage = Memory::new();
        let path = StoragePath::resolve(&StoragePath::root(), b"/file").unwrap();
        let intent = WriteIntent { disposition: Disposition::Continue, size: None, length: None, mode: None };
        let journal = storage.journal(&storage.begin(&path, &intent).unwrap()).unwrap();
        journal.append(&encode_header(&header()).unwrap()).unwrap();
        Noted::new(journal)
    }

    fn begin(journal: &Noted, range: Range<u64>) -> Result<bool, FaultCode> {
        journal.begin(Writer(2), slice::from_ref(&range), true).map_err(|fault| fault.code)
    }

    #[test]
    fn what_others_have_added_is_read_before_anything_is_said() {
        let journal = a_journal();
        let others = Noted::new(journal.journal.clone());
        others.begin(Writer(1), slice::from_ref(&(0..2 * LEAF)), true).unwrap();
        let leaf = Leaf { range: 0..LEAF, digest: vec![0] };
        others.append(&encode_leaves(&header(), &[leaf], Writer(1)).unwrap()).unwrap();
        assert_eq!(decode(&journal.read().unwrap()).leaves.len(), 1);
        assert_eq!(begin(&journal, LEAF..3 * LEAF), Ok(false), "nothing was proven there");
        assert_eq!(begin(&journal, 0..3 * LEAF), Ok(true));
        assert_eq!(begin(&journal, 0..3 * LEAF), Ok(false), "that is withdrawn already");
        assert!(decode(&others.read().unwrap()).leaves.is_empty());
    }

    #[test]
    fn nothing_is_added_behind_what_nobody_reads() {
        let journal = a_journal();
        assert_eq!(begin(&journal, 0..LEAF), Ok(false));
        journal.append(b"torn").unwrap();
        assert_eq!(begin(&journal, 0..LEAF), Err(FaultCode::StorageBusy));
        let seen = journal.read().unwrap().len() as u64;
        assert!(journal.journal.cut(seen, seen - 4).unwrap());
        assert_eq!(begin(&journal, 0..LEAF), Ok(false));
        // As it can only be if somebody has cut it by hand: what was read is not there.
        assert!(journal.journal.cut(journal.read().unwrap().len() as u64, 0).unwrap());
        assert_eq!(begin(&journal, 0..LEAF), Err(FaultCode::StorageBusy));
    }
}
