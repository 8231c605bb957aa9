//! Which connections belong together, as a machine: who was announced, who waits, who is joined to whom.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use whimbrel_proto::relay::{Announcement, Hello, Part, Token};

/// How long a connection waits for the one that it belongs to: as long as a transfer waits for a connection, twice.
pub(super) const WAIT: Duration = Duration::from_secs(60);

/// What is kept at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Of everybody.
    pub(super) all: Sums,
    /// Of what one user has announced.
    pub(super) of_user: Sums,
}

/// How much of each kind there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Announced tokens.
    pub(super) tokens: usize,
    /// Connections that wait.
    pub(super) waiting: usize,
    /// Joined pairs; with [`super::BUFFER`] in each direction 1024 take 128 MiB.
    pub(super) pairs: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            all: Sums { tokens: 4096, waiting: 1024, pairs: 1024 },
            of_user: Sums { tokens: 1024, waiting: 512, pairs: 512 },
        }
    }
}

/// Why something is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// Nobody has announced the token, or its time is over.
    #[error("its token is not announced")]
    Unknown,
    /// As many connections of this end have come as were announced.
    #[error("as many connections of this end have come as were announced")]
    UsedUp,
    /// The token is announced already.
    #[error("the token is announced already")]
    Known,
    /// There are as many as may be.
    #[error("there are as many as may be")]
    Full,
}

/// What became of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival<C> {
    /// Its other end has not come yet.
    Waits,
    /// It has: these two are joined, for the user who announced them, until [`Table::ended`].
    Joined(C, C, Arc<str>),
}

/// What is announced, with connections `C` that wait.
#[derive(Debug)]
pub(super) struct Table<C> {
    limits: Limits,
    announced: HashMap<Token, Announced<C>>,
    all: Sums,
    of_user: HashMap<Arc<str>, Sums>,
}

#[derive(Debug)]
struct Announced<C> {
    user: Arc<str>,
    until: Instant,
    client: End<C>,
    server: End<C>,
}

/// One end of a transfer.
#[derive(Debug)]
struct End<C> {
    /// Connections that may still come.
    left: u16,
    /// Those that wait, with when they stop; at one end at most.
    waits: VecDeque<(Instant, C)>,
}

impl<C> Announced<C> {
    fn end(&mut self, part: Part) -> &mut End<C> {
        match part {
            Part::Client => &mut self.client,
            Part::Server => &mut self.server,
        }
    }

    /// Whether nothing can be joined any more.
    fn is_over(&self) -> bool {
        let none = |end: &End<C>| end.left == 0 && end.waits.is_empty();
        none(&self.client) || none(&self.server)
    }

    fn waiting(&self) -> usize {
        self.client.waits.len() + self.server.waits.len()
    }
}

