//! A session that answers the planner's questions, as a task of its own: many are in the air while others are answered.
//!
//! Listings and descriptions over the control connection change nothing, so they are sent far ahead of their replies, and
//! a refusal harms nobody. What needs a data connection (MLSD, LIST) is asked by itself, one at a time.

use std::cell::Cell;
use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::sync::mpsc::{self, Receiver, Sender, UnboundedReceiver, UnboundedSender};
use tokio::task::spawn_local;
use tokio::time::sleep;
use whimbrel_engine::listing::Object;
use whimbrel_engine::plan::{Inquiry, QueryId};
use whimbrel_engine::retry::Decision;
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::op::{Notice, Op, OpId, Outcome};

use super::Session;
use crate::client::end::{self, BATCH, End, described};
use crate::client::pair::Role;
use crate::client::remote::EndEvent;
use crate::client::shared::Shared;
use crate::client::target::Target;

/// Questions in the air: real servers drop connections that have 500 commands waiting.
const AHEAD: usize = 100;

/// Batches of entries that are read before the planner takes them.
const BATCHES: usize = 4;

/// What is asked.
#[derive(Debug, Clone)]
pub struct Question {
    /// For which question of the planner.
    pub query: QueryId,
    /// A directory to list, or what to describe.
    pub path: Vec<u8>,
    /// Whether a link is described itself.
    pub links: bool,
    /// Whether what is in it is asked for.
    pub entries: bool,
}

/// What is answered.
#[derive(Debug)]
pub enum Answer {
    /// Some entries of a directory.
    Entries(Vec<Object>),
    /// There are no more.
    Listed(Result<(), Fault>),
    /// What is there; `None`: nothing.
    Described(Result<Option<Object>, Fault>),
}

/// How a session does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not open yet.
    New,
    /// Answers many questions at a time.
    Ready,
    /// Answers one question at a time.
    Slow,
    /// A further session that the server did not let us have.
    Refused,
}

/// One session of a place, as the planner sees it.
pub struct Lister {
    questions: UnboundedSender<Question>,
    /// `None`: the session stands now.
    answers: Receiver<Option<(QueryId, Answer)>>,
    /// An answer that there is no room for yet.
    held: Option<(QueryId, Answer)>,
    /// Questions that are not answered.
    open: usize,
    state: Rc<Cell<State>>,
}

impl Lister {
    /// The first of a place, on a session that stands or is opened with the first question.
    pub fn first(shared: Rc<Shared>, role: Role, target: Option<Target>, session: Option<Session>) -> Self {
        Self::start(shared, role, target, |clerk| {
            if let Some(session) = session {
                (clerk.end, clerk.listed) = (Some(session.end), session.listed);
                clerk.look();
            }
        })
    }

    /// A further one: it takes questions once its session stands.
    pub fn further(shared: Rc<Shared>, role: Role, target: Option<Target>) -> Self {
        Self::start(shared, role, target, |clerk| clerk.further = true)
    }

    fn start(shared: Rc<Shared>, role: Role, target: Option<Target>, prepare: impl FnOnce(&mut Clerk)) -> Self {
        let (questions, asked) = mpsc::unbounded_channel();
        let (sender, answers) = mpsc::channel(BATCHES);
        let state = Rc::new(Cell::new(State::New));
        let mut clerk = Clerk {
            shared,
            role,
            target,
            questions: asked,
            answers: sender,
            inquiry: Inquiry::new(AHEAD),
            end: None,
            listed: None,
            batch: Vec::new(),
            unclear: None,
            passed: Names::default(),
            further: false,
            was_open: false,
            failures: 0,
            state: state.clone(),
        };
        prepare(&mut clerk);
        spawn_local(clerk.run());
        Self { questions, answers, held: None, open: 0, state }
    }

    /// Asks something.
    pub fn ask(&mut self, question: Question) {
        self.open += 1;
        // A task that has ended is noticed with its answers.
        let _ = self.questions.send(question);
    }

    /// Whether everything is answered.
    pub fn is_idle(&self) -> bool {
        self.open == 0
    }

    /// Whether others would be of use: it answers one question at a time.
    pub fn is_slow(&self) -> bool {
        self.state.get() == State::Slow
    }

