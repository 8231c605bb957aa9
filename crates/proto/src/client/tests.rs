use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::command::{BufferVerb, EncodeError};
use crate::command::{
    Command, Dcau, LayoutKind, Opts, Parallelism, PassiveVerb, RetrOptions, Site, TransferMode, TransferType,
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
        self.machine.send(self.now, &command).unwrap()
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

#[test]
fn unsent_commands_can_be_taken_back() {
    let mut c = Client::new(ClientConfig { window: 1, ..ClientConfig::default() });
    c.hear("220 x\r\n");
    let (first, second) = (c.send(Command::Noop), c.send(Command::Noop));
    assert!(c.machine.cancel_unsent(second));
    assert!(!c.machine.cancel_unsent(first));
    assert_eq!(c.machine.outstanding(), 1);
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
    assert_eq!(c.machine.send(c.now, &Command::Noop), Err(SendError::Closed));
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
    assert_eq!(c.machine.poll_timeout(), None, "an idle connection has no deadline by default");
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
fn idleness_is_told_once_until_something_happens() {
    let mut c = Client::new(ClientConfig { idle_after: Some(Duration::from_secs(300)), ..ClientConfig::default() });
    c.hear("220 x\r\n");
    c.events();
    c.wait(300);
    assert_eq!(c.events(), [ClientEvent::Idle]);
    c.wait(300);
    assert!(c.events().is_empty());
    c.send(Command::Noop);
    c.hear("200 x\r\n");
    c.events();
    c.wait(300);
    assert_eq!(c.events(), [ClientEvent::Idle]);
}

#[test]
fn a_name_with_a_line_end_is_refused_and_takes_no_turn() {
    let mut c = Client::open();
    assert_eq!(c.machine.send(c.now, &retr("/a\r\nDELE /b")), Err(SendError::Encode(EncodeError::LineBreak)));
    assert_eq!((c.sent().as_str(), c.machine.outstanding()), ("", 0));
}

#[test]
fn values_in_force_are_not_sent_again() {
    let mut state = SessionState::new();
    let (stream, extended) = (Command::Mode(TransferMode::Stream), Command::Mode(TransferMode::ExtendedBlock));
    assert!(state.needs(&extended));
    state.sent(&extended);
    state.completed(&extended, true);
    assert!(!state.needs(&extended) && state.needs(&stream));
    state.sent(&stream);
    state.completed(&stream, false);
    assert!(state.needs(&stream) && state.needs(&extended), "after a refusal nothing is known");
    assert!(state.needs(&Command::Noop));
    state.sent(&Command::Noop);
    assert!(state.needs(&Command::Noop));
}

#[test]
fn options_are_remembered_one_by_one() {
    let options = |n, layout| {
        Command::Opts(Opts::Retr(RetrOptions {
            parallelism: Some(Parallelism::fixed(n)),
            layout,
            ..RetrOptions::default()
        }))
    };
    let mut state = SessionState::new();
    state.sent(&options(4, Some(LayoutKind::Blocked)));
    assert!(
        !state.needs(&options(4, None))
            && state.needs(&options(5, None))
            && state.needs(&options(4, Some(LayoutKind::Partitioned)))
    );
    let buffer = |verb| Command::Site(Site::BufferSize { verb, bytes: 5 });
    state.sent(&Command::Sbuf(5));
    assert!(!state.needs(&buffer(BufferVerb::RetrBufSize)) && !state.needs(&buffer(BufferVerb::SBufSz)));
    let delayed = Command::Opts(Opts::Passive { verb: PassiveVerb::Pasv, allow_delayed: true });
    state.sent(&delayed);
    assert!(!state.needs(&delayed));
    state.sent(&Command::Port("1.2.3.4:5".parse().unwrap()));
    assert!(state.needs(&delayed), "PORT ends delayed mode");
    assert!(!state.needs(&options(4, None)));
    state.sent(&Command::User(b"x".to_vec()));
    assert!(state.needs(&options(4, None)), "a new login starts afresh");
}

#[test]
fn leaves_hold_until_they_are_changed_and_commands_on_chunks_are_always_sent() {
    let leaves = |size| Command::parse(format!("SITE LEAVES {size} MD5").as_bytes()).unwrap();
    let mut state = SessionState::new();
    assert!(state.needs(&leaves(4096)));
    state.sent(&leaves(4096));
    assert!(!state.needs(&leaves(4096)) && state.needs(&leaves(8192)));
    state.completed(&leaves(4096), false);
    assert!(state.needs(&leaves(4096)), "a refusal leaves it unknown");
    state.sent(&leaves(4096));
    state.sent(&Command::Rein);
    assert!(state.needs(&leaves(4096)));
    let keep = Command::parse(b"SITE CHUNK KEEP ab 0-5:00 /f").unwrap();
    state.sent(&keep);
    assert!(state.needs(&keep));
    assert_eq!(data_handle_effect(&keep), DataHandleEffect::Keeps);
    assert_eq!(data_handle_effect(&leaves(4096)), DataHandleEffect::Keeps);
}

#[test]
fn relative_directories_are_always_sent() {
    let mut state = SessionState::new();
    let (absolute, relative) = (Command::Cwd(b"/a".to_vec()), Command::Cwd(b"a".to_vec()));
    state.sent(&absolute);
    assert!(!state.needs(&absolute));
    state.sent(&relative);
    assert!(state.needs(&relative) && state.needs(&absolute), "a relative step changes the directory");
}

#[test]
fn the_data_handles_enemies_are_known() {
    use DataHandleEffect as E;
    for (command, effect) in [
        (Command::Pasv, E::Replaces),
        (Command::Dcau(Dcau::None), E::Destroys),
        (Command::Site(Site::SetNetStack(b"tcp".to_vec())), E::Destroys),
        (Command::Type(TransferType::Image), E::CountsForNext),
        (Command::Opts(Opts::Retr(RetrOptions { markers: Some(1), ..RetrOptions::default() })), E::Keeps),
        (Command::Noop, E::Keeps),
        (retr("/a"), E::Keeps),
    ] {
        assert_eq!(data_handle_effect(&command), effect, "{command:?}");
    }
}

proptest! {
    #[test]
    fn every_command_ends_exactly_once_whatever_the_server_says(
        replies in proptest::collection::vec(prop_oneof!["200 x\r\n", "150 x\r\n", "550-a\r\n550 b\r\n", "331 x\r\n", "[ -~]{0,12}\r\n"], 0..20),
        count in 1usize..12, window in 1usize..5, cut in 1usize..7,
    ) {
        let mut c = Client::new(ClientConfig { window, ..ClientConfig::default() });
        let tokens: Vec<_> = (0..count).map(|_| c.send(Command::Noop)).collect();
        c.hear("220 x\r\n");
        for piece in replies.concat().as_bytes().chunks(cut) {
            c.machine.handle_bytes(c.now, piece);
        }
        c.machine.handle_eof(c.now);
        let mut ended = Vec::new();
        for event in c.events() {
            match event {
                ClientEvent::Completed { token, .. } => ended.push(token),
                ClientEvent::Failed { unanswered, unsent, .. } => ended.extend(unanswered.into_iter().chain(unsent)),
                _ => {}
            }
        }
        prop_assert_eq!(ended, tokens);
    }
}
