//! Rate rules: how many bytes a second the tasks of a collection, of somebody, or of the whole service move together.

mod hours;
pub mod shares;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;

use super::records::{Collection, RoleName};
use crate::Service;
use crate::auth::secrets::random_id;
use crate::auth::{Actor, ByUser};
use crate::clock;
use crate::http::{Answer, ApiError, Call, Created, Done, Json, Route};
use crate::store::{Batch, Record, Versioned};
use hours::Hours;

/// Longest message, characters.
const LONGEST: usize = 512;

/// Most rules: each poll of an orchestrator goes through them.
const MOST: usize = 1000;
/// Most of one maker, who does not administer the service: nobody uses up what there is for all.
const MOST_OF_ONE: usize = 50;

/// A bound that tasks share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateRule {
    /// Its id.
    pub id: Uuid,
    /// The collection; with a deployment or a host, all on it; `None`: everywhere.
    pub collection: Option<Uuid>,
    /// Only tasks of this identity; `None`: everybody's.
    pub identity: Option<Uuid>,
    /// Bytes per second, of all these tasks together.
    pub max_rate: u64,
    /// When it holds; `None`: always.
    pub hours: Option<Hours>,
    /// Words for people.
    pub message: String,
    /// Who made or changed it last.
    pub made_by: Uuid,
    /// When.
    pub modified: Timestamp,
}

impl RateRule {
    /// Whether it holds now for a task of somebody at these places.
    pub fn holds(&self, owner: Uuid, places: &[Uuid], now: Timestamp) -> bool {
        self.collection.is_none_or(|place| places.contains(&place))
            && self.identity.is_none_or(|of| of == owner)
            && self.is_in_force(now)
    }

    fn is_in_force(&self, now: Timestamp) -> bool {
        self.hours.as_ref().is_none_or(|hours| hours.hold(now))
    }
}

impl Record for RateRule {
    const KIND: &'static str = "rate_rule";

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        vec![]
    }
}

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/v2/whimbrel/rate_rules", "rate_rule_list", list),
        Route::post("/v2/whimbrel/rate_rules", "rate_rule_create", create),
        Route::get("/v2/whimbrel/rate_rules/{rate_rule}", "rate_rule_show", show),
        Route::put("/v2/whimbrel/rate_rules/{rate_rule}", "rate_rule_update", update),
        Route::delete("/v2/whimbrel/rate_rules/{rate_rule}", "rate_rule_delete", delete),
    ]
}

/// A rule.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct RateRuleDocument {
    id: Uuid,
    endpoint_id: Option<Uuid>,
    identity_id: Option<Uuid>,
    max_rate: u64,
    hours: Option<Hours>,
    message: String,
    /// Whether it holds now.
    in_force: bool,
    modified_by_id: Uuid,
    modified_time: String,
}

impl RateRuleDocument {
    fn new(rule: RateRule, now: Timestamp) -> Self {
        Self {
            in_force: rule.is_in_force(now),
            id: rule.id,
            endpoint_id: rule.collection,
            identity_id: rule.identity,
            max_rate: rule.max_rate,
            hours: rule.hours,
            message: rule.message,
            modified_by_id: rule.made_by,
            modified_time: clock::iso(rule.modified),
        }
    }
}

/// Rules.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct RateRuleList {
    rate_rules: Vec<RateRuleDocument>,
}

/// A rule as it is to be.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RateWish {
    /// The collection; with an endpoint, all on it. Without one: everywhere, for administrators of the service.
    endpoint_id: Option<Uuid>,
    /// Only tasks of this user.
    identity_id: Option<Uuid>,
    /// Bytes a second of all these tasks together.
    max_rate: u64,
    /// When it holds; default always.
    hours: Option<Hours>,
    /// Words for people.
    #[serde(default)]
    message: String,
}

impl RateWish {
    fn checked(self) -> Result<Self, ApiError> {
        if self.max_rate == 0 {
            return Err(ApiError::bad_request("`max_rate` is at least one byte a second; pause what is not to go on"));
        }
        if self.message.chars().count() > LONGEST {
            return Err(ApiError::bad_request(format!("`message` has at most {LONGEST} characters")));
        }
        match self.hours.as_ref().and_then(Hours::fault) {
            Some(fault) => Err(ApiError::bad_request(format!("`hours`: {fault}"))),
            None => Ok(self),
        }
    }
}

impl Service {
    /// Refuses whoever does not manage the tasks there.
    async fn may_bound(&self, actor: &Actor, place: Option<Uuid>) -> Result<(), ApiError> {
        match place {
            // Also of what is gone.
            _ if actor.admin => Ok(()),
            None => Err(ApiError::denied("Only administrators of the service make rules for all of it")),
            Some(place) => self.visible(actor, place).await?.1.need(RoleName::ActivityManager),
        }
    }

