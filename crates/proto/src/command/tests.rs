use proptest::prelude::*;

use super::*;
use crate::relay::{Announcement, Part};

fn parse(line: &str) -> Result<Command, CommandError> {
    Command::parse(line.as_bytes())
}

fn code(line: &str) -> u16 {
    match parse(line) {
        Err(error) => error.code(),
        Ok(command) => panic!("{line} was accepted as {command:?}"),
    }
}

fn encoded(command: &Command) -> String {
    let mut out = Vec::new();
    command.encode(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

// RFC 959 §5.3: "The command codes are four or fewer alphabetic characters. Upper and lower case ... identical treatment."
#[test]
fn verbs_are_read_in_any_case_and_under_their_old_names() {
    for (line, want) in [
        ("noop", Command::Noop),
        ("XPWD", Command::Pwd),
        ("xcup", Command::Cdup),
        ("XCWD /a", Command::Cwd(b"/a".to_vec())),
        ("XMKD a", Command::Mkd(b"a".to_vec())),
        ("xrmd a", Command::Rmd(b"a".to_vec())),
        ("QuIt", Command::Quit),
        ("USER anonymous", Command::User(b"anonymous".to_vec())),
        ("PASS ", Command::Pass(Secret(vec![]))),
        ("PASS", Command::Pass(Secret(vec![]))),
        ("PASS a b", Command::Pass(Secret(b"a b".to_vec()))),
        ("TYPE l 8", Command::Type(TransferType::Image)),
        ("TYPE A N", Command::Type(TransferType::Ascii)),
        ("mode e", Command::Mode(TransferMode::ExtendedBlock)),
        ("EPSV all", Command::Epsv(Epsv::All)),
        ("STAT", Command::Stat(None)),
        ("HELP SITE", Command::Help(Some(b"SITE".to_vec()))),
    ] {
        assert_eq!(parse(line), Ok(want), "{line}");
    }
}

// RFC 959 §5.3.1: "RETR <SP> <pathname> <CRLF>": one space separates, the rest is the name.
#[test]
fn paths_keep_every_byte_after_one_space() {
    assert_eq!(parse("RETR  a b "), Ok(Command::Retr(b" a b ".to_vec())));
    assert_eq!(Command::parse(b"STOR \xff\xfe;=\"%"), Ok(Command::Stor(b"\xff\xfe;=\"%".to_vec())));
    let cksm = Command::Cksm { algorithm: "MD5".into(), offset: 0, length: None, path: b" a b".to_vec() };
    assert_eq!(parse("CKSM  MD5   0 -1  a b"), Ok(cksm));
    let part = Eret::Partial { offset: 1, length: 3, path: b"a  b".to_vec() };
    assert_eq!(parse("ERET P 1 3 a  b"), Ok(Command::Eret(part)));
}

// RFC 2640 §3.1: a <CR> in a pathname "MUST be padded with a <NUL> character"; the receiver strips it.
#[test]
fn a_padded_cr_belongs_to_the_name_and_a_lone_nul_is_refused() {
    assert_eq!(Command::parse(b"RETR a\r\0b"), Ok(Command::Retr(b"a\rb".to_vec())));
    for line in [&b"RETR a\0b"[..], b"RETR \0", b"RETR a\r\0\0"] {
        assert_eq!(Command::parse(line).unwrap_err().code(), 501, "{line:?}");
    }
}

#[test]
fn names_that_would_end_the_line_are_never_sent() {
    for name in [&b"a\r\nDELE b"[..], b"a\n", b"a\r", b"a\0"] {
        let mut out = b"kept".to_vec();
        assert_eq!(Command::Dele(name.to_vec()).encode(&mut out), Err(EncodeError::LineBreak));
        assert_eq!(out, b"kept");
    }
    let get = V2Transfer { path: b"a;pasv".to_vec(), data: V2Data::Cached, mode: None };
    assert_eq!(Command::Get(get).encode(&mut Vec::new()), Err(EncodeError::Inexpressible));
    assert_eq!(Command::Retr(vec![]).encode(&mut Vec::new()), Err(EncodeError::Inexpressible));
}

// RFC 959 §4.2.1: 500 unrecognized, 501 parameters, 502 not implemented, 504 not implemented for that parameter.
#[test]
fn refusals_are_told_apart() {
    for line in ["", " NOOP", "FROB", "VERYLONGVERB x", "NO\0P", "\u{ff}"] {
        assert_eq!(code(line), 500, "{line}");
    }
    for line in [
        "RETR",
        "RETR ",
        "USER",
        "TYPE",
        "TYPE X",
        "TYPE XY",
        "MODE Q",
        "STRU Z",
        "PORT 1,2,3",
        "EPRT |1|x|5|",
        "REST x",
        "REST 5-1",
        "REST -1",
        "ALLO",
        "ALLO x",
        "ALLO 5 R",
        "MFMT 2026 a",
        "MFMT 20261121020154",
        "CKSM MD5 -5 -1 a",
        "CKSM MD5 0 -2 a",
        "CKSM MD5 0 -1",
        "ERET P 1 2",
        "ERET P x 2 a",
        "ERET P=\"x f",
        "ESTO A a",
        "SITE",
        "SITE CHMOD abc f",
        "SITE CHMOD 77777 f",
        "SITE CHMOD 644",
        "SITE RDEL",
        "SITE SYNC",
        "SITE TRNC x a",
        "SITE DCNONCE 12",
        "SITE DCNONCE zz",
        "SITE DCRELAY",
        "SITE DCRELAY BOTH",
        "SITE RELAY",
        "SITE RELAY abab 1 1",
        "SITE RELAY abababababababababababababababababababababababababababababababab 0 60",
        "SITE RELAY abababababababababababababababababababababababababababababababab 257 60",
        "SITE RELAY abababababababababababababababababababababababababababababababab 4 3601",
        "SITE RELAY abababababababababababababababababababababababababababababababab 4",
        "SITE UTIME x",
        "OPTS",
        "OPTS RETR Parallelism=0;",
        "OPTS RETR Parallelism=x;",
        "OPTS RETR BlockSize=0;",
        "OPTS CKSM",
        "OPTS PASV",
        "OPTS PASV AllowDelayed=2;",
        "TREV PERF x",
        "TREV PERF",
        "PBSZ 4294967296",
        "PROT",
        "PROT CC",
        "DCAU",
        "DCAU X",
        "DCAU S",
        "DCSC P",
        "SPOR",
        "SBUF",
        "SBUF 99999999999999999999",
        "GET pasv;",
        "PUT path=;",
        "AUTH",
        "SCKS MD5",
    ] {
        assert_eq!(code(line), 501, "{line}");
    }
    for line in [
        "TYPE E",
        "TYPE L 7",
        "MODE B",
        "MODE C",
        "STRU R",
        "TREV FOO 5",
        "OPTS RETR PacketSize=5;",
        "DCAU LONG",
        "DCSC X y",
        "GET path=a;x=1;",
    ] {
        assert_eq!(code(line), 504, "{line}");
    }
    assert_eq!(code("SMNT /x"), 502);
    assert_eq!((code("EPSV 3"), code("EPRT |3|x|5|"), code("SPAS 7")), (522, 522, 522));
    assert_eq!(code("PROT X"), 536);
}

#[test]
fn options_without_the_last_semicolon_apply() {
    let options = RetrOptions { parallelism: Some(Parallelism { start: 4, min: 1, max: 8 }), ..RetrOptions::default() };
    assert_eq!(parse("OPTS RETR parallelism=4,1,8"), Ok(Command::Opts(Opts::Retr(options))));
    assert_eq!(parse("OPTS utf8 on"), Ok(Command::Opts(Opts::Utf8(true))));
    let facts = Opts::Mls { verb: MlsVerb::Mlst, facts: vec!["type".into(), "unix.mode".into()] };
    assert_eq!(parse("OPTS MLST Type;UNIX.mode;"), Ok(Command::Opts(facts)));
    let unknown = Opts::Unknown { target: b"FROB".to_vec(), args: b"x=1".to_vec() };
    assert_eq!(parse("OPTS frob x=1"), Ok(Command::Opts(unknown)));
}

#[test]
fn list_flags_are_split_from_the_path() {
    let list = |flags: &str, path: Option<&str>| {
        Command::List(ListArgs { flags: flags.into(), path: path.map(|p| p.as_bytes().to_vec()) })
    };
    for (line, want) in [
        ("LIST", list("", None)),
        ("LIST -la", list("la", None)),
        ("LIST -l -a  my dir", list("la", Some("my dir"))),
        ("LIST -- -la", list("", Some("-la"))),
        ("LIST a -l", list("", Some("a -l"))),
        ("LIST -", list("", Some("-"))),
        ("LIST -a.txt", list("", Some("-a.txt"))),
    ] {
        assert_eq!(parse(line), Ok(want), "{line}");
    }
}

#[test]
fn a_listed_name_is_never_written_as_a_flag() {
    for (line, want) in
        [("LIST -- -la", "LIST ./-la\r\n"), ("LIST -l --  a", "LIST -l ./ a\r\n"), ("NLST a", "NLST a\r\n")]
    {
        assert_eq!(encoded(&parse(line).unwrap()), want, "{line}");
    }
}

#[test]
fn arguments_that_are_not_there_are_missed() {
    assert_eq!(code("SCKS MD5  "), 501);
    assert_eq!(code("OPTS MLSR =;"), 504);
    assert_eq!(parse("OPTS MLST =;size;"), parse("OPTS MLST size;"));
    assert_eq!(code("GET path=a\0b;"), 501, "as for RETR");
    assert_eq!(code("GET path=;"), 501);
}

#[test]
fn an_unknown_site_command_keeps_its_bytes() {
    let command = Command::parse(b"SITE \xff\xfe x").unwrap();
    let mut out = Vec::new();
    command.encode(&mut out).unwrap();
    assert_eq!(out, b"SITE \xff\xfe x\r\n");
}

#[test]
fn site_commands_of_real_clients_are_read() {
    let info = parse("SITE CLIENTINFO scheme=ftp;appname=\"globus-url-copy\";appver=\"10.12 (gcc64; 1) [x]\";");
    let pair = |k: &str, v: &str| (k.to_owned(), v.as_bytes().to_vec());
    let pairs = vec![pair("scheme", "ftp"), pair("appname", "globus-url-copy"), pair("appver", "10.12 (gcc64; 1) [x]")];
    assert_eq!(info, Ok(Command::Site(Site::ClientInfo(pairs))));
    let modify = Timestamp::parse(b"20261121020154").unwrap();
    let utime = Command::Site(Site::Utime { modify, path: b"a b".to_vec() });
    assert_eq!(parse("SITE UTIME 20261121020154 a b"), Ok(utime.clone()));
    assert_eq!(parse("SITE UTIME a b 20250101000000 20261121020154 20250101000000 UTC"), Ok(utime));
    let chmod = Command::Site(Site::Chmod { mode: 0o644, path: b"f".to_vec() });
    assert_eq!((parse("site chmod 0644 f"), parse("SITE  CHMOD 644 f")), (Ok(chmod.clone()), Ok(chmod)));
    let buffer = Site::BufferSize { verb: BufferVerb::RetrBufSize, bytes: 5 };
    assert_eq!(parse("SITE RETRBUFSIZE 5"), Ok(Command::Site(buffer)));
    assert_eq!(BufferVerb::RetrBufSize.side(), BufferSide::Send);
    let unknown = Site::Unknown { verb: b"FROB".to_vec(), args: b"x".to_vec() };
    assert_eq!(parse("SITE frob x"), Ok(Command::Site(unknown)));
}

#[test]
fn lines_go_out_as_the_reference_client_writes_them() {
    let retr = RetrOptions { parallelism: Some(Parallelism::fixed(2)), ..RetrOptions::default() };
    let address = "127.0.0.1:36715".parse().unwrap();
    for (command, want) in [
        (Command::Opts(Opts::Retr(retr)), "OPTS RETR Parallelism=2,2,2;\r\n"),
        (Command::Port(address), "PORT 127,0,0,1,143,107\r\n"),
        (Command::Port("[::1]:5".parse().unwrap()), "EPRT |2|::1|5|\r\n"),
        (Command::Eprt(address), "EPRT |1|127.0.0.1|36715|\r\n"),
        (
            Command::Opts(Opts::Passive { verb: PassiveVerb::Pasv, allow_delayed: true }),
            "OPTS PASV AllowDelayed=1;\r\n",
        ),
        (Command::Esto(Esto::Adjusted { offset: 1, path: b"/o/par".to_vec() }), "ESTO A 1 /o/par\r\n"),
        (Command::Rest(Restart::Ranges(vec![0..5, 9..12])), "REST 0-5,9-12\r\n"),
        (Command::Get(V2Transfer { path: b"/f".to_vec(), data: V2Data::Passive, mode: None }), "GET path=/f;pasv;\r\n"),
        (Command::Site(Site::Chmod { mode: 0o7, path: b"f".to_vec() }), "SITE CHMOD 007 f\r\n"),
        (Command::Site(Site::DcNonce(Secret(vec![0xab; 16]))), "SITE DCNONCE abababababababababababababababab\r\n"),
    ] {
        assert_eq!(encoded(&command), want);
    }
}

#[test]
fn secrets_do_not_show_in_debug_text() {
    for line in ["PASS hunter2", "ADAT hunter2", "DCSC P hunter2", "ACCT hunter2"] {
        let text = format!("{:?}", parse(line).unwrap());
        assert!(!text.contains("104") && !text.contains("hunter"), "{text}");
    }
}

fn path() -> impl Strategy<Value = WirePath> {
    let byte = any::<u8>().prop_filter("bytes that end a line", |b| !matches!(b, b'\r' | b'\n' | 0));
    proptest::collection::vec(byte, 1..30)
}

fn plain_path() -> impl Strategy<Value = WirePath> {
    "/[a-z ]{0,12}[.]?".prop_map(String::into_bytes)
}

fn path_commands() -> impl Strategy<Value = Command> {
    (path(), plain_path(), any::<u64>(), any::<Option<u64>>(), 0u32..0o10000, 0usize..24).prop_map(
        |(p, plain, n, m, mode, pick)| {
            let length = m;
            match pick {
                0 => Command::Cwd(p),
                1 => Command::Retr(p),
                2 => Command::Stor(p),
                3 => Command::Mlst(Some(p)),
                4 => Command::Mfmt { time: Timestamp::from_secs((n % 200_000_000_000) as i64), path: p },
                5 => Command::Cksm { algorithm: "SHA256".into(), offset: n, length, path: p },
                6 => Command::Eret(Eret::Partial { offset: n, length: n / 2, path: p }),
                7 => Command::Esto(Esto::Adjusted { offset: n, path: p }),
                8 => Command::Eret(Eret::Module { name: b"m".to_vec(), args: b"a b".to_vec(), path: p }),
                9 => Command::Esto(Esto::Module { name: b"m".to_vec(), args: vec![], path: p }),
                10 => Command::Site(Site::Chmod { mode, path: p }),
                11 => Command::Site(Site::Chgrp { group: b"g".to_vec(), path: p }),
                12 => Command::Site(Site::Trnc { length: n, path: p }),
                13 => Command::Site(Site::Symlink { target: b"t".to_vec(), link: p }),
                14 => Command::Site(Site::Rdel(p)),
                15 => Command::List(ListArgs { flags: b"la".to_vec(), path: Some(plain) }),
                16 => Command::Nlst(ListArgs { flags: vec![], path: Some(plain) }),
                17 => Command::Put(V2Transfer { path: plain, data: V2Data::Passive, mode: Some(TransferMode::Stream) }),
                18 => Command::Rnfr(p),
                19 => Command::Appe(p),
                20 => Command::Site(Site::Utime { modify: Timestamp::from_secs(mode.into()), path: p }),
                21 => Command::Site(Site::SymlinkFrom(p)),
                22 => Command::Mlsr(Some(p)),
                _ => Command::Dele(p),
            }
        },
    )
}

fn other_commands() -> impl Strategy<Value = Command> {
    let address = (any::<std::net::Ipv4Addr>(), 1u16..).prop_map(|(ip, port)| SocketAddr::from((ip, port)));
    (address, any::<u64>(), any::<u32>(), 1u32..9999, any::<bool>(), 0usize..20).prop_map(|(a, n, s, p, flag, pick)| {
        match pick {
            0 => Command::Port(a),
            1 => Command::Eprt(a),
            2 => Command::Spor(vec![a, a]),
            3 => Command::Get(V2Transfer { path: b"/x y".to_vec(), data: V2Data::Port(a), mode: None }),
            4 => Command::Rest(Restart::Offset(n)),
            5 => Command::Rest(Restart::Ranges(vec![0..n, n / 2..n])),
            6 => Command::Allo { size: n, record: flag.then_some(7) },
            7 => Command::Sbuf(n),
            8 => Command::Pbsz(s.into()),
            9 => Command::Trev { event: if flag { TrevEvent::Perf } else { TrevEvent::Restart }, seconds: s },
            10 => Command::Opts(Opts::Retr(RetrOptions {
                parallelism: flag.then_some(Parallelism { start: p, min: 1, max: p }),
                layout: Some(if flag { LayoutKind::Blocked } else { LayoutKind::Partitioned }),
                block_size: flag.then_some(n.max(1)),
                markers: Some(s),
            })),
            11 => Command::Opts(Opts::Mlsr(MlsrOptions {
                on_error: Some(OnError::Fail),
                follow_links: Some(flag),
                facts: vec!["type".into()],
            })),
            12 => Command::Opts(Opts::Mls { verb: MlsVerb::Mlsd, facts: vec!["size".into(), "type".into()] }),
            13 => Command::Opts(Opts::Cksm { markers: s }),
            14 => Command::Scks { algorithm: "MD5".into(), checksum: format!("{n:032x}") },
            15 => Command::Dcau(Dcau::Subject(b"/O=Grid/CN=User Name".to_vec())),
            16 => Command::Site(Site::StorAttr(vec![
                ("modify".into(), b"20261121020154".to_vec()),
                ("x.a".into(), b"b; c".to_vec()),
            ])),
            17 => Command::Site(Site::BufferSize { verb: BufferVerb::ALL[n as usize % 7].0, bytes: n }),
            18 => Command::Opts(Opts::Passive { verb: PassiveVerb::Spas, allow_delayed: flag }),
            19 => Command::Site(Site::DcRelay(Part::ALL[n as usize % 2])),
            20 => Command::Site(Site::Relay(Announcement {
                token: std::array::from_fn(|at| n.to_be_bytes()[at % 8]),
                connections: n as u16 % 256 + 1,
                seconds: n as u32 % 3600 + 1,
            })),
            _ => Command::Site(Site::DcNonce(Secret(n.to_be_bytes().repeat(2)))),
        }
    })
}

proptest! {
    #[test]
    fn any_command_survives_the_wire(command in prop_oneof![path_commands(), other_commands()]) {
        let mut out = Vec::new();
        command.encode(&mut out).unwrap();
        let line = out.strip_suffix(b"\r\n").unwrap();
        prop_assert_eq!(Command::parse(line), Ok(command));
    }

    #[test]
    fn what_parses_and_can_be_sent_parses_to_the_same(verb in "[A-Z]{3,4}", args in "[ -~]{0,40}") {
        let Ok(command) = Command::parse(format!("{verb} {args}").as_bytes()) else { return Ok(()) };
        let mut out = Vec::new();
        // A path that starts like a flag has no form that every server reads.
        let dashed = matches!(&command, Command::List(a) | Command::Nlst(a) if a.path.as_ref().is_some_and(|p| p.starts_with(b"-") || p.starts_with(b" ")));
        if dashed || command.encode(&mut out).is_err() { return Ok(()) }
        prop_assert_eq!(Command::parse(out.strip_suffix(b"\r\n").unwrap()), Ok(command));
    }

    #[test]
    fn parsing_any_bytes_never_panics(verb in 0usize..70, bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        const VERBS: [&str; 24] = ["OPTS RETR", "OPTS MLSR", "OPTS PASV", "OPTS CKSM", "SITE UTIME", "SITE DCNONCE", "SITE CLIENTINFO", "SITE CHMOD", "ERET",
            "ESTO", "REST", "ALLO", "CKSM", "SCKS", "GET", "PORT", "EPRT", "SPOR", "LIST", "MFMT", "TREV", "DCAU", "TYPE", "RETR"];
        let mut line = VERBS.get(verb).map_or_else(Vec::new, |v| format!("{v} ").into_bytes());
        line.extend_from_slice(&bytes);
        let _ = Command::parse(&line);
    }
}

#[test]
fn every_verb_of_the_list_is_known() {
    const LINES: &str = "USER a|PASS a|ACCT a|REIN|QUIT|FEAT|HELP|NOOP|SYST|STAT|PWD|CWD a|CDUP|MKD a|RMD a|DELE a|RNFR a|RNTO a|SIZE a|MDTM a|\
        MFMT 20261121020154 a|TYPE I|MODE E|STRU F|PASV|EPSV|EPSV 2|PORT 1,2,3,4,5,6|EPRT |SPAS|SPAS 2|SPOR 1,2,3,4,5,6|OPTS STOR x|RETR a|STOR a|\
        APPE a|STOU|STOU a|ERET P 0 1 a|ESTO A 0 a|REST 0|ALLO 0|ABOR|SBUF 1|ABUF x|TREV PERF 1|CKSM MD5 0 -1 a|SCKS MD5 0|MLST|MLSD|MLSC|MLSR|LIST|\
        NLST|LANG EN|LANG|DCAU N|DCAU A|PBSZ 1|PROT C|PROT S|PROT E|PROT P|DCSC D|DCSC P a|AUTH GSSAPI|ADAT a|CCC|GET path=a;|PUT path=a;pasv;|\
        SITE HELP|SITE SYMLINKFROM a|SITE SYMLINKTO a|SITE TASKID a|SITE WHOAMI|SITE VERSION|SITE SETNETSTACK a|SITE SETDISKSTACK a|SITE DSI a|\
        SITE UPAS 1|SITE UPRT a|SITE HTTP a|SITE SHARING a|SITE RESTRICT a|SITE CHROOT a|SITE AUTHZ_ASSERT a|SITE FAULT a|SITE FROB";
    for line in LINES.split('|').map(str::trim).filter(|l| *l != "EPRT") {
        let command = parse(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        let round = encoded(&command);
        assert_eq!(Command::parse(round.trim_end().as_bytes()), Ok(command), "{line}");
    }
}
