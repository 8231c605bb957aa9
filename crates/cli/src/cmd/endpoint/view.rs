//! What there is: `whimbrel endpoint list`, `show` and `servers`.

use clap::Args;
use serde_json::{Value, json};
use whimbrel_engine::summary::exit;

use crate::managed::names::Kind;
use crate::managed::refusal::Trouble;
use crate::managed::{Session, entries, show, text, with_query};
use crate::output::Output;

/// Entries of one page.
const PAGE: usize = 100;

/// List endpoints and collections that I may use
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only those that hold all these words in their name, description, owner or keywords
    #[arg(value_name = "WORD")]
    words: Vec<String>,
    /// Only those that are mine
    #[arg(long)]
    mine: bool,
    /// Only what others share with me
    #[arg(long, conflicts_with = "mine")]
    shared: bool,
    /// Most that are shown
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

/// Lists them.
pub async fn list(session: &mut Session, args: &ListArgs, output: &mut Output) -> Result<u8, Trouble> {
    let scope = match (args.mine, args.shared) {
        (true, _) => "my-endpoints",
        (_, true) => "shared-with-me",
        _ => "all",
    };
    let (words, most) = (args.words.join(" "), args.limit as usize);
    let mut found: Vec<Value> = Vec::new();
    let mut more = true;
    while more && found.len() < most {
        let (offset, limit) = (found.len().to_string(), (most - found.len()).min(PAGE).to_string());
        let fields =
            [("filter_scope", scope), ("filter_fulltext", words.as_str()), ("limit", &limit), ("offset", &offset)];
        let page = session.get(&with_query("/v0.10/endpoint_search", &fields)).await?;
        more = page["has_next_page"] == true && !entries(&page).is_empty();
        found.extend(entries(&page).iter().cloned());
    }
    for (one, line) in found.iter().zip(show::table(&found.iter().map(row).collect::<Vec<_>>())) {
        output.result(&event(one), &line);
    }
    if found.is_empty() {
        output.say("there is nothing of that kind that you may see");
    } else if more {
        output.say(&format!("there are more; --limit shows more than {most}"));
    }
    Ok(exit::OK)
}

fn row(one: &Value) -> Vec<String> {
    let kind = show::kind(text(one, "entity_type")).to_owned();
    let name = format!("{}  ({})", text(one, "display_name"), text(one, "owner_string"));
    vec![text(one, "id").to_owned(), kind, name]
}

/// A document with the name of what it tells.
fn event(document: &Value) -> Value {
    let mut event = document.clone();
    event["event"] = json!("endpoint");
    event
}

/// Show everything about an endpoint or a collection
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Its name or id
    #[arg(value_name = "NAME")]
    name: String,
}

/// Shows one.
pub async fn show(session: &mut Session, args: &ShowArgs, output: &mut Output) -> Result<u8, Trouble> {
    let id = session.id_of(&args.name, Kind::Any).await?;
    let one = session.get(&format!("/v0.10/endpoint/{id}")).await?;
    let own = |name: &str| text(&one, name).to_owned();
    let roles: Vec<_> = one["my_effective_roles"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let yes = |name: &str, words: &str| if one[name] == true { words.to_owned() } else { String::new() };
    let rules = [
        yes("force_encryption", "data are always encrypted"),
        yes("force_verify", "copies are always verified"),
        yes("disable_verify", "copies are never verified"),
    ];
    let rules: Vec<_> = rules.into_iter().filter(|rule| !rule.is_empty()).collect();
    let facts = [
        ("id", own("id")),
        ("kind", show::kind(text(&one, "entity_type")).to_owned()),
        ("owner", own("owner_string")),
        ("endpoint", own("non_functional_endpoint_display_name")),
        ("directory of", own("host_endpoint_display_name")),
        ("path there", own("host_path")),
        ("description", own("description")),
        ("contact", own("contact_email")),
        ("begins in", own("default_directory")),
        ("seen by", if one["public"] == true { "everybody" } else { "those who may use it" }.to_owned()),
        ("rules", rules.join("; ")),
        ("my roles", roles.join(", ")),
        ("data over", own("https_server")),
        ("my proxy", proxy(&one)),
    ];
    output.result(&event(&one), &show::facts(text(&one, "display_name"), &facts));
    Ok(exit::OK)
}

/// The proxy that is registered for stock servers; empty where none is asked for.
fn proxy(one: &Value) -> String {
    match (one["activated"] == true, text(one, "expire_time")) {
        (true, "") => String::new(),
        (true, _) => format!("good until {}", show::time(one, "expire_time")),
        (false, "") => "none is registered: whimbrel endpoint credential".to_owned(),
        (false, _) => format!("ended at {}: whimbrel endpoint credential", show::time(one, "expire_time")),
    }
}

/// List the servers of an endpoint, and which are there now
#[derive(Debug, Args)]
pub struct ServersArgs {
    /// The endpoint's name or id
    #[arg(value_name = "ENDPOINT")]
    endpoint: String,
}

/// Lists servers.
pub async fn servers(session: &mut Session, args: &ServersArgs, output: &mut Output) -> Result<u8, Trouble> {
    let id = session.id_of(&args.endpoint, Kind::Endpoint).await?;
    let list = session.get(&format!("/v0.10/endpoint/{id}/server_list")).await?;
    for server in entries(&list) {
        let state = if server["is_connected"] == true { "there" } else { "gone" };
        let mut event = server.clone();
        event["event"] = json!("server");
        let way = match (&server["outbound"], &server["relay"]) {
            (Value::Bool(true), _) => "  outbound: it connects to the service",
            (_, Value::Bool(true)) => "  relay: it passes data on between outbound servers",
            _ => "",
        };
        output.result(&event, &format!("{state:<5}  {}{way}", text(server, "uri")));
    }
    if entries(&list).is_empty() {
        output.say("it has no servers yet; let one join: whimbrel endpoint join-token");
    }
    Ok(exit::OK)
}
