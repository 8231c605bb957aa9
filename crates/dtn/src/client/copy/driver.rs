//! Performs what the transfer machine decides, and feeds it with what happens.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::time::{interval, sleep_until};
use whimbrel_engine::auto::{Bottleneck, Controller, Explain, Facts, Figures, Imposed, Limits, Plan, Sizes};
use whimbrel_engine::events::{Event, Outcome};
use whimbrel_engine::plan::{Action, Attributes, Item, ItemId, RootId};
use whimbrel_engine::summary::{Summary, exit};
use whimbrel_engine::transfer::{Command, Input, Job, Slot, TransferMachine, TransferOptions};
use whimbrel_engine::tune::{Choice, Setting};
use whimbrel_engine::{Fault, FaultCode, Side};

use crate::client::rules::Decision;
use crate::client::shared::Shared;
use crate::client::worker::Worker;

/// How often the number of sessions is reconsidered.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Round trips after which a run is no short one.
const TIDY_AFTER: u32 = 20;
/// A bottleneck named before is none: beginnings are like nothing that follows.
const SETTLED: Duration = Duration::from_secs(3);

/// Most sessions that are tried where nobody fixed the number.
const MOST_SESSIONS: u32 = 16;

/// Most reports, or planned items, that are taken before anything else is looked at: small files come by the thousand.
const AT_ONCE: usize = 32;

/// Performs what the transfer machine decides.
pub(super) struct Driver {
    shared: Rc<Shared>,
    machine: TransferMachine,
    workers: HashMap<Slot, UnboundedSender<Job>>,
    tasks: HashMap<Slot, tokio::task::JoinHandle<()>>,
    reports: UnboundedSender<Input>,
    inputs: UnboundedReceiver<Input>,
    /// Changes the number of sessions while it runs, unless the user fixed it.
    controller: Option<Controller>,
    explain: Explain,
    /// What the run is planned from, and how.
    plan: (Facts, Plan),
    /// The files found so far that are to be copied.
    found: Sizes,
    /// Whether files are compared, which has nothing to do with the path.
    compares: bool,
    /// Files of which a checksum is expected, while it is compared whether they need be copied.
    unchecked: HashSet<ItemId>,
    /// Decisions of administrators that were told: rules of several servers may be for the same path.
    told: HashSet<Decision>,
    began: Instant,
    /// How long all sessions together had work, up to `looked`.
    worked: Duration,
    looked: Instant,
}

impl Driver {
    pub(super) fn new(shared: Rc<Shared>, options: TransferOptions, explain: Explain, plan: (Facts, Plan)) -> Self {
        let (reports, inputs) = mpsc::unbounded_channel();
        let free = shared.options.concurrency == Setting::Auto;
        let imposed = plan.0.imposed.as_ref().and_then(|imposed| imposed.sessions);
        let controller = free.then(|| {
            let sessions = options.concurrency;
            let most = sessions.max(MOST_SESSIONS).min(imposed.unwrap_or(u32::MAX));
            let most = most.min(shared.options.most_sessions.unwrap_or(u32::MAX));
            let least = plan.0.pairs().min(most);
            Controller::new(Limits::new(least, most, options.rtt), sessions, Instant::now())
        });
        Self {
            machine: TransferMachine::new(options, Instant::now()),
            shared,
            workers: HashMap::new(),
            tasks: HashMap::new(),
            reports,
            inputs,
            controller,
            explain,
            plan,
            found: Sizes::default(),
            compares: false,
            unchecked: HashSet::new(),
            told: HashSet::new(),
            began: Instant::now(),
            worked: Duration::ZERO,
            looked: Instant::now(),
        }
    }

