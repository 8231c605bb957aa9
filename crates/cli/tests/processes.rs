//! The three kinds of process of a server: what each may, and what becomes of the others when one ends.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use support::control::Control;
use support::dtn::{Dtn, PATIENCE, until};
use support::{Field, WHIMBREL, expect};
use whimbrel_testkit::peers::{Daemon, Tool, public_dir, url_path};
use whimbrel_testkit::require_root;

/// The children of a process, by the word they were started with.
fn child(parent: u32, word: &str) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    let children = children.split_whitespace().filter_map(|id| id.parse::<u32>().ok());
    let is = |id: &u32| {
        fs::read(format!("/proc/{id}/cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).nth(1) == Some(word.as_bytes()))
    };
    children.into_iter().find(is)
}

/// A field of `/proc/ID/status`.
fn status(id: u32, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{id}/status")).expect("it lives");
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.expect("the kernel tells it").trim().to_owned()
}

/// A server that has served a login, and its front and data process.
fn serving() -> (Dtn, u32, u32) {
    let server = Dtn::builder().anonymous().start();
    let _session = Control::login(server.addr());
    let of = |word| child(server.daemon.id(), word).unwrap_or_else(|| panic!("no {word}"));
    let (front, data) = (of("dtn-front"), of("data-process"));
    (server, front, data)
}

fn is_gone(id: u32) -> bool {
    // A zombie has no program.
    fs::read_link(format!("/proc/{id}/exe")).is_err()
}

fn kill(id: u32) {
    assert!(Command::new("kill").args(["-9", &id.to_string()]).status().expect("kill runs").success());
}

#[test]
fn only_the_monitor_has_rights_and_it_does_one_thing_at_a_time() {
    let (server, front, data) = serving();
    let monitor = server.daemon.id();
    assert_eq!(status(monitor, "Threads"), "1");
    for confined in [front, data] {
        assert_eq!(status(confined, "NoNewPrivs"), "1");
        assert_eq!(status(confined, "Seccomp"), "2", "filtered");
        if require_root() {
            let ids: Vec<u32> =
                status(confined, "Uid").split_whitespace().map(|id| id.parse().expect("a number")).collect();
            assert!(ids.iter().all(|id| *id != 0), "{ids:?}");
            assert_eq!(u64::from_str_radix(&status(confined, "CapEff"), 16), Ok(0));
            assert_eq!(u64::from_str_radix(&status(confined, "CapPrm"), 16), Ok(0));
        }
    }
}

#[test]
fn the_front_has_no_file_open_but_its_log() {
    let (_server, front, _data) = serving();
    let open: Vec<String> = fs::read_dir(format!("/proc/{front}/fd"))
        .expect("it lives")
        // What is not there any more has been closed meanwhile, as the connection that waited for the server is.
        .filter_map(|entry| fs::read_link(entry.expect("entry").path()).ok())
        .map(|path| path.display().to_string())
        .collect();
    assert!(open.len() > 3, "{open:?}");
    let strange =
        |name: &&String| !["socket:", "anon_inode:", "pipe:", "/dev/null"].iter().any(|kind| name.starts_with(kind));
    // Standard error is the starter's.
    let log = fs::read_link(format!("/proc/{front}/fd/2")).expect("open").display().to_string();
    assert_eq!(open.iter().filter(strange).filter(|name| **name != log).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn the_end_of_one_is_the_end_of_all_whichever_it_is() {
    let (server, front, data) = serving();
    kill(server.daemon.id());
    until("the end of the front", || is_gone(front));
    until("the end of the data process", || is_gone(data));

    let (server, front, data) = serving();
    kill(front);
    until("the end of the data process", || is_gone(data));
    until("the end of the monitor", || is_gone(server.daemon.id()));
}

/// Nobody who takes one of them over can type into the terminal that the server was started from.
#[test]
fn front_and_data_processes_have_sessions_of_their_own() {
    let (server, front, data) = serving();
    let session = |id| status(id, "NSsid");
    for confined in [front, data] {
        assert_eq!(session(confined), confined.to_string());
    }
    assert_ne!(session(server.daemon.id()), session(front));
}

/// The soft and the hard limit of a process's core files.
fn core_limits(id: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{id}/limits")).expect("it lives");
    let line = text.lines().find_map(|line| line.strip_prefix("Max core file size")).expect("the kernel tells it");
    line.split_whitespace().take(2).map(str::to_owned).collect()
}

#[test]
fn no_process_that_knows_secrets_leaves_a_core_file_or_shows_them_in_the_list_of_processes() {
    let (server, front, data) = serving();
    for id in [server.daemon.id(), front, data] {
        assert_eq!(core_limits(id), ["0", "0"]);
    }
    // It waits for a greeting that never comes.
    let silent = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = silent.local_addr().expect("bound");
    let place = format!("ftp://anna:pass%20word@{address}/file");
    let mut client = Command::new(WHIMBREL).args(["cp", &place, "."]).stderr(Stdio::null()).spawn().expect("started");
    let _connection = silent.accept().expect("it comes");
    let line = fs::read(format!("/proc/{}/cmdline", client.id())).expect("it lives");
    let limits = core_limits(client.id());
    client.kill().expect("it lives");
    client.wait().expect("it has ended");
    let words: Vec<_> = line.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
    assert_eq!(
        words[1..],
        ["cp".to_owned(), format!("ftp://anna:xxxxxxxxxxx@{address}/file"), ".".into(), String::new()]
    );
    assert_eq!(limits[0], "0");
}

/// Who is told a secret by its starter: other processes of its account do not look into its memory.
#[test]
fn helpers_that_are_told_secrets_keep_their_memory_to_themselves() {
    if !require_root() {
        return;
    }
    for word in ["dtn-member", "dtn-door", "dtn-caller", "dtn-relay"] {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let mut command = Command::new(WHIMBREL);
        command
            .arg(word)
            .uid(65_534)
            .gid(65_534)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut helper = command.spawn().expect("started");
        // It waits to be told. What others of its account may not read is root's (proc(5)).
        let memory = format!("/proc/{}/mem", helper.id());
        until(&format!("{word} to close its memory"), || fs::metadata(&memory).is_ok_and(|memory| memory.uid() == 0));
        assert!(helper.try_wait().expect("ours").is_none(), "{word} lives");
        drop(ours);
        helper.wait().expect("it ends");
    }
}

/// A server that logs into a pipe, and its address.
fn logging(root: &Path) -> (Child, String) {
    let mut command = Command::new(WHIMBREL);
    command.args(["dtn", "--listen", "127.0.0.1:0", "--anonymous", "--root"]).arg(root);
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut said = BufReader::new(server.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
    let address = said.find_map(|line| line.strip_prefix("listening on ").map(str::to_owned)).expect("it listens");
    (server, address)
}

fn ends_when_told(mut server: Child) {
    let told = Command::new("kill").arg(server.id().to_string()).status();
    assert!(told.expect("kill runs").success());
    assert_eq!(server.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_server_whose_log_nobody_reads_any_more_serves_on_and_ends_when_it_is_told_to() {
    let directory = public_dir().expect("a directory");
    let (mut server, address) = logging(directory.path());
    // As when a log service crashes, or a terminal is closed.
    drop(server.stderr.take());
    for _ in 0..3 {
        expect(0, ["ls", &address]);
    }
    ends_when_told(server);
}

#[test]
fn a_server_whose_log_is_not_read_for_a_while_serves_on_and_says_how_much_is_missing() {
    let directory = public_dir().expect("a directory");
    let (mut server, address) = logging(directory.path());
    // As when a terminal is held, or a log service hangs.
    let mut log = server.stderr.take().expect("piped");
    rustix::pipe::fcntl_setpipe_size(&log, 4096).expect("set");
    rustix::fs::fcntl_setfl(&log, rustix::fs::OFlags::NONBLOCK).expect("set");
    for _ in 0..40 {
        expect(0, ["ls", &address]);
    }
    let mut read = || {
        let mut text = Vec::new();
        let ended = log.read_to_end(&mut text).expect_err("the server lives");
        assert_eq!(ended.kind(), std::io::ErrorKind::WouldBlock);
        String::from_utf8(text).expect("text")
    };
    assert!(!read().contains("lines are missing"));
    expect(0, ["ls", &address]);
    let behind = read();
    assert!(behind.contains("lines are missing here: nobody read them"), "{behind}");
    ends_when_told(server);
}

#[test]
fn an_interrupt_at_the_terminal_ends_them_all() {
    let (server, front, data) = serving();
    // The terminal tells the group of the monitor alone: its children are in others.
    let told = Command::new("kill").args(["-INT", &server.daemon.id().to_string()]).status();
    assert!(told.expect("kill runs").success());
    for one in [server.daemon.id(), front, data] {
        until("the end of all", || is_gone(one));
    }
}

/// A connection on standard input, as inetd starts a server for it; whoever is the client, and the server.
fn inetd(root: &Path) -> (Control, Child) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let connection = OwnedFd::from(listener.accept().expect("accepted").0);
    let output = connection.try_clone().expect("a descriptor");
    let mut command = Command::new(WHIMBREL);
    command.args(["dtn", "--stdio", "--anonymous", "--root"]).arg(root).env_remove("SSH_CONNECTION");
    let server = command.stdin(connection).stdout(output).stderr(Stdio::null()).spawn().expect("it starts");
    (Control::over(client), server)
}

#[test]
fn a_connection_on_standard_input_has_three_processes_as_well_and_ends_them_all() {
    if !require_root() {
        return;
    }
    let directory = public_dir().expect("a directory");
    fs::write(directory.path().join("here"), "bytes").expect("written");
    let (mut client, mut server) = inetd(directory.path());
    assert_eq!(client.reply().code, 220);
    client.ask_for(331, "USER anonymous");
    client.ask_for(230, "PASS x@");
    let data = client.passive();
    client.say("STOR there");
    TcpStream::connect(data).expect("it listens").write_all(b"stored").expect("taken");
    assert_eq!((client.reply().code, client.reply().code), (150, 226));
    assert_eq!(fs::read(directory.path().join("there")).expect("stored"), b"stored");
    assert_ne!(fs::metadata(directory.path().join("there")).expect("stored").uid(), 0);
    let of = |word| child(server.id(), word).unwrap_or_else(|| panic!("no {word}"));
    let (front, data) = (of("dtn-front"), of("data-process"));
    assert_eq!(status(server.id(), "Threads"), "1");
    for confined in [front, data] {
        assert_eq!((status(confined, "NoNewPrivs").as_str(), status(confined, "Seccomp").as_str()), ("1", "2"));
        assert!(status(confined, "Uid").split_whitespace().all(|id| id != "0"), "{}", status(confined, "Uid"));
    }
    client.ask_for(221, "QUIT");
    assert!(client.try_reply().is_err(), "it is closed");
    assert!(server.wait().expect("it ends").success());
    until("the end of the others", || is_gone(front) && is_gone(data));
    // A client that just goes.
    let (client, mut server) = inetd(directory.path());
    drop(client);
    assert!(server.wait().expect("it ends").success());
}

#[test]
fn what_strangers_say_over_pipes_is_not_read_as_root() {
    if !require_root() {
        return;
    }
    let server = Tool::new(WHIMBREL).args(["dtn", "--stdio", "--anonymous"]).input("USER anonymous\r\nQUIT\r\n");
    let refused = server.env("SSH_CONNECTION", "").run_failing();
    assert!(refused.stderr_text().contains("never read as root"), "{refused}");
    assert_eq!(refused.stdout_text(), "");
}

#[test]
fn a_lost_data_process_is_replaced() {
    let field = Field::new();
    let (server, _front, data) = serving();
    kill(data);
    until("the end of the data process", || is_gone(data));
    server.wait_for_log(&["data process ended"]);
    expect(0, ["ls", &server.url(field.path("from"))]);
    assert!(child(server.daemon.id(), "data-process").is_some_and(|new| new != data));
}

#[test]
fn a_front_cannot_be_started_by_hand() {
    let mut command = Command::new(WHIMBREL);
    let ended = command.arg("dtn-front").stdin(std::process::Stdio::null()).output().expect("it runs");
    assert_eq!(ended.status.code(), Some(2));
}

#[test]
fn a_server_without_its_sandbox_says_so() {
    let server = Dtn::builder().anonymous().arg("--sandbox").arg("off").start();
    server.wait_for_log(&["not confined"]);
}

/// What the kernel of a case lacks, and how much confinement its server wants.
const LACKING: (&str, &str) = ("WHIMBREL_TEST_LACKS", "WHIMBREL_TEST_SANDBOX");

/// A server on a kernel without these system calls: they are answered as by one that has never heard of them (ENOSYS).
fn on_older_kernel(lacks: &str, sandbox: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "case_older_kernel", "--ignored", "--nocapture", "--test-threads", "1"]);
    command.env(LACKING.0, lacks).env(LACKING.1, sandbox);
    command
}

#[test]
#[ignore = "becomes the server of another test"]
fn case_older_kernel() {
    let variable = |name| std::env::var(name).expect("started by a test");
    let number = |word: &str| match word {
        "landlock" => {
            vec![libc::SYS_landlock_create_ruleset, libc::SYS_landlock_add_rule, libc::SYS_landlock_restrict_self]
        }
        "seccomp" => vec![libc::SYS_seccomp],
        other => panic!("{other}"),
    };
    let lacks = variable(LACKING.0);
    let rules = lacks.split_whitespace().flat_map(number).map(|call| (call, Vec::new())).collect::<BTreeMap<_, _>>();
    if !rules.is_empty() {
        let (allow, unknown) = (SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32));
        let arch = std::env::consts::ARCH.try_into().expect("an architecture with filters");
        let filter = SeccompFilter::new(rules, allow, unknown, arch).expect("a filter");
        let program: BpfProgram = filter.try_into().expect("a program");
        seccompiler::apply_filter(&program).expect("a kernel with filters");
    }
    let arguments = ["dtn", "--anonymous", "--listen", "127.0.0.1:0", "--sandbox", &variable(LACKING.1)];
    panic!("{}", Command::new(WHIMBREL).args(arguments).exec());
}

#[test]
fn a_kernel_that_cannot_confine_serves_and_says_so_unless_confinement_is_required() {
    let field = Field::new();
    let ready = |line: &str| line.split_once("listening on ftp://")?.1.trim_end_matches('/').parse::<SocketAddr>().ok();
    for (lacks, held) in [
        ("", None),
        ("landlock", Some("files: Unknown, calls: Full")),
        ("seccomp", Some("files: Full, calls: Unknown")),
        ("landlock seccomp", Some("files: Unknown, calls: Unknown")),
    ] {
        let (server, address) = Daemon::start(on_older_kernel(lacks, "auto"), PATIENCE, ready).expect("it starts");
        expect(0, ["ls", &format!("ftp://{address}{}", url_path(field.path("from")))]);
        // The front and the data process, each for itself.
        let said = |log: &str| log.matches("this kernel confines processes only in part").count();
        until("what both say", || said(&server.log()) == if held.is_some() { 2 } else { 0 });
        assert!(server.log().contains(held.unwrap_or_default()), "{lacks}: {}", server.log());
        drop(server);

        let required = on_older_kernel(lacks, "require");
        match held {
            None => drop(Daemon::start(required, PATIENCE, ready).expect("it starts")),
            Some(held) => {
                let refused = Tool::from(required).run_failing().stderr_text();
                let expected = format!("does not confine all that it should: Confinement {{ {held} }}");
                assert!(refused.contains(&expected), "{lacks}: {refused}");
            }
        }
    }
}
