//! Records, their keys and versions.

use serde::{Deserialize, Serialize};
use serde_json::json;
use whimbrel_engine::listing::Timestamp;
use whimbrel_service::store::{AuditEntry, AuditQuery, Batch, Record, Store, StoreError, Versioned};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thing {
    pub id: String,
    pub owner: String,
    pub name: String,
}

impl Record for Thing {
    const KIND: &'static str = "thing";

    fn id(&self) -> String {
        self.id.clone()
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        vec![("owner", self.owner.clone())]
    }

    fn unique_keys(&self) -> Vec<(&'static str, String)> {
        vec![("name", self.name.clone())]
    }
}

fn thing(id: &str, owner: &str, name: &str) -> Thing {
    Thing { id: id.into(), owner: owner.into(), name: name.into() }
}

fn ids(found: &[Versioned<Thing>]) -> Vec<&str> {
    found.iter().map(|found| found.record.id.as_str()).collect()
}

pub async fn a_record_is_found_by_identity_and_keys_in_order(store: &Store) {
    let batch = ["c", "a", "B", "ä"].into_iter().fold(Batch::new(), |batch, id| batch.insert(&thing(id, "ada", id)));
    store.apply(batch.insert(&thing("d", "bob", "d"))).await.unwrap();
    assert_eq!(store.get::<Thing>("a").await.unwrap().unwrap().record, thing("a", "ada", "a"));
    assert!(store.get::<Thing>("x").await.unwrap().is_none());
    // In the order of bytes, whatever the database's language.
    assert_eq!(ids(&store.list::<Thing>(None, 10).await.unwrap()), ["B", "a", "c", "d", "ä"]);
    assert_eq!(ids(&store.list::<Thing>(Some("a"), 2).await.unwrap()), ["c", "d"]);
    assert_eq!(ids(&store.find::<Thing>("owner", "ada", None, 10).await.unwrap()), ["B", "a", "c", "ä"]);
    assert_eq!(ids(&store.find::<Thing>("owner", "ada", Some("B"), 1).await.unwrap()), ["a"]);
    assert_eq!(ids(&store.find::<Thing>("name", "d", None, 10).await.unwrap()), ["d"]);
    assert!(store.find::<Thing>("owner", "eve", None, 10).await.unwrap().is_empty());
}

pub async fn a_batch_fails_whole_when_a_version_is_not_the_one_read(store: &Store) {
    store.apply(Batch::new().insert(&thing("a", "ada", "a")).insert(&thing("b", "ada", "b"))).await.unwrap();
    let read = store.get::<Thing>("a").await.unwrap().unwrap();
    let other = store.get::<Thing>("b").await.unwrap().unwrap();
    let changed = Versioned { record: thing("a", "bob", "a2"), version: read.version };
    store.apply(Batch::new().update(&changed)).await.unwrap();
    let refused: Vec<Batch> = vec![
        Batch::new().insert(&thing("c", "x", "c")).update(&changed),
        Batch::new().insert(&thing("c", "x", "c")).delete(&read),
        Batch::new().insert(&thing("c", "x", "c")).require(&read),
        Batch::new().insert(&thing("c", "x", "c")).insert(&thing("a", "x", "y")),
        // The unique name of another.
        Batch::new().insert(&thing("c", "x", "b")),
        Batch::new().update(&Versioned { record: thing("b", "x", "a2"), version: other.version }),
    ];
    for batch in refused {
        let entry = AuditEntry::new(Timestamp::from_secs(1), "ada", "try", "a");
        let result = store.apply(batch.audit(entry)).await;
        assert!(matches!(result, Err(StoreError::Conflict(_))), "{result:?}");
        assert!(store.get::<Thing>("c").await.unwrap().is_none());
        assert!(store.audit(&AuditQuery::default(), 10).await.unwrap().is_empty());
    }
    assert_eq!(store.get::<Thing>("a").await.unwrap().unwrap().record, thing("a", "bob", "a2"));
    assert!(store.find::<Thing>("name", "a", None, 10).await.unwrap().is_empty(), "keys of the version before");
    store.apply(Batch::new().require(&other).delete_id::<Thing>("a").delete_id::<Thing>("x")).await.unwrap();
    assert_eq!(ids(&store.list::<Thing>(None, 10).await.unwrap()), ["b"]);
    assert!(store.find::<Thing>("owner", "bob", None, 10).await.unwrap().is_empty(), "keys of what is gone");
}

