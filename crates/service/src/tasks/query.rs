//! Which tasks a request asks for (`filter=` and `orderby=` of `task_list`).

use uuid::Uuid;
use whimbrel_engine::task::Status;

use crate::http::{ApiError, Filter, Query, Term, orders};
use crate::store::{Label, Order, TaskQuery};

/// What tasks are filtered by.
const KEYS: &[&str] = &[
    "task_id",
    "type",
    "status",
    "label",
    "request_time",
    "completion_time",
    "is_paused",
    "source_endpoint_id",
    "destination_endpoint_id",
];

/// What tasks are ordered by.
const ORDERS: &[(&str, Order)] = &[
    ("task_id", Order::Id),
    ("type", Order::Type),
    ("status", Order::Status),
    ("label", Order::Label),
    ("request_time", Order::RequestTime),
    ("completion_time", Order::CompletionTime),
    ("deadline", Order::Deadline),
    ("faults", Order::Faults),
];

/// Reads filters and order; whose tasks, and which page, is the caller's to say.
///
/// # Errors
/// 400 for what cannot be meant, and for alternatives (a repeated `filter`), which lists of tasks do not have.
pub fn task_query(query: &Query) -> Result<TaskQuery, ApiError> {
    let filter = Filter::of(query, KEYS)?;
    if filter.0.len() > 1 {
        return Err(ApiError::bad_request("`filter` comes once for lists of tasks; its terms are joined by /"));
    }
    let mut wanted = TaskQuery::default();
    for term in filter.0.iter().flatten() {
        take(&mut wanted, term)?;
    }
    let names: Vec<_> = ORDERS.iter().map(|(name, _)| *name).collect();
    for order in orders(query, &names)? {
        let by = ORDERS.iter().find(|(name, _)| *name == order.key).map(|(_, by)| *by);
        wanted.order.extend(by.map(|by| (by, order.descending)));
    }
    Ok(wanted)
}

fn take(wanted: &mut TaskQuery, term: &Term) -> Result<(), ApiError> {
    let values = term.values.iter().filter(|value| !value.is_empty());
    let wrong = |value: &str| ApiError::bad_request(format!("`filter`: {} cannot be {value:?}", term.key));
    match term.key.as_str() {
        "task_id" => wanted.ids = values.map(|id| id.parse().map_err(|_| wrong(id))).collect::<Result<_, _>>()?,
        "type" => wanted.types = values.map(|kind| kind.to_ascii_uppercase()).collect(),
        "status" => {
            let status = |name: &String| Status::parse(&name.to_ascii_uppercase()).ok_or_else(|| wrong(name));
            wanted.statuses = values.map(status).collect::<Result<_, _>>()?;
        }
        "label" => wanted.labels = values.map(|value| label(value)).collect(),
        "request_time" => wanted.requested = term.span()?,
        "completion_time" => wanted.completed = term.span()?,
        "is_paused" => wanted.paused = Some(term.names("1") || term.names("true")),
        end => {
            let ids = values.map(|id| id.parse::<Uuid>().map_err(|_| wrong(id))).collect::<Result<Vec<_>, _>>()?;
            let ends = if end == "source_endpoint_id" { &mut wanted.sources } else { &mut wanted.destinations };
            ends.extend(ids);
        }
    }
    Ok(())
}

fn label(value: &str) -> Label {
    let (is_not, rest) = value.strip_prefix('!').map_or((false, value), |rest| (true, rest));
    let (is_pattern, text) = rest.strip_prefix('~').map_or((false, rest), |rest| (true, rest));
    let text = if is_pattern { text } else { text.strip_prefix('=').unwrap_or(text) };
    Label { text: text.to_owned(), is_pattern, is_not }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TaskQuery, ApiError> {
        task_query(&Query::parse(text.as_bytes()))
    }

    #[test]
    fn the_cli_s_filters_are_read() {
        let query = read(
            "filter=type:TRANSFER,DELETE/status:active,INACTIVE/label:~foo*,!~bar/request_time:2026-01-01,&orderby=request_time%20DESC",
        )
        .unwrap();
        assert_eq!(query.types, ["TRANSFER", "DELETE"]);
        assert_eq!(query.statuses, [Status::Active, Status::Inactive]);
        let labels: Vec<_> =
            query.labels.iter().map(|label| (label.text.as_str(), label.is_pattern, label.is_not)).collect();
        assert_eq!(labels, [("foo*", true, false), ("bar", true, true)]);
        assert!(query.requested.0.is_some() && query.requested.1.is_none());
        assert_eq!(query.order, [(Order::RequestTime, true)]);
        assert!(read("filter=").unwrap().types.is_empty());
        let [one, other] = [1, 2].map(Uuid::from_u128);
        let ends = read(&format!("filter=source_endpoint_id:{one}/destination_endpoint_id:{other}")).unwrap();
        assert_eq!((ends.sources, ends.destinations, ends.collections), (vec![one], vec![other], vec![]));
        for bad in [
            "filter=status:GONE",
            "filter=task_id:7",
            "filter=colour:red",
            "orderby=colour",
            "filter=type:A&filter=type:B",
        ] {
            assert_eq!(read(bad).unwrap_err().status.as_u16(), 400, "{bad}");
        }
    }
}
