//! The audit log as administrators read it, and what goes into it of those who were not let in.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::guard::{LineBudget, LineBudgetLimits};

use crate::Service;
use crate::auth::Admin;
use crate::auth::identities::Names;
use crate::auth::scope::TransferAll;
use crate::clock::{self, iso};
use crate::http::{ApiError, Call, Lines, Query, Route};
use crate::store::{AuditEntry, AuditQuery, Batch, StoreError};

/// The actor of what the service does by itself, or its administrator at its host.
pub const SERVICE: &str = "service";

/// The actor of what somebody did who had shown nothing.
pub const NOBODY: &str = "nobody";

/// Entries read at once.
const PAGE: u32 = 1000;

/// Longest text of a filter, bytes.
const LONGEST: usize = 128;

/// Refusals of a kind that are kept in ten minutes: some 2 million in two years, however much somebody guesses.
const REFUSALS: LineBudgetLimits = LineBudgetLimits { most: 20, interval: Duration::from_secs(600) };

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![Route::get("/v2/whimbrel/audit", "audit", audit)]
}

/// What somebody was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// A login in a browser.
    Login,
    /// A program that showed a wrong secret.
    Client,
}

/// How many refusals are kept: what strangers do must not fill a disk.
#[derive(Debug)]
pub struct Refusals {
    logins: Mutex<LineBudget>,
    clients: Mutex<LineBudget>,
}

impl Default for Refusals {
    fn default() -> Self {
        let [logins, clients] = [REFUSALS; 2].map(|limits| Mutex::new(LineBudget::new(limits)));
        Self { logins, clients }
    }
}

impl Refusals {
    /// Whether one is kept now, and how many were left out before it.
    fn ask(&self, what: Refused) -> Option<u64> {
        let budget = match what {
            Refused::Login => &self.logins,
            Refused::Client => &self.clients,
        };
        budget.lock().expect("nothing panics with it").ask(Instant::now())
    }
}

impl Service {
    /// Keeps that somebody was not let in. What they typed for a name is not kept: people type passwords there, too.
    ///
    /// # Errors
    /// 503 without the store.
    pub(crate) async fn tell_refused(
        &self,
        what: Refused,
        from: IpAddr,
        known: Option<Uuid>,
        by: &str,
    ) -> Result<(), ApiError> {
        let Some(left_out) = self.auth.refusals.ask(what) else { return Ok(()) };
        let action = match what {
            Refused::Login => "login.refused",
            Refused::Client => "client.refused",
        };
        let subject = known.map_or_else(String::new, |known| known.to_string());
        let detail = json!({"from": from, "by": by, "left_out": left_out});
        let entry = AuditEntry::new(self.clock.now(), NOBODY, action, subject).detail(detail);
        Ok(self.store.apply(Batch::new().audit(entry)).await?)
    }
}

/// What is asked for.
struct Wanted {
    query: AuditQuery,
    after: u64,
    /// Lines at the most; `None`: all.
    limit: Option<u32>,
    /// The newest ones.
    newest: bool,
}

impl Wanted {
    fn of(query: &Query) -> Result<Self, ApiError> {
        let time = |name: &str| match query.filled(name) {
            None => Ok(None),
            Some(text) => clock::parse(text).map(Some).ok_or_else(|| {
                ApiError::bad_request(format!("`{name}` is a time as in 2026-01-31T12:00:00Z, not {text:?}"))
            }),
        };
        let text = |name: &str| match query.filled(name) {
            Some(text) if text.len() > LONGEST => {
                Err(ApiError::bad_request(format!("`{name}` is at most {LONGEST} characters long")))
            }
            text => Ok(text.map(str::to_owned)),
        };
        let (since, until, action) = (time("since")?, time("until")?, text("action")?);
        if since.zip(until).is_some_and(|(since, until)| since >= until) {
            return Err(ApiError::bad_request("`since` is before `until`"));
        }
        let is_action = |action: &String| {
            action.bytes().all(|byte| byte.is_ascii_lowercase() || b"._".contains(&byte)) && !action.starts_with('.')
        };
        if let Some(action) = action.as_ref().filter(|action| !is_action(action)) {
            let message = format!("`action` is one as in role.create, or role. for all that begin so, not {action:?}");
            return Err(ApiError::bad_request(message));
        }
        let (limit, newest) = (query.value("limit")?, query.flag("newest")? == Some(true));
        if limit == Some(0) || (newest && limit.is_none()) {
            return Err(ApiError::bad_request("`limit` is at least 1, and `newest` needs one"));
        }
        let after = query.value("after")?;
        if newest && after.is_some() {
            return Err(ApiError::bad_request("Either the newest are told, or those `after` a mark"));
        }
        let (actor, subject) = (text("actor")?, text("subject")?);
        let query = AuditQuery { since, until, actor, subject, action, before: None };
        let limit = limit.map(|limit: u32| limit.min(PAGE));
        Ok(Self { query, after: after.unwrap_or(0), limit, newest })
    }

