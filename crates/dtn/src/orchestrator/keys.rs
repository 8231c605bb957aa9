//! Which items of a task are final: 16 bytes each.

use uuid::Uuid;
use whimbrel_engine::dispatch::{Request, Response, Subject, key};

use super::hold::{Hold, Line, Lost};

/// Keys, sorted.
#[derive(Debug, Default)]
pub(super) struct Keys {
    all: Vec<u128>,
    /// Those of items that failed or were left out for a fault.
    failed: Vec<u128>,
}

impl Keys {
    /// All that the service knows.
    pub(super) async fn fetch(line: &Line, hold: &Hold) -> Result<Self, Lost> {
        let (mut all, mut failures) = (Vec::new(), Vec::new());
        let mut after = 0;
        loop {
            let request = Request::Finished { lease: hold.lease, after };
            let Response::Finished { keys: page, failed, next } = line.insist(hold, request).await? else {
                return Err(unexpected(hold));
            };
            if page.is_empty() {
                return Ok(Self::new(all, failures));
            }
            all.extend(page.iter().map(Uuid::as_u128));
            failures.extend(failed.iter().map(Uuid::as_u128));
            after = next;
        }
    }

    pub(super) fn new(all: Vec<u128>, failed: Vec<u128>) -> Self {
        Self { all: sorted(all), failed: sorted(failed) }
    }

    /// Whether the item is final.
    pub(super) fn contains(&self, subject: &Subject) -> bool {
        has(&self.all, subject)
    }

    /// Whether any item failed, or was left out for a fault.
    pub(super) fn any_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Whether the item failed, or was left out for a fault.
    pub(super) fn has_failed(&self, subject: &Subject) -> bool {
        has(&self.failed, subject)
    }
}

fn sorted(mut keys: Vec<u128>) -> Vec<u128> {
    keys.sort_unstable();
    keys.dedup();
    keys.shrink_to_fit();
    keys
}

fn has(keys: &[u128], subject: &Subject) -> bool {
    !keys.is_empty() && keys.binary_search(&key(subject).as_u128()).is_ok()
}

/// The service answers something else than was asked: there is no use in going on.
pub(super) fn unexpected(hold: &Hold) -> Lost {
    tracing::error!(task = %hold.lease.task, "the service answers something else than was asked");
    hold.set(super::hold::Standing::Lost);
    Lost
}

#[cfg(test)]
mod tests {
    use whimbrel_engine::task::ItemKind;

    use super::*;

    #[test]
    fn what_was_reported_is_found_again_by_where_it_goes() {
        let subject = |path: &[u8], extra| Subject {
            kind: ItemKind::File,
            source: b"/s".to_vec(),
            destination: path.to_vec(),
            extra,
        };
        let known = [subject(b"/d/2", false), subject(b"/d/1", false), subject(b"/d/2", false)];
        let number = |subject| key(subject).as_u128();
        let keys = Keys::new(known.iter().map(number).collect(), vec![number(&known[1])]);
        assert_eq!(keys.all.len(), 2);
        assert!(keys.has_failed(&subject(b"/d/1", false)) && !keys.has_failed(&subject(b"/d/2", false)));
        assert!(keys.contains(&Subject { kind: ItemKind::Directory, ..subject(b"/d/1", false) }));
        assert!(!keys.contains(&subject(b"/d/1", true)) && !keys.contains(&subject(b"/d/3", false)));
        assert!(!Keys::default().contains(&subject(b"/d/1", false)));
    }
}
