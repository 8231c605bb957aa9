//! One module for each command.

pub mod audit;
pub mod cert;
pub mod check;
pub mod cksum;
pub mod completions;
pub mod cp;
pub mod dtn;
pub mod endpoint;
pub mod login;
pub mod ls;
pub mod man;
pub mod matrix;
pub mod mkdir;
pub mod mv;
pub mod orchestrate;
pub mod overview;
pub mod probe;
pub mod rm;
pub mod rule;
pub mod serve;
pub mod stat;
pub mod task;
pub mod user;

use std::process::ExitCode;

use whimbrel_dtn::client::authorities_directory;
use whimbrel_dtn::client::end::End;
use whimbrel_dtn::client::local::LocalOptions;
use whimbrel_dtn::client::options::Place;
use whimbrel_engine::summary::exit;
use whimbrel_engine::{Fault, FaultCode, Side};

use crate::args::{Cli, Command, Global};
use crate::login::Logins;
use crate::managed::refusal::Trouble;
use crate::output::{Output, lines};

/// Runs the command; its exit code.
pub fn run(cli: Cli) -> ExitCode {
    if only_prints(&cli.command) {
        lines::only_printing();
    }
    lines::settled(run_command(cli))
}

/// Whether there is nothing to finish when nobody takes what the command prints.
fn only_prints(command: &Command) -> bool {
    match command {
        Command::Ls(_) | Command::Stat(_) | Command::Cksum(_) | Command::Check(_) | Command::Probe(_) => true,
        Command::Whoami(_) | Command::Audit(_) | Command::Overview(_) | Command::Completions(_) => true,
        Command::Cp(args) => args.only_plans(),
        Command::Dtn(args) => args.only_prints(),
        Command::Task(args) => args.only_asks(),
        Command::Endpoint(args) => args.only_asks(),
        Command::Matrix(args) => args.only_asks(),
        Command::Rule(args) => args.only_asks(),
        Command::User(args) => args.only_asks(),
        Command::Cert(args) => args.only_shows(),
        _ => false,
    }
}

fn run_command(cli: Cli) -> ExitCode {
    let global = &cli.global;
    match cli.command {
        Command::Cp(args) => cp::run(*args, global),
        Command::Ls(args) => ls::run(args, global),
        Command::Stat(args) => stat::run(args, global),
        Command::Mkdir(args) => mkdir::run(args, global),
        Command::Mv(args) => mv::run(args, global),
        Command::Rm(args) => rm::run(args, global),
        Command::Cksum(args) => cksum::run(args, global),
        Command::Check(args) => check::run(args, global),
        Command::Probe(args) => probe::run(args, global),
        Command::Dtn(args) => dtn::run(*args),
        Command::Serve(args) => serve::run(*args),
        Command::Orchestrate(args) => orchestrate::run(args, global),
        Command::Login(args) => login::run(args, global),
        Command::Logout(args) => login::run_logout(args, global),
        Command::Whoami(args) => login::run_whoami(args, global),
        Command::Task(args) => task::run(*args, global),
        Command::Endpoint(args) => endpoint::run(*args, global),
        Command::Audit(args) => audit::run(args, global),
        Command::Matrix(args) => matrix::run(args, global),
        Command::Overview(args) => overview::run(args, global),
        Command::Rule(args) => rule::run(*args, global),
        Command::User(args) => user::run(args, global),
        Command::Cert(args) => cert::run(*args, global),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
        Command::DataProcess(args) => dtn::run_data_process(args),
        Command::DtnFront => dtn::run_front(),
        Command::FetchKeys => dtn::run_fetch_keys(),
        Command::DtnMember => dtn::run_member(),
        Command::DtnDoor => dtn::run_door(),
        Command::DtnCaller => dtn::run_caller(),
        Command::DtnRelay => dtn::run_relay(),
        Command::LfsHelper { program } => dtn::run_lfs_helper(&program),
    }
}

/// Runs client code to its end; threads that still wait for name service are left behind.
fn block_on<T>(future: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Fault::from_io(error, "start the runtime").side(Side::Us))?;
    let result = runtime.block_on(future);
    runtime.shutdown_background();
    result
}

/// Runs client code that prints its own results; a fault is printed here.
fn finish(global: &Global, result: Result<u8, Fault>) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(fault) => ExitCode::from(Output::new(global).fault(&fault)),
    }
}

/// Runs a command of the managed service; what ends it is printed here.
fn managed(global: &Global, command: impl AsyncFnOnce(&mut Output) -> Result<u8, Trouble>) -> ExitCode {
    let mut output = Output::new(global);
    let ended = match block_on(async { Ok(command(&mut output).await) }) {
        Ok(ended) => ended,
        Err(fault) => Err(fault.into()),
    };
    ExitCode::from(ended.unwrap_or_else(|trouble| output.trouble(&trouble)))
}

/// Says what is wrong with the command line in a way the parser cannot.
fn usage(text: &str) -> ExitCode {
    eprintln!("error: {text}\n\nFor more information, try '--help'.");
    ExitCode::from(exit::USAGE)
}

/// The end a place is at, for questions and small commands: they never wait for data connections of servers.
async fn open(place: &Place, global: &Global) -> Result<End, Fault> {
    End::open(place.target.as_ref(), &global.session(), &LocalOptions::default()).await
}

/// Completes the login of every place.
fn log_in<'a>(places: impl IntoIterator<Item = &'a mut Place>, global: &Global) -> Result<(), Fault> {
    let mut logins = Logins::new(&global.login);
    places.into_iter().try_for_each(|place| logins.complete(place))
}

/// Settings of this host's data connections, from the variables that sites set for this purpose.
fn local_options() -> Result<LocalOptions, Fault> {
    Ok(LocalOptions { authorities: authorities_directory(), ..LocalOptions::from_environment()? })
}

/// Tries every place; the exit code is the one of the failures if they agree, 1 if they do not.
fn for_each_code(codes: &[u8]) -> u8 {
    let mut failures = codes.iter().filter(|code| **code != exit::OK);
    match failures.next() {
        None => exit::OK,
        Some(first) if codes.len() == 1 || (failures.all(|code| code == first) && !codes.contains(&exit::OK)) => *first,
        Some(_) => exit::SOME_FAILED,
    }
}

fn not_found(place: &Place, side: Side) -> Fault {
    Fault::new(FaultCode::NotFound, "describe").on_path(&place.path).side(side)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_gives_its_own_code_and_mixed_ones_give_1() {
        assert_eq!(for_each_code(&[0, 0]), 0);
        assert_eq!(for_each_code(&[4]), 4);
        assert_eq!(for_each_code(&[3, 3]), 3);
        assert_eq!(for_each_code(&[3, 0]), 1);
        assert_eq!(for_each_code(&[3, 4]), 1);
    }
}