    pub(super) async fn drive(
        mut self,
        planning: impl Future<Output = Result<(), Fault>>,
        mut planned: mpsc::Receiver<Action>,
        mut cancel: watch::Receiver<bool>,
        events: &mut impl FnMut(Event),
    ) -> Result<Summary, Fault> {
        tokio::pin!(planning);
        let mut plan_result = None;
        let mut listing = true;
        let mut cancelled = false;
        let mut ticks = interval(self.shared.options.progress);
        ticks.tick().await; // the first one is at once
        let mut rate = self.shared.options.rate.clone();
        let mut looks = interval(LOOK_EVERY);
        looks.tick().await;
        loop {
            if let Some((server, fault)) = self.shared.hosts.take_loss() {
                // Counted from above the middle: the planner counts from the beginning.
                let id = ItemId(u64::MAX / 2 + self.shared.hosts.restarts());
                self.refuse(id, server.into_bytes(), fault);
            }
            while let Some(command) = self.machine.poll_command() {
                self.perform(command, events);
            }
            self.shared.take_news().into_iter().for_each(&mut *events);
            if self.machine.is_finished() {
                break;
            }
            let deadline = self.machine.poll_timeout();
            tokio::select! {
                biased;
                input = self.inputs.recv() => {
                    self.take(input.expect("this driver holds a sender itself"));
                    for _ in 1..AT_ONCE {
                        let Ok(input) = self.inputs.try_recv() else { break };
                        self.take(input);
                    }
                }
                action = planned.recv(), if listing && self.machine.wants_more() => match action {
                    Some(action) => {
                        self.admit(action, events);
                        for _ in 1..AT_ONCE {
                            let action = self.machine.wants_more().then(|| planned.try_recv().ok()).flatten();
                            let Some(action) = action else { break };
                            self.admit(action, events);
                        }
                    }
                    None => {
                        listing = false;
                        if matches!(plan_result, None | Some(Ok(()))) {
                            self.refuse_never_met();
                        }
                        self.plan_again();
                        self.take(Input::ListingDone);
                    }
                },
                result = &mut planning, if plan_result.is_none() => plan_result = Some(result),
                changed = cancel.wait_for(|cancel| *cancel), if !cancelled => {
                    cancelled = true;
                    if changed.is_ok() {
                        self.take(Input::Cancel);
                    }
                },
                most = rate.changed() => self.take(Input::Rate { most }),
                () = sleep_until(deadline.unwrap_or_else(far).into()) => self.take(Input::Tick),
                _ = looks.tick() => self.look(Instant::now(), events),
                _ = ticks.tick() => events(Event::Progress(self.machine.progress().snapshot(Instant::now()))),
            }
        }
        if let Some(Err(fault)) = plan_result.take_if(|result| result.is_err() && self.has_done_something()) {
            self.refuse_rest(fault, events);
        }
        self.shared.clean();
        self.shared.sidecars.finish().await;
        let complete =
            !matches!(plan_result, Some(Err(_))) && self.machine.summary(Instant::now()).exit_code == exit::OK;
        self.shared.tally.finish(|| self.shared.dialling(), complete).await;
        self.shared.take_news().into_iter().for_each(&mut *events);
        self.measure(Instant::now());
        if self.shared.options.explain {
            events(Event::Explained(self.explain.clone()));
        }
        let summary = self.machine.summary(Instant::now());
        match plan_result {
            // Nothing was done: the reason is the whole result.
            Some(Err(fault)) => Err(fault),
            _ => {
                events(Event::Summary(self.machine.summary(Instant::now())));
                Ok(summary)
            }
        }
    }

    /// Whether anything came of what was planned.
    fn has_done_something(&self) -> bool {
        let done = self.machine.summary(Instant::now());
        done.files + done.directories + done.symlinks + done.skipped + done.failed > 0
    }

    /// Planning has ended early: that is one failure among what was done.
    fn refuse_rest(&mut self, fault: Fault, events: &mut impl FnMut(Event)) {
        self.refuse(ItemId(u64::MAX / 2), fault.subject.clone().into_bytes(), fault);
        while let Some(command) = self.machine.poll_command() {
            self.perform(command, events);
        }
    }

    fn admit(&mut self, action: Action, events: &mut impl FnMut(Event)) {
        match &action {
            Action::Copy { item } => self.found.add(item.size.unwrap_or(0)),
            Action::CompareChecksum { .. } | Action::CompareOnly { .. } => self.compares = true,
            _ => {}
        }
        self.meet(&action, events);
        self.heed_rules(&action);
        self.take(Input::Planned(action));
    }

