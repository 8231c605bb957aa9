//! The OpenAPI file, made from the table of routes.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{Access, Route};

/// The description of a table (OpenAPI 3.0.3).
pub fn document(routes: &[Route]) -> Value {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for route in routes {
        let operation = operation(route, &mut generator);
        let methods = paths.entry(route.path.to_owned()).or_insert_with(|| json!({}));
        methods[route.method.as_str().to_ascii_lowercase()] = operation;
    }
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "Whimbrel's transfer service",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "In the vocabulary of the Globus Transfer API 0.10, Globus Auth and Globus Groups. Made by `cargo xtask docs`.",
            "license": {"name": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "client": {"type": "http", "scheme": "basic"},
            },
            "responses": {"error": {
                "description": "Refused or failed",
                "content": {"application/json": {"schema": {"type": "object", "properties": {
                    "code": {"type": "string"}, "message": {"type": "string"},
                    "request_id": {"type": "string"}, "resource": {"type": "string"},
                }}}},
            }},
        },
    })
}

fn operation(route: &Route, generator: &mut schemars::SchemaGenerator) -> Value {
    let (status, media, schema) = (route.response)(generator);
    let content = json!({media: schema.map_or(json!({}), |schema| json!({"schema": schema}))});
    let mut operation = json!({
        "operationId": route.name,
        "parameters": parameters(route.path),
        "responses": {
            status.as_str(): {"description": status.canonical_reason().unwrap_or_default(), "content": content},
            "default": {"$ref": "#/components/responses/error"},
        },
    });
    if let Some((media, schema)) = (route.request)(generator) {
        operation["requestBody"] = json!({"required": true, "content": {media: {"schema": schema}}});
    }
    let (security, who) = access(route.access);
    operation["security"] = security;
    operation["x-who"] = json!(who);
    operation
}

fn parameters(path: &str) -> Value {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}});
    names.map(parameter).collect()
}

fn access(access: Access) -> (Value, String) {
    match access {
        Access::Anyone => (json!([]), "anyone".to_owned()),
        Access::Client => (json!([{"client": []}]), "a client with its secret".to_owned()),
        Access::Scope(scope) => (json!([{"token": []}]), format!("a user, with a token for {scope}")),
        Access::ScopeOrClient(scope) => (
            json!([{"token": []}, {"client": []}]),
            format!("a user, with a token for {scope}, or a client with its secret"),
        ),
        Access::Orchestrator => (json!([{"token": []}]), "an orchestrator".to_owned()),
        Access::Monitor => (json!([{"token": []}]), "a program that collects metrics, or an administrator".to_owned()),
        Access::Replica => (json!([{"token": []}]), "another replica of this service".to_owned()),
        Access::Server => (json!([{"token": []}]), "a server, with what it joins or has joined with".to_owned()),
        Access::Admin(scope) => {
            (json!([{"token": []}]), format!("an administrator of the service, with a token for {scope}"))
        }
    }
}
