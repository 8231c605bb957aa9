//! Routes of matrices.

use std::collections::HashMap;

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::document;
use super::records::{Matrix, MatrixEnd};
use super::run::document as probe;
use crate::auth::User;
use crate::auth::scope::TransferAll;
use crate::auth::secrets::random_id;
use crate::http::{Answer, ApiError, Call, Created, Json, Route};
use crate::store::{Batch, Versioned};
use crate::tasks::submission;

/// Matrices of one owner at the most.
const MOST: usize = 20;
/// Collections of a matrix.
const MOST_ENDS: usize = 32;
/// Shortest and longest time between rounds, seconds.
const EVERY: std::ops::RangeInclusive<i64> = 60..=366 * 24 * 3600;
/// Longest name, characters.
const LONGEST_NAME: usize = 100;

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![
        Route::post("/v2/whimbrel/matrices", "matrix_create", create),
        Route::get("/v2/whimbrel/matrices", "matrix_list", list),
        Route::get("/v2/whimbrel/matrices/{matrix}", "matrix_show", show),
        Route::delete("/v2/whimbrel/matrices/{matrix}", "matrix_delete", delete),
    ]
}

type MatrixCall<I = ()> = Call<User<TransferAll>, I>;

/// What is measured between which collections, and how often.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MatrixWish {
    /// What people call it.
    name: String,
    /// From the beginning of a round to that of the next, seconds.
    interval_seconds: i64,
    /// Two collections or more.
    ends: Vec<EndWish>,
}

/// One collection.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EndWish {
    collection_id: Uuid,
    /// What is copied from it: a file, or a directory with a slash behind it.
    dataset: String,
    /// The directory where copies go; default `/~/whimbrel-probes/`.
    copies: Option<String>,
}

impl MatrixWish {
    fn read(self) -> Result<(String, i64, Vec<MatrixEnd>), ApiError> {
        let bad = |message: String| Err(ApiError::bad_request(message));
        let name = self.name.trim().to_owned();
        if name.is_empty() || name.chars().count() > LONGEST_NAME || name.chars().any(char::is_control) {
            return bad(format!("`name` has 1 to {LONGEST_NAME} characters"));
        }
        if !EVERY.contains(&self.interval_seconds) {
            return bad(format!("`interval_seconds` is {} to {}", EVERY.start(), EVERY.end()));
        }
        if !(2..=MOST_ENDS).contains(&self.ends.len()) {
            return bad(format!("`ends` are 2 to {MOST_ENDS} collections"));
        }
        let mut ends: Vec<MatrixEnd> = Vec::new();
        for EndWish { collection_id, dataset, copies } in self.ends {
            if ends.iter().any(|end| end.collection == collection_id) {
                return bad(format!("the collection {collection_id} is named twice"));
            }
            let mut copies = copies.unwrap_or_else(|| "/~/whimbrel-probes/".to_owned());
            if !copies.ends_with('/') {
                copies.push('/');
            }
            // Copies that were copied on would grow from round to round.
            if dataset.is_empty() || (dataset.ends_with('/') && copies.starts_with(&dataset)) {
                return bad(format!("`copies` ({copies}) lies in `dataset` ({dataset}), or that is empty"));
            }
            ends.push(MatrixEnd { collection: collection_id, dataset, copies });
        }
        Ok((name, self.interval_seconds, ends))
    }
}

async fn create(call: MatrixCall<Json<MatrixWish>>) -> Result<Created<Value>, ApiError> {
    let (service, caller) = (&call.service, &call.caller);
    let (name, every, ends) = call.body.0.clone().read()?;
    let now = service.clock.now();
    let pairs = ends.len() * (ends.len() - 1);
    let matrix = Matrix {
        id: random_id()?,
        owner: caller.identity,
        client: caller.client,
        name,
        every,
        ends,
        made: now,
        round: 0,
        begun: now,
        pair: 0,
        task: None,
        due: Some(now),
        measures: vec![Vec::new(); pairs],
    };
    // Each end is read from and written to by some pair of these: what would be refused is refused now.
    for (pair, (from, to)) in matrix.pairs().into_iter().enumerate() {
        if (from + 1) % matrix.ends.len() == to {
            let draft = submission::read_transfer(&probe(&matrix, pair, now))?;
            service.submission_of(caller, &draft).await?;
        }
    }
    if service.all_by_key::<Matrix>("owner", &caller.identity.to_string()).await?.len() >= MOST {
        let message = format!("You have {MOST} matrices; delete one that you do not need");
        return Err(ApiError::new(StatusCode::CONFLICT, "LimitExceeded", message));
    }
    let entry = service.entry(caller.identity, "matrix.create", matrix.id);
    service.store.apply(Batch::new().insert(&matrix).audit(entry)).await?;
    told(&call, &matrix).await.map(Answer)
}

async fn list(call: MatrixCall) -> Result<Answer<Value>, ApiError> {
    let found = call.service.all_by_key::<Matrix>("owner", &call.caller.identity.to_string()).await?;
    let mut found: Vec<_> = found.into_iter().map(|found| found.record).collect();
    found.sort_by_key(|matrix| (matrix.made, matrix.id));
    let heads: Vec<_> = found.iter().map(|matrix| document::head(matrix, |_| None)).collect();
    Ok(Answer(json!({"DATA_TYPE": "matrix_list", "DATA": heads})))
}

async fn show(call: MatrixCall) -> Result<Answer<Value>, ApiError> {
    let matrix = own(&call).await?.record;
    told(&call, &matrix).await.map(Answer)
}

async fn delete(call: MatrixCall) -> Result<Answer<Value>, ApiError> {
    let found = own(&call).await?;
    let id = found.record.id;
    let entry = call.service.entry(call.caller.identity, "matrix.delete", id);
    call.service.store.apply(Batch::new().delete_id::<Matrix>(id).audit(entry)).await?;
    let message = format!("The matrix {id} is deleted; a probe that runs goes on to its end");
    Ok(Answer(json!({"DATA_TYPE": "result", "code": "Deleted", "message": message})))
}

async fn own<I>(call: &MatrixCall<I>) -> Result<Versioned<Matrix>, ApiError> {
    let id = call.path.id("matrix", "MatrixNotFound")?;
    let found = call.service.store.get::<Matrix>(&id.to_string()).await?;
    let found = found.filter(|matrix| matrix.record.owner == call.caller.identity);
    found.ok_or_else(|| ApiError::not_found("MatrixNotFound", format!("You have no matrix {id}")))
}

/// The document of one, with the names that its owner may know now.
async fn told<I>(call: &MatrixCall<I>, matrix: &Matrix) -> Result<Value, ApiError> {
    let mut names = HashMap::new();
    for end in &matrix.ends {
        match call.service.visible(&call.caller, end.collection).await {
            Ok((found, _)) => drop(names.insert(end.collection, found.record.about.display_name)),
            Err(error) if error.status.is_server_error() => return Err(error),
            Err(_) => {}
        }
    }
    Ok(document::whole(matrix, |id| names.get(&id).cloned()))
}
