//! Finding collections, and what somebody may do with them: the records behind the decisions.

use uuid::Uuid;
use whimbrel_engine::dispatch::Server;
use whimbrel_engine::task::TransferOptions;

use super::decision::{Who, may_as, roles_of};
use super::records::{AccessRule, Collection, EntityType, PauseRule, Policy, Principal, RoleGiven, RoleName};
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

    /// Whether they may give others, and so themselves, what a role lets them give. Where that opens files, a role from above is not
    /// enough: whoever runs a deployment would read in its users' names.
    pub fn may_give(&self, collection: &Collection, role: RoleName) -> bool {
        let roles = if collection.kind.is_opened_by_roles() { &self.own } else { &self.roles };
        may_as(roles, role)
    }

    /// Refuses a change that loosens what protects a collection's files, where a role from above does not open them either.
    ///
    /// # Errors
    /// 403.
    pub fn check_change(&self, before: &Collection, after: &Collection) -> Result<(), ApiError> {
        let role = RoleName::Administrator;
        if !after.policy.is_looser_than(&before.policy) || self.may_give(before, role) {
            return Ok(());
        }
        Err(ApiError::denied(format!(
            "Only who has the role {} on this collection itself loosens what protects its files (encryption, verification, writing \
             without a login, consents, HTTPS): roles of its deployment do not",
            role.name()
        )))
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
    /// What holds for transfers.
    pub limits: Limits,
}

/// What holds for transfers with a collection: what it says itself, and what that says which it is a part of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Data are encrypted, whatever the task says.
    pub force_encryption: bool,
    /// Copies are verified, whatever the task says.
    pub force_verify: bool,
    /// Copies are not verified.
    pub disable_verify: bool,
    /// Nobody writes without a login.
    pub no_anonymous_writes: bool,
    /// Files are not had over HTTPS.
    pub no_https: bool,
    /// Most files of a task at once.
    pub concurrency: Option<u32>,
    /// Most data channels of a file.
    pub parallelism: Option<u32>,
    /// Most bytes a second of each account on each server.
    pub rate: Option<u64>,
}

impl Limits {
    /// What holds where both hold: with parts of one storage, or at both ends of a task.
    pub fn and(self, other: Self) -> Self {
        Self {
            force_encryption: self.force_encryption || other.force_encryption,
            force_verify: self.force_verify || other.force_verify,
            disable_verify: self.disable_verify || other.disable_verify,
            no_anonymous_writes: self.no_anonymous_writes || other.no_anonymous_writes,
            no_https: self.no_https || other.no_https,
            concurrency: smaller(self.concurrency, other.concurrency),
            parallelism: smaller(self.parallelism, other.parallelism),
            rate: smaller(self.rate, other.rate),
        }
    }
}

impl Limits {
    /// A collection's policy as that lets it be which it is a part of.
    pub fn bind(self, policy: &mut Policy) {
        policy.disable_anonymous_writes |= self.no_anonymous_writes;
        policy.no_https |= self.no_https;
    }

    /// A transfer's options as both ends demand them.
    ///
    /// # Errors
    /// They contradict each other, or what the user wants; in words.
    pub fn demand(self, options: &TransferOptions) -> Result<TransferOptions, &'static str> {
        if self.disable_verify && self.force_verify {
            return Err("one collection wants every copy verified, and the other one none");
        }
        if self.disable_verify && options.move_source {
            return Err(
                "sources are deleted only once their copies are proven, and a collection lets nothing be verified",
            );
        }
        if self.disable_verify && options.verify_required {
            return Err("copies are to fail that cannot be verified, and a collection lets nothing be verified");
        }
        let mut options = options.clone();
        options.encrypt |= self.force_encryption;
        options.verify = (options.verify || self.force_verify) && !self.disable_verify;
        options.verify_required |= self.force_verify;
        options.perf.parallelism =
            options.perf.parallelism.map(|wanted| wanted.min(self.parallelism.unwrap_or(wanted)));
        Ok(options)
    }
}

impl From<&Policy> for Limits {
    fn from(policy: &Policy) -> Self {
        Self {
            force_encryption: policy.force_encryption,
            force_verify: policy.force_verify,
            disable_verify: policy.disable_verify,
            no_anonymous_writes: policy.disable_anonymous_writes,
            no_https: policy.no_https,
            concurrency: policy.max_concurrency,
            parallelism: policy.max_parallelism,
            rate: policy.max_rate,
        }
    }
}

