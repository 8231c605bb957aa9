//! Time that a thread has had on a processor.

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

#[cfg(test)]
mod tests {
    use super::*;

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
