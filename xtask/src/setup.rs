//! System packages: installed by name when that is allowed here, named exactly when it is not.

use crate::command::{Result, exists, output, program, root, run};

/// A program that tests or benchmarks call, and the Debian package that brings it.
const PROGRAMS: &[(&str, &str)] = &[
    ("cc", "build-essential"),
    ("pkg-config", "pkg-config"),
    ("openssl", "openssl"),
    ("globus-gridftp-server", "globus-gridftp-server-progs"),
    ("globus-url-copy", "globus-gass-copy-progs"),
    ("grid-proxy-init", "globus-proxy-utils"),
    ("ssh", "openssh-client"),
    ("sshd", "openssh-server"),
    ("krb5kdc", "krb5-kdc"),
    ("kadmin.local", "krb5-admin-server"),
    ("kinit", "krb5-user"),
    ("lftp", "lftp"),
    ("curl", "curl"),
    ("python3", "python3"),
    ("ip", "iproute2"),
    ("iperf3", "iperf3"),
    ("strace", "strace"),
];

/// The first programs are needed to build.
const FOR_BUILDING: usize = 2;

/// Libraries that are linked.
const LINKED: &[(&str, &str)] = &[("libssl-dev", "/usr/include/openssl/ssl.h")];

/// Packages without a program of their own, and a file that shows they are there.
const LIBRARIES: &[(&str, &str)] = &[
    ("gfal2-plugin-gridftp", "/usr/lib/x86_64-linux-gnu/gfal2-plugins/libgfal_plugin_gridftp.so"),
    ("gfal2-plugin-file", "/usr/lib/x86_64-linux-gnu/gfal2-plugins/libgfal_plugin_file.so"),
    ("postgresql", "/usr/lib/postgresql/15/bin/initdb"),
    ("python3-gfal2", "/usr/lib/python3/dist-packages/gfal2.cpython-311-x86_64-linux-gnu.so"),
];

/// Installs what is missing.
pub fn run_for(packages: &[&str]) -> Result {
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    if !exists("apt-get") {
        return Err(format!("These Debian packages (or what stands for them here) are missing: {list}"));
    }
    if output(&mut program("id", &["-u"]))?.trim() != "0" {
        return Err(format!("Missing system packages. As root: apt-get install {list}"));
    }
    run(&mut program("apt-get", &["update", "-qq"]))?;
    let mut install = program("apt-get", &["install", "-y", "-qq", "--no-install-recommends"]);
    run(install.args(packages).env("DEBIAN_FRONTEND", "noninteractive"))
}

/// Everything that tests and benchmarks need.
pub fn run_all() -> Result {
    run_for(&missing())?;
    environments()
}

/// Python programs that tests call, each in an environment of its own: its name, and a program in it.
const ENVIRONMENTS: &[(&str, &str)] =
    &[("globus-cli", "globus"), ("globusfs", "python"), ("parsl", "python"), ("openid", "python")];

/// Makes the environments that are not there, under `target/peers`.
fn environments() -> Result {
    for (name, shown) in ENVIRONMENTS {
        let place = root().join("target/peers").join(name);
        let (wanted, done) = (root().join("xtask/peers").join(format!("{name}.txt")), place.join("installed.txt"));
        let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
        // Programs of an environment that was moved name an interpreter that is gone.
        let shown = std::process::Command::new(place.join("bin").join(shown)).arg("--help").output();
        if shown.is_ok_and(|shown| shown.status.success()) && read(&done) == read(&wanted) {
            continue;
        }
        if output(&mut program("python3", &["-c", "import ensurepip"])).is_err() {
            run_for(&["python3-venv"])?;
        }
        run(program("python3", &["-m", "venv", "--clear"]).arg(&place))?;
        let mut install = std::process::Command::new(place.join("bin/pip"));
        run(install.args(["install", "--quiet", "--no-deps", "--disable-pip-version-check", "-r"]).arg(&wanted))?;
        std::fs::copy(&wanted, &done).map_err(|error| format!("{}: {error}", done.display()))?;
    }
    Ok(())
}

/// What only building and the demo need.
pub fn run_for_building() -> Result {
    run_for(&missing_from(&PROGRAMS[..FOR_BUILDING], LINKED))
}

/// `cargo xtask setup`.
pub fn run_command() -> Result {
    run_all()?;
    println!("Every system package is there.");
    Ok(())
}

fn missing() -> Vec<&'static str> {
    missing_from(PROGRAMS, &[LINKED, LIBRARIES].concat())
}

/// The packages of programs and files that are not here.
fn missing_from(programs: &[(&str, &'static str)], files: &[(&'static str, &str)]) -> Vec<&'static str> {
    let programs = programs.iter().filter(|(name, _)| !exists(name)).map(|(_, package)| *package);
    let installed = |package: &str, file: &str| {
        // The module's file name carries the interpreter's version: ask the packager when it differs.
        std::path::Path::new(file).exists()
            || output(&mut program("dpkg-query", &["-W", "-f", "${db:Status-Abbrev}", package]))
                .is_ok_and(|status| status.starts_with("ii"))
    };
    let libraries = files.iter().filter(|(package, file)| !installed(package, file)).map(|(package, _)| *package);
    programs.chain(libraries).collect()
}
