//! `whimbrel rule`: what those who run a place say about its traffic.

mod clock;

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};
use whimbrel_engine::summary::exit;
use whimbrel_engine::units::{ByteCount, ByteRate};

use self::clock::{Days, Offset, hours, hours_shown};
use super::{for_each_code, managed};
use crate::args::Global;
use crate::managed::names::Kind;
use crate::managed::refusal::Trouble;
use crate::managed::{EXIT_CODES, ServiceArgs, Session, entries, list, need, show, text};
use crate::output::Output;

const RATES: &str = "/v2/whimbrel/rate_rules";
const PAUSES: &str = "/v0.10/endpoint_manager/pause_rule";

/// Rules of those who run a place: slow its tasks down at some hours, or let them wait
///
/// Tasks under a rule do not fail: they go on more slowly, or when the rule is lifted. Their owners see the rule and its words with
/// `whimbrel task show`. Rules for an endpoint hold for all collections on it.
#[derive(Debug, Args)]
#[command(after_help = format!("EXAMPLES\n  \
    At working hours 1 gigabyte a second:   whimbrel rule slow 1GB --at Cluster --days mon-fri --from 08:00 --to 18:00 --utc-offset +01:00\n  \
    Somebody has all the network:           whimbrel rule slow 100MB --at Cluster --user anna@example.org\n  \
    Nothing is to be written for now:       whimbrel rule pause --at Archive --only write 'The tape robot is being repaired'\n  \
    What holds:                             whimbrel rule list\n  \
    As before:                              whimbrel rule lift ID\n\n{EXIT_CODES}"))]
pub struct RuleArgs {
    #[command(flatten)]
    service: ServiceArgs,
    #[command(subcommand)]
    command: RuleCommand,
}

#[derive(Debug, Subcommand)]
enum RuleCommand {
    /// List the rules of all places that you manage
    List,
    Slow(SlowArgs),
    Pause(PauseArgs),
    /// Take rules away
    Lift {
        /// Rules; `whimbrel rule list` shows them
        #[arg(required = true, value_name = "ID")]
        rules: Vec<uuid::Uuid>,
    },
}

/// Bound how many bytes a second tasks copy together
#[derive(Debug, Args)]
struct SlowArgs {
    /// Bytes a second of all these tasks together, as in 100MB or 1.5GB (a bare M or G is binary: 1G is 1.07 GB)
    #[arg(value_name = "RATE")]
    rate: ByteCount,
    /// Only tasks from or to this endpoint or collection [default: all tasks of the service, for its administrators only]
    #[arg(long, value_name = "NAME")]
    at: Option<String>,
    /// Only tasks of this user, by name or id
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only from this time of the day on
    #[arg(long, value_name = "HH:MM", requires = "to")]
    from: Option<String>,
    /// Until this time of the day, or of the next day
    #[arg(long, value_name = "HH:MM", requires = "from")]
    to: Option<String>,
    /// Only on these days, as in mon-fri or sat,sun
    #[arg(long, value_name = "DAYS", requires = "from")]
    days: Option<Days>,
    /// How far the clock of these hours is ahead of UTC, as in +01:00
    #[arg(long, value_name = "OFFSET", default_value = "+00:00", requires = "from", allow_hyphen_values = true)]
    utc_offset: Offset,
    /// Words for those whose tasks are slowed down
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
}

/// Let tasks wait until the rule is lifted
#[derive(Debug, Args)]
struct PauseArgs {
    /// The endpoint or collection
    #[arg(long, value_name = "NAME")]
    at: String,
    /// Only what this user does, by name or id
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only this; may be repeated [default: everything]
    #[arg(long, value_name = "WHAT", value_enum)]
    only: Vec<Doing>,
    /// Words for those whose tasks wait
    #[arg(value_name = "WHY")]
    message: String,
}

/// What is done at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Doing {
    /// Copying from there
    Read,
    /// Copying to there
    Write,
    /// Tasks that delete
    Delete,
    /// Listing directories
    List,
    /// Making directories
    Mkdir,
    /// Renaming
    Rename,
    /// Making links
    Symlink,
}

