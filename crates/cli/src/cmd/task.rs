//! `whimbrel task`: tasks of the managed service.

mod history;
mod list;
pub mod plan;
mod submit;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use whimbrel_engine::summary::exit;

use super::{for_each_code, managed};
use crate::args::Global;
use crate::managed::refusal::Trouble;
use crate::managed::watch::{self, Ended};
use crate::managed::{EXIT_CODES, ServiceArgs, Session, entries, show, text, with_query};
use crate::output::Output;

pub use submit::{listed, parse_time};

/// Tasks of the managed service: submit them, walk away, look how they go
///
/// A task copies or deletes files between collections while nobody watches: it survives a service, a server or a network that fails,
/// and tells the truth about how far it is. Collections are named by name or id; `whimbrel endpoint list` shows them.
#[derive(Debug, Args)]
#[command(after_help = format!("EXAMPLES\n  \
    Copy a folder, and walk away:      whimbrel task submit -r \"Cluster data:/run7\" Archive:/2026/\n  \
    Look before you copy:              whimbrel task submit -r --dry-run Cluster:/run7 Archive:/run7\n  \
    Only what is new, and wait:        whimbrel task submit -r --sync mtime --wait Cluster:/run7 Archive:/run7\n  \
    How it goes:                       whimbrel task list\n  \
                                       whimbrel task wait ID\n  \
    What became of each file:          whimbrel task log ID\n  \
    End it:                            whimbrel task cancel ID\n\n{EXIT_CODES}"))]
pub struct TaskArgs {
    #[command(flatten)]
    service: ServiceArgs,
    #[command(subcommand)]
    command: TaskCommand,
}

#[derive(Debug, Subcommand)]
enum TaskCommand {
    Submit(Box<submit::SubmitArgs>),
    Delete(submit::DeleteArgs),
    List(list::ListArgs),
    /// Show everything about tasks
    Show {
        /// Tasks
        #[arg(required = true, value_name = "ID")]
        tasks: Vec<String>,
    },
    /// Wait until tasks are over; Ctrl-C ends the waiting, not the tasks
    Wait {
        /// Tasks
        #[arg(required = true, value_name = "ID")]
        tasks: Vec<String>,
        /// Wait no longer than this, as in 30s, 10m or 2h
        #[arg(long, value_name = "TIME", value_parser = submit::parse_time)]
        timeout: Option<Duration>,
    },
    /// End tasks; what is copied already stays
    Cancel {
        /// Tasks
        #[arg(value_name = "ID", required_unless_present = "all")]
        tasks: Vec<String>,
        /// All of mine that are not over
        #[arg(long, conflicts_with = "tasks")]
        all: bool,
        /// Tasks of others, at a place that I manage: their owners are told why
        #[arg(long, value_name = "WHY", conflicts_with = "all")]
        message: Option<String>,
    },
    /// Let tasks at a place that I manage wait; their owners are told why
    Pause {
        /// Tasks
        #[arg(required = true, value_name = "ID")]
        tasks: Vec<String>,
        /// Words for their owners
        #[arg(long, value_name = "WHY")]
        message: String,
    },
    /// Let tasks that were paused go on
    Resume {
        /// Tasks
        #[arg(required = true, value_name = "ID")]
        tasks: Vec<String>,
    },
    /// Change the label or the deadline of a task
    Update {
        /// The task
        #[arg(value_name = "ID")]
        task: String,
        /// What it is called
        #[arg(long, value_name = "TEXT", required_unless_present = "deadline")]
        label: Option<String>,
        /// When it ends, done or not, as in 2027-01-31 or '2027-01-31 12:00:00'
        #[arg(long, value_name = "TIME")]
        deadline: Option<String>,
    },
    Events(history::EventsArgs),
    Log(history::LogArgs),
}

impl TaskArgs {
    /// Whether nothing changes by it.
    pub fn only_asks(&self) -> bool {
        match &self.command {
            TaskCommand::Submit(args) => args.only_plans(),
            TaskCommand::Delete(args) => args.only_plans(),
            TaskCommand::List(_) | TaskCommand::Show { .. } | TaskCommand::Events(_) | TaskCommand::Log(_) => true,
            _ => false,
        }
    }
}

/// Runs the command.
pub fn run(args: TaskArgs, global: &Global) -> ExitCode {
    managed(global, async |output| {
        let mut session = Session::open(&args.service)?;
        let session = &mut session;
        match args.command {
            TaskCommand::Submit(args) => submit::submit(session, *args, output).await,
            TaskCommand::Delete(args) => submit::delete(session, args, output).await,
            TaskCommand::List(args) => list::list(session, &args, output).await,
            TaskCommand::Show { tasks } => show_all(session, &tasks, output).await,
            TaskCommand::Wait { tasks, timeout } => wait_all(session, &tasks, timeout, output).await,
            TaskCommand::Cancel { tasks, message: Some(why), .. } => {
                manage(session, "admin_cancel", &tasks, Some(&why), output).await
            }
            TaskCommand::Cancel { tasks, all, .. } => cancel(session, tasks, all, output).await,
            TaskCommand::Pause { tasks, message } => {
                manage(session, "admin_pause", &tasks, Some(&message), output).await
            }
            TaskCommand::Resume { tasks } => manage(session, "admin_resume", &tasks, None, output).await,
            TaskCommand::Update { task, label, deadline } => update(session, &task, label, deadline, output).await,
            TaskCommand::Events(args) => history::events(session, &args, output).await,
            TaskCommand::Log(args) => history::log(session, &args, output).await,
        }
    })
}

