//! Who may use a shared directory: `whimbrel endpoint permissions`, `permit` and `forbid`.

use clap::{ArgGroup, Args};
use serde_json::{Value, json};
use whimbrel_engine::summary::exit;

use crate::managed::names::{Kind, Spot};
use crate::managed::refusal::Trouble;
use crate::managed::{Session, entries, need, show, text};
use crate::output::Output;

/// List who may use a shared directory
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The collection's name or id
    #[arg(value_name = "COLLECTION")]
    collection: String,
}

/// Lists permissions.
pub async fn list(session: &mut Session, args: &ListArgs, output: &mut Output) -> Result<u8, Trouble> {
    let id = session.id_of(&args.collection, Kind::Collection).await?;
    let list = session.get(&format!("/v0.10/endpoint/{id}/access_list")).await?;
    let people = entries(&list).iter().filter(|rule| text(rule, "principal_type") == "identity");
    let names = session.names_of(&people.map(|rule| text(rule, "principal")).collect::<Vec<_>>()).await?;
    let row = |rule: &Value| {
        let who = match (text(rule, "principal_type"), text(rule, "principal")) {
            ("identity", id) => names.get(id).cloned().unwrap_or_else(|| id.to_owned()),
            ("group", id) => format!("group {id}"),
            ("all_authenticated_users", _) => "everybody who is logged in".to_owned(),
            _ => "everybody".to_owned(),
        };
        let what = if text(rule, "permissions") == "rw" { "write" } else { "read" };
        let end = match show::time(rule, "expiration_date").as_str() {
            "-" => String::new(),
            end => format!("until {end}"),
        };
        vec![text(rule, "id").to_owned(), what.to_owned(), text(rule, "path").to_owned(), who, end]
    };
    let rows: Vec<_> = entries(&list).iter().map(row).collect();
    for (rule, line) in entries(&list).iter().zip(show::table(&rows)) {
        let mut event = rule.clone();
        event["event"] = json!("permission");
        output.result(&event, &line);
    }
    if rows.is_empty() {
        output.say("nobody but its owner and administrators may use it");
    }
    Ok(exit::OK)
}

/// Let somebody use a shared directory
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("who").required(true))]
pub struct PermitArgs {
    /// The directory, COLLECTION:PATH
    #[arg(value_name = "PLACE")]
    place: Spot,
    /// A person, by name or id
    #[arg(long, value_name = "NAME", group = "who")]
    user: Option<String>,
    /// A group, by its id
    #[arg(long, value_name = "ID", group = "who")]
    group: Option<String>,
    /// Everybody who is logged in at the service
    #[arg(long, group = "who")]
    everybody: bool,
    /// They may change what is there, too; without this they may read
    #[arg(short, long)]
    write: bool,
    /// Until then, as in 2027-01-31
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

/// Lets somebody in.
pub async fn permit(session: &mut Session, args: &PermitArgs, output: &mut Output) -> Result<u8, Trouble> {
    let id = session.id_of(&args.place.collection, Kind::Collection).await?;
    let (kind, principal) = match (&args.user, &args.group) {
        (Some(user), _) => ("identity", session.identity_of(user).await?),
        (None, Some(group)) => ("group", group.clone()),
        (None, None) => ("all_authenticated_users", String::new()),
    };
    let slash = if args.place.path.ends_with('/') { "" } else { "/" };
    let wish = json!({
        "DATA_TYPE": "access", "principal_type": kind, "principal": principal,
        "path": format!("{}{slash}", args.place.path), "permissions": if args.write { "rw" } else { "r" },
        "expiration_date": args.until,
    });
    let made = session.post(&format!("/v0.10/endpoint/{id}/access"), &wish).await?;
    let rule = need(&made, "access_id")?;
    output.result(&json!({"event": "permitted", "id": rule}), rule);
    Ok(exit::OK)
}

/// Take a permission back
#[derive(Debug, Args)]
pub struct ForbidArgs {
    /// The collection's name or id
    #[arg(value_name = "COLLECTION")]
    collection: String,
    /// The permission's id; `whimbrel endpoint permissions` shows it
    #[arg(value_name = "PERMISSION")]
    rule: uuid::Uuid,
}

/// Takes a permission back.
pub async fn forbid(session: &mut Session, args: &ForbidArgs, output: &mut Output) -> Result<u8, Trouble> {
    let id = session.id_of(&args.collection, Kind::Collection).await?;
    let answer = session.delete(&format!("/v0.10/endpoint/{id}/access/{}", args.rule)).await?;
    output.outcome(&json!({"event": "forbidden", "id": args.rule.to_string()}), text(&answer, "message"));
    Ok(exit::OK)
}
