use proptest::prelude::*;

use super::*;

#[test]
fn paths_are_resolved_by_their_text_and_never_leave_the_collection() {
    let normal = |path| normal(path, "/home/ada/");
    for (path, expected) in [
        ("", "/home/ada/"),
        ("~", "/home/ada/"),
        ("/~/", "/home/ada/"),
        ("~/x", "/home/ada/x"),
        ("/~/x/../y/", "/home/ada/y/"),
        ("x", "/home/ada/x"),
        ("/", "/"),
        ("//a/./b//", "/a/b/"),
        ("/a/..", "/"),
        ("/a/b/..", "/a/"),
        ("/a/~", "/a/~"),
    ] {
        assert_eq!(normal(path).as_deref(), Ok(expected), "{path}");
    }
    assert_eq!(normal("/.."), Err(InvalidPath::Outside));
    assert_eq!(normal("/a/../../a"), Err(InvalidPath::Outside));
    assert_eq!(normal("~/../../../x"), Err(InvalidPath::Outside));
    assert_eq!(normal("/a\r\nDELE b"), Err(InvalidPath::Character));
    assert_eq!(normal(&format!("/{}", "a/".repeat(2100))), Err(InvalidPath::TooLong));
    assert_eq!(inside("/data/", "/x"), "/data/x");
    assert_eq!(inside("/", "/x"), "/x");
}

fn rule(method: FilterMethod, kind: Option<FilterType>, name: &str) -> FilterRule {
    FilterRule { method, kind, name: name.into() }
}

#[test]
fn the_first_rule_that_matches_decides() {
    use FilterMethod::{Exclude, Include};
    let filter = Filter(vec![
        rule(Include, Some(FilterType::File), "*.keep"),
        rule(Exclude, Some(FilterType::File), "*.ke?p"),
        rule(Exclude, Some(FilterType::Dir), ".git"),
        rule(Exclude, None, "[!a-c]*.tmp"),
    ]);
    assert!(filter.takes(FilterType::File, b"x.keep"));
    assert!(!filter.takes(FilterType::File, b"x.kelp"));
    assert!(filter.takes(FilterType::Dir, b"x.kelp"));
    assert!(!filter.takes(FilterType::Dir, b".git"));
    assert!(filter.takes(FilterType::File, b".git"));
    assert!(filter.takes(FilterType::File, b"b1.tmp"));
    assert!(!filter.takes(FilterType::File, b"d1.tmp"));
    assert!(!filter.takes(FilterType::Dir, b"\xff.tmp"));
    assert!(Filter::default().takes(FilterType::File, b"anything"));
}

#[test]
fn patterns_hold_stars_marks_and_sets() {
    let fits = |pattern: &str, name: &str| {
        !Filter(vec![rule(FilterMethod::Exclude, None, pattern)]).takes(FilterType::File, name.as_bytes())
    };
    for (pattern, name) in [
        ("*", ""),
        ("a*b*c", "axxbxbc"),
        ("?", "x"),
        ("[]]", "]"),
        ("[a-]", "-"),
        ("[x", "[x"),
        ("**a", "bba"),
        ("[!]]", "a"),
    ] {
        assert!(fits(pattern, name), "{pattern} {name}");
    }
    for (pattern, name) in
        [("", "a"), ("a*b", "a"), ("?", ""), ("[!a]", "a"), ("a", "ab"), ("*a", "ab"), ("[b-d]", "a")]
    {
        assert!(!fits(pattern, name), "{pattern} {name}");
    }
}

/// A star that tries each place anew for each other star would take ages here.
#[test]
fn a_hostile_pattern_costs_little() {
    let pattern = "a*".repeat(60) + "b";
    let filter = Filter(vec![rule(FilterMethod::Exclude, None, &pattern)]);
    assert!(filter.takes(FilterType::File, &[b'a'; 5000]));
}

fn any_record() -> impl Strategy<Value = ItemRecord> {
    (0i64..3, 0i64..8, 0u64..1000, any::<bool>()).prop_map(|(kind, state, bytes, extra)| ItemRecord {
        kind: ItemKind::from_number(kind).unwrap(),
        state: ItemState::from_number(state).unwrap(),
        bytes,
        proven: bytes / 2,
        extra,
    })
}

proptest! {
    /// Whatever the items went through, the counters are what adding up their last records from nothing gives.
    #[test]
    fn counters_are_the_sum_of_the_items(histories in prop::collection::vec(prop::collection::vec(any_record(), 1..6), 0..20)) {
        let (mut stepped, mut summed) = (Counters::default(), Counters::default());
        for history in &histories {
            let mut last = None;
            for record in history {
                stepped.step(last, record);
                last = Some(record);
            }
            summed.step(None, last.unwrap());
        }
        prop_assert_eq!(stepped, summed);
        prop_assert_eq!(stepped.total(), histories.len() as u64);
    }

    /// Closing what is open is the same as a step of each open item.
    #[test]
    fn open_items_are_closed_at_once_or_one_by_one(records in prop::collection::vec(any_record(), 0..20), to in 0usize..3) {
        let to = [ItemState::Failed, ItemState::Canceled, ItemState::Expired][to];
        let (mut closed, mut stepped) = (Counters::default(), Counters::default());
        for record in &records {
            closed.step(None, record);
            stepped.step(None, record);
            if !record.state.is_final() {
                stepped.step(Some(record), &ItemRecord { state: to, ..*record });
            }
        }
        closed.close(to);
        prop_assert_eq!(closed, stepped);
        prop_assert_eq!(closed.open(), 0);
    }
}
