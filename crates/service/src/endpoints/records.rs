//! What is kept about endpoints and collections, and about who may do what with them.

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use whimbrel_engine::dispatch::Server;
use whimbrel_engine::listing::Timestamp;

use crate::store::Record;

/// What kind of thing a collection is; the words are those of the Transfer API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub enum EntityType {
    /// A deployment: DTNs under one name. No files by itself.
    #[serde(rename = "GCSv5_endpoint")]
    Endpoint,
    /// A part of a deployment's storage, as the accounts of its users see it.
    #[serde(rename = "GCSv5_mapped_collection")]
    Mapped,
    /// A directory of a mapped collection that its owner shares.
    #[serde(rename = "GCSv5_guest_collection")]
    Guest,
    /// Somebody's own machine.
    #[serde(rename = "GCP_mapped_collection")]
    Personal,
    /// A directory of somebody's own machine that they share.
    #[serde(rename = "GCP_guest_collection")]
    PersonalGuest,
}

impl EntityType {
    /// The API's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Endpoint => "GCSv5_endpoint",
            Self::Mapped => "GCSv5_mapped_collection",
            Self::Guest => "GCSv5_guest_collection",
            Self::Personal => "GCP_mapped_collection",
            Self::PersonalGuest => "GCP_guest_collection",
        }
    }

    /// Whether access to it is given by rules: others than its owner come in by these only.
    pub fn is_guest(self) -> bool {
        matches!(self, Self::Guest | Self::PersonalGuest)
    }

    /// Whether roles and rules open its files: of the others, servers decide by who asks, or there are none.
    pub fn is_opened_by_roles(self) -> bool {
        self.is_guest() || self.is_personal()
    }

    /// Whether it is on somebody's own machine.
    pub fn is_personal(self) -> bool {
        matches!(self, Self::Personal | Self::PersonalGuest)
    }
}

/// What its owners say about a collection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// What people call it.
    pub display_name: String,
    /// What it is.
    pub description: Option<String>,
    /// Whom it belongs to.
    pub organization: Option<String>,
    /// Their department.
    pub department: Option<String>,
    /// Words to find it by.
    pub keywords: Vec<String>,
    /// Where to write to.
    pub contact_email: Option<String>,
    /// How else to reach somebody.
    pub contact_info: Option<String>,
    /// A page about it.
    pub info_link: Option<String>,
    /// Something its users are to know.
    pub user_message: Option<String>,
    /// A page about that.
    pub user_message_link: Option<String>,
}

/// What holds for transfers with a collection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(clippy::struct_excessive_bools, reason = "the Transfer API's documents have them")]
pub struct Policy {
    /// Where `~` and listings without a path begin.
    pub default_directory: Option<String>,
    /// Data are encrypted, whatever the task says.
    pub force_encryption: bool,
    /// Copies are verified, whatever the task says.
    pub force_verify: bool,
    /// Copies are not verified.
    pub disable_verify: bool,
    /// Rules give nobody without a login the right to write.
    pub disable_anonymous_writes: bool,
    /// A task needs its user's consent (`data_access`).
    pub data_access: bool,
    /// Guest collections can be made of it.
    pub allow_guests: bool,
    /// Its files are not had over HTTPS.
    pub no_https: bool,
    /// `normal`, `minimal`, `aggressive` or `custom`.
    pub network_use: Option<String>,
    /// Most files at once.
    pub max_concurrency: Option<u32>,
    /// As many are preferred.
    pub preferred_concurrency: Option<u32>,
    /// Most data channels of a file.
    pub max_parallelism: Option<u32>,
    /// As many are preferred.
    pub preferred_parallelism: Option<u32>,
    /// Most bytes a second of each account's transfers with it, each direction for itself, on each of its servers.
    pub max_rate: Option<u64>,
}

impl Policy {
    /// Whether it protects files, or what is copied, less than another one: how they are had, by whom they are written, in clear or unproven.
    pub fn is_looser_than(&self, other: &Self) -> bool {
        let protects = |policy: &Self| {
            [
                policy.force_encryption,
                policy.force_verify,
                !policy.disable_verify,
                policy.disable_anonymous_writes,
                policy.data_access,
                policy.no_https,
            ]
        };
        protects(self).into_iter().zip(protects(other)).any(|(here, there)| there && !here)
    }
}

/// An endpoint or a collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collection {
    /// Its id.
    pub id: Uuid,
    /// Its kind.
    pub kind: EntityType,
    /// The identity that made it, and may do everything with it.
    pub owner: Uuid,
    /// The deployment whose servers it is on: itself, for a deployment or somebody's own machine.
    pub endpoint: Uuid,
    /// The collection that it is a directory of; `None`: it is no guest collection.
    pub host: Option<Uuid>,
    /// Its root: a path at the servers, or for guests in the host collection; with a slash at its end.
    pub base: String,
    /// Servers, for a deployment or somebody's own machine.
    pub servers: Vec<Server>,
    /// What its owners say about it.
    pub about: About,
    /// What holds for transfers.
    pub policy: Policy,
    /// Whether those may find it who have no role and no access.
    pub public: bool,
    /// The subscription that it belongs to, which is a name only.
    pub subscription: Option<Uuid>,
    /// Its administrators have said so.
    pub admin_verified: Option<bool>,
    /// Where its own manager answers, if it has one.
    pub manager_url: Option<String>,
    /// Where its files are had over HTTPS, if anywhere.
    pub https_url: Option<String>,
    /// SHA-256 of the setup key of somebody's own machine, hexadecimal, until it is used.
    pub setup_key: Option<String>,
    /// Since when it is there.
    pub created: Timestamp,
    /// When it was used last.
    pub last_accessed: Option<Timestamp>,
    /// It was taken away: its id is never something else.
    pub deleted: bool,
}

