//! The server's control machine against any client, any data side and any clock.

mod checks;
mod outcomes;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use whimbrel_proto::op::{Op, OpId};
use whimbrel_proto::policy::{Policy, Rule};
use whimbrel_proto::server::{
    LoginOutcome, Mechanisms, PeerView, PolicyRule, ServerConfig, ServerControl, ServerEvent, TokenOutcome,
};

use self::checks::Output;

/// Operations that the default configuration hands over ahead of their turn.
const AHEAD: usize = 32;

/// Every command line gets one final reply, in order, and whatever happens the connection can be followed to its end.
///
/// Lines of the input are the client's, except: `!M` logins and operations are no longer answered by themselves, `!L` verdict on a login,
/// `!N` and `!O` notice and outcome of the running operation, `!n` and `!o` those of one that was handed over ahead of its turn (the first
/// byte says which), `!R` bytes without line end, `!T` time passes by this many seconds,
/// `!S` TLS stands, `!A` answer to a token (both by themselves, too, until `!M`), `!D` the deadline passes, `!E` the client closes, `!Q` drain, `!P` output piles up until the next of them, and at the start
/// `!C` configuration, bits of three bytes.
pub fn server_machine(data: &[u8]) {
    let (first, rest) = match data.strip_prefix(b"!C") {
        Some(config) => config.split_at(config.iter().position(|&b| b == b'\n').unwrap_or(config.len())),
        None => (&b""[..], data),
    };
    let bits = |at: usize| first.get(at).copied().unwrap_or(0);
    let mut run = Run::new(configuration([bits(0), bits(1), bits(2)]));
    for line in rest.split(|&b| b == b'\n') {
        run.step(line);
        run.settle();
    }
    run.finish();
}

fn configuration(bits: [u8; 3]) -> ServerConfig {
    let [is, is_too, is_even] = bits.map(|bits| move |bit: u8| bits & (1 << bit) != 0);
    let small = is(5);
    let default = ServerConfig::default();
    ServerConfig {
        read_only: is(0),
        anonymous: is(1),
        announce_get_put: is(2),
        banner: is(3).then(|| "Welcome\nto all".to_owned()),
        control_address: is(4).then(|| [127, 0, 0, 1].into()),
        pipeline_limit: if small { 3 } else { default.pipeline_limit },
        pipeline_bytes: if small { 200 } else { default.pipeline_bytes },
        max_line: if small { 100 } else { default.max_line },
        max_line_before_login: if small { 60 } else { default.max_line_before_login },
        max_unsent: if small { 100 } else { default.max_unsent },
        reverse: !is(6),
        outbound: is_even(0),
        relay: is_even(1),
        data_nonce: !is(7),
        mechanisms: Mechanisms {
            tls: is_too(3),
            gssapi: is_too(4),
            ssh: is_too(5),
            clear_text_passwords: !is_too(6),
            private_data: is_too(7),
        },
        extra_features: if is(3) { vec!["EXTRA".into()] } else { Vec::new() },
        congestion: if is_too(0) { vec!["bbr".into(), "reno".into()] } else { Vec::new() },
        probe: default.probe.filter(|_| !is_too(1)),
        rules: if is_too(2) { rules() } else { Vec::new() },
        run_ahead: if small { 2 } else { AHEAD },
        ..default
    }
}

/// For everybody, for one login, and for one label.
fn rules() -> Vec<PolicyRule> {
    let rule = |path: &[u8], user: Option<&str>, label: Option<&[u8]>, chunk| PolicyRule {
        user: user.map(str::to_owned),
        label: label.map(<[u8]>::to_vec),
        rule: Rule { path: path.to_vec(), policy: Policy { chunk, ..Policy::default() } },
    };
    vec![
        rule(b"/a", Some("u"), None, Some(0)),
        rule(b"/b", None, Some(b"x"), Some(1 << 20)),
        rule(b"/", None, None, None),
    ]
}

/// Somebody who may do without a password, or not, with a certificate of the grid or not.
fn view(choice: u8) -> PeerView {
    PeerView { subject: "/CN=x\r\n230 y".into(), suffices: choice & 2 != 0, gsi: choice & 4 != 0 }
}

struct Outstanding {
    id: OpId,
    op: Op,
    /// Its outcome came before its turn.
    ended: bool,
}

struct Run {
    now: Instant,
    machine: ServerControl,
    output: Output,
    /// Logins and operations are answered at once, in the natural way.
    automatic: bool,
    /// Nobody reads the output.
    clogged: bool,
    login: bool,
    /// TLS is to begin.
    tls: bool,
    /// A token waits for its answer.
    token: bool,
    /// Bytes that were sent and not taken: they stand behind AUTH or ADAT.
    untaken: Vec<u8>,
    /// Operations without a reply, oldest first: that one runs, the others were handed over ahead of their turn.
    running: VecDeque<Outstanding>,
    aborted: Vec<OpId>,
    last: Option<OpId>,
    /// Line ends sent; `None` once a CR was sent that may end an ABOR.
    lines: Option<usize>,
    closed: bool,
}

