//! Digests of whole files: which are wanted, where they come from, and whether they are as expected.
//!
//! They are checked before a file has its final name: a destination of ours is told what to expect before it commits;
//! at any other the file has a temporary name until its digest is known.

use whimbrel_engine::progress::FileSum;
use whimbrel_engine::transfer::{Job, Work};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{Leaf, Op};
use whimbrel_transport::digest::{self, Algorithm, Digest};

use super::checksum::SharedChecksum;
use super::end::End;
use super::expect::Expected;
use super::flight::{Order, Purpose, hash_markers};

/// One wanted digest.
#[derive(Debug, Clone)]
struct Wanted {
    algorithm: Algorithm,
    expected: Option<String>,
    digest: Option<String>,
    /// The destination was told what to expect: it gives no name to anything else.
    announced: bool,
}

/// How far a file is that is moved and proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Moved,
    Summed,
    Named,
    Done,
}

/// The digests of one file that are wanted.
#[derive(Debug, Clone)]
pub struct Whole {
    wanted: Vec<Wanted>,
    stage: Stage,
    /// What gives the final name and the attributes, when that is to wait.
    naming: Vec<Order>,
}

impl Whole {
    /// What is wanted of a file; `None`: nothing.
    pub fn new(print: Option<Algorithm>, expected: Option<&Expected>) -> Option<Self> {
        let mut wanted: Vec<Wanted> = Vec::new();
        if let Some(Expected { algorithm, digest }) = expected {
            let expected = Some(digest.clone());
            wanted.push(Wanted { algorithm: *algorithm, expected, digest: None, announced: false });
        }
        if let Some(algorithm) = print.filter(|print| wanted.iter().all(|wanted| wanted.algorithm != *print)) {
            wanted.push(Wanted { algorithm, expected: None, digest: None, announced: false });
        }
        (!wanted.is_empty()).then_some(Self { wanted, stage: Stage::Moved, naming: Vec::new() })
    }

    /// Nothing is wanted of a file, which only waits for its name.
    pub fn unwanted() -> Self {
        Self { wanted: Vec::new(), stage: Stage::Moved, naming: Vec::new() }
    }

    /// Whether a digest is wanted: then the copy must be proven.
    pub fn is_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// What gives the file its name once it is proven.
    pub fn name_later(&mut self, naming: Vec<Order>) {
        self.naming = naming;
    }

    /// Whether the user said what the file must be.
    pub fn is_expected(&self) -> bool {
        self.wanted.iter().any(|wanted| wanted.expected.is_some())
    }

    /// The algorithm that, proving the copy, gives a wanted digest for nothing, if there is one that proves enough.
    ///
    /// Digests come with replies for leaves of `leaf` bytes, or, with `None`, for the whole file from CKSM.
    pub fn cheapest(&self, size: Option<u64>, leaf: Option<u64>) -> Option<Algorithm> {
        // The digest of a file's only leaf is the file's.
        let single = leaf.is_none_or(|leaf| size.is_some_and(|size| size <= leaf));
        let gives = |algorithm: Algorithm| match algorithm {
            // Two sums of 16 bits are a weak proof.
            Algorithm::Adler32 => None,
            _ if single => Some(algorithm),
            Algorithm::Crc32c => Some(algorithm),
            Algorithm::Blake3 => Some(Algorithm::Blake3Tree),
            _ => None,
        };
        self.wanted.iter().find_map(|wanted| gives(wanted.algorithm))
    }

    /// Why the destination cannot serve, if it cannot.
    pub fn unsupported(&self, destination: &End) -> Option<Fault> {
        let missing = self.wanted.iter().find(|wanted| spelled(destination, wanted.algorithm).is_none())?;
        let names = destination.checksums();
        let offered = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let detail = format!("the destination cannot compute {}: it offers {offered}", missing.algorithm);
        Some(Fault::new(FaultCode::NotSupported, "checksum the file").side(Side::Destination).detail(detail))
    }

    /// What a destination of ours is told to expect.
    pub fn announce(&mut self, destination: &End) -> Option<(String, String)> {
        let wanted = self.wanted.iter_mut().find(|wanted| wanted.expected.is_some() && wanted.digest.is_none())?;
        let name = spelled(destination, wanted.algorithm)?;
        wanted.announced = true;
        Some((name, wanted.expected.clone()?))
    }

