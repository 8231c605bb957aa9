//! The clock of the day, by which certificates and tokens are judged.

use std::time::{SystemTime, UNIX_EPOCH};

use whimbrel_proto::timeval::Timestamp;

/// Now, in whole seconds; a clock before 1970 counts as 1970.
pub fn now() -> Timestamp {
    Timestamp::from_secs(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64))
}
