use proptest::prelude::*;

use super::*;
use crate::reply::ReplyParser;

const REAL: &[u8] = b"Type=file;Modify=20261121020154;Size=6;Perm=awr;UNIX.mode=0644;UNIX.owner=gftp;UNIX.uid=1001;UNIX.group=root;UNIX.gid=0;Unique=fe00-a328b6; hello world";

fn encoded(entry: &Entry, facts: FactSet) -> Vec<u8> {
    let mut out = Vec::new();
    entry.encode(facts, &mut out).unwrap();
    out
}

#[test]
fn the_real_servers_line_is_read_and_written_back() {
    let entry = Entry::parse(REAL).unwrap();
    assert_eq!((entry.kind.as_ref(), entry.size, entry.mode), (Some(&EntryKind::File), Some(6), Some(0o644)));
    assert_eq!(entry.name, b"hello world");
    assert_eq!(encoded(&entry, FactSet::default()), REAL);
}

// RFC 3659 §7.5: "fact names are case-insensitive"; §7.2: unknown facts must be ignored.
#[test]
fn facts_come_in_any_case_and_order_and_unknown_ones_are_skipped() {
    let entry = Entry::parse(b"x.new=1;SIZE=7;type=DIR;media-type=a/b;unix.MODE=755 n\r").unwrap();
    assert_eq!(
        (entry.size, entry.kind, entry.mode, entry.name),
        (Some(7), Some(EntryKind::Dir), Some(0o755), b"n".to_vec())
    );
    let link = Entry::parse(b"Type=OS.unix=slink:/t; n").unwrap();
    assert_eq!((link.kind, link.slink), (Some(EntryKind::Symlink), Some(b"/t".to_vec())));
    assert_eq!(Entry::parse(b"Type=dir;Sizd=4096; n").unwrap().size, Some(4096));
    assert_eq!(Entry::parse(b"Type=OS.unix=chr; n").unwrap().kind, Some(EntryKind::Other("OS.unix=chr".into())));
}

// RFC 3659 §7.2: everything after the separating space is the name.
#[test]
fn names_keep_their_spaces_and_bytes() {
    assert_eq!(Entry::parse(b"Size=1;  a  b ").unwrap().name, b"  a  b ".to_vec()[1..]);
    assert_eq!(Entry::parse(b"Size=1; \xff\xfe").unwrap().name, b"\xff\xfe");
    assert_eq!(Entry::parse(b" na me").unwrap().name, b"na me");
    assert_eq!(Entry::parse(b" Size=1; na me").unwrap().name, b"na me");
}

#[test]
fn broken_lines_have_names() {
    assert_eq!(Entry::parse(b"Size=1;"), Err(MlsxError::NoName));
    assert_eq!(Entry::parse(b"Size=1; "), Err(MlsxError::NoName));
    assert_eq!(Entry::parse(b"Size; n"), Err(MlsxError::BadFact));
}

#[test]
fn an_unreadable_value_loses_its_fact_and_not_the_entry() {
    let entry = Entry::parse(b"Type=file;Size=-1;Modify=2026;UNIX.mode=9; n").unwrap();
    assert_eq!(entry, Entry { name: b"n".to_vec(), kind: Some(EntryKind::File), ..Entry::default() });
}

#[test]
fn unsafe_names_are_never_written() {
    for name in [&b""[..], b"a\nb", b"a\rb", b"a\0"] {
        let entry = Entry { name: name.to_vec(), ..Entry::default() };
        assert_eq!(entry.encode(FactSet::all(), &mut Vec::new()), Err(MlsxError::NoName));
    }
    let entry = Entry { name: b"n".to_vec(), owner: Some(b"a;b\nc".to_vec()), ..Entry::default() };
    assert_eq!(encoded(&entry, FactSet::all()), b"UNIX.owner=abc; n");
}

// RFC 3659 §7.9: the facts of OPTS MLST are a selection; unknown names are ignored.
#[test]
fn only_selected_facts_are_sent_but_errors_always() {
    let mut entry = Entry::parse(REAL).unwrap();
    entry.error = Some("OpenFailed".into());
    assert_eq!(
        encoded(&entry, FactSet::from_names(["size", "TYPE", "bogus"])),
        b"Type=file;Size=6;Error=OpenFailed; hello world"
    );
    entry.error = None;
    assert_eq!(encoded(&entry, FactSet::from_names(["bogus"])), b" hello world");
}

