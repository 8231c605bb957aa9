use std::time::{Duration, Instant};

use proptest::prelude::*;

mod secure;

use super::*;
use crate::command::{
    BufferVerb, Command, EncodeError, LayoutKind, Opts, Parallelism, Restart, RetrOptions, Site, TransferMode,
    TrevEvent,
};

struct Client {
    machine: ClientControl,
    now: Instant,
}

impl Client {
    fn new(config: ClientConfig) -> Self {
        let now = Instant::now();
        Self { machine: ClientControl::new(now, config), now }
    }

    /// A connection that was greeted.
    fn open() -> Self {
        let mut client = Self::new(ClientConfig::default());
        client.hear("220 ready\r\n");
        assert!(matches!(client.events()[..], [ClientEvent::Greeting(_)]));
        client
    }

    fn send(&mut self, command: Command) -> Token {
        self.give(&[Order::new(command)])
    }

    fn give(&mut self, orders: &[Order]) -> Token {
        self.machine.send(self.now, orders).unwrap()
    }

    fn hear(&mut self, text: &str) {
        self.machine.handle_bytes(self.now, text.as_bytes());
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.machine.handle_timeout(self.now);
    }

    fn sent(&mut self) -> String {
        let bytes: Vec<u8> = std::iter::from_fn(|| self.machine.poll_transmit()).flatten().collect();
        String::from_utf8(bytes).unwrap()
    }

    fn events(&mut self) -> Vec<ClientEvent> {
        std::iter::from_fn(|| self.machine.poll_event()).collect()
    }

    fn failure(&mut self) -> ProtocolError {
        match self.events().pop() {
            Some(ClientEvent::Failed { error, .. }) => error,
            other => panic!("{other:?} is no failure"),
        }
    }
}

fn retr(path: &str) -> Command {
    Command::Retr(path.as_bytes().to_vec())
}

/// Stops what follows until its reply is here.
fn rest(offset: u64) -> Order {
    Order { gate: true, ..Order::new(Command::Rest(Restart::Offset(offset))) }
}

fn listing() -> Order {
    Order { stream: true, ..Order::new(Command::Mlsc(None)) }
}

fn texts(lines: &[Vec<u8>]) -> Vec<String> {
    lines.iter().map(|line| String::from_utf8(line.clone()).unwrap()).collect()
}

#[test]
fn commands_wait_for_the_greeting() {
    let mut c = Client::new(ClientConfig::default());
    c.send(Command::Feat);
    c.hear("120 soon\r\n");
    assert_eq!(c.sent(), "");
    c.hear("220-hello\r\n220 ready\r\n");
    assert_eq!(c.sent(), "FEAT\r\n");
    assert!(matches!(&c.events()[..], [ClientEvent::Greeting(reply)] if reply.code == 220));
}

