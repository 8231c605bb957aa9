//! A server of the oldest kind: neither FEAT nor machine listings, and links shown as what they lead to.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;

/// Serves the whole file system as RFC 959 has it, in streams, with SIZE; its URL.
pub fn serve() -> String {
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

/// What LIST, RETR and STOR move over the connection that is to come.
fn moved(word: &str, argument: &str, listener: &TcpListener) -> io::Result<()> {
    let (all, name) = argument.strip_prefix("-a ").map_or((false, argument), |name| (true, name));
    let (mut data, _) = listener.accept()?;
    match word {
        "LIST" => data.write_all(listing(Path::new(name), all)?.as_bytes()),
        "RETR" => io::copy(&mut fs::File::open(name)?, &mut data).map(drop),
        _ => io::copy(&mut data, &mut fs::File::create(name)?).map(drop),
    }
}

fn talk(mut client: TcpStream) -> io::Result<()> {
    client.write_all(b"220 Hello\r\n")?;
    let mut passive: Option<TcpListener> = None;
    let mut renamed = String::new();
    for line in BufReader::new(client.try_clone()?).lines() {
        let line = line?;
        let (word, argument) = line.split_once(' ').unwrap_or((&line, ""));
        let path = Path::new(argument);
        let reply = match word {
            "USER" => "331 Password, please.\r\n".to_owned(),
            "PASS" => "230 Welcome.\r\n".to_owned(),
            "TYPE" => "200 Fine.\r\n".to_owned(),
            "MODE" if argument == "S" => "200 Fine.\r\n".to_owned(),
            "MODE" => "504 Streams only.\r\n".to_owned(),
            "PWD" => "257 \"/\"\r\n".to_owned(),
            "CWD" => told(fs::read_dir(path), 250),
            "SIZE" => match fs::metadata(path) {
                Ok(there) if there.is_file() => format!("213 {}\r\n", there.len()),
                _ => "550 No such file.\r\n".to_owned(),
            },
            "DELE" => told(fs::remove_file(path), 250),
            "MKD" => told(fs::create_dir(path), 257),
            "RMD" => told(fs::remove_dir(path), 250),
            "RNFR" => {
                renamed = argument.to_owned();
                "350 And to what?\r\n".to_owned()
            }
            "RNTO" => told(fs::rename(&renamed, path), 250),
            "PASV" => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let [high, low] = listener.local_addr()?.port().to_be_bytes();
                passive = Some(listener);
                format!("227 Passive (127,0,0,1,{high},{low})\r\n")
            }
            "LIST" | "RETR" | "STOR" => match passive.take() {
                Some(listener) => {
                    client.write_all(b"150 Here it comes.\r\n")?;
                    told(moved(word, argument, &listener), 226)
                }
                None => "425 No listener.\r\n".to_owned(),
            },
            _ => "500 What?\r\n".to_owned(),
        };
        client.write_all(reply.as_bytes())?;
    }
    Ok(())
}