    /// Takes a digest that CKSM gave.
    pub fn take(&mut self, index: usize, digest: String) {
        if let Some(wanted) = self.wanted.get_mut(index) {
            wanted.digest = Some(digest.to_ascii_lowercase());
        }
    }

    /// Takes what the leaves of the whole file tell, each of `leaf` bytes or the rest, in order.
    pub fn take_leaves<'a>(
        &mut self,
        proof: &SharedChecksum,
        leaves: impl Iterator<Item = &'a Leaf>,
        size: Option<u64>,
        leaf: u64,
    ) {
        let Ok(algorithm) = proof.destination.parse::<Algorithm>() else { return };
        if let Some(wanted) = self.lacking(algorithm.of_file()) {
            wanted.digest = composed(algorithm, leaves, size, leaf).map(|digest| digest.to_string());
        }
    }

    /// Takes the digest that proved the whole file.
    pub fn take_proof(&mut self, proof: &SharedChecksum, digest: Option<&String>) {
        let Ok(algorithm) = proof.destination.parse::<Algorithm>() else { return };
        if let Some(wanted) = self.lacking(algorithm) {
            wanted.digest = digest.map(|digest| digest.to_ascii_lowercase());
        }
    }

    fn lacking(&mut self, algorithm: Algorithm) -> Option<&mut Wanted> {
        self.wanted.iter_mut().find(|wanted| wanted.algorithm == algorithm && wanted.digest.is_none())
    }

    /// The operations of the next step of a file that is proven, when everything before is answered; `None`: all is done.
    /// `readable`: where its bytes can be read before it has its final name.
    ///
    /// # Errors
    /// `NotAsExpected`.
    pub fn next(&mut self, job: &Job, readable: Option<&[u8]>, destination: &End) -> Option<Result<Vec<Order>, Fault>> {
        let committed = job.work == Work::Copy && self.naming.is_empty();
        match self.stage {
            Stage::Moved => {
                self.stage = Stage::Summed;
                if committed {
                    return Some(Ok(Vec::new()));
                }
                Some(Ok(readable.map(|path| self.sums(job, path, destination)).unwrap_or_default()))
            }
            Stage::Summed => {
                self.stage = Stage::Named;
                if let Err(fault) = self.check(job) {
                    return Some(Err(fault));
                }
                let mut naming = std::mem::take(&mut self.naming);
                for order in &mut naming {
                    if let Op::CommitChunked { expected, .. } = &mut order.op {
                        *expected = self.announce(destination);
                    }
                }
                Some(Ok(naming))
            }
            Stage::Named => {
                self.stage = Stage::Done;
                for wanted in self.wanted.iter_mut().filter(|wanted| wanted.announced && wanted.digest.is_none()) {
                    wanted.digest.clone_from(&wanted.expected);
                }
                Some(Ok(self.sums(job, &job.item.destination, destination)))
            }
            Stage::Done => None,
        }
    }

    /// One CKSM for each digest that nothing else told.
    fn sums(&self, job: &Job, path: &[u8], destination: &End) -> Vec<Order> {
        let missing = self.wanted.iter().enumerate().filter(|(_, wanted)| wanted.digest.is_none());
        let order = |(index, wanted): (usize, &Wanted)| {
            let algorithm = spelled(destination, wanted.algorithm)?;
            let marker_interval = hash_markers(job.item.size);
            let op = Op::Checksum { algorithm, offset: 0, length: None, path: path.to_vec(), marker_interval };
            Some(Order::destination(Purpose::FileSum(index), op))
        };
        missing.filter_map(order).collect()
    }

    /// Whether what is known is as expected.
    fn check(&self, job: &Job) -> Result<(), Fault> {
        let differs =
            |wanted: &&Wanted| wanted.digest.is_some() && wanted.expected.is_some() && wanted.digest != wanted.expected;
        match self.wanted.iter().find(differs) {
            Some(Wanted { algorithm, expected: Some(expected), digest: Some(digest), .. }) => {
                let detail =
                    format!("{algorithm} is {digest}, but {expected} was expected; the file did not get its name");
                Err(not_as_expected(job, detail))
            }
            _ => Ok(()),
        }
    }

    /// What is known, for people and programs.
    pub fn told(&self) -> Vec<FileSum> {
        let sum = |wanted: &Wanted| {
            let algorithm = wanted.algorithm.name().replace('-', "").to_ascii_lowercase();
            Some(FileSum { algorithm, digest: wanted.digest.clone()?, expected: wanted.expected.is_some() })
        };
        self.wanted.iter().filter_map(sum).collect()
    }
}