impl Record for Collection {
    const KIND: &'static str = "collection";

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        let mut keys = vec![("owner", self.owner.to_string()), ("endpoint", self.endpoint.to_string())];
        keys.extend(self.host.map(|host| ("host", host.to_string())));
        keys.extend(self.setup_key.iter().map(|digest| ("setup", digest.clone())));
        keys
    }
}

/// To whom something is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", content = "id", rename_all = "snake_case")]
pub enum Principal {
    /// An identity.
    Identity(Uuid),
    /// The members of a group.
    Group(Uuid),
    /// Everybody who logs in.
    AllAuthenticatedUsers,
    /// Everybody.
    Anonymous,
}

/// What a rule gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
pub enum Permissions {
    /// To read.
    #[serde(rename = "r")]
    Read,
    /// To read and to write.
    #[serde(rename = "rw")]
    ReadWrite,
}

/// A rule: somebody may read, or read and write, below a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessRule {
    /// Its id.
    pub id: Uuid,
    /// The collection.
    pub collection: Uuid,
    /// To whom it gives.
    pub principal: Principal,
    /// Where: a path of the collection with slashes at both ends.
    pub path: String,
    /// What.
    pub permissions: Permissions,
    /// Since when.
    pub created: Timestamp,
    /// Until when; `None`: for ever.
    pub expires: Option<Timestamp>,
}

impl Record for AccessRule {
    const KIND: &'static str = "access_rule";

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        let mut keys = vec![("collection", self.collection.to_string())];
        match self.principal {
            Principal::Identity(id) | Principal::Group(id) => keys.push(("principal", id.to_string())),
            Principal::AllAuthenticatedUsers | Principal::Anonymous => {}
        }
        keys
    }

    fn unique_keys(&self) -> Vec<(&'static str, String)> {
        // Two rules of one principal for one path would contradict each other.
        vec![("what", format!("{}|{:?}|{}", self.collection, self.principal, self.path))]
    }
}

/// What somebody may do to a collection, besides using it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RoleName {
    /// Everything.
    Administrator,
    /// Rules of access.
    AccessManager,
    /// To pause and to cancel tasks.
    ActivityManager,
    /// To see tasks.
    ActivityMonitor,
}

impl RoleName {
    /// The API's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Administrator => "administrator",
            Self::AccessManager => "access_manager",
            Self::ActivityManager => "activity_manager",
            Self::ActivityMonitor => "activity_monitor",
        }
    }
}

/// A role that was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleGiven {
    /// Its id.
    pub id: Uuid,
    /// The collection.
    pub collection: Uuid,
    /// To whom: an identity or a group.
    pub principal: Principal,
    /// Which.
    pub role: RoleName,
}

impl RoleGiven {
    /// For the audit log.
    pub(crate) fn told(&self) -> serde_json::Value {
        serde_json::json!({"id": self.id, "principal": self.principal, "role": self.role})
    }
}

impl Record for RoleGiven {
    const KIND: &'static str = "role";

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        let mut keys = vec![("collection", self.collection.to_string())];
        if let Principal::Identity(id) | Principal::Group(id) = self.principal {
            keys.push(("principal", id.to_string()));
        }
        keys
    }

    fn unique_keys(&self) -> Vec<(&'static str, String)> {
        vec![("what", format!("{}|{:?}|{}", self.collection, self.principal, self.role.name()))]
    }
}

/// A place that somebody comes back to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bookmark {
    /// Its id.
    pub id: Uuid,
    /// Whose it is.
    pub owner: Uuid,
    /// What they call it.
    pub name: String,
    /// The collection.
    pub endpoint: Uuid,
    /// The path.
    pub path: String,
    /// It is shown first.
    pub pinned: bool,
}

impl Record for Bookmark {
    const KIND: &'static str = "bookmark";

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        vec![("owner", self.owner.to_string())]
    }

    fn unique_keys(&self) -> Vec<(&'static str, String)> {
        vec![("name", format!("{}|{}", self.owner, self.name))]
    }
}

/// What is not to go on at a collection for now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseRule {
    /// Its id.
    pub id: Uuid,
    /// The collection; with a deployment, all on it.
    pub collection: Uuid,
    /// Words for those whose tasks wait.
    pub message: String,
    /// Only tasks of this identity; `None`: everybody's.
    pub identity: Option<Uuid>,
    /// What is paused.
    pub pauses: Pauses,
    /// Who made it.
    pub made_by: Uuid,
    /// Since when.
    pub started: Timestamp,
    /// When it was changed last.
    pub modified: Timestamp,
}

impl Record for PauseRule {
    const KIND: &'static str = "pause_rule";

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        vec![("collection", self.collection.to_string())]
    }
}

/// What a pause rule pauses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[allow(clippy::struct_excessive_bools, reason = "seven switches of the Transfer API's documents")]
pub struct Pauses {
    /// Listings.
    pub pause_ls: bool,
    /// New directories.
    pub pause_mkdir: bool,
    /// New links.
    pub pause_symlink: bool,
    /// New names.
    pub pause_rename: bool,
    /// Deletions.
    pub pause_task_delete: bool,
    /// Transfers to the collection.
    pub pause_task_transfer_write: bool,
    /// Transfers from the collection.
    pub pause_task_transfer_read: bool,
}
