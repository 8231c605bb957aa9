//! The order in which a mover's messages leave: what follows an unanswered operation waits for its answer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::codec::FrameWriter;

/// Where all messages of one mover go out.
pub struct Outlet {
    writer: FrameWriter,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// Operations whose answers are still to come, in order.
    held: VecDeque<Held>,
}

struct Held {
    number: u64,
    answer: Option<Vec<u8>>,
    /// What was said after it.
    behind: Vec<u8>,
}

/// The place of an answer that comes later.
pub struct Place {
    outlet: Arc<Outlet>,
    number: u64,
}

impl Outlet {
    /// Nothing is held.
    pub fn new(writer: FrameWriter) -> Arc<Self> {
        Arc::new(Self { writer, state: Mutex::default() })
    }

    /// Sends frames, as soon as every answer before them has left.
    pub fn send(&self, frames: &[u8]) {
        let mut state = self.lock();
        match state.held.back_mut() {
            Some(last) => last.behind.extend_from_slice(frames),
            // Written under the lock: nothing said later may overtake it.
            None => self.writer.send(frames),
        }
    }

    /// Keeps the place of an answer; everything sent from now on waits for it.
    pub fn hold(self: &Arc<Self>) -> Place {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.held.push_back(Held { number, answer: None, behind: Vec::new() });
        Place { outlet: self.clone(), number }
    }

    fn answer(&self, number: u64, frames: Vec<u8>) {
        let mut state = self.lock();
        if let Some(held) = state.held.iter_mut().find(|held| held.number == number) {
            held.answer = Some(frames);
        }
        while let Some(mut frames) = state.held.front_mut().and_then(|held| held.answer.take()) {
            let held = state.held.pop_front().expect("it was in front");
            frames.extend_from_slice(&held.behind);
            self.writer.send(&frames);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is one step, so a panic leaves it usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Lets the answer out, and what waited for it.
    pub fn fill(self, frames: Vec<u8>) {
        self.outlet.answer(self.number, frames);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn answers_leave_in_the_order_of_their_places_and_nothing_overtakes_them() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let outlet = Outlet::new(FrameWriter::new(near));
        outlet.send(b"a");
        let first = outlet.hold();
        outlet.send(b"c");
        let second = outlet.hold();
        outlet.send(b"e");
        second.fill(b"d".to_vec());
        outlet.send(b"f");
        first.fill(b"b".to_vec());
        outlet.send(b"g");
        drop(outlet);
        let mut all = String::new();
        far.read_to_string(&mut all).unwrap();
        assert_eq!(all, "abcdefg");
    }
}