    /// For the audit log itself.
    fn told(&self) -> Value {
        let AuditQuery { since, until, actor, subject, action, .. } = &self.query;
        json!({
            "since": since.map(iso), "until": until.map(iso), "actor": actor, "subject": subject, "action": action,
            "after": self.after, "limit": self.limit,
        })
    }
}

/// `GET /v2/whimbrel/audit`: entries, the oldest first, all or those `after` a mark; with `limit` no more than so many lines, a thousand at
/// the most, and with `newest` the newest so many. Filters: `since`, `until`, `actor`, `subject`, `action`.
async fn audit(call: Call<Admin<TransferAll>>) -> Result<Lines, ApiError> {
    let wanted = Wanted::of(&call.query)?;
    let place = call.service.streams.enter()?;
    // Who reads is told of, too, before anything is told to them.
    let mut reading = call.service.entry(call.caller.identity, "audit.read", Uuid::nil()).detail(wanted.told());
    reading.subject.clear();
    call.service.store.apply(Batch::new().audit(reading)).await?;
    // What is written from here on is for the next time: an answer has an end.
    let until = call.service.store.audit_end().await?;
    let first = page(&call.service, &wanted, wanted.after, until).await?;
    let (sender, body) = whimbrel_web::stream();
    tokio::spawn(async move {
        let (mut page, mut names) = (first, Names::default());
        while let Some(last) = page.last().map(|entry| entry.number) {
            let is_full = wanted.limit.is_none() && page.len() == PAGE as usize;
            let (text, next) = tokio::join!(lines(&call.service, &mut names, &page), async {
                if is_full { self::page(&call.service, &wanted, last, until).await } else { Ok(Vec::new()) }
            });
            let told = match &text {
                Ok(text) => sender.send(text.clone()).await.is_ok(),
                Err(_) => true,
            };
            match (told, text.and(next.map_err(ApiError::from))) {
                (true, Ok(next)) => page = next,
                (false, _) => break,
                (true, Err(error)) => {
                    let failed = json!({"error": {"code": "ServiceUnavailable", "message": error.message}});
                    // Who is gone is told nothing.
                    let _told = sender.send(Bytes::from(format!("{failed}\n"))).await;
                    break;
                }
            }
        }
        drop(place);
    });
    Ok(Lines(body))
}

async fn page(service: &Arc<Service>, wanted: &Wanted, after: u64, until: u64) -> Result<Vec<AuditEntry>, StoreError> {
    let limit = wanted.limit.unwrap_or(PAGE);
    if !wanted.newest {
        return service.store.audit_after(&wanted.query, after, until, limit).await;
    }
    let mut newest = service.store.audit(&wanted.query, limit).await?;
    newest.reverse();
    Ok(newest)
}

/// Entries as lines. Actors that are no identities have no name.
async fn lines(service: &Service, names: &mut Names, page: &[AuditEntry]) -> Result<Bytes, ApiError> {
    let mut text = String::new();
    for entry in page {
        let name = match Uuid::try_parse(&entry.actor) {
            Ok(id) => names.of(service, id).await?,
            Err(_) => None,
        };
        text.push_str(&line(entry, name.as_deref()).to_string());
        text.push('\n');
    }
    Ok(Bytes::from(text))
}

fn line(entry: &AuditEntry, name: Option<&str>) -> Value {
    json!({
        "mark": entry.number, "time": iso(entry.time), "actor": entry.actor, "actor_name": name, "action": entry.action,
        "subject": entry.subject, "detail": entry.detail,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_cannot_be_meant_are_refused() {
        let wanted = |text: &str| Wanted::of(&Query::parse(text.as_bytes()));
        for bad in [
            "since=yesterday",
            "since=2026-01-02&until=2026-01-02",
            "action=Role.create",
            "action=.create",
            "action=role%25",
            "limit=0",
            "limit=x",
            "newest=1",
            "newest=1&limit=5&after=3",
            "after=-1",
            &format!("actor={}", "x".repeat(LONGEST + 1)),
        ] {
            assert_eq!(wanted(bad).err().map(|error| error.status.as_u16()), Some(400), "{bad}");
        }
        let good = wanted("since=2026-01-01&until=2026-01-02T00:00:00Z&action=role.&limit=5000&after=7").ok().unwrap();
        assert_eq!((good.limit, good.after, good.query.action.as_deref()), (Some(PAGE), 7, Some("role.")));
    }

    #[test]
    fn guessing_fills_no_disk_and_is_counted() {
        let refusals = Refusals::default();
        let kept = (0..100_000).filter(|_| refusals.ask(Refused::Login).is_some()).count();
        assert_eq!(kept, REFUSALS.most as usize);
        assert_eq!(refusals.ask(Refused::Client), Some(0), "programs have a budget of their own");
    }
}
