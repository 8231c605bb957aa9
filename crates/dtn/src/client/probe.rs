//! Measures a path between two ends, part by part, and asks the hosts about themselves.
//!
//! Our own servers measure by themselves (PROBE in FEAT); with others what can be measured by moving `/dev/zero` and
//! existing files is, and the rest is said.

mod parts;

use std::time::{Duration, Instant};

use tokio::time::timeout;
use whimbrel_engine::probe::{Facts, Host, Measured, Measurement, Part, Report};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{Bounds, Fact, Notice, Op, OpId, Outcome, Probe, ProbeKind};

use super::dtns::Dtns;
use super::end::End;
use super::local::{LocalData, LocalOptions};
use super::options::{DataCredential, Place};
use super::pair::{DataWish, Pair, Role};
use super::remote::{EndEvent, Remote};
use super::target::SessionOptions;

/// What an end may take beyond the time of a measurement: to open files, to write out, to answer.
const SPARE: Duration = Duration::from_secs(600);

/// How a probe is made.
#[derive(Debug, Clone)]
pub struct ProbeOptions {
    /// Where each measurement ends.
    pub bounds: Bounds,
    /// Data channels.
    pub parallelism: u16,
    /// Congestion control of the sender; `None`: as the host has it.
    pub congestion: Option<String>,
    /// Control sessions.
    pub session: SessionOptions,
    /// The data side of this host.
    pub local: LocalOptions,
}

/// News of a probe.
#[derive(Debug)]
pub enum ProbeEvent<'a> {
    /// A measurement begins.
    Began(Part),
    /// So many bytes so far, after this time.
    Progress(Part, u64, Duration),
    /// A measurement is over.
    Measured(&'a Measurement),
}

/// Who hears of it.
type Events<'e> = &'e mut dyn FnMut(ProbeEvent<'_>);

/// Measures the path from a directory to a directory, and concludes.
///
/// # Errors
/// When an end cannot be reached, or a path is not there; what cannot be measured is said in the report.
pub async fn probe(
    source: &Place,
    destination: &Place,
    options: &ProbeOptions,
    events: &mut dyn FnMut(ProbeEvent<'_>),
) -> Result<Report, Fault> {
    let mut prober = Prober { source, destination, options, pair: open_pair(source, destination, options).await? };
    let hosts = [prober.host(Role::Source).await?, prober.host(Role::Destination).await?];
    let mut measurements = Vec::new();
    for part in Part::ALL {
        events(ProbeEvent::Began(part));
        let measurement = match prober.measure(part, events).await {
            Ok((measured, note)) => Measurement { part, measured: Some(measured), note },
            Err(why) => Measurement { part, measured: None, note: Some(prober.explained(why).await?) },
        };
        events(ProbeEvent::Measured(&measurement));
        measurements.push(measurement);
    }
    let [source, destination] = hosts;
    Ok(Report::conclude(source, destination, measurements))
}

/// Why something was not measured.
enum Why {
    /// There is no way.
    Impossible(String),
    /// It was tried.
    Failed(Fault),
}

impl From<Fault> for Why {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault)
    }
}

struct Prober<'a> {
    source: &'a Place,
    destination: &'a Place,
    options: &'a ProbeOptions,
    pair: Pair,
}

async fn open_pair(source: &Place, destination: &Place, options: &ProbeOptions) -> Result<Pair, Fault> {
    let (one, other) = tokio::join!(dial(source, options, Role::Source), dial(destination, options, Role::Destination));
    let (one, other) = (one?, other?);
    let local = match (&one, &other) {
        (Some(_), Some(_)) => None,
        _ => Some(LocalData::start(&options.local).await?),
    };
    let here = |peer: Option<&Remote>| -> Result<End, Fault> {
        let local = local.as_ref().expect("started when an end is here");
        Ok(End::Local(local.attach(peer.map(Remote::addresses), peer.and_then(Remote::credential).cloned())?))
    };
    let (source_local, destination_local) = (
        one.is_none().then(|| here(other.as_ref())).transpose()?,
        other.is_none().then(|| here(one.as_ref())).transpose()?,
    );
    let end = |remote: Option<Remote>, local: Option<End>| match remote {
        Some(remote) => End::Remote(Box::new(remote)),
        None => local.expect("an end is a server or here"),
    };
    Ok(Pair::new(end(one, source_local), end(other, destination_local)))
}

async fn dial(place: &Place, options: &ProbeOptions, role: Role) -> Result<Option<Remote>, Fault> {
    let Some(target) = &place.target else { return Ok(None) };
    let dialled = Dtns::default().dial(target, &options.session, &[]).await;
    dialled.map(|(remote, _)| Some(remote)).map_err(|fault| fault.side_if_unknown(role.side()))
}

/// Facts as the report has them.
fn table(facts: Vec<Fact>) -> Facts {
    facts.into_iter().map(|fact| (fact.name, fact.value)).collect()
}

fn probed(outcome: Outcome) -> Facts {
    match outcome {
        Outcome::Probed(facts) => table(facts),
        _ => Facts::new(),
    }
}