impl Run {
    fn new(config: ServerConfig) -> Self {
        let now = Instant::now();
        Self {
            now,
            machine: ServerControl::new(now, config),
            output: Output::default(),
            automatic: true,
            clogged: false,
            login: false,
            tls: false,
            token: false,
            untaken: Vec::new(),
            running: VecDeque::new(),
            aborted: Vec::new(),
            last: None,
            lines: Some(0),
            closed: false,
        }
    }

    fn step(&mut self, line: &[u8]) {
        match line {
            [b'!', b'M', ..] => self.automatic = false,
            [b'!', b'L', choice @ ..] => self.verdict(choice.first().copied().unwrap_or(1)),
            [b'!', b'S', choice @ ..] => self.secured(choice.first().copied().unwrap_or(0)),
            [b'!', b'A', choice @ ..] => self.answer_token(choice.first().copied().unwrap_or(1)),
            [b'!', b'N', choices @ ..] => self.notice(choices),
            [b'!', b'O', choices @ ..] => self.outcome(choices),
            [b'!', b'n', which, choices @ ..] => self.early_notice(*which, choices),
            [b'!', b'o', which, choices @ ..] => self.early_outcome(*which, choices),
            [b'!', b'R', bytes @ ..] => self.raw(bytes),
            [b'!', b'T', seconds @ ..] => {
                self.now += Duration::from_secs(seconds.first().map_or(1, |&b| u64::from(b)) * 4);
                self.machine.handle_timeout(self.now);
            }
            [b'!', b'D', ..] => self.deadline(),
            [b'!', b'E', ..] => self.machine.handle_eof(self.now),
            [b'!', b'Q', ..] => self.machine.begin_drain(self.now),
            [b'!', b'P', ..] => self.clogged = !self.clogged,
            line => self.line(line),
        }
    }

    fn line(&mut self, line: &[u8]) {
        self.lines = self.lines.map(|lines| lines + 1);
        self.feed(&[line, b"\r\n"].concat());
    }

    /// What is not taken waits for its time, as with a driver.
    fn feed(&mut self, bytes: &[u8]) {
        self.untaken.extend_from_slice(bytes);
        self.pass_on();
    }

    /// One line at a time, so that what it leads to is seen before the next one.
    fn pass_on(&mut self) {
        let end = self.untaken.iter().position(|&b| b == b'\n').map_or(self.untaken.len(), |end| end + 1);
        let used = self.machine.handle_bytes(self.now, &self.untaken[..end]);
        assert!(used <= end);
        let goes_on = self.machine.poll_timeout().is_some();
        assert!(used == 0 || !(goes_on && (self.tls || self.token)), "nothing is taken in the middle of a handshake");
        self.untaken.drain(..used);
    }

    fn secured(&mut self, choice: u8) {
        self.tls = false;
        self.machine.secured(self.now, (choice & 1 != 0).then(|| view(choice)));
    }

    fn answer_token(&mut self, choice: u8) {
        self.token = false;
        let outcome = match choice % 4 {
            0 => TokenOutcome::Refused { lines: vec!["no\r\n235 yes".into()] },
            1 => TokenOutcome::Established { token: None, peer: view(choice) },
            2 => TokenOutcome::Established { token: Some(vec![choice]), peer: view(choice) },
            _ => TokenOutcome::Continue(vec![choice]),
        };
        self.machine.token(self.now, outcome);
    }

    fn raw(&mut self, bytes: &[u8]) {
        if bytes.contains(&b'\r') {
            self.lines = None;
        }
        self.feed(bytes);
    }

    fn deadline(&mut self) {
        if let Some(deadline) = self.machine.poll_timeout() {
            assert!(self.running.is_empty(), "a running operation is not idle");
            self.now = self.now.max(deadline);
            self.machine.handle_timeout(self.now);
            assert!(self.machine.poll_timeout().is_none(), "a deadline ends the connection");
        }
    }

    fn verdict(&mut self, choice: u8) {
        self.login = false;
        let outcome = match choice % 4 {
            _ if choice == b'R' => LoginOutcome::Refused(vec!["no\r\n230 yes".into(), String::new()]),
            0 => LoginOutcome::Denied,
            1 => LoginOutcome::Accepted { user: "u".into(), home: b"/".to_vec() },
            2 => LoginOutcome::Accepted { user: "u\r\n230 v".into(), home: b"/home/\xff \"u".to_vec() },
            _ => LoginOutcome::Unavailable("come\r\nback".into()),
        };
        self.machine.login(self.now, outcome);
    }

    fn notice(&mut self, choices: &[u8]) {
        // A notice of an operation that ended must not be seen.
        let id = self.running.front().map(|first| first.id).or(self.last).unwrap_or(OpId(0));
        if self.machine.unsent() < 1 << 20 {
            self.machine.notice(self.now, id, outcomes::notice(choices));
        }
    }

