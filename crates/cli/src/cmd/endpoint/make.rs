//! Endpoints and collections are made, changed and taken away.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use whimbrel_engine::summary::exit;

use super::super::task::parse_time;
use crate::managed::names::{Kind, Spot};
use crate::managed::refusal::Trouble;
use crate::managed::{Session, entries, need, text};
use crate::output::Output;

/// Make an endpoint: a name for servers (administrators of the service only), or with --personal for one's own computer
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Its name
    #[arg(value_name = "NAME")]
    name: String,
    /// Whose it is, if not mine: a person's name or id
    #[arg(long, value_name = "USER")]
    owner: Option<String>,
    /// A stock server, as in gsiftp://dtn.example.org:2811; several times for several, which share their storage
    #[arg(long = "server", value_name = "URL")]
    servers: Vec<String>,
    /// For a computer of mine, whose files only I use, and those with whom I share them; prints how to start its server
    #[arg(long, conflicts_with_all = ["owner", "servers"])]
    personal: bool,
}

/// Makes an endpoint.
pub async fn create(session: &mut Session, args: &CreateArgs, output: &mut Output) -> Result<u8, Trouble> {
    if args.personal {
        return personal(session, &args.name, output).await;
    }
    let mut wish = json!({"display_name": args.name, "servers": args.servers});
    if let Some(owner) = &args.owner {
        wish["owner"] = json!(session.identity_of(owner).await?);
    }
    let made = session.post("/v2/whimbrel/endpoints", &wish).await?;
    made_id(&made, "endpoint_created", output)
}

async fn personal(session: &mut Session, name: &str, output: &mut Output) -> Result<u8, Trouble> {
    let wish = json!({"DATA_TYPE": "endpoint", "display_name": name, "is_globus_connect": true});
    let made = session.post("/v0.10/endpoint", &wish).await?;
    let (id, token) = (need(&made, "id")?, need(&made, "globus_connect_setup_key")?);
    output.result(&json!({"event": "endpoint_created", "id": id, "token": token}), id);
    let service = session.login().service.clone();
    let authorities = if session.login().authorities.is_some() { " --join-authorities FILE" } else { "" };
    output.say(&format!(
        "on that computer: whimbrel dtn --root DIRECTORY --join {service} --token {token} --outbound{authorities}"
    ));
    Ok(exit::OK)
}

/// Tells the id of what was made.
fn made_id(made: &Value, event: &str, output: &mut Output) -> Result<u8, Trouble> {
    let id = need(made, "id")?;
    output.result(&json!({"event": event, "id": id}), id);
    Ok(exit::OK)
}

/// Make a collection: a directory of an endpoint's servers under a name (administrators of the endpoint only)
#[derive(Debug, Args)]
pub struct CollectionArgs {
    /// The endpoint's name or id
    #[arg(value_name = "ENDPOINT")]
    endpoint: String,
    /// The collection's name
    #[arg(value_name = "NAME")]
    name: String,
    /// Its directory at the servers, as their users see it
    #[arg(value_name = "DIRECTORY", default_value = "/")]
    directory: String,
    /// Only those who may use it find it
    #[arg(long)]
    private: bool,
}

/// Makes a mapped collection.
pub async fn collection(session: &mut Session, args: &CollectionArgs, output: &mut Output) -> Result<u8, Trouble> {
    let id = session.id_of(&args.endpoint, Kind::Endpoint).await?;
    let wish = json!({"display_name": args.name, "base_path": args.directory, "public": !args.private});
    let made = session.post(&format!("/v2/whimbrel/endpoints/{id}/collections"), &wish).await?;
    made_id(&made, "collection_created", output)
}

/// Share a directory: a collection of its own, for those whom `permit` lets in; they act there in your name
#[derive(Debug, Args)]
pub struct ShareArgs {
    /// The directory, COLLECTION:PATH
    #[arg(value_name = "PLACE")]
    place: Spot,
    /// The new collection's name
    #[arg(value_name = "NAME")]
    name: String,
    /// What it is about
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Everybody finds it, though only those who are let in may use it
    #[arg(long)]
    public: bool,
}

