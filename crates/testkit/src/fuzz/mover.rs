//! The mover protocol's frames.

use std::fmt::Debug;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use whimbrel_dtn::mover::codec::{CodecError, Decoder, FrameReader, FrameWriter, encode};
use whimbrel_dtn::mover::message::{Framed, FromMover, ToMover};

use super::input::pieces;

/// Bytes to messages of both directions: pieces do not matter, and every message is written and read as the same.
pub fn mover_codec(data: &[u8]) {
    check::<ToMover>(data);
    check::<FromMover>(data);
}

fn check<T>(data: &[u8])
where
    T: Clone + Debug + PartialEq + Framed,
{
    let whole = read::<T>(std::iter::once(data));
    assert_eq!(read::<T>(pieces(data)), whole);
    let mut wire = Vec::new();
    for message in &whole.0 {
        encode(message, &mut wire).expect("a message that was read can be written");
    }
    assert!(wire.len() <= whole.0.len() * (T::MOST + 4));
    assert_eq!(read::<T>(pieces(&wire)), (whole.0.clone(), false));
    check_blocking(data, &whole, &wire);
}

/// The blocking pair reads and writes what the pure functions do.
fn check_blocking<T: Debug + PartialEq + Framed>(data: &[u8], whole: &(Vec<T>, bool), wire: &[u8]) {
    let mut reader = FrameReader::<_, T>::new(data);
    for message in &whole.0 {
        assert_eq!(reader.read().ok().flatten().as_ref(), Some(message));
    }
    let end = reader.read();
    assert!(matches!(end, Ok(None) | Err(CodecError::Truncated)) || whole.1, "the stream did not break: {end:?}");
    let sink = Sink::default();
    let writer = FrameWriter::new(sink.clone());
    whole.0.iter().for_each(|message| writer.send_message(message).expect("a message that was read can be written"));
    assert_eq!(*sink.0.lock().expect("nobody panicked"), wire);
}

/// Keeps what is written.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panicked").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The messages, and whether the stream broke after them.
fn read<'a, T: Framed>(portions: impl Iterator<Item = &'a [u8]>) -> (Vec<T>, bool) {
    let mut decoder = Decoder::new();
    let mut messages = Vec::new();
    for portion in portions {
        decoder.push(portion);
        loop {
            match decoder.next() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(_) => return (messages, true),
            }
        }
    }
    (messages, false)
}
