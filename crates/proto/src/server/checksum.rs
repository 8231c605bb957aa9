//! CKSM and SCKS (GFD.47 §3.3 and GCT practice).

use bytes::BytesMut;

use super::answer::Answer;
use super::config::ServerConfig;
use super::failure;
use super::session::Session;
use super::step::{Step, Task};
use super::transfer::{put_marker, tenths};
use crate::marker::Marker;
use crate::op::{Notice, Op, Outcome};

/// CKSM, of leaves in their own algorithms too: `213` and the digest, with 113 markers on the way if OPTS CKSM asked for them.
pub(super) fn compute(
    session: &Session,
    config: &ServerConfig,
    algorithm: &str,
    (offset, length): (u64, Option<u64>),
    path: &[u8],
) -> Step {
    match known_for_leaves(config, algorithm) {
        None => Step::Answer(unknown()),
        Some(algorithm) => Step::run(
            Op::Checksum {
                algorithm,
                offset,
                length,
                path: session.resolve(path),
                marker_interval: session.markers.hashing,
            },
            Task::Checksum,
        ),
    }
}

/// 113 (GCT practice).
pub(super) fn notice(notice: &Notice, out: &mut BytesMut) {
    if let Notice::Hashed { bytes, at_ms } = notice {
        put_marker(&Marker::Status { at: tenths(*at_ms), bytes: *bytes }, out);
    }
}

/// The digest straight after the code: clients compare the whole remaining text.
pub(super) fn finish(outcome: Outcome) -> Step {
    Step::Answer(match outcome {
        Outcome::Checksum(digest) => Answer::line(213, digest),
        other => failure::unexpected(other),
    })
}

/// SCKS, `checksum.ALG` of SITE STORATTR: the checksum that the next received file must have.
pub(super) fn expect(config: &ServerConfig, algorithm: &str, digest: &str) -> Result<(String, String), Answer> {
    let algorithm = known(config, algorithm).ok_or_else(unknown)?;
    if digest.is_empty() || !digest.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(Answer::line(501, "The checksum must be hexadecimal."));
    }
    Ok((algorithm, digest.to_ascii_lowercase()))
}

/// The algorithm in our spelling, if it is there.
pub(super) fn known(config: &ServerConfig, algorithm: &str) -> Option<String> {
    let found = config.checksums.iter().find(|known| known.name.eq_ignore_ascii_case(algorithm));
    found.map(|known| known.name.clone())
}

/// The same for leaves, which have algorithms of their own besides.
pub(super) fn known_for_leaves(config: &ServerConfig, algorithm: &str) -> Option<String> {
    let own = || config.leaf_checksums.iter().find(|name| name.eq_ignore_ascii_case(algorithm)).cloned();
    known(config, algorithm).or_else(own)
}

/// 504.
pub(super) fn unknown() -> Answer {
    Answer::line(504, "Unknown checksum algorithm requested.")
}