/// Makes a guest collection.
pub async fn share(session: &mut Session, args: &ShareArgs, output: &mut Output) -> Result<u8, Trouble> {
    let host = session.id_of(&args.place.collection, Kind::Collection).await?;
    let wish = json!({
        "DATA_TYPE": "shared_endpoint", "host_endpoint": host, "host_path": args.place.path, "display_name": args.name,
        "description": args.description, "public": args.public,
    });
    let made = session.post("/v0.10/shared_endpoint", &wish).await?;
    made_id(&made, "collection_created", output)
}

/// Name a server that does not join by itself, as stock GridFTP servers do not (administrators of the service only)
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// The endpoint's name or id
    #[arg(value_name = "ENDPOINT")]
    endpoint: String,
    /// The server, as in gsiftp://dtn.example.org:2811
    #[arg(value_name = "URL")]
    url: String,
}

/// Names a server.
pub async fn server(session: &mut Session, args: &ServerArgs, output: &mut Output) -> Result<u8, Trouble> {
    let id = session.id_of(&args.endpoint, Kind::Endpoint).await?;
    let made = session.post(&format!("/v2/whimbrel/endpoints/{id}/servers"), &json!({"url": args.url})).await?;
    made_id(&made, "server_named", output)
}

/// Take a server away from an endpoint that is gone for good (administrators of the service only)
#[derive(Debug, Args)]
pub struct RemoveServerArgs {
    /// The endpoint's name or id
    #[arg(value_name = "ENDPOINT")]
    endpoint: String,
    /// The server, as `whimbrel endpoint servers` shows it; of several with one address those that are gone
    #[arg(value_name = "SERVER")]
    server: String,
}

/// Takes a server away.
pub async fn remove_server(session: &mut Session, args: &RemoveServerArgs, output: &mut Output) -> Result<u8, Trouble> {
    let id = session.id_of(&args.endpoint, Kind::Endpoint).await?;
    let list = session.get(&format!("/v0.10/endpoint/{id}/server_list")).await?;
    let named = |server: &&Value| [text(server, "uri"), text(server, "server_id")].contains(&args.server.as_str());
    let mut servers: Vec<&Value> = entries(&list).iter().filter(named).collect();
    if servers.len() > 1 {
        servers.retain(|server| server["is_connected"] != true);
    }
    if servers.is_empty() {
        let message = format!("{} has no such server that is gone: see whimbrel endpoint servers", args.endpoint);
        return Err(Trouble::Usage(message));
    }
    for server in servers {
        let Some(server) = server["server_id"].as_str() else {
            let message = format!("{} was made with {}: it goes with the endpoint only", args.endpoint, args.server);
            return Err(Trouble::Usage(message));
        };
        let answer = session.delete(&format!("/v2/whimbrel/endpoints/{id}/servers/{server}")).await?;
        output.outcome(&json!({"event": "server_removed", "id": server}), text(&answer, "message"));
    }
    Ok(exit::OK)
}

/// Make a token with which servers join an endpoint (administrators of the service only)
#[derive(Debug, Args)]
pub struct JoinTokenArgs {
    /// The endpoint's name or id
    #[arg(value_name = "ENDPOINT")]
    endpoint: String,
    /// How many servers may join with it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    uses: u32,
    /// How long it is good, as in 2h or 7d; at most 31 days
    #[arg(long = "for", value_name = "TIME", default_value = "1d", value_parser = parse_time)]
    time: Duration,
}

