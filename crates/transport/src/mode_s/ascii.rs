//! TYPE A: line ends between disk (LF) and wire (CR LF), across buffer edges (RFC 959 §3.1.1.1).

use whimbrel_engine::Fault;

/// Disk to wire: a LF that has no CR before it gets one.
#[derive(Debug, Default)]
pub(super) struct ToWire {
    after_cr: bool,
}

impl ToWire {
    /// Appends `data` with the missing CRs to `wire`: at the most twice as many bytes.
    pub(super) fn append(&mut self, data: &[u8], wire: &mut Vec<u8>) {
        let mut start = 0;
        for (at, &byte) in data.iter().enumerate() {
            if byte == b'\n' && !self.after_cr {
                wire.extend_from_slice(&data[start..at]);
                wire.push(b'\r');
                start = at;
            }
            self.after_cr = byte == b'\r';
        }
        wire.extend_from_slice(&data[start..]);
    }
}

/// Wire to disk: CR LF becomes LF; any other CR stays.
#[derive(Debug, Default)]
pub(super) struct FromWire {
    /// A CR at the end of the last buffer, not yet passed on.
    held_cr: bool,
}

impl FromWire {
    /// Converts in place and returns the new length; `before` gets a held CR that must come first.
    pub(super) fn convert(
        &mut self,
        data: &mut [u8],
        mut before: impl FnMut(u8) -> Result<(), Fault>,
    ) -> Result<usize, Fault> {
        if self.held_cr && data.first().is_some_and(|&first| first != b'\n') {
            before(b'\r')?;
        }
        self.held_cr &= data.is_empty();
        let mut kept = 0;
        for at in 0..data.len() {
            let ends_line = data.get(at + 1) == Some(&b'\n');
            if data[at] == b'\r' && (ends_line || at + 1 == data.len()) {
                self.held_cr = !ends_line;
                continue;
            }
            data[kept] = data[at];
            kept += 1;
        }
        Ok(kept)
    }

    /// The CR that ended the stream, if one did.
    pub(super) fn finish(&mut self) -> Option<u8> {
        std::mem::take(&mut self.held_cr).then_some(b'\r')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_wire(data: &[u8], step: usize) -> Vec<u8> {
        let (mut convert, mut wire) = (ToWire::default(), Vec::new());
        data.chunks(step).for_each(|data| convert.append(data, &mut wire));
        wire
    }

    fn from_wire(data: &[u8], step: usize) -> Vec<u8> {
        let (mut convert, mut out) = (FromWire::default(), Vec::new());
        for chunk in data.chunks(step) {
            let mut chunk = chunk.to_vec();
            let mut before = Vec::new();
            let kept = convert.convert(&mut chunk, |byte| {
                before.push(byte);
                Ok(())
            });
            out.extend(before);
            out.extend(&chunk[..kept.expect("no fault")]);
        }
        out.extend(convert.finish());
        out
    }

    #[test]
    fn lines_end_in_cr_lf_on_the_wire_wherever_buffers_end() {
        for step in 1..12 {
            assert_eq!(to_wire(b"\na\nb\r\n\n\rc", step), b"\r\na\r\nb\r\n\r\n\rc");
        }
    }

    #[test]
    fn lines_end_in_lf_on_disk_wherever_buffers_end() {
        for step in 1..14 {
            let got = from_wire(b"\r\na\r\nb\n\r\r\nc\rd\r", step);
            assert_eq!(got, b"\na\nb\n\r\nc\rd\r", "step {step}");
        }
    }

    #[test]
    fn a_unix_text_survives_the_round_trip() {
        let text = b"one\ntwo\n\nthree".repeat(3);
        for step in 1..20 {
            assert_eq!(from_wire(&to_wire(&text, step), 21 - step), text);
        }
    }
}