// RFC 959 §5.4: replies come in the order of commands; a 1yz is followed by another reply.
#[test]
fn replies_find_their_commands_and_preliminary_ones_end_nothing() {
    let mut c = Client::open();
    let (a, b) = (c.send(retr("/a")), c.send(retr("/b")));
    assert_eq!(c.sent(), "RETR /a\r\nRETR /b\r\n");
    c.hear("150 go\r\n111 Range Marker 0-6\r\n226 done\r\n125 again\r\n111 bad\r\n426 broken\r\n");
    let got: Vec<_> = c
        .events()
        .into_iter()
        .map(|event| match event {
            ClientEvent::Preliminary { token, reply } => (token, reply.code, "preliminary"),
            ClientEvent::Completed { token, reply } => (token, reply.code, "completed"),
            ClientEvent::Marker { token, marker } => (token, 0, if marker.is_ok() { "marker" } else { "bad marker" }),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        got,
        [
            (a, 150, "preliminary"),
            (a, 0, "marker"),
            (a, 226, "completed"),
            (b, 125, "preliminary"),
            (b, 0, "bad marker"),
            (b, 426, "completed")
        ]
    );
    assert_eq!(c.machine.outstanding(), 0);
}

#[test]
fn the_window_bounds_what_is_in_flight() {
    let mut c = Client::new(ClientConfig { window: 2, ..ClientConfig::default() });
    c.hear("220 x\r\n");
    (0..4).for_each(|_| {
        c.send(Command::Noop);
    });
    assert_eq!(c.sent().lines().count(), 2);
    c.hear("200 a\r\n");
    assert_eq!(c.sent().lines().count(), 1);
    c.hear("200 b\r\n200 c\r\n");
    assert_eq!((c.sent().lines().count(), c.machine.outstanding()), (1, 1));
}

// RFC 959 §4.2.1: 421 "may be a reply to any command if the service knows it must shut down".
#[test]
fn a_421_ends_the_connection_and_tells_what_got_no_answer() {
    let mut c = Client::new(ClientConfig { window: 1, ..ClientConfig::default() });
    c.hear("220 x\r\n");
    c.events();
    let (sent, unsent) = (c.send(retr("/a")), c.send(retr("/b")));
    c.hear("421 Idle Timeout: closing control connection.\r\n226 late\r\n");
    let events = c.events();
    let [ClientEvent::Failed { error: ProtocolError::ServiceClosing(reply), unanswered, unsent: left }] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((reply.code, unanswered.as_slice(), left.as_slice()), (421, &[sent][..], &[unsent][..]));
    assert_eq!(c.machine.send(c.now, &[Order::new(Command::Noop)]), Err(SendError::Closed));
    assert_eq!((c.machine.poll_timeout(), c.machine.is_closed()), (None, true));
}

#[test]
fn an_end_is_normal_only_when_nothing_is_due() {
    let mut c = Client::open();
    c.machine.handle_eof(c.now);
    assert_eq!(c.failure(), ProtocolError::Ended);
    let mut c = Client::open();
    c.send(Command::Noop);
    c.machine.handle_eof(c.now);
    assert_eq!(c.failure(), ProtocolError::Eof);
    let mut c = Client::new(ClientConfig::default());
    c.machine.handle_eof(c.now);
    assert_eq!(c.failure(), ProtocolError::Eof);
    c.machine.handle_eof(c.now);
    assert!(c.events().is_empty(), "the end is told once");
}

#[test]
fn refusals_and_nonsense_end_the_connection_with_their_reason() {
    let mut c = Client::new(ClientConfig::default());
    c.hear("530 go away\r\n");
    assert!(matches!(c.failure(), ProtocolError::Refused(reply) if reply.code == 530));
    let mut c = Client::new(ClientConfig::default());
    c.hear("SSH-2.0-OpenSSH\r\n");
    assert!(matches!(c.failure(), ProtocolError::Reply(_)));
    let mut c = Client::open();
    c.hear("226 for nobody\r\n");
    assert!(matches!(c.failure(), ProtocolError::Unsolicited(_)));
}

#[test]
fn silence_is_limited_while_a_reply_is_due() {
    let mut c = Client::open();
    assert_eq!(c.machine.poll_timeout(), None, "an idle connection has no deadline");
    c.wait(10_000);
    c.send(retr("/a"));
    c.wait(599);
    c.hear("112-Perf");
    c.wait(599);
    assert!(c.events().is_empty());
    c.wait(1);
    assert_eq!(c.failure(), ProtocolError::StallTimeout);
    let mut c = Client::new(ClientConfig::default());
    c.wait(60);
    assert_eq!(c.failure(), ProtocolError::GreetingTimeout);
}

#[test]
fn a_name_with_a_line_end_is_refused_with_all_that_was_given_with_it() {
    let mut c = Client::open();
    let orders = [Order::new(Command::Noop), Order::new(retr("/a\r\nDELE /b"))];
    assert_eq!(c.machine.send(c.now, &orders), Err(SendError::Encode(EncodeError::LineBreak)));
    assert_eq!((c.sent().as_str(), c.machine.outstanding()), ("", 0));
}

#[test]
fn a_client_that_runs_ahead_waits_for_no_greeting_and_finds_its_replies() {
    let mut c = Client::new(ClientConfig { ahead: true, window: 2, ..ClientConfig::default() });
    let (feat, noop) = (c.send(Command::Feat), c.send(Command::Noop));
    c.send(Command::Noop);
    assert_eq!(c.sent(), "FEAT\r\nNOOP\r\n", "the window holds before the greeting too");
    c.hear("220-hello\r\n  there\r\n220 ready\r\n502 what\r\n200 x\r\n");
    let events = c.events();
    assert!(
        matches!(&events[..], [
        ClientEvent::Greeting(_),
        ClientEvent::Completed { token: first, .. },
        ClientEvent::Completed { token: second, .. },
    ] if (*first, *second) == (feat, noop)),
        "{events:?}"
    );
    assert_eq!(c.sent(), "NOOP\r\n");
    let mut c = Client::new(ClientConfig { ahead: true, ..ClientConfig::default() });
    c.send(Command::Feat);
    c.wait(60);
    assert_eq!(c.failure(), ProtocolError::GreetingTimeout);
}

// A transfer whose REST was refused would truncate what is there.
#[test]
fn nothing_passes_a_gate_and_its_refusal_withholds_only_what_was_given_with_it() {
    let mut c = Client::open();
    c.give(&[Order::new(Command::Noop), rest(5), Order::new(Command::Stor(b"/a".to_vec()))]);
    let other = c.send(retr("/b"));
    assert_eq!(c.sent(), "NOOP\r\nREST 5\r\n");
    c.hear("200 x\r\n350 go\r\n");
    assert_eq!(c.sent(), "STOR /a\r\nRETR /b\r\n");
    c.hear("226 x\r\n226 x\r\n");
    c.events();
    let group = c.give(&[rest(5), Order::new(Command::Stor(b"/a".to_vec())), Order::new(Command::Noop)]);
    let later = c.send(retr("/b"));
    assert_eq!(c.sent(), "REST 5\r\n");
    c.hear("501 no\r\n");
    assert_eq!(c.sent(), "RETR /b\r\n");
    let events = c.events();
    assert!(
        matches!(&events[..], [
        ClientEvent::Completed { token, .. },
        ClientEvent::Withheld { token: first },
        ClientEvent::Withheld { token: second },
    ] if [token.0, first.0, second.0] == [group.0, group.0 + 1, group.0 + 2]),
        "{events:?}"
    );
    assert_eq!((c.machine.outstanding(), later.0, other.0), (1, group.0 + 3, group.0 - 1));
}

#[test]
fn a_streamed_reply_is_passed_on_as_it_comes_and_kept_nowhere() {
    let mut c = Client::open();
    let (list, next) = (c.give(&[listing()]), c.give(&[listing()]));
    c.hear("250-Listing\r\n a\r\n b\r\n");
    let events = c.events();
    assert!(
        matches!(&events[..], [ClientEvent::Lines { token, lines }] if *token == list && texts(lines) == ["a", "b"]),
        "{events:?}"
    );
    c.hear(" c\r\n250 End\r\n550-no\r\n such\r\n");
    let events = c.events();
    let [ClientEvent::Lines { lines, .. }, ClientEvent::Completed { token, reply }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(
        (texts(lines), *token, texts(&reply.lines)),
        (vec!["c".into()], list, vec!["Listing".into(), "End".into()])
    );
    c.hear("550 file\r\n");
    let events = c.events();
    assert!(
        matches!(&events[..], [ClientEvent::Completed { token, reply }]
        if *token == next && texts(&reply.lines) == ["no", "such", "file"]),
        "a refusal is whole: {events:?}"
    );
}

/// As the stock server sends those of a thousand names and more.
#[test]
fn a_listing_in_several_preliminary_replies_is_whole() {
    let mut c = Client::open();
    let list = c.give(&[listing()]);
    c.hear("150-Contents\r\n a\r\n b\r\n150 End.\r\n150-Contents\r\n c\r\n");
    c.hear(" d\r\n150 End.\r\n250-Contents\r\n e\r\n250 End.\r\n");
    let mut names = Vec::new();
    for event in c.events() {
        match event {
            ClientEvent::Lines { token, lines } if token == list => names.extend(texts(&lines)),
            ClientEvent::Preliminary { .. } | ClientEvent::Completed { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
}

#[test]
fn a_greeting_of_many_lines_is_no_listing() {
    let mut c = Client::new(ClientConfig { ahead: true, ..ClientConfig::default() });
    c.give(&[listing()]);
    c.hear("220-hello\r\n there\r\n");
    assert_eq!(c.events(), []);
}

#[test]
fn a_marker_that_comes_late_ends_nothing() {
    let mut c = Client::open();
    c.send(retr("/a"));
    c.hear("226 done\r\n111 Range Marker 0-6\r\n150 odd\r\n");
    assert!(matches!(&c.events()[..], [ClientEvent::Completed { .. }]));
    c.hear("226 for nobody\r\n");
    assert!(matches!(c.failure(), ProtocolError::Unsolicited(_)));
}

#[test]
fn silence_counts_from_where_it_is_minded() {
    let mut c = Client::open();
    c.machine.set_stall_timeout(Duration::from_secs(5));
    c.send(retr("/a"));
    c.now += Duration::from_secs(100);
    c.machine.watch(c.now);
    c.wait(4);
    assert!(c.events().is_empty());
    c.wait(1);
    assert_eq!(c.failure(), ProtocolError::StallTimeout);
}

fn parallel(n: u32, layout: Option<LayoutKind>) -> Command {
    let options = RetrOptions { parallelism: Some(Parallelism::fixed(n)), layout, ..RetrOptions::default() };
    Command::Opts(Opts::Retr(options))
}

fn leaves(size: u64) -> Command {
    Command::parse(format!("SITE LEAVES {size} MD5").as_bytes()).unwrap()
}

#[test]
fn values_in_force_are_not_sent_again() {
    let mut c = Client::open();
    let (stream, extended) = (Command::Mode(TransferMode::Stream), Command::Mode(TransferMode::ExtendedBlock));
    let state = c.machine.session();
    assert!(state.needs(&extended) && !state.needs(&stream), "RFC 959: a session starts in stream mode");
    assert!(!state.needs(&parallel(1, None)) && !state.needs(&Command::Site(Site::Leaves(None))));
    c.send(extended.clone());
    assert!(!c.machine.session().needs(&extended) && c.machine.session().needs(&stream));
    c.hear("200 x\r\n");
    assert_eq!(c.machine.session().mode(), TransferMode::ExtendedBlock);
    c.send(stream.clone());
    c.hear("504 no\r\n");
    let state = c.machine.session();
    assert!(state.needs(&stream) && state.needs(&extended), "after a refusal nothing is known");
    assert!(!state.wants(&stream) && state.wants(&extended), "nobody asks twice for what may be missing");
    c.send(Command::Noop);
    assert!(c.machine.session().needs(&Command::Noop));
}

#[test]
fn options_are_remembered_one_by_one() {
    let mut c = Client::open();
    c.send(parallel(4, Some(LayoutKind::Blocked)));
    c.send(Command::Sbuf(5));
    c.send(Command::Trev { event: TrevEvent::Perf, seconds: 1 });
    let state = c.machine.session();
    assert!(!state.needs(&parallel(4, None)) && state.needs(&parallel(5, None)));
    assert!(state.needs(&parallel(4, Some(LayoutKind::Partitioned))));
    let buffer = |verb| Command::Site(Site::BufferSize { verb, bytes: 5 });
    assert!(!state.needs(&buffer(BufferVerb::RBufSz)) && !state.needs(&buffer(BufferVerb::SBufSz)));
    assert!(state.needs(&Command::Trev { event: TrevEvent::Restart, seconds: 1 }));
    c.send(Command::User(b"x".to_vec()));
    assert!(c.machine.session().needs(&parallel(4, None)), "a new login starts afresh");
}

#[test]
fn the_same_value_given_twice_outlives_the_refusal_of_the_first() {
    let mut c = Client::open();
    c.send(leaves(4096));
    c.send(leaves(4096));
    c.hear("503 no\r\n200 x\r\n");
    assert_eq!(c.machine.session().leaves().map(|spec| spec.size), Some(4096));
    c.send(leaves(8192));
    c.send(leaves(8192));
    c.hear("503 no\r\n503 no\r\n");
    assert!(c.machine.session().leaves().is_none() && !c.machine.session().wants(&leaves(8192)));
    for command in [leaves(4096), Command::User(b"x".to_vec()), leaves(4096)] {
        c.send(command);
    }
    c.hear("503 no\r\n230 x\r\n200 x\r\n");
    assert_eq!(c.machine.session().leaves().map(|spec| spec.size), Some(4096), "also across a login");
}

#[test]
fn what_was_given_later_outlives_an_earlier_refusal() {
    let mut c = Client::open();
    c.send(leaves(4096));
    c.send(leaves(8192));
    c.hear("500 no\r\n200 x\r\n");
    let state = c.machine.session();
    assert_eq!(state.leaves().map(|spec| spec.size), Some(8192));
    assert!(state.needs(&leaves(4096)) && !state.wants(&leaves(4096)));
    c.give(&[rest(5), Order::new(leaves(16384))]);
    c.hear("501 no\r\n");
    let state = c.machine.session();
    assert!(state.wants(&leaves(16384)) && state.leaves().is_none(), "it was never sent, and hid what was before");
}

proptest! {
    #[test]
    fn every_command_ends_exactly_once_whatever_the_server_says(
        replies in proptest::collection::vec(prop_oneof!["200 x\r\n", "150 x\r\n", "550-a\r\n550 b\r\n", "331 x\r\n", "[ -~]{0,12}\r\n"], 0..20),
        orders in proptest::collection::vec((any::<bool>(), any::<bool>()), 1..12),
        window in 1usize..5, cut in 1usize..7, group in 1usize..4, ahead: bool,
    ) {
        let mut c = Client::new(ClientConfig { window, ahead, ..ClientConfig::default() });
        let make = |&(gate, stream): &(bool, bool)| Order { gate, stream, ..Order::new(Command::Noop) };
        let orders: Vec<_> = orders.iter().map(make).collect();
        let mut tokens = Vec::new();
        for given in orders.chunks(group) {
            let Token(first) = c.give(given);
            tokens.extend((first..).take(given.len()).map(Token));
        }
        c.hear("220 x\r\n");
        for piece in replies.concat().as_bytes().chunks(cut) {
            c.machine.handle_bytes(c.now, piece);
        }
        c.machine.handle_eof(c.now);
        let mut ended = Vec::new();
        for event in c.events() {
            match event {
                ClientEvent::Completed { token, .. } | ClientEvent::Withheld { token } => ended.push(token),
                ClientEvent::Failed { unanswered, unsent, .. } => ended.extend(unanswered.into_iter().chain(unsent)),
                _ => {}
            }
        }
        prop_assert_eq!(ended, tokens);
    }
}