pub async fn a_record_made_again_is_not_taken_for_the_one_before(store: &Store) {
    store.apply(Batch::new().insert(&thing("a", "ada", "a"))).await.unwrap();
    let before = store.get::<Thing>("a").await.unwrap().unwrap();
    store.apply(Batch::new().delete(&before).insert(&thing("a", "ada", "a"))).await.unwrap();
    assert!(matches!(store.apply(Batch::new().update(&before)).await, Err(StoreError::Conflict(_))));
}

pub async fn what_cannot_be_stored_is_refused(store: &Store) {
    for bad in [thing("", "x", "x"), thing("a\0", "x", "x"), thing("a", "x\0", "x")] {
        assert!(matches!(store.apply(Batch::new().insert(&bad)).await, Err(StoreError::Invalid(_))), "{bad:?}");
    }
    assert!(store.list::<Thing>(None, 10).await.unwrap().is_empty());
}

pub async fn audit_is_listed_newest_first_in_pages(store: &Store) {
    let batch = (0..7u32).fold(Batch::new(), |batch, number| {
        let time = Timestamp::from_secs(i64::from(number / 2));
        let actor = if number % 3 == 0 { "ada" } else { "bob" };
        batch.audit(AuditEntry::new(time, actor, "act", format!("s{number}")).detail(json!({"number": number})))
    });
    store.apply(batch).await.unwrap();
    let mut query = AuditQuery::default();
    let mut seen = Vec::new();
    loop {
        let page = store.audit(&query, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        query.before = Some((last.time, last.number));
        seen.extend(page.into_iter().map(|entry| entry.detail["number"].as_u64().unwrap()));
    }
    assert_eq!(seen, [6, 5, 4, 3, 2, 1, 0]);
    let of = |query: AuditQuery| async move {
        let page = store.audit(&query, 10).await.unwrap();
        page.into_iter().map(|entry| entry.subject).collect::<Vec<_>>()
    };
    assert_eq!(of(AuditQuery { actor: Some("ada".into()), ..AuditQuery::default() }).await, ["s6", "s3", "s0"]);
    assert_eq!(of(AuditQuery { subject: Some("s4".into()), ..AuditQuery::default() }).await, ["s4"]);
    let (since, until) = (Some(Timestamp::from_secs(1)), Some(Timestamp::from_secs(2)));
    assert_eq!(of(AuditQuery { since, until, ..AuditQuery::default() }).await, ["s3", "s2"]);
}

pub async fn audit_goes_on_after_a_mark_and_misses_nothing(store: &Store) {
    let entry = |number: i64| {
        let action = ["role.create", "role.delete", "rolex", "access.create"][usize::try_from(number % 4).unwrap()];
        // Clocks differ: times go back and forth by half an hour.
        let time = Timestamp::from_secs(number * 600 + if number % 2 == 0 { 1800 } else { 0 });
        AuditEntry::new(time, if number % 3 == 0 { "ada" } else { "bob" }, action, format!("s{number}"))
    };
    store.apply((0..40).fold(Batch::new(), |batch, number| batch.audit(entry(number)))).await.unwrap();
    let end = store.audit_end().await.unwrap();
    let told = |query: AuditQuery, after: u64, until: u64, limit: u32| async move {
        let entries = store.audit_after(&query, after, until, limit).await.unwrap();
        entries.into_iter().map(|entry| (entry.number, entry.subject)).collect::<Vec<_>>()
    };
    let all = told(AuditQuery::default(), 0, end, 1000).await;
    assert_eq!(all.len(), 40);
    assert!(all.is_sorted() && all[0].1 == "s0" && all[39].0 == end);
    let (mut pages, mut mark) = (Vec::new(), 0);
    while pages.len() < 40 {
        let page = told(AuditQuery::default(), mark, end, 7).await;
        mark = page.last().unwrap().0;
        pages.extend(page);
    }
    assert_eq!(pages, all);
    assert!(told(AuditQuery::default(), end, end, 7).await.is_empty());

    let of = |query: AuditQuery| async move {
        let kept = told(query.clone(), 0, end, 1000).await.into_iter().map(|(_, subject)| subject).collect::<Vec<_>>();
        let time = |time: Option<Timestamp>| time.map(|time| time.secs);
        let fits = |entry: &AuditEntry| {
            time(query.since).is_none_or(|since| entry.time.secs >= since)
                && time(query.until).is_none_or(|until| entry.time.secs < until)
                && query.actor.as_ref().is_none_or(|actor| *actor == entry.actor)
                && query.subject.as_ref().is_none_or(|subject| *subject == entry.subject)
                && query.action.as_ref().is_none_or(|action| match action.ends_with('.') {
                    true => entry.action.starts_with(action),
                    false => *action == entry.action,
                })
        };
        let expected: Vec<_> = (0..40).map(entry).filter(fits).map(|entry| entry.subject).collect();
        assert_eq!(kept, expected, "{query:?}");
        expected.len()
    };
    let query = AuditQuery::default;
    let at = |seconds| Some(Timestamp::from_secs(seconds));
    assert_eq!(of(AuditQuery { action: Some("role.".into()), ..query() }).await, 20);
    assert_eq!(of(AuditQuery { action: Some("rolex".into()), ..query() }).await, 10);
    assert_eq!(of(AuditQuery { actor: Some("ada".into()), since: at(12_000), ..query() }).await, 8);
    assert_eq!(of(AuditQuery { subject: Some("s9".into()), until: at(12_000), ..query() }).await, 1);
    assert_eq!(of(AuditQuery { since: at(12_000), until: at(15_000), ..query() }).await, 4);
    assert_eq!(of(AuditQuery { since: at(1_000_000), ..query() }).await, 0);
}

/// Those who write do not wait for each other, so that entries become visible in another order than that of their numbers.
pub async fn who_exports_while_others_write_misses_nothing(store: &Store) {
    let mut writing = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let store = store.clone();
        writing.spawn(async move {
            for number in 0..25 {
                let entry = AuditEntry::new(Timestamp::from_secs(number), "ada", "act", format!("{writer}:{number}"));
                let thing = thing(&format!("{writer}:{number}"), "x", &format!("{writer}:{number}"));
                store.apply(Batch::new().audit(entry).insert(&thing)).await.unwrap();
            }
        });
    }
    let (mut seen, mut mark) = (Vec::new(), 0);
    loop {
        // What is there once nobody writes any more is the last of it.
        let is_last = writing.try_join_next().is_none() && writing.is_empty();
        let end = store.audit_end().await.unwrap();
        for entry in store.audit_after(&AuditQuery::default(), mark, end, 1000).await.unwrap() {
            mark = entry.number;
            seen.push(entry.subject);
        }
        if is_last {
            break;
        }
        tokio::task::yield_now().await;
    }
    seen.sort();
    let mut all: Vec<_> = (0..8).flat_map(|writer| (0..25).map(move |number| format!("{writer}:{number}"))).collect();
    all.sort();
    assert_eq!(seen, all);
}

pub async fn of_many_changes_at_once_one_wins(store: &Store) {
    store.apply(Batch::new().insert(&thing("a", "0", "a")).insert(&thing("b", "0", "b"))).await.unwrap();
    let mut changes = tokio::task::JoinSet::new();
    for number in 0..16u32 {
        let store = store.clone();
        changes.spawn(async move {
            // In both orders, so that they lock what the others want.
            let names = if number % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
            let mut wins = 0u32;
            for _ in 0..5 {
                let mut batch = Batch::new();
                for name in names {
                    let mut read = store.get::<Thing>(name).await.unwrap().unwrap();
                    read.record.owner = (read.record.owner.parse::<u32>().unwrap() + 1).to_string();
                    batch = batch.update(&read);
                }
                match store.apply(batch).await {
                    Ok(()) => wins += 1,
                    Err(error) => assert!(matches!(error, StoreError::Conflict(_)), "{error}"),
                }
            }
            wins
        });
    }
    let wins: u32 = changes.join_all().await.into_iter().sum();
    assert!(wins > 0);
    for name in ["a", "b"] {
        let read = store.get::<Thing>(name).await.unwrap().unwrap();
        assert_eq!(read.record.owner, wins.to_string(), "each that was told of success counts once");
    }
}
