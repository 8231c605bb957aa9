//! What is asked of an end for an attempt, and how the attempt is to be carried out.

use whimbrel_engine::plan::Item;
use whimbrel_engine::progress::Verification;
use whimbrel_proto::op::{Mode, Op};

use super::proof::Proof;
use crate::client::end::End;
use crate::client::pair::Role;

/// What an operation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// An end is told where to connect.
    Connect,
    /// The source sends.
    Send,
    /// The destination stores.
    Store,
    /// The source computes its checksum.
    SourceSum,
    /// The destination computes its checksum.
    DestinationSum,
    /// A directory, link or attribute is made.
    Make,
    /// A directory is made of the item's name, beside those of others: refused where it is one of theirs.
    TellApart,
    /// What that needs is made, or removed again.
    Trial,
    /// The unfinished copy of a chunked file is made or found.
    Open,
    /// What has the final name now.
    Target,
    /// How long what has the final name is, when a rename was not answered.
    Found,
    /// How long what was stored is, where nothing else proves it.
    Length,
    /// Which file has the temporary name, behind the storing of a part.
    Identity,
    /// The digest of one leaf, offsets in the file; at the end that is asked.
    Leaf {
        /// First byte.
        start: u64,
        /// Behind the last byte.
        end: u64,
    },
    /// A digest of the whole file at the destination; which of those wanted.
    FileSum(usize),
    /// The source's version, behind the reading of a part of it.
    Version,
    /// The destination is told what is proven.
    Keep,
    /// A chunked file gets its name, or one that was stored under a temporary one.
    Commit,
    /// The same, asked for along with what proves its last part; if that is refused, it is asked for again.
    CommitAhead,
    /// Which leaves of the source are holes.
    Extents,
    /// The destination is told to make them holes, too.
    KeepHoles,
}

impl Purpose {
    /// Whether it belongs to the transfer itself.
    pub fn moves_data(self) -> bool {
        matches!(self, Self::Connect | Self::Send | Self::Store)
    }
}

/// One operation for an attempt.
#[derive(Debug, Clone)]
pub struct Order {
    /// At which end.
    pub role: Role,
    /// What for.
    pub purpose: Purpose,
    /// The operation.
    pub op: Op,
}

impl Order {
    /// An operation for the source.
    pub fn source(purpose: Purpose, op: Op) -> Self {
        Self { role: Role::Source, purpose, op }
    }

    /// An operation for the destination.
    pub fn destination(purpose: Purpose, op: Op) -> Self {
        Self { role: Role::Destination, purpose, op }
    }
}

/// How an attempt is to be carried out.
#[derive(Debug, Clone)]
pub struct Manner {
    /// Framing of the data connection.
    pub mode: Mode,
    /// How to prove the copy; `Err`: why not.
    pub proof: Result<Proof, Verification>,
    /// What the destination sets itself, because it is told before the transfer.
    pub given: Given,
    /// Whether the destination is to read back past its memory.
    pub past_memory: bool,
    /// Whether the copy must survive a crash of its host before it is answered, where the destination can promise that.
    pub durable: bool,
    /// When a whole file gets its final name; of no meaning for anything else.
    pub named: Named,
    /// Whether both ends can leave holes out, which takes digests in both replies.
    pub holes: bool,
    /// Whether the source tells the destination, over their data connections, what it must have stored before it gives the
    /// name, which takes digests in both replies.
    pub vouched: bool,
    /// Whether the length of what was stored is asked for: nothing else tells that all of it came.
    pub measured: bool,
}

/// The attributes that a destination is told with a store or a commit, and sets before it gives the final name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Given {
    /// The modification time.
    pub time: bool,
    /// Permission bits.
    pub mode: bool,
}

impl Given {
    /// What an end can be told.
    pub fn to(end: &End) -> Self {
        match end {
            End::Remote(remote) => {
                let has = |feature| remote.features.has(feature);
                Self { time: has("STORATTR"), mode: has("STORATTR") && has("STORMODE") }
            }
            End::Local(_) => Self { time: true, mode: true },
        }
    }

