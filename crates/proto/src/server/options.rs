//! OPTS (RFC 2389 §4, GFD.20 §3.4, GCT practice) and the parameters of data handles: TYPE, MODE, buffers, TREV.

use super::answer::Answer;
use super::config::ServerConfig;
use super::feat;
use super::session::Session;
use super::step::Step;
use super::transfer::interval;
use crate::command::{
    BufferSide, LayoutKind, MlsrOptions, OnError, Opts, RetrOptions, TransferMode, TransferType, TrevEvent, split_pairs,
};
use crate::op::{Layout, Mode};

const OPTS_OK: &str = "OPTS Command Successful.";

/// Least bytes of a stripe block. The real server takes any number, even 0; a block has a header of 17 bytes and a read
/// and a write of its own, so that a smaller one would be work for nothing.
const LEAST_STRIPE_BLOCK: u64 = 4096;

/// OPTS; a missing last `;` is accepted, an unknown target is not.
pub(super) fn opts(session: &mut Session, config: &ServerConfig, opts: Opts) -> Step {
    match opts {
        Opts::Retr(options) => return Step::Answer(retr(session, config, &options)),
        Opts::Stor(args) => return Step::Answer(stor(session, &args)),
        // One switch for the three (GCT practice).
        Opts::Passive { allow_delayed, .. } => session.allow_delayed = allow_delayed,
        Opts::Mls { facts, .. } => return Step::Answer(mls(session, &facts)),
        Opts::Mlsr(options) => mlsr(session, options),
        Opts::Cksm { markers } => session.markers.hashing = interval(markers.into()),
        Opts::Utf8(on) => return Step::Answer(utf8(on)),
        Opts::Unknown { target, .. } => {
            return Step::Answer(Answer::line(501, [b"No options for ", target.as_slice(), b"."].concat()));
        }
    }
    Step::Answer(Answer::line(200, OPTS_OK))
}

/// Names are bytes and go through as they are, so both settings are the same; RFC 2640 asks for UTF-8.
fn utf8(on: bool) -> Answer {
    Answer::line(200, if on { "UTF8 is on." } else { "Names are sent as they are." })
}

/// Only the first number of Parallelism counts (GCT practice); it is cut to the server's limit. All options count or none.
fn retr(session: &mut Session, config: &ServerConfig, options: &RetrOptions) -> Answer {
    if options.block_size.is_some_and(|size| size < LEAST_STRIPE_BLOCK) {
        return Answer::line(504, format!("BlockSize must be at least {LEAST_STRIPE_BLOCK} bytes."));
    }
    if let Some(wanted) = options.parallelism {
        let most = u32::from(config.max_parallelism.max(1));
        session.params.parallelism = u16::try_from(wanted.start.clamp(1, most)).unwrap_or(u16::MAX);
    }
    if let Some(block_size) = options.block_size {
        session.block_size = block_size;
    }
    if let Some(layout) = options.layout {
        session.layout = layout;
    }
    session.params.layout = match session.layout {
        LayoutKind::Blocked => Layout::Blocked { block_size: session.block_size },
        LayoutKind::Partitioned => Layout::Partitioned,
    };
    if let Some(seconds) = options.markers {
        session.markers.sending = interval(seconds.into());
    }
    Answer::line(200, OPTS_OK)
}

/// OPTS STOR: `Markers=n;` is the interval of 112 while receiving. Layout and parallelism are the sender's affair: a
/// receiver takes any, so they are accepted.
fn stor(session: &mut Session, args: &[u8]) -> Answer {
    for (name, value) in split_pairs(args) {
        match name.to_ascii_lowercase().as_str() {
            "markers" => match std::str::from_utf8(&value).ok().and_then(|text| text.trim().parse::<u32>().ok()) {
                Some(seconds) => session.markers.performance = interval(seconds.into()),
                None => return Answer::line(501, "Markers is a number of seconds."),
            },
            "parallelism" | "stripelayout" | "blocksize" => {}
            _ => return Answer::line(504, format!("OPTS STOR is not implemented for '{name}'.")),
        }
    }
    Answer::line(200, OPTS_OK)
}

/// OPTS MLST: the facts from now on, told back in the reply (RFC 3659 §7.9); none known means none are sent.
fn mls(session: &mut Session, names: &[String]) -> Answer {
    let facts = feat::known_facts(names.iter().map(String::as_str));
    let list: String = facts.iter().map(|fact| format!("{fact};")).collect();
    session.facts = Some(facts);
    Answer::line(200, format!("MLST OPTS {list}").trim_end())
}

fn mlsr(session: &mut Session, options: MlsrOptions) {
    if let Some(on_error) = options.on_error {
        session.recursion.continue_on_error = on_error == OnError::Continue;
    }
    if let Some(follow) = options.follow_links {
        session.recursion.follow_links = follow;
    }
    if !options.facts.is_empty() {
        session.facts = Some(feat::known_facts(options.facts.iter().map(String::as_str)));
    }
}

/// TYPE (RFC 959 §3.1.1).
pub(super) fn transfer_type(session: &mut Session, kind: TransferType) -> Step {
    session.ascii = kind == TransferType::Ascii;
    Step::Answer(Answer::line(200, if session.ascii { "Type set to A." } else { "Type set to I." }))
}

/// MODE (RFC 959 §3.4, GFD.20 §3.2).
pub(super) fn mode(session: &mut Session, mode: TransferMode) -> Step {
    set_mode(session, mode);
    Step::Answer(Answer::line(
        200,
        match mode {
            TransferMode::Stream => "Mode set to S.",
            TransferMode::ExtendedBlock => "Mode set to E.",
        },
    ))
}

/// `mode=` of GET and PUT, and MODE.
pub(super) fn set_mode(session: &mut Session, mode: TransferMode) {
    session.params.mode = match mode {
        TransferMode::Stream => Mode::Stream,
        TransferMode::ExtendedBlock => Mode::Extended,
    };
}

/// SBUF (GFD.20 §3.1) and the SITE spellings; 0 leaves the size to the kernel.
pub(super) fn buffer(session: &mut Session, side: BufferSide, bytes: u64, text: &str) -> Step {
    // Sockets take an int; the kernel has its own, lower limit.
    let size = (bytes > 0).then(|| u32::try_from(bytes.min(1 << 30)).unwrap_or(1 << 30));
    if side != BufferSide::Receive {
        session.params.send_buffer = size;
    }
    if side != BufferSide::Send {
        session.params.receive_buffer = size;
    }
    Step::Answer(Answer::line(200, text))
}

/// ABUF (GFD.20 §3.1): the kernel tunes the buffers, whatever way of measuring was asked for.
pub(super) fn automatic_buffer(session: &mut Session) -> Step {
    buffer(session, BufferSide::Both, 0, "ABUF Command Successful.")
}

/// TREV (GCT practice): marker intervals, 0 for none.
pub(super) fn trev(session: &mut Session, event: TrevEvent, seconds: u32) -> Step {
    match event {
        TrevEvent::Perf => session.markers.performance = interval(seconds.into()),
        TrevEvent::Restart => session.markers.ranges = interval(seconds.into()),
    }
    Step::Answer(Answer::line(200, "Command Successful."))
}
