//! Finding collections, and what somebody may do with them: the records behind the decisions.

use uuid::Uuid;
use whimbrel_engine::dispatch::Server;

use super::decision::{Who, may_as, roles_of};
use super::records::{AccessRule, Collection, EntityType, PauseRule, Principal, RoleGiven, RoleName};
use crate::Service;
use crate::auth::Actor;
use crate::http::ApiError;
use crate::store::Versioned;

/// Collections above each other at the most: a guest's host and its deployment.
const DEEPEST: usize = 4;

/// How somebody stands to a collection.
#[derive(Debug, Clone)]
pub struct Standing {
    /// Who, with their groups.
    pub who: Who,
    /// Their roles there, with those that come from the deployment or the service.
    pub roles: Vec<RoleName>,
    /// Those given at the collection itself: only these open its files.
    pub own: Vec<RoleName>,
}

impl Standing {
    /// Whether they may do what a role allows.
    pub fn may_as(&self, role: RoleName) -> bool {
        may_as(&self.roles, role)
    }

    /// Refuses them without a role.
    ///
    /// # Errors
    /// 403.
    pub fn need(&self, role: RoleName) -> Result<(), ApiError> {
        let message = || format!("You need the role {} on this collection", role.name());
        if self.may_as(role) { Ok(()) } else { Err(ApiError::denied(message())) }
    }
}

/// Where a collection's files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The deployment, for which tokens are made.
    pub endpoint: Uuid,
    /// Its servers; may be none.
    pub servers: Vec<Server>,
    /// The collection's root at the servers, without a slash at its end.
    pub base: String,
    /// In whose name its servers are asked; `None`: in that of who asks. For guests it is who shares.
    pub sharer: Option<Uuid>,
}

impl Service {
    /// A collection that is there.
    ///
    /// # Errors
    /// 404: `EndpointNotFound`, or `EndpointDeleted` for one that was.
    pub async fn collection(&self, id: Uuid) -> Result<Versioned<Collection>, ApiError> {
        let found = self.store.get::<Collection>(&id.to_string()).await?.ok_or_else(|| ApiError::no_endpoint(id))?;
        if found.record.deleted {
            return Err(ApiError::not_found("EndpointDeleted", format!("The endpoint or collection {id} was deleted")));
        }
        Ok(found)
    }

    /// A collection that somebody may know of, and how they stand to it.
    ///
    /// # Errors
    /// 404 for what is not there or hidden from them.
    pub async fn visible(&self, actor: &Actor, id: Uuid) -> Result<(Versioned<Collection>, Standing), ApiError> {
        let found = self.collection(id).await?;
        let standing = self.standing(actor, &found.record).await?;
        if self.is_visible(&standing, &found.record).await? {
            Ok((found, standing))
        } else {
            Err(ApiError::no_endpoint(id))
        }
    }

    /// How somebody stands to a collection.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn standing(&self, actor: &Actor, collection: &Collection) -> Result<Standing, ApiError> {
        let who = self.who(actor).await?;
        let given = self.roles_at(collection).await?;
        let mut roles = roles_of(&who, collection, &given);
        let here: Vec<_> = given.into_iter().filter(|role| role.collection == collection.id).collect();
        let own = roles_of(&who, collection, &here);
        if actor.admin && !roles.contains(&RoleName::Administrator) {
            roles.insert(0, RoleName::Administrator);
        }
        Ok(Standing { who, roles, own })
    }

    /// Somebody with their groups.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn who(&self, actor: &Actor) -> Result<Who, ApiError> {
        let groups = self.groups_of(actor.identity).await?.into_iter().map(|group| group.id).collect();
        Ok(Who { identity: Some(actor.identity), groups })
    }

    /// Roles given at a collection, and at the deployment that it is on, with that of the deployment's owner.
    async fn roles_at(&self, collection: &Collection) -> Result<Vec<RoleGiven>, ApiError> {
        let mut given = self.all_by_key::<RoleGiven>("collection", &collection.id.to_string()).await?;
        let mut owners = None;
        if collection.endpoint != collection.id {
            let key = collection.endpoint.to_string();
            given.extend(self.all_by_key::<RoleGiven>("collection", &key).await?);
            owners = self.store.get::<Collection>(&key).await?.map(|found| RoleGiven {
                id: found.record.id,
                collection: found.record.id,
                principal: Principal::Identity(found.record.owner),
                role: RoleName::Administrator,
            });
        }
        Ok(given.into_iter().map(|found| found.record).chain(owners).collect())
    }

    pub(super) async fn is_visible(&self, standing: &Standing, collection: &Collection) -> Result<bool, ApiError> {
        if collection.public || !standing.roles.is_empty() {
            return Ok(true);
        }
        Ok(collection.kind.is_guest() && self.has_rule(standing, collection).await?)
    }

    /// Whether a rule of a collection gives somebody something.
    pub(super) async fn has_rule(&self, standing: &Standing, collection: &Collection) -> Result<bool, ApiError> {
        let (now, rules) = (self.clock.now(), self.rules_of(collection.id).await?);
        Ok(rules.iter().any(|rule| rule.is_for(&standing.who, now)))
    }

    /// The rules of a collection.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn rules_of(&self, collection: Uuid) -> Result<Vec<AccessRule>, ApiError> {
        let found = self.all_by_key::<AccessRule>("collection", &collection.to_string()).await?;
        Ok(found.into_iter().map(|rule| rule.record).collect())
    }

    /// Where a collection's files are.
    ///
    /// # Errors
    /// 404 for a deployment or host that is gone.
    pub async fn location(&self, collection: &Collection) -> Result<Location, ApiError> {
        let mut parts = vec![collection.base.clone()];
        let mut lowest = collection.clone();
        for _ in 0..DEEPEST {
            let Some(host) = lowest.host else { break };
            lowest = self.collection(host).await?.record;
            parts.push(lowest.base.clone());
        }
        let servers = if lowest.endpoint == lowest.id {
            lowest.servers
        } else {
            self.collection(lowest.endpoint).await?.record.servers
        };
        let base: String = parts
            .iter()
            .rev()
            .flat_map(|part| part.split('/'))
            .filter(|part| !part.is_empty())
            .fold(String::new(), |base, part| base + "/" + part);
        let sharer = collection.kind.is_guest().then_some(collection.owner);
        Ok(Location { endpoint: lowest.endpoint, servers, base, sharer })
    }

    /// What is paused at a collection for somebody: its own rules and those of its deployment and host.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn effective_pauses(&self, collection: &Collection, identity: Uuid) -> Result<Vec<PauseRule>, ApiError> {
        let places = [Some(collection.id), collection.host, Some(collection.endpoint)];
        let mut rules: Vec<PauseRule> = Vec::new();
        for place in places.into_iter().flatten() {
            let found = self.all_by_key::<PauseRule>("collection", &place.to_string()).await?;
            for rule in found.into_iter().map(|found| found.record) {
                let theirs = rule.identity.is_none_or(|of| of == identity);
                if theirs && !rules.iter().any(|known| known.id == rule.id) {
                    rules.push(rule);
                }
            }
        }
        Ok(rules)
    }

    /// Whether files can be asked for there at all.
    ///
    /// # Errors
    /// 409 for a deployment, which has none by itself.
    pub fn functional(&self, collection: &Collection) -> Result<(), ApiError> {
        if collection.kind == EntityType::Endpoint {
            let message = format!("{} has no files itself; name one of its collections", collection.about.display_name);
            return Err(ApiError::new(axum::http::StatusCode::CONFLICT, "NotSupported", message));
        }
        Ok(())
    }
}
