//! Grid programs with our server over GSI: `globus-url-copy`, `grid-proxy-init` and gfal2, with the real server beside ours.

mod grid;
mod support;

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use grid::{Grid, Kind};
use support::dtn::data_node;
use support::secured::Secured;
use support::{Field, pattern};
use whimbrel_testkit::peers::{self, Tool, require};

/// Options of a copy, and what of them is seen in the commands that `-dbg` shows.
const LEVELS: [(&str, &[&str]); 4] = [
    ("", &[]),
    ("-nodcau", &["DCAU N"]),
    ("-dcsafe", &["PROT S", "200 Protection level set to S."]),
    ("-dcpriv", &["PROT P", "200 Protection level set to P."]),
];

const MODES: [&str; 4] = ["", "-fast", "-p 4", "-stripe -p 2"];

fn copied(tool: Tool, from: &std::path::Path, to: &std::path::Path, seen: &[&str]) {
    let run = tool.run_ok();
    for text in seen {
        assert!(run.stderr_text().contains(text), "{text} is not among the commands:\n{run}");
    }
    assert!(fs::read(from).expect("source") == fs::read(to).expect("copied"), "{run}");
    fs::remove_file(to).expect("removed");
}

#[test]
fn files_come_and_go_in_every_mode_at_every_level() {
    let Some(grid) = Grid::new() else { return };
    let (ours, field) = (grid.start(Kind::Ours), Field::new());
    let (from, to) = (field.path("from/deep/er/big"), field.path("to/copy"));
    for ((level, seen), mode) in LEVELS.into_iter().flat_map(|level| MODES.map(|mode| (level, mode))) {
        let copy = || grid.copy().arg("-dbg").args(level.split_whitespace()).args(mode.split_whitespace());
        copied(copy().args([ours.url(&from), peers::file_url(&to)]), &from, &to, seen);
        copied(copy().args([peers::file_url(&from), ours.url(&to)]), &from, &to, seen);
    }
}

#[test]
fn servers_of_both_makes_exchange_files_that_prove_whose_they_are() {
    let Some(grid) = Grid::new() else { return };
    let (ours, others, theirs) = (grid.start(Kind::Ours), grid.start(Kind::Ours), grid.start(Kind::Theirs));
    let field = Field::new();
    let (from, to) = (field.path("from/deep/er/big"), field.path("to/copy"));
    for (source, destination) in [(&ours, &others), (&ours, &theirs), (&theirs, &ours)] {
        for ((level, seen), mode) in LEVELS.into_iter().flat_map(|level| MODES.map(|mode| (level, mode))) {
            let copy = grid.copy().arg("-dbg").args(level.split_whitespace()).args(mode.split_whitespace());
            copied(copy.args([source.url(&from), destination.url(&to)]), &from, &to, seen);
        }
    }
}

#[test]
fn a_credential_made_for_the_transfer_proves_it_as_well() {
    let Some(grid) = Grid::new() else { return };
    let (ours, theirs, field) = (grid.start(Kind::Ours), grid.start(Kind::Theirs), Field::new());
    let (from, to) = (field.path("from/deep/er/big"), field.path("to/copy"));
    let bob = grid.pki.person("bob").expect("bob");
    let bobs = grid.pki.usual_proxy(&bob, "bobs-proxy").expect("a proxy");
    for credential in ["auto".to_owned(), bobs.file.display().to_string()] {
        for options in ["", "-dcpriv", "-p 4", "-p 4 -dcpriv"] {
            let copy = || grid.copy().args(["-dbg", "-data-cred", &credential]).args(options.split_whitespace());
            for (source, destination) in [(&ours, &ours), (&ours, &theirs), (&theirs, &ours)] {
                copied(copy().args([source.url(&from), destination.url(&to)]), &from, &to, &["DCSC P"]);
            }
            copied(copy().args([ours.url(&from), peers::file_url(&to)]), &from, &to, &["DCSC P"]);
            copied(copy().args([peers::file_url(&from), ours.url(&to)]), &from, &to, &["DCSC P"]);
        }
    }
}

