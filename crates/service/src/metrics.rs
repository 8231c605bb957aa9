//! Numbers for Prometheus: how tasks fare, and what the service is asked.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::Mutex;
use std::time::Duration;

use axum::http::StatusCode;
use whimbrel_engine::listing::Timestamp;

use crate::Service;
use crate::auth::Monitor;
use crate::http::{ApiError, Call, Metrics, Route};
use crate::notices::records::Notice;
use crate::servers::Server;
use crate::store::Record as _;
use crate::timers::records::{DUE, Timer};

/// Upper bounds of the times in which requests are answered, seconds.
const BOUNDS: [f64; 8] = [0.005, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 60.0];

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![Route::get("/metrics", "metrics", metrics)]
}

/// Requests that were answered, by route and status.
#[derive(Default)]
pub struct Requests(Mutex<BTreeMap<&'static str, Answers>>);

#[derive(Default, Clone)]
struct Answers {
    statuses: BTreeMap<u16, u64>,
    /// How many took at most as long as each of [`BOUNDS`].
    within: [u64; BOUNDS.len()],
    count: u64,
    seconds: f64,
}

impl Requests {
    /// Counts one.
    pub fn count(&self, route: &'static str, status: StatusCode, took: Duration) {
        let mut routes = self.0.lock().expect("nothing panics with it");
        let answers = routes.entry(route).or_default();
        *answers.statuses.entry(status.as_u16()).or_default() += 1;
        let took = took.as_secs_f64();
        for (bound, within) in BOUNDS.iter().zip(&mut answers.within) {
            *within += u64::from(took <= *bound);
        }
        (answers.count, answers.seconds) = (answers.count + 1, answers.seconds + took);
    }

    fn told(&self) -> BTreeMap<&'static str, Answers> {
        self.0.lock().expect("nothing panics with it").clone()
    }
}

/// `GET /metrics`.
async fn metrics(call: Call<Monitor>) -> Result<Metrics, ApiError> {
    let service = &call.service;
    let now = service.clock.now();
    let mut page = Page::default();
    tasks(service, &mut page, now).await?;
    around(service, &mut page, now).await?;
    requests(&service.requests, &mut page);
    Ok(Metrics(page.0))
}

async fn tasks(service: &Service, page: &mut Page, now: Timestamp) -> Result<(), ApiError> {
    let census = service.census(now).await?;
    page.family("whimbrel_tasks", "gauge", "Tasks that are not over, by what they wait for");
    let states = [
        ("running", census.running),
        ("waiting", census.waiting),
        ("paused", census.paused),
        ("inactive", census.inactive),
    ];
    for (state, count) in states {
        page.value("whimbrel_tasks", &[("state", state)], count);
    }
    page.single("whimbrel_tasks_troubled", "Tasks that are tried again after something went wrong", census.troubled);
    let oldest = census.oldest_waiting_seconds(now);
    page.single("whimbrel_oldest_waiting_task_seconds", "Age of the oldest task that waits for its turn", oldest);
    page.single("whimbrel_bytes_per_second", "Bytes that all running tasks move in a second", census.rate.round());
    page.family("whimbrel_tasks_ended_last_day", "gauge", "Tasks that were over within the last 24 hours");
    let ends =
        [("succeeded", census.succeeded), ("failed", census.failed_uncancelled()), ("cancelled", census.cancelled)];
    for (end, count) in ends {
        page.value("whimbrel_tasks_ended_last_day", &[("end", end)], count);
    }
    Ok(())
}

/// What is around tasks.
async fn around(service: &Service, page: &mut Page, now: Timestamp) -> Result<(), ApiError> {
    let servers = service.all::<Server>().await?;
    let ready = servers.iter().filter(|server| server.record.is_ready(now)).count();
    page.family("whimbrel_servers", "gauge", "Servers that have joined, by whether they are there now");
    page.value("whimbrel_servers", &[("state", "ready")], ready);
    page.value("whimbrel_servers", &[("state", "away")], servers.len() - ready);
    page.single("whimbrel_timers", "Timers", service.store.count_records(Timer::KIND).await?);
    let due = service.store.find_until::<Timer>(DUE, &crate::store::time_key(now), 1).await?;
    let late = due.first().and_then(|timer| timer.record.due()).map_or(0, |due| (now.secs - due.secs).max(0));
    page.single("whimbrel_timer_late_seconds", "How late the timer is that should have run first", late);
    let notices = service.store.count_records(Notice::KIND).await?;
    page.single("whimbrel_notices_waiting", "Ends of tasks that their owners have not been told yet", notices);
    if let Some(night) = service.house.newest() {
        page.single("whimbrel_recount_timestamp_seconds", "When tasks were counted anew", night.time.secs);
        page.single("whimbrel_recount_tasks", "Tasks that were counted anew then", night.tasks);
        let help = "Tasks whose counters were not what their items add up to: any is a bug, or damage";
        page.single("whimbrel_recount_wrong_tasks", help, night.wrong.len());
    }
    Ok(())
}

fn requests(requests: &Requests, page: &mut Page) {
    let told = requests.told();
    page.family("whimbrel_requests_total", "counter", "Requests that this process answered");
    for (route, answers) in &told {
        for (status, count) in &answers.statuses {
            page.value("whimbrel_requests_total", &[("route", route), ("status", &status.to_string())], count);
        }
    }
    let name = "whimbrel_request_seconds";
    page.family(name, "histogram", "Time until an answer began");
    for (route, answers) in &told {
        for (bound, within) in BOUNDS.iter().zip(answers.within) {
            page.value(&format!("{name}_bucket"), &[("route", route), ("le", &bound.to_string())], within);
        }
        page.value(&format!("{name}_bucket"), &[("route", route), ("le", "+Inf")], answers.count);
        page.value(&format!("{name}_sum"), &[("route", route)], answers.seconds);
        page.value(&format!("{name}_count"), &[("route", route)], answers.count);
    }
}

/// A page in the text format 0.0.4. Labels are names of ours and numbers: nothing in them needs an escape.
#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _written = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<_> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _written = writeln!(self.0, "{name}{labels} {value}");
    }

    fn single(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.value(name, &[], value);
    }
}
