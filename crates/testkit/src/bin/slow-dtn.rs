//! A data transfer node whose storage has a fixed rate: the server, movers and protocol of `whimbrel dtn` over a file
//! system that takes its time.
//!
//! `slow-dtn ADDRESS:PORT` serves `/` to anybody and prints `listening on ftp://ADDRESS:PORT/`. Rates are bytes per
//! second of this node, all its movers together; 0 or nothing is no limit:
//!
//! | variable | of |
//! | --- | --- |
//! | `SLOW_READ` | reading what is sent, and what was stored while it is proven |
//! | `SLOW_WRITE` | writing |
//! | `SLOW_PROOF=free` | nothing: reading back what was stored takes no time then |

use std::error::Error;
use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use whimbrel_connector::Connector;
use whimbrel_connector::faults::{Faulty, Operation, Script};
use whimbrel_connector::posix::{Posix, PosixOptions};
use whimbrel_dtn::front::gate::Gate;
use whimbrel_dtn::front::{DtnConfig, Listeners, Server};
use whimbrel_dtn::monitor::{self, keeper::Keeper, listeners::Bound};
use whimbrel_dtn::mover::message::DataSettings;
use whimbrel_dtn::mover::serve;
use whimbrel_engine::Fault;
use whimbrel_testkit::pace::Pace;

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> ExitCode {
    let result = match std::env::args().nth(1).as_deref() {
        // The server starts this program again for each account.
        Some("data-process") => data_process(),
        Some(address) => front(address),
        None => Err("usage: slow-dtn ADDRESS:PORT".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slow-dtn: {error}");
            ExitCode::FAILURE
        }
    }
}

fn front(address: &str) -> Outcome {
    let config = DtnConfig { listen: vec![address.to_owned()], anonymous: true, ..DtnConfig::default() };
    let program = std::env::current_exe()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (_never, drain) = watch::channel(false);
    runtime.block_on(async {
        let keeper = Keeper::new(&config, program)?;
        let server = Arc::new(Server::new(monitor::front_settings(&config)?, Gate::Here(Mutex::new(keeper)))?);
        let bound = Bound::new(&config)?;
        print!("{}", bound.announcement());
        let listeners = Listeners::new(bound.control, bound.tls, bound.nodes, bound.metrics)?;
        Ok(listeners.serve(server, drain).await?)
    })
}

fn data_process() -> Outcome {
    let stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    // Inherited from an asynchronous parent.
    stream.set_nonblocking(false)?;
    Ok(serve(stream, slow)?)
}

/// The file system, paced.
fn slow(settings: &DataSettings) -> Result<Arc<dyn Connector>, Fault> {
    let root = Path::new(OsStr::from_bytes(&settings.root));
    let script = Script::new();
    let (read, write) = (Pace::new(rate("SLOW_READ")), Pace::new(rate("SLOW_WRITE")));
    let free_proof = std::env::var_os("SLOW_PROOF").is_some_and(|word| word == "free");
    script.meter(move |operation, bytes| match operation {
        Operation::ReadBack if free_proof => {}
        Operation::WriteAt => write.pass(bytes),
        _ => read.pass(bytes),
    });
    Ok(Arc::new(Faulty::new(Posix::open(root, PosixOptions::default())?, script)))
}

fn rate(variable: &str) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