    /// The mode that the destination is told: nobody but the owner gets more than he will have. The owner may go on with the
    /// file, should the answer be lost; and a set-id bit waits until the file has moved.
    pub fn mode_of(self, item: &Item) -> Option<u32> {
        item.attributes.mode.filter(|_| self.mode).map(|mode| mode & 0o777 | 0o600)
    }

    /// The time that the destination is told: seconds and nanoseconds.
    pub fn time_of(self, item: &Item) -> Option<(i64, u32)> {
        item.attributes.modified.filter(|_| self.time).map(|time| (time.secs, time.nanos))
    }
}

/// When a whole file gets its final name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// When its destination has stored it.
    ByDestination {
        /// What the destination must find first: algorithm in its spelling, digest.
        announced: Option<(String, String)>,
    },
    /// The same, and what it must find is the source's checksum, which is asked for before anything moves.
    SourceFirst,
    /// When it is proven: until then its bytes have another name.
    Later {
        /// That name.
        temporary: Vec<u8>,
        /// Whether anything may have the final name already.
        may_exist: bool,
    },
}

impl Named {
    /// When its destination has stored it, whatever that is.
    pub const BY_DESTINATION: Self = Self::ByDestination { announced: None };

    /// The temporary name, where there is one.
    pub fn temporary(&self) -> Option<&[u8]> {
        match self {
            Self::Later { temporary, .. } => Some(temporary),
            Self::ByDestination { .. } | Self::SourceFirst => None,
        }
    }

    /// What the destination must find before it gives the name.
    pub fn announced(&self) -> Option<&(String, String)> {
        match self {
            Self::ByDestination { announced } => announced.as_ref(),
            Self::SourceFirst | Self::Later { .. } => None,
        }
    }

    /// Whether what has the final name must be asked for, since a rename would replace it.
    pub fn replaces(&self) -> bool {
        matches!(self, Self::Later { may_exist: true, .. })
    }
}

impl Manner {
    /// Where the bytes of a whole file go.
    pub fn target<'a>(&'a self, item: &'a Item) -> &'a [u8] {
        self.named.temporary().unwrap_or(&item.destination)
    }

    /// Whether bytes of another file would get no name, and be noticed, if they were taken for this one's; `in_chunks`: its
    /// leaves are compared before they are kept.
    pub fn is_safe(&self, in_chunks: bool) -> bool {
        match &self.named {
            Named::SourceFirst => true,
            Named::Later { .. } => self.proof.is_ok(),
            Named::ByDestination { announced } => announced.is_some() || (in_chunks && self.proof.is_ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{job, manner};
    use super::*;
    use whimbrel_engine::transfer::Work;

    const TEMPORARY: &[u8] = b"/d/.f.whimbrel";

    fn later(may_exist: bool) -> Named {
        Named::Later { temporary: TEMPORARY.to_vec(), may_exist }
    }

    #[test]
    fn only_a_file_that_is_named_later_has_another_name() {
        let item = job(Work::Copy).item;
        let target = |named| Manner { named, ..manner() }.target(&item).to_vec();
        assert_eq!(target(later(false)), TEMPORARY);
        assert_eq!(target(Named::SourceFirst), item.destination);
        assert_eq!(target(Named::BY_DESTINATION), item.destination);
        assert!(later(true).replaces() && !later(false).replaces() && !Named::SourceFirst.replaces());
    }

    #[test]
    fn a_misplaced_file_is_noticed_only_where_something_is_compared_before_the_name() {
        let safe = |named, proof, in_chunks| Manner { named, proof, ..manner() }.is_safe(in_chunks);
        let (proof, none) = (manner().proof, Err(Verification::NotAsked));
        let announced = Named::ByDestination { announced: Some(("MD5".into(), "00".into())) };
        assert!(safe(announced, none.clone(), false));
        assert!(safe(Named::SourceFirst, proof.clone(), false));
        assert!(safe(later(true), proof.clone(), false) && !safe(later(true), none.clone(), false));
        assert!(!safe(Named::BY_DESTINATION, proof.clone(), false));
        assert!(safe(Named::BY_DESTINATION, proof, true) && !safe(Named::BY_DESTINATION, none, true));
    }
}
