//! A server of the oldest kind: neither FEAT nor machine listings, and links shown as what they lead to.

#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread;

use support::{Field, expect, names};

/// Serves the whole file system, to look and to remove, as RFC 959 has it; its URL.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ftp://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            // A client that goes is what ends each.
            thread::spawn(move || drop(talk(client)));
        }
    });
    url
}

/// That it is done, or 550 with why not.
fn told<T>(result: io::Result<T>, code: u16) -> String {
    match result {
        Ok(_) => format!("{code} Done.\r\n"),
        Err(error) => format!("550 {error}\r\n"),
    }
}

/// As `ls -la`, of what names lead to.
fn listing(directory: &Path, all: bool) -> io::Result<String> {
    let line = |kind, size, name: &str| format!("{kind}rw-r--r-- 1 u g {size} Nov 21 01:59 {name}\r\n");
    let mut text = if all { line('d', 40, ".") } else { String::new() };
    for entry in fs::read_dir(directory)? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name().into_string().unwrap()))?;
        let there = fs::metadata(path)?;
        text += &line(if there.is_dir() { 'd' } else { '-' }, there.len(), &name);
    }
    Ok(text)
}

fn talk(mut client: TcpStream) -> io::Result<()> {
    client.write_all(b"220 Hello\r\n")?;
    let mut passive: Option<TcpListener> = None;
    for line in BufReader::new(client.try_clone()?).lines() {
        let line = line?;
        let (word, argument) = line.split_once(' ').unwrap_or((&line, ""));
        let (all, name) = argument.strip_prefix("-a ").map_or((false, argument), |name| (true, name));
        let path = Path::new(name);
        let reply = match word {
            "USER" => "331 Password, please.\r\n".to_owned(),
            "PASS" => "230 Welcome.\r\n".to_owned(),
            "TYPE" => "200 Fine.\r\n".to_owned(),
            "PWD" => "257 \"/\"\r\n".to_owned(),
            "CWD" => told(fs::read_dir(path), 250),
            "SIZE" => match fs::metadata(path) {
                Ok(there) if there.is_file() => format!("213 {}\r\n", there.len()),
                _ => "550 No such file.\r\n".to_owned(),
            },
            "DELE" => told(fs::remove_file(path), 250),
            "RMD" => told(fs::remove_dir(path), 250),
            "PASV" => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let [high, low] = listener.local_addr()?.port().to_be_bytes();
                passive = Some(listener);
                format!("227 Passive (127,0,0,1,{high},{low})\r\n")
            }
            "LIST" => match passive.take() {
                Some(listener) => {
                    client.write_all(b"150 Here it comes.\r\n")?;
                    let (mut data, _) = listener.accept()?;
                    told(listing(path, all).and_then(|text| data.write_all(text.as_bytes())), 226)
                }
                None => "425 No listener.\r\n".to_owned(),
            },
            _ => "500 What?\r\n".to_owned(),
        };
        client.write_all(reply.as_bytes())?;
    }
    Ok(())
}

fn at(url: &str, path: &Path) -> String {
    format!("{url}{}", path.display())
}

#[test]
fn trees_are_removed_and_nothing_that_links_lead_to() {
    let (url, field) = (serve(), Field::new());
    for directory in ["to/run/in", "to/reference/deep", "to/other"] {
        fs::create_dir_all(field.path(directory)).unwrap();
    }
    for file in ["to/run/a", "to/run/in/b", "to/reference/deep/c", "to/other/d"] {
        fs::write(field.path(file), "bytes").unwrap();
    }
    symlink("../reference", field.path("to/run/reference")).unwrap();
    symlink("..", field.path("to/run/in/up")).unwrap();
    symlink("other", field.path("to/link")).unwrap();
    for gone in ["to/run", "to/link"] {
        expect(0, ["rm", "-r", &at(&url, &field.path(gone))]);
    }
    assert_eq!(names(&field.path("to")), ["other", "reference"]);
    assert_eq!(fs::read(field.path("to/reference/deep/c")).unwrap(), b"bytes");
    assert_eq!(fs::read(field.path("to/other/d")).unwrap(), b"bytes");
}

#[test]
fn what_is_there_is_known_before_anything_is_copied() {
    let (url, field) = (serve(), Field::new());
    let from = field.path("from/one").to_string_lossy().into_owned();
    fs::write(field.path("to/one"), "before").unwrap();
    expect(0, ["cp", "--sync", "exists", &from, &at(&url, &field.path("to/one"))]);
    assert_eq!(fs::read(field.path("to/one")).unwrap(), b"before");
    let planned = expect(0, ["cp", "--dry-run", &from, &at(&url, &field.path("to"))]).stdout_text();
    assert!(planned.contains(&*field.path("to/one").to_string_lossy()), "into the directory that is there: {planned}");
    let listed = expect(0, ["ls", &at(&url, &field.path("to"))]);
    assert_eq!(listed.stdout_text(), "one\n");
}
