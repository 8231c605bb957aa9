//! Proven leaves on their way between the wire and a journal: a destination's own, or a client's beside a file elsewhere.

use whimbrel_engine::journal::{self, Header, Writer};
use whimbrel_proto::leaf;
use whimbrel_proto::op::Leaf;
use whimbrel_transport::digest::Digest;

/// As replies and commands tell a leaf of a journal.
pub fn to_wire(leaf: journal::Leaf) -> Leaf {
    Leaf { range: leaf.range, digest: leaf::hex(&leaf.digest) }
}

/// The records of some leaves that `writer` has proven; `None` when one is no leaf of the file, or has a digest of another algorithm than the header's.
pub fn records(header: &Header, leaves: &[Leaf], writer: Writer) -> Option<Vec<u8>> {
    let leaves: Option<Vec<_>> = leaves.iter().map(|leaf| from_wire(leaf, header)).collect();
    journal::encode_leaves(header, &leaves?, writer)
}

fn from_wire(leaf: &Leaf, header: &Header) -> Option<journal::Leaf> {
    let digest = match header.algorithm.as_str() {
        leaf::NONE => (leaf.digest == leaf::NONE_DIGEST).then(|| vec![0])?,
        name => Digest::from_hex(name.parse().ok()?, leaf.digest.as_bytes())?.as_bytes().to_vec(),
    };
    Some(journal::Leaf { range: leaf.range.clone(), digest })
}
