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
