//! A server for tests that lets everybody in, makes every directory, and tells which start of its host it belongs to.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::client::target::Target;

/// It serves as long as the runtime of its test lives.
pub struct Stub {
    /// Where it is.
    pub target: Target,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    starts: AtomicU32,
    is_busy: AtomicBool,
}

impl Stub {
    /// One with time for everybody.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target::anonymous("127.0.0.1", listener.local_addr().unwrap().port());
        let stub = Self { target, state: Arc::default() };
        tokio::spawn(serve(listener, stub.state.clone()));
        stub
    }

    /// Who comes from now on is told of another start of the host.
    pub fn restart(&self) {
        self.state.starts.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it sends everybody away who comes from now on.
    pub fn set_busy(&self, is_busy: bool) {
        self.state.is_busy.store(is_busy, Ordering::Relaxed);
    }
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(talk(stream, state.clone()));
    }
}

async fn talk(mut stream: TcpStream, state: Arc<State>) -> io::Result<()> {
    if state.is_busy.load(Ordering::Relaxed) {
        return stream.write_all(b"421 Busy.\r\n").await;
    }
    let features = format!("211-Extensions\r\n SYNC host-{}\r\n211 End\r\n", state.starts.load(Ordering::Relaxed));
    let (from, mut to) = stream.split();
    to.write_all(b"220 Ready.\r\n").await?;
    let mut lines = BufReader::new(from).lines();
    while let Some(line) = lines.next_line().await? {
        let reply = match line.split(' ').next().unwrap_or_default() {
            "USER" => "331 Password, please.\r\n",
            "PASS" => "230 Welcome.\r\n",
            "FEAT" => features.as_str(),
            "MKD" => "257 \"/made\" created.\r\n",
            _ => "200 Done.\r\n",
        };
        to.write_all(reply.as_bytes()).await?;
    }
    Ok(())
}
