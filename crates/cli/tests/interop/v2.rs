//! GET and PUT of GridFTP v2 (GFD.47 §3), which `globus-url-copy` uses where they are announced, and delayed passive; a relay
//! hears what is said.

use std::net::SocketAddr;

use whimbrel_testkit::relay::{Relay, Way};

use crate::case::{Case, Program};
use crate::support::{Context, Kind, Place, Server, Size, copies, file_url, url_at, url_copy};

/// Where a file comes from and goes to; `None`: this host.
type Ends = (Option<Kind>, Option<Kind>, &'static str);

const OURS: Option<Kind> = Some(Kind::Ours);
const THEIRS: Option<Kind> = Some(Kind::Theirs);
const ENDS: [Ends; 5] = [
    (OURS, None, "ours to local"),
    (None, OURS, "local to ours"),
    (OURS, THEIRS, "ours to theirs"),
    (THEIRS, OURS, "theirs to ours"),
    (OURS, OURS, "ours to ours"),
];

/// The cases of this module.
pub fn cases(cases: &mut Vec<Case>) {
    for ends in ENDS {
        for options in ["", "-fast", "-fast -p 4"] {
            cases.push(announced(ends, options));
        }
        cases.push(declined(ends));
    }
    cases.push(delayed(ENDS[0], "ours to local"));
    cases.push(delayed(ENDS[1], "local to ours"));
}

/// A server behind a relay of its own.
struct Heard {
    _server: Server,
    relay: Relay,
    way: Way,
}

impl Heard {
    fn start(kind: Kind, place: &Place, announces: bool) -> Self {
        let server = match kind {
            Kind::Ours if announces => {
                let config = place.path("announces.toml");
                std::fs::write(&config, "announce_get_put = true\n").unwrap();
                Server::ours(&["--config", &config.to_string_lossy()])
            }
            kind => Server::start(kind),
        };
        let way = Way::new();
        let relay = Relay::before(server.address(), &way).expect("a relay starts");
        Self { _server: server, relay, way }
    }

    fn address(&self) -> SocketAddr {
        self.relay.addr()
    }

    /// Whether a client has said a line that begins so.
    fn said(&self, start: &str) -> bool {
        self.way.said().iter().any(|(_, line)| line.starts_with(start))
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        self.way.end();
    }
}

/// Copies the file of 10 MB with options; the source's and the destination's server.
fn copy(context: &Context, ends: Ends, options: &str, announces: bool) -> (Option<Heard>, Option<Heard>) {
    let place = Place::new();
    let start = |kind: Option<Kind>| kind.map(|kind| Heard::start(kind, &place, announces));
    let (source, destination) = (start(ends.0), start(ends.1));
    let (from, to) = (context.file(Size::Ten), place.path("copy"));
    let url =
        |end: &Option<Heard>, path| end.as_ref().map_or_else(|| file_url(path), |end| url_at(end.address(), path));
    let urls = [url(&source, &from), url(&destination, &to)];
    copies(url_copy().args(options.split_whitespace()).args(urls), &from, &to);
    (source, destination)
}

fn case(ends: Ends, option: String, run: impl Fn(&Context) + Send + Sync + 'static) -> Case {
    Case::new(Program::UrlCopy, ends.2, option, run).in_clear()
}

fn is_ours(kind: Option<Kind>) -> bool {
    kind == OURS
}

fn announced(ends: Ends, options: &'static str) -> Case {
    let run = move |context: &Context| {
        let (source, destination) = copy(context, ends, options, true);
        if let Some(source) = source.filter(|_| is_ours(ends.0)) {
            assert!(source.said("GET ") && !source.said("RETR "), "{:?}", source.way.said());
        }
        if let Some(destination) = destination.filter(|_| is_ours(ends.1)) {
            assert!(destination.said("PUT ") && !destination.said("STOR "), "{:?}", destination.way.said());
            assert!(destination.said("PUT ") && !destination.said("PASV"), "{:?}", destination.way.said());
        }
    };
    case(ends, format!("{options} with GETPUT").trim_start().to_owned(), run).proves("same bytes, by GET and PUT alone")
}

fn declined(ends: Ends) -> Case {
    let run = move |context: &Context| {
        let (source, destination) = copy(context, ends, "-no-g2", true);
        for end in source.iter().chain(&destination) {
            assert!(!end.said("GET ") && !end.said("PUT "), "{:?}", end.way.said());
        }
    };
    case(ends, "-no-g2 with GETPUT".into(), run).proves("same bytes, by RETR and STOR")
}

fn delayed(ends: Ends, direction: &'static str) -> Case {
    let run = move |context: &Context| {
        let (source, destination) = copy(context, ends, "-dp", false);
        let end = source.or(destination).expect("one end is a server");
        assert!(end.said("OPTS PASV AllowDelayed=1") && end.said("PASV"), "{:?}", end.way.said());
    };
    Case::new(Program::UrlCopy, direction, "-dp, heard", run)
        .in_clear()
        .proves("same bytes, the address told after the file's name")
}
