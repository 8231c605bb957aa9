//! What users have used of what they may: shared by all movers of a user in this process.
//!
//! Where the administrator gave a place for it, what is stored is also written down: one line `DAY BYTES USER` for what came since the last
//! one, at most one line a second for each user, so that a process that is started anew goes on counting. Several processes may append.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use whimbrel_engine::{Fault, FaultCode};
use whimbrel_transport::RateLimit;

use super::stats::Way;

const SECONDS_OF_A_DAY: u64 = 24 * 3600;

/// Longest time that bytes are counted in memory only.
const SLACK: Duration = Duration::from_secs(1);

/// Most of what was written down that is read, from its end, bytes.
const MOST_READ: u64 = 16 << 20;

/// What each user has stored today, and the speed limits in force.
#[derive(Debug, Default)]
pub struct Ledger {
    /// What was written down of today before this process began.
    before: HashMap<String, Day>,
    book: Option<Arc<File>>,
    stored: Mutex<HashMap<String, Arc<Stored>>>,
    rates: Mutex<HashMap<(String, u64), Weak<Rates>>>,
}

/// The speed limits of one user, each direction for itself.
#[derive(Debug)]
pub struct Rates {
    into_storage: RateLimit,
    out_of_storage: RateLimit,
}

/// What one user may store in a day (UTC).
#[derive(Debug, Clone)]
pub struct Quota {
    stored: Arc<Stored>,
    limit: u64,
}

#[derive(Debug)]
struct Stored {
    day: Mutex<Day>,
    user: String,
    book: Option<Arc<File>>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Day {
    /// Since 1970.
    number: u64,
    bytes: u64,
    /// Of these, those that are not written down.
    pending: u64,
    written: Option<Instant>,
}

impl Ledger {
    /// Goes on with what a file says, and writes down in it; it must have been opened for reading and appending.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn kept(mut book: File) -> io::Result<Self> {
        let before = read(&mut book, today())?;
        // Nobody else counts: what is over need not be kept.
        match book.try_lock() {
            Ok(()) => {
                book.set_len(0)?;
                before.iter().try_for_each(|(user, day)| write(&book, day.number, day.bytes, user))?;
                book.unlock()?;
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        book.lock_shared()?;
        Ok(Self { before, book: Some(Arc::new(book)), ..Self::default() })
    }

    /// What a user may still store of `limit` bytes a day.
    pub fn quota(&self, user: &str, limit: u64) -> Quota {
        let mut stored = lock(&self.stored);
        let begun = || Stored {
            day: Mutex::new(self.before.get(&plain(user)).copied().unwrap_or_default()),
            user: plain(user),
            book: self.book.clone(),
        };
        Quota { stored: stored.entry(user.to_owned()).or_insert_with(|| Arc::new(begun())).clone(), limit }
    }

    /// The limits of a user, in bytes a second, that all logins with the same limit share.
    pub fn rates(&self, user: &str, bytes_per_second: u64) -> Arc<Rates> {
        let mut rates = lock(&self.rates);
        rates.retain(|_, rates| rates.strong_count() > 0);
        let place = rates.entry((user.to_owned(), bytes_per_second)).or_default();
        place.upgrade().unwrap_or_else(|| {
            let limit = || RateLimit::new(Some(bytes_per_second));
            let rates = Arc::new(Rates { into_storage: limit(), out_of_storage: limit() });
            *place = Arc::downgrade(&rates);
            rates
        })
    }
}

impl Rates {
    /// The limit of one direction.
    pub fn of(&self, way: Way) -> &RateLimit {
        match way {
            Way::In => &self.into_storage,
            Way::Out => &self.out_of_storage,
        }
    }
}

impl Quota {
    /// Whether so many bytes more could be stored today; `QuotaExceeded` otherwise.
    pub fn has_room(&self, bytes: u64) -> Result<(), Fault> {
        self.left(&self.today(), bytes).map(drop)
    }

    /// Counts bytes that are about to be stored; `QuotaExceeded` if they are too many, and then none is counted.
    pub fn charge(&self, bytes: u64) -> Result<(), Fault> {
        let mut day = self.today();
        day.bytes = self.left(&day, bytes)?;
        day.pending += bytes;
        if day.written.is_none_or(|at| at.elapsed() >= SLACK) {
            self.stored.write_down(&mut day);
        }
        Ok(())
    }

    /// Writes down what is not yet: the login is over, or quiet.
    pub fn settle(&self) {
        self.stored.write_down(&mut lock(&self.stored.day));
    }

    fn today(&self) -> MutexGuard<'_, Day> {
        self.on(today())
    }

    fn on(&self, number: u64) -> MutexGuard<'_, Day> {
        let mut day = lock(&self.stored.day);
        if day.number != number {
            self.stored.write_down(&mut day);
            *day = Day { number, ..Day::default() };
        }
        day
    }

    /// What will be stored with so many bytes more.
    fn left(&self, day: &Day, bytes: u64) -> Result<u64, Fault> {
        let sum = day.bytes.saturating_add(bytes);
        if sum <= self.limit {
            return Ok(sum);
        }
        let Self { limit, .. } = self;
        let detail = format!("you may store {limit} bytes a day here and have stored {} today (UTC)", day.bytes);
        Err(Fault::new(FaultCode::QuotaExceeded, "store data").detail(detail))
    }
}

