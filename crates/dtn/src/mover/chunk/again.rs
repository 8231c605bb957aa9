//! A leaf that is read once more because others may have written to it since it was proven.

use whimbrel_connector::WriteAt;
use whimbrel_engine::Fault;
use whimbrel_engine::journal::{Header, Leaf};
use whimbrel_transport::Cancel;
use whimbrel_transport::digest::{Algorithm, Digest, Hasher};

/// Bytes that are read at once.
const PIECE: usize = 256 << 10;

/// Whether the storage durably holds what the leaf was proven with; `false` where nothing was hashed.
pub fn is_there(writer: &dyn WriteAt, header: &Header, leaf: &Leaf, cancel: &Cancel) -> Result<bool, Fault> {
    let Ok(algorithm) = header.algorithm.parse::<Algorithm>() else { return Ok(false) };
    let range = leaf.range.clone();
    writer.drop_cached(range.clone())?;
    let mut hasher = Hasher::for_leaf(algorithm, range.start, header.leaf);
    let mut buffer = vec![0; PIECE];
    let mut at = range.start;
    while at < range.end {
        cancel.check("read a leaf again")?;
        let most = PIECE.min((range.end - at) as usize);
        match writer.read_back(at, &mut buffer[..most])? {
            0 => return Ok(false),
            count => {
                hasher.update(&buffer[..count]);
                at += count as u64;
            }
        }
    }
    Ok(Digest::from_bytes(algorithm, &leaf.digest) == Some(hasher.finish()))
}

#[cfg(test)]
mod tests {
    use whimbrel_connector::memory::Memory;
    use whimbrel_connector::{Connector, Disposition, StoragePath, WriteIntent};

    use super::*;

    #[test]
    fn a_leaf_is_there_if_all_of_it_has_the_digest_it_was_proven_with() {
        let storage = Memory::new();
        let path = StoragePath::resolve(&StoragePath::root(), b"/file").unwrap();
        let intent = WriteIntent { disposition: Disposition::Continue, size: None, length: None, mode: None };
        let writer = storage.join(&storage.begin(&path, &intent).unwrap()).unwrap();
        let (leaf, cancel) = (PIECE as u64 * 2, Cancel::new().unwrap());
        let data: Vec<u8> = (0..leaf + 5).map(|at| (at / 7) as u8).collect();
        writer.write_at(leaf, &data).unwrap();
        for algorithm in [Algorithm::Md5, Algorithm::Blake3Tree] {
            let header = Header { size: 2 * leaf + 5, modified: None, leaf, algorithm: algorithm.name().into() };
            let holds = |range: std::ops::Range<u64>, of: &[u8]| {
                let mut hasher = Hasher::for_leaf(algorithm, range.start, leaf);
                hasher.update(of);
                let proven = Leaf { range, digest: hasher.finish().as_bytes().to_vec() };
                is_there(writer.as_ref(), &header, &proven, &cancel).unwrap()
            };
            assert!(holds(leaf..2 * leaf, &data[..leaf as usize]), "{algorithm}");
            assert!(holds(2 * leaf..2 * leaf + 5, &data[leaf as usize..]), "{algorithm}");
            assert!(!holds(leaf..2 * leaf, &data[1..=leaf as usize]), "{algorithm}");
            assert!(!holds(2 * leaf..3 * leaf, &data[leaf as usize..]), "{algorithm}: it ends before");
        }
        let unproven = Header { size: leaf, modified: None, leaf, algorithm: "NONE".into() };
        let leaf = Leaf { range: 0..leaf, digest: vec![0] };
        assert!(!is_there(writer.as_ref(), &unproven, &leaf, &cancel).unwrap(), "nobody knows what it held");
    }
}
