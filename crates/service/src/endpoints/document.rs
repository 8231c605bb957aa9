//! The document of an endpoint or a collection.

use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use super::decision::may_as;
use super::lookup::Standing;
use super::records::{Collection, EntityType, RoleName};
use crate::Service;
use crate::grid::Logins;
use crate::http::ApiError;
use crate::servers::Server;

/// An endpoint or a collection as the Transfer API tells of it. Fields that only Globus' own machinery has are constant.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[allow(missing_docs, reason = "the Transfer API's own words")]
pub struct EndpointDocument {
    #[serde(rename = "DATA_TYPE")]
    pub data_type: &'static str,
    pub id: Uuid,
    pub display_name: String,
    pub canonical_name: String,
    pub name: String,
    pub username: Option<String>,
    pub entity_type: &'static str,
    pub owner_id: Uuid,
    pub owner_string: String,
    pub organization: Option<String>,
    pub department: Option<String>,
    pub description: Option<String>,
    pub keywords: Option<String>,
    pub contact_email: Option<String>,
    pub contact_info: Option<String>,
    pub info_link: Option<String>,
    pub user_message: Option<String>,
    pub user_message_link: Option<String>,
    pub french_english_bilingual: bool,
    pub public: bool,
    pub subscription_id: Option<Uuid>,
    pub subscription_admin_verified: Option<bool>,
    pub my_effective_roles: Vec<&'static str>,
    pub acl_available: bool,
    pub acl_editable: bool,
    pub shareable: bool,
    pub in_use: bool,
    pub gcs_manager_url: Option<String>,
    pub https_server: Option<String>,
    pub tlsftp_server: Option<String>,
    pub gcs_version: Option<String>,
    #[serde(rename = "DATA")]
    pub data: Vec<ServerDocument>,
    pub default_directory: Option<String>,
    pub force_encryption: bool,
    pub force_verify: bool,
    pub disable_verify: bool,
    pub disable_anonymous_writes: bool,
    pub high_assurance: bool,
    pub mfa_required: bool,
    pub requester_pays: bool,
    pub authentication_timeout_mins: Option<u32>,
    pub authentication_policy_id: Option<Uuid>,
    pub local_user_info_available: Option<bool>,
    pub last_accessed_time: Option<String>,
    pub network_use: Option<String>,
    pub location: Option<String>,
    pub max_concurrency: Option<u32>,
    pub preferred_concurrency: Option<u32>,
    pub max_parallelism: Option<u32>,
    pub preferred_parallelism: Option<u32>,
    pub max_rate: Option<u64>,
    pub mapped_collection_id: Option<Uuid>,
    pub mapped_collection_display_name: Option<String>,
    pub host_endpoint_id: Option<Uuid>,
    pub host_endpoint: Option<String>,
    pub host_endpoint_display_name: Option<String>,
    pub host_path: Option<String>,
    pub sharing_target_endpoint: Option<Uuid>,
    pub sharing_target_root_path: Option<String>,
    pub non_functional: bool,
    pub non_functional_endpoint_id: Option<Uuid>,
    pub non_functional_endpoint_display_name: Option<String>,
    pub is_globus_connect: bool,
    pub gcp_connected: Option<bool>,
    pub gcp_paused: Option<bool>,
    pub activated: bool,
    pub expires_in: i32,
    pub expire_time: Option<String>,
    pub myproxy_server: Option<String>,
    pub myproxy_dn: Option<String>,
    pub oauth_server: Option<String>,
    pub s3_url: Option<String>,
    pub s3_owner_activated: bool,
    pub storage_type: Option<String>,
}

/// A server of an endpoint.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[allow(missing_docs, reason = "the Transfer API's own words")]
pub struct ServerDocument {
    #[serde(rename = "DATA_TYPE")]
    pub data_type: &'static str,
    pub id: usize,
    pub uri: String,
    pub scheme: String,
    pub hostname: String,
    pub port: Option<u16>,
    pub subject: Option<String>,
    pub is_connected: bool,
    pub is_paused: bool,
    /// An addition of ours: by what it can be taken away; none of those that the endpoint was made with has it.
    pub server_id: Option<Uuid>,
    /// An addition of ours: it takes no connections, and connects to the service.
    pub outbound: bool,
    /// An addition of ours: servers that take no connections exchange files by way of it.
    pub relay: bool,
}

