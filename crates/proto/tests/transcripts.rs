//! Dialogues recorded between real programs, played against the server's control machine.
//!
//! Lines of a transcript: `(X)C:` a line of the client on connection X, `(X)S:` the reply line expected (`*` at its end
//! matches any rest, `...` any number of lines), `(X)O:` the operation expected, `(X)A:` what the data side or the
//! driver answers. `#` begins a comment. Connections are independent machines.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use whimbrel_proto::leaf;
use whimbrel_proto::op::{Failure, FailureKind, Leaf, Notice, Op, OpId, Outcome, StorageFacts};
use whimbrel_proto::server::{LoginOutcome, ServerConfig, ServerControl, ServerEvent};

/// One connection of a transcript.
struct Connection {
    now: Instant,
    machine: ServerControl,
    lines: VecDeque<String>,
    /// Where `...` may skip to the next expected line.
    skipping: bool,
    op: Option<(OpId, Op)>,
}

impl Connection {
    fn new() -> Self {
        let now = Instant::now();
        let machine = ServerControl::new(now, ServerConfig::default());
        let mut connection = Self { now, machine, lines: VecDeque::new(), skipping: false, op: None };
        connection.drain();
        connection
    }

    fn drain(&mut self) {
        loop {
            let bytes = self.machine.poll_transmit();
            let event = self.machine.poll_event();
            if bytes.is_none() && event.is_none() {
                return;
            }
            let text = String::from_utf8(bytes.map(Vec::from).unwrap_or_default()).expect("replies are ASCII here");
            self.lines.extend(text.split_terminator("\r\n").map(str::to_owned));
            if let Some(ServerEvent::Run { id, op }) = event {
                assert!(self.op.replace((id, op)).is_none(), "one operation at a time");
            }
        }
    }

    fn step(&mut self, kind: &str, text: &str) {
        match kind {
            "C" => {
                let line = format!("{text}\r\n");
                assert_eq!(self.machine.handle_bytes(self.now, line.as_bytes()), line.len());
            }
            "S" => self.expect(text),
            "O" => {
                let (_, op) = self.op.as_ref().expect("an operation was asked for");
                let name: String = format!("{op:?}").chars().take_while(|c| c.is_alphanumeric()).collect();
                assert_eq!(name, text);
            }
            "A" => self.answer(text),
            other => panic!("unknown kind of line {other}"),
        }
        self.drain();
    }

    fn expect(&mut self, text: &str) {
        if text == "..." {
            self.skipping = true;
            return;
        }
        while let Some(line) = self.lines.pop_front() {
            let matches = match text.strip_suffix('*') {
                Some(start) => line.starts_with(start),
                None => line == text,
            };
            if matches {
                self.skipping = false;
                return;
            }
            assert!(self.skipping, "expected {text:?}, got {line:?}");
        }
        panic!("expected {text:?}, got nothing");
    }

    fn answer(&mut self, text: &str) {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let number = || rest.parse::<u64>().expect("a number");
        match word {
            "login" => {
                let (user, home) = rest.split_once(' ').expect("user and home");
                let accepted = LoginOutcome::Accepted { user: user.into(), home: home.into() };
                self.machine.login(self.now, accepted);
            }
            "opened" => self.notice(Notice::Opened { reused: rest == "reused", unique_name: None }),
            "performance" => self.notice(performance(rest)),
            "ranges" => self.notice(Notice::Ranges(rest.split(',').map(range).collect())),
            "listening" => self.finish(Outcome::Listening(rest.split(' ').map(address).collect())),
            "done" => self.finish(Outcome::Done),
            "transferred" => self.finish(Outcome::Transferred { bytes: 0, leaves: leaves(rest), read_from: None }),
            "chunked" => {
                let (session, list) = rest.split_once(' ').unwrap_or((rest, ""));
                let session = leaf::parse_session(session.as_bytes()).expect("a session");
                self.finish(Outcome::Chunked {
                    session,
                    verified: leaves(list),
                    holes: Vec::new(),
                    storage: StorageFacts::default(),
                    discarded: 0,
                });
            }
            "unproven" => self.finish(failed(FailureKind::Unproven, rest)),
            "busy" => self.finish(failed(FailureKind::Busy, rest)),
            "size" => self.finish(Outcome::Size(number())),
            "checksum" => self.finish(Outcome::Checksum(rest.into())),
            "modified" => self.finish(Outcome::Modified(rest.parse().expect("seconds"), 0)),
            "exists" => self.finish(failed(FailureKind::Exists, "there")),
            "directory" => self.finish(Outcome::Directory(rest.into())),
            other => panic!("unknown answer {other}"),
        }
    }

