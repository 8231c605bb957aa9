//! Results as tables and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::Measured;
use crate::Outcome;

use crate::case::{LINK, Results, Row, Sample};
use crate::machine::Machine;
use crate::options::{CLAIM_ROUNDS, Section};
use crate::versus::Comparison;

/// Title and conditions of a section.
fn heading(section: Section) -> (&'static str, &'static str) {
    match section {
        Section::Mem => (
            "Loopback, memory to memory",
            "\
Third-party between two servers. Page state: devices, and a hot file on huge pages of tmpfs; nothing is written to
storage. Every byte passes a read and a write.",
        ),
        Section::File => (
            "Loopback, file to file",
            "\
Third-party, tmpfs with huge pages. Page state: source hot; the destination is removed before each copy, so its pages
are allocated anew, from among twice as many that were in use a moment before. The peers' client verifies nothing: its
verified copy is `-fast` and then `CKSM MD5` at both ends at once. Without a choice, whimbrel takes the fastest checksum
that both ends have; \"MD5\" is like for like.",
        ),
        Section::Small => (
            "Lots of small files",
            "\
Third-party on loopback, tmpfs with ordinary pages. Page state: source hot; destination an empty directory, 512 MiB of
pages that were in use a moment before. `cp -r` on the same folders, without any network, takes the floor's place.",
        ),
        Section::Encrypted => (
            "Loopback, protected",
            "\
Third-party between two servers, `/dev/zero` to `/dev/null`. Ours: logins over TLS, data channels under TLS 1.3 with a key from
the transfer's nonce. The peers: logins with certificates (GSI), data channels with `-dcpriv`. All front and data processes of
ours are confined. What is asked of us: 1.7 times as fast as the peers at no more than 0.75 of their processor time. Where data stay
in clear and only our logins are protected: nineteen twentieths of what is asked against the peers elsewhere, and of the speed with
logins in clear for one file; a run of small files is over in the time of some ten logins, so there it is only shown.",
        ),
        Section::Wan => (
            "Wide area, emulated",
            "\
Client, source and destination on three hosts of the laboratory, every pair joined by such a path (MTU 9000, a queue of
one bandwidth-delay product); `/dev/zero` to `/dev/null`. The floor is iperf3 with one stream from source to
destination, by its own figure: the transfer without set-up. Processor time is that of the programs, not of the links. Where it
says cubic, programs may choose cubic and reno only, and a run of ours in which `ss -ti` sees another counts for nothing.",
        ),
        Section::Path => (
            "Wide area, proven",
            "\
The same laboratory, 75 ms and 1 Gbit/s. Files on tmpfs with huge pages, source hot, from the start of the command to
its end, with no option but that an unproven copy fails: connecting, planning, moving and reading back are in the time.
The link's row is bytes by rate, which nothing can reach; iperf3's is the transfer alone. Where it says cubic, programs may choose
cubic and reno only, and a run of ours in which `ss -ti` sees another counts for nothing.",
        ),
        Section::Neighbour => (
            "A fair neighbour",
            "\
A stranger's plain connection (iperf3, one stream) from source to destination, watched for half a minute: alone, beside other
connections that have begun long before, and beside copies of a file larger than that. Times are what the stranger needs for
100 MiB. Under cubic one that comes late has less than its equal share for long, so what is fair is told by the rows of iperf3
in the same run, not by the time alone: \"times as fast\" is what the stranger gains by having whimbrel beside it and not the other.",
        ),
    }
}

/// A section of the page.
pub fn section(done: &Measured) -> String {
    let (title, conditions) = heading(done.section);
    let mut text = format!("## {title}\n\n{conditions}\n");
    for case in &done.cases {
        text += &format!("\n### {}\n\n{}\n{}", sentence(&case.name), rows(case), ratios(case));
    }
    for failure in &done.failures {
        let first = failure.lines().next().unwrap_or_default();
        write!(text, "\nNot measured: {first}\n").expect("strings grow");
    }
    text
}

/// The medians of all contenders.
fn rows(case: &Results) -> String {
    let unit = if case.rows.iter().any(|row| row.trips().is_some()) {
        "round trips"
    } else if case.files > 1 {
        "files/s"
    } else {
        "MB/s"
    };
    let header = ["", "seconds", unit, "CPU s/GB", "servers' peak MiB"].map(String::from);
    let mut lines = vec![header];
    for row in &case.rows {
        lines.push([row.name.into(), format!("{:.3}", row.seconds()), speed(case, row), cost(case, row), peak(row)]);
    }
    table(&lines)
}

