//! When a failed attempt is worth another, and when it is not.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fault::{Fault, FaultCode, Retry};

/// How often and how fast failed attempts are repeated.
///
/// The budget counts attempts *without progress*: an attempt that brought enough new bytes to stay
/// starts it anew, so that a very long file does not die of many short cuts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Attempts in all, the first included; at least 1; default 5.
    pub attempts: u32,
    /// Attempts when the data were wrong (checksum mismatch, source changed); default 3.
    pub integrity_attempts: u32,
    /// First wait; default 1 s; doubled for each further one.
    pub base: Duration,
    /// Longest wait; default 60 s. A longer wait demanded by the fault itself is honoured.
    pub cap: Duration,
    /// Part of the wait that is random, 0 to 1; default 0.5.
    pub jitter: f64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 5,
            integrity_attempts: 3,
            base: Duration::from_secs(1),
            cap: Duration::from_secs(60),
            jitter: 0.5,
        }
    }
}

/// What to do about a failed attempt.
#[derive(Debug)]
pub enum Decision {
    /// Try again, not before this has passed.
    Again {
        /// Time to wait.
        after: Duration,
        /// Why the attempt failed.
        fault: Fault,
    },
    /// The end; the fault says whether it was permanent or exhausted its retries.
    GiveUp(Fault),
}

impl RetryPolicy {
    /// Decides about the `failures`th failure in a row (1 for the first); `seed` chooses the jitter.
    pub fn decide(&self, mut fault: Fault, failures: u32, seed: u64) -> Decision {
        let Retry::Temporary { after } = fault.retry else {
            return Decision::GiveUp(fault);
        };
        let failures = failures.max(1);
        if failures >= self.budget(fault.code) {
            fault.retry = Retry::Exhausted;
            return Decision::GiveUp(fault);
        }
        let after = self.wait(failures, seed).max(after);
        Decision::Again { after, fault }
    }

    fn budget(&self, code: FaultCode) -> u32 {
        match code {
            FaultCode::ChecksumMismatch | FaultCode::SourceChanged => self.integrity_attempts,
            _ => self.attempts,
        }
    }

    /// The longest wait before the attempt that follows `failures` failures, at least 1: it doubles from `base` up to `cap`.
    pub fn longest_wait(&self, failures: u32) -> Duration {
        self.base.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1))).min(self.cap)
    }

    /// The same, shorter by a random part: at least `1 - jitter` of it.
    fn wait(&self, failures: u32, seed: u64) -> Duration {
        let full = self.longest_wait(failures);
        let random = unit_interval(seed ^ u64::from(failures).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        full.mul_f64(1.0 - self.jitter.clamp(0.0, 1.0) * random)
    }
}

/// A number in [0, 1) from a seed (the finalizer of SplitMix64).
fn unit_interval(seed: u64) -> f64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    (z >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn after(policy: &RetryPolicy, code: FaultCode, failures: u32) -> Result<Duration, Retry> {
        match policy.decide(Fault::new(code, "test"), failures, 1) {
            Decision::Again { after, .. } => Ok(after),
            Decision::GiveUp(fault) => Err(fault.retry),
        }
    }

    #[test]
    fn permanent_faults_end_at_once_and_temporary_ones_when_exhausted() {
        let policy = RetryPolicy::default();
        assert_eq!(after(&policy, FaultCode::NotFound, 1), Err(Retry::Permanent));
        assert!(after(&policy, FaultCode::ConnectionLost, 4).is_ok());
        assert_eq!(after(&policy, FaultCode::ConnectionLost, 5), Err(Retry::Exhausted));
        assert!(after(&policy, FaultCode::ChecksumMismatch, 2).is_ok());
        assert_eq!(after(&policy, FaultCode::ChecksumMismatch, 3), Err(Retry::Exhausted));
    }

    #[test]
    fn a_wait_demanded_by_the_fault_is_honoured_beyond_the_cap() {
        let demanded = Duration::from_secs(300);
        let fault = Fault::new(FaultCode::ServerBusy, "log in").retry(Retry::Temporary { after: demanded });
        let Decision::Again { after, .. } = RetryPolicy::default().decide(fault, 1, 0) else {
            panic!("a busy server is worth another attempt");
        };
        assert_eq!(after, demanded);
    }

    proptest! {
        #[test]
        fn waits_double_up_to_the_cap_less_at_most_the_jitter(failures in 1u32..100, seed: u64) {
            let policy = RetryPolicy { attempts: u32::MAX, ..RetryPolicy::default() };
            let wait = policy.wait(failures, seed);
            let full = Duration::from_secs(1u64 << (failures - 1).min(6)).min(policy.cap);
            prop_assert!(wait <= full && wait >= full / 2, "{wait:?} of {full:?}");
            prop_assert_eq!(wait, policy.wait(failures, seed));
        }
    }
}
