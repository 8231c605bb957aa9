//! Drives servers: control sessions, transfers, trees.
