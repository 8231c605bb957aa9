//! Reads the documents with which timers are made: those of `POST /v2/timer`, and the older ones of `POST /jobs/`.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use whimbrel_engine::listing::Timestamp;

use super::schedule::{End, LONGEST, SHORTEST, Schedule};
use crate::clock;
use crate::http::ApiError;

/// Longest name, characters.
const LONGEST_NAME: usize = 256;

/// A timer that is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTimer {
    /// What it is called.
    pub name: String,
    /// When it runs.
    pub schedule: Schedule,
    /// The `transfer` document that it submits, without a submission id.
    pub document: Value,
}

/// `POST /v2/timer`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct TimerWish {
    timer: TimerParts,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct TimerParts {
    timer_type: Option<String>,
    name: Option<String>,
    schedule: SchedulePart,
    body: Value,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum SchedulePart {
    Once { datetime: Option<String> },
    Recurring { start: Option<String>, interval_seconds: i64, end: Option<EndPart> },
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(tag = "condition", rename_all = "snake_case")]
enum EndPart {
    Iterations {
        #[serde(alias = "iterations")]
        count: u64,
    },
    Time {
        datetime: String,
    },
}

impl TimerWish {
    /// Reads it; times that are not given are `now`.
    ///
    /// # Errors
    /// 400, naming what cannot be.
    pub fn read(self, now: Timestamp) -> Result<NewTimer, ApiError> {
        let TimerParts { timer_type, name, schedule, body } = self.timer;
        // Schedules are of whole seconds.
        let now = Timestamp::from_secs(now.secs);
        if let Some(other) = timer_type.filter(|kind| kind != "transfer") {
            return Err(bad(format!("timers here submit transfers; `timer_type` cannot be {other:?}")));
        }
        let start = |text: Option<String>, field| text.map_or(Ok(now), |text| time(&text, field));
        let schedule = match schedule {
            SchedulePart::Once { datetime } => Schedule::Once { at: start(datetime, "schedule.datetime")? },
            SchedulePart::Recurring { start: first, interval_seconds, end } => Schedule::Recurring {
                start: start(first, "schedule.start")?,
                interval: interval(interval_seconds)?,
                end: match end {
                    None => End::Never,
                    Some(EndPart::Iterations { count }) => End::Runs { count },
                    Some(EndPart::Time { datetime }) => End::Time { at: time(&datetime, "schedule.end.datetime")? },
                },
            },
        };
        finished(name, schedule, body, now)
    }
}

/// `POST /jobs/`, the older way.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct JobWish {
    name: Option<String>,
    start: String,
    /// Seconds; without it the timer runs once.
    interval: Option<f64>,
    /// A time.
    stop_after: Option<String>,
    stop_after_n: Option<u64>,
    callback_url: String,
    callback_body: Value,
}

impl JobWish {
    /// Reads it.
    ///
    /// # Errors
    /// 400, naming what cannot be.
    pub fn read(self, now: Timestamp) -> Result<NewTimer, ApiError> {
        if !self.callback_url.contains("transfer") {
            return Err(bad(format!("timers here submit transfers; `callback_url` cannot be {:?}", self.callback_url)));
        }
        let start = time(&self.start, "start")?;
        let schedule = match self.interval {
            None => Schedule::Once { at: start },
            #[allow(clippy::cast_possible_truncation, reason = "it is bounded next; whole seconds are all there is")]
            Some(seconds) => Schedule::Recurring {
                start,
                interval: interval(seconds as i64)?,
                end: match (self.stop_after_n, &self.stop_after) {
                    (Some(count), _) => End::Runs { count },
                    (None, Some(at)) => End::Time { at: time(at, "stop_after")? },
                    (None, None) => End::Never,
                },
            },
        };
        let body = self.callback_body.get("body").unwrap_or(&self.callback_body);
        finished(self.name, schedule, of_action(body), now)
    }
}

/// The `transfer` document of an action's input, which has other names for three fields.
fn of_action(body: &Value) -> Value {
    let mut document = body.clone();
    let Some(fields) = document.as_object_mut() else { return document };
    for (old, new) in [
        ("source_endpoint_id", "source_endpoint"),
        ("destination_endpoint_id", "destination_endpoint"),
        ("transfer_items", "DATA"),
    ] {
        if let Some(value) = fields.remove(old) {
            fields.insert(new.to_owned(), value);
        }
    }
    document
}

fn finished(name: Option<String>, schedule: Schedule, body: Value, now: Timestamp) -> Result<NewTimer, ApiError> {
    if matches!(schedule, Schedule::Recurring { end: End::Runs { count: 0 }, .. }) {
        return Err(bad("`schedule.end.count` is at least 1"));
    }
    if schedule.first(now).is_none() {
        return Err(bad("the timer would end before it begins"));
    }
    let mut document = body;
    let Some(fields) = document.as_object_mut() else { return Err(bad("`body` is a transfer document")) };
    // Each run has a submission id of its own.
    fields.remove("submission_id");
    fields.remove("skip_activation_check");
    Ok(NewTimer { name: name_of(name)?, schedule, document })
}

