//! Test laboratory: wide-area links, real peers, fault wrappers, data sets.
