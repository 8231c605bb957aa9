//! How far listings may run ahead of each other: memory stays bounded whatever the speeds of the two ends.

use super::{Open, Planner};
use crate::plan::{ListedSide, QueryId};

/// Entries at the destination held for listings behind the first, about 10 MB.
const AHEAD_DESTINATION: usize = 100_000;
/// Entries of the source held until the destination of theirs is known, in all listings; about 1 MB.
const AHEAD_SOURCE: usize = 4096;
/// Directories that the open listings may bring together, as far as those before tell.
const EXPECTED: usize = 16_384;

/// How many directories a directory holds.
#[derive(Debug, Default)]
pub(super) struct Breadth {
    listings: usize,
    directories: usize,
}

impl Breadth {
    /// A listing with so many directories has ended.
    pub(super) fn ended(&mut self, directories: usize) {
        self.listings += 1;
        self.directories += directories;
    }

    /// How many listings are worth to be open together: where each brings thousands of directories to list, a few
    /// fill a round trip just as well, and what they bring has to be remembered.
    fn at_once(&self) -> usize {
        let mean = self.directories.div_ceil(self.listings.max(1));
        (EXPECTED / mean.max(1)).max(1)
    }
}

impl Planner {
    /// Whether a further question may be open.
    pub(super) fn may_ask(&self) -> bool {
        self.open.len() < self.options.queries_at_once.min(self.breadth.at_once()).max(1)
    }

    /// Whether entries of that side of a listing may be handed over now. Where not, hold them back, let the other
    /// side's go on, and ask again after any input.
    ///
    /// There is always room for one side of the oldest open question at least: lists that are made in the order of the
    /// questions never wait for each other.
    pub fn has_room(&self, query: QueryId, side: ListedSide) -> bool {
        let Some(Open::Listing(listing)) = self.open.get(&query) else { return true };
        match side {
            ListedSide::Source => {
                let held = |open: &Open| match open {
                    Open::Listing(listing) => listing.waiting.len(),
                    _ => 0,
                };
                listing.destination_done || self.open.values().map(held).sum::<usize>() < AHEAD_SOURCE
            }
            ListedSide::Destination => {
                let first = self.open.keys().next();
                let held = |(id, open): (&QueryId, &Open)| match open {
                    Open::Listing(listing) if Some(id) != first => listing.existing.len(),
                    _ => 0,
                };
                Some(&query) == first || self.open.iter().map(held).sum::<usize>() < AHEAD_DESTINATION
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::Object;
    use crate::plan::{PlanInput, PlanOptions, Query, Root, SyncLevel};

    /// A planner with so many open listings of existing directories.
    fn listing(count: usize) -> (Planner, Vec<QueryId>) {
        let mut planner =
            Planner::new(PlanOptions { recursive: true, sync: SyncLevel::Size, ..PlanOptions::default() });
        let directory = || Object::directory("");
        for number in 0..count {
            let root = Root::new(format!("/s{number}"), format!("/d{number}")).object(directory());
            planner.add_root(root.existing(crate::plan::Existing::Present(directory())));
        }
        let queries = std::iter::from_fn(|| planner.poll_query());
        let mut ids: Vec<QueryId> = queries
            .map(|query| match query {
                Query::List { query, .. } => query,
                other => panic!("{other:?}"),
            })
            .collect();
        ids.sort_unstable();
        (planner, ids)
    }

    fn file(number: usize) -> Object {
        Object::file(format!("f{number}"), 1)
    }

    #[test]
    fn sources_wait_for_destinations_only_in_small_numbers() {
        let (mut planner, queries) = listing(1);
        let query = queries[0];
        for number in 0..AHEAD_SOURCE {
            assert!(planner.has_room(query, ListedSide::Source), "{number}");
            planner.handle(PlanInput::Source { query, object: file(number) });
        }
        assert!(!planner.has_room(query, ListedSide::Source));
        assert!(planner.has_room(query, ListedSide::Destination));
        planner.handle(PlanInput::DestinationEnd { query });
        assert!(planner.has_room(query, ListedSide::Source), "what waited is planned");
    }

    #[test]
    fn destinations_run_ahead_only_so_far_and_the_first_is_never_held_back() {
        let (mut planner, queries) = listing(2);
        for number in 0..AHEAD_DESTINATION {
            planner.handle(PlanInput::Destination { query: queries[0], object: file(number) });
            planner.handle(PlanInput::Destination { query: queries[1], object: file(number) });
        }
        assert!(planner.has_room(queries[0], ListedSide::Destination), "somebody waits for it");
        assert!(!planner.has_room(queries[1], ListedSide::Destination));
        planner.handle(PlanInput::DestinationEnd { query: queries[0] });
        planner.handle(PlanInput::SourceEnd { query: queries[0] });
        assert!(planner.has_room(queries[1], ListedSide::Destination), "it is the first now");
        assert!(planner.has_room(queries[0], ListedSide::Source), "what comes late is ignored, and takes no room");
    }

    #[test]
    fn wide_trees_are_listed_by_few_questions_and_narrow_ones_by_many() {
        let mut planner = Planner::new(PlanOptions { recursive: true, ..PlanOptions::default() });
        planner.add_root(Root::new("/s", "/d").object(Object::directory("")));
        let ask = |planner: &mut Planner| std::iter::from_fn(|| planner.poll_query()).collect::<Vec<_>>();
        let list = |planner: &mut Planner, query: &Query, directories: usize| {
            let Query::List { query, .. } = *query else { panic!("{query:?}") };
            for number in 0..directories {
                planner.handle(PlanInput::Source { query, object: Object::directory(format!("d{number}")) });
            }
            planner.handle(PlanInput::SourceEnd { query });
        };
        let root = ask(&mut planner);
        list(&mut planner, &root[0], 4096);
        let wide = ask(&mut planner);
        assert_eq!(wide.len(), EXPECTED / 4096, "each may bring as many again");
        wide.iter().for_each(|query| list(&mut planner, query, 0));
        let more = ask(&mut planner);
        assert!(more.len() > wide.len(), "they did not: {}", more.len());
        more.iter().for_each(|query| list(&mut planner, query, 0));
        (0..10).for_each(|_| ask(&mut planner).iter().for_each(|query| list(&mut planner, query, 0)));
        assert_eq!(ask(&mut planner).len(), PlanOptions::default().queries_at_once);
    }
}
