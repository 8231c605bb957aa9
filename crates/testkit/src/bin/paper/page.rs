//! `docs/reference/paper-results.md` and its figures.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use whimbrel_testkit::measure::Machine;

use crate::Outcome;
use crate::claims::Claim;
use crate::figures::Figure;
use crate::results::{Results, Value};
use crate::scaling::{PAIRS, WRITE_RATE};
use crate::setting::{CHUNKS, FEW, FILES, Route, Setting};

/// Folder of the figures, beside the page.
const FOLDER: &str = "paper-results";

const HEAD: &str = "\
# The paper's Figures 6 to 10, reproduced

Written by `cargo xtask paper --write`; `--json FILE` keeps every time. The paper is *Globus Service Enhancements for
Exascale Applications and Facilities*; sentences of it are told in our words. The command fails when one of the
inequalities below does not hold. The paper seldom gives a number that can be checked at another scale, so the bounds are
ours, set with the figures of first runs in view: they say what must stay so, and are no independent test. Where a
weakness that the paper reports is not one of Whimbrel's, or what it reports is not seen, it says **Ours differs**.

## The laboratory

Three facilities, A, N and O (the paper's ALCF, NERSC and OLCF), have eight data transfer nodes each: `slow-dtn`, which is
the server, the movers and the protocol of `whimbrel dtn` over storage of a fixed rate. `whimbrel cp` copies between them
from a fourth host with fixed settings: 8 sessions, one for each pair of nodes (64 in the paper), MD5, every node named in
the URL. Hosts are network namespaces; each pair has a link of its own with a tenth of the paper's round trip (5 ms A-N,
2.5 ms A-O, 6.5 ms N-O, 4 ms to the client), 2 Gbit/s, cubic. Time is that of the whole command, from its start to its
exit, logins included.

**Why storage is slowed in the server.** Figures 7 and 8 are about reading back, so reading back must be as slow as in the
paper, and each node must be slow by itself while all share one file, as clients of a parallel file system do. A throttled
disk is shared by all nodes, and so is its page cache: one node's sync writes and waits for what others wrote. A slow link
for each node would slow the transfer, not the proof. So a connector wraps the files (in memory) and makes every read and
write wait until it is due at the node's rate. The rates are meant to keep two processor cores from being what bounds; on a
busy machine copies in chunks, the smallest above all, still feel it, which is what their error bars show.

**Scale.** Every task moves a 4000th of the paper's 500 GB. A chunk is a 500th, so that each of 8 movers gets as many as each
of 64 did. Storage reads 1.61 times as fast as it writes: the ratio of moving (1247 s) to checking (773 s) of the paper's
one file from A to N. Nodes of A, N and O store 12, 10 and 14 MB/s. Times shrink by about 150, so round trips and what a
command costs weigh more here than there. Sizes of chunks are told as in the paper.

**Unproven chunks** do not exist in Whimbrel: what restarts a chunked file is the journal of what was proven. *Without the
proof's time* such a copy goes to nodes that read back in no time; whole files are copied with `--no-verify`.
";

