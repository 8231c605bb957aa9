//! Jobs and manners for tests.

use whimbrel_engine::RangeSet;
use whimbrel_engine::plan::{Attributes, Item, ItemId, RootId};
use whimbrel_engine::transfer::{Attempt, Job, Work};
use whimbrel_proto::op::{Leaf, Mode};
use whimbrel_transport::digest::Algorithm;

use super::{Given, Manner, Named, Proof};
use crate::client::checksum::SharedChecksum;
use crate::client::chunk::{OpenFile, Unfinished};

/// Bytes of a leaf.
pub const LEAF: u64 = 1000;

/// Bytes of the file: its last leaf is short, and begins at no multiple of its own length.
pub const SIZE: u64 = 2 * LEAF + 300;

/// Something to do for that file.
pub fn job(work: Work) -> Job {
    let item = Item {
        id: ItemId(1),
        root: RootId(0),
        parent: None,
        source: b"/s/f".to_vec(),
        destination: b"/d/f".to_vec(),
        size: Some(SIZE),
        modified: None,
        range: None,
        attributes: Attributes::default(),
        twins: Vec::new(),
    };
    Job { attempt: Attempt { item: item.id, number: 1 }, work, item, received: RangeSet::new() }
}

/// The same for both ends.
pub fn checksum() -> SharedChecksum {
    SharedChecksum { source: "MD5".into(), destination: "MD5".into() }
}

/// Extended block mode, proven by CKSM.
pub fn manner() -> Manner {
    Manner {
        mode: Mode::Extended,
        proof: Ok(Proof { checksum: checksum(), in_reply: false }),
        given: Given::default(),
        past_memory: false,
        durable: false,
        named: Named::BY_DESTINATION,
        holes: false,
        vouched: false,
        measured: false,
    }
}

/// The leaf of that number, of bytes `content`.
pub fn leaf(index: u64, content: &[u8]) -> Leaf {
    let end = ((index + 1) * LEAF).min(SIZE);
    Leaf { range: index * LEAF..end, digest: Algorithm::Md5.digest(content).to_string() }
}

/// A file in chunks under a temporary name.
pub fn open_file() -> OpenFile {
    OpenFile::new(Unfinished::Temporary(b"/d/.f.whimbrel".to_vec()), Some(checksum()), LEAF, Vec::new(), false)
}
