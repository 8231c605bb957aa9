//! `whimbrel audit`: who did what at the managed service.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use whimbrel_engine::summary::exit;

use super::managed;
use crate::args::Global;
use crate::managed::refusal::Trouble;
use crate::managed::{EXIT_CODES, ServiceArgs, Session, odd, show, text, with_query};
use crate::output::Output;

/// Entries of one page: as many as the service tells at once.
const PAGE: u64 = 1000;

/// Entries that are shown where nothing says how many.
const SHOWN: u64 = 50;

/// Who did what at the service: logins, tasks, rules, rights, everything that was changed (administrators of the service only)
///
/// The service keeps one entry for each act, with its time, who did it, and what it was done to; of a task it is one, whatever it copies
/// (`whimbrel task log` tells of its files). Reading the log is an act, too. Without --after and --json the newest entries are shown, the
/// latest last.
#[derive(Debug, Args)]
#[command(after_help = format!("EXAMPLES\n  \
    What happened last:            whimbrel audit\n  \
    Who changed rights in May:     whimbrel audit --since 2026-05-01 --until 2026-06-01 --action access.\n  \
    What somebody did:             whimbrel audit --actor anna@example.org\n  \
    All of it, for a program:      whimbrel --json audit > audit.jsonl\n  \
    What came since (each night):  whimbrel --json audit --after MARK >> audit.jsonl\n\
    \n  MARK is the `mark` of the last line that you have; entries after it are told once, and none is left out.\n\n{EXIT_CODES}"))]
pub struct AuditArgs {
    /// Only from this time on, as in 2026-05-01 or 2026-05-01T12:00:00Z (UTC where nothing else is said)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only what this user or program did: a name or id; `service` did what happens by itself, `nobody` what needs no login
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Only what was done to this: the id of a task, a collection, a user
    #[arg(long, value_name = "ID")]
    subject: Option<String>,
    /// Only this action, as in role.create; with a point at its end all that begin so, as in role.
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// Go on after this mark, the oldest first
    #[arg(long, value_name = "MARK")]
    after: Option<u64>,
    /// Most entries [default: 50, and with --json or --after all]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    // Last: its heading holds for all that follows.
    #[command(flatten)]
    service: ServiceArgs,
}

/// Runs the command.
pub fn run(args: AuditArgs, global: &Global) -> ExitCode {
    let for_people = !global.json;
    managed(global, async |output| {
        let mut session = Session::open(&args.service)?;
        let filters = args.filters(&mut session).await?;
        let limit = args.limit.or((for_people && args.after.is_none()).then_some(SHOWN));
        // Who looks wants to see what happened last; who exports goes on where the last export ended.
        let is_look = for_people && args.after.is_none() && limit.is_some_and(|limit| limit <= PAGE);
        let told = match limit {
            Some(limit) if is_look => newest(&mut session, &filters, limit, output).await?,
            _ => all(&mut session, &filters, args.after.unwrap_or(0), limit, output).await?,
        };
        if told == 0 {
            output.say("there is no such entry");
        }
        Ok(exit::OK)
    })
}

impl AuditArgs {
    async fn filters(&self, session: &mut Session) -> Result<Vec<(&'static str, String)>, Trouble> {
        let actor = match &self.actor {
            // Names of users have a domain; what has none is an id, or one of the service's own words.
            Some(name) if name.contains('@') => Some(session.identity_of(name).await?),
            other => other.clone(),
        };
        let filters = [
            ("since", &self.since),
            ("until", &self.until),
            ("actor", &actor),
            ("subject", &self.subject),
            ("action", &self.action),
        ];
        Ok(filters.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect())
    }
}

async fn ask(
    session: &mut Session,
    filters: &[(&str, String)],
    more: &[(&str, String)],
) -> Result<Vec<Value>, Trouble> {
    let fields: Vec<_> = filters.iter().chain(more).map(|(name, value)| (*name, value.as_str())).collect();
    let entries = session.lines(&with_query("/v2/whimbrel/audit", &fields)).await?;
    // What broke off is no entry.
    match entries.last().filter(|last| last["error"].is_object()) {
        Some(broken) => Err(odd(text(&broken["error"], "message"))),
        None => Ok(entries),
    }
}

async fn newest(
    session: &mut Session,
    filters: &[(&str, String)],
    limit: u64,
    output: &mut Output,
) -> Result<u64, Trouble> {
    let entries = ask(session, filters, &[("newest", "1".into()), ("limit", limit.to_string())]).await?;
    tell(&entries, output);
    Ok(entries.len() as u64)
}

/// Everything after a mark, page after page.
async fn all(
    session: &mut Session,
    filters: &[(&str, String)],
    mut mark: u64,
    limit: Option<u64>,
    output: &mut Output,
) -> Result<u64, Trouble> {
    let mut told = 0;
    loop {
        let wanted = limit.map_or(PAGE, |limit| (limit - told).min(PAGE));
        let more = [("after", mark.to_string()), ("limit", wanted.to_string())];
        let entries = ask(session, filters, &more).await?;
        tell(&entries, output);
        told += entries.len() as u64;
        match entries.last().map(|last| show::number(last, "mark")) {
            Some(last) if entries.len() as u64 == wanted && limit.is_none_or(|limit| told < limit) => mark = last,
            _ => return Ok(told),
        }
    }
}

fn tell(entries: &[Value], output: &mut Output) {
    for (entry, line) in entries.iter().zip(show::table(&entries.iter().map(row).collect::<Vec<_>>())) {
        let mut event = entry.clone();
        event["event"] = json!("audit");
        output.result(&event, &line);
    }
}

fn row(entry: &Value) -> Vec<String> {
    let who = match text(entry, "actor_name") {
        "" => text(entry, "actor"),
        name => name,
    };
    let detail = match entry["detail"].as_object() {
        Some(detail) => detail.iter().filter(|(_, value)| !value.is_null()).map(fact).collect::<Vec<_>>().join(" "),
        None => String::new(),
    };
    let subject = if text(entry, "subject").is_empty() { "-" } else { text(entry, "subject") };
    vec![show::time(entry, "time"), who.to_owned(), text(entry, "action").to_owned(), subject.to_owned(), detail]
}

fn fact((name, value): (&String, &Value)) -> String {
    match value {
        // Within quotes nothing of a text can be taken for another fact, or for a line's end.
        Value::String(text) if text.chars().all(|sign| sign.is_ascii_graphic() && sign != '"') => {
            format!("{name}={text}")
        }
        other => format!("{name}={other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_one_line_whatever_somebody_called_something() {
        let entry = json!({"mark": 7, "time": "2026-11-23T06:00:00+00:00", "actor": "a-1", "actor_name": "ada@example.org",
                           "action": "collection.create", "subject": "c-1",
                           "detail": {"kind": "guest", "name": "two\nlines \"x\"", "owner": null, "items": 3}});
        let expected = ["2026-11-23 06:00:00Z", "ada@example.org", "collection.create", "c-1"];
        let row = row(&entry);
        assert_eq!(row[..4], expected);
        assert_eq!(row[4], r#"items=3 kind=guest name="two\nlines \"x\"""#);
        let nobody = json!({"time": "2026-11-23T06:00:00+00:00", "actor": "nobody", "subject": "", "detail": null});
        assert_eq!(self::row(&nobody)[1..], ["nobody", "", "-", ""]);
    }
}
