//! Listings, machine-readable and not.

use whimbrel_proto::list::{ListLine, mode_text};
use whimbrel_proto::mlsx::{self, Entry, FactSet};
use whimbrel_proto::timeval::Timestamp;

/// 2026-11-21 00:00 UTC: listings without a year are read against it.
const NOW: Timestamp = Timestamp::from_secs(1_795_219_200);

const MONTHS: [&[u8]; 12] =
    [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];

/// Listing lines: what was read is written and read as the same, and no line is two.
pub fn mlsx(data: &[u8]) {
    let entries = mlsx::parse_listing(data).count();
    assert!(entries <= data.iter().filter(|&&b| b == b'\n').count() + 1);
    for line in data.split(|&b| b == b'\n') {
        if let Ok(entry) = Entry::parse(line) {
            check_entry(&entry);
        }
        if let Some(entry) = ListLine::parse(line, NOW) {
            check_list_line(&entry);
        }
        let decoded = mlsx::percent_decode(line);
        assert!(decoded.len() <= line.len());
        assert_eq!(mlsx::percent_decode(&mlsx::percent_encode(line)), line);
        assert_eq!(mlsx::percent_decode(&mlsx::percent_encode(&decoded)), decoded);
    }
}

fn check_entry(entry: &Entry) {
    assert!(!entry.name.is_empty());
    for facts in [FactSet::all(), FactSet::default(), FactSet::none()] {
        let mut out = b"before".to_vec();
        if entry.encode(facts, &mut out).is_err() {
            assert!(!mlsx::name_is_safe_on_a_line(&entry.name));
            assert_eq!(out, b"before");
            continue;
        }
        let line = &out[6..];
        assert!(!line.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)), "one entry is one line");
        let listed: Vec<_> = mlsx::parse_listing(line).collect();
        let [Ok(again)] = &listed[..] else { panic!("{entry:?} came back as {listed:?}") };
        assert_eq!(again.name, entry.name);
        if facts == FactSet::all() && !holds_stripped_bytes(entry) {
            assert_eq!(again, entry);
            let reply = mlsx::mlst_reply(&entry.name, line.to_vec());
            assert_eq!(mlsx::parse_mlst(&reply), Ok(entry.clone()));
        }
    }
    assert!(entry.is_dir() || !entry.is_dot() || entry.name.starts_with(b".") || entry.kind.is_some());
}

/// True if a value holds bytes that are dropped in writing.
fn holds_stripped_bytes(entry: &Entry) -> bool {
    let kind = match &entry.kind {
        Some(mlsx::EntryKind::Other(word)) => word.as_bytes(),
        _ => b"",
    };
    let texts = [&entry.perm, &entry.charset, &entry.unique, &entry.error].into_iter().flatten().map(String::as_bytes);
    let names = [&entry.owner, &entry.group].into_iter().flatten().map(Vec::as_slice);
    texts.chain(names).chain([kind]).flatten().any(|b| matches!(b, b'\r' | 0))
}

fn check_list_line(entry: &ListLine) {
    assert!(!entry.name.is_empty() && entry.mode <= 0o7777);
    assert_eq!(mode_text(entry.mode).len(), 9);
    let line = entry.encode(NOW);
    // The fields are words of text in front of the name.
    let is_word = |text: &[u8]| !text.is_empty() && text.is_ascii();
    if !is_word(&entry.owner) || !is_word(&entry.group) || !entry.kind.is_ascii() || entry.name.ends_with(b"\r") {
        return;
    }
    if entry.target.as_ref().is_some_and(|target| target.ends_with(b"\r")) {
        return;
    }
    // Behind a number, such a group reads as the month of a line without groups.
    if entry.owner.iter().all(u8::is_ascii_digit) && MONTHS.iter().any(|month| entry.group.eq_ignore_ascii_case(month))
    {
        return;
    }
    let again = ListLine::parse(&line, NOW).expect("what was written is read");
    let day = |time: Option<Timestamp>| time.map_or(0, |time| time.secs.div_euclid(86_400));
    assert_eq!(day(again.modify), day(entry.modify));
    assert_eq!(ListLine { modify: entry.modify, ..again }, *entry);
}