#[test]
fn every_node_of_a_striped_server_proves_whose_data_it_moves() {
    let Some(grid) = Grid::new() else { return };
    let field = Field::new();
    let (from, to, secret) = (field.path("from/deep/er/big"), field.path("to/copy"), field.path("secret"));
    fs::write(&secret, "sixteen bytes or more").expect("written");
    let server = grid.ours().front(&secret).start();
    let node = |last: u8| data_node(None, [127, 0, 0, last].into(), server.node_addr(), &secret);
    let _nodes = [node(2), node(3)];
    server.wait_for_nodes(2);
    let (striped, theirs) = (grid::Server::Ours(server), grid.start(Kind::Theirs));
    for credential in [&[][..], &["-data-cred", "auto"]] {
        for level in ["", "-dcpriv"] {
            for (source, destination) in [(&striped, &striped), (&striped, &theirs), (&theirs, &striped)] {
                let copy = grid.copy().args(["-dbg", "-stripe", "-p", "2"]).args(credential);
                let copy = copy.args(level.split_whitespace());
                copied(copy.args([source.url(&from), destination.url(&to)]), &from, &to, &["SPAS"]);
            }
        }
    }
}

#[test]
fn trees_travel_over_connections_that_are_proven_once() {
    let Some(grid) = Grid::new() else { return };
    let (ours, theirs, field) = (grid.start(Kind::Ours), grid.start(Kind::Theirs), Field::new());
    let all = |url: String| format!("{}/", url.trim_end_matches('/'));
    for (number, options) in
        ["", "-dcpriv", "-fast", "-p 2 -dcpriv", "-fast -pp -dcpriv", "-fast -cc 2 -dcpriv"].into_iter().enumerate()
    {
        for (ends, source, destination) in [
            ("down", Some(&ours), None),
            ("up", None, Some(&ours)),
            ("over", Some(&ours), Some(&theirs)),
            ("back", Some(&theirs), Some(&ours)),
        ] {
            let name = format!("{ends}{number}");
            let to = field.path("to").join(&name);
            let url = |server: Option<&grid::Server>, path: &std::path::Path| {
                all(server.map_or_else(|| peers::file_url(path), |server| server.url(path)))
            };
            let copy = grid.copy().args(["-r", "-cd"]).args(options.split_whitespace());
            copy.args([url(source, &field.path("from/deep")), url(destination, &to)]).run_ok();
            support::assert_same(&field.path("from/deep"), &to);
        }
    }
}

#[test]
fn proxies_of_every_kind_log_in_and_prove_their_data() {
    let Some(init) = require("grid-proxy-init") else { return };
    let Some(grid) = Grid::new() else { return };
    let (ours, field) = (grid.start(Kind::Ours), Field::new());
    let (from, to) = (field.path("from/deep/er/big"), field.path("to/copy"));
    for kind in ["-rfc", "-old", "-draft", "-limited", "-rfc -path-length 3"] {
        let proxy = field.path("to/proxy");
        let alice = &grid.alice.file;
        let init = Tool::new(&init).args(["-q", "-bits", "2048", "-certdir"]).arg(grid.pki.certificates());
        let init = init.arg("-cert").arg(alice).arg("-key").arg(alice).arg("-out").arg(&proxy);
        init.args(kind.split_whitespace()).run_ok();
        // Their library takes legacy proxies only of certificates that may sign others (OpenSSL 3), and would be the judge of
        // what our server shows on data connections.
        let options: &[&str] = if kind == "-old" { &["-nodcau"] } else { &["-dcpriv"] };
        for (source, destination) in [(ours.url(&from), peers::file_url(&to)), (peers::file_url(&from), ours.url(&to))]
        {
            let copy = grid.copy_as(&proxy).args(options).args([source, destination]);
            copied(copy, &from, &to, &[]);
        }
        let own = grid.copy_as(&proxy).args(["-dcpriv", "-p", "2"]).args([ours.url(&from), ours.url(&to)]);
        copied(own, &from, &to, &[]);
        fs::remove_file(&proxy).expect("made above");
    }
}

#[test]
fn subjects_that_are_named_are_checked() {
    let Some(grid) = Grid::new() else { return };
    let (ours, theirs, field) = (grid.start(Kind::Ours), grid.start(Kind::Theirs), Field::new());
    let (from, to) = (field.path("from/deep/er/big"), field.path("to/copy"));
    let host = "/O=Grid/CN=localhost";
    for (source, destination) in [(&theirs, &ours), (&ours, &theirs)] {
        let copy = |ss: &str, ds: &str| {
            grid.copy().args(["-ss", ss, "-ds", ds, "-dcpriv"]).args([source.url(&from), destination.url(&to)])
        };
        copied(copy(host, host), &from, &to, &[]);
        for (ss, ds) in [("/O=Grid/CN=other", host), (host, "/O=Grid/CN=other")] {
            let run = copy(ss, ds).run_failing();
            assert!(run.stderr_text().contains("CN=other"), "{run}");
            // The real server makes the file before anything comes.
            assert!(matches!(destination, grid::Server::Theirs(_)) || !to.exists());
        }
    }
}

