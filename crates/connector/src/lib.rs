//! Storage behind one trait: POSIX and memory, with the contract suite every connector runs.
