//! Groups as the Groups API tells of them.

use serde_json::{Value, json};
use uuid::Uuid;

use super::records::{Group, GroupRole, MembersVisibility, Membership};
use crate::Service;
use crate::http::ApiError;

impl Service {
    /// A membership, with the name of who it is about.
    pub(super) async fn membership(&self, group: Uuid, membership: &Membership) -> Result<Value, ApiError> {
        let known = self.identity(membership.identity).await?;
        let username = known.map_or_else(|| membership.identity.to_string(), |identity| identity.username);
        Ok(json!({
            "group_id": group, "identity_id": membership.identity, "username": username, "role": membership.role,
            "status": membership.status, "membership_fields": {},
        }))
    }

    /// A group for somebody; `include` is what they ask for beside the usual.
    ///
    /// # Errors
    /// 403 for members that they may not see, 503 without the store.
    pub(super) async fn group_document(&self, group: &Group, who: Uuid, include: &[&str]) -> Result<Value, ApiError> {
        let mut document = json!({
            "id": group.id, "name": group.name, "description": group.description, "parent_id": null,
            "group_type": "regular", "enforce_session": false, "session_limit": 0, "session_timeouts": {},
            "subscription_id": null, "subscription_admin_verified_id": null, "subscription_info": null,
            "terms_and_conditions": group.terms, "policies": group.policies,
        });
        let mut own = Vec::new();
        if let Some(membership) = group.of(who) {
            own.push(self.membership(group.id, membership).await?);
        }
        document["my_memberships"] = json!(own);
        if include.contains(&"memberships") {
            if !group.shows_members_to(who) {
                return Err(ApiError::denied("You may not see who belongs to the group"));
            }
            let mut all = Vec::new();
            for membership in &group.members {
                all.push(self.membership(group.id, membership).await?);
            }
            document["memberships"] = json!(all);
        }
        Ok(document)
    }
}

impl Group {
    fn shows_members_to(&self, who: Uuid) -> bool {
        let least = match self.policies.group_members_visibility {
            MembersVisibility::Members => GroupRole::Member,
            MembersVisibility::Managers => GroupRole::Manager,
        };
        self.role_of(who).is_some_and(|role| role >= least)
    }
}
