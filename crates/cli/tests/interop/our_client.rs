//! `whimbrel cp` between files of its own host and the real server, and from server to server.

use whimbrel_testkit::peers::Tool;

use crate::case::{Case, Program};
use crate::cutter::{Cut, Cutter};
use crate::guc_third_party::assert_part;
use crate::support::{Context, Kind, Place, Server, Size, Stale, copies, url_at, whimbrel_cp};

/// Where one end of a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Here,
    On(Kind),
}

/// The ends of a copy, and the name of that for the table.
type Ends = (End, End, &'static str);

const OURS: End = End::On(Kind::Ours);
const THEIRS: End = End::On(Kind::Theirs);
const ENDS: [Ends; 8] = [
    (THEIRS, End::Here, "theirs to local"),
    (End::Here, THEIRS, "local to theirs"),
    (OURS, THEIRS, "ours to theirs"),
    (THEIRS, OURS, "theirs to ours"),
    (THEIRS, THEIRS, "theirs to theirs"),
    (OURS, End::Here, "ours to local"),
    (End::Here, OURS, "local to ours"),
    (OURS, OURS, "ours to ours"),
];
/// Options tried with 10 MB.
const OPTIONS: [&str; 7] = [
    "-p 4",
    "--stripe",
    "--stripe -p 2",
    "--lockstep",
    "--no-verify",
    "--checksum sha256 --verify require",
    "--checksum adler32 --verify require -p 4",
];
/// Options for trees.
const TREES: [&str; 6] = [
    "",
    "--concurrency 4",
    "--pipeline 20",
    "--pipeline 1 --concurrency 1",
    "--lockstep",
    "-p 4 --concurrency 2 --pipeline 10",
];

/// The cases of this module.
pub fn cases(cases: &mut Vec<Case>) {
    for ends in ENDS {
        for size in Size::ALL {
            cases.push(one_file(ends, size, ""));
        }
        cases.push(one_file(ends, Size::Large, "-p 4"));
        cases.extend(OPTIONS.iter().map(|options| one_file(ends, Size::Ten, options)));
        cases.extend(TREES.iter().map(|options| tree(ends, options)));
        cases.extend(
            ["exists", "size", "mtime", "checksum"].iter().enumerate().map(|(at, level)| sync(ends, at, level)),
        );
        cases.push(part(ends, "--offset 1000000 --length 500000"));
        cases.push(part(ends, "-p 2 --offset 1000000 --length 500000"));
        cases.push(list_of_pairs(ends));
        // Fixed: where a busy machine makes a server look far, none of many connections may carry enough to be cut.
        for (options, cut, word) in [
            ("-p 1", Cut::Data, "data connection reset"),
            ("-p 1", Cut::DataClosed, "data connection closed"),
            ("-p 1", Cut::Control, "control connection cut"),
            ("-p 4", Cut::Data, "data connections reset"),
            ("-p 4", Cut::Control, "control connection cut"),
        ] {
            cases.push(restart(ends, options, cut, word));
        }
    }
}

/// The servers of a copy; an end on this host has none.
struct Servers {
    source: Option<Server>,
    destination: Option<Server>,
}

impl Servers {
    fn start(ends: Ends) -> Self {
        let start = |end| match end {
            End::Here => None,
            End::On(kind) => Some(Server::start(kind)),
        };
        Self { source: start(ends.0), destination: start(ends.1) }
    }

    fn from(&self, path: &std::path::Path) -> String {
        place_on(self.source.as_ref(), path)
    }

    fn to(&self, path: &std::path::Path) -> String {
        place_on(self.destination.as_ref(), path)
    }
}

fn place_on(server: Option<&Server>, path: &std::path::Path) -> String {
    server.map_or_else(|| path.to_string_lossy().into_owned(), |server| server.url(path))
}

fn case(ends: Ends, option: impl Into<String>, run: impl Fn(&Context) + Send + Sync + 'static) -> Case {
    Case::new(Program::Whimbrel, ends.2, option, run)
}

fn described(options: &str) -> String {
    if options.is_empty() { "cp".into() } else { format!("cp {options}") }
}

/// The program with options as they stand in the table.
fn cp(options: &str) -> Tool {
    whimbrel_cp(options.split_whitespace())
}

fn one_file(ends: Ends, size: Size, options: &'static str) -> Case {
    let large = size == Size::Large;
    let run = move |context: &Context| {
        let (servers, place) = (Servers::start(ends), Place::new());
        let (from, to) = (context.file(size), place.path("copy"));
        let run = copies(cp(options).args([servers.from(&from), servers.to(&to)]), &from, &to);
        assert_eq!(run.stderr_text().contains("1 verified"), options != "--no-verify", "{run}");
    };
    let proves = if options == "--no-verify" { "same bytes" } else { "same bytes, verified" };
    let case = case(ends, format!("{}, {}", described(options), size.name()), run).proves(proves);
    case.nightly(large && !options.is_empty()).large(large)
}

fn tree(ends: Ends, options: &'static str) -> Case {
    case(ends, described(format!("-r {options}").trim_end()), move |context| {
        let (servers, place) = (Servers::start(ends), Place::new());
        let (from, to) = (context.tree(), place.directory("to").join("here"));
        let tool = cp(options).arg("-r").args([servers.from(&from), servers.to(&to)]);
        copies(tool, &from, &to);
    })
}

fn sync(ends: Ends, level: usize, name: &'static str) -> Case {
    let run = move |_: &Context| {
        let (servers, place) = (Servers::start(ends), Place::new());
        let stale = Stale::new(&place, "to/from");
        let tool = whimbrel_cp(["-r", "--sync", name]);
        let run = tool.args([servers.from(&stale.from), servers.to(&place.path("to"))]).run_ok();
        // Checksums alone decide at the last level, and find the older one different as well.
        let expected = [true, level >= 1, level >= 2, level == 3];
        assert_eq!(stale.copied(), expected, "missing, size, older, content\n{run}");
    };
    case(ends, format!("cp -r --sync {name}"), run).proves("exactly what that level sees is copied")
}

fn part(ends: Ends, options: &'static str) -> Case {
    let run = move |context: &Context| {
        let (servers, place) = (Servers::start(ends), Place::new());
        let (from, to) = (context.file(Size::Ten), place.path("part"));
        let run = cp(options).args([servers.from(&from), servers.to(&to)]).run_ok();
        assert_part(&from, &to, 1_000_000, 500_000, &run.to_string());
    };
    case(ends, described(options), run).proves("same bytes at the same place")
}

fn list_of_pairs(ends: Ends) -> Case {
    case(ends, "cp --list -", move |context| {
        let (servers, place) = (Servers::start(ends), Place::new());
        let sizes = [Size::Zero, Size::One, Size::Ten];
        let pair = |size: Size| {
            let (from, to) = (context.file(size), place.path(size.name()));
            format!("\"{}\" \"{}\"\n", servers.from(&from), servers.to(&to))
        };
        let run = whimbrel_cp(["--list", "-"]).input(sizes.map(pair).concat()).run_ok();
        for size in sizes {
            let differences = whimbrel_testkit::dataset::Compare::contents();
            let found = differences.run(&context.file(size), &place.path(size.name()));
            assert!(found.unwrap_or_else(|error| panic!("{error}\n{run}")).is_empty(), "{run}");
        }
    })
}

/// Cuts a copy at the server that data connections go to: the destination of two servers, or the only one.
fn restart(ends: Ends, options: &'static str, cut: Cut, word: &'static str) -> Case {
    let run = move |context: &Context| {
        let (servers, place) = (Servers::start(ends), Place::new());
        let (from, to) = (context.file(Size::Ten), place.path("copy"));
        let cut_server = servers.destination.as_ref().or(servers.source.as_ref()).expect("one end is a server");
        let cutter = Cutter::to(cut_server.address(), cut);
        let (from_url, to_url) = match servers.destination {
            Some(_) => (servers.from(&from), url_at(cutter.address(), &to)),
            None => (url_at(cutter.address(), &from), servers.to(&to)),
        };
        let run = copies(cp(options).args([from_url, to_url]), &from, &to);
        assert!(cutter.was_cut(), "nothing was cut: {:?}\n{run}", cutter.commands());
        assert!(run.stderr_text().contains("1 verified"), "{run}");
    };
    case(ends, format!("{}, {word}", described(options)), run)
        .proves("goes on by itself, same bytes, verified")
        .in_clear()
}
