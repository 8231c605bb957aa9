//! A control connection in the test's own hands, to say what no decent client says.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use super::dtn::PATIENCE;

/// A control connection; no reply may take longer than [`PATIENCE`].
pub struct Control {
    stream: TcpStream,
    input: BufReader<TcpStream>,
}

/// A final or intermediate reply: its code, and all its lines.
#[derive(Debug)]
pub struct Reply {
    /// Three digits.
    pub code: u16,
    /// Everything, with line ends.
    pub text: String,
}

impl Control {
    /// Connects, and reads the greeting.
    #[track_caller]
    pub fn open(server: SocketAddr) -> Control {
        let mut control = Control::silent(server);
        assert_eq!(control.reply().code, 220);
        control
    }

    /// Connects and hears nothing yet.
    pub fn silent(server: SocketAddr) -> Control {
        Control::over(TcpStream::connect(server).expect("the server listens"))
    }

    /// Takes a connection over; nothing was heard yet.
    pub fn over(stream: TcpStream) -> Control {
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        stream.set_nodelay(true).expect("a socket takes an option");
        Control { input: BufReader::new(stream.try_clone().expect("cloned")), stream }
    }

    /// Connects and logs in.
    #[track_caller]
    pub fn login(server: SocketAddr) -> Control {
        let mut control = Control::open(server);
        assert_eq!(control.ask("USER anonymous").code, 331);
        assert_eq!(control.ask("PASS x@").code, 230);
        control
    }

    /// Logs in, for extended block mode with an own listener of the server; its data address comes too.
    #[track_caller]
    pub fn extended(server: SocketAddr) -> (Control, SocketAddr) {
        let mut control = Control::login(server);
        control.ask_for(200, "TYPE I");
        control.ask_for(200, "MODE E");
        let data = control.passive();
        (control, data)
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a line.
    pub fn say(&mut self, line: &str) {
        self.send(format!("{line}\r\n").as_bytes()).expect("the server takes a line");
    }

    /// Sends a line and reads the reply.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> Reply {
        self.say(line);
        self.reply()
    }

    /// Sends a line and expects this code.
    #[track_caller]
    pub fn ask_for(&mut self, code: u16, line: &str) -> Reply {
        let reply = self.ask(line);
        assert_eq!(reply.code, code, "{line}: {}", reply.text);
        reply
    }

    /// The next reply, which may have many lines (RFC 959 §4.2).
    #[track_caller]
    pub fn reply(&mut self) -> Reply {
        self.try_reply().expect("a reply comes")
    }

    /// The next reply, or why there is none.
    pub fn try_reply(&mut self) -> io::Result<Reply> {
        let mut text = String::new();
        loop {
            let start = text.len();
            if self.input.read_line(&mut text)? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("closed after {text:?}")));
            }
            let line = &text[start..];
            let code = line.get(..3).and_then(|code| code.parse().ok());
            if let (Some(code), Some(" ")) = (code, line.get(3..4)) {
                return Ok(Reply { code, text });
            }
        }
    }

    /// Bytes that came, at least one.
    pub fn receive(&mut self) -> io::Result<Vec<u8>> {
        // Unlike `fill_buf` this goes on when it is interrupted, as reads with a time-out are by every stop of the process (signal(7)).
        let mut bytes = vec![0];
        self.input.read_exact(&mut bytes)?;
        bytes.extend_from_slice(self.input.buffer());
        self.input.consume(bytes.len() - 1);
        Ok(bytes)
    }

    /// The connection itself; whatever was read ahead is lost.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Replies up to the first that is no preliminary one.
    #[track_caller]
    pub fn last_reply(&mut self) -> Reply {
        loop {
            let reply = self.reply();
            if reply.code >= 200 {
                return reply;
            }
        }
    }

    /// PASV.
    #[track_caller]
    pub fn passive(&mut self) -> SocketAddr {
        let reply = self.ask_for(227, "PASV");
        let list = reply.text.split(['(', ')']).nth(1).expect("an address in parentheses");
        address(list)
    }

    /// SPAS: one address for each node.
    #[track_caller]
    pub fn striped_passive(&mut self) -> Vec<SocketAddr> {
        let reply = self.ask_for(229, "SPAS");
        reply.text.lines().filter(|line| line.starts_with(' ')).map(|line| address(line.trim())).collect()
    }

    /// Says that nothing more will come, and reads what is left until the server closes too.
    pub fn end(mut self) -> String {
        // A server that has closed already is fine.
        let _ = self.stream.shutdown(Shutdown::Write);
        let mut rest = Vec::new();
        let _ = self.input.read_to_end(&mut rest);
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// Vanishes with a reset.
    pub fn vanish(self) {
        drop(self.input);
        vanish(self.stream);
    }

    /// A shorter wait for replies than usual.
    pub fn patience(&self, limit: Duration) {
        self.stream.set_read_timeout(Some(limit)).expect("a socket takes a timeout");
    }
}

/// Ends a connection by a reset, as when a process is killed with data unread.
pub fn vanish(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("a socket takes an option");
}

/// One block header of extended block mode (GFD.20 §3.4): flags, length and offset.
pub fn header(descriptor: u8, count: u64, offset: u64) -> [u8; 17] {
    let mut header = [0; 17];
    header[0] = descriptor;
    header[1..9].copy_from_slice(&count.to_be_bytes());
    header[9..].copy_from_slice(&offset.to_be_bytes());
    header
}

/// A block with payload.
pub fn block(descriptor: u8, offset: u64, payload: &[u8]) -> Vec<u8> {
    [&header(descriptor, payload.len() as u64, offset)[..], payload].concat()
}

/// Of six decimal numbers (RFC 959 §4.1.2).
pub fn address(list: &str) -> SocketAddr {
    let numbers: Vec<u8> = list.split(',').map(|number| number.parse().expect("a number of an address")).collect();
    let &[a, b, c, d, high, low] = &numbers[..] else { panic!("{list} is no address") };
    SocketAddr::new(IpAddr::from([a, b, c, d]), u16::from_be_bytes([high, low]))
}
