//! An orchestrator at work for a naive service, with servers at both ends.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use uuid::Uuid;
use whimbrel_dtn::orchestrator::{Limits, Orchestrator};
use whimbrel_engine::Fault;
use whimbrel_engine::dispatch::{
    Assignment, Credential, End, Lease, OperationKind, OperationResult, Server as SiteServer, Site, Work, WorkItem,
};
use whimbrel_engine::retry::RetryPolicy;
use whimbrel_engine::task::{DeleteOptions, TransferOptions};

use crate::desk::Service;
use crate::support::Server;
use crate::support::dtn::until;

/// An orchestrator on a thread of its own.
pub struct Bench {
    pub service: Arc<Service>,
    stop: watch::Sender<bool>,
    drop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

pub fn limits() -> Limits {
    Limits {
        retry: RetryPolicy { attempts: 3, base: Duration::from_millis(20), ..RetryPolicy::default() },
        first_wait: Duration::from_millis(20),
        service_wait: Duration::from_millis(10),
        batch: Duration::from_millis(10),
        gauge: Duration::from_millis(50),
        ..Limits::default()
    }
}

impl Bench {
    pub fn new() -> Self {
        Self::of(Arc::default())
    }

    pub fn of(service: Arc<Service>) -> Self {
        Self::with(service, limits())
    }

    pub fn with(service: Arc<Service>, limits: Limits) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (drop, dropped) = oneshot::channel();
        let desk = service.clone();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    ended = Orchestrator::new(limits).run(desk, stopped) => ended.unwrap(),
                    _ = dropped => {}
                }
            });
        });
        Self { service, stop, drop: Some(drop), thread: Some(thread) }
    }

    /// Ends it as a crash would.
    pub fn crash(mut self) {
        self.drop.take().unwrap().send(()).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }

    /// Ends it orderly.
    pub fn finish(mut self) {
        self.stop.send_replace(true);
        self.thread.take().unwrap().join().unwrap();
        self.service.assert_content();
    }

    /// Waits until work on the task has ended.
    #[track_caller]
    pub fn wait(&self, task: Uuid) -> End {
        until("the end of a task", || self.service.see(task, |task| task.end.is_some()));
        self.service.see(task, |task| task.end.clone()).unwrap()
    }

    /// A transfer from its submission to its end.
    #[track_caller]
    pub fn transfer(&self, ends: &Ends, options: TransferOptions, items: Vec<WorkItem>) -> (Uuid, End) {
        let task = ends.submit(&self.service, Work::Transfer(Box::new(options)), items);
        (task, self.wait(task))
    }

    #[track_caller]
    pub fn delete(&self, ends: &Ends, options: DeleteOptions, paths: &[&Path]) -> (Uuid, End) {
        let items = (1..).zip(paths).map(|(number, path)| item(number, path, Path::new(""))).collect();
        let task = ends.submit(&self.service, Work::Delete(options), items);
        (task, self.wait(task))
    }

    #[track_caller]
    pub fn operate(&self, site: &Site, kind: OperationKind) -> Result<OperationResult, Fault> {
        let id = self.service.operate(site, kind);
        let answer = RefCell::new(None);
        until("an answer", || {
            *answer.borrow_mut() = self.service.answer(id);
            answer.borrow().is_some()
        });
        answer.into_inner().unwrap()
    }
}

/// Two servers with the whole host below them.
pub struct Ends {
    pub servers: [Server; 2],
    pub base: String,
}

impl Ends {
    pub fn own(base: &Path) -> Self {
        Self { servers: [Server::own(), Server::own()], base: base.display().to_string() }
    }

    pub fn site(&self, end: usize) -> Site {
        let url = self.servers[end].url("/");
        Site {
            collection: Uuid::from_u128(end as u128),
            servers: vec![SiteServer::at(url.trim_end_matches('/'), None)],
            credential: Credential::None,
            base: self.base.clone(),
            local_user: None,
        }
    }

    /// A transfer from the first server to itself.
    pub fn submit_within(&self, service: &Service, options: TransferOptions, items: Vec<WorkItem>) -> Uuid {
        self.put(service, Work::Transfer(Box::new(options)), Some(self.site(0)), items)
    }

    pub fn submit(&self, service: &Service, work: Work, items: Vec<WorkItem>) -> Uuid {
        let destination = matches!(work, Work::Transfer(_)).then(|| self.site(1));
        self.put(service, work, destination, items)
    }

    fn put(&self, service: &Service, work: Work, destination: Option<Site>, items: Vec<WorkItem>) -> Uuid {
        let assignment = Assignment { destination, ..self.assignment(work) };
        let task = assignment.lease.task;
        service.submit(assignment, items);
        task
    }

    /// From the first server to the second one.
    pub fn assignment(&self, work: Work) -> Assignment {
        Assignment {
            lease: Lease { task: Uuid::from_u128(rand()), epoch: 0 },
            work,
            source: self.site(0),
            destination: Some(self.site(1)),
            relays: Vec::new(),
            label: "test".into(),
            max_concurrency: None,
            max_rate: None,
        }
    }
}

fn rand() -> u128 {
    use std::hash::{BuildHasher as _, RandomState};
    u128::from(RandomState::new().hash_one(1))
}

pub fn item(number: u64, source: &Path, destination: &Path) -> WorkItem {
    use std::os::unix::ffi::OsStrExt as _;
    WorkItem {
        number,
        source: source.as_os_str().as_bytes().to_vec(),
        destination: destination.as_os_str().as_bytes().to_vec(),
        recursive: None,
        symlink: false,
        checksum: None,
    }
}
