//! What is kept of a matrix.

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;

use crate::store::{Record, time_key};
use crate::timers::records::DUE;

/// Measurements of one pair that are kept.
pub const KEPT: usize = 30;

/// A table of pairs that is filled again and again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matrix {
    /// Its id.
    pub id: Uuid,
    /// In whose name it measures.
    pub owner: Uuid,
    /// The program with which they made it.
    pub client: Uuid,
    /// What they call it.
    pub name: String,
    /// From the beginning of a round to that of the next, seconds.
    pub every: i64,
    /// What is measured between.
    pub ends: Vec<MatrixEnd>,
    /// When it was made.
    pub made: Timestamp,
    /// Rounds that were begun.
    pub round: u64,
    /// When this round began, or the first will.
    pub begun: Timestamp,
    /// The pair that is next in this round, or measured now: a place in [`Matrix::pairs`].
    pub pair: usize,
    /// The task that measures it.
    pub task: Option<Uuid>,
    /// When it is looked at next; `None`: its owner may not log in any more.
    pub due: Option<Timestamp>,
    /// What was measured, by pair, the newest last; at most [`KEPT`] each.
    pub measures: Vec<Vec<Measure>>,
}

/// One collection of a matrix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatrixEnd {
    /// The collection.
    pub collection: Uuid,
    /// What is copied from it: a file, or a directory with a slash behind it.
    pub dataset: String,
    /// The directory where copies from the others go, a slash behind it.
    pub copies: String,
}

/// What a probe came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measure {
    /// When it began.
    pub at: Timestamp,
    /// Its task; `None`: it was refused.
    pub task: Option<Uuid>,
    /// Bytes that were moved.
    pub bytes: u64,
    /// From the task's start to its end, microseconds.
    pub micros: u64,
    /// Why there is no figure.
    pub fault: Option<String>,
}

impl Measure {
    /// Bytes a second; `None`: it did not succeed, or moved nothing.
    pub fn rate(&self) -> Option<u64> {
        let good = self.fault.is_none() && self.bytes > 0 && self.micros > 0;
        good.then(|| u64::try_from(u128::from(self.bytes) * 1_000_000 / u128::from(self.micros)).unwrap_or(u64::MAX))
    }
}

impl Matrix {
    /// All ordered pairs of different ends, row by row.
    pub fn pairs(&self) -> Vec<(usize, usize)> {
        let places = 0..self.ends.len();
        places.clone().flat_map(|from| places.clone().filter(move |to| *to != from).map(move |to| (from, to))).collect()
    }

    /// Notes what the present pair came to, and turns to the next; after the last to the next round.
    pub fn note(&mut self, measure: Measure, now: Timestamp) {
        if let Some(measures) = self.measures.get_mut(self.pair) {
            measures.push(measure);
            let old = measures.len().saturating_sub(KEPT);
            measures.drain(..old);
        }
        self.task = None;
        self.pair += 1;
        self.due = Some(now);
        if self.pair >= self.measures.len() {
            self.pair = 0;
            // Rounds that would overlap are left out.
            let rounds = (now.secs - self.begun.secs).max(0) / self.every + 1;
            self.begun = Timestamp::from_secs(self.begun.secs + rounds * self.every);
            self.due = Some(self.begun);
        }
    }
}

impl Record for Matrix {
    const KIND: &'static str = "matrix";

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        let due = self.due.map(|due| (DUE, time_key(due)));
        std::iter::once(("owner", self.owner.to_string())).chain(due).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(ends: usize) -> Matrix {
        let end = MatrixEnd { collection: Uuid::nil(), dataset: "/d".into(), copies: "/c/".into() };
        Matrix {
            id: Uuid::nil(),
            owner: Uuid::nil(),
            client: Uuid::nil(),
            name: "m".into(),
            every: 100,
            ends: vec![end; ends],
            made: Timestamp::from_secs(0),
            round: 1,
            begun: Timestamp::from_secs(1000),
            pair: 0,
            task: None,
            due: None,
            measures: vec![Vec::new(); ends * (ends - 1)],
        }
    }

    fn measure(bytes: u64, micros: u64) -> Measure {
        Measure { at: Timestamp::from_secs(0), task: None, bytes, micros, fault: None }
    }

    #[test]
    fn a_round_has_every_pair_once_and_rounds_do_not_overlap() {
        let mut matrix = matrix(3);
        assert_eq!(matrix.pairs(), [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]);
        for pair in 0..6 {
            assert_eq!(matrix.pair, pair);
            matrix.note(measure(1, 1), Timestamp::from_secs(1010 + pair as i64 * 40));
        }
        // It took 210 seconds: the next but one is the next.
        assert_eq!((matrix.pair, matrix.begun.secs, matrix.due), (0, 1300, Some(Timestamp::from_secs(1300))));
        assert!(matrix.measures.iter().all(|measures| measures.len() == 1));
    }

    #[test]
    fn the_newest_are_kept() {
        let mut matrix = matrix(2);
        for number in 0..100 {
            matrix.note(measure(number, 1), Timestamp::from_secs(1000));
        }
        assert!(matrix.measures.iter().all(|measures| measures.len() == KEPT));
        assert_eq!(matrix.measures[1].last().unwrap().bytes, 99);
    }

    #[test]
    fn a_rate_is_of_what_succeeded() {
        assert_eq!(measure(1_000_000, 500_000).rate(), Some(2_000_000));
        assert_eq!(measure(u64::MAX, 1).rate(), Some(u64::MAX));
        assert_eq!((measure(0, 5).rate(), measure(5, 0).rate()), (None, None));
        assert_eq!(Measure { fault: Some("x".into()), ..measure(5, 5) }.rate(), None);
    }
}
