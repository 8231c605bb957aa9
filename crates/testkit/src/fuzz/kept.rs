//! What is kept between runs, or handed to clients and comes back: tallies, names and sessions of unfinished copies, vouchers.

use std::sync::LazyLock;

use tempfile::TempDir;
use whimbrel_connector::memory::Memory;
use whimbrel_connector::posix::{Posix, PosixOptions};
use whimbrel_connector::{Connector, Disposition, StoragePath, WriteIntent, WriteSession};
use whimbrel_dtn::client::run::RunId;
use whimbrel_dtn::client::temporary::{self, Name, Part};
use whimbrel_dtn::mover::voucher;
use whimbrel_engine::FaultCode;
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::plan::Finished;
use whimbrel_engine::tally::{Identity, Mark, Tally, encode_bound, encode_files, encode_header};
use whimbrel_proto::leaf;
use whimbrel_proto::op::Leaf;
use whimbrel_proto::reply::Reply;

use super::journal::sealed;

/// The copy that tallies are read for.
pub(super) const COPY: Identity = [7; 16];

/// Any bytes as each of them: nothing is believed of a tally behind its first wrong record, names and vouchers mean one thing, and a
/// session from elsewhere leads to no file.
pub fn kept_records(data: &[u8]) {
    check_tally(data);
    // Records with right CRCs behind a right header: else nothing of them would be read.
    check_tally(&[&encode_header(&COPY)[..], &sealed(data)].concat());
    for line in data.split(|&byte| byte == b'\n') {
        check_name(line);
    }
    check_session(data);
    check_vouchers(data);
}

fn check_tally(bytes: &[u8]) {
    let tally = Tally::decode(bytes, &COPY);
    assert!(tally.sound <= bytes.len() && (tally.sound > 0 || tally.files() == 0));
    let alone = Tally::decode(&bytes[..tally.sound], &COPY);
    assert_eq!((alone.sound, alone.files()), (tally.sound, tally.files()), "what follows changes nothing");
    assert_eq!(Tally::decode(bytes, &[8; 16]).sound, 0, "another copy's is none of ours");
    if tally.sound == 0 {
        return;
    }
    let (mark, other): (Mark, Mark) = (1 << 77, 1 << 78);
    let known = tally.finished(mark, None, Timestamp { secs: 0, nanos: 0 }) != Finished::No;
    let until = Timestamp { secs: 1000, nanos: 5 };
    let (earlier, later) = (Timestamp { secs: 999, nanos: 5 }, Timestamp { secs: 1001, nanos: 5 });
    let more = [&bytes[..tally.sound], &encode_files(&[mark], true), &encode_files(&[other], false)].concat();
    let grown = Tally::decode(&more, &COPY);
    assert_eq!((grown.sound, grown.finished(mark, Some(earlier), until)), (more.len(), Finished::Yes));
    assert_ne!(grown.finished(other, Some(until), until), Finished::No);
    let bounded = Tally::decode(&[&more[..], &encode_bound(until)].concat(), &COPY);
    if bounded.sound > more.len() && !known {
        assert_eq!(
            bounded.finished(mark, Some(later), later),
            Finished::No,
            "it was changed after the run that left it"
        );
        assert_eq!(bounded.finished(mark, Some(earlier), later), Finished::Yes);
    }
}

/// A name of an unfinished copy is that of one run, and no name of another form is taken for one.
fn check_name(text: &[u8]) {
    assert_eq!(temporary::is_temporary_name(text), Name::parse(&text[temporary::directory_of(text).len()..]).is_some());
    let Some(name) = Name::parse(text) else { return };
    assert_eq!(RunId::parse(name.run.to_string().as_bytes()), Some(name.run));
    let final_name = &name.stem[1..];
    if temporary::stem(final_name) == (&b""[..], name.stem.clone()) {
        let whole = temporary::of_whole(final_name, name.run);
        let made = match (&name.version, name.part) {
            (None, _) => whole,
            (Some(version), part) => {
                let chunks = temporary::of_chunks(final_name, name.run, version);
                match part {
                    Part::Bytes => chunks,
                    Part::Kept => temporary::kept(&chunks),
                    Part::Live => temporary::live(&chunks),
                }
            }
        };
        assert_eq!(made, text, "a name has one spelling");
    }
}

/// A session that a client brings leads to the unfinished file of its path, of which there is none here.
fn check_session(token: &[u8]) {
    static EMPTY: LazyLock<(TempDir, Posix)> = LazyLock::new(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let posix = Posix::open(directory.path(), PosixOptions::default()).expect("it can be served");
        (directory, posix)
    });
    check_session_of(&Memory::new(), token);
    check_session_of(&EMPTY.1, token);
    check_changed_session(token);
}

/// The token of an unfinished file that was changed leads to no other.
fn check_changed_session(change: &[u8]) {
    static BEGUN: LazyLock<(TempDir, Posix, WriteSession)> = LazyLock::new(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let posix = Posix::open(directory.path(), PosixOptions::default()).expect("it can be served");
        let intent = WriteIntent { disposition: Disposition::Continue, size: Some(5), length: Some(5), mode: None };
        let session = posix.begin(&path(), &intent).expect("a file can be begun");
        (directory, posix, session)
    });
    let (_, posix, begun) = &*BEGUN;
    let mut token = begun.token.clone();
    token.iter_mut().zip(change).for_each(|(byte, change)| *byte ^= change);
    // Behind version and manner is which file it is; the mode behind that is the user's own affair.
    let same = token[..22] == begun.token[..22];
    let changed = WriteSession { token, ..begun.clone() };
    assert!(posix.join(&changed).is_ok() == same || changed.token[2..22] == begun.token[2..22]);
    assert!(posix.join(begun).is_ok(), "the file itself is still there");
}

fn path() -> StoragePath {
    StoragePath::resolve(&StoragePath::root(), b"/f").expect("a path")
}

fn check_session_of(connector: &dyn Connector, token: &[u8]) {
    let session = WriteSession::of_unfinished(path(), token.to_vec(), Some(5)).expect("a name beside it");
    assert!(connector.join(&session).is_err() && connector.journal(&session).is_err());
    assert!(connector.commit(&session, &[], &Default::default()).is_err());
    let root = StoragePath::root();
    assert_eq!(connector.list(&root).map(|listing| listing.count()).ok(), Some(0), "nothing was made");
}

/// A voucher is for what was stored and for nothing else.
fn check_vouchers(data: &[u8]) {
    let lines: Vec<Vec<u8>> = data.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    let stored: Vec<Leaf> = leaf::from_reply(&Reply::multi(226, "first", lines.clone(), "End")).unwrap_or_default();
    let right = voucher::of_file(&stored);
    assert!(voucher::check(&right, &stored).is_ok());
    match voucher::check(data, &stored).map_err(|problem| problem.into_failure()) {
        Ok(()) => assert_eq!(data, right),
        Err(failure) => assert!(failure.text.chars().count() < 1000 && failure.checksums.is_some() != data.is_empty()),
    }
    let count = String::from_utf8_lossy(data).lines().count();
    assert_eq!(voucher::digests(data, count).map(|digests| digests.len()).ok(), Some(count));
    let wrong = voucher::digests(data, count + 1).expect_err("it is about another number of files");
    assert_eq!(wrong.code, FaultCode::PeerMisbehaved);
}
