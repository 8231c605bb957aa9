//! A file in chunks, as all sessions of a copy know it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use whimbrel_engine::listing::file_number;
use whimbrel_engine::transfer::Job;
use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};
use whimbrel_proto::op::Leaf;

use crate::client::checksum::SharedChecksum;

/// A file whose unfinished copy is ready for chunks.
#[derive(Debug, Clone)]
pub struct OpenFile {
    /// Where its bytes go meanwhile.
    pub place: Unfinished,
    /// What proves it; `None`: nothing, what was stored counts.
    pub checksum: Option<SharedChecksum>,
    /// Bytes of a leaf.
    pub leaf: u64,
    /// What is proven, by where it begins; all sessions share it.
    pub proven: Rc<RefCell<BTreeMap<u64, Leaf>>>,
    /// Leaves that the destination was told to be proven, and has not answered.
    asked: Rc<RefCell<BTreeMap<u64, Leaf>>>,
    /// Whether an earlier run brought some of it.
    pub earlier: bool,
    /// Whether the source has holes that both ends can leave out.
    pub holes: bool,
    /// Whether bytes may have gone astray, so that nothing of a temporary file is certain any more.
    pub astray: Rc<Cell<bool>>,
    /// What the destination was told to be proven, whether or not it has answered.
    pub told: Rc<RefCell<RangeSet>>,
    /// Whether it has its name before its end was told of.
    pub naming: Rc<Cell<Naming>>,
    /// Whether it was asked to be renamed from its temporary name: perhaps the answer was lost.
    pub renaming: Rc<Cell<bool>>,
    /// Which file has the temporary name, once its server has told.
    identity: Rc<RefCell<Option<String>>>,
}

impl OpenFile {
    /// A file of which nothing was done yet but what earlier runs proved; `holes`: the source has some that both ends leave out.
    pub fn new(
        place: Unfinished,
        checksum: Option<SharedChecksum>,
        leaf: u64,
        earlier: Vec<Leaf>,
        holes: bool,
    ) -> Self {
        let told: RangeSet = earlier.iter().map(|leaf| leaf.range.clone()).collect();
        let is_earlier = !earlier.is_empty();
        let proven: BTreeMap<_, _> = earlier.into_iter().map(|leaf| (leaf.range.start, leaf)).collect();
        Self {
            place,
            checksum,
            leaf,
            proven: Rc::new(RefCell::new(proven)),
            asked: Rc::default(),
            earlier: is_earlier,
            holes,
            astray: Rc::default(),
            told: Rc::new(RefCell::new(told)),
            naming: Rc::default(),
            renaming: Rc::default(),
            identity: Rc::default(),
        }
    }

    /// The destination is told that these are proven.
    pub fn keeps(&self, leaves: &[Leaf]) {
        self.asked.borrow_mut().extend(leaves.iter().map(|leaf| (leaf.range.start, leaf.clone())));
    }

    /// These are proven.
    pub fn kept(&self, leaves: &[Leaf]) {
        let mut asked = self.asked.borrow_mut();
        leaves.iter().for_each(|leaf| drop(asked.remove(&leaf.range.start)));
        self.proven.borrow_mut().extend(leaves.iter().map(|leaf| (leaf.range.start, leaf.clone())));
    }

    /// Whether all of this was proven by this run, or for it, in this copy: only then is it of the same source for certain.
    pub fn has_proven(&self, session: &[u8], leaves: &[Leaf]) -> bool {
        let proven = self.proven.borrow();
        let asked = self.asked.borrow();
        let known = |leaf: &Leaf| [&proven, &asked].iter().any(|leaves| leaves.get(&leaf.range.start) == Some(leaf));
        matches!(&self.place, Unfinished::Session(own) if own == session) && leaves.iter().all(known)
    }

    /// The server tells which file has the temporary name, behind the storing of a part. If it is another one than before,
    /// some other run has taken the first one over, and with it what was proven of that.
    pub fn identify(&self, unique: Option<String>) {
        let Some(unique) = unique.map(|unique| file_number(&unique).to_owned()) else { return };
        let mut known = self.identity.borrow_mut();
        if known.as_ref().is_some_and(|known| *known != unique) {
            tracing::warn!("another run has taken over what this one had stored");
            self.suspect();
        }
        *known = Some(unique);
    }

    /// The temporary name at a server that keeps no unfinished files.
    pub fn temporary(&self) -> Option<&[u8]> {
        match &self.place {
            Unfinished::Temporary(name) => Some(name),
            Unfinished::Session(_) => None,
        }
    }

    /// A leaf differs, or a transfer broke off for another reason than the network. Our servers bound what a transfer may
    /// write; any other may have written anywhere, also behind the file's end.
    pub fn suspect(&self) {
        if self.temporary().is_some() {
            self.astray.set(true);
        }
    }
}

/// Why a file with bytes that may have gone astray is not named but opened, and with it examined, once more.
pub fn astray(job: &Job) -> Fault {
    Fault::new(FaultCode::ChecksumMismatch, "verify").on_path(&job.item.destination).side(Side::Destination).detail(
        "a part arrived damaged, or another run took the unfinished copy over: all of the file is compared again",
    )
}

/// Whether a file has been named ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Naming {
    /// No.
    #[default]
    Not,
    /// That was asked for and not answered: perhaps the answer was lost.
    Asked,
    /// Yes.
    Done,
}

/// Where an unfinished copy is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfinished {
    /// With a server of ours, which calls it so.
    Session(Vec<u8>),
    /// Under this name.
    Temporary(Vec<u8>),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(place: Unfinished) -> OpenFile {
        OpenFile::new(place, None, 1000, Vec::new(), false)
    }

    #[test]
    fn what_was_proven_of_a_file_that_lost_its_temporary_name_to_another_is_not_trusted() {
        let file = file(Unfinished::Temporary(b"/d/.f".to_vec()));
        file.identify(None);
        file.identify(Some("fe00-1".into()));
        file.identify(None);
        file.clone().identify(Some("fe00-1".into()));
        file.clone().identify(Some("2d-1".into()));
        assert!(!file.astray.get(), "another host of the same endpoint");
        file.clone().identify(Some("fe00-2".into()));
        assert!(file.astray.get());
    }
}
