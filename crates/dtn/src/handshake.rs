//! A TLS handshake over a stream of the runtime.

use std::io::{self, ErrorKind};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use whimbrel_trust::TrustFault;
use whimbrel_trust::tls::{Progress, TlsMachine};

/// Bytes read at once.
const PIECE: usize = 16 << 10;

/// Why there is none.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The stream failed, or ended (`UnexpectedEof`).
    Wire(io::Error),
    /// One side does not believe the other; the alert that tells why is on its way.
    Refused(TrustFault),
}

/// Carries a handshake to its end; at once if it is through. What came behind it stays with the machine.
pub(crate) async fn shake<W>(wire: &mut W, tls: &mut TlsMachine) -> Result<(), Broken>
where
    W: AsyncRead + AsyncWrite + Unpin,
{
    let mut piece = vec![0; PIECE];
    loop {
        let progress = tls.drive();
        if let Some(flight) = tls.transmit() {
            wire.write_all(&flight).await.map_err(Broken::Wire)?;
        }
        match progress.map_err(Broken::Refused)? {
            Progress::Established => return Ok(()),
            Progress::Handshaking => {}
        }
        match wire.read(&mut piece).await.map_err(Broken::Wire)? {
            0 => return Err(Broken::Wire(ErrorKind::UnexpectedEof.into())),
            count => tls.feed(&piece[..count]),
        }
    }
}