fn speed(case: &Results, row: &Row) -> String {
    match row.trips() {
        Some(trips) => format!("{trips:.1}"),
        None if case.files > 1 => format!("{:.0}", case.files as f64 / row.seconds()),
        None => format!("{:.0}", case.bytes as f64 / 1e6 / row.seconds()),
    }
}

/// Processor time per byte means nothing for a single one.
fn cost(case: &Results, row: &Row) -> String {
    if case.bytes < 1 << 20 { "-".into() } else { format!("{:.2}", row.cpu_seconds() / (case.bytes as f64 / 1e9)) }
}

fn peak(row: &Row) -> String {
    if row.peak_bytes == 0 { "-".into() } else { format!("{:.0}", row.peak_bytes as f64 / f64::from(1 << 20)) }
}

/// The median ratios of one case, with their spread.
fn ratios(case: &Results) -> String {
    let header =
        ["ours", "against", "times as fast", "from - to", "CPU, ours by theirs", "more CPU s/GB", "asked", "verdict"];
    let mut lines = vec![header.map(String::from)];
    for comparison in &case.comparisons {
        let range = |pick: fn(f64, f64) -> f64, start| comparison.speed.iter().copied().fold(start, pick);
        lines.push([
            comparison.versus.ours.into(),
            comparison.versus.peer.into(),
            format!("{:.2}", comparison.median_speed()),
            format!("{:.2} - {:.2}", range(f64::min, f64::INFINITY), range(f64::max, 0.0)),
            cpu(case, comparison, Comparison::median_cpu),
            cpu(case, comparison, Comparison::median_added),
            asked(comparison),
            comparison.verdict().into(),
        ]);
    }
    let pairs = case.rows.first().map_or(0, |row| row.samples.len());
    let (before, after) = case.load;
    let claim = if (pairs as u32) < CLAIM_ROUNDS { "; too few for a claim" } else { "" };
    format!("{}\nMedians of {pairs} pairs{claim}; load average {before:.1} before, {after:.1} after.\n", table(&lines))
}

/// Means nothing for a single byte, like the cost itself, nor beside a link, which has no processor.
fn cpu(case: &Results, comparison: &Comparison, figure: fn(&Comparison) -> f64) -> String {
    let nothing = case.bytes < 1 << 20 || comparison.versus.peer == LINK;
    if nothing { "-".into() } else { format!("{:.2}", figure(comparison)) }
}

fn asked(comparison: &Comparison) -> String {
    let asked = comparison.versus.asked();
    if asked.is_empty() { "-".into() } else { asked }
}

/// Each comparison that misses what is asked of it.
pub fn missed(measured: &[Measured]) -> Vec<String> {
    let cases = measured.iter().flat_map(|done| &done.cases);
    let all = cases.flat_map(|case| case.comparisons.iter().map(move |comparison| (case, comparison)));
    let missed = all.filter(|(_, comparison)| comparison.is_missed());
    let line = |(case, comparison): (&Results, &Comparison)| {
        let (versus, speed) = (comparison.versus, comparison.median_speed());
        let (cpu, added) = (comparison.median_cpu(), comparison.median_added());
        let figures = format!("{speed:.2} times, CPU {cpu:.2}, {added:+.2} CPU s/GB");
        format!("{}: {} against {}: {figures}; asked {}", case.name, versus.ours, versus.peer, versus.asked())
    };
    missed.map(line).collect()
}

