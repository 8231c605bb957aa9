//! Making the data handle: PASV, EPSV, SPAS, PORT, EPRT, SPOR, and the `pasv` and `port` of GET and PUT.
//!
//! MODE, TYPE, parallelism and buffers are frozen into the handle when its command is processed (GCT practice), and any
//! such command replaces the handle before it.

use std::net::SocketAddr;

use super::answer::Answer;
use super::config::ServerConfig;
use super::failure;
use super::session::{DataHandle, Direction, PassiveKind, Session};
use super::step::{Step, Task};
use super::transfer::{Progress, Transfer};
use crate::hostport::{format_either, format_eprt, format_port};
use crate::op::{Family, Mode, Op, Outcome};

/// PASV (RFC 959 §4.1.2), EPSV (RFC 2428 §3), SPAS (GFD.20 §3.3).
pub(super) fn passive(session: &mut Session, config: &ServerConfig, kind: PassiveKind, family: Option<Family>) -> Step {
    if config.outbound {
        return takes_none();
    }
    if session.epsv_only && kind != PassiveKind::Extended {
        return epsv_all_in_force();
    }
    let striped = matches!(kind, PassiveKind::Striped(_));
    let params = match session.params_for_handle(config) {
        Ok(params) => params,
        Err(refusal) => return Step::Answer(refusal),
    };
    let op = Op::Passive { striped, family, params };
    if session.allow_delayed {
        session.data = DataHandle::Delayed(kind, Box::new(op));
        return Step::Answer(Answer::line(200, "Passive delayed."));
    }
    run_passive(session, kind, op, None)
}

/// EPSV ALL: from now on only EPSV makes data handles (RFC 2428 §4).
pub(super) fn epsv_all(session: &mut Session) -> Step {
    session.epsv_only = true;
    Step::Answer(Answer::line(229, "EPSV ALL Successful."))
}

/// PORT (RFC 959 §4.1.2), EPRT (RFC 2428 §2), SPOR (GFD.20 §3.3); ends delayed mode (GCT practice).
pub(super) fn active(session: &mut Session, config: &ServerConfig, targets: Vec<SocketAddr>) -> Step {
    if session.epsv_only {
        return epsv_all_in_force();
    }
    session.allow_delayed = false;
    run_active(session, config, targets, None)
}

/// `port=` of GET and PUT (GFD.47 §3.2).
pub(super) fn active_for(session: &mut Session, config: &ServerConfig, target: SocketAddr, transfer: Transfer) -> Step {
    run_active(session, config, vec![target], Some(transfer))
}

/// `pasv` of GET and PUT (GFD.47 §3.2).
pub(super) fn passive_for(session: &mut Session, config: &ServerConfig, transfer: Transfer) -> Step {
    if config.outbound {
        return takes_none();
    }
    match session.params_for_handle(config) {
        Ok(params) => {
            let op = Op::Passive { striped: false, family: Some(Family::V4), params };
            run_passive(session, PassiveKind::V2, op, Some(transfer))
        }
        Err(refusal) => Step::Answer(refusal),
    }
}

/// 502 (RFC 959 §4.2): the command is known and not carried out here.
fn takes_none() -> Step {
    Step::Answer(Answer::line(502, "This server makes data connections and takes none."))
}

fn epsv_all_in_force() -> Step {
    Step::Answer(Answer::line(503, "Only EPSV is allowed after EPSV ALL."))
}

fn run_passive(session: &mut Session, kind: PassiveKind, op: Op, then: Option<Transfer>) -> Step {
    let mode = frozen_mode(&op);
    session.data = DataHandle::None;
    Step::run(op, Task::Passive { kind, mode, then })
}

fn run_active(session: &mut Session, config: &ServerConfig, targets: Vec<SocketAddr>, then: Option<Transfer>) -> Step {
    let params = match session.params_for_handle(config) {
        Ok(params) => params,
        Err(refusal) => return Step::Answer(refusal),
    };
    session.data = DataHandle::None;
    let mode = params.mode;
    Step::run(Op::Active { targets, params }, Task::Active { mode, then })
}

fn frozen_mode(op: &Op) -> Mode {
    match op {
        Op::Passive { params, .. } | Op::Active { params, .. } => params.mode,
        _ => Mode::Stream,
    }
}

/// Starts a transfer over the present handle.
///
/// Without a handle, or when its connections carried data the other way, 425. Who listens and who sends is free
/// (REVERSE); in MODE E a handle keeps the direction of its first transfer.
pub(super) fn begin(session: &mut Session, transfer: Transfer) -> Step {
    match session.data.clone() {
        DataHandle::None => Step::Answer(Answer::line(425, "Use PASV or PORT first.")),
        DataHandle::Delayed(kind, op) => run_passive(session, kind, *op, Some(transfer)),
        DataHandle::Ready { direction: Some(direction), .. } if direction != transfer.direction => {
            Step::Answer(Answer::line(425, "The data connections carried data the other way; use PASV or PORT first."))
        }
        DataHandle::Ready { mode, .. } => start(transfer, mode, None),
    }
}

fn start(transfer: Transfer, mode: Mode, before: Option<Answer>) -> Step {
    let progress = Progress::new(transfer.direction);
    Step::Run { before, op: Box::new(transfer.into_op(mode)), task: Box::new(Task::Transfer(progress)) }
}

