//! `whimbrel probe`: measures a path and its ends, and says what bounds it.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use whimbrel_dtn::client::local::LocalOptions;
use whimbrel_dtn::client::options::Place;
use whimbrel_dtn::client::probe::{ProbeEvent, ProbeOptions, probe};
use whimbrel_engine::Fault;
use whimbrel_engine::probe::{Facts, Host, Measured, Measurement, Part, Report, share_of_processors};
use whimbrel_engine::summary::exit;
use whimbrel_engine::units::{ByteCount, ByteRate, HumanDuration};
use whimbrel_proto::op::Bounds;
use whimbrel_proto::spent::is_congestion;

use super::{block_on, finish, local_options, log_in, usage};
use crate::args::{Global, HELP_END};
use crate::output::Output;
use crate::place;

/// Measure a path between two directories, and say what to change
///
/// Measures the network alone, reading at the source alone, writing at the destination alone, and all together, each for
/// as long as --time says; then asks both hosts about themselves and names what bounds a copy on this path, with the
/// commands that change it. What is written goes to files without a name, which vanish by themselves. Servers of other
/// kinds measure less; the report says what.
#[derive(Debug, Args)]
#[command(after_help = HELP_END, after_long_help = long_help())]
pub struct ProbeArgs {
    /// Directory where data would come from, or a file to read
    #[arg(value_name = "SRC", value_parser = place::parser())]
    source: Place,
    /// Directory where data would go
    #[arg(value_name = "DST", value_parser = place::parser())]
    destination: Place,
    /// Longest time for each of the four measurements, seconds
    #[arg(short, long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    time: f64,
    /// Most bytes for each measurement, as in 500M; what is read and written takes that much space for a moment
    #[arg(short, long, value_name = "BYTES", default_value = "4GiB", value_parser = bytes)]
    size: ByteCount,
    /// Data channels
    #[arg(short, long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=128))]
    parallelism: u16,
    /// Congestion control to measure with, such as bbr or cubic [default: the sending host's]
    #[arg(long, value_name = "NAME", value_parser = congestion)]
    congestion: Option<String>,
}

fn long_help() -> String {
    format!(
        "EXAMPLES\n  \
         Between two servers:           whimbrel probe a.example.org:/data b.example.org:/archive\n  \
         From here, shortly:            whimbrel probe . dtn.example.org:/data --time 2\n  \
         What would BBR do:             whimbrel probe a.example.org:/data b.example.org:/archive --congestion bbr\n\n{HELP_END}"
    )
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("a measurement takes from 0.1 to 60 seconds".to_owned()),
    }
}

