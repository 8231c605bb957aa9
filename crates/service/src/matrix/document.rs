//! How a matrix is told.

use serde_json::{Value, json};
use uuid::Uuid;

use super::records::{Matrix, Measure};
use crate::clock::iso;

/// A matrix without its figures; `name_of` gives what a collection is called.
pub fn head(matrix: &Matrix, name_of: impl Fn(Uuid) -> Option<String>) -> Value {
    let ends: Vec<_> = matrix.ends.iter().map(|end| {
        json!({"collection_id": end.collection, "display_name": name_of(end.collection), "dataset": end.dataset, "copies": end.copies})
    }).collect();
    json!({
        "DATA_TYPE": "matrix", "id": matrix.id, "name": matrix.name, "interval_seconds": matrix.every, "ends": ends,
        "created": iso(matrix.made), "rounds": matrix.round, "task_id": matrix.task,
        "state": match (matrix.due, matrix.task) {
            (None, _) => "stopped",
            (_, Some(_)) => "measuring",
            (_, None) => "waiting",
        },
        "next": matrix.due.filter(|_| matrix.task.is_none()).map(iso),
    })
}

/// A matrix with all of its figures, a cell for each pair.
pub fn whole(matrix: &Matrix, name_of: impl Fn(Uuid) -> Option<String>) -> Value {
    let mut told = head(matrix, name_of);
    let cells = matrix.pairs().into_iter().zip(&matrix.measures).map(|((from, to), measures)| cell(from, to, measures));
    told["cells"] = cells.collect();
    told
}

fn cell(from: usize, to: usize, measures: &[Measure]) -> Value {
    let mut rates: Vec<_> = measures.iter().filter_map(Measure::rate).collect();
    let newest = measures.last().and_then(Measure::rate);
    rates.sort_unstable();
    json!({
        "source": from, "destination": to, "bytes_per_second": newest, "best": rates.last(),
        "median": rates.get(rates.len() / 2), "measurements": measures.iter().rev().map(measurement).collect::<Vec<_>>(),
    })
}

fn measurement(measure: &Measure) -> Value {
    json!({
        "time": iso(measure.at), "task_id": measure.task, "bytes": measure.bytes, "seconds": measure.micros as f64 / 1e6,
        "bytes_per_second": measure.rate(), "fault": measure.fault,
    })
}