    async fn rate_rule<I>(&self, call: &Call<ByUser, I>) -> Result<Versioned<RateRule>, ApiError> {
        let id = call.path.id("rate_rule", "RateRuleNotFound")?;
        let missing = || ApiError::not_found("RateRuleNotFound", format!("There is no rate rule {id}"));
        let found = self.store.get::<RateRule>(&id.to_string()).await?.ok_or_else(missing)?;
        self.may_bound(&call.caller, found.record.collection).await?;
        Ok(found)
    }

    /// Those that stand at a collection.
    pub(super) async fn rates_at(&self, collection: Uuid) -> Result<Vec<Versioned<RateRule>>, ApiError> {
        let all = self.all::<RateRule>().await?;
        Ok(all.into_iter().filter(|rule| rule.record.collection == Some(collection)).collect())
    }

    fn rule_of(&self, id: Uuid, wish: RateWish, actor: &Actor) -> RateRule {
        let RateWish { endpoint_id, identity_id, max_rate, hours, message } = wish;
        RateRule {
            id,
            collection: endpoint_id,
            identity: identity_id,
            max_rate,
            hours,
            message,
            made_by: actor.identity,
            modified: self.clock.now(),
        }
    }

    fn shown(&self, rule: RateRule) -> RateRuleDocument {
        RateRuleDocument::new(rule, self.clock.now())
    }
}

/// `GET /v2/whimbrel/rate_rules`: those that the caller may change.
async fn list(call: Call<ByUser>) -> Result<Answer<RateRuleList>, ApiError> {
    let service = &call.service;
    let mut rate_rules = Vec::new();
    for rule in service.all::<RateRule>().await?.into_iter().map(|found| found.record) {
        match service.may_bound(&call.caller, rule.collection).await {
            Ok(()) => rate_rules.push(service.shown(rule)),
            Err(error) if error.status.is_server_error() => return Err(error),
            Err(_) => {}
        }
    }
    Ok(Answer(RateRuleList { rate_rules }))
}

/// `POST /v2/whimbrel/rate_rules`.
async fn create(call: Call<ByUser, Json<RateWish>>) -> Result<Created<RateRuleDocument>, ApiError> {
    let (service, wish) = (&call.service, call.body.0.checked()?);
    service.may_bound(&call.caller, wish.endpoint_id).await?;
    let (rules, caller) = (service.all::<RateRule>().await?, &call.caller);
    if rules.len() >= MOST {
        return Err(ApiError::bad_request(format!("There are {MOST} rate rules already")));
    }
    let theirs = rules.iter().filter(|rule| rule.record.made_by == caller.identity).count();
    if theirs >= MOST_OF_ONE && !caller.admin {
        return Err(ApiError::bad_request(format!("You have made {MOST_OF_ONE} rate rules already")));
    }
    let rule = service.rule_of(random_id()?, wish, &call.caller);
    let entry = service.entry(call.caller.identity, "rate_rule.create", rule.id).detail(told(&rule));
    service.store.apply(Batch::new().insert(&rule).audit(entry)).await?;
    Ok(Answer(service.shown(rule)))
}

/// `GET /v2/whimbrel/rate_rules/{rate_rule}`.
async fn show(call: Call<ByUser>) -> Result<Answer<RateRuleDocument>, ApiError> {
    let found = call.service.rate_rule(&call).await?;
    Ok(Answer(call.service.shown(found.record)))
}

/// `PUT /v2/whimbrel/rate_rules/{rate_rule}`.
async fn update(call: Call<ByUser, Json<RateWish>>) -> Result<Answer<RateRuleDocument>, ApiError> {
    let service = &call.service;
    let mut found = service.rate_rule(&call).await?;
    let wish = call.body.0.clone().checked()?;
    service.may_bound(&call.caller, wish.endpoint_id).await?;
    found.record = service.rule_of(found.record.id, wish, &call.caller);
    let entry = service.entry(call.caller.identity, "rate_rule.update", found.record.id).detail(told(&found.record));
    service.store.apply(Batch::new().update(&found).audit(entry)).await?;
    Ok(Answer(service.shown(found.record)))
}

/// `DELETE /v2/whimbrel/rate_rules/{rate_rule}`.
async fn delete(call: Call<ByUser>) -> Result<Answer<Done>, ApiError> {
    let found = call.service.rate_rule(&call).await?;
    let entry =
        call.service.entry(call.caller.identity, "rate_rule.delete", found.record.id).detail(told(&found.record));
    call.service.store.apply(Batch::new().delete(&found).audit(entry)).await?;
    Ok(Answer(Done::new(&call.place, "Deleted", "Rate rule deleted successfully")))
}

/// A rule, for the audit log.
fn told(rule: &RateRule) -> Value {
    json!({"place": rule.collection, "identity": rule.identity, "max_rate": rule.max_rate, "hours": rule.hours, "message": rule.message})
}

/// The places of a collection at which rules for it may stand.
pub fn places(collection: &Collection) -> Vec<Uuid> {
    [Some(collection.id), collection.host, Some(collection.endpoint)].into_iter().flatten().collect()
}
