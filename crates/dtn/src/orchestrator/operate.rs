//! Single operations: one thread, with sessions that stay logged in for a while.

use std::cell::RefCell;
use std::rc::Rc;
use std::thread;
use std::time::Instant;

use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio::time::interval;
use whimbrel_engine::dispatch::{Entry, EntryKind, Operation, OperationKind, OperationResult, Request, Site};
use whimbrel_engine::listing::{ObjectKind, Timestamp, trimmed};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::mlsx;
use whimbrel_proto::op::{Notice, Op, Outcome};

use super::Limits;
use super::foresee::Foreseer;
use super::hold::Line;
use super::site::{self, Reach};
use crate::client::Owner;
use crate::client::dtns::Dtns;
use crate::client::end::{End, ends_session, listing};
use crate::client::remote::EndEvent;

/// Sessions kept that have no work.
const KEPT: usize = 64;
/// A session that was idle for so long is asked whether it lives before anything is changed by it.
const DOUBTFUL: std::time::Duration = std::time::Duration::from_secs(10);
/// Attempts to tell the service what came of an operation; after that nobody waits for it.
const TOLD: u32 = 5;

/// A logged-in session without work.
struct Idle {
    site: Site,
    session: Session,
}

struct Session {
    end: End,
    reach: Reach,
    used: Instant,
}

/// What all operations share.
struct Operations {
    line: Line,
    limits: Limits,
    idle: RefCell<Vec<Idle>>,
    foreseer: Foreseer,
}

/// Starts the thread; it ends with the sender.
pub(super) fn start(line: Line, limits: Limits) -> Result<mpsc::UnboundedSender<Operation>, Fault> {
    let (sender, mut orders) = mpsc::unbounded_channel::<Operation>();
    let failed = |error| Fault::from_io(error, "start a thread for operations").side(Side::Us);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let work = move || {
        let foreseer = Foreseer::new(line.clone(), limits.clone());
        let shared = Rc::new(Operations { line, limits, idle: RefCell::default(), foreseer });
        LocalSet::new().block_on(&runtime, async move {
            let mut ticks = interval(shared.limits.idle);
            loop {
                tokio::select! {
                    order = orders.recv() => match order {
                        Some(operation) => drop(tokio::task::spawn_local(shared.clone().carry_out(operation))),
                        None => return,
                    },
                    _ = ticks.tick() => shared.tidy(),
                }
            }
        });
    };
    thread::Builder::new().name("operations".to_owned()).spawn(work).map_err(failed)?;
    Ok(sender)
}