/// The page.
pub fn text(machine: &Machine, results: &Results, claims: &[Claim]) -> String {
    let mut text = format!("{HEAD}\n{machine}\n");
    let counts = || results.seconds.values().map(Vec::len);
    let (least, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    let more = if most > least {
        format!(", of up to {most} where they differed by more than a tenth")
    } else {
        String::new()
    };
    writeln!(
        text,
        "Medians of {least} copies{more}: the machine is shared, and other\n\
         work only makes copies slower. Error bars are one standard deviation to either side. Every copy of the first round\n\
         was compared byte for byte."
    )
    .expect("strings grow");
    if results.scale.divisor() != 4000 {
        writeln!(text, "A quick run, 1:{}: nothing is judged by it.", results.scale.divisor()).expect("strings grow");
    }
    text += &format!("\n## Claims\n\n{}", claim_table(claims));
    for (title, pictures, body) in sections(results) {
        text += &format!("\n## {title}\n\n");
        for (name, words) in pictures {
            writeln!(text, "![{words}]({FOLDER}/{name}.svg)\n").expect("strings grow");
        }
        text += &body;
    }
    for failure in &results.failures {
        let first = failure.lines().next().unwrap_or_default();
        write!(text, "\nNot measured: {first}\n").expect("strings grow");
    }
    text
}

/// A heading, its pictures with their words, and a table.
type Section = (&'static str, Vec<(&'static str, &'static str)>, String);

fn sections(results: &Results) -> Vec<Section> {
    vec![
        ("Figure 6: size of chunks", vec![("figure-6", "Rate by size of chunks")], chunk_size(results)),
        (
            "Figure 7: what the proof costs",
            vec![
                ("figure-7-whole", "Rate with and without the proof, whole files"),
                ("figure-7-chunks", "Rate with and without the proof, in chunks"),
            ],
            proof(results),
        ),
        (
            "Figure 8: moving and proving",
            vec![("figure-8", "Time of moving and of the proof"), ("figure-8-proof", "Time that the proof adds")],
            proof_time(results),
        ),
        (
            "Figure 9: number of files",
            vec![
                ("figure-9-whole", "Rate by number of files, whole"),
                ("figure-9-chunks", "Rate by number of files, in chunks"),
            ],
            files(results),
        ),
        ("Figure 10: with and without chunks", vec![("figure-10", "Rate with and without chunks")], chunks(results)),
        ("One file over 1 to 4 pairs of nodes", vec![("scaling", "Rate by pairs of nodes")], scaling(results)),
    ]
}

fn claim_table(claims: &[Claim]) -> String {
    let mut rows = vec![["figure", "the paper", "checked here", "must be", "is", ""].map(String::from).to_vec()];
    for claim in claims {
        let figure = if claim.figure == 0 { "-".into() } else { claim.figure.to_string() };
        let says = match claim.differs {
            "" => claim.says.to_owned(),
            why => format!("{}. **Ours differs**: {why}", claim.says),
        };
        let verdict = if claim.holds() { "holds" } else { "**does not hold**" };
        rows.push(vec![
            figure,
            says,
            claim.checked.into(),
            claim.bound.to_string(),
            format!("{:.2}", claim.value),
            verdict.into(),
        ]);
    }
    table(&rows, 3)
}

/// Markdown; columns from `numbers` on are aligned to the right.
fn table(rows: &[Vec<String>], numbers: usize) -> String {
    let line = |row: &Vec<String>| format!("| {} |\n", row.join(" | "));
    let columns = rows.first().map_or(0, Vec::len);
    let rule: Vec<&str> = (0..columns).map(|column| if column < numbers { "---" } else { "---:" }).collect();
    let mut lines = rows.iter().map(line);
    lines.next().unwrap_or_default() + &format!("| {} |\n", rule.join(" | ")) + &lines.collect::<String>()
}

fn shown(value: Option<Value>) -> String {
    value.map_or("-".into(), |Value { median, deviation }| format!("{median:.1} ± {deviation:.1}"))
}

fn times(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.2}"))
}

/// One row for each route and number of files.
fn rows(header: &[&str], routes: &[Route], files: &[u32], cells: impl Fn(Route, u32) -> Vec<String>) -> String {
    let head = ["route", "files"].iter().chain(header).map(|&word| word.to_owned()).collect();
    let mut lines: Vec<Vec<String>> = vec![head];
    for &route in routes {
        for &number in files {
            lines.push([route.to_string(), number.to_string()].into_iter().chain(cells(route, number)).collect());
        }
    }
    table(&lines, 1)
}

fn chunk_size(results: &Results) -> String {
    let header = CHUNKS.map(|chunk| format!("{chunk} MB"));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let rates = rows(&header, &Route::MAIN, &FEW, |route, files| {
        let setting = |chunk| Setting { chunk: Some(chunk), ..Setting::whole(route, files) };
        CHUNKS.iter().map(|&chunk| shown(results.rate(setting(chunk)))).collect()
    });
    format!("MB/s, proven. From 2000 MB on each of 20 files is shorter than two chunks, and moves whole.\n\n{rates}")
}

fn proof(results: &Results) -> String {
    let header = ["whole, without", "with", "kept", "in chunks, without", "with", "kept"];
    let rates = rows(&header, &Route::ALL, &FEW, |route, files| {
        let both = [Setting::whole(route, files), Setting::chunked(route, files)];
        let cells = |setting: Setting| {
            [shown(results.rate(setting.unproven())), shown(results.rate(setting)), times(results.kept(setting))]
        };
        both.into_iter().flat_map(cells).collect()
    });
    format!("MB/s; *kept* is the rate with the proof by that without.\n\n{rates}")
}

fn proof_time(results: &Results) -> String {
    let header = ["whole, moving", "proof adds", "in chunks, moving", "proof adds"];
    let seconds = rows(&header, &Route::MAIN, &FEW, |route, files| {
        let both = [Setting::whole(route, files), Setting::chunked(route, files)];
        let moving = |setting: Setting| times(results.time(setting.unproven()).map(|value| value.median));
        both.into_iter().flat_map(|setting| [moving(setting), times(results.proof_time(setting))]).collect()
    });
    format!("Seconds.\n\n{seconds}")
}

fn files(results: &Results) -> String {
    let rates = rows(&["whole", "by one file", "in chunks", "by one file"], &Route::ALL, &FILES, |route, files| {
        let cells = |of: fn(Route, u32) -> Setting| {
            [shown(results.rate(of(route, files))), times(results.gain(of(route, files), of(route, 1)))]
        };
        [cells(Setting::whole), cells(Setting::chunked)].concat()
    });
    format!("MB/s, proven.\n\n{rates}")
}

fn chunks(results: &Results) -> String {
    let rates = rows(&["whole", "in chunks", "gain"], &Route::ALL, &FEW, |route, files| {
        let (whole, chunked) = (Setting::whole(route, files), Setting::chunked(route, files));
        vec![shown(results.rate(whole)), shown(results.rate(chunked)), times(results.gain(chunked, whole))]
    });
    format!("MB/s, proven.\n\n{rates}")
}

fn scaling(results: &Results) -> String {
    let mut lines = vec![["pairs", "MB/s", "by one pair", "of what the storage takes"].map(String::from).to_vec()];
    for pairs in 1..=PAIRS {
        let (rate, one) = (results.rate_over(pairs), results.rate_over(1));
        let by = rate.zip(one).map(|(rate, one)| rate.median / one.median);
        let part = rate.map(|rate| rate.median / (f64::from(pairs) * WRITE_RATE as f64 / 1e6));
        lines.push(vec![pairs.to_string(), shown(rate), times(by), times(part)]);
    }
    let (megabytes, each) = (results.scale.scaling_bytes / 1_000_000, WRITE_RATE / 1_000_000);
    format!(
        "A file of {megabytes} MB from A to N, proven; each node stores {each} MB/s and reads 1.61 times that.\n\n{}",
        table(&lines, 0)
    )
}

/// Puts the page and its figures into the reference.
pub fn write(reference: &Path, page: &str, figures: &[Figure]) -> Outcome<()> {
    let folder = reference.join(FOLDER);
    fs::create_dir_all(&folder)?;
    for Figure { name, svg } in figures {
        fs::write(folder.join(format!("{name}.svg")), svg)?;
    }
    Ok(fs::write(reference.join("paper-results.md"), page)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::Scale;

    fn machine() -> Machine {
        let word = || "x".to_owned();
        Machine { cores: 2, processor: word(), kernel: word(), date: word(), commit: "abc".into() }
    }

    #[test]
    fn the_page_has_every_figure_and_says_what_failed() {
        let mut results = Results::new(Scale::FULL);
        results.seconds.insert(Setting::whole(Route::A2N, 1), vec![20.0, 25.0, 31.25]);
        results.pairs.insert(1, vec![16.0]);
        results.failures.push("N2A: refused\nbecause".into());
        let page = text(&machine(), &results, &[]);
        for part in ["commit abc", "5.0 ± 0.9", "| 1 | 30.0 ± 0.0 | 1.00 | 1.00 |", "Not measured: N2A: refused\n"] {
            assert!(page.contains(part), "{part} is missing in\n{page}");
        }
        for figure in crate::figures::all(&results) {
            assert!(page.contains(&format!("({FOLDER}/{}.svg)", figure.name)), "{}", figure.name);
        }
    }
}