/// The path of a task's document; what is no id of one is no path either.
fn path(task: &str) -> Result<String, Trouble> {
    let fits = !task.is_empty() && task.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let wrong = || Trouble::Usage(format!("{task:?} is no id of a task; whimbrel task list shows them"));
    fits.then(|| format!("/v0.10/task/{task}")).ok_or_else(wrong)
}

async fn show_all(session: &mut Session, tasks: &[String], output: &mut Output) -> Result<u8, Trouble> {
    let mut codes = Vec::new();
    for task in tasks {
        codes.push(match shown(session, task).await {
            Ok(task) => {
                output.result(&event(&task, "task"), &show::task(&task));
                exit::OK
            }
            Err(trouble) => output.trouble(&trouble),
        });
    }
    Ok(for_each_code(&codes))
}

/// A task's document; of one that runs with what holds it back, as `rate`.
async fn shown(session: &mut Session, task: &str) -> Result<Value, Trouble> {
    let mut document = session.get(&path(task)?).await?;
    if text(&document, "status") == "ACTIVE" && text(&document, "type") == "TRANSFER" {
        document["rate"] = session.get(&format!("/v2/whimbrel/tasks/{task}/rate")).await?;
    }
    Ok(document)
}

/// A document with the name of what it tells.
fn event(document: &Value, name: &str) -> Value {
    let mut event = document.clone();
    event["event"] = json!(name);
    event
}

async fn wait_all(
    session: &mut Session,
    tasks: &[String],
    limit: Option<Duration>,
    output: &mut Output,
) -> Result<u8, Trouble> {
    let mut codes = Vec::new();
    for task in tasks {
        path(task)?;
    }
    for task in tasks {
        if tasks.len() > 1 {
            output.say(&format!("task {task}"));
        }
        codes.push(wait(session, task, limit, output).await?);
    }
    Ok(for_each_code(&codes))
}

/// Waits for one task; the exit code that its end stands for.
///
/// # Errors
/// As all questions.
pub async fn wait(
    session: &mut Session,
    task: &str,
    limit: Option<Duration>,
    output: &mut Output,
) -> Result<u8, Trouble> {
    match watch::watch(session, task, limit, output).await? {
        Ended::Over(document) => watch::conclude(session, &document, output).await,
        Ended::TimeUp => {
            let event = json!({"event": "time_up", "task_id": task, "exit_code": exit::LIMIT});
            output.outcome(&event, "the time to wait is up; the task goes on");
            Ok(exit::LIMIT)
        }
        Ended::Interrupted => {
            let event = json!({"event": "interrupted", "task_id": task, "exit_code": exit::CANCELLED});
            output.outcome(&event, &format!("the task goes on; to end it: whimbrel task cancel {task}"));
            Ok(exit::CANCELLED)
        }
    }
}

async fn cancel(session: &mut Session, tasks: Vec<String>, all: bool, output: &mut Output) -> Result<u8, Trouble> {
    let tasks = if all { running(session).await? } else { tasks };
    let mut codes = Vec::new();
    for task in &tasks {
        codes.push(match session.post(&format!("{}/cancel", path(task)?), &json!({})).await {
            Ok(answer) => {
                let event = json!({"event": "cancelled", "task_id": task, "code": answer["code"]});
                output.outcome(&event, &format!("{task}: {}", text(&answer, "message")));
                exit::OK
            }
            Err(trouble) => output.trouble(&trouble),
        });
    }
    if tasks.is_empty() {
        output.say("no task of yours is under way");
    }
    Ok(for_each_code(&codes))
}

/// Does something with tasks of others, as who manages a place: with all of them, or with none.
async fn manage(
    session: &mut Session,
    what: &str,
    tasks: &[String],
    why: Option<&str>,
    output: &mut Output,
) -> Result<u8, Trouble> {
    tasks.iter().try_for_each(|task| path(task).map(drop))?;
    let mut wish = json!({"task_id_list": tasks});
    why.into_iter().for_each(|why| wish["message"] = json!(why));
    let answer = session.post(&format!("/v0.10/endpoint_manager/{what}"), &wish).await?;
    let (done, words) = match what {
        "admin_cancel" => ("cancelled", "the tasks end; what is copied already stays"),
        "admin_pause" => ("paused", text(&answer, "message")),
        _ => ("resumed", text(&answer, "message")),
    };
    output.outcome(&json!({"event": done, "task_ids": tasks}), words);
    Ok(exit::OK)
}

/// Tasks of the user that are not over.
async fn running(session: &mut Session) -> Result<Vec<String>, Trouble> {
    let filter = "type:TRANSFER,DELETE/status:ACTIVE,INACTIVE";
    let mut found: Vec<String> = Vec::new();
    loop {
        let offset = found.len().to_string();
        let fields = [("filter", filter), ("fields", "task_id"), ("limit", "1000"), ("offset", offset.as_str())];
        let page = session.get(&with_query("/v0.10/task_list", &fields)).await?;
        found.extend(entries(&page).iter().map(|task| text(task, "task_id").to_owned()));
        if entries(&page).is_empty() || found.len() as u64 >= show::number(&page, "total") {
            return Ok(found);
        }
    }
}

async fn update(
    session: &mut Session,
    task: &str,
    label: Option<String>,
    deadline: Option<String>,
    output: &mut Output,
) -> Result<u8, Trouble> {
    let given = [("label", label), ("deadline", deadline)];
    let fields: Map<_, _> =
        given.into_iter().filter_map(|(name, text)| Some((name.to_owned(), json!(text?)))).collect();
    let mut document = json!({"DATA_TYPE": "task"});
    document.as_object_mut().into_iter().for_each(|into| into.extend(fields.clone()));
    let answer = session.put(&path(task)?, &document).await?;
    output.outcome(&json!({"event": "updated", "task_id": task}), text(&answer, "message"));
    Ok(exit::OK)
}
