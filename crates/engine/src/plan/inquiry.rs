//! Questions put to one session: which may be sent ahead of the answers, and what becomes of them when it breaks.

use std::collections::VecDeque;

/// Attempts at a question that sessions break on, asked by itself, before anything of its answer comes: an idle session that
/// the server has closed meanwhile is no fault.
const TRIES: u32 = 2;

/// The questions put to one session; it answers in order.
#[derive(Debug)]
pub struct Inquiry<A> {
    waiting: VecDeque<Put<A>>,
    sent: VecDeque<Put<A>>,
    /// What must be asked with nothing else in the air.
    alone: VecDeque<A>,
    ahead: usize,
}

#[derive(Debug)]
struct Put<A> {
    question: A,
    tries: u32,
    /// A part of the answer has come since it was sent.
    begun: bool,
}

impl<A> Inquiry<A> {
    /// Nothing asked yet; at most `ahead` questions, 1 at least, will be in the air together.
    pub fn new(ahead: usize) -> Self {
        Self { waiting: VecDeque::new(), sent: VecDeque::new(), alone: VecDeque::new(), ahead: ahead.max(1) }
    }

    /// At most so many questions, 1 at least, in the air from now on.
    pub fn set_ahead(&mut self, ahead: usize) {
        self.ahead = ahead.max(1);
    }

    /// Takes a question on, behind all others.
    pub fn push(&mut self, question: A) {
        self.waiting.push_back(Put { question, tries: 0, begun: false });
    }

    /// The next question that may be sent now; it counts as sent.
    pub fn send(&mut self) -> Option<&A> {
        if self.sent.len() >= self.ahead || !self.alone.is_empty() {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.sent.push_back(next);
        self.sent.back().map(|put| &put.question)
    }

    /// Takes back the one sent last: it cannot be sent at all.
    pub fn unsend(&mut self) -> Option<A> {
        self.sent.pop_back().map(|put| put.question)
    }

    /// The question that is being answered, if any is in the air.
    pub fn first(&self) -> Option<&A> {
        self.sent.front().map(|put| &put.question)
    }

    /// A new part of the first answer has come.
    pub fn begun(&mut self) {
        if let Some(first) = self.sent.front_mut() {
            first.begun = true;
        }
    }

    /// The first question in the air is answered.
    pub fn answered(&mut self) -> Option<A> {
        self.sent.pop_front().map(|put| put.question)
    }

    /// A question that has to be asked in another way, with nothing else in the air; nothing is sent before that.
    pub fn ask_alone(&mut self, question: A) {
        self.alone.push_back(question);
    }

    /// The next question to ask by itself, once nothing is in the air.
    pub fn take_alone(&mut self) -> Option<A> {
        if self.sent.is_empty() { self.alone.pop_front() } else { None }
    }

    /// The session is over: everything in the air is asked again on the next one, fewer at a time, in case they were too many.
    ///
    /// Returned is the question that was in the air by itself and again is to blame; it fails.
    pub fn broke(&mut self) -> Option<A> {
        let by_itself = self.sent.len() == 1;
        let first = self.sent.front_mut()?;
        let mut failed = None;
        if std::mem::take(&mut first.begun) {
            first.tries = 0;
        } else if by_itself {
            first.tries += 1;
            if first.tries >= TRIES {
                failed = self.answered();
            }
        }
        if !by_itself {
            self.set_ahead(self.ahead / 2);
        }
        while let Some(put) = self.sent.pop_back() {
            self.waiting.push_front(put);
        }
        failed
    }

    /// Everything that was not answered, in order: there is no session to ask.
    pub fn give_up(&mut self) -> Vec<A> {
        let all = self.sent.drain(..).chain(self.waiting.drain(..)).map(|put| put.question);
        // What is to be asked alone was asked before the others.
        self.alone.drain(..).chain(all).collect()
    }

    /// Questions in the air.
    pub fn in_air(&self) -> usize {
        self.sent.len()
    }

    /// The questions that [`Inquiry::send`] would give now, one after the other.
    pub fn sendable(&self) -> impl Iterator<Item = &A> {
        let room = if self.alone.is_empty() { self.ahead.saturating_sub(self.sent.len()) } else { 0 };
        self.waiting.iter().take(room).map(|put| &put.question)
    }

    /// Whether everything is answered.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty() && self.alone.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inquiry(ahead: usize, questions: u32) -> Inquiry<u32> {
        let mut inquiry = Inquiry::new(ahead);
        (1..=questions).for_each(|question| inquiry.push(question));
        inquiry
    }

