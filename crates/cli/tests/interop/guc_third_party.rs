//! `globus-url-copy` moving data from server to server, ours with theirs both ways and ours with ours.

use std::fs;
use std::path::Path;

use whimbrel_testkit::peers::Tool;

use crate::case::{Case, Program};
use crate::cutter::{Cut, Cutter};
use crate::guc_client;
use crate::support::{Context, Kind, Place, Server, Size, TEN, copies, url_at, url_copy};

/// Which servers, and the name of that for the table.
type Pair = (Kind, Kind, &'static str);

const PAIRS: [Pair; 3] = [
    (Kind::Ours, Kind::Theirs, "ours to theirs"),
    (Kind::Theirs, Kind::Ours, "theirs to ours"),
    (Kind::Ours, Kind::Ours, "ours to ours"),
];
/// Options tried with 10 MB beside those that are tried with one server.
const OPTIONS: [&str; 5] = [
    "-fast -stripe -p 2 -sbs 65536",
    "-stripe -sbs 0",
    "-fast -verify-checksum -checksum-alg SHA256",
    "-ipv6",
    "-ipv6 -fast",
];
/// Options for trees.
const TREES: [&str; 9] =
    ["", "-fast", "-p 4", "-pp", "-cc 4", "-fast -pp", "-fast -pp -cc 4", "-fast -pp -p 4", "-fast -stripe"];
/// Options with `-rst`, what is cut, and at which end.
const RESTARTS: [(&str, Cut, End, &str); 9] = [
    ("", Cut::Data, End::Destination, "data connection reset"),
    ("", Cut::Control, End::Source, "source's control connection cut"),
    ("", Cut::Control, End::Destination, "destination's control connection cut"),
    ("-fast", Cut::Data, End::Destination, "data connection reset"),
    ("-fast", Cut::Control, End::Source, "source's control connection cut"),
    ("-fast", Cut::Control, End::Destination, "destination's control connection cut"),
    ("-fast -p 4", Cut::Data, End::Destination, "data connections reset"),
    ("-fast", Cut::AfterMarker, End::Destination, "destination cut after a marker"),
    ("-fast -p 4", Cut::AfterMarker, End::Destination, "destination cut after a marker"),
];

/// The end of a transfer at which something is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Source,
    Destination,
}

/// The cases of this module.
pub fn cases(cases: &mut Vec<Case>) {
    for pair in PAIRS {
        for size in Size::ALL {
            for options in ["", "-fast", "-fast -p 4"] {
                cases.push(one_file(pair, size, options));
            }
        }
        let options = guc_client::OPTIONS.iter().chain(&OPTIONS);
        cases.extend(options.map(|options| one_file(pair, Size::Ten, options)));
        cases.extend(TREES.iter().map(|options| tree(pair, options)));
        cases.extend((0..4).map(|level| sync(pair, level)));
        cases.push(part(pair, "-off 1000000 -len 500000", 1_000_000, 500_000));
        cases.push(part(pair, "-fast -p 2 -off 1000000 -len 500000", 1_000_000, 500_000));
        cases.push(part(pair, "-fast -off 9000000", 9_000_000, TEN - 9_000_000));
        cases.extend(RESTARTS.iter().map(|(options, cut, end, word)| restart(pair, options, *cut, *end, word)));
    }
}

fn copy(options: &str, from: String, to: String) -> Tool {
    url_copy().args(options.split_whitespace()).args([from, to])
}

fn case(pair: Pair, option: impl Into<String>, run: impl Fn(&Context) + Send + Sync + 'static) -> Case {
    Case::new(Program::UrlCopy, pair.2, option, run)
}

fn servers(pair: Pair) -> (Server, Server) {
    (Server::start(pair.0), Server::start(pair.1))
}

fn one_file(pair: Pair, size: Size, options: &'static str) -> Case {
    let large = size == Size::Large;
    let run = move |context: &Context| {
        let ((source, destination), place) = (servers(pair), Place::new());
        let (from, to) = (context.file(size), place.path("copy"));
        copies(copy(options, source.url(&from), destination.url(&to)), &from, &to);
    };
    let described = if options.is_empty() { "no option" } else { options };
    case(pair, format!("{described}, {}", size.name()), run).nightly(large && options != "-fast").large(large)
}

fn tree(pair: Pair, options: &'static str) -> Case {
    case(pair, format!("-r -cd {options}").trim_end().to_owned(), move |context| {
        let ((source, destination), place) = (servers(pair), Place::new());
        let (from, to) = (context.tree(), place.directory("to").join("made/here"));
        let options = format!("-r -cd {options}");
        copies(copy(&options, source.directory_url(&from), destination.directory_url(&to)), &from, &to);
    })
}

fn sync(pair: Pair, level: u32) -> Case {
    let run = move |_: &Context| {
        let ((source, destination), place) = (servers(pair), Place::new());
        let stale = crate::support::Stale::new(&place, "to");
        let options = format!("-r -sync -sync-level {level}");
        let urls = (source.directory_url(&stale.from), destination.directory_url(&stale.to));
        let run = copy(&options, urls.0, urls.1).run_ok();
        assert_eq!(stale.copied(), [true, level >= 1, level >= 2, level == 3], "missing, size, newer, content\n{run}");
    };
    case(pair, format!("-r -sync -sync-level {level}"), run).proves("exactly what that level sees is copied")
}

fn part(pair: Pair, options: &'static str, offset: u64, length: u64) -> Case {
    let run = move |context: &Context| {
        let ((source, destination), place) = (servers(pair), Place::new());
        let (from, to) = (context.file(Size::Ten), place.path("part"));
        let run = copy(options, source.url(&from), destination.url(&to)).run_ok();
        assert_part(&from, &to, offset, length, &run.to_string());
    };
    case(pair, options, run).proves("same bytes at the same place")
}

/// Panics unless `part` ends with that range of `whole`, at its place.
pub fn assert_part(whole: &Path, part: &Path, offset: u64, length: u64, said: &str) {
    let (whole, part) = (fs::read(whole).unwrap(), fs::read(part).unwrap());
    let (start, end) = (usize::try_from(offset).unwrap(), usize::try_from(offset + length).unwrap());
    assert_eq!(part.len(), end, "{said}");
    assert!(part[start..] == whole[start..end], "other bytes\n{said}");
}

fn restart(pair: Pair, options: &'static str, cut: Cut, end: End, word: &'static str) -> Case {
    let run = move |context: &Context| {
        let ((source, destination), place) = (servers(pair), Place::new());
        // The address of data is the destination's, so the destination's relay is the one that sees them.
        let mut data = Cutter::to(destination.address(), cut);
        let control = (end == End::Source).then(|| data.also_before(source.address()));
        let (from, to) = (context.file(Size::Ten), place.path("copy"));
        let from_url = control.map_or_else(|| source.url(&from), |address| url_at(address, &from));
        let options = format!("-rst -rst-interval 1 {options}");
        let run = copies(copy(&options, from_url, url_at(data.address(), &to)), &from, &to);
        assert!(data.was_cut(), "nothing was cut\n{run}");
        if cut == Cut::AfterMarker {
            let ranges = |command: &String| command.strip_prefix("REST 0-").is_some_and(|end| end != "0");
            assert!(data.commands().iter().any(ranges), "it began again: {:?}\n{run}", data.commands());
        }
    };
    let proves = if cut == Cut::AfterMarker { "same bytes, and only the rest is asked for" } else { "same bytes" };
    case(pair, format!("-rst {options}").trim_end().to_owned() + ", " + word, run).proves(proves).in_clear()
}