fn bytes(text: &str) -> Result<ByteCount, String> {
    match text.parse::<ByteCount>() {
        Ok(size) if size.0 >= 1 << 20 => Ok(size),
        Ok(_) => Err("a measurement needs at least 1 MiB".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The name of a congestion control.
pub fn congestion(text: &str) -> Result<String, String> {
    let name = text.to_ascii_lowercase();
    is_congestion(&name)
        .then_some(name)
        .ok_or_else(|| "a name as the kernel writes it, such as bbr or cubic".to_owned())
}

/// Runs the command.
pub fn run(mut args: ProbeArgs, global: &Global) -> ExitCode {
    if args.source.target.is_none() && args.destination.target.is_none() {
        return usage("probe needs a server at one end at least, as in dtn.example.org:/data");
    }
    let local = match local_options() {
        Ok(local) => local,
        Err(fault) => return usage(&fault.to_string()),
    };
    let mut output = Output::new(global);
    let result = log_in([&mut args.source, &mut args.destination], global)
        .and_then(|()| block_on(measure(&args, global, local, &mut output)))
        .map(|report| show(&mut output, &report));
    finish(global, result)
}

async fn measure(args: &ProbeArgs, global: &Global, local: LocalOptions, output: &mut Output) -> Result<Report, Fault> {
    let time = Duration::from_millis((args.time * 1000.0) as u64);
    let options = ProbeOptions {
        bounds: Bounds { bytes: args.size.0, time },
        parallelism: args.parallelism,
        congestion: args.congestion.clone(),
        session: global.session(),
        local,
    };
    probe(&args.source, &args.destination, &options, &mut |event| tell(output, &event)).await
}

fn tell(output: &mut Output, event: &ProbeEvent<'_>) {
    match event {
        ProbeEvent::Began(part) => {
            output.news(&json!({ "event": "measuring", "part": part }), &format!("measuring: {part}"));
        }
        ProbeEvent::Progress(part, bytes, time) => {
            let seconds = time.as_secs_f64();
            let json = json!({ "event": "progress", "part": part, "bytes": bytes, "seconds": seconds });
            let text = format!("measuring: {part}, {} in {}", ByteCount(*bytes), HumanDuration(*time));
            output.news(&json, &text);
        }
        ProbeEvent::Measured(one) => {
            let rate = one.measured.as_ref().map(|measured| measured.rate);
            let json = json!({ "event": "measured", "part": one.part, "rate": rate, "note": one.note });
            output.news(&json, &format!("measured:  {}", line(one)));
        }
    }
}

/// Prints the report; 1 if a part could not be measured.
fn show(output: &mut Output, report: &Report) -> u8 {
    let whole = report.measurements.iter().all(|one| one.measured.is_some());
    let code = if whole { exit::OK } else { exit::SOME_FAILED };
    output.end_news();
    let mut json = json!(report);
    json["event"] = "probe".into();
    json["exit_code"] = code.into();
    output.result(&json, text(report).trim_end());
    code
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for (word, host) in [("from", &report.source), ("to", &report.destination)] {
        text += &format!("{word:<5} {}\n", host_line(host));
    }
    text.push('\n');
    for one in &report.measurements {
        text += &format!("  {}\n", line(one));
        if let (Some(note), true) = (&one.note, one.measured.is_some()) {
            text += &format!("  {:<18} ({note})\n", "");
        }
    }
    text.push('\n');
    match &report.verdict {
        Some(verdict) => text += &format!("{}.\n", verdict.text),
        None => text += "Too little could be measured to say what bounds this path.\n",
    }
    if !report.advice.is_empty() {
        text += "\nWhat to change:\n";
    }
    for one in &report.advice {
        text += &format!("  {}: {}\n      {}\n", one.end, one.problem, one.change);
    }
    text
}

fn host_line(host: &Host) -> String {
    if let Some(note) = &host.note {
        return format!("{} ({note})", host.place);
    }
    let fact = |name: &str| host.facts.get(name).map(String::as_str);
    let number = |name: &str| Measured::number(&host.facts, name);
    let mut parts = Vec::new();
    parts.extend(fact("fs.kind").map(|kind| {
        let free = number("fs.free").map_or(String::new(), |free| format!(" with {} free", ByteCount(free)));
        format!("{kind}{free}")
    }));
    parts.extend(number("host.cores").map(|cores| {
        let part = share_of_processors(&host.facts).map_or(String::new(), |(share, _)| format!("{share} of "));
        format!("{part}{cores} core{}", if cores == 1 { "" } else { "s" })
    }));
    parts.extend(fact("host.kernel").map(|kernel| format!("Linux {kernel}")));
    parts.extend(fact("sysctl.net.ipv4.tcp_congestion_control").map(str::to_owned));
    parts.extend(fact("limit.open_files").map(|files| format!("{files} open files")));
    format!("{}: {}", host.place, parts.join(", "))
}

fn line(one: &Measurement) -> String {
    let Some(measured) = &one.measured else {
        return format!("{:<18} not measured: {}", one.part, one.note.as_deref().unwrap_or("no reason is known"));
    };
    let took = HumanDuration(Duration::from_secs_f64(measured.seconds.max(0.0)));
    let mut line = format!(
        "{:<18} {:>10}  {} in {took}",
        one.part,
        ByteRate(measured.rate).to_string(),
        ByteCount(measured.bytes)
    );
    if one.part == Part::Network {
        line += &path(&measured.source);
    }
    line
}

/// What the sender says of the path.
fn path(facts: &Facts) -> String {
    let number = |name: &str| Measured::number(facts, name);
    let mut parts = Vec::new();
    parts.extend(number("min_rtt_micros").map(|rtt| format!("{:.1} ms away", rtt as f64 / 1000.0)));
    parts.extend(number("channels").map(|channels| format!("{channels} channels")));
    parts.extend(facts.get("congestion").cloned());
    parts.extend(number("mtu").filter(|mtu| *mtu > 0).map(|mtu| format!("packets of {mtu} bytes")));
    if let (Some(sent), Some(resent)) = (number("sent").filter(|sent| *sent > 0), number("resent")) {
        parts.push(format!("{:.3} % sent again", resent as f64 / sent as f64 * 100.0));
    }
    if parts.is_empty() { String::new() } else { format!("; {}", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_taken_in_sensible_limits_only() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        assert_eq!(bytes("64MB").map(|size| size.0), Ok(64_000_000));
        for bad in ["0", "61", "x", "nan"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        assert!(bytes("1000").is_err() && bytes("x").is_err());
        assert_eq!(congestion("BBR").as_deref(), Ok("bbr"));
        assert!(congestion("b b").is_err());
    }

    #[test]
    fn what_was_not_measured_is_said_in_the_table() {
        let note = Some("no way".to_owned());
        let all = vec![Measurement { part: Part::SourceRead, measured: None, note }];
        let text = text(&Report::conclude(Host::default(), Host::default(), all));
        assert!(text.contains("source read        not measured: no way"), "{text}");
        assert!(text.contains("Too little could be measured"), "{text}");
    }
}
