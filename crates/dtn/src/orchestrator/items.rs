//! What the user submitted, as it comes from the service: a page at a time.

use tokio::sync::mpsc;
use whimbrel_engine::dispatch::{Request, Response, WorkItem};

use super::hold::{Hold, Line, Lost, Standing};
use super::keys::unexpected;

/// Passes all items on, in order, as fast as they are taken; ends early when work on the task does.
pub(super) async fn feed<T>(line: &Line, hold: &Hold, to: mpsc::Sender<T>, read: impl Fn(WorkItem) -> T) {
    let all = async {
        let mut after = 0;
        loop {
            let request = Request::Items { lease: hold.lease, after };
            let Response::Items { items } = line.insist(hold, request).await? else { return Err(unexpected(hold)) };
            let Some(last) = items.last() else { return Ok(()) };
            after = last.number;
            for item in items {
                if to.send(read(item)).await.is_err() {
                    return Ok::<(), Lost>(());
                }
            }
        }
    };
    tokio::select! {
        _ = all => {}
        () = hold.until(Standing::Stopping) => {}
    }
}