    /// Whether it may be asked. The first of a place always may.
    pub fn is_open(&self) -> bool {
        matches!(self.state.get(), State::Ready | State::Slow)
    }

    /// Whether it will never answer.
    fn is_refused(&self) -> bool {
        self.state.get() == State::Refused
    }

    /// The next answer; entries only when there is room for them. Lost (`None`) is what was asked of a task that has ended.
    pub fn poll(
        &mut self,
        context: &mut Context<'_>,
        has_room: &impl Fn(QueryId) -> bool,
    ) -> Poll<Option<(QueryId, Answer)>> {
        if self.is_refused() {
            return Poll::Pending;
        }
        while self.held.is_none() {
            let Some(answer) = ready!(self.answers.poll_recv(context)) else { return Poll::Ready(None) };
            self.held = answer;
        }
        // Its turn comes again after any other answer.
        match &self.held {
            Some((query, Answer::Entries(_))) if !has_room(*query) => Poll::Pending,
            Some((_, Answer::Entries(_))) => Poll::Ready(self.held.take()),
            _ => {
                self.open = self.open.saturating_sub(1);
                Poll::Ready(self.held.take())
            }
        }
    }
}

/// The task.
struct Clerk {
    shared: Rc<Shared>,
    role: Role,
    target: Option<Target>,
    questions: UnboundedReceiver<Question>,
    answers: Sender<Option<(QueryId, Answer)>>,
    inquiry: Inquiry<Question>,
    end: Option<End>,
    /// The directory whose listing is in the air, although it was not asked for here.
    listed: Option<Vec<u8>>,
    /// Entries of the listing that is being answered, not passed on yet.
    batch: Vec<Object>,
    /// A line of it that tells of something that cannot be understood.
    unclear: Option<Vec<u8>>,
    /// Those that were passed on.
    passed: Names,
    further: bool,
    /// Whether a session has stood.
    was_open: bool,
    /// Sessions in a row that could not be opened.
    failures: u32,
    state: Rc<Cell<State>>,
}

/// Names of entries that were passed on before a listing broke off: when it is asked for again, they come again.
#[derive(Default)]
struct Names {
    hashers: [RandomState; 2],
    /// Of 128 bits: equal ones of different names will not be met.
    known: HashSet<[u64; 2]>,
    /// Whether some come again.
    again: bool,
}

impl Names {
    fn hash(&self, name: &[u8]) -> [u64; 2] {
        [self.hashers[0].hash_one(name), self.hashers[1].hash_one(name)]
    }

    fn add(&mut self, objects: &[Object]) {
        for object in objects {
            let hash = self.hash(&object.path);
            self.known.insert(hash);
        }
    }

    fn is_new(&self, object: &Object) -> bool {
        !self.again || !self.known.contains(&self.hash(&object.path))
    }

    fn clear(&mut self) {
        self.again = false;
        // A directory of a million entries is no measure for the next one.
        self.known = HashSet::new();
    }
}

/// Nobody asks any more.
struct Over;

impl Clerk {
    async fn run(mut self) {
        if self.further {
            match self.shared.open_lister(self.target.as_ref(), self.role, &[]).await {
                Ok((end, _)) => self.end = Some(end),
                Err(fault) => {
                    tracing::info!(%fault, "no further session for listings");
                    return self.state.set(State::Refused);
                }
            }
            self.look();
            // Questions may wait for it. Nobody being left to ask them is noticed below.
            let _ = self.answers.send(None).await;
        }
        let Over = self.work().await;
    }

    async fn work(&mut self) -> Over {
        loop {
            if let Err(over) = self.step().await {
                return over;
            }
        }
    }

