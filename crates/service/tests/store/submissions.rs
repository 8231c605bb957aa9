//! Submissions and lists of tasks.

use std::time::{Duration, Instant};

use whimbrel_engine::dispatch::End;
use whimbrel_engine::task::{DeleteOptions, Status};
use whimbrel_service::store::{Changed, Label, Order, Store, StoreError, TaskPlace, TaskQuery};
use whimbrel_service::task::{Submitted, TaskWork};

use crate::made::{at, ending, id, item, leased, submitted, take, task, transfer};

pub async fn a_submission_is_taken_once(store: &Store) {
    let first = submitted(store, &transfer(1, 1), 5).await;
    let kept = task(store, first).await;
    assert_eq!((kept.wanted, kept.requested), (transfer(1, 1).wanted, at(5)));
    assert_eq!(store.submit(&transfer(1, 1), at(6)).await.unwrap(), Submitted::Repeated(first));
    let mut same_items = transfer(1, 2);
    same_items.wanted.fingerprint = transfer(1, 1).wanted.fingerprint;
    assert_eq!(store.submit(&same_items, at(6)).await.unwrap(), Submitted::Conflict(first));
    // The same is told without a submission, and nothing comes of it.
    let mut new = same_items.clone();
    (new.wanted.submission, new.wanted.fingerprint) = (id(77), "another".to_owned());
    for (submission, way) in [
        (transfer(1, 1), Some(Submitted::Repeated(first))),
        (same_items.clone(), Some(Submitted::Conflict(first))),
        (new, None),
    ] {
        assert_eq!(store.in_the_way(&submission.wanted).await.unwrap(), way);
    }
    // What another owner submits is another task.
    assert_ne!(submitted(store, &transfer(2, 1), 6).await, first);
    store.cancel(first, id(1), "", at(7)).await.unwrap();
    let again = submitted(store, &same_items, 8).await;
    assert_eq!(store.submit(&same_items, at(9)).await.unwrap(), Submitted::Repeated(again));
    assert_eq!(store.submit(&transfer(1, 1), at(9)).await.unwrap(), Submitted::Repeated(first));
}

pub async fn a_hundred_thousand_items_come_back_in_order(store: &Store) {
    let mut submission = transfer(1, 1);
    submission.items = (1..=100_000).map(item).collect();
    let begun = Instant::now();
    let task = submitted(store, &submission, 0).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let mut got = Vec::new();
    loop {
        let after = got.last().map_or(0, |item: &whimbrel_engine::dispatch::WorkItem| item.number);
        let page = store.submitted_items(task, after, 1700).await.unwrap();
        assert!(page.len() <= 1700);
        if page.is_empty() {
            break;
        }
        got.extend(page);
    }
    assert_eq!(got.len(), 100_000);
    assert!(got == submission.items);
    assert_eq!(store.submitted_items(task, 41_999, 3).await.unwrap(), submission.items[41_999..42_002]);
}

pub async fn items_without_a_right_order_are_refused(store: &Store) {
    for numbers in [&[][..], &[0, 1], &[2, 1], &[1, 1]] {
        let mut submission = transfer(1, 1);
        submission.items = numbers.iter().copied().map(item).collect();
        assert!(matches!(store.submit(&submission, at(0)).await, Err(StoreError::Invalid(_))), "{numbers:?}");
    }
}

