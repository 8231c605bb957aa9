//! What kind of attempt it is, and the state that only attempts of this kind have.

use std::ops::Range;

use whimbrel_engine::Fault;
use whimbrel_engine::transfer::{Job, Work};

use super::occupant::Occupant;
use super::opening::{OpenStep, Place};
use super::order::{Given, Manner, Named, Order};
use super::orders::transfer_orders;
use super::proof::Evidence;
use crate::client::chunk::{self, Compared, OpenFile};
use crate::client::worker::Pack;

/// What kind of attempt it is.
#[derive(Debug)]
pub enum Step {
    /// A whole file, or a range of one.
    Copy(CopyStep),
    /// The file and others that move together with it.
    Pack(Pack),
    /// A file in chunks is opened.
    Open(OpenStep),
    /// A part of a file in chunks moves.
    Chunk(ChunkStep),
    /// A file in chunks gets its name.
    Commit(CommitStep),
    /// A directory is made.
    MakeDirectory {
        /// It was there.
        existed: bool,
    },
    /// It is found out whether the destination tells the item's name from others.
    TellApart {
        /// It is one of theirs.
        is_same: bool,
    },
    /// A link is made.
    Link {
        /// What has its name is removed first.
        replaces: bool,
    },
    /// Attributes are made, or checksums compared.
    Simple,
}

impl Step {
    /// Of a job that is no step of a file in chunks and moves alone.
    pub fn alone(job: &Job, manner: &Manner) -> Self {
        match job.work {
            Work::Copy => Self::Copy(CopyStep::new(manner)),
            Work::MakeDirectory => Self::MakeDirectory { existed: false },
            Work::TellApart => Self::TellApart { is_same: false },
            Work::Symlink { .. } => Self::Link { replaces: false },
            _ => Self::Simple,
        }
    }

    /// The file it is a part of, when it moves in chunks and was opened.
    pub fn file(&self) -> Option<&OpenFile> {
        match self {
            Self::Chunk(ChunkStep::Moving(file)) => Some(file),
            Self::Chunk(ChunkStep::Compared { file, .. } | ChunkStep::AskingName { file, .. }) => Some(file),
            Self::Commit(
                CommitStep::Named(file) | CommitStep::Asked { file, .. } | CommitStep::Comparing { file, .. },
            ) => Some(file),
            _ => None,
        }
    }

    /// Whether nothing moves before the source has told its checksum.
    pub fn waits_for_source(&self) -> bool {
        matches!(self, Self::Copy(CopyStep { naming: CopyNaming::SourceFirst(_), .. }))
    }

    /// Whether what it waits for is asked of neither end.
    pub fn is_reading(&self) -> bool {
        matches!(self, Self::Open(OpenStep { place: Place::Temporary { examination, .. }, .. }) if examination.is_seeking())
    }

    /// What has the final name, where a rename would replace it.
    pub fn occupant(&self) -> Occupant {
        match self {
            Self::Copy(CopyStep { naming: CopyNaming::Later { occupant, .. }, .. }) => *occupant,
            Self::Open(step) => step.occupant(),
            _ => Occupant::Replaceable,
        }
    }

    /// The destination has told what has the final name.
    pub fn occupied(&mut self, by: Occupant) {
        match self {
            Self::Copy(CopyStep { naming: CopyNaming::Later { occupant, .. }, .. })
            | Self::Open(OpenStep { place: Place::Temporary { occupant, .. }, .. }) => *occupant = by,
            _ => {}
        }
    }

    /// The destination has told how long what it was asked for is.
    pub fn found(&mut self, size: u64) {
        if let Self::Commit(CommitStep::Comparing { found, .. }) = self {
            *found = Some(size);
        }
    }
}

/// A whole file, or a range of one.
#[derive(Debug)]
pub struct CopyStep {
    /// When it gets its final name.
    pub naming: CopyNaming,
    /// What was given with the store.
    pub given: Given,
}

/// When a whole file gets its final name, and how far that is.
#[derive(Debug)]
pub enum CopyNaming {
    /// When the destination has stored it.
    ByDestination,
    /// The same, but nothing moves before the source has told its checksum.
    SourceFirst(Box<Manner>),
    /// The same, and the destination stores nothing but what has the source's checksum.
    Vouched,
    /// When it is proven.
    Later {
        /// Where its bytes go meanwhile.
        temporary: Vec<u8>,
        /// What has the final name.
        occupant: Occupant,
    },
}

