//! `curl` and `lftp`, as people use them, with our server.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::Duration;

use whimbrel_testkit::peers::{self, Tool};

use crate::case::{Case, Program};
use crate::protection::Site;
use crate::support::{Context, Kind, Place, Server, Size, TEN, assert_same, copies};

const GET: &str = "ours to local";
const PUT: &str = "local to ours";
const MANAGE: &str = "files on ours";
/// Time for a program to move the large file.
const LIMIT: Duration = Duration::from_secs(120);

/// The cases of this module.
pub fn cases(cases: &mut Vec<Case>) {
    curl_cases(cases);
    lftp_cases(cases);
}

fn curl() -> Tool {
    let tool = peers::curl().expect("its presence was checked").limit(LIMIT);
    match Site::now() {
        Site::Tls(secure) => secure.curl(tool),
        _ => tool,
    }
}

fn directory_url(server: &Server, path: impl AsRef<OsStr>) -> String {
    server.ftp_url(path) + "/"
}

/// A path after the first slash of an `ftp://` URL is relative to the login directory (RFC 1738 §3.2.2), which is `/`.
fn curl_cases(cases: &mut Vec<Case>) {
    for size in Size::ALL {
        cases.push(curl_one(true, size, ""));
        cases.push(curl_one(false, size, ""));
    }
    for options in [
        "--disable-epsv",
        "--ftp-port -",
        "--ftp-port - --disable-eprt",
        "--ftp-method singlecwd",
        "--ftp-method nocwd",
        "--ftp-skip-pasv-ip",
        "--limit-rate 50M",
    ] {
        cases.push(curl_one(true, Size::Ten, options));
        cases.push(curl_one(false, Size::Ten, options));
    }
    cases.push(curl_one(false, Size::Ten, "--ftp-create-dirs"));
    let case = |direction, option, run: fn(&Context)| Case::new(Program::Curl, direction, option, run);
    cases.push(case(GET, "--range", |context| {
        let server = Server::start(Kind::Ours);
        let run = curl().args(["--range", "1000000-1499999", &server.ftp_url(context.file(Size::Ten))]).run_ok();
        assert!(run.stdout == fs::read(context.file(Size::Ten)).unwrap()[1_000_000..1_500_000]);
    }));
    cases.push(case(GET, "--continue-at -", |context| {
        let (server, place) = (Server::start(Kind::Ours), Place::new());
        let from = context.file(Size::Ten);
        fs::write(place.path("copy"), &fs::read(&from).unwrap()[..4_000_000]).unwrap();
        let tool = curl().args(["--continue-at", "-", &server.ftp_url(&from), "--output"]).arg(place.path("copy"));
        copies(tool, &from, &place.path("copy"));
    }));
    cases.push(case(PUT, "--continue-at -", |context| {
        let (server, place) = (Server::start(Kind::Ours), Place::new());
        let (from, to) = (context.file(Size::Ten), place.path("copy"));
        fs::write(place.path("part"), &fs::read(&from).unwrap()[..4_000_000]).unwrap();
        place.copy_of(&place.path("part"), "copy");
        copies(curl().args(["--continue-at", "-", "--upload-file"]).arg(&from).arg(server.ftp_url(&to)), &from, &to);
    }));
    cases.push(case(PUT, "--append", |context| {
        let (server, place) = (Server::start(Kind::Ours), Place::new());
        fs::write(place.path("start"), "start").unwrap();
        let to = place.copy_of(&place.path("start"), "copy");
        curl().args(["--append", "--upload-file"]).arg(context.file(Size::Ten)).arg(server.ftp_url(&to)).run_ok();
        let expected = [b"start".to_vec(), fs::read(context.file(Size::Ten)).unwrap()].concat();
        assert!(fs::read(&to).unwrap() == expected);
    }));
    cases.push(
        case(GET, "directory", |context| {
            let server = Server::start(Kind::Ours);
            let said = curl().arg(directory_url(&server, context.tree())).run_ok().stdout_text();
            for name in ["deep", "other", "zero", "one", "two words"] {
                assert!(said.lines().any(|line| line.trim_end().ends_with(&format!(" {name}"))), "{name} in\n{said}");
            }
            assert!(said.contains("drwx") && said.contains("-rw"), "{said}");
        })
        .proves("all names, with kinds and modes"),
    );
    cases.push(
        case(GET, "--list-only directory", |context| {
            let server = Server::start(Kind::Ours);
            let said = curl()
                .args(["--list-only", &directory_url(&server, context.tree().join("deep"))])
                .run_ok()
                .stdout_text();
            assert_eq!(said.lines().filter(|line| line.trim().starts_with("file-")).count(), 40, "{said}");
        })
        .proves("all names"),
    );
    cases.push(
        case(GET, "--head", |context| {
            let server = Server::start(Kind::Ours);
            let said = curl().args(["--head", &server.ftp_url(context.file(Size::Ten))]).run_ok().stdout_text();
            assert!(said.contains(&format!("Content-Length: {TEN}")) && said.contains("Last-Modified: "), "{said}");
        })
        .proves("size and time"),
    );
    cases.push(
        case(GET, "--remote-time", |context| {
            let (server, place) = (Server::start(Kind::Ours), Place::new());
            let from = context.file(Size::One);
            curl().args(["--remote-time", &server.ftp_url(&from), "--output"]).arg(place.path("copy")).run_ok();
            whimbrel_testkit::dataset::Compare::contents().times().assert_same(&from, &place.path("copy"));
        })
        .proves("same bytes and time"),
    );
    cases.push(case(GET, "two URLs over one connection", |context| {
        let (server, place) = (Server::start(Kind::Ours), Place::new());
        let urls = [server.ftp_url(context.file(Size::Ten)), server.ftp_url(context.file(Size::One))];
        let tool = curl().args(["--output"]).arg(place.path("a")).args(["--output"]).arg(place.path("b"));
        tool.args(urls).run_ok();
        assert_same(&context.file(Size::Ten), &place.path("a"));
        assert_same(&context.file(Size::One), &place.path("b"));
    }));
    for options in ["", "--ftp-port -"] {
        let run = move |context: &Context| {
            let (server, place) = (Server::ours_at("[::1]:0", &[]), Place::new());
            let (from, to) = (context.file(Size::Ten), place.path("copy"));
            let tool = curl().args(options.split_whitespace()).arg(server.ftp_url(&from)).arg("--output").arg(&to);
            copies(tool, &from, &to);
        };
        let case = Case::new(Program::Curl, GET, format!("{options} over IPv6").trim_start(), run);
        cases.push(case.not_over_tls(options.contains("--ftp-port")));
    }
    cases.push(
        case(GET, "--use-ascii", |_| {
            let (server, place) = (Server::start(Kind::Ours), Place::new());
            fs::write(place.path("text"), "one\ntwo\n").unwrap();
            let said = curl().args(["--use-ascii", &server.ftp_url(place.path("text"))]).run_ok().stdout_text();
            assert_eq!(said.lines().collect::<Vec<_>>(), ["one", "two"]);
        })
        .proves("same lines"),
    );
    cases.push(
        case(MANAGE, "--quote MKD, RNFR, RNTO, DELE, RMD", |context| {
            let (server, place) = (Server::start(Kind::Ours), Place::new());
            place.copy_of(&context.file(Size::One), "a");
            let path = |name: &str| place.path(name).to_string_lossy().into_owned();
            let quotes =
                [format!("MKD {}", path("made")), format!("RNFR {}", path("a")), format!("RNTO {}", path("made/b"))];
            let tool = quotes.iter().fold(curl(), |tool, quote| tool.args(["--quote", quote]));
            tool.arg(directory_url(&server, place.path("made"))).run_ok();
            assert_same(&context.file(Size::One), &place.path("made/b"));
            let quotes = [format!("DELE {}", path("made/b")), format!("RMD {}", path("made"))];
            let tool = quotes.iter().fold(curl(), |tool, quote| tool.args(["--quote", quote]));
            tool.arg(directory_url(&server, place.path(""))).run_ok();
            assert!(!place.path("made").exists());
        })
        .proves("the files are as asked"),
    );
    cases.push(
        case(GET, "a file that is missing", |_| {
            let server = Server::start(Kind::Ours);
            assert_eq!(curl().arg(server.ftp_url("/no/such/file")).run_failing().code(), Some(9));
            assert_eq!(curl().arg(server.ftp_url("/no-such-file")).run_failing().code(), Some(78));
        })
        .proves("the program says that it is missing"),
    );
}

