//! Interoperability: our server and our client with the real programs of the field, in every direction.
//!
//! Each case moves data between real processes and compares bytes. The cases are a table of their own, not `#[test]`
//! functions, because a complete run also writes that table to `docs/reference/interop.md` (with
//! `WHIMBREL_WRITE_DOCS=1`) or fails when that page lacks a case. Arguments are those of other test programs:
//! words that select cases, `--ignored`, `--include-ignored`, `--exact`, `--skip`, `--list`, `--test-threads`.
//!
//! A few cases of each program run over every protection, too. With `WHIMBREL_INTEROP_OVER=gsi`, `tls` or `ssh` all cases run over that
//! one that can, and their table is on a page of its own; see `protection`.
#![allow(clippy::unwrap_used, reason = "a case that panics has failed, which is what is meant")]

mod case;
mod cutter;
mod everyday;
mod ftplib;
mod gfal2;
mod grid;
mod guc_client;
mod guc_third_party;
mod our_client;
mod protection;
mod report;
mod runner;
mod secure;
mod shells;
mod support;
mod v2;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut cases = Vec::new();
    guc_client::cases(&mut cases);
    our_client::cases(&mut cases);
    guc_third_party::cases(&mut cases);
    v2::cases(&mut cases);
    everyday::cases(&mut cases);
    ftplib::cases(&mut cases);
    gfal2::cases(&mut cases);
    runner::run(&cases)
}
