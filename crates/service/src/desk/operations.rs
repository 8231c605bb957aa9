//! Single operations on collections: they wait for an orchestrator, and who asked waits for the answer.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::oneshot;
use uuid::Uuid;
use whimbrel_engine::dispatch::{Operation, OperationKind, OperationResult, Site};
use whimbrel_engine::{Fault, FaultCode, Side};

use crate::store::random_uuid;

/// Operations that wait or are under way; more are told to come again.
const MOST: usize = 1000;

/// What an operation came to.
pub type Answer = Result<OperationResult, Fault>;

/// The operations of one service process.
#[derive(Debug, Default)]
pub struct Operations {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Operation>,
    /// Those who wait for an answer, of operations that wait or are under way.
    asking: HashMap<Uuid, oneshot::Sender<Answer>>,
}

impl Operations {
    /// Has something done, calling `ring` once it can be taken, and gives what came of it.
    ///
    /// # Errors
    /// The orchestrator's fault; `ServerBusy`, when too many wait, or nobody has answered within `limit`.
    pub async fn carry_out(&self, site: Site, kind: OperationKind, limit: Duration, ring: impl FnOnce()) -> Answer {
        let id = random_uuid().map_err(Fault::from)?;
        let (sender, answer) = oneshot::channel();
        // Whoever stops waiting, at the limit or because the asker is gone, is forgotten.
        let _place = self.enter(Operation { id, site, kind }, sender)?;
        ring();
        match tokio::time::timeout(limit, answer).await {
            Ok(Ok(answer)) => answer,
            _ => Err(busy(format!("no orchestrator has answered within {} s", limit.as_secs()))),
        }
    }

    fn enter(&self, operation: Operation, sender: oneshot::Sender<Answer>) -> Result<Place<'_>, Fault> {
        let id = operation.id;
        let mut state = self.state.lock().expect("nothing panics with it");
        if state.asking.len() >= MOST {
            return Err(busy(format!("{MOST} operations wait already")));
        }
        state.asking.insert(id, sender);
        state.waiting.push_back(operation);
        Ok(Place { operations: self, id })
    }

    /// Whether there are some that no orchestrator has.
    pub fn is_waited_for(&self) -> bool {
        !self.state.lock().expect("nothing panics with it").waiting.is_empty()
    }

    /// Operations for an orchestrator, the oldest first; they are its from now on. A plan's message may be large, so that one goes with
    /// each answer.
    pub fn take(&self, most: usize) -> Vec<Operation> {
        let is_plan = |operation: &Operation| matches!(operation.kind, OperationKind::Foresee(_));
        let mut state = self.state.lock().expect("nothing panics with it");
        let mut taken: Vec<Operation> = Vec::new();
        while taken.len() < most
            && let Some(next) = state.waiting.front()
        {
            if is_plan(next) && taken.iter().any(is_plan) {
                break;
            }
            taken.extend(state.waiting.pop_front());
        }
        taken
    }

    /// Hands on an answer, or gives it back: nobody waits for it here, or any more.
    pub fn answered(&self, id: Uuid, answer: Answer) -> Option<Answer> {
        let asking = self.state.lock().expect("nothing panics with it").asking.remove(&id);
        match asking {
            Some(sender) => sender.send(answer).err(),
            None => Some(answer),
        }
    }
}

/// Somebody who waits.
struct Place<'a> {
    operations: &'a Operations,
    id: Uuid,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.operations.state.lock().expect("nothing panics with it");
        state.asking.remove(&self.id);
        state.waiting.retain(|operation| operation.id != self.id);
    }
}

fn busy(detail: String) -> Fault {
    Fault::new(FaultCode::ServerBusy, "ask an orchestrator").side(Side::Service).detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_engine::dispatch::{Bounds, Credential, Draft, Server, Work};
    use whimbrel_engine::task::DeleteOptions;

    fn site() -> Site {
        Site {
            collection: Uuid::nil(),
            servers: vec![Server::at("ftp://h", None)],
            credential: Credential::None,
            base: String::new(),
            local_user: None,
        }
    }

    fn mkdir() -> OperationKind {
        OperationKind::MakeDirectory { path: b"/d".to_vec() }
    }

    #[tokio::test]
    async fn an_operation_is_taken_once_and_its_answer_goes_to_who_asked() {
        let operations = Operations::default();
        let (rung, was_rung) = oneshot::channel();
        let asked = operations.carry_out(site(), mkdir(), Duration::from_secs(60), || rung.send(()).unwrap());
        let worker = async {
            was_rung.await.unwrap();
            let taken = operations.take(5);
            assert_eq!((taken.len(), operations.take(5).len()), (1, 0));
            assert!(operations.answered(taken[0].id, Ok(OperationResult::Done)).is_none());
            assert!(operations.answered(taken[0].id, Ok(OperationResult::Done)).is_some());
        };
        let (answer, ()) = tokio::join!(asked, worker);
        assert_eq!(answer.unwrap(), OperationResult::Done);
    }

    #[tokio::test]
    async fn plans_are_handed_out_one_by_one() {
        let bounds = Bounds { entries: 1, seconds: 1, steps: 1 };
        let draft = Draft {
            work: Work::Delete(DeleteOptions::default()),
            destination: None,
            items: Vec::new(),
            more: false,
            label: String::new(),
            max_concurrency: None,
            bounds,
        };
        let plan = || OperationKind::Foresee(Box::new(draft.clone()));
        let operations = Operations::default();
        let kinds = [mkdir(), plan(), mkdir(), plan(), mkdir()];
        let mut places = Vec::new();
        for (id, kind) in (1..).zip(kinds) {
            let operation = Operation { id: Uuid::from_u128(id), site: site(), kind };
            places.push(operations.enter(operation, oneshot::channel().0).unwrap());
        }
        let taken = || operations.take(9).iter().map(|operation| operation.id.as_u128()).collect::<Vec<_>>();
        assert_eq!((taken(), taken(), taken()), (vec![1, 2, 3], vec![4, 5], vec![]));
    }

    #[tokio::test]
    async fn who_waits_too_long_is_told_and_forgotten() {
        let operations = Operations::default();
        let answer = operations.carry_out(site(), mkdir(), Duration::from_millis(20), || ()).await;
        assert_eq!(answer.unwrap_err().code, FaultCode::ServerBusy);
        assert!(operations.take(5).is_empty());
        assert!(operations.state.lock().unwrap().asking.is_empty());
    }

    #[tokio::test]
    async fn there_is_room_for_so_many_only() {
        let operations = Operations::default();
        let ask = || operations.carry_out(site(), mkdir(), Duration::from_millis(20), || ());
        let answers = futures(MOST + 1, ask).await;
        let full = answers.iter().filter(|answer| answer.as_ref().unwrap_err().detail.contains("wait already")).count();
        assert_eq!(full, 1);
        assert!(operations.state.lock().unwrap().waiting.is_empty());
    }

    async fn futures<F: Future<Output = Answer>>(count: usize, ask: impl Fn() -> F) -> Vec<Answer> {
        let mut all: Vec<_> = (0..count).map(|_| Box::pin(ask())).collect();
        let mut answers = Vec::new();
        std::future::poll_fn(|context| {
            all.retain_mut(|future| match future.as_mut().poll(context) {
                std::task::Poll::Ready(answer) => {
                    answers.push(answer);
                    false
                }
                std::task::Poll::Pending => true,
            });
            if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        answers
    }
}