fn curl_one(get: bool, size: Size, options: &'static str) -> Case {
    let run = move |context: &Context| {
        let (server, place) = (Server::start(Kind::Ours), Place::new());
        let (from, name) = (context.file(size), if options == "--ftp-create-dirs" { "new/dir/copy" } else { "copy" });
        let to = place.path(name);
        let tool = curl().args(options.split_whitespace());
        let tool = if get {
            tool.arg(server.ftp_url(&from)).arg("--output").arg(&to)
        } else {
            tool.arg("--upload-file").arg(&from).arg(server.ftp_url(&to))
        };
        let run = tool.run_ok();
        // For curl an empty file is nothing to write.
        if !(get && size == Size::Zero && !to.exists()) {
            let same = whimbrel_testkit::dataset::Compare::contents().run(&from, &to);
            assert!(same.unwrap_or_else(|error| panic!("{error}\n{run}")).is_empty(), "{run}");
        }
    };
    let direction = if get { GET } else { PUT };
    let described = if options.is_empty() { "no option" } else { options };
    let case = Case::new(Program::Curl, direction, format!("{described}, {}", size.name()), run);
    // Before 8.0 it forgets TLS on data connections that it has accepted, and says what was to be encrypted in clear.
    case.large(size == Size::Large).not_over_tls(options.contains("--ftp-port"))
}

