//! Documents of the manager's API.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::endpoints::records::Collection;

/// The connector of storage with files and accounts.
pub(super) const POSIX: &str = "145812c8-decc-41f1-83cf-bb2a85a2a70b";

/// A good answer with some documents.
pub(super) fn success(data: Vec<Value>) -> Value {
    told("success", "Operation successful", data)
}

/// A good answer in words.
pub(super) fn told(code: &str, message: &str, data: Vec<Value>) -> Value {
    json!({"DATA_TYPE": "result#1.0.0", "code": code, "detail": "success", "http_response_code": 200, "data": data,
           "has_next_page": false, "message": message})
}

/// The storage of an endpoint.
pub(super) fn gateway(id: Uuid, endpoint: &Collection) -> Value {
    json!({
        "DATA_TYPE": "storage_gateway#1.0.0", "id": id, "connector_id": POSIX,
        "display_name": format!("Storage of {}", endpoint.about.display_name), "root": "/", "allowed_domains": [],
        "high_assurance": false, "require_high_assurance": false, "require_mfa": false, "deleted": false,
        "authentication_timeout_mins": null, "users_allow": null, "users_deny": null, "identity_mappings": null,
        "restrict_paths": null, "policies": {"DATA_TYPE": "posix_storage_policies#1.0.0"},
    })
}
