//! Bodies of the fuzz targets: what must hold for every input, on the stable compiler too.
//!
//! A body takes any bytes and panics where a promise is broken: something read and written again must come back the
//! same, pieces must read as the whole does, and machines must account for what went through them. The programs in `fuzz/` hand
//! libFuzzer's inputs to these functions, and the test `corpus_replay` the inputs that were kept.

mod addresses;
mod blocks;
mod certificates;
mod client;
mod commands;
mod credentials;
mod gsi;
mod hashes;
mod imports;
mod input;
mod journal;
mod kept;
mod listings;
mod mappings;
mod mover;
mod numbers;
mod protected;
mod records;
mod replies;
mod rules;
pub mod seeds;
mod server;
mod tokens;
mod user_files;
mod users;
mod web;

pub use addresses::{hostport, url};
pub use blocks::eblock;
pub use certificates::{certificate, gsi_files, voms};
pub use client::client_machine;
pub use commands::{command, line};
pub use credentials::credentials;
pub use gsi::adat;
pub use hashes::md5_lanes;
pub use imports::gridftp_conf;
pub use journal::journal;
pub use kept::kept_records;
pub use listings::mlsx;
pub use mappings::mapping;
pub use mover::mover_codec;
pub use numbers::ranges_time;
pub use protected::protected_lines;
pub use records::records;
pub use replies::reply;
pub use rules::rules;
pub use server::server_machine;
pub use tokens::jwt;
pub use user_files::user_files;
pub use users::users_config;
pub use web::web_requests;

/// A body: panics if a promise is broken.
pub type Target = fn(&[u8]);

/// Every target by the name of its program and its corpus folder.
pub const TARGETS: [(&str, Target); 28] = [
    ("adat", adat),
    ("certificate", certificate),
    ("client_machine", client_machine),
    ("command", command),
    ("credentials", credentials),
    ("eblock", eblock),
    ("gridftp_conf", gridftp_conf),
    ("gsi_files", gsi_files),
    ("hostport", hostport),
    ("journal", journal),
    ("jwt", jwt),
    ("kept_records", kept_records),
    ("line", line),
    ("mapping", mapping),
    ("md5_lanes", md5_lanes),
    ("mlsx", mlsx),
    ("mover_codec", mover_codec),
    ("protected_lines", protected_lines),
    ("ranges_time", ranges_time),
    ("records", records),
    ("reply", reply),
    ("rules", rules),
    ("server_machine", server_machine),
    ("url", url),
    ("user_files", user_files),
    ("users_config", users_config),
    ("voms", voms),
    ("web_requests", web_requests),
];
