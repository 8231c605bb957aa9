//! `whimbrel task list`.

use clap::{Args, ValueEnum};
use serde_json::Value;
use whimbrel_engine::summary::exit;

use super::event;
use crate::managed::names::Kind;
use crate::managed::refusal::Trouble;
use crate::managed::{Session, entries, show, text, with_query};
use crate::output::Output;

/// Tasks of one page.
const PAGE: usize = 100;

/// List my tasks, the latest first; or those of everybody at a place that I manage
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only those of this status; several with commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "STATUS")]
    status: Vec<Status>,
    /// Only those whose label holds this text
    #[arg(long, value_name = "TEXT", value_parser = label)]
    label: Option<String>,
    /// Tasks of everybody from or to this endpoint or collection, for those who manage it
    #[arg(long, value_name = "NAME", conflicts_with = "label")]
    at: Option<String>,
    /// Most tasks that are shown
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Status {
    /// Under way
    Active,
    /// Cannot go on without you
    Inactive,
    /// Done
    Succeeded,
    /// Failed, cancelled or expired
    Failed,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Inactive => "INACTIVE",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
        }
    }
}

/// What the service's filters give a meaning of their own cannot be asked for.
fn label(text: &str) -> Result<String, String> {
    let odd = text.contains(['/', ',', '*', '?', '[', '!', '~']);
    if odd { Err("a label is looked for by a text without / , * ? [ ! ~".to_owned()) } else { Ok(text.to_owned()) }
}

impl ListArgs {
    fn filter(&self) -> String {
        let mut terms = vec!["type:TRANSFER,DELETE".to_owned()];
        if !self.status.is_empty() {
            let names: Vec<_> = self.status.iter().map(|status| status.name()).collect();
            terms.push(format!("status:{}", names.join(",")));
        }
        terms.extend(self.label.as_ref().map(|text| format!("label:~*{text}*")));
        terms.join("/")
    }
}

/// Lists tasks.
pub async fn list(session: &mut Session, args: &ListArgs, output: &mut Output) -> Result<u8, Trouble> {
    let found = match &args.at {
        Some(place) => managed(session, args, place).await?,
        None => own(session, args).await?,
    };
    for (task, line) in found.iter().zip(show::table(&found.iter().map(row).collect::<Vec<_>>())) {
        output.result(&event(task, "task"), &line);
    }
    if found.is_empty() {
        output.say("there is no such task");
    }
    Ok(exit::OK)
}

/// Tasks of everybody at a place.
async fn managed(session: &mut Session, args: &ListArgs, place: &str) -> Result<Vec<Value>, Trouble> {
    let id = session.id_of(place, Kind::Any).await?;
    let statuses = args.status.iter().map(|status| status.name()).collect::<Vec<_>>().join(",");
    let most = args.limit as usize;
    let (mut found, mut key) = (Vec::new(), String::new());
    loop {
        let mut fields = vec![("filter_endpoint", id.as_str())];
        fields.extend((!statuses.is_empty()).then_some(("filter_status", statuses.as_str())));
        fields.extend((!key.is_empty()).then_some(("last_key", key.as_str())));
        let page = session.get(&with_query("/v0.10/endpoint_manager/task_list", &fields)).await?;
        found.extend(entries(&page).iter().cloned());
        if page["has_next_page"] != true || found.len() >= most {
            found.truncate(most);
            return Ok(found);
        }
        key = text(&page, "last_key").to_owned();
    }
}

async fn own(session: &mut Session, args: &ListArgs) -> Result<Vec<Value>, Trouble> {
    let (filter, most) = (args.filter(), args.limit as usize);
    let mut found: Vec<Value> = Vec::new();
    while found.len() < most {
        let (offset, limit) = (found.len().to_string(), (most - found.len()).min(PAGE).to_string());
        let fields =
            [("filter", filter.as_str()), ("orderby", "request_time DESC"), ("limit", &limit), ("offset", &offset)];
        let page = session.get(&with_query("/v0.10/task_list", &fields)).await?;
        found.extend(entries(&page).iter().cloned());
        if entries(&page).is_empty() || found.len() as u64 >= show::number(&page, "total") {
            break;
        }
    }
    Ok(found)
}

fn row(task: &Value) -> Vec<String> {
    let status = match (text(task, "status"), text(&task["fatal_error"], "code")) {
        (_, "CANCELED") => "cancelled".to_owned(),
        (_, "EXPIRED") => "expired".to_owned(),
        ("ACTIVE", _) if task["is_paused"] == true => "paused".to_owned(),
        (status, _) => status.to_lowercase(),
    };
    let label = match text(task, "label") {
        "" => String::new(),
        label => format!("  \"{label}\""),
    };
    let what = format!("{}: {}{label}", show::ends(task), show::work(task));
    vec![text(task, "task_id").to_owned(), show::time(task, "request_time"), status, what]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_say_what_was_asked_for() {
        let args =
            ListArgs { status: vec![Status::Active, Status::Failed], label: Some("run 7".into()), at: None, limit: 1 };
        assert_eq!(args.filter(), "type:TRANSFER,DELETE/status:ACTIVE,FAILED/label:~*run 7*");
        assert!(label("a/b").is_err() && label("a b").is_ok());
    }
}
