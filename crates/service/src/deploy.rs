//! Routes with which an administrator of the service lets servers join endpoints.

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::auth::Admin;
use crate::auth::scope::TransferAll;
use crate::endpoints::records::EntityType;
use crate::grid;
use crate::http::{Answer, ApiError, Call, Created, Done, Json, Route};

/// Longest life of a token to join, seconds.
const LONGEST: i64 = 31 * 24 * 3600;

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![
        Route::post("/v2/whimbrel/endpoints/{id}/join_tokens", "join_token", join_token),
        Route::post("/v2/whimbrel/endpoints/{id}/servers", "server_name", server),
        Route::delete("/v2/whimbrel/endpoints/{id}/servers/{server}", "server_remove", remove),
    ]
}

type AdminCall<I> = Call<Admin<TransferAll>, Json<I>>;

#[derive(Debug, Deserialize, JsonSchema)]
struct NewJoinToken {
    #[serde(default = "one")]
    uses: u32,
    #[serde(default = "day")]
    seconds: i64,
}

fn one() -> u32 {
    1
}

fn day() -> i64 {
    24 * 3600
}

async fn join_token(call: AdminCall<NewJoinToken>) -> Result<Created<Value>, ApiError> {
    let endpoint = deployment(&call).await?;
    let NewJoinToken { uses, seconds } = call.body.0;
    if !(1..=1000).contains(&uses) || !(1..=LONGEST).contains(&seconds) {
        return Err(ApiError::bad_request("A token to join is for 1 to 1000 servers and for at most 31 days"));
    }
    let token = call.service.join_token_by(&call.caller.identity.to_string(), endpoint, uses, seconds).await?;
    Ok(Answer(json!({"token": token, "uses": uses, "seconds": seconds})))
}

#[derive(Debug, Deserialize, JsonSchema)]
struct NewServer {
    url: String,
}

async fn server(call: AdminCall<NewServer>) -> Result<Created<Value>, ApiError> {
    let endpoint = deployment(&call).await?;
    let url = &call.body.0.url;
    let own = call.service.collection(endpoint).await?.record.servers;
    grid::check_url(url, call.service.logins_at(endpoint, &own).await?)?;
    let server = call.service.name_server(call.caller.identity, endpoint, url).await?;
    Ok(Answer(json!({"id": server.id})))
}

/// Any endpoint's: also of one that is deleted, or of somebody's own machine.
async fn remove(call: Call<Admin<TransferAll>>) -> Result<Answer<Done>, ApiError> {
    let endpoint = call.path.id("id", "EndpointNotFound")?;
    let server = call.path.id("server", "ServerNotFound")?;
    call.service.remove_server(call.caller.identity, endpoint, server).await?;
    Ok(Answer(Done::new(&call.place, "Deleted", "The server has been taken away")))
}

/// The endpoint of the path.
async fn deployment<I>(call: &AdminCall<I>) -> Result<uuid::Uuid, ApiError> {
    let id = call.path.id("id", "EndpointNotFound")?;
    match call.service.collection(id).await?.record.kind {
        EntityType::Endpoint => Ok(id),
        _ => {
            Err(ApiError::new(StatusCode::CONFLICT, "NotSupported", "Servers belong to endpoints, not to collections"))
        }
    }
}
