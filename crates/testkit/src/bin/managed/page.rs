//! The figures as a section of the page.

use whimbrel_testkit::measure::{Machine, median};

use crate::stock::Stock;
use crate::tasks::{FIRST_BYTE, Figures, First, MEMORY, Many, RATE, START, Start};

const HEAD: &str = "\
## What the managed service costs

Written by `cargo xtask managed --measure --files 1000000 --write`. One service with SQLite, one client over HTTPS that keeps its
connection, two data transfer nodes that joined and handle data as `nobody`, confined; all on one host, files on tmpfs, every file
verified. Times begin with the submission and end as the client sees it, which looks each millisecond.
";

/// The section.
pub fn text(machine: &Machine, figures: &Figures) -> String {
    let parts = [
        Some(HEAD.to_owned()),
        figures.first.as_ref().map(first),
        figures.start.as_ref().map(start),
        figures.many.as_ref().map(many),
        figures.stock.as_ref().map(stock),
        Some(format!(
            "Measured on {}, {} processors ({}), Linux {}, at commit {}.\n",
            machine.date, machine.cores, machine.processor, machine.kernel, machine.commit
        )),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

fn first(first: &First) -> String {
    let row = |name: &str, seconds: &[f64]| {
        let longest = seconds.iter().copied().fold(0.0, f64::max);
        format!("| {name} | {:.1} | {:.1} |\n", median(seconds.iter().copied()) * 1e3, longest * 1e3)
    };
    format!(
        "### A file of one byte\n\n| until | median, ms | longest, ms |\n| --- | ---: | ---: |\n{}{}{}\n\
         {} tasks, one after the other; asked for are {:.0} ms to the first byte. The very first task, with the servers' keys still to \
         fetch, had its file there after {:.0} ms.\n",
        row("the submission is answered", &first.answered),
        row("the file is there, verified, under its name", &first.there),
        row("the task has succeeded", &first.ended),
        first.there.len(),
        FIRST_BYTE * 1e3,
        first.cold * 1e3,
    )
}

fn start(start: &Start) -> String {
    let rows = start.samples.iter().map(|(bytes, seconds)| format!("| {} | {seconds:.3} |\n", bytes >> 20));
    format!(
        "### Start-up cost of a task\n\n| MiB | seconds |\n| ---: | ---: |\n{}\n\
         Medians of tasks of one file. The line through them begins at **{:.3} s** (asked for are {START} s; the paper's service had 2.3 s) \
         and rises by {:.0} MB/s.\n",
        rows.collect::<String>(),
        start.line.start,
        1.0 / start.line.per_byte.max(f64::MIN_POSITIVE) / 1e6,
    )
}

fn many(many: &Many) -> String {
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    format!(
        "### A task of {} files of 1 KiB\n\n| | measured | asked for |\n| --- | ---: | ---: |\n\
         | files a second | {:.0} | at least {RATE:.0} |\n\
         | memory of the service, MB | {:.0} | at most {:.0} |\n\
         | memory of a server, MB | {:.0} | at most {:.0} |\n\n\
         {:.1} s in all; memory is the highest proportional set size seen.\n",
        many.files,
        f64::from(many.files) / many.seconds,
        megabytes(many.service),
        megabytes(MEMORY),
        megabytes(many.server),
        megabytes(MEMORY),
        many.seconds,
    )
}

fn stock(stock: &Stock) -> String {
    let row = |name: &str, seconds: &[f64]| {
        let middle = median(seconds.iter().copied());
        format!("| {name} | {middle:.2} | {:.0} |\n", stock.bytes as f64 / middle / 1e6)
    };
    format!(
        "### A file of {} GiB between stock servers\n\n| | seconds | MB/s |\n| --- | ---: | ---: |\n{}{}{}{}\n\
         Medians of {} rounds, the four in turn. Two `globus-gridftp-server` at each end share a directory; a task is divided over all four, \
         `globus-url-copy` goes from one to one. All log in with a proxy, and data channels prove whose they are. Times of tasks begin with \
         the submission. On one host four servers share its processors: more hosts would have their own.\n",
        stock.bytes >> 30,
        row("task over all four, verified", &stock.verified),
        row("`globus-url-copy -fast -verify-checksum`, one pair, MD5 too", &stock.url_copy_verified),
        row("task over all four, not verified", &stock.plain),
        row("`globus-url-copy -fast`, one pair, not verified", &stock.url_copy),
        stock.verified.len(),
    )
}