/// A Markdown table with aligned columns, which reads as well in a terminal.
fn table<const N: usize>(lines: &[[String; N]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0).max(3);
    let row = |line: &[String; N]| {
        let cells = line.iter().enumerate().map(|(column, cell)| match column {
            0 => format!("{cell:<0$}", width(0)),
            _ => format!("{cell:>0$}", width(column)),
        });
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let rule = (0..N).map(|column| match column {
        0 => "-".repeat(width(0)),
        _ => "-".repeat(width(column) - 1) + ":",
    });
    let rule = format!("| {} |\n", rule.collect::<Vec<_>>().join(" | "));
    let (header, body) = lines.split_first().expect("a table has a header");
    row(header) + &rule + &body.iter().map(row).collect::<String>()
}

fn sentence(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Everything, with every sample.
pub fn json(machine: &Machine, measured: &[Measured]) -> Outcome<String> {
    let sections: Vec<Value> = measured.iter().map(json_section).collect();
    let machine = json!({
        "cores": machine.here.cores, "processor": machine.here.processor, "memory_gib": machine.memory_gib,
        "kernel": machine.here.kernel, "congestion_control": machine.congestion_control, "date": machine.here.date,
        "commit": machine.here.commit, "url_copy": machine.url_copy,
    });
    Ok(serde_json::to_string_pretty(&json!({ "machine": machine, "sections": sections }))? + "\n")
}

fn json_section(done: &Measured) -> Value {
    let cases: Vec<Value> = done.cases.iter().map(json_case).collect();
    json!({ "name": done.section.name(), "cases": cases, "not_measured": done.failures })
}

fn json_case(case: &Results) -> Value {
    let sample = |sample: &Sample| json!({ "seconds": sample.wall.as_secs_f64(), "cpu_seconds": sample.cpu.as_secs_f64(), "round_trips": sample.trips });
    let row = |row: &Row| {
        let samples: Vec<Value> = row.samples.iter().map(sample).collect();
        json!({
            "name": row.name, "command": row.command, "median_seconds": row.seconds(),
            "median_cpu_seconds": row.cpu_seconds(), "servers_peak_pss_bytes": row.peak_bytes, "samples": samples,
        })
    };
    let comparison = |comparison: &Comparison| {
        json!({
            "ours": comparison.versus.ours, "peer": comparison.versus.peer,
            "asked": comparison.versus.asked(), "is_missed": comparison.is_missed(),
            "median_speed_ratio": comparison.median_speed(), "speed_ratios": comparison.speed,
            "median_cpu_ratio": comparison.median_cpu(), "cpu_ratios": comparison.cpu,
            "median_added_cpu_seconds_per_gb": comparison.median_added(),
        })
    };
    json!({
        "name": case.name, "bytes": case.bytes, "files": case.files, "load_average": [case.load.0, case.load.1],
        "contenders": case.rows.iter().map(row).collect::<Vec<_>>(),
        "comparisons": case.comparisons.iter().map(comparison).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versus::Versus;
    use std::time::Duration;

    fn measured(speed: f64) -> Measured {
        let sample =
            |seconds: f64| Sample { wall: Duration::from_secs_f64(seconds), cpu: Duration::from_secs(1), trips: None };
        let row =
            |name, seconds| Row { name, command: name.into(), samples: vec![sample(seconds)], peak_bytes: 5 << 20 };
        let versus = Versus::new("whimbrel", "guc").as_fast(2.0);
        let comparison = Comparison { versus, speed: vec![speed], cpu: vec![0.5], added: vec![-0.1] };
        let rows = vec![row("whimbrel", 1.0), row("guc", speed)];
        let case = Results {
            name: "a case".into(),
            bytes: 2_000_000_000,
            files: 1,
            rows,
            comparisons: vec![comparison],
            load: (1.0, 2.0),
        };
        Measured {
            section: Section::Mem,
            skip: Vec::new(),
            cases: vec![case],
            failures: vec!["other: failed\nbecause".into()],
        }
    }

    #[test]
    fn a_section_has_medians_ratios_and_what_failed() {
        let text = section(&measured(3.0));
        for part in [
            "### A case",
            "| whimbrel |   1.000 | 2000 |     0.50 |                 5 |",
            "kept",
            "2.00 times",
            "Not measured: other: failed\n",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(text.contains("too few for a claim"), "{text}");
    }

    #[test]
    fn what_is_missed_is_said_with_its_figures() {
        assert!(section(&measured(1.9)).contains("**missed**"));
        let missed = missed(&[measured(1.9), measured(3.0)]);
        assert_eq!(missed, ["a case: whimbrel against guc: 1.90 times, CPU 0.50, -0.10 CPU s/GB; asked 2.00 times"]);
    }

    #[test]
    fn json_has_every_sample() {
        let value = json_section(&measured(3.0));
        assert_eq!(value["cases"][0]["contenders"][1]["samples"][0]["seconds"], 3.0);
        assert_eq!(value["cases"][0]["comparisons"][0]["median_speed_ratio"], 3.0);
    }
}
