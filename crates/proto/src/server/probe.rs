//! SITE PROBE, ERET M and D, ESTO M and D, SITE CONGESTION and SITE SPENT (our own).

use bytes::BytesMut;

use super::answer::Answer;
use super::config::ServerConfig;
use super::session::{Direction, Once, Session};
use super::step::{Step, Task};
use super::transfer::{Transfer, put_marker, tenths};
use super::{data, failure};
use crate::command::SiteProbe;
use crate::fact;
use crate::marker::{Marker, Perf};
use crate::op::{Bounds, Fact, Notice, Op, Outcome, Probe, ProbeKind};

/// SITE PROBE.
pub(super) fn site(session: &Session, config: &ServerConfig, probe: SiteProbe) -> Step {
    let nothing = Bounds { bytes: 1, time: std::time::Duration::from_millis(1) };
    let (kind, bounds, path) = match probe {
        SiteProbe::Host(path) => (ProbeKind::Host, nothing, path),
        SiteProbe::Read(bounds, path) => (ProbeKind::Read, bounds, path),
        SiteProbe::Write(bounds, path) => (ProbeKind::Write, bounds, path),
    };
    match allowed(session, config, kind, bounds, &path) {
        Ok(probe) => Step::run(Op::Probe(probe), Task::Probe),
        Err(refusal) => Step::Answer(refusal),
    }
}

/// ERET M and D, ESTO M and D.
pub(super) fn over_data(
    session: &mut Session,
    config: &ServerConfig,
    kind: ProbeKind,
    bounds: Bounds,
    path: &[u8],
) -> Step {
    session.once = Once::default();
    let direction = match kind {
        ProbeKind::Receive { .. } => Direction::Receiving,
        _ => Direction::Sending,
    };
    match allowed(session, config, kind, bounds, path) {
        Ok(probe) => data::begin(session, Transfer::probe(direction, probe)),
        Err(refusal) => Step::Answer(refusal),
    }
}

fn allowed(
    session: &Session,
    config: &ServerConfig,
    kind: ProbeKind,
    bounds: Bounds,
    path: &[u8],
) -> Result<Probe, Answer> {
    let Some(most) = config.probe else {
        return Err(Answer::line(502, "Measuring is switched off on this server."));
    };
    if kind.writes() && config.read_only {
        return Err(failure::read_only());
    }
    let performance_interval = session.markers.performance;
    Ok(Probe { kind, path: session.resolve(path), bounds: bounds.within(most), performance_interval })
}

/// 112 while storage is measured.
pub(super) fn notice(notice: &Notice, out: &mut BytesMut) {
    if let Notice::Performance { stripe, stripes, bytes, at_ms } = *notice {
        let (stripe, stripes) = (stripe.into(), stripes.into());
        put_marker(&Marker::Perf(Perf { at: tenths(at_ms), stripe, bytes, stripes }), out);
    }
}

/// `250-` with what was found out.
pub(super) fn finish(outcome: Outcome) -> Step {
    Step::Answer(match outcome {
        Outcome::Probed(facts) => with_facts(Answer::listing(250, "Probed.", "End"), &facts),
        other => failure::unexpected(other),
    })
}

/// `226-` of a measurement over the data handle.
pub(super) fn complete(facts: &[Fact]) -> Answer {
    with_facts(Answer::listing(226, "Transfer Complete.", "End"), facts)
}

fn with_facts(answer: Answer, facts: &[Fact]) -> Answer {
    let lines = facts.iter().filter_map(fact::line).take(fact::MAX_FACTS);
    lines.fold(answer, |answer, line| answer.with(line))
}

/// SITE CONGESTION: what data connections of the next handles use.
pub(super) fn congestion(session: &mut Session, config: &ServerConfig, name: Option<String>) -> Step {
    if config.congestion.is_empty() {
        return Step::Answer(Answer::line(502, "SITE CONGESTION is not implemented."));
    }
    if let Some(unknown) = name.as_ref().filter(|name| !config.congestion.contains(name)) {
        let known = config.congestion.join(", ");
        let text = format!("Congestion control {unknown} is not allowed here; allowed are {known}.");
        return Step::Answer(Answer::line(504, text));
    }
    session.params.congestion = name;
    Step::Answer(Answer::line(200, "OK."))
}

/// SITE SPENT: whether final replies of transfers tell where the time went.
pub(super) fn spent(session: &mut Session, on: bool) -> Step {
    session.tells_spent = on;
    Step::Answer(Answer::line(200, "OK."))
}
