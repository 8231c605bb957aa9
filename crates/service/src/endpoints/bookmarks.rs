//! Bookmarks: everybody's own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::manage::directory;
use super::records::Bookmark;
use crate::auth::ByUser;
use crate::auth::secrets::random_id;
use crate::http::{Answer, ApiError, Call, Created, Done, Json};
use crate::store::{Batch, StoreError, Versioned};

/// Bookmarks of one identity at the most.
const MOST: usize = 1000;
/// Longest name, characters.
const LONGEST_NAME: usize = 128;

/// A bookmark as it is told.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct BookmarkDocument {
    #[serde(rename = "DATA_TYPE")]
    data_type: &'static str,
    id: Uuid,
    name: String,
    endpoint_id: Uuid,
    path: String,
    pinned: bool,
}

impl From<Bookmark> for BookmarkDocument {
    fn from(bookmark: Bookmark) -> Self {
        let Bookmark { id, name, endpoint, path, pinned, .. } = bookmark;
        Self { data_type: "bookmark", id, name, endpoint_id: endpoint, path, pinned }
    }
}

/// Somebody's bookmarks.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct BookmarkList {
    #[serde(rename = "DATA_TYPE")]
    data_type: &'static str,
    #[serde(rename = "DATA")]
    data: Vec<BookmarkDocument>,
}

/// `GET /bookmark_list`: pinned ones first, then by name.
pub(super) async fn list(call: Call<ByUser>) -> Result<Answer<BookmarkList>, ApiError> {
    let found = call.service.all_by_key::<Bookmark>("owner", &call.caller.identity.to_string()).await?;
    let mut own: Vec<_> = found.into_iter().map(|found| found.record).collect();
    own.sort_by(|a, b| (!a.pinned, &a.name).cmp(&(!b.pinned, &b.name)));
    Ok(Answer(BookmarkList { data_type: "bookmark_list", data: own.into_iter().map(BookmarkDocument::from).collect() }))
}

/// A bookmark that is to be, or what is to change of one.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(super) struct BookmarkWish {
    name: Option<String>,
    endpoint_id: Option<Uuid>,
    path: Option<String>,
    pinned: Option<bool>,
}

fn name_of(name: &str) -> Result<String, ApiError> {
    let name = name.trim();
    if name.is_empty() || name.chars().count() > LONGEST_NAME || name.chars().any(char::is_control) {
        return Err(ApiError::bad_request(format!("A bookmark's name has 1 to {LONGEST_NAME} characters")));
    }
    Ok(name.to_owned())
}

/// `POST /bookmark`.
pub(super) async fn create(call: Call<ByUser, Json<BookmarkWish>>) -> Result<Created<BookmarkDocument>, ApiError> {
    let (service, owner, wish) = (&call.service, call.caller.identity, &call.body.0);
    let missing = |field| ApiError::bad_request(format!("A bookmark needs `{field}`"));
    let endpoint = wish.endpoint_id.ok_or_else(|| missing("endpoint_id"))?;
    service.visible(&call.caller, endpoint).await?;
    if service.all_by_key::<Bookmark>("owner", &owner.to_string()).await?.len() >= MOST {
        return Err(ApiError::new(
            axum::http::StatusCode::CONFLICT,
            "LimitExceeded",
            format!("You have {MOST} bookmarks"),
        ));
    }
    let bookmark = Bookmark {
        id: random_id()?,
        owner,
        name: name_of(wish.name.as_deref().ok_or_else(|| missing("name"))?)?,
        endpoint,
        path: place(wish.path.as_deref().ok_or_else(|| missing("path"))?)?,
        pinned: wish.pinned.unwrap_or(false),
    };
    apply(&call, Batch::new().insert(&bookmark), &bookmark.name).await?;
    Ok(Answer(bookmark.into()))
}

/// A directory; `/~/` stays what it is.
fn place(path: &str) -> Result<String, ApiError> {
    if path == "~" || path == "/~/" { Ok("/~/".to_owned()) } else { directory(path) }
}

async fn apply<I>(call: &Call<ByUser, I>, batch: Batch, name: &str) -> Result<(), ApiError> {
    let result = call.service.store.apply(batch).await;
    result.map_err(|error| match error {
        StoreError::Conflict(_) => ApiError::conflict(format!("You have a bookmark {name:?} already")),
        other => other.into(),
    })
}

async fn own<I>(call: &Call<ByUser, I>) -> Result<Versioned<Bookmark>, ApiError> {
    let id = call.path.id("id", "BookmarkNotFound")?;
    let found = call.service.store.get::<Bookmark>(&id.to_string()).await?;
    let found = found.filter(|bookmark| bookmark.record.owner == call.caller.identity);
    found.ok_or_else(|| ApiError::not_found("BookmarkNotFound", format!("You have no bookmark {id}")))
}

/// `GET /bookmark/{id}`.
pub(super) async fn show(call: Call<ByUser>) -> Result<Answer<BookmarkDocument>, ApiError> {
    Ok(Answer(own(&call).await?.record.into()))
}

/// `PUT /bookmark/{id}`: its name, and whether it is pinned.
pub(super) async fn update(call: Call<ByUser, Json<BookmarkWish>>) -> Result<Answer<BookmarkDocument>, ApiError> {
    let mut found = own(&call).await?;
    if let Some(name) = &call.body.0.name {
        found.record.name = name_of(name)?;
    }
    found.record.pinned = call.body.0.pinned.unwrap_or(found.record.pinned);
    apply(&call, Batch::new().update(&found), &found.record.name).await?;
    Ok(Answer(found.record.into()))
}

/// `DELETE /bookmark/{id}`.
pub(super) async fn delete(call: Call<ByUser>) -> Result<Answer<Done>, ApiError> {
    let found = own(&call).await?;
    call.service.store.apply(Batch::new().delete(&found)).await?;
    Ok(Answer(Done::new(&call.place, "Deleted", format!("Bookmark '{}' deleted", found.record.name))))
}
