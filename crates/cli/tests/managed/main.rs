//! Our own commands of the managed service, against a live one with real servers.
#![allow(clippy::unwrap_used, reason = "a test that fails ends here")]

#[allow(dead_code, reason = "the public client is not used here")]
#[path = "../service/field.rs"]
mod field;

mod audits;
mod copies;
mod endpoints;
mod follow;
mod logins;
mod matrices;
mod overviews;
mod plans;
mod quick_start;
mod seat;
mod tasks;
mod university;