    fn outcome(&mut self, choices: &[u8]) {
        match self.running.pop_front() {
            Some(first) => {
                self.machine.outcome(self.now, first.id, outcomes::outcome(&first.op, choices));
                // Those that ended before their turn are answered with it.
                while self.running.front().is_some_and(|next| next.ended) {
                    self.running.pop_front();
                }
            }
            None => {
                let id = self.last.unwrap_or(OpId(7));
                self.machine.outcome(self.now, id, outcomes::outcome(&Op::CloseData, choices));
            }
        }
    }

    /// One of the operations behind the running one.
    fn early(&mut self, which: u8) -> Option<&mut Outstanding> {
        let ahead = self.running.len().saturating_sub(1).max(1);
        self.running.get_mut(1 + usize::from(which) % ahead)
    }

    fn early_notice(&mut self, which: u8, choices: &[u8]) {
        let Some(id) = self.early(which).map(|early| early.id) else { return };
        let unsent = self.machine.unsent();
        self.machine.notice(self.now, id, outcomes::notice(choices));
        assert_eq!(self.machine.unsent(), unsent, "nothing is said before its turn");
    }

    fn early_outcome(&mut self, which: u8, choices: &[u8]) {
        let Some(early) = self.early(which) else { return };
        early.ended = true;
        let (id, outcome) = (early.id, outcomes::outcome(&early.op, choices));
        let unsent = self.machine.unsent();
        self.machine.outcome(self.now, id, outcome);
        assert_eq!(self.machine.unsent(), unsent, "nothing is answered before its turn");
    }

    /// Takes output and events until there are none and all bytes are taken that can be.
    fn settle(&mut self) {
        loop {
            let left = self.untaken.len();
            self.drain();
            self.pass_on();
            if self.untaken.len() == left {
                break self.drain();
            }
        }
    }

    fn drain(&mut self) {
        loop {
            let bytes = if self.clogged { None } else { self.machine.poll_transmit() };
            let event = self.machine.poll_event();
            if bytes.is_none() && event.is_none() {
                break;
            }
            assert!(!self.closed, "nothing follows the end");
            self.output.take(&bytes.unwrap_or_default());
            if let Some(event) = event {
                self.event(event);
            }
        }
        assert!(self.machine.unsent() <= (1 << 21), "the output is bounded");
        // What was aborted and is no longer awaited ended with the connection, and so did what was handed over behind it.
        let is_aborted = self.running.front().is_some_and(|first| self.aborted.contains(&first.id));
        if is_aborted && self.machine.running_op().is_none() {
            self.running.clear();
        }
        assert_eq!(self.machine.running_op(), self.running.front().map(|first| first.id));
    }

    fn event(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Login { .. } => {
                assert!(
                    !self.login && !self.tls && !self.token && self.running.is_empty(),
                    "a login waits for what is before it"
                );
                self.login = true;
                if self.automatic {
                    self.verdict(1);
                }
            }
            ServerEvent::StartTls => {
                assert!(!self.tls && self.running.is_empty() && self.machine.unsent() == 0);
                self.tls = true;
                if self.automatic {
                    self.secured(3);
                }
            }
            ServerEvent::Token(token) => {
                assert!(!self.token && self.running.is_empty() && token.0.len() <= 48 << 10);
                self.token = true;
                if self.automatic {
                    self.answer_token(token.0.first().copied().unwrap_or(1));
                }
            }
            ServerEvent::Run { id, op } => {
                assert!(
                    !self.login && self.running.len() <= AHEAD,
                    "few operations are handed over ahead of their turn"
                );
                assert!(self.last.is_none_or(|last| last < id), "names of operations grow");
                checks::check_op(&op);
                self.last = Some(id);
                self.running.push_back(Outstanding { id, op, ended: false });
                if self.automatic {
                    self.notice(&[0]);
                    self.outcome(&[]);
                }
            }
            ServerEvent::Abort { id } => {
                assert!(self.running.iter().any(|running| running.id == id && !running.ended), "what runs is aborted");
                assert!(!self.aborted.contains(&id), "one abort is enough");
                self.aborted.push(id);
            }
            ServerEvent::Answered { verb, op, code } => {
                assert!(verb.len() <= 8 && op.is_none_or(|op| self.last >= Some(op)));
                self.output.answered(code);
            }
            ServerEvent::Label(_) => {}
            ServerEvent::Closed(_) => self.closed = true,
        }
    }

    /// Answers everything that is still open, then compares what was asked with what was answered.
    fn finish(mut self) {
        self.clogged = false;
        self.automatic = true;
        self.settle();
        while self.login || self.tls || self.token || !self.running.is_empty() {
            if self.login {
                self.verdict(0);
            } else if self.tls {
                self.secured(0);
            } else if self.token {
                self.answer_token(3);
            } else {
                self.outcome(&[]);
            }
            self.settle();
        }
        self.output.check(self.closed);
        if let (false, Some(lines)) = (self.closed, self.lines) {
            assert_eq!(self.output.answers(), lines, "one final reply for every line");
        }
        self.machine.handle_eof(self.now);
        self.settle();
        assert!(self.closed && self.machine.is_closed());
    }
}
