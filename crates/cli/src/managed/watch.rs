//! A task is looked at until it is over.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use whimbrel_engine::summary::exit;
use whimbrel_engine::units::ByteRate;

use super::refusal::Trouble;
use super::show::{self, number};
use super::{Session, entries, text};
use crate::output::Output;

/// Time between two looks at first, and at the most.
const SOON: Duration = Duration::from_millis(100);
const LATER: Duration = Duration::from_secs(5);

/// Time for which a service that does not answer is waited for: longer than it takes to start again on another host.
const SILENCE: Duration = Duration::from_secs(300);

/// How many faults of a failed task are shown.
const FAULTS: &str = "5";

/// How a watch ended.
pub enum Ended {
    /// The task is over; its document.
    Over(Box<Value>),
    /// The time was up first.
    TimeUp,
    /// The user has seen enough; the task goes on.
    Interrupted,
}

/// Looks at a task until it is over, for at most `limit`, and tells how it goes.
///
/// # Errors
/// A refusal; no answer for five minutes.
pub async fn watch(
    session: &mut Session,
    id: &str,
    limit: Option<Duration>,
    output: &mut Output,
) -> Result<Ended, Trouble> {
    let begun = Instant::now();
    let mut pace = Pace::default();
    // Caught from now on: whoever reads the first news may interrupt at once.
    let mut interrupts = signal(SignalKind::interrupt()).map_err(|error| Trouble::here(error, "wait", "SIGINT"))?;
    loop {
        let looked = tokio::select! {
            looked = look(session, id, &mut pace, output) => looked?,
            _ = interrupts.recv() => return Ok(interrupted(output)),
        };
        if let Some(task) = looked {
            output.end_news();
            return Ok(Ended::Over(Box::new(task)));
        }
        let left = limit.map(|limit| limit.saturating_sub(begun.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            output.end_news();
            return Ok(Ended::TimeUp);
        }
        let pause = left.map_or(pace.pause, |left| left.min(pace.pause));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = interrupts.recv() => return Ok(interrupted(output)),
        }
        pace.pause = (pace.pause * 3 / 2).min(LATER);
    }
}

fn interrupted(output: &mut Output) -> Ended {
    output.end_news();
    Ended::Interrupted
}

/// What is known from one look to the next.
struct Pace {
    pause: Duration,
    /// Since when the service does not answer.
    silent: Option<Instant>,
    /// The last look: when, and how many bytes had been moved.
    before: Option<(Instant, u64)>,
    /// What was said about what holds the task up.
    said: String,
}

impl Default for Pace {
    fn default() -> Self {
        Self { pause: SOON, silent: None, before: None, said: String::new() }
    }
}

impl Pace {
    /// Bytes per second since the last look.
    fn rate(&mut self, bytes: u64) -> Option<ByteRate> {
        let now = Instant::now();
        let (then, earlier) = self.before.replace((now, bytes))?;
        let seconds = now.duration_since(then).as_secs_f64();
        (seconds > 0.0 && bytes > earlier).then(|| ByteRate((bytes - earlier) as f64 / seconds))
    }
}

/// One look: the task's document if it is over.
async fn look(session: &mut Session, id: &str, pace: &mut Pace, output: &mut Output) -> Result<Option<Value>, Trouble> {
    let task = match session.get(&format!("/v0.10/task/{id}")).await {
        Ok(task) => task,
        Err(trouble) if trouble.is_temporary() => {
            let since = *pace.silent.get_or_insert_with(Instant::now);
            if since.elapsed() > SILENCE {
                return Err(trouble);
            }
            output
                .news(&json!({"event": "waiting", "task_id": id}), "the service does not answer; the task is not lost");
            return Ok(None);
        }
        Err(trouble) => return Err(trouble),
    };
    pace.silent = None;
    if text(&task, "status") != "ACTIVE" && text(&task, "status") != "INACTIVE" {
        return Ok(Some(task));
    }
    tell(&task, pace, output);
    Ok(None)
}

fn tell(task: &Value, pace: &mut Pace, output: &mut Output) {
    let trouble = show::trouble(task);
    if !trouble.is_empty() && trouble != pace.said {
        output.say(&trouble);
    }
    pace.said = trouble;
    let rate = pace.rate(number(task, "bytes_transferred")).map(|rate| format!(", {rate}")).unwrap_or_default();
    let mut event = task.clone();
    event["event"] = json!("progress");
    output.news(&event, &format!("{}{rate}", show::work(task)));
}

/// Tells how a task ended; the exit code of a command that was about it.
///
/// # Errors
/// As all questions.
pub async fn conclude(session: &mut Session, task: &Value, output: &mut Output) -> Result<u8, Trouble> {
    let code = exit_code(task);
    let mut event = task.clone();
    (event["event"], event["exit_code"]) = (json!("task"), json!(code));
    output.outcome(&event, &outcome(task));
    if code != exit::OK {
        for fault in faults(session, text(task, "task_id")).await? {
            output.say(&format!(
                "  {}  {}: {}",
                show::time(&fault, "time"),
                text(&fault, "code"),
                text(&fault, "description")
            ));
        }
        output.say(&format!("its whole story: whimbrel task events {}", text(task, "task_id")));
    }
    Ok(code)
}

/// The last faults of a task.
async fn faults(session: &mut Session, id: &str) -> Result<Vec<Value>, Trouble> {
    let query = [("filter", "is_error:1"), ("limit", FAULTS)];
    let found = session.get(&super::with_query(&format!("/v0.10/task/{id}/event_list"), &query)).await?;
    Ok(entries(&found).to_vec())
}

fn outcome(task: &Value) -> String {
    let why = match text(&task["fatal_error"], "description") {
        "" => String::new(),
        why => format!(": {why}"),
    };
    let rate = match number(task, "effective_bytes_per_second") {
        0 => String::new(),
        rate => format!(" ({})", ByteRate(rate as f64)),
    };
    format!("{}{why}; {}{rate}", text(task, "status").to_lowercase(), show::work(task))
}

/// The exit code that a task's end stands for.
pub fn exit_code(task: &Value) -> u8 {
    match (text(task, "status"), text(&task["fatal_error"], "code")) {
        ("SUCCEEDED", _) => exit::OK,
        (_, "CANCELED") => exit::CANCELLED,
        (_, "EXPIRED") => exit::LIMIT,
        _ => exit::SOME_FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_tell_how_a_task_ended() {
        let code = |status: &str, fatal: Option<&str>| {
            exit_code(&json!({"status": status, "fatal_error": fatal.map(|code| json!({"code": code}))}))
        };
        assert_eq!(code("SUCCEEDED", None), 0);
        assert_eq!(code("FAILED", Some("CANCELED")), 130);
        assert_eq!(code("FAILED", Some("EXPIRED")), 8);
        assert_eq!(code("FAILED", Some("PERMISSION_DENIED")), 1);
    }
}
