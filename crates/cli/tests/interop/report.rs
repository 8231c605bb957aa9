//! The written tables: made from the cases of a complete run, compared with `docs/reference/interop.md`, or where connections are
//! protected with a page of that protection's.

use std::collections::BTreeMap;
use std::path::Path;

use crate::case::Case;

const START: &str = "<!-- The table below is written by the interop tests (WHIMBREL_WRITE_DOCS=1); do not edit it. -->";
const END: &str = "<!-- End of the table. -->";

/// After a run in which all cases passed: writes the table of `page` when asked to, otherwise says whether it has it.
pub fn settle(page: &str, cases: &[&Case]) -> Result<(), String> {
    let name = page;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(page);
    let old = std::fs::read_to_string(&page).map_err(|error| format!("{}: {error}", page.display()))?;
    let (Some(start), Some(end)) = (old.find(START), old.find(END)) else {
        return Err(format!("{} has no place for the table", page.display()));
    };
    let new = format!("{}{START}\n\n{}\n{}", &old[..start], table(cases), &old[end..]);
    if new == old {
        return Ok(());
    }
    if std::env::var_os("WHIMBREL_WRITE_DOCS").is_some() {
        return std::fs::write(&page, new).map_err(|error| format!("{}: {error}", page.display()));
    }
    let missing: Vec<&str> = new.lines().filter(|line| !old.lines().any(|other| other == *line)).collect();
    Err(format!(
        "docs/reference/{name} is not what this run found; run again with WHIMBREL_WRITE_DOCS=1. Missing lines:\n{}",
        missing.join("\n")
    ))
}

/// One section a program and direction, one line a case.
fn table(cases: &[&Case]) -> String {
    let mut sections: BTreeMap<(_, usize), Vec<&Case>> = BTreeMap::new();
    let mut directions: Vec<&str> = Vec::new();
    for &case in cases {
        let place = directions.iter().position(|known| *known == case.direction).unwrap_or_else(|| {
            directions.push(case.direction);
            directions.len() - 1
        });
        sections.entry((case.program, place)).or_default().push(case);
    }
    let mut text = format!("{} cases, all of which pass.\n", cases.len());
    for ((program, place), cases) in sections {
        text += &format!("\n### {}: {}\n\n", program.name(), directions[place]);
        text += "| what | proven | run |\n| --- | --- | --- |\n";
        for case in cases {
            let run = if case.nightly { "nightly" } else { "always" };
            text += &format!("| {} | {} | {run} |\n", case.option.replace('|', "\\|"), case.proves);
        }
    }
    text
}
