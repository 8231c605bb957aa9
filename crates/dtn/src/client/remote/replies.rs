//! What the machine's news mean to operations.

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::client::{ClientEvent, ProtocolError};
use whimbrel_proto::feat::Features;
use whimbrel_proto::op::{Notice, OpId, Outcome};
use whimbrel_proto::policy;
use whimbrel_proto::reply::Reply;
use whimbrel_proto::spent;

use super::{Answer, EndEvent, Pending, Remote, Step, answer};
use crate::client::reply;
use crate::client::security::Security;

/// Nothing more will be heard.
pub(super) fn closed() -> Fault {
    Fault::new(FaultCode::ConnectionLost, "read reply")
        .side(Side::Network)
        .detail("the server closed the control connection")
}

impl Remote {
    /// # Errors
    /// The session is over, or useless without its login.
    pub(super) fn take(&mut self, news: ClientEvent) -> Result<(), Fault> {
        match news {
            ClientEvent::Greeting(reply) => self.greeting = reply::text(&reply),
            ClientEvent::Lines { lines, .. } => self.pass_on(&lines),
            ClientEvent::Preliminary { reply, .. } => self.notify(answer::opened(&reply)),
            ClientEvent::Marker { marker, .. } => self.notify(marker.ok().and_then(answer::marker)),
            ClientEvent::Completed { reply, .. } => {
                let front = self.pending.pop_front().expect("the machine answers what was sent");
                self.step(&front, &reply)?;
            }
            // Its gate has failed the operation.
            ClientEvent::Withheld { .. } => drop(self.pending.pop_front()),
            ClientEvent::Failed { error, .. } => return Err(self.over(error)),
        }
        Ok(())
    }

    fn over(&self, error: ProtocolError) -> Fault {
        match error {
            ProtocolError::Refused(reply) => reply::fault(&reply, "greet", b""),
            ProtocolError::ServiceClosing(reply) | ProtocolError::Unsolicited(reply) => {
                let front = self.pending.front();
                let (name, subject) =
                    front.map_or(("keep the session", &b""[..]), |front| (front.name, &front.subject));
                reply::fault(&reply, name, subject)
            }
            ProtocolError::Eof | ProtocolError::Ended => closed(),
            ProtocolError::GreetingTimeout | ProtocolError::StallTimeout => self.silent(),
            ProtocolError::Reply(error) => {
                Fault::new(FaultCode::PeerMisbehaved, "read reply").side(Side::Peer).detail(error.to_string())
            }
        }
    }

    /// News of the oldest operation, if they say anything.
    fn notify(&mut self, notice: Option<Notice>) {
        if let (Some(front), Some(notice)) = (self.pending.front(), notice) {
            self.events.push_back((front.op, EndEvent::Notice(notice)));
        }
    }

    /// Passes lines of a listing on at once: listings may be longer than memory.
    fn pass_on(&mut self, lines: &[Vec<u8>]) {
        let mut bytes = Vec::with_capacity(lines.iter().map(|line| line.len() + 2).sum());
        for line in lines {
            bytes.extend_from_slice(line);
            bytes.extend_from_slice(b"\r\n");
        }
        self.notify(Some(Notice::Lines(bytes)));
    }

    fn step(&mut self, front: &Pending, reply: &Reply) -> Result<(), Fault> {
        let refusal = || reply::fault(reply, front.name, &front.subject);
        match front.step {
            Step::Secure if reply.code == 234 => {
                let handshake = self.options.trust.towards(&self.target)?;
                self.channel.start_tls(handshake)?;
            }
            Step::Secure => {
                let fault = Fault::new(FaultCode::PeerIncompatible, front.name).subject(self.target.to_string());
                return Err(fault.side(Side::Peer).detail(format!("{} {}", reply.code, reply::text(reply))));
            }
            Step::Mechanism => return self.mechanism_reply(reply),
            Step::Token => return self.token_reply(reply),
            Step::User | Step::UserFirst | Step::Pass => return self.login_reply(front, reply),
            Step::Features => self.features = Features::parse(reply),
            Step::Quiet => {}
            Step::Nonce => self.nonce_accepted = reply.is_positive(),
            Step::Need | Step::Mode | Step::Gate if reply.is_positive() => {}
            Step::Need => self.fail(refusal()),
            Step::Mode => self.fail(refusal().detail(format!("no extended block mode: {}", reply::text(reply)))),
            // The machine withholds the rest, so there is nothing to wait for.
            Step::Gate => self.done(front.op, Err(refusal())),
            Step::Done(kind) => self.complete(front, kind, reply),
        }
        Ok(())
    }

    fn login_reply(&mut self, front: &Pending, reply: &Reply) -> Result<(), Fault> {
        let refused = match (front.step, reply.code) {
            (Step::User | Step::UserFirst, 230 | 232) => {
                self.logged_in = true;
                false
            }
            (Step::User | Step::UserFirst, code) => code / 100 != 3,
            // USER alone was enough: PASS is superfluous, whatever its answer.
            _ if self.logged_in => false,
            (_, code) => code / 100 != 2,
        };
        if refused {
            let code = match self.target.security {
                // Whoever has shown a certificate or a ticket is known; what is missing is an account.
                _ if self.channel.wrapped().is_some() => FaultCode::NotAuthorized,
                Security::Clear if self.target.user.is_some() && reply::asks_for_protection(reply) => {
                    FaultCode::LoginInClear
                }
                _ => FaultCode::LoginFailed,
            };
            let who = String::from_utf8_lossy(&front.subject);
            let said = format!("{} {}", reply.code, reply::text(reply));
            let detail = match code {
                FaultCode::LoginInClear => format!("{said}; log in with whimbrel://{who}@{}/", self.target),
                _ => said,
            };
            return Err(Fault::new(code, front.name).subject(format!("{who} at {}", self.target)).detail(detail));
        }
        self.logged_in |= front.step == Step::Pass;
        if self.logged_in {
            self.welcome = reply::text(reply);
            self.machine.set_stall_timeout(self.options.reply_timeout);
        }
        Ok(())
    }

    fn fail(&mut self, fault: Fault) {
        self.failure.get_or_insert(fault);
    }

    fn complete(&mut self, front: &Pending, kind: Answer, reply: &Reply) {
        if let Some(spent) = spent::from_reply(reply).filter(|_| matches!(kind, Answer::Transfer | Answer::Packed(_))) {
            self.events.push_back((front.op, EndEvent::Notice(Notice::Spent(Box::new(spent)))));
        }
        let own = if !reply.is_positive() {
            Err(reply::fault(reply, front.name, &front.subject))
        } else if kind == Answer::Policy {
            self.learn(reply)
        } else {
            answer::outcome(kind, reply, self.channel.peer, front.name, &front.subject)
        };
        self.done(front.op, own);
    }

    fn learn(&mut self, reply: &Reply) -> Result<Outcome, Fault> {
        self.rules = policy::from_reply(reply).map_err(|error| {
            Fault::new(FaultCode::PeerMisbehaved, "ask for rules").side(Side::Peer).detail(error.to_string())
        })?;
        Ok(Outcome::Done)
    }

    /// Ends an operation, with its first failure if it has one.
    pub(super) fn done(&mut self, op: OpId, own: Result<Outcome, Fault>) {
        let result = self.failure.take().map_or(own, Err);
        self.events.push_back((op, EndEvent::Done(result)));
    }
}
