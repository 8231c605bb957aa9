//! From a document to a task: who may do it, where it happens.

use serde_json::json;
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;

use super::submission::{Draft, Placed};
use crate::Service;
use crate::auth::rules::Actor;
use crate::endpoints::Want;
use crate::endpoints::lookup::Limits;
use crate::http::ApiError;
use crate::reach::Usable;
use crate::task::{Submission, Submitted, TaskEnd, TaskWork, Wanted};

/// Seconds after which a task without a deadline of its own expires: a week, since a petabyte takes days.
const USUAL_LIFE: i64 = 7 * 24 * 3600;

/// Farthest deadline, seconds: a quarter of a year.
pub(super) const LONGEST_LIFE: i64 = 92 * 24 * 3600;

/// What a draft would be as a task, with its collections.
pub(super) struct Prepared {
    pub(super) submission: Submission,
    pub(super) source: Usable,
    pub(super) destination: Option<Usable>,
    pub(super) limits: Limits,
}

impl Service {
    /// Makes a task of a draft, once for each submission id of its owner; `cause` is what submits it in their name (`timer`), if they do
    /// not themselves.
    ///
    /// # Errors
    /// 400 for paths that cannot be, 403 and 404 for collections that the caller may not use, 503 without the store.
    pub async fn submit(
        &self,
        caller: &Actor,
        draft: &Draft,
        cause: Option<(&str, Uuid)>,
    ) -> Result<Submitted, ApiError> {
        let submission = self.submission_of(caller, draft).await?;
        let mut how = json!({"client": caller.client});
        if let Some((what, id)) = cause {
            how[what] = json!(id);
        }
        let submitted = self.store.submit_by(&submission, how, self.clock.now()).await?;
        if let Submitted::New(id) = submitted
            && let Some(task) = self.store.task(id).await?
        {
            self.heed_pauses_of(&task).await?;
        }
        self.desk.ring();
        Ok(submitted)
    }

    /// What a draft would be as a task; nothing is kept.
    ///
    /// # Errors
    /// As [`Service::submit`].
    pub async fn submission_of(&self, caller: &Actor, draft: &Draft) -> Result<Submission, ApiError> {
        Ok(self.prepared(caller, draft).await?.submission)
    }

    /// The same with its collections.
    ///
    /// # Errors
    /// As [`Service::submit`].
    pub(super) async fn prepared(&self, caller: &Actor, draft: &Draft) -> Result<Prepared, ApiError> {
        let source = self.usable(draft.source, caller).await?;
        let destination = match draft.destination {
            Some(id) => Some(self.usable(id, caller).await?),
            None => None,
        };
        let placed = draft.place(&source.ground, destination.as_ref().map(|there| &there.ground))?;
        permit(draft, &placed, &source, destination.as_ref())?;
        let there = destination.as_ref().map(Usable::limits).unwrap_or_default();
        let limits = there.and(source.limits());
        let work = demanded(&draft.work, limits)?;
        let deadline = self.deadline(draft.deadline)?;
        let base_path = |paths: &[String]| draft.base_path_info.then(|| common_directory(paths));
        let wanted = Wanted {
            owner: caller.identity,
            submission: draft.submission,
            work,
            source: end(&source, draft.source_local_user.clone(), base_path(&placed.sources))?,
            destination: destination
                .as_ref()
                .map(|there| end(there, draft.destination_local_user.clone(), base_path(&placed.destinations)))
                .transpose()?,
            label: draft.label.clone(),
            deadline,
            notify: draft.notify,
            fingerprint: placed.fingerprint.clone(),
        };
        Ok(Prepared { submission: Submission { wanted, items: placed.items }, source, destination, limits })
    }

    fn deadline(&self, wanted: Option<Timestamp>) -> Result<Timestamp, ApiError> {
        let now = self.clock.now();
        let after = |seconds: i64| Timestamp::from_secs(now.secs.saturating_add(seconds));
        match wanted {
            None => Ok(after(USUAL_LIFE)),
            Some(deadline) if deadline <= now => Err(ApiError::bad_request("The deadline has passed already")),
            Some(deadline) => Ok(deadline.min(after(LONGEST_LIFE))),
        }
    }
}

/// What is to be done, as the collections demand it.
fn demanded(work: &TaskWork, limits: Limits) -> Result<TaskWork, ApiError> {
    let TaskWork::Transfer(options) = work else { return Ok(work.clone()) };
    let options = limits.demand(options).map_err(ApiError::conflict)?;
    Ok(TaskWork::Transfer(Box::new(options)))
}

/// Refuses what the caller may not do, naming the first path.
fn permit(draft: &Draft, placed: &Placed, source: &Usable, destination: Option<&Usable>) -> Result<(), ApiError> {
    let want = draft.work.of_sources();
    placed.sources.iter().try_for_each(|path| source.permit(path, want))?;
    let Some(destination) = destination else { return Ok(()) };
    placed.destinations.iter().try_for_each(|path| destination.permit(path, Want::Write))
}

fn end(usable: &Usable, local_user: Option<String>, base_path: Option<String>) -> Result<TaskEnd, ApiError> {
    let local_user = usable.account(local_user)?;
    Ok(TaskEnd {
        collection: usable.collection.id,
        display_name: usable.collection.about.display_name.clone(),
        local_user,
        base: usable.ground.base.trim_end_matches('/').to_owned(),
        base_path,
        logins: usable.logins,
    })
}

/// The deepest directory that all paths lie in.
fn common_directory(paths: &[String]) -> String {
    let directory = |path: &str| path[..=path.trim_end_matches('/').rfind('/').unwrap_or(0)].to_owned();
    let mut common = paths.first().map_or_else(|| "/".to_owned(), |path| directory(path));
    for path in paths {
        while !path.starts_with(&common) {
            common = directory(&common);
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_directory_holds_all_paths() {
        let common = |paths: &[&str]| common_directory(&paths.iter().map(|&path| path.to_owned()).collect::<Vec<_>>());
        assert_eq!(common(&["/a/b"]), "/a/");
        assert_eq!(common(&["/a/b/"]), "/a/");
        assert_eq!(common(&["/a/b/c", "/a/bb"]), "/a/");
        assert_eq!(common(&["/a", "/b"]), "/");
        assert_eq!(common(&["/"]), "/");
    }
}
