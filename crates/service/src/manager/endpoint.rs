//! The endpoint itself, in the manager's words.

use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::document::{success, told};
use super::{Manager, unprocessable};
use crate::endpoints::manage::EndpointWish;
use crate::endpoints::records::{Collection, RoleName};
use crate::http::ApiError;
use crate::store::Batch;

/// A subscription, which is a name only here.
#[derive(Debug, Deserialize)]
pub(super) struct SubscriptionWish {
    subscription_id: Option<Value>,
}

impl Manager<'_> {
    pub(super) async fn show_endpoint(&self) -> Result<Value, ApiError> {
        Ok(success(vec![self.endpoint_document(&self.endpoint.record).await?]))
    }

    pub(super) async fn update_endpoint(&self, wish: Value) -> Result<Value, ApiError> {
        let mut found = self.endpoint_as(RoleName::Administrator).await?;
        for field in ["allow_udt", "gridftp_control_channel_port"] {
            if wish.get(field).is_some_and(|value| !value.is_null() && value != false) {
                return Err(unprocessable(format!("{field} is a matter of the servers' own configuration")));
            }
        }
        let wish: EndpointWish = super::read(wish)?;
        wish.apply(&mut found.record)?;
        let entry = self.service.entry(self.actor.identity, "collection.update", found.record.id);
        self.service.store.apply(Batch::new().update(&found).audit(entry)).await?;
        let shown = self.query.get("include").is_some_and(|include| include.contains("endpoint"));
        let data = if shown { vec![self.endpoint_document(&found.record).await?] } else { Vec::new() };
        let message = format!("Updated Endpoint {}", found.record.id);
        Ok(told("success", &message, data))
    }

    pub(super) async fn set_subscription(&self, wish: SubscriptionWish) -> Result<Value, ApiError> {
        let mut found = self.endpoint_as(RoleName::Administrator).await?;
        let id = match wish.subscription_id.as_ref().and_then(Value::as_str) {
            None => None,
            Some(text) => {
                let wrong =
                    || unprocessable("Name the subscription by its id: nothing here knows which one would be yours");
                Some(Uuid::try_parse(text).map_err(|_| wrong())?)
            }
        };
        found.record.subscription = id;
        let entry = self.service.entry(self.actor.identity, "collection.update", found.record.id);
        self.service.store.apply(Batch::new().update(&found).audit(entry)).await?;
        Ok(told("success", &format!("Updated Endpoint {}", found.record.id), Vec::new()))
    }

    async fn endpoint_document(&self, endpoint: &Collection) -> Result<Value, ApiError> {
        let (about, policy) = (&endpoint.about, &endpoint.policy);
        Ok(json!({
            "DATA_TYPE": "endpoint#1.2.0", "id": endpoint.id, "display_name": about.display_name,
            "allow_udt": false, "contact_email": about.contact_email, "contact_info": about.contact_info,
            "department": about.department, "description": about.description, "organization": about.organization,
            "info_link": about.info_link, "keywords": about.keywords, "public": endpoint.public,
            "subscription_id": endpoint.subscription, "earliest_last_access": endpoint.last_accessed.map(crate::clock::iso),
            "gcs_manager_url": self.service.https_place(endpoint.id).await?,
            "gridftp_control_channel_port": null, "network_use": policy.network_use.as_deref().unwrap_or("normal"),
            "max_concurrency": policy.max_concurrency, "preferred_concurrency": policy.preferred_concurrency,
            "max_parallelism": policy.max_parallelism, "preferred_parallelism": policy.preferred_parallelism,
        }))
    }
}
