//! Groups of identities, to whom access can be given together (Groups API v2, as its public clients use it).

mod actions;
mod document;
pub mod records;
mod routes;

pub use routes::routes;

use uuid::Uuid;

use crate::Service;
use crate::http::ApiError;
use records::Group;

impl Service {
    /// Groups that somebody is in.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn groups_of(&self, identity: Uuid) -> Result<Vec<Group>, ApiError> {
        let found = self.all_by_key::<Group>("member", &identity.to_string()).await?;
        Ok(found.into_iter().map(|group| group.record).collect())
    }
}
