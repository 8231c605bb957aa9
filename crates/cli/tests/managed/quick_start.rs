//! The quick start of the README, followed to the letter.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use whimbrel_testkit::peers::Tool;

use super::field::{Field, Running, WHIMBREL};
use super::seat::{Seat, told};

/// The lines of the first block of commands behind some words.
fn block(text: &str, words: &str) -> Vec<String> {
    let behind = text.split_once(words).unwrap_or_else(|| panic!("{words} is not there")).1;
    let block = behind.split_once("```sh\n").unwrap().1.split_once("```").unwrap().0;
    block.lines().map(|line| line.split("  #").next().unwrap().trim().to_owned()).collect()
}

/// A server that joins by the command that was printed. Root has to say whose rights the service's users have, and is told so before
/// the token, which is good for one server, is used up.
fn joins_as_printed(field: &Field, home: &Path, printed: &str, data: &Path) -> Running {
    let line = printed.lines().find_map(|line| line.strip_prefix("on each server: whimbrel ")).expect(printed);
    // What differs from host to host: where it listens, and where it keeps its place in the service.
    let config = field.place("printed.toml");
    let text = format!("listen = [\"127.0.0.1:0\"]\n[join]\nstate = {:?}\n", field.place("printed.state"));
    std::fs::write(&config, text).unwrap();
    let line = line.replace("DIRECTORY", data.to_str().unwrap());
    let line = line.replace(" FILE", &format!(" {}", field.certificate().display()));
    let words = || line.split(' ').map(str::to_owned).chain(["--config".to_owned(), config.display().to_string()]);
    let mut command = Command::new(WHIMBREL);
    command.args(words()).env("HOME", home);
    if rustix::process::geteuid().is_root() {
        let run = Tool::new(WHIMBREL).args(words()).env("HOME", home).limit(Duration::from_secs(60)).run().unwrap();
        let (_, error) = told(2, &run, &["dtn"]);
        assert!(error.contains("--join-account NAME"), "{error}");
        assert!(printed.contains("as root also --join-account NAME"), "{printed}");
        command.args(["--join-account", "nobody"]);
    }
    Running::start(&mut command, "listening on ")
}

#[test]
fn the_quick_start_works_as_it_is_written() {
    let field = Field::plain();
    let seat = Seat::new(&field, "newcomer");
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let lines = block(&readme, "Have a service copy");
    // The service is there already, at a port of its own.
    assert_eq!(lines[0], "whimbrel serve --state ./service --listen 127.0.0.1:8443 &");
    let programs = Path::new(WHIMBREL).parent().unwrap().display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let (mut server, mut last) = (None, String::new());
    let root = field.place("");
    for line in &lines[1..] {
        let line = line.replace("https://127.0.0.1:8443", &field.url);
        let shell = format!("cd {} && {line}", root.display());
        let tool = Tool::new("sh").args(["-ec", &shell]).limit(Duration::from_secs(120)).env("PATH", &path);
        let tool = tool.env("HOME", &seat.home).env("XDG_CONFIG_HOME", seat.home.join(".config"));
        let (output, printed) = told(0, &tool.run().unwrap(), &[&line]);
        last = output.trim_end().to_owned();
        if line.contains("join-token") {
            let data = field.place("cluster");
            std::fs::create_dir_all(data.join("run7")).unwrap();
            std::fs::write(data.join("run7/a"), "a").unwrap();
            for directory in [data.clone(), data.join("run7")] {
                use std::os::unix::fs::PermissionsExt as _;
                std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o777)).unwrap();
            }
            server = Some(joins_as_printed(&field, &seat.home, &printed, &data));
        }
    }
    seat.ends(0, &["task", "wait", &last]);
    assert_eq!(std::fs::read(field.place("cluster/archive/run7/a")).unwrap(), b"a");
    drop(server);
}