    async fn step(&mut self) -> Result<(), Over> {
        while let Ok(question) = self.questions.try_recv() {
            self.inquiry.push(question);
        }
        if self.inquiry.is_idle() {
            let question = self.questions.recv().await.ok_or(Over)?;
            self.inquiry.push(question);
            return Ok(());
        }
        if self.end.is_none() {
            return self.open().await;
        }
        if let Some(path) = self.listed.take() {
            let first = self.inquiry.sendable().next();
            if first.is_none_or(|question| !question.entries || question.path != path) {
                // Its answer is nobody's; a new session has none.
                self.end = None;
                return Ok(());
            }
            self.inquiry.send();
        }
        self.send().await?;
        if self.inquiry.in_air() == 0 {
            return match self.inquiry.take_alone() {
                Some(question) => self.ask_alone(question).await,
                None => Ok(()),
            };
        }
        let end = self.end.as_mut().expect("it was opened above");
        tokio::select! {
            question = self.questions.recv() => {
                self.inquiry.push(question.ok_or(Over)?);
                Ok(())
            }
            event = end.event_in_time() => self.take(event).await,
        }
    }

    async fn open(&mut self) -> Result<(), Over> {
        let first: Vec<Op> =
            self.inquiry.sendable().take_while(|question| is_line(&question.path)).map(operation).collect();
        match self.shared.open_lister(self.target.as_ref(), self.role, &first).await {
            Ok((end, asked)) => {
                (0..asked).for_each(|_| {
                    self.inquiry.send();
                });
                self.end = Some(end);
                self.look();
            }
            Err(fault) if self.waits(&fault).await => {}
            Err(fault) => {
                self.passed.clear();
                for question in self.inquiry.give_up() {
                    self.fail(&question, fault.clone()).await?;
                }
            }
        }
        Ok(())
    }

    /// Waits before another session is tried, if one is worth trying: a server that has answered is only away for a while.
    async fn waits(&mut self, fault: &Fault) -> bool {
        self.failures = self.failures.saturating_add(1);
        let seed = u64::from(self.failures);
        match self.shared.options.retry.decide(fault.clone(), self.failures, seed) {
            Decision::Again { after, fault } if self.was_open => {
                tracing::warn!(%fault, wait = ?after, "listings wait for another session");
                sleep(after).await;
                true
            }
            _ => false,
        }
    }

    /// Looks at what the server can do.
    fn look(&mut self) {
        let Some(end) = &self.end else { return };
        (self.was_open, self.failures) = (true, 0);
        let slow = end.remote().is_some_and(|remote| remote.lacks("MLSC") || !remote.is_pipelined());
        self.set_slow(slow || self.state.get() == State::Slow);
    }

    fn set_slow(&mut self, slow: bool) {
        self.state.set(if slow { State::Slow } else { State::Ready });
        if slow {
            self.inquiry.set_ahead(1);
        }
    }

    /// Sends what may be sent.
    async fn send(&mut self) -> Result<(), Over> {
        while let (Some(end), Some(question)) = (&mut self.end, self.inquiry.send()) {
            let word = if question.entries { "MLSC" } else { "MLST" };
            let known = end.remote().is_none_or(|remote| !remote.lacks(word));
            if known && let Err(fault) = end.submit(operation(question)) {
                let question = self.inquiry.unsend().expect("it was sent just now");
                self.fail(&question, fault).await?;
            } else if !known {
                let question = self.inquiry.unsend().expect("it was sent just now");
                self.inquiry.ask_alone(question);
            }
        }
        Ok(())
    }

    async fn take(&mut self, event: Result<(OpId, EndEvent), Fault>) -> Result<(), Over> {
        match event {
            Ok((_, EndEvent::Notice(Notice::Lines(lines)))) => {
                let Some(question) = self.inquiry.first() else { return Ok(()) };
                let (query, links) = (question.query, question.links);
                let read = end::entries(&lines, links);
                self.unclear = self.unclear.take().or(read.unclear);
                let objects = read.entries.into_iter().map(|(object, _)| object);
                self.batch.extend(objects.filter(|object| self.passed.is_new(object)));
                if self.batch.len() >= BATCH {
                    self.inquiry.begun();
                    let batch = std::mem::take(&mut self.batch);
                    self.passed.add(&batch);
                    self.answer(query, Answer::Entries(batch)).await?;
                }
                Ok(())
            }
            Ok((_, EndEvent::Notice(_))) => Ok(()),
            // Everything that is submitted is a question, and all are answered in order.
            Ok((_, EndEvent::Done(result))) => match self.inquiry.answered() {
                Some(question) => self.answered(question, result).await,
                None => Ok(()),
            },
            Err(fault) => self.broke(fault).await,
        }
    }

