//! Timers: transfers that are submitted at a time, or again and again, in their owners' names.
//!
//! Documents are those of the Timers API that the public clients speak: made with `POST /v2/timer`, looked after under `/jobs/`.

pub mod document;
pub mod input;
pub mod records;
mod routes;
pub mod run;
pub mod schedule;

pub use routes::routes;
