//! Which items of a task are final: 16 bytes each.

use uuid::Uuid;
use whimbrel_engine::dispatch::{Request, Response, Subject, key};

use super::hold::{Hold, Line, Lost};

/// Keys, sorted.
#[derive(Debug, Default)]
pub(super) struct Keys(Vec<u128>);

impl Keys {
    /// All that the service knows.
    pub(super) async fn fetch(line: &Line, hold: &Hold) -> Result<Self, Lost> {
        let mut keys = Vec::new();
        let mut after = 0;
        loop {
            let request = Request::Finished { lease: hold.lease, after };
            let Response::Finished { keys: page, next } = line.insist(hold, request).await? else {
                return Err(unexpected(hold));
            };
            if page.is_empty() {
                return Ok(Self::new(keys));
            }
            keys.extend(page.iter().map(Uuid::as_u128));
            after = next;
        }
    }

    fn new(mut keys: Vec<u128>) -> Self {
        keys.sort_unstable();
        keys.dedup();
        keys.shrink_to_fit();
        Self(keys)
    }

    /// Whether the item is final.
    pub(super) fn contains(&self, subject: &Subject) -> bool {
        !self.0.is_empty() && self.0.binary_search(&key(subject).as_u128()).is_ok()
    }
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
        let keys = Keys::new(known.iter().map(|subject| key(subject).as_u128()).collect());
        assert_eq!(keys.0.len(), 2);
        assert!(keys.contains(&Subject { kind: ItemKind::Directory, ..subject(b"/d/1", false) }));
        assert!(!keys.contains(&subject(b"/d/1", true)) && !keys.contains(&subject(b"/d/3", false)));
        assert!(!Keys::default().contains(&subject(b"/d/1", false)));
    }
}
