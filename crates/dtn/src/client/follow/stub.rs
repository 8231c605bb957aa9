//! A server for tests that lets everybody in and makes every directory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    let (from, mut to) = stream.split();
    to.write_all(b"220 Ready.\r\n").await?;
    let mut lines = BufReader::new(from).lines();
    while let Some(line) = lines.next_line().await? {
        let reply = match line.split(' ').next().unwrap_or_default() {
            "USER" => "331 Password, please.\r\n",
            "PASS" => "230 Welcome.\r\n",
            "FEAT" => "211-Extensions\r\n211 End\r\n",
            "MKD" => "257 \"/made\" created.\r\n",
            _ => "200 Done.\r\n",
        };
        to.write_all(reply.as_bytes()).await?;
    }
    Ok(())
}