impl Doing {
    fn field(self) -> &'static str {
        match self {
            Self::Read => "pause_task_transfer_read",
            Self::Write => "pause_task_transfer_write",
            Self::Delete => "pause_task_delete",
            Self::List => "pause_ls",
            Self::Mkdir => "pause_mkdir",
            Self::Rename => "pause_rename",
            Self::Symlink => "pause_symlink",
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl RuleArgs {
    /// Whether nothing changes by it.
    pub fn only_asks(&self) -> bool {
        matches!(self.command, RuleCommand::List)
    }
}

/// Runs the command.
pub fn run(args: RuleArgs, global: &Global) -> ExitCode {
    managed(global, async |output| {
        let mut session = Session::open(&args.service)?;
        let session = &mut session;
        match args.command {
            RuleCommand::List => show_all(session, output).await,
            RuleCommand::Slow(args) => slow(session, &args, output).await,
            RuleCommand::Pause(args) => pause(session, &args, output).await,
            RuleCommand::Lift { rules } => lift(session, &rules, output).await,
        }
    })
}

async fn slow(session: &mut Session, args: &SlowArgs, output: &mut Output) -> Result<u8, Trouble> {
    let mut wish = Map::from_iter([("max_rate".to_owned(), json!(args.rate.0))]);
    if let Some(name) = &args.at {
        wish.insert("endpoint_id".into(), json!(session.id_of(name, Kind::Any).await?));
    }
    if let Some(name) = &args.user {
        wish.insert("identity_id".into(), json!(session.identity_of(name).await?));
    }
    if let (Some(from), Some(to)) = (&args.from, &args.to) {
        wish.insert("hours".into(), hours(args.days.as_ref(), from, to, args.utc_offset));
    }
    if let Some(message) = &args.message {
        wish.insert("message".into(), json!(message));
    }
    let made = session.post(RATES, &Value::Object(wish)).await?;
    tell_made(&made, output)
}

async fn pause(session: &mut Session, args: &PauseArgs, output: &mut Output) -> Result<u8, Trouble> {
    let mut wish = Map::from_iter([
        ("DATA_TYPE".to_owned(), json!("pause_rule")),
        ("endpoint_id".to_owned(), json!(session.id_of(&args.at, Kind::Any).await?)),
        ("message".to_owned(), json!(args.message)),
    ]);
    if let Some(name) = &args.user {
        wish.insert("identity_id".into(), json!(session.identity_of(name).await?));
    }
    for doing in Doing::value_variants() {
        let is_meant = args.only.is_empty() || args.only.contains(doing);
        wish.insert(doing.field().into(), json!(is_meant));
    }
    let made = session.post(PAUSES, &Value::Object(wish)).await?;
    tell_made(&made, output)
}

fn tell_made(made: &Value, output: &mut Output) -> Result<u8, Trouble> {
    let id = need(made, "id")?;
    output.result(&json!({"event": "rule_made", "id": id}), id);
    Ok(exit::OK)
}

async fn lift(session: &mut Session, rules: &[uuid::Uuid], output: &mut Output) -> Result<u8, Trouble> {
    let mut codes = Vec::new();
    for rule in rules {
        // An id does not tell of which kind its rule is.
        let lifted = match session.delete(&format!("{RATES}/{rule}")).await {
            Err(Trouble::Refused(refusal)) if refusal.status == 404 => {
                session.delete(&format!("{PAUSES}/{rule}")).await
            }
            answered => answered,
        };
        codes.push(match lifted {
            Ok(answer) => {
                output.outcome(&json!({"event": "rule_lifted", "id": rule.to_string()}), text(&answer, "message"));
                exit::OK
            }
            Err(trouble) => output.trouble(&trouble),
        });
    }
    Ok(for_each_code(&codes))
}

async fn show_all(session: &mut Session, output: &mut Output) -> Result<u8, Trouble> {
    let rates = session.get(RATES).await?;
    let pauses = session.get("/v0.10/endpoint_manager/pause_rule_list").await?;
    let of_kind = |rules: &[Value], kind: &str| rules.iter().map(|rule| event(rule, kind)).collect::<Vec<_>>();
    let events = [of_kind(list(&rates, "rate_rules"), "slow"), of_kind(entries(&pauses), "pause")].concat();
    let people: Vec<_> = events.iter().map(|rule| text(rule, "identity_id")).filter(|id| !id.is_empty()).collect();
    let people = session.names_of(&people).await?;
    let mut rows = Vec::new();
    for rule in &events {
        let place = place(session, rule).await?;
        let who = match text(rule, "identity_id") {
            "" => "everybody",
            id => people.get(id).map_or(id, String::as_str),
        };
        let what = if rule["kind"] == "slow" { rate_words(rule) } else { pause_words(rule) };
        let cells = [text(rule, "id"), text(rule, "kind"), &place, who, &what, text(rule, "message")];
        rows.push(cells.map(str::to_owned).to_vec());
    }
    for (event, line) in events.iter().zip(show::table(&rows)) {
        output.result(event, &line);
    }
    if rows.is_empty() {
        output.say("there are no rules for places that you manage");
    }
    Ok(exit::OK)
}

fn event(rule: &Value, kind: &str) -> Value {
    let mut event = rule.clone();
    (event["event"], event["kind"]) = (json!("rule"), json!(kind));
    event
}

/// What the place of a rule is called.
async fn place(session: &mut Session, rule: &Value) -> Result<String, Trouble> {
    Ok(match (text(rule, "endpoint_id"), text(rule, "endpoint_display_name")) {
        ("", _) => "everywhere".to_owned(),
        (id, "") => {
            let shown = session.get(&format!("/v0.10/endpoint/{id}")).await;
            shown.map_or_else(|_| id.to_owned(), |shown| text(&shown, "display_name").to_owned())
        }
        (_, name) => name.to_owned(),
    })
}

fn rate_words(rule: &Value) -> String {
    let rate = ByteRate(show::number(rule, "max_rate") as f64);
    let now = if rule["in_force"] == false { " (not now)" } else { "" };
    match &rule["hours"] {
        Value::Null => format!("{rate}{now}"),
        hours => format!("{rate}, {}{now}", hours_shown(hours)),
    }
}

fn pause_words(rule: &Value) -> String {
    let paused: Vec<_> = Doing::value_variants().iter().filter(|doing| rule[doing.field()] == true).collect();
    if paused.len() == Doing::value_variants().len() {
        return "everything".to_owned();
    }
    paused.into_iter().map(|doing| doing.name()).collect::<Vec<_>>().join(", ")
}