impl Operations {
    async fn carry_out(self: Rc<Self>, operation: Operation) {
        let result = match operation.kind {
            OperationKind::Foresee(draft) => self.foreseer.foresee(operation.site, *draft).await,
            kind => self.result(&operation.site, &kind).await,
        };
        let answer = Request::Answer { operation: operation.id, result };
        let mut wait = self.limits.service_wait;
        for _ in 0..TOLD {
            match self.line.ask(answer.clone()).await {
                Ok(_) => return,
                Err(fault) => tracing::warn!(%fault, "the service does not take what came of an operation"),
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
    }

    async fn result(&self, site: &Site, kind: &OperationKind) -> Result<OperationResult, Fault> {
        let reads = matches!(kind, OperationKind::List { .. } | OperationKind::Stat { .. });
        if let Some(mut session) = self.take(site) {
            let doubtful = session.used.elapsed() >= DOUBTFUL && !reads;
            let lives = !doubtful || session.end.run(Op::Facts { path: b"/".to_vec(), facts: None }).await.is_answer();
            if lives {
                match operate(&mut session, kind).await {
                    // The server closed it meanwhile.
                    Err(fault) if ends_session(&fault) && reads => {}
                    result => return self.keep(site, session, result),
                }
            }
        }
        let mut session = self.open(site).await?;
        let result = operate(&mut session, kind).await;
        self.keep(site, session, result)
    }

    async fn open(&self, site: &Site) -> Result<Session, Fault> {
        let reach = Reach::new(site, &self.line)?;
        let (remote, _) = Dtns::default().dial(&reach.target, &site::session(""), &[]).await?;
        Ok(Session { end: End::Remote(Box::new(remote)), reach, used: Instant::now() })
    }

    fn take(&self, site: &Site) -> Option<Session> {
        let mut idle = self.idle.borrow_mut();
        // The youngest: it lives most probably.
        let at = idle.iter().rposition(|idle| idle.site == *site)?;
        let session = idle.remove(at).session;
        (session.used.elapsed() < self.limits.idle).then_some(session)
    }

    fn keep(
        &self,
        site: &Site,
        session: Session,
        result: Result<OperationResult, Fault>,
    ) -> Result<OperationResult, Fault> {
        if !result.as_ref().is_err_and(ends_session) {
            let mut idle = self.idle.borrow_mut();
            if idle.len() >= KEPT {
                idle.remove(0);
            }
            idle.push(Idle { site: site.clone(), session: Session { used: Instant::now(), ..session } });
        }
        result.map_err(|fault| fault.side_if_unknown(Side::Source))
    }

    fn tidy(&self) {
        self.idle.borrow_mut().retain(|idle| idle.session.used.elapsed() < self.limits.idle);
    }
}

trait Answered {
    /// Whether a server said something, be it a refusal.
    fn is_answer(&self) -> bool;
}

impl Answered for Result<Outcome, Fault> {
    fn is_answer(&self) -> bool {
        !self.as_ref().is_err_and(ends_session)
    }
}

async fn operate(session: &mut Session, kind: &OperationKind) -> Result<OperationResult, Fault> {
    let end = &mut session.end;
    match kind {
        OperationKind::List { path, most } => {
            let entries = list(end, path, *most as usize).await?;
            Ok(OperationResult::Listing { entries })
        }
        OperationKind::Stat { path } => {
            let entry = stat(end, path).await?;
            let entry = entry.ok_or_else(|| Fault::new(FaultCode::NotFound, "describe").on_path(path))?;
            Ok(OperationResult::Told { entry })
        }
        OperationKind::MakeDirectory { path } => {
            let path = trimmed(path);
            let made = end.run(Op::MakeDirectory(path.to_vec())).await;
            done(end, made, path, "make directory").await
        }
        OperationKind::Symlink { path, target } => {
            let path = trimmed(path);
            let made = end.run(Op::Symlink { target: target.clone(), link: path.to_vec() }).await;
            done(end, made, path, "make link").await
        }
        OperationKind::Rename { from, to } => {
            let (from, to) = (trimmed(from), trimmed(to));
            if session.reach.is_root(from) {
                let fault = Fault::new(FaultCode::InvalidArgument, "rename").on_path(from).side(Side::Source);
                return Err(fault.detail("the collection's own directory keeps its name"));
            }
            // Most servers replace what is there without a word.
            if end.stat(to, true).await?.is_some() {
                return Err(Fault::new(FaultCode::AlreadyExists, "rename to").on_path(to));
            }
            end.run(Op::Rename { from: from.to_vec(), to: to.to_vec() }).await?;
            Ok(OperationResult::Done)
        }
        OperationKind::Foresee(_) => Err(Fault::new(FaultCode::Internal, "foresee").side(Side::Us)),
    }
}

/// Servers refuse to make what is there with many codes.
async fn done(end: &mut End, made: Result<Outcome, Fault>, path: &[u8], op: &str) -> Result<OperationResult, Fault> {
    match made {
        Ok(_) => Ok(OperationResult::Done),
        Err(fault) if ends_session(&fault) => Err(fault),
        Err(fault) => match end.stat(path, true).await {
            Ok(Some(_)) => Err(Fault::new(FaultCode::AlreadyExists, op).on_path(path)),
            _ => Err(fault),
        },
    }
}

async fn stat(end: &mut End, path: &[u8]) -> Result<Option<Entry>, Fault> {
    let name = crate::client::plan::base_name(path).to_vec();
    match end.run(Op::Facts { path: path.to_vec(), facts: None }).await {
        Ok(Outcome::Line(line)) => {
            let told = mlsx::Entry::parse(&line).map_err(|_| {
                Fault::new(FaultCode::PeerMisbehaved, "describe").on_path(path).detail(String::from_utf8_lossy(&line))
            })?;
            Ok(Some(Entry { name, ..entry(told) }))
        }
        Ok(_) => Ok(None),
        Err(fault) if fault.code == FaultCode::NotFound => Ok(None),
        Err(fault) if fault.code == FaultCode::NotSupported => {
            let found = end.stat_without_facts(path).await?;
            Ok(found.map(|object| Entry { name, ..plain(object, Owner::default()) }))
        }
        Err(fault) => Err(fault),
    }
}

async fn list(end: &mut End, path: &[u8], most: usize) -> Result<Vec<Entry>, Fault> {
    let over_control = end.remote().is_none_or(|remote| !remote.lacks("MLSC"));
    if over_control {
        match list_inline(end, path, most).await {
            Err(fault) if fault.code == FaultCode::NotSupported => {}
            result => return result,
        }
    }
    let mut entries = Vec::new();
    end.list_over_data(path, true, async |batch| {
        entries.extend(batch.into_iter().map(|(object, owner)| plain(object, owner)));
        if entries.len() > most { Err(too_many(path, most)) } else { Ok(()) }
    })
    .await?;
    Ok(entries)
}

async fn list_inline(end: &mut End, path: &[u8], most: usize) -> Result<Vec<Entry>, Fault> {
    let id = end.submit(listing(path))?;
    let (mut entries, mut unclear) = (Vec::new(), None);
    let mut over = false;
    loop {
        match end.event_in_time().await? {
            (op, EndEvent::Notice(Notice::Lines(lines))) if op == id && !over => {
                for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
                    match mlsx::Entry::parse(line) {
                        Ok(told) if told.is_dot() => {}
                        Ok(told) if told.kind.is_some() && !told.name.contains(&b'/') => entries.push(entry(told)),
                        _ => drop(unclear.get_or_insert_with(|| line.to_vec())),
                    }
                }
                over = entries.len() > most;
            }
            (op, EndEvent::Done(result)) if op == id => {
                result?;
                return match unclear {
                    _ if over => Err(too_many(path, most)),
                    Some(line) => Err(crate::client::end::unclear(path, &line)),
                    None => Ok(entries),
                };
            }
            _ => {}
        }
    }
}

fn too_many(path: &[u8], most: usize) -> Fault {
    let fault = Fault::new(FaultCode::FileTooLarge, "list").on_path(path).side(Side::Source);
    fault.detail(format!("the directory has more than {most} entries; transfers of it work all the same"))
}

/// What a line tells; servers tell of links what they point to, and of those that point to nothing the links themselves.
fn entry(told: mlsx::Entry) -> Entry {
    let number = |name: Option<Vec<u8>>, number: Option<u32>| {
        let name = name.map(|name| String::from_utf8_lossy(&name).into_owned());
        name.or_else(|| number.map(|number| number.to_string()))
    };
    use mlsx::EntryKind as K;
    let slink = told.slink.filter(|target| !target.is_empty());
    let (kind, link_target) = match (told.kind, slink) {
        (Some(K::Symlink), target) => (EntryKind::DanglingLink, Some(target.unwrap_or_default())),
        (Some(K::File), target) => (EntryKind::File, target),
        (Some(K::Dir | K::Current | K::Parent), target) => (EntryKind::Directory, target),
        (Some(K::Other(_)) | None, target) => (EntryKind::Other, target),
    };
    Entry {
        name: told.name,
        kind,
        size: told.size.unwrap_or(0),
        mode: told.mode.map(|mode| mode & 0o7777),
        user: number(told.owner, told.uid),
        group: number(told.group, told.gid),
        modified: told.modify.map(|time| Timestamp { secs: time.secs, nanos: time.nanos }),
        link_target,
    }
}

/// The same of servers that tell less.
fn plain(object: whimbrel_engine::listing::Object, owner: Owner) -> Entry {
    let (kind, link_target) = match object.kind {
        ObjectKind::File => (EntryKind::File, None),
        ObjectKind::Directory => (EntryKind::Directory, None),
        ObjectKind::Symlink { target } => (EntryKind::DanglingLink, Some(target)),
        ObjectKind::Other => (EntryKind::Other, None),
    };
    Entry {
        name: object.path,
        kind,
        size: object.size.unwrap_or(0),
        mode: object.mode,
        user: owner.user,
        group: owner.group,
        modified: object.modified,
        link_target,
    }
}