impl Prober<'_> {
    fn place(&self, role: Role) -> &Place {
        match role {
            Role::Source => self.source,
            Role::Destination => self.destination,
        }
    }

    fn end(&self, role: Role) -> &End {
        match role {
            Role::Source => &self.pair.source,
            Role::Destination => &self.pair.destination,
        }
    }

    /// Whether an end measures by itself.
    fn can_measure(&self, role: Role) -> bool {
        self.end(role).has("PROBE")
    }

    /// Why an end does not.
    fn cannot(&self, role: Role, what: &str) -> Why {
        let name = match role {
            Role::Source => "the source's server",
            Role::Destination => "the destination's server",
        };
        Why::Impossible(match self.end(role).has("SPENT") {
            true => format!("{name} is not allowed to {what}: its administrator has switched measuring off"),
            false => format!("{name} has no command to {what}; a whimbrel server has"),
        })
    }

    fn op(&self, role: Role, kind: ProbeKind) -> Op {
        Op::Probe(Probe {
            kind,
            path: self.place(role).path.clone(),
            bounds: self.options.bounds,
            performance_interval: Some(Duration::from_secs(1)),
        })
    }

    /// What a host says of itself; the fault of a path that is not there.
    async fn host(&mut self, role: Role) -> Result<Host, Fault> {
        let place = self.place(role);
        let shown = place.target.as_ref().map_or("this host".to_owned(), ToString::to_string);
        let place = format!("{shown} {}", String::from_utf8_lossy(&place.path));
        let path = self.place(role).path.clone();
        if self.pair.end(role).stat(&path, false).await?.is_none() {
            return Err(Fault::new(FaultCode::NotFound, "probe").on_path(&path).side(role.side()));
        }
        if !self.can_measure(role) {
            let Why::Impossible(why) = self.cannot(role, "describe its host") else { unreachable!("it is no fault") };
            return Ok(Host { place, note: Some(why), ..Host::default() });
        }
        let op = self.op(role, ProbeKind::Host);
        match self.pair.end(role).run(op).await {
            Ok(outcome) => {
                let mut facts = probed(outcome);
                let share = self.end(role).processors();
                facts.extend(share.map(|share| ("host.processors".to_owned(), format!("{share:.2}"))));
                Ok(Host { place, facts, note: None })
            }
            Err(fault) if fault.code == FaultCode::ConnectionLost => Err(fault.side_if_unknown(role.side())),
            Err(fault) => Ok(Host { place, note: Some(fault.to_string()), ..Host::default() }),
        }
    }

    /// A sentence for the report; sessions in which something failed are replaced.
    async fn explained(&mut self, why: Why) -> Result<String, Fault> {
        match why {
            Why::Impossible(why) => Ok(why),
            Why::Failed(fault) => {
                self.pair = open_pair(self.source, self.destination, self.options).await?;
                Ok(format!("it failed: {fault}"))
            }
        }
    }

    /// Longest silence of ends that measure: they tell of what moves every few seconds, and end when the time is up.
    fn silence(&self) -> Duration {
        self.options.bounds.time + SPARE
    }

    /// Waits for the end of one operation at one end, telling progress.
    async fn follow(&mut self, role: Role, op: Op, part: Part, events: Events<'_>) -> Result<Outcome, Fault> {
        let began = Instant::now();
        let id = self.pair.end(role).submit(op)?;
        loop {
            let event = within(self.silence(), self.pair.end(role).event()).await;
            match event.map_err(|fault| fault.side_if_unknown(role.side()))? {
                (op, EndEvent::Done(result)) if op == id => {
                    return result.map_err(|fault| fault.side_if_unknown(role.side()));
                }
                (op, EndEvent::Notice(Notice::Performance { bytes, .. })) if op == id => {
                    events(ProbeEvent::Progress(part, bytes, began.elapsed()));
                }
                _ => {}
            }
        }
    }

    /// New data connections; the operation that is still to be answered, and by whom.
    async fn connect(&mut self) -> Result<(Role, OpId), Fault> {
        let wish = DataWish {
            parallelism: self.options.parallelism,
            buffer: None,
            stripe: false,
            congestion: self.options.congestion.clone(),
            encrypt: false,
            credential: DataCredential::default(),
        };
        self.pair.connect(&wish).await.map_err(|(role, fault)| fault.side_if_unknown(role.side()))
    }
}

/// The rate by the clock of the end that saw the last byte stored, or else by ours.
/// What comes before the ends were silent for too long.
async fn within<T>(silence: Duration, event: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let stalled = || {
        let detail = format!("nothing was heard for {} s", silence.as_secs());
        Fault::new(FaultCode::Stalled, "measure").side(Side::Network).detail(detail)
    };
    timeout(silence, event).await.unwrap_or_else(|_| Err(stalled()))
}

fn rate(source: Facts, destination: Facts, bytes: u64, elapsed: Duration) -> Measured {
    let told = |facts: &Facts| Some((Measured::number(facts, "bytes")?, Measured::number(facts, "micros")?));
    let (bytes, time) = match told(&destination).or_else(|| told(&source)) {
        Some((bytes, micros)) => (bytes, Duration::from_micros(micros)),
        None => (bytes, elapsed),
    };
    Measured::new(bytes, time, source, destination)
}