impl<C> Table<C> {
    /// Nothing is announced.
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, announced: HashMap::new(), all: Sums::default(), of_user: HashMap::new() }
    }

    /// Whether one more of a kind is too much, for all or for a user.
    fn is_full(&self, user: &str, of: impl Fn(&Sums) -> usize) -> bool {
        let own = self.of_user.get(user).map_or(0, &of);
        of(&self.all) >= of(&self.limits.all) || own >= of(&self.limits.of_user)
    }

    /// Changes what there is, of all and of a user.
    fn count(&mut self, user: &Arc<str>, change: impl Fn(&mut Sums)) {
        change(&mut self.all);
        let own = self.of_user.entry(user.clone()).or_default();
        change(own);
        if *own == Sums::default() {
            self.of_user.remove(user);
        }
    }

    /// A user announces a token.
    pub(super) fn announce(&mut self, now: Instant, user: &str, what: &Announcement) -> Result<(), Refusal> {
        self.expire_one(now, &what.token);
        if self.announced.contains_key(&what.token) {
            return Err(Refusal::Known);
        }
        if self.is_full(user, |sums| sums.tokens) {
            return Err(Refusal::Full);
        }
        let user = Arc::from(user);
        self.count(&user, |sums| sums.tokens += 1);
        let end = || End { left: what.connections, waits: VecDeque::new() };
        let until = now + Duration::from_secs(what.seconds.into());
        self.announced.insert(what.token, Announced { user, until, client: end(), server: end() });
        Ok(())
    }

    /// A connection came. Of those that wait for it, it is joined with the first that `is_there`: others are dropped, and their
    /// places at their end are theirs no more.
    pub(super) fn arrive(
        &mut self,
        now: Instant,
        hello: Hello,
        connection: C,
        is_there: impl Fn(&C) -> bool,
    ) -> Result<Arrival<C>, Refusal> {
        self.expire_one(now, &hello.token);
        let user = self.announced.get(&hello.token).ok_or(Refusal::Unknown)?.user.clone();
        let (crowded, joined_out) = (self.is_full(&user, |sums| sums.waiting), self.is_full(&user, |sums| sums.pairs));
        let announced = self.announced.get_mut(&hello.token).ok_or(Refusal::Unknown)?;
        if announced.end(hello.part).left == 0 {
            return Err(Refusal::UsedUp);
        }
        if joined_out {
            return Err(Refusal::Full);
        }
        let before = announced.waiting();
        let others = &mut announced.end(hello.part.other()).waits;
        let other = std::iter::from_fn(|| others.pop_front()).map(|(_, other)| other).find(is_there);
        let gone = before - announced.waiting();
        let own = announced.end(hello.part);
        let arrival = match other {
            None if crowded => Err(Refusal::Full),
            None => {
                own.left -= 1;
                own.waits.push_back((now + WAIT, connection));
                Ok(Arrival::Waits)
            }
            Some(other) => {
                own.left -= 1;
                Ok(Arrival::Joined(connection, other, user.clone()))
            }
        };
        let is_over = announced.is_over();
        let (waits, joined) = match &arrival {
            Ok(Arrival::Waits) => (1, 0),
            Ok(Arrival::Joined(..)) => (0, 1),
            Err(_) => (0, 0),
        };
        self.count(&user, |sums| {
            sums.waiting = sums.waiting + waits - gone;
            sums.pairs += joined;
        });
        if is_over && arrival.is_ok() {
            self.forget(&hello.token);
        }
        arrival
    }

    /// A pair that a user has announced passes nothing on any more.
    pub(super) fn ended(&mut self, user: &Arc<str>) {
        self.count(user, |sums| sums.pairs -= 1);
    }

    /// Lets go of all that has had its time.
    pub(super) fn expire(&mut self, now: Instant) {
        let tokens: Vec<_> = self.announced.keys().copied().collect();
        tokens.iter().for_each(|token| self.expire_one(now, token));
    }

    fn expire_one(&mut self, now: Instant, token: &Token) {
        let Some(announced) = self.announced.get_mut(token) else { return };
        let before = announced.waiting();
        for part in Part::ALL {
            announced.end(part).waits.retain(|(until, _)| *until > now);
        }
        let (gone, user) = (before - announced.waiting(), announced.user.clone());
        let is_over = announced.until <= now || announced.is_over();
        self.count(&user, |sums| sums.waiting -= gone);
        if is_over {
            self.forget(token);
        }
    }

    fn forget(&mut self, token: &Token) {
        let Some(announced) = self.announced.remove(token) else { return };
        let waiting = announced.waiting();
        self.count(&announced.user, |sums| {
            sums.tokens -= 1;
            sums.waiting -= waiting;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = [7; 32];

    struct Field {
        table: Table<&'static str>,
        now: Instant,
    }

    /// Joined for whoever announced [`TOKEN`].
    fn joined(one: &'static str, other: &'static str) -> Result<Arrival<&'static str>, Refusal> {
        Ok(Arrival::Joined(one, other, "ada".into()))
    }

    impl Field {
        fn new(limits: Limits) -> Self {
            Self { table: Table::new(limits), now: Instant::now() }
        }

        /// With [`TOKEN`] announced.
        fn announced(connections: u16, seconds: u32) -> Self {
            let mut field = Self::new(Limits::default());
            field.announce("ada", TOKEN, connections, seconds).unwrap();
            field
        }

        fn announce(&mut self, user: &str, token: Token, connections: u16, seconds: u32) -> Result<(), Refusal> {
            self.table.announce(self.now, user, &Announcement { token, connections, seconds })
        }

        fn arrive(&mut self, token: Token, part: Part, name: &'static str) -> Result<Arrival<&'static str>, Refusal> {
            self.table.arrive(self.now, Hello { token, part }, name, |name| !name.starts_with("gone"))
        }

        fn is_empty(&self) -> bool {
            let Table { announced, of_user, all, .. } = &self.table;
            announced.is_empty()
                && [all].into_iter().chain(of_user.values()).all(|sums| sums.tokens + sums.waiting == 0)
        }
    }

    #[test]
    fn connections_of_both_ends_are_joined_in_the_order_in_which_they_come() {
        let mut field = Field::announced(2, 10);
        assert_eq!(field.arrive(TOKEN, Part::Client, "c1"), Ok(Arrival::Waits));
        assert_eq!(field.arrive(TOKEN, Part::Client, "c2"), Ok(Arrival::Waits));
        assert_eq!(field.arrive(TOKEN, Part::Server, "s1"), joined("s1", "c1"));
        assert_eq!(field.arrive(TOKEN, Part::Server, "s2"), joined("s2", "c2"));
        assert!(field.is_empty(), "what is used up is forgotten");
        assert_eq!(field.arrive(TOKEN, Part::Server, "s3"), Err(Refusal::Unknown));
    }

    #[test]
    fn two_connections_of_one_end_are_never_joined_and_no_more_than_announced() {
        let mut field = Field::announced(2, 10);
        for name in ["s1", "s2"] {
            assert_eq!(field.arrive(TOKEN, Part::Server, name), Ok(Arrival::Waits));
        }
        assert_eq!(field.arrive(TOKEN, Part::Server, "s3"), Err(Refusal::UsedUp));
        assert_eq!(field.arrive(TOKEN, Part::Client, "c1"), joined("c1", "s1"));
    }

    #[test]
    fn what_nobody_has_announced_is_refused_and_changes_nothing() {
        let mut field = Field::announced(1, 10);
        assert_eq!(field.arrive([8; 32], Part::Client, "x"), Err(Refusal::Unknown));
        assert_eq!(field.announce("eve", TOKEN, 9, 10), Err(Refusal::Known));
        field.arrive(TOKEN, Part::Client, "c").unwrap();
        assert_eq!(field.arrive(TOKEN, Part::Server, "s"), joined("s", "c"));
    }

    #[test]
    fn who_has_gone_is_joined_with_nobody() {
        let mut field = Field::announced(2, 10);
        field.arrive(TOKEN, Part::Client, "gone").unwrap();
        field.arrive(TOKEN, Part::Client, "c").unwrap();
        assert_eq!(field.arrive(TOKEN, Part::Server, "s"), joined("s", "c"));
        assert!(field.is_empty(), "the second of the server's end has nobody to wait for");
    }

    #[test]
    fn time_ends_announcements_and_waiting() {
        let mut field = Field::announced(4, 600);
        field.arrive(TOKEN, Part::Client, "c1").unwrap();
        field.now += WAIT;
        assert_eq!(field.arrive(TOKEN, Part::Server, "s1"), Ok(Arrival::Waits), "the other end has waited long enough");
        field.now += Duration::from_secs(539);
        field.arrive(TOKEN, Part::Server, "s2").unwrap();
        field.now += Duration::from_secs(1);
        assert_eq!(field.arrive(TOKEN, Part::Client, "c2"), Err(Refusal::Unknown));
        assert!(field.is_empty());
    }

    #[test]
    fn nobody_fills_it_up() {
        let pairs = 9;
        let all = Sums { tokens: 3, waiting: 2, pairs };
        let mut field = Field::new(Limits { all, of_user: Sums { tokens: 2, waiting: 2, pairs } });
        let token = |number: u8| [number; 32];
        assert_eq!([1, 2].map(|number| field.announce("eve", token(number), 9, 10)), [Ok(()), Ok(())]);
        assert_eq!(field.announce("eve", token(3), 9, 10), Err(Refusal::Full), "of one user");
        assert_eq!(field.announce("ada", token(4), 9, 10), Ok(()));
        assert_eq!(field.announce("bob", token(5), 9, 10), Err(Refusal::Full));
        for number in [1, 4] {
            assert_eq!(field.arrive(token(number), Part::Client, "c"), Ok(Arrival::Waits));
        }
        assert_eq!(field.arrive(token(2), Part::Client, "c"), Err(Refusal::Full));
        let joined = Ok(Arrival::Joined("s", "c", "eve".into()));
        assert_eq!(field.arrive(token(1), Part::Server, "s"), joined, "who is waited for may come");
        assert_eq!(field.arrive(token(2), Part::Client, "c"), Ok(Arrival::Waits));
        field.now += Duration::from_secs(10);
        field.table.expire(field.now);
        assert!(field.is_empty());
    }

    #[test]
    fn one_user_leaves_others_room_to_wait_and_to_be_joined() {
        let all = Sums { tokens: 9, waiting: 2, pairs: 2 };
        let mut field = Field::new(Limits { all, of_user: Sums { tokens: 9, waiting: 1, pairs: 1 } });
        let (eves, adas) = ([1; 32], [2; 32]);
        field.announce("eve", eves, 9, 10).unwrap();
        field.announce("ada", adas, 9, 10).unwrap();
        assert_eq!(field.arrive(eves, Part::Client, "c"), Ok(Arrival::Waits));
        assert_eq!(field.arrive(eves, Part::Client, "c"), Err(Refusal::Full), "one of hers waits");
        assert_eq!(field.arrive(adas, Part::Client, "c"), Ok(Arrival::Waits));
        let Ok(Arrival::Joined(.., eve)) = field.arrive(eves, Part::Server, "s") else { panic!("it is waited for") };
        for part in Part::ALL {
            assert_eq!(field.arrive(eves, part, "x"), Err(Refusal::Full), "one of hers is joined");
        }
        let Ok(Arrival::Joined(.., ada)) = field.arrive(adas, Part::Server, "s") else { panic!("there is room") };
        field.table.ended(&eve);
        assert_eq!(field.arrive(eves, Part::Client, "c"), Ok(Arrival::Waits));
        assert!(matches!(field.arrive(eves, Part::Server, "s"), Ok(Arrival::Joined(..))));
        field.now += Duration::from_secs(10);
        field.table.expire(field.now);
        [eve, ada].iter().for_each(|user| field.table.ended(user));
        assert!(field.is_empty() && field.table.of_user.is_empty(), "nothing is kept of who has nothing");
    }
}
