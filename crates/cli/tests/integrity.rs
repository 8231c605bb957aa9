//! What is proven of a copy, and checksums of whole files: between the real server, ours and this host.

#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use support::dtn::{Dtn, until};
use support::{Field, Server, event, events, expect, names, pattern, whimbrel};
use whimbrel_dtn::client::run::RunId;
use whimbrel_dtn::client::temporary;
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::plan::{Attributes, Item, ItemId, RootId};
use whimbrel_testkit::peers::{GridftpServer, Run, url_path};
use whimbrel_testkit::relay::{Moment, Relay, Way};
use whimbrel_testkit::stored::{Disk, begun_leaf, flip_bit};

const BIG: &str = "from/deep/er/big";

const MIB: u64 = 1 << 20;
/// Bytes of a file that moves in chunks, and of its leaves when a chunk has 4 MiB.
const SIZE: u64 = 8 * MIB;
const LEAF: u64 = MIB / 2;

/// Where the leaf starts whose rest a relay holds.
const HELD: u64 = 5 * LEAF;

/// The digest that another program computes.
fn sum(program: &str, path: &Path) -> String {
    let output = Command::new(program).arg(path).output().expect("coreutils are installed");
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

fn local(field: &Field, name: &str) -> String {
    field.path(name).to_string_lossy().into_owned()
}

/// Destinations of every kind, with the URL or path of `to` in the field.
fn destinations(test: impl Fn(&Field, &dyn Fn(&str) -> String, bool)) {
    for kind in Server::kinds() {
        let Some(server) = kind() else { continue };
        let field = Field::new();
        test(&field, &|name: &str| server.url(field.path(name)), matches!(server, Server::Real(_)));
    }
    let field = Field::new();
    test(&field, &|name: &str| local(&field, name), false);
}

fn wrong(digest: &str) -> String {
    digest.chars().map(|c| if c == '0' { '1' } else { '0' }).collect()
}

#[test]
fn what_was_read_back_from_the_disk_is_told_and_what_was_not_too() {
    let server = Server::own();
    let field = Field::new();
    for chunk in ["off", "256K"] {
        let base = ["--json", "cp", "--verify", "disk", "--chunk", chunk];
        for into in [server.url(field.path("to/big")), local(&field, "to/big")] {
            let run = expect(0, base.iter().copied().chain([local(&field, BIG).as_str(), &into]));
            assert_eq!(event(&run, "item_done")["verification"]["read_back"], "disk", "{into} {chunk}");
            assert_eq!(event(&run, "summary")["read_from_disk"], 1);
            // Each end writes as another user.
            std::fs::remove_file(field.path("to/big")).unwrap();
        }
        if let Ok(memory) = tempfile::tempdir_in("/dev/shm") {
            let into = memory.path().join("big").to_string_lossy().into_owned();
            let run = expect(0, base.iter().copied().chain([local(&field, BIG).as_str(), &into]));
            assert_eq!(event(&run, "item_done")["verification"]["read_back"], "memory_only", "{chunk}");
            assert_eq!(
                (&event(&run, "summary")["verified"], &event(&run, "summary")["read_from_disk"]),
                (&1.into(), &0.into())
            );
            let run = expect(0, ["cp", "--verify", "disk", &local(&field, BIG), &into]);
            assert!(run.stderr_text().contains("no disk below it"), "{}", run.stderr_text());
        }
    }
    let run =
        expect(0, ["cp", "-r", "--verify", "disk", &server.url(field.path("from/deep")), &local(&field, "to/deep")]);
    assert!(run.stderr_text().contains("41 verified, 41 read back from the disk"), "{}", run.stderr_text());
}

#[test]
fn a_server_of_another_kind_cannot_say_where_it_read() {
    let Some(server) = Server::real() else { return };
    let field = Field::new();
    for chunk in ["off", "256K"] {
        let into = server.url(field.path("to/big"));
        let run = expect(0, ["--json", "cp", "--verify", "disk", "--chunk", chunk, &local(&field, BIG), &into]);
        assert_eq!(event(&run, "item_done")["verification"]["read_back"], "unknown", "{chunk}");
    }
}

#[test]
fn a_printed_checksum_is_what_other_programs_compute() {
    destinations(|field, at, stock| {
        let big = field.path(BIG);
        for (algorithm, program) in [("md5", "md5sum"), ("sha256", "sha256sum"), ("sha512", "sha512sum")] {
            for chunk in ["off", "256K"] {
                let run = expect(
                    0,
                    ["cp", "--chunk", chunk, "--print-checksum", algorithm, &local(field, BIG), &at("to/big")],
                );
                let line = format!("{}  {}\n", sum(program, &big), local(field, "to/big"));
                assert_eq!(run.stdout_text(), line, "{algorithm}, chunk {chunk}");
            }
        }
        for algorithm in ["crc32c", "xxh3", "blake3", "adler32"] {
            let chunk = |chunk| ["--json", "cp", "--chunk", chunk, "--print-checksum", algorithm].map(str::to_owned);
            let (from, into) = (local(field, BIG), at("to/big"));
            let arguments = |size| chunk(size).into_iter().chain([from.clone(), into.clone()]);
            if stock && algorithm != "adler32" {
                let run = expect(4, arguments("off"));
                assert!(run.stdout_text().contains("cannot compute"), "{}", run.stdout_text());
                continue;
            }
            let told =
                |size| event(&expect(0, arguments(size)), "item_done")["verification"]["sums"][0]["digest"].clone();
            let cksum = expect(0, ["--json", "cksum", "-a", algorithm, &from]);
            let wanted = &event(&cksum, "checksum")["checksum"];
            assert_eq!((&told("off"), &told("256K")), (wanted, wanted), "{algorithm}");
        }
    });
}

#[test]
fn checksums_that_leaves_compose_to_cost_no_further_reading() {
    let server = Server::own();
    let field = Field::new();
    for (algorithm, composes) in [("crc32c", true), ("blake3", true), ("sha256", false)] {
        let cksum = expect(0, ["--json", "cksum", "-a", algorithm, &local(&field, BIG)]);
        let wanted = event(&cksum, "checksum")["checksum"].as_str().unwrap().to_owned();
        let (from, into) = (local(&field, BIG), server.url(field.path("to/big")));
        let run = expect(0, ["cp", "-vvv", "--chunk", "256K", "--print-checksum", algorithm, &from, &into]);
        assert!(run.stdout_text().starts_with(&wanted), "{algorithm}: {}", run.stdout_text());
        let said = run.stderr_text();
        assert_eq!(said.contains("> CKSM"), !composes, "{algorithm}:\n{said}");
        std::fs::remove_file(field.path("to/big")).unwrap();
    }
}

#[test]
fn a_file_that_is_not_the_expected_one_gets_no_name() {
    destinations(|field, at, _| {
        let digest = sum("sha256sum", &field.path(BIG));
        let unexpected = format!("sha256:{}", wrong(&digest));
        for chunk in ["off", "256K"] {
            let run = expect(
                3,
                ["--json", "cp", "--chunk", chunk, "--expect", &unexpected, &local(field, BIG), &at("to/big")],
            );
            let failed = event(&run, "item_failed");
            assert_eq!(
                (&failed["fault"]["code"], &failed["fault"]["side"]),
                (&"NotAsExpected".into(), &"source".into())
            );
            let detail = failed["fault"]["detail"].as_str().unwrap();
            assert!(detail.contains(&digest) && detail.contains(&wrong(&digest)), "{detail}");
            assert!(!field.path("to/big").exists(), "chunk {chunk}");
            // The right word ends the same copy.
            let right = format!("SHA-256:{}", digest.to_ascii_uppercase());
            let run = expect(
                0,
                ["--json", "cp", "--chunk", chunk, "--preserve", "--expect", &right, &local(field, BIG), &at("to/big")],
            );
            let sums = &event(&run, "item_done")["verification"]["sums"];
            assert_eq!((&sums[0]["digest"], &sums[0]["expected"]), (&digest.clone().into(), &true.into()));
            assert!(std::fs::read(field.path("to/big")).unwrap() == pattern(3_000_001));
            assert_eq!(names(&field.path("to")), ["big"], "nothing is left beside it");
            let time = |name: &str| std::fs::metadata(field.path(name)).unwrap().modified().unwrap();
            let whole = |time: std::time::SystemTime| time.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
            assert_eq!(whole(time("to/big")), whole(time(BIG)), "its time, too");
            std::fs::remove_file(field.path("to/big")).unwrap();
        }
    });
}

#[test]
fn an_existing_file_stays_when_the_new_one_is_not_the_expected_one() {
    destinations(|field, at, _| {
        std::fs::write(field.path("to/one"), b"before").unwrap();
        std::fs::set_permissions(field.path("to/one"), std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        let unexpected = format!("md5:{}", "0".repeat(32));
        expect(3, ["cp", "--expect", &unexpected, &local(field, "from/one"), &at("to/one")]);
        assert_eq!(std::fs::read(field.path("to/one")).unwrap(), b"before");
        assert_eq!(names(&field.path("to")), ["one"]);
    });
}

#[test]
fn a_list_is_matched_by_names_below_the_source() {
    destinations(|field, at, _| {
        let from = field.path("from");
        let list = Command::new("sh")
            .arg("-c")
            .arg("find . -type f -o -type l | xargs -d '\\n' sha256sum")
            .current_dir(&from)
            .output();
        let list = String::from_utf8(list.unwrap().stdout).unwrap();
        let file = field.path("SUMS");
        std::fs::write(&file, &list).unwrap();
        let copy = |code, more: &[&str]| {
            let list = local(field, "SUMS");
            let base = ["--json", "cp", "-r", "--expect-from", &list];
            let (from, into) = (local(field, "from"), at("to/copy"));
            let run = expect(code, base.iter().chain(more).map(|word| (*word).to_owned()).chain([from, into]));
            drop(std::fs::remove_dir_all(field.path("to/copy")));
            run
        };
        let run = copy(0, &["--verify", "require"]);
        let done: Vec<Value> =
            events(&run).into_iter().filter(|event| event["verification"]["state"] == "verified").collect();
        assert!(done.iter().all(|event| event["verification"]["sums"][0]["expected"] == true), "{done:?}");
        assert_eq!(done.len(), list.lines().count());

        // One listed and not there, one there and not listed, one that differs.
        let one = sum("sha256sum", &from.join("one"));
        let changed =
            list.replace("./zero", "./nowhere").replace(&format!("{one}  ./one"), &format!("{}  ./one", wrong(&one)));
        assert!(changed != list);
        std::fs::write(&file, changed).unwrap();
        let run = copy(1, &[]);
        let failed: Vec<(String, String)> = events(&run)
            .into_iter()
            .filter(|event| event["event"] == "item_failed")
            .map(|event| {
                (event["source"].as_str().unwrap().to_owned(), event["fault"]["code"].as_str().unwrap().to_owned())
            })
            .collect();
        let of = |name: &str| failed.iter().find(|(source, _)| source.ends_with(name)).map(|(_, code)| code.as_str());
        assert_eq!(
            (of("nowhere"), of("/one"), failed.len()),
            (Some("NotFound"), Some("NotAsExpected"), 2),
            "{failed:?}"
        );
        let unlisted = event(&run, "not_checked");
        assert!(unlisted["source"].as_str().unwrap().ends_with("/zero") && unlisted["listed"] == false, "{unlisted}");
        let run = copy(1, &["--verify", "require"]);
        assert!(run.stdout_text().contains("does not name it"), "{}", run.stdout_text());
    });
}

#[test]
fn what_was_left_as_it_was_is_said_to_be_unchecked() {
    let field = Field::new();
    std::fs::write(field.path("SUMS"), format!("{}  one\n", sum("md5sum", &field.path("from/one")))).unwrap();
    let copy = || {
        expect(
            0,
            [
                "--json",
                "cp",
                "--sync",
                "size",
                "--expect-from",
                &local(&field, "SUMS"),
                &local(&field, "from/one"),
                &local(&field, "to/"),
            ],
        )
    };
    copy();
    let run = copy();
    assert_eq!(event(&run, "not_checked")["listed"], true);
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_copied() {
    let field = Field::new();
    std::fs::write(field.path("bad"), "d41d8cd98f00b204e9800998ecf8427e  a\nnonsense\n").unwrap();
    let (from, to, bad) = (local(&field, "from/one"), local(&field, "to/one"), local(&field, "bad"));
    let blake = format!("blake3:{bad}");
    for (arguments, why) in [
        (vec!["--expect", "crc7:00"], "crc7 is no algorithm"),
        (vec!["--expect", "md5:00"], "has 32 hexadecimal digits"),
        (vec!["--expect", "d41d8cd98f00b204e9800998ecf8427e"], "ALG:HEX"),
        (vec!["--expect-from", &bad], "line 2: a line is a checksum"),
        (vec!["--expect-from", &blake], "line 1: a BLAKE3 checksum has 64"),
        (vec!["--expect-from", "/nowhere"], "No such file"),
        (vec!["--print-checksum", "md6"], "md6 is no algorithm"),
        (vec!["--print-checksum", "md5", "--no-verify"], "leave --verify=never out"),
        (vec!["-r", "--expect", "crc32c:00000000"], "--expect is about one file"),
        (vec!["--expect", "crc32c:00000000", "--length", "5"], "cannot be used with"),
    ] {
        let run = expect(2, ["cp"].into_iter().chain(arguments.iter().copied()).chain([from.as_str(), &to]));
        assert!(run.stderr_text().contains(why), "{arguments:?}: {}", run.stderr_text());
        assert!(names(&field.path("to")).is_empty());
    }
}

/// Copies `source` from server to server in chunks, over one data connection. When most of the leaf at [`HELD`] has
/// passed, the relay before the destination holds that connection and calls `damage` with the unfinished file: the chunk
/// to which that leaf and the one at 2 MiB belong cannot be read back yet.
fn copy_damaged(options: &[&str], source: &Path, copy: &Path, damage: impl FnOnce(PathBuf) + Send + 'static) -> Run {
    let start = || Dtn::builder().anonymous().root(Path::new("/")).start();
    let (from, to) = (start(), start());
    let way = Way::new();
    let relay = Relay::before(to.addr(), &way).unwrap();
    let hidden = copy.with_file_name(".copy.whimbrel-part");
    way.at(Moment::Bytes(HELD + LEAF * 3 / 4), move |_| damage(hidden));
    let tool = whimbrel(options).args(["--chunk", "4M", "--concurrency", "1", "--parallelism", "1"]);
    let run = tool.args([from.url(source), format!("ftp://{}{}", relay.addr(), url_path(copy))]).run().unwrap();
    way.end();
    assert_eq!(run.code(), Some(0), "{}\n{}\n{}", run.stdout_text(), run.stderr_text(), to.log());
    run
}

/// What was sent again, by where it begins and ends.
fn wrong_leaves(run: &Run) -> Vec<(u64, u64)> {
    let of = |event: &Value| (event["start"].as_u64().unwrap(), event["end"].as_u64().unwrap());
    events(run).iter().filter(|event| event["event"] == "leaf_wrong").map(of).collect()
}

fn cmp(left: &Path, right: &Path) -> bool {
    Command::new("cmp").arg("--silent").args([left, right]).status().unwrap().success()
}

/// Waits until the leaf of which the relay holds the rest has begun to arrive, and changes its first byte. Another leaf
/// that is seen in part may be whole, and read back, a moment later.
fn flip_held_leaf(unfinished: &Path, source: &Path) {
    until("the held leaf is there in part", || begun_leaf(unfinished, source, LEAF) == Some(HELD));
    flip_bit(unfinished, HELD).unwrap();
}

#[test]
fn a_byte_that_changes_in_storage_before_it_is_read_back_is_caught_and_its_leaf_alone_goes_again() {
    for options in [&["--json", "cp"][..], &["--json", "cp", "--verify", "disk"], &["cp"]] {
        let field = Field::new();
        let (source, copy) = (field.path("source"), field.path("to/copy"));
        whimbrel_testkit::dataset::random_file(&source, SIZE, 1).unwrap();
        let wanted = source.clone();
        let run = copy_damaged(options, &source, &copy, move |hidden| flip_held_leaf(&hidden, &wanted));
        assert!(cmp(&source, &copy), "{options:?}");
        if options.contains(&"--json") {
            assert_eq!(wrong_leaves(&run), [(HELD, HELD + LEAF)], "{options:?}");
            assert_eq!(event(&run, "summary")["verified"], 1);
        } else {
            let told = format!("bytes {HELD} to {} differed at the destination and go again", HELD + LEAF);
            assert!(run.stderr_text().contains(&told), "{}", run.stderr_text());
        }
    }
}

#[test]
fn what_the_disk_has_lost_is_caught_past_memory_and_nothing_else_catches_it() {
    const MARK: &[u8] = b"whimbrel's mark, which is unique";
    for past_memory in [true, false] {
        let Some(disk) = Disk::mount(64 * MIB) else { return };
        let field = Field::new();
        let (source, copy) = (field.path("source"), disk.path().join("copy"));
        let mut bytes = pattern(SIZE as usize);
        bytes[2 * MIB as usize..][..MARK.len()].copy_from_slice(MARK);
        fs::write(&source, &bytes).unwrap();
        let verify = if past_memory { "disk" } else { "require" };
        let disk = std::sync::Arc::new(disk);
        let below = disk.clone();
        let run = copy_damaged(&["--json", "cp", "--verify", verify], &source, &copy, move |hidden| {
            let has_mark =
                || fs::read(&hidden).is_ok_and(|bytes| bytes.get(2 << 20..).is_some_and(|b| b.starts_with(MARK)));
            until("the mark", has_mark);
            assert_eq!(below.damage(&hidden, MARK).unwrap(), 1, "the mark is on the disk once");
        });
        let stored = Command::new("dd").args(["iflag=direct", "bs=1M"]).arg(format!("if={}", copy.display())).output();
        let stored = stored.unwrap().stdout;
        let differ: Vec<usize> =
            (0..stored.len().max(bytes.len())).filter(|&at| stored.get(at) != bytes.get(at)).collect();
        if past_memory {
            assert_eq!((wrong_leaves(&run), differ), (vec![(2 * MIB, 2 * MIB + LEAF)], vec![]));
            assert_eq!(event(&run, "item_done")["verification"]["read_back"], "disk");
        } else {
            // As the manual says: the default proves what the destination would read now, which is in its memory.
            assert_eq!((wrong_leaves(&run), differ), (vec![], vec![2 * MIB as usize]));
        }
    }
}

#[test]
fn a_block_that_went_astray_at_a_server_of_another_kind_does_not_make_the_file_longer() {
    let Some(destination) = GridftpServer::builder() else { return };
    let (source, destination) = (Server::own(), destination.start().unwrap());
    let field = Field::new();
    let (from, copy) = (field.path("source"), field.path("to/copy"));
    whimbrel_testkit::dataset::random_file(&from, SIZE, 1).unwrap();
    let way = Way::new();
    let relay = Relay::before(destination.addr(), &way).unwrap();
    // In the header of the first block: its offset grows by 16 MiB.
    way.flip(13, 0);
    let tool = whimbrel(["--json", "cp", "--chunk", "4M", "--concurrency", "1", "--parallelism", "1"]);
    let run = tool.args([source.url(&from), format!("ftp://{}{}", relay.addr(), url_path(&copy))]).run().unwrap();
    way.end();
    assert_eq!(way.happened(), ["data byte 13 was damaged on the way"]);
    assert_eq!(run.code(), Some(0), "{}", run.stdout_text());
    assert!(cmp(&from, &copy), "a wrong file was reported right: {}", run.stdout_text());
    assert_eq!(event(&run, "summary")["verified"], 1);
    assert_eq!(names(&field.path("to")), ["copy"]);
}

/// Copies through a relay before the destination that inverts a bit of this data byte; it must have been noticed, and be
/// right in the end.
fn copy_flipped(options: &[&str], source: &str, destination: SocketAddr, copy: &Path, byte: u64) {
    let way = Way::new();
    let relay = Relay::before(destination, &way).unwrap();
    way.flip(byte, 2);
    let tool = whimbrel(["--json", "cp", "--concurrency", "1", "--parallelism", "1"]).args(options);
    let run = tool.args([source, &format!("ftp://{}{}", relay.addr(), url_path(copy))]).run().unwrap();
    way.end();
    assert_eq!(way.happened().len(), 1, "the byte was damaged");
    assert_eq!(run.code(), Some(0), "{}", run.stdout_text());
    let retry = event(&run, "retry");
    assert_eq!(retry["fault"]["code"], "ChecksumMismatch", "{retry}");
}

#[test]
fn a_bit_that_flips_on_the_way_is_noticed_in_whole_files_and_in_packs() {
    let source = Server::own();
    let own = Dtn::builder().anonymous().root(Path::new("/")).start();
    let stock = GridftpServer::builder().map(|builder| builder.start().unwrap());
    for destination in [Some(own.addr()), stock.as_ref().map(GridftpServer::addr)].into_iter().flatten() {
        let field = Field::new();
        let (from, copy) = (field.path(BIG), field.path("to/copy"));
        copy_flipped(&["--chunk", "off"], &source.url(&from), destination, &copy, 1_000_000);
        assert!(cmp(&from, &copy));
    }
    let field = Field::new();
    for name in ["one", "two", "three"] {
        fs::create_dir_all(field.path("small")).unwrap();
        fs::write(field.path("small").join(name), pattern(5000)).unwrap();
    }
    copy_flipped(&["-r"], &source.url(field.path("small")), own.addr(), &field.path("to/small"), 7000);
    support::assert_same(&field.path("small"), &field.path("to/small"));
}

/// The name that an unfinished copy has which a process of this host left when it was killed.
fn left_by_a_run_that_is_no_more(from: &Path, copy: &Path) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    let file = fs::File::options().write(true).open(from).unwrap();
    file.set_modified(modified).unwrap();
    let item = Item {
        id: ItemId(0),
        root: RootId(0),
        parent: None,
        source: from.as_os_str().as_bytes().to_vec(),
        destination: copy.as_os_str().as_bytes().to_vec(),
        size: Some(file.metadata().unwrap().len()),
        modified: Some(Timestamp::from_secs(1_700_000_000)),
        range: None,
        attributes: Attributes::default(),
        twins: Vec::new(),
    };
    // No process has this number.
    let mut run = RunId::fresh().to_string();
    run.replace_range(16..24, "7fffffff");
    let run = RunId::parse(run.as_bytes()).unwrap();
    let name = temporary::of_chunks(&item.destination, run, &temporary::version(&item));
    PathBuf::from(std::ffi::OsString::from(std::ffi::OsStr::from_bytes(&name)))
}

#[test]
fn what_an_earlier_run_left_at_a_server_of_another_kind_is_compared_before_it_is_trusted() {
    let Some(stock) = GridftpServer::builder() else { return };
    let (source, stock) = (Server::own(), stock.start().unwrap());
    let field = Field::new();
    let (from, copy) = (field.path("source"), field.path("to/copy"));
    whimbrel_testkit::dataset::random_file(&from, SIZE, 1).unwrap();
    let left = left_by_a_run_that_is_no_more(&from, &copy);
    fs::write(&left, &fs::read(&from).unwrap()[..6 * MIB as usize]).unwrap();
    fs::set_permissions(&left, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    flip_bit(&left, 3 * MIB + 5).unwrap();
    let run = expect(0, ["--json", "cp", "--chunk", "4M", &source.url(&from), &stock.url(&copy)]);
    assert!(cmp(&from, &copy), "a wrong leaf was trusted");
    assert_eq!(event(&run, "summary")["bytes_resumed"], 6 * MIB - LEAF, "and no other leaf moved again");
}

#[test]
fn pages_that_somebody_holds_in_memory_are_never_said_to_be_read_from_the_disk() {
    const HOLD: &str = "import mmap, sys\n\
                        file = open(sys.argv[1], 'r+b')\n\
                        pages = mmap.mmap(file.fileno(), 0)\n\
                        sum(pages[at] for at in range(0, len(pages), 4096))\n\
                        print('held', flush=True)\n\
                        sys.stdin.read()\n";
    let field = Field::new();
    let (source, copy) = (field.path("source"), field.path("to/copy"));
    whimbrel_testkit::dataset::random_file(&source, SIZE, 1).unwrap();
    let held = std::sync::Arc::new(std::sync::Mutex::new(None));
    let holder = held.clone();
    let run = copy_damaged(&["--json", "cp", "--verify", "disk"], &source, &copy, move |hidden| {
        let mut python = Command::new("python3");
        python.args(["-c", HOLD]).arg(hidden).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut python = python.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(python.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        *holder.lock().unwrap() = Some(python);
    });
    let mut python = held.lock().unwrap().take().expect("the pages are held");
    drop(python.stdin.take());
    python.wait().unwrap();
    assert!(cmp(&source, &copy));
    let said = &event(&run, "item_done")["verification"]["read_back"];
    // Where nothing but memory is below the file system, that is said.
    assert!(said == "memory" || said == "memory_only", "{said}");
}
