//! Routes of orchestrators on other hosts.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::auth::clients::NewClient;
use crate::auth::scope::TransferAll;
use crate::auth::{Admin, Orchestrator};
use crate::http::{Answer, ApiError, Call, Created, Json, Route};

/// Longest message of an orchestrator, bytes: a report of 1,000 items with paths of 4 KiB each, written in JSON's longest way.
const LONGEST: usize = 32 << 20;

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![
        Route::post("/v2/whimbrel/dispatch", "dispatch", dispatch),
        Route::post("/v2/whimbrel/orchestrators", "orchestrator", orchestrator),
    ]
}

/// One message of an orchestrator, and its answer: [`whimbrel_engine::dispatch`].
async fn dispatch(call: Call<Orchestrator, Json<Value, LONGEST>>) -> Result<Answer<Value>, ApiError> {
    let request = serde_json::from_value(call.body.0)
        .map_err(|error| ApiError::bad_request(format!("The document is no message of an orchestrator: {error}")))?;
    let answer = call.service.dispatch(request).await.map_err(|fault| {
        tracing::warn!(%fault, "an orchestrator is not answered");
        // Whatever it is: nothing was done, and asking again is right.
        ApiError::unavailable("The service cannot answer now; ask again")
    })?;
    serde_json::to_value(answer).map(Answer).map_err(ApiError::internal)
}

#[derive(Debug, Deserialize, JsonSchema)]
struct NewOrchestrator {
    name: String,
}

/// Makes the client of an orchestrator; its secret is told once.
async fn orchestrator(call: Call<Admin<TransferAll>, Json<NewOrchestrator>>) -> Result<Created<Value>, ApiError> {
    let new = NewClient::orchestrator(&call.body.0.name);
    let made = call.service.add_client_by(&call.caller.identity.to_string(), new).await?;
    let secret = made.secret.unwrap_or_default();
    Ok(Answer(json!({"client_id": made.client.id, "client_secret": secret, "name": made.client.name})))
}