fn smaller<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    [one, other].into_iter().flatten().min()
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
        self.standing_of(actor.identity, actor.admin, collection).await
    }

    /// How an identity stands to a collection; `admin`: it administers the service.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn standing_of(
        &self,
        identity: Uuid,
        admin: bool,
        collection: &Collection,
    ) -> Result<Standing, ApiError> {
        let who = self.who(identity).await?;
        self.standing_as(&who, admin, collection).await
    }

    /// How somebody stands to one of many collections, who is known already: reading all their groups for each would take long.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn standing_as(&self, who: &Who, admin: bool, collection: &Collection) -> Result<Standing, ApiError> {
        let given = self.roles_at(collection).await?;
        let mut roles = roles_of(who, collection, &given);
        let here: Vec<_> = given.into_iter().filter(|role| role.collection == collection.id).collect();
        let own = roles_of(who, collection, &here);
        if admin && !roles.contains(&RoleName::Administrator) {
            roles.insert(0, RoleName::Administrator);
        }
        Ok(Standing { who: who.clone(), roles, own })
    }

    /// Somebody with their groups.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn who(&self, identity: Uuid) -> Result<Who, ApiError> {
        let groups = self.groups_of(identity).await?.into_iter().map(|group| group.id).collect();
        Ok(Who { identity: Some(identity), groups })
    }

    /// Why nobody shares a guest collection any more; `None`: somebody does, or it is no guest collection. It lives by who shares
    /// it: by their account, and by what they may do with the collection that it is a directory of.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn unshared(&self, collection: &Collection) -> Result<Option<&'static str>, ApiError> {
        let Some(host) = collection.host else { return Ok(None) };
        let sharer = self.identity(collection.owner).await?;
        let Some(sharer) = sharer.filter(|sharer| !sharer.disabled) else {
            return Ok(Some("the account of who shares it is closed"));
        };
        let Some(host) = self.store.get::<Collection>(&host.to_string()).await?.filter(|host| !host.record.deleted)
        else {
            return Ok(Some("the collection that it is a directory of is gone"));
        };
        let host = host.record;
        if !host.policy.allow_guests {
            return Ok(Some("the collection that it is a directory of allows no guest collections any more"));
        }
        let standing = self.standing_of(sharer.id, sharer.admin, &host).await?;
        let theirs =
            if host.kind.is_personal() { host.owner == sharer.id } else { self.is_visible(&standing, &host).await? };
        Ok((!theirs).then_some("who shares it may not use the collection any more that it is a directory of"))
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

    pub(crate) async fn is_visible(&self, standing: &Standing, collection: &Collection) -> Result<bool, ApiError> {
        if collection.public || !standing.roles.is_empty() {
            return Ok(true);
        }
        Ok(collection.kind.is_guest() && self.has_rule(standing, collection).await?)
    }

    /// Whether a rule of a collection gives somebody something.
    pub(crate) async fn has_rule(&self, standing: &Standing, collection: &Collection) -> Result<bool, ApiError> {
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
        let mut limits = Limits::from(&collection.policy);
        for _ in 0..DEEPEST {
            let Some(host) = lowest.host else { break };
            lowest = self.collection(host).await?.record;
            parts.push(lowest.base.clone());
            limits = limits.and((&lowest.policy).into());
        }
        let servers = if lowest.endpoint == lowest.id {
            lowest.servers
        } else {
            let deployment = self.collection(lowest.endpoint).await?.record;
            limits = limits.and((&deployment.policy).into());
            deployment.servers
        };
        let base: String = parts
            .iter()
            .rev()
            .flat_map(|part| part.split('/'))
            .filter(|part| !part.is_empty())
            .fold(String::new(), |base, part| base + "/" + part);
        let sharer = collection.kind.is_guest().then_some(collection.owner);
        Ok(Location { endpoint: lowest.endpoint, servers, base, sharer, limits })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_cannot_be_required_where_a_collection_wants_none() {
        let limits = Limits { disable_verify: true, ..Limits::default() };
        let wanted = TransferOptions { verify: true, ..TransferOptions::default() };
        let demanded = limits.demand(&wanted).unwrap();
        assert!(!demanded.verify && !demanded.verify_required);
        let refused = limits.demand(&TransferOptions { verify_required: true, ..wanted }).unwrap_err();
        assert!(refused.contains("cannot be verified"), "{refused}");
    }
}
