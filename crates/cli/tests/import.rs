//! `whimbrel dtn --import`: settings of the real server lead to a server of ours that serves.

mod support;

use std::fs;

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

#[test]
fn what_cannot_be_taken_over_is_named_and_the_exit_code_tells() {
    let directory = public_dir().expect("a directory");
    let file = directory.path().join("gridftp.conf");
    fs::write(&file, "restrict_paths R/data\nport 2811\n").expect("written");
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
