//! Verification as a user of the peers gets it: `CKSM` at both ends at once, because their client has none.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;

use crate::Outcome;
use crate::servers::Pair;

/// Asks both ends for MD5, in parallel, and compares.
pub fn md5_at_both_ends(pair: &Pair, source: &Path, destination: &Path) -> Outcome<()> {
    let (one, other) = thread::scope(|scope| {
        let other = scope.spawn(|| md5(pair.destination.address, destination));
        (md5(pair.source.address, source), other.join().expect("a control session does not panic"))
    });
    if one? == other? { Ok(()) } else { Err("source and destination differ".into()) }
}

/// One control session for one checksum (GridFTP `CKSM`, GFD.47 §4).
fn md5(server: SocketAddr, path: &Path) -> Outcome<String> {
    let stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    let mut session = BufReader::new(stream);
    expect(&mut session, &["220"])?;
    let path = path.as_os_str().as_bytes();
    say(&mut session, b"USER anonymous")?;
    if expect(&mut session, &["331", "230"])?.starts_with("331") {
        say(&mut session, b"PASS bench@")?;
        expect(&mut session, &["230"])?;
    }
    say(&mut session, &[b"CKSM MD5 0 -1 ", path].concat())?;
    let sum = expect(&mut session, &["213"])?[4..].trim().to_owned();
    say(&mut session, b"QUIT")?;
    expect(&mut session, &["221"])?;
    Ok(sum)
}

fn say(session: &mut BufReader<TcpStream>, command: &[u8]) -> Outcome<()> {
    session.get_mut().write_all(&[command, b"\r\n"].concat())?;
    Ok(())
}

/// The last line of the next final reply, which must have one of these codes; markers (1yz) are passed over.
fn expect(session: &mut impl BufRead, codes: &[&str]) -> Outcome<String> {
    loop {
        let mut line = Vec::new();
        if session.read_until(b'\n', &mut line)? == 0 {
            return Err("the server closed the control connection".into());
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        // RFC 959 §4.2: a reply ends with the line that has a space after its code.
        let last = line.len() > 3 && line.as_bytes()[3] == b' ' && line.as_bytes()[..3].iter().all(u8::is_ascii_digit);
        if last && !line.starts_with('1') {
            let wanted = codes.iter().any(|code| line.starts_with(code));
            return if wanted { Ok(line) } else { Err(format!("unexpected reply: {line}").into()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_and_continued_lines_are_passed_over() {
        let text = "113-Status Marker\r\n Bytes: 1\r\n113 End\r\n213-two\r\n213 abc\r\n";
        assert_eq!(expect(&mut text.as_bytes(), &["213"]).expect("a reply"), "213 abc");
        assert!(expect(&mut "500 what?\r\n".as_bytes(), &["213"]).is_err());
        assert!(expect(&mut "".as_bytes(), &["213"]).is_err());
    }
}
