//! The sessions that answer questions about one place: one where it answers many at a time, else several.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll};

use whimbrel_engine::plan::QueryId;

use super::Session;
use super::lister::{Answer, Lister, Question};
use crate::client::pair::Role;
use crate::client::shared::Shared;
use crate::client::target::Target;

/// Sessions at a server that answers one question at a time: such servers often count connections.
const SESSIONS: usize = 4;

/// Everything that is asked about one end of a copy.
pub struct Desk {
    /// Which end.
    pub role: Role,
    /// Where; `None`: this host.
    pub target: Option<Target>,
    shared: Rc<Shared>,
    /// At least one.
    listers: Vec<Lister>,
    /// What waits for a session, in order.
    waiting: VecDeque<Question>,
}

impl Desk {
    /// One whose first session may stand already.
    pub fn new(shared: Rc<Shared>, role: Role, target: Option<Target>, session: Option<Session>) -> Self {
        let first = Lister::first(shared.clone(), role, target.clone(), session);
        Self { role, target, shared, listers: vec![first], waiting: VecDeque::new() }
    }

    /// Asks something.
    pub fn ask(&mut self, question: Question) {
        self.waiting.push_back(question);
        self.hand_out();
    }

    /// Gives the sessions what they can take. Each gets its questions in their order, so that the oldest of all is always the
    /// next that some session answers.
    fn hand_out(&mut self) {
        while let Some(question) = self.waiting.pop_front() {
            let slow = self.listers[0].is_slow();
            let idle = |(at, lister): &(usize, &Lister)| (*at == 0 || lister.is_open()) && lister.is_idle();
            let free = if slow { self.listers.iter().enumerate().find(idle).map(|(at, _)| at) } else { Some(0) };
            let Some(free) = free else {
                self.waiting.push_front(question);
                if self.listers.len() < SESSIONS {
                    self.listers.push(Lister::further(self.shared.clone(), self.role, self.target.clone()));
                }
                return;
            };
            self.listers[free].ask(question);
        }
    }

    /// The next answer; entries only when there is room for them. `None`: a session has ended by itself.
    pub fn poll(
        &mut self,
        context: &mut Context<'_>,
        has_room: impl Fn(QueryId) -> bool,
    ) -> Poll<Option<(QueryId, Answer)>> {
        let answer = self.listers.iter_mut().map(|lister| lister.poll(context, &has_room)).find(Poll::is_ready);
        // An answer, or a session that stands now, may have made room.
        if !self.waiting.is_empty() {
            self.hand_out();
        }
        answer.unwrap_or(Poll::Pending)
    }
}