/// lftp on a server, with paths quoted as its language has it.
fn lftp(server: &Server, commands: &str) -> Tool {
    let (host, port) = (server.address().ip(), server.address().port());
    let (settings, login) = match Site::now() {
        Site::Tls(secure) => secure.lftp(),
        _ => Default::default(),
    };
    let script = format!("{settings}open {login}-p {port} {host}; {commands}");
    peers::lftp(&script).expect("its presence was checked").limit(LIMIT)
}

fn shown(path: &Path) -> String {
    format!("'{}'", path.display())
}

fn lftp_cases(cases: &mut Vec<Case>) {
    for (get, options) in [
        (true, ""),
        (true, "--parallel=4"),
        (true, "--use-pget-n=3"),
        (true, "--no-perms --only-newer"),
        (false, ""),
        (false, "--parallel=4"),
        (false, "--no-perms --only-newer"),
    ] {
        for settings in ["", "set ftp:passive-mode no; ", "set ftp:prefer-epsv yes; "] {
            cases.push(mirror(get, options, settings));
        }
    }
    let case = |direction, option, run: fn(&Context)| Case::new(Program::Lftp, direction, option, run);
    cases.push(case(GET, "mirror --delete after changes", |context| mirror_again(context, true)));
    cases.push(case(PUT, "mirror -R --delete after changes", |context| mirror_again(context, false)));
    cases.push(case(GET, "get, 1 GB", |context| fetch(context, Size::Large, "get")).large(true));
    cases.push(case(GET, "pget -n 4, 10 MB", |context| fetch(context, Size::Ten, "pget -n 4")));
    cases.push(
        case(GET, "pget -n 4, 1 GB", |context| fetch(context, Size::Large, "pget -n 4")).large(true).nightly(true),
    );
    cases.push(case(GET, "get -c of a part", |context| {
        let (server, place) = (Server::start(Kind::Ours), Place::new());
        let (from, to) = (context.file(Size::Ten), place.path("copy"));
        fs::write(&to, &fs::read(&from).unwrap()[..4_000_000]).unwrap();
        copies(lftp(&server, &format!("get -c {} -o {}", shown(&from), shown(&to))), &from, &to);
    }));
    cases.push(
        case(PUT, "put, 1 GB", |context| {
            let (server, place) = (Server::start(Kind::Ours), Place::new());
            let (from, to) = (context.file(Size::Large), place.path("copy"));
            copies(lftp(&server, &format!("put {} -o {}", shown(&from), shown(&to))), &from, &to);
        })
        .large(true),
    );
    cases.push(case(PUT, "put -c of a part", |context| {
        let (server, place) = (Server::start(Kind::Ours), Place::new());
        let from = context.file(Size::Ten);
        fs::write(place.path("part"), &fs::read(&from).unwrap()[..4_000_000]).unwrap();
        let to = place.copy_of(&place.path("part"), "copy");
        copies(lftp(&server, &format!("put -c {} -o {}", shown(&from), shown(&to))), &from, &to);
    }));
    cases.push(case(GET, "over IPv6", |context| {
        let (server, place) = (Server::ours_at("[::1]:0", &[]), Place::new());
        let (from, to) = (context.tree(), place.path("copy"));
        copies(lftp(&server, &format!("mirror {} {}", shown(&from), shown(&to))), &from, &to);
    }));
    cases.push(
        case(MANAGE, "cls, mkdir -p, mv, chmod, rm, rmdir, du", |context| {
            let (server, place) = (Server::start(Kind::Ours), Place::new());
            let root = place.directory("root");
            let script = format!(
                "cd {}; mkdir -p a/b; put {} -o a/file; mv a/file a/b/moved; chmod 600 a/b/moved; cls -1 a/b; du -s a; \
             mkdir gone; rmdir gone; put {} -o one; rm one",
                shown(&root),
                shown(&context.file(Size::Ten)),
                shown(&context.file(Size::One)),
            );
            let run = lftp(&server, &script).run_ok();
            assert!(run.stdout_text().contains("a/b/moved"), "{run}");
            assert_same(&context.file(Size::Ten), &root.join("a/b/moved"));
            let mode =
                std::os::unix::fs::PermissionsExt::mode(&fs::metadata(root.join("a/b/moved")).unwrap().permissions());
            assert_eq!(mode & 0o777, 0o600);
            assert!(!root.join("gone").exists() && !root.join("one").exists());
        })
        .proves("the files are as asked"),
    );
}

