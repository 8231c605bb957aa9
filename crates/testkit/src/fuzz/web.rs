//! What web servers of ours read of requests themselves.

use whimbrel_dtn::door::range::Part;
use whimbrel_dtn::door::spot::{Spot, decoded, encoded};

/// Sizes of files that ranges are asked of.
const SIZES: [u64; 4] = [0, 1, 100, u64::MAX];

/// Each line of the input as the path of a URL, as a field Range, as a query and as a scope.
pub fn web_requests(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for line in text.lines() {
        check_range(line);
        check_spot(line);
    }
}

/// Nothing is served that the file has not, and what is no range is no reason to refuse anything.
fn check_range(field: &str) {
    for size in SIZES {
        assert_eq!(Part::of(None, size), Part::Whole);
        match Part::of(Some(field), size) {
            Part::Whole => {}
            Part::Bytes(bytes) => {
                assert!(bytes.start < bytes.end && bytes.end <= size);
                let again = format!("bytes={}-{}", bytes.start, bytes.end - 1);
                assert_eq!(Part::of(Some(&again), size), Part::Bytes(bytes));
            }
            Part::Beyond => assert!(field.trim().starts_with("bytes=")),
        }
    }
}

/// A path is absolute, and names the same file however much of it is encoded.
fn check_spot(line: &str) {
    assert_eq!(decoded(&encoded(line)).as_deref(), Some(line));
    assert!(encoded(line).bytes().all(|byte| byte.is_ascii_graphic() && !b"\"/\\".contains(&byte)));
    let Some(spot) = Spot::of(line) else { return };
    assert!(spot.path.starts_with('/') && !spot.name().contains('/') && spot.path.ends_with(spot.name()));
    let again = Spot::of(&format!("/{}/{}", spot.collection, encoded(&spot.path[1..])));
    assert_eq!(again, Some(spot));
}