impl ServerDocument {
    fn new(place: usize, url: &str, is_connected: bool) -> Self {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let authority = rest.split('/').next().unwrap_or_default();
        let (hostname, port) = match authority.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() => (host, port.parse().ok()),
            _ => (authority, None),
        };
        Self {
            data_type: "server",
            id: place + 1,
            uri: url.to_owned(),
            scheme: scheme.to_owned(),
            hostname: hostname.trim_matches(['[', ']']).to_owned(),
            port,
            subject: None,
            is_connected,
            is_paused: false,
            server_id: None,
            outbound: false,
            relay: false,
        }
    }
}

impl Service {
    /// The servers of a deployment or of somebody's own machine: those that it was made with, then those that joined.
    pub(super) async fn server_documents(&self, collection: &Collection) -> Result<Vec<ServerDocument>, ApiError> {
        if collection.endpoint != collection.id {
            return Ok(Vec::new());
        }
        let now = self.clock.now();
        let named = collection.servers.iter().enumerate();
        let mut documents: Vec<_> =
            named.map(|(place, server)| ServerDocument::new(place, &server.url, true)).collect();
        for server in self.servers(collection.id).await? {
            let Some(url) = server.url() else { continue };
            let document = ServerDocument::new(documents.len(), &url, server.is_ready(now));
            let Server { id, outbound, relay, .. } = server;
            documents.push(ServerDocument { server_id: Some(id), outbound, relay, ..document });
        }
        Ok(documents)
    }
}

