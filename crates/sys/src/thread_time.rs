//! Time that a thread has had on a processor, and that it was kept waiting for one.

use std::cell::OnceCell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

/// What the calling thread has used of processors since it began; zero where the system does not say.
pub fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for one timespec, and the call writes nothing else.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    if done != 0 {
        return Duration::ZERO;
    }
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// For how long the calling thread could have run and had no processor, since it began (`/proc/PID/schedstat`); zero where
/// the system does not say.
///
/// A limit of its control group counts as well as other threads do.
pub fn thread_delay() -> Duration {
    thread_local! {
        // Opened once: what is read is the thread's own, by that descriptor only.
        static STATISTICS: OnceCell<Option<File>> = const { OnceCell::new() };
    }
    STATISTICS.with(|file| {
        let file = file.get_or_init(|| File::open("/proc/thread-self/schedstat").ok());
        let mut text = [0; 96];
        let length = file.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        Duration::from_nanos(second_number(&text[..length]).unwrap_or(0))
    })
}

/// The second of some numbers with blanks between them.
fn second_number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_threads_than_processors_wait_for_one() {
        assert_eq!(second_number(b"12 34 5\n"), Some(34));
        assert_eq!((second_number(b""), second_number(b"12 x 5")), (None, None));
        let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from);
        let work = || {
            let began = std::time::Instant::now();
            while began.elapsed() < Duration::from_millis(200) {
                std::hint::black_box(0);
            }
            thread_delay()
        };
        let all: Vec<_> = (0..threads).map(|_| std::thread::spawn(work)).collect();
        let waited: Duration = all.into_iter().map(|thread| thread.join().expect("it counts")).sum();
        assert!(waited > Duration::from_millis(100), "{waited:?}");
    }

    #[test]
    fn working_takes_time_and_waiting_does_not() {
        let before = thread_time();
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err());
        drop(sender);
        let waited = thread_time() - before;
        assert!(waited < Duration::from_millis(40), "{waited:?}");
        let mut sum = 0u64;
        while thread_time() - before < waited + Duration::from_millis(5) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
    }
}
