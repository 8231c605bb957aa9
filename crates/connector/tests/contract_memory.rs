//! Memory keeps every promise.
#![allow(missing_docs, clippy::unwrap_used)]

use whimbrel_connector::memory::Memory;

whimbrel_connector::contract_tests!(memory, || {
    let storage = Memory::new();
    (storage.clone(), storage, ())
});