/// Makes a token to join.
pub async fn join_token(session: &mut Session, args: &JoinTokenArgs, output: &mut Output) -> Result<u8, Trouble> {
    let id = session.id_of(&args.endpoint, Kind::Endpoint).await?;
    let wish = json!({"uses": args.uses, "seconds": args.time.as_secs()});
    let made = session.post(&format!("/v2/whimbrel/endpoints/{id}/join_tokens"), &wish).await?;
    let (token, service) = (need(&made, "token")?, session.login().service.clone());
    let event = json!({"event": "join_token", "token": token, "uses": args.uses, "seconds": args.time.as_secs()});
    output.result(&event, token);
    let authorities = if session.login().authorities.is_some() { " --join-authorities FILE" } else { "" };
    output.say(&format!("on each server: whimbrel dtn --root DIRECTORY --join {service} --token {token}{authorities}"));
    output.say("as root also --join-account NAME: the account whose rights the service's users have there");
    Ok(exit::OK)
}

/// Change what is told of an endpoint or a collection, and its rules
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("change").multiple(true).required(true))]
pub struct UpdateArgs {
    /// Its name or id
    #[arg(value_name = "NAME")]
    name: String,
    /// Its new name
    #[arg(long, value_name = "TEXT", group = "change")]
    rename: Option<String>,
    /// What it is about; an empty text takes it away, here and below
    #[arg(long, value_name = "TEXT", group = "change")]
    description: Option<String>,
    /// Where to write to
    #[arg(long, value_name = "MAIL", group = "change")]
    contact: Option<String>,
    /// Words by which it is found, with commas
    #[arg(long, value_name = "WORDS", group = "change")]
    keywords: Option<String>,
    /// Where users begin, a path in the collection
    #[arg(long, value_name = "PATH", group = "change")]
    default_directory: Option<String>,
    /// Who finds it
    #[arg(long, value_name = "WHO", value_enum, group = "change")]
    seen_by: Option<SeenBy>,
    /// Whether data are always encrypted
    #[arg(long, value_name = "BOOL", group = "change")]
    force_encryption: Option<bool>,
    /// Whether copies are always verified
    #[arg(long, value_name = "BOOL", group = "change")]
    force_verify: Option<bool>,
    /// Whether copies are never verified
    #[arg(long, value_name = "BOOL", group = "change")]
    disable_verify: Option<bool>,
}

/// Who finds a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SeenBy {
    /// Everybody
    All,
    /// Those who may use it
    Users,
}

impl UpdateArgs {
    fn wish(&self) -> Map<String, Value> {
        let mut wish = Map::from_iter([("DATA_TYPE".to_owned(), json!("endpoint"))]);
        for (name, given) in [
            ("display_name", &self.rename),
            ("description", &self.description),
            ("contact_email", &self.contact),
            ("keywords", &self.keywords),
            ("default_directory", &self.default_directory),
        ] {
            given.iter().for_each(|text| drop(wish.insert(name.to_owned(), json!(text))));
        }
        for (name, given) in [
            ("public", self.seen_by.map(|who| who == SeenBy::All)),
            ("force_encryption", self.force_encryption),
            ("force_verify", self.force_verify),
            ("disable_verify", self.disable_verify),
        ] {
            given.into_iter().for_each(|on| drop(wish.insert(name.to_owned(), json!(on))));
        }
        wish
    }
}

/// Changes one.
pub async fn update(session: &mut Session, args: &UpdateArgs, output: &mut Output) -> Result<u8, Trouble> {
    let id = session.id_of(&args.name, Kind::Any).await?;
    let answer = session.put(&format!("/v0.10/endpoint/{id}"), &Value::Object(args.wish())).await?;
    output.outcome(&json!({"event": "updated", "id": id}), text(&answer, "message"));
    Ok(exit::OK)
}

/// Take an endpoint or a collection away; the data stay
#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// Its name or id
    #[arg(value_name = "NAME")]
    name: String,
}

/// Takes one away.
pub async fn delete(session: &mut Session, args: &DeleteArgs, output: &mut Output) -> Result<u8, Trouble> {
    let id = session.id_of(&args.name, Kind::Any).await?;
    let answer = session.delete(&format!("/v0.10/endpoint/{id}")).await?;
    output.outcome(&json!({"event": "deleted", "id": id}), text(&answer, "message"));
    Ok(exit::OK)
}