fn mirror(get: bool, options: &'static str, settings: &'static str) -> Case {
    let run = move |context: &Context| {
        let (server, place) = (Server::start(Kind::Ours), Place::new());
        let (from, to) = (context.tree(), place.path("copy"));
        let reverse = if get { "" } else { "-R" };
        let script = format!("{settings}mirror {reverse} {options} {} {}", shown(&from), shown(&to));
        copies(lftp(&server, &script), &from, &to);
    };
    let (direction, name) = if get { (GET, "mirror") } else { (PUT, "mirror -R") };
    let settings = settings.trim_start_matches("set ").trim_end_matches("; ");
    let with = if settings.is_empty() { String::new() } else { format!(", {settings}") };
    Case::new(Program::Lftp, direction, format!("{name} {options}").trim_end().to_owned() + &with, run)
}

/// Mirrors, changes the source in every way, and mirrors again.
fn mirror_again(context: &Context, get: bool) {
    let (server, place) = (Server::start(Kind::Ours), Place::new());
    let (from, to) = (place.directory("from"), place.path("to"));
    let reverse = if get { "" } else { "-R" };
    let script = format!("mirror {reverse} --delete {} {}", shown(&from), shown(&to));
    for name in ["kept", "removed", "grown"] {
        place.copy_of(&context.file(Size::One), format!("from/{name}"));
    }
    copies(lftp(&server, &script), &from, &to);
    fs::remove_file(from.join("removed")).unwrap();
    place.copy_of(&context.file(Size::Ten), "from/grown");
    fs::create_dir(from.join("new")).unwrap();
    place.copy_of(&context.file(Size::One), "from/new/file");
    copies(lftp(&server, &script), &from, &to);
}

fn fetch(context: &Context, size: Size, command: &str) {
    let (server, place) = (Server::start(Kind::Ours), Place::new());
    let (from, to) = (context.file(size), place.path("copy"));
    copies(lftp(&server, &format!("{command} {} -o {}", shown(&from), shown(&to))), &from, &to);
}