/// DCAU S: a server is told whose certificate the other end of a data connection has to show. No client of others says that any more, so the test does.
#[test]
fn data_connections_go_to_whose_subject_was_told_and_to_nobody_else() {
    let Some(grid) = Grid::new() else { return };
    let (ours, theirs, field) = (grid.start(Kind::Ours), grid.start(Kind::Theirs), Field::new());
    let (from, to) = (field.path("from/deep/er/big"), field.path("to/copy"));
    let log_in = |server: &grid::Server, peer: &str| {
        let mut session = Secured::gsi(server.addr(), &grid.alice.own).unwrap_or_else(|reply| panic!("{}", reply.text));
        assert_eq!(session.login().expect("a reply").code, 230);
        session.ask_for(200, "TYPE I");
        session.ask_for(200, &format!("DCAU S {peer}"));
        session
    };
    let (alice, other) = ("/O=Grid/CN=alice", "/O=Grid/CN=other");
    for (source, destination) in [(&ours, &theirs), (&theirs, &ours), (&ours, &ours)] {
        for (told_source, told_destination) in [(alice, alice), (other, alice), (alice, other)] {
            let (mut sends, mut stores) = (log_in(source, told_source), log_in(destination, told_destination));
            let data = stores.passive();
            sends.ask_for(200, &port(data));
            stores.say(&format!("STOR {}", to.display())).expect("heard");
            sends.say(&format!("RETR {}", from.display())).expect("heard");
            if told_source == other || told_destination == other {
                // Whoever refuses, the sender has nobody to send to; who listens may go on waiting for the right one.
                let reply = sends.last_reply();
                assert!(reply.code >= 400, "{}", reply.text);
                assert!(fs::read(&to).map_or(0, |bytes| bytes.len()) == 0, "nothing has come");
            } else {
                assert_eq!((sends.last_reply().code, stores.last_reply().code), (226, 226));
                assert!(fs::read(&from).expect("source") == fs::read(&to).expect("copied"));
            }
            // The real server makes the file before anything comes.
            let _made = fs::remove_file(&to);
        }
    }
}

fn port(address: SocketAddr) -> String {
    let IpAddr::V4(ip) = address.ip() else { panic!("{address}") };
    let [high, low] = address.port().to_be_bytes();
    format!("PORT {},{high},{low}", ip.to_string().replace('.', ","))
}

#[test]
fn gfal2_moves_files_and_asks_about_them() {
    let Some(grid) = Grid::new() else { return };
    let (ours, theirs, field) = (grid.start(Kind::Ours), grid.start(Kind::Theirs), Field::new());
    let (from, to) = (field.path("from/deep/er/big"), field.path("to/copy"));
    let pairs = [
        (ours.url(&from), peers::file_url(&to)),
        (peers::file_url(&from), ours.url(&to)),
        (ours.url(&from), ours.url(&to)),
        (ours.url(&from), theirs.url(&to)),
        (theirs.url(&from), ours.url(&to)),
    ];
    for (streams, dcau) in [(1, false), (4, true)] {
        for (source, destination) in &pairs {
            let script = format!(
                "
import gfal2, sys
context = gfal2.creat_context()
context.set_opt_boolean('GRIDFTP PLUGIN', 'DCAU', {dcau})
parameters = context.transfer_parameters()
parameters.nbstreams, parameters.overwrite, parameters.timeout = {streams}, True, 60
context.filecopy(parameters, sys.argv[1], sys.argv[2])
if sys.argv[2].startswith('gsiftp'):
    assert context.stat(sys.argv[2]).st_size == {size}
    assert 'copy' in context.listdir(sys.argv[2].rsplit('/', 1)[0])
    assert context.checksum(sys.argv[2], 'ADLER32') == context.checksum(sys.argv[1], 'ADLER32')
# Its libraries now and then free something twice when they are taken down, with whichever server.
import os
os._exit(0)
",
                dcau = if dcau { "True" } else { "False" },
                size = pattern(3_000_001).len(),
            );
            let Some(tool) = peers::gfal2(&script) else { return };
            let tool = grid.with_proxy(tool).limit(Duration::from_secs(180));
            copied(tool.args([source, destination]), &from, &to, &[]);
        }
    }
}