#[test]
fn link_targets_are_percent_encoded() {
    let entry = Entry { name: b"l".to_vec(), slink: Some(b"/a b;%\xff".to_vec()), ..Entry::default() };
    let line = encoded(&entry, FactSet::all());
    assert_eq!(line, b"UNIX.slink=/a%20b%3B%25%FF; l");
    assert_eq!(Entry::parse(&line), Ok(entry));
    assert_eq!(percent_decode(b"100%"), b"100%");
    assert_eq!(percent_decode(b"%4g%41"), b"%4gA");
}

fn reply(bytes: &[u8]) -> Reply {
    let mut parser = ReplyParser::default();
    parser.feed(bytes);
    parser.next_reply().unwrap().unwrap()
}

#[test]
fn frames_of_the_real_server_are_read() {
    let mlst = reply(b"250-status of /d\r\n Type=dir; /d\r\n250 End.\r\n");
    assert_eq!(parse_mlst(&mlst).unwrap().name, b"/d");
    assert_eq!(mlst_reply(b"/d", b"Type=dir; /d".to_vec()), mlst);
    let bare = reply(b"250-status of /d\r\n  /d\r\n250 End.\r\n");
    assert_eq!(parse_mlst(&bare).unwrap().name, b"/d");
    assert_eq!(parse_mlst(&reply(b"250 OK.\r\n")), Err(MlsxError::BadReply));
    let mlsc = reply(b"150-Contents of /d\r\n Type=cdir; .\r\n Type=file;  x\r\n150 End.\r\n");
    let entries = parse_mlsc(&mlsc).unwrap();
    assert!(entries[0].is_dot() && entries[0].is_dir());
    assert_eq!(entries[1].name, b" x");
    assert_eq!(parse_mlsc(&reply(b"550 no\r\n")), Err(MlsxError::BadReply));
    let names: Vec<_> =
        parse_listing(b"Type=dir; a\r\r\n\r\nType=file; b\nbroken").map(|e| e.map(|e| e.name)).collect();
    assert_eq!(names, [Ok(b"a".to_vec()), Ok(b"b".to_vec()), Err(MlsxError::NoName)]);
}

// RFC 3659 §7.2: a line of MLSD without facts is a space and the name, whatever the name looks like.
#[test]
fn names_of_listings_without_facts_are_taken_whole() {
    let names: Vec<_> = parse_listing(b"  x\r\n a=b c\r\n plain\r\n").map(|e| e.map(|e| e.name)).collect();
    assert_eq!(names, [Ok(b" x".to_vec()), Ok(b"a=b c".to_vec()), Ok(b"plain".to_vec())]);
}

proptest! {
    #[test]
    fn any_entry_survives_the_wire(
        name in "[^\r\n\0]{1,20}", size: Option<u64>, mode in proptest::option::of(0u32..0o10000), secs in proptest::option::of(0i64..1 << 36),
        slink in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..20)), uid: Option<u32>, kind in 0usize..6,
    ) {
        // A line without any fact and a name with a leading space would read as an indented line.
        let kind = Some([EntryKind::File, EntryKind::Dir, EntryKind::Current, EntryKind::Parent, EntryKind::Symlink, EntryKind::Other("OS.unix=pipe".into())][kind].clone());
        let entry = Entry { name: name.into_bytes(), kind, size, mode, modify: secs.map(Timestamp::from_secs), slink, uid, gid: uid, ..Entry::default() };
        prop_assert_eq!(Entry::parse(&encoded(&entry, FactSet::all())), Ok(entry));
    }

    #[test]
    fn parsing_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = Entry::parse(&bytes);
        parse_listing(&bytes).for_each(drop);
    }
}

#[test]
fn fractions_of_the_time_travel_in_a_fact_of_their_own() {
    let time = Timestamp { secs: 1_795_226_514, nanos: 5_000_000 };
    let entry = Entry { name: b"f".to_vec(), modify: Some(time), ..Entry::default() };
    let mut line = Vec::new();
    entry.encode(FactSet::default(), &mut line).unwrap();
    assert_eq!(String::from_utf8_lossy(&line), "Modify=20261121020154;X.nanos=5000000; f");
    assert_eq!(Entry::parse(&line).unwrap().modify, Some(time));
    let read = |text: &str| Entry::parse(text.as_bytes()).unwrap().modify;
    assert_eq!(read("x.NANOS=5000000;Modify=20261121020154; f"), Some(time));
    for odd in ["X.nanos=1000000000", "X.nanos=-1", "X.nanos=x", "X.nanos="] {
        assert_eq!(read(&format!("Modify=20261121020154;{odd}; f")), Some(Timestamp::from_secs(time.secs)), "{odd}");
    }
    assert_eq!(read("X.nanos=5; f"), None);
}
