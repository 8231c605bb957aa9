//! The one event model: what `--json` prints, one event a line, and what the human display is made from.
//!
//! Field names are stable: fields are added, never renamed. The driver adds the wall-clock time.

use serde::{Deserialize, Serialize};

use crate::auto::Explain;
use crate::fault::Fault;
use crate::listing::path_text;
use crate::plan::{Action, Item, ItemId, PlanTotals, SkipReason};
use crate::progress::{Snapshot, Verification};
use crate::summary::{Failure, Summary};
use crate::transfer::Slot;
use crate::tune::Tuning;

/// Something that happened in a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// One step of a plan (`--dry-run`).
    Plan(Action),
    /// What the plan adds up to (`--dry-run`, last).
    PlanTotals(PlanTotals),
    /// The first choices and their reasons.
    Tuned(Tuning),
    /// Every choice with its reason, its changes so far, and the bottleneck once it is known (`--explain`).
    Explained(Explain),
    /// A directory is followed (`--follow`): what is complete in it from now on is copied.
    Watching {
        /// The directory.
        #[serde(with = "path_text")]
        source: Vec<u8>,
        /// Whether this host's own writers tell when they close a file; otherwise only scans find files.
        events: bool,
        /// Seconds between scans, at least.
        scan_interval: f64,
        /// Seconds a file must be unchanged to count as complete where no event tells.
        quiet_time: f64,
    },
    /// A directory could not be read, or not all of it (`--follow`): it is asked again, and fails if that goes on until
    /// nothing more is looked for.
    CannotRead {
        /// The directory, or the file in it that nobody can tell about.
        #[serde(with = "path_text")]
        source: Vec<u8>,
        /// Why.
        fault: Fault,
    },
    /// Of a followed directory, everything that the first look at all of it found is copied, or has failed. Told once.
    CaughtUp {
        /// How many files that were.
        files: u64,
    },
    /// Nothing more is looked for (`--follow`); what is ready is finished.
    WatchEnded {
        /// Files left because they were still being written.
        unfinished: u64,
    },
    /// Every source is listed: the totals are final.
    ListingDone {
        /// Files in all.
        files: u64,
        /// Bytes in all.
        bytes: u64,
    },
    /// A session is ready.
    SessionReady {
        /// Which.
        slot: Slot,
    },
    /// A session could not be opened, or broke.
    SessionLost {
        /// Which.
        slot: Slot,
        /// Why.
        fault: Fault,
        /// Seconds until it is opened again; `None` when it is given up.
        retry_in: Option<f64>,
    },
    /// No session can be opened any more: everything that is left fails.
    GivenUp {
        /// What the last one said.
        fault: Fault,
    },
    /// An attempt at a file began.
    Started {
        /// The item.
        item: ItemId,
        /// Its source path.
        #[serde(with = "path_text")]
        source: Vec<u8>,
        /// Its destination path.
        #[serde(with = "path_text")]
        destination: Vec<u8>,
        /// Its bytes, when known.
        size: Option<u64>,
        /// The session.
        slot: Slot,
        /// Which attempt.
        attempt: u32,
        /// Bytes that earlier attempts brought.
        resumed: u64,
    },
    /// All numbers, now and then.
    Progress(Snapshot),
    /// An item is complete.
    ItemDone {
        /// The item.
        #[serde(flatten)]
        item: Item,
        /// What was done: `copied`, `linked`, `directory_made`.
        outcome: Outcome,
        /// Bytes of the item.
        bytes: u64,
        /// Whether it is proven.
        verification: Verification,
        /// Attempts it took.
        attempts: u32,
        /// Seconds from its first start.
        seconds: f64,
    },
    /// An item needed no work.
    ItemSkipped {
        /// The item.
        item: ItemId,
        /// Its source path.
        #[serde(with = "path_text")]
        source: Vec<u8>,
        /// Why.
        reason: SkipReason,
    },
    /// An item failed for good.
    ItemFailed(Failure),
    /// An attempt failed and another follows.
    Retry {
        /// The item.
        item: ItemId,
        /// Its source path.
        #[serde(with = "path_text")]
        source: Vec<u8>,
        /// Why.
        fault: Fault,
        /// The attempt that failed.
        attempt: u32,
        /// Seconds until the next.
        retry_in: f64,
        /// Bytes that need not be moved again.
        kept: u64,
    },
    /// A server refuses temporary names: files in this directory bear their final names before they are complete.
    WrittenInPlace {
        /// The directory at the destination.
        #[serde(with = "path_text")]
        directory: Vec<u8>,
        /// What it said.
        fault: Fault,
    },
    /// Unfinished copies of other runs lie in a directory at a server that keeps none by itself. Their runs are at work, or may
    /// be: they are left alone, and this run has its own.
    OtherRuns {
        /// The directory at the destination.
        #[serde(with = "path_text")]
        directory: Vec<u8>,
        /// How many.
        files: u64,
    },
    /// A file was not compared with the checksum that is expected of it, or none is.
    NotChecked {
        /// The item.
        item: ItemId,
        /// Its source path.
        #[serde(with = "path_text")]
        source: Vec<u8>,
        /// Whether one is expected; then it was left as it was. Otherwise the list of checksums does not name it, and it is copied and proven like any other.
        listed: bool,
    },
    /// A leaf of a file differed from the source and goes again.
    LeafWrong {
        /// The item.
        item: ItemId,
        /// Its source path.
        #[serde(with = "path_text")]
        source: Vec<u8>,
        /// Where the leaf begins in the file.
        start: u64,
        /// Where it ends, exclusive.
        end: u64,
        /// How often it was wrong by now.
        times: u32,
    },
    /// What earlier runs proved of a file is of another version of its source, and was thrown away: it begins anew.
    BeganAnew {
        /// The item.
        item: ItemId,
        /// Its source path.
        #[serde(with = "path_text")]
        source: Vec<u8>,
        /// How many bytes were proven of the other version.
        bytes: u64,
    },
    /// An earlier run of the same copy was cut short: what it has finished stays as it is.
    GoesOn {
        /// Where the copy goes.
        #[serde(with = "path_text")]
        destination: Vec<u8>,
        /// How many files it has finished.
        files: u64,
    },
    /// The end.
    Summary(Summary),
}

