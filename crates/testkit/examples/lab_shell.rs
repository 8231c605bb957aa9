//! A shell command in the laboratory: two servers of ours, a path between them, and a client beside neither.
//!
//! `lab_shell RTT_MS RATE_MBIT LOSS CONTROL COMMAND...` starts `whimbrel dtn` on the hosts `src` and `dst` and runs the
//! command with `sh -c` on the host `client`. The command finds the servers' URLs in `SRC` and `DST`, and the ids of
//! their processes in `SRC_PID` and `DST_PID` (`nsenter -n -t $SRC_PID ss -ti` looks at the source's sockets).
//! `WHIMBREL` names the program; default: the one beside this example's build folder.

use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use whimbrel_testkit::lab::{Host, Lab, Link};
use whimbrel_testkit::peers::Daemon;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rtt, rate, loss, control, script @ ..] = &arguments[..] else {
        return Err("usage: lab_shell RTT_MS RATE_MBIT LOSS CONTROL COMMAND...".into());
    };
    let link = Link::new().rtt(Duration::from_secs_f64(rtt.parse::<f64>()? / 1e3)).rate_mbit(rate.parse()?);
    let lab = Lab::triangle(link.loss(loss.parse()?))?;
    lab.set_congestion_control_everywhere(control)?;
    let (source, destination) = (server(lab.host("src"))?, server(lab.host("dst"))?);
    let mut command = lab.host("client").command("sh");
    command.arg("-c").arg(script.join(" ")).env("WHIMBREL", program()?);
    for (name, (daemon, url)) in [("SRC", &source), ("DST", &destination)] {
        command.env(name, url).env(format!("{name}_PID"), daemon.id().to_string());
    }
    Ok(if command.status()?.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn program() -> Result<PathBuf, Box<dyn Error>> {
    let given = std::env::var_os("WHIMBREL").map(PathBuf::from);
    let beside = || Ok(std::env::current_exe()?.with_file_name("../whimbrel"));
    given.map_or_else(beside, Ok)
}

/// A server of this host's whole tree for everybody, and its URL without a path.
fn server(host: &Host) -> Result<(Daemon, String), Box<dyn Error>> {
    let mut command = Command::new(program()?);
    command.args(["dtn", "--listen", &format!("{}:0", host.addr()), "--root", "/", "--anonymous"]);
    host.adopt(&mut command);
    let url = |line: &str| Some(line.strip_prefix("listening on ")?.trim_end_matches('/').to_owned());
    Ok(Daemon::start(command, Duration::from_secs(20), url)?)
}