impl Service {
    /// The document of a collection for somebody.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn endpoint_document(
        &self,
        collection: &Collection,
        standing: &Standing,
    ) -> Result<EndpointDocument, ApiError> {
        let owner = self.identity(collection.owner).await?;
        let owner_string = owner.map_or_else(|| collection.owner.to_string(), |owner| owner.username);
        let servers = self.server_documents(collection).await?;
        let administers = may_as(&standing.roles, RoleName::Administrator);
        let place = self.https_place(collection.endpoint).await?;
        let has_files = collection.kind != EntityType::Endpoint && !collection.policy.no_https;
        let files = place.as_ref().filter(|_| has_files).map(|place| format!("{place}/{}", collection.id));
        let (about, policy, kind) = (collection.about.clone(), collection.policy.clone(), collection.kind);
        let mut document = EndpointDocument {
            data_type: "endpoint",
            id: collection.id,
            canonical_name: format!("{owner_string}#{}", collection.id),
            name: collection.id.to_string(),
            username: Some(owner_string.clone()),
            display_name: about.display_name,
            entity_type: kind.name(),
            // The public command line takes it for the deployment's id, where there is one.
            owner_id: if kind.is_personal() { collection.owner } else { collection.endpoint },
            owner_string,
            organization: about.organization,
            department: about.department,
            description: about.description,
            keywords: (!about.keywords.is_empty()).then(|| about.keywords.join(", ")),
            contact_email: about.contact_email,
            contact_info: about.contact_info,
            info_link: about.info_link,
            user_message: about.user_message,
            user_message_link: about.user_message_link,
            public: collection.public,
            subscription_id: collection.subscription,
            subscription_admin_verified: collection.admin_verified,
            my_effective_roles: standing.roles.iter().map(|role| role.name()).collect(),
            acl_available: kind.is_guest(),
            acl_editable: kind.is_guest() && standing.may_give(collection, RoleName::AccessManager),
            shareable: policy.allow_guests && !kind.is_guest() && kind != EntityType::Endpoint,
            gcs_manager_url: collection.manager_url.clone().or(place.clone()),
            https_server: collection.https_url.clone().or(files),
            tlsftp_server: control_url(&servers),
            gcp_connected: kind.is_personal().then_some(servers.iter().any(|server| server.is_connected)),
            data: servers,
            default_directory: policy.default_directory,
            force_encryption: policy.force_encryption,
            force_verify: policy.force_verify,
            disable_verify: policy.disable_verify,
            disable_anonymous_writes: policy.disable_anonymous_writes,
            // What a mapped collection asks for consent is told by this alone.
            high_assurance: false,
            last_accessed_time: collection.last_accessed.map(crate::clock::iso),
            network_use: policy.network_use,
            max_concurrency: policy.max_concurrency,
            preferred_concurrency: policy.preferred_concurrency,
            max_parallelism: policy.max_parallelism,
            preferred_parallelism: policy.preferred_parallelism,
            max_rate: policy.max_rate,
            non_functional: kind == EntityType::Endpoint,
            is_globus_connect: kind.is_personal(),
            gcp_paused: kind.is_personal().then_some(false),
            activated: true,
            expires_in: -1,
            ..EndpointDocument::default()
        };
        self.add_relations(collection, administers, &mut document).await?;
        if let Some(identity) = standing.who.identity {
            self.add_activation(collection, identity, &mut document).await?;
        }
        Ok(document)
    }

    /// Whether somebody's credential for stock servers is good: the Transfer API's older documents call that activation.
    async fn add_activation(
        &self,
        collection: &Collection,
        identity: Uuid,
        document: &mut EndpointDocument,
    ) -> Result<(), ApiError> {
        let own = self.store.get::<Collection>(&collection.endpoint.to_string()).await?;
        let own = own.map(|own| own.record.servers).unwrap_or_default();
        if self.logins_at(collection.endpoint, &own).await? != Some(Logins::Proxy) {
            return Ok(());
        }
        let until = self.grid_credential(collection.endpoint, identity).await?.map(|found| found.record.until);
        let left = until.map_or(0, |until| (until.secs - self.clock.now().secs).max(0));
        document.activated = left > 0;
        document.expires_in = i32::try_from(left).unwrap_or(i32::MAX);
        document.expire_time = until.map(crate::clock::iso);
        Ok(())
    }

    async fn add_relations(
        &self,
        collection: &Collection,
        administers: bool,
        document: &mut EndpointDocument,
    ) -> Result<(), ApiError> {
        if let Some(host) = collection.host {
            let name = self.display_name(host).await?;
            document.host_endpoint_id = Some(host);
            document.host_endpoint_display_name = Some(name.clone());
            document.host_path = administers.then(|| collection.base.clone());
            document.sharing_target_endpoint = Some(host);
            document.sharing_target_root_path = administers.then(|| collection.base.clone());
            document.mapped_collection_id = Some(host);
            document.mapped_collection_display_name = Some(name);
        }
        if collection.endpoint != collection.id {
            let (name, server) = self.deployment(collection.endpoint).await?;
            document.non_functional_endpoint_id = Some(collection.endpoint);
            document.non_functional_endpoint_display_name = Some(name);
            document.tlsftp_server = server;
        }
        Ok(())
    }

    /// Name and first server of a deployment.
    async fn deployment(&self, id: Uuid) -> Result<(String, Option<String>), ApiError> {
        let Some(found) = self.store.get::<Collection>(&id.to_string()).await? else {
            return Ok((id.to_string(), None));
        };
        let server = control_url(&self.server_documents(&found.record).await?);
        Ok((found.record.about.display_name, server))
    }

    async fn display_name(&self, id: Uuid) -> Result<String, ApiError> {
        let found = self.store.get::<Collection>(&id.to_string()).await?;
        Ok(found.map_or_else(|| id.to_string(), |found| found.record.about.display_name))
    }
}

/// The first server, as clients of the hosted service know control connections.
fn control_url(servers: &[ServerDocument]) -> Option<String> {
    let server = servers.iter().find(|server| !server.outbound)?;
    let port = server.port.map_or_else(String::new, |port| format!(":{port}"));
    Some(format!("tlsftp://{}{port}", server.hostname))
}
