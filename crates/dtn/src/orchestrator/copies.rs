//! What a move knows of the copies of its sources when it deletes these: that they are there, and which files they are.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use tokio::sync::mpsc;
use tokio::time::sleep;
use whimbrel_engine::listing::{Object, ObjectKind};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{Op, OpId, Outcome};

use super::hold::Standing;
use super::options::usual;
use super::removal::{Found, root};
use super::report::Moved;
use super::transfer::Run;
use crate::client::dtns::Dtns;
use crate::client::end::described;
use crate::client::options::CopyOptions;
use crate::client::remote::{EndEvent, Remote};

/// Copies asked for at once. Real servers drop a connection with 500 waiting.
const WINDOW: usize = 100;

/// The copies of sources that are about to be deleted, by the paths of these.
pub(super) type Copies = Rc<RefCell<HashMap<Vec<u8>, Object>>>;

/// Passes on the sources whose copies are there; of the others, why they stay.
pub(super) async fn look(
    run: &Run<'_>,
    sources: &mut mpsc::UnboundedReceiver<Moved>,
    to: &mpsc::Sender<Found>,
    copies: &Copies,
) {
    let options = usual(&run.desk.limits, &run.assignment.label, run.plan_options());
    let mut asking = Asking { run, dtns: Dtns::default(), options, remote: None };
    let mut batch = Vec::with_capacity(WINDOW);
    while sources.recv_many(&mut batch, WINDOW).await > 0 {
        let hold = &run.desk.hold;
        let answers = tokio::select! {
            biased;
            () = hold.until(Standing::Stopping) => return,
            answers = asking.all(&batch) => answers,
        };
        for (moved, answer) in batch.drain(..).zip(answers) {
            run.desk.outbox.source_taken();
            let path = moved.source.path.clone();
            let found = answer.and_then(|outcome| copy_of(&moved, outcome)).map(|copy| {
                copies.borrow_mut().extend(copy.map(|copy| (path.clone(), copy)));
                Some(Object { path: Vec::new(), ..moved.source })
            });
            if to.send(root(run.source, &path, found)).await.is_err() {
                return;
            }
        }
    }
}

/// The copy as its server describes it; `None`: it describes nothing.
///
/// # Errors
/// It is not there.
fn copy_of(moved: &Moved, answer: Result<Outcome, Fault>) -> Result<Option<Object>, Fault> {
    match described(answer, &moved.copy, true) {
        Ok(Some(copy)) => Ok(Some(copy)),
        // Servers say so of a link to nothing.
        Ok(None) if matches!(moved.source.kind, ObjectKind::Symlink { .. }) => Ok(None),
        Ok(None) => {
            let fault = Fault::new(FaultCode::NotAsExpected, "delete").on_path(&moved.copy).side(Side::Destination);
            Err(fault.detail("the copy is not there any more, and its source stays"))
        }
        Err(fault) if fault.code == FaultCode::NotSupported => Ok(None),
        Err(fault) => Err(fault.side_if_unknown(Side::Destination)),
    }
}

/// A session with the destination.
struct Asking<'a> {
    run: &'a Run<'a>,
    dtns: Dtns,
    options: CopyOptions,
    remote: Option<Remote>,
}

/// What became of one question: the inner fault is about the copy, the outer one about the session.
type Answer = Result<Result<Outcome, Fault>, Fault>;

impl Asking<'_> {
    /// What the destination says of each; over new sessions where one broke.
    async fn all(&mut self, batch: &[Moved]) -> Vec<Answer> {
        let mut broken = 0;
        loop {
            let fault = match self.once(batch).await {
                Ok(answers) => return answers.into_iter().map(Ok).collect(),
                Err(fault) => fault,
            };
            self.remote = None;
            broken += 1;
            let retry = &self.options.retry;
            if broken >= retry.attempts || !fault.is_temporary() {
                return batch.iter().map(|_| Err(fault.clone())).collect();
            }
            sleep(retry.longest_wait(broken)).await;
        }
    }

    async fn once(&mut self, batch: &[Moved]) -> Result<Vec<Result<Outcome, Fault>>, Fault> {
        if self.remote.is_none() {
            let target = &self.run.destination.target;
            self.remote = Some(self.dtns.dial(target, &self.options.session, &[]).await?.0);
        }
        let remote = self.remote.as_mut().expect("it was dialled above");
        let window = if remote.is_pipelined() { WINDOW } else { 1 };
        let mut answers = Vec::with_capacity(batch.len());
        for some in batch.chunks(window) {
            let asked: Vec<Result<OpId, Fault>> = some.iter().map(|moved| remote.submit(question(moved))).collect();
            // Answers come in the order of the commands.
            for id in asked {
                answers.push(match id {
                    Ok(id) => answer_to(remote, id).await?,
                    Err(fault) if fault.code == FaultCode::InvalidPath => Err(fault),
                    Err(fault) => return Err(fault),
                });
            }
        }
        Ok(answers)
    }
}

fn question(moved: &Moved) -> Op {
    Op::Facts { path: moved.copy.clone(), facts: None }
}

async fn answer_to(remote: &mut Remote, id: OpId) -> Result<Result<Outcome, Fault>, Fault> {
    loop {
        if let (op, EndEvent::Done(result)) = remote.event_in_time().await?
            && op == id
        {
            return Ok(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_whose_copy_is_gone_stays_and_one_whose_copy_cannot_be_described_goes() {
        let moved = Moved { source: Object::file("/s", 3), copy: b"/d".to_vec() };
        let line = |line: &str| Ok(Outcome::Line(line.as_bytes().to_vec()));
        let copy = copy_of(&moved, line("type=file;size=3;unique=1-2; /d")).unwrap().unwrap();
        assert_eq!(copy.unique.as_deref(), Some("1-2"));
        let fault = |code| Err(Fault::new(code, "test"));
        assert_eq!(copy_of(&moved, fault(FaultCode::NotFound)).unwrap_err().code, FaultCode::NotAsExpected);
        assert_eq!(copy_of(&moved, fault(FaultCode::NotSupported)).unwrap(), None);
        assert!(copy_of(&moved, fault(FaultCode::StorageBusy)).unwrap_err().is_temporary());
    }
}
