//! The service as programs see it: whole requests against the whole table of routes.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod audit;
mod bench;
mod collections;
mod documents;
mod grid;
mod groups;
mod logins;
mod managers;
mod matrix;
mod news;
mod orchestrators;
mod pauses;
mod plans;
mod provider;
mod rates;
mod refusals;
mod rights;
mod servers;
mod timers;
mod tokens;
