//! Endpoints and collections, and who may do what with them.

mod access;
mod bookmarks;
pub mod decision;
pub mod document;
pub mod lookup;
pub mod manage;
mod pauses;
pub mod rates;
pub mod records;
pub mod rights;
mod roles;
mod search;

pub use decision::{Want, Who, may};
pub use lookup::{Location, Standing};
pub use pauses::{Doing, PauseRuleDocument};
pub use rights::Rights;

use crate::http::Route;

/// Routes of endpoints and what belongs to them.
pub fn routes() -> Vec<Route> {
    [managing(), permissions(), personal(), monitoring(), rates::routes()].concat()
}

fn managing() -> Vec<Route> {
    vec![
        Route::get("/v0.10/endpoint_search", "endpoint_search", search::search),
        Route::post("/v0.10/endpoint", "endpoint_create", manage::create),
        Route::post("/v0.10/shared_endpoint", "shared_endpoint_create", manage::create_guest),
        Route::get("/v0.10/endpoint/{id}", "endpoint_show", manage::show),
        Route::put("/v0.10/endpoint/{id}", "endpoint_update", manage::update),
        Route::delete("/v0.10/endpoint/{id}", "endpoint_delete", manage::delete),
        Route::put("/v0.10/endpoint/{id}/subscription", "endpoint_subscription", manage::set_subscription),
        Route::put("/v0.10/endpoint/{id}/subscription_admin_verified", "endpoint_verified", manage::set_verified),
        Route::get("/v0.10/endpoint/{id}/server_list", "endpoint_servers", manage::servers),
        Route::get("/v0.10/endpoint/{id}/server/{server}", "endpoint_server", manage::server),
        Route::get("/v0.10/endpoint/{id}/my_shared_endpoint_list", "endpoint_my_guests", search::mine_on),
        Route::get("/v0.10/endpoint/{id}/shared_endpoint_list", "endpoint_guests", search::shared_on),
        Route::post("/v2/whimbrel/endpoints", "deployment_create", manage::create_deployment),
        Route::post("/v2/whimbrel/endpoints/{id}/collections", "mapped_collection_create", manage::create_mapped),
    ]
}

fn permissions() -> Vec<Route> {
    vec![
        Route::get("/v0.10/endpoint/{id}/access_list", "access_list", access::list),
        Route::post("/v0.10/endpoint/{id}/access", "access_create", access::create),
        Route::get("/v0.10/endpoint/{id}/access/{rule}", "access_show", access::show),
        Route::put("/v0.10/endpoint/{id}/access/{rule}", "access_update", access::update),
        Route::delete("/v0.10/endpoint/{id}/access/{rule}", "access_delete", access::delete),
        Route::get("/v0.10/endpoint/{id}/role_list", "role_list", roles::list),
        Route::post("/v0.10/endpoint/{id}/role", "role_create", roles::create),
        Route::get("/v0.10/endpoint/{id}/role/{role}", "role_show", roles::show),
        Route::delete("/v0.10/endpoint/{id}/role/{role}", "role_delete", roles::delete),
    ]
}

fn personal() -> Vec<Route> {
    vec![
        Route::get("/v0.10/bookmark_list", "bookmark_list", bookmarks::list),
        Route::post("/v0.10/bookmark", "bookmark_create", bookmarks::create),
        Route::get("/v0.10/bookmark/{id}", "bookmark_show", bookmarks::show),
        Route::put("/v0.10/bookmark/{id}", "bookmark_update", bookmarks::update),
        Route::delete("/v0.10/bookmark/{id}", "bookmark_delete", bookmarks::delete),
    ]
}

fn monitoring() -> Vec<Route> {
    vec![
        Route::get("/v0.10/endpoint/{id}/my_effective_pause_rule_list", "pause_rules_effective", pauses::effective),
        Route::get("/v0.10/endpoint_manager/monitored_endpoints", "monitored_endpoints", search::monitored),
        Route::get("/v0.10/endpoint_manager/endpoint/{id}", "managed_endpoint_show", manage::show),
        Route::get("/v0.10/endpoint_manager/endpoint/{id}/hosted_endpoint_list", "hosted_endpoints", search::hosted),
        Route::get("/v0.10/endpoint_manager/endpoint/{id}/access_list", "managed_access_list", access::list),
        Route::get("/v0.10/endpoint_manager/pause_rule_list", "pause_rule_list", pauses::list),
        Route::post("/v0.10/endpoint_manager/pause_rule", "pause_rule_create", pauses::create),
        Route::get("/v0.10/endpoint_manager/pause_rule/{id}", "pause_rule_show", pauses::show),
        Route::put("/v0.10/endpoint_manager/pause_rule/{id}", "pause_rule_update", pauses::update),
        Route::delete("/v0.10/endpoint_manager/pause_rule/{id}", "pause_rule_delete", pauses::delete),
    ]
}
