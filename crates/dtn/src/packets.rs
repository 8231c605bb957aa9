//! Packets of messages and descriptors between two processes of one host.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest packet, bytes: within what every system lets a local socket hold.
pub const MAX_PACKET: usize = 128 << 10;

/// Most descriptors beside one packet (the kernel takes 253).
pub const MAX_DESCRIPTORS: usize = 64;

/// One end of a pair: messages arrive whole, in order, with their descriptors.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// Two connected ends, closed on exec.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        for end in [&one, &other] {
            // Less than a packet would need is what some systems give by default.
            let _at_least = rustix::net::sockopt::set_socket_send_buffer_size(end, 2 * MAX_PACKET);
        }
        Ok((Self(one), Self(other)))
    }

    /// Sends one message; `InvalidData` if it is too large for a packet, `WouldBlock` if the other end lets them pile up.
    pub fn send<M: Serialize>(&self, message: &M, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
        if bytes.len() > MAX_PACKET || descriptors.len() > MAX_DESCRIPTORS {
            let what = format!("a message of {} bytes and {} descriptors", bytes.len(), descriptors.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut beside, flags)?;
        Ok(())
    }

    /// Takes one message if there is one; `None` when the other end is gone, `WouldBlock` when nothing has come.
    pub fn receive<M: DeserializeOwned>(&self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        let mut bytes = vec![0; MAX_PACKET];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = rustix::net::recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut beside, flags)?;
        let descriptors = beside
            .drain()
            .flat_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<_>>(),
                _ => Vec::new(),
            })
            .collect();
        if received.bytes == 0 {
            return Ok(None);
        }
        // Descriptors that this process may not have any more (CTRUNC) are lost, which whoever wants them finds out: that passes.
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet too large"));
        }
        let (message, rest) = postcard::take_from_bytes(&bytes[..received.bytes])
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if !rest.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "bytes behind a message"));
        }
        Ok(Some((message, descriptors)))
    }

    /// The bare socket, for the standard input of a new process.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }
}

impl From<OwnedFd> for Channel {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::monitor::message::{AccountId, ToMonitor};

    #[test]
    fn messages_arrive_whole_with_their_descriptors() {
        let (one, other) = Channel::pair().unwrap();
        let (mut kept, passed) = UnixStream::pair().unwrap();
        let message = ToMonitor::Open { ticket: 7, account: AccountId(3) };
        one.send(&message, &[passed.as_fd()]).unwrap();
        one.send(&ToMonitor::Ready, &[]).unwrap();
        drop(passed);
        let (got, mut descriptors) = other.receive::<ToMonitor>().unwrap().unwrap();
        assert_eq!((got, descriptors.len()), (message, 1));
        let mut stream = UnixStream::from(descriptors.pop().unwrap());
        stream.write_all(b"through").unwrap();
        drop(stream);
        let mut text = String::new();
        kept.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
        assert_eq!(other.receive::<ToMonitor>().unwrap().unwrap().0, ToMonitor::Ready);
        assert_eq!(other.receive::<ToMonitor>().unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(one);
        assert!(other.receive::<ToMonitor>().unwrap().is_none());
    }

    #[test]
    fn what_is_too_large_or_no_message_is_refused_and_harms_nothing_after_it() {
        let (one, other) = Channel::pair().unwrap();
        let long = ToMonitor::Password { ticket: 1, user: "x".repeat(MAX_PACKET) };
        assert_eq!(one.send(&long, &[]).unwrap_err().kind(), ErrorKind::InvalidData);
        one.send(&(200u8, 1u8), &[]).unwrap();
        assert_eq!(other.receive::<ToMonitor>().unwrap_err().kind(), ErrorKind::InvalidData);
        one.send(&(0u8, 0u8), &[]).unwrap();
        assert_eq!(other.receive::<ToMonitor>().unwrap_err().kind(), ErrorKind::InvalidData, "bytes behind a message");
        one.send(&ToMonitor::Ready, &[]).unwrap();
        assert_eq!(other.receive::<ToMonitor>().unwrap().unwrap().0, ToMonitor::Ready);
    }

    #[test]
    fn an_end_that_does_not_read_stops_nobody() {
        let (one, _other) = Channel::pair().unwrap();
        let message = ToMonitor::Password { ticket: 1, user: "x".repeat(1000) };
        let full = (0..100_000).find_map(|_| one.send(&message, &[]).err()).unwrap();
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
    }
}
