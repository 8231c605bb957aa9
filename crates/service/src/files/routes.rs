//! Routes that look at files and change single ones (Transfer API 0.10, `operation/endpoint`).

use std::cmp::Ordering;

use serde_json::{Value, json};
use whimbrel_engine::dispatch::{Entry, OperationKind, OperationResult};
use whimbrel_engine::task::{inside, normal};
use whimbrel_engine::{Fault, FaultCode};

use super::document::{self, MOST_ENTRIES};
use crate::auth::UserCall;
use crate::endpoints::{Doing, Want};
use crate::http::{Accepted, Answer, ApiError, Done, Filter, Json, Order, Page, Query, Route, compare, orders};
use crate::reach::Usable;
use crate::store::Batch;

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/v0.10/operation/endpoint/{id}/ls", "operation_ls", list),
        Route::get("/v0.10/operation/endpoint/{id}/stat", "operation_stat", stat),
        Route::post("/v0.10/operation/endpoint/{id}/mkdir", "operation_mkdir", make_directory),
        Route::post("/v0.10/operation/endpoint/{id}/rename", "operation_rename", rename),
        Route::post("/v0.10/operation/endpoint/{id}/symlink", "operation_symlink", symlink),
    ]
}

/// What files are filtered and ordered by.
const KEYS: &[&str] = &["name", "type", "size", "last_modified", "user", "group", "permissions"];

/// What an operation is about.
struct Spot {
    usable: Usable,
    local_user: Option<String>,
}

impl Spot {
    async fn of<I>(call: &UserCall<I>, local_user: Option<String>, doing: Doing) -> Result<Self, ApiError> {
        let id = call.path.id("id", "EndpointNotFound")?;
        let usable = call.service.usable(id, &call.caller).await?;
        call.service.not_paused(&usable.collection, call.caller.identity, doing).await?;
        let local_user = usable.account(local_user)?;
        Ok(Self { usable, local_user })
    }

    /// A path as the user means it, if they may do this with it.
    fn path(&self, path: &str, need: Want) -> Result<String, ApiError> {
        let normal = normal(path, &self.usable.ground.default_directory);
        let normal = normal.map_err(|error| ApiError::bad_request(format!("{path:?}: {error}")))?;
        self.usable.permit(&normal, need)?;
        Ok(normal)
    }

    /// The path at the servers; without a slash at its end.
    fn there(&self, path: &str) -> Vec<u8> {
        let whole = inside(&self.usable.ground.base, path);
        let trimmed = whole.trim_end_matches('/');
        if trimmed.is_empty() { b"/".to_vec() } else { trimmed.as_bytes().to_vec() }
    }

    /// Does something that changes what is there, and keeps who did it and what came of it, even if the caller goes away meanwhile.
    async fn change<I>(
        &self,
        call: &UserCall<I>,
        kind: OperationKind,
        (action, detail): (&str, Value),
    ) -> Result<Result<OperationResult, Fault>, ApiError> {
        let (service, identity) = (call.service.clone(), call.caller.identity);
        let site = match service.site(&self.usable, identity, self.local_user.as_deref(), Want::Write).await {
            Ok(site) => site,
            // Nothing was asked of any server.
            Err(fault) => return Ok(Err(fault)),
        };
        let mut entry = service.entry(identity, action, self.usable.collection.id).detail(detail);
        let doing = tokio::spawn(async move {
            let outcome = service.operate(site, kind).await;
            entry.time = service.clock.now();
            entry.detail["outcome"] = match &outcome {
                Ok(_) => json!("done"),
                Err(fault) => json!(fault.code.name()),
            };
            service.store.apply(Batch::new().audit(entry)).await.map(|()| outcome)
        });
        Ok(doing.await.map_err(ApiError::internal)??)
    }

    async fn operate<I>(&self, call: &UserCall<I>, kind: OperationKind, need: Want) -> Result<OperationResult, Fault> {
        let site = call.service.site(&self.usable, call.caller.identity, self.local_user.as_deref(), need).await?;
        call.service.operate(site, kind).await
    }
}