/// Reads a name; without one the timer is called `Timer`.
///
/// # Errors
/// 400 for one that is no line of at most 256 characters.
pub fn name_of(name: Option<String>) -> Result<String, ApiError> {
    let name = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| "Timer".to_owned());
    if name.chars().count() > LONGEST_NAME || name.chars().any(char::is_control) {
        return Err(bad(format!("a timer's name is one line of at most {LONGEST_NAME} characters")));
    }
    Ok(name)
}

fn interval(seconds: i64) -> Result<i64, ApiError> {
    if (SHORTEST..=LONGEST).contains(&seconds) {
        return Ok(seconds);
    }
    Err(bad(format!("the interval of a timer is from {SHORTEST} to {LONGEST} seconds, not {seconds}")))
}

fn time(text: &str, field: &str) -> Result<Timestamp, ApiError> {
    let time = clock::parse(text).map(|time| Timestamp::from_secs(time.secs));
    time.ok_or_else(|| bad(format!("`{field}`: {text:?} is no time as in 2027-01-31T12:00:00+00:00")))
}

fn bad(message: impl Into<String>) -> ApiError {
    ApiError::bad_request(message)
}

/// The document of a run: the timer's with a submission id, and a label.
pub fn of_run(document: &Value, submission: uuid::Uuid, label: &str) -> Value {
    let mut document = document.clone();
    if let Some(fields) = document.as_object_mut() {
        fields.insert("submission_id".to_owned(), json!(submission));
        if fields.get("label").and_then(Value::as_str).is_none_or(str::is_empty) {
            fields.insert("label".to_owned(), json!(label));
        }
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp { secs: 1_795_000_000, nanos: 5 };

    fn wish(schedule: &Value) -> Result<NewTimer, ApiError> {
        let document = json!({"timer": {"timer_type": "transfer", "name": "n", "schedule": schedule,
                              "body": {"DATA_TYPE": "transfer", "submission_id": "x", "label": null}}});
        let wish: TimerWish = serde_json::from_value(document).map_err(|error| bad(error.to_string()))?;
        wish.read(NOW)
    }

    #[test]
    fn schedules_are_read_as_the_clients_write_them() {
        let once = wish(&json!({"type": "once"})).unwrap();
        assert_eq!(once.schedule, Schedule::Once { at: Timestamp::from_secs(NOW.secs) });
        assert!(once.document.get("submission_id").is_none());
        assert!(wish(&json!({"type": "recurring", "interval_seconds": 60})).is_ok());
        let start = "2026-11-22T19:00:00.25+01:00";
        let end = json!({"condition": "iterations", "count": 3});
        let many = wish(&json!({"type": "recurring", "interval_seconds": 86400, "start": start, "end": end})).unwrap();
        let start = Timestamp::from_secs(1_795_370_400);
        let wanted = Schedule::Recurring { start, interval: 86_400, end: End::Runs { count: 3 } };
        assert_eq!(many.schedule, wanted);
    }

    #[test]
    fn schedules_that_cannot_be_are_refused() {
        for schedule in [
            json!({}),
            json!({"type": "sometimes"}),
            json!({"type": "recurring"}),
            json!({"type": "recurring", "interval_seconds": 59}),
            json!({"type": "recurring", "interval_seconds": -1}),
            json!({"type": "recurring", "interval_seconds": i64::MAX}),
            json!({"type": "recurring", "interval_seconds": 60, "start": "soon"}),
            json!({"type": "recurring", "interval_seconds": 60, "end": {"condition": "iterations", "count": 0}}),
            json!({"type": "recurring", "interval_seconds": 60, "end": {"condition": "time", "datetime": "2020-01-01"}}),
        ] {
            assert_eq!(wish(&schedule).unwrap_err().status.as_u16(), 400, "{schedule}");
        }
    }

    #[test]
    fn the_older_document_becomes_a_transfer() {
        let document = json!({"callback_url": "https://actions.automate.globus.org/transfer/transfer/run",
            "start": "2026-11-22T19:00:00", "interval": 864_000.0, "stop_after_n": 2,
            "callback_body": {"body": {"source_endpoint_id": "a", "destination_endpoint_id": "b", "transfer_items": [1]}}});
        let wish: JobWish = serde_json::from_value(document).unwrap();
        let new = wish.read(NOW).unwrap();
        assert_eq!(new.document, json!({"source_endpoint": "a", "destination_endpoint": "b", "DATA": [1]}));
        assert!(matches!(new.schedule, Schedule::Recurring { interval: 864_000, end: End::Runs { count: 2 }, .. }));
        assert_eq!(new.name, "Timer");
    }

    #[test]
    fn a_run_keeps_its_users_label_or_has_its_timers_name() {
        let id = uuid::Uuid::nil();
        assert_eq!(of_run(&json!({"label": "mine"}), id, "n, run 1")["label"], "mine");
        assert_eq!(of_run(&json!({"label": null}), id, "n, run 1")["label"], "n, run 1");
        assert_eq!(of_run(&json!({}), id, "n, run 1")["submission_id"], id.to_string());
    }
}
