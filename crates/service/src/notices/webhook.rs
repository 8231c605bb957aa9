//! Asks a place that a user named.

use std::time::Duration;

use axum::http::Method;
use serde_json::{Value, json};
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_web::client::{Client, Question};

use super::Settings;
use super::records::{Event, Notice, Webhook};
use crate::clock::iso;
use crate::elsewhere;
use crate::task::Task;
use crate::tasks::document;

const OP: &str = "tell the task's owner";

/// Time for an answer.
const LIMIT: Duration = Duration::from_secs(20);

/// Longest answer that is taken, bytes; nothing in it counts.
const MOST_ANSWER: usize = 64 << 10;

/// What a webhook is told: the event, and the task's document.
pub fn message(notice: &Notice, task: &Task, now: Timestamp) -> Value {
    let event = Event::of(notice.status).map_or("", Event::name);
    json!({
        "id": notice.id,
        "event": format!("task.{event}"),
        "time": iso(notice.time),
        "task": document::task(task, now),
    })
}

/// The client of a webhook's host, and the path that it asks there.
///
/// # Errors
/// `InvalidArgument`: the URL is none that may be asked.
pub fn client(settings: &Settings, url: &str) -> Result<(Client, String), Fault> {
    let (client, path) = elsewhere::client(&settings.roots, url, MOST_ANSWER, OP)?;
    let is_inside = settings.inside.iter().any(|inside| inside.eq_ignore_ascii_case(client.host()));
    Ok((if is_inside { client } else { client.to_public_hosts() }, path))
}

/// Tells a webhook; any answer from 200 to 299 is good, and no other is followed.
///
/// # Errors
/// It was not reached, or refused.
pub async fn post(settings: &Settings, webhook: &Webhook, secret: &str, message: Value) -> Result<(), Fault> {
    let (client, path) = client(settings, &webhook.url)?;
    let body = Some(message.to_string().into_bytes());
    let question = Question { method: Method::POST, path: &path, bearer: Some(secret), body, limit: LIMIT };
    let status = client.ask(question).await?.status;
    if status.is_success() {
        return Ok(());
    }
    let fault = Fault::new(FaultCode::PeerRefused, OP).subject(&webhook.url).side(Side::Peer);
    Err(fault.detail(format!("it answered {status}")))
}
