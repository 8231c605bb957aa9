//! A look at the files of a collection, and small changes: `whimbrel endpoint ls`, `stat`, `mkdir` and `mv`.

use clap::Args;
use serde_json::{Value, json};
use whimbrel_engine::summary::exit;
use whimbrel_engine::units::ByteCount;

use super::super::for_each_code;
use crate::managed::names::{Kind, Spot};
use crate::managed::refusal::Trouble;
use crate::managed::{Session, entries, show, text, with_query};
use crate::output::Output;

/// List files of a collection
#[derive(Debug, Args)]
pub struct LsArgs {
    /// Directories, COLLECTION:PATH; without a path the collection's default directory
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<Spot>,
    /// Show mode, owner, size and time of each
    #[arg(short, long)]
    long: bool,
    /// Show names that begin with a dot, too
    #[arg(short, long)]
    all: bool,
    /// Show sizes with units
    #[arg(short = 'H', long)]
    human: bool,
}

/// The path of an operation on a collection.
async fn operation(session: &mut Session, spot: &Spot, name: &str) -> Result<String, Trouble> {
    let id = session.id_of(&spot.collection, Kind::Collection).await?;
    Ok(format!("/v0.10/operation/endpoint/{id}/{name}"))
}

/// Does something with each place; what fails is told, and the others go on.
async fn each(
    session: &mut Session,
    places: &[Spot],
    output: &mut Output,
    act: impl AsyncFn(&mut Session, &Spot, &mut Output) -> Result<(), Trouble>,
) -> Result<u8, Trouble> {
    let mut codes = Vec::new();
    for spot in places {
        codes.push(match act(session, spot, output).await {
            Ok(()) => exit::OK,
            Err(trouble) => output.trouble(&trouble),
        });
    }
    Ok(for_each_code(&codes))
}

/// Lists directories.
pub async fn ls(session: &mut Session, args: &LsArgs, output: &mut Output) -> Result<u8, Trouble> {
    let many = args.places.len() > 1;
    each(session, &args.places, output, async |session, spot, output| {
        let fields = [("path", spot.path.as_str()), ("show_hidden", if args.all { "1" } else { "0" })];
        let path = operation(session, spot, "ls").await?;
        let list = session.get(&with_query(&path, &fields)).await?;
        if many {
            output.say(&format!("{}:{}", spot.collection, text(&list, "path")));
        }
        for file in entries(&list) {
            let line = if args.long { long_line(file, args.human) } else { name(file) };
            output.result(&event(file), &line);
        }
        Ok(())
    })
    .await
}

fn event(file: &Value) -> Value {
    let mut event = file.clone();
    event["event"] = json!("entry");
    event
}

fn name(file: &Value) -> String {
    let slash = if text(file, "type") == "dir" { "/" } else { "" };
    format!("{}{slash}", text(file, "name"))
}

fn long_line(file: &Value, human: bool) -> String {
    let size = show::number(file, "size");
    let size = if human { ByteCount(size).to_string() } else { size.to_string() };
    let known = |field: &str| file[field].as_str().unwrap_or("-").to_owned();
    let link = file["link_target"].as_str().map_or_else(String::new, |target| format!(" -> {target}"));
    let (mode, user, group) = (known("permissions"), known("user"), known("group"));
    format!("{mode:>4} {user:>8} {group:>8} {size:>12} {:>20} {}{link}", show::time(file, "last_modified"), name(file))
}

/// Describe files of a collection
#[derive(Debug, Args)]
pub struct StatArgs {
    /// What to describe, COLLECTION:PATH
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<Spot>,
}

/// Describes files.
pub async fn stat(session: &mut Session, args: &StatArgs, output: &mut Output) -> Result<u8, Trouble> {
    each(session, &args.places, output, async |session, spot, output| {
        let file = described(session, spot).await?;
        let own = |field: &str| text(&file, field).to_owned();
        let facts = [
            ("kind", own("type")),
            ("size", show::number(&file, "size").to_string()),
            ("modified", show::time(&file, "last_modified")),
            ("mode", own("permissions")),
            ("owner", own("user")),
            ("link to", own("link_target")),
        ];
        output.result(&event(&file), &show::facts(&format!("{}:{}", spot.collection, spot.path), &facts));
        Ok(())
    })
    .await
}

/// The `file` document of a place.
///
/// # Errors
/// As all questions; 404 for what is not there.
pub async fn described(session: &mut Session, spot: &Spot) -> Result<Value, Trouble> {
    let path = operation(session, spot, "stat").await?;
    session.get(&with_query(&path, &[("path", &spot.path)])).await
}

/// Make directories in a collection
#[derive(Debug, Args)]
pub struct MkdirArgs {
    /// Directories to make, COLLECTION:PATH
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<Spot>,
}

/// Makes directories.
pub async fn mkdir(session: &mut Session, args: &MkdirArgs, output: &mut Output) -> Result<u8, Trouble> {
    each(session, &args.places, output, async |session, spot, output| {
        let path = operation(session, spot, "mkdir").await?;
        session.post(&path, &json!({"DATA_TYPE": "mkdir", "path": spot.path})).await?;
        output.outcome(&json!({"event": "directory_made", "path": spot.path}), &format!("made {}", spot.path));
        Ok(())
    })
    .await
}

/// Rename a file or a directory of a collection
#[derive(Debug, Args)]
pub struct MvArgs {
    /// What to rename, COLLECTION:PATH
    #[arg(value_name = "PLACE")]
    place: Spot,
    /// Its new path, in the same collection
    #[arg(value_name = "PATH")]
    to: String,
}

/// Renames something.
pub async fn mv(session: &mut Session, args: &MvArgs, output: &mut Output) -> Result<u8, Trouble> {
    let path = operation(session, &args.place, "rename").await?;
    let wish = json!({"DATA_TYPE": "rename", "old_path": args.place.path, "new_path": args.to});
    session.post(&path, &wish).await?;
    let event = json!({"event": "renamed", "from": args.place.path, "to": args.to});
    output.outcome(&event, &format!("{} -> {}", args.place.path, args.to));
    Ok(exit::OK)
}