pub async fn tasks_are_listed_by_every_filter_and_order(store: &Store) {
    let labels = [None, Some("Night_ly Ärger"), Some("nightly 100%"), Some("other"), Some("Other")];
    let mut tasks = Vec::new();
    for (number, label) in (0..).zip(labels) {
        let mut submission = transfer(1 + number % 2, number);
        submission.wanted.label = label.map(str::to_owned);
        if number == 3 {
            submission.wanted.work = TaskWork::Delete(DeleteOptions::default());
            submission.wanted.destination = None;
        }
        submission.wanted.source.collection = id(100 + number);
        tasks.push(submitted(store, &submission, i64::try_from(number).unwrap()).await);
    }
    store.cancel(tasks[0], id(1), "", at(50)).await.unwrap();
    store.pause(tasks[1], "wait", at(50)).await.unwrap();
    let listed = |query: TaskQuery| {
        let tasks = &tasks;
        async move {
            let (found, total) = store.tasks(&TaskQuery { limit: 100, ..query }).await.unwrap();
            assert_eq!(found.len() as u64, total);
            let place = |id| tasks.iter().position(|task| *task == id).unwrap();
            found.iter().map(|task| place(task.id)).collect::<Vec<_>>()
        }
    };
    let all = TaskQuery::default;
    let label = |text: &str, is_pattern, is_not| Label { text: text.into(), is_pattern, is_not };
    assert_eq!(listed(all()).await, [4, 3, 2, 1, 0], "newest first");
    assert_eq!(listed(TaskQuery { owner: Some(id(1)), ..all() }).await, [4, 2, 0]);
    assert_eq!(listed(TaskQuery { ids: vec![tasks[3], tasks[1], id(9)], ..all() }).await, [3, 1]);
    assert_eq!(listed(TaskQuery { types: vec!["DELETE".into()], ..all() }).await, [3]);
    assert_eq!(listed(TaskQuery { types: vec!["DELETE".into(), "TRANSFER".into()], ..all() }).await.len(), 5);
    assert_eq!(listed(TaskQuery { statuses: vec![Status::Failed, Status::Inactive], ..all() }).await, [0]);
    assert_eq!(listed(TaskQuery { collections: vec![id(102), id(103)], ..all() }).await, [3, 2]);
    assert_eq!(listed(TaskQuery { collections: vec![id(2)], ..all() }).await, [4, 2, 1, 0]);
    assert_eq!(listed(TaskQuery { paused: Some(true), ..all() }).await, [1]);
    assert_eq!(listed(TaskQuery { requested: (Some(at(1)), Some(at(3))), ..all() }).await, [3, 2, 1]);
    assert_eq!(listed(TaskQuery { completed: (None, Some(at(60))), ..all() }).await, [0]);
    assert!(listed(TaskQuery { completed: (Some(at(51)), None), ..all() }).await.is_empty());
    assert!(listed(TaskQuery { min_faults: 1, ..all() }).await.is_empty());
    for (time, number, is_descending, expected) in [
        (at(3), tasks[3], true, vec![2, 1, 0]),
        (at(3), tasks[3], false, vec![4]),
        (at(3), uuid::Uuid::nil(), true, vec![3, 2, 1, 0]),
        (at(3), uuid::Uuid::max(), false, vec![4]),
    ] {
        let place = TaskPlace { time, id: number, is_descending };
        assert_eq!(TaskPlace::of_key(&place.key(), is_descending), Some(place));
        assert_eq!(listed(TaskQuery { behind: Some(place), ..all() }).await, expected, "{place:?}");
    }
    for (labels, expected) in [
        (vec![label("OTHER", false, false)], vec![4, 3]),
        (vec![label("night*", true, false)], vec![2, 1]),
        (vec![label("night_ly*", true, false)], vec![1]),
        (vec![label("*ä*", true, false)], vec![1]),
        (vec![label("*%", true, false)], vec![2]),
        (vec![label("*", true, false), label("", false, true)], vec![4, 3, 2, 1]),
        (vec![label("o*", true, true), label("n*", true, true)], vec![0]),
        (vec![label("nightly 100%", false, false), label("oth*r", true, false)], vec![4, 3, 2]),
    ] {
        assert_eq!(listed(TaskQuery { labels: labels.clone(), ..all() }).await, expected, "{labels:?}");
    }
    for (order, expected) in [
        (vec![(Order::RequestTime, false)], vec![0, 1, 2, 3, 4]),
        (vec![(Order::Type, false), (Order::RequestTime, true)], vec![3, 4, 2, 1, 0]),
        (vec![(Order::Status, true), (Order::RequestTime, false)], vec![0, 1, 2, 3, 4]),
        (vec![(Order::Label, false), (Order::RequestTime, false)], vec![0, 1, 2, 3, 4]),
        (vec![(Order::CompletionTime, true), (Order::RequestTime, false)], vec![0, 1, 2, 3, 4]),
    ] {
        assert_eq!(listed(TaskQuery { order: order.clone(), ..all() }).await, expected, "{order:?}");
    }
    let page = TaskQuery { offset: 1, limit: 2, owner: Some(id(1)), ..all() };
    let (found, total) = store.tasks(&page).await.unwrap();
    assert_eq!((found.iter().map(|task| task.id).collect::<Vec<_>>(), total), (vec![tasks[2], tasks[0]], 3));
}

pub async fn a_task_gets_another_label_and_deadline(store: &Store) {
    let made = submitted(store, &transfer(1, 1), 0).await;
    let change = |task, owner, label: &str, deadline| {
        let label = Some(label.to_owned());
        async move { store.update_task(task, owner, label, deadline, None).await.unwrap() }
    };
    assert_eq!(change(made, Some(id(2)), "x", None).await, Changed::NotFound);
    assert_eq!(change(id(9), None, "x", None).await, Changed::NotFound);
    assert_eq!(change(made, Some(id(1)), "Mine", Some(at(77))).await, Changed::Done);
    let wanted = task(store, made).await.wanted;
    assert_eq!((wanted.label.as_deref(), wanted.deadline), (Some("Mine"), at(77)));
    assert_eq!(store.update_task(made, None, None, None, None).await.unwrap(), Changed::Done);
    assert_eq!(task(store, made).await.wanted, wanted);
    let lease = leased(store, 1, 1).await;
    take(store, ending(lease, 1, End::Finished), 2).await;
    assert_eq!(change(made, Some(id(1)), "x", None).await, Changed::Over);
    assert_eq!(task(store, made).await.wanted, wanted);
}