/// Both ends have the same bytes, and they are not what the user expected: the source is to blame, and no repetition helps.
pub fn not_as_expected(job: &Job, detail: impl Into<String>) -> Fault {
    let fault = Fault::new(FaultCode::NotAsExpected, "check the whole file").on_path(&job.item.source);
    fault.side(Side::Source).detail(detail)
}

/// An algorithm in an end's own spelling.
pub fn spelled(end: &End, algorithm: Algorithm) -> Option<String> {
    end.checksums().into_iter().find(|name| name.parse::<Algorithm>().is_ok_and(|known| known == algorithm))
}

/// The digest of a file from those of its leaves, if they are complete and compose.
fn composed<'a>(
    algorithm: Algorithm,
    leaves: impl Iterator<Item = &'a Leaf>,
    size: Option<u64>,
    leaf: u64,
) -> Option<Digest> {
    let leaves = leaves.map(|leaf| (leaf.range.clone(), Digest::from_hex(algorithm, leaf.digest.as_bytes())));
    digest::compose_ranges(algorithm, leaves, size, leaf)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(algorithm: Algorithm, data: &[u8]) -> String {
        algorithm.digest(data).to_string()
    }

    fn leaves(algorithm: Algorithm, data: &[u8], leaf: usize) -> Vec<Leaf> {
        let start = |index: usize| (index * leaf) as u64;
        let one = |(index, part): (usize, &[u8])| Leaf {
            range: start(index)..start(index) + part.len() as u64,
            digest: hash(algorithm, part),
        };
        data.chunks(leaf).enumerate().map(one).collect()
    }

    #[test]
    fn a_crc_of_the_file_comes_from_complete_leaves_only() {
        let data = vec![7; 10_000];
        let all = leaves(Algorithm::Crc32c, &data, 4096);
        let whole =
            |leaves: &[Leaf], size| composed(Algorithm::Crc32c, leaves.iter(), size, 4096).map(|d| d.to_string());
        assert_eq!(whole(&all, Some(10_000)), Some(hash(Algorithm::Crc32c, &data)));
        assert_eq!(whole(&all, Some(10_001)), None);
        assert_eq!(whole(&all[1..], None), None);
        assert_eq!(whole(&[all[0].clone(), all[2].clone()], None), None);
        let md5 = leaves(Algorithm::Md5, &data, 4096);
        assert_eq!(composed(Algorithm::Md5, md5.iter(), Some(10_000), 4096), None);
        let one = leaves(Algorithm::Md5, &data, 16_384);
        assert_eq!(
            composed(Algorithm::Md5, one.iter(), Some(10_000), 16_384).unwrap().to_string(),
            hash(Algorithm::Md5, &data)
        );
    }

    #[test]
    fn the_proof_is_chosen_to_give_the_digest_where_it_can() {
        let of = |algorithm| Whole::new(Some(algorithm), None).unwrap();
        let (small, large, leaf) = (Some(4096), Some(4097), Some(4096));
        assert_eq!(of(Algorithm::Sha256).cheapest(small, leaf), Some(Algorithm::Sha256));
        assert_eq!(of(Algorithm::Sha256).cheapest(large, leaf), None);
        assert_eq!(of(Algorithm::Sha256).cheapest(large, None), Some(Algorithm::Sha256));
        assert_eq!(of(Algorithm::Crc32c).cheapest(large, leaf), Some(Algorithm::Crc32c));
        assert_eq!(of(Algorithm::Blake3).cheapest(large, leaf), Some(Algorithm::Blake3Tree));
        assert_eq!(of(Algorithm::Blake3).cheapest(small, leaf), Some(Algorithm::Blake3));
        assert_eq!(of(Algorithm::Blake3).cheapest(large, None), Some(Algorithm::Blake3));
        assert_eq!(of(Algorithm::Adler32).cheapest(small, None), None, "too weak a proof");
        assert!(Whole::new(None, None).is_none());
    }
}
