//! Whether a file at the destination still needs its copy.
