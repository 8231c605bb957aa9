//! The first pair of sessions: what planning and the first transfer will want to know is asked along with the login.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::timeout;
use whimbrel_engine::listing::Object;
use whimbrel_engine::plan::Links;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{Op, OpId};

use crate::client::dtns::Dtns;
use crate::client::end::described;
use crate::client::options::{CopyOptions, Jobs, Place};
use crate::client::pair::{DataWish, Early, fresh_nonce};
use crate::client::plan::{Known, Session};
use crate::client::remote::Remote;
use crate::client::shared::{LoggedIn, Route, Shared, asked_early};
use crate::client::tally::Places;
use crate::client::wildcard;

/// How long sessions for files that are still to come are waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The first pair of sessions with what was asked in the first flight.
#[derive(Default)]
pub(in crate::client) struct Preparation {
    opened: Option<Opened>,
    /// What was asked in the first flight.
    pub(in crate::client) known: Known,
    /// What was learned of each DTN.
    pub(in crate::client) dtns: Rc<Dtns>,
    /// A session for listings at the source, asked for the first one already.
    pub(super) listed: Option<Session>,
}

struct Opened {
    route: Route,
    source: Option<Remote>,
    destination: Option<Remote>,
    early: Option<Early>,
}

impl Preparation {
    /// The servers, as far as sessions stand.
    pub(in crate::client) fn remotes(&self) -> impl Iterator<Item = &Remote> {
        [self.source(), self.destination()].into_iter().flatten()
    }

    /// The source's server, as far as its session stands.
    pub(in crate::client) fn source(&self) -> Option<&Remote> {
        self.opened.as_ref()?.source.as_ref()
    }

    /// The destination's server, as far as its session stands.
    pub(in crate::client) fn destination(&self) -> Option<&Remote> {
        self.opened.as_ref()?.destination.as_ref()
    }

    /// Leaves the sessions to the first worker.
    pub(super) async fn leave(self, shared: &Shared) -> Result<Known, Fault> {
        if let Some(opened) = self.opened {
            let pair = shared.complete(opened.source, opened.destination, opened.early).await?;
            shared.leave_prepared(opened.route, pair);
        }
        Ok(self.known)
    }
}

/// Opens the sessions of a copy whose sources are at one end, and asks in the first flight what planning and the
/// first transfer will want to know.
pub(super) async fn prepare(jobs: &Jobs, options: &CopyOptions) -> Result<Preparation, Fault> {
    let (sources, destination) = match (jobs, &options.between) {
        (Jobs::Into { sources, destination }, _) => (sources, destination),
        (Jobs::Files(_), Some(route)) => return Ok(ahead(route, options).await),
        _ => return Ok(Preparation::default()),
    };
    let Some((source, others)) = sources.split_first() else { return Ok(Preparation::default()) };
    if others.iter().any(|other| other.target != source.target) {
        return Ok(Preparation::default());
    }
    let route = Route { source: source.target.clone(), destination: destination.target.clone() };
    if route.source.is_none() && route.destination.is_none() {
        return Ok(Preparation::default());
    }
    let follow_links = options.plan.links == Links::Follow;
    // What is asked about one source alone would be lost among several.
    let plain_source = follow_links && others.is_empty() && !wildcard::has_wildcards(&source.path);
    let source_first: Vec<Op> = plain_source.then(|| facts(source)).into_iter().collect();
    // Whether an earlier run of the same was cut short costs no round trip.
    let tallies = Places::of(jobs, options);
    let tallies = tallies.map(|places| [places.beside, places.inside]).unwrap_or_default();
    let mut destination_first = vec![facts(destination)];
    destination_first.extend(tallies.iter().flatten().map(facts));
    let first = First::new(options)?;
    let listing = async {
        match options.plan.recursive && plain_source && source.target.is_some() {
            true => Session::listing(&first.shared, source).await,
            false => None,
        }
    };
    let (ends, listed) =
        tokio::join!(first.shared.log_in(&route, [&source_first, &destination_first], first.nonce), listing);
    let [mut source_end, mut destination_end] = ends?;
    let mut known = Known::default();
    if let Some((remote, ops)) = source_end.as_mut().filter(|(_, ops)| !ops.is_empty()) {
        known.source = answer(remote, ops[0], source, Side::Source).await?.flatten();
    }
    if let Some((remote, ops)) = destination_end.as_mut() {
        known.destination = match remote.lacks("MLST") {
            // Asked again by other means.
            true => None,
            false => answer(remote, ops[0], destination, Side::Destination).await?,
        };
        let mut asked = ops[1..].iter();
        let mut found = [None, None];
        for (place, found) in tallies.iter().zip(&mut found).filter_map(|(place, found)| Some((place.as_ref()?, found)))
        {
            // Whoever cannot tell what is there has kept nothing.
            let Some(op) = asked.next() else { break };
            *found = described(remote.finish(*op).await, &place.path, false).ok().flatten();
        }
        known.tallies = known.destination.is_some().then_some(found);
    }
    let opened = first.opened(route, [source_end, destination_end]).await?;
    Ok(Preparation { opened: Some(opened), known, dtns: first.dtns, listed })
}

/// Opens the sessions of files that are still to come. Nothing where that fails: whoever has work for the servers tries again.
async fn ahead(route: &Route, options: &CopyOptions) -> Preparation {
    let opening = async {
        let first = First::new(options)?;
        let ends = first.shared.log_in(route, [&[], &[]], first.nonce).await?;
        let opened = first.opened(route.clone(), ends).await?;
        Ok::<_, Fault>(Preparation { opened: Some(opened), dtns: first.dtns, ..Preparation::default() })
    };
    match timeout(PATIENCE, opening).await {
        Ok(Ok(preparation)) => return preparation,
        Ok(Err(fault)) => tracing::debug!(%fault, "no sessions before the first file"),
        Err(_) => tracing::debug!("no sessions before the first file in time"),
    }
    Preparation::default()
}

/// What the first sessions are opened with.
struct First {
    dtns: Rc<Dtns>,
    shared: Shared,
    nonce: Option<[u8; 16]>,
}

impl First {
    fn new(options: &CopyOptions) -> Result<Self, Fault> {
        // A listener asked for now saves a round trip; in dry runs none is needed.
        let nonce = if options.dry_run { None } else { Some(fresh_nonce()?) };
        let dtns = Rc::<Dtns>::default();
        let wish = DataWish {
            parallelism: 1,
            buffer: options.buffer.fixed(),
            stripe: options.stripe,
            congestion: options.congestion.clone(),
            encrypt: options.encrypt,
            credential: options.data_credential.clone(),
        };
        Ok(Self { shared: Shared::new(options.clone(), wish, dtns.clone()), dtns, nonce })
    }

    /// The sessions as the first transfer takes them, once everything but the listener is answered.
    async fn opened(&self, route: Route, [source, mut destination]: [LoggedIn; 2]) -> Result<Opened, Fault> {
        let early = asked_early(&mut destination, self.nonce).await?;
        Ok(Opened { route, source: source.map(|(r, _)| r), destination: destination.map(|(r, _)| r), early })
    }
}

fn facts(place: &Place) -> Op {
    Op::Facts { path: place.path.clone(), facts: None }
}

/// What is at a place; `None`: the server cannot tell so, and planning asks by other means.
async fn answer(remote: &mut Remote, op: OpId, place: &Place, side: Side) -> Result<Option<Option<Object>>, Fault> {
    match described(remote.finish(op).await, &place.path, false) {
        Err(fault) if fault.code == FaultCode::NotSupported => Ok(None),
        result => result.map(Some).map_err(|fault| fault.side_if_unknown(side)),
    }
}
