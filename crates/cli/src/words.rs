//! The words of the command line, and what of them others must not see: `ps` shows them to everybody on the host.

use std::env;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

/// Options whose value is a secret.
const SECRET: [&[u8]; 1] = [b"--token"];

/// Where the words begin in memory, of the fields of `/proc/PID/stat` (proc(5)); the first behind the program's name is number 3.
const ARG_START: usize = 48;

/// All words; in the memory that the kernel shows as `/proc/PID/cmdline`, passwords in URLs and tokens are crossed out from now on.
///
/// Whoever looked before that has seen them, as with any program.
pub fn take() -> Vec<OsString> {
    let words: Vec<OsString> = env::args_os().collect();
    let secrets = secrets(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
    if !secrets.is_empty()
        && let Err(error) = cross_out(&words, &secrets)
    {
        eprintln!("whimbrel: others on this host can see the secrets on this command line: {error}");
    }
    words
}

/// Where secrets are among the words, each of which ends with a NUL.
fn secrets(words: &[&[u8]]) -> Vec<Range<usize>> {
    let (mut found, mut at, mut is_secret) = (Vec::new(), 0, false);
    for word in words {
        let within = if is_secret { Some(0..word.len()) } else { secret_value(word).or_else(|| password(word)) };
        found.extend(within.filter(|part| !part.is_empty()).map(|part| at + part.start..at + part.end));
        is_secret = SECRET.contains(word);
        at += word.len() + 1;
    }
    found
}

/// Of `--option=value`.
fn secret_value(word: &[u8]) -> Option<Range<usize>> {
    let equals = word.iter().position(|&byte| byte == b'=')?;
    SECRET.contains(&&word[..equals]).then_some(equals + 1..word.len())
}

/// The password of `scheme://user:password@host...`.
fn password(word: &[u8]) -> Option<Range<usize>> {
    let start = word.windows(3).position(|three| three == b"://")? + 3;
    let end = word[start..].iter().position(|&byte| byte == b'/').map_or(word.len(), |slash| start + slash);
    let at = start + word[start..end].iter().rposition(|&byte| byte == b'@')?;
    let colon = start + word[start..at].iter().position(|&byte| byte == b':')?;
    Some(colon + 1..at)
}

fn cross_out(words: &[OsString], secrets: &[Range<usize>]) -> io::Result<()> {
    let start = arg_start(&fs::read_to_string("/proc/self/stat")?).ok_or(io::ErrorKind::Unsupported)?;
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem")?;
    let expected: Vec<u8> = words.iter().flat_map(|word| word.as_bytes().iter().copied().chain([0])).collect();
    let mut there = vec![0; expected.len()];
    memory.read_exact_at(&mut there, start)?;
    if there != expected {
        return Err(io::Error::other("they are not where the kernel says"));
    }
    secrets.iter().try_for_each(|part| memory.write_all_at(&vec![b'x'; part.len()], start + part.start as u64))
}

/// Of a `/proc/PID/stat`; the program's name, in parentheses, may hold anything.
fn arg_start(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(ARG_START - 3)?.parse().ok().filter(|&start| start > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_tokens_are_found_and_nothing_else() {
        let crossed_out = |words: &[&str]| {
            let mut memory = words.iter().flat_map(|word| word.bytes().chain([0])).collect::<Vec<u8>>();
            for part in secrets(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>()) {
                memory[part].fill(b'x');
            }
            let text = String::from_utf8(memory).unwrap();
            text.trim_end_matches('\0').replace('\0', " ")
        };
        let cases: &[(&[&str], &str)] = &[
            (&["w", "cp", "ftp://anna:s3:c@h/a:b@c", "x"], "w cp ftp://anna:xxxx@h/a:b@c x"),
            (
                &["w", "ftp://h:21/a@b", "anna@h:/a", "ftp://anna@h/", "ftp://anna:@h"],
                "w ftp://h:21/a@b anna@h:/a ftp://anna@h/ ftp://anna:@h",
            ),
            (&["w", "ftp://u:p@w@h"], "w ftp://u:xxx@h"),
            (&["w", "--token", "abc", "--token=de", "--tokens", "f"], "w --token xxx --token=xx --tokens f"),
            (&["w", "--token"], "w --token"),
        ];
        for (words, expected) in cases {
            assert_eq!(crossed_out(words), *expected);
        }
    }

    #[test]
    fn the_place_of_the_words_is_read_whatever_the_program_is_called() {
        let stat = format!("7 (a) b) {}", (3..=52).map(|field| format!("{field}0 ")).collect::<String>());
        assert_eq!(arg_start(&stat), Some(480));
        assert_eq!(arg_start("7 (short) R 1"), None);
    }
}