    /// Looks an item up in what the user expects, and tells what will not be compared with that.
    fn meet(&mut self, action: &Action, events: &mut impl FnMut(Event)) {
        let (item, skipped) = match (action.file(), action) {
            (Some(item), _) => (item, false),
            (None, Action::Skip { item, .. } | Action::Refuse { item, .. }) => (item, true),
            _ => return,
        };
        let listed = self.shared.meet(item);
        let expected = listed.unwrap_or_else(|| self.shared.expected(item).is_some());
        if expected && matches!(action, Action::CompareChecksum { .. } | Action::CompareOnly { .. }) {
            self.unchecked.insert(item.id);
        }
        let told = match action {
            Action::Refuse { .. } => false,
            _ if skipped => expected,
            // Where a proof is required, a file that is not listed fails.
            _ => listed == Some(false) && !self.shared.options.verify.is_required(),
        };
        if told {
            events(Event::NotChecked { item: item.id, source: item.source.clone(), listed: expected });
        }
    }

    /// What became of a file that was compared: one that was left as it is was not compared with what is expected.
    fn compared(&mut self, ended: &Event, events: &mut impl FnMut(Event)) {
        let (id, left) = match ended {
            Event::ItemSkipped { item, source, .. } => (*item, Some(source)),
            Event::ItemDone { item, .. } => (item.id, None),
            Event::ItemFailed(failure) => (failure.item, None),
            _ => return,
        };
        if let (true, Some(source)) = (self.unchecked.remove(&id), left) {
            events(Event::NotChecked { item: id, source: source.clone(), listed: true });
        }
    }

    /// Administrators may decide otherwise about a file than about the whole run.
    fn heed_rules(&mut self, action: &Action) {
        let Some(item) = action.file() else { return };
        let decision = self.shared.decision(item);
        let (facts, plan) = &self.plan;
        let imposed = decision.as_ref().map(|decision| &decision.imposed);
        if imposed == facts.imposed.as_ref() {
            return;
        }
        let chunking = facts.chunking_under(plan, imposed.unwrap_or(&Imposed::default()));
        let free = facts.chunk == Setting::Auto;
        if let Some(decision) = decision {
            self.limit_sessions(&decision.imposed);
            if free && !self.told.contains(&decision) {
                self.explain.imposed(&decision.below, &chunking);
                self.told.insert(decision);
            }
        }
        if free {
            self.take(Input::Chunking { item: item.id, chunking: chunking.value });
        }
    }

    /// Fewer sessions, where those were planned for many files and few were found.
    fn plan_again(&mut self) {
        let Some(controller) = self.controller.as_mut().filter(|_| !self.compares) else { return };
        if let Some(few) = self.plan.0.few(&self.found, controller.sessions()) {
            controller.restart(few.value, Instant::now());
            self.explain.changed(&few);
            self.take(Input::Concurrency { sessions: few.value });
        }
    }

    fn limit_sessions(&mut self, imposed: &Imposed) {
        if let (Some(most), Some(controller)) = (imposed.sessions, &mut self.controller)
            && controller.limit(most)
        {
            self.explain.changed(&Choice { value: most, reason: format!("set by {}", imposed.by) });
            self.take(Input::Concurrency { sessions: most });
        }
    }

    /// Files that the user listed and that are not among the sources are failures.
    fn refuse_never_met(&mut self) {
        for (index, name) in self.shared.never_met().into_iter().enumerate() {
            let fault = Fault::new(FaultCode::NotFound, "find the listed file").on_path(&name).side(Side::Source);
            let fault = fault.detail("the list of expected checksums names it, but it is not among the sources");
            // Counted from the end: the planner counts from the beginning.
            self.refuse(ItemId(u64::MAX - index as u64), name, fault);
        }
    }

    /// Reports a failure that is about nothing in the plan.
    fn refuse(&mut self, id: ItemId, name: Vec<u8>, fault: Fault) {
        let item = Item {
            id,
            root: RootId(0),
            parent: None,
            destination: name.clone(),
            source: name,
            size: None,
            modified: None,
            range: None,
            attributes: Attributes::default(),
            twins: Vec::new(),
        };
        self.take(Input::Planned(Action::Refuse { item, fault }));
    }