impl Stored {
    fn write_down(&self, day: &mut Day) {
        if let Some(book) = &self.book
            && day.pending > 0
        {
            match write(book, day.number, day.pending, &self.user) {
                Ok(()) => day.pending = 0,
                Err(error) => {
                    tracing::error!(%error, "what is stored cannot be written down: a restart would forget it")
                }
            }
            day.written = Some(Instant::now());
        }
    }
}

fn today() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()) / SECONDS_OF_A_DAY
}

/// A user's name as it stands in a line.
fn plain(user: &str) -> String {
    user.escape_debug().to_string()
}

/// One line, in one piece: the file is open for appending.
fn write(mut book: &File, day: u64, bytes: u64, user: &str) -> io::Result<()> {
    book.write_all(format!("{day} {bytes} {user}\n").as_bytes())
}

/// The sums of one day; lines that are none, as the last one may be after a crash, are left out.
fn read(book: &mut File, day: u64) -> io::Result<HashMap<String, Day>> {
    let from = book.seek(SeekFrom::End(0))?.saturating_sub(MOST_READ);
    book.seek(SeekFrom::Start(from))?;
    let mut text = Vec::new();
    book.take(MOST_READ).read_to_end(&mut text)?;
    let mut sums = HashMap::<String, Day>::new();
    for line in String::from_utf8_lossy(&text).split_inclusive('\n') {
        let mut words = line.strip_suffix('\n').unwrap_or_default().splitn(3, ' ');
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
        let (of, bytes, user) = (number(words.next()), number(words.next()), words.next());
        if let (Some(of), Some(bytes), Some(user)) = (of, bytes, user)
            && of == day
        {
            let sum = sums.entry(user.to_owned()).or_insert(Day { number: day, ..Day::default() });
            sum.bytes = sum.bytes.saturating_add(bytes);
        }
    }
    Ok(sums)
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is one step, so a panic leaves it usable.
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_its_quota_and_all_logins_of_a_user_share_it() {
        let ledger = Ledger::default();
        let (one, other) = (ledger.quota("ada", 100), ledger.quota("ada", 100));
        one.charge(60).unwrap();
        let fault = other.charge(41).unwrap_err();
        assert_eq!(fault.code, FaultCode::QuotaExceeded);
        assert!(fault.to_string().contains("stored 60 today"), "{fault}");
        assert!(other.has_room(40).is_ok() && other.has_room(41).is_err());
        other.charge(40).unwrap();
        ledger.quota("bob", 1).charge(1).unwrap();
        assert_eq!(one.on(u64::MAX).bytes, 0, "the next day begins with nothing");
        assert!(one.charge(u64::MAX).is_err(), "no number is too large to be refused");
    }

    fn book(path: &std::path::Path) -> File {
        File::options().read(true).append(true).create(true).open(path).unwrap()
    }

    #[test]
    fn what_was_stored_today_is_known_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ada");
        std::fs::write(&path, "1 50 ada\nno line\n").unwrap();
        let first = Ledger::kept(book(&path)).unwrap();
        let (ada, bob) = (first.quota("ada", 100), first.quota("b\nob", 100));
        assert!(ada.has_room(100).is_ok(), "that was long ago");
        ada.charge(60).unwrap();
        ada.charge(5).unwrap();
        bob.charge(7).unwrap();
        // Killed: what came within the last second may be lost, and half a line may be left.
        let killed = Ledger::kept(book(&path)).unwrap().quota("ada", 100);
        assert!(killed.has_room(40).is_ok() && killed.has_room(41).is_err());
        book(&path).write_all(format!("{} 9", today()).as_bytes()).unwrap();
        drop(killed);
        // Orderly.
        book(&path).write_all(b"\n").unwrap();
        ada.settle();
        bob.settle();
        drop((first, ada, bob));
        let next = Ledger::kept(book(&path)).unwrap();
        assert!(next.quota("ada", 100).has_room(35).is_ok() && next.quota("ada", 100).has_room(36).is_err());
        assert!(next.quota("b\nob", 100).has_room(94).is_err());
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2, "what is over and what is none was left out: {text}");
    }

    #[test]
    fn processes_that_count_at_the_same_time_lose_nothing_of_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ada");
        let [one, other] = [(); 2].map(|()| Ledger::kept(book(&path)).unwrap());
        one.quota("ada", 100).charge(10).unwrap();
        other.quota("ada", 100).charge(20).unwrap();
        drop((one, other));
        assert!(Ledger::kept(book(&path)).unwrap().quota("ada", 100).has_room(71).is_err());
    }

    #[test]
    fn logins_of_a_user_share_one_speed_limit_for_each_direction() {
        let ledger = Ledger::default();
        let (one, same) = (ledger.rates("ada", 1000), ledger.rates("ada", 1000));
        assert!(Arc::ptr_eq(&one, &same));
        assert!(!Arc::ptr_eq(&one, &ledger.rates("bob", 1000)));
        assert_eq!(one.of(Way::In).rate(), Some(1000));
        let now = std::time::Instant::now();
        assert!(!one.of(Way::In).pay(5000, now).is_zero());
        assert!(one.of(Way::Out).pay(1, now).is_zero() || one.of(Way::Out).pay(1, now) < one.of(Way::In).pay(1, now));
        drop((one, same));
        assert_eq!(ledger.rates.lock().unwrap().values().filter(|rates| rates.strong_count() > 0).count(), 0);
    }
}