/// What was done for an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A file was copied.
    Copied,
    /// A link was made.
    Linked,
    /// A directory was made.
    DirectoryMade,
    /// The attributes of a directory were set.
    AttributesSet,
}

impl Event {
    /// The event as one JSON line without its end of line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("events hold only what JSON can carry")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{FaultCode, Side};
    use crate::plan::{Attributes, RootId};

    fn item() -> Item {
        Item {
            id: ItemId(7),
            root: RootId(0),
            parent: None,
            source: b"/s\xff".to_vec(),
            destination: b"/d".to_vec(),
            size: Some(3),
            modified: None,
            range: None,
            attributes: Attributes::default(),
            twins: Vec::new(),
        }
    }

    fn fault() -> Fault {
        Fault::new(FaultCode::NoSpace, "write").side(Side::Destination)
    }

    /// Programs are built on these lines: a change here breaks them.
    #[test]
    fn the_json_of_an_event_is_one_stable_line() {
        let done = Event::ItemDone {
            item: item(),
            outcome: Outcome::Copied,
            bytes: 3,
            verification: Verification::by("md5"),
            attempts: 1,
            seconds: 0.5,
        };
        assert_eq!(
            done.to_json(),
            r#"{"event":"item_done","id":7,"root":0,"source":[47,115,255],"destination":"/d","size":3,"outcome":"copied","bytes":3,"verification":{"state":"verified","algorithm":"md5"},"attempts":1,"seconds":0.5}"#
        );
        let plan = Event::Plan(Action::Copy { item: item() });
        assert_eq!(
            plan.to_json(),
            r#"{"event":"plan","action":"copy","item":{"id":7,"root":0,"source":[47,115,255],"destination":"/d","size":3}}"#
        );
        let failed = Event::ItemFailed(Failure::new(&item(), fault()));
        let text = failed.to_json();
        assert!(text.starts_with(r#"{"event":"item_failed","item":7,"source":[47,115,255],"destination":"/d","fault":{"code":"NoSpace","side":"destination","retry":"permanent","op":"write","subject":"","detail":""},"cause":""#), "{text}");
    }

    #[test]
    fn every_event_can_be_read_back() {
        let now = std::time::Instant::now();
        let snapshot = crate::progress::Progress::new(now).snapshot(now);
        let failures = crate::summary::Failures::default();
        let events = [
            Event::Plan(Action::Refuse { item: item(), fault: fault() }),
            Event::PlanTotals(PlanTotals::default()),
            Event::Tuned(crate::tune::choose(&crate::tune::TuneInput::default())),
            Event::Explained(Explain::new(&crate::auto::plan(&crate::auto::Facts::default()))),
            Event::ListingDone { files: 1, bytes: 2 },
            Event::Watching { source: b"/s\xff".to_vec(), events: true, scan_interval: 5.0, quiet_time: 0.5 },
            Event::CannotRead { source: b"/s".to_vec(), fault: fault() },
            Event::CaughtUp { files: 4 },
            Event::WatchEnded { unfinished: 3 },
            Event::SessionLost { slot: Slot(1), fault: fault(), retry_in: None },
            Event::GivenUp { fault: fault() },
            Event::Progress(snapshot.clone()),
            Event::ItemSkipped { item: ItemId(1), source: b"/s".to_vec(), reason: SkipReason::Exists },
            Event::WrittenInPlace { directory: b"/d\xff/".to_vec(), fault: fault() },
            Event::OtherRuns { directory: b"/d\xff/".to_vec(), files: 2 },
            Event::NotChecked { item: ItemId(1), source: b"/s".to_vec(), listed: false },
            Event::LeafWrong { item: ItemId(1), source: b"/s".to_vec(), start: 0, end: 9, times: 2 },
            Event::BeganAnew { item: ItemId(1), source: b"/s".to_vec(), bytes: 9 },
            Event::GoesOn { destination: b"/d\xff".to_vec(), files: 3 },
            Event::Summary(Summary::new(snapshot, &failures, false)),
        ];
        for event in events {
            let text = event.to_json();
            assert!(!text.contains('\n'));
            let back: Event = serde_json::from_str(&text).expect("the event can be read");
            assert_eq!(back.to_json(), text);
        }
    }
}
