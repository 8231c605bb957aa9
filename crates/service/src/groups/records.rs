//! What is kept of groups.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;

use crate::store::Record;

/// What somebody is in a group; who is more may do what who is less may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GroupRole {
    /// Belongs.
    Member,
    /// Lets others in and out, too.
    Manager,
    /// Changes it.
    Admin,
}

/// How somebody stands to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Belongs to it.
    Active,
    /// May belong to it, as soon as they want.
    Invited,
    /// Wants to belong to it.
    Pending,
}

/// Somebody and a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Who.
    pub identity: Uuid,
    /// What they are in it, or will be.
    pub role: GroupRole,
    /// How they stand to it.
    pub status: Status,
}

/// Who may find a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// Those who belong to it, or may.
    #[default]
    Private,
    /// Everybody who logs in.
    Authenticated,
}

/// Who may see who belongs to a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MembersVisibility {
    /// Managers and admins.
    #[default]
    Managers,
    /// All who belong to it.
    Members,
}

/// What holds for a group, in the words of its documents.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Policies {
    /// Kept and told; nothing here asks for more than a login.
    pub is_high_assurance: bool,
    /// Who may find it.
    pub group_visibility: Visibility,
    /// Who may see who belongs to it.
    pub group_members_visibility: MembersVisibility,
    /// Whether people may ask to belong to it.
    pub join_requests: bool,
    /// Kept and told; nobody is asked for them.
    pub signup_fields: Vec<String>,
    /// Kept and told, seconds.
    pub authentication_assurance_timeout: Option<u32>,
}

/// A group of identities.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// What it is about.
    pub description: Option<String>,
    /// What its members agree to.
    pub terms: Option<String>,
    /// What holds for it.
    pub policies: Policies,
    /// Who belongs to it, is invited, or asks for it; each once.
    pub members: Vec<Membership>,
    /// Since when it is there.
    pub created: Timestamp,
}

impl Group {
    /// How somebody stands to it.
    pub fn of(&self, identity: Uuid) -> Option<&Membership> {
        self.members.iter().find(|member| member.identity == identity)
    }

    /// What somebody is in it who belongs to it.
    pub fn role_of(&self, identity: Uuid) -> Option<GroupRole> {
        self.of(identity).filter(|member| member.status == Status::Active).map(|member| member.role)
    }
}

impl Record for Group {
    const KIND: &'static str = "group";

    fn id(&self) -> String {
        self.id.to_string()
    }

    /// Only who belongs to it is found by it: nothing is given to those who are invited or ask.
    fn keys(&self) -> Vec<(&'static str, String)> {
        let active = self.members.iter().filter(|member| member.status == Status::Active);
        active.map(|member| ("member", member.identity.to_string())).collect()
    }
}