/// The listener's addresses: the reply, and the transfer if it waited for them.
pub(super) fn finish_passive(
    session: &mut Session,
    config: &ServerConfig,
    (kind, mode, then): (PassiveKind, Mode, Option<Transfer>),
    outcome: Outcome,
) -> Step {
    let addresses = match outcome {
        Outcome::Listening(addresses) if !addresses.is_empty() => addresses,
        Outcome::Failed(failure) => return Step::Answer(failure::no_data_connection(&failure)),
        _ => return Step::Answer(Answer::line(425, "No address to listen on.")),
    };
    if kind == PassiveKind::Extended && mode == Mode::Stream && then.is_none() && elsewhere(config, addresses[0]) {
        return Step::run(Op::CloseData, Task::Simple(Answer::line(522, "Data go to another address; use PASV.")));
    }
    let Some(answer) = passive_answer(config, kind, &addresses, then.is_some()) else {
        return Step::Answer(Answer::line(425, "No IPv4 address to listen on; use EPSV."));
    };
    session.data = DataHandle::Ready { mode, direction: None };
    match then {
        Some(transfer) => start(transfer, mode, Some(answer)),
        None => Step::Answer(answer),
    }
}

/// Where connections to be joined are taken, in the long form of 229: whoever dials is on other hosts.
pub(super) fn finish_relay(outcome: Outcome) -> Step {
    Step::Answer(match outcome {
        Outcome::Listening(addresses) if !addresses.is_empty() => {
            Answer::line(229, format!("Joining Data Connections ({})", format_eprt(addresses[0])))
        }
        Outcome::Failed(failure) => failure::answer(&failure),
        _ => Answer::line(451, "No address to listen on."),
    })
}

/// The targets are stored: the reply, or the transfer that named them.
pub(super) fn finish_active(session: &mut Session, (mode, then): (Mode, Option<Transfer>), outcome: Outcome) -> Step {
    if let Outcome::Failed(failure) = outcome {
        return Step::Answer(failure::answer(&failure));
    }
    session.data = DataHandle::Ready { mode, direction: None };
    match then {
        Some(transfer) => start(transfer, mode, None),
        None => Step::Answer(Answer::line(200, "PORT Command successful.")),
    }
}

/// A transfer has opened its connections or its file: in MODE E those behind it go the same way, or fail as it does.
pub(super) fn carries(session: &mut Session, way: Direction) {
    if let DataHandle::Ready { mode: Mode::Extended, direction } = &mut session.data {
        *direction = Some(way);
    }
}

/// After a transfer: MODE S used the handle up; in MODE E it stays if the transfer succeeded or never began.
pub(super) fn settle(session: &mut Session, progress: &Progress, succeeded: bool) {
    let DataHandle::Ready { mode, direction } = &mut session.data else { return };
    match mode {
        Mode::Extended if succeeded => *direction = Some(progress.direction),
        Mode::Extended if !progress.opened => {}
        Mode::Extended | Mode::Stream => session.data = DataHandle::None,
    }
}

/// Forgets the handle; the operation that closes it on the data side, if there is one there.
pub(super) fn drop_handle(session: &mut Session) -> Option<Op> {
    match std::mem::replace(&mut session.data, DataHandle::None) {
        DataHandle::Ready { .. } => Some(Op::CloseData),
        DataHandle::None | DataHandle::Delayed(..) => None,
    }
}

/// ABOR with nothing running closes the data connection (RFC 959 §4.1.3).
pub(super) fn abort_idle(session: &mut Session) -> Step {
    let answer = Answer::line(226, "Abort successful.");
    match drop_handle(session) {
        Some(op) => Step::run(op, Task::Simple(answer)),
        None => Step::Answer(answer),
    }
}

/// 227, 229, or their 127 and 129 when a transfer follows; `None` if the form needs IPv4 and there is none.
fn passive_answer(config: &ServerConfig, kind: PassiveKind, addresses: &[SocketAddr], follows: bool) -> Option<Answer> {
    let first = *addresses.first()?;
    let answer = match kind {
        PassiveKind::Plain => {
            let code = if follows { 127 } else { 227 };
            Answer::line(code, format!("Entering Passive Mode ({})", format_port(first)?))
        }
        PassiveKind::V2 => Answer::line(127, format!("PORT ({})", format_port(first)?)),
        PassiveKind::Extended => {
            let code = if follows { 129 } else { 229 };
            Answer::line(code, format!("Entering Extended Passive Mode ({})", epsv_form(config, first)))
        }
        PassiveKind::Striped(long) => {
            let code = if follows { 129 } else { 229 };
            let mut answer = Answer::listing(code, "Entering Striped Passive Mode.", "End");
            for &address in addresses {
                answer.push(format_either(address, long));
            }
            answer
        }
    };
    Some(answer)
}

/// Whether a listener is at an IPv4 address that EPSV has no words for, and PASV has: its reply names a port alone
/// (RFC 2428 §3). Everyday clients that meet the long form give up; after a refusal they send PASV.
fn elsewhere(config: &ServerConfig, address: SocketAddr) -> bool {
    let control = config.control_address.map(|ip| ip.to_canonical());
    address.ip().to_canonical().is_ipv4() && control.is_some_and(|ip| ip.is_ipv4() && ip != address.ip().to_canonical())
}

/// `|||port|` (RFC 2428 §3); the long form when the listener is on another host (GCT practice).
fn epsv_form(config: &ServerConfig, address: SocketAddr) -> String {
    match config.control_address {
        Some(control) if control.to_canonical() != address.ip().to_canonical() => format_eprt(address),
        _ => format!("|||{}|", address.port()),
    }
}