async fn list(call: UserCall) -> Result<Answer<Value>, ApiError> {
    let spot = Spot::of(&call, call.query.filled("local_user").map(str::to_owned), Doing::List).await?;
    let path = spot.path(call.query.filled("path").unwrap_or("~"), Want::Read)?;
    let view = View::of(&call.query)?;
    let kind = OperationKind::List { path: spot.there(&path), most: MOST_ENTRIES };
    let entries = match spot.operate(&call, kind, Want::Read).await {
        Ok(OperationResult::Listing { entries }) => entries,
        Ok(_) => return Err(ApiError::internal("a listing was asked for, and something else came")),
        Err(fault) => return Err(refused(&fault, "DirListingFailed", "ClientError.NotFound")),
    };
    let (data, total) = view.of_entries(entries)?;
    Ok(Answer(document::file_list(spot.usable.collection.id, &path, data, total)))
}

/// Which entries are shown, and in which order.
struct View {
    hidden: bool,
    filter: Filter,
    orders: Vec<Order>,
    page: Page,
}

impl View {
    fn of(query: &Query) -> Result<Self, ApiError> {
        Ok(Self {
            hidden: query.flag("show_hidden")?.unwrap_or(true),
            filter: Filter::of(query, KEYS)?,
            orders: orders(query, KEYS)?,
            page: Page::of(query, MOST_ENTRIES as usize, MOST_ENTRIES as usize)?,
        })
    }

    fn of_entries(&self, mut entries: Vec<Entry>) -> Result<(Vec<Value>, usize), ApiError> {
        entries.retain(|entry| self.hidden || !entry.name.starts_with(b"."));
        let mut shown: Vec<_> = entries.iter().map(document::file).collect();
        let mut wrong = None;
        shown.retain(|file| self.filter.fits(|term| fits(term, file).unwrap_or_else(|error| keep(&mut wrong, error))));
        if let Some(error) = wrong {
            return Err(error);
        }
        match self.orders.is_empty() {
            true => shown.sort_by(|a, b| by_key("name", a, b)),
            false => shown.sort_by(|a, b| compare(&self.orders, |key| by_key(key, a, b))),
        }
        let total = shown.len();
        Ok((self.page.cut(shown).0, total))
    }
}

/// Keeps the first error; what cannot be compared does not fit.
fn keep(wrong: &mut Option<ApiError>, error: ApiError) -> bool {
    wrong.get_or_insert(error);
    false
}

fn fits(term: &crate::http::Term, file: &Value) -> Result<bool, ApiError> {
    let value = &file[&term.key];
    match term.key.as_str() {
        "size" => term.fits_number(value.as_i64().unwrap_or(0)),
        "last_modified" => {
            let (from, to) = term.span()?;
            let Some(time) = value.as_str().and_then(crate::clock::parse) else { return Ok(false) };
            Ok(from.is_none_or(|from| time >= from) && to.is_none_or(|to| time <= to))
        }
        _ => Ok(term.fits_text(value.as_str().unwrap_or_default())),
    }
}

fn by_key(key: &str, a: &Value, b: &Value) -> Ordering {
    match (&a[key], &b[key]) {
        (Value::Number(a), Value::Number(b)) => a.as_u64().cmp(&b.as_u64()),
        (a, b) => a.as_str().cmp(&b.as_str()),
    }
}

async fn stat(call: UserCall) -> Result<Answer<Value>, ApiError> {
    let spot = Spot::of(&call, call.query.filled("local_user").map(str::to_owned), Doing::List).await?;
    let path = spot.path(call.query.filled("path").unwrap_or("~"), Want::Read)?;
    match spot.operate(&call, OperationKind::Stat { path: spot.there(&path) }, Want::Read).await {
        Ok(OperationResult::Told { entry }) => Ok(Answer(document::file(&entry))),
        Ok(_) => Err(ApiError::internal("an object was asked for, and something else came")),
        Err(fault) => Err(refused(&fault, "StatFailed", "NotFound")),
    }
}

/// A text of a document that must be there.
fn text<'a>(document: &'a Value, name: &str) -> Result<&'a str, ApiError> {
    let text = document.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    text.ok_or_else(|| ApiError::bad_request(format!("{name} is missing")))
}

fn local_user(document: &Value) -> Option<String> {
    document.get("local_user").and_then(Value::as_str).filter(|name| !name.is_empty()).map(str::to_owned)
}