    async fn answered(&mut self, question: Question, result: Result<Outcome, Fault>) -> Result<(), Over> {
        let (batch, unclear) = (std::mem::take(&mut self.batch), self.unclear.take());
        self.passed.clear();
        if matches!(&result, Err(fault) if fault.code == FaultCode::NotSupported) {
            self.set_slow(self.state.get() == State::Slow || question.entries);
            self.inquiry.ask_alone(question);
            return Ok(());
        }
        if !question.entries {
            let found = described(result, &question.path, question.links);
            let found = found.map_err(|fault| fault.side_if_unknown(self.role.side()));
            return self.answer(question.query, Answer::Described(found)).await;
        }
        match result {
            Ok(_) => {
                if !batch.is_empty() {
                    self.answer(question.query, Answer::Entries(batch)).await?;
                }
                match unclear {
                    Some(line) => self.fail(&question, end::unclear(&question.path, &line)).await,
                    None => self.answer(question.query, Answer::Listed(Ok(()))).await,
                }
            }
            Err(fault) => self.fail(&question, fault).await,
        }
    }

    /// Asks something in a way that takes the whole session; on a new one if the server has closed it meanwhile.
    async fn ask_alone(&mut self, question: Question) -> Result<(), Over> {
        let mut first = true;
        loop {
            let mut end = match self.end.take() {
                Some(end) => end,
                None => match self.shared.open_lister(self.target.as_ref(), self.role, &[]).await {
                    Ok((end, _)) => end,
                    Err(fault) if self.waits(&fault).await => continue,
                    Err(fault) => return self.fail(&question, fault).await,
                },
            };
            let answer = self.answer_alone(&mut end, &question).await;
            let fault = match &answer {
                Answer::Listed(Err(fault)) | Answer::Described(Err(fault)) => fault.clone(),
                _ => {
                    self.end = Some(end);
                    return self.answer(question.query, answer).await;
                }
            };
            if !broken(&fault) {
                self.end = Some(end);
            } else if std::mem::take(&mut first) {
                continue;
            }
            return self.fail(&question, fault).await;
        }
    }

    /// Entries come all at once, and only when they are complete: what breaks can be asked again.
    async fn answer_alone(&self, end: &mut End, question: &Question) -> Answer {
        if !question.entries {
            return Answer::Described(end.stat_without_facts(&question.path).await);
        }
        let pass_on = async |objects: Vec<(Object, _)>| {
            let objects = objects.into_iter().map(|(object, _)| object).collect();
            let passed = self.answer(question.query, Answer::Entries(objects)).await;
            passed.map_err(|Over| Fault::new(FaultCode::Cancelled, "list"))
        };
        Answer::Listed(end.list_over_data(&question.path, question.links, pass_on).await)
    }

    /// The session is over.
    async fn broke(&mut self, fault: Fault) -> Result<(), Over> {
        self.end = None;
        self.batch.clear();
        self.unclear = None;
        self.passed.again = true;
        match self.inquiry.broke() {
            Some(question) => {
                self.passed.clear();
                self.fail(&question, fault).await
            }
            None => Ok(()),
        }
    }

    async fn fail(&self, question: &Question, fault: Fault) -> Result<(), Over> {
        let fault = fault.side_if_unknown(self.role.side());
        let answer = if question.entries { Answer::Listed(Err(fault)) } else { Answer::Described(Err(fault)) };
        self.answer(question.query, answer).await
    }

    async fn answer(&self, query: QueryId, answer: Answer) -> Result<(), Over> {
        self.answers.send(Some((query, answer))).await.map_err(|_| Over)
    }
}

fn operation(question: &Question) -> Op {
    match question.entries {
        true => end::listing(&question.path),
        false => Op::Facts { path: question.path.clone(), facts: None },
    }
}

/// Whether FTP can carry it: what cannot be sent must not keep a session from being opened.
fn is_line(path: &[u8]) -> bool {
    !path.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
}

/// Whether nothing further can be asked of the session.
fn broken(fault: &Fault) -> bool {
    matches!(
        fault.code,
        FaultCode::ConnectionLost | FaultCode::TimedOut | FaultCode::ServerBusy | FaultCode::PeerMisbehaved
    )
}
