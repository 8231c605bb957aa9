//! What goes into the machine and what comes out.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::Chunking;
use crate::events::Event;
use crate::fault::Fault;
use crate::plan::{Action, Item, ItemId};
use crate::progress::Verification;
use crate::ranges::RangeSet;

/// One of the sessions that work at the same time: 0 to `concurrency` - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(pub u32);

/// One attempt at one item; every report about it carries it, so that late reports are told from current ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attempt {
    /// The item.
    pub item: ItemId,
    /// 1 for the first start; a start on another session counts on.
    pub number: u32,
}

/// What to do for an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Make the directory; an existing one counts as made.
    MakeDirectory,
    /// Copy what is missing, set the attributes, verify.
    Copy,
    /// Compare checksums; answer with [`Input::ItemCompared`].
    Compare,
    /// Find out whether the destination tells the item's name from its [`Item::twins`], which are copied, too; answer with
    /// [`Input::ItemCompared`], equal where it does not. What is to be done for the item comes behind.
    TellApart,
    /// Make a link with this target.
    Symlink {
        /// What it says.
        target: Vec<u8>,
    },
    /// Set the item's attributes.
    SetAttributes,
    /// Make or find the unfinished copy of a file that is moved in chunks; answer with [`Input::ItemOpened`].
    Open {
        /// Bytes of a leaf.
        leaf: u64,
    },
    /// Move and prove one part of an opened file; answer with [`Input::ChunkDone`]. Any number at once on any sessions,
    /// on one of them as many as [`super::Chunking::ahead`] says: the next begins to move while one is read back.
    Chunk {
        /// Offsets in the file; leaves that lie in it are whole.
        part: Range<u64>,
    },
    /// Every part is proven: set attributes and give the final name; answer with [`Input::ItemDone`]. When the unfinished
    /// copy is gone or was replaced (`NotFound`, `StorageBusy`), the file is opened again.
    Commit,
}

/// One order to a session.
#[derive(Debug, Clone)]
pub struct Job {
    /// Which attempt this is.
    pub attempt: Attempt,
    /// What to do.
    pub work: Work,
    /// To what.
    pub item: Item,
    /// What has arrived in earlier attempts, offsets in the file; empty means from the start, and for chunks always.
    pub received: RangeSet,
}

/// What an attempt is busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Moving bytes.
    Moving,
    /// Computing or comparing checksums.
    Verifying,
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// The planner's next action; accepted at any time before `ListingDone`.
    Planned(Action),
    /// How a file is to be moved that is planned next, if not as the others of the run.
    Chunking {
        /// Its number.
        item: ItemId,
        /// In parts like these, or whole.
        chunking: Option<Chunking>,
    },
    /// No further action will come.
    ListingDone,
    /// The session is logged in and idle.
    SessionReady {
        /// Which.
        slot: Slot,
    },
    /// The session could not be opened, or broke; whatever ran on it is over.
    ///
    /// The item at work is charged with an attempt; an `ItemFailed` for it just before hands over its
    /// ranges and is not charged twice. The others are started again elsewhere.
    SessionLost {
        /// Which.
        slot: Slot,
        /// Why.
        fault: Fault,
    },
    /// The attempt's turn has come in the session's pipeline: data are being opened or moved.
    ItemStarted {
        /// Which.
        attempt: Attempt,
        /// Whether an end will tell now and then how much has moved: plain servers do not.
        tells: bool,
    },
    /// The attempt has moved bytes, or is alive in another way.
    ItemProgress {
        /// Which.
        attempt: Attempt,
        /// Payload bytes moved by this attempt so far; never decreases.
        moved: u64,
        /// What a restart may trust, when the peer has just said so (restart markers); adds to what is known.
        durable: Option<RangeSet>,
    },
    /// The attempt entered another phase.
    ItemPhase {
        /// Which.
        attempt: Attempt,
        /// The phase.
        phase: Phase,
    },
    /// The attempt is complete.
    ItemDone {
        /// Which.
        attempt: Attempt,
        /// Payload bytes moved by this attempt.
        bytes: u64,
        /// Whether the copy was verified.
        verified: Verification,
    },
    /// An unfinished copy is ready for chunks.
    ItemOpened {
        /// Which.
        attempt: Attempt,
        /// What is proven there already, offsets in the file.
        verified: RangeSet,
        /// What else opening has found.
        found: Opening,
    },
    /// These ends cannot move the file in chunks, or cannot any more: copy it whole. An answer to any step of such a file.
    ItemWhole {
        /// Which.
        attempt: Attempt,
    },
    /// A chunk has moved, its leaves were compared, and the destination was told: what comes behind it may be asked for. Its
    /// `ChunkDone` follows when the destination has answered.
    ChunkMoved {
        /// Which.
        attempt: Attempt,
    },
    /// A chunk has moved and its leaves were compared.
    ChunkDone {
        /// Which.
        attempt: Attempt,
        /// Payload bytes moved by this attempt.
        bytes: u64,
        /// Leaves that are proven (without proof: what was stored).
        verified: RangeSet,
        /// Leaves whose digests differ: to be moved again.
        wrong: RangeSet,
        /// How.
        verification: Verification,
    },
    /// The checksums of both sides were compared.
    ItemCompared {
        /// Which.
        attempt: Attempt,
        /// Whether they are equal; if not, the copy follows.
        equal: bool,
    },
    /// The attempt failed; the session lives on.
    ItemFailed {
        /// Which.
        attempt: Attempt,
        /// Why.
        fault: Fault,
        /// What has arrived and may be trusted, earlier attempts included or not.
        received: RangeSet,
    },
    /// From now on so many sessions at once, at least 1; one that is too many ends with what it has and is closed.
    Concurrency {
        /// How many.
        sessions: u32,
    },
    /// From now on so many bytes per second in the mean; `None`: no bound.
    Rate {
        /// Bytes per second.
        most: Option<u64>,
    },
    /// The user or the administrator wants it to end.
    Cancel,
    /// Time has passed.
    Tick,
}

/// What to do.
#[derive(Debug)]
pub enum Command {
    /// Open a session: connect and log in both ends; answer with `SessionReady` or `SessionLost`.
    OpenSession {
        /// Which.
        slot: Slot,
    },
    /// Start a job on a ready session, behind those it was given before.
    Start {
        /// Which.
        slot: Slot,
        /// What to do.
        job: Box<Job>,
    },
    /// Close the session, orderly when it is idle, at once when `fault` is given (stall, cancel): what
    /// runs on it is over, and the machine knows; answer with nothing.
    CloseSession {
        /// Which.
        slot: Slot,
        /// Why, unless it is simply no longer needed.
        fault: Option<Fault>,
    },
    /// Tell the user.
    Report(Event),
}

/// What opening a file for chunks has found besides what is proven.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opening {
    /// Whole leaves that are holes at the source and were made holes at the destination: nothing of them is moved.
    pub holes: RangeSet,
    /// Bytes of all holes that are kept: `holes`, and parts of leaves.
    pub kept: u64,
    /// Bytes of holes that are moved as zeros, because an end cannot keep them.
    pub filled: u64,
    /// Bytes at whose multiples parts should begin and end: the stripes of the destination's file system.
    pub stripe: Option<u64>,
    /// Bytes that earlier runs proved of another version of the source, and that were thrown away.
    pub discarded: u64,
}
