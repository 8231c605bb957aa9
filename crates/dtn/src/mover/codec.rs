//! Frames of the mover protocol: a length and a body in postcard form.
//!
//! [`encode`] and [`Decoder`] are pure, for callers with their own I/O; [`FrameReader`] and
//! [`FrameWriter`] are the blocking pair of the data process.

use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use whimbrel_sys::retry;

use super::message::{Framed, MAX_FRAME};

const LENGTH_BYTES: usize = 4;

/// Bytes that may wait for a slow reader before senders have to wait.
const OUTBOX_LIMIT: usize = 4 << 20;

/// Why bytes are not messages.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// A body is longer than [`Framed::MOST`].
    #[error("a mover message of {0} bytes is too long")]
    TooLong(usize),
    /// A body is no message, or has bytes left over.
    #[error("a mover message cannot be decoded: {0}")]
    Malformed(postcard::Error),
    /// The stream ended inside a frame.
    #[error("the mover stream ended inside a message")]
    Truncated,
    /// The stream failed.
    #[error("the mover stream failed: {0}")]
    Io(#[from] io::Error),
}

/// Appends the frame of `message` to `out`; on error `out` is as before.
pub fn encode<T: Framed>(message: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
    let start = out.len();
    let result = encode_body(message, out, start);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

fn encode_body<T: Framed>(message: &T, out: &mut Vec<u8>, start: usize) -> Result<(), CodecError> {
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    postcard::to_io(message, &mut *out).map_err(CodecError::Malformed)?;
    let body = out.len() - start - LENGTH_BYTES;
    if !is_short_enough::<T>(&out[start + LENGTH_BYTES..]) {
        return Err(CodecError::TooLong(body));
    }
    let length = u32::try_from(body).expect("a body fits 32 bits");
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

fn is_short_enough<T: Framed>(body: &[u8]) -> bool {
    body.len() <= MAX_FRAME || (body.len() <= T::MOST && T::may_be_long(body))
}

/// Cuts a byte stream into messages.
///
/// Holds at most one frame more than what was pushed and not yet taken. After an error the stream
/// is out of step and must be dropped.
#[derive(Debug)]
pub struct Decoder<T> {
    buffer: Vec<u8>,
    at: usize,
    message: PhantomData<fn() -> T>,
}

impl<T> Default for Decoder<T> {
    fn default() -> Self {
        Self { buffer: Vec::new(), at: 0, message: PhantomData }
    }
}

impl<T: Framed> Decoder<T> {
    /// A decoder at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in bytes of the stream, in any portions.
    pub fn push(&mut self, bytes: &[u8]) {
        self.make_room();
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete message, or `None` when more bytes are needed.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<T>, CodecError> {
        Ok(self.next_sized()?.map(|(message, _)| message))
    }

    /// The same with the bytes of its body.
    pub fn next_sized(&mut self) -> Result<Option<(T, usize)>, CodecError> {
        let rest = &self.buffer[self.at..];
        let Some((length, rest)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > T::MOST {
            return Err(CodecError::TooLong(length));
        }
        if rest.len() < length {
            return Ok(None);
        }
        if !is_short_enough::<T>(&rest[..length]) {
            return Err(CodecError::TooLong(length));
        }
        let (message, left) = postcard::take_from_bytes(&rest[..length]).map_err(CodecError::Malformed)?;
        if !left.is_empty() {
            return Err(CodecError::Malformed(postcard::Error::DeserializeUnexpectedEnd));
        }
        self.at += LENGTH_BYTES + length;
        Ok(Some((message, length)))
    }

    /// Whether the stream may end here: nothing of a further frame was pushed.
    pub fn is_empty(&self) -> bool {
        self.at == self.buffer.len()
    }

    /// Drops what was consumed, without moving bytes for every small message.
    fn make_room(&mut self) {
        if self.is_empty() {
            self.buffer.clear();
            // A long message is rare: its room is not kept.
            self.buffer.shrink_to(MAX_FRAME);
            self.at = 0;
        } else if self.at >= READ_AHEAD {
            self.buffer.drain(..self.at);
            self.at = 0;
        }
    }
}

const READ_AHEAD: usize = 64 << 10;

/// Blocking reader of messages.
#[derive(Debug)]
pub struct FrameReader<R, T> {
    source: R,
    decoder: Decoder<T>,
    scratch: Box<[u8]>,
}

impl<R: Read, T: Framed> FrameReader<R, T> {
    /// Reads frames from `source`.
    pub fn new(source: R) -> Self {
        Self { source, decoder: Decoder::new(), scratch: vec![0; READ_AHEAD].into_boxed_slice() }
    }

    /// Waits for the next message; `None` when the stream ended between two.
    pub fn read(&mut self) -> Result<Option<T>, CodecError> {
        loop {
            if let Some(message) = self.decoder.next()? {
                return Ok(Some(message));
            }
            let count = retry::read(&mut self.source, &mut self.scratch)?;
            self.decoder.push(&self.scratch[..count]);
            if count == 0 {
                return match self.decoder.is_empty() {
                    true => Ok(None),
                    false => Err(CodecError::Truncated),
                };
            }
        }
    }
}

/// Blocking writer of messages, shared by threads.
///
/// A thread that finds nobody writing becomes the writer and also takes along what others add
/// meanwhile, so that small messages of many movers share system calls.
#[derive(Clone)]
pub struct FrameWriter {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<Outbox>,
    room: Condvar,
    sink: Mutex<Box<dyn Write + Send>>,
}

#[derive(Default)]
struct Outbox {
    pending: Vec<u8>,
    spare: Vec<u8>,
    writing: bool,
    broken: bool,
}

impl FrameWriter {
    /// Writes frames to `sink`.
    pub fn new(sink: impl Write + Send + 'static) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                room: Condvar::new(),
                sink: Mutex::new(Box::new(sink)),
            }),
        }
    }

    /// Sends frames that [`encode`] made, in one piece; returns when they are written or another
    /// thread has taken them over.
    ///
    /// Waits while more than 4 MiB wait for the peer. Once the stream has failed everything sent
    /// is dropped: the reader sees the loss and ends the process's movers.
    pub fn send(&self, frames: &[u8]) {
        let mut state = self.lock();
        while state.pending.len() > OUTBOX_LIMIT && !state.broken {
            state = self.shared.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.broken {
            return;
        }
        state.pending.extend_from_slice(frames);
        if !state.writing {
            state.writing = true;
            self.write_pending(state);
        }
    }

    /// Encodes and sends one message.
    pub fn send_message<T: Framed>(&self, message: &T) -> Result<(), CodecError> {
        let mut frame = Vec::new();
        encode(message, &mut frame)?;
        self.send(&frame);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Outbox> {
        // A panic elsewhere leaves the buffer consistent: it is only ever appended to or swapped.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_pending<'a>(&'a self, mut state: MutexGuard<'a, Outbox>) {
        let mut sink = self.shared.sink.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.pending.is_empty() {
            let spare = std::mem::take(&mut state.spare);
            let mut batch = std::mem::replace(&mut state.pending, spare);
            drop(state);
            let result = sink.write_all(&batch).and_then(|()| sink.flush());
            batch.clear();
            batch.shrink_to(OUTBOX_LIMIT);
            state = self.lock();
            state.broken |= result.is_err();
            if state.broken {
                state.pending.clear();
            }
            state.spare = batch;
            self.shared.room.notify_all();
        }
        state.writing = false;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::os::unix::net::UnixStream;

    use whimbrel_proto::op::{Leaf, OpId, Outcome, StorageFacts};

    use super::super::message::{FromMover, Load, MAX_CHUNKED, MoverId, ToMover};
    use super::*;

    fn abort(n: u64) -> ToMover {
        ToMover::Abort { mover: MoverId(n), id: OpId(n * 7) }
    }

    #[test]
    fn messages_survive_any_cut_of_the_stream() {
        let mut bytes = Vec::new();
        for n in 0..50 {
            encode(&abort(n), &mut bytes).unwrap();
        }
        for cut in [1, 2, 3, 5, 64, bytes.len()] {
            let mut decoder = Decoder::<ToMover>::new();
            let mut got = Vec::new();
            for portion in bytes.chunks(cut) {
                decoder.push(portion);
                while let Some(message) = decoder.next().unwrap() {
                    got.push(message);
                }
            }
            assert_eq!(got, (0..50).map(abort).collect::<Vec<_>>());
            assert!(decoder.is_empty());
        }
    }

    #[test]
    fn a_length_above_the_limit_is_refused_before_its_body_arrives() {
        let mut decoder = Decoder::<ToMover>::new();
        decoder.push(&(MAX_FRAME as u32 + 1).to_be_bytes());
        assert!(matches!(decoder.next(), Err(CodecError::TooLong(_))));
        let mut decoder = Decoder::<FromMover>::new();
        decoder.push(&(MAX_CHUNKED as u32 + 1).to_be_bytes());
        assert!(matches!(decoder.next(), Err(CodecError::TooLong(_))));
    }

    #[test]
    fn an_oversized_message_is_not_encoded() {
        let mut out = vec![1, 2, 3];
        let lines = vec![b'x'; MAX_FRAME];
        let message =
            FromMover::Notice { mover: MoverId(1), id: OpId(1), notice: whimbrel_proto::op::Notice::Lines(lines) };
        assert!(matches!(encode(&message, &mut out), Err(CodecError::TooLong(_))));
        assert_eq!(out, [1, 2, 3]);
        // Nor decoded, though another message might be as long.
        let body = postcard::to_stdvec(&message).unwrap();
        let mut decoder = Decoder::<FromMover>::new();
        decoder.push(&u32::try_from(body.len()).unwrap().to_be_bytes());
        decoder.push(&body);
        assert!(matches!(decoder.next(), Err(CodecError::TooLong(_))));
    }

    #[test]
    fn all_leaves_and_holes_of_a_file_fit_an_answer() {
        const MOST: u64 = whimbrel_proto::leaf::MAX_LEAVES as u64;
        let range = |index: u64| u64::MAX - 2 * (MOST - index)..u64::MAX - 2 * (MOST - index) + 1;
        let verified = (0..MOST).map(|index| Leaf { range: range(index), digest: "f".repeat(128) }).collect();
        let outcome = Outcome::Chunked {
            session: vec![1; 32 << 10],
            verified,
            holes: (0..MOST).map(range).collect(),
            storage: StorageFacts { room: Some(u64::MAX), stripe: Some(u64::MAX) },
            discarded: u64::MAX,
        };
        let message = FromMover::Outcome { mover: MoverId(u64::MAX), id: OpId(u64::MAX), outcome };
        let mut bytes = Vec::new();
        encode(&message, &mut bytes).unwrap();
        let mut decoder = Decoder::new();
        bytes.chunks(READ_AHEAD).for_each(|portion| decoder.push(portion));
        assert_eq!(decoder.next().unwrap(), Some(message));
        decoder.push(&[]);
        assert!(decoder.buffer.capacity() <= MAX_FRAME, "its room is given back");
    }

    #[test]
    fn trailing_bytes_and_garbage_are_malformed() {
        let mut bytes = Vec::new();
        encode(&abort(1), &mut bytes).unwrap();
        bytes.push(0);
        bytes[3] += 1;
        let mut decoder = Decoder::<ToMover>::new();
        decoder.push(&bytes);
        assert!(matches!(decoder.next(), Err(CodecError::Malformed(_))));
        let mut decoder = Decoder::<ToMover>::new();
        decoder.push(&[0, 0, 0, 2, 255, 255]);
        assert!(matches!(decoder.next(), Err(CodecError::Malformed(_))));
    }

    #[test]
    fn a_stream_cut_inside_a_frame_is_told_from_a_clean_end() {
        let mut bytes = Vec::new();
        encode(&abort(1), &mut bytes).unwrap();
        let mut clean = FrameReader::<_, ToMover>::new(Cursor::new(bytes.clone()));
        assert_eq!(clean.read().unwrap(), Some(abort(1)));
        assert_eq!(clean.read().unwrap(), None);
        bytes.pop();
        let mut cut = FrameReader::<_, ToMover>::new(Cursor::new(bytes));
        assert!(matches!(cut.read(), Err(CodecError::Truncated)));
    }

    #[test]
    fn frames_of_many_threads_arrive_whole() {
        let (near, far) = UnixStream::pair().unwrap();
        let writer = FrameWriter::new(near);
        let threads: Vec<_> = (0..4)
            .map(|t| {
                let writer = writer.clone();
                std::thread::spawn(move || {
                    for n in 0..500 {
                        writer.send_message(&abort(t * 1000 + n)).unwrap();
                    }
                })
            })
            .collect();
        let mut reader = FrameReader::<_, ToMover>::new(far);
        let mut next = [0u64; 4];
        for _ in 0..2000 {
            let Some(ToMover::Abort { mover, .. }) = reader.read().unwrap() else {
                panic!("the stream ended early");
            };
            let thread = (mover.0 / 1000) as usize;
            assert_eq!(mover.0 % 1000, next[thread], "order within a thread");
            next[thread] += 1;
        }
        for thread in threads {
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_writer_whose_peer_is_gone_drops_instead_of_blocking() {
        let (near, far) = UnixStream::pair().unwrap();
        drop(far);
        let writer = FrameWriter::new(near);
        for _ in 0..100 {
            writer.send_message(&FromMover::Load(Load::default())).unwrap();
            writer.send(&vec![0; OUTBOX_LIMIT]);
        }
    }
}
