//! The transfer log, in the classic form and as JSON: one line, one write.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use whimbrel_engine::Fault;
use whimbrel_proto::timeval::Timestamp;

/// Where finished transfers are written down.
#[derive(Debug, Default)]
pub struct TransferLog {
    host: String,
    classic: Option<File>,
    json: Option<File>,
}

/// One finished transfer.
#[derive(Debug, Clone)]
pub struct Record<'a> {
    /// When it began.
    pub began: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// Login name.
    pub user: &'a str,
    /// File or directory.
    pub path: &'a [u8],
    /// Socket buffer asked for, bytes; 0: tuned by the kernel.
    pub buffer: u32,
    /// Storage block, bytes.
    pub block: usize,
    /// Bytes moved.
    pub bytes: u64,
    /// Data connections.
    pub streams: usize,
    /// Stripes.
    pub stripes: usize,
    /// The other end of the data connection.
    pub peer: Option<IpAddr>,
    /// Command: RETR, STOR, ERET, ...
    pub kind: &'a str,
    /// Reply code.
    pub code: u16,
    /// SITE TASKID, or `none`.
    pub task: &'a str,
    /// SITE CLIENTINFO.
    pub client: Option<&'a str>,
}

impl TransferLog {
    /// Into these files, which must have been opened for appending.
    pub fn to(classic: Option<File>, json: Option<File>) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
        Self { host: host.map_or_else(|_| "localhost".to_owned(), |name| name.trim().to_owned()), classic, json }
    }

    /// Whether anything is written at all.
    pub fn is_on(&self) -> bool {
        self.classic.is_some() || self.json.is_some()
    }

    /// Writes one transfer down; a log that cannot be written fails no transfer.
    pub fn write(&self, record: &Record<'_>) {
        let lines = [(&self.classic, classic_line as fn(&str, &Record<'_>) -> Vec<u8>), (&self.json, json_line)];
        for (file, line) in lines {
            let Some(mut file) = file.as_ref() else {
                continue;
            };
            // One write call with O_APPEND: lines of several processes do not mix.
            if let Err(error) = file.write_all(&line(&self.host, record)) {
                tracing::error!(%error, "the transfer log cannot be written");
            }
        }
    }
}

/// Opens a file for appending; makes it if need be.
pub fn append_to(path: &Path) -> Result<File, Fault> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|error| Fault::from_io(error, "open transfer log").subject(path.display().to_string()))
}

/// `YYYYMMDDHHMMSS.microseconds`, UTC.
fn stamp(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = Timestamp::from_secs(since.as_secs() as i64);
    format!("{}.{:06}", time.to_wire(), since.subsec_micros())
}

/// Control characters would end the line; they and `%` are percent-encoded, the rest stays raw.
fn one_line(raw: &[u8], out: &mut Vec<u8>) {
    for &byte in raw {
        if byte < b' ' || byte == 127 || byte == b'%' {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            out.push(byte);
        }
    }
}

/// The line of the Grid Community Toolkit's server, which sites parse.
fn classic_line(host: &str, r: &Record<'_>) -> Vec<u8> {
    let mut line =
        format!("DATE={} HOST={host} PROG=whimbrel NL.EVNT=FTP_INFO START={} USER=", stamp(r.ended), stamp(r.began))
            .into_bytes();
    one_line(r.user.as_bytes(), &mut line);
    line.extend_from_slice(b" FILE=");
    one_line(r.path, &mut line);
    let peer = r.peer.map_or_else(|| "0.0.0.0".to_owned(), |ip| ip.to_string());
    let rest = format!(
        " BUFFER={} BLOCK={} NBYTES={} VOLUME=/ STREAMS={} STRIPES={} DEST=[{peer}] TYPE={} CODE={} TASKID=",
        r.buffer, r.block, r.bytes, r.streams, r.stripes, r.kind, r.code
    );
    line.extend_from_slice(rest.as_bytes());
    one_line(r.task.as_bytes(), &mut line);
    line.push(b'\n');
    line
}

#[derive(Serialize)]
struct JsonRecord<'a> {
    ended: String,
    began: String,
    seconds: f64,
    host: &'a str,
    user: &'a str,
    /// Lossy where the name is not UTF-8.
    file: String,
    buffer: u32,
    block: usize,
    bytes: u64,
    streams: usize,
    stripes: usize,
    peer: Option<IpAddr>,
    #[serde(rename = "type")]
    kind: &'a str,
    code: u16,
    task: &'a str,
    client: Option<&'a str>,
}

fn json_line(host: &str, r: &Record<'_>) -> Vec<u8> {
    let took = r.ended.duration_since(r.began).unwrap_or_default();
    let record = JsonRecord {
        ended: stamp(r.ended),
        began: stamp(r.began),
        seconds: took.as_secs_f64(),
        host,
        user: r.user,
        file: String::from_utf8_lossy(r.path).into_owned(),
        buffer: r.buffer,
        block: r.block,
        bytes: r.bytes,
        streams: r.streams,
        stripes: r.stripes,
        peer: r.peer,
        kind: r.kind,
        code: r.code,
        task: r.task,
        client: r.client,
    };
    let mut line = serde_json::to_vec(&record).expect("strings and numbers serialise");
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn record() -> Record<'static> {
        let began = UNIX_EPOCH + Duration::from_micros(1_795_229_046_342_876);
        Record {
            began,
            ended: began + Duration::from_micros(445),
            user: "anonymous",
            path: b"/d/hello",
            buffer: 131_072,
            block: 262_144,
            bytes: 6,
            streams: 1,
            stripes: 1,
            peer: Some("127.0.0.1".parse().unwrap()),
            kind: "RETR",
            code: 226,
            task: "none",
            client: None,
        }
    }

    #[test]
    fn a_line_is_that_of_the_stock_server_but_for_the_program() {
        let line = String::from_utf8(classic_line("h", &record())).unwrap();
        assert_eq!(
            line,
            "DATE=20261121024406.343321 HOST=h PROG=whimbrel NL.EVNT=FTP_INFO START=20261121024406.342876 \
             USER=anonymous FILE=/d/hello BUFFER=131072 BLOCK=262144 NBYTES=6 VOLUME=/ STREAMS=1 STRIPES=1 \
             DEST=[127.0.0.1] TYPE=RETR CODE=226 TASKID=none\n"
        );
    }

    #[test]
    fn a_name_cannot_forge_a_line() {
        let path = b"/a\nDATE=1 \xff%";
        let line = classic_line("h", &Record { path, ..record() });
        assert_eq!(line.iter().filter(|&&b| b == b'\n').count(), 1);
        let needle = b"FILE=/a%0ADATE=1 \xff%25 BUFFER";
        assert!(line.windows(needle.len()).any(|window| window == needle));
    }

    #[test]
    fn lines_are_appended_to_both_files() {
        let dir = tempfile::tempdir().unwrap();
        let log = TransferLog {
            host: "h".to_owned(),
            classic: Some(append_to(&dir.path().join("log")).unwrap()),
            json: Some(append_to(&dir.path().join("json")).unwrap()),
        };
        log.write(&record());
        log.write(&record());
        let classic = std::fs::read_to_string(dir.path().join("log")).unwrap();
        assert_eq!(classic.lines().count(), 2);
        let json = std::fs::read_to_string(dir.path().join("json")).unwrap();
        let value: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
        assert_eq!((&value["bytes"], &value["type"]), (&6.into(), &"RETR".into()));
    }
}
