//! The README's first commands, followed to the letter: hosts of a laboratory stand for those that it names, with servers
//! at the ports that servers have.
#![allow(clippy::unwrap_used, reason = "a test that fails ends here")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::dtn::PATIENCE;
use support::{WHIMBREL, account, assert_same};
use whimbrel_testkit::dataset;
use whimbrel_testkit::lab::{Lab, Link};
use whimbrel_testkit::peers::{Daemon, Run, Tool, public_dir};
use whimbrel_testkit::pki::{Member, Pki};
use whimbrel_testkit::require_root;

/// What stands for the hosts that the README names.
const HOSTS: [&str; 4] = ["dtn.example.org", "a.example.org", "b.example.org", "grid.example.org"];

/// The commands of the block behind some words, each with what it is said to do.
fn block(text: &str, words: &str) -> Vec<String> {
    let behind = text.split_once(words).unwrap_or_else(|| panic!("{words} is not there")).1;
    let block = behind.split_once("```sh\n").unwrap().1.split_once("```").unwrap().0;
    block.lines().map(|line| line.split(" #").next().unwrap().trim().to_owned()).collect()
}

/// A person with a proxy, in a place of her own, and hosts with a data set each.
struct Scene {
    lab: Lab,
    pki: Pki,
    proxy: Member,
    place: tempfile::TempDir,
}

impl Scene {
    fn new() -> Option<Scene> {
        if !require_root() {
            return None;
        }
        let lab = HOSTS.iter().fold(Lab::builder().host("client"), |lab, host| lab.host(host));
        let (lab, place) = (lab.mesh(Link::new()).build().expect("laboratory"), public_dir().unwrap());
        for host in HOSTS {
            fs::create_dir_all(place.path().join(host).join("run-7/deep")).unwrap();
            dataset::many_files(&place.path().join(host).join("run-7/deep"), 8, 30_000, 3).unwrap();
            fs::write(place.path().join(host).join("run-7/of"), host).unwrap();
        }
        Tool::new("chmod").args(["-R", "a+rwX"]).arg(place.path()).run_ok();
        fs::create_dir(place.path().join("here")).unwrap();
        let pki = Pki::new().unwrap();
        let proxy = pki.usual_proxy(&pki.person("alice").unwrap(), "proxy").unwrap();
        Some(Scene { lab, pki, proxy, place })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// The same line with addresses of hosts here for their names, and this place for `/data`.
    fn local(&self, line: &str) -> String {
        let named = |line: String, host: &&str| line.replace(*host, &self.lab.host(host).addr().to_string());
        let line = HOSTS.iter().fold(line.to_owned(), named);
        assert!(!line.contains("example.org"), "no host stands for one in: {line}");
        line.replace(" /data ", &format!(" {} ", self.path(HOSTS[0]).display()))
    }

    /// What runs a line on a host, where the program is one of the commands that are known there.
    fn shell(&self, host: &str, line: &str) -> Tool {
        let programs = Path::new(WHIMBREL).parent().unwrap().display().to_string();
        let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
        let line = format!("cd {} && {line}", self.path("here").display());
        let tool = Tool::new("sh").on(self.lab.host(host)).args(["-ec", &line]).env("PATH", path);
        tool.env("HOME", self.path("here")).as_member(&self.pki, &self.proxy)
    }

    /// Serves on a host until it is dropped.
    fn serve(&self, host: &str, line: &str) -> Daemon {
        let mut command = self.lab.host(host).command("sh");
        let program = line.replacen("whimbrel", WHIMBREL, 1);
        command.args(["-ec", &format!("exec {program}")]);
        let listens = |line: &str| line.starts_with("listening on ftp://").then_some(());
        Daemon::start(command, PATIENCE, listens).unwrap_or_else(|error| panic!("{line}: {error}")).0
    }

    /// The server of a grid, which knows alice.
    fn grid(&self) -> Daemon {
        let host = self.lab.host("grid.example.org");
        let member = self.pki.host(&[&host.addr().to_string()]).unwrap();
        let gridmap = self.pki.gridmap(&[("alice", &account())]).unwrap();
        let (authorities, config) = (self.pki.certificates(), gridmap.with_file_name("dtn.toml"));
        let text = format!(
            "root = {:?}\n[gsi]\ncertificate = {:?}\nauthorities = {authorities:?}\ngridmap = {gridmap:?}\n",
            self.path(host.name()),
            member.file
        );
        fs::write(&config, text).unwrap();
        self.serve(host.name(), &format!("whimbrel dtn --config {}", config.display()))
    }

    /// Takes away what a copy has made, after comparing it with what a host has.
    fn assert_copied(&self, host: &str, to: &str) {
        assert_same(&self.path(host).join("run-7"), &self.path(to));
        fs::remove_dir_all(self.path(to)).unwrap();
    }
}

#[test]
fn every_first_command_works_as_it_is_written() {
    let Some(scene) = Scene::new() else { return };
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let lines = block(&readme, "Use it:");
    assert!(lines.len() >= 5, "{lines:?}");
    let [dtn, a, b, grid] = HOSTS;
    let mut servers = vec![scene.grid()];
    for host in [a, b] {
        let root = scene.path(host);
        servers.push(scene.serve(host, &format!("whimbrel dtn --root {} --anonymous", root.display())));
    }
    fs::remove_dir_all(scene.path(b).join("run-7")).unwrap();
    for line in &lines {
        let words: Vec<&str> = line.split(' ').collect();
        let local = scene.local(line);
        match words[..] {
            ["whimbrel", "dtn", ..] => servers.push(scene.serve(dtn, &local)),
            ["whimbrel", "cp", "-r", from, to] => {
                scene.shell("client", &local).run_ok();
                let source = HOSTS.into_iter().find(|host| from.contains(host)).expect("it was replaced");
                let place = if to == "." { "here/run-7".to_owned() } else { format!("{b}/archive") };
                let inside = scene.path(&place).join("run-7");
                let place = if inside.exists() { format!("{place}/run-7") } else { place };
                scene.assert_copied(source, &place);
            }
            ["whimbrel", "check", _] => {
                let run: Run = scene.shell("client", &local).run_ok();
                assert_eq!(run.stdout_text().matches("ok   data connection").count(), 2, "{run}");
            }
            _ => panic!("nobody checks what comes of: {line}"),
        }
    }
    assert_eq!(servers.len(), 4, "the README starts the server {dtn}, and {grid} is another one");
}