    fn send_all(inquiry: &mut Inquiry<u32>) -> Vec<u32> {
        std::iter::from_fn(|| inquiry.send().copied()).collect()
    }

    #[test]
    fn so_many_are_sent_ahead_and_each_answer_makes_room_for_another() {
        let mut inquiry = inquiry(3, 5);
        assert_eq!(send_all(&mut inquiry), [1, 2, 3]);
        assert_eq!(inquiry.answered(), Some(1));
        assert_eq!(send_all(&mut inquiry), [4]);
        assert_eq!((inquiry.first(), inquiry.in_air()), (Some(&2), 3));
        inquiry.set_ahead(0);
        assert_eq!(send_all(&mut inquiry), [0; 0]);
        for _ in 0..3 {
            inquiry.answered();
        }
        assert_eq!(send_all(&mut inquiry), [5], "one at a time always goes");
        inquiry.answered();
        assert!(inquiry.is_idle());
    }

    #[test]
    fn a_session_that_closes_before_it_answers_costs_nothing_once() {
        let mut inquiry = inquiry(1, 2);
        send_all(&mut inquiry);
        assert_eq!(inquiry.broke(), None);
        assert_eq!(send_all(&mut inquiry), [1]);
        assert_eq!(inquiry.broke(), Some(1), "it broke on the same question again");
        assert_eq!(send_all(&mut inquiry), [2], "the other was not to blame");
    }

    #[test]
    fn a_server_that_closes_on_many_questions_is_asked_fewer_until_the_one_to_blame_is_found() {
        let mut inquiry = inquiry(100, 8);
        let mut sent = Vec::new();
        let failed = std::iter::from_fn(|| {
            sent.push(send_all(&mut inquiry).len());
            Some(inquiry.broke())
        });
        assert_eq!(failed.flatten().next(), Some(1));
        assert_eq!(sent, [8, 8, 8, 8, 6, 3, 1, 1]);
        assert_eq!(send_all(&mut inquiry), [2]);
        assert_eq!(inquiry.answered(), Some(2));
    }

    #[test]
    fn an_answer_that_breaks_off_is_asked_for_again_as_long_as_more_of_it_comes() {
        let mut inquiry = inquiry(1, 1);
        for _ in 0..5 {
            send_all(&mut inquiry);
            inquiry.begun();
            assert_eq!(inquiry.broke(), None);
        }
        send_all(&mut inquiry);
        assert_eq!((inquiry.broke(), inquiry.sendable().next()), (None, Some(&1)));
        send_all(&mut inquiry);
        assert_eq!(inquiry.broke(), Some(1), "nothing new");
        assert_eq!(inquiry.broke(), None, "nothing is in the air");
    }

    #[test]
    fn what_must_be_asked_alone_waits_until_nothing_is_in_the_air() {
        let mut inquiry = inquiry(2, 3);
        send_all(&mut inquiry);
        let refused = inquiry.answered().expect("in the air");
        inquiry.ask_alone(refused);
        assert_eq!((inquiry.sendable().count(), inquiry.send()), (0, None), "it goes first");
        assert_eq!(inquiry.take_alone(), None, "another is in the air");
        inquiry.answered();
        assert_eq!(inquiry.take_alone(), Some(1));
        assert_eq!(send_all(&mut inquiry), [3]);
    }

    #[test]
    fn what_cannot_be_asked_comes_back_in_order() {
        let mut inquiry = inquiry(2, 4);
        send_all(&mut inquiry);
        assert_eq!(inquiry.unsend(), Some(2));
        inquiry.ask_alone(0);
        assert_eq!(inquiry.give_up(), [0, 1, 3, 4]);
        assert!(inquiry.is_idle());
    }
}