    /// What is looked at once in a while.
    fn look(&mut self, now: Instant, events: &mut impl FnMut(Event)) {
        let before = self.explain.bottleneck;
        // A session for it takes several round trips of its own, with certificates six more: no short run waits for that.
        let (facts, _) = &self.plan;
        if now.saturating_duration_since(self.began) >= facts.control_rtt.unwrap_or_default() * TIDY_AFTER {
            self.shared.tidy();
        }
        self.measure(now);
        let settled = now.saturating_duration_since(self.began) >= SETTLED;
        if self.shared.options.explain && settled && self.explain.bottleneck != before {
            events(Event::Explained(self.explain.clone()));
        }
        self.adjust(now);
    }

    /// Counts the time that the sessions had work; before that changes. What has none holds nothing up.
    fn tally(&mut self, now: Instant) {
        let sessions = u32::try_from(self.machine.working_sessions()).unwrap_or(u32::MAX);
        self.worked += now.saturating_duration_since(self.looked) * sessions;
        self.looked = now;
    }

    /// Brings the figures up to date: what the ends have told, and the time that sessions had work.
    fn measure(&mut self, now: Instant) {
        self.tally(now);
        for steered in self.shared.take_steered() {
            self.explain.steered(&steered);
        }
        let elapsed = now.saturating_duration_since(self.began);
        if let Some(figures) = self.shared.spending().figures(elapsed, self.worked) {
            let limit = self.shared.options.rate.now().unwrap_or(0) as f64;
            self.explain.measured(Figures { limit, ..figures });
        }
    }

    /// More or fewer sessions, as the rate tells.
    fn adjust(&mut self, now: Instant) {
        let state = self.machine.progress().snapshot(now);
        let left = state.bytes_total.saturating_sub(state.bytes_done) as f64 / state.rate.max(1.0);
        let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
        self.shared.left.set(left);
        let Some(controller) = &mut self.controller else { return };
        // Of several nodes each has a link of its own, and a full one says nothing about the path. Nor do longer round trips to
        // an end whose processors are busy: it answers late.
        let answers_late = self.explain.bottleneck.is_some_and(Bottleneck::is_a_processor);
        let full = self.shared.queued.get() && self.plan.0.pairs() == 1 && !answers_late;
        let moved = self.machine.progress().bytes_moved();
        if let Some(sessions) = controller.tick(now, moved, left, full) {
            self.explain.changed(&sessions);
            self.take(Input::Concurrency { sessions: sessions.value });
        }
    }

    fn take(&mut self, input: Input) {
        let now = Instant::now();
        self.tally(now);
        if let Input::SessionLost { slot, .. } = &input {
            self.workers.remove(slot);
        }
        self.machine.handle(now, input);
    }

    fn perform(&mut self, command: Command, events: &mut impl FnMut(Event)) {
        match command {
            Command::OpenSession { slot } => self.open(slot),
            Command::Start { slot, job } => {
                if let Some(worker) = self.workers.get(&slot) {
                    // A worker that just ended has reported its loss, which the machine takes next.
                    let _ = worker.send(*job);
                }
            }
            Command::CloseSession { slot, .. } => {
                self.workers.remove(&slot);
                if let Some(task) = self.tasks.remove(&slot) {
                    task.abort();
                }
            }
            Command::Report(event) => {
                match &event {
                    Event::ItemDone { item, outcome: Outcome::Copied, .. } => {
                        self.shared.tally.done(|| self.shared.dialling(), item);
                    }
                    Event::ItemDone { item, outcome: Outcome::DirectoryMade, .. } if item.parent.is_none() => {
                        self.shared.tally.made(|| self.shared.dialling(), &item.destination);
                    }
                    _ => {}
                }
                if let Event::ItemFailed(failure) = &event {
                    self.shared.file_ended(failure.item, failure.fault.code == FaultCode::SourceChanged);
                }
                self.compared(&event, events);
                events(event);
            }
        }
    }

    fn open(&mut self, slot: Slot) {
        let (sender, jobs) = mpsc::unbounded_channel();
        let worker = Worker::new(slot, self.shared.clone(), jobs, self.reports.clone());
        self.workers.insert(slot, sender);
        self.tasks.insert(slot, tokio::task::spawn_local(worker.run()));
    }
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(86_400)
}
