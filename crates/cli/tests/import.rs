//! `whimbrel dtn --import`: settings of the real server lead to a server of ours that serves.

mod support;

use std::fs;
use std::io::Read as _;
use std::net::{Shutdown, SocketAddr, TcpStream};

use support::control::Control;
use support::dtn::Dtn;
use support::{expect, whimbrel};
use whimbrel_dtn::front::import::options::find;
use whimbrel_testkit::peers::{self, Tool, public_dir};

#[test]
fn a_server_with_imported_settings_serves_as_they_say() {
    let directory = public_dir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("gridftp.d")).expect("made");
    fs::write(at("gridftp.d/10-port"), "port 1\nconnections_max 7\n").expect("written");
    fs::write(at("gridftp.d/10-port.rpmsave"), "no option at all").expect("written");
    fs::write(
        at("gridftp.conf"),
        "port 0\ncontrol_interface 127.0.0.1\nallow_anonymous 1\nbanner \"from the old one\"\n",
    )
    .expect("written");
    let run = whimbrel(["dtn", "--import"]).arg(at("gridftp.d")).arg(at("gridftp.conf")).run_ok();
    let settings = run.stdout_text();
    assert!(settings.contains("max_connections = 7"), "{settings}");
    fs::write(at("dtn.toml"), &settings).expect("written");
    let server = Dtn::builder().arg("--config").arg(at("dtn.toml")).start();
    let mut control = Control::silent(server.addr());
    assert!(control.reply().text.contains("from the old one"));
}

/// The same settings, given to both servers, allow and refuse the same.
#[test]
fn restricted_paths_are_those_that_the_real_server_restricts() {
    let directory = public_dir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    for name in ["read", "write", "full", "read/none", "beside"] {
        fs::create_dir_all(at(name)).expect("made");
        fs::write(at(name).join("file"), "bytes").expect("written");
        for path in [at(name), at(name).join("file")] {
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("set");
        }
    }
    std::os::unix::fs::symlink(at("beside/file"), at("read/link")).expect("made");
    let base = directory.path().display();
    let paths = format!("r{base}/read/,W{base}/write,{base}/full,N{base}/read/none,RW{base}/read");
    let run = |server: SocketAddr| -> Vec<(String, bool)> {
        let mut control = Control::login(server);
        control.ask_for(200, "TYPE I");
        let mut told = Vec::new();
        let mut note = |what: String, code: u16| told.push((what, (200..300).contains(&code)));
        for name in ["read", "write", "full", "read/none", "beside"] {
            for command in ["SIZE {}/file", "CKSM MD5 0 -1 {}/file", "CWD {}", "MKD {}/new", "RMD {}/new"] {
                let line = command.replace("{}", &format!("{base}/{name}"));
                note(format!("{name} {command}"), control.ask(&line).code);
            }
            for command in ["RETR {}/file", "STOR {}/stored", "MLSD {}"] {
                let mut channel = TcpStream::connect(control.passive()).expect("it listens");
                channel.shutdown(Shutdown::Write).expect("an end");
                let mut code = control.ask(&command.replace("{}", &format!("{base}/{name}"))).code;
                if code < 200 {
                    channel.read_to_end(&mut Vec::new()).expect("an end");
                    code = control.last_reply().code;
                }
                note(format!("{name} {command}"), code);
            }
        }
        note("a link".to_owned(), control.ask(&format!("CKSM MD5 0 -1 {base}/read/link")).code);
        told
    };
    let Some(theirs) = peers::GridftpServer::builder() else { return };
    let theirs = theirs.arg("-restrict-paths").arg(&paths).start().expect("the real server starts");
    let expected = run(theirs.addr());
    let settings = format!("port 0\ncontrol_interface 127.0.0.1\nallow_anonymous 1\nrestrict_paths {paths}\n");
    fs::write(at("gridftp.conf"), settings).expect("written");
    let imported = whimbrel(["dtn", "--import"]).arg(at("gridftp.conf")).run_ok();
    fs::write(at("dtn.toml"), imported.stdout_text()).expect("written");
    let ours = Dtn::builder().arg("--config").arg(at("dtn.toml")).start();
    assert_eq!(run(ours.addr()), expected);
    assert!(expected.iter().any(|(_, done)| *done) && expected.iter().any(|(_, done)| !*done));
}

#[test]
fn logins_are_taken_from_the_addresses_that_were_allowed() {
    let directory = public_dir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    for (lines, taken) in [
        ("allow_from 127.0.0.", true),
        ("allow_from 10.,192.168.", false),
        ("allow_from 127.\ndeny_from 127.0.0.1", false),
        ("deny_from 127.0.0.2", true),
    ] {
        let settings = format!("port 0\ncontrol_interface 127.0.0.1\nallow_anonymous 1\n{lines}\n");
        fs::write(at("gridftp.conf"), settings).expect("written");
        let imported = whimbrel(["dtn", "--import"]).arg(at("gridftp.conf")).run_ok();
        fs::write(at("dtn.toml"), imported.stdout_text()).expect("written");
        let server = Dtn::builder().root(directory.path()).arg("--config").arg(at("dtn.toml")).start();
        let mut control = Control::open(server.addr());
        control.ask_for(331, "USER anonymous");
        let reply = control.ask("PASS x@");
        assert_eq!(reply.code, if taken { 230 } else { 421 }, "{lines}: {}", reply.text);
    }
}

#[test]
fn what_cannot_be_taken_over_is_named_and_the_exit_code_tells() {
    let directory = public_dir().expect("a directory");
    let file = directory.path().join("gridftp.conf");
    fs::write(&file, "restrict_paths /,N/data/*\nport 2811\n").expect("written");
    let run = expect(1, ["dtn", "--import", &file.display().to_string()]);
    let said = run.stderr_text();
    assert!(said.contains("gridftp.conf:1: restrict_paths: NOT TAKEN OVER, allows more than before"), "{said}");
    fs::write(&file, "port 2811 2812\n").expect("written");
    let run = expect(2, ["dtn", "--import", &file.display().to_string()]);
    assert!(run.stderr_text().contains("line 1"), "{run}");
    assert_eq!(run.stdout_text(), "");
}

#[test]
fn every_option_of_the_real_server_is_known() {
    let Some(program) = peers::require("globus-gridftp-server") else { return };
    let help = Tool::new(program).arg("-help").run().expect("it runs");
    let text = help.stdout_text() + &help.stderr_text();
    let mut known = 0;
    for line in text.lines().filter(|line| line.starts_with(" -")) {
        // The last word with a dash is the long one.
        let name = line.split_whitespace().take_while(|word| word.starts_with('-')).last().expect("a dash");
        let name = name.trim_start_matches('-');
        assert!(find(name).is_some(), "{name} in `{line}`");
        known += 1;
    }
    assert!(known > 90, "{text}");
}
