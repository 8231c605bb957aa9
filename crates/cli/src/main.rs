//! The one binary: `whimbrel cp`, `whimbrel dtn` and the rest.
fn main() {}