async fn make_directory(call: UserCall<Json<Value>>) -> Result<Accepted<Value>, ApiError> {
    let spot = Spot::of(&call, local_user(&call.body.0), Doing::MakeDirectory).await?;
    let path = spot.path(text(&call.body.0, "path")?, Want::Write)?;
    let kind = OperationKind::MakeDirectory { path: spot.there(&path) };
    match spot.change(&call, kind, ("file.mkdir", json!({"path": path}))).await? {
        Ok(_) => Ok(Answer(json!({
            "DATA_TYPE": "mkdir_result", "code": "DirectoryCreated",
            "message": "The directory was created successfully",
            "request_id": call.place.request.to_string(), "resource": call.place.resource,
        }))),
        Err(fault) => Err(refused(&fault, "MkdirFailed", "ClientError.NotFound")),
    }
}

async fn rename(call: UserCall<Json<Value>>) -> Result<Answer<Done>, ApiError> {
    let spot = Spot::of(&call, local_user(&call.body.0), Doing::Rename).await?;
    let from = spot.path(text(&call.body.0, "old_path")?, Want::Write)?;
    let to = spot.path(text(&call.body.0, "new_path")?, Want::Write)?;
    let kind = OperationKind::Rename { from: spot.there(&from), to: spot.there(&to) };
    match spot.change(&call, kind, ("file.rename", json!({"path": from, "to": to}))).await? {
        Ok(_) => Ok(Answer(Done::new(&call.place, "FileRenamed", "File or directory renamed successfully"))),
        Err(fault) => Err(refused(&fault, "RenameFailed", "ClientError.NotFound")),
    }
}

async fn symlink(call: UserCall<Json<Value>>) -> Result<Accepted<Value>, ApiError> {
    let spot = Spot::of(&call, local_user(&call.body.0), Doing::Symlink).await?;
    let path = spot.path(text(&call.body.0, "path")?, Want::Write)?;
    let target = text(&call.body.0, "symlink_target")?;
    let kind = OperationKind::Symlink { path: spot.there(&path), target: target.as_bytes().to_vec() };
    match spot.change(&call, kind, ("file.symlink", json!({"path": path, "target": target}))).await? {
        Ok(_) => Ok(Answer(json!({
            "DATA_TYPE": "symlink_result", "code": "SymlinkCreated", "message": "The symlink was created successfully",
            "request_id": call.place.request.to_string(), "resource": call.place.resource,
        }))),
        Err(fault) => Err(refused(&fault, "SymlinkFailed", "ClientError.NotFound")),
    }
}

/// The API's error for an operation's fault. Codes with `ExternalError` are not tried again by clients, plain 503 is.
pub(crate) fn refused(fault: &Fault, what: &str, missing: &'static str) -> ApiError {
    use axum::http::StatusCode as S;
    let cure = fault.code.explain().cure;
    let message = format!("{fault}. {}{}.", cure[..1].to_uppercase(), &cure[1..]);
    let external = |status: S, kind: &str| {
        let dot = if kind.is_empty() { "" } else { "." };
        ApiError::new(status, format!("ExternalError.{what}{dot}{kind}"), message.clone())
    };
    match fault.code {
        FaultCode::NotFound => ApiError::not_found(missing, message),
        FaultCode::PermissionDenied | FaultCode::ReadOnly | FaultCode::NotAuthorized if what == "MkdirFailed" => {
            external(S::FORBIDDEN, "PermissionDenied")
        }
        FaultCode::PermissionDenied | FaultCode::ReadOnly | FaultCode::NotAuthorized => {
            ApiError::new(S::FORBIDDEN, "EndpointPermissionDenied", message)
        }
        FaultCode::AlreadyExists => external(S::BAD_GATEWAY, "Exists"),
        FaultCode::NotADirectory => external(S::BAD_GATEWAY, "NotDirectory"),
        FaultCode::NotSupported => ApiError::new(S::CONFLICT, "NotSupported", message),
        FaultCode::LoginFailed
        | FaultCode::LoginInClear
        | FaultCode::CredentialRejected
        | FaultCode::CredentialExpired
        | FaultCode::CredentialMissing => external(S::BAD_GATEWAY, "LoginFailed"),
        _ if fault.is_temporary() => ApiError::unavailable(message),
        _ => external(S::BAD_GATEWAY, ""),
    }
}
