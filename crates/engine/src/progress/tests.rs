use super::*;
use crate::plan::{Attributes, RootId};
use proptest::prelude::*;

fn item(id: u64, size: Option<u64>) -> Item {
    Item {
        id: ItemId(id),
        root: RootId(0),
        parent: None,
        source: b"/s".to_vec(),
        destination: b"/d".to_vec(),
        size,
        modified: None,
        range: None,
        attributes: Attributes::default(),
        twins: Vec::new(),
    }
}

#[test]
fn bytes_moved_again_after_a_restart_count_once_and_are_wasted_once() {
    let now = Instant::now();
    let mut progress = Progress::new(now);
    let file = item(0, Some(100));
    progress.file_found(file.size);
    progress.attempt(&file, 1, 0);
    progress.moved(now, file.id, 60);
    assert_eq!(progress.snapshot(now).bytes_done, 60);
    progress.attempt_failed(file.id, 40);
    assert_eq!(progress.snapshot(now).bytes_done, 40);
    progress.attempt(&file, 2, 40);
    progress.moved(now, file.id, 60);
    progress.file_done(now, &file, &Verification::NotAsked);
    let snapshot = progress.snapshot(now);
    assert_eq!((snapshot.bytes_done, snapshot.bytes_wasted, progress.bytes_moved()), (100, 20, 120));
    // What an earlier run has brought is no measure of what the path carries.
    let resumed = item(1, Some(1000));
    progress.file_found(resumed.size);
    progress.attempt(&resumed, 1, 900);
    assert_eq!((progress.snapshot(now).bytes_done, progress.bytes_moved()), (1000, 120));
}

#[test]
fn an_estimate_is_given_only_when_totals_are_final_and_the_rate_is_known() {
    let start = Instant::now();
    let mut progress = Progress::new(start);
    let file = item(0, Some(1000));
    progress.file_found(file.size);
    progress.attempt(&file, 1, 0);
    for tick in 1..=10 {
        progress.moved(start + Duration::from_secs(tick), file.id, tick * 50);
    }
    let now = start + Duration::from_secs(10);
    assert_eq!(progress.snapshot(now).eta, None);
    assert_eq!(progress.snapshot(now).percent, None);
    progress.listing_done();
    let eta = progress.snapshot(now).eta.expect("all is known");
    assert!((9.0..11.0).contains(&eta), "{eta}");
    assert_eq!(progress.snapshot(now).percent, Some(50.0));
    assert_eq!(progress.snapshot(now + Duration::from_secs(60)).eta, None, "nothing moves any more");
}

#[test]
fn a_file_of_unknown_size_keeps_the_total_a_lower_bound() {
    let now = Instant::now();
    let mut progress = Progress::new(now);
    let file = item(0, None);
    progress.file_found(None);
    progress.listing_done();
    progress.attempt(&file, 1, 0);
    progress.moved(now, file.id, 70);
    let snapshot = progress.snapshot(now);
    assert_eq!((snapshot.bytes_done, snapshot.bytes_total, snapshot.percent), (70, 70, None));
    progress.file_done(now, &file, &Verification::NotAsked);
    assert_eq!(progress.snapshot(now).percent, Some(100.0));
}

#[derive(Debug, Clone)]
enum Step {
    Attempt(u64, u64),
    Moved(u64, u64),
    Failed(u64, u64),
    Done(u64),
    GivenUp(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u64..4, 0u64..300).prop_map(|(i, n)| Step::Attempt(i, n)),
        (0u64..4, 0u64..300).prop_map(|(i, n)| Step::Moved(i, n)),
        (0u64..4, 0u64..300).prop_map(|(i, n)| Step::Failed(i, n)),
        (0u64..4).prop_map(Step::Done),
        (0u64..4).prop_map(Step::GivenUp),
    ]
}

proptest! {
    #[test]
    fn nothing_is_negative_or_above_the_total_whatever_is_reported(steps in prop::collection::vec(step(), 0..60)) {
        let mut now = Instant::now();
        let mut progress = Progress::new(now);
        let files: Vec<_> = [Some(0), Some(100), Some(200), None].into_iter().zip(0..).map(|(s, i)| item(i, s)).collect();
        files.iter().for_each(|file| progress.file_found(file.size));
        progress.listing_done();
        let mut ended = [false; 4];
        for step in steps {
            now += Duration::from_millis(300);
            match step {
                Step::Attempt(i, kept) if !ended[i as usize] => progress.attempt(&files[i as usize], 1, kept),
                Step::Moved(i, n) => { progress.moved(now, ItemId(i), n); }
                Step::Failed(i, kept) => progress.attempt_failed(ItemId(i), kept),
                Step::Done(i) if !std::mem::replace(&mut ended[i as usize], true) => {
                    progress.attempt(&files[i as usize], 1, 0);
                    progress.file_done(now, &files[i as usize], &Verification::NotAsked);
                }
                Step::GivenUp(i) if !std::mem::replace(&mut ended[i as usize], true) => progress.file_failed(&files[i as usize]),
                _ => {}
            }
            let s = progress.snapshot(now);
            prop_assert!(s.bytes_done <= s.bytes_total && s.files_done <= s.files_total, "{s:?}");
            prop_assert!(s.rate >= 0.0 && s.rate.is_finite());
            prop_assert!(s.eta.is_none_or(|eta| eta >= 0.0 && eta.is_finite()));
            prop_assert!(s.percent.is_none_or(|p| (0.0..=100.0).contains(&p)));
        }
    }
}
