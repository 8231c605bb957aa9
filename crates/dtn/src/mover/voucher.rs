//! What a sender vouches for (SITE LEAVES with VOUCHED): digests of what it has sent, told to the receiver.
//!
//! They pass over the data connections as a transfer of their own, so that nothing wrong gets a name, whatever becomes of
//! the client. Behind a whole file come its leaves; ahead of a pack, the digests of its files. See `docs/design/vouching.md`.

use std::sync::{Mutex, PoisonError};

use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};
use whimbrel_proto::leaf;
use whimbrel_proto::op::{Leaf, PackResult};
use whimbrel_transport::BlockSink;
use whimbrel_transport::digest::Algorithm;
use whimbrel_transport::mode_e::{self, Amount, Eof, Nonce, SendJob};

use super::failure::Problem;
use super::message::MAX_FRAME;
use super::receive;
use super::send::BLOCK_SIZE;
use super::session::Handle;
use super::transfer::Transfer;
use super::worker::Task;

/// First line of a voucher for a file: without it, nothing is vouched for.
const TITLE: &str = "VOUCHED";

/// Most bytes of a voucher for a file: twice what the digests of a transfer may take in a message.
pub const MOST: u64 = 2 * MAX_FRAME as u64;

/// The voucher for a file of these leaves.
pub fn of_file(leaves: &[Leaf]) -> Vec<u8> {
    let lines = leaves.iter().map(leaf::line);
    std::iter::once(TITLE.to_owned()).chain(lines).map(|line| line + "\n").collect::<String>().into_bytes()
}

/// The voucher for the files of a pack, an empty line for each that does not come.
pub fn of_pack(fates: &[PackResult]) -> Vec<u8> {
    let digest = |fate: &PackResult| fate.clone().ok().flatten().unwrap_or_default();
    fates.iter().map(|fate| digest(fate) + "\n").collect::<String>().into_bytes()
}

/// Most bytes of the voucher for a pack of so many files.
pub fn most_of_pack(files: usize, algorithm: Algorithm) -> u64 {
    (files * (algorithm.hex_len() + 1)) as u64
}

/// The digests that a pack's voucher tells, in the order of the files; `PeerMisbehaved` if it is about another number.
pub fn digests(voucher: &[u8], files: usize) -> Result<Vec<String>, Fault> {
    let text = String::from_utf8_lossy(voucher);
    let digests: Vec<String> = text.lines().map(str::to_owned).collect();
    if digests.len() == files {
        return Ok(digests);
    }
    let fault = Fault::new(FaultCode::PeerMisbehaved, "receive a pack").side(Side::Source);
    Err(fault.detail(format!("its sender vouches for {} files of {files}", digests.len())))
}

/// Whether what was stored is what the sender vouches for: `SourceChanged` if it vouches for nothing.
pub fn check(voucher: &[u8], stored: &[Leaf]) -> Result<(), Problem> {
    let own = of_file(stored);
    if voucher == own {
        return Ok(());
    }
    if voucher.is_empty() {
        let fault = Fault::new(FaultCode::SourceChanged, "receive").side(Side::Source);
        return Err(fault.detail("the sender does not vouch for what it has sent").into());
    }
    let (own, told) = (String::from_utf8_lossy(&own), String::from_utf8_lossy(voucher));
    let differing = |of: &str, from: &str| {
        let mut others = from.lines();
        let line = of.lines().find(|line| others.next() != Some(*line)).unwrap_or("nothing more");
        // What a sender says must not fill a log.
        line.chars().filter(|c| !c.is_control()).take(200).collect::<String>()
    };
    Err(Problem::Checksum { computed: differing(&own, &told), expected: differing(&told, &own) })
}

/// Tells the receiver, before or after the transfer that `handle` was made for; empty connections are no lanes of it.
pub fn tell(
    task: &Task<'_>,
    handle: &mut Handle,
    nonce: Option<Nonce>,
    voucher: &Vec<u8>,
    transfer: &Transfer,
) -> Result<(), Fault> {
    let (ranges, aside) = (RangeSet::from(0..voucher.len() as u64), transfer.aside());
    for lane in handle.lanes.iter_mut().filter(|lane| !lane.connections.is_empty()) {
        let job = SendJob {
            source: voucher,
            amount: Amount::Ranges(&ranges),
            origin: 0,
            block_size: BLOCK_SIZE,
            nonce,
            eof: Eof::Own,
            sendfile: false,
            digests: None,
            flow: aside.flow(task),
        };
        mode_e::send(&job, &mut lane.connections)?;
    }
    Ok(())
}

/// Hears the sender, where [`tell`] speaks; at most so many bytes.
pub fn hear(task: &Task<'_>, handle: &mut Handle, most: u64, transfer: &Transfer) -> Result<Vec<u8>, Fault> {
    let heard = Heard::default();
    receive::blocks(task, handle, &heard, 0..most, 0, &mut transfer.aside())?;
    Ok(heard.0.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// A voucher that comes in; the network side keeps its bounds.
#[derive(Default)]
struct Heard(Mutex<Vec<u8>>);

impl BlockSink for Heard {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).expect("it lies within bounds that fit memory");
        let end = start + data.len();
        if text.len() < end {
            text.resize(end, 0);
        }
        text[start..end].copy_from_slice(data);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(start: u64, end: u64, digest: &str) -> Leaf {
        Leaf { range: start..end, digest: digest.to_owned() }
    }

    #[test]
    fn only_what_was_vouched_for_passes_and_the_first_difference_is_told() {
        let stored = [leaf(0, 4096, "aa"), leaf(4096, 5000, "bb")];
        assert!(check(&of_file(&stored), &stored).is_ok());
        assert!(check(&of_file(&[]), &[]).is_ok());
        let told = |voucher: &[u8]| match check(voucher, &stored) {
            Err(Problem::Checksum { computed, expected }) => (computed, expected),
            other => panic!("{other:?}"),
        };
        let wrong = of_file(&[leaf(0, 4096, "aa"), leaf(4096, 5000, "cc")]);
        assert_eq!(told(&wrong), ("LEAF 4096-5000 bb".into(), "LEAF 4096-5000 cc".into()));
        assert_eq!(told(&of_file(&stored[..1])), ("LEAF 4096-5000 bb".into(), "nothing more".into()));
        assert_eq!(told(b"\x1b\xff").0, "VOUCHED");
        let nothing = check(b"", &stored);
        assert!(matches!(nothing, Err(Problem::Fault(fault)) if fault.code == FaultCode::SourceChanged));
    }

    #[test]
    fn a_pack_is_vouched_for_file_by_file() {
        let lost = crate::mover::failure::from_fault(&Fault::new(FaultCode::NotFound, "send"));
        let voucher = of_pack(&[Ok(Some("aa".into())), Err(lost), Ok(Some("cc".into()))]);
        assert_eq!(digests(&voucher, 3).unwrap(), ["aa", "", "cc"]);
        assert!(voucher.len() as u64 <= most_of_pack(3, Algorithm::Md5));
        for files in [2, 4] {
            assert_eq!(digests(&voucher, files).unwrap_err().code, FaultCode::PeerMisbehaved);
        }
    }

    #[test]
    fn a_voucher_may_come_in_any_order() {
        let heard = Heard::default();
        heard.write_at(3, b"de").unwrap();
        heard.write_at(0, b"abc").unwrap();
        assert_eq!(heard.0.into_inner().unwrap(), b"abcde");
    }
}
