//! What was measured.

use std::collections::BTreeMap;

use whimbrel_testkit::measure::median;

use crate::scale::Scale;
use crate::setting::Setting;

/// Times of copies, seconds.
#[derive(Debug)]
pub struct Results {
    pub scale: Scale,
    pub seconds: BTreeMap<Setting, Vec<f64>>,
    /// One file in chunks over so many pairs.
    pub pairs: BTreeMap<u32, Vec<f64>>,
    /// What could not be measured.
    pub failures: Vec<String>,
}

/// A median with its spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Value {
    pub median: f64,
    /// Standard deviation.
    pub deviation: f64,
}

impl Value {
    /// Of at least one sample.
    fn of(samples: impl Iterator<Item = f64>) -> Option<Value> {
        let samples: Vec<f64> = samples.collect();
        let count = samples.len() as f64;
        if samples.is_empty() {
            return None;
        }
        let mean = samples.iter().sum::<f64>() / count;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        Some(Value { median: median(samples), deviation: (squares / count).sqrt() })
    }
}

impl Results {
    /// Nothing yet.
    pub fn new(scale: Scale) -> Results {
        Results { scale, seconds: BTreeMap::new(), pairs: BTreeMap::new(), failures: Vec::new() }
    }

    /// Time of a copy; `None` where it was not measured.
    pub fn time(&self, setting: Setting) -> Option<Value> {
        Value::of(self.seconds.get(&setting)?.iter().copied())
    }

    /// Whether copies of a setting differ by more than `ratio`, the slowest by the fastest.
    pub fn differs(&self, setting: Setting, ratio: f64) -> bool {
        let all = || self.seconds.get(&setting).into_iter().flatten().copied();
        all().fold(0.0, f64::max) > ratio * all().fold(f64::INFINITY, f64::min)
    }

    /// Rate of a copy, MB/s.
    pub fn rate(&self, setting: Setting) -> Option<Value> {
        let megabytes = self.scale.bytes as f64 / 1e6;
        Value::of(self.seconds.get(&setting)?.iter().map(|seconds| megabytes / seconds))
    }

    /// Time that the proof adds to a copy, seconds; never negative.
    pub fn proof_time(&self, setting: Setting) -> Option<f64> {
        let (with, without) = (self.time(setting)?, self.time(setting.unproven())?);
        Some((with.median - without.median).max(0.0))
    }

    /// Rate with the proof by that without.
    pub fn kept(&self, setting: Setting) -> Option<f64> {
        Some(self.rate(setting)?.median / self.rate(setting.unproven())?.median)
    }

    /// How many times as fast `faster` is.
    pub fn gain(&self, faster: Setting, slower: Setting) -> Option<f64> {
        Some(self.time(slower)?.median / self.time(faster)?.median)
    }

    /// Rate over so many pairs, MB/s.
    pub fn rate_over(&self, pairs: u32) -> Option<Value> {
        let megabytes = self.scale.scaling_bytes as f64 / 1e6;
        Value::of(self.pairs.get(&pairs)?.iter().map(|seconds| megabytes / seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Route;

    #[test]
    fn medians_spreads_and_what_the_proof_costs() {
        let whole = Setting::whole(Route::A2N, 1);
        let mut results = Results::new(Scale { bytes: 20_000_000, scaling_bytes: 1 });
        assert_eq!(results.time(whole), None);
        results.seconds.insert(whole, vec![9.0, 5.0, 4.0]);
        results.seconds.insert(whole.unproven(), vec![2.0, 3.0]);
        assert!(results.differs(whole, 2.0) && !results.differs(whole, 2.5) && !results.differs(whole.unproven(), 1.5));
        assert_eq!(results.time(whole).map(|value| value.median), Some(5.0));
        assert_eq!(results.rate(whole).map(|value| value.median), Some(4.0));
        assert_eq!(results.proof_time(whole), Some(2.5));
        assert_eq!(results.gain(whole.unproven(), whole), Some(2.0));
        assert_eq!(Value::of([1.0, 3.0].into_iter()), Some(Value { median: 2.0, deviation: 1.0 }));
    }
}
