//! The generated catalogue of fault codes, for `docs/reference/faults.md`.

use std::fmt::Write as _;

use super::{FaultCode, Retry};

/// The text of `docs/reference/faults.md`: every code with meaning, likely cause and cure.
///
/// Deterministic, so that a test can compare it with the tracked file.
pub fn catalogue_markdown() -> String {
    let mut text = String::from(HEADER);
    for code in FaultCode::ALL {
        let explained = code.explain();
        let retried = match code.default_retry() {
            Retry::Temporary { .. } => "retried",
            Retry::Permanent | Retry::Exhausted => "ends the item at once",
        };
        writeln!(
            text,
            "| `{}` | {} | {} | {} | {} |",
            code.name(),
            explained.meaning,
            explained.cause,
            explained.cure,
            retried
        )
        .expect("writing to a string cannot fail");
    }
    text
}

const HEADER: &str = "# Faults

Every error that Whimbrel reports carries one of these codes. The names are stable: programs may
match on them; the sentences may change. Beside the code a fault names its *side* (source,
destination, network, peer, service, us): who has to act for it to go away.

This page is generated from the source; do not edit it.

| code | what happened | likely cause | cure | by default |
| --- | --- | --- | --- | --- |
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_has_one_row_of_five_cells_for_every_code() {
        let text = catalogue_markdown();
        for code in FaultCode::ALL {
            let start = format!("| `{}` |", code.name());
            let rows: Vec<_> = text.lines().filter(|l| l.starts_with(&start)).collect();
            assert_eq!(rows.len(), 1, "{}", code.name());
            assert_eq!(rows[0].matches('|').count(), 6, "{}", rows[0]);
        }
    }
}
