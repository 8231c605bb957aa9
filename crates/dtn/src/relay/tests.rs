//! The process as strangers meet it.

use tokio::net::TcpSocket;
use tokio::task::JoinHandle;
use whimbrel_proto::relay::{Part, Token};

use super::*;

const TOKEN: Token = [7; 32];

/// A process that serves, and the front's end of its channel.
struct Field {
    front: Option<Line>,
    address: SocketAddr,
    serving: JoinHandle<Result<(), Fault>>,
}

impl Field {
    async fn new() -> Self {
        Self::with(IDLE).await
    }

    async fn with(idle: Duration) -> Self {
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (front, relay) = Channel::pair().unwrap();
        front.send(&ToRelay::Listen, &[listener.as_fd()]).unwrap();
        Self { front: Some(Line::new(front).unwrap()), address, serving: tokio::spawn(serve(relay, idle)) }
    }

    /// With [`TOKEN`] announced.
    async fn announced(connections: u16) -> Self {
        Self::new().await.announce(connections)
    }

    fn announce(self, connections: u16) -> Self {
        let what = Announcement { token: TOKEN, connections, seconds: 600 };
        self.front().channel().send(&ToRelay::Announce("ada".into(), what), &[]).unwrap();
        self
    }

    fn front(&self) -> &Line {
        self.front.as_ref().unwrap()
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn come(&self, token: Token, part: Part) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(&Hello { token, part }.encode()).await.unwrap();
        stream
    }

    async fn pair(&self) -> (TcpStream, TcpStream) {
        (self.come(TOKEN, Part::Client).await, self.come(TOKEN, Part::Server).await)
    }

    /// What the front is told, once it is so.
    async fn told(&self, fits: impl Fn(&Passed) -> bool) -> Passed {
        loop {
            let heard = self.front().when(tokio::io::Interest::READABLE, Channel::receive::<Passed>).await;
            let (passed, _) = heard.unwrap().expect("it serves");
            if fits(&passed) {
                return passed;
            }
        }
    }
}

/// Whether the other end closes it without a word.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    // Closed with bytes unread is a reset.
    matches!(stream.read(&mut byte).await, Ok(0) | Err(_))
}

async fn says(from: &mut TcpStream, to: &mut TcpStream, text: &[u8]) {
    from.write_all(text).await.unwrap();
    let mut read = vec![0; text.len()];
    to.read_exact(&mut read).await.unwrap();
    assert_eq!(read, text);
}

#[tokio::test]
async fn two_that_say_an_announced_token_are_joined_to_the_end() {
    let field = Field::announced(2).await;
    let (mut client, mut server) = field.pair().await;
    says(&mut client, &mut server, b"there").await;
    says(&mut server, &mut client, b"and back").await;
    client.shutdown().await.unwrap();
    assert!(is_closed(&mut server).await, "the end of one direction is passed on");
    says(&mut server, &mut client, b"the other one goes on").await;
    drop(server);
    assert!(is_closed(&mut client).await);
    let passed = field.told(|passed| passed.open == 0 && passed.joined == 1).await;
    assert_eq!((passed.bytes, passed.refused), (34, 0));
}

/// And it makes room for another one.
#[tokio::test]
async fn a_pair_that_says_nothing_is_let_go() {
    let field = Field::with(Duration::from_millis(20)).await.announce(1);
    let (mut client, mut server) = field.pair().await;
    assert!(is_closed(&mut client).await && is_closed(&mut server).await);
    assert_eq!(field.told(|passed| passed.open == 0 && passed.joined == 1).await.refused, 0);
}

#[tokio::test]
async fn strangers_are_dropped_and_the_transfer_goes_on() {
    let field = Field::announced(1).await;
    let mut unknown = field.come([8; 32], Part::Server).await;
    assert!(is_closed(&mut unknown).await);
    let mut rubbish = field.connect().await;
    rubbish.write_all(&[b'x'; HELLO_BYTES]).await.unwrap();
    assert!(is_closed(&mut rubbish).await);
    let mut short = field.connect().await;
    short.write_all(b"WHRELAY1C").await.unwrap();
    short.shutdown().await.unwrap();
    assert!(is_closed(&mut short).await);
    let (mut client, mut server) = field.pair().await;
    says(&mut client, &mut server, b"there").await;
    assert_eq!(field.told(|passed| passed.joined == 1).await.refused, 3);
    let mut late = field.come(TOKEN, Part::Server).await;
    assert!(is_closed(&mut late).await, "as many have come as were announced");
}

/// Whoever has learnt a token without the nonce is no second server, and gets nothing of what one says to the other.
#[tokio::test]
async fn two_of_one_end_are_not_joined() {
    let field = Field::announced(1).await;
    let mut first = field.come(TOKEN, Part::Client).await;
    first.write_all(b"for the server").await.unwrap();
    let mut second = field.come(TOKEN, Part::Client).await;
    assert!(is_closed(&mut second).await);
    let mut server = field.come(TOKEN, Part::Server).await;
    let mut read = [0; 14];
    server.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"for the server");
}

#[tokio::test]
async fn silent_ones_of_one_address_leave_room_for_others() {
    let field = Field::announced(1).await;
    let mut silent = Vec::new();
    let mut refused = loop {
        let mut stream = field.connect().await;
        let mut byte = [0];
        tokio::select! {
            biased;
            _ = stream.read(&mut byte) => break stream,
            () = tokio::task::yield_now() => silent.push(stream),
        }
        assert!(silent.len() < 2000, "they are counted");
        // One that is refused is closed as soon as it is taken: let that happen.
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    };
    assert!(is_closed(&mut refused).await);
    let elsewhere = || async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        socket.connect(field.address).await.unwrap()
    };
    let (mut client, mut server) = (elsewhere().await, elsewhere().await);
    client.write_all(&Hello { token: TOKEN, part: Part::Client }.encode()).await.unwrap();
    server.write_all(&Hello { token: TOKEN, part: Part::Server }.encode()).await.unwrap();
    says(&mut client, &mut server, b"there").await;
    // The silent ones keep their places until their time is over.
    assert!(silent.len() >= 200, "{}", silent.len());
}

/// A receiver that does not read stops its sender, and nothing piles up.
#[tokio::test]
async fn who_does_not_read_is_waited_for() {
    let field = Field::announced(1).await;
    let (mut client, mut server) = field.pair().await;
    says(&mut client, &mut server, b"there").await;
    let piece = vec![1; 1 << 20];
    let mut sent = 0;
    // A full second without room: nothing takes any more.
    while let Ok(count) = timeout(Duration::from_secs(1), client.write(&piece)).await {
        sent += count.unwrap();
        assert!(sent < 1 << 30, "somebody keeps all of it");
    }
    let mut read = vec![0; sent];
    server.read_exact(&mut read).await.unwrap();
}

#[tokio::test]
async fn it_ends_with_its_front() {
    let mut field = Field::announced(1).await;
    let mut waits = field.come(TOKEN, Part::Client).await;
    field.front = None;
    field.serving.await.unwrap().unwrap();
    assert!(is_closed(&mut waits).await);
}
