//! The script that `sshftp://` clients start over ssh.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use whimbrel_dtn::front::stdio;
use whimbrel_engine::Fault;

use super::DtnArgs;
use crate::output::lines;

const OP: &str = "make the script for sshftp";

/// Writes the script, with the other arguments of this command line; nothing is overwritten.
pub(super) fn install(args: DtnArgs, file: Option<PathBuf>) -> Result<(), Fault> {
    // What could not be served is not installed.
    args.into_config()?.data_settings()?;
    let failed = |error| Fault::from_io(error, OP);
    let path = file.map_or_else(stdio::script_of_sshftp, Ok)?;
    let told = |error| failed(error).subject(path.display().to_string());
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(told)?;
    }
    let program = std::env::current_exe().map_err(failed)?;
    let text = script(&program, std::env::args_os().skip(1));
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(&path).map_err(told)?;
    file.write_all(&text).map_err(told)?;
    lines::line(&format!("{} made", path.display()));
    Ok(())
}

fn script(program: &Path, arguments: impl Iterator<Item = OsString>) -> Vec<u8> {
    let mut text =
        b"#!/bin/sh\n# Started over ssh for clients of sshftp://; made by `whimbrel dtn --install-sshftp`.\n".to_vec();
    text.extend_from_slice(b"# GLOBUS_TCP_PORT_RANGE=50000,51000; export GLOBUS_TCP_PORT_RANGE\nexec ");
    text.extend(quoted(program.as_os_str()));
    let kept = arguments.filter(|argument| !argument.as_bytes().starts_with(b"--install-sshftp"));
    for argument in kept.chain([OsString::from("--stdio")]) {
        text.push(b' ');
        text.extend(quoted(&argument));
    }
    text.push(b'\n');
    text
}

/// As one word of a shell.
fn quoted(word: &OsStr) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./:,=+@".contains(byte);
    if !word.is_empty() && word.as_bytes().iter().all(plain) {
        return word.as_bytes().to_vec();
    }
    let inner = word.as_bytes().iter().flat_map(|byte| match byte {
        b'\'' => b"'\\''".to_vec(),
        other => vec![*other],
    });
    [b'\''].into_iter().chain(inner).chain([b'\'']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_starts_this_program_with_the_options_given() {
        let arguments = ["dtn", "--install-sshftp=/x", "--root", "/a b/it's"].map(OsString::from);
        let text = String::from_utf8(script(Path::new("/opt/whimbrel"), arguments.into_iter())).unwrap();
        assert!(text.starts_with("#!/bin/sh\n"), "{text}");
        assert!(text.ends_with("\nexec /opt/whimbrel dtn --root '/a b/it'\\''s' --stdio\n"), "{text}");
    }
}