    fn notice(&mut self, notice: Notice) {
        let (id, _) = self.op.as_ref().expect("an operation runs");
        self.machine.notice(self.now, *id, notice);
    }

    fn finish(&mut self, outcome: Outcome) {
        let (id, _) = self.op.take().expect("an operation runs");
        self.machine.outcome(self.now, id, outcome);
    }
}

fn failed(kind: FailureKind, text: &str) -> Outcome {
    Outcome::Failed(Failure { kind, text: text.into(), checksums: None })
}

/// A list as in SITE CHUNK KEEP; nothing for none.
fn leaves(text: &str) -> Vec<Leaf> {
    if text.is_empty() { Vec::new() } else { leaf::parse_list(text.as_bytes()).expect("leaves") }
}

fn performance(text: &str) -> Notice {
    let numbers: Vec<u64> = text.split(' ').map(|word| word.parse().expect("a number")).collect();
    let [stripe, stripes, bytes, at_ms] = numbers[..] else { panic!("four numbers") };
    let small = |n: u64| u16::try_from(n).expect("a stripe");
    Notice::Performance { stripe: small(stripe), stripes: small(stripes), bytes, at_ms }
}

fn range(text: &str) -> Range<u64> {
    let (start, end) = text.split_once('-').expect("a range");
    start.parse().expect("a number")..end.parse().expect("a number")
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Plays one file; every reply line of the machine must be expected.
fn play(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts").join(name);
    let text = std::fs::read_to_string(path).expect("the transcript is readable");
    let mut connections: BTreeMap<String, Connection> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (head, text) = line.split_once(": ").unwrap_or((line.trim_end_matches(':'), ""));
        let (connection, kind) = head.trim_start_matches('(').split_once(')').expect("(connection)kind");
        connections.entry(connection.into()).or_insert_with(Connection::new).step(kind, text);
    }
    assert!(!connections.is_empty(), "an empty transcript proves nothing");
    for (connection, mut state) in connections {
        state.drain();
        assert_eq!(state.lines, VecDeque::<String>::new(), "unexpected replies on {connection}");
        assert_eq!(state.op, None, "an unexpected operation on {connection}");
    }
}

macro_rules! transcripts {
    ($($test:ident: $file:literal,)*) => {
        $(#[test] fn $test() { play($file); })*

        #[test]
        fn every_transcript_is_played() {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
            let mut there: Vec<String> = std::fs::read_dir(folder)
                .expect("the folder is readable")
                .map(|entry| entry.expect("an entry").file_name().into_string().expect("an ASCII name"))
                .collect();
            there.sort();
            assert_eq!(there, [$($file),*]);
        }
    };
}

transcripts! {
    our_own_pair_moves_a_file_in_chunks: "chunks.txt",
    curl_gets_a_file: "curl.txt",
    guc_puts_with_delayed_passive: "dpput.txt",
    guc_gets_a_tree_over_one_connection: "fastr.txt",
    ftplib_lists_moves_and_renames: "ftplib.txt",
    guc_gets_a_file: "get.txt",
    guc_copies_third_party_with_get_and_put: "getput.txt",
    lftp_mirrors_both_ways: "lftp.txt",
    guc_lists_a_directory: "list.txt",
    guc_copies_a_part: "offlen.txt",
    guc_gets_over_two_channels: "p2get.txt",
    guc_copies_third_party_over_two_channels: "p2third.txt",
    guc_pipelines_third_party_copies: "ppthird.txt",
    guc_puts_a_file: "put.txt",
    guc_copies_to_stripes: "stripe.txt",
    guc_copies_third_party: "third.txt",
    guc_verifies_a_copy: "verify.txt",
}