impl CopyStep {
    fn new(manner: &Manner) -> Self {
        let naming = match &manner.named {
            Named::ByDestination { .. } => CopyNaming::ByDestination,
            Named::SourceFirst => CopyNaming::SourceFirst(Box::new(manner.clone())),
            Named::Later { temporary, .. } => {
                CopyNaming::Later { temporary: temporary.clone(), occupant: Occupant::default() }
            }
        };
        Self { naming, given: manner.given }
    }

    /// The temporary name, where there is one.
    pub fn temporary(&self) -> Option<&[u8]> {
        match &self.naming {
            CopyNaming::Later { temporary, .. } => Some(temporary),
            _ => None,
        }
    }

    /// The operations that move a file whose source has told its checksum; none if nobody waited for that.
    pub fn go_ahead(&mut self, job: &Job, evidence: &Evidence) -> Vec<Order> {
        let (CopyNaming::SourceFirst(manner), Some(sum)) = (&self.naming, &evidence.source.sum) else {
            return Vec::new();
        };
        let announced = manner.proof.as_ref().ok().map(|proof| (proof.checksum.destination.clone(), sum.clone()));
        // The destination compares by itself.
        let orders = transfer_orders(job, &Manner { named: Named::ByDestination { announced }, ..(**manner).clone() });
        self.naming = CopyNaming::Vouched;
        orders.into()
    }
}

/// A part of a file in chunks.
#[derive(Debug)]
pub enum ChunkStep {
    /// Its bytes move.
    Moving(OpenFile),
    /// They have moved, and the leaves were compared.
    Compared {
        /// Its file.
        file: OpenFile,
        /// What the comparison says.
        compared: Compared,
        /// Whether the file got its name ahead, once that was asked for and is answered.
        named: Option<bool>,
    },
    /// A session that told of the last proof was lost before it heard whether the file has its name, which is asked for.
    AskingName {
        /// Its file.
        file: OpenFile,
        /// The answer.
        named: Option<bool>,
    },
    /// The file has its name.
    Named,
}

impl ChunkStep {
    /// Compares the leaves of a part, once everything about it is answered; false when that was done, or nothing moves.
    ///
    /// # Errors
    /// `PeerMisbehaved` when an end did not tell a digest for each leaf.
    pub fn compare(&mut self, part: &Range<u64>, evidence: &Evidence) -> Result<bool, Fault> {
        let Self::Moving(file) = self else { return Ok(false) };
        let compared = match file.checksum {
            None => Compared::arrived(part, file.leaf),
            Some(_) => chunk::compare(part, file.leaf, &evidence.source.leaves, &evidence.destination.leaves)?,
        };
        *self = Self::Compared { file: file.clone(), compared, named: None };
        Ok(true)
    }

    /// The destination has answered whether the file has its name.
    pub fn name_answered(&mut self, given: bool) {
        match self {
            Self::Compared { named, .. } | Self::AskingName { named, .. } => *named = Some(given),
            Self::Moving(_) | Self::Named => {}
        }
    }
}

/// The end of a file in chunks.
#[derive(Debug)]
pub enum CommitStep {
    /// It got its name with its last part.
    Named(OpenFile),
    /// Its name was asked for.
    Asked {
        /// The file.
        file: OpenFile,
        /// Whether that was asked for before, and the answer was lost.
        again: bool,
    },
    /// What was to be named is gone: what has the final name is compared with what was proven.
    Comparing {
        /// The file.
        file: OpenFile,
        /// Bytes of what has the name, once told.
        found: Option<u64>,
    },
}

impl CommitStep {
    /// Whether what has the final name is all that was proven; `stored`: its leaves.
    pub fn is_named(&self, job: &Job, evidence: &Evidence) -> bool {
        let Self::Comparing { file, found } = self else { return true };
        let (proven, stored) = (file.proven.borrow(), &evidence.destination.leaves);
        found.is_some()
            && *found == job.item.size
            && stored.len() == proven.len()
            && stored.iter().all(|leaf| proven.get(&leaf.range.start).is_some_and(|known| known.digest == leaf.digest))
    }
}
