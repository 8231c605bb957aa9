//! What the planner asks and what it is told.

use serde::{Deserialize, Serialize};

use super::RootId;
use crate::fault::Fault;
use crate::listing::Object;

/// One open question of the planner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueryId(pub u64);

/// One of the two directories of a [`Query::List`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListedSide {
    /// The one at the source.
    Source,
    /// The one at the destination.
    Destination,
}

/// What the planner needs to know next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query {
    /// What is at these paths? Answer with [`PlanInput::Stat`].
    Stat {
        /// Its number.
        query: QueryId,
        /// The root it belongs to.
        root: RootId,
        /// Path at the source; `None` when known.
        source: Option<Vec<u8>>,
        /// Path at the destination; `None` when not needed.
        destination: Option<Vec<u8>>,
        /// Whether a link at the source is to be resolved.
        follow: bool,
    },
    /// What is in these directories? Answer with [`PlanInput::Source`] and
    /// [`PlanInput::Destination`] for each entry and one end or failure for each side.
    List {
        /// Its number.
        query: QueryId,
        /// The root it belongs to.
        root: RootId,
        /// Directory at the source.
        source: Vec<u8>,
        /// Directory at the destination; `None` when it need not be listed (then send nothing for it).
        destination: Option<Vec<u8>>,
    },
}

/// What listings say.
#[derive(Debug)]
pub enum PlanInput {
    /// The answer to [`Query::Stat`].
    Stat {
        /// The question.
        query: QueryId,
        /// The source; ignored when it was not asked.
        source: Result<Object, Fault>,
        /// The destination; `None` when there is nothing or it was not asked.
        destination: Result<Option<Object>, Fault>,
    },
    /// One entry at the source.
    Source {
        /// The question.
        query: QueryId,
        /// The entry.
        object: Object,
    },
    /// One entry at the destination. Source entries wait until the destination's end is known, so
    /// list the destination first or at the same time.
    Destination {
        /// The question.
        query: QueryId,
        /// The entry.
        object: Object,
    },
    /// The source listing is complete.
    SourceEnd {
        /// The question.
        query: QueryId,
    },
    /// The destination listing is complete.
    DestinationEnd {
        /// The question.
        query: QueryId,
    },
    /// The source cannot be listed.
    SourceFailed {
        /// The question.
        query: QueryId,
        /// Why.
        fault: Fault,
    },
    /// The destination cannot be listed; `NotFound` counts as empty.
    DestinationFailed {
        /// The question.
        query: QueryId,
        /// Why.
        fault: Fault,
    },
}
