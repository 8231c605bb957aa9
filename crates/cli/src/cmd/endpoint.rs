//! `whimbrel endpoint`: endpoints and collections of the managed service, and who may use them.

mod access;
mod credential;
pub mod files;
mod make;
mod view;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::managed;
use crate::args::Global;
use crate::managed::{EXIT_CODES, ServiceArgs, Session};

/// Endpoints and collections of the managed service: make them, look at them, let others in
///
/// An endpoint is a set of servers under one name. A collection is a directory of theirs that people name in tasks. A shared directory is
/// a collection of its own, made by anybody who may use the one it lies in. Everything is named by its name or its id.
#[derive(Debug, Args)]
#[command(after_help = format!("EXAMPLES\n  \
    A cluster's servers, and their data:       whimbrel endpoint create Cluster\n  \
                                               whimbrel endpoint collection Cluster \"Cluster data\" /data\n  \
                                               whimbrel endpoint join-token Cluster --uses 2\n  \
    then on each server:                       whimbrel dtn --join URL --token TOKEN\n  \
    Stock GridFTP servers, and a login there:  whimbrel endpoint create Grid --server gsiftp://dtn1.example.org --server gsiftp://dtn2.example.org\n  \
                                               whimbrel endpoint collection Grid \"Grid data\" /data\n  \
                                               whimbrel endpoint credential \"Grid data\"\n  \
    What there is:                             whimbrel endpoint list cluster\n  \
    What is in it:                             whimbrel endpoint ls -l \"Cluster data:/run7\"\n  \
    Share a directory with a colleague:        whimbrel endpoint share \"Cluster data:/run7\" \"Run 7\"\n  \
                                               whimbrel endpoint permit \"Run 7:/\" --user anna@example.org\n\n{EXIT_CODES}"))]
pub struct EndpointArgs {
    #[command(flatten)]
    service: ServiceArgs,
    #[command(subcommand)]
    command: EndpointCommand,
}

#[derive(Debug, Subcommand)]
enum EndpointCommand {
    List(view::ListArgs),
    Show(view::ShowArgs),
    Servers(view::ServersArgs),
    Create(make::CreateArgs),
    Collection(make::CollectionArgs),
    Share(make::ShareArgs),
    Server(make::ServerArgs),
    RemoveServer(make::RemoveServerArgs),
    JoinToken(make::JoinTokenArgs),
    Credential(credential::CredentialArgs),
    Update(make::UpdateArgs),
    Delete(make::DeleteArgs),
    Permissions(access::ListArgs),
    Permit(access::PermitArgs),
    Forbid(access::ForbidArgs),
    Ls(files::LsArgs),
    Stat(files::StatArgs),
    Mkdir(files::MkdirArgs),
    Mv(files::MvArgs),
}

impl EndpointArgs {
    /// Whether nothing changes by it.
    pub fn only_asks(&self) -> bool {
        use EndpointCommand::{List, Ls, Permissions, Servers, Show, Stat};
        matches!(self.command, List(_) | Show(_) | Servers(_) | Permissions(_) | Ls(_) | Stat(_))
    }
}

/// Runs the command.
pub fn run(args: EndpointArgs, global: &Global) -> ExitCode {
    managed(global, async |output| {
        let mut session = Session::open(&args.service)?;
        let session = &mut session;
        match args.command {
            EndpointCommand::List(args) => view::list(session, &args, output).await,
            EndpointCommand::Show(args) => view::show(session, &args, output).await,
            EndpointCommand::Servers(args) => view::servers(session, &args, output).await,
            EndpointCommand::Create(args) => make::create(session, &args, output).await,
            EndpointCommand::Collection(args) => make::collection(session, &args, output).await,
            EndpointCommand::Share(args) => make::share(session, &args, output).await,
            EndpointCommand::Server(args) => make::server(session, &args, output).await,
            EndpointCommand::RemoveServer(args) => make::remove_server(session, &args, output).await,
            EndpointCommand::JoinToken(args) => make::join_token(session, &args, output).await,
            EndpointCommand::Credential(args) => credential::credential(session, &args, output).await,
            EndpointCommand::Update(args) => make::update(session, &args, output).await,
            EndpointCommand::Delete(args) => make::delete(session, &args, output).await,
            EndpointCommand::Permissions(args) => access::list(session, &args, output).await,
            EndpointCommand::Permit(args) => access::permit(session, &args, output).await,
            EndpointCommand::Forbid(args) => access::forbid(session, &args, output).await,
            EndpointCommand::Ls(args) => files::ls(session, &args, output).await,
            EndpointCommand::Stat(args) => files::stat(session, &args, output).await,
            EndpointCommand::Mkdir(args) => files::mkdir(session, &args, output).await,
            EndpointCommand::Mv(args) => files::mv(session, &args, output).await,
        }
    })
}
